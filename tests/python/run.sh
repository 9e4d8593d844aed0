#!/bin/sh
# Builds the Python package's wheel, installs it into a new environment, and runs the tests of this folder there.
#
#     tests/python/run.sh [DIRECTORY [pytest arguments]]      default: build/test/python
#
# The last line counts: "N passed, N failed, N skipped". Exit status 77: this machine cannot run it, and the last line
# says why.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
work=${1:-$root/build/test/python}
[ $# -gt 0 ] && shift
python=${PYTHON:-python3}
packages="scikit-build-core numpy scipy scikit-learn matplotlib ml_dtypes pytest hypothesis"

cannot() { echo "$1"; exit 77; }

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || cannot "no Python of version 3.11 or later"
"$python" -c 'import sysconfig, os, sys
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || cannot "no Python.h"
mkdir -p "$work" && work=$(CDPATH='' cd -- "$work" && pwd) || exit 1
if [ ! -f "$work/venv/ready" ]; then # the stamp is written last, so a broken fetch is repeated
    rm -rf "${work:?}/venv"
    "$python" -m venv "$work/venv" || cannot "no python3 -m venv"
    # shellcheck disable=SC2086 # a list of packages
    "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check $packages ||
        cannot "pip cannot fetch $packages"
    touch "$work/venv/ready"
fi
# One wheel for all versions of Python from 3.11 on. The build directory is kept, so only changed files are compiled
# again.
rm -rf "$work/wheel"
if ! "$work/venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
    --config-settings="build-dir=$work/build" --wheel-dir "$work/wheel" "$root" ||
    ! "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index \
        --force-reinstall "$work"/wheel/napier_math-*-cp311-abi3-*.whl; then
    echo "pip wheel: failed"
    echo "0 passed, 1 failed"
    exit 1
fi
cd "$here" || exit 1
# Without a compiler in PATH: a wheel contains everything it needs.
PATH=$work/venv/bin PYTHONDONTWRITEBYTECODE=1 HYPOTHESIS_STORAGE_DIRECTORY=$work/hypothesis \
    "$work/venv/bin/python" -m pytest -q -rsfE --tb=short -p no:cacheprovider "$@" . >"$work/pytest.log" 2>&1
status=$?
sed -E 's/^SKIPPED \[[0-9]+\] /skip /' "$work/pytest.log"
count() { tail -n 1 "$work/pytest.log" | grep -oE "[0-9]+ $1" | grep -oE '[0-9]+' | head -n 1; }
passed=$(count passed) failed=$(count failed) errors=$(count error) skipped=$(count skipped)
failed=$((${failed:-0} + ${errors:-0}))
[ "$status" -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
printf '%s passed, %s failed, %s skipped\n' "$((${passed:-0} + 1))" "$failed" "${skipped:-0}" # the wheel is one
[ "$failed" -eq 0 ]
