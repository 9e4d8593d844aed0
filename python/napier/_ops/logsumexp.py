"""logsumexp with SciPy's signature. C reduces one axis; several axes are first joined into one."""

from __future__ import annotations

from typing import Any, Never, Optional

import numpy as np

from .convert import as_array, axes_of, has_only_dlpack, in_its_kind, positive, refuse_words, transposed, without_float8
from .device import stays
from .masked import hidden
from .._napier import _logsumexp, _logsumexp_weighted


def logsumexp(
    a: Any,
    axis: Optional[int | tuple[int, ...]] = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    *,
    temperature: float = 1.0,
    dtype: Any = None,
    mask: Any = None,
    causal: bool = False,
    **other: Never,
) -> Any:
    """log(sum(b * exp(a / temperature))) over one axis, several, or all (None), like scipy.special.logsumexp.

    Parameters
    ----------
    a : array
        Integers become float64. Complex numbers are computed in float64.
    axis : int, tuple of int, or None
        The elements of several axes form one row, in row-major order.
    b : array that broadcasts with a, or None
        Weights, of any sign. An element with weight 0 is ignored, even if it is inf or NaN. If all weights are 1, the
        bits are those without weights.
    keepdims : bool
    return_sign : bool
        Whether to return (log(abs(sum)), sign of the sum: 1, 0 or -1). Without it a negative sum gives NaN. If a or b is
        complex, the sign is sum / abs(sum), and without it the result is complex, with an imaginary part in [-pi, pi].
    temperature : float, > 0
    dtype : dtype of the result; default: that of a, or the common dtype of a and b
    mask : bool or int array that broadcasts to a, or None
        0 hides an element, as -inf does, whatever it is.
    causal : bool
        Of the last two axes, queries and keys, the last query keeps all keys, and each earlier query one fewer.

    Examples
    --------
    >>> import napier
    >>> round(float(napier.logsumexp([1000.0, 1001.0, 1002.0])), 4)
    1002.4076
    >>> napier.logsumexp([[0.0, -40.0], [0.0, 0.0]], axis=1)
    array([4.24835426e-18, 6.93147181e-01])
    >>> lse, sign = napier.logsumexp([1.0, 2.0], b=[1.0, -1.0], return_sign=True)
    >>> round(float(lse), 4), float(sign)
    (1.5413, -1.0)
    """
    if other:  # here, because a decorator takes an eighth of a small call
        refuse_words("logsumexp", other)
    if not hasattr(a, "dtype") and not has_only_dlpack(a):
        a = _array(a, "a")
    if mask is not None or causal:
        return _masked(a, mask, causal, axis, b, keepdims, return_sign, temperature, dtype)
    if not _is_of_floats(a) and _is_complex(a) or b is not None and _is_complex(b):
        return _of_complex(a, axis, b, keepdims, return_sign, temperature, dtype)
    if b is None and not return_sign:
        if axis is None or type(axis) is int:
            result = _logsumexp(a, axis, keepdims, temperature=temperature, dtype=dtype)
            if result is not None:  # None: all elements, but the array has gaps
                return result
    return _of_rows(a, axis, b, keepdims, return_sign, temperature, dtype)


@in_its_kind
def _masked(a, mask, causal, axis, b, keepdims, return_sign, temperature, dtype):
    return logsumexp(hidden(a, mask, causal, "a"), axis, b, keepdims, return_sign, temperature=temperature, dtype=dtype)


@in_its_kind
def _of_rows(a, axis, b, keepdims, return_sign, temperature, dtype):
    """Over several axes, or with weights, or with the sign."""
    if b is None and not return_sign:
        row, axis, finish = _one_axis(_array_anywhere(a, "a"), axis, keepdims)
        return finish(_logsumexp(row, axis, False, temperature=temperature, dtype=dtype))
    a, b = _broadcast(_array(a, "a"), 1.0 if b is None else b)
    dtype = _dtype_of_weights(a, b, dtype)
    row, where, finish = _one_axis(a, axis, keepdims)
    weights = _one_axis(b, axis, keepdims)[0]
    lse, sign = _logsumexp_weighted(row, weights, where, False, temperature=temperature, dtype=dtype)
    if return_sign:
        return finish(lse), finish(sign)
    return finish(_without_negative(lse, sign))


def _is_of_floats(a):
    return type(a) is np.ndarray and a.dtype.kind == "f"


def _is_complex(a):
    dtype = getattr(a, "dtype", None)
    if dtype is None:
        return not has_only_dlpack(a) and _array(a, "b").dtype.kind == "c"
    return getattr(dtype, "is_complex", False) or getattr(dtype, "kind", "") == "c"


