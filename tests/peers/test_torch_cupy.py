"""Arrays of CuPy on the emulated device of tests/cuda. CuPy needs a GPU, so a stand-in has its interface: arrays in the host's memory
that say they are on device 0, with CuPy's checks of streams and no way to NumPy; and its namespace."""
import ctypes
import sys

import numpy as np

import napier
from support import Skip, python, raises
from test_torch_cuda import EMULATED, HERE, os

CURRENT = 0x7000  # the stream on which the stand-in works
log = []  # what was asked of it


def relabelled(capsule, kind, number):
    """The capsule of NumPy's, saying that its memory is on this device."""
    name, place = (b"dltensor", 8) if "versioned" not in repr(capsule) else (b"dltensor_versioned", 40)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    (ctypes.c_int32 * 2).from_address(pointer(capsule, name) + place)[:] = kind, number
    return capsule


class Device:
    entered = 0

    def __init__(self, number):
        self.number = number

    def __enter__(self):
        Device.entered += 1

    def __exit__(self, *_):
        Device.entered -= 1


class ndarray:  # named as CuPy's
    kind, versioned, says_stream = 2, True, True

    def __init__(self, host, number=0):
        self.host, self.number, self.device = host, number, Device(number)

    shape, ndim, dtype = (property(lambda self, name=name: getattr(self.host, name)) for name in ("shape", "ndim", "dtype"))

    def __dlpack_device__(self):
        return self.kind, self.number

    def __dlpack__(self, stream=None, max_version=None, dl_device=None, copy=None):
        if not isinstance(stream, int) or stream < -1 or stream == 0:
            raise ValueError(f"On CUDA, the valid stream for the DLPack protocol is -1, 1, 2, or any larger value, but {stream} was provided")
        assert Device.entered, "its device is current"
        log.append(stream)
        if not self.versioned and max_version is not None:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        options = {"max_version": (1, 0)} if self.versioned else {}
        return relabelled(self.host.__dlpack__(**options), self.kind, self.number)

    @property
    def __cuda_array_interface__(self):
        return {"version": 3, "shape": self.shape, **({"stream": CURRENT} if self.says_stream else {})}

    def __array_namespace__(self, api_version=None):
        return sys.modules[__name__]

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly.")

    def astype(self, dtype):
        return type(self)(self.host.astype(dtype))

    def __ne__(self, other):
        return type(self)(self.host != other)

    def __setitem__(self, key, value):
        self.host[key] = value.host

    def transpose(self, order):
        return type(self)(self.host.transpose(order))

    def reshape(self, *shape):
        return type(self)(self.host.reshape(*shape))


class OfV12(ndarray):
    """An array of CuPy 12: no namespace, and DLPack of before 1.0."""
    versioned = False
    __array_namespace__ = property()


class Managed(ndarray):
    kind = 13


class WithoutStream(ndarray):
    says_stream = False


class Jax(ndarray):
    def __array_namespace__(self, api_version=None):
        return type(sys)("jax.numpy")


float16, float32, float64, int64, uint8 = np.float16, np.float32, np.float64, np.int64, np.uint8
from_dlpack = None


def empty(shape, dtype=float):
    assert Device.entered, "on the device of the others"
    return ndarray(np.full(shape, 77, dtype))


