#!/bin/bash
# tests/release/run.sh [DIRECTORY] - makes a release twice, in two folders and with clocks that are months apart, and compares
# the bytes (default: build/release-test). PARTS as in tools/release.sh.
#
# It compiles everything four times and needs a network, so CI does not run it. Without faketime the clocks are the same.
# Exit status 0: each file is the same in both. 77: something is missing, named in the last line.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=${1:-$root/build/release-test}
rm -rf "$work"
mkdir -p "$work/a" "$work/elsewhere/b"
export UNTAGGED=yes
TMPDIR=$work/a "$root/tools/release.sh" "$work/first"
later=()
command -v faketime >/dev/null && later=(faketime -f +100d)
TMPDIR=$work/elsewhere/b "${later[@]}" "$root/tools/release.sh" "$work/second" | tee "$work/log"
if grep -q 'left out' "$work/log"; then
    tail -n 1 "$work/log"
fi
diff -r "$work/first" "$work/second"
echo "$(wc -l <"$work/first/SHA256SUMS") files are the same bytes in both"
