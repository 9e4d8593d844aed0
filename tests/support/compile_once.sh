# shellcheck shell=sh
# For scripts that build the library, with $root set: all builds have the same flags, and ccache, where it is installed,
# compiles a source once for the tests, an installation, Python and the peers.
export NAPIER_WERROR="${NAPIER_WERROR-ON}"
if command -v ccache >/dev/null 2>&1; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_DIR="${CCACHE_DIR:-$root/build/ccache}" CCACHE_NOHASHDIR=1
fi
