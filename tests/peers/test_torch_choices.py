"""Masks, algorithm=, entmax, gumbel_softmax, logaddexp, logcumsumexp and cross_entropy of napier.torch: values against PyTorch's own
functions, derivatives of every order, the bits of NumPy's functions; and calls without an operator."""
import functools
import itertools
import math

import torch
from torch.autograd import gradcheck, gradgradcheck

import napier
import napier.torch as nt
from support import raises
from test_torch_autograd import normal
from test_torch_transforms import close, constant


def all_derivatives(function, *inputs):
    options = {"check_forward_ad": True, "check_batched_grad": True}
    assert gradcheck(function, inputs, **options) and gradgradcheck(function, inputs, check_fwd_over_rev=True)


# ---- Masks -------------------------------------------------------------------------------------------------------------------


def test_masks():
    x, mask = constant(3, 4, 6, dtype=torch.float64), constant(4, 6, seed=1) > 0
    mask[2] = False
    for ours, name in ((nt.softmax, "softmax"), (nt.log_softmax, "log_softmax"), (nt.sparsemax, "sparsemax"), (nt.entmax, "entmax")):
        for given in (mask, mask.int()):
            for masked_rows in ("nan", "zero"):
                mine = ours(x, mask=given, masked_rows=masked_rows)
                theirs = getattr(napier, name)(x.numpy(), mask=mask.numpy(), masked_rows=masked_rows)
                assert torch.equal(mine.nan_to_num(7.0), torch.from_numpy(theirs).nan_to_num(7.0)), name
    seen = mask.clone()
    seen[2, 0] = True
    for name in ("softmax", "log_softmax"):
        hidden = x.masked_fill(~seen, -torch.inf)
        assert torch.allclose(getattr(nt, name)(x, mask=seen), getattr(torch, name)(hidden, -1), rtol=0, atol=1e-14, equal_nan=True), name
    close(nt.softmax(x, mask=mask, masked_rows="zero"), torch._safe_softmax(x.masked_fill(~mask, -torch.inf), -1), 1e-14, "safe")
    assert torch.allclose(nt.logsumexp(x, 2, mask=mask), torch.logsumexp(x.masked_fill(~mask, -torch.inf), 2), rtol=0, atol=1e-14)
    causal = torch.ones(4, 6, dtype=torch.bool).tril(2)
    assert torch.equal(nt.softmax(x, causal=True), nt.softmax(x, mask=causal))
    seen[:, 0] = True
    assert torch.equal(nt.softmax(x, causal=True, mask=seen), nt.softmax(x, mask=causal & seen))
    for module in (nt.Softmax(), nt.LogSoftmax(), nt.LogSumExp()):
        assert torch.equal(module(x, seen), module._function(x, -1, mask=seen) if hasattr(module, "_function") else
                           nt.logsumexp(x, -1, mask=seen))
    raises(TypeError, "mask: expected bool or integers", lambda: nt.softmax(x, mask=seen.float()))
    raises(ValueError, "mask: shape (5,)", lambda: nt.softmax(x, mask=torch.ones(5).bool()))
    raises(ValueError, "causal: True, but the input has 1 dim", lambda: nt.softmax(x[0, 0], causal=True))


def test_masks_have_gradients():
    """Hidden elements get none, even where they are NaN; a log-probability that is hidden is a constant."""
    x, mask = normal(3, 5, dtype=torch.float64), constant(3, 5, seed=2) > -0.5
    mask[:, 0] = True
    mask[2] = False
    for function in (nt.softmax, nt.sparsemax, nt.entmax):
        all_derivatives(functools.partial(function, mask=mask, masked_rows="zero"), x)
    all_derivatives(lambda x: nt.log_softmax(x, mask=mask, masked_rows="zero").nan_to_num(neginf=0.0), x)
    all_derivatives(lambda x: nt.logsumexp(x, -1, mask=mask)[:2], x)
    bad = x.detach().masked_fill(~mask, torch.nan).requires_grad_()
    (nt.softmax(bad, mask=mask)[:2].square().sum() + nt.log_softmax(bad, mask=mask)[:2].nan_to_num(neginf=0.0).sum()).backward()
    assert bad.grad.isfinite().all() and (bad.grad[~mask] == 0).all()
    y = nt.log_softmax(x, mask=mask)
    found = torch.autograd.grad(y, x, torch.ones_like(y))[0]
    counted = torch.autograd.grad(nt.log_softmax(x, mask=mask), x, mask.double())[0]
    assert torch.equal(found[:2], counted[:2]), "the gradient of what is hidden is ignored"


