#!/bin/bash
# tests/mpi/run.sh - napier_mpi with 1, 2, 3, 4 and 8 ranks against one process and the golden table; and what the others do
# when a rank is killed.
#
#     tests/mpi/run.sh PROGRAM MPIRUN FOLDER        the program mpi_ranks; where libnapier is
#
# Where Debian's MPICH is installed beside another MPI (mpicc.mpich), the same is compiled and run with it too,
# but for 4 and 8 ranks. The last line counts. Exit status 77: there is no mpirun.
set -u
program=$1 mpirun=${2:-mpirun} libraries=${3:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
command -v "$mpirun" >/dev/null 2>&1 || { echo "no $mpirun on this machine"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Open MPI asks root for these, refuses more ranks than processors, and waits without giving up the processor.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_rmaps_base_oversubscribe=1
passed=0 failed=0

run_ranks() { # mpirun, program, what, numbers of ranks
    local ranks line good bad status
    for ranks in $4; do
        timeout 300 "$1" -n "$ranks" "$2" "$root/tests/bits/v1/golden_shards.txt" >"$work/log" 2>&1
        status=$?
        line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$work/log" | tail -n 1)
        good=${line%% passed*} bad=${line#* passed, } bad=${bad%% failed*}
        if [ -z "$line" ] || { [ $status -ne 0 ] && [ "$bad" -eq 0 ]; }; then
            good=${good:-0} bad=1
        fi
        [ "$bad" -eq 0 ] || { echo "FAIL  $3, $ranks ranks (exit status $status)"; tail -n 20 "$work/log"; }
        passed=$((passed + good)) failed=$((failed + bad))
    done
}

run_ranks "$mpirun" "$program" "the MPI of this build" "1 2 3 4 8"

if [ -n "$libraries" ] && command -v mpicc.mpich >/dev/null 2>&1 && ! ldd "$program" | grep -q libmpich; then
    if mpicc.mpich -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -I"$root/include" "$root"/tests/mpi/ranks.c "$root"/mpi/*.c \
        -o "$work/ranks" -L"$libraries" -Wl,-rpath,"$libraries" -lnapier -lm >"$work/log" 2>&1; then
        run_ranks mpirun.mpich "$work/ranks" "MPICH" "1 2 3"
        echo "skip  MPICH, 4 and 8 ranks: they wait without giving up the processor, half a minute or more on two"
    else
        echo "FAIL  MPICH does not compile it"
        tail -n 20 "$work/log"
        failed=$((failed + 1))
    fi
else
    echo "skip  MPICH: no mpicc.mpich beside another MPI"
fi

# A rank is killed: all of the job ends within seconds, and mpirun says which one it was.
timeout -k 5 60 "$mpirun" -n 3 "$program" wait >"$work/log" 2>&1 &
job=$!
for _ in $(seq 100); do
    victim=$(sed -n 's/.*rank 2 has process \([0-9][0-9]*\).*/\1/p' "$work/log")
    [ -n "$victim" ] && break
    sleep 0.2
done
sleep 0.5
begin=$(date +%s)
[ -n "$victim" ] && kill -9 "$victim"
wait "$job"
status=$?
took=$(($(date +%s) - begin))
if [ -n "$victim" ] && [ $status -ne 0 ] && [ $status -ne 124 ] && [ $took -le 30 ] && grep -qiE 'signal|killed' "$work/log"; then
    passed=$((passed + 1))
else
    echo "FAIL  a rank was killed: exit status $status after $took s"
    tail -n 20 "$work/log"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
