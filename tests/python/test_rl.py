"""Log-probabilities of tokens, KL, rubric scores and GRPO losses against their formulas in NumPy's float64."""

import numpy as np
import pytest
import scipy.special

import napier
from conftest import BF16, bits, refuses, slope

DTYPES = [np.float16, BF16, np.float32]
OFFSETS = np.array([0, 5, 5, 9, 12])
N, V = 12, 40


def close(got, want, tolerance=2e-5):
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance)


def f32(x):
    return np.asarray(x, np.float32)


@pytest.fixture
def logits(rng):
    return f32(3 * rng.standard_normal((N, V)))


@pytest.fixture
def ids(rng):
    return rng.integers(0, V, N)


def responses():
    return zip(OFFSETS[:-1], OFFSETS[1:])


# ---- Log-probabilities of tokens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_token_logprobs(logits, ids, dtype):
    x = logits.astype(dtype)
    z = x.astype(np.float64)
    p = scipy.special.log_softmax(z, axis=1)
    t = napier.token_logprobs(x, ids, lse=True, entropy=True, loss=True, argmax=True, rank=True, top_k=4)
    close(t.logprobs, p[np.arange(N), ids])
    close(t.lse, scipy.special.logsumexp(z, axis=1))
    close(t.entropy, -(np.exp(p) * p).sum(1))
    close(t.loss, -p[np.arange(N), ids])
    order = np.argsort(-z, axis=1, kind="stable")
    assert t.argmax.tolist() == order[:, 0].tolist() and t.top_ids.tolist() == order[:, :4].tolist()
    assert t.rank.tolist() == [list(order[i]).index(ids[i]) for i in range(N)]
    close(t.top_logprobs, np.take_along_axis(p, order[:, :4], 1))
    assert t.logprobs.dtype == np.float32 and t.argmax.dtype == np.int64
    # the same bits by every route
    assert bits(t.logprobs) == bits(napier.gather_logprobs(napier.log_softmax(x, dtype="float32"), ids))
    only = napier.token_logprobs(x, ids)
    assert bits(only.logprobs) == bits(t.logprobs) and only.lse is None and only.top_ids is None


def test_options_of_token_logprobs(logits, ids, rng):
    keep = rng.random((N, V)) < 0.5
    z = 5 * np.tanh(logits.astype(np.float64) / 5) / 0.7
    zk = np.where(keep, z, -np.inf)
    lse = scipy.special.logsumexp(zk, axis=1)
    t = napier.token_logprobs(logits, ids, temperature=0.7, softcap=5.0, keep=keep, lse=True)
    close(t.lse, lse)
    close(t.logprobs, zk[np.arange(N), ids] - lse)
    one = napier.token_logprobs(logits, ids, keep=keep[0], lse=True)
    close(one.lse, scipy.special.logsumexp(np.where(keep[0], logits, -np.inf), axis=1))
    smooth = napier.token_logprobs(logits, ids, loss=True, label_smoothing=0.1, z_loss=0.01).loss
    plain = scipy.special.logsumexp(logits.astype(np.float64), axis=1)
    close(smooth, 0.9 * (plain - logits[np.arange(N), ids]) + 0.1 * (plain - logits.mean(1)) + 0.01 * plain**2)
    some = ids.copy()
    some[3] = -100
    assert napier.token_logprobs(logits, some).logprobs[3] == 0
    some[3:5] = 7
    assert not napier.token_logprobs(logits, some, ignore_index=7).logprobs[3:5].any()


def test_shapes_of_tokens(logits, ids):
    want = napier.token_logprobs(logits, ids, rank=True, top_k=2, entropy=True)
    x, i = logits.reshape(3, 4, V), ids.reshape(3, 4)
    t = napier.token_logprobs(x, i, rank=True, top_k=2, entropy=True)
    assert [r.shape for r in t if r is not None] == [(3, 4), (3, 4), (3, 4), (3, 4, 2), (3, 4, 2)]
    assert all(bits(a) == bits(b) for a, b in zip(t, want) if a is not None)
    many = np.stack([i, (i + 1) % V], -1)
    assert napier.token_logprobs(x, many).logprobs.shape == (3, 4, 2)
    assert bits(napier.token_logprobs(x, many).logprobs[..., 0]) == bits(want.logprobs)
    assert bits(napier.token_logprobs(np.asfortranarray(x), i).logprobs) == bits(want.logprobs)
    assert napier.token_logprobs(x, entropy=True).logprobs is None
    assert napier.token_logprobs(logits[0], ids[0]).logprobs == want.logprobs[0]
    assert napier.token_logprobs(np.zeros((0, V), np.float32), np.zeros(0, int)).logprobs.shape == (0,)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">i8", ">u2"])