@in_its_kind
def _of_complex(a, axis, b, keepdims, return_sign, temperature, dtype):
    """logsumexp where a or b is complex, by rows of complex128 in NumPy."""
    from .complex import logsumexp_rows

    a = _array(a, "a")
    temperature = positive(temperature, "temperature")
    if b is not None:
        a, b = _broadcast(a, b)
        dtype = _dtype_of_weights(a, b, dtype)
    library, of, to = _library_of(a, b)
    rows, _, finish = _one_axis(to(a), axis, keepdims, True)
    shape, size = rows.shape[:-1], (int(np.prod(rows.shape[:-1], dtype=np.int64)), rows.shape[-1])
    matrix = np.ascontiguousarray(rows.astype(np.complex128).reshape(size))
    weights = None if b is None else _one_axis(to(b), axis, keepdims, True)[0].astype(np.complex128).reshape(size)
    kind = _complex_dtype(to(a).dtype if b is None else np.result_type(to(a).dtype, to(b).dtype), dtype)
    if temperature != 1.0:
        matrix = (matrix.view(np.float64) / temperature).view(np.complex128)
    lse, log, sign = logsumexp_rows(matrix, weights, library, of, to)

    def give(result, dtype):
        return of(finish(result.astype(dtype).reshape(shape))[()])

    if return_sign:
        return give(log, np.empty(0, kind).real.dtype), give(sign, kind)
    return give(lse, kind)


def _library_of(a, b):
    """The module of the arrays, and functions from and to NumPy's arrays."""
    if not _is_tensor(a):
        return np, lambda x: x, lambda x: x
    import torch

    for name, x in (("a", a), ("b", b)):
        if x is None:
            continue
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(f"{name}: the gradient of complex numbers is not supported (use .detach())")
        if x.device.type != "cpu":
            raise NotImplementedError(f"{name}: complex tensors on {x.device} are not supported (use .cpu())")
    return (
        torch,
        lambda x: torch.from_numpy(np.asarray(x)),
        lambda x: (x.float() if x.dtype == torch.bfloat16 else x).detach().resolve_conj().resolve_neg().numpy(),
    )


def _complex_dtype(default, dtype):
    dtype = default if dtype is None else np.dtype(str(dtype).removeprefix("torch.")) if "torch" in str(dtype) else np.dtype(dtype)
    if dtype.kind != "c" or dtype.itemsize > 16:
        raise TypeError(f"dtype: expected complex64 or complex128 for complex numbers, got {dtype}")
    return dtype


def _is_tensor(a):
    return hasattr(a, "permute")


def _array_anywhere(a, name):
    """An array, a tensor, or an array of a library that stays on its GPU."""
    return a if stays(a, name) else _array(a, name)


def _array(a, name):
    """An array or a tensor."""
    if isinstance(a, np.ma.MaskedArray):
        raise TypeError(f"{name}: masked arrays are not supported (use .filled())")
    if _is_tensor(a):
        return a
    try:
        a = as_array(a, name)
    except ValueError as error:
        raise ValueError(f"{name}: not an array: {error}") from None
    if a.dtype.kind in "OSUMm":
        raise TypeError(f"{name}: expected numbers, got an array of dtype {a.dtype}")
    return without_float8(a)


def _broadcast(a, b):
    """Views of both in one shape. Weights that are Python numbers, integers or bool widen a floating-point a no more
    than in NumPy (PyTorch)."""
    if _is_tensor(a) or _is_tensor(b):
        import torch

        a, b = (torch.from_dlpack(x) if has_only_dlpack(x) else x for x in (a, b))
        a, b = torch.as_tensor(a), torch.as_tensor(b) if not isinstance(b, (int, float)) else torch.tensor(b, dtype=a.dtype)
        if not b.dtype.is_floating_point and not b.dtype.is_complex:
            b = b.to(a.dtype if a.dtype.is_floating_point or a.dtype.is_complex else torch.float64)
        return torch.broadcast_tensors(a, b)
    brain = a.dtype.name == "bfloat16"  # in NumPy it is an extension type
    if isinstance(b, (bool, int, float)) and (brain or a.dtype.kind == "f"):
        b = np.asarray(b, a.dtype)
    b = _array(b, "b")
    if b.dtype.kind in "biu" and (brain or a.dtype.kind == "f"):
        b = b.astype(np.float32 if brain else np.result_type(a.dtype, b.dtype))
    try:
        return np.broadcast_arrays(a, b)
    except ValueError:
        raise ValueError(f"b: shape {b.shape} does not broadcast with that of a, {a.shape}") from None


def _dtype_of_weights(a, b, dtype):
    """The dtype of the result: that of b where a is a tensor of integers, as in PyTorch. They are computed in float64."""
    floating = getattr(b.dtype, "is_floating_point", False) or getattr(b.dtype, "is_complex", False)
    plain = _is_tensor(a) and not (a.dtype.is_floating_point or a.dtype.is_complex)
    return b.dtype if dtype is None and floating and plain else dtype


def _one_axis(a, axis, keepdims, last=False):
    """The array with the axes joined into its last one, that axis, and a function that gives the result its shape. One axis
    stays where it is, unless it must be the last one."""
    shape, ndim = tuple(a.shape), a.ndim
    axes = axes_of(axis, ndim) if ndim else []
    kept = [i for i in range(ndim) if i not in axes]
    if len(axes) == 1 and not last:
        row, where = a, axes[0]
    else:
        row = transposed(a, kept + axes).reshape(tuple(shape[i] for i in kept) + (int(np.prod([shape[i] for i in axes], dtype=np.int64)),))
        where = -1
    final = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return row, where, (lambda result: result.reshape(final)) if keepdims else (lambda result: result)


def _without_negative(lse, sign):
    """lse, with NaN where the sum is negative."""
    if _is_tensor(lse):
        return lse.masked_fill(sign < 0, float("nan"))
    return np.where(sign < 0, np.asarray(np.nan, lse.dtype), lse)[()]