def test_algorithms():
    x = normal(3, 5000)
    want = nt.softmax(x)
    for function in (nt.safe_softmax, nt.online_softmax, nt.reduce_softmax):
        y = function(x)
        assert torch.equal(y, want) and torch.equal(y, getattr(napier, function.__name__)(x.detach()))
        assert torch.equal(*[torch.autograd.grad(z.square().sum(), x)[0] for z in (function(x), nt.softmax(x))])
        assert torch.equal(function(x, 0, temperature=0.7), nt.softmax(x, 0, temperature=0.7))
    assert nt.fused_log_softmax is nt.log_softmax
    assert torch.equal(nt.logsumexp(x, 1, algorithm="parallel"), nt.logsumexp(x, 1))
    raises(ValueError, "algorithm: 'quick' is not one of 'auto', 'safe'", lambda: nt.softmax(x.detach(), algorithm="quick"))


# ---- Without an operator -------------------------------------------------------------------------------------------------------


def test_calls_without_an_operator():
    """The bits and the shapes are those of the operators, and the derivatives of every order are there."""
    for dtype, shape, dim in ((torch.float32, (8, 100), -1), (torch.float64, (3, 4, 5), 1), (torch.bfloat16, (4, 7), 0),
                              (torch.float32, (0, 3), 1), (torch.float32, (3, 1, 2), 2)):
        x, g = normal(*shape, dtype=dtype), constant(*shape, seed=1, dtype=dtype)
        for function in (nt.softmax, nt.log_softmax, nt.sparsemax, nt.logsumexp):
            quick, slow = function(x, dim, temperature=0.8), function(x, dim, temperature=torch.tensor(0.8, dtype=torch.float64))
            assert torch.equal(quick, slow) and torch.equal(quick, function(x.detach(), dim, temperature=0.8))
            grad = g if quick.shape == g.shape else g.sum(dim).to(dtype)
            assert torch.equal(*[torch.autograd.grad(y, x, grad)[0] for y in (quick, slow)]), (function.__name__, shape)
            assert not function(x.detach(), dim).requires_grad
    one = torch.tensor(3.0, requires_grad=True)
    assert nt.softmax(one) == 1 and nt.logsumexp(one, 0) == 3 and torch.autograd.grad(nt.logsumexp(one, 0), one)[0] == 1
    x = normal(4, 6)
    for dim, keepdim in itertools.product((0, 1, -1), (False, True)):
        y = nt.logsumexp(x, dim, keepdim)
        close(y, torch.logsumexp(x, dim, keepdim), 1e-6, "logsumexp")
        close(torch.autograd.grad(y.sum(), x)[0], torch.softmax(x, dim), 1e-6, "its gradient")
    expanded = constant(1, 5).expand(3, 5).clone().requires_grad_()
    nt.softmax(expanded.T, 0).sum().backward()  # a gradient of stride 0
    assert expanded.grad.abs().max() < 1e-6
    with torch.inference_mode():
        assert nt.softmax(x.detach()).is_inference()
    hooked = nt.softmax(x)
    hooked.register_hook(lambda g: 2 * g)
    assert torch.equal(torch.autograd.grad(hooked, x, torch.ones(4, 6))[0], 2 * torch.autograd.grad(nt.softmax(x), x, torch.ones(4, 6))[0])
    assert nt.softmax(torch.nn.Parameter(x.detach())).requires_grad


def test_wrong_arguments_without_an_operator():
    x = normal(3, 4)
    for given in (x, x.detach()):
        raises(IndexError, "dim: 2 is out of range", lambda: nt.softmax(given, 2))
        raises(TypeError, "dim: expected an int, got 'last'", lambda: nt.softmax(given, "last"))
        raises(ValueError, "temperature 0", lambda: nt.softmax(given, temperature=0.0))
        raises(ValueError, "masked_rows: 'one'", lambda: nt.softmax(given, masked_rows="one"))
        raises(IndexError, "dim: 5", lambda: nt.logsumexp(given, 5))
    t = torch.tensor(2.0, requires_grad=True)
    raises(RuntimeError, "temperature: has no gradient here", lambda: nt.softmax(x, temperature=t))
    with torch.no_grad():
        assert not nt.softmax(x).requires_grad


