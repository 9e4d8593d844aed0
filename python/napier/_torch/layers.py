"""The steps of a decoder layer between attention: products with weights, rms_norm, rotary, swiglu. Composed, they give the bits
of napier's own models (docs/layers.md)."""

from math import prod
from typing import Any, Optional

import torch

from .. import _napier
from .base import Tensor, _as_tensor, _check, _check_given, _common, _last, _none, _numbers, _once, _operator, _row_major_like, _single


def _rows(x):
    """x [..., H] as [N, H], without a copy where its strides allow it."""
    return x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _expect_shape(name, x, shape):
    if tuple(x.shape) != tuple(shape):
        raise ValueError(f"{name}: expected shape {tuple(shape)}, got {tuple(x.shape)}")


def _expect_axes(name, x, count):
    if x.ndim < count:
        raise ValueError(f"{name}: expected at least {count} dimension{'s'[: count - 1]}, got {x.ndim}")


_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def _result(dtype, default):
    """The dtype of a result."""
    if dtype is not None and dtype not in _DTYPES:
        raise TypeError(f"dtype: expected torch.float32, torch.float16 or torch.bfloat16, got {dtype!r}")
    return default if dtype is None else dtype


# ---- linear ------------------------------------------------------------------------------------------------------------------


def _rounded(x, compute):
    """What is multiplied: float32, or bfloat16."""
    return x.bfloat16() if compute == "bf16" else x.float()


@_operator("linear")
def _linear(x: Tensor, weight: Tensor, bias: Optional[Tensor], compute: str, bf16_gradient: bool) -> Tensor:
    out = _napier.matmul(_rounded(_rows(x), compute), weight.T, dtype=torch.float32, split=compute == "split")
    if bias is not None:
        out += bias.float()
    return out.reshape(*x.shape[:-1], weight.shape[0])


@_operator("linear_backward")
def _linear_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    compute: str,
    bf16_gradient: bool,
    wants_x: bool,
    wants_weight: bool,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    rows = _rows(grad)
    factor = rows.bfloat16() if bf16_gradient else rows
    to_x = _napier.matmul(factor, weight, dtype=x.dtype).reshape(x.shape) if wants_x else _none(x, x.dtype)
    to_weight = _napier.matmul(factor.T, _rounded(_rows(x), compute), dtype=weight.dtype) if wants_weight else _none(x, weight.dtype)
    if not wants_bias:
        return to_x, to_weight, _none(x)
    ones = torch.ones(1, rows.shape[0], dtype=torch.float32)
    return to_x, to_weight, _napier.matmul(ones, rows, dtype=bias.dtype)[0]


@_linear.register_fake
def _(x, weight, *_):
    return x.new_empty(*x.shape[:-1], weight.shape[0], dtype=torch.float32)


@_linear_backward.register_fake
def _(grad, x, weight, bias, compute, bf16_gradient, wants_x, wants_weight, wants_bias):
    return (
        _row_major_like(x) if wants_x else _none(x, x.dtype),
        _row_major_like(weight) if wants_weight else _none(x, weight.dtype),
        _row_major_like(bias) if wants_bias else _none(x),
    )


def _setup_linear(ctx, inputs, output):
    x, weight, bias, *ctx.how = inputs
    ctx.save_for_backward(x, weight, bias)


def _gradient_linear(ctx, grad):
    wants = ctx.needs_input_grad[:3]
    grads = _linear_backward(grad, *ctx.saved_tensors, *ctx.how, *wants)
    return (*(g if wanted else None for g, wanted in zip(grads, wants)), None, None)


_once(_linear, _gradient_linear, _setup_linear, 3)
_last(_linear_backward)


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None, *, compute: str = "f32", bf16_gradient: bool = False
) -> Any:
    """x [..., I] times weight [O, I] transposed, plus bias [O]: float32 [..., O], with gradients with respect to all three.

    compute "f32" multiplies in float32, and widens weights of 16 bits exactly. "bf16" rounds x to bfloat16 first; then weights of
    bfloat16 are multiplied in the order of matrix engines (napier.matmul). "split" has the accuracy of "f32" on matrix engines,
    for weights of bfloat16. So the bits are those of a Qwen3 with this compute.

    The gradients are computed in float32 and rounded once. That of weight takes x as it was multiplied, that of x passes through
    the rounding. bf16_gradient, for compute "bf16" and weights of bfloat16: the gradient of the result is rounded to bfloat16
    before it is multiplied, as in PyTorch. This is faster, most of all on a matrix engine.

    Examples
    --------
    >>> import torch, napier.torch
    >>> x, weight = torch.ones(2, 3, requires_grad=True), torch.eye(3, dtype=torch.bfloat16)
    >>> napier.torch.linear(x, weight, torch.tensor([0.0, 0.0, 5.0])).tolist()
    [[1.0, 1.0, 6.0], [1.0, 1.0, 6.0]]
    """
    _check(x=x, weight=weight)
    _check_given(bias=bias)
    if compute not in ("f32", "bf16", "split"):
        raise ValueError(f"compute: expected 'f32', 'bf16' or 'split', got {compute!r}")
    if bf16_gradient and (compute != "bf16" or weight.dtype != torch.bfloat16):
        raise ValueError(f"bf16_gradient: expected compute 'bf16' and weight of torch.bfloat16, got {compute!r} and {weight.dtype}")
    _expect_axes("x", x, 1)
    if weight.ndim != 2 or weight.shape[1] != x.shape[-1]:
        raise ValueError(f"weight: shape {tuple(weight.shape)} does not fit x's, {tuple(x.shape)}; expected [O, {x.shape[-1]}]")
    if bias is not None:
        _expect_shape("bias", bias, weight.shape[:1])
    return _linear(_single(x), _single(weight), None if bias is None else _single(bias), compute, bool(bf16_gradient))


