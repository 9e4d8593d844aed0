"""softmax, log_softmax, sparsemax and logsumexp where a mask or causality hides elements: each becomes a logit of -inf."""
import numpy as np

from .convert import as_array, without_float8


def kept(x, mask, causal):
    """Which elements of the array or tensor are kept, as bool with its shape; None: all."""
    if hasattr(x, "permute"):
        from .._torch.softmax import _kept
        return _kept(x, mask, causal)
    keep = None
    if mask is not None:
        mask = as_array(mask, "mask")
        if mask.dtype.kind not in "biu":
            raise TypeError(f"mask: expected bool or integers, of which 0 hides an element, got {mask.dtype} (add other masks to x)")
        try:
            keep = np.broadcast_to(mask != 0, x.shape)
        except ValueError:
            raise ValueError(f"mask: shape {mask.shape} does not broadcast to that of x, {x.shape}") from None
    if not causal:
        return keep
    if x.ndim < 2:
        raise ValueError(f"causal: True, but x has {x.ndim} dimensions; the last two are queries and keys")
    queries, keys = x.shape[-2:]
    early = np.tri(queries, keys, keys - queries, dtype=bool)
    return np.broadcast_to(early, x.shape) if keep is None else keep & early


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


def call_masked(function, arguments):
    """A function of the extension with the arguments mask and causal."""
    x, mask, causal = arguments.pop("x"), arguments.pop("mask", None), arguments.pop("causal", False)
    return function(hidden(x, mask, causal), **arguments)