def test_modes_see_operators():
    """What traces or counts a call sees the operator, not a tensor out of nothing."""
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x = constant(3, 4)
    for function in (lambda x: nt.softmax(x), lambda x: nt.logsumexp(x, -1), lambda x: nt.matmul(x, x.T), lambda x: nt.rms_norm(x, x[0])):
        seen = []
        with Seen():
            function(x)
        assert any("napier." in name for name in seen), seen
        graph = make_fx(function)(x)
        assert "torch.ops.napier" in graph.code
    assert torch.equal(torch.jit.trace(nt.softmax, x)(x + 1), nt.softmax(x + 1))


# ---- entmax, gumbel_softmax ------------------------------------------------------------------------------------------------


def test_entmax():
    x = normal(3, 6, dtype=torch.float64)
    for alpha in (1.5, 1.25, 3.0):
        assert torch.equal(nt.entmax(x, alpha=alpha), torch.from_numpy(napier.entmax(x.detach().numpy(), alpha=alpha)))
        if alpha == 1.5:
            all_derivatives(lambda x: nt.entmax(x, 0, temperature=0.8), x)
        else:
            assert gradcheck(lambda x: nt.entmax(x, alpha=alpha), x[:2, :4].detach().requires_grad_())
    assert torch.equal(nt.entmax(x, alpha=1), nt.softmax(x)) and torch.equal(nt.entmax(x, alpha=2), nt.sparsemax(x))
    assert nt.entmax(x.half()).dtype == torch.float16 and nt.entmax(x, dtype=torch.float32).dtype == torch.float32
    assert torch.equal(torch.compile(nt.entmax, fullgraph=True)(x.detach()), nt.entmax(x.detach()))
    raises(ValueError, "temperature: -1.0", lambda: nt.entmax(x, temperature=-1.0))
    raises(ValueError, "alpha: 9", lambda: nt.entmax(x, alpha=9))
    found = set()
    for isa in [isa for isa in ("scalar", "avx2", "avx512") if napier.isa_available(isa)]:
        napier.set_isa(isa)
        for alpha in (1.5, 1.25):
            found.add((alpha, torch.autograd.grad(nt.entmax(x, alpha=alpha).square().sum(), x)[0].numpy().tobytes()))
    napier.set_isa("auto")
    assert len(found) == 2


def test_gumbel_softmax():
    x = normal(5, 4)
    for tau, hard, dim in ((1, False, -1), (0.5, True, 0)):
        torch.manual_seed(3)
        mine = nt.gumbel_softmax(x, tau, hard, dim=dim)
        torch.manual_seed(3)
        theirs = torch.nn.functional.gumbel_softmax(x, tau, hard, dim=dim)
        close(mine, theirs, 1e-6, "gumbel_softmax")
        g = constant(5, 4, seed=1)
        close(*[torch.autograd.grad(y, x, g)[0] for y in (mine, theirs)], 1e-5, "its gradient")
    raises(ValueError, "tau: 0", lambda: nt.gumbel_softmax(x, 0))
    raises(TypeError, "logits: expected floating", lambda: nt.gumbel_softmax(torch.arange(3)))


# ---- logaddexp, logcumsumexp -------------------------------------------------------------------------------------------------


def test_logaddexp():
    x, y = normal(3, 5, dtype=torch.float64), normal(5, seed=1, dtype=torch.float64)
    close(nt.logaddexp(x, y), torch.logaddexp(x, y), 1e-15, "logaddexp")
    assert torch.equal(nt.logaddexp(x, y).detach(), torch.from_numpy(napier.logaddexp(x.detach().numpy(), y.detach().numpy())))
    all_derivatives(nt.logaddexp, x, y)
    assert nt.logaddexp(x.float(), y.bfloat16()).dtype == torch.float32 and nt.logaddexp(torch.arange(3), 1).dtype == torch.float32
    z = torch.complex(x.detach(), x.detach().flip(0))
    close(nt.logaddexp(z, z.conj()).real, torch.logaddexp(z, z.conj()).real, 1e-14, "complex")
    raises(ValueError, "other: shape (4,)", lambda: nt.logaddexp(x, torch.ones(4)))
    raises(NotImplementedError, ("other: ", "sparse"), lambda: nt.logaddexp(x, x.detach().to_sparse()))


