"""Types of napier.umap.umap_. Array: as in napier/_napier.pyi."""

from typing import Any, Optional

import numpy as np

from .._umap.estimator import UMAP as UMAP
from . import find_ab_params as find_ab_params

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

Array = Any

DISCONNECTION_DISTANCES: dict[str, float]
INT32_MAX: int
INT32_MIN: int

def nearest_neighbors(
    X: Array,
    n_neighbors: int,
    metric: Any = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    angular: bool = False,
    random_state: Any = None,
    low_memory: bool = True,
    use_pynndescent: bool = True,
    n_jobs: int = -1,
    verbose: bool = False,
) -> tuple[np.ndarray, np.ndarray, None]: ...
def smooth_knn_dist(
    distances: Array, k: float, n_iter: int = 64, local_connectivity: float = 1.0, bandwidth: float = 1.0
) -> tuple[np.ndarray, np.ndarray]: ...
def compute_membership_strengths(
    knn_indices: Array, knn_dists: Array, sigmas: Array, rhos: Array, return_dists: bool = False, bipartite: bool = False
) -> tuple[Any, Any, Any, Any]: ...
def fuzzy_simplicial_set(
    X: Array,
    n_neighbors: int,
    random_state: Any = None,
    metric: Any = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    knn_indices: Optional[Array] = None,
    knn_dists: Optional[Array] = None,
    angular: bool = False,
    set_op_mix_ratio: float = 1.0,
    local_connectivity: float = 1.0,
    apply_set_operations: bool = True,
    verbose: bool = False,
    return_dists: Optional[bool] = None,
) -> tuple[Any, ...]: ...
def simplicial_set_embedding(
    data: Array,
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
) -> tuple[np.ndarray, dict[str, Any]]: ...
