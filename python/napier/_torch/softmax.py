"""softmax, log_softmax and sparsemax with derivatives of every order, with masks, and the sums and exponentials of these derivatives."""

from typing import Any, Optional

import torch

from .. import _napier
from .._ops.masked import kept
from .base import Tensor, _as_tensor, _check, _check_given, _differentiable, _is_ordinary, _numbers, _operator, _row_major_like


@_operator("softmax")
def _softmax(x: Tensor, axis: int, temperature: Tensor, masked_rows: str, algorithm: str = "auto") -> Tensor:
    return _napier.softmax(x, axis, temperature=temperature.item(), masked_rows=masked_rows, algorithm=algorithm)


@_operator("log_softmax")
def _log_softmax(x: Tensor, axis: int, temperature: Tensor, masked_rows: str, algorithm: str = "auto") -> Tensor:
    return _napier.log_softmax(x, axis, temperature=temperature.item(), masked_rows=masked_rows, algorithm=algorithm)


@_operator("softmax_backward")
def _softmax_backward(y: Tensor, grad: Tensor, axis: int, temperature: Tensor) -> Tensor:
    return _napier.softmax_backward(y, grad, axis, temperature=temperature.item())


@_operator("log_softmax_backward")
def _log_softmax_backward(y: Tensor, grad: Tensor, axis: int, temperature: Tensor) -> Tensor:
    return _napier.log_softmax_backward(y, grad, axis, temperature=temperature.item())


@_operator("sparsemax")
def _sparsemax(x: Tensor, axis: int, temperature: Tensor, masked_rows: str, algorithm: str = "auto") -> Tensor:
    return _napier.sparsemax(x, axis, temperature=temperature.item(), masked_rows=masked_rows, algorithm=algorithm)


@_operator("sparsemax_backward")
def _sparsemax_backward(y: Tensor, grad: Tensor, axis: int, temperature: Tensor) -> Tensor:
    return _napier.sparsemax_backward(y, grad, axis, temperature=temperature.item())


def _at_least_single(x):
    return x if x.dtype == torch.float64 else x.float()


@_operator("dot")
def _dot_operator(a: Tensor, b: Tensor, axis: int) -> Tensor:
    return _napier._dot_rows(a, b, axis)


@_dot_operator.register_fake
def _(a, b, axis):
    return torch.empty(a.shape[:axis] + (1,) * (a.ndim > 0) + a.shape[axis + 1 :], dtype=a.dtype, device=a.device)


def _tangent_dot(s, tangents):
    parts = [_dot(x, y, s.axis) for x, y in ((tangents[0], s.b), (s.a, tangents[1])) if x is not None and y is not None]
    return sum(parts[1:], parts[0])


_dot = _differentiable(_dot_operator, 2, ("a", "b"), lambda s, grad: (grad * s.b, grad * s.a), _tangent_dot)


@_operator("exp")
def _exp_operator(x: Tensor) -> Tensor:
    return _napier._exp(x)


_exp_operator.register_fake(_row_major_like)
_exp = _differentiable(_exp_operator, 1, ("result",), lambda s, grad: grad * s.result, lambda s, t: t[0] * s.result)


@_operator("log")
def _log_operator(x: Tensor) -> Tensor:
    return _napier._log(x)


_log_operator.register_fake(_row_major_like)
_log = _differentiable(_log_operator, 1, ("x",), lambda s, grad: grad / s.x, lambda s, t: t[0] / s.x)


def _over(x, s):
    """x / temperature, rounded to the dtype of the operator's inputs."""
    return x / s.temperature.to(x.dtype).reshape(())


def _sum_of(*parts):
    first, *others = [p for p in parts if p is not None]
    return sum(others, first)


for _each in (_softmax, _softmax_backward, _log_softmax, _log_softmax_backward, _sparsemax, _sparsemax_backward):
    _each.register_fake(_row_major_like)


# softmax: y (g - <y, g>) / T. The Jacobian is symmetric, so the tangent is the gradient's formula.


def _gradient_softmax_backward(s, to):
    y, grad, to = map(_at_least_single, (s.y, s.grad, to))
    to_y = to * (grad - _dot(y, grad, s.axis)) - grad * _dot(y, to, s.axis)
    return _over(to_y, s).to(s.y.dtype), _softmax_backward(s.y, to.to(s.y.dtype), s.axis, s.temperature).to(s.grad.dtype)


def _tangent_softmax_backward(s, tangents):
    y, grad, of_y = _at_least_single(s.y), _at_least_single(s.grad), tangents[0]
    if of_y is not None:
        of_y = _at_least_single(of_y)
        of_y = _over(of_y * (grad - _dot(y, grad, s.axis)) - y * _dot(of_y, grad, s.axis), s).to(s.y.dtype)
    of_grad = None if tangents[1] is None else _softmax_backward(s.y, tangents[1], s.axis, s.temperature)
    return _sum_of(of_y, of_grad)


