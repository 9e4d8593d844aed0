"""Types of napier.umap.ParametricUMAP. Array: as in _napier.pyi; Tensor and Module: PyTorch's."""

from typing import Any, Callable, Optional, Self, Sequence

from .estimator import UMAP

Array = Any
Tensor = Any
Module = Any

def parametric_loss(
    source: Tensor, target: Tensor, negatives: Tensor, a: float = 1.5769434603, b: float = 0.8950608780, repulsion_strength: float = 1.0
) -> Tensor: ...

class ParametricUMAP(UMAP):
    _history: dict[str, list[float]]
    def __init__(
        self,
        batch_size: Optional[int] = None,
        dims: Optional[tuple[int, ...]] = None,
        encoder: Optional[Module] = None,
        decoder: Optional[Module] = None,
        parametric_reconstruction: bool = False,
        parametric_reconstruction_loss_fcn: Optional[Callable[..., Any]] = None,
        parametric_reconstruction_loss_weight: float = 1.0,
        autoencoder_loss: bool = False,
        reconstruction_validation: Optional[Array] = None,
        global_correlation_loss_weight: float = 0.0,
        landmark_loss_fn: Optional[Callable[..., Any]] = None,
        landmark_loss_weight: float = 1.0,
        optimizer: Optional[Callable[..., Any]] = None,
        n_training_epochs: int = 1,
        device: str = "cpu",
        *,
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
    @property
    def parametric_model(self) -> Any: ...
    def fit(
        self,
        X: Array,
        y: Optional[Any] = None,
        precomputed_distances: Optional[Array] = None,
        landmark_positions: Optional[Array] = None,
        ensure_all_finite: bool | str = True,
    ) -> Self: ...
    def fit_transform(
        self,
        X: Array,
        y: Optional[Any] = None,
        precomputed_distances: Optional[Array] = None,
        landmark_positions: Optional[Array] = None,
        ensure_all_finite: bool | str = True,
    ) -> Any: ...
    def transform(self, X: Array, batch_size: Optional[int] = None) -> Any: ...
    def add_landmarks(
        self,
        X: Array,
        sample_pct: float = 0.01,
        sample_mode: str = "uniform",
        landmark_loss_weight: float = 0.01,
        idx: Optional[Any] = None,
        reset_optimizer: bool = True,
    ) -> None: ...
    def remove_landmarks(self) -> None: ...
