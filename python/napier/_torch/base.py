"""What the operators of napier.torch share: checks of tensors, registration with torch.library, numbers as tensors."""
import inspect
import types

import torch
from torch._library.autograd import make_autograd_impl
from torch.autograd import forward_ad
from torch.library import custom_op

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


def _check(**tensors):
    """Raises an error that names the argument if it is not a supported tensor, or is on an unsupported device."""
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
        if x.is_complex():
            raise TypeError(f"{name}: complex numbers are not supported (use .real, .imag or .abs())")
        if x.dtype.is_floating_point and x.dtype.itemsize < 2:
            raise TypeError(f"{name}: {x.dtype} is not supported (use .to(torch.float16))")
        if type(x).__name__ == "MaskedTensor":
            raise NotImplementedError(f"{name}: masked tensors are not supported (use .to_tensor(value))")
        if x.is_nested:
            raise NotImplementedError(f"{name}: nested tensors are not supported (use .to_padded_tensor(), or a tensor with "
                                      "offsets)")
        if x.is_quantized:
            raise NotImplementedError(f"{name}: quantized tensors are not supported (use .dequantize())")
        if x.layout != torch.strided:
            raise NotImplementedError(f"{name}: tensors of {x.layout} are not supported (use .to_dense())")
        if x.device.type in ("cpu", "meta"):
            continue
        if x.device.type != "cuda":
            raise NotImplementedError(f"{name}: the tensor is on {x.device}; napier computes on the CPU and on CUDA devices "
                                      "(use .cpu())")
        if _gpus() == 0:
            raise NotImplementedError(f"{name}: the tensor is on {x.device}, and this build of napier computes on the CPU "
                                      "only: it was built without CUDA, or finds no device of compute capability 8.0 or "
                                      "later (use .cpu())")


def _operator(name):
    """custom_op for functions that take tensors without their graph and return new ones. A function without GPU kernels raises
    its own error."""

    def decorate(function):
        def call(*args):
            return function(*(x.detach() if isinstance(x, Tensor) else x for x in args))

        call.__signature__ = inspect.signature(function)
        call.__annotations__ = function.__annotations__
        call.__name__ = name
        operator = custom_op(f"napier::{name}", call, mutates_args=(), device_types=("cpu", "cuda"))

        def quick(*args):
            """The function without the operator, which costs tens of microseconds, where the operator would add nothing."""
            use = _use_of(*args)
            if use == PLAIN:
                return function(*args)
            return quick.record(*args) if use == RECORDED and quick.record else operator(*args)

        for attribute in ("register_fake", "register_autograd", "_opoverload", "_name"):
            setattr(quick, attribute, getattr(operator, attribute))
        quick.definition, quick.function, quick.record = operator, function, None
        return quick

    return decorate


PLAIN, RECORDED = 1, 2
_is_traced = torch.compiler.is_dynamo_compiling  # other ways to trace have modes, which C sees


def _use_of(*args):
    """What PyTorch does with the result of a call: PLAIN, nothing; RECORDED, a gradient; 0, all else."""
    return 0 if _is_traced() else _napier._use_of(*args)


_library = torch.library.Library("napier", "FRAGMENT")


def _once(operator, backward, setup, tensors=1, forward_mode=None):
    """Registers gradients with respect to the first `tensors` inputs of an operator, once differentiable.
    forward_mode(output, inputs, tangents) is the output's tangent, for an operator with one output."""
    names, title = _names(operator), _title(operator)

    def checked_setup(ctx, inputs, output):
        for name, needed in zip(names[tensors:], ctx.needs_input_grad[tensors:]):
            if needed:
                raise RuntimeError(f"{title}: {name} has no gradient here; use .detach()")
        setup(ctx, inputs, output)

    class Recorded(torch.autograd.Function):
        """The operator and its gradient without the dispatch, where PyTorch only records it."""

        @staticmethod
        def forward(ctx, *inputs):
            output = operator.function(*inputs)
            checked_setup(ctx, inputs, output)
            return output

    Recorded.backward = staticmethod(backward)
    operator.record = Recorded.apply
    operator.register_autograd(backward, setup_context=checked_setup)
    _check_transforms(operator, tensors, forward_mode)


