"""logsumexp with derivatives of every order, also of complex numbers, and with weights."""

from typing import Any, Optional

import torch

from .. import _napier
from .._ops.complex import exp_of_array as _exp_of_array
from .._ops.logsumexp import logsumexp as _logsumexp_of_array
from .base import Tensor, _as_tensor, _check, _common, _differentiable, _last, _numbers, _once, _operator, _row_major_like, _size
from .softmax import _at_least_single, _dimensions, _dot, _exp_operator, _kept, _logits, _over, _softmax, _softmax_backward, _sum_of


@_operator("logsumexp")
def _logsumexp(x: Tensor, axis: int, temperature: Tensor, algorithm: str = "auto") -> Tensor:
    return _napier._logsumexp(x, axis, False, temperature=temperature.item(), algorithm=algorithm)


@_operator("logsumexp_backward")
def _logsumexp_backward(x: Tensor, grad: Tensor, axis: int, temperature: Tensor) -> Tensor:
    return _napier.logsumexp_backward(x, grad, axis, temperature=temperature.item())


@_logsumexp.register_fake
def _(x, axis, temperature, algorithm="auto"):
    return torch.empty(x.shape[:axis] + x.shape[axis + 1 :], dtype=x.dtype, device=x.device)


_logsumexp_backward.register_fake(_row_major_like)


def _probs(s):
    return _softmax(_at_least_single(s.x), s.axis, s.temperature, "zero")


def _gradient_logsumexp_backward(s, to):
    """The gradient is p g / T, where p = softmax(x / T) has the Jacobian of softmax."""
    to, probs, grad = _at_least_single(to), _probs(s), _at_least_single(s.grad).unsqueeze(s.axis)
    to_x = _over(grad * _softmax_backward(probs, to, s.axis, s.temperature), s)
    return to_x.to(s.x.dtype), _over(_dot(probs, to, s.axis), s).squeeze(s.axis).to(s.grad.dtype)


def _tangent_logsumexp_backward(s, tangents):
    of_x, of_grad = tangents
    if of_x is not None:
        along = _softmax_backward(_probs(s), _at_least_single(of_x), s.axis, s.temperature)
        of_x = _over(_at_least_single(s.grad).unsqueeze(s.axis) * along, s).to(s.x.dtype)
    return _sum_of(of_x, None if of_grad is None else _logsumexp_backward(s.x, of_grad.to(s.x.dtype), s.axis, s.temperature))


_logsumexp_backward = _differentiable(
    _logsumexp_backward, 2, ("x", "grad", "temperature"), _gradient_logsumexp_backward, _tangent_logsumexp_backward
)
_logsumexp = _differentiable(
    _logsumexp,
    1,
    ("x", "temperature"),
    lambda s, grad: _logsumexp_backward(s.x, grad.to(s.x.dtype), s.axis, s.temperature),
    lambda s, t: _over(_dot(_probs(s), _at_least_single(t[0]), s.axis), s).squeeze(s.axis).to(s.x.dtype),
)


# Of complex numbers: the derivative is exp(x / T - lse) / T, of which PyTorch's gradients have the conjugate.


@_operator("logsumexp_complex")
def _logsumexp_complex(x: Tensor, axis: int, temperature: Tensor) -> Tensor:
    return _logsumexp_of_array(x, axis, temperature=temperature.item())


@_operator("exp_complex")
def _exp_complex(x: Tensor) -> Tensor:
    return torch.from_numpy(_exp_of_array(x.resolve_conj().resolve_neg().numpy()))


@_logsumexp_complex.register_fake
def _(x, axis, temperature):
    return torch.empty(x.shape[:axis] + x.shape[axis + 1 :], dtype=x.dtype, device=x.device)


_exp_complex.register_fake(_row_major_like)
_exp_complex = _differentiable(_exp_complex, 1, ("result",), lambda s, grad: grad * s.result.conj(), lambda s, t: t[0] * s.result)


def _shares(s):
    return _exp_complex(s.x / s.temperature.to(s.x.real.dtype).reshape(()) - s.result.unsqueeze(s.axis))


def _gradient_logsumexp_complex(s, grad):
    return (grad.unsqueeze(s.axis) * _shares(s).conj() / s.temperature.to(s.x.real.dtype).reshape(())).to(s.x.dtype)


