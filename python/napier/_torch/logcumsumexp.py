"""logcumsumexp with derivatives of every order.

B(g)_j = exp(z_j) sum over k >= j of g_k exp(-lse_k) / T is the gradient, L(t)_k = sum over j <= k of exp(z_j - lse_k) t_j / T the
tangent. They are transposes of one another, and the derivatives of both with respect to x are made of both.
"""

from typing import Any

import torch

from .. import _napier
from .base import Tensor, _differentiable, _numbers, _operator, _row_major_like
from .softmax import _dimension, _logits, _over, _sum_of


@_operator("logcumsumexp")
def _logcumsumexp(x: Tensor, axis: int, temperature: Tensor) -> Tensor:
    return _napier.logcumsumexp(x, axis, temperature=temperature.item())


@_operator("logcumsumexp_backward")
def _gradient(x: Tensor, grad: Tensor, axis: int, temperature: Tensor) -> Tensor:
    return _napier.logcumsumexp_backward(x, grad, axis, temperature=temperature.item())


@_operator("logcumsumexp_tangent")
def _tangent(x: Tensor, tangent: Tensor, axis: int, temperature: Tensor) -> Tensor:
    return _napier.logcumsumexp_tangent(x, tangent, axis, temperature=temperature.item())


for _each in (_logcumsumexp, _gradient, _tangent):
    _each.register_fake(_row_major_like)


def _along(function, s, t):
    return function(s.x, t.to(s.x.dtype), s.axis, s.temperature)


# dB = dx B(g) / T - B(g L(dx)) + B(dg), dL = L(t dx) / T - L(dx) L(t) + L(dt)


def _gradient_of_gradient(s, to):
    to_x = _over(to * _along(_gradient, s, s.grad), s) - _along(_gradient, s, s.grad * _along(_tangent, s, to))
    return to_x.to(s.x.dtype), _along(_tangent, s, to).to(s.grad.dtype)


def _tangent_of_gradient(s, tangents):
    of_x, of_grad = tangents
    if of_x is not None:
        of_x = _over(of_x * _along(_gradient, s, s.grad), s) - _along(_gradient, s, s.grad * _along(_tangent, s, of_x))
    return _sum_of(of_x, None if of_grad is None else _along(_gradient, s, of_grad))


def _gradient_of_tangent(s, to):
    to_x = _over(s.tangent * _along(_gradient, s, to), s) - _along(_gradient, s, to * _along(_tangent, s, s.tangent))
    return to_x.to(s.x.dtype), _along(_gradient, s, to).to(s.tangent.dtype)


def _tangent_of_tangent(s, tangents):
    of_x, of_tangent = tangents
    if of_x is not None:
        of_x = _over(_along(_tangent, s, s.tangent * of_x), s) - _along(_tangent, s, of_x) * _along(_tangent, s, s.tangent)
    return _sum_of(of_x, None if of_tangent is None else _along(_tangent, s, of_tangent))


_gradient = _differentiable(_gradient, 2, ("x", "grad", "temperature"), _gradient_of_gradient, _tangent_of_gradient)
_tangent = _differentiable(_tangent, 2, ("x", "tangent", "temperature"), _gradient_of_tangent, _tangent_of_tangent)
_logcumsumexp = _differentiable(
    _logcumsumexp, 1, ("x", "temperature"), lambda s, grad: _along(_gradient, s, grad), lambda s, t: _along(_tangent, s, t[0])
)


def logcumsumexp(input: torch.Tensor, dim: int = -1, *, temperature: float | torch.Tensor = 1.0) -> Any:
    """napier.logcumsumexp with gradients: the logsumexp of every prefix along a dimension, as torch.logcumsumexp. On the CPU.

    Examples
    --------
    >>> import torch, napier.torch
    >>> lse = napier.torch.logcumsumexp(torch.tensor([1000.0, 1000.0, 0.0]), 0)
    >>> [round(x, 4) for x in lse.tolist()]
    [1000.0, 1000.6932, 1000.6932]
    """
    x, kind = _logits(input, None)
    return _logcumsumexp(x, _dimension(dim, x.ndim), _numbers(temperature=temperature)).to(kind)
