"""napier.torch under PyTorch's transforms: forward mode, second derivatives, torch.func, and how often torch.compile compiles.
What has no derivative refuses by name; nothing gives a zero in its place."""
import functools

import torch
from torch.autograd import forward_ad

import napier
import napier.torch as nt
import test_torch_autograd as cpu
from support import raises
from test_torch_autograd import ADVANTAGES, N, OFFSETS, V, ids_of, normal


def constant(*shape, **options):
    return normal(*shape, **options).detach()


def close(mine, theirs, bound, what):
    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype, what
    worst = (mine.double() - theirs.double()).abs().max().item() if mine.numel() else 0.0
    assert worst <= bound, f"{what}: {worst:.2e} > {bound:.1e}"


# ---- Forward mode: softmax, log_softmax, sparsemax, logsumexp --------------------------------------------------------------------------

PAIRS = [(name, functools.partial(ours, dim=dim, temperature=t), lambda x, f=theirs, dim=dim, t=t: f(x / t, dim))
         for name, ours, theirs in (("softmax", nt.softmax, torch.softmax), ("log_softmax", nt.log_softmax, torch.log_softmax),
                                    ("sparsemax", nt.sparsemax, cpu.reference_sparsemax),
                                    ("logsumexp", nt.logsumexp, torch.logsumexp))
         for dim, t in ((0, 1.0), (-1, 0.6))]
PAIRS += [("logsumexp", nt.logsumexp, lambda x: torch.logsumexp(x, (0, 1))),
          ("logsumexp", lambda x: nt.logsumexp(x, (1, 0), True), lambda x: torch.logsumexp(x, (0, 1), True))]


def dual(function, x, tangent):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent))).tangent


def test_forward_mode():
    """Tangents of dual tensors, of torch.func's transforms and of their compositions, as PyTorch's own functions give them."""
    func = torch.func
    for dtype, bound in ((torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 0.06), (torch.float16, 0.008)):
        x, t = constant(4, 7, dtype=dtype), constant(4, 7, seed=1, dtype=dtype)
        for name, ours, theirs in PAIRS:
            for what, derive in (("dual", dual), ("jvp", lambda f, x, t: func.jvp(f, (x,), (t,))[1]),
                                 ("jacfwd", lambda f, x, t: func.jacfwd(f)(x)),
                                 ("vmap of jvp", lambda f, x, t: func.vmap(lambda x, t: func.jvp(f, (x,), (t,))[1])(
                                     torch.stack([x, t]), torch.stack([t, x]))),
                                 ("jvp of vmap", lambda f, x, t: func.jvp(func.vmap(f), (x[None],), (t[None],))[1]),
                                 ("jvp of jvp", lambda f, x, t: func.jvp(lambda x: func.jvp(f, (x,), (t,))[1], (x,), (t,))[1])):
                if dtype in cpu.HALVES and (name == "sparsemax" or what == "jvp of jvp" and name == "logsumexp"):
                    continue  # PyTorch rounds more often on the way, which changes a support
                close(derive(ours, x, t), derive(theirs, x, t), bound, f"{name}, {what}, {dtype}")


def test_forward_mode_gradcheck():
    x = normal(3, 5, dtype=torch.float64)
    for _, ours, _ in PAIRS:
        assert torch.autograd.gradcheck(ours, x, check_forward_ad=True, check_batched_grad=True)


def test_forward_mode_of_masked_rows():
    x = constant(3, 4, dtype=torch.float64)
    x[0], x[1, 1:3] = -torch.inf, -torch.inf
    t = constant(3, 4, seed=1, dtype=torch.float64)
    for ours, theirs in ((nt.softmax, torch.softmax), (nt.log_softmax, torch.log_softmax), (nt.logsumexp, torch.logsumexp)):
        close(dual(lambda x: ours(x, -1)[1:], x, t), dual(lambda x: theirs(x, -1)[1:], x, t), 1e-14, ours.__name__)
    assert torch.equal(dual(lambda x: nt.softmax(x, masked_rows="zero")[0], x, t), torch.zeros(4).double())
    assert dual(lambda x: nt.logsumexp(x, -1), x, t)[0] == 0, "as the gradient"
    assert dual(nt.logsumexp, torch.tensor(3.0), torch.tensor(2.0)) == 2
    assert dual(nt.softmax, torch.zeros(0, 3), torch.zeros(0, 3)).shape == (0, 3)


