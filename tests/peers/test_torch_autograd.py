"""napier.torch: values and gradients against PyTorch's own in float64, gradcheck, torch.compile, modules, 16-bit floats."""
import concurrent.futures
import functools

import torch

import napier
import napier.torch as nt
from support import python, raises

HALVES = (torch.bfloat16, torch.float16)
OFFSETS = torch.tensor([0, 5, 5, 9, 12])
N, V = 12, 40


def normal(*shape, seed=0, dtype=torch.float32, scale=1.0):
    x = scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.to(dtype).requires_grad_()


def leaf64(x):
    return x.detach().double().requires_grad_()


def close(mine, theirs, bound, what):
    worst = ((mine.detach().double() - theirs.detach()).abs() / (1 + theirs.detach().abs())).max().item()
    assert worst <= bound, f"{what}: {worst:.2e} > {bound:.1e}"
    return worst


def compare(ours, theirs, inputs, bound=1e-5, what=""):
    """Values and gradients of ours at the inputs, and of theirs at the same numbers in float64, with random weights."""
    wide = [leaf64(x) for x in inputs]
    a, b = ours(*inputs), theirs(*wide)
    a, b = (r if isinstance(r, tuple) else (r,) for r in (a, b))
    worst = 0.0
    loss_a = loss_b = 0
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        assert x.shape == y.shape, f"{what}: shape {tuple(x.shape)}, not {tuple(y.shape)}"
        worst = max(worst, close(x, y, bound, f"{what} value {i}"))
        w = torch.randn(y.shape, generator=torch.Generator().manual_seed(i), dtype=torch.float64)
        loss_a, loss_b = loss_a + (x.double() * w).sum(), loss_b + (y * w).sum()
    for i, (x, y, z) in enumerate(zip(inputs, torch.autograd.grad(loss_a, inputs), torch.autograd.grad(loss_b, wide))):
        assert y.dtype == x.dtype
        worst = max(worst, close(y, z, bound, f"{what} gradient {i}"))
    return worst


def ids_of(n=N, vocabulary=V):
    return torch.randint(vocabulary, (n,), generator=torch.Generator().manual_seed(5))


# ---- softmax, log_softmax, logsumexp ---------------------------------------------------------------------------------------

def reference_sparsemax(x, dim):
    z = x.double().movedim(dim, -1)
    falling = z.sort(-1, descending=True).values
    tau = (falling.cumsum(-1) - 1) / torch.arange(1, z.shape[-1] + 1)
    size = (falling > tau).sum(-1, keepdim=True)
    return (z - tau.gather(-1, size - 1)).clamp(min=0).movedim(-1, dim).to(x.dtype)


MAPS = {"softmax": (nt.softmax, torch.softmax), "log_softmax": (nt.log_softmax, torch.log_softmax),
        "sparsemax": (nt.sparsemax, reference_sparsemax)}


def test_gradcheck():
    for shape in ((5,), (3, 4), (2, 3, 2)):
        x = normal(*shape, dtype=torch.float64)
        for dim in range(-1, len(shape)):
            for t in (1.0, 0.6):
                for ours, _ in MAPS.values():
                    assert torch.autograd.gradcheck(functools.partial(ours, dim=dim, temperature=t), x)
                for keepdim in (False, True):
                    assert torch.autograd.gradcheck(functools.partial(nt.logsumexp, dim=dim, keepdim=keepdim, temperature=t), x)
        assert torch.autograd.gradcheck(nt.logsumexp, x)
    assert torch.autograd.gradcheck(functools.partial(nt.logsumexp, dim=(0, 2)), x)


WEIGHTED = [(None, False), (0, True), (-1, False), ((0, 2), True)]


def reference_weighted(x, b, dim, keepdim, t):
    """(log |sum|, sign) after taking the largest logit out."""
    x, b = torch.broadcast_tensors(x / t, b)
    dims = tuple(range(x.ndim)) if dim is None else dim
    m = x.detach().amax(dims, keepdim=True)
    s = (b * torch.exp(x - m)).sum(dims, keepdim=True)
    lse, sign = s.abs().log() + m, s.sign()
    if keepdim:
        return lse, sign
    return (lse.reshape(()), sign.reshape(())) if dim is None else (lse.squeeze(dims), sign.squeeze(dims))


def test_logsumexp_with_weights():
    """Values and gradients to both against float64, for broadcast weights of both signs, and where exp overflows."""
    worst = 0.0
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
        x, b = normal(2, 3, 4, dtype=dtype), normal(3, 1, seed=7, dtype=dtype)
        for offset in (0.0, 5000.0, -5000.0):
            far = (x.detach() + offset).requires_grad_()
            for dim, keepdim in WEIGHTED:
                worst = max(worst, compare(
                    lambda x, b: nt.logsumexp(x, dim, keepdim, b=b, return_sign=True, temperature=0.7)[0],
                    lambda x, b: reference_weighted(x, b, dim, keepdim, 0.7)[0], [far, b], bound, f"weighted {dim} {offset}"))
                sign = nt.logsumexp(far, dim, keepdim, b=b, return_sign=True)[1]
                assert torch.equal(sign.double(), reference_weighted(leaf64(far), leaf64(b), dim, keepdim, 1.0)[1])
    x = normal(3, 4, dtype=torch.float64)
    assert torch.equal(nt.logsumexp(x, 1, b=1), nt.logsumexp(x, 1)) and nt.logsumexp(x, b=-1).isnan()
    ones, plain = (torch.autograd.grad(nt.logsumexp(x, 1, b=b).sum(), x)[0] for b in (1, None))
    assert (ones - plain).abs().max() < 1e-15
    return f"within {worst:.1e}"


def test_logsumexp_with_weights_gradcheck():
    x, b = normal(2, 3, 4, dtype=torch.float64), normal(3, 1, seed=7, dtype=torch.float64)
    for dim, keepdim in WEIGHTED:
        for t in (1.0, 0.6):
            assert torch.autograd.gradcheck(
                lambda x, b: nt.logsumexp(x, dim, keepdim, b=b, return_sign=True, temperature=t)[0], (x, b))


