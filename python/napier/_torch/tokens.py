"""Log-probabilities of tokens, from logits and from hidden states; sampling."""

from typing import Any, Optional

import torch

from .. import _napier
from ..rl import Sampled, TokenLogprobs, _flat, _ragged, _seeds, _shaped, _token_arguments, _want
from .base import Tensor, _as_tensor, _check, _check_given, _last, _none, _numbers, _once, _operator, _row_major_like, _single

# An operator has a fixed number of results, so those that were not requested are empty tensors.

_Eight = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
_Ten = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]  # and finals, chosen
_FINALS = 32  # the bit of `want` for what the forward pass knows of each row, so that the backward pass need not compute it again


def _whole(results, x):
    return tuple(_none(x) if r is None else r for r in results)


@_operator("token_logprobs")
def _token_logprobs(
    x: Tensor, ids: Optional[Tensor], keep: Optional[Tensor], numbers: Tensor, ignore_index: int, want: int, top_k: int
) -> _Eight:
    temperature, softcap, label_smoothing, z_loss = numbers.tolist()
    return _whole(_napier.token_logprobs(x, ids, temperature, softcap, ignore_index, label_smoothing, z_loss, keep, want, top_k)[:8], x)


@_operator("token_logprobs_backward")
def _token_logprobs_backward(
    x: Tensor,
    ids: Optional[Tensor],
    keep: Optional[Tensor],
    numbers: Tensor,
    ignore_index: int,
    g_logprobs: Optional[Tensor],
    g_lse: Optional[Tensor],
    g_entropy: Optional[Tensor],
    g_loss: Optional[Tensor],
) -> Tensor:
    temperature, softcap, label_smoothing, z_loss = numbers.tolist()
    return _napier.token_logprobs_backward(
        x, ids, temperature, softcap, ignore_index, label_smoothing, z_loss, keep, g_logprobs, g_lse, g_entropy, g_loss
    )


@_operator("linear_token_logprobs")
def _linear_token_logprobs(
    x: Tensor, weights: Tensor, ids: Optional[Tensor], keep: Optional[Tensor], numbers: Tensor, ignore_index: int, want: int, top_k: int
) -> _Ten:
    temperature, softcap, label_smoothing, z_loss, _ = numbers.tolist()
    return _whole(
        _napier.linear_token_logprobs(x, weights, ids, temperature, softcap, ignore_index, label_smoothing, z_loss, keep, want, top_k), x
    )


@_operator("linear_token_logprobs_backward")
def _linear_token_logprobs_backward(
    x: Tensor,
    weights: Tensor,
    ids: Optional[Tensor],
    keep: Optional[Tensor],
    numbers: Tensor,
    ignore_index: int,
    g_logprobs: Optional[Tensor],
    g_lse: Optional[Tensor],
    g_entropy: Optional[Tensor],
    g_loss: Optional[Tensor],
    finals: Optional[Tensor],
    chosen: Optional[Tensor],
) -> tuple[Tensor, Tensor]:
    temperature, softcap, label_smoothing, z_loss, bf16_gradient = numbers.tolist()
    return _napier.linear_token_logprobs_backward(
        x,
        weights,
        ids,
        temperature,
        softcap,
        ignore_index,
        label_smoothing,
        z_loss,
        keep,
        g_logprobs,
        g_lse,
        g_entropy,
        g_loss,
        bf16_gradient=bool(bf16_gradient),
        finals=finals,
        chosen=chosen,
    )


def _fake_results(x, ids, want, top_k):
    n = x.shape[0]
    each = 0 if ids is None or ids.numel() == 0 else ids.numel() // n

    def f32(wanted, *shape):
        return x.new_empty(shape if wanted else (0,), dtype=torch.float32)

    def i64(wanted, *shape):
        return x.new_empty(shape, dtype=torch.int64) if wanted else _none(x)

    return (
        f32(each, n, each),
        f32(want & 1, n),
        f32(want & 2, n),
        f32(want & 4, n),
        i64(want & 8, n),
        i64(each and want & 16, n, each),
        i64(top_k, n, top_k),
        f32(top_k, n, top_k),
        i64(want & _FINALS, n, 4),
        f32(each and want & _FINALS, n, each),
    )


@_token_logprobs.register_fake
def _(x, ids, keep, numbers, ignore_index, want, top_k):
    return _fake_results(x, ids, want, top_k)[:8]


@_linear_token_logprobs.register_fake
def _(x, weights, ids, keep, numbers, ignore_index, want, top_k):
    return _fake_results(x, ids, want, top_k)


@_linear_token_logprobs_backward.register_fake
def _(x, weights, *_):
    return _row_major_like(x), _row_major_like(weights)


_token_logprobs_backward.register_fake(_row_major_like)


