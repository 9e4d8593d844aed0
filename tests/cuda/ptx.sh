#!/bin/bash
# tests/cuda/ptx.sh - what nvcc made of the kernels whose bits are the CPU's: nothing fused, nothing estimated, nothing flushed.
#
#     tests/cuda/ptx.sh [FILE.cu...]        default: every src/*/*.cu
#
# For sm_80 and sm_90. In the PTX of each file:
#   - every add, sub, mul and fma of floats says how it rounds (.rn): ptxas may fuse those that do not;
#   - no .ftz, no .approx and no .full (MUFU's ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh; estimated divisions).
# A kernel whose name ends in _fast promises no bits and is not looked at. Tensor cores (mma, wgmma) are named when found:
# a room that uses them promises a batch's bits, not the CPU's.
# And ptxas: registers, and no spills in any kernel.
# The last line counts: N passed, N failed, N skipped. Exit status 77: no nvcc.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)}
[ -n "$nvcc" ] || { echo "skip: no nvcc on this machine"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

flags=(-std=c++20 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -I"$root/include" -I"$root/src")

report() { # name, file with complaints
    if [ -s "$2" ]; then
        echo "FAIL  $1"
        head -n 12 "$2" | sed 's/^/        | /'
        failed=$((failed + 1))
    else
        echo "ok    $1"
        passed=$((passed + 1))
    fi
}

# Lines of the kernels and functions that promise bits, with their kernel's name before them.
promised() {
    awk '/^(\.visible |\.weak )?\.(entry|func)/ { name = $0; sub(/.*\.(entry|func) */, "", name); sub(/^\([^)]*\) */, "", name); sub(/[( ].*/, "", name) }
         name !~ /_fast$/ { print name ": " $0 }' "$1"
}

for file in "${@:-$root/src/*/*.cu}"; do
    # shellcheck disable=SC2086 # the pattern, where no file was named
    for source in $file; do
        name=${source#"$root"/}
        for sm in 80 90; do
            "$nvcc" "${flags[@]}" -arch=compute_$sm -ptx "$source" -o "$work/kernels.ptx" >"$work/log" 2>&1 ||
                { report "$name: nvcc for sm_$sm" "$work/log"; continue; }
            promised "$work/kernels.ptx" >"$work/promised"
            grep -E '[^a-z](add|sub|mul|fma)\.(f32|f64|f16|bf16)|(add|sub|mul|fma|cvt|div|sqrt|min|max|abs|neg|setp)[a-z0-9.]*\.ftz|\.approx|div\.full' \
                "$work/promised" >"$work/bad"
            report "$name: single IEEE operations, sm_$sm" "$work/bad"
        done
        grep -qE '(^|[^a-z])(w?g?mma)\.' "$work/promised" && echo "note  $name uses tensor cores"
        "$nvcc" "${flags[@]}" -gencode arch=compute_90,code=sm_90 -Xptxas -v -c "$source" -o "$work/kernels.o" >"$work/log" 2>&1
        awk '/Compiling entry function/ { split($0, part, "\x27"); kernel = part[2] }
             /bytes spill stores/ && !/ 0 bytes spill stores, 0 bytes spill loads/ { print kernel ": " $0 }' "$work/log" >"$work/bad"
        report "$name: no spills, sm_90 (most registers: $(grep -oE 'Used [0-9]+' "$work/log" | sort -k2 -n | tail -1 | cut -d' ' -f2))" "$work/bad"
    done
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