def test_logsumexp_with_weights_that_drop_elements():
    """A weight of 0 drops its element, whatever it is: no gradient to it. -inf counts nothing. What cancels has none."""
    x = torch.tensor([1.0, torch.inf, torch.nan, -torch.inf, 2.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([2.0, 0.0, 0.0, 3.0, 1.0], dtype=torch.float64, requires_grad=True)
    value = nt.logsumexp(x, b=b)
    value.backward()
    s = 2 * torch.tensor(1.0).double().exp() + torch.tensor(2.0).double().exp()
    assert abs(value.item() - s.log().item()) < 1e-14
    close(x.grad, torch.tensor([2, 0, 0, 0, 1]).double() * x.detach().nan_to_num(0, 0, 0).exp() / s, 1e-14, "to x")
    close(b.grad[[0, 3, 4]], torch.tensor([1.0, -torch.inf, 2.0]).double().exp() / s, 1e-14, "to b")
    for values, weights, lse in (([3.0, 3.0], [1.0, -1.0], -torch.inf), ([1.0, 2.0], [1.0, -1.0], torch.nan)):
        x, b = torch.tensor(values, requires_grad=True), torch.tensor(weights)
        value = nt.logsumexp(x, b=b)
        value.backward()
        assert torch.equal(value.detach(), torch.tensor(lse)) or value.isnan() and lse != lse
        assert x.grad.isnan().all()
    x = torch.full((2, 3), -torch.inf, requires_grad=True)
    nt.logsumexp(x, 1, b=torch.ones(3)).sum().backward()
    assert torch.equal(x.grad, torch.zeros(2, 3)), "as without weights"


def test_matmul():
    compare(nt.matmul, torch.matmul, [normal(5, 7), normal(7, 3, seed=1)], 1e-5, "matmul")
    a, b = normal(5, 7, dtype=torch.bfloat16), normal(7, 3, seed=1)
    nt.matmul(a, b).sum().backward()
    assert a.grad.dtype == torch.bfloat16 and b.grad.dtype == torch.float32


def test_softmax_family():
    worst = 0.0
    for shape in ((7,), (3, 1000), (4, 3, 5), (2, 0)):
        x = normal(*shape, scale=3)
        for dim in range(x.ndim) if x.numel() else ():
            for name, (ours, theirs) in MAPS.items():
                worst = max(worst, compare(functools.partial(ours, dim=dim), functools.partial(theirs, dim=dim), [x], 1e-5, name))
            for keepdim in (False, True):
                worst = max(worst, compare(lambda z: nt.logsumexp(z, dim, keepdim), lambda z: torch.logsumexp(z, dim, keepdim),
                                           [x], 1e-5, "logsumexp"))
    x = normal(2, 3, 4)
    for dims in (None, (0, 1), (2, 0)):
        every = (0, 1, 2) if dims is None else dims
        worst = max(worst, compare(lambda z: nt.logsumexp(z, dims), lambda z: torch.logsumexp(z, every), [x]))
    return f"within {worst:.1e}"


def test_same_bits_as_without_autograd():
    for dtype in (torch.float32, torch.float64, *HALVES):
        x = normal(5, 300, dtype=dtype)
        plain = x.detach()
        assert torch.equal(nt.softmax(x), napier.softmax(plain)) and torch.equal(nt.log_softmax(x, 0), napier.log_softmax(plain, 0))
        assert torch.equal(nt.logsumexp(x), napier.logsumexp(plain))
        assert nt.softmax(x).dtype == dtype
    x, ids = normal(N, V), ids_of()
    assert torch.equal(nt.token_logprobs(x, ids).logprobs, napier.token_logprobs(x.detach(), ids).logprobs)


def test_sixteen_bits():
    for dtype, bound in ((torch.bfloat16, 0.02), (torch.float16, 0.003)):
        x, ids = normal(N, V, dtype=dtype), ids_of()
        for name, (ours, theirs) in MAPS.items():
            compare(functools.partial(ours, dim=1), functools.partial(theirs, dim=1), [x], bound, name)
        compare(lambda z: nt.token_logprobs(z, ids).logprobs,
                lambda z: torch.log_softmax(z, 1).gather(1, ids[:, None])[:, 0], [x], bound)
        compare(lambda z: nt.kl_full(z, z.detach().flip(0)), lambda z: kl_full(z, z.detach().flip(0)), [x], bound)


def test_gradients_of_sixteen_bits_are_rounded_once():
    """They are not computed from a result of 16 bits: in each way to record them, each element is within half a unit in the last place."""
    one = torch.ones(1, dtype=torch.float64)
    for name, theirs in (("softmax", torch.softmax), ("log_softmax", torch.log_softmax)):
        ours, operator = getattr(nt, name), getattr(torch.ops.napier, name)
        ways = {"backward": functools.partial(ours, dim=-1), "operator": lambda x, f=operator: f(x, 1, one, "nan"),
                "compiled": torch.compile(functools.partial(ours, dim=-1), backend="aot_eager")}
        for dtype, half_unit in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
            x, g = (normal(50, 64, seed=i, dtype=dtype, scale=3.0).detach() for i in range(2))
            right = torch.func.vjp(functools.partial(theirs, dim=-1), x.double())[1](g.double())[0]
            grads = {way: torch.autograd.grad(f(leaf), leaf, g)[0] for way, f in ways.items() for leaf in [x.clone().requires_grad_()]}
            grads["torch.func"] = torch.func.vjp(ways["backward"], x)[1](g)[0]
            for way, grad in grads.items():
                error = ((grad.double() - right).abs() / right.abs())[right.abs() > 1e-3].max().item()
                assert error <= 1.01 * half_unit, f"{name} {dtype} {way}: {error:.2e}"
            assert torch.equal(ours(x.clone().requires_grad_()), napier.softmax(x) if name == "softmax" else napier.log_softmax(x))


# ---- Tokens -------------------------------------------------------------------------------------------------------------------


def reference_tokens(x, ids, temperature=1.0, softcap=0.0):
    z = (softcap * torch.tanh(x / softcap) if softcap else x) / temperature
    p = torch.log_softmax(z, -1)
    chosen = p.gather(-1, ids.reshape(*x.shape[:-1], -1)).reshape(ids.shape)
    return chosen, torch.logsumexp(z, -1), -(p.exp() * p).sum(-1), -chosen


def test_token_logprobs():
    worst = 0.0
    for options in ({}, {"temperature": 0.7}, {"softcap": 5.0, "temperature": 2.0}):
        ids = ids_of().reshape(3, 4)
        worst = max(worst, compare(
            lambda x: nt.token_logprobs(x, ids, lse=True, entropy=True, loss=True, **options)[:4],
            lambda x: reference_tokens(x, ids, **options), [normal(3, 4, V, scale=2)], 1e-5, str(options)))
    ids = ids_of(2 * N).reshape(N, 2)
    keep = torch.rand(N, V, generator=torch.Generator().manual_seed(1)) < 0.6
    keep.scatter_(1, ids, True)
    worst = max(worst, compare(
        lambda x: nt.token_logprobs(x, ids, keep=keep).logprobs,
        lambda x: torch.log_softmax(x.masked_fill(~keep, -torch.inf), 1).gather(1, ids), [normal(N, V)], 1e-5, "keep"))
    ids = ids_of()
    ids[3] = -100
    worst = max(worst, compare(
        lambda x: nt.token_logprobs(x, ids, loss=True, label_smoothing=0.1).loss,
        lambda x: torch.nn.functional.cross_entropy(x, ids, reduction="none", label_smoothing=0.1), [normal(N, V)], 1e-5, "loss"))
    return f"within {worst:.1e}"


def test_linear_token_logprobs():
    ids = ids_of()
    worst = compare(lambda h, w: nt.linear_token_logprobs(h, w, ids, entropy=True, lse=True)[:3],
                    lambda h, w: reference_tokens(h @ w.T, ids)[:3], [normal(N, 16), normal(V, 16, seed=1)], 2e-5)
    h, w = normal(N, 16), normal(V, 16).detach()
    nt.linear_token_logprobs(h, w, ids).logprobs.sum().backward()
    assert h.grad is not None and w.grad is None
    return f"within {worst:.1e}"


def test_gather_logprobs():
    ids = ids_of().reshape(3, 4)
    for dtype in (torch.float32, torch.float64):
        compare(lambda x: nt.gather_logprobs(x, ids), lambda x: x.gather(-1, ids[..., None])[..., 0],
                [normal(3, 4, V, dtype=dtype)], 1e-6)


# ---- KL, rubric, GRPO ------------------------------------------------------------------------------------------------------------


def by_response(x, mean=False):
    parts = [x[a:b] for a, b in zip(OFFSETS[:-1], OFFSETS[1:])]
    return torch.stack([p.sum() / (max(len(p), 1) if mean else 1) for p in parts])


def kl_full(x, y, t=1.0):
    p, q = torch.log_softmax(x / t, -1), torch.log_softmax(y / t, -1)
    return (p.exp() * (p - q)).sum(-1)


def test_kl():
    worst = 0.0
    terms = {"k1": lambda d: -d, "k2": lambda d: d * d / 2, "k3": lambda d: torch.expm1(d) - d}
    for estimator, term in terms.items():
        for reduction in ("sum", "mean"):
            worst = max(worst, compare(
                lambda p, q: nt.kl_per_response(p, q, OFFSETS, estimator=estimator, reduction=reduction),
                lambda p, q: by_response(term(q - p), reduction == "mean"), [normal(N), normal(N, seed=1)], 1e-5, estimator))
    worst = max(worst, compare(lambda p, q: nt.kl_full(p, q, temperature=0.7), lambda p, q: kl_full(p, q, 0.7),
                               [normal(N, V), normal(N, V, seed=1)], 1e-5, "full"))
    return f"within {worst:.1e}"


def test_rubric_score():
    ids, rubric, weights = ids_of(), normal(3, V).detach(), torch.tensor([1.0, -2.0, 0.5])

    def reference(logprobs):
        marks = rubric.double()[:, ids] * logprobs
        scores = torch.stack([by_response(m) for m in marks], 1) * weights.double()
        return scores, scores.sum(1)

    compare(lambda x: nt.rubric_score(x, ids, OFFSETS, rubric, weights), reference, [normal(N)], 1e-5)
    compare(lambda x: nt.rubric_score(x, ids, OFFSETS, rubric, weights)[1], lambda x: reference(x)[1], [normal(N)], 1e-5)


ADVANTAGES = torch.tensor([1.0, 0.5, -1.0, 0.3])


def policies():
    """Log-probabilities, of old and of the reference."""
    old, ref = normal(N, seed=1, scale=0.2).detach() - 1, normal(N, seed=2, scale=0.2).detach() - 1
    return (normal(N, scale=0.2).detach() - 1).requires_grad_(), old, ref


def reference_grpo(logprobs, old, ref):
    """The losses of the tokens, beta 0.1."""
    each = torch.repeat_interleave(ADVANTAGES.double(), OFFSETS.diff())
    ratio, d = torch.exp(logprobs - old.double()), ref.double() - logprobs
    return -torch.minimum(ratio * each, ratio.clamp(0.8, 1.2) * each) + 0.1 * (torch.expm1(d) - d)


def test_grpo_loss():
    logprobs, old, ref = policies()
    entropies = normal(N, seed=3).detach().abs().requires_grad_()
    worst = compare(
        lambda x, h: nt.grpo_loss(x, ADVANTAGES, OFFSETS, old_logprobs=old, ref_logprobs=ref, entropies=h, beta=0.1,
                                  loss_type="bnpo", entropy_coefficient=0.05)[0],
        lambda x, h: reference_grpo(x, old, ref).mean() - 0.05 * h.mean(), [logprobs, entropies], 1e-5)
    for loss_type in ("grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo", "sapo", "vespo", "luspo", "token_mean"):
        loss, metrics = nt.grpo_loss(logprobs, ADVANTAGES, OFFSETS, old_logprobs=old, loss_type=loss_type)
        plain = napier.grpo_loss(logprobs.detach(), ADVANTAGES, OFFSETS, old_logprobs=old, loss_type=loss_type)
        assert loss.item() == torch.tensor(plain.loss).item() and metrics["mean_ratio"].item() == plain.metrics["mean_ratio"]
        (grad,) = torch.autograd.grad(3 * loss, logprobs)
        assert torch.equal(grad, 3 * plain.grad_logprobs), loss_type
    return f"within {worst:.1e}"


def test_grpo_from_logits():
    ids, old = ids_of(), normal(N, seed=1, scale=0.2).detach() - 4
    for dtype in (torch.float32, *HALVES):
        x = normal(N, V, dtype=dtype)
        loss, metrics, logprobs, entropies = nt.grpo_from_logits(x, ids, ADVANTAGES, OFFSETS, old_logprobs=old, temperature=0.8)
        loss.backward()
        y = x.detach().requires_grad_()
        t = nt.token_logprobs(y, ids, temperature=0.8, entropy=True)
        steps, _ = nt.grpo_loss(t.logprobs, ADVANTAGES, OFFSETS, old_logprobs=old)
        steps.backward()
        assert torch.equal(x.grad, y.grad) and loss.item() == steps.item() and torch.equal(logprobs, t.logprobs)
        assert torch.equal(entropies, t.entropy) and not metrics["loss"].requires_grad
    with torch.no_grad():
        assert not nt.grpo_from_logits(x, ids, ADVANTAGES, OFFSETS)[0].requires_grad


def test_grpo_token_loss():
    logprobs, old, ref = policies()
    worst = compare(lambda x: nt.grpo_token_loss(x, ADVANTAGES, OFFSETS, old_logprobs=old, ref_logprobs=ref, beta=0.1),
                    lambda x: reference_grpo(x, old, ref), [logprobs], 1e-5)
    for options in ({"loss_type": "gspo"}, {"level": "sequence"}, {"loss_type": "sapo", "level": "sequence"}, {}):
        losses = nt.grpo_token_loss(logprobs, ADVANTAGES, OFFSETS, old_logprobs=old, **options)
        plain = napier.grpo_token_loss(logprobs.detach(), ADVANTAGES, OFFSETS, old_logprobs=old, **options)
        assert torch.equal(losses, plain[0]) and torch.equal(torch.autograd.grad(losses.sum(), logprobs)[0], plain[1]), options
    return f"within {worst:.1e}"


def test_compute_grpo_loss():
    """The form of the simple interface: gradients flow through the policy's log-probabilities alone."""
    logprobs, old, ref = policies()
    counts = OFFSETS.diff()
    each = torch.repeat_interleave(ADVANTAGES.double(), counts)

    def reference(x):
        ratio = torch.exp(x - old.double())
        kl = torch.zeros(len(counts)).double().index_add(0, torch.repeat_interleave(torch.arange(len(counts)), counts),
                                                         x - ref.double())
        return (-torch.minimum(ratio * each, ratio.clamp(0.8, 1.2) * each).mean()
                + 0.1 * kl.sum() / (counts > 0).sum())

    compare(lambda x: nt.compute_grpo_loss(x, old, ADVANTAGES, OFFSETS, 0.1, ref), reference, [logprobs], 1e-5)
    loss = nt.compute_grpo_loss(logprobs, old, ADVANTAGES, OFFSETS, beta=0.1, ref_lps=ref, eps=0.1)
    assert loss.item() == torch.tensor(napier.compute_grpo_loss(logprobs.detach(), old, ADVANTAGES, OFFSETS, 0.1, ref, 0.1)).item()
    old.requires_grad_()
    (grad,) = torch.autograd.grad(nt.compute_grpo_loss(logprobs, old, ADVANTAGES, OFFSETS), logprobs)
    assert grad.abs().max() > 0


def test_grpo_from_hidden():
    """The bits of linear_token_logprobs and grpo_loss one after the other, and of the C function."""
    ids, old = ids_of(), normal(N, seed=1, scale=0.2).detach() - 4
    for dtype in (torch.float32, *HALVES):
        for options in ({}, {"loss_type": "gspo"}, {"entropy_coefficient": 0.05}):
            h, w = normal(N, 8, dtype=dtype), normal(V, 8, seed=1, dtype=dtype)
            loss, metrics, logprobs, entropies = nt.grpo_from_hidden(h, w, ids, ADVANTAGES, OFFSETS, old_logprobs=old,
                                                                     temperature=0.8, softcap=20.0, **options)
            loss.backward()
            plain = napier.grpo_from_hidden(h.detach(), w.detach(), ids, ADVANTAGES, OFFSETS, old_logprobs=old,
                                            temperature=0.8, softcap=20.0, **options)
            assert torch.equal(h.grad, plain.grad_hidden) and torch.equal(w.grad, plain.grad_weights), (dtype, options)
            assert loss.item() == torch.tensor(plain.loss).item() and torch.equal(logprobs, plain.logprobs)
            assert torch.equal(entropies, plain.entropies) and metrics["entropy"].item() == plain.metrics["entropy"]
            x = (h.detach().double() @ w.detach().double().T).float().requires_grad_()
            near = nt.grpo_from_logits(x, ids, ADVANTAGES, OFFSETS, old_logprobs=old, temperature=0.8, softcap=20.0, **options)
            assert abs(near[0].item() - loss.item()) < 0.05 * (1 + abs(loss.item()))


# ---- Padded batches ------------------------------------------------------------------------------------------------------------

LENGTHS, LONGEST = torch.tensor([3, 1, 300, 0, 1500, 7]), 1600


def padded(*values, holes=False):
    """Tables [B, L] of the ragged values, with NaN as padding; their mask; and the ragged mask."""
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), LENGTHS.cumsum(0)])
    there = torch.arange(LONGEST) < LENGTHS[:, None]
    some = torch.rand(int(LENGTHS.sum()), generator=torch.Generator().manual_seed(4)) < (0.7 if holes else 2.0)
    some[offsets[1:][LENGTHS > 0] - 1] = True  # where a table's response ends, its mask says
    mask = torch.zeros(there.shape, dtype=torch.int64)
    mask[there] = some.long()
    tables = []
    for x in values:
        table = torch.full((*there.shape, *x.shape[1:]), torch.nan if x.is_floating_point() else 10**9, dtype=x.dtype)
        table[there] = x.detach()
        tables.append(table.requires_grad_(x.requires_grad))
    return there, offsets, mask, some, tables


