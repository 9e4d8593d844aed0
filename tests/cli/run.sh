#!/bin/sh
# Tests of the program. Each tests/cli/cases/SUBJECT/NAME.sh runs in an empty directory. Its exit status must be 0, and
# its output must be exactly NAME.out and NAME.err (no file: no output). Numbers are compared to the last digit, because
# they are the same on every machine.
#
#     run.sh [--update] NAPIER [CASE...]
#
# --update writes these files anew; read the difference before you keep it. A case that exits with 77 is skipped, and
# its last line of output says why. lib.sh has the functions that the cases share.
set -u

here=$(cd "$(dirname "$0")" && pwd)
update=no
if [ "${1:-}" = --update ]; then
    update=yes
    shift
fi
if [ $# -lt 1 ] || [ ! -x "$1" ]; then
    echo "usage: run.sh [--update] NAPIER [CASE...]" >&2
    exit 2
fi
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
shift

work=$(mktemp -d "${TMPDIR:-/tmp}/napier-cli-XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/bin" && ln -s "$program" "$work/bin/napier"

PATH=$work/bin:$PATH
LC_ALL=C
TERM=dumb
export PATH LC_ALL TERM
unset NAPIER_ISA NAPIER_THREADS TMPDIR
umask 022

passed=0
failed=0

# A missing expected file counts as empty, and empty files are not kept.
keep() { # printed, expected
    if [ -s "$1" ]; then cp "$1" "$2"; else rm -f "$2"; fi
}
differs() { # printed, expected
    if [ -f "$2" ]; then ! diff -u "$2" "$1"; else ! diff -u /dev/null "$1"; fi
}

run_case() {
    script=$1
    name=$(basename "$script" .sh)
    expected=${script%.sh}
    mkdir "$work/$name" "$work/$name/tmp"
    (
        cd "$work/$name" || exit 1
        TMPDIR=$work/$name/tmp
        export TMPDIR
        . "$here/lib.sh"
        . "$script"
    ) >"$work/out" 2>"$work/err" </dev/null
    status=$?
    if [ $status -eq 77 ]; then
        echo "skip $name: $(tail -n 1 "$work/out")"
        return
    fi
    if [ $update = yes ]; then
        keep "$work/out" "$expected.out"
        keep "$work/err" "$expected.err"
    fi
    bad=0
    differs "$work/out" "$expected.out" && bad=1
    differs "$work/err" "$expected.err" && bad=1
    if [ -n "$(ls -A "$work/$name/tmp")" ]; then
        echo "left in TMPDIR: $(ls -A "$work/$name/tmp")"
        bad=1
    fi
    if [ $bad -ne 0 ] || [ $status -ne 0 ]; then
        echo "FAIL $name (exit status $status)"
        failed=$((failed + 1))
    else
        echo "ok   $name"
        passed=$((passed + 1))
    fi
}

if [ $# -eq 0 ]; then
    for script in "$here"/cases/*/*.sh; do
        run_case "$script"
    done
else
    for name in "$@"; do
        run_case "$(ls "$here"/cases/*/"$name.sh")"
    done
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
