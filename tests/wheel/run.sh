#!/bin/bash
# tests/wheel/run.sh WHEEL [SUITE [DIRECTORY]] - installs a wheel of tools/wheels.py into a minimal Debian or Ubuntu without a
# compiler and runs tests/wheel/check.py and the tables of golden bits there (default: build/wheel-test).
#
# SUITE chooses the Python: bookworm (3.11, the default), noble (3.12), trixie (3.13) or forky (3.14). A wheel for AArch64
# runs under qemu. debootstrap fetches SUITE once, into DIRECTORY. CI does not run it, because it needs root, debootstrap,
# zig and a network; for noble Ubuntu's keys (package ubuntu-keyring, or UBUNTU_KEYRING=FILE); for AArch64 proot and
# qemu-user-static.
# Exit status 0: all checks passed. 77: something is missing, named in the last line.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
wheel=$(readlink -f "$1")
suite=${2:-bookworm}
work=${3:-$root/build/wheel-test}
case $wheel in
*x86_64.whl) machine=x86_64 arch=amd64 ;;
*aarch64.whl) machine=aarch64 arch=arm64 ;;
*) echo "$wheel: for another machine than x86_64 and aarch64"; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { echo "needs root, for debootstrap and chroot"; exit 77; }
command -v debootstrap >/dev/null || { echo "needs debootstrap"; exit 77; }
source=(http://deb.debian.org/debian)
case $suite in
forky) source+=(sid) ;; # the script of debootstrap, which may not know the suite
noble)
    keys=${UBUNTU_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
    [ -r "$keys" ] || { echo "needs $keys: apt-get install ubuntu-keyring"; exit 77; }
    source=(http://archive.ubuntu.com/ubuntu gutsy)
    [ "$arch" = amd64 ] || source=(http://ports.ubuntu.com/ubuntu-ports gutsy)
    ;;
esac

# ---- The system: unpacked, not configured, because a foreign one cannot run its scripts --------------------------------

system=$work/$suite-$arch
mkdir -p "$work"
if [ ! -e "$system.ready" ]; then # the stamp is written last, so a broken start is repeated
    rm -rf "$system"
    debootstrap --foreign --variant=minbase --arch="$arch" --include=python3 ${keys:+--keyring="$keys"} "$suite" "$system" \
        "${source[@]}" >"$system.log"
    for package in "$system"/var/cache/apt/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$system"
    done
    rm -rf "$system/proc" # in a container, debootstrap makes a link of it
    mkdir "$system/proc"
    touch "$system.ready"
fi
version=$(readlink "$system/usr/bin/python3")
version=${version#python}

inside() { # command
    local words=(/usr/bin/env -i PATH=/usr/bin:/bin HOME=/root PYTHONPATH=/test/site-packages PYTHONDONTWRITEBYTECODE=1 sh -euc "$1")
    if [ "$arch" = "$(dpkg --print-architecture)" ]; then
        # shellcheck disable=SC2016 # for the inner shell
        unshare --mount --pid --fork sh -c 'system=$1; shift
            mount -t proc proc "$system/proc" && mount --rbind /dev "$system/dev" && exec chroot "$system" "$@"' _ "$system" "${words[@]}"
    else # /tmp is this system's: proot 5.1 does not know faccessat2, and looks for the file here
        proot -q "qemu-$machine-static" -r "$system" -b /dev -b /proc -b /sys -b /tmp -w / "${words[@]}"
    fi
}
if [ "$arch" != "$(dpkg --print-architecture)" ]; then
    for program in proot "qemu-$machine-static"; do
        command -v "$program" >/dev/null || { echo "needs $program"; exit 77; }
    done
fi

# ---- The wheel, and the golden programs --------------------------------------------------------------------------------

rm -rf "$system/test"
mkdir -p "$system/test"
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$system/test/site-packages" --only-binary :all: \
    --python-version "$version" --implementation cp --abi "cp${version/./}" --abi abi3 --platform "manylinux_2_28_$machine" \
    --platform "manylinux_2_27_$machine" --platform "manylinux2014_$machine" "$wheel"
mkdir "$system/test/wheel" "$system/test/support"
cp "$root"/tests/wheel/*.py "$system/test/wheel/"
cp "$root"/tests/support/{docstrings.py,tiny_tokenizer.json} "$system/test/support/"
ZIG_GLOBAL_CACHE_DIR=$work/zig ZIG_LOCAL_CACHE_DIR=$work/zig "$root/tests/wheel/golden.sh" "$machine" "$system/test/golden"

quick=
[ "$arch" = "$(dpkg --print-architecture)" ] || quick=--quick
inside "if command -v cc gcc clang; then echo there is a compiler; exit 1; fi
    python3 /test/wheel/check.py && python3 /test/wheel/golden.py /test/golden $quick"
