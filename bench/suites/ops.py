"""What training with rewards calls: log-probabilities of tokens, KL, rubrics, GRPO; matmul; attention and its gradients.
Against PyTorch and TRL, and against the floors of the machine."""
import numpy as np

from suites.common import Cell, Truth, block_of, rounded_to, spread_over, widen

NAME = "ops"
PEERS = QUICK_PEERS = ("napier", "torch")
THREADS = "2"
ROUNDS, SLICE, ONCE = (3, 3), 0.1, 1e9
MINUTES = None
MEMORY = True
FIGURES = KEEPS = NEW_WORKERS = SHARES = False

VOCABULARY, HIDDEN, CRITERIA = 151_936, 1024, 4
BETA, EPSILON = 0.04, 0.2
MANY, FEW = 64, 8  # rows of logits compared with float64; rows of results as wide as the vocabulary
HEADS = 16
TOKENS = ("kl_k1", "kl_k3", "rubric", "grpo_token", "grpo_loss")
# operation, dtype: numbers of rows of logits, or of tokens
SHAPES = {
    **{(op, "f32"): (10**3, 10**7) for op in TOKENS},
    ("token_logprobs", "f32"): (64, 512, 2048), ("token_logprobs", "bf16"): (64, 512, 2048),
    ("fused_log_softmax", "f32"): (1, 16, 128, 512), ("gather", "f32"): (64, 1500, 2048),
    ("grpo_from_logits", "f32"): (64, 512), ("grpo_from_logits", "bf16"): (64, 512),
    ("linear", "f32"): (64, 512, 2048), ("linear_backward", "f32"): (64, 512),
}
# m, k, n, dtype
MATMULS = [*((m, 1024, 3072, "f32") for m in (1, 4, 16, 64, 128, 512, 2048)),
           *((m, 1024, VOCABULARY, "f32") for m in (1, 16, 128)), (16, 1024, 3072, "bf16"), (512, 1024, 3072, "bf16")]
# queries, keys, heads of keys, dim, causal: whole sequences, and short suffixes of long ones
ATTENTION = [*((n, n, kv, dim, causal) for kv, dim in ((16, 128), (16, 64), (8, 128))
               for n in (128, 512, 2048, 8192) for causal in (0, 1)),
             *((12, keys, 8, 128, 0) for keys in (132, 1012))]
NARROW_ATTENTION = [shape for shape in ATTENTION if shape[2:4] == (8, 128) and shape[0] <= 2048]  # also in bf16 and f16


# ---- Cells -------------------------------------------------------------------------------------------------------------


def logit_cell(op, dtype, rows, threads):
    kind = "tokens" if op in TOKENS else "linear" if op.startswith("linear") else "logits"
    shape = {"tokens": f"{rows:.0e}".replace("e+0", "e"), "linear": f"{rows}x{HIDDEN}x{VOCABULARY}",
             "logits": f"{rows}x{VOCABULARY}"}[kind]
    size = rows * {"tokens": 40, "logits": 8 * VOCABULARY, "linear": 4 * VOCABULARY}[kind] + (kind == "linear") * 4 * HIDDEN * VOCABULARY
    return Cell(f"{op}-{dtype}-{shape}", op, threads, (kind, dtype, rows), size,
                {"dtype": dtype, "rows": rows, "cols": VOCABULARY})


def matmul_cell(m, k, n, dtype, threads):
    return Cell(f"matmul-{dtype}-{m}x{k}x{n}", "matmul", threads, ("matmul", dtype, m, k, n), 4 * (m * k + n * k + m * n),
                {"dtype": dtype, "rows": m, "inner": k, "cols": n})


ATTENTION_OPS = ("attention", "attention_bf16_weights", "attention_backward", "attention_backward_bf16_gradient")
BF16_ATTENTION_OPS = ("attention_bf16_weights", "attention_backward_bf16_gradient")


