"""Log-probabilities of tokens, their gradients, KL and rubric scores against PyTorch in float64 and TRL's helpers."""
import itertools

import numpy as np
import torch
import torch.nn.functional as F

from napier_c import napier
from rl_data import Batch, close, double, f32, token_gradient, token_logprobs

ROWS = 9
VOCABULARIES = (1, 7, 300, 1024, 5003)


def logits_of(vocabulary, seed=1, rows=ROWS):
    return f32(3 * np.random.default_rng(seed + vocabulary).normal(size=(rows, vocabulary)))


def ids_of(vocabulary, count=ROWS, seed=2):
    return np.random.default_rng(seed).integers(0, vocabulary, count)


def bf16(x):
    """bfloat16 as its bits, and the same values in float64."""
    t = torch.from_numpy(x).bfloat16()
    return t.view(torch.int16).numpy().view(np.uint16).copy(), t.double().numpy()


def z_of(leaf, temperature=1.0, softcap=0.0, keep=None):
    x = leaf if softcap == 0.0 else softcap * torch.tanh(leaf / softcap)
    z = x / temperature
    return z if keep is None else z.masked_fill(torch.from_numpy(keep) == 0, -torch.inf)


def pick(x, ids):
    return x.gather(-1, torch.from_numpy(ids).reshape(x.shape[0], -1))


def entropy_of(z):
    logprobs = torch.log_softmax(z, -1)
    return -torch.special.xlogy(logprobs.exp(), logprobs.exp()).sum(-1)


# ---- Values ------------------------------------------------------------------------------------------------------------


def test_selective_log_softmax():
    from trl.trainer.utils import selective_log_softmax

    worst = 0.0
    for vocabulary, temperature, k in itertools.product(VOCABULARIES, (1.0, 0.6, 2.5), (1, 3)):
        x, ids = logits_of(vocabulary), ids_of(vocabulary, ROWS * k)
        mine = token_logprobs(x, ids, ["logprobs"], temperature=temperature)["logprobs"]
        theirs = selective_log_softmax(torch.from_numpy(x).double(), torch.from_numpy(ids).reshape(ROWS, k),
                                       temperature=temperature)
        worst = max(worst, close(mine, theirs, 5e-7, f"V {vocabulary}, T {temperature}, {k} ids"))
    return f"within {worst:.1e}"


def test_entropy_from_logits():
    from trl.trainer.utils import entropy_from_logits

    worst = 0.0
    for vocabulary in VOCABULARIES:
        x = logits_of(vocabulary)
        mine = token_logprobs(x, ids_of(vocabulary, 0), ["entropy", "lse"])
        wide = torch.from_numpy(x).double()
        worst = max(worst, close(mine["entropy"] + 1.0, entropy_from_logits(wide) + 1.0, 2e-6, f"V {vocabulary}"))
        close(mine["lse"], torch.logsumexp(wide, -1), 3e-7, f"lse, V {vocabulary}")
    return f"within {worst:.1e}"


def test_sixteen_bits():
    from trl.trainer.utils import selective_log_softmax

    x, wide = bf16(logits_of(3000))
    ids = ids_of(3000)
    mine = token_logprobs(x, ids, ["logprobs", "entropy"])
    truth = selective_log_softmax(torch.from_numpy(wide), torch.from_numpy(ids))
    ours = close(mine["logprobs"], truth, 3e-7, "bf16 logits")
    theirs = selective_log_softmax(torch.from_numpy(wide).bfloat16(), torch.from_numpy(ids)).double()
    return f"within {ours:.1e} (TRL in bf16: {float((theirs - truth).abs().max() / truth.abs().max()):.1e})"