def test_reverse_over_forward():
    """A gradient of a tangent: where the tensor's own gradient is recorded, but inside no transform."""
    t = constant(4, 7, seed=1, dtype=torch.float64)
    for name, ours, theirs in PAIRS:
        grads = []
        for function in (ours, theirs):
            x = normal(4, 7, dtype=torch.float64)
            y, tangent = torch.func.jvp(function, (x,), (t,))
            grads.append(torch.autograd.grad((tangent ** 2).sum() + y.sum(), x)[0])
        close(*grads, 1e-13, name)


def forward_mode_refused():
    """Every function without forward mode, by the name it has."""
    names = {"weighted": "logsumexp", "linear_logprobs": "linear_token_logprobs", "gather": "gather_logprobs", "kl": "kl_per_response",
             "rubric": "rubric_score"}
    for name, function, inputs in cpu.examples():
        if name not in ("softmax", "log_softmax", "sparsemax", "logsumexp"):
            yield names.get(name, name), function, [x.detach() for x in inputs]
    q, k, v = (constant(1, 2, 3, 4, seed=i) for i in range(3))
    mask, ids, rubric, weights, logprobs = constant(3, 3), ids_of(), constant(3, V), constant(3), constant(N)
    yield "attention", lambda m: nt.attention(q, k, v, mask=m), [mask]
    yield "rubric_score", lambda w: nt.rubric_score(logprobs, ids, OFFSETS, rubric, w), [weights]
    yield "grpo_loss", lambda h: nt.grpo_loss(logprobs, ADVANTAGES, OFFSETS, entropies=h, entropy_coefficient=1.0)[0], [
        logprobs.abs()]


def test_forward_mode_is_refused_by_name():
    names = set()
    for name, function, inputs in forward_mode_refused():
        names.add(name)
        for i, x in enumerate(inputs):
            def one(x, i=i, function=function, inputs=inputs):
                return function(*inputs[:i], x, *inputs[i + 1:])

            text = (f"napier.torch.{name}: no forward-mode derivative", "with respect to", "use backward()")
            tangent = torch.ones_like(x)
            raises(NotImplementedError, text, lambda: dual(one, x, tangent))
            raises((NotImplementedError, RuntimeError), "", lambda: dual(one, x.clone().requires_grad_(), tangent))
            raises(NotImplementedError, text, lambda: torch.func.jvp(one, (x,), (tangent,)))
            raises(NotImplementedError, text, lambda: torch.func.jacfwd(one)(x))
    made_of_others = {"compute_grpo_loss", "grpo_from_hidden", "scaled_dot_product_attention"}
    of_every_order = {"cross_entropy", "entmax", "fused_log_softmax", "gumbel_softmax", "logaddexp", "logcumsumexp", "online_softmax",
                      "reduce_softmax", "safe_softmax"}  # test_torch_choices.py
    missing = set(nt.__all__) - names - made_of_others - of_every_order - {
        "softmax", "log_softmax", "logsumexp", "sparsemax", "Softmax", "LogSoftmax", "LogSumExp", "group_advantages", "rotary_angles",
        "rotary_frequencies", "sample", "synchronize"}
    assert not missing, f"not tested: {missing}"


def test_constants_of_a_loss_have_no_tangent():
    """Advantages and the other policies' log-probabilities are constants by the losses' definition."""
    old, x = constant(N, seed=1), constant(N)
    with forward_ad.dual_level():
        given = forward_ad.make_dual(old, torch.ones(N))
        loss = nt.grpo_loss(x, ADVANTAGES, OFFSETS, old_logprobs=given)[0]
        assert forward_ad.unpack_dual(loss).tangent is None
    assert loss == nt.grpo_loss(x, ADVANTAGES, OFFSETS, old_logprobs=old)[0]


