#!/bin/sh
# make bench: prepares the peers, builds Napier and the C workers, and measures. All options go to bench.py:
#
#     bench/run.sh --quick                                   9 minutes: a third of the shapes, Napier, PyTorch, ORT
#     bench/run.sh                                           everything, at most 85 minutes
#     bench/run.sh --peers napier --only 'softmax-f32-last-.*-t1' --output /tmp/mine.jsonl
#     bench/run.sh --report                                  no measuring: docs/benchmarks.md from results
#
# common.sh says which variables of the environment count.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$here")
# shellcheck source=bench/common.sh
. "$here/common.sh"

# The value of an option as argparse takes it: "--peers a,b" or "--peers=a,b".
value_of() {
    wanted=$1; shift
    while [ $# -gt 0 ]; do
        case $1 in
        "$wanted") printf '%s' "${2:-}"; return ;;
        "$wanted"=*) printf '%s' "${1#*=}"; return ;;
        esac
        shift
    done
}
given() { wanted=$1; shift; for word in "$@"; do [ "$word" = "$wanted" ] && return 0; done; return 1; }

python=$(python_of plot)
if given --report "$@"; then
    shift
    exec "$python" "$here/report.py" "$@"
fi

peers=$(value_of --peers "$@" | tr , ' ')
if [ -z "$peers" ]; then
    if given --quick "$@"; then peers="napier torch ort"; else peers="napier torch ort jax scipy onednn xnnpack"; fi
fi
for peer in $peers; do
    [ "$peer" = napier ] || "$here/setup.sh" "$peer"
done

# shellcheck disable=SC2086 # a list of files
make_worker "$build/napier_worker" $core "$here"/floors/*.c "$here/worker.c" "$here/peers/napier_worker.c"
for peer in $peers; do
    case $peer in
    onednn)
        if [ -f "$home/onednn/ready" ]; then
            # rpath of the old kind: it is also searched for what libdnnl itself needs
            $cc $optimise -std=c11 -I"$here" -I"$home/onednn/include" "$here/peers/onednn_worker.c" "$here/worker.c" \
                -L"$home/onednn/lib" -Wl,--disable-new-dtags -Wl,-rpath,"$home/onednn/lib" -ldnnl \
                -o "$build/onednn_worker" || echo "bench: onednn: does not build, left out" >&2
        fi ;;
    xnnpack)
        $cc $optimise -std=c11 -I"$here" "$here/peers/xnnpack_worker.c" "$here/worker.c" -lXNNPACK -lpthreadpool \
            -o "$build/xnnpack_worker" 2>"$build/xnnpack.log" || echo "bench: xnnpack: does not build, left out" >&2 ;;
    esac
done

exec "$python" "$here/bench.py" --home "$home" --build "$build" --compiler "$compiler" "$@"
