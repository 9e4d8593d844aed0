#!/bin/bash
# tests/container/run.sh [DIRECTORY [COMMAND...]] - runs the README's two commands on a Debian 12 that has only `make`.
#
# Makes a minimal Debian in DIRECTORY/debian (default: build/container) with debootstrap, puts a clone of the last
# commit into it as /napier, and runs each COMMAND there (default: "make demo" and "make test"). It needs root,
# debootstrap and a network, and takes as long as the commands do, so CI does not run it. An existing DIRECTORY/debian
# is used again, with everything that an earlier run installed; remove it to start from nothing.
# Exit status: 0 if every command ended with 0, and `make test` skipped only what `elsewhere` below explains.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=${1:-$root/build/container}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- "make demo" "make test"
case $work in /*) ;; *) work=$PWD/$work ;; esac
debian=$work/debian

fail() { echo "tests/container/run.sh: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || fail "needs debootstrap (apt-get install debootstrap)"
mkdir -p "$work" || exit 1

if [ ! -e "$work/ready" ]; then # the stamp is written last, so a broken start is repeated
    rm -rf "${debian:?}"
    echo "container: a bare Debian 12 with make, in $debian"
    debootstrap --variant=minbase --include=make,ca-certificates bookworm "$debian" >"$work/debootstrap.log" 2>&1 ||
        fail "debootstrap failed: see $work/debootstrap.log"
    touch "$work/ready"
fi

# The network settings of this machine: name servers, certificates, pip's settings.
for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
    [ -r "$file" ] && cp -L "$file" "$debian$file"
done
rm -rf "$debian/napier"
git clone -q --depth 1 "file://$root" "$debian/napier" || fail "git clone failed"

# Uses a mount namespace, so that the mounts end with the command.
inside() { # command
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount --pid --fork sh -c '
        mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --rbind /sys "$1/sys" || exit 1
        exec chroot "$1" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
            sh -c "cd /napier && $2"' _ "$debian" "$1"
}

# The skips that a bare Debian does not cause: instruction sets; long double under valgrind; a GPU and its compiler;
# PyTorch, which `make test-peers` fetches; what takes minutes with sanitizers; MPFR and the model for AArch64, whose
# libraries are there for this processor only; and a test for builds without the model.
elsewhere='neon|avx2|avx512|amx|lanes|AMX|CUDA|on a device|no nvcc|torch|with sanitizers|long double is no wider|AArch64: mpfr|model, AArch64|this build has the model'
status=0
for command in "$@"; do
    log=$work/$(printf '%s' "$command" | tr -c 'A-Za-z0-9\n' '_').log
    echo "container: $command (log: $log)"
    inside "$command" >"$log" 2>&1
    code=$?
    tail -n 3 "$log"
    [ "$code" -eq 0 ] || { echo "FAIL  $command: exit status $code"; status=1; }
    if sed -n '/^skipped:/,/^$/p' "$log" | sed 1d | grep -vE "^$|$elsewhere"; then
        echo "FAIL  $command: skipped what only a bare Debian explains (above)"
        status=1
    fi
done
[ "$status" -eq 0 ] && echo "container: all passed"
exit "$status"