def test_integers_of_any_dtype(logits, ids, dtype):
    want = bits(napier.token_logprobs(logits, ids).logprobs)
    i = ids.astype(dtype)
    assert bits(napier.token_logprobs(logits, i).logprobs) == want
    assert bits(napier.token_logprobs(logits, list(map(int, i))).logprobs) == want
    spread = np.zeros(2 * N, dtype)
    spread[::2] = i
    assert bits(napier.token_logprobs(logits, spread[::2]).logprobs) == want
    assert bits(napier.token_logprobs(logits[::-1], i[::-1]).logprobs[::-1]) == want
    kl = napier.kl_per_response(f32(range(12)), np.zeros(12, "f4"), OFFSETS.astype(dtype))
    assert kl.tolist() == [10.0, 0.0, 26.0, 30.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_linear_token_logprobs(rng, ids, dtype):
    hidden, weights = (rng.standard_normal(s).astype(dtype) for s in ((N, 16), (V, 16)))
    z = hidden.astype(np.float64) @ weights.astype(np.float64).T
    t = napier.linear_token_logprobs(hidden, weights, ids, entropy=True)
    close(t.logprobs, scipy.special.log_softmax(z, axis=1)[np.arange(N), ids], 1e-4)
    product = napier.matmul(hidden, weights.T, dtype="float32")
    close(product, z, 1e-4)
    assert bits(t.logprobs) == bits(napier.token_logprobs(product, ids).logprobs)


def test_split_products(rng, ids):
    """float32 by bfloat16 in three pieces: nearer to the truth than float32's chain, and the same in the head."""
    hidden, weights = f32(rng.standard_normal((N, 700))), rng.standard_normal((V, 700)).astype(BF16)
    exact = hidden.astype(np.float64) @ weights.astype(np.float64).T
    product = napier.matmul(hidden, weights.T, split=True)
    assert product.dtype == np.float32
    assert abs(product - exact).max() < abs(napier.matmul(hidden, weights.T) - exact).max() / 2
    assert bits(napier.matmul(weights, hidden.T, split=True)) == bits(product.T)
    t = napier.linear_token_logprobs(hidden, weights, ids, split=True)
    assert bits(t.logprobs) == bits(napier.token_logprobs(product, ids).logprobs)
    with pytest.raises(ValueError, match="b: dtype f32 by f32, but one operand of a split product is bf16"):
        napier.matmul(hidden, hidden.T, split=True)
    with pytest.raises(ValueError, match="weights: dtype f32, but with the option split they are bf16"):
        napier.linear_token_logprobs(hidden, f32(weights), ids, split=True)


def token_loss(z, ids, g):
    """sum of g times log-probabilities, logsumexp and entropy: a function to differentiate."""
    p = scipy.special.log_softmax(z, axis=1)
    return (g[0] * p[np.arange(len(ids)), ids] + g[1] * scipy.special.logsumexp(z, axis=1) - g[2] * (np.exp(p) * p).sum(1)).sum()


def test_gradients_of_tokens(rng):
    hidden, weights = f32(rng.standard_normal((3, 4))), f32(rng.standard_normal((7, 4)))
    ids = np.array([1, 6, 1])
    g = f32(rng.standard_normal((3, 3)))
    x = napier.matmul(hidden, weights.T)
    named = dict(grad_logprobs=g[0].reshape(3, 1), grad_lse=g[1], grad_entropy=g[2])
    got = napier.rl.token_logprobs_backward(x, ids, **named)
    close(got, slope(lambda z: token_loss(z, ids, g), x.astype(np.float64)))
    y = x.copy()
    assert napier.rl.token_logprobs_backward(y, ids, out=y, **named) is y and bits(y) == bits(got)
    h, w = napier.rl.linear_token_logprobs_backward(hidden, weights, ids, **named)
    wide_h, wide_w = hidden.astype(np.float64), weights.astype(np.float64)
    close(h, slope(lambda a: token_loss(a @ wide_w.T, ids, g), wide_h))
    close(w, slope(lambda b: token_loss(wide_h @ b.T, ids, g), wide_w))
    gathered = napier.rl.gather_logprobs_backward(f32([1.0, 2.0]), [3, 0], 4)
    assert gathered.tolist() == [[0, 0, 0, 1], [2, 0, 0, 0]]


def test_gradient_of_tokens_in_bf16(rng):
    hidden, weights = rng.standard_normal((3, 40)).astype(BF16), rng.standard_normal((7, 40)).astype(BF16)
    named = dict(ids=np.array([1, 6, 1]), grad_logprobs=f32(rng.standard_normal((3, 1))))
    slopes = napier.rl.token_logprobs_backward(f32(napier.matmul(hidden, weights.T, dtype=np.float32)), **named).astype(BF16)
    h, w = napier.rl.linear_token_logprobs_backward(hidden, weights, bf16_gradient=True, **named)
    assert bits(h) == bits(napier.matmul(slopes, weights)) and bits(w) == bits(napier.matmul(slopes.T, hidden))
    with pytest.raises(ValueError, match="both are bf16"):
        napier.rl.linear_token_logprobs_backward(f32(hidden), weights, bf16_gradient=True, **named)


def test_errors_of_tokens(logits, ids):
    linear_back = napier.rl.linear_token_logprobs_backward
    for refused in [
        (lambda: napier.token_logprobs(logits, ids[:5]), ValueError, "^ids: shape"),
        (lambda: napier.token_logprobs(logits, ids + V), ValueError, "ids"),
        (lambda: napier.token_logprobs(logits, ids * 0.5), TypeError, "^ids: expected integers"),
        (lambda: napier.token_logprobs(logits, ids > 3), TypeError, "^ids: expected integers"),
        (lambda: napier.token_logprobs(logits, np.full(N, 2**64 - 1, "u8")), ValueError, "^ids: .*does not fit"),
        (lambda: napier.token_logprobs(logits, ids, keep=np.ones(3, bool)), ValueError, "^keep: expected"),
        (lambda: napier.token_logprobs(logits, ids, top_k=V + 1), ValueError, "top_k"),
        (lambda: napier.token_logprobs(logits, ids, top_k="a"), TypeError, "^top_k: expected an integer"),
        (lambda: napier.token_logprobs(logits, ids, softcap=-1), ValueError, "softcap"),
        (lambda: napier.token_logprobs(logits * 1j, ids), TypeError, "^logits: complex"),
        (lambda: napier.token_logprobs(logits, loss=True), ValueError, "loss"),
        (lambda: napier.linear_token_logprobs(logits, logits[:, :3], ids), ValueError, "weights"),
        (lambda: linear_back(logits, logits, finals=np.zeros((N, 3), int)), ValueError, "^finals: expected"),
        (lambda: linear_back(logits, logits, finals=np.zeros((N, 4), "i4")), ValueError, "^finals: expected"),
        (lambda: linear_back(logits, logits, finals=logits), TypeError, "^finals: expected integers"),
        (lambda: linear_back(logits, logits, [0] * N, chosen=logits), ValueError, "^chosen: expected"),
        (
            lambda: linear_back(logits, logits, [0] * N, grad_logprobs=logits[:, :1], finals=np.zeros((N, 4), int)),
            ValueError,
            "gradients: chosen",
        ),
        (lambda: napier.gather_logprobs(logits, ids[:3]), ValueError, "^ids: shape"),
        (lambda: napier.matmul(logits, logits), ValueError, "matmul"),
        (lambda: napier.kl_full(logits, logits[:3]), ValueError, "kl_full"),
        (lambda: napier.kl_per_response([1.0], [1.0], [0, 2]), ValueError, "offsets"),
        (lambda: napier.kl_per_response([1.0], [1.0], [0, 1], estimator="k4"), ValueError, "^estimator: 'k4'"),
        (lambda: napier.kl_per_response([1.0], [1.0], [0, 1], mask=[1, 1]), ValueError, "^mask: expected 1 elements"),
        (lambda: napier.grpo_loss([-1.0], [1.0], [0, 1], loss_type="ppo"), ValueError, "^loss_type: 'ppo' is not one of"),
        (lambda: napier.grpo_loss([-1.0], [1.0], [0, 1], colour="ppo"), TypeError, "unexpected option 'colour'"),
        (lambda: napier.grpo_loss([-1.0], [1.0], [0, 1], epsilon="x"), TypeError, "^epsilon: expected a number"),
        (lambda: napier.grpo_loss([-1.0], [1.0], [0, 1], beta=0.1), ValueError, "ref_logprobs"),
    ]:
        refuses(*refused)


# ---- KL and rubric --------------------------------------------------------------------------------------------------------


def test_kl_per_response(rng):
    policy, ref = f32(rng.standard_normal((2, N)))
    mask = rng.random(N) < 0.7
    d = ref.astype(np.float64) - policy
    terms = {"k1": -d, "k2": d**2 / 2, "k3": np.expm1(d) - d}
    for estimator, k in terms.items():
        want = [k[a:b].sum() for a, b in responses()]
        close(napier.kl_per_response(policy, ref, OFFSETS, estimator=estimator), want)
        masked = [k[a:b][mask[a:b]].sum() / max(1, mask[a:b].sum()) for a, b in responses()]
        for m in (mask, mask.astype(int), mask.astype(np.float32), list(mask), np.repeat(mask, 2)[::2]):
            close(napier.kl_per_response(policy, ref, OFFSETS, estimator=estimator, mask=m, reduction="mean"), masked)
    for wrong in (0.5, np.nan):
        given = np.where(mask, 1, wrong)
        refuses(lambda m=given: napier.kl_per_response(policy, ref, OFFSETS, mask=m), ValueError, "^mask: expected 0 or 1")
    assert not napier.compute_kl(policy, policy, OFFSETS).any()
    got = napier.rl.kl_per_response_backward(policy, ref, OFFSETS, estimator="k2", grad_kl=np.ones(4, "f4"))
    close(got[0], -d)
    close(got[1], d)
    clamped = napier.kl_per_response(policy, ref, OFFSETS, clamp_ratio=0.5)
    close(clamped, [np.clip(-d[a:b], -0.5, 0.5).sum() for a, b in responses()])


def test_kl_full(rng):
    p, q = f32(rng.standard_normal((2, 5, 30)))

    def kl(x, y, t=1.0):
        a, b = (scipy.special.log_softmax(z / t, axis=1) for z in (x, y))
        return (np.exp(a) * (a - b)).sum(1)

    wide = p.astype(np.float64), q.astype(np.float64)
    close(napier.kl_full(p, q, temperature=0.5), kl(*wide, 0.5))
    assert not napier.kl_full(p, p).any()
    g = f32(rng.standard_normal(5))
    to_p, to_q = napier.rl.kl_full_backward(p, q, g)
    close(to_p, slope(lambda x: (g * kl(x, wide[1])).sum(), wide[0]))
    close(to_q, slope(lambda y: (g * kl(wide[0], y)).sum(), wide[1]))


def test_rubric(rng):
    logprobs, ids = f32(rng.standard_normal(N)), rng.integers(0, V, N)
    rubric, weights = f32(rng.standard_normal((3, V))), f32([1.0, -2.0, 0.5])
    want = np.array([[w * (logprobs[a:b] * r[ids[a:b]]).sum() for w, r in zip(weights, rubric)] for a, b in responses()])
    scores, rewards = napier.rubric_score(logprobs, ids, OFFSETS, rubric, weights)
    close(scores, want)
    close(rewards, want.sum(1))
    grad = napier.rl.rubric_score_backward(ids, OFFSETS, rubric, weights, None, np.ones(4, "f4"))
    close(grad, (weights[:, None] * rubric[:, ids]).sum(0))


# ---- GRPO -----------------------------------------------------------------------------------------------------------------


def grpo(logprobs, advantages, old, ref=None, mask=None, loss_type="grpo", eps=0.2, beta=0.0):
    """The clipped losses in float64."""
    each = np.repeat(advantages, np.diff(OFFSETS))
    ratio = np.exp(logprobs - old)
    loss = -np.minimum(ratio * each, np.clip(ratio, 1 - eps, 1 + eps) * each)
    if beta:
        loss = loss + beta * (np.expm1(ref - logprobs) - (ref - logprobs))
    mask = np.ones(len(logprobs)) if mask is None else mask.astype(float)
    sums = np.array([(loss * mask)[a:b].sum() for a, b in responses()])
    counts = np.array([mask[a:b].sum() for a, b in responses()])
    there = np.diff(OFFSETS) > 0
    if loss_type == "grpo":
        return (sums / np.maximum(counts, 1))[there].sum() / there.sum()
    return sums.sum() / mask.sum()


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo"])
def test_grpo_loss(rng, loss_type):
    logprobs = f32(-1 + 0.3 * rng.standard_normal(N))
    old, ref = (f32(logprobs + 0.2 * rng.standard_normal(N)) for _ in range(2))
    advantages = f32([1.0, 0.5, -1.0, 0.3])
    mask = rng.random(N) < 0.8
    mask[[0, 5, 9]] = True
    options = dict(old_logprobs=old, ref_logprobs=ref, mask=mask, beta=0.1, loss_type=loss_type)
    got = napier.grpo_loss(logprobs, advantages, OFFSETS, **options)
    wide = (advantages.astype(np.float64), old.astype(np.float64), ref.astype(np.float64), mask, loss_type, 0.2, 0.1)
    close(got.loss, grpo(logprobs.astype(np.float64), *wide))
    close(got.grad_logprobs, slope(lambda x: grpo(x, *wide), logprobs.astype(np.float64)))
    assert got.metrics["loss"] == got.loss and got.metrics["tokens"] == mask.sum() and got.grad_entropies is None
    losses, grad = napier.grpo_token_loss(logprobs, advantages, OFFSETS, **options)
    assert losses.shape == grad.shape == (N,) and not losses[~mask].any()


def test_grpo_on_policy_and_alias(rng):
    logprobs = f32(-1 + 0.3 * rng.standard_normal(N))
    advantages = [1.0, 0.5, -1.0, 0.3]
    got = napier.grpo_loss(logprobs, advantages, OFFSETS, loss_type="bnpo")
    close(got.loss, -np.repeat(advantages, np.diff(OFFSETS)).mean())
    old = logprobs + np.float32(0.1)
    want = napier.grpo_loss(logprobs, advantages, OFFSETS, old_logprobs=old, loss_type="token_mean").loss
    assert napier.compute_grpo_loss(logprobs, old, advantages, OFFSETS) == want


def test_grpo_empty_and_masked():
    ragged = ([-0.5, -1.0, -2.0], [1, 2], [0, 3, 3])
    padded = napier.grpo_loss([-0.5, -1.0, -2.0, 0.0], [1, 2], [0, 3, 4], mask=[True, True, True, False])
    got = napier.grpo_loss(*ragged, count_empty_responses=True)
    assert got.loss == padded.loss == -0.5 and bits(got.grad_logprobs) == bits(padded.grad_logprobs[:3])
    assert napier.grpo_loss(*ragged).loss == napier.grpo_loss(*ragged, count_empty_responses=False).loss == -1.0


def test_grpo_entropy_threshold(rng):
    logprobs, entropies = f32(-1 + 0.3 * rng.standard_normal(N)), f32(rng.random(N))
    advantages = [1.0, 0.5, -1.0, 0.3]
    threshold = float(np.quantile(entropies, 0.6).astype(np.float32))
    given = napier.grpo_loss(logprobs, advantages, OFFSETS, entropies=entropies, entropy_threshold=threshold)
    found = napier.grpo_loss(logprobs, advantages, OFFSETS, entropies=entropies, top_entropy_quantile=0.4)
    assert given.loss == found.loss and bits(given.grad_logprobs) == bits(found.grad_logprobs)
    with pytest.raises(ValueError, match="exclude each other"):
        napier.grpo_loss(logprobs, advantages, OFFSETS, entropies=entropies, entropy_threshold=0.5, top_entropy_quantile=0.4)


def test_grpo_correction_without_cap(rng):
    logprobs, sampler = (f32(-1 + 0.3 * rng.standard_normal(N)) for _ in range(2))
    losses = [
        napier.grpo_loss(
            logprobs, [1.0, 0.5, -1.0, 0.3], OFFSETS, sampler_logprobs=sampler, correction=mode, correction_cap=float("inf")
        ).loss
        for mode in ("token_truncate", "token_mask")
    ]
    assert losses[0] == losses[1] and np.isfinite(losses[0])


def test_grpo_from_hidden(rng):
    hidden, weights = (rng.standard_normal(shape).astype(np.float32) for shape in ((OFFSETS[-1], 6), (40, 6)))
    ids, advantages = rng.integers(0, 40, OFFSETS[-1]), rng.standard_normal(len(OFFSETS) - 1)
    got = napier.grpo_from_hidden(hidden, weights, ids, advantages, OFFSETS, temperature=0.7)
    want = napier.grpo_from_logits(napier.matmul(hidden, weights.T), ids, advantages, OFFSETS, temperature=0.7)
    assert got.loss == want.loss and (got.logprobs == want.logprobs).all() and (got.entropies == want.entropies).all()
    close(got.grad_hidden, want.grad_logits @ weights)
    close(got.grad_weights, want.grad_logits.T @ hidden)
    assert napier.grpo_from_hidden(hidden, weights, ids, advantages, OFFSETS, gradient=False).grad_hidden is None


def test_grpo_token_loss_backward(rng):
    logprobs, old, grad = (-np.abs(rng.standard_normal(OFFSETS[-1])).astype(np.float32) for _ in range(3))
    advantages = rng.standard_normal(len(OFFSETS) - 1)
    batch = logprobs, advantages, OFFSETS, old
    assert (napier.rl.grpo_token_loss_backward(*batch) == napier.grpo_token_loss(*batch[:3], old_logprobs=old)[1]).all()
    parts = [
        napier.rl.grpo_token_loss_backward(*batch, options={"level": "sequence"}, grad_losses=grad * (i % 2 == part))
        for part in (0, 1)
        for i in [np.arange(OFFSETS[-1])]
    ]
    close(napier.rl.grpo_token_loss_backward(*batch, options={"level": "sequence"}, grad_losses=grad), sum(parts))


def test_group_advantages(rng):
    rewards = rng.standard_normal((5, 4)).astype(np.float32)
    wide = rewards.astype(np.float64)
    apart = wide - wide.mean(1, keepdims=True)
    flat, offsets = rewards.ravel(), np.arange(0, 21, 4)
    for scale, divisor in (("group", wide.std(1, ddof=1, keepdims=True) + 1e-4), ("batch", wide.std(ddof=1) + 1e-4), ("none", 1)):
        got = napier.group_advantages(flat, 4, scale=scale)
        close(got, (apart / divisor).ravel())
        assert (got == napier.group_advantages(flat, offsets, scale=scale)).all()
    assert (napier.group_advantages([0.1] * 3 + [np.nan, 1.0, 2.0], 3)[:4] == 0).all()
    for groups, words in ((3, "group_size 3 does not divide 20"), ([0, 7], "group_offsets"), (0, "group_size 0")):
        with pytest.raises(ValueError, match=words):
            napier.group_advantages(flat, groups)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_grpo_from_logits(logits, ids, dtype):
    x = logits.astype(dtype)
    advantages = f32([1.0, 0.5, -1.0, 0.3])
    old = f32(napier.token_logprobs(x, ids).logprobs + 0.1)
    got = napier.grpo_from_logits(x, ids, advantages, OFFSETS, old_logprobs=old)
    t = napier.token_logprobs(x, ids, entropy=True)
    steps = napier.grpo_loss(t.logprobs, advantages, OFFSETS, old_logprobs=old)
    assert got.loss == steps.loss and bits(got.logprobs) == bits(t.logprobs) and bits(got.entropies) == bits(t.entropy)
    grad = napier.rl.token_logprobs_backward(x, ids, grad_logprobs=steps.grad_logprobs.reshape(N, 1))
    assert got.grad_logits.dtype == dtype and bits(got.grad_logits) == bits(grad)
    assert napier.grpo_from_logits(x, ids, advantages, OFFSETS, gradient=False).grad_logits is None
    y = x.copy()
    assert napier.grpo_from_logits(y, ids, advantages, OFFSETS, old_logprobs=old, out=y).grad_logits is y
    assert bits(y) == bits(grad)
