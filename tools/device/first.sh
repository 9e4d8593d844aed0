#!/bin/bash
# tools/device/first.sh - the first minutes on a GPU: right or wrong, how fast, and by how many instructions.
#
#     first.sh [NAME...]      the steps whose name begins so; default: all
#
# It runs where tools/device/pack.sh's archive was unpacked, and needs a driver and bash; PyTorch for bench and counts,
# ncu for counts, compute-sanitizer for race and memory. A step that fails stops nothing. All steps together end after END
# seconds (350). OUT (default: here) gets logs.tgz. Standard output is the report: a screenful.
# Exit status: 0; 1 after a failure; 77 if there is no device. After a fix: pack again, and name the steps that failed.
# shellcheck disable=SC2016 # programs for awk and sed
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LD_LIBRARY_PATH="$here/lib:${LD_LIBRARY_PATH:-}" PYTHONPATH="$here/python" PYTHONUNBUFFERED=1
logs=$(mktemp -d) limit=${END:-350} wanted=("$@")

# step NAME SECONDS COMMAND...: one line of the report, with the reason where it failed; NAME.log has the rest.
step() {
    local name=$1 most=$2 left=$((limit - SECONDS)) begin=$SECONDS status=0 skipped=${#wanted[@]} word
    shift 2
    for word in "${wanted[@]}"; do [[ $name == "$word"* ]] && skipped=0; done
    [ "$skipped" -eq 0 ] || return 0
    [ "$left" -gt 5 ] || { echo "late  $name" | tee "$logs/$name.status" && return; }
    timeout -k 5 $((most < left ? most : left)) "$@" >"$logs/$name.log" 2>&1 || status=$?
    case $status in
        0) echo "ok    $name ($((SECONDS - begin)) s)" ;;
        77 | 127) # no device, or no such program
            echo "skip  $name: $(tail -n 1 "$logs/$name.log" | cut -c1-150)"
            ;;
        *)
            echo "FAIL  $name: status $status after $((SECONDS - begin)) s"
            { grep -aE 'FAIL|rror|differ|!=' "$logs/$name.log" | head -n 3 && tail -n 2 "$logs/$name.log"; } |
                awk '!seen[$0]++ { print "      | " substr($0, 1, 150) }'
            ;;
    esac >"$logs/$name.status"
    cat "$logs/$name.status" # at once: steps run side by side
}

show() { # NAME FILTER...: lines of its log, if it passed
    local name=$1
    shift
    if grep -qs '^ok' "$logs/$name.status"; then "$@" "$logs/$name.log"; fi
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem --format=csv,noheader 2>&1 | head -n 2
step device 40 "$here/bin/test_cuda_device_device"
for table in golden golden_rl golden_umap; do
    step $table 100 "$here/bin/${table}_device" --isa scalar --check "$here/bits/$table.txt" &
done
wait
for program in "$here"/bin/test_cuda_*_device; do
    name=$(basename "$program" _device)
    [ "$name" = test_cuda_device ] && continue
    [ "$(jobs -rp | wc -l)" -lt 5 ] || wait -n
    step "$name" 60 "$program" &
done
wait
step ladder 60 "$here/bin/cuda_ladder" 8
show ladder awk -F'|' 'NR == 1 { print "| | copy, ms | Napier | / copy |" } NR > 2 { print "|" $2 "|" $4 "|" $8 "|" $9 "|" }'
step bench 110 python3 "$here/bench/bench_cuda.py" --rounds 5 --peers '^torch$|triton|RL-Kernel|quack' \
    --only '^token_logprobs|grpo|^softmax (131072x2048|8192x32768|512x151936|16x151936)|attention|linear.*entropy' \
    --output "$logs/bench.jsonl"
show bench sed -n '/^| case/,$p'
step counts 60 ncu --kill yes --csv --kernel-name-base function -k 'regex:^napier_' --clock-control none \
    --metrics smsp__inst_executed.sum,dram__bytes_read.sum,gpu__time_duration.sum python3 "$here/bench/counts.py"
show counts python3 "$here/bench/counts.py" --report "$here/bench/loops.txt"
step race 40 compute-sanitizer --error-exitcode 1 --tool racecheck "$here/bin/test_cuda_softmax_device"
step memory 40 compute-sanitizer --error-exitcode 1 --tool memcheck "$here/bin/test_cuda_rl_tokens_device"

tar -czf "${OUT:-.}/logs.tgz" -C "$logs" .
count() { cat "$logs"/*.status | grep -cE "^($1) "; }
ok=$(count ok) failed=$(count FAIL)
echo "$ok passed, $failed failed, $(count 'skip|late') skipped or late in $SECONDS s; logs: ${OUT:-.}/logs.tgz"
rm -rf "$logs"
[ "$failed" -eq 0 ] || exit 1
[ "$ok" -gt 0 ] || exit 77