def same_as_ragged(function, *values, holes):
    """function(tensors, offsets, mask): its values and gradients for the table are those for the ragged batch, bit for bit."""
    there, offsets, mask, some, tables = padded(*values, holes=holes)
    theirs, ours = function(values, offsets, some), function(tables, None, mask)
    for a, b in zip(theirs, ours):
        a, b = a.detach(), b.detach()
        b = b[there] if b.shape[:2] == there.shape else b
        assert torch.equal(a[some] if a.shape[:1] == some.shape else a, b[some] if b.shape[:1] == some.shape else b)
    pull = normal(*theirs[0].shape, seed=8).detach() if theirs[0].dim() else torch.tensor(3.0)
    spread = torch.full(there.shape, 5.0) if ours[0].shape == there.shape else pull
    if ours[0].shape == there.shape:
        spread[there] = pull
    given = [(x, y) for x, y in zip(values, tables) if x.requires_grad]
    from_ragged = torch.autograd.grad(theirs[0], [x for x, _ in given], pull)
    from_table = torch.autograd.grad(ours[0], [y for _, y in given], spread)
    for a, b in zip(from_ragged, from_table):
        assert torch.equal(a, b[there]) and (b[mask == 0] == 0).all() and b[mask != 0].abs().max() > 0


def test_padded_batches():
    """Tables [B, L] with a mask, as trainers have them, of NaN and absurd ids where it is 0: the bits of the ragged batch, and
    a gradient of 0 at the padding."""
    n, v = int(LENGTHS.sum()), 11
    x, old, ref, sampler = ((normal(n, seed=i, scale=0.2).detach() - 1) for i in range(4))
    x.requires_grad_()
    h = normal(n, seed=5).detach().abs().requires_grad_()
    advantages, each, ids = normal(6, seed=6).detach(), normal(n, seed=7).detach(), ids_of(n, v)
    for holes in (False, True):
        for kind in ("grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo", "sapo", "vespo", "luspo", "token_mean"):
            options = {"loss_type": kind, "beta": 0.1, "correction": "token_truncate", "entropy_coefficient": 0.1}
            same_as_ragged(lambda t, offsets, mask: nt.grpo_loss(
                t[0], advantages[:, None] if offsets is None else advantages, offsets, old_logprobs=t[1], ref_logprobs=t[2],
                sampler_logprobs=t[3], entropies=t[4], mask=mask, count_empty_responses=True, **options)[:1],
                x, old, ref, sampler, h, holes=holes)
            same_as_ragged(lambda t, offsets, mask: (nt.grpo_token_loss(
                t[0], t[3], offsets, old_logprobs=t[1], ref_logprobs=t[2], mask=mask, loss_type=kind, beta=0.1,
                count_empty_responses=True),), x, old, ref, each, holes=holes)
        same_as_ragged(lambda t, offsets, mask: (nt.compute_grpo_loss(t[0], t[1], advantages, offsets, mask=mask) if
                                                 offsets is None else nt.grpo_loss(
            t[0], advantages, offsets, old_logprobs=t[1], mask=mask, loss_type="token_mean")[0],), x, old, holes=holes)
        for reduction in ("sum", "mean"):
            same_as_ragged(lambda t, offsets, mask: (nt.kl_per_response(*t, offsets, mask=mask, estimator="k3",
                                                                        reduction=reduction),),
                           x, ref.clone().requires_grad_(), holes=holes)
        rubric, weights = normal(3, v).detach(), normal(3).detach()
        for which in (0, 1):
            same_as_ragged(lambda t, offsets, mask: nt.rubric_score(*t, offsets, rubric, weights, mask=mask)[which:which + 1],
                           x, ids, holes=holes)
        for kind in ("grpo", "gspo"):
            options = {"loss_type": kind, "temperature": 0.7, "count_empty_responses": True, "entropy_coefficient": 0.05}
            same_as_ragged(lambda t, offsets, mask: nt.grpo_from_logits(
                t[0], t[1], advantages, offsets, old_logprobs=t[2], mask=mask, **options)[::2],
                normal(n, v), ids, old, holes=holes)
            weights = normal(v, 6, seed=9).detach()
            same_as_ragged(lambda t, offsets, mask: nt.grpo_from_hidden(
                t[0], weights, t[1], advantages, offsets, old_logprobs=t[2], mask=mask, **options)[::2],
                normal(n, 6), ids, old, holes=holes)


