"""Types of napier.umap. Array: as in _napier.pyi; Floats: what most functions return."""

from os import PathLike
from typing import Any, Callable, Iterable, NamedTuple, Optional, Sequence

import numpy as np

from .._umap.aligned import AlignedUMAP as AlignedUMAP
from .._umap.estimator import UMAP as UMAP
from .._umap.parametric import ParametricUMAP as ParametricUMAP, parametric_loss as parametric_loss

Array = Any
Floats = np.ndarray[Any, np.dtype[np.float32]]

__version__: str
EDGE: np.dtype[Any]
METRICS: tuple[str, ...]

class Graph(NamedTuple):
    data: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    indptr: np.ndarray[Any, Any]
    shape: tuple[int, int]

class Quality(NamedTuple):
    trustworthiness: float
    neighbor_preservation: float
    knn_accuracy: float

def edges(graph: Array) -> np.ndarray[Any, Any]: ...
def find_ab_params(spread: float = 1.0, min_dist: float = 0.1) -> tuple[float, float]: ...
def sort_edges(edges: Array) -> np.ndarray[Any, Any]: ...
def segments(edges: Array, n: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]: ...
def graph_from_edges(edges: Array, n: int) -> Any: ...
def edge_gradients(embedding: Array, edges: Array, **params: Any) -> Any: ...
def reduce_segments(edge_gradients: Array, starts: Array, counts: Array) -> Any: ...
def gradients(embedding: Array, edges: Array, move_targets: bool = True, **params: Any) -> Floats: ...
def apply(embedding: Array, gradients: Array, learning_rate: float = 1.0) -> Floats: ...
def negative_targets(n: int, rate: int = 5, epoch: int = 0, seed: int = 42) -> np.ndarray[Any, np.dtype[np.uint32]]: ...
def negative_gradients(embedding: Array, targets: Array, **params: Any) -> Floats: ...
def loss(embedding: Array, edges: Array, targets: Optional[Any] = None, **params: Any) -> float: ...

class Optimizer:
    def __init__(
        self,
        n: int,
        n_components: int = 2,
        method: str = "adam",
        beta: float = 0.9,
        beta1: float = 0.5,
        beta2: float = 0.9,
        eps: float = 1e-07,
    ) -> None: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes) -> Optimizer: ...

def optimizer_to_bytes(optimizer: Array) -> bytes: ...
def optimizer_from_bytes(data: bytes) -> Optimizer: ...
def optimize_epochs(
    embedding: Array,
    edges: Array,
    optimizer: Optional[Any] = None,
    targets: Optional[Any] = None,
    *,
    first: int = 0,
    count: int = 1,
    total: Optional[int] = None,
    seed: int = 42,
    edge_use: str = "weighted",
    rate_per: str = "edge",
    move_targets: bool = True,
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
    **params: Any,
) -> Any: ...
def metric_name(metric: str) -> str: ...
def metric_from_name(name: str) -> Any: ...
def metric_disconnection(metric: str) -> float: ...
def nearest_neighbors(
    X: Array,
    n_neighbors: int = 15,
    metric: str = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    *,
    method: str = "auto",
    random_state: int = 42,
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
) -> tuple[np.ndarray[Any, np.dtype[np.int32]], Floats]: ...
def nearest_neighbors_of(
    X: Array,
    queries: Array,
    n_neighbors: int = 15,
    metric: str = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    *,
    method: str = "auto",
    random_state: int = 42,
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
) -> tuple[np.ndarray[Any, np.dtype[np.int32]], Floats]: ...
def smooth_knn_dist(distances: Array, local_connectivity: float = 1.0) -> tuple[Floats, Floats]: ...
def fuzzy_simplicial_set(indices: Array, distances: Array, local_connectivity: float = 1.0, set_op_mix_ratio: float = 1.0) -> Any: ...
def join_categories(graph: Array, categories: Array, target_weight: float = 0.5) -> Any: ...
def join_numbers(graph: Array, numbers: Array, n_neighbors: int = 15, target_weight: float = 0.5) -> Any: ...
def join_distances(graph: Array, distances: Array, target_weight: float = 0.5) -> Any: ...
def combine(left: Array, right: Array, operation: str = "union", weight: float = 0.5, n_neighbors: int = 0) -> Any: ...
def spectral_layout(
    graph: Array, X: Optional[Array] = None, n_components: int = 2, random_state: int = 42, *, threads: int = 0
) -> Floats: ...
def pca_layout(X: Array, n_components: int = 2, random_state: int = 42, *, threads: int = 0) -> Floats: ...
def random_layout(n: int, n_components: int = 2, random_state: int = 42) -> Floats: ...
def optimize_layout(
    graph: Array,
    embedding: Array,
    *,
    n_epochs: Optional[int] = None,
    a: Optional[float] = None,
    b: Optional[float] = None,
    min_dist: float = 0.1,
    spread: float = 1.0,
    learning_rate: float = 1.0,
    repulsion_strength: float = 1.0,
    negative_sample_rate: int = 5,
    random_state: int = 42,
    densmap: bool = False,
    dens_lambda: float = 2.0,
    dens_frac: float = 0.3,
    dens_var_shift: float = 0.1,
    knn: Optional[Any] = None,
    maps_after: Iterable[int] = (),
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
) -> Any: ...
def disconnected(embedding: Array) -> int: ...

