# shellcheck shell=sh
# Scripts that build the library read this, with $root set: where ccache is installed, it compiles a source once for the tests, an
# installation, Python and the peers, if their flags are the same (NAPIER_WERROR).
if command -v ccache >/dev/null 2>&1; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_DIR="${CCACHE_DIR:-$root/build/ccache}" CCACHE_NOHASHDIR=1
fi
