#!/bin/sh
# make bench-attention: prepares PyTorch, builds Napier's worker, measures. Options go to bench_attention.py:
#
#     bench/attention/run.sh --list                  the cases
#     bench/attention/run.sh --only '^128x|causal'   some of them
#
# NAPIER_BENCH_HOME: where PyTorch lives (bench/setup.sh). NAPIER_BENCH_BUILD: where the worker is made. CC, CFLAGS.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
home=${NAPIER_BENCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/napier/bench}
build=${NAPIER_BENCH_BUILD:-$root/build/bench}
cc=${CC:-cc}
optimise=${CFLAGS:--O2}
export NAPIER_BENCH_HOME="$home"
mkdir -p "$build"
"$root/bench/setup.sh" rl
python=$home/rl/bin/python
[ -x "$python" ] || { echo "bench-attention: no PyTorch: see $home/rl.log" >&2; exit 1; }
worker=$build/attention_worker
newer() { find "$root/src" "$root/include" "$here" -name '*.[ch]' -newer "$worker" | head -n 1; }
if [ ! -x "$worker" ] || [ -n "$(newer)" ]; then
    sources=$(printf '%s\n' "$root"/src/*/*.c | grep -vE '/src/(model|tokenizer)/')
    # shellcheck disable=SC2086
    $cc $optimise -std=c11 -ffp-contract=off -fopenmp -I"$root/include" -I"$root/src" $sources \
        "$here/attention_worker.c" -lm -o "$worker"
fi
OMP_WAIT_POLICY=passive exec "$python" "$here/bench_attention.py" --worker "$worker" \
    --compiler "$($cc --version | head -n 1), $optimise" "$@"
