#!/bin/sh
#SBATCH --job-name=generate
#SBATCH --array=0-15
#SBATCH --cpus-per-task=8
#SBATCH --requeue
# Samples of many prompts by a Slurm array: each task has a shard of the lines. A task that dies is queued again and goes on
# where its file ends. When all are done, the joined file has the bytes of one process for all prompts.
#
#     sbatch slurm_generate.sh prompts.jsonl Qwen3-0.6B samples --samples 8 -t 0.8      16 files samples.00000 ...
#     sh slurm_generate.sh --join samples > samples.jsonl
#     SHARDS=100 sbatch --array=0-99 slurm_generate.sh ...                              another number of shards, also to join
#     sbatch --array=3,7 slurm_generate.sh ...                                          two shards once more
#
# The number of shards is SHARDS and not that of the tasks, because a later array may have some of them only. Without
# Slurm: for i in 0 1 2 3; do SHARDS=4 SLURM_ARRAY_TASK_ID=$i sh slurm_generate.sh ... & done; wait
set -eu

if [ "$1" = --join ]; then # each file is in the order of its lines
    name=$2 shard=0
    set --
    while [ "$shard" -lt "${SHARDS:-16}" ]; do
        set -- "$@" "$name.$(printf %05d "$shard")"
        if [ ! -e "$name.$(printf %05d "$shard")" ]; then
            echo "$name: no file of shard $shard of ${SHARDS:-16} (say SHARDS=N if there were others)" >&2
            exit 1
        fi
        shard=$((shard + 1))
    done
    if [ -e "$name.$(printf %05d "$shard")" ]; then
        echo "$name: there is a file of shard $shard, but ${SHARDS:-16} shards (say SHARDS=N if there were others)" >&2
        exit 1
    fi
    LC_ALL=C exec sort -m -s -t ' ' -k 2,2n "$@"
fi
prompts=$1 model=$2 output=$3
shift 3
part=$output.$(printf %05d "$SLURM_ARRAY_TASK_ID")
exec napier generate "$prompts" --model "$model" --shard "$SLURM_ARRAY_TASK_ID/${SHARDS:-16}" --resume --output "$part" \
    ${SLURM_CPUS_PER_TASK:+--threads=$SLURM_CPUS_PER_TASK} "$@"