def test_forward_over_reverse():
    """Dual tensors whose gradient is recorded, too, as in PyTorch; refused by name where there are no second derivatives."""
    t = constant(3, 5, seed=1, dtype=torch.float64)
    for name, ours, theirs in PAIRS:
        if name == "sparsemax":
            continue  # its second derivative is 0 where there is one
        x = normal(3, 5, dtype=torch.float64)
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(ours(forward_ad.make_dual(x, t))).tangent
            mine = [tangent.detach(), *torch.autograd.grad((tangent * tangent).sum(), x, materialize_grads=True)]
        along = (torch.func.jacrev(theirs)(x) * t).sum((-2, -1))
        right = [along.detach(), *torch.autograd.grad((along * along).sum(), x, materialize_grads=True)]
        for one, other in zip(mine, right, strict=True):
            close(one, other, 1e-13, name)
    x = normal(3, 5)
    with forward_ad.dual_level():  # a tangent that first comes with the gradient
        for name, function in (("kl_full", lambda x: nt.kl_full(x, x.detach() * 2)),
                               ("grpo_token_loss", lambda x: nt.grpo_token_loss(x[0], [1.0], [0, 5]))):
            y = function(x)
            g = forward_ad.make_dual(torch.ones_like(y), torch.ones_like(y))
            raises(NotImplementedError, f"napier.torch.{name}: no forward-mode derivative", lambda: torch.autograd.grad(y, x, g))


TWICE = ("softmax", "log_softmax", "sparsemax", "logsumexp")

# ---- Second derivatives, torch.func -----------------------------------------------------------------------------------------


def test_second_derivatives_are_refused():
    """Where a gradient is differentiated again, beside other terms that can be: no term is dropped. gather_logprobs and
    rubric_score are linear: their gradient does not depend on their input."""
    names = {"weighted": "logsumexp", "linear_logprobs": "linear_token_logprobs", "kl": "kl_per_response"}
    for name, function, inputs in cpu.examples():
        results = function(*inputs)
        if name in TWICE:
            continue
        loss = sum((r ** 2).sum() for r in (results if isinstance(results, tuple) else (results,)) if r is not None)
        if name.startswith("grpo") or name in ("gather", "rubric"):
            loss = sum(r.sum() for r in (results if isinstance(results, tuple) else (results,)))
        for x, g in zip(inputs, torch.autograd.grad(loss, inputs, create_graph=True), strict=True):
            penalty = (g ** 2).sum() + (x ** 2).sum()
            if name in ("gather", "rubric"):
                assert torch.equal(torch.autograd.grad(penalty, x)[0], 2 * x)
                continue
            raises(NotImplementedError, f"napier.torch.{names.get(name, name)}: gradients are once differentiable",
                   lambda: torch.autograd.grad(penalty, inputs[0], retain_graph=True, allow_unused=True))


def test_second_derivatives():
    """Derivatives of any order, by backward(), by torch.func's transforms and by mixtures, as those of PyTorch's functions."""
    func, x = torch.func, constant(2, 2, dtype=torch.float64)
    for name, ours, theirs in PAIRS[::2]:
        assert torch.autograd.gradgradcheck(ours, normal(2, 3, dtype=torch.float64), check_fwd_over_rev=True, check_batched_grad=True)
        for what, derive in (("jacrev", func.jacrev), ("hessian", lambda f: func.hessian(lambda x: (f(x) ** 2).sum())),
                             ("jacfwd of jacrev", lambda f: func.jacfwd(func.jacrev(f))),
                             ("jacrev of jacfwd", lambda f: func.jacrev(func.jacfwd(f))),
                             ("three times", lambda f: func.jacrev(func.jacrev(func.jacrev(f)))),
                             ("jacfwd twice", lambda f: func.jacfwd(func.jacfwd(f))),
                             ("grad of vmap", lambda f: func.grad(lambda x: (func.vmap(f)(x[None]) ** 3).sum())),
                             ("vmap of jacrev", lambda f: lambda x: func.vmap(func.jacrev(f))(torch.stack([x, 2 * x])))):
            close(derive(ours)(x), derive(theirs)(x), 1e-12, f"{name}, {what}")
        raises(NotImplementedError, f"napier.torch.{name}: forward mode twice around a gradient",
               lambda: func.jacfwd(func.jacfwd(func.jacrev(ours)))(x))


