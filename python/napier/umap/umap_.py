"""umap-learn's umap.umap_: the functions that other packages import from it, with its names, arguments and results.

    import sys
    import napier.umap
    sys.modules["umap"] = napier.umap      # before scanpy or BERTopic import it

Arguments that control umap-learn's search or its threads have no effect. The imports are absolute, because the module is
then loaded as umap.umap_ as well.
"""

from __future__ import annotations

import numbers
from typing import Any, Optional

import numpy as np

from napier._umap import densities, stages
from napier._umap.estimator import UMAP, _seed
from napier._umap.stages import find_ab_params

__all__ = [
    "UMAP",
    "compute_membership_strengths",
    "DISCONNECTION_DISTANCES",
    "find_ab_params",
    "fuzzy_simplicial_set",
    "INT32_MAX",
    "INT32_MIN",
    "nearest_neighbors",
    "simplicial_set_embedding",
    "smooth_knn_dist",
]

# Distances from which on points are not neighbours, by metric.
DISCONNECTION_DISTANCES: dict[str, float] = {"bit_jaccard": 1, "correlation": 2, "cosine": 2, "dice": 1, "hellinger": 1, "jaccard": 1}
INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31 - 1)


def nearest_neighbors(
    X: Any,
    n_neighbors: int,
    metric: Any = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    angular: bool = False,
    random_state: Any = None,
    low_memory: bool = True,
    use_pynndescent: bool = True,
    n_jobs: int = -1,
    verbose: bool = False,
) -> tuple[np.ndarray, np.ndarray, None]:
    """(indices, distances, None) of the nearest rows of each row, the row itself first. There is no search index.

    Examples
    --------
    >>> import napier.umap.umap_ as umap_
    >>> indices, distances, index = umap_.nearest_neighbors([[0.0], [1.0], [3.0]], 2, "euclidean", {}, False, None)
    >>> indices.tolist(), distances.tolist()
    ([[0, 1], [1, 0], [2, 1]], [[0.0, 1.0], [0.0, 1.0], [0.0, 2.0]])
    """
    mapper = UMAP(
        n_neighbors=int(n_neighbors),
        metric=metric,
        metric_kwds=metric_kwds or None,
        random_state=random_state,
        n_jobs=n_jobs,
        verbose=verbose,
        disconnection_distance=np.inf,
        transform_mode="graph",
    ).fit(X)
    return mapper._knn_indices, mapper._knn_dists, None