_softmax_backward = _differentiable(
    _softmax_backward, 2, ("y", "grad", "temperature"), _gradient_softmax_backward, _tangent_softmax_backward
)
_softmax = _differentiable(
    _softmax,
    1,
    ("result", "temperature"),
    lambda s, grad: _softmax_backward(s.result, grad, s.axis, s.temperature),
    lambda s, t: _softmax_backward(s.result, t[0], s.axis, s.temperature),
    is_wide=True,
)

# log_softmax: (g - p sum g) / T with p = exp(y) = softmax(y); its tangent is (t - <p, t>) / T.


def _probs(y, axis):
    return _softmax(y, axis, _numbers(temperature=1.0), "zero")


def _through_log_softmax(s, y, t):
    y, wide = _at_least_single(y), _at_least_single(t)
    return _over(wide - _dot(_probs(y, s.axis), wide, s.axis), s).to(t.dtype)


def _share(s, to):
    """-p * to * sum of the gradient / T: the derivative of log_softmax_backward with respect to y."""
    y, grad, to = map(_at_least_single, (s.y, s.grad, to))
    return _over(-_probs(y, s.axis) * to * _dot(torch.ones_like(grad), grad, s.axis), s).to(s.y.dtype)


def _tangent_log_softmax_backward(s, tangents):
    of_y, of_grad = tangents
    return _sum_of(
        None if of_y is None else _share(s, of_y), None if of_grad is None else _log_softmax_backward(s.y, of_grad, s.axis, s.temperature)
    )


_log_softmax_backward = _differentiable(
    _log_softmax_backward,
    2,
    ("y", "grad", "temperature"),
    lambda s, to: (_share(s, to), _through_log_softmax(s, s.y, to).to(s.grad.dtype)),
    _tangent_log_softmax_backward,
)
_log_softmax = _differentiable(
    _log_softmax,
    1,
    ("result", "temperature"),
    lambda s, grad: _log_softmax_backward(s.result, grad, s.axis, s.temperature),
    lambda s, t: _through_log_softmax(s, s.result, t[0]),
    is_wide=True,
)

# sparsemax: where y > 0, g less its mean there. The gradient depends on y only by where it is positive.

_sparsemax_backward = _differentiable(
    _sparsemax_backward,
    2,
    ("y", "temperature"),
    lambda s, to: (None, _sparsemax_backward(s.y, to, s.axis, s.temperature)),
    lambda s, t: torch.zeros_like(s.y) if t[1] is None else _sparsemax_backward(s.y, t[1], s.axis, s.temperature),
)
_sparsemax = _differentiable(
    _sparsemax,
    1,
    ("result", "temperature"),
    lambda s, grad: _sparsemax_backward(s.result, grad, s.axis, s.temperature),
    lambda s, t: _sparsemax_backward(s.result, t[0], s.axis, s.temperature),
)


def _floats(input):
    """8-bit floats as float32, which holds them exactly."""
    tiny = isinstance(input, Tensor) and input.dtype.is_floating_point and input.dtype.itemsize < 2
    return input.float() if tiny else input


def _logits(input, dtype):
    """The tensor in the dtype of the call, and the dtype of a result that is rounded afterwards. Integers are computed in
    float64, and give PyTorch's default dtype; 8-bit floats give float32."""
    if dtype is not None and (not isinstance(dtype, torch.dtype) or not dtype.is_floating_point):
        raise TypeError(f"dtype: expected a floating-point dtype of torch, got {dtype!r}")
    if dtype is not None and isinstance(input, Tensor) and input.is_complex():
        input = input.to(dtype)
    input = _floats(input)
    _check(input=input)
    if dtype is not None:
        input = input.to(dtype)
        _check(input=input)
    return (input, input.dtype) if input.dtype.is_floating_point else (input.double(), torch.get_default_dtype())


def _kept(x, mask, causal):
    """Which elements a mask and causal keep, as bool with x's shape."""
    mask = _as_tensor(mask, x, "mask")
    _check_given(mask=mask)
    return kept(x, mask, causal, "the input")


def _map(operator, function, input, dim, dtype, mask, causal, temperature, masked_rows, algorithm):
    """The result, and the kept elements or None. Where some are hidden, the function is called again without mask and causal."""
    x, kind = (input, input.dtype) if dtype is None and _is_ordinary(input) else _logits(input, dtype)
    keep = None if mask is None and not causal else _kept(x, mask, causal)
    if keep is not None:
        x = x.masked_fill(~keep, -torch.inf)
        return function(x, dim, temperature=temperature, masked_rows=masked_rows, algorithm=algorithm).to(kind), keep
    y = operator(x, _dimension(dim, x.ndim), _numbers(temperature=temperature), masked_rows, algorithm)
    return y if y.dtype == kind else y.to(kind), None


