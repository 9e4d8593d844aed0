#!/bin/bash
# tests/install/run.sh - checks that `make install` installs what a user needs, and that `make demo` works.
#
# Installs to a temporary prefix, moves it elsewhere, and builds a program against it through pkg-config and through
# find_package. Checks the symbols that the library exports, and compiles each header by itself, as C11 and as C++.
# CC is the compiler (default cc). The last line counts: N passed, N failed, N skipped.
# shellcheck disable=SC1091,SC2317 # checks.sh is not given; functions are called through `check`
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cc=${CC:-cc}
work=$(mktemp -d)
. "$root/tests/support/checks.sh"

# ---- Install ---------------------------------------------------------------------------------------------------------

build_and_install() { # prefix, cmake arguments...
    local prefix=$1
    shift
    cmake -S "$root" -B "$work/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_INSTALL_LIBDIR=lib -DNAPIER_TESTS=OFF "$@" &&
        cmake --build "$work/build" --parallel "$(nproc)" &&
        cmake --install "$work/build" --prefix "$prefix"
}

have cmake || { skip "the installed package" "no cmake on this machine"; finish; }
check "build and install" build_and_install "$work/first" || finish
mv "$work/first" "$work/moved" # nothing that is installed may remember where it was put
prefix=$work/moved

for file in include/napier/napier.h lib/libnapier.so lib/libnapier.a lib/pkgconfig/napier.pc \
    lib/cmake/napier/napier-config.cmake lib/cmake/napier/napier-config-version.cmake share/doc/napier/LICENSE; do
    check "installed: $file" test -s "$prefix/$file"
done
# napier/mpi.h comes with libnapier_mpi.
public_headers() { diff -r ${no_mpi:+--exclude=mpi.h} "$root/include" "$prefix/include"; }
no_mpi=
[ -e "$prefix/lib/libnapier_mpi.so" ] || no_mpi=yes
check "every public header is installed, and nothing else" public_headers
if [ -n "$no_mpi" ]; then
    check "napier/mpi.h is not, without MPI" test ! -e "$prefix/include/napier/mpi.h"
else
    without_mpi() {
        cmake -S "$root" -B "$work/build" -DNAPIER_MPI=OFF && cmake --build "$work/build" --parallel "$(nproc)" &&
            cmake --install "$work/build" --prefix "$work/no-mpi" && test -e "$work/no-mpi/include/napier/napier.h" &&
            test ! -e "$work/no-mpi/include/napier/mpi.h"
    }
    check "napier/mpi.h is not installed without MPI" without_mpi
fi
# Links of the installed documents to other documents.
dead_links() {
    local page link
    find "$prefix/share/doc/napier" -name '*.md' | while IFS= read -r page; do
        grep -oE '\]\([^)# ]+' "$page" | sed 's/^](//' | grep -vE '^[a-z]+:' | while IFS= read -r link; do
            [ -e "$(dirname "$page")/$link" ] || echo "$page: $link"
        done
    done
}
no_dead_links() { [ -s "$prefix/share/doc/napier/docs/README.md" ] && ! dead_links | grep .; }
check "installed documents name installed ones" no_dead_links
# Paths of folders in the checkout, not its root: if the checkout is /napier, that is also a part of lib/cmake/napier.
no_build_paths() {
    ! grep -rIlF -e "$root/src" -e "$root/include" -e "$root/build" -e "$work/" "$prefix/lib/cmake" "$prefix/lib/pkgconfig"
}
# No warning, no mark of Markdown that was left, and the first and the last section.
man_page_is_whole() {
    local page=$prefix/share/man/man1/napier.1
    ! groff -man -Tascii -ww -z "$page" 2>&1 | grep . && ! grep -nE '\*\*|`|<!--' "$page" &&
        grep -q '^[.]TH "napier" "1"' "$page" && grep -q '^[.]SH NAME' "$page" && grep -q '^[.]SH SEE ALSO' "$page"
}
check "no path of the build remains in the package files" no_build_paths
if have awk; then
    check "installed: the man page" test -s "$prefix/share/man/man1/napier.1"
    check "installed: completion for bash" test -s "$prefix/share/bash-completion/completions/napier"
    if have groff; then
        check "the man page is one" man_page_is_whole
    else
        skip "the man page is one" "no groff on this machine"
    fi
