#!/bin/sh
# make bench-umap: prepares umap-learn and uwot, builds Napier's worker, measures. Options go to bench_umap.py.
# ../common.sh says which variables of the environment count.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
# shellcheck source=bench/common.sh
. "$root/bench/common.sh"
case " $* " in
*" --report "*) ;;
*)
    "$root/bench/setup.sh" umap uwot
    if is_old "$build/umap_worker"; then # linked last
        mkdir -p "$build/umap-objects"
        # shellcheck disable=SC2086 # lists of flags and files
        (cd "$build/umap-objects" && rm -f ./*.o && $cc $flags -c $core)
        make_worker "$build/umap_document_rows" "$build"/umap-objects/*.o "$here/document_rows.c"
        make_worker "$build/umap_worker" "$build"/umap-objects/*.o "$here/napier_worker.c"
    fi
    ;;
esac
python=$(python_of plot)
exec "$python" "$here/bench_umap.py" --home "$home" --build "$build" "$@"
