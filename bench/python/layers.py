"""Time of the steps of a decoder layer with gradients: napier.torch against PyTorch's, as transformers composes them.

    python bench/python/layers.py [--rounds 12] [--threads 2] [--tokens 1024] [--json FILE]     with napier and torch

The steps have Qwen3-0.6B's shapes. Prints the fastest milliseconds of a forward pass, and of one with its gradients, for Napier
and for PyTorch; the two take turns.
"""

import torch

import napier
import napier.torch as nt
from timing import add_rows, least, parser

HIDDEN, HEADS, DIM, MIDDLE = 1024, 16, 128, 3072


def rms_norm(x, weight):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotary(x, cosines, sines):
    a, b = x[..., : DIM // 2], x[..., DIM // 2 :]
    return x * cosines + torch.cat([-b, a], -1) * sines


def steps(tokens):
    """Name, Napier's function, PyTorch's, and what has gradients."""

    def normal(*shape):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(0))

    cosines, sines = nt.rotary_angles(torch.arange(tokens), *nt.rotary_frequencies(DIM, theta=1e6))
    wide = [torch.cat([x, x], -1)[:, None] for x in (cosines, sines)]
    weight = normal(MIDDLE, HIDDEN)
    yield f"rms_norm {tokens}x{HIDDEN}", nt.rms_norm, rms_norm, [normal(tokens, HIDDEN), normal(HIDDEN)]
    yield f"rms_norm {tokens}x{HEADS}x{DIM}", nt.rms_norm, rms_norm, [normal(tokens, HEADS, DIM), normal(DIM)]
    yield (
        f"rotary {tokens}x{HEADS}x{DIM}",
        lambda x: nt.rotary(x, cosines, sines),
        lambda x: rotary(x, *wide),
        [normal(tokens, HEADS, DIM)],
    )
    yield (
        f"swiglu {tokens}x{MIDDLE}",
        nt.swiglu,
        lambda g, u: torch.nn.functional.silu(g) * u,
        [normal(tokens, MIDDLE), normal(tokens, MIDDLE)],
    )
    yield f"linear {tokens}x{HIDDEN}x{MIDDLE}", nt.linear, torch.nn.functional.linear, [normal(tokens, HIDDEN), weight]
    yield (
        f"linear bf16 {tokens}x{HIDDEN}x{MIDDLE}",
        lambda x, w: nt.linear(x, w, compute="bf16"),
        lambda x, w: torch.nn.functional.linear(x.bfloat16(), w),
        [normal(tokens, HIDDEN), weight.bfloat16()],
    )


def forward(function, inputs):
    inputs = [x.detach() for x in inputs]
    return lambda: function(*inputs)


def with_gradients(function, inputs):
    inputs = [x.detach().requires_grad_() for x in inputs]
    pull = torch.ones_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), inputs, pull)


def main():
    wanted = parser(__doc__, 12)
    wanted.add_argument("--threads", type=int, default=2)
    wanted.add_argument("--tokens", type=int, default=1024)
    options = wanted.parse_args()
    napier.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    print(f"{'':28}   forward  PyTorch  gradients  PyTorch   (ms)")
    for name, ours, theirs, inputs in steps(options.tokens):
        calls = [wrap(f, inputs) for wrap in (forward, with_gradients) for f in (ours, theirs)]
        times = [1e3 * t for t in least(calls, options.rounds)]
        print(f"{name:28}  {times[0]:8.2f} {times[1]:8.2f}   {times[2]:8.2f} {times[3]:8.2f}")
        add_rows(
            options.json,
            [
                {
                    "step": name,
                    "threads": options.threads,
                    "forward": times[0],
                    "torch_forward": times[1],
                    "gradients": times[2],
                    "torch_gradients": times[3],
                }
            ],
        )


if __name__ == "__main__":
    main()
