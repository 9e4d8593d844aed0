"""The tables of golden bits by the library inside an installed wheel: golden.py FOLDER [--quick].

The extension exports the library's functions. FOLDER has the programs of tests/bits as shared objects, which find them
there, beside their tables and programs.list (tests/wheel/golden.sh). --quick: the lines that slow builds check. The last line
counts."""

import ctypes
import os
import pathlib
import sys


def run(program, words):
    """Calls main of a program in a child, because it keeps its counts in static variables."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            argv = (ctypes.c_char_p * (len(words) + 2))(program.name.encode(), *(word.encode() for word in words), None)
            status = ctypes.CDLL(str(program)).main(len(words) + 1, argv)
            ctypes.CDLL(None).fflush(None)
        except OSError as error:
            print(error)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder, *options):
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
    import napier

    native = pathlib.Path(napier.__file__).parent
    assert "site-packages" in native.parts, f"{native} is not an installed wheel"
    passed = failed = 0
    for line in (folder / "programs.list").read_text().splitlines():
        if line.startswith("#"):
            continue
        program, subject, slow = line.split()[:3]
        for isa in ("auto", "scalar", "neon", "avx2", "avx512"):
            words = ["--quick"] if "--quick" in options and slow == "--quick" else []
            status = run(folder / f"{program}.so", [*words, "--isa", isa, "--threads", "7", "--check",
                                                    str(folder / f"{program}.txt")])
            if status == 77:
                continue
            print("ok   " if status == 0 else "FAIL ", f"golden {subject}, {isa}", flush=True)
            passed, failed = passed + (status == 0), failed + (status != 0)
    print(f"{passed} passed, {failed} failed (golden tables, Python {sys.version.split()[0]}, {os.uname().machine})")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
