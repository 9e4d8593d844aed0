"""The steps of a decoder layer between its products, for arrays of any number of dimensions. C takes rows and heads."""

from __future__ import annotations

import math
from typing import Any

from .. import _napier
from .convert import in_its_kind
from .logsumexp import _array, _is_tensor


@in_its_kind
def rms_norm(x: Any, weight: Any, *, epsilon: float = 1e-6, dtype: Any = None) -> Any:
    """x / sqrt(mean(x^2) + epsilon) * weight along the last axis, in float32.

    Parameters
    ----------
    x : array [..., H]
        float32, float16 or bfloat16; others become float32.
    weight : array [H]
    epsilon : float, at least 0
    dtype : dtype of the result; default: that of x

    Examples
    --------
    >>> import numpy as np, napier
    >>> napier.rms_norm(np.array([2.0, -2.0], "f4"), np.array([1.0, 0.5], "f4"), epsilon=0.0).tolist()
    [1.0, -0.5]
    """
    x = _array(x, "x")
    return _napier._rms_norm(_rows(x, "x"), _array(weight, "weight"), epsilon, dtype).reshape(x.shape)


@in_its_kind
def rms_norm_backward(grad_out: Any, x: Any, weight: Any, *, epsilon: float = 1e-6) -> tuple[Any, Any]:
    """The gradients (grad_x, grad_weight) of rms_norm, from the gradient with respect to its result.

    Examples
    --------
    >>> import numpy as np, napier
    >>> x, weight = np.array([[3, -3]], "f4"), np.ones(2, "f4")
    >>> grad_x, grad_weight = napier.rms_norm_backward(np.array([[1, 0]], "f4"), x, weight)
    >>> grad_x.round(4), grad_weight.round(4)
    (array([[0.1667, 0.1667]], dtype=float32), array([1., 0.], dtype=float32))
    """
    x = _array(x, "x")
    grads = _napier._rms_norm_backward(_rows(_array(grad_out, "grad_out"), "grad_out"), _rows(x, "x"), _array(weight, "weight"), epsilon)
    return grads[0].reshape(x.shape), grads[1]


@in_its_kind
def swiglu(gate: Any, up: Any, *, dtype: Any = None) -> Any:
    """gate / (1 + exp(-gate)) * up, element by element, in float32. Both have one shape.

    Examples
    --------
    >>> import numpy as np, napier
    >>> napier.swiglu(np.array([0.0, 100.0], "f4"), np.array([5.0, 2.0], "f4")).tolist()
    [0.0, 200.0]
    """
    gate, up = _array(gate, "gate"), _array(up, "up")
    _same_shape("up", up, gate)
    return _napier._swiglu(_elements(gate), _elements(up), dtype).reshape(gate.shape)


@in_its_kind
def swiglu_backward(grad_out: Any, gate: Any, up: Any) -> tuple[Any, Any]:
    """The gradients (grad_gate, grad_up) of swiglu, from the gradient with respect to its result.

    Examples
    --------
    >>> import numpy as np, napier
    >>> grad_gate, grad_up = napier.swiglu_backward(np.ones(2, "f4"), np.zeros(2, "f4"), np.array([5, 2], "f4"))
    >>> grad_gate.tolist(), grad_up.tolist()
    ([2.5, 1.0], [0.0, 0.0])
    """
    gate, up, grad_out = _array(gate, "gate"), _array(up, "up"), _array(grad_out, "grad_out")
    _same_shape("up", up, gate)
    _same_shape("grad_out", grad_out, gate)
    return tuple(g.reshape(gate.shape) for g in _napier._swiglu_backward(*map(_elements, (grad_out, gate, up))))