def test_logcumsumexp():
    for dtype, bound in ((torch.float64, 1e-13), (torch.float32, 1e-5), (torch.bfloat16, 0.04)):
        x = constant(4, 5, 6, dtype=dtype)
        for dim in (0, 1, -1):
            close(nt.logcumsumexp(x, dim), torch.logcumsumexp(x, dim), bound, f"{dtype}")
    x = normal(3, 5, dtype=torch.float64)
    for dim in (0, 1):
        all_derivatives(lambda x: nt.logcumsumexp(x, dim, temperature=0.7), x)
    assert torch.equal(nt.logcumsumexp(x, 1).detach(), torch.from_numpy(napier.logcumsumexp(x.detach().numpy(), 1)))
    assert torch.equal(torch.compile(nt.logcumsumexp, fullgraph=True)(x.detach()), nt.logcumsumexp(x.detach()))
    raises(IndexError, "dim: 2", lambda: nt.logcumsumexp(x, 2))


# ---- cross_entropy -----------------------------------------------------------------------------------------------------------


def test_cross_entropy():
    theirs = torch.nn.functional.cross_entropy
    x, y = normal(4, 5, 3, dtype=torch.float64), torch.randint(0, 5, (4, 3), generator=torch.Generator().manual_seed(0))
    w, q = constant(5, seed=1, dtype=torch.float64).abs(), torch.softmax(constant(4, 5, 3, seed=2, dtype=torch.float64), 1).requires_grad_()
    y[0, 0] = 3
    for target, weight, smoothing, reduction, ignored in itertools.product((y, q), (None, w), (0.0, 0.1), ("mean", "sum", "none"), (-100, 3)):
        options = {"label_smoothing": smoothing, "reduction": reduction, "ignore_index": ignored if target is y else -100}
        mine, wanted = nt.cross_entropy(x, target, weight, **options), theirs(x, target, weight, **options)
        close(mine, wanted, 1e-12, f"{options}")
        array = napier.cross_entropy(x.detach().numpy(), target.detach().numpy(), None if weight is None else w.numpy(), **options)
        assert torch.equal(mine.detach(), torch.as_tensor(array)), "the bits of NumPy's"
        inputs = (x, q) if target is q else (x,)
        for one, other in zip(torch.autograd.grad(mine.square().sum(), inputs), torch.autograd.grad(wanted.square().sum(), inputs)):
            close(one, other, 1e-12, f"gradient, {options}")
    all_derivatives(lambda x: nt.cross_entropy(x, y[:2, 0], w, label_smoothing=0.1), x[:2, :, 0].detach().requires_grad_())
    all_derivatives(lambda x, q: nt.cross_entropy(x, q, w, label_smoothing=0.1), *[z[:2, :, 0].detach().requires_grad_() for z in (x, q)])
    for rows in (x[:, :, 0], x[0, :, 0]):
        target = y[:, 0] if rows.ndim == 2 else y[0, 0]
        close(nt.cross_entropy(rows, target), theirs(rows, target), 1e-14, "fewer dimensions")
    half = constant(64, 1000, dtype=torch.bfloat16)
    ids = torch.arange(64)
    exact = theirs(half.double(), ids)
    assert nt.cross_entropy(half, ids).dtype == torch.bfloat16 and (nt.cross_entropy(half, ids) - exact).abs() <= 0.02
    assert nt.cross_entropy(torch.tensor([0.0, -torch.inf]), torch.tensor([1.0, 0.0])) == 0


