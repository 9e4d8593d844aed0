"""Metrics that are Python functions, numba's included: f(x, y, **metric_kwds), which returns the distance, or the
distance and its gradient."""
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

    def _block(self, rows, X):
        return np.array([[self._one(x, y) for y in X] for x in rows], np.float32).reshape(len(rows), len(X))

    def _nearest(self, rows, X, k, first, watch):
        """(indices, distances) of the k nearest of X to each row; the row number first + i of X is itself, and first."""
        indices, distances = np.empty((len(rows), k), np.int32), np.empty((len(rows), k), np.float32)
        step = max(1, _PAIRS // max(len(X), 1))
        for begin in range(0, len(rows), step):
            block = self._block(rows[begin:begin + step], X)
            for i, line in enumerate(block, begin):
                if first is not None:
                    line[first + i] = 0.0
                order = np.argsort(line, kind="stable")[:k]
                if first is not None and order[0] != first + i:
                    order = np.concatenate([[first + i], order[order != first + i]])[:k]
                indices[i], distances[i] = order, line[order]
            if watch is not None and watch("neighbours", min(1.0, (begin + step) / len(rows))):
                raise RuntimeError("neighbours: cancelled")
        return indices, distances

    def neighbors(self, X, k, watch=None):
        """The k nearest rows of every row of X, itself first."""
        warnings.warn(f"{self.name} is a Python function: it is called for each of {len(X)} x {len(X)} pairs of rows",
                      stacklevel=2)
        return self._nearest(X, X, k, 0, watch)

    def neighbors_of(self, X, rows, k, watch=None):
        """The k nearest rows of X for each of `rows`."""
        return self._nearest(rows, X, k, None, watch)


def as_distances(indices, distances, n):
    """Neighbours as a sparse matrix of distances [rows, n]."""
    from scipy.sparse import csr_matrix
    kept = indices >= 0
    starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    matrix = csr_matrix((distances[kept], indices[kept], starts), shape=(len(indices), n))
    matrix.sort_indices()
    return matrix
