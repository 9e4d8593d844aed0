#!/bin/bash
# tests/wheel/golden.sh MACHINE DIRECTORY - compiles the programs of golden bits as shared objects for golden.py, which
# runs them with the library inside an installed wheel. MACHINE is x86_64 or aarch64. DIRECTORY gets the tables too.
#
# Needs zig (`pip install ziglang`). Exit status 77: it is missing.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -eq 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$2"
out=$(cd "$2" && pwd)
zig=${NAPIER_ZIG:-$(command -v zig || python3 -c 'import os, ziglang
print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))' 2>/dev/null || true)}
[ -x "$zig" ] || { echo "needs zig: pip install ziglang"; exit 77; }
cp -r "$root"/tests/bits/v1/golden*.txt "$root/tests/bits/v1/files" "$root/tests/bits/programs.list" "$out"
cd "$root/tests/support" # the list names sources there
while read -r program _ _ sources; do
    # shellcheck disable=SC2086 # a list of files
    "$zig" cc -target "$1-linux-gnu.2.28" -std=c11 -O2 -ffp-contract=off -fno-sanitize=all -fPIC -shared \
        -Wl,--allow-shlib-undefined -I"$root/include" -I"$root/src" -I"$root/tests" "$root/tests/bits/$program.c" $sources \
        "$root"/src/core/{base/platform,math/f64}.c -lm -o "$out/$program.so"
done < <(grep -v '^#' "$root/tests/bits/programs.list")