def test_wrong_arguments_of_cross_entropy():
    x, y = constant(4, 3), torch.tensor([0, 1, 2, 1])
    for call, kind, text in ((lambda: nt.cross_entropy(x, y + 1), IndexError, "target: 3 is not in 0 .. 2"),
                             (lambda: nt.cross_entropy(x, y - 1), IndexError, "target: -1 is not in"),
                             (lambda: nt.cross_entropy(x, y[:2]), ValueError, "target: shape (2,) is not (4,)"),
                             (lambda: nt.cross_entropy(x, y, torch.ones(4)), ValueError, "weight: shape (4,)"),
                             (lambda: nt.cross_entropy(x, y, torch.ones(3, requires_grad=True)), RuntimeError, "weight: has no gradient"),
                             (lambda: nt.cross_entropy(x, y, reduction="max"), ValueError, "reduction: 'max'"),
                             (lambda: nt.cross_entropy(x, y, size_average=True), ValueError, "size_average: "),
                             (lambda: nt.cross_entropy(x.to_sparse(), y), NotImplementedError, "input: "),
                             (lambda: nt.cross_entropy(None, y), TypeError, "input: expected a tensor, got NoneType"),
                             (lambda: nt.cross_entropy(x, None), TypeError, "target: expected a tensor, got NoneType")):
        raises(kind, text, call)


def test_the_same_bits():
    x, y = normal(50, 33), torch.arange(50) % 33
    found = {}
    for isa in [isa for isa in ("scalar", "avx2", "avx512") if napier.isa_available(isa)]:
        for threads in (1, 3):
            napier.set_isa(isa)
            napier.set_num_threads(threads)
            for name, function in (("cross_entropy", lambda x: nt.cross_entropy(x, y, label_smoothing=0.1)),
                                   ("logcumsumexp", lambda x: nt.logcumsumexp(x, 1)), ("logaddexp", lambda x: nt.logaddexp(x, x.flip(1))),
                                   ("masked", lambda x: nt.log_softmax(x[:33], causal=True).exp())):
                value = function(x)
                grad = torch.autograd.grad(value.square().sum(), x)[0]
                found.setdefault(name, set()).add(value.detach().numpy().tobytes() + grad.numpy().tobytes())
    napier.set_isa("auto")
    napier.set_num_threads(0)
    assert all(len(each) == 1 for each in found.values()), [name for name, each in found.items() if len(each) > 1]


def test_targets_of_eight_bits_and_numbers_beside_float64():
    for kind, classes, ids in ((torch.uint8, 256, [5, 6]), (torch.uint8, 200, [156, 0]), (torch.int8, 200, [100, 3])):
        x, target = torch.randn(2, classes, dtype=torch.float64), torch.tensor(ids, dtype=kind)
        wanted = torch.nn.functional.cross_entropy(x, target.long())
        assert abs(napier.torch.cross_entropy(x, target) - wanted) < 1e-12, (kind, classes)
    zero = torch.zeros(2, dtype=torch.float64)
    assert (napier.torch.logaddexp(zero, 0.1) - torch.logaddexp(zero, torch.tensor(0.1, dtype=torch.float64))).abs().max() < 1e-15
    assert abs(napier.torch.logsumexp(zero, b=[0.1, 0.3]) - math.log(0.4)) < 1e-15
    mask, b = torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.float64)
    for x in (torch.zeros(2), torch.zeros(2, dtype=torch.int64)):
        assert napier.torch.logsumexp(x, b=b, mask=mask).dtype == napier.torch.logsumexp(x, b=b).dtype


def test_entmax_refuses_what_it_cannot_compute():
    x = torch.tensor([1.0, 2.0, 3.0])
    raises(ValueError, "temperature: -1.0", lambda: napier.torch.entmax(x, temperature=torch.tensor(-1.0)))
    raises(ValueError, "alpha: 1.0000000001", lambda: napier.torch.entmax(x, alpha=1 + 1e-10))
    raises(TypeError, "dtype: expected one of floating-point", lambda: napier.entmax(x.numpy(), dtype="int32"))
    assert napier.entmax(x, dtype="float64").dtype == torch.float64
    with torch.no_grad():
        assert napier.entmax(x.clone().requires_grad_()).shape == (3,)


def test_a_mode_of_functions_sees_the_operators():
    class Log(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen = []
    with Log():
        napier.torch.softmax(torch.zeros(3))
    assert any("napier" in name for name in seen), seen
