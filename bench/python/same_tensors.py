"""Does softmax through Python keep the C library's ratio to PyTorch? napier.softmax(out=), the C function and
torch.softmax(out=) on the same tensors, taking turns in one process.

    python bench/python/same_tensors.py [--threads N] [--library build/release/libnapier.so] [--rounds N] [--json FILE]

In an environment with napier and torch. C is called by ctypes, with the addresses of the tensors that Python is given. Bits of
both are compared. The least time of many rounds counts; every round begins with another contestant.
"""

import ctypes
import os
import sys

from timing import add_rows, least, parser

SHAPES = [(32768, 1024), (100_000, 50), (128, 151_936)]
DTYPES = ["float32", "bfloat16"]
NAPIER_DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3}
HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(HERE, "..", "..", "build", "release", "libnapier.so")


class Matrix(ctypes.Structure):
    """napier_matrix and napier_const_matrix."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
        ("col_stride", ctypes.c_int64),
        ("dtype", ctypes.c_int),
    ]


def matrix(t):
    return Matrix(t.data_ptr(), *t.shape, *t.stride(), NAPIER_DTYPES[str(t.dtype).split(".")[-1]])


def c_softmax(path):
    """The C function, with a context of the process's threads."""
    library, context = ctypes.CDLL(path), ctypes.c_void_p()
    library.napier_softmax.argtypes = [ctypes.c_void_p, Matrix, Matrix, ctypes.c_void_p]
    if library.napier_context_create(ctypes.byref(context), None):
        sys.exit("napier_context_create failed")

    def call(x, y):
        if library.napier_softmax(context, x, y, None):
            sys.exit("napier_softmax failed")

    return call


def measure(torch, napier, call, rows, cols, dtype, rounds):
    x = torch.randn(rows, cols, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    out = torch.empty_like(x)
    mx, mout = matrix(x), matrix(out)
    calls = {"python": lambda: napier.softmax(x, out=out), "c": lambda: call(mx, mout), "torch": lambda: torch.softmax(x, -1, out=out)}
    times = dict(zip(calls, (1e3 * seconds for seconds in least(list(calls.values()), rounds))))
    call(mx, mout)
    if not torch.equal(napier.softmax(x), out):
        sys.exit(f"{rows} x {cols} {dtype}: Python and C differ")
    return times


def main():
    words = parser(__doc__, 30)
    words.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    words.add_argument("--library", default=LIBRARY, help="libnapier.so, of the same build as the package")
    options = words.parse_args()
    # before anything loads OpenMP: idle threads of one pool must not take the cores of another
    os.environ.update(OMP_NUM_THREADS=str(options.threads), OMP_WAIT_POLICY="passive")
    import torch

    import napier

    torch.set_num_threads(options.threads)
    napier.set_num_threads(options.threads)
    call = c_softmax(options.library)
    print(f"{'':26s} {'Python':>9s} {'C':>9s} {'PyTorch':>9s}   Python/C  PyTorch/Python  PyTorch/C   ({options.threads} threads)")
    with torch.inference_mode():
        for rows, cols in SHAPES:
            for dtype in DTYPES:
                t = measure(torch, napier, call, rows, cols, dtype, options.rounds)
                what = f"{rows} x {cols} {dtype}"
                print(
                    f"{what:26s} {t['python']:6.2f} ms {t['c']:6.2f} ms {t['torch']:6.2f} ms {t['python'] / t['c']:10.3f} "
                    f"{t['torch'] / t['python']:15.2f} {t['torch'] / t['c']:10.2f}",
                    flush=True,
                )
                add_rows(options.json, [{"what": what, "threads": options.threads, **t}])


if __name__ == "__main__":
    main()
