"""GRPO on a toy policy, in NumPy: a table of logits learns to spell a word.

    python grpo_toy.py [CURVE.svg]

A policy is a [position, letter] table of logits. Each step samples a group of words, rewards each letter that is right, takes
advantages within the group, and goes down napier.grpo_from_logits' gradient, a few times for each group with the old policy's
log-probabilities, as GRPO does. The mean reward is printed, and drawn if a file is named.
"""

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

import napier

WORD, LETTERS = "napier", "abcdefghijklmnopqrstuvwxyz"
GROUP, STEPS, UPDATES, RATE = 64, 60, 2, 400.0


def sample(logits: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """A group of words, as ids [GROUP, positions]: a letter by the softmax of its position."""
    cumulative = napier.softmax(logits).cumsum(axis=1)
    return np.asarray((rng.random((GROUP, len(WORD), 1)) > cumulative[None]).sum(axis=2).clip(0, len(LETTERS) - 1))


def rewards_of(ids: NDArray[Any]) -> NDArray[Any]:
    target = np.array([LETTERS.index(c) for c in WORD])
    return np.asarray((ids == target).mean(axis=1), np.float32)


def train(seed: int = 0) -> tuple[Any, list[float]]:
    rng = np.random.default_rng(seed)
    logits = np.zeros((len(WORD), len(LETTERS)), np.float32)
    offsets = np.arange(GROUP + 1) * len(WORD)
    curve = []
    for _ in range(STEPS):
        ids = sample(logits, rng)
        rewards = rewards_of(ids)
        curve.append(float(rewards.mean()))
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        old = None
        for _ in range(UPDATES):
            rows = np.tile(logits, (GROUP, 1))
            if old is None:
                old = napier.token_logprobs(rows, ids.ravel()).logprobs
            result = napier.grpo_from_logits(rows, ids.ravel(), advantages, offsets, old_logprobs=old)
            logits -= RATE * result.grad_logits.reshape(GROUP, *logits.shape).mean(axis=0)
    return logits, curve


def draw(curve: list[float], path: str) -> None:
    points = " ".join(f"{20 + 560 * i / (len(curve) - 1):.1f},{180 - 160 * r:.1f}" for i, r in enumerate(curve))
    with open(path, "w", encoding="ascii") as file:
        file.write(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 200" font-family="sans-serif" font-size="11">'
            '<path d="M20 20V180H580" fill="none" stroke="#888"/><text x="24" y="16">mean reward, 0 to 1</text>'
            f'<polyline points="{points}" fill="none" stroke="#1565c0" stroke-width="2"/></svg>\n'
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", nargs="?", help="an SVG file for the curve of rewards")
    picture = parser.parse_args().picture
    logits, curve = train()
    for step in range(0, STEPS, 10):
        print(f"step {step:3d}  mean reward {curve[step]:.2f}  {'#' * round(50 * curve[step])}")
    print(f"step {STEPS - 1:3d}  mean reward {curve[-1]:.2f}; the policy spells {''.join(LETTERS[i] for i in logits.argmax(1))}")
    assert curve[-1] > 0.8 > 0.2 > curve[0]
    if picture:
        draw(curve, picture)


if __name__ == "__main__":
    main()
