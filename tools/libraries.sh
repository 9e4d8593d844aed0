#!/bin/bash
# tools/libraries.sh TARGET DIRECTORY - builds cJSON, PCRE2, utf8proc and zlib as archives for one of zig's targets, so that
# tokenizer and model can be built where they are not installed: for wheels, for Windows and for macOS.
#
#     tools/libraries.sh x86_64-windows-gnu build/libraries/x86_64-windows-gnu
#     cmake -S . -B build/windows --toolchain cmake/zig.cmake -DNAPIER_TARGET=x86_64-windows-gnu \
#         -DNAPIER_SYSROOT=$PWD/build/libraries/x86_64-windows-gnu
#
# The sources come from Debian's archive, once, and are checked by their SHA-256. DIRECTORY gets include/, lib/ and
# licenses/. Needs curl, cmake and zig (`pip install ziglang`). Exit status 77: something is missing, named in the last line.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -eq 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
target=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
sources=${NAPIER_SOURCES:-$root/build/libraries/sources}
archive=http://deb.debian.org/debian/pool/main
zig=${NAPIER_ZIG:-$(command -v zig || python3 -c 'import os, ziglang
print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))' 2>/dev/null || true)}
[ -x "$zig" ] || { echo "needs zig: pip install ziglang"; exit 77; }
[ -e "$out/ready" ] && exit 0

# path in the archive, SHA-256
files="
c/cjson/cjson_1.7.18.orig.tar.gz 3aa806844a03442c00769b83e99970be70fbef03735ff898f4811dd03b9f5ee5
p/pcre2/pcre2_10.46.orig.tar.gz 8d28d7f2c3b970c3a4bf3776bcbb5adfc923183ce74bc8df1ebaad8c1985bd07
u/utf8proc/utf8proc_2.8.0.orig.tar.gz a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc
z/zlib/zlib_1.3.dfsg+really1.3.1.orig.tar.gz 60dd315c07f616887caa029408308a018ace66e3d142726a97db164b3b8f69fb
"
mkdir -p "$sources" "$out/include/cjson" "$out/lib" "$out/licenses" "$out/work"
while read -r path sum; do
    [ -n "$path" ] || continue
    file=$sources/$(basename "$path")
    [ -e "$file" ] || curl -fsSL --retry 3 -o "$file" "$archive/$path" || { echo "cannot fetch $archive/$path"; exit 77; }
    echo "$sum  $file" | sha256sum --check --quiet || { echo "$file: another file than expected: remove it"; exit 1; }
    tar -xzf "$file" -C "$out/work"
done <<<"$files"

# Hidden, so that the extension of Python exports none of these functions to a process that has others of the same name.
flags="-O2 -fPIC -fvisibility=hidden -fno-sanitize=all"
make_archive() { # name, flags, sources...
    local name=$1 extra=$2 objects=() source
    shift 2
    for source in "$@"; do
        # shellcheck disable=SC2086 # lists of flags
        "$zig" cc -target "$target" $flags $extra -c "$source" -o "$out/work/$name-$(basename "$source" .c).o"
        objects+=("$out/work/$name-$(basename "$source" .c).o")
    done
    "$zig" ar qc "$out/lib/lib$name.a" "${objects[@]}"
}
cd "$out/work"
rm -f "$out"/lib/*.a
make_archive cjson -DCJSON_HIDE_SYMBOLS cJSON-*/cJSON.c
make_archive utf8proc -DUTF8PROC_STATIC utf8proc-*/utf8proc.c
make_archive z "-DHAVE_UNISTD_H" zlib-*/{adler32,crc32,inflate,inffast,inftrees,zutil}.c
cp cJSON-*/cJSON.h "$out/include/cjson/"
cp utf8proc-*/utf8proc.h zlib-*/zlib.h zlib-*/zconf.h "$out/include/"
cmake -S pcre2-* -B pcre2 --toolchain "$root/cmake/zig.cmake" -DNAPIER_TARGET="$target" -DNAPIER_ZIG="$zig" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS="-fPIC -fvisibility=hidden" -DBUILD_SHARED_LIBS=OFF -DPCRE2_SUPPORT_JIT=ON \
    -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF -DPCRE2_STATIC_PIC=ON \
    -DCMAKE_INSTALL_PREFIX="$out/work/installed" >pcre2.log
cmake --build pcre2 -j "${JOBS:-2}" --target install >>pcre2.log
cp installed/include/pcre2.h "$out/include/"
cp "$(find installed -name 'libpcre2-8*.a' | head -n 1)" "$out/lib/libpcre2-8.a"
cp cJSON-*/LICENSE "$out/licenses/cJSON.txt"
cp pcre2-*/LICENCE.md "$out/licenses/PCRE2.md"
cp utf8proc-*/LICENSE.md "$out/licenses/utf8proc.md"
cp zlib-*/LICENSE "$out/licenses/zlib.txt"
cd "$out"
rm -rf work
touch ready
echo "$target: $(cd lib && ls | tr '\n' ' ')"
