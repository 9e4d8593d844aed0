"""What is measured on a GPU: operations, shapes, what each must move and compute, and who takes part.

A case makes inputs, and for each contestant a function of an input. What cannot be made (a library that is not installed, a
shape that it refuses) is an exception, and is reported as its text. The list of cases needs no torch."""
import functools
import importlib
from dataclasses import dataclass, field
from typing import Callable

try:
    import torch
except ImportError:
    torch = None

DEVICE = "cuda"  # a test of the cases themselves takes the CPU
MILLION = 10**6
QWEN, LLAMA = 151_936, 128_256  # vocabularies


@dataclass(frozen=True)
class Case:
    name: str
    bytes: int  # each input read once, each output written once
    make: Callable  # of a torch.Generator, to one input (a tuple of tensors)
    peers: dict  # name: a function without arguments that gives a function of an input
    check: Callable  # of (input, result): the largest error against float64, as a share of what is allowed
    flops: int = 0  # by tensor cores; the floor is the greater of both
    input_bytes: int = field(default=0)


def _napier():
    return importlib.import_module("napier.torch")


def _dtype(name):
    return getattr(torch, {"f32": "float32", "bf16": "bfloat16"}[name])


def _item(dtype):
    return {"f32": 4, "bf16": 2}[dtype]


def _randn(generator, *shape, dtype="f32", scale=1.0):
    x = torch.empty(shape, dtype=_dtype(dtype), device=DEVICE)
    return x.normal_(0.0, scale, generator=generator)


def _compiled(function):
    def make():
        torch._dynamo.reset()
        return torch.compile(function, dynamic=False)
    return make