def test_nested_forward_mode():
    """Twice it is right, compiled too; elsewhere refused by name, and no tangent is dropped."""
    x, t, one = constant(2, 3, dtype=torch.float64), constant(2, 3, seed=1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)

    def along(function):
        return lambda x: torch.func.jvp(function, (x,), (t,))[1]

    for name in ("softmax", "log_softmax"):
        ours, theirs = (functools.partial(getattr(module, name), dim=-1) for module in (nt, torch))

        def operator(x, name=name):
            return getattr(torch.ops.napier, name)(x, 1, one, "nan")

        right = along(along(theirs))(x)
        close(along(torch.func.vmap(lambda row, f=ours: torch.func.jvp(f, (row,), (t[0],))[1]))(x),
              along(torch.func.vmap(lambda row, f=theirs: torch.func.jvp(f, (row,), (t[0],))[1]))(x), 1e-14, name)
        torch._dynamo.reset()
        close(torch.compile(along(along(ours)), backend="aot_eager")(x), right, 1e-14, f"{name}, compiled")
        close(along(operator)(x), along(theirs)(x), 1e-14, f"{name}, the operator")
        raises(NotImplementedError, f"napier.torch.{name}: forward mode twice is not supported here", lambda: along(along(operator))(x))
        raises(NotImplementedError, f"napier.torch.{name}: forward mode twice around a gradient, or three times",
               lambda: along(along(along(ours)))(x))


def test_second_derivatives_have_the_same_bits():
    """Over instruction sets and threads; of 16-bit numbers the arithmetic is that of float32."""
    x, t, g = (constant(3, 1500, seed=i, scale=4.0) for i in range(3))

    def every(dtype):
        results = []
        for ours in (nt.softmax, nt.log_softmax, nt.logsumexp, nt.sparsemax):
            leaf = x.to(dtype).requires_grad_()
            (grad,) = torch.autograd.grad((ours(leaf, 1) ** 2).sum(), leaf, create_graph=True)
            results += [*torch.autograd.grad(grad, leaf, g.to(dtype)), dual(lambda x: ours(x, 1), x.to(dtype), t.to(dtype))]
        return results

    before = napier.get_isa()
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        want = every(dtype)
        for isa in ("scalar", "avx2", "avx512", "neon"):
            if not napier.isa_available(isa):
                continue
            napier.set_isa(isa)
            for threads in (1, 2):
                napier.set_num_threads(threads)
                assert all(torch.equal(a, b) for a, b in zip(want, every(dtype), strict=True)), (dtype, isa, threads)
        napier.set_isa(before)
        napier.set_num_threads(0)


def test_torch_func():
    """vmap is right, of values and of gradients; gradients inside torch.func's transforms are right or refused."""
    x = constant(3, 4, 5)
    for name, ours, theirs in PAIRS:
        close(torch.func.vmap(ours)(x), torch.func.vmap(theirs)(x), 1e-6, name)
        close(torch.func.vmap(ours, in_dims=2, out_dims=-1)(x), torch.func.vmap(theirs, in_dims=2, out_dims=-1)(x), 1e-6, name)
        results = []
        for function in (ours, theirs):
            leaf = x.clone().requires_grad_()
            (torch.func.vmap(function)(leaf) ** 2).sum().backward()
            results.append(leaf.grad)
        close(*results, 1e-5, f"{name}, gradient through vmap")
        close(torch.func.vmap(torch.func.jacrev(ours))(x), torch.func.vmap(torch.func.jacrev(theirs))(x), 1e-5, name)
    for transform in (torch.func.grad(lambda x: nt.kl_full(x, x).sum()), torch.func.jacrev(lambda x: nt.kl_full(x, x))):
        raises(NotImplementedError, "napier.torch.kl_full: no gradients inside torch.func's transforms", lambda: transform(x[0]))
    ids = ids_of()
    for name, function, inputs in cpu.examples():
        if name == "token_logprobs":  # without the None for what was not asked for, which vmap does not take
            function = lambda x: nt.token_logprobs(x, ids).logprobs  # noqa: E731
        rows = [function(*(factor * x.detach() for x in inputs)) for factor in (1, 2)]
        many = torch.func.vmap(function)(*(torch.stack([x.detach(), 2 * x.detach()]) for x in inputs))
        rows = list(zip(*rows)) if isinstance(many, tuple) else [rows]
        for mine, right in zip(many if isinstance(many, tuple) else (many,), rows, strict=True):
            assert torch.equal(mine, torch.stack(right)), name
        y = function(*inputs)
        y = y[0] if isinstance(y, tuple) else y
        g = torch.randn(3, *y.shape, dtype=y.dtype)
        batched = torch.autograd.grad(y, inputs, g, retain_graph=True, is_grads_batched=True)
        single = zip(*[torch.autograd.grad(y, inputs, one, retain_graph=True) for one in g])
        assert all(torch.equal(a, torch.stack(b)) for a, b in zip(batched, single, strict=True)), f"{name}, batched gradients"
    ids = ids_of(12, 5).reshape(3, 4)
    mine = torch.func.vmap(lambda x, i: nt.token_logprobs(x, i).logprobs)(x, ids)
    close(mine, nt.token_logprobs(x, ids).logprobs, 0.0, "token_logprobs")
    mine = torch.func.vmap(lambda x, t: nt.softmax(x, temperature=t))(x, torch.tensor([0.5, 1.0, 2.0]))
    close(mine, torch.softmax(x / torch.tensor([0.5, 1.0, 2.0])[:, None, None], -1), 1e-6, "temperatures by vmap")