def _last(operator):
    """Registers an operator that computes a gradient and has none itself."""

    def refuse(ctx, *_):
        raise NotImplementedError(f"{_title(operator)}: gradients are once differentiable (create_graph=True differentiates "
                                  "them again); use PyTorch's own functions for second derivatives")

    operator.register_autograd(refuse)
    _check_transforms(operator)


def _differentiable(operator, tensors, needs, backward, tangent):
    """Registers derivatives with respect to the first `tensors` inputs that can be differentiated again, for an operator with
    one output. Returns the function to call in place of the operator: inside torch.func's transforms and in forward mode it
    calls an autograd.Function, because PyTorch's own derivatives of operators refuse there.

    backward(s, grad) returns the gradients, tangent(s, tangents) the output's tangent (tangents may be None). s has the
    arguments that are no tensors, those in `needs`, and the result if it is in `needs`."""
    names, title = _names(operator), _title(operator)
    rest = (None,) * (len(names) - tensors)

    def save(ctx, inputs, output):
        for name, needed in zip(names[tensors:], ctx.needs_input_grad[tensors:]):
            if needed:
                raise RuntimeError(f"{title}: {name} has no gradient here; use .detach()")
        given = dict(zip(names, inputs), result=output)
        ctx.plain = {name: x for name, x in given.items() if not isinstance(x, Tensor)}
        ctx.save_for_backward(*[given[name] for name in needs])

    def saved(ctx):
        return types.SimpleNamespace(**ctx.plain, **dict(zip(needs, ctx.saved_tensors)))

    def gradient(ctx, grad):
        if grad is None:
            return (None,) * len(names)
        grads = backward(saved(ctx), grad)
        return (*(grads if isinstance(grads, tuple) else (grads,)), *rest)

    class Derivatives(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs):
            with torch._C._AutoDispatchBelowAutograd():
                return operator._opoverload(*inputs)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(False)
            save(ctx, inputs, output)
            ctx.save_for_forward(*[dict(zip(names, inputs), result=output)[name] for name in needs])

        backward = staticmethod(gradient)

        @staticmethod
        def jvp(ctx, *tangents):
            _refuse_tangents(title, names[tensors:], tangents[tensors:])
            return tangent(saved(ctx), tangents[:tensors])

    def alone(output, inputs, tangents):
        """The tangent of the operator itself, in a compiled graph."""
        given = dict(zip(names, inputs), result=output)
        return tangent(types.SimpleNamespace(**given), tangents[:tensors])

    operator.register_autograd(gradient, setup_context=save)
    _check_transforms(operator, tensors, alone)

    def call(*args):
        return Derivatives.apply(*args) if _needs_function(title) else operator(*args)

    return call


def _record(name, backward):
    """Makes the node for a tensor whose gradient PyTorch records. Its halves are in C (python/ext/ops/softmax_recorded.c).
    backward(kept, grad, axis, temperature) is for gradients that are recorded themselves, traced or batched; kept is the result, or
    the input of logsumexp."""

    class Recorded(torch.autograd.Function):
        @staticmethod
        def backward(ctx, grad):  # compiled autograd calls it, with another ctx
            return backward(*ctx.saved_tensors, grad, *ctx.options)

    Recorded._backward_cls.options = -1, 1.0  # axis and temperature; a node with others has its own
    _napier._record(name, Recorded, Recorded._backward_cls, super(torch.autograd.Function, Recorded).apply, backward)


def _quick(function):
    """A function of napier.torch in C (python/ext/ops/softmax_plain.c), around the one in Python: it computes at once where PyTorch
    would only compute or record a gradient, and calls the one in Python elsewhere. torch.compile reads the latter."""
    doc = f"{function.__name__}{inspect.signature(function)}\n--\n\n{inspect.cleandoc(function.__doc__)}"
    quick = _napier._quick(function.__name__, function, doc)
    torch.compiler.substitute_in_graph(quick, skip_signature_check=True)(function)
    return quick