def softmax(
    input: torch.Tensor,
    dim: int = -1,
    dtype: Optional[torch.dtype] = None,
    *,
    mask: Any = None,
    causal: bool = False,
    temperature: float | torch.Tensor = 1.0,
    masked_rows: str = "nan",
    algorithm: str = "auto",
) -> Any:
    """napier.softmax with gradients: exp(input / temperature - logsumexp) along a dimension. dtype: the input is converted to it
    first, as in PyTorch.

    mask: bool or integers that broadcast to the input; 0 hides an element, as a logit of -inf does, whatever it is, and it gets no
    gradient. causal: of the last two dimensions, queries and keys, the last query keeps all keys, and each earlier query one fewer.
    masked_rows: the result of a row of which nothing is left: 'nan', or 'zero' as in PyTorch's attention. algorithm: how a row is read,
    with the same bits (docs/softmax.md).

    Examples
    --------
    >>> import torch, napier.torch
    >>> x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    >>> napier.torch.softmax(x)[0].backward()
    >>> [round(g, 4) for g in x.grad.tolist()]
    [0.0402, -0.0048, -0.0354]
    >>> napier.torch.softmax(torch.zeros(2, 2), causal=True).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    return _map(_softmax, softmax, input, dim, dtype, mask, causal, temperature, masked_rows, algorithm)[0]


def log_softmax(
    input: torch.Tensor,
    dim: int = -1,
    dtype: Optional[torch.dtype] = None,
    *,
    mask: Any = None,
    causal: bool = False,
    temperature: float | torch.Tensor = 1.0,
    masked_rows: str = "nan",
    algorithm: str = "auto",
) -> Any:
    """napier.log_softmax with gradients: input / temperature - logsumexp along a dimension. Arguments as in softmax. A hidden element
    is -inf; the gradient with respect to it is ignored.

    Examples
    --------
    >>> import torch, napier.torch
    >>> x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> (-napier.torch.log_softmax(x)[2]).backward()  # the cross-entropy of class 2
    >>> [round(g, 4) for g in x.grad.tolist()]
    [0.09, 0.2447, -0.3348]
    """
    y, keep = _map(_log_softmax, log_softmax, input, dim, dtype, mask, causal, temperature, masked_rows, algorithm)
    return y if keep is None else torch.where(keep, y, y.detach())


def sparsemax(
    input: torch.Tensor,
    dim: int = -1,
    dtype: Optional[torch.dtype] = None,
    *,
    mask: Any = None,
    causal: bool = False,
    temperature: float | torch.Tensor = 1.0,
    masked_rows: str = "nan",
    algorithm: str = "auto",
) -> Any:
    """napier.sparsemax with gradients: the probabilities nearest to input / temperature along a dimension. Arguments as in
    softmax.

    Examples
    --------
    >>> import torch, napier.torch
    >>> x = torch.tensor([1.0, 0.5, -1.0], requires_grad=True)
    >>> probs = napier.torch.sparsemax(x)
    >>> probs[0].backward()
    >>> probs.tolist(), x.grad.tolist()
    ([0.75, 0.25, 0.0], [0.5, -0.5, 0.0])
    """
    return _map(_sparsemax, sparsemax, input, dim, dtype, mask, causal, temperature, masked_rows, algorithm)[0]


def safe_softmax(input: torch.Tensor, dim: int = -1, **options: Any) -> Any:
    """softmax in three passes over a row: maximum, sum, result. The bits are those of `softmax`, as are the options. With
    masked_rows="zero" rows without a number give zeros, as in PyTorch's attention.

    Examples
    --------
    >>> import torch, napier.torch
    >>> napier.torch.safe_softmax(torch.tensor([-torch.inf, -torch.inf]), masked_rows="zero").tolist()
    [0.0, 0.0]
    """
    return softmax(input, dim, algorithm="safe", **options)


def online_softmax(input: torch.Tensor, dim: int = -1, **options: Any) -> Any:
    """softmax in two passes over a row: maximum and sum together, then the result. The bits are those of `softmax`.

    Examples
    --------
    >>> import torch, napier.torch
    >>> napier.torch.online_softmax(torch.tensor([1000.0, 1000.0])).tolist()
    [0.5, 0.5]
    """
    return softmax(input, dim, algorithm="online", **options)


def reduce_softmax(input: torch.Tensor, dim: int = -1, **options: Any) -> Any:
    """softmax with every row split over all threads. The bits are those of `softmax`.

    Examples
    --------
    >>> import torch, napier.torch
    >>> napier.torch.reduce_softmax(torch.tensor([0.0, -torch.inf])).tolist()
    [1.0, 0.0]
    """
    return softmax(input, dim, algorithm="parallel", **options)


fused_log_softmax = log_softmax


def _dimension(dim, ndim):
    most = max(ndim, 1)
    if not hasattr(dim, "__index__"):
        raise TypeError(f"dim: expected an int, got {dim!r}")
    if not -most <= dim < most:
        raise IndexError(f"dim: {dim} is out of range for a tensor of {ndim} dimensions")
    return int(dim) % most


def _dimensions(dim, ndim):
    """One, several or all dimensions (None, or an empty tuple) as a list; empty for a tensor without dimensions."""
    dims = [_dimension(i, ndim) for i in (dim if isinstance(dim, (tuple, list)) else () if dim is None else (dim,))]
    if not dims:
        return list(range(ndim))
    if len(set(dims)) != len(dims):
        raise ValueError(f"dim: {dim} names a dimension twice")
    return dims if ndim else []
