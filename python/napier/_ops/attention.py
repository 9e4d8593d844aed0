"""softmax(Q K^T) V: converts shapes, masks and offsets for the C functions."""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np

from .. import _napier
from .convert import in_its_kind, number
from .device import stays
from .logsumexp import _array, _is_tensor, _array_anywhere


@in_its_kind
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    causal: bool = False,
    scale: Optional[float] = None,
    masked_rows: str = "nan",
    query_offsets: Any = None,
    key_offsets: Any = None,
    prefix: Optional[tuple[Any, Any]] = None,
    return_lse: bool = False,
    bf16_weights: bool = False,
) -> Any:
    """softmax(scale * q k^T + mask) v, without the matrix of scores.

    Parameters
    ----------
    q : array [batch, heads, queries, dim], or [heads, queries, dim]
        The layout of torch.nn.functional.scaled_dot_product_attention; the batch may have several dimensions. With query_offsets: [tokens, heads, dim], with
        the tokens of all sequences one after another.
    k, v : arrays [batch, key heads, keys, dim], [.., keys, v dim]
        float32, float16 or bfloat16, the same for all; float64 becomes float32, because the arithmetic is float32.
        heads is a multiple of key heads; heads / key heads consecutive heads share a key head. With query_offsets:
        [key tokens, key heads, dim].
    mask : array that broadcasts to [batch, heads, queries, keys], or None
        float32: added to the scaled scores; bool or int8: 0 hides the key. With query_offsets: [heads, tokens, keys],
        where the column of a key is its index in its sequence.
    causal : bool
        The last query attends to all keys, and each earlier query to one key fewer. (With PyTorch's is_causal, the
        first query attends only to the first key. Both are the same if there are as many queries as keys.)
    scale : float, default 1 / sqrt(dim)
    masked_rows : 'nan' or 'zero'
        The result of a query that attends to no key.
    query_offsets, key_offsets : int arrays [sequences + 1]
        The index of each sequence's first token in q, and in k and v (default: the same as in q).
    prefix : pair of int arrays [sequences], or None
        Rows begin .. end of k and v that precede each sequence's own keys; sequences may share them.
    return_lse : bool
        Whether to return (output, lse). lse is the logsumexp of each query's scores in float32: [batch, heads,
        queries], or [tokens, heads] with query_offsets.
    bf16_weights : bool
        Whether the weights of the keys are rounded to bfloat16, as PyTorch rounds them, so that a matrix engine (AMX) can
        multiply them: several times faster on such processors, and less accurate (napier/attention.h). q, k and v are
        bfloat16, on the CPU. The gradients are those of attention_backward, which has an option of its own, bf16_gradient.

    Examples
    --------
    >>> import numpy as np, napier
    >>> q = k = np.eye(3, dtype="f4")[None]           # one head, three queries and keys
    >>> v = np.arange(6, dtype="f4").reshape(1, 3, 2)
    >>> napier.attention(q, k, v, causal=True, scale=100.0)[0].round(5).tolist()
    [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    """
    q, k, v = _array_anywhere(q, "q"), _array_anywhere(k, "k"), _array_anywhere(v, "v")
    arguments, lead = _arguments(q, k, v, mask, scale, causal, masked_rows, query_offsets, key_offsets, prefix)
    output, lse = (x if lead is None else x.reshape((*lead, *x.shape[1:])) for x in _napier._attention(*arguments, bool(bf16_weights)))
    return (output, lse) if return_lse else output