def test_argmax_rank_and_top_k():
    for vocabulary, k in ((7, 7), (300, 20), (5003, 100)):
        x, ids = logits_of(vocabulary), ids_of(vocabulary)
        mine = token_logprobs(x, ids, ["argmax", "rank", "top_ids", "top_logprobs"], top_k=k)
        logprobs = torch.log_softmax(torch.from_numpy(x).double(), -1)
        values, indices = torch.topk(logprobs, k)  # no ties among these
        assert (mine["argmax"] == indices[:, 0].numpy()).all()
        assert (mine["top_ids"] == indices.numpy()).all()
        close(mine["top_logprobs"], values, 5e-7, "top log-probabilities")
        order = torch.argsort(torch.argsort(logprobs, descending=True), -1)
        assert (mine["rank"] == pick(order, ids).numpy()).all()


def test_label_smoothing_and_z_loss():
    worst = 0.0
    for vocabulary, smoothing, z_loss in itertools.product((7, 300, 5003), (0.0, 0.1, 0.5), (0.0, 1e-2)):
        x, ids = logits_of(vocabulary), ids_of(vocabulary)
        ids[3] = -100
        leaf = double(x)
        theirs = F.cross_entropy(leaf, torch.from_numpy(ids), reduction="none", label_smoothing=smoothing)
        counted = torch.from_numpy(ids) != -100
        theirs = theirs + z_loss * torch.logsumexp(leaf, -1) ** 2 * counted
        weights = f32(np.random.default_rng(5).normal(size=ROWS))
        (theirs * torch.from_numpy(weights)).sum().backward()
        options = {"label_smoothing": smoothing, "z_loss": z_loss}
        what = f"V {vocabulary}, smoothing {smoothing}, z-loss {z_loss}"
        close(token_logprobs(x, ids, ["loss"], **options)["loss"], theirs, 5e-7, what)
        worst = max(worst, close(token_gradient(x, ids, {"loss": weights}, **options), leaf.grad, 2e-6, f"{what}: gradient"))
    return f"gradients within {worst:.1e}"


# ---- Gradients ---------------------------------------------------------------------------------------------------------


def test_gradients():
    """Compares gradients of log-probabilities, logsumexp and entropy at once, with temperature, softcap and a kept set."""
    rng, worst, count = np.random.default_rng(6), 0.0, 0
    for vocabulary, temperature, softcap, kept, k in itertools.product((7, 300, 5003), (1.0, 0.6), (0.0, 5.0), (False, True),
                                                                       (1, 2)):
        x, ids = logits_of(vocabulary), ids_of(vocabulary, ROWS * k)
        keep = None
        if kept:
            keep = (rng.random((ROWS, vocabulary)) < 0.6).astype(np.uint8)
            np.put_along_axis(keep, ids.reshape(ROWS, k), 1, 1)
        leaf = double(x)
        z = z_of(leaf, temperature, softcap, keep)
        logprobs = torch.log_softmax(z, -1)
        p = logprobs.exp()
        entropy = -(p * torch.where(p > 0, logprobs, torch.zeros_like(p))).sum(-1)
        theirs = {"logprobs": pick(logprobs, ids), "lse": torch.logsumexp(z, -1), "entropy": entropy}
        weights = {name: f32(rng.normal(size=tuple(value.shape))) for name, value in theirs.items()}
        sum((theirs[name] * torch.from_numpy(weights[name])).sum() for name in theirs).backward()
        options = {"temperature": temperature, "softcap": softcap}
        if kept:
            options.update(keep=keep, keep_stride=vocabulary)
        what = f"V {vocabulary}, T {temperature}, softcap {softcap}, kept set {kept}, {k} ids"
        mine = token_logprobs(x, ids, list(theirs), **options)
        for name, value in theirs.items():
            close(mine[name], value, 2e-6, f"{what}: {name}")
        worst = max(worst, close(token_gradient(x, ids, weights, **options), leaf.grad, 3e-6, f"{what}: gradient"))
        count += 1
    return f"{count} settings, gradients within {worst:.1e}"


def test_gradient_in_place():
    x, ids = logits_of(300), ids_of(300)
    weights = f32(np.random.default_rng(7).normal(size=(ROWS, 1)))
    there = token_gradient(x, ids, {"logprobs": weights})
    napier.call("napier_token_logprobs_backward", x, ids, napier.make("napier_token_options"),
                napier.make("napier_token_gradients", logprobs=weights), x)
    assert (x == there).all()


