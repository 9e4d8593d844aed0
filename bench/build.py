"""Prepares a run: the peers of a suite, the C workers, the model."""
import os
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def logged(log, *command):
    """Runs a command with its output in a file; whether it succeeded."""
    with open(log, "w", encoding="utf-8") as out:
        return subprocess.run([*map(str, command)], stdout=out, stderr=subprocess.STDOUT).returncode == 0


def must(log, *command):
    if not logged(log, *command):
        raise SystemExit(f"{command[0]} failed:\n{log.read_text()[-3000:]}")


def workers(peers, home, build):
    """Fetches the peers and builds the C workers. What cannot be had is named and left out; Napier must build."""
    for peer in peers:
        if peer != "napier":
            subprocess.run([HERE / "setup.sh", peer])
    parts = [f"-DNAPIER_{part}=OFF" for part in ("TESTS", "CLI", "EXAMPLES", "CUDA")]
    must(build / "configure.log", "cmake", "-S", HERE.parent, "-B", build, "-DNAPIER_BENCH=ON", *parts,
         f"-DNAPIER_ONEDNN={home / 'onednn'}")
    make = ("cmake", "--build", build, "--parallel", os.environ.get("JOBS") or os.cpu_count() or 2, "--target")
    must(build / "build.log", *make, "napier_worker")
    for peer in {"onednn", "xnnpack"} & set(peers):
        if not logged(build / f"{peer}.log", *make, f"{peer}_worker"):
            print(f"{peer}: does not build, left out")


def compiler(build):
    """What the workers were built with, in words."""
    cache = (build / "CMakeCache.txt").read_text()
    find = lambda name: re.search(rf"^{name}:\w+=(.*)", cache, re.M).group(1)  # noqa: E731
    said = subprocess.run([find("CMAKE_C_COMPILER"), "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    return ", ".join([said, f"{find('CMAKE_C_FLAGS')} {find('CMAKE_C_FLAGS_RELEASE')}".strip()])


def model(home, build, quick):
    """A random model of the shape of Qwen3-0.6B (1.2 GB), or of two of its layers."""
    layers = 2 if quick else 28
    folder = build / f"qwen3-{layers}-layers-random"
    if not (folder / "model.safetensors").exists():
        subprocess.run([HERE / "setup.sh", "transformers"])
        must(build / "model.log", home / "rl/bin/python", HERE / "model/make_model.py", folder, "--layers", layers)
    return folder