# ---- Numbers that are tensors -----------------------------------------------------------------------------------------------


def with_numbers():
    """Functions of a number, by its argument's name."""
    x, y, v, u, ids = constant(N, V), constant(N, V, seed=1), constant(N), constant(N, seed=1), ids_of()
    for name, function in (("softmax", nt.softmax), ("log_softmax", nt.log_softmax), ("logsumexp", nt.logsumexp)):
        yield "temperature", lambda t, f=function: f(x, temperature=t)
    yield "temperature", lambda t: nt.logsumexp(x, b=y, temperature=t, return_sign=True)[0]
    yield "temperature", lambda t: nt.Softmax(temperature=t)(x)
    yield "temperature", lambda t: nt.kl_full(x, y, temperature=t)
    yield "temperature", lambda t: nt.grpo_from_logits(x, ids, ADVANTAGES, OFFSETS, temperature=t)[0]
    yield "softcap", lambda t: nt.grpo_from_logits(x, ids, ADVANTAGES, OFFSETS, softcap=t)[0]
    for name in ("temperature", "softcap", "label_smoothing", "z_loss"):
        yield name, lambda t, name=name: nt.token_logprobs(x, ids, loss=True, **{name: t}).loss
        yield name, lambda t, name=name: nt.linear_token_logprobs(x, y, ids % N, loss=True, **{name: t}).loss
    q, k, w = (constant(1, 2, 3, 4, seed=i) for i in range(3))
    yield "scale", lambda t: nt.attention(q, k, w, scale=t)
    for name in ("clamp_ratio", "clamp_kl"):
        yield name, lambda t, name=name: nt.kl_per_response(v, u, OFFSETS, **{name: t})
    for name in ("epsilon", "epsilon_high", "beta", "num_items", "entropy_coefficient"):
        options = {"ref_logprobs": u, "entropies": u.abs(), "loss_type": "dapo"}
        yield name, lambda t, name=name: nt.grpo_loss(v, ADVANTAGES, OFFSETS, **options, **{name: t})[0]
        if name != "entropy_coefficient":
            yield name, lambda t, name=name: nt.grpo_token_loss(v, ADVANTAGES, OFFSETS, ref_logprobs=u, **{name: t})


def test_numbers_as_tensors():
    """It counts as the number; a gradient or a tangent that would be lost is refused by the argument's name."""
    for name, function in with_numbers():
        for x in (torch.tensor(0.75), torch.tensor([0.75], dtype=torch.float64), 0.75):
            assert torch.equal(function(x), function(torch.tensor(0.75))), name
        leaf = torch.tensor(0.75, requires_grad=True)
        way_out = {"temperature": "divide the logits by it first", "scale": "multiply q by it first"}.get(name, "")
        text = (f"{name}: has no gradient here; {way_out}", f"use {name}.detach()")
        raises(RuntimeError, text, lambda: function(leaf))
        raises(RuntimeError, text, lambda: function(leaf * 2))
        raises(RuntimeError, text, lambda: torch.func.grad(lambda t: function(t).sum())(leaf.detach()))
        text = ("no forward-mode derivative", "with respect to")
        raises(NotImplementedError, text, lambda: dual(function, leaf.detach(), torch.tensor(1.0)))
        raises(NotImplementedError, text, lambda: torch.func.jvp(function, (leaf.detach(),), (torch.tensor(1.0),)))
        with torch.no_grad():
            assert torch.equal(function(leaf), function(0.75))
        for wrong in (torch.ones(2), torch.tensor(1j), 1j, [0.5]):
            raises(TypeError, f"{name}: expected a number", lambda: function(wrong))


