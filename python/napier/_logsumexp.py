"""logsumexp with SciPy's signature: one axis goes straight to C; several are brought together first."""
import numpy as np

from ._napier import _logsumexp


def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False, *, temperature=1.0, dtype=None):
    """log(sum(exp(a / temperature))) over an axis, several, or all (None), as scipy.special.logsumexp.

    Parameters
    ----------
    a : array
        Integers become float64.
    axis : int, tuple of int, or None
        The elements of several axes are one row, in row-major order.
    keepdims : bool
    temperature : float, > 0
    dtype : of the result; default: a's

    Examples
    --------
    >>> import napier
    >>> round(float(napier.logsumexp([1000.0, 1001.0, 1002.0])), 4)
    1002.4076
    >>> napier.logsumexp([[0.0, -40.0], [0.0, 0.0]], axis=1)
    array([4.24835426e-18, 6.93147181e-01])
    """
    if b is not None or return_sign:
        raise NotImplementedError("b and return_sign: weights are not supported yet")
    options = {"temperature": temperature, "dtype": dtype}
    if isinstance(axis, (int, np.integer)) and not isinstance(axis, bool):
        return _logsumexp(a, int(axis), bool(keepdims), **options)
    if isinstance(a, np.ma.MaskedArray):
        raise TypeError("a: masked arrays are not supported (use .filled())")
    if not hasattr(a, "permute"):
        try:
            a = np.asarray(a)
        except ValueError as error:
            raise ValueError(f"a: not an array: {error}") from None
    axes = _axes(axis, a.ndim)
    kept = [i for i in range(a.ndim) if i not in axes]
    shape = tuple(a.shape)
    moved = a.permute(kept + axes) if hasattr(a, "permute") else np.transpose(a, kept + axes)
    row = moved.reshape(tuple(shape[i] for i in kept) + (int(np.prod([shape[i] for i in axes], dtype=np.int64)),))
    result = _logsumexp(row, -1, False, **options)
    return result.reshape(tuple(1 if i in axes else n for i, n in enumerate(shape))) if keepdims else result


def _axes(axis, ndim):
    if axis is None:
        return list(range(ndim))
    if not isinstance(axis, (tuple, list)) or not all(isinstance(i, (int, np.integer)) for i in axis):
        raise TypeError(f"axis: expected an int, a tuple of int or None, got {axis!r}")
    axes = []
    for i in axis:
        if not -ndim <= i < ndim:
            raise IndexError(f"axis: {i} is out of range for an array of {ndim} dimensions")
        axes.append(i + ndim if i < 0 else i)
    if len(set(axes)) != len(axes):
        raise ValueError(f"axis: {axis} names an axis twice")
    return axes
