"""The functions of arrays that hand tensors on to napier.torch, which nothing below this file imports."""

import functools

from ._ops import entmax as of_arrays
from ._ops import losses
from ._ops.convert import axes_of, torch_dtype


def _refuse_gradients(**tensors):
    import torch

    for name, x in tensors.items():
        if isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                f"{name}: the tensor requires grad, which this function does not record: use the one of napier.torch, or {name}.detach()"
            )


def _in(made, dtype):
    return made if dtype is None else made.to(torch_dtype(dtype))


@functools.wraps(of_arrays.entmax)
def entmax(x, axis=-1, *, alpha=1.5, dtype=None, **options):
    if not hasattr(x, "permute") or alpha in (1, 2):
        return of_arrays.entmax(x, axis, alpha=alpha, dtype=dtype, **options)
    from . import torch

    _refuse_gradients(x=x)
    axes = axes_of(axis, x.ndim)
    if len(axes) != 1:
        raise ValueError(f"axis: {axis} is not one axis, which a tensor needs here")
    return _in(torch.entmax(x, axes[0], alpha=alpha, **options), dtype)


@functools.wraps(losses.logaddexp)
def logaddexp(x1, x2, *, dtype=None):
    if not hasattr(x1, "permute") and not hasattr(x2, "permute"):
        return losses.logaddexp(x1, x2, dtype=dtype)
    from . import torch

    _refuse_gradients(x1=x1, x2=x2)
    return _in(torch.logaddexp(x1, x2), dtype)
