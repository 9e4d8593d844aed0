#!/bin/sh
# The benchmarks: bench.py prepares the peers of a suite, builds Napier and the C workers, and measures.
#
#     bench/run.sh [SUITE] [OPTION...]        SUITE: softmax (the default), ops, umap, model or cuda; bench.py has the options
#     bench/run.sh softmax --quick            9 minutes: a third of the shapes, Napier, PyTorch, ORT
#     bench/run.sh ops --only 'kl|attention'  some cells; --list shows their names
#     bench/run.sh SUITE --report [FILE...]   no measuring: the page or the tables, from results (report.py)
#
# NAPIER_BENCH_HOME: where peers live (setup.sh). NAPIER_BENCH_BUILD: where workers are built (build/bench). CC, CFLAGS.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$here")
home=${NAPIER_BENCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/napier/bench}
build=${NAPIER_BENCH_BUILD:-$root/build/bench}
export NAPIER_BENCH_HOME="$home"
mkdir -p "$build"

# given OPTION WORD...: whether the option is among the words.
given() { wanted=$1; shift; for word in "$@"; do [ "$word" = "$wanted" ] && return 0; done; return 1; }

# cuda: an environment with PyTorch and, where they install, Liger-Kernel and quack, and the package built with CUDA in it.
run_cuda() {
    if given --list "$@" || given --help "$@"; then exec "${PYTHON:-python3}" "$here/cuda/bench_cuda.py" "$@"; fi
    nvidia-smi -L >/dev/null 2>&1 || { echo "no CUDA device" >&2; exit 1; }
    "$here/setup.sh" cuda
    "$home/cuda/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
        --force-reinstall --config-settings="build-dir=$build/cuda" --config-settings=cmake.define.NAPIER_CUDA=ON "$root"
    exec "$home/cuda/bin/python" "$here/cuda/bench_cuda.py" "$@"
}

suite=softmax
case ${1:-} in softmax | ops | umap | model | cuda) suite=$1; shift ;; esac
[ "$suite" != cuda ] || run_cuda "$@"

"$here/setup.sh" plot
python=$home/plot/bin/python
[ -x "$python" ] || { echo "bench: no environment: see $home/plot.log" >&2; exit 1; }
if given --report "$@"; then
    shift
    exec "$python" "$here/report.py" "$suite" "$@"
fi
exec "$python" "$here/bench.py" "$suite" --home "$home" --build "$build" "$@"
