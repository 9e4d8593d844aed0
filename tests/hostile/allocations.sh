#!/bin/sh
# allocations.sh PROGRAM - checks that the table of hostile_allocations has a line for each function that include/napier
# declares, except the GPU functions. Without the model's libraries the program has no lines for its two headers.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
listed=$("$1" --list | tr ' ' '\n' | sort -u)
headers="attention linear rl sample softmax sparsemax types umap"
case $listed in *napier_model_load*) headers="$headers tokenizer model" ;; esac
missing=0
for header in $headers; do
    # A declaration: NAPIER_API, the type, the name and a bracket, on one line or two.
    for name in $(tr '\n' ' ' <"$root/include/napier/$header.h" | grep -oE 'NAPIER_API [^(;]*\(' | grep -oE 'napier_[a-z0-9_]+ *\($' |
        tr -d ' ('); do
        if ! printf '%s\n' "$listed" | grep -qx "$name"; then
            echo "napier/$header.h: $name has no line in tests/hostile/allocations.c"
            missing=1
        fi
    done
done
[ "$missing" -eq 0 ] && echo "$(printf '%s\n' "$listed" | wc -l) functions"
exit "$missing"
