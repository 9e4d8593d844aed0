"""What the RL benchmark measures: the cases, their inputs, made the same way every time, and their results in float64."""
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from bench import bf16_bits, widen  # noqa: E402

VOCABULARY, HIDDEN, CRITERIA = 151_936, 1024, 4
SPREAD = 3.0  # standard deviation of the logits
BETA, EPSILON = 0.04, 0.2
MANY, FEW = 64, 8  # rows of logits compared with float64; rows of results as wide as the vocabulary


@dataclass(frozen=True)
class Case:
    op: str
    dtype: str
    rows: int  # of logits, or tokens
    cols: int  # the vocabulary

    @property
    def data(self):
        """Cases with the same data read the same inputs."""
        kind = {"linear": "linear", "linear_backward": "linear"}.get(self.op)
        kind = kind or ("tokens" if self.op.split("_")[0] in ("kl", "rubric") or self.op in ("grpo_token", "grpo_loss")
                        else "logits")
        return kind, self.dtype, self.rows

    @property
    def shape(self):
        kind = self.data[0]
        if kind == "tokens":
            return f"{self.rows:.0e}".replace("e+0", "e")
        return f"{self.rows} x {HIDDEN} x {self.cols}" if kind == "linear" else f"{self.rows} x {self.cols}"

    @property
    def name(self):
        return f"{self.op}-{self.dtype}-{self.shape.replace(' ', '')}"


def all_cases():
    """In the order of measuring: small inputs first, cases with the same inputs one after another."""
    shapes = {("token_logprobs", "f32"): (64, 512, 2048), ("token_logprobs", "bf16"): (64, 512, 2048),
              ("log_softmax", "f32"): (1, 16, 128, 512), ("gather", "f32"): (64, 1500, 2048),
              ("grpo_from_logits", "f32"): (64, 512), ("grpo_from_logits", "bf16"): (64, 512),
              ("linear", "f32"): (64, 512, 2048), ("linear_backward", "f32"): (64, 512)}
    shapes.update({(op, "f32"): (10**3, 10**7) for op in ("kl_k1", "kl_k3", "rubric", "grpo_token", "grpo_loss")})
    found = [Case(op, dtype, rows, VOCABULARY) for (op, dtype), counts in shapes.items() for rows in counts]
    order = ["tokens", "logits", "linear"]
    return sorted(found, key=lambda c: (order.index(c.data[0]), c.rows, c.dtype))


# ---- Inputs ------------------------------------------------------------------------------------------------------------

BLOCK = (SPREAD * np.random.default_rng(20240229).standard_normal(4_194_319, dtype=np.float32))