def attention_cell(op, dtype, queries, keys, kv_heads, dim, causal, threads):
    label = f"{op}-{dtype}-{queries}x{keys}-{HEADS}:{kv_heads}x{dim}{'-causal' if causal else ''}"
    size = 16 * dim * (HEADS * queries + kv_heads * keys)
    return Cell(label, op, threads, ("attention", dtype, queries, keys, kv_heads, dim), size,
                {"dtype": dtype, "rows": queries, "cols": keys, "heads": HEADS, "kv_heads": kv_heads, "dim": dim,
                 "causal": causal})


def cells(options, threads):
    """In the order of measuring: small inputs first, cells with the same inputs one after another. `--shapes MxKxN`: these
    products and nothing else."""
    if options.shapes:
        shapes = [tuple(int(part) for part in shape.split("x")) for shape in options.shapes.split(",")]
        return [matmul_cell(*shape, dtype, count) for count in threads for shape in shapes for dtype in ("f32", "bf16")]
    found = []
    for count in threads:
        logits = [logit_cell(op, dtype, rows, count) for (op, dtype), many in SHAPES.items()
                  for rows in (many[:1] if options.quick else many)]
        order = ["tokens", "logits", "linear"]
        found += sorted(logits, key=lambda c: (order.index(c.data[0]), c.rows, c.dtype))
        found += [matmul_cell(*shape, count) for shape in (MATMULS[:3] if options.quick else MATMULS)]
        attended = [("f32", shape) for shape in (ATTENTION[:2] if options.quick else ATTENTION)]
        attended += [(dtype, shape) for dtype in ("bf16", "f16") for shape in NARROW_ATTENTION if not options.quick]
        found += [attention_cell(op, dtype, *shape, count) for dtype, shape in attended
                  for op in ATTENTION_OPS if dtype == "bf16" or op not in BF16_ATTENTION_OPS]
    return found


# ---- Inputs ------------------------------------------------------------------------------------------------------------


