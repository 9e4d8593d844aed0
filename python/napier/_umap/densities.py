"""Memberships and local radii of rows, from the distances of their neighbours."""

import numpy as np

from . import stages

_EPSILON = 1e-8  # as in umap-learn, so that the logarithm is finite


def strengths(distances, sigmas, rhos):
    """Memberships exp(-(d - rho) / sigma), at most 1; 0 for distances that are infinite."""
    import napier

    beyond = np.maximum(np.where(np.isinf(distances), 0, distances) - rhos[:, None], np.float32(0))
    scaled = np.divide(beyond, sigmas[:, None], out=np.zeros_like(beyond), where=sigmas[:, None] > 0)
    scaled[np.isinf(distances)] = np.inf
    shares = napier.softmax(np.concatenate([-scaled, np.zeros_like(scaled[:, :1])], axis=1), axis=1)
    return shares[:, :-1] / shares[:, -1:]  # exp(x) = exp(x) / exp(0)


def memberships(distances, local_connectivity):
    """Memberships of the neighbours of new rows; 0 for those at infinity, which are none."""
    distances = np.asarray(distances, np.float32)
    return strengths(distances, *stages.smooth_knn_dist(distances, max(local_connectivity - 1.0, 0.0)))  # no row is its own


def radii(graph, indices, distances):
    """The logarithm of each point's mean squared distance to its neighbours in the graph, float32 [n]."""
    import napier
    from scipy.sparse import csr_matrix

    known = indices >= 0
    starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    squares = csr_matrix((distances[known].astype(np.float64) ** 2, indices[known], starts), shape=graph.shape)
    weighted = np.asarray(graph.multiply(squares.maximum(squares.T)).sum(axis=1), np.float64).reshape(-1, 1)
    total = np.asarray(graph.sum(axis=1), np.float64).reshape(-1, 1)
    mean = np.divide(weighted, total, out=np.full_like(total, np.nan), where=total > 0)
    return napier.logsumexp(np.zeros_like(mean), axis=1, b=mean + _EPSILON).astype(np.float32)  # log b


def radii_of_map(embedding, n_neighbors):
    """The same of a map, whose neighbours are found on it; NaN for points that have no place."""
    result = np.full(len(embedding), np.nan, np.float32)
    placed = np.flatnonzero(~np.isnan(embedding).any(axis=1))
    found = stages.nearest_neighbors(embedding[placed], min(n_neighbors, len(placed)))
    result[placed] = radii(stages.fuzzy_simplicial_set(*found), *found)
    return result