def offsets_of(tokens, mean, rng):
    """Responses of uneven length, 50 to 150 % of the mean."""
    lengths = rng.integers(max(mean // 2, 1), mean * 3 // 2 + 1, size=max(2 * tokens // mean, 1))
    ends = np.minimum(np.cumsum(lengths), tokens)
    return np.concatenate([[0], ends[:np.searchsorted(ends, tokens) + 1]]).astype(np.int64)


def response_of(offsets):
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def small(rng, *shape, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def make_logits(dtype, rows, rng):
    """A block of odd length over and over, so that rows differ. Where rows are few their ids are drawn from the policy, as
    in training, and the old and the reference's log-probabilities lie near the truth."""
    block = bf16_bits(BLOCK) if dtype == "bf16" else BLOCK
    logits = np.resize(block, (rows, VOCABULARY))
    ids = rng.integers(0, VOCABULARY, rows)
    offsets = offsets_of(rows, max(rows // 8, 1), rng)
    made = {"logits": logits, "ids": ids, "offsets": offsets, "advantages": small(rng, len(offsets) - 1)}
    near = np.zeros(rows)
    for i in range(rows if rows <= 512 else 0):
        row = logprob_rows(logits[i:i + 1])[0]
        ids[i] = np.argmax(row + rng.gumbel(size=VOCABULARY))
        near[i] = row[ids[i]]
    for name in ("old", "ref"):
        made[name] = (near + small(rng, rows, scale=0.1)).astype(np.float32)
    return made


def make_linear(dtype, rows, rng):
    return {"hidden": small(rng, rows, HIDDEN),
            "weights": np.resize(BLOCK / np.float32(HIDDEN**0.5), (VOCABULARY, HIDDEN)),
            "ids": rng.integers(0, VOCABULARY, rows), "grad": small(rng, rows)}


def make_tokens(dtype, tokens, rng):
    policy = -np.abs(small(rng, tokens, scale=2.0))
    offsets = offsets_of(tokens, min(tokens // 4, 1000), rng)
    near = {name: np.minimum(policy + small(rng, tokens, scale=0.1), 0) for name in ("old", "ref")}
    return {"policy": policy, **near, "offsets": offsets, "advantages": small(rng, len(offsets) - 1),
            "ids": rng.integers(0, VOCABULARY, tokens), "rubric": small(rng, CRITERIA, VOCABULARY),
            "factors": small(rng, CRITERIA)}


def make_inputs(data):
    kind, dtype, rows = data
    return {"logits": make_logits, "linear": make_linear, "tokens": make_tokens}[kind](
        dtype, rows, np.random.default_rng(rows))


# ---- Results in float64 ------------------------------------------------------------------------------------------------


@dataclass
class Truth:
    """The rows `where` (all: None) of a result of `shape`. An error is told relative to `scale`; `bound` is what Napier
    promises or a little more."""
    shape: tuple
    values: np.ndarray
    scale: np.ndarray
    bound: float
    where: np.ndarray = None


def spread_over(count, most):
    return np.unique(np.arange(most) * count // most) if count > most else np.arange(count)


def logprob_rows(logits):
    x = widen(logits)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def one_plus(x):
    return 1.0 + np.abs(x)


def token_truths(rows, where, logits, ids, coarse=1.0):
    logprobs = logprob_rows(logits)
    p = np.exp(logprobs)
    entropy, mine = -(p * logprobs).sum(-1), logprobs[np.arange(len(where)), ids[where]]
    return {"logprobs": Truth((rows,), mine, one_plus(mine), coarse * 1e-6, where),
            "entropy": Truth((rows,), entropy, one_plus(entropy), coarse * 4e-6, where)}


def truth_token_logprobs(c, d):
    where = spread_over(c.rows, MANY)
    x, ids = widen(d["logits"][where]), d["ids"]
    truths = token_truths(c.rows, where, d["logits"][where], ids)
    mine, columns = x[np.arange(len(where)), ids[where]][:, None], np.arange(c.cols)[None, :]
    rank = ((x > mine) | ((x == mine) & (columns < ids[where][:, None]))).sum(-1)
    lse = x.max(-1) + np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1))
    return {**truths, "lse": Truth((c.rows,), lse, one_plus(lse), 1e-6, where),
            "argmax": Truth((c.rows,), x.argmax(-1), np.ones(len(where)), 0, where),
            "rank": Truth((c.rows,), rank, np.ones(len(where)), 0, where)}


def truth_log_softmax(c, d):
    where = spread_over(c.rows, FEW)
    values = logprob_rows(d["logits"][where])
    return {"logprobs": Truth((c.rows, c.cols), values, one_plus(values), 1e-6, where)}


def truth_gather(c, d):
    return {"gathered": Truth((c.rows,), d["logits"][np.arange(c.rows), d["ids"]].astype(np.float64), np.ones(c.rows), 0)}


def products(hidden, weights, piece=16_384):
    """hidden weights^T in float64, without the weights in float64 as a whole."""
    return np.concatenate([hidden.astype(np.float64) @ weights[k:k + piece].astype(np.float64).T
                           for k in range(0, len(weights), piece)], axis=1)


def truth_linear(c, d):
    where = spread_over(c.rows, FEW)
    logits = products(d["hidden"][where], d["weights"])
    return {**token_truths(c.rows, where, logits, d["ids"], coarse=30.0),
            "logits": Truth((c.rows, c.cols), logits, one_plus(logits), 2e-5, where)}


def truth_linear_backward(c, d):
    where, words = spread_over(c.rows, FEW), spread_over(c.cols, 256)
    weights, ids, grad = d["weights"], d["ids"], d["grad"].astype(np.float64)
    grad_words, grad_hidden, logprobs = np.zeros((len(words), HIDDEN)), [], np.empty(c.rows)
    for begin in range(0, c.rows, 64):
        part = np.arange(begin, min(begin + 64, c.rows))
        found = logprob_rows(products(d["hidden"][part], weights))
        logprobs[part] = found[np.arange(len(part)), ids[part]]
        g = -grad[part, None] * np.exp(found)
        g[np.arange(len(part)), ids[part]] += grad[part]
        grad_words += g[:, words].T @ d["hidden"][part].astype(np.float64)
        some = np.intersect1d(part, where) - begin
        grad_hidden.append(sum(g[some, k:k + 16_384] @ weights[k:k + 16_384].astype(np.float64)
                               for k in range(0, c.cols, 16_384)))
    grad_hidden = np.concatenate(grad_hidden)
    return {"logprobs": Truth((c.rows,), logprobs, one_plus(logprobs), 3e-5),
            "grad_hidden": Truth((c.rows, HIDDEN), grad_hidden, np.full(1, np.abs(grad_hidden).max()), 2e-5, where),
            "grad_weights": Truth((c.cols, HIDDEN), grad_words, np.full(1, np.abs(grad_words).max()), 2e-5, words)}


def sums(flat, offsets):
    return np.add.reduceat(flat, offsets[:-1])


def truth_kl(c, d, estimate):
    terms = estimate(d["ref"].astype(np.float64) - d["policy"].astype(np.float64))
    kl = sums(terms, d["offsets"])
    return {"kl": Truth(kl.shape, kl, sums(np.abs(terms), d["offsets"]), 1e-6)}


def truth_rubric(c, d):
    ids, policy, offsets = d["ids"], d["policy"].astype(np.float64), d["offsets"]
    terms = [w * policy * r[ids] for r, w in zip(d["rubric"].astype(np.float64), d["factors"].astype(np.float64))]
    scores, scale = (np.stack([sums(f(t), offsets) for t in terms], -1) for f in (np.asarray, np.abs))
    return {"scores": Truth(scores.shape, scores, scale, 1e-6),
            "rewards": Truth((len(scores),), scores.sum(-1), scale.sum(-1), 1e-6)}


def grpo(d, policy):
    """Losses of the tokens, the mean over responses of their means, its gradient, the scale of the mean, and the tokens
    whose ratio lies so near a clip that f32 may see it on the other side."""
    policy, old, ref = (np.asarray(x, np.float64) for x in (policy, d["old"], d["ref"]))
    which, lengths = response_of(d["offsets"]), np.diff(d["offsets"])
    a, ratio = d["advantages"].astype(np.float64)[which], np.exp(policy - old)
    free, clipped = ratio * a, np.clip(ratio, 1 - EPSILON, 1 + EPSILON) * a
    gap = ref - policy
    losses = BETA * (np.expm1(gap) - gap) - np.minimum(free, clipped)
    share = 1.0 / (lengths[which] * len(lengths))
    held = clipped < free
    close = np.minimum(np.abs(ratio - 1 + EPSILON), np.abs(ratio - 1 - EPSILON)) < 1e-5
    gradient = share * (np.where(held, 0.0, -ratio * a) - BETA * np.expm1(gap))
    return losses, float((losses * share).sum()), gradient, float((np.abs(losses) * share).sum()), close


def truth_grpo_token(c, d):
    losses = grpo(d, d["policy"])[0]
    return {"losses": Truth(losses.shape, losses, one_plus(losses), 1e-6)}


def truth_grpo_loss(c, d):
    _, loss, gradient, scale, close = grpo(d, d["policy"])
    where = np.flatnonzero(~close)
    return {"loss": Truth((1,), np.array([loss]), np.array([scale]), 1e-6),
            "grad_logprobs": Truth(gradient.shape, gradient[where], np.full(1, np.abs(gradient).max()), 1e-6, where)}


def truth_grpo_from_logits(c, d):
    logprobs, entropy, where, rows = np.empty(c.rows), np.empty(c.rows), spread_over(c.rows, FEW), {}
    for i in range(c.rows):
        row = logprob_rows(d["logits"][i:i + 1])[0]
        logprobs[i], entropy[i] = row[d["ids"][i]], -(np.exp(row) * row).sum()
        if i in where:
            rows[i] = row
    _, loss, gradient, scale, close = grpo(d, logprobs)
    where = where[~close[where]]
    grad_rows = np.array([-gradient[i] * np.exp(rows[i]) for i in where])
    grad_rows[np.arange(len(where)), d["ids"][where]] += gradient[where]
    bound = 2e-6 if c.dtype == "f32" else 2.0**-8
    return {"loss": Truth((1,), np.array([loss]), np.array([scale]), 3e-6),
            "logprobs": Truth((c.rows,), logprobs, one_plus(logprobs), 1e-6),
            "entropy": Truth((c.rows,), entropy, one_plus(entropy), 4e-6),
            "grad_logits": Truth((c.rows, c.cols), grad_rows, np.full(1, np.abs(gradient).max()), bound, where)}


TRUTHS = {"token_logprobs": truth_token_logprobs, "log_softmax": truth_log_softmax, "gather": truth_gather,
          "linear": truth_linear, "linear_backward": truth_linear_backward,
          "kl_k1": lambda c, d: truth_kl(c, d, np.negative), "kl_k3": lambda c, d: truth_kl(c, d, lambda x: np.expm1(x) - x),
          "rubric": truth_rubric, "grpo_token": truth_grpo_token, "grpo_loss": truth_grpo_loss,
          "grpo_from_logits": truth_grpo_from_logits}


def truths_of(case, inputs):
    return TRUTHS[case.op](case, inputs)
