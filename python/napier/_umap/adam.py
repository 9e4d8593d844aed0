"""Adam, with the constants of the library's own layout (napier.umap.Optimizer)."""

import numpy as np

_BETA1, _BETA2, _EPSILON = 0.5, 0.9, 1e-7


class Adam:
    """Turns the forces of an epoch into steps; it remembers their mean and mean square."""

    def __init__(self, shape, dtype):
        self.first, self.second = np.zeros(shape, dtype), np.zeros(shape, dtype)

    def step(self, force, rate, epoch):
        """The step of every point in epoch number `epoch`, from 0."""
        self.first += (1 - _BETA1) * (force - self.first)
        self.second += (1 - _BETA2) * (force * force - self.second)
        mean, square = self.first / (1 - _BETA1 ** (epoch + 1)), self.second / (1 - _BETA2 ** (epoch + 1))
        return rate * mean / (np.sqrt(square) + _EPSILON)