# ---- rms_norm ----------------------------------------------------------------------------------------------------------------


@_operator("rms_norm")
def _rms_norm(x: Tensor, weight: Tensor, epsilon: Tensor, dtype: torch.dtype) -> Tensor:
    return _napier._rms_norm(_rows(x), weight, epsilon.item(), dtype).reshape(x.shape)


@_operator("rms_norm_backward")
def _rms_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, epsilon: Tensor, wants_x: bool, wants_weight: bool
) -> tuple[Tensor, Tensor]:
    to_x, to_weight = _napier._rms_norm_backward(_rows(grad), _rows(x), weight, epsilon.item(), wants_x, wants_weight)
    return to_x.reshape(x.shape) if wants_x else _none(x, x.dtype), to_weight if wants_weight else _none(x, weight.dtype)


_rms_norm.register_fake(lambda x, weight, epsilon, dtype: x.new_empty(x.shape, dtype=dtype))


@_rms_norm_backward.register_fake
def _(grad, x, weight, epsilon, wants_x, wants_weight):
    return (_row_major_like(x) if wants_x else _none(x, x.dtype), _row_major_like(weight) if wants_weight else _none(x, weight.dtype))


def _gradient_rms_norm(ctx, grad):
    wants = ctx.needs_input_grad[:2]
    grads = _rms_norm_backward(grad, *ctx.saved_tensors, *wants)
    return (*(g if wanted else None for g, wanted in zip(grads, wants)), None, None)


_once(_rms_norm, _gradient_rms_norm, lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:3]), 2)
_last(_rms_norm_backward)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, *, epsilon: float | torch.Tensor = 1e-6, dtype: Optional[torch.dtype] = None) -> Any:
    """napier.rms_norm with gradients with respect to x [..., H] and weight [H]. dtype is that of the result; default: x's.

    Examples
    --------
    >>> import torch, napier.torch
    >>> x, weight = torch.tensor([[2.0, -2.0]], requires_grad=True), torch.tensor([1.0, 0.5])
    >>> napier.torch.rms_norm(x, weight, epsilon=0.0).tolist()
    [[1.0, -0.5]]
    """
    _check(x=x, weight=weight)
    _expect_axes("x", x, 1)
    _expect_shape("weight", weight, x.shape[-1:])
    x = _single(x)
    return _rms_norm(x, _single(weight), _numbers(epsilon=epsilon), _result(dtype, x.dtype))


# ---- swiglu ------------------------------------------------------------------------------------------------------------------


def _elements(x):
    return _rows(x) if x.ndim else x.reshape(1, 1)


@_operator("swiglu")
def _swiglu(gate: Tensor, up: Tensor, dtype: torch.dtype) -> Tensor:
    return _napier._swiglu(_elements(gate), _elements(up), dtype).reshape(gate.shape)


@_operator("swiglu_backward")
def _swiglu_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    to_gate, to_up = _napier._swiglu_backward(_elements(grad), _elements(gate), _elements(up))
    return to_gate.reshape(gate.shape), to_up.reshape(up.shape)


_swiglu.register_fake(lambda gate, up, dtype: gate.new_empty(gate.shape, dtype=dtype))


@_swiglu_backward.register_fake
def _(grad, gate, up):
    return _row_major_like(gate), _row_major_like(up)


def _gradient_swiglu(ctx, grad):
    return *_swiglu_backward(grad, *ctx.saved_tensors), None


_once(_swiglu, _gradient_swiglu, lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:2]), 2)
_last(_swiglu_backward)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, dtype: Optional[torch.dtype] = None) -> Any:
    """napier.swiglu with gradients with respect to both: gate / (1 + exp(-gate)) * up. Both have one shape. dtype is that of the
    result; default: theirs, or float32 if they differ.

    Examples
    --------
    >>> import torch, napier.torch
    >>> gate = torch.zeros(2, requires_grad=True)
    >>> napier.torch.swiglu(gate, torch.tensor([5.0, 2.0])).sum().backward()
    >>> gate.grad.tolist()
    [2.5, 1.0]
    """
    _check(gate=gate, up=up)
    _expect_shape("up", up, gate.shape)
    gate, up = _single(gate), _single(up)
    return _swiglu(gate, up, _result(dtype, _common(gate.dtype, up.dtype)))


