#!/bin/sh
# Fetches the benchmark's peers, each into an environment of its own.
#
#     bench/setup.sh peer ...      of: torch transformers ort jax scipy onednn xnnpack umap uwot llama cuda opencl plot site
#
# The environments lie in $NAPIER_BENCH_HOME, by default ~/.cache/napier/bench: PyTorch alone is 5.5 GB, which a
# `rm -rf build` should not throw away. Only what is missing is fetched. A peer that cannot be had is named and left out;
# the command fails only where nothing at all could be prepared. Napier itself depends on none of this.
set -u
home=${NAPIER_BENCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/napier/bench}
python=${PYTHON:-python3}
mkdir -p "$home" || exit 1

say() { printf 'bench/setup: %s\n' "$*" >&2; }

# venv NAME PACKAGE...: an environment with these packages; the stamp is written last, so a broken fetch is repeated.
venv() {
    name=$1; shift
    [ -f "$home/$name/ready" ] && return 0
    case " $*" in *" torch"*) size=", 5.5 GB" ;; *) size= ;; esac
    say "fetching $name ($*$size) into $home/$name"
    rm -rf "${home:?}/$name"
    if "$python" -m venv "$home/$name" &&
       "$home/$name/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@" \
           >"$home/$name.log" 2>&1; then
        touch "$home/$name/ready"
        return 0
    fi
    say "$name: not available, left out (see $home/$name.log)"
    return 1
}

# A Debian package, where we are root and apt is there; otherwise only a hint.
debian() {
    dpkg -s "$1" >/dev/null 2>&1 && return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing $1"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$1" >"$home/$1.log" 2>&1 && return 0
        apt-get update -q >>"$home/$1.log" 2>&1
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$1" >>"$home/$1.log" 2>&1 && return 0
    fi
    say "$1: not available, left out (as root: apt-get install $1)"
    return 1
}

for peer in "$@"; do
    case $peer in
    torch | transformers) venv rl torch trl transformers numpy ;;
    ort) venv ort onnxruntime onnx numpy ;;
    jax) venv jax jax numpy ml_dtypes ;;
    scipy) venv scipy scipy numpy ;;
    onednn) venv onednn onednn onednn-devel ;;
    xnnpack) debian libxnnpack-dev && debian libpthreadpool-dev ;;
    umap) venv umap umap-learn numpy ;;
    llama) venv llama llama-cpp-python gguf numpy ;; # compiled from source: five minutes on two cores
    uwot) debian r-cran-uwot ;;
    cuda)
        venv cuda torch numpy scikit-build-core || exit 1
        for extra in liger-kernel quack-kernels; do
            "$home/cuda/bin/python" -m pip install --quiet --disable-pip-version-check "$extra" ||
                say "$extra: not available, left out"
        done ;;
    opencl) # Intel's driver for CPUs; OCL_ICD_VENDORS=$home/opencl/vendors names it to the loader
        venv opencl intel-opencl-rt intel-cmplr-lib-rt && mkdir -p "$home/opencl/vendors" &&
            echo "$home/opencl/lib/libintelocl.so" >"$home/opencl/vendors/intel.icd" ;;
    plot) venv plot numpy matplotlib ;;
    site) venv site torch trl numpy lm-eval scikit-learn dask matplotlib $(cat "$(dirname "$0")/../docs/site/requirements.txt") ;;
    *) say "unknown peer: $peer"; exit 2 ;;
    esac
done
exit 0
