"""The losses of GRPO and its kin, and advantages."""

from typing import Any, Optional

import torch

from .. import _napier
from ..rl import _groups
from .base import Tensor, _as_tensor, _check, _check_given, _last, _none, _numbers, _once, _operator, _row_major_like, _single
from .batches import _in_line, _mask_of, _row_offsets, _table, _where_counted
from .tokens import linear_token_logprobs

# The C functions compute loss and gradients at once. The operators return both, and their own gradient is a product. Options
# are passed as one string, such as "loss_type=dapo;num_items": words, switches, and the names of the numbers.

_METRICS = (
    "loss",
    "tokens",
    "clip_low",
    "clip_high",
    "mean_ratio",
    "min_ratio",
    "max_ratio",
    "kl",
    "approx_kl",
    "entropy",
    "correction",
    "kept_responses",
)


def _written_options(options, **numbers):
    """Returns the string, and a tensor of the given numbers and those of the options."""
    words = []
    for name, value in options.items():
        if isinstance(value, (str, bool)):
            words.append(f"{name}={value}")
        elif value is not None:
            words.append(name)
            numbers[name] = value
    return ";".join(words), _numbers(**numbers)


def _read_options(words, numbers):
    """Returns the options as a dict, from the string and the numbers in its order."""
    options, numbers = {}, iter(numbers)
    for part in words.split(";") if words else ():
        name, is_word, word = part.partition("=")
        options[name] = {"True": True, "False": False}.get(word, word) if is_word else next(numbers)
    length = options.get("max_completion_length")
    if isinstance(length, float) and length.is_integer():
        options["max_completion_length"] = int(length)
    return options


def _loss_and_metrics(metrics):
    """The loss and the metrics, from C's dict or, on a GPU, from its struct as float64, whose first element is not a metric."""
    if isinstance(metrics, Tensor):
        return metrics[1].float(), metrics[1:].clone()
    return (torch.tensor(metrics["loss"], dtype=torch.float32), torch.tensor([metrics[name] for name in _METRICS], dtype=torch.float64))


