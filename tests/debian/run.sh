#!/bin/bash
# tests/debian/run.sh [DIRECTORY] - builds the Debian packages of the last commit (debian/), checks them with lintian,
# installs them into a Debian 12 that has nothing else, and runs debian/tests/smoke there (default: build/debian).
#
# It needs root, debootstrap and a network, and compiles everything, so CI does not run it. The packages stay in
# DIRECTORY/packages. ccache makes a repeated run short; DEB_BUILD_OPTIONS=noopt makes the first one short.
# Exit status 0: built, without an error or a warning of lintian, and all ran.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=${1:-$root/build/debian}
case $work in /*) ;; *) work=$PWD/$work ;; esac
[ "$(id -u)" = 0 ] || { echo "needs root, for debootstrap and chroot"; exit 77; }
command -v debootstrap >/dev/null || { echo "needs debootstrap"; exit 77; }

inside() { # Debian, command
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount --pid --fork sh -c 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot "$1" \
        /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_DIR=/root/.ccache DEB_BUILD_OPTIONS="parallel=$3" sh -euc "$2"' _ \
        "$1" "$2" "${JOBS:-$(nproc)} ${DEB_BUILD_OPTIONS:-}"
}

mkdir -p "$work/packages"
if [ ! -e "$work/ready" ]; then # the stamp is written last, so a broken start is repeated
    rm -rf "$work/clean" "$work/build"
    debootstrap --variant=minbase bookworm "$work/clean" >"$work/debootstrap.log"
    echo "deb http://deb.debian.org/debian-security bookworm-security main" >>"$work/clean/etc/apt/sources.list"
    cp -L /etc/resolv.conf "$work/clean/etc/"
    inside "$work/clean" "apt-get -qq update && apt-get -qq upgrade" >>"$work/debootstrap.log"
    cp -a "$work/clean" "$work/build"
    inside "$work/build" "apt-get -qq install --no-install-recommends build-essential ccache lintian" >>"$work/debootstrap.log" 2>&1
    touch "$work/ready"
fi
rm -rf "$work/build/root/napier" "$work/installed" "$work"/packages/*
mkdir -p "$work/build/root/napier/source"
git -C "$root" archive HEAD | tar -x -C "$work/build/root/napier/source"
inside "$work/build" "cd /root/napier/source && apt-get -qq build-dep --no-install-recommends . && dpkg-buildpackage -b -us -uc" \
    >"$work/build.log" 2>&1 || { tail -n 30 "$work/build.log"; exit 1; }
inside "$work/build" "cd /root/napier && lintian --allow-root --fail-on error,warning *.changes"
cp "$work"/build/root/napier/*.deb "$work/packages"
cp -a "$work/clean" "$work/installed"
mkdir "$work/installed/root/packages"
cp -r "$work"/packages/*.deb "$root/debian/tests/smoke" "$root/examples" "$work/installed/root/packages"
inside "$work/installed" "cd /root/packages && apt-get -qq install --no-install-recommends gcc libc6-dev pkgconf ./*.deb" \
    >"$work/install.log" 2>&1 || { tail -n 30 "$work/install.log"; exit 1; }
inside "$work/installed" "cd /root/packages && ./smoke"
(cd "$work/packages" && ls -s --block-size=K -- *.deb)
