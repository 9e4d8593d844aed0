#!/usr/bin/env python3
"""Python for Windows on a Linux machine: what its extension is compiled and linked with, and an interpreter for wine.

    tools/windows_python.py build ZIG FOLDER          # FOLDER/include, FOLDER/python3.lib
    tools/windows_python.py interpreter ZIG FOLDER    # the same, and FOLDER/python.exe with NumPy, SciPy and pytest

The headers are those of this Python, with the settings of Windows. python3.lib leads to python3.dll, which has the functions of
the limited API. It names every function that the headers declare: with Py_LIMITED_API a source cannot call another. CMake finds
Python by a library with the version in its name, python311.lib or the like, which is the same file.

No index has an interpreter for Windows, but the wheels of Panda3D carry the DLL of python.org's (3.11.9) and its modules in
C. The modules in Python are those of the Python 3.11 that runs this. The program python.exe and python3.dll, which only leads
to python311.dll, are made here. wine 8 has none of the complex functions of C99, which NumPy 2 calls from the beginning.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

import wheels

PYCONFIG = """\
/* What Python's headers ask of a compiler for Windows on x86-64. */
#define MS_WINDOWS
#define MS_WIN32
#define MS_WIN64
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_VOID_P 8
#define SIZEOF_WCHAR_T 2
#define HAVE_PY_SSIZE_T 1
typedef long long Py_ssize_t;
#define PY_SSIZE_T_MAX 9223372036854775807LL
"""

PYTHON_EXE = """\
#include <wchar.h>
__declspec(dllimport) int Py_Main(int, wchar_t **);
int wmain(int count, wchar_t **words) { return Py_Main(count, words); }
"""

PANDA3D = "panda3d==1.10.16"
PACKAGES = ["numpy==1.26.4", "scipy==1.11.4", "ml_dtypes==0.5.4", "pytest==8.4.2", "hypothesis==6.135.0", "colorama==0.4.6"]


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def functions(include):
    """The names of the functions and data that the headers declare."""
    declared = re.compile(r"PyAPI_(?:FUNC|DATA)\([^()]*\)\s*(\w+)")
    return sorted({name for header in include.glob("*.h") for name in declared.findall(header.read_text())})


def import_library(zig, dll, names, out):
    with tempfile.NamedTemporaryFile("w", suffix=".def") as file:
        file.write(f"LIBRARY {dll}\nEXPORTS\n" + "\n".join(names) + "\n")
        file.flush()
        run(zig, "dlltool", "-m", "i386:x86-64", "-d", file.name, "-l", out)


def build(zig, folder):
    include = folder / "include"
    shutil.rmtree(include, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    wheels.python_headers(folder).rename(include)
    (include / "pyconfig.h").write_text(PYCONFIG)
    import_library(zig, "python3.dll", functions(include), folder / "python3.lib")
    shutil.copy(folder / "python3.lib", folder / f"python{sys.version_info[0]}{sys.version_info[1]}.lib")


def pip(what, *words):
    """Asks pip for wheels for Windows."""
    run(
        sys.executable,
        "-m",
        "pip",
        what,
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
        "--python-version",
        "3.11",
        "--implementation",
        "cp",
        "--platform",
        "win_amd64",
        *words,
    )


def compile_for_windows(zig, source, *words):
    with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
        file.write(source)
        file.flush()
        run(zig, "cc", "-target", "x86_64-windows-gnu", file.name, *words)


def interpreter(zig, folder):
    build(zig, folder)
    with tempfile.TemporaryDirectory() as temporary:
        pip("download", "--no-deps", "--dest", temporary, PANDA3D)
        wheel = zipfile.ZipFile(next(pathlib.Path(temporary).iterdir()))
        for member in wheel.infolist():
            if member.filename.startswith("deploy_libs/") and "/api-ms-" not in member.filename:
                member.filename = pathlib.Path(member.filename).name
                wheel.extract(member, folder)
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        folder / "Lib",
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("site-packages", "dist-packages", "test", "*.so", "__pycache__", "config-*"),
    )
    pip("install", "--root-user-action", "ignore", "--upgrade", "--target", folder / "Lib" / "site-packages", *PACKAGES)
    import_library(zig, "python311.dll", ["Py_Main"], folder / "main.lib")
    compile_for_windows(zig, PYTHON_EXE, "-municode", folder / "main.lib", "-o", folder / "python.exe")
    exports = "".join(
        f'__asm__(".section .drectve,\\"yni\\"\\n.ascii \\" -export:{name}=python311.{name}\\"\\n.text");\n'
        for name in functions(folder / "include")
    )
    compile_for_windows(zig, exports, "-shared", "-o", folder / "python3.dll")


def main():
    what, zig, folder = sys.argv[1:] if len(sys.argv) == 4 else sys.exit(__doc__)
    if what == "interpreter" and sys.version_info[:2] != (3, 11):
        sys.exit("needs a Python 3.11")
    {"build": build, "interpreter": interpreter}[what](pathlib.Path(zig), pathlib.Path(folder).resolve())


if __name__ == "__main__":
    main()