# ---- rotary ------------------------------------------------------------------------------------------------------------------


def _rotated(x, cosines, sines, back, dtype):
    heads = x if x.ndim == 3 else x.reshape(prod(x.shape[:-2]), *x.shape[-2:])
    return _napier._rotary(heads, _rows(cosines), _rows(sines), back, dtype).reshape(x.shape)


@_operator("rotary")
def _rotary(x: Tensor, cosines: Tensor, sines: Tensor, dtype: torch.dtype) -> Tensor:
    return _rotated(x, cosines, sines, False, dtype)


@_operator("rotary_backward")
def _rotary_backward(grad: Tensor, cosines: Tensor, sines: Tensor, dtype: torch.dtype) -> Tensor:
    return _rotated(grad, cosines, sines, True, dtype)


@_rotary.register_fake
@_rotary_backward.register_fake
def _(x, cosines, sines, dtype):
    return x.new_empty(x.shape, dtype=dtype)


def _setup_rotary(ctx, inputs, output):
    x, cosines, sines, _ = inputs
    ctx.dtype = x.dtype
    ctx.save_for_backward(cosines, sines)


def _gradient_rotary(ctx, grad):
    return _rotary_backward(grad, *ctx.saved_tensors, ctx.dtype), None, None, None


_once(_rotary, _gradient_rotary, _setup_rotary)
_last(_rotary_backward)


def rotary(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, *, dtype: Optional[torch.dtype] = None) -> Any:
    """napier.rotary with gradients with respect to x [..., heads, dim]. cosines and sines are those of rotary_angles,
    [..., dim / 2], and have no gradient. dtype is that of the result; default: x's.

    Examples
    --------
    >>> import torch, napier.torch
    >>> cosines, sines = napier.torch.rotary_angles(torch.tensor([0, 1]), *napier.torch.rotary_frequencies(2))
    >>> x = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]])
    >>> [[round(i, 4) for i in head] for [head] in napier.torch.rotary(x, cosines, sines).tolist()]
    [[1.0, 0.0], [0.5403, 0.8415]]
    """
    _check(x=x, cosines=cosines, sines=sines)
    _expect_axes("x", x, 2)
    if x.shape[-1] % 2:
        raise ValueError(f"x: dim {x.shape[-1]} is odd")
    for name, angles in (("cosines", cosines), ("sines", sines)):
        _expect_shape(name, angles, (*x.shape[:-2], x.shape[-1] // 2))
    x = _single(x)
    return _rotary(x, cosines.float(), sines.float(), _result(dtype, x.dtype))


@_operator("rotary_angles")
def _rotary_angles(positions: Tensor, inverse: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    cosines, sines = _napier._rotary_angles(positions.reshape(-1), inverse, scale.item())
    shape = *positions.shape, inverse.shape[0]
    return cosines.reshape(shape), sines.reshape(shape)


@_rotary_angles.register_fake
def _(positions, inverse, scale):
    cosines = torch.empty(*positions.shape, inverse.shape[0], dtype=torch.float32, device=positions.device)
    return cosines, torch.empty_like(cosines)


_once(_rotary_angles, lambda ctx, *_: (None,) * 3, lambda ctx, inputs, output: None, 0)


def rotary_angles(positions: Any, inverse: Any, scale: float | torch.Tensor = 1.0) -> tuple[Any, Any]:
    """napier.rotary_angles: (cosines, sines) of integer positions [...], float32 [..., dim / 2]. They have no gradient.

    Examples
    --------
    >>> import torch, napier.torch
    >>> inverse, scale = napier.torch.rotary_frequencies(2)
    >>> cosines, sines = napier.torch.rotary_angles(torch.tensor([0, 1]), inverse, scale)
    >>> [round(c, 4) for c in cosines.flatten().tolist()]
    [1.0, 0.5403]
    """
    positions, inverse = _as_tensor(positions), _as_tensor(inverse)
    _check(positions=positions, inverse=inverse)
    if inverse.ndim != 1:
        raise ValueError(f"inverse: expected 1 dimension, got {inverse.ndim}")
    return _rotary_angles(positions, inverse.float(), _numbers(scale=scale))


def rotary_frequencies(dim: int, **options: Any) -> tuple[Any, float]:
    """napier.rotary_frequencies, which has the options, with the frequencies as a tensor: (inverse [dim / 2], scale).

    Examples
    --------
    >>> import napier.torch
    >>> inverse, scale = napier.torch.rotary_frequencies(4, theta=100.0)
    >>> [round(f, 4) for f in inverse.tolist()], scale
    ([1.0, 0.1], 1.0)
    """
    inverse, scale = _napier.rotary_frequencies(dim, **options)
    return torch.from_numpy(inverse), scale