def offsets_of(tokens, mean, rng):
    """Responses of uneven length, 50 to 150 % of the mean."""
    lengths = rng.integers(max(mean // 2, 1), mean * 3 // 2 + 1, size=max(2 * tokens // mean, 1))
    ends = np.minimum(np.cumsum(lengths), tokens)
    return np.concatenate([[0], ends[:np.searchsorted(ends, tokens) + 1]]).astype(np.int64)


def response_of(offsets):
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def small(rng, *shape, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def make_logits(rng, dtype, rows):
    """A block of odd length over and over, so that rows differ. Where rows are few their ids are drawn from the policy, as
    in training, and the old and the reference's log-probabilities lie near the truth."""
    logits = np.resize(block_of(dtype), (rows, VOCABULARY))
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


def make_linear(rng, dtype, rows):
    return {"hidden": small(rng, rows, HIDDEN),
            "weights": np.resize(block_of("f32", HIDDEN**-0.5), (VOCABULARY, HIDDEN)),
            "ids": rng.integers(0, VOCABULARY, rows), "grad": small(rng, rows)}


def make_tokens(rng, dtype, tokens):
    policy = -np.abs(small(rng, tokens, scale=2.0))
    offsets = offsets_of(tokens, min(tokens // 4, 1000), rng)
    near = {name: np.minimum(policy + small(rng, tokens, scale=0.1), 0) for name in ("old", "ref")}
    return {"policy": policy, **near, "offsets": offsets, "advantages": small(rng, len(offsets) - 1),
            "ids": rng.integers(0, VOCABULARY, tokens), "rubric": small(rng, CRITERIA, VOCABULARY),
            "factors": small(rng, CRITERIA)}


def make_matmul(rng, dtype, m, k, n):
    return {"a": np.resize(block_of(dtype, 1 / 3), (m, k)), "weights": np.resize(block_of(dtype, k**-0.5), (n, k))}


def make_attention(rng, dtype, queries, keys, kv_heads, dim):
    shapes = {"q": (HEADS, queries, dim), "k": (kv_heads, keys, dim), "v": (kv_heads, keys, dim),
              "grad": (HEADS, queries, dim)}
    return {name: rounded_to(dtype, small(rng, *shape)) for name, shape in shapes.items()}


MAKERS = {"logits": make_logits, "linear": make_linear, "tokens": make_tokens, "matmul": make_matmul,
          "attention": make_attention}


def inputs(cell, folder):
    kind, *sizes = cell.data
    return MAKERS[kind](np.random.default_rng(cell.rows), *sizes)


# ---- Results in float64 ------------------------------------------------------------------------------------------------


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


def truth_fused_log_softmax(c, d):
    where = spread_over(c.rows, FEW)
    values = logprob_rows(d["logits"][where])
    return {"logprobs": Truth((c.rows, c.cols), values, one_plus(values), 1e-6, where)}


def truth_gather(c, d):
    return {"gathered": Truth((c.rows,), d["logits"][np.arange(c.rows), d["ids"]].astype(np.float64), np.ones(c.rows), 0)}


def products(hidden, weights, piece=16_384):
    """hidden weights^T in float64, without the weights in float64 as a whole."""
    hidden = hidden.astype(np.float64)
    return np.concatenate([hidden @ widen(weights[k:k + piece]).T
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


def truth_matmul(c, d):
    where = spread_over(c.rows, FEW)
    product = products(widen(d["a"][where]), d["weights"])
    return {"product": Truth((c.rows, c.cols), product, one_plus(product), 2e-5 if c.dtype == "f32" else 2.0**-8, where)}


def attend(q, k, v, grad, causal):
    """One head: the output, and the gradients of q, k and v."""
    scale = q.shape[1]**-0.5
    scores = scale * (q @ k.T)
    if causal:
        scores[np.triu_indices(len(q), 1, len(k))] = -np.inf
    scores -= scores.max(-1, keepdims=True)
    p = np.exp(scores, out=scores)
    p /= p.sum(-1, keepdims=True)
    output = p @ v
    slope = p * (grad @ v.T - (grad * output).sum(-1, keepdims=True))
    return output, scale * slope @ k, scale * slope.T @ q, p.T @ grad


def truth_attention(c, d):
    """Takes the last head of keys, and the heads of queries that share it."""
    heads = range(HEADS - HEADS // c.kv_heads, HEADS)
    k, v = widen(d["k"][-1]), widen(d["v"][-1])
    found = [attend(widen(d["q"][h]), k, v, widen(d["grad"][h]), c.causal) for h in heads]
    output, grad_q, grad_k, grad_v = (np.stack(x) for x in zip(*found))
    many, few = (HEADS, c.rows, c.dim), (c.kv_heads, c.cols, c.dim)
    last = slice(c.kv_heads - 1, c.kv_heads)
    results = {"output": (many, output, slice(heads[0], HEADS)), "grad_q": (many, grad_q, slice(heads[0], HEADS)),
               "grad_k": (few, grad_k.sum(0, keepdims=True), last), "grad_v": (few, grad_v.sum(0, keepdims=True), last)}
    bound = {"f32": 2e-5, "f16": 2.0**-9, "bf16": 2.0**-6}[c.dtype]  # the gradients also see an output that was rounded
    return {name: Truth(shape, values, np.full(1, np.abs(values).max()), bound, where)
            for name, (shape, values, where) in results.items()}


TRUTHS = {"token_logprobs": truth_token_logprobs, "fused_log_softmax": truth_fused_log_softmax, "gather": truth_gather,
          "linear": truth_linear, "linear_backward": truth_linear_backward,
          "kl_k1": lambda c, d: truth_kl(c, d, np.negative), "kl_k3": lambda c, d: truth_kl(c, d, lambda x: np.expm1(x) - x),
          "rubric": truth_rubric, "grpo_token": truth_grpo_token, "grpo_loss": truth_grpo_loss,
          "grpo_from_logits": truth_grpo_from_logits, "matmul": truth_matmul, "attention": truth_attention,
          "attention_bf16_weights": truth_attention, "attention_backward": truth_attention,
          "attention_backward_bf16_gradient": truth_attention}


def truths(cell, arrays):
    return TRUTHS[cell.op](cell, arrays)
