"""Napier for PyTorch's autograd, torch.compile and torch.nn: the functions of `napier` and `napier.rl`, for tensors of float32,
float16, bfloat16 and (softmax and its kin) float64, on the CPU and, if napier was built with CUDA, on GPUs.

On a GPU a call adds its work to the device's current stream and does not wait. All tensors of a call must be on one device.
Invalid ids and offsets give NaN there, and synchronize() raises an error for them.

Functions are custom operators of torch.library (torch.ops.napier.*) with a rule for shapes and one for gradients, or are made of
such, so compiled graphs contain each operator as one node. Results have the same bits as those of `napier`. docs/python.md lists the
functions that have derivatives of every order, in torch.func's transforms and in forward mode too. Gradients of the others are once
differentiable, with backward() and torch.autograd.grad. An operator without a derivative raises an error if one is requested.
"""
from typing import Optional

import torch

from .. import _napier
from .._ops.attention import _arguments
from .._torch.base import (Tensor, _as_tensor, _check, _check_given, _common, _differentiable, _last, _none, _number, _numbers, _once, _operator,
                           _row_major_like, _single, _size)
from .._torch.choices import cross_entropy, entmax, gumbel_softmax, logaddexp
from .._torch.layers import linear, rms_norm, rotary, rotary_angles, rotary_frequencies, swiglu
from .._torch.logcumsumexp import logcumsumexp
from .._torch.logsumexp import logsumexp
from .._torch.modules import LogSoftmax, LogSumExp, Softmax
from .._torch.softmax import (_at_least_single, _dot_rows, _softmax, _sum_of, fused_log_softmax, log_softmax, online_softmax,
                              reduce_softmax, safe_softmax, softmax, sparsemax)
from ..rl import Sampled, TokenLogprobs, _flat, _groups, _ragged, _seeds, _shaped, _token_arguments, _want

__all__ = [
    "LogSoftmax", "LogSumExp", "Softmax", "attention", "compute_grpo_loss", "cross_entropy", "entmax", "fused_log_softmax",
    "gather_logprobs", "group_advantages", "grpo_from_hidden", "grpo_from_logits", "grpo_loss", "grpo_token_loss",
    "gumbel_softmax", "kl_full", "kl_per_response", "linear", "linear_token_logprobs", "log_softmax", "logaddexp", "logcumsumexp",
    "logsumexp", "matmul", "online_softmax", "reduce_softmax", "rms_norm", "rotary", "rotary_angles", "rotary_frequencies",
    "rubric_score", "safe_softmax", "sample", "scaled_dot_product_attention", "softmax", "sparsemax", "swiglu", "synchronize",
    "token_logprobs",
]


def synchronize(device=None):
    """Waits for the current stream of a GPU (default: the current GPU). Raises a ValueError for the first id or offset that a
    kernel has found out of range since the last call.

    Examples
    --------
    >>> import torch, napier.torch
    >>> if torch.cuda.is_available():
    ...     napier.torch.synchronize()
    ...
    """
    stream = torch.cuda.current_stream(device)
    stream.synchronize()
    _napier._cuda_synchronize(torch.empty(0, device=stream.device))


# ---- Products --------------------------------------------------------------------------------------------------------------


@_operator("matmul")
def _matmul(a: Tensor, b: Tensor) -> Tensor:
    return _napier.matmul(a, b)


