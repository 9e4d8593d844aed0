"""Types of napier.umap.AlignedUMAP. Array: as in _napier.pyi."""

from typing import Any, Callable, Optional, Self, Sequence

import numpy as np

from .base import BaseEstimator
from .estimator import UMAP

Array = Any

class AlignedUMAP(BaseEstimator):
    embeddings_: list[np.ndarray[Any, np.dtype[np.float32]]]
    mappers_: list[UMAP]
    dict_relations_: list[dict[int, int]]
    window_size_: int
    def __init__(
        self,
        n_neighbors: int | Sequence[int] = 15,
        n_components: int = 2,
        metric: str | Callable[..., Any] = "euclidean",
        metric_kwds: Optional[dict[str, Any]] = None,
        n_epochs: Optional[int | Sequence[int]] = None,
        learning_rate: float | Sequence[float] = 1.0,
        init: str = "spectral",
        alignment_regularisation: float = 0.01,
        alignment_window_size: int = 3,
        min_dist: float | Sequence[float] = 0.1,
        spread: float | Sequence[float] = 1.0,
        low_memory: bool = False,
        set_op_mix_ratio: float | Sequence[float] = 1.0,
        local_connectivity: float | Sequence[float] = 1.0,
        repulsion_strength: float | Sequence[float] = 1.0,
        negative_sample_rate: int | Sequence[int] = 5,
        transform_queue_size: float = 4.0,
        a: Optional[float] = None,
        b: Optional[float] = None,
        random_state: Optional[Any] = None,
        angular_rp_forest: bool = False,
        target_n_neighbors: int = -1,
        target_metric: str | Callable[..., Any] = "categorical",
        target_metric_kwds: Optional[Any] = None,
        target_weight: float = 0.5,
        transform_seed: int = 42,
        force_approximation_algorithm: bool = False,
        verbose: bool = False,
        unique: bool | Sequence[bool] = False,
        n_jobs: int = -1,
    ) -> None: ...
    def fit(
        self,
        X: Sequence[Array],
        y: Optional[Sequence[Any]] = None,
        relations: Optional[Sequence[dict[int, int]]] = None,
        window_size: Optional[int] = None,
    ) -> Self: ...
    def fit_transform(
        self,
        X: Sequence[Array],
        y: Optional[Sequence[Any]] = None,
        relations: Optional[Sequence[dict[int, int]]] = None,
        window_size: Optional[int] = None,
    ) -> list[Any]: ...
    def update(self, X: Array, y: Optional[Any] = None, relations: Optional[dict[int, int]] = None, **parameters: Any) -> Self: ...
