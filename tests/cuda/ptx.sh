#!/bin/bash
# tests/cuda/ptx.sh - checks nvcc's code of the kernels that have the CPU's bits: nothing is fused, approximate or
# flushed.
#
#     tests/cuda/ptx.sh [FILE.cu...]        default: every .cu in src
#     KEPT=BUILD tests/cuda/ptx.sh          what `--keep` left in a build
#     tests/cuda/ptx.sh --keep NVCC...      compiles as CMake asks (CMAKE_CUDA_COMPILER_LAUNCHER), and keeps nvcc's code
#                                           and words beside the object
#
# It checks sm_90; code for sm_80 differs only where core/gpu/kernel_nvcc.h asks for clusters. In the PTX of each file:
#   - every add, sub, mul and fma of floats has an explicit rounding (.rn), because ptxas may fuse those that have none;
#   - no .ftz, no .approx and no .full (MUFU's ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh; approximate divisions).
# A kernel whose name ends in _fast does not promise bits and is not checked. The script names kernels that use tensor
# cores (mma, wgmma): these promise bits that do not depend on the batch, but not the CPU's.
# From ptxas it takes the most registers, and checks that no kernel spills more than 256 bytes (a few around a rare call
# do no harm).
# Where nvdisasm is found (NVDISASM, or beside nvcc), it counts the instructions of the hot loops of loops.txt (sass.py).
# It says how many seconds of processor time each file took, and all files together.
# JOBS files at a time. The last line counts: N passed, N failed. Exit status 77: no nvcc.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)}
[ -n "$nvcc" ] || { echo "skip: no nvcc on this machine"; exit 77; }
nvdisasm=${NVDISASM:-$(command -v nvdisasm || ls "$(dirname "$nvcc")/nvdisasm" 2>/dev/null)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Compiles, and keeps in a folder nvcc's code, what ptxas says (log) and the processor's time (seconds).
compile() { # folder, nvcc and its arguments
    local dir=$1 TIMEFORMAT='%U %S'
    shift
    mkdir -p "$dir"
    { time "$@" -Xptxas -v --keep --keep-dir "$dir" >"$dir/log" 2>&1; } 2>"$dir/seconds"
}

if [ "${1:-}" = --keep ]; then
    shift
    for ((i = 1; i < $#; i++)); do [ "${!i}" = -o ] && after=$((i + 1)) && object=${!after}; done
    compile "$object.kept" "$@" || { cat "$object.kept/log" >&2 && exit 1; }
    exit 0
fi

flags=(-std=c++20 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -I"$root/include" -I"$root/src")
loose='[^a-z](add|sub|mul|fma)\.(f32|f64|f16|bf16)|(add|sub|mul|fma|cvt|div|sqrt|min|max|abs|neg|setp)[a-z0-9.]*\.ftz|\.approx|div\.full'

report() { # name, file with complaints
    if [ -s "$2" ]; then
        echo "FAIL  $1"
        head -n 12 "$2" | sed 's/^/        | /'
    else
        echo "ok    $1"
    fi
}

# Prints the lines of the kernels and functions that promise bits, each after the name of its kernel.
promised() {
    awk '/^(\.visible |\.weak )?\.(entry|func)/ { name = $0; sub(/.*\.(entry|func) */, "", name); sub(/^\([^)]*\) */, "", name); sub(/[( ].*/, "", name) }
         name !~ /_fast$/ { print name ": " $0 }' "$1"
}

look_at() { # FILE.cu, folder of its own
    local name=${1#"$root"/} dir=$2
    if [ -n "${KEPT:-}" ]; then
        ln -s "$KEPT/CMakeFiles/napier_kernels.dir/$name.o.kept" "$dir"
    elif ! compile "$dir" "$nvcc" "${flags[@]}" -gencode 'arch=compute_90,code=[compute_90,sm_90]' -c "$1" -o "$dir.o"; then
        report "$name: nvcc" "$dir/log"
        return
    fi
    cat "$dir"/*.ptx | promised /dev/stdin >"$dir/promised"
    [ -s "$dir/promised" ] || { echo "FAIL  $name: no code" && return; }
    grep -E "$loose" "$dir/promised" >"$dir/bad"
    report "$name: single IEEE operations" "$dir/bad"
    grep -qE '(^|[^a-z])(wg)?mma\.' "$dir/promised" && echo "note  $name uses tensor cores"
    awk '/Compiling entry function/ { split($0, part, "\x27"); kernel = part[2] }
         match($0, /[0-9]+ bytes spill stores/) && substr($0, RSTART) + 0 > 256 { print kernel ": " $0 }' "$dir/log" >"$dir/bad"
    report "$name: few spills (most registers: $(grep -oE 'Used [0-9]+' "$dir/log" | sort -n -k2 | tail -1 | cut -d' ' -f2))" "$dir/bad"
    echo "note  $name: $(awk '{ print $1 + $2 }' "$dir/seconds") s of nvcc"
    count_loops "$name" "$dir"
}

# The kernels of a file that the documents count, each with its loops.
limits() { awk -v file="$1" '$1 == file { $1 = ""; print }' "$root/tests/cuda/loops.txt"; }

count_loops() { # name, folder
    local kernel loops
    [ -n "$nvdisasm" ] && [ -n "$(limits "$1")" ] || return 0
    : >"$2/bad"
    while read -r kernel loops; do
        # shellcheck disable=SC2086 # words
        NVDISASM=$nvdisasm python3 "$root/tests/cuda/sass.py" "$2"/*.cubin "$kernel" $loops >"$2/counts" 2>&1 || cat "$2/counts" >>"$2/bad"
        sed 's/^/note  /' "$2/counts"
    done < <(limits "$1")
    report "$1: instructions of the hot loops" "$2/bad"
}

files=("$@")
[ $# -gt 0 ] || mapfile -t files < <(find "$root/src" -name '*.cu' | sort)
for i in "${!files[@]}"; do
    [ "$(jobs -rp | wc -l)" -ge "${JOBS:-$(nproc)}" ] && wait -n
    look_at "${files[$i]}" "$work/$i" >"$work/$i.report" 2>&1 &
done
wait
for i in "${!files[@]}"; do
    cat "$work/$i.report"
done >"$work/all"
cat "$work/all"
failed=$(grep -c '^FAIL' "$work/all")
awk '{ seconds += $1 + $2 } END { printf "note  %.0f s of nvcc for %d files\n", seconds, NR }' "$work"/*/seconds
echo "$(grep -c '^ok' "$work/all") passed, $failed failed"
[ "$failed" -eq 0 ]
