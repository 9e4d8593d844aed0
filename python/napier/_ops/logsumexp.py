"""logsumexp with SciPy's signature. C reduces one axis; several axes are first joined into one."""
import numpy as np

from .convert import as_array, has_only_dlpack
from .._napier import _logsumexp, _logsumexp_weighted


def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False, *, temperature=1.0, dtype=None):
    """log(sum(b * exp(a / temperature))) over one axis, several, or all (None), like scipy.special.logsumexp.

    Parameters
    ----------
    a : array
        Integers become float64.
    axis : int, tuple of int, or None
        The elements of several axes form one row, in row-major order.
    b : array that broadcasts with a, or None
        Weights, of any sign. An element with weight 0 is ignored, even if it is inf or NaN. If all weights are 1, the
        bits are those without weights.
    keepdims : bool
    return_sign : bool
        Whether to return (log(abs(sum)), sign of the sum: 1, 0 or -1). Without it a negative sum gives NaN.
    temperature : float, > 0
    dtype : dtype of the result; default: that of a, or the common dtype of a and b

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
    if b is None and not return_sign:
        if axis is None or type(axis) is int:
            result = _logsumexp(a, axis, keepdims, temperature=temperature, dtype=dtype)
            if result is not None:  # None: all elements, but the array has gaps
                return result
        row, axis, finish = _one_axis(_array(a, "a"), axis, keepdims)
        return finish(_logsumexp(row, axis, False, temperature=temperature, dtype=dtype))
    a, b = _broadcast(_array(a, "a"), 1.0 if b is None else b)
    row, where, finish = _one_axis(a, axis, keepdims)
    weights = _one_axis(b, axis, keepdims)[0]
    lse, sign = _logsumexp_weighted(row, weights, where, False, temperature=temperature, dtype=dtype)
    if return_sign:
        return finish(lse), finish(sign)
    return finish(_without_negative(lse, sign))


def _is_tensor(a):
    return hasattr(a, "permute")


def _array(a, name):
    """An array or a tensor."""
    if isinstance(a, np.ma.MaskedArray):
        raise TypeError(f"{name}: masked arrays are not supported (use .filled())")
    if _is_tensor(a):
        return a
    try:
        return as_array(a)
    except ValueError as error:
        raise ValueError(f"{name}: not an array: {error}") from None


def _broadcast(a, b):
    """Views of both in one shape. Weights that are Python numbers, integers or bool widen a floating-point a no more
    than in NumPy (PyTorch)."""
    if _is_tensor(a) or _is_tensor(b):
        import torch

        a, b = (torch.from_dlpack(x) if has_only_dlpack(x) else x for x in (a, b))
        a, b = torch.as_tensor(a), torch.as_tensor(b) if not isinstance(b, (int, float)) else torch.tensor(b, dtype=a.dtype)
        if not b.dtype.is_floating_point and not b.dtype.is_complex:
            b = b.to(torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float16))
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


def _one_axis(a, axis, keepdims):
    """The array with the axes joined into its last one, that axis, and a function that gives the result its shape."""
    shape, ndim = tuple(a.shape), a.ndim
    axes = _axes(axis, ndim)
    kept = [i for i in range(ndim) if i not in axes]
    if len(axes) == 1:
        row, where = a, axes[0]
    else:
        moved = a.permute(kept + axes) if _is_tensor(a) else np.transpose(a, kept + axes)
        row = moved.reshape(tuple(shape[i] for i in kept) + (int(np.prod([shape[i] for i in axes], dtype=np.int64)),))
        where = -1
    final = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return row, where, (lambda result: result.reshape(final)) if keepdims else (lambda result: result)


def _without_negative(lse, sign):
    """lse, with NaN where the sum is negative."""
    if _is_tensor(lse):
        return lse.masked_fill(sign < 0, float("nan"))
    return np.where(sign < 0, np.asarray(np.nan, lse.dtype), lse)[()]


def _axes(axis, ndim):
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
