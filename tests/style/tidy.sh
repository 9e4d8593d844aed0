#!/bin/sh
# tests/style/tidy.sh BUILD - what clang-tidy finds in src and cli, with the checks of .clang-tidy. BUILD is a folder for
# a configured build, which names each file's flags. The last line counts files. Exit status 77: there is no clang-tidy 14.
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
if ! command -v run-clang-tidy >/dev/null || ! clang-tidy --version | grep -q 'version 14'; then
    echo "no clang-tidy 14 on this machine"
    exit 77
fi
mkdir -p "$build"
if ! cmake -S "$root" -B "$build" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DNAPIER_TESTS=OFF -DNAPIER_CUDA=OFF >"$build/log" 2>&1; then
    cat "$build/log"
    exit 1
fi
# .clang-tidy makes each finding an error.
run-clang-tidy -quiet -p "$build" "^$root/(src|cli)/.*\\.c\$" >"$build/findings" 2>"$build/log"
status=$?
sed -nE 's/\x1b\[[0-9;]*m//g; /: (error|warning): /p' "$build/findings" | sort -u | sed "s#^$root/#FAIL  #"
files=$(grep -c "^clang-tidy.*/\(src\|cli\)/" "$build/findings")
bad=$(sed -nE 's/\x1b\[[0-9;]*m//g; s/^([^ :]+):[0-9]+:[0-9]+: (error|warning): .*/\1/p' "$build/findings" | sort -u | wc -l)
echo "$((files - bad)) passed, $bad failed"
[ "$status" -eq 0 ] && [ "$bad" -eq 0 ] && [ "$files" -gt 0 ]
