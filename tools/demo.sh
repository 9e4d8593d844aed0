#!/bin/sh
# tools/demo.sh [BUILD OUT] - the part of `make demo` after the set-up. It builds Napier, trains a digit classifier with
# it, turns the classifier's logits into probabilities with the program, and checks them. The results are in
# build/release and build/demo. With BUILD, a folder that is built already, it uses that folder and writes to OUT.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
out=${2:-build/demo}
napier=$build/napier
mkdir -p "$out"
rm -f "$out/built"

title() { printf '\n== %s\n\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

# Copies the lines of a build to the log, and shows how far it is and which file was begun last: on a terminal in one line,
# else a line for every tenth part.
show_build() { # log
    shown=-10
    while IFS= read -r line; do
        printf '%s\n' "$line" >&3
        case $line in
        \[*%\]*) percent=${line%%\%*} percent=${percent##*[ \[]} ;;                                   # make's [ 12%]
        \[*/*\]*) percent=${line%%]*} percent=${percent#?} percent=$((100 * ${percent%/*} / ${percent#*/})) ;; # ninja's [3/25]
        *) continue ;;
        esac
        file=${line##*[/ ]}
        if [ -t 1 ]; then
            printf '\r%3d %%  %-60.60s' "$percent" "${file%.o}"
        elif [ "$percent" -ge $((shown + 10)) ]; then
            printf '%3d %%  %s\n' "$percent" "${file%.o}"
            shown=$percent
        fi
    done 3>"$1"
    [ ! -t 1 ] || printf '\r%-67s\r' ''
}

if [ $# -lt 2 ]; then
    processors=$(nproc 2>/dev/null || echo 2)
    title "Building the library, the program and the examples: 6 minutes of processor time, by $processors processors (log: $out/build.log)"
    # the status of a pipe is that of its end
    { cmake --preset release && cmake --build --preset release --parallel "$processors" && : >"$out/built"; } 2>&1 | show_build "$out/build.log"
    if [ ! -e "$out/built" ]; then
        tail -n 30 "$out/build.log"
        fail "the build failed"
    fi
fi
run "$napier" info

title "Training on handwritten digits, through napier_log_softmax and its gradient (examples/digits.c)"
run "$build/examples/digits" data/digits "$out"

title "The program turns the held-out logits into probabilities"
run "$napier" softmax "$out/logits.npy" -o "$out/probs.npy"
run "$napier" softmax "$out/logits.npy" --format csv -o "$out/probs.csv"
# Prints one line per digit: its ten probabilities, then the true digit (bytes after a header of 128).
od -An -v -tu1 -w1 -j128 "$out/answers.npy" | tr -d ' ' | paste -d, "$out/probs.csv" - >"$out/check.csv"
awk -F, '
    {
        best = 1; sum = 0
        for (i = 1; i <= 10; i++) {
            if (!($i >= 0 && $i <= 1)) bad++
            sum += $i
            if ($i > $best) best = i
        }
        off = sum > 1 ? sum - 1 : 1 - sum
        if (off > worst) worst = off
        right += best - 1 == $11
    }
    END {
        printf "%d rows; every probability within [0, 1]; the sums are 1 to within %.1e;\n", NR, worst
        printf "the likeliest digit is the true one in %.1f %% of the rows\n", 100 * right / NR
        exit !(NR > 0 && !bad && worst <= 3e-7 && right >= 0.95 * NR)
    }' "$out/check.csv" || fail "the probabilities in $out/probs.npy are not what they should be"

title "The same bits another way: no vector instructions, one thread, three passes"
run "$napier" softmax "$out/logits.npy" --isa scalar --threads 1 --algorithm safe -o "$out/scalar.npy"
run cmp "$out/probs.npy" "$out/scalar.npy" || fail "the bits differ: please report this"
echo "every byte is the same"

title "A map of all the digits; the labels only colour it"
png=
ldd "$napier" 2>/dev/null | grep -q libcairo && png="--plot $out/map.png"
# shellcheck disable=SC2086 # two words, or none
run "$napier" umap data/digits/images.npy -o "$out/map.npy" --labels data/digits/labels.npy --quality \
    --title "Handwritten digits" --plot "$out/map.html" $png
[ -n "$png" ] && echo "the map: $out/map.png"
echo "the map to zoom and search in: $out/map.html (open it in a browser)"

title "What to try next"
try() { printf '  %s\n      %s\n' "$1" "$2"; }
try "your own data" "$napier umap YOURS.csv -o map.npy --plot map.html"
try "less sure of itself: temperature 3" "$napier softmax $out/logits.npy --temperature 3 --format csv | head -3"
try "exp(1000) overflows, this does not" "echo 1000,1001,1002 | $napier logsumexp -"
try "a vocabulary in four parts, merged exactly" "$build/examples/shards"
try "how near to the speed of memory" "$napier bench"
try "all the program can do" "$napier help"
try "every test" "make test"
try "a program of your own: begin with" "examples/hello.c, then examples/digits.c"