def _register_tokens(operator, backward, inputs_with_gradient):
    count = inputs_with_gradient + 3  # and ids, keep, numbers

    def setup(ctx, inputs, output):
        *tensors, ctx.ignore_index, want, _ = inputs
        ctx.save_for_backward(*tensors, *(output[8:] if want & _FINALS else (None,) * len(output[8:])))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[4:])

    def gradient(ctx, *grads):
        g = [None if x is None else x.float() for x in grads[:4]]
        tensors, finals = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        result = backward(*tensors, ctx.ignore_index, *g, *finals)
        return (result if isinstance(result, tuple) else (result,)) + (None,) * 6

    _once(operator, gradient, setup, inputs_with_gradient)
    _last(backward)


_register_tokens(_token_logprobs, _token_logprobs_backward, 1)
_register_tokens(_linear_token_logprobs, _linear_token_logprobs_backward, 2)


def _tokens(operator, x, more, what, ids, keep, temperature, softcap, ignore_index, label_smoothing, z_loss, want, top_k, **more_numbers):
    ids, keep = _as_tensor(ids, x), _as_tensor(keep, x)
    _check(**{what: x})
    _check_given(ids=ids, keep=keep)
    rows, ids, keep, lead = _token_arguments(_single(x), ids, keep, what)
    if ids is not None and (ids.dtype.is_floating_point or ids.dtype == torch.bool):
        raise TypeError(f"ids: expected integers, got {ids.dtype}")
    numbers = _numbers(temperature=temperature, softcap=softcap, label_smoothing=label_smoothing, z_loss=z_loss, **more_numbers)
    results = operator(rows, *more, ids, keep, numbers, int(ignore_index), want, int(top_k))
    wanted = [ids is not None, want & 1, want & 2, want & 4, want & 8, ids is not None and want & 16, top_k, top_k]
    return _shaped([r if w else None for r, w in zip(results, wanted)], lead, ids)


def token_logprobs(
    logits: torch.Tensor,
    ids: Any = None,
    *,
    temperature: float | torch.Tensor = 1.0,
    softcap: float | torch.Tensor = 0.0,
    ignore_index: int = -100,
    label_smoothing: float | torch.Tensor = 0.0,
    z_loss: float | torch.Tensor = 0.0,
    keep: Any = None,
    lse: bool = False,
    entropy: bool = False,
    loss: bool = False,
    argmax: bool = False,
    rank: bool = False,
    top_k: int = 0,
) -> TokenLogprobs:
    """napier.token_logprobs with gradients through logprobs, lse, entropy and loss. top_logprobs has no gradient: for gradients
    of the most likely tokens, pass their ids.

    Examples
    --------
    >>> import torch, napier.torch
    >>> logits = torch.zeros(2, 3, requires_grad=True)
    >>> t = napier.torch.token_logprobs(logits, torch.tensor([2, 0]), entropy=True)
    >>> (t.logprobs.sum() + 0.1 * t.entropy.sum()).backward()
    >>> [round(g, 4) for g in logits.grad[0].tolist()]
    [-0.3333, -0.3333, 0.6667]
    """
    return _tokens(
        _token_logprobs,
        logits,
        (),
        "logits",
        ids,
        keep,
        temperature,
        softcap,
        ignore_index,
        label_smoothing,
        z_loss,
        _want(lse, entropy, loss, argmax, rank),
        top_k,
    )


def linear_token_logprobs(
    hidden: torch.Tensor,
    weights: torch.Tensor,
    ids: Any = None,
    *,
    temperature: float | torch.Tensor = 1.0,
    softcap: float | torch.Tensor = 0.0,
    ignore_index: int = -100,
    label_smoothing: float | torch.Tensor = 0.0,
    z_loss: float | torch.Tensor = 0.0,
    keep: Any = None,
    lse: bool = False,
    entropy: bool = False,
    loss: bool = False,
    argmax: bool = False,
    rank: bool = False,
    top_k: int = 0,
    bf16_gradient: bool = False,
) -> TokenLogprobs:
    """napier.linear_token_logprobs with gradients with respect to hidden and weights. Neither direction stores the logits.
    bf16_gradient: hidden and weights are bfloat16, and so is the gradient of the logits, as it is in PyTorch, instead of
    float32. This is faster, most of all on a matrix engine. On the CPU only.

    Examples
    --------
    >>> import torch, napier.torch
    >>> hidden, weights = torch.ones(4, 8, requires_grad=True), torch.zeros(100, 8, requires_grad=True)
    >>> t = napier.torch.linear_token_logprobs(hidden, weights, torch.tensor([1, 2, 3, 4]))
    >>> t.logprobs.sum().backward()
    >>> round(weights.grad[1, 0].item(), 4)
    0.96
    """
    _check(hidden=hidden, weights=weights)
    if bf16_gradient and hidden.device.type != "cpu":
        raise NotImplementedError("linear_token_logprobs: bf16_gradient is for tensors on the CPU only")
    if bf16_gradient and not hidden.dtype == weights.dtype == torch.bfloat16:
        raise ValueError(
            f"linear_token_logprobs: bf16_gradient: hidden and weights must be bfloat16, not {hidden.dtype} and {weights.dtype}"
        )
    finals = _FINALS if hidden.device.type == "cpu" else 0
    return _tokens(
        _linear_token_logprobs,
        hidden,
        (_single(weights),),
        "hidden",
        ids,
        keep,
        temperature,
        softcap,
        ignore_index,
        label_smoothing,
        z_loss,
        _want(lse, entropy, loss, argmax, rank) | finals,
        top_k,
        bf16_gradient=bool(bf16_gradient),
    )


