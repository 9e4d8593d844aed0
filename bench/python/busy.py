"""How calls slow down on a busy machine: beside processes that compute, and beside another build or other libraries.

    python bench/python/busy.py [--busy 0,2,4] [--only softmax] [--build DIR]... [--torch PYTHON] [--umap PYTHON] [--rounds 7]

Each build (a folder with the package; the first is that of PYTHONPATH) and each peer is a process of its own. They take turns,
round by round, while the others sleep. A column is a number of busy processes, which compute on one thread each. `share` is
what fair shares of P processors would make of a call on all of them beside B busy processes: (B + P) / P. The ratio is the
slowdown (the mean time beside busy processes over the idle median) divided by that: 1 is fair. The ratio without busy
processes compares with the first build.
Prints a table in Markdown. PYTHON is an interpreter with PyTorch, or with umap-learn. --model DIR adds what decodes
(bench/model/make_model.py).
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "data/digits/images.npy"
PROCESSORS = len(os.sched_getaffinity(0))
SHAPES = (8, 16), (64, 1000), (100_000, 8), (10_000, 100), (8192, 1024), (32, 151_936), (1, 1 << 22)
SIZES = 256, 1024


# ---- In a worker: a name and a call each --------------------------------------------------------------------------------


def napier_calls(model):
    import numpy as np

    import napier

    random = np.random.default_rng(1)
    for shape in SHAPES:
        x = random.standard_normal(shape, dtype=np.float32)
        out = np.empty_like(x)
        yield f"softmax {shape[0]} x {shape[1]}", lambda x=x, out=out: napier.softmax(x, out=out)
        yield f"logsumexp {shape[0]} x {shape[1]}", lambda x=x: napier.logsumexp(x, 1)
    for n in SIZES:
        a = random.standard_normal((n, n), dtype=np.float32)
        yield f"matmul {n}", lambda a=a: napier.matmul(a, a)
    q = random.standard_normal((8, 256, 64), dtype=np.float32)
    yield "attention 8 x 256 x 64", lambda: napier.attention(q, q, q)
    images = np.load(DIGITS).astype(np.float32)
    images = images.reshape(len(images), -1)
    yield "map of the digits", lambda: napier.UMAP(random_state=1).fit(images)
    if model:
        m = napier.CausalLM(model)
        prompt = [list(range(1, 17))]
        yield "decode 32 steps", lambda: m.generate(prompt, max_tokens=32, temperature=0)


def torch_calls(model):
    import torch

    for shape in SHAPES:
        x = torch.randn(*shape)
        out = torch.empty_like(x)
        yield f"softmax {shape[0]} x {shape[1]}", lambda x=x, out=out: torch.softmax(x, -1, out=out)
        yield f"logsumexp {shape[0]} x {shape[1]}", lambda x=x: torch.logsumexp(x, 1)
    for n in SIZES:
        a = torch.randn(n, n)
        yield f"matmul {n}", lambda a=a: a @ a
    q = torch.randn(8, 256, 64)
    yield "attention 8 x 256 x 64", lambda: torch.nn.functional.scaled_dot_product_attention(q[None], q[None], q[None])


def umap_calls(model):
    import numpy as np
    import umap

    images = np.load(DIGITS).astype(np.float32)
    images = images.reshape(len(images), -1)
    yield "map of the digits", lambda: umap.UMAP().fit(images)


def seconds_of(call, least=0.03):
    times = []
    start = time.perf_counter()
    while not times or (time.perf_counter() - start < least and len(times) < 10_000):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) if least < 0.1 else statistics.fmean(times)


def work(library, model):
    calls = dict(globals()[library + "_calls"](model))
    print(json.dumps(list(calls)), flush=True)
    for line in sys.stdin:
        name, least = json.loads(line)
        print(json.dumps(seconds_of(calls[name], least)), flush=True)


# ---- The driver ------------------------------------------------------------------------------------------------------


class Worker:
    def __init__(self, label, python, library, package, model):
        environment = dict(os.environ, **({"PYTHONPATH": package} if package else {}))
        self.label = label
        self.process = subprocess.Popen(
            [python, __file__, "--worker", library, "--model", model or ""],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.names = json.loads(self.process.stdout.readline())

    def seconds(self, name, least):
        self.process.stdin.write(json.dumps([name, least]) + "\n")
        self.process.stdin.flush()
        taken = json.loads(self.process.stdout.readline())
        time.sleep(0.02)  # until its threads sleep
        return taken


@contextlib.contextmanager
def busy_processes(count):
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    time.sleep(0.2 if count else 0)
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def medians(workers, name, busy, rounds):
    """Of each worker: the median of rounds in which the workers take turns."""
    least = 0.3 if busy else 0.03  # beside others: many turns of the scheduler, of which the mean counts
    with busy_processes(busy):
        for w in workers:
            w.seconds(name, 0)
        taken = [[w.seconds(name, least) for w in workers] for _ in range(rounds)]
    return {w.label: statistics.median(times) for w, times in zip(workers, zip(*taken))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", default="0,2,4")
    parser.add_argument("--only", default="")
    parser.add_argument("--build", action="append", default=[])
    parser.add_argument("--torch")
    parser.add_argument("--umap")
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        return work(options.worker, options.model)
    workers = [Worker("napier", sys.executable, "napier", None, options.model)]
    workers += [Worker(path, sys.executable, "napier", path, options.model) for path in options.build]
    workers += [Worker("PyTorch", options.torch, "torch", None, None)] if options.torch else []
    workers += [Worker("umap-learn", options.umap, "umap", None, None)] if options.umap else []
    names = [name for name in workers[0].names if options.only in name]
    counts = [int(count) for count in options.busy.split(",")]
    print("| call | by |", *(f"{count} busy, ms | ratio |" for count in counts))
    print("|---|---|" + "---:|---:|" * len(counts))
    for name in names:
        able = [w for w in workers if name in w.names]
        found = {count: medians(able, name, count, options.rounds) for count in counts}
        for w in able:
            idle, first = found[counts[0]][w.label], found[counts[0]][able[0].label]
            cells = []
            for count in counts:
                now, share = found[count][w.label], (count + PROCESSORS) / PROCESSORS
                ratio = f"{now / idle / share:.2f}" if count else f"{idle / first:.3f}"
                cells.append(f"{1e3 * now:.4g} | {ratio} |")
            print(f"| {name} | {w.label} |", *cells, flush=True)


if __name__ == "__main__":
    main()
