"""A softmax classifier of digits in PyTorch, trained through napier.torch's gradients.

    python torch_classifier.py

The loss is the mean of -log p of the right class, by napier.torch.log_softmax. PyTorch's own log_softmax on the same data
ends at the same accuracy; with Napier the losses of two runs have the same bits, whatever the number of threads.
"""

from typing import Callable

import torch

import napier
import napier.torch as nt


def data(count: int = 1500, classes: int = 10, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten blurred patterns of 8 x 8 pixels, with noise."""
    rng = torch.Generator().manual_seed(seed)
    patterns = torch.randn(classes, 64, generator=rng)
    labels = torch.randint(classes, (count,), generator=rng)
    return patterns[labels] + 2.0 * torch.randn(count, 64, generator=rng), labels


def train(log_softmax: Callable[[torch.Tensor], torch.Tensor], epochs: int = 60) -> tuple[list[float], float]:
    torch.manual_seed(0)
    x, labels = data()
    x, labels, held_x, held_labels = x[:1000], labels[:1000], x[1000:], labels[1000:]
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(epochs):
        logprobs = log_softmax(model(x))
        loss = -logprobs[torch.arange(len(labels)), labels].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    right = (model(held_x).argmax(1) == held_labels).float().mean().item()
    return losses, right


def main() -> None:
    torch.set_num_threads(1)  # so that PyTorch's own sums do not depend on threads either
    losses, right = train(nt.log_softmax)
    napier.set_num_threads(1)
    again, _ = train(nt.log_softmax)
    theirs, theirs_right = train(lambda x: torch.log_softmax(x, -1))
    for epoch in (0, 10, 30, 59):
        print(f"epoch {epoch:2d}  loss {losses[epoch]:.4f}  with PyTorch's {theirs[epoch]:.4f}")
    print(
        f"held-out accuracy {right:.3f}, with PyTorch's {theirs_right:.3f}; losses of two runs "
        f"{'are the same' if losses == again else 'differ'}"
    )
    assert right > 0.85 and abs(right - theirs_right) < 0.02 and losses == again


if __name__ == "__main__":
    main()
