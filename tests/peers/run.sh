#!/bin/sh
# Compares Napier, stage by stage, with the libraries whose definitions it follows.
#
#     tests/peers/run.sh [umap] [rl] [torch] [dropin] [scale] [apps] [serve]      default: every set that has tests; MATCH=word: only tests with it in their name
#
# A set is the files test_SET_*.py. Each set runs in its own Python environment ($NAPIER_BENCH_HOME/peers-SET, by
# default under ~/.cache/napier/bench; fetched once). The tests call the C API through ctypes (napier_c.py), in a shared
# library that is built here. All sets but rl also import the Python package, which is built here too; torch and
# serve use the environment of rl, because PyTorch is large. dropin runs the tests of SciPy and PyTorch, which come with their wheels,
# with Napier in the place of their functions. serve asks the server with the clients of others. apps runs scanpy and BERTopic with napier.umap in the place of umap-learn.
# The last line counts; exit status 0: nothing failed. The script skips what cannot be fetched and names it.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
home=${NAPIER_BENCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/napier/bench}
build=${NAPIER_PEERS_BUILD:-$root/build/peers}
python=${PYTHON:-python3}
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)} # without a number, make starts all compilers at once
mkdir -p "$home" "$build" || exit 1
. "$root/tests/support/compile_once.sh"

say() { printf 'tests/peers: %s\n' "$*" >&2; }

# The packages that a set needs from PyPI.
packages() {
    case $1 in
    umap) echo "umap-learn numpy scipy scikit-learn pytest" ;;
    rl | torch | serve) echo "torch trl numpy lm-eval scikit-learn dask matplotlib openai starlette uvicorn httpx tenacity peft gguf" $(cat "$root/docs/site/requirements.txt") ;;
    dropin) echo "torch numpy scipy pytest hypothesis expecttest" ;;
    scale) echo "dask distributed ray[data] numpy scikit-learn ml_dtypes pytest" ;;
    apps) echo "scanpy bertopic" ;;
    esac
}

# The environment of a set.
home_of() {
    case $1 in
    torch | serve) echo "$home/peers-rl" ;;
    *) echo "$home/peers-$1" ;;
    esac
}

# An environment with these packages. Their list, the stamp, is written last, so an incomplete fetch is repeated.
environment() { # set
    venv=$(home_of "$1")
    [ -f "$venv/ready" ] && [ "$(cat "$venv/ready")" = "$(packages "$1")" ] && return 0
    # shellcheck disable=SC2046 # a list of packages
    set -- "$1" $(packages "$1")
    name=$1
    shift
    say "fetching $* into $venv"
    [ -f "$venv/ready" ] || rm -rf "${venv:?}"
    "$python" -m venv "$venv" >"$build/$name.log" 2>&1 &&
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >>"$build/$name.log" 2>&1 &&
        packages "$name" >"$venv/ready"
}

# Builds the library and the program, with every NAPIER_X_INIT of the headers as a variable napier_x_init in it.
build_library() {
    cmake -S "$root" -B "$build/library" -DCMAKE_BUILD_TYPE=Release -DNAPIER_EXAMPLES=OFF -DNAPIER_TESTS=OFF &&
        cmake --build "$build/library" -j "$jobs" --target napier napier_cli || return 1
    {
        echo '#include <napier/napier.h>'
        sed -nE 's/^#define (NAPIER_[A-Z0-9_]+)_INIT .*/\1/p' "$root"/include/napier/*.h | while read -r name; do
            lower=$(printf %s "$name" | tr '[:upper:]' '[:lower:]')
            printf 'extern const %s %s_init;\nconst %s %s_init = %s_INIT;\n' "$lower" "$lower" "$lower" "$lower" "$name"
        done
    } >"$build/defaults.c"
    ${CC:-cc} -std=c11 -shared -fPIC -I"$root/include" "$build/defaults.c" -o "$build/defaults.so"
}

# Builds the Python package in $build/library/python, and one for the emulated GPU in $build/library/python/emulated.
build_package() {
    cmake -S "$root" -B "$build/library" -DNAPIER_PYTHON=ON -DNAPIER_PYTHON_EMULATED=ON &&
        cmake --build "$build/library" -j "$jobs" --target napier_python napier_python_emulated napier_python_files
}

if [ $# -eq 0 ]; then
    for set in umap rl torch dropin scale apps serve; do
        ls "$here/test_${set}_"*.py >/dev/null 2>&1 && set -- "$@" "$set"
    done
fi
if ! build_library >"$build/build.log" 2>&1; then
    tail -n 20 "$build/build.log" >&2
    say "the library does not build (details in $build/build.log)"
    exit 1
fi

run_set() { # its result: the counts in SET.result
    OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1 NAPIER_PEERS_BUILD=$build NAPIER_PEERS_RESULT=$build/$1.result \
        PYTHONPATH=$build/library/python "$(home_of "$1")/bin/python" "$here/run_set.py" "$1"
}

passed=0 failed=0 skipped=0 sets=""
for set in "$@"; do
    rm -f "$build/$set.result"
    if [ -z "$(packages "$set")" ]; then
        say "no such set: $set (umap, rl, torch, dropin, scale, apps, serve)"
        exit 2
    fi
    if ! environment "$set"; then
        echo "skip  $set: its packages cannot be had (details in $build/$set.log)"
        skipped=$((skipped + 1))
    elif [ "$set" != rl ] && ! build_package >"$build/package.log" 2>&1; then
        tail -n 20 "$build/package.log" >&2
        echo "FAIL  $set: the Python package does not build (details in $build/package.log)"
        failed=$((failed + 1))
    else
        sets="$sets $set"
    fi
done

# torch takes as long as all others, so it runs beside them.
trap 'kill $(jobs -p) 2>/dev/null; exit 143' INT TERM
case "$sets " in *" torch "*) run_set torch >"$build/torch.out" 2>&1 & ;; esac
for set in $sets; do
    [ "$set" = torch ] || run_set "$set"
done
wait
for set in $sets; do
    [ "$set" = torch ] && cat "$build/torch.out"
    if read -r p f s <"$build/$set.result" 2>/dev/null; then
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    else
        echo "FAIL  $set: ended before its tests did"
        failed=$((failed + 1))
    fi
done
printf '\n%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