def _tangent_logsumexp_complex(s, tangents):
    shares, t = _shares(s).resolve_conj(), tangents[0].resolve_conj()
    real = _dot(shares.real, t.real, s.axis) - _dot(shares.imag, t.imag, s.axis)
    imag = _dot(shares.real, t.imag, s.axis) + _dot(shares.imag, t.real, s.axis)
    return (torch.complex(real, imag) / s.temperature.to(real.dtype).reshape(())).squeeze(s.axis)


_logsumexp_complex = _differentiable(
    _logsumexp_complex, 1, ("x", "result", "temperature"), _gradient_logsumexp_complex, _tangent_logsumexp_complex
)


# With weights b: s = sum_j b_j exp(z_j), lse = log |s|. Then d lse / d b_i = exp(z_i) / s and d lse / d x_i = b_i exp(z_i) /
# (s T). exp(z_i) / s is computed as sign(s) exp(z_i - lse) in float64, after subtracting the largest logit. So nothing
# overflows, and a large lse costs no accuracy. As without weights, a row with a +inf has no gradient (NaN), and a logit of
# -inf gets 0.


@_operator("logsumexp_weighted")
def _logsumexp_weighted(x: Tensor, b: Tensor, axis: int, temperature: Tensor) -> tuple[Tensor, Tensor]:
    return _napier._logsumexp_weighted(x, b, axis, False, temperature=temperature.item())


def _weighted_gradients(x, b, grad, temperature, max_of, lse_of):
    """Of the last dimension. max_of and lse_of: the largest element, and logsumexp with its sign, of rows of float64: whole ones, also
    where x and b are some columns of them (napier.torch.distributed)."""
    z, weights = x.double() / temperature, b.double()
    z = z - max_of(z.masked_fill(weights == 0, -torch.inf)).unsqueeze(-1).nan_to_num(0.0, 0.0, 0.0)
    lse, sign = lse_of(z, weights)
    lse = lse.masked_fill(lse == torch.inf, torch.nan)
    share = sign.unsqueeze(-1) * _exp_operator(z - lse.unsqueeze(-1))
    share = share.masked_fill(z == -torch.inf, 0.0)
    to_b = grad.double().unsqueeze(-1) * share
    to_x = (to_b * weights / temperature).masked_fill(weights == 0, 0.0)
    return to_x.to(x.dtype), to_b.to(b.dtype)


@_operator("logsumexp_weighted_backward")
def _logsumexp_weighted_backward(x: Tensor, b: Tensor, grad: Tensor, axis: int, temperature: Tensor) -> tuple[Tensor, Tensor]:
    if x.numel() == 0:
        return _row_major_like(x), _row_major_like(b)
    made = _weighted_gradients(
        x.movedim(axis, -1),
        b.movedim(axis, -1),
        grad,
        temperature.item(),
        lambda z: z.amax(-1),
        lambda z, weights: _napier._logsumexp_weighted(z, weights, -1, False),
    )
    return tuple(y.movedim(-1, axis).contiguous() for y in made)


@_logsumexp_weighted.register_fake
def _(x, b, axis, temperature):
    lse = torch.empty(x.shape[:axis] + x.shape[axis + 1 :], device=x.device, dtype=_common(x.dtype, b.dtype))
    return lse, torch.empty_like(lse)


@_logsumexp_weighted_backward.register_fake
def _(x, b, *_):
    return _row_major_like(x), _row_major_like(b)


def _setup_logsumexp_weighted(ctx, inputs, output):
    x, b, ctx.axis, temperature = inputs
    ctx.save_for_backward(x, b, temperature)
    ctx.mark_non_differentiable(output[1])


def _gradient_logsumexp_weighted(ctx, grad, _):
    x, b, temperature = ctx.saved_tensors
    return (*_logsumexp_weighted_backward(x, b, grad, ctx.axis, temperature), None, None)


_once(_logsumexp_weighted, _gradient_logsumexp_weighted, _setup_logsumexp_weighted, 2)
_last(_logsumexp_weighted_backward)


def _weights_like(b, x):
    """Weights as a tensor. Numbers, integers and bool get x's dtype."""
    b = _as_tensor(b, x, "b")
    _check(b=b)
    return b.to(x.dtype) if not b.dtype.is_floating_point or b.ndim == 0 else b


