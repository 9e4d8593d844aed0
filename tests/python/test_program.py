"""The program that the wheel carries: as the script `napier`, and as `python -m napier`."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import napier
from napier.__main__ import PROGRAM

SCRIPT = pathlib.Path(sys.executable).with_name("napier")
in_wheel = pytest.mark.skipif("site-packages" not in napier.__file__, reason="the program comes with the wheel")


def run(words, **more):
    return subprocess.run([*map(str, words)], capture_output=True, **more)


@in_wheel
@pytest.mark.parametrize("words", [[SCRIPT], [sys.executable, "-m", "napier"]], ids=["script", "module"])
def test_the_program(words, tmp_path):
    shown = run([*words, "--version"])
    assert (shown.returncode, shown.stdout.decode(), shown.stderr) == (0, f"napier {napier.__version__}\n", b"")
    x = np.random.default_rng(0).standard_normal((3, 5)).astype("f4")
    np.save(tmp_path / "x.npy", x)
    made = run([*words, "softmax", tmp_path / "x.npy", "-o", tmp_path / "y.npy"])
    assert made.returncode == 0 and (np.load(tmp_path / "y.npy") == napier.softmax(x)).all()
    piped = run([*words, "softmax", "-"], input=b"1,2\n")  # standard input and output are the program's own
    assert piped.returncode == 0 and piped.stdout.count(b",") == 1
    assert run([*words, "softmax", "--no-such"]).returncode == 2  # and so is its exit status


@in_wheel
def test_what_the_program_needs_lies_beside_it():
    """Without a path of libraries of this machine: models need three, and packed .npz need zlib."""
    shown = run([PROGRAM, "info"], env={"PATH": os.environ["PATH"]}).stdout.decode()
    assert "tokenizer and model" in shown and "tokenizer and model" not in shown[shown.index("left out") :]


def test_a_package_without_the_program(monkeypatch):
    monkeypatch.setattr("napier.__main__.PROGRAM", "/nowhere/napier")
    with pytest.raises(SystemExit, match="without the program"):
        napier.__main__.main()
