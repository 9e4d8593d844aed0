# Sourced by the run.sh of each benchmark, which has set `root`: where things are, and how its worker is made.
#
# NAPIER_BENCH_HOME: where peers live (setup.sh). NAPIER_BENCH_BUILD: where workers are made (build/bench). CC, CFLAGS.
# shellcheck shell=sh disable=SC2034,SC2154 # home, build: for whom sources this; root: from there
home=${NAPIER_BENCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/napier/bench}
build=${NAPIER_BENCH_BUILD:-$root/build/bench}
cc=${CC:-cc}
optimise=${CFLAGS:--O2}
flags="$optimise -std=c11 -ffp-contract=off -fopenmp -I$root/include -I$root/src -I$root/bench"
compiler="$($cc --version | head -n 1), $optimise"
# The sources of the library but those of src/lm, which need cJSON, PCRE2 and utf8proc.
core=$(find "$root/src" -name '*.c' ! -path '*/src/lm/*')
export NAPIER_BENCH_HOME="$home"
mkdir -p "$build"

# python_of NAME: the interpreter of that environment, which is made if it is not there.
python_of() {
    "$root/bench/setup.sh" "$1"
    [ -x "$home/$1/bin/python" ] || { echo "bench: no environment: see $home/$1.log" >&2; return 1; }
    echo "$home/$1/bin/python"
}

# Whether a program is missing, or older than a source.
is_old() {
    [ ! -x "$1" ] ||
        [ -n "$(find "$root/src" "$root/include" "$root/bench" -name '*.[ch]*' -newer "$1" | head -n 1)" ]
}

# make_worker PROGRAM ARGUMENT...: compiles sources and links libraries, about a minute for all of Napier's.
make_worker() {
    made=$1; shift
    # shellcheck disable=SC2086 # a list of flags
    if is_old "$made"; then $cc $flags "$@" -lm -o "$made"; fi
}
