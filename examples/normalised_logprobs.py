"""Log-probabilities that are normalised: the logsumexp of every row is 0, within the bound that Napier states.

A log-probability l = (x - max) - log(sum) in float32 is off by at most 1 ulp of itself and 15.6 * 2^-24 (docs/numerics.md), so
log(sum(exp(l))) is off from 0 by at most that. The rows: ordinary logits, huge ones, a vocabulary of 151,936, masks.
"""

from typing import Iterator

import numpy as np
from numpy.typing import NDArray

import napier


def rows() -> Iterator[tuple[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(0)
    yield "ten ordinary logits", rng.standard_normal((100, 10)).astype(np.float32)
    yield "around 10,000", (1e4 + 3 * rng.standard_normal((100, 50))).astype(np.float32)
    yield "a large vocabulary", (4 * rng.standard_normal((8, 151936))).astype(np.float32)
    yield "up to 1e30", (1e30 * rng.standard_normal((100, 20))).astype(np.float32)
    masked = rng.standard_normal((100, 1000)).astype(np.float32)
    masked[:, 3:] = -np.inf
    yield "all but three masked", masked


def main() -> None:
    for name, x in rows():
        logprobs = napier.log_softmax(x)
        probs = napier.softmax(x)
        # in float64, so that what is seen is the float32 log-probabilities' own error
        off = np.abs(napier.logsumexp(logprobs, axis=1, dtype="float64")).max()
        heaviest = np.where(probs > 0, np.abs(logprobs), 0).max(axis=1)  # the ulp of what counts
        bound = (15.6 * 2.0**-24 + np.spacing(heaviest)).max()
        assert off <= bound and (logprobs <= 0).all(), name
        print(
            f"{name:24s} |logsumexp| <= {off:.1e}, bound {bound:.1e}; |sum of softmax - 1| <= "
            f"{np.abs(probs.sum(axis=1, dtype=np.float64) - 1).max():.1e}"
        )
    print("every row within the bound; no log-probability is positive")


if __name__ == "__main__":
    main()