@_operator("matmul_backward")
def _matmul_backward(a: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return _napier.matmul(grad, b.T, dtype=a.dtype), _napier.matmul(a.T, grad, dtype=b.dtype)


@_matmul.register_fake
def _(a, b):
    return torch.empty((a.shape[0], b.shape[1]), dtype=_common(a.dtype, b.dtype), device=a.device)


@_matmul_backward.register_fake
def _(a, b, grad):
    return _row_major_like(a), _row_major_like(b)


def _gradient_matmul(ctx, grad):
    return _matmul_backward(*ctx.saved_tensors, grad)


_once(_matmul, _gradient_matmul, lambda ctx, inputs, output: ctx.save_for_backward(*inputs), 2)
_last(_matmul_backward)


def _autocast(*tensors):
    """The tensors in the dtype of torch.autocast, where it is on: float64 stays, as in PyTorch."""
    device = next(x.device.type for x in tensors if x is not None)
    if not torch.is_autocast_enabled(device):
        return tensors
    kind = torch.get_autocast_dtype(device)
    return tuple(x if x is None or not x.is_floating_point() or x.dtype == torch.float64 else x.to(kind) for x in tensors)


def matmul(a, b):
    """napier.matmul with gradients with respect to both: a [M, K] @ b [K, N] in a fixed order, in float32. Other numbers of
    dimensions are as in torch.matmul: vectors, and batches that broadcast, whose products are computed one by one.

    Examples
    --------
    >>> import torch, napier.torch
    >>> a, b = torch.ones(2, 3, requires_grad=True), torch.eye(3)
    >>> napier.torch.matmul(a, b).sum().backward()
    >>> a.grad.tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    _check(a=a, b=b)
    inner = b.shape[-2:][0] if b.ndim else None
    if not a.ndim or not b.ndim or a.shape[-1] != inner:
        raise ValueError(f"b: shape {tuple(b.shape)} does not fit a's, {tuple(a.shape)}; expected [..., M, K] and [..., K, N]")
    a, b = _autocast(_single(a), _single(b))
    left, right = a.ndim == 1, b.ndim == 1
    a, b = a.unsqueeze(0) if left else a, b.unsqueeze(1) if right else b
    if b.ndim == 2:
        product = _matmul(a.reshape(-1, a.shape[-1]) if a.ndim != 2 else a, b).reshape(*a.shape[:-1], b.shape[-1])
    else:
        try:
            batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except RuntimeError:
            raise ValueError(f"b: its batch {tuple(b.shape[:-2])} does not broadcast with a's, {tuple(a.shape[:-2])}") from None
        many = [x.expand(*batch, *x.shape[-2:]).reshape(_size(batch), *x.shape[-2:]).unbind() for x in (a, b)]
        each = [_matmul(x, y) for x, y in zip(*many)] or [a.new_empty(a.shape[-2], b.shape[-1], dtype=_common(a.dtype, b.dtype))]
        product = torch.stack(each)[:_size(batch)].reshape(*batch, a.shape[-2], b.shape[-1])
    product = product.squeeze(-1) if right else product
    return product.squeeze(-1 if right else -2) if left else product


# ---- Attention -----------------------------------------------------------------------------------------------------------------

_Offsets = Optional[Tensor]


def _without_double(*tensors):
    return (_single(x) for x in tensors)


@_operator("attention")
def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], scale: Tensor, causal: bool, masked_rows: str,
               query_offsets: _Offsets, key_offsets: _Offsets, prefix_begin: _Offsets, prefix_end: _Offsets,
               bf16_weights: bool, bf16_gradient: bool) -> tuple[Tensor, Tensor]:
    return _napier._attention(q, k, v, mask, scale.item(), causal, masked_rows, query_offsets, key_offsets, prefix_begin,
                              prefix_end, bf16_weights)


@_operator("attention_backward")
def _attention_backward(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], scale: Tensor, causal: bool,
                        masked_rows: str, query_offsets: _Offsets, key_offsets: _Offsets, prefix_begin: _Offsets,
                        prefix_end: _Offsets, grad: Tensor, output: Tensor, lse: Tensor,
                        bf16_gradient: bool) -> tuple[Tensor, Tensor, Tensor]:
    return _napier._attention_backward(q, k, v, mask, scale.item(), causal, masked_rows, query_offsets, key_offsets,
                                       prefix_begin, prefix_end, grad, output, lse, bf16_gradient)


@_attention.register_fake
def _(q, k, v, mask, scale, causal, masked_rows, query_offsets, *_):
    lse = q.shape[:-1] if query_offsets is None else q.shape[:2]
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(lse, dtype=torch.float32)


@_attention_backward.register_fake
def _(q, k, v, *_):
    return _row_major_like(q), _row_major_like(k), _row_major_like(v)


def _setup_attention(ctx, inputs, output):
    ctx.options, ctx.bf16_gradient = inputs[5:7], inputs[12]
    ctx.save_for_backward(*inputs[:5], *inputs[7:11], *output)
    ctx.set_materialize_grads(False)


# The gradient of a score is p (dp - mean), where mean = grad . output; lse adds its own gradient times p. An additional column
# with 0 in v, 1 in output and minus the gradient of lse in grad changes mean by exactly this amount. Eight columns are added,
# because kernels are faster with multiples of eight.


def _gradient_attention(ctx, grad, grad_lse):
    q, k, v, mask, scale, *offsets, output, lse = ctx.saved_tensors
    grad, width = torch.zeros_like(output) if grad is None else grad.to(output.dtype), v.shape[-1]
    if grad_lse is not None:
        v, output = torch.nn.functional.pad(v, (0, 8)), torch.nn.functional.pad(output, (0, 8), value=1.0)
        grad = torch.nn.functional.pad(torch.cat([grad, -grad_lse.unsqueeze(-1).to(grad.dtype)], -1), (0, 7))
    to_q, to_k, to_v = _attention_backward(q, k, v, mask, scale, *ctx.options, *offsets, grad, output, lse, ctx.bf16_gradient)
    return (to_q, to_k, to_v if grad_lse is None else to_v[..., :width]) + (None,) * 10


_once(_attention, _gradient_attention, _setup_attention, 3)
_last(_attention_backward)


def attention(q, k, v, *, mask=None, causal=False, scale=None, masked_rows="nan", query_offsets=None, key_offsets=None,
              prefix=None, return_lse=False, bf16_weights=False, bf16_gradient=False):
    """napier.attention with gradients with respect to q, k and v: softmax(scale * q k^T + mask) v without storing the scores.
    lse has gradients too, so that you can combine results over different keys.

    q is [batch, heads, queries, dim], k and v are [batch, key heads, keys, dim] as in scaled_dot_product_attention, or all are
    ragged tokens [tokens, heads, dim] with query_offsets. The mask is a constant. With bf16_weights, as in napier.attention, the
    gradients are computed from the output and the lse with it. With bf16_gradient, as in napier.attention_backward, they are
    computed as PyTorch computes them; q, k and v are bfloat16, on the CPU. Each may be given without the other.

    Examples
    --------
    >>> import torch, napier.torch
    >>> q, k, v = torch.zeros(1, 2, 1, 4), torch.ones(1, 1, 3, 4), torch.eye(3, requires_grad=True)
    >>> output = napier.torch.attention(q, k, v[None, None])  # two heads of queries share one of keys
    >>> output.sum().backward()
    >>> output.shape, round(v.grad[0, 0].item(), 4)
    (torch.Size([1, 2, 1, 3]), 0.6667)
    """
    mask = _as_tensor(mask, q, "mask")
    prefix = None if prefix is None else tuple(_as_tensor(x, q) for x in prefix)
    query_offsets, key_offsets = _as_tensor(query_offsets, q), _as_tensor(key_offsets, q)
    _check(q=q, k=k, v=v)
    _check_given(mask=mask, query_offsets=query_offsets, key_offsets=key_offsets)
    if mask is not None and mask.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("mask: has no gradient here; use mask.detach()")
    (q, k, v, mask, _, *options), lead = _arguments(*_autocast(*_without_double(q, k, v)), mask, None, causal, masked_rows, query_offsets,
                                                     key_offsets, prefix)
    if bf16_gradient and q.device.type != "cpu":
        raise NotImplementedError("attention: bf16_gradient is for tensors on the CPU only")
    if bf16_gradient and not q.dtype == k.dtype == v.dtype == torch.bfloat16:
        raise ValueError(f"attention: bf16_gradient: q, k and v must be bfloat16, not {q.dtype}, {k.dtype} and {v.dtype}")
    output, lse = _attention(q, k, v, mask, _numbers(scale=0.0 if scale is None else scale), *options,
                             bool(bf16_weights), bool(bf16_gradient))
    if lead is not None:
        output, lse = (x.reshape(*lead, *x.shape[1:]) for x in (output, lse))
    return (output, lse) if return_lse else output


# Attention in the steps of its formula, for float64 and dropout. It is slow: every product of a query and a key is a sum of its
# own, in Napier's order.


@_operator("product")
def _product(a: Tensor, b: Tensor) -> Tensor:
    columns = b.mT.unsqueeze(-3)
    rows = max(1, 2**22 // max(1, columns.numel()))
    parts = [_dot_rows(*torch.broadcast_tensors(part.unsqueeze(-2), columns)) for part in a.split(rows, -2)]
    return torch.cat(parts, -2)


@_product.register_fake
def _(a, b):
    return torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)


_product = _differentiable(
    _product, 2, ("a", "b"), lambda s, grad: (_product(grad, s.b.mT), _product(s.a.mT, grad)),
    lambda s, t: _sum_of(None if t[0] is None else _product(t[0], s.b), None if t[1] is None else _product(s.a, t[1])))


def _attention_in_steps(q, k, v, mask, scale, dropout_p):
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    scores = _product(q, k.mT) * scale
    if mask is not None:
        mask = mask.flatten(0, 1)
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    probs = _softmax(scores, 2, _numbers(temperature=1.0), "zero")
    return _product(torch.nn.functional.dropout(probs, dropout_p), v)


def _common_batch(query, key, value, attn_mask, enable_gqa):
    """(q, k, v, mask) with the dimensions [batch, heads, ...], and the batch dimensions that they have in common."""
    groups = query.shape[-3] // max(1, key.shape[-3]) if enable_gqa and min(query.ndim, key.ndim) > 2 else 1
    leads = [x.shape[:-2] for x in (query, key, value)]
    if groups > 1:
        leads[1:] = [(*lead[:-1], lead[-1] * groups) for lead in leads[1:]]
    try:
        lead = torch.broadcast_shapes(*leads)
    except RuntimeError:
        raise ValueError(f"query: batch {tuple(leads[0])} does not broadcast with those of key and value, {tuple(leads[1])} and "
                         f"{tuple(leads[2])}" + ("" if enable_gqa else " (enable_gqa=True lets heads share keys)")) from None
    heads = lead[-1] if lead else 1

    def four(x, groups):
        own = (*lead[:-1], heads // groups) if lead else ()
        return x.expand(*own, *x.shape[-2:]).reshape(_size(lead[:-1]), heads // groups, *x.shape[-2:])

    mask = attn_mask
    if mask is not None:
        try:
            mask = mask.expand(*lead, query.shape[-2], key.shape[-2]).reshape(_size(lead[:-1]), heads, query.shape[-2], key.shape[-2])
        except RuntimeError:
            raise ValueError(f"attn_mask: shape {tuple(attn_mask.shape)} does not broadcast to "
                             f"{(*lead, query.shape[-2], key.shape[-2])}") from None
    return four(query, 1), four(key, groups), four(value, groups), mask, lead


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention by napier.attention: its arguments, its broadcasting of any number of
    batch dimensions, and its meaning of is_causal: query i attends to the keys 0 .. i. (With `causal` of napier.attention the
    last query attends to all keys.) A query that attends to no key gives 0.

    float64 and dropout are computed in steps, which is slow; all orders of derivatives and forward mode exist there, and
    attn_mask has a gradient. Dropout draws from PyTorch's generator what its math backend draws.

    Examples
    --------
    >>> import torch, napier.torch
    >>> q = k = v = torch.randn(2, 4, 5, 8)
    >>> ours = napier.torch.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> torch.allclose(ours, theirs, atol=1e-5)
    True
    """
    given = {"query": query, "key": key, "value": value}
    _check(**given)
    _check_given(attn_mask=attn_mask)
    for name, x in given.items():
        if x.ndim < 2 or not x.is_floating_point() or x.dtype != query.dtype:
            raise ValueError(f"{name}: expected at least 2 dimensions and the dtype of query, got {tuple(x.shape)} of {x.dtype}")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ValueError(f"key: shape {tuple(key.shape)} does not fit query's, {tuple(query.shape)}, and value's, "
                         f"{tuple(value.shape)}")
    if attn_mask is not None and attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise ValueError(f"attn_mask: expected bool or floating-point numbers, got {attn_mask.dtype}")
    if is_causal and attn_mask is not None:
        raise ValueError("is_causal: True, but there is an attn_mask")
    if not 0 <= _number("dropout_p", dropout_p) <= 1:
        raise ValueError(f"dropout_p: {dropout_p} is not in [0, 1]")
    if scale is not None and not isinstance(scale, Tensor):
        scale = _number("scale", scale)
    query, key, value = _autocast(query, key, value)
    queries, keys, kind = query.shape[-2], key.shape[-2], query.dtype
    if is_causal and (queries != keys or kind == torch.float64 or dropout_p > 0):
        attn_mask, is_causal = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(), False
    q, k, v, mask, lead = _common_batch(query, key, value, attn_mask, enable_gqa)
    if kind == torch.float64 or dropout_p > 0:
        k, v = (x.repeat_interleave(q.shape[1] // max(1, x.shape[1]), 1) for x in (k, v))
        wide = [_at_least_single(x) for x in (q, k, v)]
        output = _attention_in_steps(*wide, mask, 1 / max(1, q.shape[-1]) ** 0.5 if scale is None else scale, dropout_p).to(kind)
    else:
        output = attention(q, k, v, mask=mask, causal=is_causal, scale=scale, masked_rows="zero")
    return output.reshape(*lead, queries, value.shape[-1])


# ---- Log-probabilities of tokens ---------------------------------------------------------------------------------------------
# An operator has a fixed number of results, so those that were not requested are empty tensors.

_Eight = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
_Ten = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]  # and finals, chosen
_FINALS = 32  # the bit of `want` for what the forward pass knows of each row, so that the backward pass need not compute it again


def _whole(results, x):
    return tuple(_none(x) if r is None else r for r in results)


@_operator("token_logprobs")
def _token_logprobs(x: Tensor, ids: Optional[Tensor], keep: Optional[Tensor], numbers: Tensor, ignore_index: int, want: int,
                    top_k: int) -> _Eight:
    temperature, softcap, label_smoothing, z_loss = numbers.tolist()
    return _whole(_napier.token_logprobs(x, ids, temperature, softcap, ignore_index, label_smoothing, z_loss, keep, want,
                                         top_k)[:8], x)


@_operator("token_logprobs_backward")
def _token_logprobs_backward(x: Tensor, ids: Optional[Tensor], keep: Optional[Tensor], numbers: Tensor, ignore_index: int,
                             g_logprobs: Optional[Tensor], g_lse: Optional[Tensor], g_entropy: Optional[Tensor],
                             g_loss: Optional[Tensor]) -> Tensor:
    temperature, softcap, label_smoothing, z_loss = numbers.tolist()
    return _napier.token_logprobs_backward(x, ids, temperature, softcap, ignore_index, label_smoothing, z_loss, keep,
                                           g_logprobs, g_lse, g_entropy, g_loss)


@_operator("linear_token_logprobs")
def _linear_token_logprobs(x: Tensor, weights: Tensor, ids: Optional[Tensor], keep: Optional[Tensor], numbers: Tensor,
                           ignore_index: int, want: int, top_k: int) -> _Ten:
    temperature, softcap, label_smoothing, z_loss, _ = numbers.tolist()
    return _whole(_napier.linear_token_logprobs(x, weights, ids, temperature, softcap, ignore_index, label_smoothing,
                                                z_loss, keep, want, top_k), x)


@_operator("linear_token_logprobs_backward")
def _linear_token_logprobs_backward(x: Tensor, weights: Tensor, ids: Optional[Tensor], keep: Optional[Tensor],
                                    numbers: Tensor, ignore_index: int, g_logprobs: Optional[Tensor],
                                    g_lse: Optional[Tensor], g_entropy: Optional[Tensor],
                                    g_loss: Optional[Tensor], finals: Optional[Tensor],
                                    chosen: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    temperature, softcap, label_smoothing, z_loss, bf16_gradient = numbers.tolist()
    return _napier.linear_token_logprobs_backward(x, weights, ids, temperature, softcap, ignore_index, label_smoothing,
                                                  z_loss, keep, g_logprobs, g_lse, g_entropy, g_loss,
                                                  bf16_gradient=bool(bf16_gradient), finals=finals, chosen=chosen)


def _fake_results(x, ids, want, top_k):
    n = x.shape[0]
    each = 0 if ids is None or ids.numel() == 0 else ids.numel() // n

    def f32(wanted, *shape):
        return x.new_empty(shape if wanted else (0,), dtype=torch.float32)

    def i64(wanted, *shape):
        return x.new_empty(shape, dtype=torch.int64) if wanted else _none(x)

    return (f32(each, n, each), f32(want & 1, n), f32(want & 2, n), f32(want & 4, n), i64(want & 8, n),
            i64(each and want & 16, n, each), i64(top_k, n, top_k), f32(top_k, n, top_k), i64(want & _FINALS, n, 4),
            f32(each and want & _FINALS, n, each))


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


def _tokens(operator, x, more, what, ids, keep, temperature, softcap, ignore_index, label_smoothing, z_loss, want, top_k,
            **more_numbers):
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


def token_logprobs(logits, ids=None, *, temperature=1.0, softcap=0.0, ignore_index=-100, label_smoothing=0.0, z_loss=0.0,
                   keep=None, lse=False, entropy=False, loss=False, argmax=False, rank=False, top_k=0) -> TokenLogprobs:
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
    return _tokens(_token_logprobs, logits, (), "logits", ids, keep, temperature, softcap, ignore_index, label_smoothing,
                   z_loss, _want(lse, entropy, loss, argmax, rank), top_k)


def linear_token_logprobs(hidden, weights, ids=None, *, temperature=1.0, softcap=0.0, ignore_index=-100,
                          label_smoothing=0.0, z_loss=0.0, keep=None, lse=False, entropy=False, loss=False, argmax=False,
                          rank=False, top_k=0, bf16_gradient=False) -> TokenLogprobs:
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
        raise ValueError("linear_token_logprobs: bf16_gradient: hidden and weights must be bfloat16, not "
                         f"{hidden.dtype} and {weights.dtype}")
    finals = _FINALS if hidden.device.type == "cpu" else 0
    return _tokens(_linear_token_logprobs, hidden, (_single(weights),), "hidden", ids, keep, temperature, softcap,
                   ignore_index, label_smoothing, z_loss, _want(lse, entropy, loss, argmax, rank) | finals, top_k,
                   bf16_gradient=bool(bf16_gradient))


@_operator("sample")
def _sample(x: Tensor, numbers: Tensor, top_k: int, seed: int, keep: Optional[Tensor], prompts: Optional[Tensor],
            prompt_offsets: Optional[Tensor], outputs: Optional[Tensor], output_offsets: Optional[Tensor],
            seeds: Optional[Tensor], samples: Optional[Tensor], positions: Optional[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    temperature, *others = numbers.tolist()
    return _napier.sample(x, temperature, top_k, *others, keep, prompts, prompt_offsets, outputs, output_offsets, seed, seeds,
                          samples, positions)


@_sample.register_fake
def _(x, *_):
    n = x.shape[0]
    return x.new_empty(n, dtype=torch.int64), x.new_empty(n, dtype=torch.float32), x.new_empty(n, dtype=torch.float32)


_last(_sample)


def sample(logits, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0,
           frequency_penalty=0.0, keep=None, prompts=None, prompt_offsets=None, outputs=None, output_offsets=None, seed=0,
           samples=None, positions=None) -> Sampled:
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
    numbers = _numbers(temperature=temperature, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty,
                       presence_penalty=presence_penalty, frequency_penalty=frequency_penalty)
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


def gather_logprobs(logprobs, ids):
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


# ---- Padded batches --------------------------------------------------------------------------------------------------------------
# Trainers store a batch as a table [B, L] with a mask. C reads it as B responses of L tokens. Masked tokens add nothing to a sum,
# and the places of a sum are counted from the first token of a response, so padding at the end of a row changes no bit.


def _table(name, x, offsets, dims=0):
    """[B, L] of a padded batch, or None of a ragged one. dims: the number of dimensions of a token's values."""
    if x.dim() == dims + 2:
        if offsets is not None:
            raise ValueError(f"offsets: given, but {name} of shape {tuple(x.shape)} is a padded batch (use mask)")
        return tuple(x.shape[:2])
    if offsets is None:
        raise TypeError(f"offsets: missing, and {name} of shape {tuple(x.shape)} is no padded batch [B, L]")
    return None


def _in_line(table, **tensors):
    """Tensors [B, L, ...] of a padded batch as [B * L, ...]. Those of a ragged batch stay."""
    for name, x in tensors.items():
        if table and x is not None and tuple(x.shape[:2]) != table:
            raise ValueError(f"{name}: shape {tuple(x.shape)}, but the batch has {table[0]} responses of {table[1]} tokens")
    return [x if x is None or not table else x.flatten(0, 1) for x in tensors.values()]


def _row_offsets(table, offsets, beside):
    return offsets if not table else torch.arange(table[0] + 1, device=beside.device) * table[1]


def _mask_of(mask, beside):
    """A mask of any dtype as one byte for each token."""
    mask = _as_tensor(mask, beside)
    _check_given(mask=mask)
    return mask if mask is None or mask.dtype in (torch.bool, torch.uint8) else mask != 0


def _where_counted(mask, x, otherwise):
    return x if mask is None else torch.where(mask.bool(), x, torch.full((), otherwise, dtype=x.dtype, device=x.device))


# ---- KL and rubric -------------------------------------------------------------------------------------------------------------


@_operator("kl_per_response")
def _kl_per_response(policy: Tensor, ref: Tensor, offsets: Tensor, mask: Optional[Tensor], estimator: str, reduction: str,
                     clamps: Tensor) -> Tensor:
    clamp_ratio, clamp_kl = clamps.tolist()
    return _napier.kl_per_response(policy, ref, offsets, mask=mask, estimator=estimator, reduction=reduction,
                                   clamp_ratio=clamp_ratio, clamp_kl=clamp_kl)


@_operator("kl_per_response_backward")
def _kl_per_response_backward(policy: Tensor, ref: Tensor, offsets: Tensor, mask: Optional[Tensor], estimator: str,
                              reduction: str, clamps: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    clamp_ratio, clamp_kl = clamps.tolist()
    return _napier.kl_per_response_backward(policy, ref, offsets, mask=mask, estimator=estimator, reduction=reduction,
                                            clamp_ratio=clamp_ratio, clamp_kl=clamp_kl, grad_kl=grad)


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


def kl_per_response(policy_logprobs, ref_logprobs, offsets=None, *, mask=None, estimator="k1", reduction="sum",
                    clamp_ratio=0.0, clamp_kl=0.0):
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
    return _kl_per_response(_single(policy), _single(ref), _row_offsets(table, offsets, policy), mask, estimator, reduction,
                            _numbers(clamp_ratio=clamp_ratio, clamp_kl=clamp_kl))


def kl_full(policy_logits, ref_logits, *, temperature=1.0):
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
def _rubric_score(logprobs: Tensor, ids: Tensor, offsets: Tensor, rubric: Tensor,
                  weights: Tensor) -> tuple[Tensor, Tensor]:
    return _napier.rubric_score(logprobs, ids, offsets, rubric, weights)


@_operator("rubric_score_backward")
def _rubric_score_backward(ids: Tensor, offsets: Tensor, rubric: Tensor, weights: Tensor, g_scores: Optional[Tensor],
                           g_rewards: Optional[Tensor]) -> Tensor:
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


def rubric_score(logprobs, token_ids, offsets, rubric, weights, *, mask=None):
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
    return _rubric_score(_single(logprobs), token_ids, _row_offsets(table, offsets, logprobs), _single(rubric),
                         _single(weights))


# ---- GRPO ----------------------------------------------------------------------------------------------------------------------
# The C functions compute loss and gradients at once. The operators return both, and their own gradient is a product. Options
# are passed as one string, such as "loss_type=dapo;num_items": words, switches, and the names of the numbers.

_METRICS = ("loss", "tokens", "clip_low", "clip_high", "mean_ratio", "min_ratio", "max_ratio", "kl", "approx_kl", "entropy",
            "correction", "kept_responses")


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
    return (torch.tensor(metrics["loss"], dtype=torch.float32),
            torch.tensor([metrics[name] for name in _METRICS], dtype=torch.float64))


@_operator("grpo_loss")
def _grpo_loss(logprobs: Tensor, entropies: Optional[Tensor], advantages: Tensor, offsets: Tensor, old: Optional[Tensor],
               ref: Optional[Tensor], sampler: Optional[Tensor], mask: Optional[Tensor],
               words: str, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    metrics, grad, grad_entropies = _napier.grpo_loss(logprobs, advantages, offsets, old, ref, sampler, entropies, mask,
                                                      _read_options(words, numbers.tolist()))
    return (*_loss_and_metrics(metrics), grad, _none(logprobs) if grad_entropies is None else grad_entropies)


@_grpo_loss.register_fake
def _(logprobs, entropies, *_):
    grad = logprobs.new_empty(logprobs.shape, dtype=torch.float32)
    return (logprobs.new_empty((), dtype=torch.float32), logprobs.new_empty(len(_METRICS), dtype=torch.float64), grad,
            _none(logprobs) if entropies is None else torch.empty_like(grad))


def _grpo_backward(name):
    """The product as an operator. Its argument loss only makes the result depend on the graph, so that a second derivative
    raises an error instead of being zero."""

    @_operator(f"{name}_backward")
    def product(derivative: Tensor, loss: Tensor, grad: Tensor) -> Tensor:
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
def _grpo_token_loss(logprobs: Tensor, entropies: Optional[Tensor], advantages: Tensor, offsets: Tensor, old: Optional[Tensor],
                     ref: Optional[Tensor], sampler: Optional[Tensor], mask: Optional[Tensor],
                     words: str, numbers: Tensor) -> Tensor:
    return _napier.grpo_token_loss(logprobs, advantages, offsets, old, ref, sampler, entropies, mask,
                                   _read_options(words, numbers.tolist()))[0]


@_operator("grpo_token_loss_backward")
def _grpo_token_loss_backward(logprobs: Tensor, entropies: Optional[Tensor], advantages: Tensor, offsets: Tensor,
                              old: Optional[Tensor], ref: Optional[Tensor], sampler: Optional[Tensor], mask: Optional[Tensor],
                              words: str, numbers: Tensor, grad: Tensor) -> Tensor:
    return _napier.grpo_token_loss_backward(logprobs, advantages, offsets, old, ref, sampler, entropies, mask,
                                            _read_options(words, numbers.tolist()), grad)


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
def _grpo_from_logits(logits: Tensor, ids: Tensor, advantages: Tensor, offsets: Tensor, old: Optional[Tensor],
                      ref: Optional[Tensor], sampler: Optional[Tensor], mask: Optional[Tensor], words: str,
                      numbers: Tensor, gradient: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    temperature, softcap, *options = numbers.tolist()
    metrics, grad, logprobs, entropies = _napier.grpo_from_logits(
        logits, ids, None, advantages, offsets, old, ref, sampler, None, mask, _read_options(words, options), temperature,
        softcap, gradient, None)
    return (*_loss_and_metrics(metrics), logprobs, entropies, _none(logits) if grad is None else grad)


@_grpo_from_logits.register_fake
def _(logits, ids, advantages, offsets, old, ref, sampler, mask, words, numbers, gradient):
    tokens = logits.new_empty(logits.shape[0], dtype=torch.float32)
    return (logits.new_empty((), dtype=torch.float32), logits.new_empty(len(_METRICS), dtype=torch.float64), tokens,
            torch.empty_like(tokens), _row_major_like(logits) if gradient else _none(logits))


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


def grpo_loss(logprobs, advantages, offsets=None, *, old_logprobs=None, ref_logprobs=None, sampler_logprobs=None,
              entropies=None, mask=None, **options):
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
    (loss, metrics, _, _), _ = _losses_of(_grpo_loss, logprobs, advantages, offsets, old_logprobs, ref_logprobs,
                                          sampler_logprobs, entropies, mask, options)
    return loss, _named(metrics)


def grpo_token_loss(logprobs, advantages, offsets=None, *, old_logprobs=None, ref_logprobs=None, sampler_logprobs=None,
                    entropies=None, mask=None, **options):
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
    losses, table = _losses_of(_grpo_token_loss, logprobs, advantages, offsets, old_logprobs, ref_logprobs, sampler_logprobs,
                               entropies, mask, options)
    return losses.reshape(table) if table else losses


def compute_grpo_loss(policy_lps, old_lps, advantages, offsets=None, beta=0.0, ref_lps=None, eps=0.2, *, mask=None):
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
    return grpo_loss(policy_lps, advantages, offsets, old_logprobs=old_lps, ref_logprobs=ref_lps, mask=mask, beta=beta,
                     epsilon=eps, loss_type="token_mean")[0]


def _counted_ids(table, ids, mask):
    """ids with the one that is ignored in the place of padding, whatever stands there. It is C's default."""
    return _where_counted(mask, ids, -100) if table else ids


def grpo_from_logits(logits, ids, advantages, offsets=None, *, old_logprobs=None, ref_logprobs=None, sampler_logprobs=None,
                     mask=None, temperature=1.0, softcap=0.0, **options):
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


def grpo_from_hidden(hidden, weights, ids, advantages, offsets=None, *, old_logprobs=None, ref_logprobs=None,
                     sampler_logprobs=None, mask=None, temperature=1.0, softcap=0.0, bf16_gradient=False, **options):
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
    tokens = linear_token_logprobs(hidden, weights, _counted_ids(table, ids, mask), temperature=temperature, softcap=softcap,
                                   entropy=True, bf16_gradient=bf16_gradient)
    entropies = _where_counted(mask, tokens.entropy, 0.0) if table else tokens.entropy
    bonus = options.get("entropy_coefficient")
    loss, metrics = grpo_loss(tokens.logprobs, advantages, offsets, old_logprobs=old_logprobs, ref_logprobs=ref_logprobs,
                              sampler_logprobs=sampler_logprobs, mask=mask,
                              entropies=entropies if bonus is not None and bonus != 0 else entropies.detach(), **options)
    return loss, metrics, tokens.logprobs.detach(), entropies.detach()


# ---- Advantages ------------------------------------------------------------------------------------------------------------------


@_operator("group_advantages")
def _group_advantages(rewards: Tensor, size: int, offsets: Optional[Tensor], scale: str, epsilon: Tensor) -> Tensor:
    offsets = None if offsets is None else offsets.cpu()
    return _napier.group_advantages(rewards.cpu(), size, offsets, scale, epsilon.item()).to(rewards.device)


@_group_advantages.register_fake
def _(rewards, *_):
    return rewards.new_empty(rewards.shape, dtype=torch.float32)


_last(_group_advantages)


def group_advantages(rewards, groups, *, scale="group", epsilon=1e-4):
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


for _name in __all__:  # what pickle writes
    globals()[_name].__module__ = __name__