def _sample(rows):
    """Some rows to check: the first, the last, and some between."""
    return sorted({0, rows // 3, rows // 2, rows - 1})


def _share(mine, right, absolute, relative):
    """The largest error as a share of the allowed one; NaN in mine is infinitely wrong."""
    error = (mine.double() - right).abs() / (absolute + relative * right.abs())
    return torch.where(error.isnan(), torch.inf, error).max().item()


# ---- softmax, log_softmax, logsumexp -----------------------------------------------------------------------------------------


def _map_case(operation, rows, columns, dtype):
    def check(inputs, result):
        at = _sample(rows)
        right = getattr(torch, operation)(inputs[0][at].double(), -1)
        # f32: the sums of all contestants are in single precision; 16 bits: the last place of the result
        return _share(result[at], right, 1e-30 if operation == "softmax" else 1e-5, 2.0**-7 if dtype == "bf16" else 2e-5)

    plain = (lambda x: torch.softmax(x, -1)) if operation == "softmax" else (lambda x: torch.log_softmax(x, -1))
    peers = {"napier": lambda: getattr(_napier(), operation), "torch": lambda: plain, "torch.compile": _compiled(plain)}
    if operation == "softmax":
        peers.update({
            "triton three-pass": lambda: importlib.import_module("triton_softmax").three_pass,
            "triton online": lambda: importlib.import_module("triton_softmax").online,
            "Liger": lambda: importlib.import_module("liger_kernel.ops.softmax").LigerSoftmaxFunction.apply,
            "quack": lambda: importlib.import_module("quack.softmax").softmax})
    size = rows * columns * _item(dtype)
    return Case(f"{operation} {rows}x{columns} {dtype}", 2 * size,
                lambda g: (_randn(g, rows, columns, dtype=dtype, scale=3.0),), peers, check, input_bytes=size)


def _logsumexp_all_case(n):
    def check(inputs, result):
        right = torch.stack([torch.logsumexp(part.double(), 0) for part in inputs[0].split(2**26)]).logsumexp(0)
        return _share(result, right, 1e-5, 1e-6)

    plain = lambda x: torch.logsumexp(x, 0)  # noqa: E731
    return Case(f"logsumexp of all {n} f32", 4 * n, lambda g: (_randn(g, n),),
                {"napier": lambda: _napier().logsumexp, "torch": lambda: plain, "torch.compile": _compiled(plain)},
                check, input_bytes=4 * n)


# ---- Tokens ------------------------------------------------------------------------------------------------------------------


def _ids(generator, n, vocabulary):
    return torch.randint(vocabulary, (n,), generator=generator, device=DEVICE)


def _plain_tokens(x, ids, everything):
    """What PyTorch's users write: in float32, as bfloat16 sums are no use."""
    z = x.float()
    lse = z.logsumexp(-1)
    chosen = z.gather(-1, ids[:, None])[:, 0] - lse
    if not everything:
        return chosen, lse
    return chosen, lse, lse - (z.softmax(-1) * z).sum(-1), z.argmax(-1)


def _token_case(rows, vocabulary, everything):
    def check(inputs, result):
        at = _sample(rows)
        x, ids = inputs[0][at].double(), inputs[1][at]
        right = _plain_tokens_64(x, ids)
        return max(_share(mine[at], theirs, 2e-4, 1e-5) for mine, theirs in zip(result[:3 if everything else 2], right))

    def napier():
        nt = _napier()
        return lambda x, ids: [r for r in nt.token_logprobs(x, ids, lse=True, entropy=everything, argmax=everything)
                               if r is not None]

    def quack():
        forward = importlib.import_module("quack.cross_entropy").cross_entropy_fwd

        def call(x, ids):
            loss, lse = forward(x, ids, return_lse=True)
            return -loss, lse
        return call

    def rl_kernel():  # on sm_90, by TMA; it writes no lse
        of = importlib.import_module("rl_engine.backends.cuda.logprob.batch_invariant_logp").BatchInvariantLogpSM90Op()
        return lambda x, ids: (of(x, ids, validate=False),)

    plain = functools.partial(_plain_tokens, everything=everything)
    peers = {"napier": napier, "torch": lambda: plain, "torch.compile": _compiled(plain)}
    if not everything:
        peers.update({"quack": quack, "RL-Kernel": rl_kernel})
    size = rows * vocabulary * 2
    return Case(f"token_logprobs {rows}x{vocabulary} bf16, lse" + (", entropy, argmax" if everything else ""), size,
                lambda g: (_randn(g, rows, vocabulary, dtype="bf16", scale=3.0), _ids(g, rows, vocabulary)), peers, check,
                input_bytes=size)


def _plain_tokens_64(x, ids):
    p = torch.log_softmax(x, -1)
    return p.gather(-1, ids[:, None])[:, 0], torch.logsumexp(x, -1), -(p.exp() * p).sum(-1)


# ---- GRPO, forwards and backwards --------------------------------------------------------------------------------------------

RESPONSE = 512  # tokens


def _plain_grpo(x, ids, old, advantages):
    z = x.float()
    chosen = z.gather(-1, ids[:, None])[:, 0] - z.logsumexp(-1)
    ratio, a = (chosen - old).exp(), advantages.repeat_interleave(RESPONSE)
    return -torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()


def _grpo_case(rows, vocabulary):
    count = rows // RESPONSE

    def make(g):
        x, ids = _randn(g, rows, vocabulary, dtype="bf16", scale=3.0), _ids(g, rows, vocabulary)
        near = torch.cat([_plain_tokens(a, b, False)[0] for a, b in zip(x.split(256), ids.split(256))])
        old = near + 0.3 * _randn(g, rows)
        return x.requires_grad_(), ids, old, _randn(g, count)

    def backward(loss_of):
        def call(x, *rest):
            return torch.autograd.grad(loss_of(x, *rest), x)[0]
        return call

    def napier():
        nt = _napier()
        offsets = torch.arange(count + 1, device=DEVICE) * RESPONSE
        return backward(lambda x, ids, old, a: nt.grpo_from_logits(x, ids, a, offsets, old_logprobs=old, loss_type="bnpo")[0])

    def liger():
        loss = importlib.import_module("liger_kernel.transformers.grpo_loss").triton_grpo_loss

        def of(x, ids, old, a):  # it leaves out the last position of a response
            parts = x.view(count, RESPONSE, vocabulary)
            shape = (count, RESPONSE)
            return loss(parts, old.view(shape)[:, :-1].contiguous(), None, ids.view(shape)[:, :-1].contiguous(), a,
                        temperature=1.0, beta=0.0, eps_low=0.2, eps_high=0.2, inplace=False, loss_type="bnpo", reduce=True)[0]
        return backward(of)

    def check(inputs, result):
        at = _sample(rows - 1)  # not the last: Liger leaves it out
        x = inputs[0].detach()[at].double().requires_grad_()
        chosen = torch.log_softmax(x, -1).gather(-1, inputs[1][at][:, None])[:, 0]
        ratio, a = (chosen - inputs[2][at].double()).exp(), inputs[3].double().repeat_interleave(RESPONSE)[at]
        (right,) = torch.autograd.grad(-torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).sum() / rows, x)
        return _share(result[at], right, 1e-3 / rows, 0.02)

    size = rows * vocabulary * 2
    return Case(f"grpo_from_logits, forward + backward, {rows}x{vocabulary} bf16", 2 * size, make,
                {"napier": napier, "torch": lambda: backward(_plain_grpo),
                 "torch.compile": lambda: backward(_compiled(_plain_grpo)()), "Liger (one token less a response)": liger},
                check, input_bytes=size)


# ---- With tensor cores -------------------------------------------------------------------------------------------------------


def _linear_case(rows, hidden, vocabulary, gradient):
    def make(g):
        h = _randn(g, rows, hidden, dtype="bf16")
        w = _randn(g, vocabulary, hidden, dtype="bf16", scale=2.0 * hidden**-0.5)
        return h.requires_grad_(gradient), w.requires_grad_(gradient), _ids(g, rows, vocabulary)

    def done(loss_of):
        """The mean of -logprob, or its gradients."""
        if not gradient:
            return loss_of
        return lambda h, w, ids: torch.autograd.grad(loss_of(h, w, ids), (h, w))

    def napier():
        nt = _napier()
        return done(lambda h, w, ids: -nt.linear_token_logprobs(h, w, ids, entropy=not gradient).logprobs.mean())

    def plain(h, w, ids):
        return torch.nn.functional.cross_entropy((h @ w.T).float(), ids)

    def liger():
        module = importlib.import_module("liger_kernel.ops.fused_linear_cross_entropy")

        def of(h, w, ids):
            loss = module.LigerFusedLinearCrossEntropyFunction.apply(h, w, ids)
            return loss[0] if isinstance(loss, tuple) else loss
        return done(of)

    def quack():
        return done(importlib.import_module("quack.linear_cross_entropy").chunked_linear_cross_entropy)

    def check(inputs, result):
        h, w, ids = (x.detach() for x in inputs)
        if gradient:  # of some rows of hidden
            at = _sample(rows)
            p = torch.softmax(h[at].double() @ w.double().T, -1)
            p[torch.arange(len(at)), ids[at]] -= 1.0
            right = p @ w.double() / rows
            return _share(result[0][at], right, 2e-2 * right.abs().max().item(), 0.05)
        part = torch.cat([torch.nn.functional.cross_entropy((a.float() @ w.float().T).double(), b, reduction="none")
                          for a, b in zip(h.split(256), ids.split(256))])
        return _share(result, part.mean(), 2e-2, 1e-3)

    both = 2 * rows * hidden * vocabulary
    size = 2 * hidden * (rows + vocabulary)
    return Case(f"linear_token_logprobs {rows}x{hidden}x{vocabulary} bf16" +
                (", forward + backward" if gradient else ", entropy (napier only)"), size * (2 if gradient else 1), make,
                {"napier": napier, "torch": lambda: done(plain), "torch.compile": lambda: done(_compiled(plain)()),
                 "Liger": liger, "quack": quack}, check, flops=both * (3 if gradient else 1), input_bytes=size)


def _attention_case(batch, heads, tokens, dim):
    def plain(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def napier():
        attention = _napier().attention
        return lambda q, k, v: attention(q, k, v, causal=True)

    def check(inputs, result):
        q, k, v = (x[0, 0].double() for x in inputs)
        at = torch.tensor(_sample(tokens), device=q.device)
        scores = (q[at] @ k.T * dim**-0.5).masked_fill(torch.arange(tokens, device=q.device) > at[:, None], -torch.inf)
        return _share(result[0, 0][at], torch.softmax(scores, -1) @ v, 2e-2, 2e-2)

    size = batch * heads * tokens * dim * 2
    return Case(f"attention {batch}x{heads}x{tokens}x{dim} bf16, causal", 4 * size,
                lambda g: tuple(_randn(g, batch, heads, tokens, dim, dtype="bf16") for _ in range(3)),
                {"napier": napier, "torch": lambda: plain}, check,
                flops=4 * batch * heads * dim * (tokens * (tokens + 1) // 2), input_bytes=3 * size)


# ---- The table ---------------------------------------------------------------------------------------------------------------


def all_cases():
    maps = [(2**28 // columns, columns) for columns in (2**k for k in range(8, 19))]
    maps += [(rows, QWEN) for rows in (1, 16, 128, 512)] + [(1, 16_700_000), (4, 100 * MILLION)]
    for operation in ("softmax", "log_softmax"):
        for rows, columns in maps:
            for dtype in ("f32", "bf16"):
                yield _map_case(operation, rows, columns, dtype)
        yield _map_case(operation, 1024, 32_768, "f32")
    for n in (2**20, 2**24, 2**26, 2**28, 2**30):
        yield _logsumexp_all_case(n)
    for rows in (1, 8, 64, 8192):
        for everything in (False, True):
            yield _token_case(rows, QWEN, everything)
    yield _token_case(8192, LLAMA, False)
    yield _token_case(4096, QWEN, False)
    yield _grpo_case(8192, QWEN)
    yield _linear_case(4096, 4096, 131_072, False)
    yield _linear_case(4096, 4096, LLAMA, True)
    yield _attention_case(1, 32, 8192, 128)