def test_numbers_inside_two_transforms():
    """Where only the operator sees the tangent."""
    x = constant(3, 4)
    raises(NotImplementedError, "napier.torch.", lambda: torch.func.jvp(
        lambda t: torch.func.grad(lambda x: nt.softmax(x, temperature=t).sum())(x), (torch.tensor(0.5),), (torch.tensor(1.0),)))
    text = ("napier.torch.softmax: no forward-mode derivative", "with respect to temperature")
    raises(NotImplementedError, text, lambda: torch.func.jvp(
        lambda t: torch.func.vmap(lambda x, t: nt.softmax(x, temperature=t))(x, t), (torch.ones(3),), (torch.ones(3),)))


def test_operators_refuse_gradients_that_they_do_not_have():
    x, one = constant(3, 4), torch.ones(1, dtype=torch.float64, requires_grad=True)
    raises(RuntimeError, "napier.torch.softmax: temperature has no gradient here",
           lambda: torch.ops.napier.softmax(x, 0, one, "nan"))
    ids, rubric = torch.tensor([0, 1, 2, 3]), normal(3, 4)
    raises(RuntimeError, "napier.torch.rubric_score: rubric has no gradient here",
           lambda: torch.ops.napier.rubric_score(x[0], ids, torch.tensor([0, 4]), rubric, x[:, 0]))


# ---- What is no plain tensor ------------------------------------------------------------------------------------------------


def of_one_tensor():
    x, ids = constant(4, 5), torch.tensor([0, 1, 2, 3])
    yield "input", nt.softmax
    yield "input", nt.log_softmax
    yield "query", lambda q: nt.scaled_dot_product_attention(q, x, x)
    yield "attn_mask", lambda m: nt.scaled_dot_product_attention(x, x, x, m)
    yield "b", lambda b: nt.logsumexp(x, b=b)
    yield "a", lambda a: nt.matmul(a, x.T)
    yield "b", lambda b: nt.matmul(x.T, b)
    yield "logits", lambda x: nt.token_logprobs(x, ids)
    yield "ids", lambda ids: nt.token_logprobs(x, ids)
    yield "keep", lambda keep: nt.token_logprobs(x, ids, keep=keep)
    yield "hidden", lambda h: nt.linear_token_logprobs(h, x, ids)
    yield "weights", lambda w: nt.linear_token_logprobs(x, w, ids)
    yield "logprobs", lambda x: nt.gather_logprobs(x, ids)
    yield "policy_logits", lambda p: nt.kl_full(p, x)
    yield "ref_logits", lambda r: nt.kl_full(x, r)
    yield "policy_logprobs", lambda p: nt.kl_per_response(p, x[0], [0, 5])
    yield "mask", lambda m: nt.kl_per_response(x[0], x[0], [0, 5], mask=m)
    yield "logprobs", lambda p: nt.rubric_score(p, ids, [0, 4], x, x[:, 0])
    yield "rubric", lambda r: nt.rubric_score(x[0, :4], ids, [0, 4], r, x[:, 0])
    yield "logprobs", lambda p: nt.grpo_loss(p, [1.0], [0, 5])
    yield "advantages", lambda a: nt.grpo_loss(x[0], a, [0, 5])
    yield "old_logprobs", lambda p: nt.grpo_token_loss(x[0], [1.0], [0, 5], old_logprobs=p)
    yield "entropies", lambda e: nt.grpo_loss(x[0], [1.0], [0, 5], entropies=e)
    yield "entropies", lambda e: nt.grpo_token_loss(x[0], [1.0], [0, 5], entropies=e)
    yield "logits", lambda x: nt.grpo_from_logits(x, ids, [1.0], [0, 4])
    yield "x", lambda x: nt.linear(x, torch.ones(2, 5))
    yield "weight", lambda w: nt.linear(x, w)
    yield "bias", lambda b: nt.linear(x, x, b)
    yield "x", lambda x: nt.rms_norm(x, torch.ones(5))
    yield "weight", lambda w: nt.rms_norm(x, w)
    yield "gate", lambda g: nt.swiglu(g, torch.ones(4, 5))
    yield "up", lambda u: nt.swiglu(x, u)
    yield "x", lambda x: nt.rotary(x, x, x)
    yield "cosines", lambda c: nt.rotary(x, c, x)
    yield "positions", lambda p: nt.rotary_angles(p, x[0])
    yield "q", lambda q: nt.attention(q, x[None], x[None])
    yield "k", lambda k: nt.attention(x[None], k, x[None])
    yield "mask", lambda m: nt.attention(x[None], x[None], x[None], mask=m)