else
    skip "the man page" "no awk on this machine"
fi
check "the installed program runs" "$prefix/bin/napier" info
check "the demo" "$root/tools/demo.sh" "$work/build" "$work/demo"

# ---- What the library exports ----------------------------------------------------------------------------------------

# Defined dynamic symbols, without their versions, and without the absolute one that is the version itself.
exported_symbols() { nm -D --defined-only "$prefix/lib/libnapier.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort; }
# Those that are not the library's own.
foreign_symbols() { ! exported_symbols | grep -v '^napier_'; }
# The library exports exactly the functions that the headers declare, except those of tokenizer.h and model.h if their
# libraries are missing.
declared_symbols() {
    local left_out='^$'
    exported_symbols | grep -q '^napier_tokenizer_load$' || left_out='/(tokenizer|model)[.]h$'
    find "$prefix/include/napier" -name '*.h' | grep -vE "$left_out" |
        xargs sed -n 's/^NAPIER_API [^(]*[ *]\(napier_[a-z0-9_]*\)(.*/\1/p' | sort
}
same_symbols() { diff <(declared_symbols) <(exported_symbols); }
# In the archive every name with external linkage has the prefix too, because a static library cannot hide names.
foreign_in_archive() {
    nm --defined-only --extern-only "$prefix/lib/libnapier.a" |
        awk 'NF == 3 && $3 !~ /^napier_/ { print; bad = 1 } END { exit bad }'
}
# Exported names without or with another version than that of the map.
other_versions() { # library, version
    readelf -W --dyn-syms "$1" | awk -v version="@@$2" '$7 ~ /^[0-9]+$/ && !index($8, version) && !/napier_(cuda|opencl)_.*@@NAPIER_EXPERIMENTAL/ { print; bad = 1 } END { exit bad }'
}
has_soname() { readelf -d "$prefix/lib/$1" | grep -q "SONAME.*\[$1[.]1\]"; }
mpi_symbols() {
    diff <(sed -n 's/^NAPIER_MPI_API [^(]*[ *]\(napier_[a-z0-9_]*\)(.*/\1/p' "$prefix/include/napier/mpi.h" | sort) \
        <(nm -D --defined-only "$prefix/lib/libnapier_mpi.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
}
needs_version() { readelf -W -V "$work/own/by_pkg_config" | grep -q 'NAPIER_1[.]0'; }
# The next minor version, from the same archive: one more function, in a node of its own.
next_version() {
    # shellcheck disable=SC2046
    mkdir "$work/next" && cat >"$work/next/new.c" <<<'int napier_new_function(void); int napier_new_function(void) { return 1; }' &&
        cat "$root/cmake/napier.map" - >"$work/next/next.map" <<<'NAPIER_1.1 { global: napier_new_function; } NAPIER_1.0;' &&
        "$cc" -shared -fPIC "$work/next/new.c" -Wl,--whole-archive "$prefix/lib/libnapier.a" -Wl,--no-whole-archive \
            $(pkg-config --static --libs-only-l napier | sed 's/-lnapier //') -Wl,-soname,libnapier.so.1 \
            -Wl,--version-script="$work/next/next.map" -o "$work/next/libnapier.so.1.1.0" &&
        rm "$work/next/new.c" && PATH=$PATH:/sbin:/usr/sbin ldconfig -n "$work/next" && test -L "$work/next/libnapier.so.1"
}
if have nm; then
    check "the shared library exports only napier_ symbols" foreign_symbols
    check "it exports what the headers declare, no more and no less" same_symbols
    check "the archive has only napier_ symbols" foreign_in_archive
    check "its soname is of the major version" has_soname libnapier.so
    check "its symbols are of version NAPIER_1.0" other_versions "$prefix/lib/libnapier.so" NAPIER_1.0
    if [ -e "$prefix/lib/libnapier_mpi.so" ]; then
        check "libnapier_mpi exports what its header declares" mpi_symbols
        check "libnapier_mpi: its soname is of the major version" has_soname libnapier_mpi.so
        check "libnapier_mpi: its symbols are of version NAPIER_MPI_1.0" other_versions "$prefix/lib/libnapier_mpi.so" NAPIER_MPI_1.0
    else
        skip "symbols of libnapier_mpi" "no MPI on this machine"
    fi
else
    skip "exported symbols" "no nm on this machine"
fi

# The lists of functions by version, and what symbols.py must notice in a copy of them.
symbols() { python3 "$root/tests/install/symbols.py" "$work/lists"; }
says() { symbols | grep -F -- "$1"; }
release_lists() { # as version 1.0 is released, and napier_zeta comes in 1.1
    local map sum
    sed -i 's/NAPIER_EXPERIMENTAL_1[.]0/NAPIER_EXPERIMENTAL_1.1/' "$work/lists/cmake/napier.map"
    for map in napier napier_mpi; do
        sum=$(symbols | sed -n "s|^cmake/$map.map: .* put /[*] sealed: \([0-9a-f]*\) .*|\1|p")
        sed -i "s|^NAPIER.*_1[.]0 {|/* sealed: $sum */\n&|" "$work/lists/cmake/$map.map"
    done
    printf 'NAPIER_1.1 {\n  global:\n    napier_zeta;\n} NAPIER_1.0;\n' >>"$work/lists/cmake/napier.map"
}
if have python3; then
    mkdir "$work/lists" && cp -r "$root/include" "$root/cmake" "$work/lists"
    check "each function has a version" symbols
    echo 'NAPIER_API int napier_zeta(void);' >>"$work/lists/include/napier/softmax.h"
    check "noticed: a function without a version" says "napier_zeta: in no node"
    sed -i 's/VERSION_STRING "1[.]0/VERSION_STRING "1.1/' "$work/lists/include/napier/types.h"
    check "noticed: a released version that is not sealed" says "NAPIER_1.0: is released: put"
    release_lists
    check "a function of the next version" symbols
    sed -i -e '/napier_zeta;/d' -e '0,/^  local:/s//    napier_zeta;\n&/' "$work/lists/cmake/napier.map"
    check "noticed: a function that is added to a released version" says "NAPIER_1.0: is released, and has other names"
else
    skip "versions of functions" "no python3 on this machine"
fi

# ---- Headers alone ---------------------------------------------------------------------------------------------------

# Includes the header from a file with nothing else, so that warnings about a main file do not count.
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Werror"
alone() { # header, compiler, arguments...
    local header=$1
    shift
    # shellcheck disable=SC2086
    printf '#include "%s"\n' "$header" | "$@" $warnings -I"$prefix/include" -I"$root/src" -fsyntax-only -
}
for header in "$prefix"/include/napier/*.h; do
    name=napier/$(basename "$header")
    if [ "$name" = napier/mpi.h ] && ! have mpicc; then
        skip "$name alone" "no mpicc on this machine"
        continue
    elif [ "$name" = napier/mpi.h ]; then
        check "$name alone, C11" alone "$name" mpicc -std=c11 -Wstrict-prototypes -x c
        continue
    fi
    check "$name alone, C11" alone "$name" "$cc" -std=c11 -Wstrict-prototypes -x c
    for cxx in g++ clang++; do
        if have $cxx; then
            check "$name alone, C++11 with $cxx" alone "$name" $cxx -std=c++11 -x c++
        else
            skip "$name alone, C++11" "no $cxx on this machine"
        fi
    done
done
# The headers of src/ compile by themselves too.
for header in "$root"/src/core/base/*.h $(find "$root/src" -name '*kernels.h' | sort); do
    name=${header#"$root"/src/}
    check "src/$name alone, C11" alone "$name" "$cc" -std=c11 -Wstrict-prototypes -x c
done

# ---- A program of one's own ------------------------------------------------------------------------------------------

mkdir "$work/own"
cp "$root/examples/hello.c" "$work/own/hello.c"
expected="ok: log(exp(1000) + exp(1001) + exp(1002)) = 1002.4076"
says_so() { [ "$("$@")" = "$expected" ]; }

cat >"$work/own/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(own LANGUAGES C)
find_package(napier 1.0 REQUIRED)
add_executable(shared hello.c)
target_link_libraries(shared PRIVATE napier::napier)
add_executable(static hello.c)
target_link_libraries(static PRIVATE napier::napier_static)
CMAKE
with_cmake() {
    cmake -S "$work/own" -B "$work/own/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$work/own/build"
}
if check "find_package(napier) builds a program" with_cmake; then
    check "it runs, linked to the shared library" says_so "$work/own/build/shared"
    check "it runs, linked to the archive" says_so "$work/own/build/static"
fi

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
with_pkg_config() { # output, pkg-config arguments...
    local out=$1
    shift
    # shellcheck disable=SC2046
    "$cc" "$work/own/hello.c" $(pkg-config "$@" --cflags --libs napier) -o "$out"
}
if have pkg-config; then
    if check "pkg-config builds a program" with_pkg_config "$work/own/by_pkg_config"; then
        check "it runs" says_so env LD_LIBRARY_PATH="$prefix/lib" "$work/own/by_pkg_config"
        check "it needs symbols of version NAPIER_1.0" needs_version
        check "the next version of the library, found by ldconfig" next_version &&
            check "the same program runs with it" says_so env LD_LIBRARY_PATH="$work/next" "$work/own/by_pkg_config"
    fi
    check "pkg-config knows the version" pkg-config --exact-version="$(sed -n 's/.*VERSION_STRING "\(.*\)"/\1/p' \
        "$root/include/napier/types.h")" napier
    # The tutorial's pieces are one program, which prints what the page says and draws its picture.
    tutorial() {
        awk '/^```/ { take = /^```c$/; next } take' "$root/docs/tutorials/c.md" >"$work/own/calibrate.c"
        # shellcheck disable=SC2046
        "$cc" -std=c11 -Wall -Wextra -Werror "$work/own/calibrate.c" $(pkg-config --cflags --libs napier) -o "$work/own/calibrate" &&
            LD_LIBRARY_PATH=$prefix/lib "$work/own/calibrate" "$work/demo" "$work/own/calibrate.svg" |
            diff <(awk '/^```/ { take = /^```text$/; next } take' "$root/docs/tutorials/c.md") - &&
            cmp "$work/own/calibrate.svg" "$root/docs/tutorials/calibrate.svg"
    }
    check "the tutorial for C programmers" tutorial
    mv "$prefix/lib/libnapier.so" "$prefix/lib/hidden.so"
    if check "pkg-config --static builds a program" with_pkg_config "$work/own/static" --static; then
        check "it runs without the shared library" says_so "$work/own/static"
    fi
    mv "$prefix/lib/hidden.so" "$prefix/lib/libnapier.so"
else
    skip "pkg-config" "no pkg-config on this machine"
fi

# ---- As part of another project --------------------------------------------------------------------------------------

# Only configures: the same sources have been built above, and building them again takes a minute.
mkdir "$work/parent"
cp "$root/examples/hello.c" "$work/parent/hello.c"
cat >"$work/parent/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES C)
set(BUILD_SHARED_LIBS OFF)
set(NAPIER_CLI OFF)
add_subdirectory("$root" napier)
add_executable(hello hello.c)
target_link_libraries(hello PRIVATE napier::napier)
CMAKE
as_part() {
    cmake -S "$work/parent" -B "$work/parent/build" -DCMAKE_C_COMPILER="$cc" &&
        cmake --build "$work/parent/build" --target help | grep -q napier_static &&
        ! cmake --build "$work/parent/build" --target help | grep -qE 'napier_(cli|example)|selftest'
}
check "add_subdirectory(napier) gives the library, and nothing that was not asked for" as_part
finish