def test_padded_arguments():
    x, one = normal(2, 3), torch.ones(2)
    for call, words in (
            (lambda: nt.grpo_loss(x, one, [0, 3, 6]), "offsets: given, but logprobs of shape (2, 3)"),
            (lambda: nt.grpo_loss(x, one, mask=torch.ones(2, 4)), "mask: shape (2, 4), but the batch has 2 responses of 3 tokens"),
            (lambda: nt.grpo_loss(x, one, old_logprobs=torch.ones(6)), "old_logprobs: shape (6,)"),
            (lambda: nt.grpo_loss(x, torch.ones(3)), "advantages: size 3"),
            (lambda: nt.kl_per_response(x, x[:1]), "ref_logprobs: shape (1, 3)"),
            (lambda: nt.rubric_score(x, torch.zeros(2, 2).long(), None, torch.ones(1, 4), torch.ones(1)), "token_ids: shape (2, 2)"),
            (lambda: nt.grpo_from_hidden(normal(2, 3, 4), normal(5, 4), torch.zeros(2, 4).long(), one), "ids: shape (2, 4)"),
            (lambda: nt.grpo_from_logits(normal(2, 3, 4), torch.zeros(2, 4).long(), one), "ids: shape (2, 4)")):
        raises(ValueError, words, call)
    raises(TypeError, "offsets: missing", lambda: nt.grpo_loss(x[0], one))
    for b, l in ((0, 3), (2, 0)):
        assert nt.grpo_loss(x[:b, :l], one[:b], mask=torch.ones(b, l), loss_type="dr_grpo")[0] == 0
        assert nt.grpo_token_loss(x[:b, :l], one[:b]).shape == (b, l)