def test_what_is_no_plain_tensor():
    x = constant(4, 5)
    odd = [(x.to(torch.complex64), TypeError, "complex numbers are not supported"),
           (x.to_sparse(), NotImplementedError, "sparse"), (x.to_sparse_csr(), NotImplementedError, "sparse_csr"),
           (torch.nested.nested_tensor([x, x[:2]]), NotImplementedError, "nested tensors"),
           (torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged), NotImplementedError, "nested tensors"),
           (torch.quantize_per_tensor(x, 0.1, 10, torch.quint8), NotImplementedError, "quantized tensors")]
    if torch.backends.mkldnn.is_available():
        odd.append((x.to_mkldnn(), NotImplementedError, "mkldnn"))
    for name, function in of_one_tensor():
        for given, kind, text in odd:
            raises(kind, (f"{name}: ", text), lambda: function(given))
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        tiny = x.to(dtype)
        for function in (nt.softmax, nt.log_softmax, nt.sparsemax, nt.logsumexp):
            assert torch.equal(function(tiny), function(tiny.float())), "as float32, which holds it exactly"
        raises(TypeError, ("a: ", "float8"), lambda: nt.matmul(tiny, tiny.T))
    raises(NotImplementedError, ("input: ", "masked tensors"), lambda: nt.softmax(torch.masked.masked_tensor(x, x > 0)))
    for given, kind, text in odd[1:]:
        raises(kind, ("input: ", text), lambda: nt.logsumexp(given))
    assert nt.softmax(x.to("meta")).shape == x.shape and nt.softmax(x.to("meta")).is_meta
    for bare in (torch.conj(torch.complex(x, x)).imag, torch.complex(x, x).real):
        assert torch.equal(nt.softmax(bare), nt.softmax(bare.clone()))


# ---- logsumexp's dimensions -------------------------------------------------------------------------------------------------


def test_logsumexp_dimensions_as_in_pytorch():
    number, matrix = torch.tensor(3.0), constant(2, 3)
    for x in (number, matrix):
        for dim in (0, -1, (0,), (-1,), [0], (), None, (0, -1) if x.ndim else (0,)):
            for keepdim in (False, True):
                for b in (None, 1.0):
                    mine = nt.logsumexp(x, dim, keepdim, b=b)
                    theirs = torch.logsumexp(x, dim or tuple(range(x.ndim)) if dim != 0 else 0, keepdim)
                    close(mine, theirs, 1e-6, f"{dim} {keepdim} {b}")
    leaf = torch.tensor(3.0, requires_grad=True)
    nt.logsumexp(leaf, (0,)).backward()
    assert leaf.grad == 1
    raises(IndexError, "dim: 1 is out of range", lambda: nt.logsumexp(number, (1,)))
    raises(IndexError, "dim: -3 is out of range", lambda: nt.logsumexp(matrix, (0, -3)))
    raises(ValueError, "dim: (0, -2) names a dimension twice", lambda: nt.logsumexp(matrix, (0, -2)))
    raises(ValueError, "dim: (0, -1) names a dimension twice", lambda: nt.logsumexp(number, (0, -1)))
    raises(TypeError, "dim: expected an int", lambda: nt.logsumexp(matrix, "a"))


# ---- torch.compile ----------------------------------------------------------------------------------------------------------