@_operator("sample")
def _sample(
    x: Tensor,
    numbers: Tensor,
    top_k: int,
    seed: int,
    keep: Optional[Tensor],
    prompts: Optional[Tensor],
    prompt_offsets: Optional[Tensor],
    outputs: Optional[Tensor],
    output_offsets: Optional[Tensor],
    seeds: Optional[Tensor],
    samples: Optional[Tensor],
    positions: Optional[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    temperature, *others = numbers.tolist()
    return _napier.sample(
        x, temperature, top_k, *others, keep, prompts, prompt_offsets, outputs, output_offsets, seed, seeds, samples, positions
    )


@_sample.register_fake
def _(x, *_):
    n = x.shape[0]
    return x.new_empty(n, dtype=torch.int64), x.new_empty(n, dtype=torch.float32), x.new_empty(n, dtype=torch.float32)


_last(_sample)


def sample(
    logits: torch.Tensor,
    *,
    temperature: float | torch.Tensor = 1.0,
    top_k: int = 0,
    top_p: float | torch.Tensor = 1.0,
    min_p: float | torch.Tensor = 0.0,
    repetition_penalty: float | torch.Tensor = 1.0,
    presence_penalty: float | torch.Tensor = 0.0,
    frequency_penalty: float | torch.Tensor = 0.0,
    keep: Any = None,
    prompts: Any = None,
    prompt_offsets: Any = None,
    outputs: Any = None,
    output_offsets: Any = None,
    seed: Any = 0,
    samples: Any = None,
    positions: Any = None,
) -> Sampled:
    """napier.sample. The results are constants: for gradients, pass the ids to token_logprobs. On a GPU a row from which no id can
    be drawn gets the id -1, and synchronize() raises an error that names it.

    Examples
    --------
    >>> import torch, napier.torch
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 5.0]])
    >>> s = napier.torch.sample(logits, temperature=0.8, top_p=0.9, seed=7)
    >>> s.ids.shape, bool((s.plain_logprobs <= s.logprobs).all())
    (torch.Size([2]), True)
    """
    _check(logits=logits)
    prompts, prompt_offsets = _ragged("prompts", prompts, prompt_offsets)
    outputs, output_offsets = _ragged("outputs", outputs, output_offsets)
    seed, seeds = _seeds(seed)
    given = [_as_tensor(i, logits) for i in (keep, prompts, prompt_offsets, outputs, output_offsets, seeds, samples, positions)]
    rows, _, keep, lead = _token_arguments(_single(logits.detach()), None, given[0], "logits")
    numbers = _numbers(
        temperature=temperature,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
    )
    results = _sample(rows, numbers, int(top_k), seed, keep, *map(_flat, given[1:]))
    return Sampled(*(x.reshape(lead) for x in results))


@_operator("gather_logprobs")
def _gather_logprobs(logprobs: Tensor, ids: Tensor) -> Tensor:
    return _napier.gather_logprobs(logprobs, ids)


@_operator("gather_logprobs_backward")
def _gather_logprobs_backward(grad: Tensor, ids: Tensor, vocabulary: int) -> Tensor:
    return _napier.gather_logprobs_backward(grad, ids, vocabulary)


@_gather_logprobs.register_fake
def _(logprobs, ids):
    return logprobs.new_empty(logprobs.shape[:1])


@_gather_logprobs_backward.register_fake
def _(grad, ids, vocabulary):
    return grad.new_empty(grad.shape[0], vocabulary)


def _setup_gather(ctx, inputs, output):
    logprobs, ids = inputs
    ctx.vocabulary = logprobs.shape[1]
    ctx.save_for_backward(ids)


def _gradient_gather(ctx, grad):
    return _gather_logprobs_backward(grad, *ctx.saved_tensors, ctx.vocabulary), None


_once(_gather_logprobs, _gradient_gather, _setup_gather)
_last(_gather_logprobs_backward)


def gather_logprobs(logprobs: torch.Tensor, ids: torch.Tensor) -> Any:
    """napier.gather_logprobs with gradients: logprobs[..., ids].

    Examples
    --------
    >>> import torch, napier.torch
    >>> logprobs = torch.full((2, 4), -1.5, requires_grad=True)
    >>> napier.torch.gather_logprobs(logprobs, torch.tensor([3, 0])).sum().backward()
    >>> logprobs.grad.tolist()
    [[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]]
    """
    ids = _as_tensor(ids, logprobs)
    _check(logprobs=logprobs, ids=ids)
    if ids.shape != logprobs.shape[:-1]:
        raise ValueError(f"ids: shape {tuple(ids.shape)} is not that of logprobs without its last dimension")
    rows = _single(logprobs).reshape(-1, logprobs.shape[-1])
    return _gather_logprobs(rows, ids.reshape(-1)).reshape(ids.shape)
