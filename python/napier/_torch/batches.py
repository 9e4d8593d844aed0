"""Padded batches [B, L] of responses, as ragged ones."""

import torch

from .base import _as_tensor, _check_given

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
