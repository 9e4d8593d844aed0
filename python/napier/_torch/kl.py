"""KL per response and over the vocabulary, and rubric scores."""

from typing import Any, Optional

import torch

from .. import _napier
from .base import Tensor, _as_tensor, _check, _check_given, _last, _numbers, _once, _operator, _row_major_like, _single
from .batches import _in_line, _mask_of, _row_offsets, _table, _where_counted


@_operator("kl_per_response")
def _kl_per_response(
    policy: Tensor, ref: Tensor, offsets: Tensor, mask: Optional[Tensor], estimator: str, reduction: str, clamps: Tensor
) -> Tensor:
    clamp_ratio, clamp_kl = clamps.tolist()
    return _napier.kl_per_response(
        policy, ref, offsets, mask=mask, estimator=estimator, reduction=reduction, clamp_ratio=clamp_ratio, clamp_kl=clamp_kl
    )


@_operator("kl_per_response_backward")
def _kl_per_response_backward(
    policy: Tensor, ref: Tensor, offsets: Tensor, mask: Optional[Tensor], estimator: str, reduction: str, clamps: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    clamp_ratio, clamp_kl = clamps.tolist()
    return _napier.kl_per_response_backward(
        policy, ref, offsets, mask=mask, estimator=estimator, reduction=reduction, clamp_ratio=clamp_ratio, clamp_kl=clamp_kl, grad_kl=grad
    )


@_operator("kl_full")
def _kl_full(policy: Tensor, ref: Tensor, temperature: Tensor) -> Tensor:
    return _napier.kl_full(policy, ref, temperature=temperature.item())


@_operator("kl_full_backward")
def _kl_full_backward(policy: Tensor, ref: Tensor, temperature: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return _napier.kl_full_backward(policy, ref, grad, temperature=temperature.item())


@_kl_per_response.register_fake
def _(policy, ref, offsets, *_):
    return policy.new_empty(offsets.shape[0] - 1, dtype=torch.float32)


@_kl_full.register_fake
def _(policy, ref, temperature):
    return policy.new_empty(policy.shape[0], dtype=torch.float32)


def _register_pair(operator, backward, tensors):
    """Registers the gradients of a function of policy and ref (then more tensors, words, and finally numbers) with one
    result."""

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:tensors], inputs[-1])
        ctx.words = inputs[tensors:-1]

    def gradient(ctx, grad):
        *saved, numbers = ctx.saved_tensors
        to_policy, to_ref = backward(*saved, *ctx.words, numbers, grad)
        return (to_policy, to_ref) + (None,) * (tensors - 1 + len(ctx.words))

    backward.register_fake(lambda policy, ref, *_: (_row_major_like(policy), _row_major_like(ref)))
    _once(operator, gradient, setup, 2)
    _last(backward)


_register_pair(_kl_per_response, _kl_per_response_backward, 4)
_register_pair(_kl_full, _kl_full_backward, 2)


def kl_per_response(
    policy_logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor,
    offsets: Any = None,
    *,
    mask: Any = None,
    estimator: str = "k1",
    reduction: str = "sum",
    clamp_ratio: float | torch.Tensor = 0.0,
    clamp_kl: float | torch.Tensor = 0.0,
) -> Any:
    """napier.kl_per_response with gradients with respect to both log-probabilities. They may be padded: [B, L], with a mask
    [B, L] instead of offsets.

    Examples
    --------
    >>> import torch, napier.torch
    >>> policy, ref = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True), torch.tensor([-1.5, -2.0, -0.5])
    >>> kl = napier.torch.kl_per_response(policy, ref, [0, 2, 3])
    >>> kl.sum().backward()
    >>> kl.tolist(), policy.grad.tolist()
    ([0.5, 0.0], [1.0, 1.0, 1.0])
    """
    offsets, mask = _as_tensor(offsets, policy_logprobs), _mask_of(mask, policy_logprobs)
    _check(policy_logprobs=policy_logprobs, ref_logprobs=ref_logprobs)
    _check_given(offsets=offsets)
    table = _table("policy_logprobs", policy_logprobs, offsets)
    policy, ref, mask = _in_line(table, policy_logprobs=policy_logprobs, ref_logprobs=ref_logprobs, mask=mask)
    return _kl_per_response(
        _single(policy),
        _single(ref),
        _row_offsets(table, offsets, policy),
        mask,
        estimator,
        reduction,
        _numbers(clamp_ratio=clamp_ratio, clamp_kl=clamp_kl),
    )


