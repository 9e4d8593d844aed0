"""napier.attention against its formula in float64: masks, causal order, shared heads, ragged tokens with prefixes."""

import numpy as np
import pytest
import scipy.special

import napier
from conftest import BF16, bits, refuses


def reference(q, k, v, scale=None, mask=None, causal=False):
    """One sequence: q [heads, queries, dim], k and v [key heads, keys, dim]; the output and lse in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))
    scores = np.einsum("htd,hsd->hts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    t, s = scores.shape[1:]
    hidden = ~np.tri(t, s, s - t, dtype=bool) if causal else np.zeros((t, s), bool)
    if mask is not None:
        mask = np.asarray(mask)
        scores = scores + mask if mask.dtype == np.float32 else scores
        hidden = hidden | (mask == 0 if mask.dtype != np.float32 else False)
    scores = np.where(hidden, -np.inf, scores)
    return np.einsum("hts,hsd->htd", scipy.special.softmax(scores, -1), v), scipy.special.logsumexp(scores, -1)


def heads(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("layout", ["heads first", "tokens first"])
@pytest.mark.parametrize("shape", [(2, 4, 4, 7, 7, 8), (2, 4, 2, 5, 9, 16), (3, 6, 1, 1, 40, 32)], ids=str)
def test_batches(shape, layout, rng):
    b, h, g, t, s, d = shape
    q, k, v = heads(rng, b, h, t, d), heads(rng, b, g, s, d), heads(rng, b, g, s, d + 3)
    if layout == "tokens first":
        q, k, v = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v))
    seen = rng.random((t, s)) < 0.7
    seen[:, 0] = True
    for mask in (None, seen, seen.astype(np.int64), heads(rng, b, 1, t, s), heads(rng, 1, h, 1, s), heads(rng, s)):
        for causal in (False, True):
            if causal and mask is not None:
                continue
            got, lse = napier.attention(q, k, v, mask=mask, causal=causal, return_lse=True)
            m = None if mask is None else np.broadcast_to(mask, (b, h, t, s))
            for i in range(b):
                out, want = reference(q[i], k[i], v[i], mask=None if m is None else m[i], causal=causal)
                np.testing.assert_allclose(got[i], out, atol=2e-6)
                np.testing.assert_allclose(lse[i], want, atol=2e-6)
    assert bits(napier.attention(q[0], k[0], v[0])) == bits(napier.attention(q, k, v)[0])


@pytest.mark.parametrize("dtype, tolerance", [(np.float16, 2e-3), (BF16, 2e-2), (np.float64, 2e-6)], ids=str)
def test_dtypes(dtype, tolerance, rng):
    q, k, v = (heads(rng, 2, 9, 16, dtype=dtype) for _ in range(3))
    got = napier.attention(q, k, v, causal=True, scale=0.3)
    assert got.dtype == (np.float32 if dtype == np.float64 else dtype)
    np.testing.assert_allclose(np.asarray(got, np.float64), reference(q, k, v, 0.3, causal=True)[0], atol=tolerance)


def test_ragged_tokens_and_prefixes(rng):
    q, k, v = heads(rng, 8, 4, 16), heads(rng, 20, 2, 16), heads(rng, 20, 2, 8)
    queries, keys, prefix = [0, 3, 3, 8], [10, 14, 14, 19], ([0, 2, 0], [6, 2, 10])
    got, lse = napier.attention(q, k, v, causal=True, query_offsets=queries, key_offsets=keys, prefix=prefix, return_lse=True)
    assert got.shape == (8, 4, 8) and lse.shape == (8, 4)
    for i in (0, 2):
        rows = np.r_[prefix[0][i] : prefix[1][i], keys[i] : keys[i + 1]]
        some = slice(queries[i], queries[i + 1])
        out, want = reference(*(x.transpose(1, 0, 2) for x in (q[some], k[rows], v[rows])), causal=True)
        np.testing.assert_allclose(got[some].transpose(1, 0, 2), out, atol=2e-6)
        np.testing.assert_allclose(lse[some].T, want, atol=2e-6)
    alone = napier.attention(q[:3].transpose(1, 0, 2), k[:3].transpose(1, 0, 2), v[:3].transpose(1, 0, 2))
    ragged = napier.attention(q[:3], k[:3], v[:3], query_offsets=np.array([0, 3], np.int32))
    assert bits(ragged.transpose(1, 0, 2)) == bits(alone)


def test_gradients(rng):
    q, k, v = heads(rng, 1, 2, 3, 4), heads(rng, 1, 1, 5, 4), heads(rng, 1, 1, 5, 6)
    mask = heads(rng, 3, 5)
    output, lse = napier.attention(q, k, v, mask=mask, return_lse=True)
    grad, grad_lse = heads(rng, *output.shape), heads(rng, *lse.shape)
    grads = napier.attention_backward(grad, q, k, v, output, lse, mask=mask, grad_lse=grad_lse)
    for x, g, at in ((q, grads[0], (0, 1, 2, 3)), (k, grads[1], (0, 0, 4, 1)), (v, grads[2], (0, 0, 2, 5))):

        def loss(step):
            moved = [np.asarray(y, np.float64).copy() for y in (q, k, v)]
            moved[[id(y) for y in (q, k, v)].index(id(x))][at] += step
            output, lse = reference(*(y[0] for y in moved), mask=mask)
            return (output * grad[0]).sum() + (lse * grad_lse[0]).sum()

        assert g.shape == x.shape and g[at] == pytest.approx((loss(1e-5) - loss(-1e-5)) / 2e-5, abs=1e-5)
    same = napier.attention_backward(grad, q, k, v, output, lse, mask=mask, grad_lse=np.zeros_like(lse))
    assert all(bits(a) == bits(b) for a, b in zip(same, napier.attention_backward(grad, q, k, v, output, lse, mask=mask)))
    for name, wrong in (("lse", lse[:, :1]), ("lse", lse[:0]), ("lse", lse.astype(np.float16)), ("grad_lse", lse[..., :2])):
        with pytest.raises(ValueError, match=f"^{name}: not that of the forward call"):
            napier.attention_backward(grad, q, k, v, output, **{"lse": lse, name: wrong})


def test_bf16_weights(rng):
    q, k, v = (heads(rng, 2, n, 70, 40).astype(BF16) for n in (4, 2, 2))
    exact = napier.attention(*(x.astype(np.float32) for x in (q, k, v)), causal=True)
    output, lse = napier.attention(q, k, v, causal=True, bf16_weights=True, return_lse=True)
    plain = napier.attention(q, k, v, causal=True)
    assert output.dtype == BF16 and bits(output) != bits(plain) == bits(exact.astype(BF16))
    assert np.abs(output.astype(np.float32) - exact).max() < 2**-7 * np.abs(v.astype(np.float32)).max()
    grads = napier.attention_backward(output, q, k, v, output, lse, causal=True)
    assert all(np.isfinite(g.astype(np.float32)).all() for g in grads)
    one = napier.attention(q[1:], k[1:], v[1:], causal=True, bf16_weights=True)
    assert bits(one) == bits(output[1:])
    step = napier.attention(q[:, :, -1:], k, v, causal=True, bf16_weights=True)
    assert bits(step) == bits(output[:, :, -1:])


def test_bf16_gradient(rng):
    q, k, v = (heads(rng, 2, n, 70, 40).astype(BF16) for n in (4, 2, 2))
    grad = heads(rng, *q.shape).astype(BF16)
    output, lse = napier.attention(q, k, v, causal=True, bf16_weights=True, return_lse=True)
    plain = napier.attention_backward(grad, q, k, v, output, lse, causal=True)
    rounded = napier.attention_backward(grad, q, k, v, output, lse, causal=True, bf16_gradient=True)
    for mine, exact in zip(rounded, plain):
        assert mine.dtype == BF16 and bits(mine) != bits(exact)
        error = np.abs(mine.astype(np.float32) - exact.astype(np.float32)).max()
        assert error < 0.02 * np.abs(exact.astype(np.float32)).max()
    one = napier.attention_backward(grad[1:], q[1:], k[1:], v[1:], output[1:], lse[1:], causal=True, bf16_gradient=True)
    assert all(bits(a) == bits(b[1:]) for a, b in zip(one, rounded))
    with pytest.raises(ValueError, match="grad_output: dtype f32.*bf16_gradient"):
        napier.attention_backward(grad.astype(np.float32), q, k, v, output, lse, bf16_gradient=True)


def test_queries_that_see_nothing(rng):
    q = heads(rng, 1, 2, 4)
    hidden = np.array([[True, True], [False, False]])
    assert np.isnan(napier.attention(q, q, q, mask=hidden)[0, 1]).all()
    assert (napier.attention(q, q, q, mask=hidden, masked_rows="zero")[0, 1] == 0).all()
    assert napier.attention(q[:, :0], q, q).shape == (1, 0, 4)


def test_errors_name_the_argument(rng):
    q = heads(rng, 1, 2, 3, 4)
    for refused in [
        (lambda: napier.attention(q, q[..., :3], q), ValueError, "k: dim 3"),
        (lambda: napier.attention(q, q[:0], q), ValueError, "^k: 0 sequences"),
        (lambda: napier.attention(q[0, 0], q[0, 0], q[0, 0]), ValueError, "^q: expected"),
        (lambda: napier.attention(q, q, q, mask=np.zeros((5, 7))), ValueError, "^mask: shape"),
        (lambda: napier.attention(q, q, q, scale=np.inf), ValueError, "scale"),
        (lambda: napier.attention(q, q, q, scale=0), ValueError, "^scale: with 0"),
        (lambda: napier.attention(q, q, q, bf16_weights=True), ValueError, "q: dtype f32.*bf16_weights"),
        (lambda: napier.attention(q.astype(BF16), q.astype(BF16), q, bf16_weights=True), ValueError, "v: dtype f32"),
        (lambda: napier.attention(q, q, q, bf16_weights="yes"), ValueError, "q: dtype f32"),
        (lambda: napier.attention(q, q, q, masked_rows="no"), ValueError, "^masked_rows"),
        (lambda: napier.attention(q[0], q[0], q[0], query_offsets=[0, 9]), ValueError, "query_offsets"),
        (lambda: napier.attention(q[0], q[0], q[0], query_offsets=[0.5]), TypeError, "^offsets"),
        (lambda: napier.attention(q, q, q, key_offsets=[0, 1]), ValueError, "^query_offsets: missing"),
    ]:
        refuses(*refused)
