"""napier.torch.attention: values and gradients against scaled_dot_product_attention in float64 (compiled graphs: test_torch_autograd);
examples that need PyTorch."""
import os

import torch

import napier
import napier.torch as nt
from support import ROOT, python, raises

EXAMPLES = os.path.join(ROOT, "examples")


def theirs(q, k, v, mask=None, causal=False):
    t, s = q.shape[-2], k.shape[-2]
    if causal:
        mask = torch.ones(t, s, dtype=torch.bool).tril(s - t)
    elif mask is not None and mask.dtype != torch.bool:
        mask = mask.double()
    return torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), mask, enable_gqa=True)


def worst_of(mine, right, inputs, seed=0):
    """Returns the errors of the value and of the gradients to the inputs."""
    g = torch.randn(mine.shape, generator=torch.Generator().manual_seed(seed)).to(mine.dtype)
    a, b = torch.autograd.grad(mine, inputs, g), torch.autograd.grad(right, inputs, g.double())
    return max((x.double() - y.double()).abs().max().item() for x, y in zip((mine, *a), (right, *b)))


def test_batches():
    worst = 0.0
    torch.manual_seed(0)
    for b, h, g, t, s, d in [(2, 4, 4, 7, 7, 8), (2, 4, 2, 5, 9, 16), (1, 2, 1, 33, 33, 64), (3, 6, 2, 1, 17, 32)]:
        for tokens_first in (False, True):
            def leaf(heads, tokens, dim):
                if tokens_first:
                    return torch.randn(b, tokens, heads, dim).transpose(1, 2).requires_grad_()
                return torch.randn(b, heads, tokens, dim, requires_grad=True)

            q, k, v = leaf(h, t, d), leaf(g, s, d), leaf(g, s, d + 3)
            seen = torch.rand(t, s) < 0.7
            seen[:, 0] = True
            for mask in (None, seen, torch.randn(b, 1, t, s), torch.randn(1, h, 1, s)):
                worst = max(worst, worst_of(nt.attention(q, k, v, mask=mask), theirs(q, k, v, mask), [q, k, v]))
            mine = nt.attention(q, k, v, causal=True)
            worst = max(worst, worst_of(mine, theirs(q, k, v, causal=True), [q, k, v]))
            assert torch.equal(mine, napier.attention(q.detach(), k.detach(), v.detach(), causal=True))
    assert worst < 5e-6
    return f"within {worst:.1e}"


def test_ragged_tokens_with_prefixes():
    torch.manual_seed(1)
    queries, keys = torch.tensor([0, 3, 3, 8]), torch.tensor([10, 14, 14, 19])
    begin, end = torch.tensor([0, 2, 0]), torch.tensor([6, 2, 10])
    q, k, v = (torch.randn(n, h, 16, requires_grad=True) for n, h in ((8, 4), (20, 2), (20, 2)))
    mine = nt.attention(q, k, v, causal=True, query_offsets=queries, key_offsets=keys, prefix=(begin, end))
    parts = []
    for i in (0, 2):
        rows = torch.cat([torch.arange(begin[i], end[i]), torch.arange(keys[i], keys[i + 1])])
        one = [x.transpose(0, 1)[None] for x in (q[queries[i]:queries[i + 1]], k[rows], v[rows])]
        parts.append(theirs(*one, causal=True)[0].transpose(0, 1))
    worst = worst_of(mine, torch.cat(parts), [q, k, v])
    assert worst < 5e-6
    return f"within {worst:.1e}"