def test_gather_and_its_gradient():
    x, ids = logits_of(300), ids_of(300)
    logprobs, gathered = np.empty_like(x), np.empty(ROWS, np.float32)
    napier.call("napier_log_softmax", x, logprobs, None)
    napier.call("napier_gather_logprobs", logprobs, ids, gathered)
    assert (gathered == token_logprobs(x, ids, ["logprobs"])["logprobs"][:, 0]).all(), "two routes, two results"
    weights = f32(np.random.default_rng(8).normal(size=ROWS))
    scattered = np.empty_like(x)
    napier.call("napier_gather_logprobs_backward", weights, ids, scattered)
    leaf = double(logprobs)
    (pick(leaf, ids)[:, 0] * torch.from_numpy(weights)).sum().backward()
    close(scattered, leaf.grad, 0.0, "gradient")


# ---- From hidden states ------------------------------------------------------------------------------------------------


def test_linear():
    """Hidden states to log-probabilities and back, and the same bits through the product."""
    rng, worst = np.random.default_rng(9), 0.0
    for rows, hidden, vocabulary in ((3, 16, 50), (20, 64, 3001), (70, 33, 1500)):
        h, w = f32(rng.normal(size=(rows, hidden))), f32(rng.normal(size=(vocabulary, hidden)) * 2 / hidden**0.5)
        ids = ids_of(vocabulary, rows)
        weights = {name: f32(rng.normal(size=shape)) for name, shape in (("logprobs", (rows, 1)), ("entropy", (rows,)))}
        a, b = double(h), double(w)
        logits = a @ b.T
        theirs = {"logprobs": pick(torch.log_softmax(logits, -1), ids), "entropy": entropy_of(logits)}
        sum((theirs[name] * torch.from_numpy(weights[name])).sum() for name in theirs).backward()
        mine = {"logprobs": np.empty((rows, 1), np.float32), "entropy": np.empty(rows, np.float32)}
        options = napier.make("napier_token_options")
        napier.call("napier_linear_token_logprobs", h, w, ids, options, napier.make("napier_token_results", **mine))
        grad_hidden, grad_weights = np.empty_like(h), np.empty_like(w)
        napier.call("napier_linear_token_logprobs_backward", h, w, ids, options,
                    napier.make("napier_token_gradients", **weights), grad_hidden, grad_weights)
        what = f"{rows} x {hidden} x {vocabulary}"
        for name, value in theirs.items():
            close(mine[name], value, 5e-6, f"{what}: {name}")
        worst = max(worst, close(grad_hidden, a.grad, 1e-5, f"{what}: hidden"),
                    close(grad_weights, b.grad, 1e-5, f"{what}: weights"))
        product = np.empty((rows, vocabulary), np.float32)
        napier.call("napier_matmul", h, w.T, product)
        assert (token_logprobs(product, ids, ["logprobs"])["logprobs"] == mine["logprobs"]).all(), "two routes, two results"
    return f"gradients within {worst:.1e}"


# ---- KL and rubric -----------------------------------------------------------------------------------------------------

ESTIMATES = {"K1": lambda d: -d, "K2": lambda d: d**2 / 2, "K3": lambda d: torch.expm1(d) - d}


def by_response(terms, counts, offsets, mean):
    parts = []
    for begin, end in itertools.pairwise(offsets):
        part, weight = terms[begin:end], counts[begin:end]
        parts.append((part * weight).sum() / (weight.sum().clamp(min=1.0) if mean else 1.0))
    return torch.stack(parts)


