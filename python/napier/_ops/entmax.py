"""alpha-entmax (Peters, Niculae and Martins, "Sparse sequence-to-sequence models", 2019): probabilities between softmax (alpha = 1)
and sparsemax (alpha = 2), many of them exactly 0.

With d = (alpha - 1) (max - z) / temperature, p = max(t - d, 0)^(1 / (alpha - 1)), where t makes the sum 1. All arithmetic is float64,
one IEEE operation at a time, and the sums are Napier's or NumPy's cumulative ones, which add in order, so that the bits are the same
everywhere.
"""

from __future__ import annotations

from typing import Any, Literal, Optional

import numpy as np

from .. import _napier
from .convert import axes_of, floating_dtype, in_its_kind, names_axis, positive
from .logsumexp import _array
from .masked import hidden


def _threshold_of_half(d):
    """t for alpha = 1.5, where the sum of (t - d)^2 over the support is 1: a quadratic equation, tried for the k smallest distances."""
    near = np.sort(np.minimum(d, 1.0), -1)  # t <= 1, so that farther ones are outside
    k = np.arange(1.0, d.shape[-1] + 1)
    mean, square = np.cumsum(near, -1) / k, np.cumsum(near * near, -1) / k
    spread = np.maximum(1.0 / k - (square - mean * mean), 0.0)
    t = mean + np.sqrt(spread)
    size = np.maximum((t > near).sum(-1, keepdims=True), 1)
    return np.take_along_axis(t, size - 1, -1)


def _power(u, exponent):
    """u^exponent for u >= 0."""
    return _napier._exp(np.maximum(_napier._log(u), -745.0) * exponent) * (u > 0)


def _threshold(d, exponent):
    """t for any alpha: the sum falls in t, which lies in [n^(1 - alpha), 1]; halved until no double lies between."""
    low, high = np.zeros((*d.shape[:-1], 1)), np.ones((*d.shape[:-1], 1))
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = _napier._dot_rows(_power(np.maximum(middle - d, 0.0), exponent), np.ones_like(d)) < 1.0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def entmax_rows(z: Any, alpha: float, masked: float) -> Any:
    """entmax of the rows of a float64 array. `masked`: what a row of only -inf gives."""
    if z.shape[-1] == 0:
        return z.copy()
    top = z.max(-1, keepdims=True)  # NaN if there is one
    ordinary = np.isfinite(top)
    with np.errstate(invalid="ignore", over="ignore"):
        d = np.where(ordinary, (alpha - 1.0) * (np.where(ordinary, top, 0.0) - z), 0.0)
    if alpha == 1.5:
        u = np.maximum(_threshold_of_half(d) - d, 0.0)
        p = u * u
    else:
        exponent = 1.0 / (alpha - 1.0)
        p = _power(np.maximum(_threshold(d, exponent) - d, 0.0), exponent)
    p = p / _napier._dot_rows(p, np.ones_like(p))
    return np.where(ordinary, p, np.where(top == -np.inf, masked, np.nan))


def check_alpha(alpha: float) -> float:
    if not isinstance(alpha, (int, float, np.number)):
        raise TypeError(f"alpha: expected a number, got {alpha!r}")
    if not 1 <= alpha <= 4:
        raise ValueError(f"alpha: {alpha} is not in 1 (softmax) .. 4")
    if 1 < alpha < 1 + 2**-20:
        raise ValueError(f"alpha: {alpha!r} is so near to 1 that digits are lost; use 1, which is softmax")
    return float(alpha)


@in_its_kind
@names_axis
def entmax(
    x: Any,
    axis: Optional[int | tuple[int, ...]] = -1,
    *,
    alpha: float = 1.5,
    temperature: float = 1.0,
    masked_rows: Literal["nan", "zero"] = "nan",
    mask: Any = None,
    causal: bool = False,
    dtype: Any = None,
) -> Any:
    """alpha-entmax along an axis: probabilities of which many are exactly 0.

    Parameters
    ----------
    x : array
    axis : int, tuple of int, or None
    alpha : float in 1 .. 4
        1 is softmax, 2 is sparsemax; 1.5 is found by sorting, others by halving an interval, which is slow.
    temperature, masked_rows, mask, causal, dtype
        As in softmax.

    Examples
    --------
    >>> import napier
    >>> napier.entmax([1.0, 1.5, 0.25, -3.0]).round(4).tolist()
    [0.3122, 0.6541, 0.0338, 0.0]
    """
    alpha = check_alpha(alpha)
    if alpha in (1, 2):
        function = _napier.softmax if alpha == 1 else _napier.sparsemax
        return function(x, axis, temperature=temperature, masked_rows=masked_rows, mask=mask, causal=causal, dtype=dtype)
    x = hidden(_array(x, "x"), mask, causal)
    if x.dtype.kind == "c":
        raise TypeError("x: complex numbers are not supported")
    temperature = positive(temperature, "temperature")
    if masked_rows not in ("nan", "zero"):
        raise ValueError(f"masked_rows: {masked_rows!r} is not one of 'nan', 'zero'")
    axes = axes_of(axis, x.ndim) if x.ndim else []
    order = [i for i in range(x.ndim) if i not in axes] + axes
    lead = [x.shape[i] for i in order[: x.ndim - len(axes)]]
    rows = np.transpose(x, order).reshape(*lead, int(np.prod([x.shape[i] for i in axes], dtype=np.int64)))
    p = entmax_rows(rows.astype(np.float64) / temperature, alpha, 0.0 if masked_rows == "zero" else np.nan)
    p = p.astype(x.dtype if dtype is None else floating_dtype(dtype))
    return np.transpose(p.reshape([x.shape[i] for i in order]), np.argsort(order))[()]
