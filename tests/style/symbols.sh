#!/bin/sh
# tests/style/symbols.sh ARCHIVE - what the objects of the library call, read with nm: what #include does not show.
#
# No objects call each other in a circle. Each calls only rooms that src/README.md lets its room use. A function that only
# its own file calls is static, unless the public API or another program of this repository has it.
# The last line counts: N passed, N failed, N skipped. Exit status 77: this machine cannot run it.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
archive=$1
command -v nm >/dev/null 2>&1 || { echo "no nm on this machine"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 passed=0

report() { # name, file with what is wrong
    if [ -s "$2" ]; then
        sed 's/^/FAIL  /' "$2"
        failed=$((failed + 1))
    else
        echo "ok    $1"
        passed=$((passed + 1))
    fi
}

# Lines "symbol file" of what each object defines and needs; no two sources have the same name.
(cd "$root/src" && find . -name '*.c' | sed -E 's|^\./(.*/)?([^/]*)\.c$|\2 \1\2.c|') | sort >"$work/sources"
nm -A "$archive" 2>/dev/null | sed -E 's/^[^:]*:([^:]*)\.c\.o:/\1 /' >"$work/nm"
awk '$2 == "U" { print $1, $3 }' "$work/nm" | sort | join - "$work/sources" | awk '{ print $2, $3 }' | sort -u >"$work/needs"
awk '$3 ~ /^[TRDBW]$/ { print $1, $4 }' "$work/nm" | sort | join - "$work/sources" | awk '{ print $2, $3 }' | sort -u >"$work/has"
join "$work/needs" "$work/has" | awk '{ print $2, $3, $1 }' >"$work/calls" # caller, callee, symbol
[ -s "$work/calls" ] || { echo "$archive: no calls found"; echo "0 passed, 1 failed"; exit 1; }

awk '{ print $1, $2 }' "$work/calls" | tsort 2>&1 >/dev/null | sed -n 's/^tsort: \(.*\.c\)$/\1 is in a circle of calls/p' |
    sort -u >"$work/circles"
report "no circle of calls" "$work/circles"

awk '
    function room_of(path) { while (sub("/[^/]*$", "", path)) if (path in rooms) return path; return "" }
    FNR == NR {
        if ($0 !~ /^\| `[a-z]+\/[a-z]+` /) next
        split($0, cell, "|"); split(cell[2], word, "`"); room = word[2]; rooms[room]
        n = split(cell[3], word, "`")
        for (i = 2; i <= n; i += 2) may[room, word[i]]
        next
    }
    { from = room_of($1); to = room_of($2) }
    from == to || (from, to) in may || ($1 ~ /\/gpu\// && to == "core/gpu") { next }
    from ~ /\/isa$/ && substr(from, 1, index(from, "/")) == substr(to, 1, index(to, "/")) { next } # kernels of its rooms
    { print $1 " calls " $3 " of " $2 ", which src/README.md does not allow" }' "$root/src/README.md" "$work/calls" >"$work/rooms"
report "rooms call what stands below them" "$work/rooms"

awk '{ print $1 }' "$work/needs" | sort -u >"$work/called"
{ sed -nE 's/^ *(napier_[a-z0-9_]+);.*/\1/p' "$root/cmake/napier.map"
    grep -rhoE 'napier_[a-z0-9_]+' "$root/tests" "$root/cli" "$root/bench" "$root/python/ext" "$root/mpi" --include='*.[ch]'
    grep -hoE 'napier_[a-z0-9_]+' "$root"/src/*/gpu/*.cu* "$root"/src/*/*/gpu/*.cu* 2>/dev/null; } | sort -u >"$work/wanted"
awk '$1 ~ /^napier_/ { print $1, $2 }' "$work/has" | sort | join -v 1 - "$work/called" | join -v 1 - "$work/wanted" |
    awk '{ print $2 ": only this file uses " $1 ", so it should be static" }' >"$work/own"
report "functions of one file are static" "$work/own"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