def test_compiles_at_most_twice_for_numbers():
    """Once for the first number, once for every other: 24 numbers, with gradients, and the bits of the call itself."""
    v, u, x, ids = normal(N), constant(N, seed=1), normal(N, V), ids_of()
    q = normal(1, 2, 3, 4)
    for name, function, leaf in [
            *((f"{kind.__name__} {option}", lambda leaf, n, o=option, kind=kind: nt.grpo_loss(
                leaf, ADVANTAGES, OFFSETS, old_logprobs=u, ref_logprobs=u, loss_type="dapo", **{o: kind(n)})[0], v)
              for option, kind in (("num_items", int), ("num_items", float), ("epsilon", float), ("beta", float),
                                   ("max_completion_length", int))),
            ("grpo_token_loss", lambda leaf, n: nt.grpo_token_loss(leaf, ADVANTAGES, OFFSETS, ref_logprobs=u, beta=n), v),
            ("grpo_from_logits", lambda leaf, n: nt.grpo_from_logits(leaf, ids, ADVANTAGES, OFFSETS, temperature=n,
                                                                      num_items=n * 2)[0], x),
            *((f.__name__, lambda leaf, n, f=f: f(leaf, temperature=n), x) for f in (nt.softmax, nt.log_softmax, nt.logsumexp)),
            ("weighted", lambda leaf, n: nt.logsumexp(leaf, b=2.0, temperature=n), x),
            ("token_logprobs", lambda leaf, n: nt.token_logprobs(leaf, ids, temperature=n, softcap=n + 1, loss=True).loss, x),
            ("attention", lambda leaf, n: nt.attention(leaf, leaf, leaf, scale=n), q),
            ("kl_per_response", lambda leaf, n: nt.kl_per_response(leaf, u, OFFSETS, clamp_ratio=n), v),
            ("kl_full", lambda leaf, n: nt.kl_full(leaf, leaf.detach() * 2, temperature=n), x)]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for i in range(24):
            n = 3 + i if name.startswith("int") else 0.7 + i / 10
            a, b = (cpu.values_and_gradients(lambda leaf: f(leaf, n), [leaf]) for f in (compiled, function))
            assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True)), f"{name} at {n}"
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        assert graphs <= 2, f"{name}: {graphs} graphs"


def test_compiles_numbers_that_are_tensors():
    """Such as the tokens of a global batch, counted on the way: in one graph."""
    v, u = normal(N), constant(N, seed=1)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    def function(v, mask):
        return nt.grpo_loss(v, ADVANTAGES, OFFSETS, old_logprobs=u, mask=mask, num_items=mask.sum(), loss_type="dapo")[0]

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for i in range(1, N):
        mask = torch.arange(N) < i
        a, b = (cpu.values_and_gradients(lambda v: f(v, mask), [v]) for f in (compiled, function))
        assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    x, t = normal(3, 4), torch.tensor(0.5, requires_grad=True)
    torch._dynamo.reset()
    raises(Exception, "temperature: has no gradient here", lambda: torch.compile(
        lambda x, t: nt.softmax(x, temperature=t), fullgraph=True, backend="aot_eager")(x, t))


def test_compiled_transforms():
    """Forward mode inside a compiled graph is right or refused, around one too."""
    x, t = constant(3, 4), constant(3, 4, seed=1)
    for name, ours, _ in PAIRS:
        torch._dynamo.reset()
        right = torch.func.jvp(ours, (x,), (t,))[1]
        inside = torch.compile(lambda x, t: torch.func.jvp(ours, (x,), (t,))[1], backend="aot_eager", fullgraph=True)
        close(inside(x, t), right, 1e-6, f"{name}, jvp inside")
        close(torch.func.jvp(torch.compile(ours, backend="aot_eager"), (x,), (t,))[1], right, 1e-6, f"{name}, jvp around")
    torch._dynamo.reset()
    raises(Exception, "napier.torch.matmul: no forward-mode derivative", lambda: torch.compile(
        lambda x, t: torch.func.jvp(lambda x: nt.matmul(x, x.T), (x,), (t,))[1], backend="aot_eager", fullgraph=True)(x, t))
    raises(NotImplementedError, "napier.torch.matmul: no forward-mode derivative", lambda: torch.func.jvp(
        torch.compile(lambda x: nt.matmul(x, x.T), backend="aot_eager"), (x,), (t,)))