def smooth_knn_dist(
    distances: Any, k: float, n_iter: int = 64, local_connectivity: float = 1.0, bandwidth: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """(sigmas, rhos) of each row of distances, which has k of them.

    Examples
    --------
    >>> import napier.umap.umap_ as umap_
    >>> umap_.smooth_knn_dist([[0, 1, 2, 3]], 4)[1]
    array([1.], dtype=float32)
    """
    distances = np.asarray(distances, np.float32)
    if distances.ndim != 2 or k != distances.shape[1]:
        raise ValueError(f"k: {k!r} is not the number of distances in a row; the array has the shape {distances.shape}")
    if bandwidth != 1.0:
        raise ValueError(f"bandwidth: {bandwidth!r} is not 1")
    return stages.smooth_knn_dist(distances, local_connectivity)


def compute_membership_strengths(
    knn_indices: Any, knn_dists: Any, sigmas: Any, rhos: Any, return_dists: bool = False, bipartite: bool = False
) -> tuple[Any, Any, Any, Any]:
    """(rows, columns, memberships, distances or None) of all neighbours, one after another. A point's membership in
    itself is 0, unless the neighbours are rows of other data (bipartite). An index of -1 is no neighbour.

    Examples
    --------
    >>> import napier.umap.umap_ as umap_
    >>> umap_.compute_membership_strengths([[0, 1], [1, 0]], [[0, 1], [0, 1]], [1, 1], [1, 1])[2]
    array([0., 1., 0., 1.], dtype=float32)
    """
    indices, distances = np.asarray(knn_indices), np.array(knn_dists, np.float32)
    rows = np.repeat(np.arange(len(indices), dtype=np.int32), indices.shape[1]).reshape(indices.shape)
    missing = indices < 0
    distances[missing] = np.inf
    strengths = densities.strengths(distances, np.asarray(sigmas, np.float32), np.asarray(rhos, np.float32))
    strengths[missing if bipartite else missing | (indices == rows)] = 0
    distances[missing] = 0
    parts = (np.where(missing, 0, part).ravel() for part in (rows, indices.astype(np.int32)))
    return *parts, strengths.astype(np.float32).ravel(), distances.ravel() if return_dists else None


def fuzzy_simplicial_set(
    X: Any,
    n_neighbors: int,
    random_state: Any = None,
    metric: Any = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    knn_indices: Any = None,
    knn_dists: Any = None,
    angular: bool = False,
    set_op_mix_ratio: float = 1.0,
    local_connectivity: float = 1.0,
    apply_set_operations: bool = True,
    verbose: bool = False,
    return_dists: Optional[bool] = None,
) -> tuple[Any, ...]:
    """(graph, sigmas, rhos), with return_dists also the distances of the edges, or None. Given neighbours are used as
    they are, and X for its number of rows only.

    Examples
    --------
    >>> import numpy as np, napier.umap.umap_ as umap_
    >>> data = np.random.default_rng(0).normal(size=(100, 5))
    >>> graph, sigmas, rhos = umap_.fuzzy_simplicial_set(data, 15, None, "euclidean")
    >>> graph.shape, rhos.shape
    ((100, 100), (100,))
    """
    from scipy.sparse import coo_matrix

    if knn_indices is None or knn_dists is None:
        knn_indices, knn_dists, _ = nearest_neighbors(X, n_neighbors, metric, metric_kwds, angular, random_state, verbose=verbose)
    indices, distances = np.array(knn_indices, np.int32), np.array(knn_dists, np.float32)
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    if indices.ndim != 2 or indices.shape != distances.shape or len(indices) != n:
        raise ValueError(f"knn_indices: the shape {indices.shape}, knn_dists {distances.shape}, for {n} points")
    distances[indices < 0] = np.inf
    sigmas, rhos = stages.smooth_knn_dist(distances, local_connectivity)
    rows, columns, strengths, edges = compute_membership_strengths(indices, distances, sigmas, rhos, bool(return_dists))
    if apply_set_operations:
        graph = stages.fuzzy_simplicial_set(indices, distances, local_connectivity, set_op_mix_ratio)
    else:
        graph = coo_matrix((strengths, (rows, columns)), shape=(n, n)).tocsr()
        graph.eliminate_zeros()
    if return_dists is None:
        return graph, sigmas, rhos
    if not return_dists:
        return graph, sigmas, rhos, None
    far = coo_matrix((edges, (rows, columns)), shape=(n, n))
    return graph, sigmas, rhos, far.maximum(far.T).todok()


def _start(data, graph, n_components, init, seed):
    if not isinstance(init, str):
        start = np.asarray(init, np.float32)
        if start.shape != (graph.shape[0], n_components) or not np.isfinite(start).all():
            raise ValueError(f"init: expected finite places of shape ({graph.shape[0]}, {n_components}), got {start.shape}")
        return start
    if init == "random":
        return stages.random_layout(graph.shape[0], n_components, seed)
    if init == "pca":
        return stages.pca_layout(data, n_components, seed)
    if init in ("spectral", "tswspectral"):
        return stages.spectral_layout(graph, data, n_components, seed)
    raise ValueError(f"init: {init!r} is not 'spectral', 'tswspectral', 'pca', 'random' or an array")


def simplicial_set_embedding(
    data: Any,
    graph: Any,
    n_components: int = 2,
    initial_alpha: float = 1.0,
    a: Optional[float] = None,
    b: Optional[float] = None,
    gamma: float = 1.0,
    negative_sample_rate: int = 5,
    n_epochs: Any = None,
    init: Any = "spectral",
    random_state: Any = None,
    metric: Any = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    densmap: bool = False,
    densmap_kwds: Optional[dict[str, Any]] = None,
    output_dens: bool = False,
    output_metric: Any = None,
    output_metric_kwds: Optional[dict[str, Any]] = None,
    euclidean_output: bool = True,
    parallel: bool = False,
    verbose: bool = False,
    tqdm_kwds: Optional[dict[str, Any]] = None,
) -> tuple[np.ndarray, dict[str, Any]]:
    """(map, details): the layout of a fuzzy set in n_components dimensions, float32. `data` tells where to put connected
    components, if there are many. n_epochs None or below 1: 500 up to 10,000 points, else 200; a list also gives
    details["embedding_list"]. init: 'spectral', 'tswspectral', 'pca', 'random' or places, which are used unchanged. For
    densMAP and other output metrics there is napier.UMAP.

    Examples
    --------
    >>> import numpy as np, napier.umap.umap_ as umap_
    >>> data = np.random.default_rng(0).normal(size=(100, 5))
    >>> graph, _, _ = umap_.fuzzy_simplicial_set(data, 15, None, "euclidean")
    >>> a, b = umap_.find_ab_params(1.0, 0.1)
    >>> map_, details = umap_.simplicial_set_embedding(data, graph, 2, 1.0, a, b, 1.0, 5, 50, "spectral", None,
    ...                                                "euclidean", {}, False, {}, False)
    >>> map_.shape, details
    ((100, 2), {})
    """
    for name, given in (("densmap", densmap), ("output_dens", output_dens), ("euclidean_output", not euclidean_output)):
        if given:
            raise ValueError(
                f"{name}: simplicial_set_embedding has Euclidean maps without densities; napier.UMAP has "
                "densmap, output_dens and output_metric"
            )
    seed = _seed(random_state, "random_state")
    graph = graph.tocsr()
    wanted = [] if n_epochs is None or isinstance(n_epochs, numbers.Integral) else [int(n) for n in n_epochs]
    last = max(wanted) if wanted else n_epochs
    maps = stages.optimize_layout(
        graph,
        _start(data, graph, n_components, init, seed),
        n_epochs=last if last is not None and last > 0 else None,
        a=a,
        b=b,
        learning_rate=initial_alpha,
        repulsion_strength=gamma,
        negative_sample_rate=negative_sample_rate,
        random_state=seed,
        maps_after=wanted,
    )
    return (maps[-1], {"embedding_list": maps[:-1]}) if wanted else (maps, {})
