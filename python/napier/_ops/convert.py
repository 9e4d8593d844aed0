"""What is no plain array yet: lists, numbers, integers where floats are wanted, foreign byte orders, bfloat16."""

import functools
import warnings
from typing import Any, Callable, TypeVar

import numpy as np

from .device import is_elsewhere, refuse

_F = TypeVar("_F", bound=Callable[..., Any])
_FLOATS, _INTEGERS, _BYTES, _WRITABLE, _SINGLE, _DEVICE = 1, 2, 4, 8, 16, 32


def refuse_words(function, named):
    """Raises the error for unknown keywords. PyTorch's word dim is refused with the name that it has here."""
    word = "dim" if "dim" in named else next(iter(named))
    raise TypeError(f"{function}() got an unexpected keyword argument {word!r}" + (": it is called axis" if word == "dim" else ""))


def names_axis(function: _F) -> _F:
    """The same function, which refuses the word dim."""

    @functools.wraps(function)
    def call(*args, **named):
        if "dim" in named:
            refuse_words(function.__name__, named)
        return function(*args, **named)

    return call  # type: ignore[return-value]


def _as_numpy(x, name):
    if type(x).__module__.split(".")[0] == "torch":
        x = x.detach()
        if x.dtype.is_complex:
            raise TypeError(f"{name}: complex numbers are not supported")
        if x.dtype.is_floating_point and x.dtype.itemsize < 2:
            x = x.float()
        return x.resolve_neg().cpu().numpy()
    try:
        return as_array(x, name)
    except ValueError as error:
        raise ValueError(f"{name}: not an array: {error}") from None


def has_only_dlpack(x):
    """asarray would make an array of one object of it."""
    return hasattr(x, "__dlpack__") and not hasattr(x, "__array__")


def as_array(x, name="x"):
    """x as NumPy's array."""
    if is_elsewhere(x):
        refuse(x, name)
    return np.from_dlpack(x) if has_only_dlpack(x) else np.asarray(x)


def without_float8(x):
    """An array of floats of 8 bits, of which some kinds have no infinity, as float32."""
    return x.astype(np.float32) if x.dtype.name.startswith("float8") else x


def torch_dtype(dtype):
    """PyTorch's dtype of this name, or of this dtype of NumPy."""
    import torch

    return dtype if isinstance(dtype, torch.dtype) else getattr(torch, floating_dtype(dtype).name)


def floating_dtype(dtype):
    kind = np.dtype(getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2])
    if kind.kind != "f" and kind.name != "bfloat16":
        raise TypeError(f"dtype: expected one of floating-point numbers, got {dtype!r}")
    return kind


def number(x, name):
    """x as a float."""
    try:
        if not isinstance(x, (str, bytes)):
            return float(x)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name}: expected a number, got {x!r}")


def positive(x, name):
    value = number(x, name)
    if not 0 < value < np.inf:
        raise ValueError(f"{name}: {x} is not a finite number > 0")
    return value


def given_by(array, namespace):
    """NumPy's array as one of another library, without a copy where the library allows it."""
    try:
        return namespace.from_dlpack(array)
    except (AttributeError, TypeError, ValueError, RuntimeError, BufferError):  # a number, or bfloat16, which NumPy does not export
        return namespace.asarray(array)


def namespace_of(x):
    if isinstance(x, (np.ndarray, np.generic)) or hasattr(x, "permute") or not hasattr(x, "__array_namespace__"):
        return None
    space = x.__array_namespace__()
    return space if space is not np and hasattr(space, "from_dlpack") else None


def in_its_kind(function: _F) -> _F:
    """A function of NumPy's arrays that also takes those of libraries with the array API's standard, such as JAX, and gives results of
    the first one's kind. Those on a GPU reach it as they are: it has kernels for them or refuses them by name."""

    @functools.wraps(function)
    def call(*args, **options):
        first = args[0] if args else next(iter(options.values()), None)
        space = None if type(first) is np.ndarray else namespace_of(first)
        if space is None or is_elsewhere(first):
            return function(*args, **options)
        made = function(*[as_host(x) for x in args], **{name: as_host(x) for name, x in options.items()})
        return tuple(given_by(x, space) for x in made) if isinstance(made, tuple) else given_by(made, space)

    return call  # type: ignore[return-value]


