#!/bin/sh
# make bench-attention: prepares PyTorch, builds Napier's worker, measures. Options go to bench_attention.py:
#
#     bench/attention/run.sh --list                  the cases
#     bench/attention/run.sh --only '^128x|causal'   some of them
#
# ../common.sh says which variables of the environment count.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
# shellcheck source=bench/common.sh
. "$root/bench/common.sh"
python=$(python_of rl)
worker=$build/attention_worker
# shellcheck disable=SC2086 # a list of files
make_worker "$worker" $core "$here/attention_worker.c"
OMP_WAIT_POLICY=passive exec "$python" "$here/bench_attention.py" --worker "$worker" --compiler "$compiler" "$@"
