#!/bin/sh
# make bench-rl: prepares PyTorch and TRL, builds Napier's worker, measures. Options go to bench_rl.py:
#
#     bench/rl/run.sh --list                         the cases
#     bench/rl/run.sh --only 'token_logprobs|kl'     some of them
#     bench/rl/run.sh --report                       no measuring: docs/rl-benchmarks.md from bench/results
#
# NAPIER_BENCH_HOME: where peers live (bench/setup.sh). NAPIER_BENCH_BUILD: where the worker is made. CC, CFLAGS.
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
[ -x "$python" ] || { echo "bench-rl: no PyTorch: see $home/rl.log" >&2; exit 1; }
worker=$build/rl_worker
newer() { find "$root/src" "$root/include" "$root/bench" -name '*.[ch]' -newer "$worker" | head -n 1; }
if [ ! -x "$worker" ] || [ -n "$(newer)" ]; then
    sources=$(printf '%s\n' "$root"/src/*/*.c | grep -vE '/src/(model|tokenizer)/')
    # shellcheck disable=SC2086
    $cc $optimise -std=c11 -ffp-contract=off -fopenmp -I"$root/include" -I"$root/src" -I"$root/bench" $sources \
        "$root"/bench/floors*.c "$here/napier_worker.c" -lm -o "$worker"
fi
exec "$python" "$here/bench_rl.py" --home "$home" --build "$build" --compiler "$($cc --version | head -n 1), $optimise" "$@"
