#!/bin/bash
# tests/bare/run.sh - one line of a C compiler builds the library: no CMake, no make, no generated file.
# And do the rooms of src/ use each other as src/README.md says?
#
# With each compiler at hand: an archive from src/*/*.c (all rooms but tokenizer and model, which need libraries of their
# own), the program and the self-test linked to it, and both run. PATH holds the compiler's tools and the
# shell's only, so that a build tool that slipped in would not be found. The first compiler also builds all in
# one command, and once more without OpenMP. CC is the first compiler (default cc).
# The last line counts: N passed, N failed, N skipped.
# shellcheck disable=SC2317 # functions are called through `check`
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

check() { # name, command...
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok    $name"
        passed=$((passed + 1))
    else
        echo "FAIL  $name"
        sed 's/^/        | /' "$work/log" | tail -n 25
        failed=$((failed + 1))
        return 1
    fi
}

skip() { # name, why
    echo "skip  $1: $2"
    skipped=$((skipped + 1))
}

# A PATH of links to what a compiler and this script need.
mkdir "$work/bin"
for tool in gcc cc clang as ld ar sh bash mkdir rm sed tail cat head ls env mktemp basename dirname readlink; do
    found=$(command -v "$tool") && ln -s "$(readlink -f "$found")" "$work/bin/$tool"
done
full_path=$PATH

# Every source of the library but those of the two rooms that need cJSON, PCRE2 and utf8proc.
sources=()
for file in "$root"/src/*/*.c; do
    case $file in */src/model/* | */src/tokenizer/*) ;; *) sources+=("$file") ;; esac
done

# The commands of README.md and CONTRIBUTING.md, in words of one line.
build() { # compiler, folder, flags...
    local compiler=$1 folder=$2
    shift 2
    local flags=(-std=c11 -ffp-contract=off "$@" -I"$root/include" -I"$root/src")
    mkdir -p "$folder" && cd "$folder" &&
        "$compiler" "${flags[@]}" -c "${sources[@]}" &&
        ar rcs libnapier.a ./*.o &&
        if [ -f "$root/cli/main.c" ]; then "$compiler" "${flags[@]}" "$root"/cli/*.c libnapier.a -lm -o napier; fi &&
        "$compiler" "${flags[@]}" "$root/tests/selftest/selftest.c" libnapier.a -lm -o selftest &&
        "$compiler" "${flags[@]}" "$root/examples/hello.c" libnapier.a -lm -o hello
}

one_command() { # compiler, folder, flags...: all rooms and a program at once
    local compiler=$1 folder=$2
    shift 2
    mkdir -p "$folder" && "$compiler" -std=c11 -ffp-contract=off "$@" -I"$root/include" -I"$root/src" "${sources[@]}" \
        "$root/examples/hello.c" -lm -o "$folder/hello"
}

# Builds run two at a time, for each is one process; `finish` tells of them in their order.
builds=()
start() { # name, build or one_command, compiler, flags...
    local name=$1 how=$2 compiler=$3 folder=$work/build-${#builds[@]}
    shift 3
    builds+=("$name")
    [ "${#builds[@]}" -gt 2 ] && wait -n
    ("$how" "$compiler" "$folder" "$@" >"$folder.log" 2>&1 && : >"$folder.done") &
}

built() { # folder
    cat "$1.log"
    [ -e "$1.done" ]
}

finish() {
    wait
    local i folder name
    for i in "${!builds[@]}"; do
        name=${builds[$i]} folder=$work/build-$i
        check "$name: build" built "$folder" || continue
        check "$name: a program runs" "$folder/hello"
        [ -x "$folder/selftest" ] && check "$name: self-test" "$folder/selftest" --quick
        [ -x "$folder/napier" ] && check "$name: the program runs" "$folder/napier" info
    done
}

# ---- The table of src/README.md --------------------------------------------------------------------------------------

# Every include of one room by another, against what it may use.
arrows_point_down() {
    grep -H '^#include "' "$root"/src/*/*.[ch] "$root"/src/*/*.cu | grep -v '"emulated_kernel.h"' | sed -E 's|.*/src/([^/]*)/[^:]*:#include "([^/"]*)/.*|\1 \2|' | sort -u |
        while read -r room used; do
            case "$room uses $used" in
            "$room uses $room" | "math uses simd") ;;
            "softmax uses simd" | "linear uses simd" | "rl uses simd" | "attention uses simd") ;;
            "cuda uses base" | "cuda uses math") ;;
            "softmax uses cuda" | "linear uses cuda" | "rl uses cuda" | "attention uses cuda" | "umap uses cuda") ;;
            "softmax uses base" | "softmax uses math" | "softmax uses isa") ;;
            "linear uses base" | "linear uses math" | "linear uses isa") ;;
            "rl uses base" | "rl uses math" | "rl uses isa" | "rl uses softmax" | "rl uses linear") ;;
            "attention uses base" | "attention uses math" | "attention uses isa" | "attention uses linear") ;;
            "tokenizer uses base") ;;
            "model uses base" | "model uses math" | "model uses isa" | "model uses softmax" | "model uses linear") ;;
            "model uses rl" | "model uses attention" | "model uses tokenizer") ;;
            "umap uses base" | "umap uses math" | "umap uses isa" | "umap uses linear") ;;
            "isa uses simd" | "isa uses math" | "isa uses softmax" | "isa uses linear" | "isa uses umap" | "isa uses rl") ;;
            "isa uses attention" | "isa uses model") ;;
            *) echo "src/$room includes a header of src/$used, which src/README.md does not allow" ;;
            esac
        done >"$work/arrows"
    cat "$work/arrows"
    [ ! -s "$work/arrows" ]
}
# Programs on top use the public headers, the standard library and their own. One file is shared: how a file is written.
faces_use_the_api() {
    ! grep -nE '#include ["<](\.\./)*(src|base|simd|cuda|math|isa|softmax|linear|umap|rl|attention|tokenizer|model)/' "$root"/cli/*.[ch] "$root"/examples/*.[ch] 2>/dev/null |
        grep -vE '/cli/output\.c:[0-9]+:#include "base/output_file\.h"'
}
check "rooms use what stands below them" arrows_point_down
check "the program and the examples use the public headers" faces_use_the_api

# ---- The builds ------------------------------------------------------------------------------------------------------

export PATH=$work/bin
for tool in cmake make ninja pkg-config; do
    if command -v "$tool" >/dev/null 2>&1; then
        echo "FAIL  $tool is still on PATH"
        failed=$((failed + 1))
    fi
done
seen=" "
first=yes
for compiler in "${CC:-cc}" gcc clang; do
    real=$(PATH=$full_path command -v "$compiler") || { skip "$compiler" "not on this machine"; continue; }
    real=$(readlink -f "$real")
    case $seen in *" $real "*) continue ;; esac
    seen="$seen$real "
    name=$(basename "$compiler")
    level=-O0 # only the first build is the README's to the letter: optimizing takes minutes
    [ $first = yes ] && level=-O2
    if echo 'int main(void){return 0;}' | "$real" -fopenmp -x c - -o "$work/openmp" 2>/dev/null; then
        start "$name" build "$real" $level -fopenmp
        [ $first = yes ] && start "$name, one command" one_command "$real" -O0 -fopenmp
    else
        skip "$name with OpenMP" "its OpenMP library is not on this machine"
    fi
    [ $first = yes ] && start "$name without OpenMP" build "$real" -O0
    first=no
done
finish
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
