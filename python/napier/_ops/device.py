"""Arrays on a GPU of libraries other than PyTorch, such as CuPy's: they come in by DLPack, and results are written to memory that
their library allocates."""

import contextlib
import sys

import numpy as np

_FLOATS, _INTEGERS, _BYTES, _WRITABLE, _SINGLE, _DEVICE = 1, 2, 4, 8, 16, 32
_HOST, _CUDA = (1, 3), (2, 13)  # DLPack's types of devices
_DEFAULT_STREAM = 1

_AS_IT_IS = {
    _FLOATS: ("float32", "float16", "bfloat16", "float64"),
    _SINGLE: ("float32", "float16", "bfloat16"),
    _INTEGERS: ("int32", "int64"),
    _BYTES: ("bool", "int8", "uint8"),
}


def is_elsewhere(x):
    """Whether x says that the host cannot read its elements."""
    return not isinstance(x, (np.ndarray, np.generic)) and hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] not in _HOST


def refuse(x, name):
    """Raises the error for an array that is elsewhere, where the host's memory is wanted."""
    from .._napier import cuda_device_count

    kind, number = x.__dlpack_device__()
    place = f"CUDA device {int(number)}" if kind in _CUDA else f"a device of DLPack's type {int(kind)}"
    reason = (
        "and napier computes on the CPU and on CUDA devices"
        if kind not in _CUDA
        else "where napier has no kernel for this call"
        if cuda_device_count()
        else "and this build of napier computes on the CPU only: it was built without CUDA, or finds no device of compute "
        "capability 8.0 or later"
    )
    raise NotImplementedError(f"{name}: the array ({_title(x)}) is on {place}, {reason} (copy it to the CPU)")


def stays(x, name):
    """Whether the array is on a GPU, where kernels take it. Raises if it is elsewhere, and there are none."""
    if not is_elsewhere(x):
        return False
    from .._napier import cuda_device_count

    if x.__dlpack_device__()[0] not in _CUDA or not cuda_device_count():
        refuse(x, name)
    _namespace(x, name)
    return True


def _title(x):
    return f"{type(x).__module__}.{type(x).__qualname__}"


def _namespace(x, name):
    """The module with the library's functions."""
    if hasattr(x, "__array_namespace__"):
        space = x.__array_namespace__()
    else:  # CuPy before 14
        space = sys.modules.get(type(x).__module__.partition(".")[0])
    if not hasattr(space, "empty") or getattr(space, "__name__", "").partition(".")[0] == "jax":  # jax's arrays cannot be written
        raise NotImplementedError(
            f"{name}: the array ({_title(x)}) is on CUDA device {int(x.__dlpack_device__()[1])}, and its library "
            f"gives no memory that a result could be written to (torch.from_dlpack({name}) makes a tensor of it)"
        )
    return space


def _device_of(x):
    """A context in which the library allocates where x is."""
    device = getattr(x, "device", None)
    return device if hasattr(device, "__enter__") else contextlib.nullcontext()


def _stream_of(x):
    """DLPack's number of the stream on which the library works now; 0: it does not say."""
    return (getattr(x, "__cuda_array_interface__", None) or {}).get("stream") or 0


def _exported(x, space, stream):
    """What C takes apart: (array, namespace, capsule, stream), ready for work on that stream; 0: on the default stream."""
    ready = stream or _DEFAULT_STREAM
    try:
        capsule = x.__dlpack__(stream=ready, max_version=(1, 1))
    except TypeError:  # a library of before DLPack 1.0
        capsule = x.__dlpack__(stream=ready)
    return x, space, capsule, stream


def export(x, name, what):
    """x for a call, converted on its device to a dtype that `what` allows."""
    if not what & _DEVICE or not stays(x, name):
        refuse(x, name)
    space = _namespace(x, name)
    with _device_of(x):
        dtype = _other_dtype(x, name, what)
        if dtype is not None:
            x = _converted(x, space, dtype)
        return _exported(x, space, _stream_of(x))


def empty(like, shape, dtype, stream):
    """A new array beside another one, for a result or for work."""
    space = _namespace(like, "like")
    with _device_of(like):
        return _exported(_empty(like, space, shape, getattr(space, dtype, dtype)), space, stream)


def _empty(like, space, shape, dtype):
    beside = {} if hasattr(getattr(like, "device", None), "__enter__") else {"device": getattr(like, "device", None)}
    return space.empty(shape, dtype=dtype, **beside)


def empty_like(x, shape):
    """A new array of that shape, with x's dtype and library."""
    with _device_of(x):
        return _empty(x, _namespace(x, "x"), shape, x.dtype)


def contiguous(x):
    """A copy of x without gaps."""
    copy = empty_like(x, tuple(x.shape))
    with _device_of(x):
        copy[...] = x
    return copy


def _other_dtype(x, name, what):
    """The name of the dtype that x must become; None: it may stay as it is."""
    dtype = str(x.dtype).rpartition(".")[2]
    if any(what & kind and dtype in dtypes for kind, dtypes in _AS_IT_IS.items()):
        return None
    if what & _WRITABLE:
        raise TypeError(f"{name}: expected an array of float32, float16, bfloat16 or float64 to write to, got {_title(x)} of dtype {dtype}")
    if dtype.startswith("complex"):
        raise TypeError(f"{name}: complex numbers are not supported")
    floating, integral = dtype.startswith(("float", "bfloat")), dtype.startswith(("int", "uint"))
    if not (floating or integral or dtype == "bool"):
        raise TypeError(f"{name}: expected numbers, got an array of dtype {dtype}")
    if what & (_FLOATS | _SINGLE):
        return "float32" if what & _SINGLE or (floating and dtype != "float64") else "float64"
    if what & _INTEGERS and not integral:
        raise TypeError(f"{name}: expected integers, got an array of dtype {dtype}")
    return "int64" if what & _INTEGERS else "bool"


def _converted(x, space, dtype):
    if dtype == "bool":
        return x != 0
    dtype = getattr(space, dtype)
    return space.astype(x, dtype) if hasattr(space, "astype") else x.astype(dtype)
