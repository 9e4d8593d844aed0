"""logaddexp, gumbel_softmax and cross_entropy of arrays."""

from __future__ import annotations

from typing import Any, Literal, Sequence

import numpy as np

from .. import _napier
from .convert import in_its_kind, names_axis, number, positive
from .logsumexp import _array, _is_tensor, logsumexp


def _tensors(*arrays):
    return any(_is_tensor(x) for x in arrays)


def _floating(x):
    return x if x.dtype.kind not in "biu" else x.astype(np.float64)


@in_its_kind
def logaddexp(x1: Any, x2: Any, *, dtype: Any = None) -> Any:
    """log(exp(x1) + exp(x2)), element by element: logsumexp of each pair, with its bits. Complex numbers as there.

    Examples
    --------
    >>> import napier
    >>> napier.logaddexp([0.0, 1000.0], [0.0, 1000.0]).round(4).tolist()
    [0.6931, 1000.6931]
    """
    x1, x2 = _array(x1, "x1"), _array(x2, "x2")
    kind = np.result_type(_floating(x1).dtype, _floating(x2).dtype)
    try:
        pair = np.broadcast_arrays(x1, x2)
    except ValueError:
        raise ValueError(f"x2: shape {x2.shape} does not broadcast with that of x1, {x1.shape}") from None
    return logsumexp(np.stack([x.astype(kind) for x in pair], -1), axis=-1, dtype=dtype)


def _generator(rng):
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise TypeError(f"rng: expected a numpy.random.Generator or a seed, got {rng!r}") from None


@in_its_kind
@names_axis
def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, axis: int = -1, *, rng: Any = None, noise: Any = None) -> Any:
    """softmax((logits + noise) / tau) along an axis, where the noise has Gumbel's distribution: a random choice that has a gradient.

    Parameters
    ----------
    logits : array
    tau : float, > 0
    hard : bool
        Whether to return 1 at the largest element (the first of several) and 0 elsewhere.
    rng : numpy.random.Generator, or what numpy.random.default_rng takes
    noise : array of the shape of logits, in place of rng's draws

    Examples
    --------
    >>> import napier
    >>> napier.gumbel_softmax([0.0, 1.0, 2.0], hard=True, rng=0).tolist()
    [0.0, 0.0, 1.0]
    """
    x = _floating(_array(logits, "logits"))
    if _is_tensor(x):
        raise TypeError("logits: a tensor (use napier.torch.gumbel_softmax)")
    if noise is None:
        noise = -_napier._log(_generator(rng).standard_exponential(x.shape))
    noise = _array(noise, "noise")
    if noise.shape != x.shape:
        raise ValueError(f"noise: shape {noise.shape} is not that of logits, {x.shape}")
    y = np.asarray(_napier.softmax((x + noise).astype(x.dtype), axis, temperature=positive(tau, "tau")))
    if not hard:
        return y[()]
    one = np.zeros_like(y)
    if not hasattr(axis, "__index__"):
        raise TypeError(f"axis: {axis!r} is not one axis, along which there is one choice")
    if y.size == 0:
        return one
    np.put_along_axis(one, np.expand_dims(y.argmax(axis), axis), 1.0, axis)
    return one


def class_axis(ndim: int) -> int:
    """The axis of the classes of torch.nn.functional.cross_entropy."""
    if ndim < 1:
        raise ValueError("input: expected at least 1 dimension, that of the classes")
    return 0 if ndim == 1 else 1


def check_reduction(reduction: str, label_smoothing: float) -> None:
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"reduction: {reduction!r} is not one of 'none', 'sum', 'mean'")
    if not 0 <= number(label_smoothing, "label_smoothing") <= 1:
        raise ValueError(f"label_smoothing: {label_smoothing} is not in [0, 1]")


def check_target(shape: Sequence[int], target_shape: Sequence[int], soft: bool, axis: int) -> None:
    want = tuple(shape) if soft else (*shape[:axis], *shape[axis + 1 :])
    if tuple(target_shape) != want:
        raise ValueError(
            f"target: shape {tuple(target_shape)} is not {want}, for an input of shape {tuple(shape)} and "
            f"{'probabilities' if soft else 'class indices'}"
        )


@in_its_kind
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: Literal["none", "sum", "mean"] = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """The cross-entropy of logits and targets, with the arguments and the meaning of torch.nn.functional.cross_entropy.

    Parameters
    ----------
    input : array [C], or [N, C, ...]
        Logits; axis 1 is that of the classes.
    target : int array without the axis of the classes, or probabilities of the shape of input
    weight : array [C], or None
        A factor for each class.
    ignore_index : int
        A target without loss; not with probabilities.
    reduction : 'mean', 'sum', 'none'
        The mean is over targets that are not ignored, and weighted if there are weights (not with probabilities), as in PyTorch.
    label_smoothing : float in [0, 1]

    Examples
    --------
    >>> import napier
    >>> round(float(napier.cross_entropy([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]], [2, 0])), 4)
    0.6342
    """
    if _tensors(input, target, weight):
        raise TypeError("input, target or weight is a tensor (use napier.torch.cross_entropy)")
    x, target = _floating(_array(input, "input")), _array(target, "target")
    check_reduction(reduction, label_smoothing)
    axis = class_axis(x.ndim)
    kind, soft, classes = x.dtype, target.dtype.kind == "f", x.shape[axis]
    check_target(x.shape, target.shape, soft, axis)
    wide = np.float64 if kind == np.float64 else np.float32
    logprobs = np.moveaxis(np.asarray(_napier.log_softmax(x, axis, dtype=np.dtype(wide).name)), axis, -1)
    weights = np.ones(classes, wide) if weight is None else _floating(_array(weight, "weight"))
    if weights.dtype.kind != "f":
        raise TypeError(f"weight: expected real numbers, got {weights.dtype}")
    weights = weights.astype(wide)
    if weights.shape != (classes,):
        raise ValueError(f"weight: shape {weights.shape} is not ({classes},), one factor a class")
    one, share = wide(1.0 - label_smoothing), wide(label_smoothing / max(classes, 1))
    if soft:
        q = np.moveaxis(target, axis, -1).astype(wide)
        q = q * one + share if label_smoothing > 0 else q
        losses, total = 0.0 - _napier._dot_rows(q * weights, logprobs)[..., 0], None
    else:
        if target.dtype.kind not in "iu":
            raise TypeError(f"target: expected class indices or probabilities, got {target.dtype}")
        counts = target != ignore_index
        wrong = target[counts & ((target < 0) | (target >= classes))]
        if wrong.size:
            raise IndexError(f"target: {wrong.flat[0]} is not in 0 .. {classes - 1}")
        ids = np.where(counts, target, 0)
        each = np.where(counts, weights[ids], wide(0.0))
        losses = -(each * np.take_along_axis(logprobs, ids[..., None], -1)[..., 0])
        if label_smoothing > 0:
            smooth = _napier._dot_rows(np.broadcast_to(weights, logprobs.shape), logprobs)[..., 0]
            losses = one * losses - share * smooth
        losses, total = np.where(counts, losses, wide(0.0)), each
    if reduction == "none":
        return losses.astype(kind)[()]
    whole = _sum_all(losses)
    if reduction == "mean":
        with np.errstate(invalid="ignore", divide="ignore"):
            whole = whole / (wide(losses.size) if total is None else _sum_all(total))
    return whole.astype(kind)[()]


def _sum_all(x):
    row = np.asarray(x).reshape(1, -1)
    return _napier._dot_rows(np.ones_like(row), row)[0, 0]