@in_its_kind
def attention_backward(
    grad_output: Any,
    q: Any,
    k: Any,
    v: Any,
    output: Any,
    lse: Any,
    *,
    mask: Any = None,
    causal: bool = False,
    scale: Optional[float] = None,
    masked_rows: str = "nan",
    query_offsets: Any = None,
    key_offsets: Any = None,
    prefix: Optional[tuple[Any, Any]] = None,
    bf16_gradient: bool = False,
    grad_lse: Any = None,
) -> Any:
    """The gradients (grad_q, grad_k, grad_v) of attention, from its output and lse, and the gradients with respect to
    both; grad_lse: float32, None for 0.

    bf16_gradient: whether the weights of the keys and the gradients of the scores are rounded to bfloat16, as PyTorch rounds
    them, so that a matrix engine (AMX) can multiply them: several times faster on such processors, and less accurate
    (napier/attention.h). q, k, v and grad_output are bfloat16, on the CPU.

    Examples
    --------
    >>> import numpy as np, napier
    >>> q, k, v = np.zeros((1, 1, 2), "f4"), np.ones((1, 2, 2), "f4"), np.array([[[1], [3]]], "f4")
    >>> output, lse = napier.attention(q, k, v, return_lse=True)
    >>> grad_q, grad_k, grad_v = napier.attention_backward(np.ones_like(output), q, k, v, output, lse)
    >>> output.tolist(), grad_v.tolist()  # the gradient of a value is its weight
    ([[[2.0]]], [[[0.5], [0.5]]])
    """
    q, k, v = _array_anywhere(q, "q"), _array_anywhere(k, "k"), _array_anywhere(v, "v")
    arguments, lead = _arguments(q, k, v, mask, scale, causal, masked_rows, query_offsets, key_offsets, prefix)
    given = {"grad_output": grad_output, "output": output, "lse": lse, "grad_lse": grad_lse}
    others = [None if x is None and name == "grad_lse" else _array_anywhere(x, name) for name, x in given.items()]
    if lead is not None:
        others = [None if x is None else x.reshape((math.prod(lead), *x.shape[len(lead) :])) for x in others]
    grads = _napier._attention_backward(*arguments, *others[:3], bool(bf16_gradient), others[3])
    return grads if lead is None else tuple(g.reshape((*lead, *g.shape[1:])) for g in grads)


def _arguments(q, k, v, mask, scale, causal, masked_rows, query_offsets, key_offsets, prefix):
    """The arguments of the C functions, and the batch dimensions that were made one: () or several; None: there is one."""
    lead = None
    if query_offsets is None:
        if key_offsets is not None or prefix is not None:
            raise ValueError("query_offsets: missing, but there are key_offsets or a prefix")
        if q.ndim == 3 or q.ndim > 4:
            lead = tuple(q.shape[:-3])
            for name, x in (("k", k), ("v", v)):
                if tuple(x.shape[:-3]) != lead:
                    raise ValueError(f"{name}: batch {tuple(x.shape[:-3])} is not that of q, {lead}")
            whole = (*q.shape[:-1], k.shape[-2])
            mask = None if mask is None else _mask(mask, whole).reshape((math.prod(lead), *whole[-3:]))
            q, k, v = (x.reshape((math.prod(lead), *x.shape[-3:])) for x in (q, k, v))
        shape = (*q.shape[:3], k.shape[2]) if q.ndim == k.ndim == 4 else None
        offsets = (None,) * 4
    else:
        shape = None if mask is None or q.ndim != 3 else (q.shape[1], q.shape[0], _array(mask, "mask").shape[-1])
        keys = query_offsets if key_offsets is None else key_offsets
        begin, end = (None, None) if prefix is None else prefix
        offsets = (_int64(query_offsets), _int64(keys), _int64(begin), _int64(end))
    mask = None if mask is None or shape is None else _mask(mask, shape)
    return (q, k, v, mask, _scale_of(scale), bool(causal), masked_rows, *offsets), lead


def _scale_of(scale):
    """As the library takes it: 0 is 1 / sqrt(dim)."""
    if scale is None:
        return 0.0
    value = number(scale, "scale")
    if value == 0.0:
        raise ValueError("scale: with 0 all scores are equal; leave it out for 1 / sqrt(dim)")
    return value


def _int64(x):
    """Offsets as int64. There are few of them, so a copy costs little."""
    if x is None:
        return None
    if _is_tensor(x):
        return x.long()
    if stays(x, "offsets"):
        return x
    x = np.asarray(x)
    if x.dtype.kind not in "iu":
        raise TypeError(f"offsets: expected integers, got {x.dtype}")
    return np.ascontiguousarray(x, np.int64)


def _mask(mask, shape):
    """A view of the mask in the scores' shape."""
    mask = _array(mask, "mask")
    if _is_tensor(mask):
        return mask.float().expand(shape) if mask.dtype.is_floating_point else mask.expand(shape)
    if mask.dtype.kind not in "biu":
        mask = mask.astype(np.float32, copy=False)
    elif mask.dtype.itemsize != 1:
        mask = mask != 0
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(f"mask: shape {mask.shape} does not broadcast to {shape}") from None
