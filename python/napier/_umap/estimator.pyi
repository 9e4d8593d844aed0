"""Types of napier.UMAP. Array: as in _napier.pyi."""
from typing import Any, Optional, Self

from .base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

Array = Any

class UMAP(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    def __init__(self, n_neighbors: int = 15, n_components: int = 2, metric: str = 'euclidean',
                 metric_kwds: Optional[dict[str, Any]] = None, output_metric: str = 'euclidean',
                 output_metric_kwds: Optional[Any] = None, n_epochs: Optional[int] = None,
                 learning_rate: float = 1.0, init: str = 'spectral', min_dist: float = 0.1, spread: float = 1.0,
                 low_memory: bool = True, n_jobs: int = -1, set_op_mix_ratio: float = 1.0,
                 local_connectivity: float = 1.0, repulsion_strength: float = 1.0, negative_sample_rate: int = 5,
                 transform_queue_size: float = 4.0, a: Optional[float] = None, b: Optional[float] = None,
                 random_state: Optional[Any] = None, angular_rp_forest: bool = False, target_n_neighbors: int = -1,
                 target_metric: str = 'categorical', target_metric_kwds: Optional[Any] = None,
                 target_weight: float = 0.5, transform_seed: int = 42, transform_mode: str = 'embedding',
                 force_approximation_algorithm: bool = False, verbose: bool = False,
                 tqdm_kwds: Optional[Any] = None, unique: bool = False, densmap: bool = False,
                 dens_lambda: float = 2.0, dens_frac: float = 0.3, dens_var_shift: float = 0.1,
                 output_dens: bool = False, disconnection_distance: Optional[Any] = None,
                 precomputed_knn: Any = (None, None, None)) -> None: ...
    def fit(self, X: Array, y: Optional[Any] = None) -> Self: ...
    def fit_transform(self, X: Array, y: Optional[Any] = None) -> Any: ...
    @property
    def graph_(self) -> Any: ...
    def transform(self, X: Array) -> Any: ...
    def inverse_transform(self, X: Array) -> Any: ...
    def plot(self, labels: Optional[Any] = None, ax: Optional[Any] = None, **options: Any) -> Any: ...