def kl_full(policy_logits: torch.Tensor, ref_logits: torch.Tensor, *, temperature: float | torch.Tensor = 1.0) -> Any:
    """napier.kl_full with gradients with respect to both logits.

    Examples
    --------
    >>> import torch, napier.torch
    >>> policy, ref = torch.zeros(1, 2, requires_grad=True), torch.tensor([[1.0, 0.0]])
    >>> kl = napier.torch.kl_full(policy, ref)
    >>> kl.sum().backward()
    >>> round(kl.item(), 4), [round(g, 4) for g in policy.grad[0].tolist()]
    (0.1201, [-0.25, 0.25])
    """
    _check(policy_logits=policy_logits, ref_logits=ref_logits)
    return _kl_full(_single(policy_logits), _single(ref_logits), _numbers(temperature=temperature))


@_operator("rubric_score")
def _rubric_score(logprobs: Tensor, ids: Tensor, offsets: Tensor, rubric: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    return _napier.rubric_score(logprobs, ids, offsets, rubric, weights)


@_operator("rubric_score_backward")
def _rubric_score_backward(
    ids: Tensor, offsets: Tensor, rubric: Tensor, weights: Tensor, g_scores: Optional[Tensor], g_rewards: Optional[Tensor]
) -> Tensor:
    return _napier.rubric_score_backward(ids, offsets, rubric, weights, g_scores, g_rewards)


@_rubric_score.register_fake
def _(logprobs, ids, offsets, rubric, weights):
    n = offsets.shape[0] - 1
    return (logprobs.new_empty(n, rubric.shape[0], dtype=torch.float32), logprobs.new_empty(n, dtype=torch.float32))


@_rubric_score_backward.register_fake
def _(ids, offsets, rubric, weights, g_scores, g_rewards):
    return rubric.new_empty(ids.shape, dtype=torch.float32)


def _setup_rubric(ctx, inputs, output):
    ctx.dtype = inputs[0].dtype
    ctx.save_for_backward(*inputs[1:])
    ctx.set_materialize_grads(False)


def _gradient_rubric(ctx, g_scores, g_rewards):
    return _rubric_score_backward(*ctx.saved_tensors, g_scores, g_rewards).to(ctx.dtype), None, None, None, None


_once(_rubric_score, _gradient_rubric, _setup_rubric)
_last(_rubric_score_backward)


def rubric_score(
    logprobs: torch.Tensor, token_ids: torch.Tensor, offsets: Any, rubric: torch.Tensor, weights: torch.Tensor, *, mask: Any = None
) -> tuple[Any, Any]:
    """napier.rubric_score: (scores, rewards), with gradients with respect to logprobs. logprobs and token_ids may be padded:
    [B, L], with offsets None and a mask [B, L].

    Examples
    --------
    >>> import torch, napier.torch
    >>> logprobs = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    >>> rubric, weights = torch.tensor([[0, 0, 0, 1.0]]), torch.tensor([2.0])
    >>> scores, rewards = napier.torch.rubric_score(logprobs, [3, 1, 3], [0, 2, 3], rubric, weights)
    >>> rewards.sum().backward()
    >>> rewards.tolist(), logprobs.grad.tolist()
    ([-2.0, -1.0], [2.0, 0.0, 2.0])
    """
    token_ids, offsets, mask = _as_tensor(token_ids, logprobs), _as_tensor(offsets, logprobs), _mask_of(mask, logprobs)
    _check(logprobs=logprobs, token_ids=token_ids, rubric=rubric, weights=weights)
    _check_given(offsets=offsets)
    for name, x in (("rubric", rubric), ("weights", weights)):
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(f"{name}: has no gradient here; use {name}.detach()")
    table = _table("logprobs", logprobs, offsets)
    logprobs, token_ids, mask = _in_line(table, logprobs=logprobs, token_ids=token_ids, mask=mask)
    logprobs, token_ids = _where_counted(mask, logprobs, 0.0), _where_counted(mask, token_ids, 0)
    return _rubric_score(_single(logprobs), token_ids, _row_offsets(table, offsets, logprobs), _single(rubric), _single(weights))
