#!/bin/sh
# make bench-rl: prepares PyTorch and TRL, builds Napier's worker, measures. Options go to bench_rl.py:
#
#     bench/rl/run.sh --list                         the cases
#     bench/rl/run.sh --only 'token_logprobs|kl'     some of them
#     bench/rl/run.sh --report                       no measuring: docs/rl-benchmarks.md from bench/results
#
# ../common.sh says which variables of the environment count.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
# shellcheck source=bench/common.sh
. "$root/bench/common.sh"
python=$(python_of rl)
# shellcheck disable=SC2086 # a list of files
make_worker "$build/rl_worker" $core "$root"/bench/floors/*.c "$here/napier_worker.c"
exec "$python" "$here/bench_rl.py" --home "$home" --build "$build" --compiler "$compiler" "$@"
