#!/bin/sh
# The benchmarks: prepares the peers of a suite, builds Napier and the C workers, and measures.
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

# The value of an option as argparse takes it: "--peers a,b" or "--peers=a,b".
value_of() {
    wanted=$1; shift
    while [ $# -gt 0 ]; do
        case $1 in
        "$wanted") printf '%s' "${2:-}"; return ;;
        "$wanted"=*) printf '%s' "${1#*=}"; return ;;
        esac
        shift
    done
}

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
if given --list "$@"; then
    exec "$python" "$here/bench.py" "$suite" --home "$home" --build "$build" "$@"
fi

peers=$(value_of --peers "$@" | tr , ' ')
case $suite-$(given --quick "$@" && echo quick || true) in
softmax-quick) peers=${peers:-napier torch ort} ;;
softmax-) peers=${peers:-napier torch ort jax scipy onednn xnnpack} ;;
ops-*) peers=${peers:-napier torch} ;;
umap-*) peers=${peers:-napier umap uwot} ;;
model-*) peers=${peers:-napier transformers llama} ;;
esac
for peer in $peers; do
    [ "$peer" = napier ] || "$here/setup.sh" "$peer"
done

cmake -S "$root" -B "$build" -DNAPIER_BENCH=ON -DNAPIER_TESTS=OFF -DNAPIER_CLI=OFF -DNAPIER_EXAMPLES=OFF -DNAPIER_CUDA=OFF \
    -DNAPIER_ONEDNN="$home/onednn" >"$build/configure.log" || { cat "$build/configure.log" >&2; exit 1; }
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
cmake --build "$build" --parallel "$jobs" --target napier_worker >"$build/build.log" || { cat "$build/build.log" >&2; exit 1; }
for peer in onednn xnnpack; do
    case " $peers " in
    *" $peer "*) cmake --build "$build" --target "${peer}_worker" >"$build/$peer.log" 2>&1 ||
        echo "bench: $peer: does not build, left out" >&2 ;;
    esac
done

model=
if [ "$suite" = model ]; then # 1.2 GB; of two layers where it need only be quick
    model=$build/qwen3-0.6b-random layers=28
    if given --quick "$@"; then model=$build/qwen3-two-layers-random layers=2; fi
    "$here/setup.sh" transformers
    [ -f "$model/model.safetensors" ] || "$home/rl/bin/python" "$here/model/make_model.py" "$model" --layers $layers
fi
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
compiler="$("$cc" --version | head -n 1), -O2 ${CFLAGS:-}"
exec "$python" "$here/bench.py" "$suite" --home "$home" --build "$build" --compiler "$compiler" --model "$model" "$@"
