"""What all tests of the package share: random arrays of every kind of layout, and float64 as the judge."""

import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float16), BF16, np.dtype(np.float32), np.dtype(np.float64)]
# half a unit in the last place of the dtype, and what a float32 computation may lose before it is rounded to it
TOLERANCE = {np.dtype(np.float16): 2.0**-10, BF16: 2.0**-7, np.dtype(np.float32): 2e-6, np.dtype(np.float64): 1e-14}


@pytest.fixture
def rng():
    return np.random.default_rng(20240611)


@pytest.fixture(autouse=True)
def settings_as_they_were():
    """A test that changes the settings must not change another one's."""
    yield
    import napier

    napier.set_num_threads(0)
    napier.set_isa("auto")
    napier.set_numerics(0)


def refuses(call, kind, text=""):
    """The call raises an error of this kind, whose text matches."""
    with pytest.raises(kind, match=text or None):
        call()


def run_python(*arguments, **options):
    """What a program prints, which must succeed."""
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def slope(f, x, step=1e-5):
    """The gradient of f at x, by differences in float64."""
    result = np.empty_like(x)
    for i in np.ndindex(x.shape):
        d = np.zeros_like(x)
        d[i] = step
        result[i] = (f(x + d) - f(x - d)) / (2 * step)
    return result


def bits(x):
    """The bytes of an array, in row-major order."""
    return np.ascontiguousarray(x).tobytes()


def layouts(x):
    """Arrays equal to x that lie in memory in different ways."""
    yield "contiguous", np.ascontiguousarray(x)
    yield "Fortran order", np.asfortranarray(x)
    if x.ndim:
        reversed_ = np.ascontiguousarray(x[::-1])
        yield "negative strides", reversed_[::-1]
        wide = np.empty(x.shape[:-1] + (2 * x.shape[-1],), x.dtype)
        wide[..., ::2] = x
        yield "every second element", wide[..., ::2]
        last = np.ascontiguousarray(x[..., ::-1])
        yield "last axis backwards", last[..., ::-1]
    read_only = x.copy()
    read_only.flags.writeable = False
    yield "read-only", read_only
    if x.dtype != BF16:
        yield "other byte order", x.astype(x.dtype.newbyteorder())
        raw = np.empty(x.nbytes + 1, np.uint8)
        shifted = raw[1:].view(x.dtype) if x.size else x.ravel()
        shifted[...] = x.ravel()
        yield "unaligned", shifted.reshape(x.shape)
