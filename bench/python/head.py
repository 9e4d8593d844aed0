"""Time of a language model's head and of GRPO from logits, with gradients: napier against PyTorch.

    python bench/python/head.py [--rounds 7] [--only REGEX] [--vocabulary 151936] [--json FILE]      with napier and torch

Cells are linear_token_logprobs with entropies, forward and as a training step (forward and gradients), and grpo_from_logits. The
ways of a cell take turns in one process; the least time counts, with the median in brackets. Beside a forward pass stands the
product of hidden states and weights alone; beside GRPO a copy of the logits, the least that it could take.

MKL, which multiplies f32 for PyTorch, uses AVX-512 only where it finds a processor of Intel. Elsewhere preload a library with
    int mkl_serv_intel_cpu_true(void) { return 1; }
so that PyTorch has what the processor can do.
"""

import re
import statistics

import torch

import napier
import napier.torch as nt
from timing import add_rows, parser, turns

HIDDEN, RESPONSES, CHUNK = 1024, 8, 256
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def of_ids(x, ids):
    return x.gather(-1, ids[:, None])[:, 0]


def pulled(inputs, loss):
    """A step: the loss and its gradients, which are dropped."""
    return lambda: torch.autograd.grad(loss(*inputs), inputs)


def head_of(rows, vocabulary, dtype):
    draw = torch.Generator().manual_seed(rows)
    hidden = torch.randn(rows, HIDDEN, generator=draw).to(dtype)
    weights = (torch.randn(vocabulary, HIDDEN, generator=draw) / HIDDEN**0.5).to(dtype)
    return hidden, weights, torch.randint(0, vocabulary, (rows,), generator=draw)


def forward(rows, vocabulary, dtype):
    hidden, weights, ids = head_of(rows, vocabulary, dtype)
    room = torch.empty(rows, vocabulary, dtype=dtype)

    def chunked():
        for begin in range(0, rows, CHUNK):
            logprobs = torch.log_softmax(hidden[begin : begin + CHUNK] @ weights.T, -1)
            of_ids(logprobs, ids[begin : begin + CHUNK])
            (logprobs.exp() * logprobs).sum(-1)

    return {
        "napier": lambda: nt.linear_token_logprobs(hidden, weights, ids, entropy=True),
        "product": lambda: torch.matmul(hidden, weights.T, out=room),
        "torch": chunked,
    }


def step(rows, vocabulary, dtype):
    hidden, weights, ids = head_of(rows, vocabulary, dtype)
    inputs = [hidden.requires_grad_(), weights.requires_grad_()]
    ours = {"napier": pulled(inputs, lambda h, w: nt.linear_token_logprobs(h, w, ids).logprobs.sum())}
    if dtype == torch.bfloat16:  # which is what PyTorch computes
        ours["bf16_gradient"] = pulled(inputs, lambda h, w: nt.linear_token_logprobs(h, w, ids, bf16_gradient=True).logprobs.sum())
    return {**ours, "torch": pulled(inputs, lambda h, w: of_ids(torch.log_softmax(h @ w.T, -1), ids).sum())}


def grpo(rows, vocabulary, dtype):
    draw = torch.Generator().manual_seed(rows)
    logits = torch.randn(rows, vocabulary, generator=draw).to(dtype)
    ids = torch.randint(0, vocabulary, (rows,), generator=draw)
    old = of_ids(torch.log_softmax(logits.float(), -1), ids) + 0.1 * torch.randn(rows, generator=draw)
    ref, advantages = old + 0.1 * torch.randn(rows, generator=draw), torch.randn(RESPONSES, generator=draw)
    offsets, each = torch.arange(0, rows + 1, rows // RESPONSES), advantages.repeat_interleave(rows // RESPONSES)
    room, leaf = torch.empty_like(logits), logits.clone().requires_grad_()

    def loss(x):
        logprobs = (of_ids(x, ids) - torch.logsumexp(x, -1)).float()
        ratio, away = torch.exp(logprobs - old), ref - logprobs
        clipped = torch.min(ratio * each, ratio.clamp(0.8, 1.2) * each)
        return (0.04 * (torch.exp(away) - away - 1) - clipped).sum() / rows

    return {
        "napier": lambda: napier.grpo_from_logits(
            logits, ids, advantages, offsets, old_logprobs=old, ref_logprobs=ref, beta=0.04, out=room
        ),
        "copy": lambda: room.copy_(logits),
        "torch": pulled([leaf], loss),
    }


def main():
    wanted = parser(__doc__, 7)
    wanted.add_argument("--only", default="")
    wanted.add_argument("--vocabulary", type=int, default=151936)
    wanted.add_argument("--threads", type=int, default=2)
    options = wanted.parse_args()
    napier.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    for kind, counts in ((forward, (64, 512, 2048)), (step, (64, 512, 2048)), (grpo, (64, 512))):
        for rows in counts:
            for name, dtype in DTYPES.items():
                cell = f"{kind.__name__}-{name}-{rows}x{options.vocabulary}"
                if not re.search(options.only, cell):
                    continue
                ways = kind(rows, options.vocabulary, dtype)
                times = turns(list(ways.values()), options.rounds)
                found = {way: (1e3 * min(t), 1e3 * statistics.median(t)) for way, t in zip(ways, times)}
                ours = found["napier"]
                print(
                    f"{cell:24}"
                    + "".join(
                        f"  {way} {least:.4g} ms ({middle:.4g}), {least / ours[0]:.2f} ({middle / ours[1]:.2f})"
                        for way, (least, middle) in found.items()
                    ),
                    flush=True,
                )
                add_rows(options.json, [{"cell": cell, "threads": options.threads, **found}])


if __name__ == "__main__":
    main()
