#!/bin/bash
# tests/wheel/run.sh WHEEL [DIRECTORY] - installs a wheel of tools/wheels.py into a Debian 12 without a compiler and runs
# tests/wheel/check.py there (default: build/wheel-test). The wheel must be for this machine's processor.
#
# Makes a minimal Debian with python3-venv in DIRECTORY/debian by debootstrap, once. It needs root, debootstrap and a
# network, so CI does not run it. Exit status 0: all checks passed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
wheel=$(readlink -f "$1")
work=${2:-$root/build/wheel-test}
debian=$work/debian
[ "$(id -u)" = 0 ] || { echo "needs root, for debootstrap and chroot"; exit 77; }
command -v debootstrap >/dev/null || { echo "needs debootstrap"; exit 77; }
mkdir -p "$work"
if [ ! -e "$work/ready" ]; then # the stamp is written last, so a broken start is repeated
    rm -rf "${debian:?}"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$debian" >"$work/debootstrap.log"
    touch "$work/ready"
fi
for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
    [ -r "$file" ] && cp -L "$file" "$debian$file"
done
rm -rf "$debian/test"
mkdir -p "$debian/test"
cp "$wheel" "$root/tests/wheel/check.py" "$debian/test/"
unshare --mount --pid --fork sh -c 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
    exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root sh -c "
        if command -v cc gcc clang; then echo there is a compiler; exit 1; fi
        cd /test && python3 -m venv env && env/bin/pip install --quiet --disable-pip-version-check ./*.whl &&
        env/bin/python check.py"' _ "$debian"
