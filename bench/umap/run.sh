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
case " $* " in
*" --report "*) "$root/bench/setup.sh" plot ;;
*)
    "$root/bench/setup.sh" umap uwot plot
    worker=$build/umap_worker # linked last
    if [ ! -x "$worker" ] ||
        [ -n "$(find "$root/src" "$root/include" "$here" -name '*.[ch]' -newer "$worker" | head -n 1)" ]; then
        flags="${CFLAGS:--O2} -std=c11 -ffp-contract=off -fopenmp -I$root/include -I$root/src"
        mkdir -p "$build/umap-objects"
        # shellcheck disable=SC2086
        (cd "$build/umap-objects" && rm -f ./*.o && $cc $flags -c "$root"/src/*/*.c)
        for program in document_rows:umap_document_rows napier_worker:umap_worker; do
            # shellcheck disable=SC2086
            $cc $flags "$build"/umap-objects/*.o "$here/${program%%:*}.c" -lm -o "$build/${program##*:}"
        done
    fi
    ;;
esac
exec "$home/plot/bin/python" "$here/bench_umap.py" --home "$home" --build "$build" "$@"
