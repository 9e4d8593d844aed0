"""What the operators of napier.torch share: checks of tensors, registration with torch.library, numbers as tensors."""

import collections
import functools
import inspect
import struct
import threading
import types
from typing import Any, Optional

import torch
from torch.autograd import forward_ad
from torch.func import debug_unwrap

from .. import _napier

if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    raise ImportError("napier.torch needs PyTorch 2.10 or later")

Tensor = torch.Tensor


@torch.compiler.assume_constant_result
def _gpus():
    """The number of GPUs that this build can use. Called only for the first GPU tensor, because it starts the CUDA runtime."""
    return _napier.cuda_device_count()


def _check_given(**tensors):
    """_check of arguments that may be None."""
    _check(**{name: x for name, x in tensors.items() if x is not None})


_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def _is_ordinary(x):
    """Whether it is a tensor of floats in the CPU's memory, as almost all are."""
    return type(x) in (Tensor, torch.nn.Parameter) and x.is_cpu and x.dtype in _FLOATS and x.layout is torch.strided and not x.is_nested


def _check(**tensors):
    """Raises an error that names the argument if it is not a supported tensor, or is on an unsupported device."""
    for name, x in tensors.items():
        if _is_ordinary(x):
            continue
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
        if x.is_complex():
            raise TypeError(f"{name}: complex numbers are not supported (use .real, .imag or .abs())")
        if x.dtype.is_floating_point and x.dtype.itemsize < 2:
            raise TypeError(f"{name}: {x.dtype} is not supported (use .to(torch.float16))")
        if type(x).__name__ == "MaskedTensor":
            raise NotImplementedError(f"{name}: masked tensors are not supported (use .to_tensor(value))")
        if x.is_nested:
            raise NotImplementedError(f"{name}: nested tensors are not supported (use .to_padded_tensor(), or a tensor with offsets)")
        if x.is_quantized:
            raise NotImplementedError(f"{name}: quantized tensors are not supported (use .dequantize())")
        if x.layout != torch.strided:
            raise NotImplementedError(f"{name}: tensors of {x.layout} are not supported (use .to_dense())")
        if x.device.type in ("cpu", "meta"):
            continue
        if x.device.type != "cuda":
            raise NotImplementedError(f"{name}: the tensor is on {x.device}; napier computes on the CPU and on CUDA devices (use .cpu())")
        if _gpus() == 0:
            raise NotImplementedError(
                f"{name}: the tensor is on {x.device}, and this build of napier computes on the CPU "
                "only: it was built without CUDA, or finds no device of compute capability 8.0 or "
                "later (use .cpu())"
            )


# Every function of tensors is made of operators of torch.library. An operator has two names: napier::softmax, which has derivatives and
# stands in compiled graphs, and napier::_softmax, which computes values only. PyTorch calls a Python function for the derivatives of the
# first one even where there are none to compute, which takes longer than a small softmax; so calls outside of graphs use the second one.

_library = torch.library.Library("napier", "DEF")


class _Derivation(threading.local):
    is_running = False  # PyTorch is asking for the tangent of an operator; functions with rules for transforms do not work there


_derivation = _Derivation()


class _Operator:
    """What torch.library knows of a function that takes tensors and returns new ones. A function without GPU kernels raises its own
    error."""

    def __init__(self, name, function):
        self.name, self.title = name, "napier.torch." + name.removesuffix("_backward").removesuffix("_weighted")
        parameters = inspect.signature(function).parameters
        self.names, self.defaults = list(parameters), [p.default for p in parameters.values()]
        self.plain = [i for i, p in enumerate(parameters.values()) if p.annotation not in (Tensor, Optional[Tensor])]
        self.tensors, self.is_wide = 0, False
        self.recorded: Any = None
        self.transformed: Any = None
        self.forward_mode: Any = None
        for each in (name, "_" + name):
            _library.define(each + torch.library.infer_schema(function, mutates_args=()))
            for device in ("CPU", "CUDA"):
                _library.impl(each, function, device)
        self.whole, self.values = (getattr(torch.ops.napier, each).default for each in (name, "_" + name))

    def register_fake(self, fake):
        """The rule for shapes and dtypes, without data."""
        for each in (self.name, "_" + self.name):
            torch.library.register_fake(f"napier::{each}", fake, lib=_library)
        return fake

    def with_defaults(self, args):
        return (*args, *self.defaults[len(args) :])  # PyTorch drops arguments that are the defaults

    def in_single(self, args):
        """Whether derivatives are computed from float32, with the same bits of the result. From a result of 16 bits they would be wrong by
        percents: the probability of a log-probability of -9.5 in bfloat16 by 3 %."""
        return self.is_wide and args[0].dtype in (torch.bfloat16, torch.float16)

    def __call__(self, *args):
        if _is_traced() or _derivation.is_running:
            return self.whole(*args)
        use = _use_of(args)
        if use == PLAIN:
            return self.values(*args)
        args = self.with_defaults(args)
        if self.in_single(args):
            return self(args[0].float(), *args[1:]).to(args[0].dtype)
        if use == FORWARD:
            return _dual(self, args)
        if use == RECORDED:
            try:
                return self.recorded(*args)
            except RuntimeError:  # also PyTorch's own: torch.func transforms a function that captured the tensor
                pass
        return self.transformed(*args)


