#!/bin/sh
# make bench-umap: prepares umap-learn and uwot, builds Napier's worker, measures. Options go to bench_umap.py.
# NAPIER_BENCH_HOME: where peers live (bench/setup.sh). NAPIER_BENCH_BUILD: where the worker and the data are made.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
home=${NAPIER_BENCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/napier/bench}
build=${NAPIER_BENCH_BUILD:-$root/build/bench}
cc=${CC:-cc}
export NAPIER_BENCH_HOME="$home"
mkdir -p "$build"
"$root/bench/setup.sh" umap uwot plot
worker=$build/umap_worker
if [ ! -x "$worker" ] || [ -n "$(find "$root/src" "$root/include" "$here" -name '*.[ch]' -newer "$worker" | head -n 1)" ]; then
    # shellcheck disable=SC2086
    $cc ${CFLAGS:--O2} -std=c11 -ffp-contract=off -fopenmp -I"$root/include" -I"$root/src" "$root"/src/*/*.c \
        "$here/napier_worker.c" -lm -o "$worker"
fi
exec "$home/plot/bin/python" "$here/bench_umap.py" --home "$home" --build "$build" "$@"
