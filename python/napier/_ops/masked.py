"""softmax, log_softmax, sparsemax and logsumexp where a mask or causality hides elements: each becomes a logit of -inf."""

import numpy as np

from .convert import as_array, without_float8


def kept(x, mask, causal, title="x"):
    """Which elements of the array or tensor are kept, as bool with its shape; None: all."""
    is_tensor, keep = hasattr(x, "permute"), None
    if mask is not None:
        keep = _broadcast(_of_tensor(mask, x) if is_tensor else as_array(mask, "mask"), x, title)
    if not causal:
        return keep
    if x.ndim < 2:
        raise ValueError(f"causal: True, but {title} has {x.ndim} dimensions; the last two are queries and keys")
    queries, keys = x.shape[-2:]
    if is_tensor:
        early = (x.new_ones((queries, keys)).tril(keys - queries) != 0).expand(x.shape)
    else:
        early = np.broadcast_to(np.tri(queries, keys, keys - queries, dtype=bool), x.shape)
    return early if keep is None else keep & early


def _of_tensor(mask, x):
    import torch

    try:
        return torch.as_tensor(mask, device=x.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"mask: expected a tensor, an array or numbers, got {mask!r}") from error


def _broadcast(mask, x, title):
    """The mask, an array or a tensor, as bool in x's shape."""
    is_tensor = hasattr(mask, "permute")
    if mask.dtype.is_floating_point or mask.dtype.is_complex if is_tensor else mask.dtype.kind not in "biu":
        raise TypeError(f"mask: expected bool or integers, of which 0 hides an element, got {mask.dtype} (add other masks to {title})")
    try:
        return (mask != 0).expand(x.shape) if is_tensor else np.broadcast_to(mask != 0, x.shape)
    except (ValueError, RuntimeError):
        raise ValueError(f"mask: shape {tuple(mask.shape)} does not broadcast to that of {title}, {tuple(x.shape)}") from None


def hidden(x, mask, causal, name="x"):
    """A copy of x with -inf in place of what is hidden. Integers become float64."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name}: masked arrays are not supported (use .filled())")
    if hasattr(x, "permute"):
        x = x if x.dtype.is_floating_point or x.dtype.is_complex else x.double()
        x = x.float() if x.dtype.itemsize < 2 else x  # some floats of 8 bits have no infinity
        keep = kept(x, mask, causal)
        return x if keep is None else x.masked_fill(~keep, -np.inf)
    x = without_float8(as_array(x, name))
    x = x.astype(np.float64) if x.dtype.kind in "biu" else x
    keep = kept(x, mask, causal)
    return x if keep is None else np.where(keep, x, np.asarray(-np.inf, x.dtype))
