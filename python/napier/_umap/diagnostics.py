"""What umap.plot's diagnostics show of each point: a colour by a linear map of the data, the local dimension of the data,
and how many neighbours the map keeps."""

import numpy as np

from . import stages
from .colours import needs


def _data(mapper):
    data = getattr(mapper, "_raw_data", None)
    if data is None or getattr(mapper, "metric", None) == "precomputed":
        raise ValueError("diagnostic: the map has no data, only distances or a graph")
    return data


def _dense_data(mapper):
    data = _data(mapper)
    return data.toarray() if stages._is_sparse(data) else np.asarray(data)


def _as_colours(parts):
    """Columns from 0 to 1."""
    shifted = parts - parts.min()
    most = shifted.max(axis=0)
    return shifted / np.where(most > 0, most, 1)


def _three(data, method):
    if min(data.shape) < 3:
        raise ValueError(f"diagnostic: three colours need at least 3 rows and 3 columns, got {data.shape}")
    return method.fit_transform(data)


def pca(mapper, **_):
    decomposition = needs("sklearn.decomposition", "diagnostic 'pca'")
    return _as_colours(_three(_dense_data(mapper), decomposition.PCA(n_components=3)))


def ica(mapper, **_):
    decomposition = needs("sklearn.decomposition", "diagnostic 'ica'")
    return _as_colours(_three(_dense_data(mapper), decomposition.FastICA(n_components=3, random_state=42)))


def vq(mapper, **_):
    """Distances to three centres."""
    cluster = needs("sklearn.cluster", "diagnostic 'vq'")
    return _as_colours(_three(_dense_data(mapper), cluster.KMeans(n_clusters=3, n_init=4, random_state=42)))


def _neighbours(mapper, k):
    """The k nearest rows of each row by the metric of the map, itself first; -1 where there are fewer."""
    data, kept = _data(mapper), getattr(mapper, "_knn_indices", None)
    k = min(k, data.shape[0])
    if kept is not None and kept.shape[0] == data.shape[0] and kept.shape[1] >= k:
        return kept[:, :k]
    metric = getattr(mapper, "metric", "euclidean")
    if callable(metric):
        raise ValueError(f"nhood_size: {k} is more than the n_neighbors that were found with a metric that is a function")
    return stages.nearest_neighbors(data, k, metric, getattr(mapper, "metric_kwds", None))[0]


def local_dim(mapper, local_variance_threshold=0.8, **_):
    """The index, from 0, of the principal component of a row's neighbourhood with which the share of the variance exceeds
    the threshold; -1 if none does. As in umap.plot."""
    if not 0 < local_variance_threshold < 1:
        raise ValueError(f"local_variance_threshold: {local_variance_threshold!r} is not between 0 and 1")
    data, near = _dense_data(mapper).astype(np.float64), _neighbours(mapper, mapper.n_neighbors)
    result = np.full(len(data), -1, np.int64)
    step = max(1, (1 << 22) // max(1, near.shape[1] * data.shape[1]))
    for begin in range(0, len(data), step):
        some = near[begin : begin + step]
        rows = np.where((some >= 0)[:, :, None], data[np.maximum(some, 0)], np.nan)
        centred = np.nan_to_num(rows - np.nanmean(rows, axis=1, keepdims=True))
        shares = np.linalg.svd(centred, compute_uv=False) ** 2
        total = shares.sum(axis=1, keepdims=True)
        beyond = np.cumsum(np.divide(shares, total, out=np.zeros_like(shares), where=total > 0), axis=1) > local_variance_threshold
        result[begin : begin + step] = np.where(beyond.any(axis=1), beyond.argmax(axis=1), -1)
    return result


def neighborhood(mapper, nhood_size=15, **_):
    """The Jaccard index of a row's nearest in the data and on the map, itself included in both."""
    places = np.ascontiguousarray(mapper.embedding_, np.float32)
    placed = np.flatnonzero(~np.isnan(places).any(axis=1))
    if not 2 <= nhood_size <= len(placed):
        raise ValueError(f"nhood_size: {nhood_size!r} is not 2 to {len(placed)}, the number of points with a place")
    high = _neighbours(mapper, nhood_size)[placed]
    low = placed[stages.nearest_neighbors(places[placed], nhood_size)[0]]
    both = np.sort(np.concatenate([high, low], axis=1), axis=1)
    common = ((both[:, 1:] == both[:, :-1]) & (both[:, 1:] >= 0)).sum(axis=1)
    known = (high >= 0).sum(axis=1)
    result = np.full(len(places), np.nan)
    result[placed] = common / (known + nhood_size - common)
    return result


MEASURES = {"pca": pca, "ica": ica, "vq": vq, "local_dim": local_dim, "neighborhood": neighborhood}
TITLES = {
    "pca": "Coloured by a PCA of the data as RGB",
    "ica": "Coloured by a FastICA of the data as RGB",
    "vq": "Coloured by distances to three centres as RGB",
    "local_dim": "Coloured by the local dimension of the data",
    "neighborhood": "Coloured by the Jaccard index of neighbourhoods",
}
