"""Data for points of a map by gradient descent, as umap-learn's inverse_transform. Each row moves by itself: all draw the
same samples, so a row's result does not depend on the others. Same bits on every machine."""

import numpy as np

from . import stages
from .elementary import exp, power

_CLIP = 4.0
_NUMBERS = 1 << 20  # of rows that move together


def _dense_rows(data, which):
    rows = data[which]
    return np.asarray(rows.toarray() if stages._is_sparse(rows) else rows, np.float64)


class _Fitted:
    """The fitted rows and their scales."""

    def __init__(self, data, sigmas, rhos, measure, least):
        self.least = least
        self.data, self.sigmas, self.rhos, self.measure = data, sigmas.astype(np.float64), rhos.astype(np.float64), measure

    def pull(self, x, others, weights):
        """The step towards rows of the data, for edges of these weights."""
        gradient = self.measure(x, _dense_rows(self.data, others))[1]
        return np.clip(-gradient / (weights * self.sigmas[others] + 1e-6)[:, None], -_CLIP, _CLIP)

    def push(self, x, others, strength):
        """The step away from rows of the data."""
        distance, gradient = self.measure(x, _dense_rows(self.data, others))
        beyond = np.maximum(distance - self.rhos[others], 1e-6)
        membership = exp(-beyond / (self.sigmas[others] + 1e-6))
        force = strength * membership / ((1 - membership) * self.sigmas[others] + 1e-6)
        return np.clip(force[:, None] * gradient, -_CLIP, _CLIP)


def by_gradients(
    start,
    data,
    sigmas,
    rhos,
    measure,
    indices,
    distances,
    *,
    n_epochs,
    a,
    b,
    learning_rate,
    repulsion_strength,
    negative_sample_rate,
    random_state,
    least=-np.inf,
):
    """float32 [rows, features] from `start`. indices and distances: the nearest points on the map. least: the smallest
    value that the metric takes."""
    fitted = _Fitted(data, sigmas, rhos, measure, least)
    weights = 1 / (1 + a * power(distances.astype(np.float64), 2 * b))
    options = (n_epochs, learning_rate, repulsion_strength, max(int(negative_sample_rate), 0), random_state)
    result, step = np.array(start, np.float64), max(1, _NUMBERS // max(start.shape[1], 1))
    for begin in range(0, len(result), step):
        part = slice(begin, begin + step)
        _descend(result[part], fitted, indices[part], weights[part], *options)
    return result.astype(np.float32)


def _descend(x, fitted, indices, weights, n_epochs, learning_rate, strength, rate, seed):
    shares = weights / weights.max(axis=1, keepdims=True)
    points = fitted.data.shape[0]
    for epoch in range(n_epochs):
        alpha = learning_rate * (1 - epoch / n_epochs)
        drawn = stages.negative_targets(points, rate, epoch, seed).astype(np.int64)
        for slot in range(indices.shape[1]):
            acts = np.floor(shares[:, slot] * (epoch + 1)) > np.floor(shares[:, slot] * epoch)
            rows = np.flatnonzero(acts & (indices[:, slot] >= 0))
            if not len(rows):
                continue
            moved = x[rows]
            moved += alpha * fitted.pull(moved, indices[rows, slot].astype(np.int64), weights[rows, slot])
            np.maximum(moved, fitted.least, out=moved)
            for other in drawn[slot % points]:
                moved += alpha * fitted.push(moved, np.full(len(rows), other), strength)
                np.maximum(moved, fitted.least, out=moved)
            x[rows] = moved
