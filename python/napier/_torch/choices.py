"""entmax, gumbel_softmax, logaddexp and cross_entropy with derivatives of every order: what is made of softmax, logsumexp and sums."""

from typing import Any, Optional

import torch

from .._ops.entmax import check_alpha, entmax_rows
from .._ops.losses import check_reduction, check_target, class_axis
from .base import (
    PLAIN,
    Tensor,
    _as_tensor,
    _check,
    _check_given,
    _differentiable,
    _number,
    _numbers,
    _operator,
    _is_traced,
    _row_major_like,
    _use_of,
)
from .logsumexp import logsumexp
from .softmax import _at_least_single, _dimension, _dot, _exp, _floats, _kept, _log, _logits, _over, log_softmax, softmax, sparsemax

# ---- entmax ------------------------------------------------------------------------------------------------------------------


@_operator("entmax")
def _entmax(x: Tensor, axis: int, alpha: float, temperature: Tensor, masked_rows: str) -> Tensor:
    if x.device.type != "cpu":
        raise NotImplementedError(f"input: the tensor is on {x.device}; entmax is computed on the CPU (use .cpu())")
    if x.ndim == 0:
        return _entmax_of(x.reshape(1), 0, alpha, temperature, masked_rows).reshape(())
    return _entmax_of(x, axis, alpha, temperature, masked_rows)


def _entmax_of(x, axis, alpha, temperature, masked_rows):
    rows = x.movedim(axis, -1).double() / _positive("temperature", temperature.item())
    made = entmax_rows(rows.contiguous().numpy(), alpha, 0.0 if masked_rows == "zero" else float("nan"))
    return torch.from_numpy(made).movedim(-1, axis).to(x.dtype).contiguous()


_entmax.register_fake(_row_major_like)

# With s = p^(2 - alpha) in the support and 0 elsewhere, the gradient is s (g - <s, g> / sum s) / T, a symmetric Jacobian.


def _through_entmax(s, g):
    p, wide = _at_least_single(s.result), _at_least_single(g)
    inside = p > 0
    safe = torch.where(inside, p, 1.0)
    power = safe.sqrt() if s.alpha == 1.5 else _exp(_log(safe.double()) * (2.0 - s.alpha)).to(p.dtype)
    share = torch.where(inside | p.isnan(), power + 0.0 * p, 0.0)
    total = _dot(torch.ones_like(share), share, s.axis)
    mean = _dot(share, wide, s.axis) / torch.where(total == 0, 1.0, total)
    return _over(share * (wide - mean), s).to(s.result.dtype)


_entmax = _differentiable(_entmax, 1, ("result", "temperature"), _through_entmax, lambda s, t: _through_entmax(s, t[0]), is_wide=True)


def entmax(
    input: torch.Tensor,
    dim: int = -1,
    dtype: Optional[torch.dtype] = None,
    *,
    alpha: float = 1.5,
    mask: Any = None,
    causal: bool = False,
    temperature: float | torch.Tensor = 1.0,
    masked_rows: str = "nan",
) -> Any:
    """napier.entmax with gradients: probabilities between softmax (alpha = 1) and sparsemax (alpha = 2), many of them exactly 0.
    Other arguments as in softmax. On the CPU.

    Examples
    --------
    >>> import torch, napier.torch
    >>> probs = napier.torch.entmax(torch.tensor([1.0, 1.5, 0.25, -3.0]), alpha=1.5)
    >>> [round(p, 4) for p in probs.tolist()]
    [0.3122, 0.6541, 0.0338, 0.0]
    """
    alpha = check_alpha(alpha)
    if alpha in (1.0, 2.0):
        function = softmax if alpha == 1.0 else sparsemax
        return function(input, dim, dtype, mask=mask, causal=causal, temperature=temperature, masked_rows=masked_rows)
    if masked_rows not in ("nan", "zero"):
        raise ValueError(f"masked_rows: {masked_rows!r} is not one of 'nan', 'zero'")
    x, kind = _logits(input, dtype)
    keep = _kept(x, mask, causal)
    x = x if keep is None else x.masked_fill(~keep, -torch.inf)
    return _entmax(x, _dimension(dim, x.ndim), alpha, _numbers(temperature=_positive("temperature", temperature)), masked_rows).to(kind)


def _positive(name, x):
    if not isinstance(x, Tensor) and not 0 < _number(name, x) < float("inf"):
        raise ValueError(f"{name}: {x} is not a finite number > 0")
    return x


# ---- gumbel_softmax ----------------------------------------------------------------------------------------------------------


