"""How long operations that stream take at each distance from the input to the result, modulo 4096 bytes. On some processors a load
waits for an earlier store whose address has the same low 12 bits; NumPy's large arrays begin 16 bytes after a page, PyTorch's 64.

    python bench/python/distances.py [--isa avx2] [--threads 1] [--shapes 1x4000000,4096x1024] [--json FILE] [--plot FILE.svg]

in an environment with napier and numpy, and matplotlib for --plot. All multiples of 64 bytes and odd ones between; calls at all
distances take turns. A line for each operation: milliseconds at the median distance, and the distances that take 5 % longer."""

import pathlib
import statistics

import numpy as np

import napier
from timing import add_rows, least, parser

DISTANCES = [*range(0, 4096, 64), 4, 8, 16, 20, 32, 44, 48, 52, 60, 112, 4048, 4092]
UNARY = (napier.softmax, napier.log_softmax, napier.sparsemax)
BINARY = (napier.softmax_backward, napier.log_softmax_backward)


def at(size, distance):
    """So many floats, `distance` bytes after the beginning of a page."""
    memory = np.zeros(4 * size + 2 * 4096, np.uint8)
    begin = -memory.ctypes.data % 4096 + distance
    return memory[begin : begin + 4 * size].view(np.float32)


def cells(rows, cols, rounds):
    x, grad = at(rows * cols, 0).reshape(rows, cols), at(rows * cols, 0).reshape(rows, cols)
    x[:] = np.random.default_rng(1).normal(0, 3, x.shape)
    grad[:] = np.random.default_rng(2).normal(size=x.shape)
    memory = at(rows * cols + 1024, 0)
    outs = [memory[d // 4 : d // 4 + x.size].reshape(x.shape) for d in DISTANCES]
    probs, logprobs = napier.softmax(x, out=at(x.size, 0).reshape(x.shape)), napier.log_softmax(x, out=at(x.size, 0).reshape(x.shape))
    for call in UNARY:
        yield call.__name__, least([lambda out=out: call(x, out=out) for out in outs], rounds)
    for call, values in zip(BINARY, (probs, logprobs)):
        yield call.__name__, least([lambda out=out: call(values, grad, out=out) for out in outs], rounds)


def plot(path, found):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    order = np.argsort(DISTANCES)
    for name, times in found:
        pyplot.plot(np.array(DISTANCES)[order], (np.array(times) / statistics.median(times))[order], label=name)
    pyplot.xlabel("bytes from the input to the result, modulo 4096")
    pyplot.ylabel("time / the median's")
    pyplot.legend()
    pyplot.savefig(path, metadata={"Date": None})
    file = pathlib.Path(path)
    file.write_text(" ".join(file.read_text().split()) + "\n")


def main():
    options = parser(__doc__, 9)
    options.add_argument("--isa", default="auto")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--shapes", default="1x4000000,4096x1024")
    options.add_argument("--plot")
    wanted = options.parse_args()
    napier.set_isa(wanted.isa)
    napier.set_num_threads(wanted.threads)
    found, lines = [], []
    for shape in wanted.shapes.split(","):
        for name, times in cells(*map(int, shape.split("x")), wanted.rounds):
            middle = statistics.median(times)
            slow = {d: round(t / middle, 2) for d, t in zip(DISTANCES, times) if t > 1.05 * middle}
            print(f"{name} {shape}, {napier.get_isa()}: {1e3 * middle:.3f} ms; more than 5 % longer at {slow or 'no distance'}", flush=True)
            found.append((f"{name} {shape}", times))
            lines.append({"operation": name, "shape": shape, "isa": napier.get_isa(), "ms": 1e3 * middle, "slow": slow})
    add_rows(wanted.json, lines)
    if wanted.plot:
        plot(wanted.plot, found)


if __name__ == "__main__":
    main()
