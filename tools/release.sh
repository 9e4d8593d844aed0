#!/bin/bash
# tools/release.sh [DIRECTORY] - makes all files of a release from the tag of the last commit (default: build/release-files).
# It uploads nothing.
#
# DIRECTORY gets the archive of the sources, the sdist, wheels for Linux on x86-64 and AArch64, Debian's packages, the site, a
# bill of materials (CycloneDX) and SHA256SUMS. Two runs make the same bytes, in any folder and on any day (tests/release/run.sh):
# the time in all files is that of the commit, and the tools of the wheels have fixed versions.
#
# It needs git, python3 with venv, cmake, curl and a network, and dpkg-buildpackage with debhelper for Debian's packages. The
# site fetches PyTorch once (5.5 GB) and needs an x86-64 machine.
#     UNTAGGED=yes     for a commit without a tag, to try it
#     PARTS="source sdist wheels debian site"
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build/release-files}
parts=${PARTS:-source sdist wheels debian site}
mkdir -p "$out" && out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf 'release: %s\n' "$*"; }
fail() { say "$@" >&2 && exit 1; }
wants() { case " $parts " in *" $1 "*) ;; *) return 1 ;; esac; }

# ---- What is released -------------------------------------------------------------------------------------------------

cd "$root"
[ -z "$(git status --porcelain --untracked-files=no)" ] || fail "files have changes that are not committed"
version=$(sed -n 's/.*NAPIER_VERSION_STRING "\(.*\)"/\1/p' include/napier/types.h)
if [ -z "${UNTAGGED:-}" ]; then
    git describe --exact-match --match "v$version" >/dev/null 2>&1 || fail "the last commit has no tag v$version (UNTAGGED=yes goes on)"
    grep -q "^## \[$version\] - 20" NEWS.md || fail "NEWS.md: version $version has no date"
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC PYTHONHASHSEED=0
umask 022
name=napier-$version
git archive --prefix="$name/" HEAD | gzip -n9 >"$work/$name.tar.gz"
tar -xzf "$work/$name.tar.gz" -C "$work"
source=$work/$name
find "$out" -mindepth 1 -maxdepth 1 -type f -delete

# ---- The files --------------------------------------------------------------------------------------------------------

tools() { # an environment with the tools of sdist and wheels
    [ ! -e "$work/venv" ] || return 0
    say "fetching the tools of Python's packages"
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check -r "$source/tools/release.txt"
}

if wants source; then
    cp "$work/$name.tar.gz" "$out"
    (cd "$source" && python3 tools/sbom.py) >"$out/$name.cdx.json"
fi
if wants sdist; then
    tools
    say "sdist"
    (cd "$source" && "$work/venv/bin/python" -m build --sdist --no-isolation --outdir "$out") >"$work/log" 2>&1 ||
        { tail -n 30 "$work/log"; exit 1; }
fi
if wants wheels; then
    tools
    say "wheels (minutes)"
    (cd "$source" && NAPIER_SOURCES=${NAPIER_SOURCES:-$root/build/libraries/sources} \
        "$work/venv/bin/python" tools/wheels.py --out "$work/wheels") >"$work/log" 2>&1 || { tail -n 30 "$work/log"; exit 1; }
    cp "$work"/wheels/*.whl "$out"
fi
if wants debian && ! command -v dh >/dev/null; then
    say "no debhelper here: Debian's packages are left out"
elif wants debian; then
    say "Debian's packages (minutes)"
    cp -R "$source" "$work/debian"
    (cd "$work/debian" && DEB_BUILD_OPTIONS="parallel=${JOBS:-$(nproc)} ${DEB_BUILD_OPTIONS:-}" dpkg-buildpackage -b -us -uc) \
        >"$work/log" 2>&1 || { tail -n 30 "$work/log"; exit 1; }
    cp "$work"/*.deb "$out"
fi
if wants site; then
    say "site (minutes)"
    (cd "$source" && tools/site.sh "$(find "$out" -name '*x86_64.whl')") >"$work/log" 2>&1 || { tail -n 30 "$work/log"; exit 1; }
    tar -c --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --exclude=.doctrees --exclude=.buildinfo \
        --transform="s,^html,$name-site," -C "$source/build/site" html | gzip -n9 >"$out/$name-site.tar.gz"
fi
(cd "$out" && rm -f SHA256SUMS && sha256sum -- * >"$work/sums" && cp "$work/sums" SHA256SUMS && cat SHA256SUMS)