def gumbel_softmax(logits: torch.Tensor, tau: float | torch.Tensor = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """torch.nn.functional.gumbel_softmax by Napier's softmax: a random choice that has a gradient. The noise is what PyTorch's function
    draws from its generator. hard: 1 at the largest element and 0 elsewhere, with the gradient of the soft choice. eps: unused.

    Examples
    --------
    >>> import torch, napier.torch
    >>> drawn = napier.torch.gumbel_softmax(torch.zeros(5, 3), tau=0.5, hard=True)
    >>> drawn.sum(-1).tolist()  # one 1 in each row
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    del eps
    logits = _floats(logits)
    _check(logits=logits)
    if not logits.dtype.is_floating_point:
        raise TypeError(f"logits: expected floating-point numbers, got {logits.dtype}")
    noise = -torch.empty_like(logits, memory_format=torch.legacy_contiguous_format).exponential_().log()
    soft = softmax(logits + noise, dim, temperature=_positive("tau", tau))
    if not hard:
        return soft
    one = torch.zeros_like(soft).scatter(dim, soft.argmax(dim, keepdim=True), 1.0) if soft.numel() else torch.zeros_like(soft)
    return one + (soft - soft.detach())


# ---- logaddexp ---------------------------------------------------------------------------------------------------------------


def logaddexp(input: Any, other: Any) -> Any:
    """log(exp(input) + exp(other)), element by element, with gradients: logsumexp of each pair, with its bits. Complex numbers too.

    Examples
    --------
    >>> import torch, napier.torch
    >>> x = torch.tensor([1000.0], requires_grad=True)
    >>> napier.torch.logaddexp(x, torch.tensor([1000.0])).backward()
    >>> x.grad.tolist()
    [0.5]
    """
    beside = input if isinstance(input, Tensor) else other
    pair = [_floats(_as_tensor(x, beside, name)) for name, x in (("input", input), ("other", other))]
    for name, x in zip(("input", "other"), pair):
        _check(**{name: x.real if isinstance(x, Tensor) and x.is_complex() else x})
    kind = torch.result_type(*pair)
    kind = kind if kind.is_floating_point or kind.is_complex else torch.get_default_dtype()
    try:
        pair = torch.broadcast_tensors(*pair)
    except RuntimeError:
        raise ValueError(f"other: shape {tuple(pair[1].shape)} does not broadcast with the input's, {tuple(pair[0].shape)}") from None
    return logsumexp(torch.stack([x.to(kind) for x in pair], -1), -1)


# ---- cross_entropy -----------------------------------------------------------------------------------------------------------


def _sum_all(x):
    return _dot(torch.ones_like(x), x, 0)[0]


def _target_ids(target, ignore_index, classes):
    """(ids, those that count), with 0 in place of the ids that do not."""
    target = target.long()  # which holds every number that it is compared with
    counts = target != ignore_index
    if target.device.type == "cpu" and not _is_traced() and _use_of((target,)) == PLAIN:
        wrong = counts & ((target < 0) | (target >= classes))
        if wrong.any():
            raise IndexError(f"target: {target[wrong][0].item()} is not in 0 .. {classes - 1}")
    return torch.where(counts, target, 0), counts


def cross_entropy(
    input: torch.Tensor,
    target: Any,
    weight: Any = None,
    size_average: Optional[bool] = None,
    ignore_index: int = -100,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """torch.nn.functional.cross_entropy by Napier's log_softmax, with its arguments: class indices or probabilities, weights of classes,
    label smoothing. Sums have a fixed order. 16-bit logits are computed in float32, and the loss is rounded once.

    Where targets are probabilities, a class of probability 0 or weight 0 adds nothing, even if its logit is -inf.

    Examples
    --------
    >>> import torch, napier.torch
    >>> logits = torch.tensor([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]], requires_grad=True)
    >>> loss = napier.torch.cross_entropy(logits, torch.tensor([2, 0]))
    >>> loss.backward()
    >>> round(loss.item(), 4), [round(g, 4) for g in logits.grad[1].tolist()]
    (0.6342, [-0.3333, 0.1667, 0.1667])
    """
    if size_average is not None or reduce is not None:
        raise ValueError("size_average: and reduce are replaced by reduction= ('mean', 'sum' or 'none')")
    input = _floats(input)
    target, weight = _as_tensor(target, input, "target"), _as_tensor(weight, input, "weight")
    _check(input=input, target=target)
    _check_given(weight=weight)
    check_reduction(reduction, label_smoothing)
    if not input.dtype.is_floating_point:
        raise TypeError(f"input: expected floating-point numbers, got {input.dtype}")
    axis = class_axis(input.ndim)
    kind, soft, classes = input.dtype, target.dtype.is_floating_point, input.shape[axis]
    check_target(tuple(input.shape), tuple(target.shape), soft, axis)
    if not soft and target.dtype == torch.bool:
        raise TypeError("target: expected class indices or probabilities, got torch.bool")
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ValueError(f"weight: shape {tuple(weight.shape)} is not ({classes},), one factor a class")
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("weight: has no gradient here; use weight.detach()")
    logprobs = log_softmax(_at_least_single(input), axis).movedim(axis, -1)
    weights = torch.ones(classes, dtype=logprobs.dtype, device=input.device) if weight is None else weight.to(logprobs.dtype)
    if soft:
        q = target.movedim(axis, -1).to(logprobs.dtype)
        q = q * (1.0 - label_smoothing) + label_smoothing / max(classes, 1) if label_smoothing > 0 else q
        losses, each = 0.0 - _dot(q * weights, logprobs, logprobs.ndim - 1).squeeze(-1), None
    else:
        ids, counts = _target_ids(target, ignore_index, classes)
        each = torch.where(counts, weights[ids], 0.0)
        losses = -(each * logprobs.gather(-1, ids.unsqueeze(-1)).squeeze(-1))
        if label_smoothing > 0:
            smooth = _dot(weights.expand(logprobs.shape), logprobs, logprobs.ndim - 1).squeeze(-1)
            losses = losses * (1.0 - label_smoothing) - smooth * (label_smoothing / max(classes, 1))
        losses = torch.where(counts, losses, 0.0)
    if reduction == "none":
        return losses.to(kind)
    whole = _sum_all(losses.reshape(-1))
    if reduction == "mean":
        whole = whole / (losses.numel() if each is None else _sum_all(each.reshape(-1)))
    return whole.to(kind)