@_operator("grpo_loss")
def _grpo_loss(
    logprobs: Tensor,
    entropies: Optional[Tensor],
    advantages: Tensor,
    offsets: Tensor,
    old: Optional[Tensor],
    ref: Optional[Tensor],
    sampler: Optional[Tensor],
    mask: Optional[Tensor],
    words: str,
    numbers: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    metrics, grad, grad_entropies = _napier.grpo_loss(
        logprobs, advantages, offsets, old, ref, sampler, entropies, mask, _read_options(words, numbers.tolist())
    )
    return (*_loss_and_metrics(metrics), grad, _none(logprobs) if grad_entropies is None else grad_entropies)


@_grpo_loss.register_fake
def _(logprobs, entropies, *_):
    grad = logprobs.new_empty(logprobs.shape, dtype=torch.float32)
    return (
        logprobs.new_empty((), dtype=torch.float32),
        logprobs.new_empty(len(_METRICS), dtype=torch.float64),
        grad,
        _none(logprobs) if entropies is None else torch.empty_like(grad),
    )


def _grpo_backward(name):
    """The product as an operator. Its argument loss only makes the result depend on the graph, so that a second derivative
    raises an error instead of being zero."""

    @_operator(f"{name}_backward")
    def product(derivative: torch.Tensor, loss: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        return derivative * grad

    product.register_fake(_row_major_like)
    _last(product)
    return product


_grpo_loss_backward, _grpo_from_logits_backward = map(_grpo_backward, ("grpo_loss", "grpo_from_logits"))


def _setup_grpo(ctx, inputs, output):
    ctx.dtypes = inputs[0].dtype, None if inputs[1] is None else inputs[1].dtype
    ctx.save_for_backward(output[0], *output[2:])
    ctx.mark_non_differentiable(*output[1:])


def _gradient_grpo(ctx, grad, *_):
    loss, to_logprobs, to_entropies = ctx.saved_tensors
    entropies = None if ctx.dtypes[1] is None else _grpo_loss_backward(to_entropies, loss, grad).to(ctx.dtypes[1])
    return (_grpo_loss_backward(to_logprobs, loss, grad).to(ctx.dtypes[0]), entropies) + (None,) * 8


_once(_grpo_loss, _gradient_grpo, _setup_grpo, 2)


@_operator("grpo_token_loss")
def _grpo_token_loss(
    logprobs: Tensor,
    entropies: Optional[Tensor],
    advantages: Tensor,
    offsets: Tensor,
    old: Optional[Tensor],
    ref: Optional[Tensor],
    sampler: Optional[Tensor],
    mask: Optional[Tensor],
    words: str,
    numbers: Tensor,
) -> Tensor:
    return _napier.grpo_token_loss(
        logprobs, advantages, offsets, old, ref, sampler, entropies, mask, _read_options(words, numbers.tolist())
    )[0]


@_operator("grpo_token_loss_backward")
def _grpo_token_loss_backward(
    logprobs: Tensor,
    entropies: Optional[Tensor],
    advantages: Tensor,
    offsets: Tensor,
    old: Optional[Tensor],
    ref: Optional[Tensor],
    sampler: Optional[Tensor],
    mask: Optional[Tensor],
    words: str,
    numbers: Tensor,
    grad: Tensor,
) -> Tensor:
    return _napier.grpo_token_loss_backward(
        logprobs, advantages, offsets, old, ref, sampler, entropies, mask, _read_options(words, numbers.tolist()), grad
    )


@_grpo_token_loss.register_fake
@_grpo_token_loss_backward.register_fake
def _(logprobs, *_):
    return logprobs.new_empty(logprobs.shape, dtype=torch.float32)


def _setup_grpo_tokens(ctx, inputs, output):
    *tensors, ctx.words, numbers = inputs
    ctx.save_for_backward(*tensors, numbers)


def _gradient_grpo_tokens(ctx, grad):
    *tensors, numbers = ctx.saved_tensors
    return (_grpo_token_loss_backward(*tensors, ctx.words, numbers, grad).to(tensors[0].dtype),) + (None,) * 9


_once(_grpo_token_loss, _gradient_grpo_tokens, _setup_grpo_tokens)
_last(_grpo_token_loss_backward)


@_operator("grpo_from_logits")
def _grpo_from_logits(
    logits: Tensor,
    ids: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    old: Optional[Tensor],
    ref: Optional[Tensor],
    sampler: Optional[Tensor],
    mask: Optional[Tensor],
    words: str,
    numbers: Tensor,
    gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    temperature, softcap, *options = numbers.tolist()
    metrics, grad, logprobs, entropies = _napier.grpo_from_logits(
        logits,
        ids,
        None,
        advantages,
        offsets,
        old,
        ref,
        sampler,
        None,
        mask,
        _read_options(words, options),
        temperature,
        softcap,
        gradient,
        None,
    )
    return (*_loss_and_metrics(metrics), logprobs, entropies, _none(logits) if grad is None else grad)


@_grpo_from_logits.register_fake
def _(logits, ids, advantages, offsets, old, ref, sampler, mask, words, numbers, gradient):
    tokens = logits.new_empty(logits.shape[0], dtype=torch.float32)
    return (
        logits.new_empty((), dtype=torch.float32),
        logits.new_empty(len(_METRICS), dtype=torch.float64),
        tokens,
        torch.empty_like(tokens),
        _row_major_like(logits) if gradient else _none(logits),
    )


def _setup_grpo_from_logits(ctx, inputs, output):
    ctx.save_for_backward(output[0], output[4])
    ctx.mark_non_differentiable(*output[1:])


def _gradient_grpo_from_logits(ctx, grad, *_):
    loss, to_logits = ctx.saved_tensors
    return (_grpo_from_logits_backward(to_logits, loss, grad),) + (None,) * 10


_once(_grpo_from_logits, _gradient_grpo_from_logits, _setup_grpo_from_logits)


def _batch(table, beside, advantages, offsets, old_logprobs, ref_logprobs, sampler_logprobs, mask):
    """The constants of a batch. They have no gradient, by the definition of the losses."""
    given = {"old_logprobs": old_logprobs, "ref_logprobs": ref_logprobs, "sampler_logprobs": sampler_logprobs}
    tensors = {name: _as_tensor(x, beside) for name, x in given.items()}
    advantages, offsets = _as_tensor(advantages, beside), _as_tensor(offsets, beside)
    _check(advantages=advantages)
    _check_given(offsets=offsets, **tensors)
    advantages = advantages.reshape(-1) if table else advantages  # [B], [B, 1] or [B, L]
    each = [advantages, _row_offsets(table, offsets, beside), *_in_line(table, **tensors), *_in_line(table, mask=mask)]
    return [None if x is None else x.detach() for x in each]


def _length_of(table, mask, options):
    """Options in which dr_grpo has the longest response of a padded batch, without the padding at its end."""
    if not table or 0 in table or mask is None or options.get("loss_type") != "dr_grpo" or options.get("max_completion_length"):
        return options
    ends = torch.arange(1, table[1] + 1, device=mask.device)
    return {**options, "max_completion_length": (ends * mask.bool()).max()}


def _named(metrics):
    return {name: metrics[i] for i, name in enumerate(_METRICS)}


def _losses_of(operator, logprobs, advantages, offsets, old_logprobs, ref_logprobs, sampler_logprobs, entropies, mask, options):
    """The operator's results, and [B, L] of a padded batch."""
    mask = _mask_of(mask, logprobs)
    _check(logprobs=logprobs)
    _check_given(entropies=entropies)
    table = _table("logprobs", logprobs, offsets)
    options = _length_of(table, mask, options)
    batch = _batch(table, logprobs, advantages, offsets, old_logprobs, ref_logprobs, sampler_logprobs, mask)
    logprobs, entropies = _in_line(table, logprobs=logprobs, entropies=entropies)
    entropies = None if entropies is None else _single(entropies)
    return operator(_single(logprobs), entropies, *batch, *_written_options(options)), table


def grpo_loss(
    logprobs: torch.Tensor,
    advantages: torch.Tensor,
    offsets: Any = None,
    *,
    old_logprobs: Any = None,
    ref_logprobs: Any = None,
    sampler_logprobs: Any = None,
    entropies: Any = None,
    mask: Any = None,
    **options: Any,
) -> Any:
    """(loss, metrics) of napier.grpo_loss, with gradients with respect to logprobs and entropies. metrics is a dict of tensors
    without gradients. Advantages and the other log-probabilities are constants.

    A batch may be padded, as in TRL: logprobs, the other log-probabilities, entropies and mask are [B, L], advantages are [B],
    [B, 1] or [B, L], and there are no offsets. Loss and gradients have the bits of the ragged batch with the same mask and
    count_empty_responses=True. Tokens with mask 0 get a gradient of 0.

    Examples
    --------
    >>> import torch, napier.torch
    >>> logprobs = torch.tensor([[-1.0, -2.0], [-0.5, 0.0]], requires_grad=True)  # two responses, padded
    >>> mask, old = torch.tensor([[1, 1], [1, 0]]), torch.tensor([[-1.0, -2.5], [-0.5, 0.0]])
    >>> loss, metrics = napier.torch.grpo_loss(logprobs, torch.tensor([1.0, -1.0]), mask=mask, old_logprobs=old)
    >>> loss.backward()
    >>> round(loss.item(), 4), logprobs.grad.tolist()
    (-0.05, [[-0.25, 0.0], [0.5, 0.0]])
    """
    (loss, metrics, _, _), _ = _losses_of(
        _grpo_loss, logprobs, advantages, offsets, old_logprobs, ref_logprobs, sampler_logprobs, entropies, mask, options
    )
    return loss, _named(metrics)


def grpo_token_loss(
    logprobs: torch.Tensor,
    advantages: torch.Tensor,
    offsets: Any = None,
    *,
    old_logprobs: Any = None,
    ref_logprobs: Any = None,
    sampler_logprobs: Any = None,
    entropies: Any = None,
    mask: Any = None,
    **options: Any,
) -> Any:
    """The losses [T] of napier.grpo_token_loss, before reduction, with gradients with respect to logprobs. Of a padded batch,
    as in grpo_loss, they are [B, L].

    Examples
    --------
    >>> import torch, napier.torch
    >>> logprobs = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    >>> losses = napier.torch.grpo_token_loss(logprobs, torch.tensor([1.0, -1.0]), [0, 2, 3])
    >>> losses.mean().backward()  # reduced in a way of your own
    >>> losses.tolist(), [round(g, 4) for g in logprobs.grad.tolist()]
    ([-1.0, -1.0, 1.0], [-0.3333, -0.3333, 0.3333])
    """
    _check_given(entropies=entropies)
    entropies = None if entropies is None else entropies.detach()
    losses, table = _losses_of(
        _grpo_token_loss, logprobs, advantages, offsets, old_logprobs, ref_logprobs, sampler_logprobs, entropies, mask, options
    )
    return losses.reshape(table) if table else losses


def compute_grpo_loss(
    policy_lps: torch.Tensor,
    old_lps: torch.Tensor,
    advantages: torch.Tensor,
    offsets: Any = None,
    beta: float | torch.Tensor = 0.0,
    ref_lps: Any = None,
    eps: float | torch.Tensor = 0.2,
    *,
    mask: Any = None,
) -> Any:
    """napier.compute_grpo_loss with gradients with respect to policy_lps: the mean over tokens of the clipped loss, plus beta
    times the mean over responses of their summed KL. A batch may be padded, as in grpo_loss.

    Examples
    --------
    >>> import torch, napier.torch
    >>> policy, old = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True), torch.tensor([-1.0, -2.5, -0.5])
    >>> loss = napier.torch.compute_grpo_loss(policy, old, torch.tensor([1.0, -1.0]), [0, 2, 3])
    >>> loss.backward()
    >>> round(loss.item(), 4), [round(g, 4) for g in policy.grad.tolist()]
    (-0.4, [-0.3333, 0.0, 0.3333])
    """
    return grpo_loss(
        policy_lps,
        advantages,
        offsets,
        old_logprobs=old_lps,
        ref_logprobs=ref_lps,
        mask=mask,
        beta=beta,
        epsilon=eps,
        loss_type="token_mean",
    )[0]


def _counted_ids(table, ids, mask):
    """ids with the one that is ignored in the place of padding, whatever stands there. It is C's default."""
    return _where_counted(mask, ids, -100) if table else ids


def grpo_from_logits(
    logits: torch.Tensor,
    ids: torch.Tensor,
    advantages: torch.Tensor,
    offsets: Any = None,
    *,
    old_logprobs: Any = None,
    ref_logprobs: Any = None,
    sampler_logprobs: Any = None,
    mask: Any = None,
    temperature: float | torch.Tensor = 1.0,
    softcap: float | torch.Tensor = 0.0,
    **options: Any,
) -> Any:
    """(loss, metrics, logprobs, entropies) of napier.grpo_from_logits. The loss has a gradient with respect to logits [T, V]; the
    other results have none. A batch may be padded, as in grpo_loss: logits [B, L, V], ids [B, L]. Padding has log-probability
    and entropy 0.

    Examples
    --------
    >>> import torch, napier.torch
    >>> logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]], requires_grad=True)
    >>> ids, advantages = torch.tensor([0, 1, 1]), torch.tensor([1.0, -1.0])
    >>> loss, *others = napier.torch.grpo_from_logits(logits, ids, advantages, [0, 2, 3])
    >>> loss.backward()
    >>> [round(g, 4) for g in logits.grad[2].tolist()]
    [-0.4404, 0.4404]
    """
    ids, mask = _as_tensor(ids, logits), _mask_of(mask, logits)
    _check(logits=logits, ids=ids)
    table = _table("logits", logits, offsets, 1)
    options = _length_of(table, mask, options)
    batch = _batch(table, logits, advantages, offsets, old_logprobs, ref_logprobs, sampler_logprobs, mask)
    gradient = logits.requires_grad and torch.is_grad_enabled()
    written = _written_options(options, temperature=temperature, softcap=softcap)
    rows, ids = _in_line(table, logits=logits, ids=ids)
    ids = _counted_ids(table, ids, batch[-1])
    loss, metrics, logprobs, entropies, _ = _grpo_from_logits(_single(rows), ids, *batch, *written, gradient)
    if table:
        logprobs, entropies = logprobs.reshape(table), _where_counted(mask, entropies.reshape(table), 0.0)
    return loss, _named(metrics), logprobs, entropies


def grpo_from_hidden(
    hidden: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    advantages: torch.Tensor,
    offsets: Any = None,
    *,
    old_logprobs: Any = None,
    ref_logprobs: Any = None,
    sampler_logprobs: Any = None,
    mask: Any = None,
    temperature: float | torch.Tensor = 1.0,
    softcap: float | torch.Tensor = 0.0,
    bf16_gradient: bool = False,
    **options: Any,
) -> Any:
    """(loss, metrics, logprobs, entropies) of napier.grpo_from_hidden. The loss has gradients with respect to hidden [T, H] and
    weights [V, H]; the other results have none. A batch may be padded, as in grpo_loss: hidden [B, L, H], ids [B, L].
    bf16_gradient: as in linear_token_logprobs.

    It computes linear_token_logprobs and grpo_loss, so it runs on a GPU too.

    Examples
    --------
    >>> import torch, napier.torch
    >>> hidden, weights = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]), torch.eye(2, requires_grad=True)
    >>> ids, advantages = torch.tensor([0, 1, 1]), torch.tensor([1.0, -1.0])
    >>> loss, *others = napier.torch.grpo_from_hidden(hidden, weights, ids, advantages, [0, 2, 3])
    >>> loss.backward()
    >>> [round(g, 4) for g in weights.grad[0].tolist()]
    [-0.948, 0.0672]
    """
    ids, mask = _as_tensor(ids, hidden), _mask_of(mask, hidden)
    _check(hidden=hidden, weights=weights, ids=ids)
    table = _table("hidden", hidden, offsets, 1)
    if table:
        _in_line(table, ids=ids, mask=mask)
    tokens = linear_token_logprobs(
        hidden, weights, _counted_ids(table, ids, mask), temperature=temperature, softcap=softcap, entropy=True, bf16_gradient=bf16_gradient
    )
    entropies = _where_counted(mask, tokens.entropy, 0.0) if table else tokens.entropy
    bonus = options.get("entropy_coefficient")
    loss, metrics = grpo_loss(
        tokens.logprobs,
        advantages,
        offsets,
        old_logprobs=old_logprobs,
        ref_logprobs=ref_logprobs,
        sampler_logprobs=sampler_logprobs,
        mask=mask,
        entropies=entropies if bonus is not None and bonus != 0 else entropies.detach(),
        **options,
    )
    return loss, metrics, tokens.logprobs.detach(), entropies.detach()


@_operator("group_advantages")
def _group_advantages(rewards: Tensor, size: int, offsets: Optional[Tensor], scale: str, epsilon: Tensor) -> Tensor:
    offsets = None if offsets is None else offsets.cpu()
    return _napier.group_advantages(rewards.cpu(), size, offsets, scale, epsilon.item()).to(rewards.device)


@_group_advantages.register_fake
def _(rewards, *_):
    return rewards.new_empty(rewards.shape, dtype=torch.float32)


_last(_group_advantages)


def group_advantages(rewards: torch.Tensor, groups: Any, *, scale: str = "group", epsilon: float | torch.Tensor = 1e-4) -> Any:
    """napier.group_advantages. Advantages are constants: they have no gradient. They are computed on the CPU; rewards on a GPU
    are copied, which waits for the GPU.

    Examples
    --------
    >>> import torch, napier.torch
    >>> rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    >>> [round(x, 3) for x in napier.torch.group_advantages(rewards, 3).tolist()]
    [1.155, -0.577, -0.577, 0.0, 0.0, 0.0]
    """
    size, offsets = _groups(groups)
    rewards = _as_tensor(rewards)
    offsets = _as_tensor(offsets, rewards)
    _check(rewards=rewards)
    _check_given(groups=offsets)
    return _group_advantages(_single(rewards.detach()), size, offsets, scale, _numbers(epsilon=epsilon))
