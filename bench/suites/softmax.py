"""softmax, log_softmax and logsumexp, against six libraries and the floors of the machine.

A shape R x C is R reductions of length C. Along the last axis it lies in memory as [R, C]; along the first axis the same
work lies as [C, R], so that the two can be compared."""
import numpy as np

from suites.common import Cell, Truth, fill_file, widen

NAME = "softmax"
PEERS = ("napier", "torch", "ort", "jax", "scipy", "onednn", "xnnpack")
QUICK_PEERS = ("napier", "torch", "ort")
THREADS = "1,2"
ROUNDS, SLICE, ONCE = (3, 11), 0.03, 2.0
MINUTES = (85, 9)  # of a full run and of a quick one
MEMORY = FIGURES = KEEPS = NEW_WORKERS = False
SHARES = True
CHECKED = 4_000_000  # numbers of a result compared with float64

MILLION = 10**6
# rows, cols, in the quick run?
SHAPES = [
    (MILLION, 2, True), (MILLION, 8, True), (MILLION, 32, True),
    (100_000, 50, False), (100_000, 100, True),
    (32_768, 1024, True),
    *((8192, 2**k, 2**k in (256, 4096)) for k in range(7, 17)),
    *((rows, cols, (rows, cols) in ((1, 151_936), (8, 50_257), (64, 128_256)))
      for rows in (1, 8, 64, 256) for cols in (32_000, 50_257, 128_256, 151_936)),
    (1, MILLION, True), (1, 16_700_000, True), (1, 10**8, False),
    (1000, 50, True), (10_000, 100, False), (1024, 32_768, False),
]
QUICK_FIRST_AXIS = {(MILLION, 8), (32_768, 1024), (100_000, 100)}
QUICK_BF16 = {(MILLION, 8), (MILLION, 32), (32_768, 1024), (64, 128_256), (1, 16_700_000)}
OPS = ("softmax", "log_softmax", "logsumexp")
WHOLE = (1000, 1000)  # logsumexp_all of a million elements


def cell_of(threads, dtype, rows, cols, axis, op):
    shape, item = f"{rows}x{cols}", 2 if dtype == "bf16" else 4
    results = {"logsumexp": rows, "logsumexp_all": 1}.get(op, rows * cols)
    return Cell(f"{op}-{dtype}-{axis}-{shape}", op, threads, (dtype, axis, shape), (rows * cols + results) * item,
                {"dtype": dtype, "axis": axis, "rows": rows, "cols": cols})


def is_quick(dtype, rows, cols, often, axis):
    return (often and (axis == "last" or (rows, cols) in QUICK_FIRST_AXIS)
            and (dtype == "f32" or (rows, cols) in QUICK_BF16))


def cells(options, threads):
    """In the order of measuring: workers live for one thread count, inputs for one shape, large arrays come last."""
    found = []
    for count in threads:
        for dtype in ("f32", "bf16"):
            for rows, cols, often in SHAPES:
                for axis in ("last", "first") if rows > 1 else ("last",):  # one row: the same memory, the same work
                    if not options.quick or is_quick(dtype, rows, cols, often, axis):
                        found += [cell_of(count, dtype, rows, cols, axis, op) for op in OPS]
            found.append(cell_of(count, dtype, *WHOLE, "last", "logsumexp_all"))
    return sorted(found, key=lambda c: (threads.index(c.threads), c.rows * c.cols * c.item, c.data, c.op))


def inputs(cell, folder):
    """Logits of standard deviation 3 in a file: a block of odd length over and over, so that rows differ."""
    return {"input": fill_file(folder / "input", cell.dtype, cell.rows * cell.cols)}


def tolerance(cell, peer):
    """Relative and absolute. Napier's own is what it promises (docs/numerics.md); a peer's is what its dtype can give."""
    half = 2.0**-8 if cell.dtype == "bf16" else 0.0  # the last rounding
    if peer == "napier":
        return (half * 1.01 + 1.5e-6, 2.0**-133) if cell.op == "softmax" else (half * 1.01 + 1.2e-7, 1.0e-6)
    length = cell.rows * cell.cols if cell.op == "logsumexp_all" else cell.cols
    long_sum = min(max(1e-4, length * 2.0**-24), 0.05)  # a plain f32 sum from left to right may lose that much
    if cell.dtype == "bf16":
        return (0.05, 1e-6) if cell.op == "softmax" else (0.02, 0.1)
    return (long_sum, 1e-30) if cell.op == "softmax" else (1e-5, long_sum)


def truths(cell, arrays):
    """The result of some rows in float64."""
    last, whole = cell.axis == "last", cell.op == "logsumexp_all"
    stored = (cell.rows, cell.cols) if last else (cell.cols, cell.rows)
    array = np.asarray(arrays["input"]).reshape(stored)
    count = cell.rows if cell.rows * cell.cols <= CHECKED else max(1, min(cell.rows, CHECKED // cell.cols))
    rows = np.arange(count) * cell.rows // count
    x = widen(array).reshape(1, -1) if whole else widen(array[rows] if last else np.ascontiguousarray(array[:, rows].T))
    top = x.max(axis=1, keepdims=True)
    x -= top
    if cell.op == "softmax":
        np.exp(x, out=x)
        values = x / x.sum(axis=1, keepdims=True)
    else:
        log_sum = np.log1p(np.exp(x).sum(axis=1, keepdims=True) - 1.0)
        values = x - log_sum if cell.op == "log_softmax" else (top + log_sum)[:, 0]
    if values.ndim == 2 and not last:
        values = values.T
    shape = {"logsumexp": (cell.rows,), "logsumexp_all": (1,)}.get(cell.op, stored)
    where = None if whole else (slice(None), rows) if values.ndim == 2 and not last else rows
    # errors: relative for softmax, where the result is not next to nothing; absolute for logs
    scale = np.where(values > 1e-30, values, np.inf) if cell.op == "softmax" else 1.0

    def allowed(peer):
        relative, absolute = tolerance(cell, peer)
        return relative * np.abs(values) + absolute

    return {"result": Truth(shape, values, scale, 0.0, where, allowed)}