def normal(*shape, seed=0, dtype=np.float32):
    return (3 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def calls():
    """(name, function, its arrays)."""
    x, ids = normal(6, 300), np.array([3, 0, 299, 7, 7, 100])
    for dtype in (np.float32, np.float16, np.float64):
        yield f"softmax {dtype.__name__}", napier.softmax, [x.astype(dtype)]
    for name, function in (("log_softmax", napier.log_softmax), ("sparsemax", napier.sparsemax)):
        yield name, function, [x]
    yield "softmax over the first axis", lambda x: napier.softmax(x, 0, temperature=0.5), [x]
    yield "softmax to float64", lambda x: napier.softmax(x, dtype="float64"), [x]
    yield "softmax of int32", napier.softmax, [np.arange(12, dtype=np.int32).reshape(3, 4)]
    yield "softmax of nothing", napier.softmax, [normal(0, 3)]
    yield "softmax of a view", lambda x: napier.softmax(x, 1), [normal(3, 4, 5).transpose(2, 0, 1)[1:, ::2]]
    yield "softmax of all", lambda x: napier.softmax(x, None), [x]
    yield "softmax of all, with gaps", lambda x: napier.softmax(x, None), [x[:, ::2]]
    yield "softmax over two axes", lambda x: napier.softmax(x, (0, 2)), [normal(3, 4, 5)]
    yield "softmax_backward", napier.softmax_backward, [x, normal(6, 300, seed=1)]
    for axis in (-1, 0, None, (0, 1)):
        yield f"logsumexp {axis}", lambda x, axis=axis: napier.logsumexp(x, axis), [x]
    yield "logsumexp_backward", lambda x, g: napier.logsumexp_backward(x, g, -1), [x, normal(6)]
    yield "matmul", napier.matmul, [normal(5, 7), normal(7, 3, seed=1)]
    for kind in (np.int64, np.int32, np.int16):
        yield f"token_logprobs {kind.__name__}", lambda x, i: napier.token_logprobs(
            x, i, lse=True, entropy=True, argmax=True, top_k=3), [x, ids.astype(kind)]
    yield "token_logprobs of more dimensions", lambda x, i: napier.token_logprobs(x, i).logprobs, [x.reshape(2, 3, 300), ids.reshape(2, 3)]
    yield "token_logprobs, ids with gaps", lambda x, i: napier.token_logprobs(x, i).logprobs, [x, np.stack([ids, ids], 1)[:, 0]]
    yield "gather_logprobs", napier.gather_logprobs, [x, ids]
    yield "kl_full", napier.kl_full, [x, normal(6, 300, seed=1)]
    yield "kl_per_response", lambda a, b, o, m: napier.kl_per_response(a, b, o, mask=m), [
        normal(6), normal(6, seed=1), np.array([0, 2, 6]), np.array([1, 0, 1, 1, 1, 1], np.int32)]
    yield "attention", lambda q, k, v: napier.attention(q, k, v, causal=True), [
        normal(2, 4, 5, 8), normal(2, 2, 9, 8, seed=1), normal(2, 2, 9, 11, seed=2)]


def flat(results):
    return [x for x in results if x is not None] if isinstance(results, tuple) else [results]


def test_cupy_on_the_emulated_device():
    if not os.path.isdir(os.path.join(EMULATED, "napier")):
        raise Skip("the extension was not built for the emulated device (NAPIER_PYTHON_EMULATED)")
    done = python("-c", "import test_torch_cupy; test_torch_cupy.emulated()", PYTHONPATH=EMULATED + os.pathsep + HERE)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout.strip()


def emulated():
    napier._napier._emulate(True)
    count = the_same_bits()
    results_and_out()
    streams()
    what_is_refused()
    assert Device.entered == 0
    print(count, "calls on the emulated device")


def the_same_bits():
    count = 0
    for kind in (ndarray, OfV12, Managed, WithoutStream):
        for name, function, arrays in calls():
            log.clear()
            napier._napier._emulate(False)
            want = flat(function(*arrays))
            napier._napier._emulate(True)
            got = flat(function(*[kind(x) for x in arrays]))
            assert log, f"{name}: its memory was not asked for"
            for mine, right in zip(got, want, strict=True):
                assert isinstance(mine, ndarray), f"{name}: {type(mine)}"
                right = np.asarray(right)
                assert mine.dtype == right.dtype and mine.shape == right.shape and mine.host.tobytes() == right.tobytes(), name
            count += 1
    return count


def results_and_out():
    x = normal(4, 6)
    out = ndarray(np.zeros_like(x))
    assert napier.softmax(ndarray(x), out=out) is out and np.array_equal(out.host, napier.softmax(x))
    gaps = ndarray(np.zeros((6, 4), np.float32).T)
    assert napier.softmax(ndarray(x), None, out=gaps) is gaps and np.array_equal(gaps.host, napier.softmax(x, None))
    assert napier.softmax(gaps, (0, 1), out=gaps) is gaps and abs(gaps.host.sum() - 1) < 1e-6
    fixed = np.zeros_like(x)
    fixed.flags.writeable = False
    raises(ValueError, "out: the array is read-only", lambda: napier.softmax(ndarray(x), out=ndarray(fixed)))
    fixed = x.copy()
    fixed.flags.writeable = False
    assert np.array_equal(napier.softmax(ndarray(fixed)).host, napier.softmax(x)), "an input may be read-only"
    raises(ValueError, "out: its shape", lambda: napier.softmax(ndarray(x), out=ndarray(np.zeros(3, np.float32))))
    raises(TypeError, ("out: expected an array of float32", "ndarray of dtype int64"),
           lambda: napier.softmax(ndarray(x), out=ndarray(np.zeros((4, 6), np.int64))))


def streams():
    """CuPy is told the stream on which it works, so it waits for nothing. An id that is no column is told at once only where the call
    must wait."""
    x, ids = normal(2, 5), np.array([1, 9])
    for kind, stream in ((ndarray, CURRENT), (WithoutStream, 1)):
        log.clear()
        napier.softmax(kind(x))
        assert set(log) == {stream} and len(log) >= 2, log
    chosen = napier.gather_logprobs(ndarray(x), ndarray(ids))
    assert chosen.host[0] == x[0, 1] and np.isnan(chosen.host[1])
    raises(ValueError, "the id at index 1 is no column", lambda: napier._napier._cuda_synchronize(ndarray(x)))
    raises(ValueError, "the id at index 1 is no column", lambda: napier.gather_logprobs(WithoutStream(x), WithoutStream(ids)))


def what_is_refused():
    import torch
    x, heads = normal(3, 4), normal(1, 2, 3, 4)
    there = ndarray(x)
    raises(ValueError, "ids: it is on the CPU, and the first argument on device 0",
           lambda: napier.gather_logprobs(there, np.array([0, 1, 2])))
    raises(ValueError, "out: it is on device 1", lambda: napier.softmax(there, out=ndarray(x.copy(), 1)))
    raises(NotImplementedError, "out: the array (test_torch_cupy.ndarray) is on CUDA device 0, where napier has no kernel for this call",
           lambda: napier.softmax(x.tolist(), out=there))
    raises(TypeError, "ids: it is of another library than the first argument",
           lambda: napier.gather_logprobs(torch.from_numpy(x), ndarray(np.array([0, 1, 2]))))
    for dtype, text in ((np.complex64, "x: complex numbers are not supported"), ("U1", "x: expected numbers, got an array of dtype <U1")):
        raises(TypeError, text, lambda: napier.softmax(ndarray(np.zeros(3, dtype))))
    raises(TypeError, "ids: expected integers, got an array of dtype float32", lambda: napier.gather_logprobs(there, ndarray(x[:, 0])))
    for name, call in (("x", napier.entmax), ("x", napier.logcumsumexp), ("x", lambda d: napier.softmax(d, mask=[1, 1, 1, 0])),
                       ("a", lambda d: napier.logsumexp(d, b=2.0)), ("x1", lambda d: napier.logaddexp(d, 1.0)),
                       ("input", lambda d: napier.cross_entropy(d, [0, 1, 2])), ("logits", napier.gumbel_softmax), ("gate", lambda d: napier.swiglu(d, d)),
                       ("mask", lambda d: napier.attention(ndarray(heads), ndarray(heads), ndarray(heads), mask=d))):
        for kind in (ndarray, OfV12):
            raises(NotImplementedError, f"{name}: the array (test_torch_cupy.{kind.__name__}) is on CUDA device 0, where napier has no kernel",
                   lambda: call(kind(x)))
    raises(NotImplementedError, ("x: the array (test_torch_cupy.Jax) is on CUDA device 0", "torch.from_dlpack(x)"),
           lambda: napier.softmax(Jax(x)))
    rocm = ndarray(x)
    rocm.kind = 10
    raises(NotImplementedError, "x: the array (test_torch_cupy.ndarray) is on a device of DLPack's type 10", lambda: napier.softmax(rocm))
    there.kind = 2
    napier._napier._emulate(False)
    raises(NotImplementedError, "x: the array (test_torch_cupy.ndarray) is on CUDA device 0", lambda: napier.softmax(there))