class Model:
    def __init__(self, capsule: Array) -> None: ...
    @property
    def embedding(self) -> Floats: ...
    @property
    def n_components(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def lost(self) -> int: ...
    def transform(self, X: Array, *, threads: int = 0) -> Floats: ...
    def inverse_transform(self, points: Array, *, threads: int = 0) -> Floats: ...
    def save(self, path: str | PathLike[str]) -> None: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def load(cls, path: str | PathLike[str]) -> Model: ...
    @classmethod
    def from_bytes(cls, data: bytes) -> Model: ...

def fit(
    X: Array,
    *,
    n_neighbors: int = 15,
    metric: str = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    method: str = "auto",
    knn: Optional[Any] = None,
    n_components: int = 2,
    n_epochs: Optional[int] = None,
    min_dist: float = 0.1,
    spread: float = 1.0,
    a: Optional[float] = None,
    b: Optional[float] = None,
    learning_rate: float = 1.0,
    set_op_mix_ratio: float = 1.0,
    local_connectivity: float = 1.0,
    repulsion_strength: float = 1.0,
    negative_sample_rate: int = 5,
    init: str = "spectral",
    random_state: int = 42,
    transform_seed: int = 42,
    categories: Optional[Any] = None,
    numbers: Optional[Any] = None,
    target_n_neighbors: int = 0,
    target_weight: float = 0.5,
    densmap: bool = False,
    dens_lambda: float = 2.0,
    dens_frac: float = 0.3,
    dens_var_shift: float = 0.1,
    disconnection_distance: Optional[float] = None,
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
) -> Model: ...
def model_of(
    X: Array,
    embedding: Array,
    *,
    n_neighbors: int = 15,
    metric: str = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    method: str = "auto",
    min_dist: float = 0.1,
    spread: float = 1.0,
    a: Optional[float] = None,
    b: Optional[float] = None,
    learning_rate: float = 1.0,
    local_connectivity: float = 1.0,
    repulsion_strength: float = 1.0,
    negative_sample_rate: int = 5,
    transform_seed: int = 42,
    disconnection_distance: Optional[float] = None,
    threads: int = 0,
) -> Model: ...
def transform(model: Array, X: Array, *, threads: int = 0) -> Any: ...
def inverse_transform(model: Array, points: Array, *, threads: int = 0) -> Any: ...
def model_embedding(model: Array) -> Floats: ...
def model_features(model: Array) -> int: ...
def model_lost(model: Array) -> int: ...
def model_save(model: Array, path: str | PathLike[str]) -> None: ...
def model_load(path: str | PathLike[str]) -> Model: ...
def model_to_bytes(model: Array) -> bytes: ...
def model_from_bytes(data: bytes) -> Model: ...
def raster_points(
    points: Array,
    codes: Optional[Array] = None,
    amounts: Array = ((1,),),
    *,
    extent: Sequence[float],
    width: int = 800,
    height: int = 800,
    threads: int = 0,
) -> np.ndarray[Any, np.dtype[np.int64]]: ...
def raster_lines(
    points: Array, amounts: Optional[Array] = None, *, extent: Sequence[float], width: int = 800, height: int = 800, threads: int = 0
) -> np.ndarray[Any, np.dtype[np.int64]]: ...
def quality_of(
    X: Array,
    embedding: Array,
    labels: Optional[Any] = None,
    n_neighbors: int = 15,
    metric: str = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    *,
    rows: int = 0,
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
) -> Quality: ...
