"""What a call from Python costs, and whether the C library's speed arrives: small calls, calls of napier.torch, importing, softmax
without out=.

    python bench/python/calls.py [--json FILE] [--only small|recorded|large]        in an environment with napier, numpy and torch

Rounds alternate between the contestants; the least time of many counts. One thread for small calls; all of them for the large.
"""

import subprocess
import sys

import numpy as np

import napier
from timing import add_rows, least, parser


def small(torch, rounds):
    x = np.random.default_rng(0).standard_normal(10).astype(np.float32)
    t = torch.from_numpy(x)
    out, logits = np.empty_like(x), np.zeros((4, 100), np.float32)
    napier.set_num_threads(1)
    torch.set_num_threads(1)
    rows = [
        ("softmax, 10 float32, NumPy", lambda: napier.softmax(x), None),
        ("softmax, out=", lambda: napier.softmax(x, out=out), None),
        ("logsumexp, NumPy", lambda: napier.logsumexp(x), None),
        ("token_logprobs, 4 x 100, NumPy", lambda: napier.token_logprobs(logits, [1, 2, 3, 4]), None),
        ("softmax, tensor", lambda: napier.softmax(t), lambda: torch.softmax(t, -1)),
        ("log_softmax, tensor", lambda: napier.log_softmax(t), lambda: torch.log_softmax(t, -1)),
        ("logsumexp, tensor", lambda: napier.logsumexp(t, -1), lambda: torch.logsumexp(t, -1)),
    ]
    with torch.no_grad():
        for name, ours, theirs in rows:
            times = least([ours] + ([theirs] if theirs else []), rounds, 5000)
            yield name, "us", times[0] * 1e6, times[1] * 1e6 if theirs else None


def empty_node(torch):
    """A node of autograd that computes nothing, written in Python: what every such node costs at least."""

    class Empty(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.empty_like(x)

        @staticmethod
        def backward(ctx, grad):
            return torch.empty_like(ctx.saved_tensors[0])

    return Empty.apply


def recorded(torch, rounds):
    """napier.torch: calls without a gradient, calls that record one, and calls with their backward."""
    import napier.torch as nt

    napier.set_num_threads(1)
    torch.set_num_threads(1)
    empty = empty_node(torch)
    for shape in [(8, 16), (64, 1000)]:
        x, grad = torch.randn(shape), torch.randn(shape)
        r, ids = x.clone().requires_grad_(), torch.randint(shape[1], shape[:1])
        rows, loss = grad[:, 0].contiguous(), torch.tensor(1.0)
        pairs = [
            (name, getattr(nt, name), getattr(torch, name), -1, rows if name == "logsumexp" else grad)
            for name in ("softmax", "log_softmax", "logsumexp")
        ]
        pairs += [
            ("cross_entropy", nt.cross_entropy, torch.nn.functional.cross_entropy, ids, loss),
            ("a node in Python", lambda x, _: empty(x), None, -1, grad),
        ]
        for name, ours, theirs, second, to in pairs:
            both = [f for f in (ours, theirs) if f]
            ways = [
                ("", [lambda f=f: f(x, second) for f in both]),
                (", recorded", [lambda f=f: f(r, second) for f in both]),
                (", with backward", [lambda f=f: torch.autograd.grad(f(r, second), r, to) for f in both]),
            ]
            for what, calls in ways:
                times = least(calls, rounds, 500)
                yield (f"{name}, {shape[0]} x {shape[1]}{what}", "us", times[0] * 1e6, times[1] * 1e6 if theirs else None)


def large(torch, rounds):
    napier.set_num_threads(0)
    torch.set_num_threads(napier.get_num_threads())
    for rows, cols in [(32768, 1024), (1000, 50257), (100000, 100)]:
        t = torch.randn(rows, cols)
        x, out, t_out = t.numpy(), np.empty((rows, cols), np.float32), torch.empty(rows, cols)
        with torch.no_grad():
            ours, ours_out, theirs, theirs_out = least(
                [
                    lambda: napier.softmax(t),
                    lambda: napier.softmax(x, out=out),
                    lambda: torch.softmax(t, -1),
                    lambda: torch.softmax(t, -1, out=t_out),
                ],
                rounds // 2,
            )
        yield f"softmax, {rows} x {cols}", "ms", ours * 1e3, theirs * 1e3
        yield f"softmax, {rows} x {cols}, out=", "ms", ours_out * 1e3, theirs_out * 1e3


def importing():
    """Milliseconds that `import napier` takes when NumPy is there already."""
    code = "import numpy, time; t = time.perf_counter(); import napier; print(1e3 * (time.perf_counter() - t))"
    times = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(15)]
    yield "import napier, beyond NumPy's", "ms", min(times), None


def main():
    arguments = parser(__doc__, 30)
    arguments.add_argument("--only", choices=("small", "recorded", "large"))
    options = arguments.parse_args()
    import torch

    parts = {"small": small, "recorded": recorded, "large": large}
    results = [] if options.only else [*importing()]
    for name, part in parts.items():
        if options.only in (None, name):
            results += part(torch, options.rounds)
    print(f"{'':34s} {'napier':>10s} {'PyTorch':>10s}")
    for name, unit, ours, theirs in results:
        print(f"{name:34s} {ours:7.2f} {unit} " + (f"{theirs:7.2f} {unit}  {theirs / ours:.2f}x" if theirs else ""))
    add_rows(options.json, [dict(zip(("what", "unit", "napier", "torch"), row)) for row in results])


if __name__ == "__main__":
    main()