@in_its_kind
def rotary(x: Any, cosines: Any, sines: Any, *, dtype: Any = None) -> Any:
    """Rotary position embedding with the pairs (i, i + dim / 2) of Llama.

    Parameters
    ----------
    x : array [..., heads, dim]
        float32, float16 or bfloat16; arithmetic is float32.
    cosines, sines : float32 arrays [..., dim / 2]
        Of each token, as rotary_angles returns them; the dimensions before the last are those of x before its heads.
    dtype : dtype of the result; default: that of x

    Examples
    --------
    >>> import numpy as np, napier
    >>> cosines, sines = napier.rotary_angles([0, 1], *napier.rotary_frequencies(2))
    >>> [[round(i, 4) for i in head] for [head] in napier.rotary([[[1, 0]], [[1, 0]]], cosines, sines).tolist()]
    [[1.0, 0.0], [0.5403, 0.8415]]
    """
    return _rotate(x, cosines, sines, False, dtype, "x")


@in_its_kind
def rotary_backward(grad_out: Any, cosines: Any, sines: Any) -> Any:
    """The gradient of rotary with respect to x: grad_out rotated back.

    Examples
    --------
    >>> import numpy as np, napier
    >>> cosines, sines = napier.rotary_angles([7], *napier.rotary_frequencies(2))
    >>> x = np.array([[[1, 2]]], "f4")
    >>> napier.rotary_backward(napier.rotary(x, cosines, sines), cosines, sines).round(4)  # x again
    array([[[1., 2.]]], dtype=float32)
    """
    return _rotate(grad_out, cosines, sines, True, None, "grad_out")


def rotary_angles(positions: Any, inverse: Any, scale: float = 1.0) -> tuple[Any, Any]:
    """(cosines, sines) of positions * inverse, times scale: float32 [..., dim / 2] for positions [...].

    positions are integers from 0 to 2^24 - 1; inverse and scale are those of rotary_frequencies.

    Examples
    --------
    >>> import napier
    >>> cosines, sines = napier.rotary_angles([0, 1], *napier.rotary_frequencies(2))
    >>> cosines.round(4), sines.round(4)
    (array([[1.    ],
           [0.5403]], dtype=float32), array([[0.    ],
           [0.8415]], dtype=float32))
    """
    positions = _array(positions, "positions")
    shape = (*positions.shape, len(inverse))
    return tuple(a.reshape(shape) for a in _napier._rotary_angles(positions.reshape(-1), _array(inverse, "inverse"), scale))


def _rows(x, name):
    """x [..., H] as [N, H], without a copy where its strides allow it."""
    if x.ndim < 1:
        raise ValueError(f"{name}: expected at least 1 dimension")
    return x if x.ndim == 2 else x.reshape((math.prod(x.shape[:-1]), x.shape[-1]))


def _elements(x):
    """x as a matrix."""
    return _rows(x, "") if x.ndim else x.reshape((1, 1))


def _same_shape(name, x, like):
    if tuple(x.shape) != tuple(like.shape):
        raise ValueError(f"{name}: shape {tuple(x.shape)} is not {tuple(like.shape)}")


def _as_single(x, name):
    """Cosines and sines as float32."""
    x = _array(x, name)
    return x.float() if _is_tensor(x) else x.astype("f4", copy=False)


def _rotate(x, cosines, sines, back, dtype, name):
    x, cosines, sines = _array(x, name), _as_single(cosines, "cosines"), _as_single(sines, "sines")
    if x.ndim < 2:
        raise ValueError(f"{name}: expected at least 2 dimensions, got {x.ndim}")
    for what, a in (("cosines", cosines), ("sines", sines)):
        if tuple(a.shape) != (*x.shape[:-2], x.shape[-1] // 2):
            raise ValueError(f"{what}: shape {tuple(a.shape)} is not {(*x.shape[:-2], x.shape[-1] // 2)}")
    heads = x if x.ndim == 3 else x.reshape((math.prod(x.shape[:-2]), *x.shape[-2:]))
    return _napier._rotary(heads, _rows(cosines, ""), _rows(sines, ""), back, dtype).reshape(x.shape)
