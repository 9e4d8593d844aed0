"""Attention: fused, in steps for float64 and dropout, and with the arguments of scaled_dot_product_attention."""

from typing import Any, Optional

import torch

from .. import _napier
from .._ops.attention import _arguments, _scale_of
from .base import (
    Tensor,
    _as_tensor,
    _check,
    _check_given,
    _differentiable,
    _last,
    _number,
    _numbers,
    _once,
    _operator,
    _row_major_like,
    _single,
    _size,
)
from .products import _autocast
from .softmax import _at_least_single, _softmax, _sum_of


_Offsets = Optional[Tensor]


def _without_double(*tensors):
    return (_single(x) for x in tensors)


@_operator("attention")
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[Tensor],
    scale: Tensor,
    causal: bool,
    masked_rows: str,
    query_offsets: _Offsets,
    key_offsets: _Offsets,
    prefix_begin: _Offsets,
    prefix_end: _Offsets,
    bf16_weights: bool,
    bf16_gradient: bool,
) -> tuple[Tensor, Tensor]:
    return _napier._attention(
        q, k, v, mask, scale.item(), causal, masked_rows, query_offsets, key_offsets, prefix_begin, prefix_end, bf16_weights
    )


@_operator("attention_backward")
def _attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[Tensor],
    scale: Tensor,
    causal: bool,
    masked_rows: str,
    query_offsets: _Offsets,
    key_offsets: _Offsets,
    prefix_begin: _Offsets,
    prefix_end: _Offsets,
    grad: Tensor,
    output: Tensor,
    lse: Tensor,
    bf16_gradient: bool,
    grad_lse: Optional[Tensor] = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return _napier._attention_backward(
        q,
        k,
        v,
        mask,
        scale.item(),
        causal,
        masked_rows,
        query_offsets,
        key_offsets,
        prefix_begin,
        prefix_end,
        grad,
        output,
        lse,
        bf16_gradient,
        grad_lse,
    )


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


def _gradient_attention(ctx, grad, grad_lse):
    q, k, v, mask, scale, *offsets, output, lse = ctx.saved_tensors
    grad = torch.zeros_like(output) if grad is None else grad.to(output.dtype)
    grads = _attention_backward(q, k, v, mask, scale, *ctx.options, *offsets, grad, output, lse, ctx.bf16_gradient, grad_lse)
    return (*grads, *(None,) * 10)


_once(_attention, _gradient_attention, _setup_attention, 3)
_last(_attention_backward)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    mask: Any = None,
    causal: bool = False,
    scale: float | torch.Tensor | None = None,
    masked_rows: str = "nan",
    query_offsets: Any = None,
    key_offsets: Any = None,
    prefix: Optional[tuple[torch.Tensor, torch.Tensor]] = None,
    return_lse: bool = False,
    bf16_weights: bool = False,
    bf16_gradient: bool = False,
) -> Any:
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
    (q, k, v, mask, _, *options), lead = _arguments(
        *_autocast(*_without_double(q, k, v)), mask, None, causal, masked_rows, query_offsets, key_offsets, prefix
    )
    if bf16_gradient and q.device.type != "cpu":
        raise NotImplementedError("attention: bf16_gradient is for tensors on the CPU only")
    if bf16_gradient and not q.dtype == k.dtype == v.dtype == torch.bfloat16:
        raise ValueError(f"attention: bf16_gradient: q, k and v must be bfloat16, not {q.dtype}, {k.dtype} and {v.dtype}")
    scale = _numbers(scale=scale if isinstance(scale, Tensor) else _scale_of(scale))
    output, lse = _attention(q, k, v, mask, scale, *options, bool(bf16_weights), bool(bf16_gradient))
    if lead is not None:
        output, lse = (x.reshape(*lead, *x.shape[1:]) for x in (output, lse))
    return (output, lse) if return_lse else output


# Attention in the steps of its formula, for float64 and dropout. It is slow: every product of a query and a key is a sum of its
# own, in Napier's order.


@_operator("product")
def _product(a: Tensor, b: Tensor) -> Tensor:
    columns = b.mT.unsqueeze(-3)
    rows = max(1, 2**22 // max(1, columns.numel()))
    parts = [_napier._dot_rows(*torch.broadcast_tensors(part.unsqueeze(-2), columns)) for part in a.split(rows, -2)]
    return torch.cat(parts, -3).squeeze(-1)


@_product.register_fake
def _(a, b):
    return torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)


_product = _differentiable(
    _product,
    2,
    ("a", "b"),
    lambda s, grad: (_product(grad, s.b.mT), _product(s.a.mT, grad)),
    lambda s, t: _sum_of(None if t[0] is None else _product(t[0], s.b), None if t[1] is None else _product(s.a, t[1])),
)


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
        raise ValueError(
            f"query: batch {tuple(leads[0])} does not broadcast with those of key and value, {tuple(leads[1])} and "
            f"{tuple(leads[2])}" + ("" if enable_gqa else " (enable_gqa=True lets heads share keys)")
        ) from None
    heads = lead[-1] if lead else 1

    def four(x, groups):
        own = (*lead[:-1], heads // groups) if lead else ()
        return x.expand(*own, *x.shape[-2:]).reshape(_size(lead[:-1]), heads // groups, *x.shape[-2:])

    mask = attn_mask
    if mask is not None:
        try:
            mask = mask.expand(*lead, query.shape[-2], key.shape[-2]).reshape(_size(lead[:-1]), heads, query.shape[-2], key.shape[-2])
        except RuntimeError:
            raise ValueError(
                f"attn_mask: shape {tuple(attn_mask.shape)} does not broadcast to {(*lead, query.shape[-2], key.shape[-2])}"
            ) from None
    return four(query, 1), four(key, groups), four(value, groups), mask, lead


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Optional[torch.Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Any:
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
        raise ValueError(f"key: shape {tuple(key.shape)} does not fit query's, {tuple(query.shape)}, and value's, {tuple(value.shape)}")
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
    if kind == torch.float64 or dropout_p > 0 or (isinstance(scale, float) and scale == 0.0):  # to the library 0 is None
        k, v = (x.repeat_interleave(q.shape[1] // max(1, x.shape[1]), 1) for x in (k, v))
        wide = [_at_least_single(x) for x in (q, k, v)]
        output = _attention_in_steps(*wide, mask, 1 / max(1, q.shape[-1]) ** 0.5 if scale is None else scale, dropout_p).to(kind)
    else:
        output = attention(q, k, v, mask=mask, causal=is_causal, scale=scale, masked_rows="zero")
    return output.reshape(*lead, queries, value.shape[-1])