# ---- Advantages ----------------------------------------------------------------------------------------------------------------


def trl_advantages(rewards, size, scale):
    """Computes it as TRL's GRPOTrainer does, in float64."""
    from trl.trainer.utils import nanstd
    groups = rewards.double().view(-1, size)
    deviation = nanstd(groups, dim=1).repeat_interleave(size) if scale == "group" else nanstd(rewards.double())
    apart = rewards.double() - groups.nanmean(1).repeat_interleave(size)
    return torch.nan_to_num(apart if scale == "none" else apart / (deviation + 1e-4), nan=0.0)


def test_group_advantages():
    pytest_trl = __import__("importlib").util.find_spec("trl")
    rewards = normal(24, seed=1).detach()
    rewards[::7] = torch.nan
    rewards[8:16] = 0.1
    for scale in ("group", "batch", "none"):
        got = nt.group_advantages(rewards.clone().requires_grad_(), 8, scale=scale)
        assert torch.equal(got, napier.group_advantages(rewards, torch.arange(0, 25, 8), scale=scale)) and not got.requires_grad
        assert (got[8:16] == 0).all() if scale != "none" else (got[8:16].abs() == 0).all()
        if pytest_trl:
            assert (got - trl_advantages(rewards, 8, scale)).abs().max() < 1e-6, scale
    assert torch.equal(torch.compile(lambda r: nt.group_advantages(r, 8) * 2)(rewards), nt.group_advantages(rewards, 8) * 2)
    raises(ValueError, "group_size 5 does not divide 24", lambda: nt.group_advantages(rewards, 5))


# ---- gradcheck of what computes in float32 ---------------------------------------------------------------------------------------
# gradcheck takes float64, and by default steps of 1e-6, of which nothing is left once a function has rounded its input to
# float32, and its result. So the points are multiples of 2^-12 and the steps are 2^-7: x +- eps is exact in float32. A
# difference quotient is then wrong by about 2^-24 |f| / 2^-7 = 1e-5 |f| from the result's rounding, and by eps^2 / 6 = 1e-5 of
# the third derivative from the step; 1e-3 leaves room for sums. The gradients' accuracy is tested above, against autograd in
# float64; this is every entry of the Jacobian, and that a second backward gives the same bits (nondet_tol is 0).

STEP = 2.0**-7


def grid(*shape, seed=0, scale=1.0):
    """Random multiples of 2^-12, as float64 that requires grad."""
    return (normal(*shape, seed=seed, dtype=torch.float64, scale=scale).detach() * 4096).round().div(4096).requires_grad_()


def gradcheck(function, *inputs):
    torch.autograd.gradcheck(function, inputs, eps=STEP, atol=1e-3, rtol=1e-3)


def test_gradcheck_token_logprobs():
    x, ids = grid(4, 9), torch.tensor([[0, 3], [8, 8], [2, 5], [7, 1]])
    for options in ({}, {"temperature": 0.75}, {"softcap": 4.0}):
        gradcheck(lambda x: nt.token_logprobs(x, ids, lse=True, entropy=True, **options)[:3], x)
        gradcheck(lambda x: nt.token_logprobs(x, ids[:, 0], loss=True, label_smoothing=0.125, z_loss=0.25, **options).loss, x)
    keep = torch.tensor([1, 1, 1, 1, 0, 1, 0, 1, 1]).bool()
    gradcheck(lambda x: nt.token_logprobs(x, ids, keep=keep, entropy=True)[::2][:2], x)