def _one_dimension(x, axes):
    """x with these dimensions merged into its last one."""
    kept = [i for i in range(x.ndim) if i not in axes]
    return x.permute(kept + axes).reshape([x.shape[i] for i in kept] + [_size(x.shape[i] for i in axes)])


def _weighted(x, b, axes, temperature):
    """(lse, sign) over the dimensions, which the results no longer have."""
    for m, n in zip(reversed(x.shape), reversed(b.shape)):
        if m != n and 1 not in (m, n):
            raise ValueError(f"b: shape {tuple(b.shape)} does not broadcast with x's, {tuple(x.shape)}")
    x, b = torch.broadcast_tensors(x, b)
    if len(axes) == 1:
        return _logsumexp_weighted(x, b, axes[0], temperature)
    return _logsumexp_weighted(_one_dimension(x, axes), _one_dimension(b, axes), x.ndim - len(axes), temperature)


def logsumexp(
    input: torch.Tensor,
    dim: Optional[int | tuple[int, ...]] = None,
    keepdim: bool = False,
    *,
    mask: Any = None,
    causal: bool = False,
    b: Any = None,
    return_sign: bool = False,
    temperature: float | torch.Tensor = 1.0,
    algorithm: str = "auto",
) -> Any:
    """napier.logsumexp with gradients, over a dimension, several, or all (None).

    Complex numbers have gradients too, without weights and on the CPU. mask, causal and algorithm are those of softmax; a row of which
    nothing is left gives -inf.

    b: weights of any sign that broadcast with input: log |sum b exp(input / temperature)|. They have gradients too. A weight of 0 drops
    its element. return_sign: return (logsumexp, sign of the sum). Without it a negative sum gives NaN, and NaN gradients.

    Examples
    --------
    >>> import torch, napier.torch
    >>> x, b = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, -1.0], requires_grad=True)
    >>> lse, sign = napier.torch.logsumexp(x, b=b, return_sign=True)
    >>> lse.backward()
    >>> round(lse.item(), 4), sign.item(), [round(g, 4) for g in x.grad.tolist()], [round(g, 4) for g in b.grad.tolist()]
    (1.5413, -1.0, [-0.582, 1.582], [-0.582, -1.582])
    """
    of_complex = isinstance(input, Tensor) and input.is_complex() and b is None and not return_sign
    if of_complex:
        _check(input=input.real)
    x, kind = (input, input.dtype) if of_complex else _logits(input, None)
    keep = _kept(x, mask, causal)
    if keep is not None:
        hidden = x.masked_fill(~keep, -torch.inf)
        made = logsumexp(hidden, dim, keepdim, b=b, return_sign=return_sign, temperature=temperature, algorithm=algorithm)
        if input.dtype.is_floating_point or of_complex:
            return made
        kind = (
            kind
            if b is None or not torch.is_tensor(b) or not b.dtype.is_floating_point or not b.ndim
            else torch.promote_types(kind, b.dtype)
        )
        return tuple(r.to(kind) for r in made) if return_sign else made.to(kind)
    if b is not None or return_sign:
        b_floats = isinstance(b, Tensor) and b.dtype.is_floating_point and b.ndim > 0
        b = _weights_like(1.0 if b is None else b, x)
        ndim = max(x.ndim, b.ndim)
        axes = _dimensions(dim, ndim)
        lse, sign = _weighted(x, b, axes, _numbers(temperature=temperature))
        if keepdim:
            for axis in sorted(axes):
                lse, sign = lse.unsqueeze(axis), sign.unsqueeze(axis)
        if not input.dtype.is_floating_point:
            lse, sign = (r.to(torch.promote_types(kind, b.dtype) if b_floats else kind) for r in (lse, sign))
        return (lse, sign) if return_sign else lse * torch.where(sign < 0, torch.nan, 1.0).to(lse.dtype)
    axes = _dimensions(dim, x.ndim)
    row, axis = (x, axes[0]) if len(axes) == 1 else (_one_dimension(x, axes), x.ndim - len(axes))
    temperature = _numbers(temperature=temperature)
    result = (_logsumexp_complex(row, axis, temperature) if of_complex else _logsumexp(row, axis, temperature, algorithm)).to(kind)
    return result.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if keepdim else result
