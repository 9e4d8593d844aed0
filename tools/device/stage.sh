#!/bin/bash
# tools/device/stage.sh - the first hour on a GPU, in four stages, from the folder that `cmake --install build/device
# --component device` makes. That folder needs no network, and nothing else of the repository.
#
#     stage.sh 1     5 minutes   the device; its own test; the tables of golden bits; all tests; stops at the first failure
#     stage.sh 2     9 minutes   compute-sanitizer: memcheck, racecheck, synccheck
#     stage.sh 3     8 minutes   the ladder of softmax, a map, and instructions and bytes of kernels by Nsight Compute
#     stage.sh 4     9 minutes   bench_cuda, if the folder has it and Python has PyTorch
#
# OUT (default ./stage-N) gets a log of each command. A command that runs past its limit, or past the stage's, is ended.
# The last line counts. Exit status: 0; 1 after a failure; 77 if there is no device.
set -u
here=$(cd "$(dirname "$0")" && pwd)
stage=${1:-}
limits=(0 300 540 480 540) # seconds
case $stage in
    1 | 2 | 3 | 4) ;;
    *)
        sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
out=${OUT:-$PWD/stage-$stage}
mkdir -p "$out" || exit 2
ends=$((SECONDS + limits[stage]))
passed=0 failed=0 skipped=0

# run NAME LIMIT COMMAND...: its log is NAME.log.
run() {
    local name=$1 limit=$2 left=$((ends - SECONDS)) status begin=$SECONDS
    shift 2
    if [ "$left" -le 0 ]; then
        echo "skip  $name: the stage's time is over"
        skipped=$((skipped + 1))
        return 0
    fi
    timeout -k 5 $((limit < left ? limit : left)) "$@" >"$out/$name.log" 2>&1
    status=$?
    case $status in
        0) echo "ok    $name ($((SECONDS - begin)) s)" && passed=$((passed + 1)) ;;
        77) echo "skip  $name: $(tail -n 1 "$out/$name.log")" && skipped=$((skipped + 1)) ;;
        124 | 137) echo "FAIL  $name: ended after $((SECONDS - begin)) s" && failed=$((failed + 1)) ;;
        *)
            echo "FAIL  $name: status $status"
            tail -n 8 "$out/$name.log" | sed 's/^/        | /'
            failed=$((failed + 1))
            ;;
    esac
    return $status
}

finish() {
    echo "stage $stage: $passed passed, $failed failed, $skipped skipped; logs in $out"
    [ "$failed" -gt 0 ] && exit 1
    [ "$passed" -gt 0 ] && exit 0
    exit 77
}

golden() { # NAME PREFIX...: one table, by another program in front
    local name=$1
    shift
    echo "$@" "$here/bin/${name}_device" --isa scalar --check "$here/bits/$name.txt"
}

have() { command -v "$1" >/dev/null || { echo "skip  $1 is not on this machine" && skipped=$((skipped + 1)) && return 1; }; }

stage_1() {
    have nvidia-smi && { run nvidia-smi 30 nvidia-smi || return; }
    run test_cuda_device 60 "$here/bin/test_cuda_device_device" || [ $? -eq 77 ] || return
    for name in golden golden_rl golden_umap; do
        run "$name" 120 $(golden $name) || [ $? -eq 77 ] || return
    done
    for program in "$here"/bin/test_cuda_*_device; do
        name=$(basename "$program" _device)
        [ "$name" = test_cuda_device ] || run "$name" 120 "$program" || [ $? -eq 77 ] || return
    done
}

stage_2() {
    have compute-sanitizer || return
    local tool=(compute-sanitizer --error-exitcode 1 --tool)
    for name in golden golden_rl golden_umap; do
        run "memcheck-$name" 120 $(golden $name "${tool[@]}" memcheck) --quick
    done
    for name in device softmax umap_neighbors linear_matmul attention; do
        for check in memcheck racecheck synccheck; do
            run "$check-$name" 90 "${tool[@]}" $check "$here/bin/test_cuda_${name}_device"
        done
    done
}

stage_3() {
    run ladder 180 "$here/bin/cuda_ladder"
    run map 120 "$here/bin/cuda_map"
    have ncu || return
    local kernels=napier_softmax_rows_bf16,napier_softmax_short,napier_token,napier_grpo,napier_linear_tiles,napier_layout
    run ncu 180 ncu --clock-control none --metrics smsp__inst_executed.sum,dram__bytes_read.sum,dram__bytes_write.sum \
        --kernel-name "regex:${kernels//,/|}" --launch-count 12 "$here/bin/cuda_ladder"
}

stage_4() {
    if [ ! -e "$here/python" ]; then
        echo "skip  bench_cuda: the folder has no Python package" && skipped=$((skipped + 1))
        return
    fi
    for group in softmax token grpo; do
        run "bench-$group" 180 env PYTHONPATH="$here/python" python3 "$here/bench/bench_cuda.py" --only "$group"
    done
}

"stage_$stage"
finish
