#!/bin/sh
# make bench-model: prepares transformers, writes a random model of the shape of Qwen3-0.6B (1.2 GB) into the build
# folder, builds Napier's worker, measures. Options go to bench_model.py:
#
#     bench/model/run.sh --only 'prompt 132' --threads 1     some cases
#     bench/model/run.sh --only share                        prompts shared against unshared
#
# NAPIER_BENCH_HOME: where peers live (bench/setup.sh). NAPIER_BENCH_BUILD: where worker and model are made. CC, CFLAGS.
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
[ -x "$python" ] || { echo "bench-model: no PyTorch: see $home/rl.log" >&2; exit 1; }
worker=$build/model_worker
newer() { find "$root/src" "$root/include" "$here" -name '*.[ch]' -newer "$worker" | head -n 1; }
if [ ! -x "$worker" ] || [ -n "$(newer)" ]; then
    # shellcheck disable=SC2086
    $cc $optimise -std=c11 -ffp-contract=off -fopenmp -I"$root/include" -I"$root/src" "$root"/src/*/*.c \
        "$here/napier_worker.c" -lcjson -lpcre2-8 -lutf8proc -lm -o "$worker"
fi
model=$build/qwen3-0.6b-random
[ -f "$model/model.safetensors" ] || "$python" "$here/make_model.py" "$model"
exec "$python" "$here/bench_model.py" --build "$build" --model "$model" "$@"
