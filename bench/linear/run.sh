#!/bin/sh
# Products: prepares PyTorch, builds Napier's worker, measures. Options and shapes go to bench_matmul.py:
#
#     bench/linear/run.sh --threads 1 --cpu 16x1024x3072
#
# ../common.sh says which variables of the environment count.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
# shellcheck source=bench/common.sh
. "$root/bench/common.sh"
python=$(python_of rl)
# shellcheck disable=SC2086 # a list of files
make_worker "$build/matmul_worker" $core "$here/matmul_worker.c"
OMP_WAIT_POLICY=passive exec "$python" "$here/bench_matmul.py" "$build/matmul_worker" "$@"