def test_linear_token_logprobs_with_finals():
    """The backward pass has finals from the forward pass; its bits are those of the call that computes them again."""
    rl, keep = napier.rl, torch.arange(V * N).reshape(N, V) % 3 > 0
    for dtype, ids, options in [
            (torch.float32, ids_of(), {}), (torch.bfloat16, ids_of(), {"temperature": 0.7}), (torch.float16, ids_of(), {"softcap": 3.0}),
            (torch.bfloat16, ids_of(), {"bf16_gradient": True}), (torch.float32, ids_of(), {"keep": keep, "label_smoothing": 0.2}),
            (torch.float32, torch.stack([ids_of(), ids_of().flip(0)], 1), {"keep": keep[0]}), (torch.float32, None, {})]:
        hidden, weights = (x.detach().to(dtype).requires_grad_() for x in (normal(N, 7), normal(V, 7, seed=1)))
        for loss in (False, True):
            if loss and (ids is None or ids.ndim > 1):
                continue
            t = nt.linear_token_logprobs(hidden, weights, ids, lse=True, entropy=True, loss=loss, **options)
            total = t.lse.sum() + t.entropy.sum() + (t.loss.sum() if loss else 0) + (0 if ids is None else t.logprobs.sum())
            ones = torch.ones(N)
            wanted = rl.linear_token_logprobs_backward(
                hidden.detach(), weights.detach(), ids, **options, grad_lse=ones, grad_entropy=ones, grad_loss=ones if loss else None,
                grad_logprobs=None if ids is None else torch.ones(N, ids.numel() // N))
            for a, b in zip(torch.autograd.grad(total, (hidden, weights)), wanted, strict=True):
                assert torch.equal(a, b), (dtype, options, loss)


def test_finals_are_used():
    """Not computed again: other finals give another gradient."""
    x, y, one = normal(N, 7).detach(), normal(V, 7, seed=1).detach(), torch.ones(N)
    numbers = torch.tensor([1.0, 0, 0, 0, 0], dtype=torch.float64)
    *_, finals, chosen = torch.ops.napier.linear_token_logprobs(x, y, None, None, numbers, -100, 32, 0)
    assert finals.shape == (N, 4) and finals.dtype == torch.int64 and chosen.numel() == 0

    def backward(finals):
        return torch.ops.napier.linear_token_logprobs_backward(x, y, None, None, numbers, -100, None, one, None, None, finals, None)

    assert torch.equal(backward(None)[0], backward(finals)[0])
    assert not torch.equal(backward(None)[0], backward(finals.roll(1, 0))[0])


def test_gradcheck_linear_token_logprobs():
    hidden, weights, ids = grid(4, 3), grid(7, 3, seed=1), torch.tensor([0, 6, 2, 2])
    for options in ({}, {"temperature": 0.75, "softcap": 4.0}):
        gradcheck(lambda h, w: nt.linear_token_logprobs(h, w, ids, lse=True, entropy=True, **options)[:3], hidden, weights)
    gradcheck(lambda h, w: nt.linear_token_logprobs(h, w, ids, loss=True, label_smoothing=0.125).loss, hidden, weights)


def test_gradcheck_linear_functions():
    ids = torch.tensor([0, 6, 2, 2])
    gradcheck(lambda x: nt.gather_logprobs(x, ids), grid(4, 7))
    gradcheck(nt.matmul, grid(3, 5), grid(5, 4, seed=1))
    rubric, weights = grid(2, 7, seed=2).detach(), torch.tensor([1.0, -2.0])
    gradcheck(lambda x: nt.rubric_score(x, ids, torch.tensor([0, 3, 3, 4]), rubric, weights), grid(4))


def test_gradcheck_kl():
    p, q = grid(N), grid(N, seed=1)
    mask = torch.tensor([1, 0] * (N // 2))
    for estimator in ("k1", "k2", "k3"):
        for options in ({}, {"reduction": "mean", "mask": mask}):
            gradcheck(lambda p, q: nt.kl_per_response(p, q, OFFSETS, estimator=estimator, **options), p, q)
    for t in (1.0, 0.75):
        gradcheck(lambda p, q: nt.kl_full(p, q, temperature=t), grid(4, 9), grid(4, 9, seed=1))


def away_from_kinks():
    """(logprobs, old) whose ratios are farther than a step from 0.8 and 1.2, where the clip has its corners."""
    old = grid(N, seed=1, scale=0.2).detach() - 1
    steps = torch.tensor([-0.5, -0.35, -0.1, -0.05, 0.05, 0.1, 0.3, 0.5, -0.4, 0.08, -0.08, 0.4]).double()
    return (old + (steps * 4096).round() / 4096).requires_grad_(), old


def test_gradcheck_grpo():
    """Token by token, and reduced. Not cispo and vespo: their weights are constants of the step by definition, so that their
    gradient is no derivative of the loss; test_rl_losses compares it with TRL's."""
    logprobs, old = away_from_kinks()
    ref, entropies = grid(N, seed=2).detach() - 1, grid(N, seed=3, scale=0.5)
    batch = {"old_logprobs": old, "ref_logprobs": ref, "beta": 0.125}
    for loss_type in ("grpo", "bnpo", "dr_grpo", "dapo", "sapo", "luspo", "token_mean"):
        gradcheck(lambda x: nt.grpo_loss(x, ADVANTAGES, OFFSETS, loss_type=loss_type, **batch)[0], logprobs)
        gradcheck(lambda x: nt.grpo_token_loss(x, ADVANTAGES, OFFSETS, loss_type=loss_type, **batch), logprobs)
    for options in ({"loss_type": "gspo"}, {"loss_type": "luspo", "level": "sequence"}):
        gradcheck(lambda x: nt.grpo_loss(x, ADVANTAGES, OFFSETS, epsilon=0.5, **options, **batch)[0], logprobs)
        gradcheck(lambda x: nt.grpo_token_loss(x, ADVANTAGES, OFFSETS, epsilon=0.5, **options, **batch), logprobs)
    gradcheck(lambda x, h: nt.grpo_loss(x, ADVANTAGES, OFFSETS, entropies=h, entropy_coefficient=0.25, **batch)[0],
              logprobs, entropies)


def test_gradcheck_grpo_from_logits():
    x, ids = grid(N, 5), ids_of(N, 5)
    old = nt.token_logprobs(x.detach().float(), ids).logprobs + away_from_kinks()[1].float() * 0.125
    for loss_type in ("grpo", "dapo", "gspo"):
        gradcheck(lambda x: nt.grpo_from_logits(x, ids, ADVANTAGES, OFFSETS, old_logprobs=old, ref_logprobs=old - 0.25,
                                                beta=0.125, loss_type=loss_type, epsilon=0.5)[0], x)


# ---- Operators, compiled graphs, modules -------------------------------------------------------------------------------------------


def examples(device="cpu"):
    """Name, a function of its tensors that require grad, and those."""
    x, y, v, u = (t.detach().to(device).requires_grad_()
                  for t in (normal(N, V), normal(N, V, seed=1), normal(N), normal(N, seed=1)))
    ids, rubric, weights = (t.to(device) for t in (ids_of(), normal(3, V).detach(), torch.tensor([1.0, -2.0, 0.5])))
    offsets, advantages = OFFSETS.to(device), ADVANTAGES.to(device)
    yield "softmax", lambda x: nt.softmax(x, 0, temperature=0.5), [x]
    yield "log_softmax", lambda x: nt.log_softmax(x, 1), [x]
    yield "sparsemax", lambda x: nt.sparsemax(x, 1, temperature=0.5), [x]
    yield "logsumexp", lambda x: (nt.logsumexp(x, 1), nt.logsumexp(x), nt.logsumexp(x, 0, True)), [x]
    yield "weighted", lambda x, y: (nt.logsumexp(x, 1, b=y, return_sign=True)[0], nt.logsumexp(x, b=y.abs())), [x, y]
    yield "matmul", lambda x, y: nt.matmul(x, y.T), [x, y]
    yield "token_logprobs", lambda x: nt.token_logprobs(x, ids, entropy=True, argmax=True, top_k=3)[:3], [x]
    yield "linear_logprobs", lambda x, y: nt.linear_token_logprobs(x, y, ids % N, lse=True)[:2], [x, y]
    yield "gather", lambda x: nt.gather_logprobs(x, ids), [x]
    yield "kl", lambda v, u: nt.kl_per_response(v, u, offsets, estimator="k3"), [v, u]
    yield "kl_full", nt.kl_full, [x, y]
    yield "rubric", lambda v: nt.rubric_score(v, ids, offsets, rubric, weights), [v]
    yield "grpo_loss", lambda v: nt.grpo_loss(v, advantages, offsets, old_logprobs=u.detach())[0], [v]
    yield "grpo_token_loss", lambda v: nt.grpo_token_loss(v, advantages, offsets, old_logprobs=u.detach()), [v]
    yield "grpo_token_loss", lambda v: nt.grpo_token_loss(v, advantages, offsets, old_logprobs=u.detach(), level="sequence"), [v]
    yield "grpo_from_logits", lambda x: nt.grpo_from_logits(x, ids, advantages, offsets)[0], [x]
    yield "grpo_loss", lambda v: nt.grpo_loss(v.reshape(3, -1), advantages[:3], mask=u.detach().reshape(3, -1) > 0)[0], [v]
    yield "attention", lambda q, k, v: nt.attention(q, k, v, causal=True), [
        normal(1, 2, 3, 4, seed=i).detach().to(device).requires_grad_() for i in range(3)]
    if torch.device(device).type == "cpu":  # the steps of a layer have no kernels for GPUs
        bias = normal(N, seed=2)
        yield "linear", lambda x, y, b: (nt.linear(x, y, b), nt.linear(x, y, compute="bf16"),
                                           nt.linear(x, y.bfloat16(), compute="bf16", bf16_gradient=True)), [x, y, bias]
        yield "rms_norm", lambda x, w: nt.rms_norm(x, w, epsilon=1e-3), [x, normal(V, seed=2)]
        yield "swiglu", nt.swiglu, [x, y]
        inverse, scale = nt.rotary_frequencies(V // 4)
        yield "rotary", lambda x: nt.rotary(x.view(N, 4, V // 4), *nt.rotary_angles(torch.arange(N), inverse, scale)), [x]


def values_and_gradients(function, inputs):
    results = function(*inputs)
    results = [r for r in (results if isinstance(results, tuple) else (results,)) if r is not None]
    loss = sum((r.double() ** 2).sum() for r in results)
    return [r.detach() for r in results] + list(torch.autograd.grad(loss, inputs))


def test_compile():
    """One graph, without breaks, and the same bits."""
    for name, function, inputs in examples():
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for a, b in zip(values_and_gradients(function, inputs), values_and_gradients(compiled, inputs), strict=True):
            assert torch.equal(a, b), name


def test_operators():
    """PyTorch's own check of schemas, of shapes without data, and of gradients under tracing."""
    ids, x, y, v = ids_of(), normal(N, V), normal(N, V, seed=1), normal(N)
    none, one, half, clamps, tokens = (torch.tensor(n, dtype=torch.float64) for n in ([], [1.0], [0.5], [0.0, 0.0], [1.0, 0, 0, 0]))
    ops = torch.ops.napier
    for op, args in [
        (ops.softmax, (x, 0, half, "nan")), (ops.log_softmax, (normal(2, 3, 4).transpose(0, 2), 1, one, "zero")),
        (ops.sparsemax, (x, 1, half, "nan")),
        (ops.logsumexp, (x, 0, one)), (ops.logsumexp_weighted, (x, y, 1, half)),
        (ops.logsumexp_weighted, (x, y.detach().double(), 0, one)), (ops.matmul, (x, y.detach().T)), (ops.gather_logprobs, (x, ids)),
        (ops.token_logprobs, (x, ids, None, tokens, -100, 31, 2)),
        (ops.token_logprobs, (x, None, None, tokens, -100, 3, 0)),
        (ops.sample, (x.detach(), torch.tensor([0.5, 0.9, 0, 1, 0, 0], dtype=torch.float64), 5, 7, *[None] * 8)),
        (ops.linear_token_logprobs, (x, y, ids % N, None, torch.cat([tokens, one - 1]), -100, 2, 0)),
        (ops.linear_token_logprobs, (x, y, ids % N, None, torch.cat([tokens, one - 1]), -100, 34, 0)),
        (ops.linear_token_logprobs, (x, y, None, None, torch.cat([tokens, one - 1]), -100, 33, 0)),
        (ops.kl_per_response, (v, v.detach() + 1, OFFSETS, None, "k3", "sum", clamps)), (ops.kl_full, (x, y, one)),
        (ops.rubric_score, (v, ids, OFFSETS, x.detach()[:3], v.detach()[:3])),
        (ops.grpo_loss, (v, None, ADVANTAGES, OFFSETS, None, None, None, None, "beta", one - 1)),
        (ops.grpo_token_loss, (v, None, ADVANTAGES, OFFSETS, None, None, None, None, "", none)),
        (ops.grpo_from_logits, (x, ids, ADVANTAGES, OFFSETS, None, None, None, None, "", tokens[:2], True)),
        (ops.linear, (x, y, v, "bf16", True)), (ops.linear, (x.detach(), y, None, "f32", False)),
        (ops.rms_norm, (x, y[0].detach(), half, torch.bfloat16)), (ops.swiglu, (x, y, torch.float32)),
        (ops.rotary, (normal(2, 3, 5, 4), *nt.rotary_angles(torch.arange(6).view(2, 3), torch.ones(2)), torch.float16)),
        (ops.rotary_angles, (torch.arange(6).view(2, 3), torch.ones(4), half)),
        (ops.group_advantages, (v.detach(), N // 2, None, "batch", one)),
    ]:
        torch.library.opcheck(op.default, args)


def test_sample():
    """Eager and compiled, with lists and tensors as arguments; its log-probabilities are token_logprobs' of the ids."""
    x, outputs = normal(N, V), [[i % V, 3] for i in range(N)]

    def draw(x, positions):
        return nt.sample(x, temperature=0.7, top_p=0.9, seed=3, positions=positions)

    positions = torch.arange(N)
    s = draw(x, positions)
    assert not s.logprobs.requires_grad and s.ids.dtype == torch.int64
    assert torch.equal(s.plain_logprobs, nt.token_logprobs(x, s.ids, temperature=0.7).logprobs)
    for a, b in zip(s, torch.compile(draw, fullgraph=True, backend="aot_eager")(x, positions)):
        assert torch.equal(a, b)
    t = nt.sample(x.reshape(2, -1, V), frequency_penalty=0.5, outputs=outputs, samples=positions.reshape(2, -1))
    u = napier.sample(x.detach().numpy(), frequency_penalty=0.5, outputs=outputs)
    for a, b in zip(t, u):
        assert torch.equal(a.reshape(-1), torch.from_numpy(b))


def test_modules():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=generator)
    labels = (x @ torch.randn(4, 3, generator=generator)).argmax(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), nt.LogSoftmax(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = -nt.gather_logprobs(model(x), labels).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    assert repr(nt.Softmax(0, 0.5)) == "Softmax(dim=0, temperature=0.5, masked_rows='nan')"
    assert torch.equal(nt.Softmax(1)(x), napier.softmax(x, 1)) and torch.equal(nt.LogSumExp(0)(x), napier.logsumexp(x, 0))
    return f"loss {losses[0]:.2f} to {losses[-1]:.2f}"


def test_errors():
    x = normal(3, 4)
    for call, kind, text in [
        (lambda: nt.softmax([1.0]), TypeError, "input: expected a tensor, got list"),
        (lambda: nt.softmax(x, 2), IndexError, "dim: 2"),
        (lambda: nt.logsumexp(x, (0, 0)), ValueError, "twice"),
        (lambda: nt.logsumexp(x, b=torch.ones(3)), ValueError, "b: shape (3,) does not broadcast"),
        (lambda: nt.logsumexp(x, b=torch.ones(4, dtype=torch.complex64)), TypeError, "b: complex"),
        (lambda: nt.matmul(x, x), ValueError, "b: shape (3, 4) does not fit"),
        (lambda: nt.token_logprobs(x, [0.5, 1, 2]), TypeError, "ids: expected integers"),
        (lambda: nt.token_logprobs(x, [0, 1, 9]), ValueError, "ids"),
        (lambda: nt.gather_logprobs(x, [0, 1]), ValueError, "ids: shape"),
        (lambda: nt.grpo_loss(x[0], ADVANTAGES, OFFSETS, colour=1), TypeError, "colour"),
        (lambda: nt.rubric_score(x[0], [0, 0, 0, 0], [0, 4], x, x[0]), RuntimeError, "rubric: has no gradient"),
    ]:
        raises(kind, text, call)


def test_scaled_gradient_of_sixteen_bits():
    """A loss scaled by what bfloat16 does not hold: the product is rounded once."""
    x = normal(N, V, dtype=torch.bfloat16)
    (one,) = torch.autograd.grad(nt.grpo_from_logits(x, ids_of(), ADVANTAGES, OFFSETS)[0], x)
    (scaled,) = torch.autograd.grad(1.0051 * nt.grpo_from_logits(x, ids_of(), ADVANTAGES, OFFSETS)[0], x)
    assert torch.equal(scaled, (one.double() * torch.tensor(1.0051).double()).bfloat16())


def test_the_package_knows_it():
    code = "import napier, sys; assert 'torch' not in sys.modules; print(napier.torch.softmax.__name__)"
    done = python("-c", code)
    assert done.stdout.strip() == "softmax", done.stderr


# ---- Nodes of autograd -----------------------------------------------------------------------------------------------------------

def recorded():
    """(a call that records a node of its own, the same in steps of PyTorch's)"""
    for options in ({}, {"dim": 0}, {"temperature": 0.5}, {"dim": 0, "temperature": 2.0}):
        dim, divisor = options.get("dim", -1), options.get("temperature", 1.0)
        yield lambda x, o=options: nt.softmax(x, **o), lambda x, d=dim, t=divisor: torch.softmax(x / t, d)
        yield lambda x, o=options: nt.log_softmax(x, **o), lambda x, d=dim, t=divisor: torch.log_softmax(x / t, d)
        yield lambda x, o={"dim": -1, **options}: nt.logsumexp(x, **o), lambda x, d=dim, t=divisor: torch.logsumexp(x / t, d)


def test_nodes_keep_what_their_gradient_needs():
    from torch._dynamo import compiled_autograd
    torch._dynamo.reset()
    x = normal(4, 6, dtype=torch.float64)
    for ours, theirs in recorded():
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
            y = ours(x)
        assert sorted(t.numel() > 1 for t in saved) in ([True], [False, True])  # and perhaps the temperature
        assert type(y.grad_fn).__name__ == "RecordedBackward"
        seed = normal(*y.shape, seed=1, dtype=torch.float64).detach()
        want, = torch.autograd.grad(theirs(x), x, seed)
        mine, = torch.autograd.grad(y, x, seed)
        assert torch.allclose(mine, want, rtol=1e-12, atol=1e-14)
        raises(RuntimeError, "a second time", lambda: torch.autograd.grad(y, x, seed))
        leaf = x.detach().requires_grad_()
        with compiled_autograd._enable(torch.compile(backend="eager")):
            ours(leaf).backward(seed)
        assert torch.equal(leaf.grad, mine)


def test_nodes_of_several_threads():
    x, options = normal(8, 16), [(d, t) for d in (0, 1) for t in (1.0, 0.5)]
    want = {o: torch.autograd.grad(nt.softmax(x, o[0], temperature=o[1])[0, 0], x)[0] for o in options}

    def work(o):
        for _ in range(200):
            got, = torch.autograd.grad(nt.softmax(x, o[0], temperature=o[1])[0, 0], x)
            assert torch.equal(got, want[o])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, options * 2))
