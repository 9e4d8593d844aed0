#!/bin/sh
# make bench-model: prepares transformers and llama.cpp (which is compiled: minutes), writes a random model of the shape
# of Qwen3-0.6B into the build folder (1.2 GB; for llama.cpp 4.8 GB more), builds Napier's worker, measures. Without
# llama.cpp, where it cannot be built, it goes by itself. Options go to bench_model.py:
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
# shellcheck disable=SC2046 # a list of sources
make_worker "$build/model_worker" $(find "$root/src" -name '*.c') "$here/napier_worker.c" -lcjson -lpcre2-8 -lutf8proc
model=$build/qwen3-0.6b-random
[ -f "$model/model.safetensors" ] || "$python" "$here/make_model.py" "$model"
"$root/bench/setup.sh" llama
llama=$home/llama/bin/python
[ -f "$home/llama/ready" ] || llama=
exec "$python" "$here/bench_model.py" --build "$build" --model "$model" --llama "$llama" "$@"
