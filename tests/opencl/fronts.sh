#!/bin/bash
# tests/opencl/fronts.sh BUILD - the texts of the .cu files (BUILD/opencl/*.cl), all kernels of each, through clang's front ends of
# OpenCL C for SPIR-V and for AMD's GPUs. They need no device and no driver. CLANG: from 18 on.
# The last line counts: N passed, N failed. Exit status 77: no such clang.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
for name in ${CLANG:-clang-19 clang-20 clang-21 clang-18 clang}; do
    clang=$(command -v "$name") && echo | "$clang" -x cl -cl-std=CL3.0 -target spir64 -fsyntax-only - 2>/dev/null && break
    clang=
done
[ -n "$clang" ] || { echo "skip: no clang with OpenCL 3.0 (clang-19 has it)"; exit 77; }
good=0 bad=0
for text in "$1"/opencl/*.cl; do
    grep -qE 'cuda_(mma|ldmatrix)_' "$text" && continue # tensor cores
    mapfile -t wanted < <(grep -ohE 'CUDA_KERNEL\([a-z0-9_]+' "$text" | sed 's/.*(\(.*\)/-DNAPIER_OPENCL_WANT_\1=1/')
    for target in "spir64" "amdgcn-amd-amdhsa -mcpu=gfx942" "amdgcn-amd-amdhsa -mcpu=gfx1100"; do
        # shellcheck disable=SC2086 # words of the target
        if cat "$root/src/core/gpu/kernel_opencl.h" "$text" | "$clang" -x cl -cl-std=CL3.0 -nogpulib -Xclang -cl-ext=+all \
            -Wno-unknown-pragmas -Wno-unused-command-line-argument -fsyntax-only "${wanted[@]}" -target $target - >"$1/fronts.log" 2>&1; then
            good=$((good + 1))
        else
            bad=$((bad + 1))
            echo "FAIL  $(basename "$text") for $target"
            grep -A 2 'error:' "$1/fronts.log" | head -n 6 | sed 's/^/        | /'
        fi
    done
done
echo "$good passed, $bad failed"
[ "$bad" -eq 0 ] && [ "$good" -gt 0 ]