def _operator(name):
    return functools.partial(_Operator, name)


PLAIN, RECORDED, TRANSFORMED, FORWARD = range(4)
_is_traced = torch.compiler.is_compiling


def _use_of(args):
    """What PyTorch does with the result of a call: PLAIN, nothing; RECORDED, a gradient; FORWARD, the innermost of torch.func's transforms
    a tangent; TRANSFORMED, all else, which an autograd.Function with rules for it does."""
    use, recording = PLAIN, torch.is_grad_enabled()
    for x in args:
        if isinstance(x, Tensor) and x is not _ONE:
            is_whole = debug_unwrap(x, recurse=False) is x
            try:
                has_tangent = forward_ad.unpack_dual(x).tangent is not None
            except RuntimeError:  # vmap is the innermost transform, or gradients are batched (is_grads_batched), which wraps nothing
                if not is_whole:
                    return TRANSFORMED
                has_tangent = False
            if has_tangent:
                use = TRANSFORMED if is_whole else FORWARD
            elif not is_whole:
                use = max(use, TRANSFORMED)
            elif recording and x.requires_grad:
                use = max(use, RECORDED)
    return use


def _is_whole(x):
    """Whether no transform of torch.func has wrapped the tensor."""
    return debug_unwrap(x, recurse=False) is x


def _dual(operator, args):
    """The result with its tangent, from the result without."""
    primals, tangents = zip(*[forward_ad.unpack_dual(x) if isinstance(x, Tensor) else (x, None) for x in args])
    _refuse_tangents(operator, tangents)
    output = operator(*primals)
    return forward_ad.make_dual(output, operator.forward_mode(output, primals, tangents))


class _Tangents:
    """Counts the tangents that PyTorch asks one call for."""

    count = 0


def _once(operator, backward, setup, tensors=1, forward_mode=None):
    """Registers gradients with respect to the first `tensors` inputs of an operator, once differentiable.
    forward_mode(output, inputs, tangents) is the output's tangent, for an operator with one output."""
    _register(operator, tensors, backward, setup)
    operator.forward_mode = forward_mode


def _last(operator):
    """Registers an operator that computes a gradient and has none itself."""

    def refuse(ctx, *_):
        raise NotImplementedError(
            f"{operator.title}: gradients are once differentiable (create_graph=True differentiates "
            "them again); use PyTorch's own functions for second derivatives"
        )

    _register(operator, len(operator.names), refuse, lambda ctx, inputs, output: None)


def _differentiable(operator, tensors, needs, backward, tangent, is_wide=False):
    """Registers derivatives with respect to the first `tensors` inputs that can be differentiated again, for an operator with
    one output. Returns the operator.

    backward(s, grad) returns the gradients, tangent(s, tangents) the output's tangent (tangents may be None). s has the
    arguments that are no tensors, those in `needs`, and the result if it is in `needs`. is_wide: see _Operator.in_single."""
    names, plain = operator.names, operator.plain
    rest = (None,) * (len(names) - tensors)
    kept = [names.index(name) if name != "result" else -1 for name in needs]
    record = collections.namedtuple("record", [*(names[i] for i in plain), *needs])  # type: ignore[misc]

    def save(ctx, inputs, output):
        given = *inputs, output
        ctx.plain = [inputs[i] for i in plain]
        ctx.save_for_backward(*[given[i] for i in kept])
        ctx.set_materialize_grads(False)

    def saved(ctx):
        return record(*ctx.plain, *ctx.saved_tensors)

    def gradient(ctx, grad):
        if grad is None:
            return (None,) * len(names)
        grads = backward(saved(ctx), grad)
        return grads + rest if isinstance(grads, tuple) else (grads, *rest)

    def forward_mode(output, inputs, tangents):
        return tangent(types.SimpleNamespace(**dict(zip(names, inputs), result=output)), tangents[:tensors])

    _register(operator, tensors, gradient, save, needs, lambda ctx, tangents: tangent(saved(ctx), tangents[:tensors]))
    operator.forward_mode, operator.is_wide = forward_mode, is_wide
    return operator