def test_bf16_weights():
    """Values within the promised error of float64, gradients as PyTorch's bf16, and the same in a compiled graph's operator."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(2, heads, 50, 64).bfloat16().requires_grad_() for heads in (4, 2, 2))
    right = theirs(q, k, v, causal=True)
    mine = nt.attention(q, k, v, causal=True, bf16_weights=True)
    assert (mine.double() - right).abs().max() < 2**-7 * v.abs().max()
    assert not torch.equal(mine, nt.attention(q, k, v, causal=True))
    assert worst_of(mine, right, (q, k, v)) < 0.1
    raises(ValueError, ("k: dtype f32", "bf16_weights"), lambda: nt.attention(q, k.float(), v, bf16_weights=True))


def test_bf16_gradient():
    """Gradients as near to float64's as PyTorch's own bf16, from either forward."""
    torch.manual_seed(4)
    q, k, v = (torch.randn(2, heads, 50, 64).bfloat16().requires_grad_() for heads in (4, 2, 2))
    grad = torch.randn(2, 4, 50, 64).bfloat16()
    right = torch.autograd.grad(theirs(q, k, v, causal=True), (q, k, v), grad.double())
    for bf16_weights in (False, True):
        mine = nt.attention(q, k, v, causal=True, bf16_weights=bf16_weights, bf16_gradient=True)
        for x, y in zip(torch.autograd.grad(mine, (q, k, v), grad), right):
            assert x.dtype == torch.bfloat16
            assert (x.double() - y).abs().max() < 0.02 * y.abs().max()
    plain = torch.autograd.grad(nt.attention(q, k, v, causal=True), q, grad)[0]
    rounded = torch.autograd.grad(nt.attention(q, k, v, causal=True, bf16_gradient=True), q, grad)[0]
    assert not torch.equal(plain, rounded)
    raises(ValueError, ("bf16_gradient", "float32"), lambda: nt.attention(q, k.float(), v, bf16_gradient=True))


def test_gradients_of_lse():
    """Alone, and where attention over two halves of the keys is joined by the halves' lse."""
    torch.manual_seed(5)
    q, k, v = (torch.randn(2, h, n, 8, requires_grad=True) for h, n in ((4, 5), (2, 12), (2, 12)))
    worst = 0.0
    for causal in (False, True):
        scores = q.double() @ k.double().repeat_interleave(2, 1).transpose(-1, -2) / 8**0.5
        if causal:
            scores = scores.masked_fill(~torch.ones(5, 12, dtype=torch.bool).tril(7), -torch.inf)
        lse = nt.attention(q, k, v, causal=causal, return_lse=True)[1]
        worst = max(worst, worst_of(lse, torch.logsumexp(scores, -1), [q, k]))
    parts = [nt.attention(q, k[:, :, at], v[:, :, at], return_lse=True) for at in (slice(0, 7), slice(7, 12))]
    shares = torch.stack([lse for _, lse in parts]).softmax(0).unsqueeze(-1)
    worst = max(worst, worst_of((shares * torch.stack([o for o, _ in parts])).sum(0), theirs(q, k, v), [q, k, v]))
    offsets = torch.tensor([0, 3, 8])
    a, b, c = (torch.randn(8, 2, 4, requires_grad=True) for _ in range(3))
    ragged = nt.attention(a, b, c, query_offsets=offsets, return_lse=True)[1]
    right = [torch.logsumexp(a[i].double().transpose(0, 1) @ b[i].double().permute(1, 2, 0) / 2, -1).T
             for i in (slice(0, 3), slice(3, 8))]
    worst = max(worst, worst_of(ragged, torch.cat(right), [a, b]))
    masked = torch.zeros(3, 3, dtype=torch.bool)
    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    output, lse = nt.attention(x, x.detach(), x.detach(), mask=masked, masked_rows="zero", return_lse=True)
    (output.sum() + lse.exp().sum()).backward()
    assert torch.equal(x.grad, torch.zeros_like(x)), "a row that sees no key"
    compiled = torch.compile(lambda q: nt.attention(q, k, v, return_lse=True), fullgraph=True, backend="aot_eager")
    a, b = (torch.autograd.grad(sum(r.square().sum() for r in f(q)), q)[0] for f in (
        compiled, lambda q: nt.attention(q, k, v, return_lse=True)))
    assert torch.equal(a, b)
    assert worst < 5e-6
    return f"within {worst:.1e}"


def test_sixteen_bits_and_double():
    torch.manual_seed(2)
    for dtype, bound in ((torch.bfloat16, 0.03), (torch.float16, 0.004), (torch.float64, 5e-6)):
        q, k, v = (torch.randn(2, 3, 8, 16, dtype=dtype, requires_grad=True) for _ in range(3))
        mine = nt.attention(q, k, v, causal=True)
        assert worst_of(mine, theirs(q, k, v, causal=True), [q, k, v]) < bound


def test_gradients_by_differences():
    """gradcheck in float32: wide steps, wide tolerance."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(lambda *x: nt.attention(*x, causal=True), (q, k, v), eps=1e-2, atol=2e-3, rtol=2e-2)


def test_errors():
    q = torch.randn(1, 2, 3, 4)
    mask = torch.zeros(3, 3, requires_grad=True)
    for call, kind, text in [(lambda: nt.attention(q, q, q, mask=mask), RuntimeError, "mask: has no gradient"),
                             (lambda: nt.attention(q.numpy(), q, q), TypeError, "q: expected a tensor"),
                             (lambda: nt.attention(q, q[:, :, :, :3], q), ValueError, "k: dim 3")]:
        raises(kind, text, call)


def test_the_classifier_of_the_gallery():
    done = python(os.path.join(EXAMPLES, "torch_classifier.py"))
    assert done.returncode == 0 and "are the same" in done.stdout, done.stderr
    return done.stdout.splitlines()[-1]
