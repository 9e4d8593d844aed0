"""Ctrl-C in long calls: the seconds from the signal until each call has raised KeyboardInterrupt.

    python bench/python/interrupts.py [--threads 1] [--only attention] [--scale 1] [--model DIR]

Each call runs alone first, which says how long it takes, and then again with a signal after a third of that time or 0.3 s. Prints a
table in Markdown. Exits with 1 if a call took more than a second. Needs NumPy; with PyTorch also calls of napier.torch, and
with a folder of bench/model/make_model.py those of a model. --scale makes calls longer or shorter.
"""

import argparse
import os
import signal
import sys
import threading
import time

import numpy as np

import napier
from napier import rl, umap

LIMIT = 1.0
VOCABULARY = 151936


def interrupted(call, after):
    """The seconds from a signal, `after` seconds from now, until `call` has raised KeyboardInterrupt; None: it had ended."""
    sent = []

    def send():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after, send)
    timer.start()
    try:
        call()
        ended = time.perf_counter()
        timer.cancel()
        timer.join()
        time.sleep(0.01)  # a signal on its way comes here
    except KeyboardInterrupt:
        taken = time.perf_counter() - sent[0]
        timer.join()
        return taken
    return ended - sent[0] if sent else None


def random(*shape, dtype=np.float32):
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32).astype(dtype)


def rows(count, cols=VOCABULARY):
    """So many times one row, without its memory."""
    return np.broadcast_to(random(cols), (count, cols))


