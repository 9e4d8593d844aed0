"""Metrics that are Python functions, numba's included: f(x, y, **metric_kwds), which returns the distance, or the
distance and its gradient."""

import time
import warnings

import numpy as np

_PAIRS = 1 << 20  # distances that are in memory at a time


class distance_of:
    """Measures with a metric of the user's."""

    def __init__(self, metric, metric_kwds=None, name="metric"):
        self.metric, self.keywords, self.name = metric, dict(metric_kwds or {}), name

    def _one(self, x, y):
        measured = self.metric(x.copy(), y.copy(), **self.keywords)  # it may change its arguments
        try:
            value = float(measured[0] if isinstance(measured, tuple) else measured)
        except (TypeError, ValueError):
            raise ValueError(f"{self.name}: the function returned {measured!r}, not a distance") from None
        if not 0 <= value < np.inf:
            raise ValueError(f"{self.name}: the function returned {value}; distances are finite and not negative")
        return value

    def _seconds(self, X, pairs):
        """About how long so many calls take. The first one may compile the function, so it does not count."""
        few = X[:4]
        self._one(few[0], few[-1])
        start = time.perf_counter()
        for x in few:
            self._one(x, few[-1])
        return (time.perf_counter() - start) / len(few) * pairs

    def neighbors(self, X, k, watch=None):
        """The k nearest rows of every row of X, itself first. Each pair is measured once: the distance is symmetric."""
        n, pairs = len(X), len(X) * (len(X) - 1) // 2
        warnings.warn(
            f"{self.name} is a Python function: it is called for each of {pairs:,} pairs of {n:,} rows, for about "
            f"{_duration(self._seconds(X, pairs))}",
            stacklevel=2,
        )
        nearest = np.full((n, k), -1, np.int32), np.full((n, k), np.inf, np.float32)
        step = max(1, _PAIRS // n)
        for begin in range(0, n, step):
            end = min(begin + step, n)
            block = np.empty((end - begin, n - begin), np.float32)
            for i in range(end - begin):
                block[i, :i] = block[:i, i]
                block[i, i] = -1.0  # before others at distance 0
                block[i, i + 1 :] = [self._one(X[begin + i], y) for y in X[begin + i + 1 :]]
            _merge(nearest, slice(begin, end), np.arange(begin, n), block)
            _merge(nearest, slice(end, n), np.arange(begin, end), block[:, end - begin :].T)
            _say(watch, 1.0 - ((n - end) / n) ** 2)
        return nearest[0], np.maximum(nearest[1], 0.0)

    def neighbors_of(self, X, rows, k, watch=None):
        """The k nearest rows of X for each of `rows`."""
        nearest = np.full((len(rows), k), -1, np.int32), np.full((len(rows), k), np.inf, np.float32)
        for i, row in enumerate(rows):
            _merge(nearest, slice(i, i + 1), np.arange(len(X)), np.array([[self._one(row, x) for x in X]], np.float32))
            _say(watch, (i + 1) / len(rows))
        return nearest


def _say(watch, done):
    if watch is not None and watch("neighbours", done):
        raise RuntimeError("neighbours: cancelled")


def _duration(seconds):
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds" if seconds >= 1.5 else "1 second"


def _merge(nearest, rows, candidates, distances):
    """Merges the candidates, whose indices are above those that the rows have, into their nearest."""
    indices = np.hstack([nearest[0][rows], np.broadcast_to(candidates.astype(np.int32), distances.shape)])
    distances = np.hstack([nearest[1][rows], distances])
    order = np.argsort(distances, axis=1, kind="stable")[:, : nearest[0].shape[1]]
    nearest[0][rows] = np.take_along_axis(indices, order, axis=1)
    nearest[1][rows] = np.take_along_axis(distances, order, axis=1)


def as_distances(indices, distances, n):
    """Neighbours as a sparse matrix of distances [rows, n]."""
    from scipy.sparse import csr_matrix

    kept = indices >= 0
    starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    matrix = csr_matrix((distances[kept], indices[kept], starts), shape=(len(indices), n))
    matrix.sort_indices()
    return matrix