def _register(operator, tensors, backward, setup, needs=(), jvp=None):
    """Registers derivatives with respect to the first `tensors` inputs: backward(ctx, *grads) after setup(ctx, inputs, output), and
    jvp(ctx, tangents), which uses the arguments and the result that are in `needs`."""
    names, title = operator.names, operator.title
    operator.tensors = tensors

    def check(needed):
        if True in needed[tensors:]:
            name = names[needed.index(True, tensors)]
            raise RuntimeError(f"{title}: {name} has no gradient here; use .detach()")

    class Recorded(torch.autograd.Function):
        """For a gradient that PyTorch records. A setup_context would make each call longer by several times."""

        @staticmethod
        def forward(ctx, *inputs):
            check(ctx.needs_input_grad)
            output = operator.values(*inputs)
            setup(ctx, inputs, output)
            return output

    class Transformed(torch.autograd.Function):
        """For torch.func's transforms. The last input counts tangents."""

        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs):
            return operator.values(*[x.detach() if isinstance(x, Tensor) else x for x in inputs[:-1]])

        @staticmethod
        def setup_context(ctx, inputs, output):
            *inputs, ctx.tangents = inputs
            check(ctx.needs_input_grad)
            if not jvp and not all([_is_whole(x) for x, needed in zip(inputs, ctx.needs_input_grad) if needed]):
                raise NotImplementedError(f"{title}: no gradients inside torch.func's transforms; use backward() or torch.autograd.grad")
            setup(ctx, inputs, output)
            given = dict(zip(names, inputs), result=output)
            ctx.save_for_forward(*[given[name] for name in needs])

        @staticmethod
        def backward(ctx, *grads):
            return *backward(ctx, *grads), None

        @staticmethod
        def jvp(ctx, *tangents):
            _refuse_tangents(operator, tangents[:-1])
            ctx.tangents.count += 1
            if ctx.tangents.count > 1:  # PyTorch drops the outer tangent of this one
                raise NotImplementedError(
                    f"{title}: forward mode twice around a gradient, or three times, is not supported "
                    "(jacfwd(jacfwd(jacrev(f)))); use reverse mode for two of the three"
                )
            return jvp(ctx, tangents)

    Recorded.backward = staticmethod(backward)
    operator.recorded = Recorded.apply
    operator.transformed = lambda *args: Transformed.apply(*args, _Tangents())
    _library.impl(operator.name, functools.partial(_derive, operator), "Autograd")


def _derive(operator, *args):
    """What PyTorch calls for the derivatives of napier::name: in compiled graphs, and where the operator itself is called.
    torch.library.register_autograd would drop the tangents of forward mode."""
    args = operator.with_defaults(args)
    duals = [_dual_of(x) for x in args]
    recorded = [x for x in args if isinstance(x, Tensor) and x.requires_grad] if torch.is_grad_enabled() else []
    has_tangent = any([dual.tangent is not None for dual in duals])
    if (recorded or has_tangent) and operator.in_single(args):
        return operator.whole(args[0].float(), *args[1:]).to(args[0].dtype)
    if not has_tangent:
        if recorded and all([_is_whole(x) for x in recorded]):
            return operator.recorded(*args)
        if recorded:
            raise NotImplementedError(
                f"{operator.title}: no gradients inside torch.func's transforms; use backward() or torch.autograd.grad"
            )
        if any([_has_tangent_below(x) for x in args if isinstance(x, Tensor)]):
            raise NotImplementedError(f"{operator.title}: forward mode twice is not supported here; use reverse mode for one of the two")
        return operator.values(*args)
    primals, tangents = zip(*duals)
    _refuse_tangents(operator, tangents)
    if recorded:
        raise NotImplementedError(
            f"{operator.title}: forward mode over a recorded gradient is not supported; use .detach(), or PyTorch's own function"
        )
    output = operator.whole(*primals)
    was, _derivation.is_running = _derivation.is_running, True
    try:
        return forward_ad.make_dual(output, operator.forward_mode(output, primals, tangents), level=0)
    finally:
        _derivation.is_running = was