def test_kl_per_response():
    worst = 0.0
    for (name, estimate), mean, clamp_ratio, clamp_kl in itertools.product(ESTIMATES.items(), (False, True), (0.0, 0.3),
                                                                           (0.0, 0.1)):
        b = Batch(20, spread=0.5)
        policy, ref = double(b.logprobs), double(b.ref)
        d = ref - policy
        d = d.clamp(-clamp_ratio, clamp_ratio) if clamp_ratio else d
        terms = estimate(d).clamp(-clamp_kl, clamp_kl) if clamp_kl else estimate(d)
        theirs = by_response(terms, torch.from_numpy(b.counts).double(), b.offsets, mean)
        weights = f32(np.random.default_rng(21).normal(size=len(theirs)))
        (theirs * torch.from_numpy(weights)).sum().backward()
        options = napier.make("napier_kl_options", estimator=getattr(napier, f"NAPIER_KL_{name}"), reduction=int(mean),
                              clamp_ratio=clamp_ratio, clamp_kl=clamp_kl)
        kl, grads = np.empty(len(theirs), np.float32), (np.empty_like(b.ref), np.empty_like(b.ref))
        napier.call("napier_kl_per_response", b.logprobs, b.ref, b.offsets, b.counts, options, kl)
        napier.call("napier_kl_per_response_backward", b.logprobs, b.ref, b.offsets, b.counts, options, weights, *grads)
        what = f"{name}, mean {mean}, clamps {clamp_ratio} {clamp_kl}"
        close(kl, theirs, 2e-6, what)
        worst = max(worst, close(grads[0], policy.grad, 2e-6, f"{what}: gradient of the policy"),
                    close(grads[1], ref.grad, 2e-6, f"{what}: gradient of the reference"))
    return f"gradients within {worst:.1e}"


def test_kl_full():
    worst = 0.0
    for vocabulary, temperature in itertools.product((7, 300, 5003), (1.0, 0.6)):
        x, y = logits_of(vocabulary), logits_of(vocabulary, seed=30)
        a, b = double(x), double(y)
        p, q = torch.log_softmax(a / temperature, -1), torch.log_softmax(b / temperature, -1)
        theirs = F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
        weights = f32(np.random.default_rng(22).normal(size=ROWS))
        (theirs * torch.from_numpy(weights)).sum().backward()
        options = napier.make("napier_softmax_options", temperature=temperature)
        kl, grads = np.empty(ROWS, np.float32), (np.empty_like(x), np.empty_like(x))
        napier.call("napier_kl_full", x, y, options, kl)
        napier.call("napier_kl_full_backward", x, y, options, weights, *grads)
        what = f"V {vocabulary}, T {temperature}"
        close(kl, theirs, 2e-6, what)
        worst = max(worst, close(grads[0], a.grad, 5e-6, f"{what}: policy"), close(grads[1], b.grad, 5e-6, f"{what}: reference"))
        napier.call("napier_kl_full", x, x, options, kl)
        assert (kl == 0).all(), "KL(p, p)"
    return f"gradients within {worst:.1e}"


def test_rubric():
    b, vocabulary, criteria = Batch(23), 400, 5
    rng = np.random.default_rng(24)
    rubric, factors = f32(rng.normal(size=(criteria, vocabulary))), f32(rng.normal(size=criteria))
    ids = ids_of(vocabulary, b.logprobs.size)
    logprobs = double(b.logprobs)
    terms = logprobs[:, None] * torch.from_numpy(rubric).double()[:, ids].T * torch.from_numpy(factors).double()
    theirs = torch.stack([terms[begin:end].sum(0) for begin, end in itertools.pairwise(b.offsets)])
    count = len(b.lengths)
    scores, rewards = np.empty((count, criteria), np.float32), np.empty(count, np.float32)
    napier.call("napier_rubric_score", b.logprobs, ids, b.offsets, rubric, factors, scores, rewards)
    close(scores, theirs, 1e-6, "scores")
    close(rewards, theirs.sum(-1), 2e-6, "rewards")
    on_scores, on_rewards = f32(rng.normal(size=(count, criteria))), f32(rng.normal(size=count))
    ((theirs * torch.from_numpy(on_scores)).sum() + (theirs.sum(-1) * torch.from_numpy(on_rewards)).sum()).backward()
    mine = np.empty_like(b.logprobs)
    napier.call("napier_rubric_score_backward", ids, b.offsets, rubric, factors, on_scores, on_rewards, mine)
    close(mine, logprobs.grad, 2e-6, "gradient")