def operations(scale):
    n = int(5120 * scale)
    a = random(n, n)
    yield "matmul", f"{n} x {n} x {n}", lambda: napier.matmul(a, a)
    long = random(512, 1 << 18)
    yield "matmul, k of 262144", "512 x 262144 x 512", lambda: napier.matmul(long, long.T)
    x = random(int(500 * scale), VOCABULARY)
    out = np.zeros_like(x)
    size = f"{len(x)} x {VOCABULARY}"
    yield "softmax", size, lambda: napier.softmax(x, out=out)
    yield "log_softmax", size, lambda: napier.log_softmax(x, out=out)
    yield "softmax, first axis", size, lambda: napier.softmax(x, axis=0, out=out)
    yield "softmax, one row", f"1 x {x.size}", lambda: napier.softmax(x.reshape(-1), out=out.reshape(-1))
    yield "logsumexp", size, lambda: napier.logsumexp(x)
    yield "softmax_backward", size, lambda: napier.softmax_backward(x, x, out=out)
    yield "log_softmax_backward", size, lambda: napier.log_softmax_backward(x, x, out=out)
    yield "sparsemax", size, lambda: napier.sparsemax(x, out=out)
    yield "entmax", size, lambda: napier.entmax(x)
    wide = x[: len(x) // 4].astype(np.float64)
    yield "softmax, float64", f"{len(wide)} x {VOCABULARY}", lambda: napier.softmax(wide, out=wide)
    few = x[: len(x) // 8]
    yield "logcumsumexp", f"{len(few)} x {VOCABULARY}", lambda: napier.logcumsumexp(few)
    count = int(8000 * scale)
    many, ids, size = rows(count), np.arange(count), f"{count} x {VOCABULARY}"
    yield "token_logprobs, entropy", size, lambda: napier.token_logprobs(many, ids, entropy=True)
    yield "kl_full", size, lambda: napier.kl_full(many, many)
    yield "sample, top_p", size, lambda: napier.sample(many, top_p=0.9)
    offsets = np.linspace(0, count, 9, dtype=int)
    yield "grpo_from_logits", size, lambda: napier.grpo_from_logits(many, ids, random(8), offsets, gradient=False)
    grad = random(len(x), 1)
    yield (
        "token_logprobs_backward",
        f"{len(x)} x {VOCABULARY}",
        (lambda: rl.token_logprobs_backward(x, ids[: len(x)], grad_logprobs=grad, out=out)),
    )


def products(scale):
    tokens, hidden = int(1024 * scale), 1024
    states, head, ids = random(tokens, hidden), random(VOCABULARY, hidden) / 32, np.arange(tokens)
    size = f"{tokens} x {hidden} x {VOCABULARY}"
    yield "linear_token_logprobs", size, lambda: napier.linear_token_logprobs(states, head, ids, entropy=True)
    grad = random(tokens, 1)
    yield "linear_token_logprobs_backward", size, (lambda: rl.linear_token_logprobs_backward(states, head, ids, grad_logprobs=grad))
    offsets = np.linspace(0, tokens, 9, dtype=int)
    yield "grpo_from_hidden", size, lambda: napier.grpo_from_hidden(states, head, ids, random(8), offsets)
    heads, length, dim = 8, int(6144 * scale), 128
    q = random(1, heads, length, dim)
    output, lse = napier.attention(q[:, :1], q[:, :1], q[:, :1], causal=True, return_lse=True)
    size = f"{heads} heads, {length} tokens, dim {dim}"
    yield "attention", size, lambda: napier.attention(q, q, q)
    one = q[:, :1]
    yield "attention_backward", f"1 head, {length} tokens, dim {dim}", (lambda: napier.attention_backward(one, one, one, one, output, lse))
    short = random(1, 1, 256, dim)
    long = random(1, 1, 256 * length, dim)
    yield "attention, few keys", f"1 head, {256 * length} queries, 256 keys", lambda: napier.attention(long, short, short)


def tensors(scale):
    try:
        import torch

        import napier.torch as nt
    except ImportError:
        return
    n = int(4096 * scale)
    a = torch.from_numpy(random(n, n)).requires_grad_()
    yield "torch: matmul and backward", f"{n} x {n} x {n}", lambda: nt.matmul(a, a).sum().backward()
    b = a.detach().bfloat16().repeat(2, 2)
    yield "torch: matmul, bfloat16", f"{2 * n} x {2 * n} x {2 * n}", lambda: nt.matmul(b, b)
    states = torch.from_numpy(random(512, 1024)).requires_grad_()
    head, ids = torch.from_numpy(random(VOCABULARY, 1024) / 32), torch.arange(512)
    yield (
        "torch: linear_token_logprobs and backward",
        f"512 x 1024 x {VOCABULARY}",
        (lambda: nt.linear_token_logprobs(states, head, ids).logprobs.sum().backward()),
    )
    q = torch.from_numpy(random(1, 8, n, 128)).requires_grad_()
    yield (
        "torch: attention and backward",
        f"8 heads, {n} tokens, dim 128",
        (lambda: nt.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()),
    )


def maps(scale):
    points = random(int(20000 * scale), 50)
    yield "umap.fit", f"{len(points)} x 50", lambda: umap.fit(points)
    part = points[: len(points) // 4]
    plane = part[:, :2].copy()
    yield "umap.quality_of", f"{len(part)} x 50", lambda: umap.quality_of(part, plane)
    yield "umap.nearest_neighbors", f"{len(points)} x 50", lambda: umap.nearest_neighbors(points, 15)
    reducer = napier.UMAP().fit(part)
    yield "UMAP.transform", f"{len(points)} x 50", lambda: reducer.transform(points)
    yield "UMAP.inverse_transform", f"{len(part)} x 2", lambda: reducer.inverse_transform(plane)


def model_calls(folder):
    model = napier.CausalLM(folder, memory=6 << 30)
    ids = list(range(1000, 3000))
    yield "model.forward", "2000 tokens, logits", lambda: model.forward(ids)
    yield "model.generate", "prompt of 500 tokens, 50 new", lambda: model.generate([ids[:500]], max_tokens=50, stop=[])
    yield "model.kv", "2000 tokens", lambda: model.kv(ids)
    yield (
        "model.batch_logprobs",
        "prompt of 1000 tokens, 4 responses of 250",
        (lambda: model.batch_logprobs([ids[:1000]] * 4, [ids[1000 + 250 * i : 1250 + 250 * i] for i in range(4)])),
    )


def all_calls(scale, model):
    for part in operations, products, tensors, maps:
        yield from part(scale)
    if model:
        yield from model_calls(model)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--threads", type=int, default=0)
    options.add_argument("--scale", type=float, default=1.0)
    options.add_argument("--only", default="")
    options.add_argument("--model")
    given = options.parse_args()
    napier.set_num_threads(given.threads)
    print(f"Threads: {napier.get_num_threads()}.\n\n| call | size | seconds alone | seconds until it returned |\n|---|---|---|---|")
    worst = 0.0
    for name, size, call in all_calls(given.scale, given.model):
        if given.only not in name:
            continue
        start = time.perf_counter()
        call()
        alone = time.perf_counter() - start
        taken = interrupted(call, min(alone / 3, 0.3))
        worst = max(worst, taken or 0.0)
        print(f"| {name} | {size} | {alone:.2f} | {'had ended' if taken is None else f'{taken:.3f}'} |", flush=True)
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
