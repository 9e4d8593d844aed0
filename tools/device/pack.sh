#!/bin/bash
# tools/device/pack.sh - build/device/first.tar.xz: all that the first minutes on a GPU need; says its size and time.
#
# The machine with the GPU needs neither nvcc nor a network, only a driver. There:
#
#     python3 -c 'import tarfile; tarfile.open("first.tar.xz").extractall("first")' && cd first && ./first.sh
#
# Inside: programs of tests/cuda, tables of golden bits, bench/cuda, the Python package, libraries that a bare machine lacks.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/device tree=build/device/first
export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cmake --preset device
cmake --build --preset device --parallel "${JOBS:-$(nproc)}"
rm -rf "$tree"
cmake --install "$build" --component device --strip --prefix "$tree" >/dev/null
cmake --install "$build" --component python --strip --prefix "$tree/python" >/dev/null
cp -a python/napier/. "$tree/python/napier/"
mkdir "$tree/bench"
cp -a bench/cuda/*.py tests/cuda/loops.txt "$tree/bench/"
cp -a tools/device/first.sh "$tree/"
find "$tree" -name __pycache__ -prune -exec rm -rf {} +
# The dictionary is larger than the tree: each program holds the same kernels.
tar -C "$tree" --sort=name -c . | xz -T2 --lzma2=preset=3,dict=384MiB >"$build/first.tar.xz"
echo "$build/first.tar.xz: $(($(stat -c %s "$build/first.tar.xz") / 1000)) kB, $(find "$tree" -type f | wc -l) files, $SECONDS s"