def _has_tangent_below(x):
    """Whether a transform around the innermost one gives the tensor a tangent, which napier::_name would drop."""
    while not _is_whole(x):
        x = debug_unwrap(x, recurse=False)
        if forward_ad.unpack_dual(x, level=0).tangent is not None:
            return True
    return False


def _dual_of(x):
    """(primal, tangent or None). PyTorch has only level 0, which compiled graphs enter in their own way."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return forward_ad.UnpackedDualTensor(x, None)
    dual = forward_ad.unpack_dual(x, level=0)
    return forward_ad.UnpackedDualTensor(x, None) if dual.tangent is None else dual


def _refuse_tangents(operator, tangents):
    first = operator.tensors if operator.forward_mode else 0
    missing = [name for name, t in zip(operator.names[first:], tangents[first:]) if t is not None]
    if missing:
        raise NotImplementedError(
            f"{operator.title}: no forward-mode derivative (torch.func.jvp, jacfwd, dual tensors) with respect to "
            f"{', '.join(missing)}; use backward() or torch.autograd.grad, or .detach()"
        )


# The numbers of a call are passed as one float64 tensor on the CPU. As float arguments, they would make PyTorch specialise the
# compiled graph, and compile it again for every new value.

_constants: dict[bytes, torch.Tensor] = {}
_ONE = torch.tensor([1.0], dtype=torch.float64)  # a temperature of 1, which most calls have
_WAYS_OUT = {"temperature": "divide the logits by it first", "scale": "multiply q by it first"}


def _numbers(**values):
    """That tensor. A number that is a tensor stays in the graph, so that the operator gets its tangent."""
    if len(values) == 1 and type(values.get("temperature")) is float and not _is_traced() and values["temperature"] == 1.0:
        return _ONE
    for name, x in values.items():
        if isinstance(x, Tensor):
            _check_number(name, x)
    traced = torch.compiler.is_compiling() or any([isinstance(x, Tensor) for x in values.values()])
    if not (values and traced):
        return _constant(*[_number(name, x) for name, x in values.items()])
    zero = torch.zeros((), dtype=torch.float64, device="cpu")
    return torch.stack([x.to(zero).reshape(()) if isinstance(x, Tensor) else zero + _number(name, x) for name, x in values.items()])


def _constant(*numbers):
    """Those numbers as a tensor, which is kept, because making it takes longer than a small softmax."""
    key = struct.pack(f"{len(numbers)}d", *numbers)
    kept = _constants.get(key)
    if kept is None:
        with torch.inference_mode(False):  # autograd may save it
            kept = torch.tensor(numbers, dtype=torch.float64, device="cpu")
        if len(_constants) < 256 and type(kept) is Tensor and _is_whole(kept):
            _constants[key] = kept
    return kept


def _number(name, x):
    try:
        return float(x)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, got {x!r}") from None


def _check_number(name, x):
    if x.numel() != 1 or x.is_complex():
        raise TypeError(f"{name}: expected a number, got a tensor of shape {tuple(x.shape)} and {x.dtype}")
    if x.requires_grad and torch.is_grad_enabled():
        way_out = _WAYS_OUT.get(name)
        raise RuntimeError(f"{name}: has no gradient here; {way_out + ', or ' if way_out else ''}use {name}.detach()")


# ---- Tensors --------------------------------------------------------------------------------------------------------------


def _row_major_like(x, *_):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _common(a, b):
    """The common dtype in which C computes."""
    return a if a == b else torch.float64 if torch.float64 in (a, b) else torch.float32


def _none(like, dtype=torch.float32):
    return torch.empty(0, dtype=dtype, device=like.device)


def _single(x):
    """Rounds float64 to float32, in which C computes. Its gradient is widened again."""
    return x.float() if x.dtype == torch.float64 else x


def _as_tensor(x, beside=None, name=None):
    """Converts lists and arrays to tensors, on the device of `beside`. Python's floats are float64 beside float64. An error begins
    with the name."""
    if x is None or isinstance(x, Tensor):
        return x
    try:
        made = torch.as_tensor(x, device=beside.device if isinstance(beside, Tensor) else None)
        wide = isinstance(beside, Tensor) and beside.dtype == torch.float64 and made.is_floating_point() and not hasattr(x, "dtype")
        return torch.as_tensor(x, dtype=torch.float64, device=made.device) if wide else made
    except (TypeError, ValueError, RuntimeError) as error:
        if name is None or torch.compiler.is_compiling():
            raise
        raise TypeError(f"{name}: expected a tensor, an array or numbers, got {x!r}") from error


def _size(shape):
    n = 1
    for i in shape:
        n *= i
    return n
