#!/bin/sh
# make bench-model: prepares transformers, writes a random model of the shape of Qwen3-0.6B (1.2 GB) into the build
# folder, builds Napier's worker, measures. Options go to bench_model.py:
#
#     bench/model/run.sh --only 'prompt 132' --threads 1     some cases
#     bench/model/run.sh --only share                        prompts shared against unshared
#
# ../common.sh says which variables of the environment count.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
# shellcheck source=bench/common.sh
. "$root/bench/common.sh"
python=$(python_of rl)
make_worker "$build/model_worker" "$root"/src/*/*.c "$here/napier_worker.c" -lcjson -lpcre2-8 -lutf8proc
model=$build/qwen3-0.6b-random
[ -f "$model/model.safetensors" ] || "$python" "$here/make_model.py" "$model"
exec "$python" "$here/bench_model.py" --build "$build" --model "$model" "$@"
