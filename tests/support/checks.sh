# support/checks.sh - for scripts that count their checks: sourced at their start, `finish` at their end. The folder
# $work, which the script makes before, is removed with it.
# shellcheck shell=bash disable=SC2154
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

have() { command -v "$1" >/dev/null 2>&1; }

check() { # name, command...
    local name=$1 start=$SECONDS
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok    $name ($((SECONDS - start)) s)"
        passed=$((passed + 1))
    else
        echo "FAIL  $name"
        sed 's/^/        | /' "$work/log" | tail -n 25
        failed=$((failed + 1))
        return 1
    fi
}

skip() { # name, why
    echo "skip  $1: $2"
    skipped=$((skipped + 1))
}

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}
