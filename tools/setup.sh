#!/bin/sh
# tools/setup.sh demo|test|bench - installs what the command needs on this machine, and says what it does.
#
# On Debian and its derivatives it installs missing packages with apt-get, as root, or through sudo if that needs no
# password. Otherwise it prints the one command that would install them. If something required is missing, the script
# fails. If something optional is missing, the script names it, and the tests that need it are skipped with their names.
#
#     NAPIER_SETUP=off      install nothing, only report
set -u

say() { printf 'setup: %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

# An entry is PACKAGE, or PACKAGE=COMMAND if the command is enough, whatever installed it.
compiler="gcc=cc libc6-dev make=make cmake=cmake"
case ${1:-} in
demo)
    required=$compiler
    optional="libcairo2-dev libcjson-dev libedit-dev libpcre2-dev libutf8proc-dev zlib1g-dev"
    ;;
test)
    required=$compiler
    optional="g++=g++ ccache=ccache clang=clang clang-19=clang-19 llvm=llvm-symbolizer libclang-rt-14-dev libcmocka-dev
        libmpfr-dev pkg-config=pkg-config gcc-aarch64-linux-gnu=aarch64-linux-gnu-gcc libc6-dev-arm64-cross
        qemu-user-static=qemu-aarch64-static valgrind=valgrind clang-format=clang-format clang-tidy=clang-tidy python3=python3
        python3-dev=python3-config python3-venv libcairo2-dev libcjson-dev libedit-dev libpcre2-dev libutf8proc-dev zlib1g-dev
        chromium=chromium wine64=/usr/lib/wine/wine64 ocl-icd-opencl-dev libopenmpi-dev openmpi-bin=mpirun.openmpi libmpich-dev mpich=mpirun.mpich"
    ;;
bench)
    required="$compiler g++=g++ python3=python3 python3-venv"
    optional="pkg-config=pkg-config"
    ;;
*)
    echo "usage: tools/setup.sh demo|test|bench" >&2
    exit 2
    ;;
esac

# Whether the package of `$1` (an entry) is there. Without dpkg a library's package cannot be checked; the compiler or
# CMake will report it.
present() {
    package=${1%%=*}
    case $1 in
    *=*) have "${1#*=}" && return 0 ;;
    *) have dpkg-query || return 0 ;;
    esac
    have dpkg-query && [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ]
}

# The packages of the entries that are missing.
missing() {
    for entry in "$@"; do
        present "$entry" || printf '%s ' "${entry%%=*}"
    done
}

# shellcheck disable=SC2086 # lists of words
wanted=$(missing $required $optional)
if [ -z "$wanted" ]; then
    say "everything that 'make $1' needs is here"
    exit 0
fi

as_root=
can_install=no
if ! have apt-get || [ "${NAPIER_SETUP:-}" = off ]; then
    can_install=no
elif [ "$(id -u)" = 0 ]; then
    can_install=yes
elif have sudo && sudo -n true 2>/dev/null; then
    can_install=yes
    as_root="sudo -n"
fi

# shellcheck disable=SC2086
if [ "$can_install" = yes ]; then
    log=$(mktemp)
    apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends"
    say "installing with apt-get: $wanted"
    if ! { $apt update && $apt install $wanted; } >"$log" 2>&1; then
        say "not all of that could be installed at once; trying one by one"
        for package in $wanted; do
            $apt install "$package" >>"$log" 2>&1 || say "could not install $package (details in $log)"
        done
    fi
    [ -n "$(missing $required $optional)" ] || rm -f "$log"
fi

# shellcheck disable=SC2086
lacking_required=$(missing $required)
# shellcheck disable=SC2086
lacking_optional=$(missing $optional)
if [ -n "$lacking_required$lacking_optional" ] && [ "$can_install" = no ]; then
    say "missing: $lacking_required$lacking_optional"
    if have apt-get; then
        say "this would install it (you may need the administrator's password):"
        printf '\n    sudo apt-get update && sudo apt-get install -y %s\n\n' "${lacking_required}${lacking_optional}"
    else
        say "these are the names of Debian's packages; please install what your system calls them"
    fi
fi
if [ -n "$lacking_required" ]; then
    say "'make $1' cannot go on without: $lacking_required"
    exit 1
fi
[ -z "$lacking_optional" ] || say "going on without: ${lacking_optional}(what needs it is skipped by name)"
exit 0
