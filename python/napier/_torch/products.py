"""Products in a fixed order."""

from typing import Any

import torch

from .. import _napier
from .base import Tensor, _check, _common, _last, _once, _operator, _row_major_like, _single, _size


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


def matmul(a: torch.Tensor, b: torch.Tensor) -> Any:
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
        product = torch.stack(each)[: _size(batch)].reshape(*batch, a.shape[-2], b.shape[-1])
    product = product.squeeze(-1) if right else product
    return product.squeeze(-1 if right else -2) if left else product
