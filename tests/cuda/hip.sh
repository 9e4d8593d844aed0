#!/bin/bash
# tests/cuda/hip.sh - compiles the kernels for AMD's GPUs with clang's HIP (core/gpu/kernel_hip.h), without ROCm.
#
#     tests/cuda/hip.sh [FILE.cu...]        default: every .cu in src that does not use tensor cores
#
# ARCHITECTURES: default gfx942 (wavefronts of 64 lanes) and gfx1100 (of 32). gfx90a has the registers and lanes of gfx942, but not
# all of its instructions: for it the compiler stops before it optimizes. CLANG: a clang that knows these, from 18 on. Of each file's
# code it checks that
#   - the registers of a kernel are no more than a block of its size may have (the compiler warns, and warnings are errors);
#   - subnormal floats are kept;
#   - no approximate exponential, logarithm, sine or cosine, and no product with legacy rules for zero.
# The last line counts: N passed, N failed. Exit status 77: no such clang.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
architectures=${ARCHITECTURES:-gfx942 gfx1100}
for name in ${CLANG:-clang-19 clang-20 clang-21 clang-18 clang}; do
    clang=$(command -v "$name") && echo | "$clang" -x hip --cuda-device-only --offload-arch=gfx942 -nogpuinc -nogpulib -S -o /dev/null - 2>/dev/null && break
    clang=
done
[ -n "$clang" ] || { echo "skip: no clang that compiles for gfx942 (clang-19 does)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

flags=(-x hip --cuda-device-only -nogpuinc -nogpulib -std=c++20 -O2 -ffp-contract=off
    -Wall -Werror -Wno-unused-function -Wno-deprecated-anon-enum-enum-conversion -Wno-deprecated-enum-float-conversion
    -Wno-error=pass-failed -I"$root/include" -I"$root/src")
loose='v_(exp|log|sin|cos)_(f16|f32)|_legacy_|_denorm_mode_(32|16_64) [012]$'

look_at() { # FILE.cu architecture
    local name="${1#"$root"/}, $2" code="$work/$(basename "$1").$2"
    if { [ "$2" = gfx942 ] && ! "$clang" "${flags[@]}" --offload-arch=gfx90a -S -emit-llvm -Xclang \
        -disable-llvm-passes -o /dev/null "$1" >"$code.log" 2>&1; } ||
        ! "$clang" "${flags[@]}" --offload-arch="$2" -S -o "$code.s" "$1" >"$code.log" 2>&1 ||
        grep 'failed to meet occupancy' "$code.log" >"$code.bad" || grep -nE "$loose" "$code.s" >"$code.bad"; then
        echo "FAIL  $name"
        head -n 6 "$code.log" "$code.bad" 2>/dev/null | sed 's/^/        | /'
    else
        echo "ok    $name: at most $(awk '/\.vgpr_count:/ && $2 > most { most = $2 } END { print most + 0 }' "$code.s") vector registers"
    fi
    rm -f "$code.s"
}

if [ $# -eq 0 ]; then
    mapfile -t files < <(find "$root/src" -name '*.cu' | sort)
    for i in "${!files[@]}"; do
        if "$clang" "${flags[@]}" --offload-arch=gfx942 -M "${files[$i]}" 2>/dev/null | grep -q '/mma\.cuh'; then
            echo "note  ${files[$i]#"$root"/} uses tensor cores: not for these GPUs"
            unset "files[$i]"
        fi
    done
    set -- "${files[@]}"
fi
export -f look_at
export root work clang loose
declare -p flags >"$work/flags"
for file in "$@"; do
    for architecture in $architectures; do printf '%s %s\n' "$file" "$architecture"; done
done | xargs -P "${JOBS:-$(nproc)}" -L 1 bash -c '. "$work/flags"; look_at "$@"' _ | tee "$work/results"
printf '%d passed, %d failed\n' "$(grep -c '^ok' "$work/results")" "$(grep -c '^FAIL' "$work/results")"
[ "$(grep -c '^ok' "$work/results")" -eq $(($# * $(wc -w <<<"$architectures"))) ]
