#!/bin/sh
# make bench-cuda: makes an environment with PyTorch and, where they install, Liger-Kernel and quack; builds the Python package
# with CUDA into it; measures. Options go to bench_cuda.py:
#
#     bench/cuda/run.sh --list                        the cases, without a GPU
#     bench/cuda/run.sh --only '^softmax' --rounds 50
#
# It ends with status 1 and "no CUDA device" where there is none. ../common.sh says which variables of the environment count.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
# shellcheck source=bench/common.sh
. "$root/bench/common.sh"
case " $* " in
*" --list "* | *" --help "* | *" -h "*) exec "${PYTHON:-python3}" "$here/bench_cuda.py" "$@" ;;
esac
if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "no CUDA device" >&2
    exit 1
fi
venv=$home/cuda python=$home/cuda/bin/python
if [ ! -f "$venv/ready" ]; then # the stamp is written last, so a broken fetch is repeated
    rm -rf "${venv:?}"
    "${PYTHON:-python3}" -m venv "$venv"
    "$python" -m pip install --quiet --disable-pip-version-check torch numpy scikit-build-core
    for peer in liger-kernel quack-kernels; do
        "$python" -m pip install --quiet --disable-pip-version-check "$peer" || echo "bench: $peer does not install" >&2
    done
    touch "$venv/ready"
fi
"$python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
    --config-settings="build-dir=$build/cuda" --config-settings=cmake.define.NAPIER_CUDA=ON "$root"
exec "$python" "$here/bench_cuda.py" "$@"