def as_host(x):
    return as_array(x) if namespace_of(x) is not None else x


def _has_floats(array, name, wide):
    """`wide`: what is no float of 16 or 32 bits becomes this."""
    kind = array.dtype.kind
    if array.dtype.name == "bfloat16":
        return np.require(array.view(np.uint16), requirements="A"), True
    if kind == "c":
        raise TypeError(f"{name}: complex numbers are not supported")
    if kind == "f" and array.dtype.itemsize in (2, 4):
        return array.astype(array.dtype.newbyteorder("="), order="C"), False
    if array.dtype.name.startswith("float8"):
        return array.astype(np.float32, order="C"), False  # which holds them exactly
    if kind in "iub" or kind == "f":
        made = array.astype(wide, order="C")
        if kind in "iu" and array.size and np.abs(made).max() > 2.0 ** np.finfo(wide).nmant:
            _warn_of_digits(array, made, name)
        return made, False
    raise TypeError(f"{name}: expected numbers, got an array of dtype {array.dtype}")


def _warn_of_digits(integers, floats, name):
    with np.errstate(invalid="ignore"):  # the largest one, rounded up, is no integer of this dtype
        lost = (floats.astype(integers.dtype) != integers).any()
    if lost:
        warnings.warn(
            f"{name}: integers beyond 2**{np.finfo(floats.dtype).nmant + 1} that differ in digits which {floats.dtype} does not hold; "
            "subtract what they have in common",
            stacklevel=4,
        )


def convert(x, name, what):
    """(array, whether it is the bits of bfloat16): x as an array of a dtype that `what` allows."""
    array = _as_numpy(x, name)
    if what & _WRITABLE:
        if array is not x or array.dtype.name != "bfloat16":
            raise TypeError(
                f"{name}: expected an array of float32, float16, bfloat16 or float64 to write to, "
                f"got {type(x).__name__}" + (f" of dtype {x.dtype}" if hasattr(x, "dtype") else "")
            )
        return array.view(np.uint16), True
    if what & (_FLOATS | _SINGLE):
        return _has_floats(array, name, np.float64 if what & _FLOATS else np.float32)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    if what & _INTEGERS:
        if array.dtype.kind not in "iu":
            raise TypeError(f"{name}: expected integers, got an array of dtype {array.dtype}")
        if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise ValueError(f"{name}: {array.max()} does not fit 64 bits with a sign")
        return array.astype(np.int64, order="C"), False
    if array.dtype.kind == "f" and ((array != 0) & (array != 1)).any():
        raise ValueError(f"{name}: expected 0 or 1, which leave out or keep an element, got {array[(array != 0) & (array != 1)][0]}")
    return (array != 0).astype(np.uint8, order="C"), False


def convert_on_device(x, name, what):
    """As convert, of a tensor on a GPU, and there."""
    import torch

    if x.dtype.is_complex:
        raise TypeError(f"{name}: complex numbers are not supported")
    if what & (_FLOATS | _SINGLE):
        return x.to(torch.float64 if what & _FLOATS else torch.float32)
    if what & _INTEGERS:
        if x.dtype.is_floating_point or x.dtype == torch.bool:
            raise TypeError(f"{name}: expected integers, got a tensor of {x.dtype}")
        return x.to(torch.int64)
    return x != 0


def empty_on_device(like, shape, dtype):
    """A new tensor beside another one."""
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)


def axes_of(axis, ndim):
    """An axis, several, or all (None) as a list of indices from 0."""
    if axis is None:
        return list(range(ndim))
    if isinstance(axis, (int, np.integer)) and not isinstance(axis, bool):
        axis = (axis,)
    if not isinstance(axis, (tuple, list)) or not all(isinstance(i, (int, np.integer)) for i in axis):
        raise TypeError(f"axis: expected an int, a tuple of int or None, got {axis!r}")
    axes = []
    for i in axis:
        if not -max(ndim, 1) <= i < max(ndim, 1):
            raise IndexError(f"axis: {i} is out of range for an array of {ndim} dimensions")
        axes.append(int(i) + ndim if i < 0 else int(i))
    if len(set(axes)) != len(axes):
        raise ValueError(f"axis: {axis} names an axis twice")
    return axes


def transposed(x, order):
    return x.permute(order) if hasattr(x, "permute") else x.transpose(order)
