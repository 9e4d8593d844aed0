#!/bin/sh
# make bench: prepares the peers, builds Napier and the C workers, and measures. All options go to bench.py:
#
#     bench/run.sh --quick                                   9 minutes: a third of the shapes, Napier, PyTorch, ORT
#     bench/run.sh                                           everything, at most 85 minutes
#     bench/run.sh --peers napier --only 'softmax-f32-last-.*-t1' --output /tmp/mine.jsonl
#     bench/run.sh --report                                  no measuring: docs/benchmarks.md from results
#
# NAPIER_BENCH_HOME: where peers live (setup.sh). NAPIER_BENCH_BUILD: where workers are built (build/bench). CC, CFLAGS.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$here")
home=${NAPIER_BENCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/napier/bench}
build=${NAPIER_BENCH_BUILD:-$root/build/bench}
cc=${CC:-cc}
export NAPIER_BENCH_HOME="$home"
mkdir -p "$build"

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

"$here/setup.sh" plot
python=$home/plot/bin/python
[ -x "$python" ] || { echo "bench: no Python with numpy: see $home/plot.log" >&2; exit 1; }
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

# Napier and its worker in one go: the bare build, about a minute, only when a source is newer.
strict="-std=c11 -ffp-contract=off -fopenmp"
optimise=${CFLAGS:--O2}
worker=$build/napier_worker
if [ ! -x "$worker" ] || [ -n "$(find "$root/src" "$root/include" "$here" -name '*.[ch]' -newer "$worker" | head -n 1)" ]; then
    sources=
    for file in "$root"/src/*/*.c "$here"/floors*.c; do
        case $file in */src/model/* | */src/tokenizer/*) ;; *) sources="$sources $file" ;; esac
    done
    # shellcheck disable=SC2086
    $cc $optimise $strict -I"$root/include" -I"$root/src" -I"$here" $sources "$here/worker.c" \
        "$here/peers/napier_worker.c" -lm -o "$worker"
fi
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

compiler=$($cc --version | head -n 1)
exec "$python" "$here/bench.py" --home "$home" --build "$build" --compiler "$compiler, $optimise" "$@"
