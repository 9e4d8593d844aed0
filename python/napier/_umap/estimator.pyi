"""Types of napier.UMAP. Array: as in _napier.pyi."""

from typing import Any, Callable, Optional, Self, Sequence

import numpy as np

from ..umap import Model
from .base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

Array = Any

class UMAP(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    # After fit. embedding_list_: where n_epochs is a list; rad_*: with output_dens; no embedding_ with transform_mode="graph".
    embedding_: np.ndarray[Any, np.dtype[np.float32]]
    embedding_list_: list[np.ndarray[Any, np.dtype[np.float32]]]
    rad_orig_: np.ndarray[Any, np.dtype[np.float32]]
    rad_emb_: np.ndarray[Any, np.dtype[np.float32]]
    model_: Model
    n_features_in_: int
    feature_names_in_: np.ndarray[Any, np.dtype[np.object_]]
    def __init__(
        self,
        n_neighbors: int = 15,
        n_components: int = 2,
        metric: str | Callable[..., Any] = "euclidean",
        metric_kwds: Optional[dict[str, Any]] = None,
        output_metric: str | Callable[..., Any] = "euclidean",
        output_metric_kwds: Optional[Any] = None,
        n_epochs: Optional[int | Sequence[int]] = None,
        learning_rate: float = 1.0,
        init: str = "spectral",
        min_dist: float = 0.1,
        spread: float = 1.0,
        low_memory: bool = True,
        n_jobs: int = -1,
        set_op_mix_ratio: float = 1.0,
        local_connectivity: float = 1.0,
        repulsion_strength: float = 1.0,
        negative_sample_rate: int = 5,
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
        transform_mode: str = "embedding",
        force_approximation_algorithm: bool = False,
        verbose: bool = False,
        tqdm_kwds: Optional[Any] = None,
        unique: bool = False,
        densmap: bool = False,
        dens_lambda: float = 2.0,
        dens_frac: float = 0.3,
        dens_var_shift: float = 0.1,
        output_dens: bool = False,
        disconnection_distance: Optional[Any] = None,
        precomputed_knn: Any = (None, None, None),
    ) -> None: ...
    def fit(self, X: Array, y: Optional[Any] = None, ensure_all_finite: bool | str = True, **kwargs: Any) -> Self: ...
    def fit_transform(self, X: Array, y: Optional[Any] = None, ensure_all_finite: bool | str = True, **kwargs: Any) -> Any: ...
    def update(self, X: Array, ensure_all_finite: bool | str = True) -> Self: ...
    @property
    def graph_(self) -> Any: ...
    def __add__(self, other: UMAP) -> UMAP: ...
    def __mul__(self, other: UMAP) -> UMAP: ...
    def __sub__(self, other: UMAP) -> UMAP: ...
    def transform(self, X: Array, ensure_all_finite: bool | str = True) -> Any: ...
    @property
    def graph_dists_(self) -> Any: ...
    def inverse_transform(self, X: Array, method: str = "mean") -> Any: ...
    def plot(self, labels: Optional[Any] = None, ax: Optional[Any] = None, **options: Any) -> Any: ...
