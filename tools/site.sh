#!/bin/sh
# tools/site.sh [WHEEL] - the part of `make site` after the set-up: the documentation as a site, in build/site/html.
#
# It needs an environment with Sphinx and with the packages that napier's optional modules import, because a page of a Python
# module is made of the module itself. bench/setup.sh fetches it (PyTorch is large). WHEEL is Napier's, or Napier is built.
set -eu
cd "$(dirname "$0")/.."
home=${NAPIER_BENCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/napier/bench}
mkdir -p build/site
bench/setup.sh site
[ -f "$home/site/ready" ] || exit 1
echo "site: building Napier for Python (log: build/site.log)"
"$home/site/bin/python" -m pip install --quiet --disable-pip-version-check --target build/site-python --upgrade "${1:-.}" >build/site.log 2>&1 ||
    { tail -n 30 build/site.log; exit 1; }
PYTHONPATH=build/site-python "$home/site/bin/python" docs/site/build.py build/site
