#!/bin/bash
# tests/bare/run.sh - one command of a C compiler builds the library, without CMake, make or generated files. It also
# checks that the folders of src/ use each other only as src/README.md says.
#
# The first compiler builds an archive from every .c of src (except src/lm, which needs other libraries), and the program
# and the self-test with it, and both run. The last one builds the self-test and all of that in one command. PATH holds only
# the compiler's tools and the shell's, so that a hidden use of a build tool fails. CC is the first compiler (default cc).
# The last line counts: N passed, N failed, N skipped.
# shellcheck disable=SC1091,SC2317 # checks.sh is not given; functions are called through `check`
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
. "$root/tests/support/checks.sh"

# Makes a PATH of links to the tools that a compiler and this script need.
mkdir "$work/bin"
for tool in gcc cc clang as ld ar sh bash mkdir rm sed tail cat head ls env mktemp basename dirname readlink; do
    found=$(command -v "$tool") && ln -s "$(readlink -f "$found")" "$work/bin/$tool"
done
full_path=$PATH

# Every source of the library except those of src/lm, which need cJSON, PCRE2 and utf8proc.
mapfile -t sources < <(find "$root/src" -name '*.c' ! -path '*/src/lm/*' | sort)
mapfile -t program < <(find "$root/cli" -name '*.c' | sort)

# The commands of README.md and CONTRIBUTING.md, one per line.
build() { # compiler, folder, flags...
    local compiler=$1 folder=$2
    shift 2
    local flags=(-std=c11 -ffp-contract=off -pthread "$@" -I"$root/include" -I"$root/src")
    mkdir -p "$folder" && cd "$folder" &&
        "$compiler" "${flags[@]}" -c "${sources[@]}" &&
        ar rcs libnapier.a ./*.o &&
        "$compiler" "${flags[@]}" -I"$root/cli" "${program[@]}" libnapier.a -lm -o napier &&
        "$compiler" "${flags[@]}" "$root/tests/selftest/selftest.c" libnapier.a -lm -o selftest &&
        "$compiler" "${flags[@]}" "$root/examples/hello.c" libnapier.a -lm -o hello
}

one_command() { # compiler, folder, flags...: all rooms and the self-test at once
    local compiler=$1 folder=$2
    shift 2
    mkdir -p "$folder" && "$compiler" -std=c11 -ffp-contract=off -pthread "$@" -I"$root/include" -I"$root/src" "${sources[@]}" \
        "$root/tests/selftest/selftest.c" -lm -o "$folder/selftest"
}

# Builds run two at a time, because each is one process; `report_builds` reports them in order.
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

report_builds() {
    wait
    local i folder name
    for i in "${!builds[@]}"; do
        name=${builds[$i]} folder=$work/build-$i
        check "$name: build" built "$folder" || continue
        check "$name: self-test" "$folder/selftest" --quick
        [ -x "$folder/hello" ] && check "$name: a program runs" "$folder/hello"
        [ -x "$folder/napier" ] && check "$name: the program runs" "$folder/napier" info
    done
}

# ---- The table of src/README.md --------------------------------------------------------------------------------------

# Compares every #include "..." in src with the table of src/README.md. A folder that the table does not name belongs to
# the folder around it. The table lists a folder below those that it uses. Only files in a folder gpu/ use core/gpu, the
# one lane of core/simd, and other folders gpu/. A folder isa includes the kernels of its part.
arrows_point_down() {
    (cd "$root/src" && grep -rHE '^ *# *include "' --include='*.[ch]' --include='*.cu' --include='*.cuh' .) |
        sed -E 's|^\./([^:]*):[^"]*"([^"]*)".*|\1 \2|' | sort >"$work/includes"
    awk -v src="$root/src/" '
        function room_of(path) {
            while (sub("/[^/]*$", "", path)) if (path in rooms) return path
            return ""
        }
        function on_gpu(path) { return path ~ /\/gpu\// }
        FNR == NR {
            if ($0 !~ /^\| `[a-z]+\/[a-z]+` /) next
            split($0, cell, "|")
            split(cell[2], word, "`")
            room = word[2]
            rooms[room]
            n = split(cell[3], word, "`")
            for (i = 2; i <= n; i += 2) {
                may[room, word[i]]
                if (word[i] ~ /\// && !(word[i] in rooms)) print "src/README.md: " room " uses " word[i] ", which stands below it"
            }
            next
        }
        $2 == "emulator/emulated_kernel.h" { next }
        {
            from = room_of($1)
            to = room_of($2)
            if (from == "") print "src/" $1 ": its folder is not in the table of src/README.md"
            else if (system("test -f " src $2)) print "src/" $1 " includes " $2 ", which does not exist"
            else if (on_gpu($2) && !on_gpu($1)) print "src/" $1 " is not in a folder gpu, but includes " $2
            else if (from == to || (from, to) in may) next
            else if (on_gpu($1) && (to == "core/gpu" || to == "core/simd")) next
            else if (from ~ /\/isa$/ && $2 ~ /(_kernels|[.]inc)[.]h$/ && substr(from, 1, index(from, "/")) == substr(to, 1, index(to, "/"))) next
            else print "src/" $1 " includes " $2 ", which src/README.md does not allow"
        }' "$root/src/README.md" "$work/includes" >"$work/arrows"
    cat "$work/arrows"
    [ -s "$work/includes" ] && [ ! -s "$work/arrows" ]
}
# No files of src use each other in a circle. A source and its headers count as one here.
circles() {
    sed -E 's/[.][ch]( |$)/\1/g' "$work/includes" | awk '$1 != $2' | sort -u | tsort >/dev/null
}
# The program and the examples use the public headers, the standard library and their own files. They share three files of
# src, which write a file, know the operating system, and have threads.
faces_use_the_api() {
    ! grep -rnE '#include ["<](\.\./)*(src/)?(core|ops|umap|lm)/[a-z_0-9]+/' "$root/cli" "$root/examples" --include='*.[ch]' |
        grep -vE '/cli/(io/output\.c|program/system\.h|softmax/floor\.h):[0-9]+:#include "core/base/(output_file|platform|pool)\.h"'
}
check "rooms use what stands below them" arrows_point_down
check "no circle of files" circles
check "the program and the examples use the public headers" faces_use_the_api

# ---- The builds ------------------------------------------------------------------------------------------------------

export PATH=$work/bin
for tool in cmake make ninja pkg-config; do
    if command -v "$tool" >/dev/null 2>&1; then
        echo "FAIL  $tool is still on PATH"
        failed=$((failed + 1))
    fi
done
compilers=()
for compiler in "${CC:-cc}" gcc clang; do
    real=$(PATH=$full_path command -v "$compiler") || { skip "$compiler" "not on this machine"; continue; }
    real=$(readlink -f "$real")
    case " ${compilers[*]} " in *" $real "*) ;; *) compilers+=("$real") ;; esac
done
last=${compilers[-1]}
start "${compilers[0]##*/}" build "${compilers[0]}" -O0 # optimizing takes minutes; CMake's builds do it
start "${last##*/}, one command" one_command "$last" -O0
report_builds
finish