def _needs_function(title):
    """Whether the derivatives that are active here are not those of the operator: gradients inside torch.func's transforms, and
    dual tensors outside of them."""
    if torch.compiler.is_compiling():
        return False
    if not torch._C._are_functorch_transforms_active():
        return forward_ad._current_level >= 0
    kinds = [level.key() for level in torch._C._functorch.get_interpreter_stack() or ()]
    if torch._C._functorch.TransformType.Grad not in kinds:
        return False
    if kinds.count(torch._C._functorch.TransformType.Jvp) > 1:  # PyTorch drops the outer tangent in a Function's jvp
        raise NotImplementedError(f"{title}: forward mode twice around a gradient is not supported (jacfwd(jacfwd(jacrev(f)))); "
                                  "use reverse mode for two of the three")
    return True


def _refuse_tangents(title, names, tangents):
    missing = [name for name, t in zip(names, tangents) if t is not None]
    if missing:
        raise NotImplementedError(f"{title}: no forward-mode derivative (torch.func.jvp, jacfwd, dual tensors) with respect to "
                                  f"{', '.join(missing)}; use backward() or torch.autograd.grad, or .detach()")


def _title(operator):
    return f"napier.torch.{operator._name.removesuffix('_backward').removesuffix('_weighted')}"


def _names(operator):
    return [argument.name for argument in operator._opoverload._schema.arguments]


def _tangent(x):
    """The tangent of a tensor, or None. PyTorch has only level 0, and compiled graphs enter it without changing
    forward_ad._current_level."""
    return forward_ad.unpack_dual(x, level=0).tangent if isinstance(x, Tensor) and x.is_floating_point() else None


def _check_transforms(operator, tensors=0, forward_mode=None):
    """Registers a kernel before PyTorch's own for an operator's derivatives, because that one drops the tangents of forward
    mode."""
    recorded, title, names = make_autograd_impl(operator._opoverload, operator.definition), _title(operator), _names(operator)

    def kernel(keys, *args):
        in_transform = torch._C._are_functorch_transforms_active()
        if not in_transform and forward_ad._current_level < 0:
            return recorded(keys, *args)
        tangents = [_tangent(x) for x in args]
        records = torch.is_grad_enabled() and any([isinstance(x, Tensor) and x.requires_grad for x in args])
        if all([t is None for t in tangents]):
            if records and in_transform:
                raise NotImplementedError(f"{title}: no gradients inside torch.func's transforms; use backward() or "
                                          "torch.autograd.grad")
            return recorded(keys, *args)
        first = tensors if forward_mode else 0
        _refuse_tangents(title, names[first:], tangents[first:])
        if records:
            raise NotImplementedError(f"{title}: forward mode over a recorded gradient is not supported; use .detach(), or "
                                      "PyTorch's own function")
        primals = [x if t is None else forward_ad.unpack_dual(x, level=0).primal for x, t in zip(args, tangents)]
        output = operator(*primals)
        return forward_ad.make_dual(output, forward_mode(output, primals, tangents), level=0)

    _library.impl(operator._name, kernel, "Autograd", with_keyset=True, allow_override=True)


# The numbers of a call are passed as one float64 tensor on the CPU. As float arguments, they would make PyTorch specialise the
# compiled graph, and compile it again for every new value.

_WAYS_OUT = {"temperature": "divide the logits by it first", "scale": "multiply q by it first"}


def _numbers(**values):
    """That tensor. A number that is a tensor stays in the graph, so that the operator gets its tangent."""
    for name, x in values.items():
        if isinstance(x, Tensor):
            _check_number(name, x)
    traced = torch.compiler.is_compiling() or any([isinstance(x, Tensor) for x in values.values()])
    if not (values and traced):
        return torch.tensor([_number(name, x) for name, x in values.items()], dtype=torch.float64, device="cpu")
    zero = torch.zeros((), dtype=torch.float64, device="cpu")
    return torch.stack([x.to(zero).reshape(()) if isinstance(x, Tensor) else zero + _number(name, x)
                        for name, x in values.items()])


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
