"""The stages of UMAP; see napier.umap."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any, Callable, Iterable, NamedTuple, Optional

import numpy as np

from .. import _napier

Floats = np.ndarray[Any, np.dtype[np.float32]]

EDGE: np.dtype[Any] = np.dtype([("source", np.uint32), ("target", np.uint32), ("weight", np.float32)])
METRICS: tuple[str, ...] = tuple(_napier._umap_metric_name(i, {}) for i in range(29))

_METHODS = {"auto": 0, "exact": 1, "nn_descent": 2}
_OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}
_EDGE_USES = {"weighted": 0, "sampled": 1}
_RATES = {"edge": 0, "vertex": 1}
_OPERATIONS = {"union": 0, "intersection": 1, "difference": 2}
_INITS = {"spectral": 0, "pca": 1, "random": 2}
_KEYWORDS = {
    "minkowski": ("p",),
    "wminkowski": ("w", "p"),
    "seuclidean": ("V",),
    "mahalanobis": ("VI",),
    "string": ("max_distance", "normalisation"),
}
_MOVING = ("euclidean", "manhattan", "chebyshev", "minkowski", "seuclidean", "mahalanobis", "wminkowski")  # offsets change no distance
_TELL_APART = (*_MOVING[:-1], "canberra", "hamming", "haversine")  # 0: rows are equal
_SPELLINGS = {"v": "V", "sigma": "V", "vinv": "VI"}


class Graph(NamedTuple):
    """A weighted graph in CSR form like scipy.sparse.csr_matrix, for machines without SciPy."""

    data: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    indptr: np.ndarray[Any, Any]
    shape: tuple[int, int]


class Quality(NamedTuple):
    """The quality of a map. Each value is 0 to 1; knn_accuracy is NaN without labels."""

    trustworthiness: float
    neighbor_preservation: float
    knn_accuracy: float


# ---- Arguments -------------------------------------------------------------------------------------------------------


def _word(value, name, words):
    if isinstance(value, str) and value in words:
        return words[value]
    raise ValueError(f"{name}: {value!r} is not one of {', '.join(map(repr, words))}")


def _array(x, name, dtype, ndim):
    """x as a contiguous array of this dtype; checks the number of dimensions."""
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{name}: not an array: {error}") from None
    wanted = np.dtype(dtype)
    if array.dtype.kind == "c" or array.dtype.kind not in "fiub" and array.size and array.dtype.name != "bfloat16":
        raise TypeError(f"{name}: expected numbers, got an array of dtype {array.dtype}")
    if wanted.kind in "iu" and array.dtype != wanted and array.size:
        if array.dtype.kind not in "iub":
            raise TypeError(f"{name}: expected integers, got an array of dtype {array.dtype}")
        limits = np.iinfo(wanted)
        if array.min() < limits.min or array.max() > limits.max:
            raise ValueError(f"{name}: {array.min()} .. {array.max()} does not fit {wanted}")
    if array.ndim != ndim:
        raise ValueError(f"{name}: expected {ndim} dimension{'s' if ndim > 1 else ''}, got {array.ndim}")
    return np.ascontiguousarray(array, dtype=wanted)


def _in_place(x, name):
    """Checks the caller's array, which is changed in place."""
    if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 2 or not x.flags.c_contiguous:
        raise TypeError(f"{name}: expected a contiguous float32 array of 2 dimensions, which is changed in place")
    if not x.flags.writeable:
        raise ValueError(f"{name}: the array is read-only")
    return x


def _is_sparse(x):
    return hasattr(x, "indptr") or hasattr(x, "tocsr")


def _csr(x, name):
    """x as a CSR matrix in which the columns of each row are ascending and distinct."""
    if not hasattr(x, "indptr") or getattr(x, "format", "csr") != "csr":
        x = x.tocsr()
    if hasattr(x, "has_canonical_format") and not x.has_canonical_format:
        x = x.copy()
        x.sum_duplicates()
    if len(x.shape) != 2:
        raise ValueError(f"{name}: expected 2 dimensions, got {len(x.shape)}")
    return x


def _column_of_text(x):
    """What is wrong with a data frame: its first column that is not numbers; None if there is none, or x is no frame."""
    for name in getattr(x, "columns", ()):
        try:
            np.asarray(x[name]).astype(np.float64)
        except (TypeError, ValueError) as error:
            return f"column {name!r}: {error}"
    return None


def refuse_masked(x, name="X"):
    """numpy.asarray would use what the mask hides."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise ValueError(f"{name}: {np.ma.count_masked(x)} values are masked; use .filled(), or leave out their rows")


def _samples(x, name="X"):
    """Samples in the form for the extension: an array, or (rows, cols, row_starts, columns, values)."""
    if _is_sparse(x):
        x = _csr(x, name)
        values = np.asarray(x.data)
        if values.dtype.kind == "c":
            raise TypeError(f"{name}: complex numbers are not supported")
        largest = float(abs(values).max()) if values.size and values.dtype.kind == "f" else 0.0
        if 0 < largest < np.finfo(np.float32).tiny or np.finfo(np.float32).max < largest < np.inf:
            raise ValueError(
                f"{name}: the largest value has the size {largest:g}, which float32 does not hold; multiply all by a power of two"
            )
        return (
            int(x.shape[0]),
            int(x.shape[1]),
            _array(x.indptr, name, np.int64, 1),
            _array(x.indices, name, np.int32, 1),
            _array(x.data, name, np.float32, 1),
        )
    refuse_masked(x, name)
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{name}: not an array: {error}") from None
    if array.dtype.kind == "c":
        raise TypeError(f"{name}: complex numbers are not supported")
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name}: expected numbers: {_column_of_text(x) or error}") from None
    if array.ndim != 2:
        raise ValueError(f"{name}: expected 2 dimensions, got {array.ndim}")
    if array.dtype.kind in "iub":  # float32 holds all numbers of two bytes
        array = array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
    elif array.dtype.kind == "f" and array.dtype.itemsize not in (2, 4, 8):
        array = array.astype(np.float64)
    return array


def _rows(samples):
    return samples[0] if isinstance(samples, tuple) else samples.shape[0]


def _without_none(**options):
    return {name: value for name, value in options.items() if value is not None}


def _common(threads, progress):
    return {"threads": threads, "progress": progress}


def edges(graph: Any) -> np.ndarray[Any, Any]:
    """Edges as an array of dtype EDGE. `graph` is a sparse matrix (one edge for every stored element, sorted), a tuple
    (source, target, weight) of arrays, or such an array.

    Examples
    --------
    >>> import napier
    >>> napier.umap.edges(([0, 1], [1, 0], [0.5, 0.5]))["target"]
    array([1, 0], dtype=uint32)
    """
    if isinstance(graph, np.ndarray) and graph.dtype == EDGE:
        if graph.ndim != 1:
            raise ValueError(f"edges: expected 1 dimension, got {graph.ndim}")
        return np.ascontiguousarray(graph)
    if _is_sparse(graph):
        graph = _csr(graph, "edges")
        indptr = np.asarray(graph.indptr)
        parts: tuple | list = (np.repeat(np.arange(graph.shape[0]), np.diff(indptr)), graph.indices, graph.data)
    elif isinstance(graph, (tuple, list)) and len(graph) == 3:
        parts = graph
    else:
        raise TypeError(
            f"edges: expected an array of dtype napier.umap.EDGE, a sparse matrix, or (source, target, weight), got {type(graph).__name__}"
        )
    source, target = (_array(p, "edges", np.uint32, 1) for p in parts[:2])
    weight = _array(parts[2], "edges", np.float32, 1)
    if not len(source) == len(target) == len(weight):
        raise ValueError(f"edges: {len(source)} sources, {len(target)} targets, {len(weight)} weights")
    made = np.empty(len(source), EDGE)
    made["source"], made["target"], made["weight"] = source, target, weight
    return made


def _bits(array):
    """Edges in the form for the extension."""
    return edges(array).view(np.int32).reshape(-1, 3)


def _vertices(graph):
    """(edges, n) of a square sparse matrix."""
    if not _is_sparse(graph):
        raise TypeError(f"graph: expected a sparse matrix, got {type(graph).__name__}")
    if graph.shape[0] != graph.shape[1]:
        raise ValueError(f"graph: {graph.shape[0]} rows are not {graph.shape[1]} columns")
    return _bits(graph), int(graph.shape[0])


def _graph(triple):
    indptr, indices, data = (np.frombuffer(part, dtype) for part, dtype in zip(triple, (np.int64, np.int32, np.float32), strict=True))
    shape = (len(indptr) - 1, len(indptr) - 1)
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        return Graph(data, indices, indptr, shape)
    if len(indices) < 2**31:
        indptr = indptr.astype(np.int32)  # like SciPy: both of one dtype
    graph = csr_matrix((data, indices, indptr), shape=shape)
    graph.has_sorted_indices = graph.has_canonical_format = True
    return graph


def _params(a=None, b=None, learning_rate=None, negative_sample_rate=None, repulsion_strength=None, epsilon=None, clip=None, max_norm=None):
    """The curve and the forces; see find_ab_params. Defaults are those of the C library: the curve of min_dist 0.1
    and spread 1, rate 1, 5 samples, strength 1, epsilon 0.001, each component of a force clipped to 4."""
    return _without_none(
        a=a,
        b=b,
        learning_rate=learning_rate,
        negative_sample_rate=negative_sample_rate,
        repulsion_strength=repulsion_strength,
        epsilon=epsilon,
        clip=clip,
        max_norm=max_norm,
    )


# ---- The curve, edges and forces ------------------------------------------------------------------------------------


def find_ab_params(spread: float = 1.0, min_dist: float = 0.1) -> tuple[float, float]:
    """(a, b) of the curve 1 / (1 + a d^2b) that is 1 up to min_dist and falls as exp(-(d - min_dist) / spread) beyond.

    Examples
    --------
    >>> import napier
    >>> a, b = napier.umap.find_ab_params(spread=1.0, min_dist=0.1)
    >>> round(a, 2), round(b, 2)
    (1.58, 0.9)
    """
    return _napier._umap_find_ab_params(min_dist, spread, {})


def sort_edges(edges: Any) -> np.ndarray[Any, Any]:
    """A copy of the edges, sorted by source, target and weight.

    Examples
    --------
    >>> import napier
    >>> napier.umap.sort_edges(([1, 0], [0, 1], [0.5, 1.0]))["source"].tolist()
    [0, 1]
    """
    made = globals()["edges"](edges).copy()
    _napier._umap_sort_edges(made.view(np.int32).reshape(-1, 3), {})
    return made


def segments(edges: Any, n: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
    """(starts, counts), int64 [n]: edge e of vertex v is edges[starts[v] + e], e < counts[v].

    Examples
    --------
    >>> import napier
    >>> starts, counts = napier.umap.segments(([0, 0, 2], [1, 2, 0], [1, 1, 1]), n=3)
    >>> starts[counts > 0].tolist(), counts.tolist()
    ([0, 2], [2, 0, 1])
    """
    n = _count(n, "n")
    starts, counts = np.empty(n, np.int64), np.empty(n, np.int64)
    _napier._umap_segments(_bits(edges), starts, counts, {})
    return starts, counts


def graph_from_edges(edges: Any, n: int) -> Any:
    """Makes a graph of n vertices from sorted edges. Edges of weight 0 are left out.

    Examples
    --------
    >>> import napier
    >>> graph = napier.umap.graph_from_edges(([0, 1], [1, 0], [0.5, 0.5]), n=3)
    >>> graph.shape, graph.data.tolist()
    ((3, 3), [0.5, 0.5])
    """
    return _graph(_napier._umap_graph_from_edges(_bits(edges), _count(n, "n"), {}))


def _count(value, name):
    value = int(np.asarray(value).item()) if not isinstance(value, int) else value
    if value < 0:
        raise ValueError(f"{name}: {value} is negative")
    return value


def _like(embedding):
    embedding = _array(embedding, "embedding", np.float32, 2)
    return embedding, np.zeros_like(embedding)


def edge_gradients(embedding: Any, edges: Any, **params: Any) -> Any:
    """(on sources, on targets): the attractive force of each edge times its weight, float32 [edges, n_components].
    Parameters: a, b, learning_rate, negative_sample_rate, repulsion_strength, epsilon, clip, max_norm.

    Examples
    --------
    >>> import napier
    >>> on_source, on_target = napier.umap.edge_gradients([[0, 0], [1, 0]], ([0], [1], [1]))
    >>> bool(on_source[0, 0] > 0), bool((on_source == -on_target).all())  # towards each other
    (True, True)
    """
    embedding = _array(embedding, "embedding", np.float32, 2)
    bits = _bits(edges)
    on_source, on_target = np.empty((2, len(bits), embedding.shape[1]), np.float32)
    _napier._umap_edge_gradients(embedding, bits, on_source, on_target, _params(**params))
    return on_source, on_target


def reduce_segments(edge_gradients: Any, starts: Any, counts: Any) -> Any:
    """gradients[v]: the sum of the rows starts[v] .. starts[v] + counts[v] - 1.

    Examples
    --------
    >>> import napier
    >>> napier.umap.reduce_segments([[1, 0], [2, 0], [0, 5]], starts=[0, 2], counts=[2, 1]).tolist()
    [[3.0, 0.0], [0.0, 5.0]]
    """
    each = _array(edge_gradients, "edge_gradients", np.float32, 2)
    starts = _array(starts, "starts", np.int64, 1)
    sums = np.empty((len(starts), each.shape[1]), np.float32)
    _napier._umap_reduce_segments(each, starts, _array(counts, "counts", np.int64, 1), sums, {})
    return sums


def gradients(embedding: Any, edges: Any, move_targets: bool = True, **params: Any) -> Floats:
    """The attractive forces on every vertex: float32 [n, n_components]. Edges must be sorted.

    Examples
    --------
    >>> import napier
    >>> forces = napier.umap.gradients([[0, 0], [1, 0]], ([0], [1], [1]))
    >>> bool(forces[0, 0] > 0 > forces[1, 0])
    True
    """
    embedding, sums = _like(embedding)
    _napier._umap_gradients(embedding, _bits(edges), int(move_targets), sums, _params(**params))
    return sums


def apply(embedding: Any, gradients: Any, learning_rate: float = 1.0) -> Floats:
    """embedding += learning_rate * gradients, in place. Returns the embedding.

    Examples
    --------
    >>> import numpy as np, napier
    >>> embedding = np.zeros((2, 2), np.float32)
    >>> napier.umap.apply(embedding, [[1, 0], [0, 1]], learning_rate=0.5).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    _napier._umap_apply(learning_rate, _array(gradients, "gradients", np.float32, 2), _in_place(embedding, "embedding"), {})
    return embedding


def negative_targets(n: int, rate: int = 5, epoch: int = 0, seed: int = 42) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The negative samples of an epoch: uint32 [n, rate], each in 0 .. n - 1, a function of (seed, epoch, vertex,
    draw).

    Examples
    --------
    >>> import napier
    >>> targets = napier.umap.negative_targets(n=100, rate=5, epoch=0, seed=42)
    >>> targets.shape, bool(targets.max() < 100)
    ((100, 5), True)
    """
    targets = np.empty((_count(n, "n"), _count(rate, "rate")), np.int32)
    _napier._umap_negative_targets(epoch, targets, {"seed": seed})
    return targets.view(np.uint32)


def _targets(targets):
    return None if targets is None else _array(targets, "targets", np.uint32, 2).view(np.int32)


def negative_gradients(embedding: Any, targets: Any, **params: Any) -> Floats:
    """The repulsive forces on every vertex from its targets [n, rate].

    Examples
    --------
    >>> import napier
    >>> forces = napier.umap.negative_gradients([[0, 0], [1, 0]], [[1], [0]])
    >>> bool(forces[0, 0] < 0 < forces[1, 0])  # away from each other
    True
    """
    embedding, sums = _like(embedding)
    _napier._umap_negative_gradients(embedding, _targets(targets), sums, _params(**params))
    return sums


def loss(embedding: Any, edges: Any, targets: Any = None, **params: Any) -> float:
    """- sum over edges of w log q(d), and over the targets of repulsion_strength log(1 - q(d)).

    Examples
    --------
    >>> import napier
    >>> edges = [0, 1], [1, 0], [1, 1]
    >>> near, far = (napier.umap.loss([[0, 0], [x, 0]], edges) for x in (0.5, 5))
    >>> near < far
    True
    """
    embedding = _array(embedding, "embedding", np.float32, 2)
    return _napier._umap_loss(embedding, _bits(edges), _targets(targets), _params(**params))


# ---- Optimizers and epochs ------------------------------------------------------------------------------------------


class Optimizer:
    """The velocity or moments of n points, which optimize_epochs updates. The method is 'sgd', 'momentum' (with beta)
    or 'adam' (with beta1, beta2, eps). Can be pickled.

    Examples
    --------
    >>> import numpy as np, napier
    >>> optimizer = napier.umap.Optimizer(n=2, beta1=0.8)
    >>> embedding, edges = np.array([[0, 0], [5, 0]], np.float32), ([0, 1], [1, 0], [1, 1])
    >>> _ = napier.umap.optimize_epochs(embedding, edges, optimizer, count=10, total=20)
    >>> kept = napier.umap.Optimizer.from_bytes(optimizer.to_bytes())  # as in a checkpoint
    >>> bool(abs(embedding[1, 0] - embedding[0, 0]) < 5)
    True
    """

    __slots__ = ("_capsule",)

    def __init__(
        self,
        n: int,
        n_components: int = 2,
        method: str = "adam",
        beta: float = 0.9,
        beta1: float = 0.5,
        beta2: float = 0.9,
        eps: float = 1e-7,
    ) -> None:
        options = {"method": _word(method, "method", _OPTIMIZERS), "beta": beta, "beta1": beta1, "beta2": beta2, "eps": eps}
        self._capsule = _napier._umap_optimizer_create(n, n_components, options)

    def to_bytes(self) -> bytes:
        """The optimizer as bytes, the same on every machine.

        Examples
        --------
        >>> import napier
        >>> optimizer = napier.umap.Optimizer(n=100)
        >>> type(optimizer.to_bytes())
        <class 'bytes'>
        """
        return _napier._umap_optimizer_to_bytes(self._capsule, {})

    @classmethod
    def from_bytes(cls, data: bytes) -> Optimizer:
        """An optimizer from its bytes; ValueError if they are invalid.

        Examples
        --------
        >>> import napier
        >>> optimizer = napier.umap.Optimizer(n=100)
        >>> napier.umap.Optimizer.from_bytes(optimizer.to_bytes()).to_bytes() == optimizer.to_bytes()
        True
        """
        made = cls.__new__(cls)
        made._capsule = _napier._umap_optimizer_from_bytes(bytes(data), {})
        return made

    def __reduce__(self):
        return Optimizer.from_bytes, (self.to_bytes(),)


optimizer_create = Optimizer


def optimizer_to_bytes(optimizer: Any) -> bytes:
    return optimizer.to_bytes()


def optimizer_from_bytes(data: bytes) -> Optimizer:
    return Optimizer.from_bytes(data)


def optimize_epochs(
    embedding: Any,
    edges: Any,
    optimizer: Any = None,
    targets: Any = None,
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
) -> Any:
    """Runs epochs first .. first + count - 1 of `total` (default: first + count) over sorted edges. Changes the
    embedding in place and returns it. The rate falls from learning_rate to 0 over `total`. targets [n,
    negative_sample_rate] are the samples of every epoch (only with rate_per='vertex'); None: drawn from (seed, epoch).
    optimizer None: a new Optimizer.

    Examples
    --------
    >>> import numpy as np, napier
    >>> embedding, edges = np.array([[0, 0], [5, 0]], np.float32), ([0, 1], [1, 0], [1, 1])
    >>> _ = napier.umap.optimize_epochs(embedding, edges, count=20)
    >>> bool(abs(embedding[1, 0] - embedding[0, 0]) < 5)
    True
    """
    embedding = _in_place(embedding, "embedding")
    optimizer = Optimizer(*embedding.shape) if optimizer is None else optimizer
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer: expected a napier.umap.Optimizer, got {type(optimizer).__name__}")
    epochs = {
        "first": first,
        "count": count,
        "total": first + count if total is None else total,
        "seed": seed,
        "edge_use": _word(edge_use, "edge_use", _EDGE_USES),
        "rate_per": _word(rate_per, "rate_per", _RATES),
        "move_targets": int(move_targets),
    }
    _napier._umap_optimize_epochs(
        _bits(edges), _targets(targets), optimizer._capsule, embedding, _params(**params), epochs | _common(threads, progress)
    )
    return embedding


# ---- Neighbours -----------------------------------------------------------------------------------------------------


def metric_name(metric: str) -> str:
    """The name of a metric, given its number; None if there is none.

    Examples
    --------
    >>> import napier
    >>> napier.umap.metric_name(4)
    'cosine'
    """
    return _napier._umap_metric_name(metric, {})


def metric_from_name(name: str) -> Any:
    """The number of a metric, given its name; -1 if there is none.

    Examples
    --------
    >>> import napier
    >>> napier.umap.metric_from_name("cosine"), napier.umap.metric_from_name("cosinus")
    (4, -1)
    """
    return _napier._umap_metric_from_name(name, {})


def _metric(metric, metric_kwds, name="metric"):
    """(options, metric_values) of a metric and its keywords."""
    if not isinstance(metric, str):
        raise ValueError(f"{name}: {metric!r} is not a name; for distances of your own give name 'precomputed' and the matrix")
    number = metric_from_name(metric)
    if number < 0:
        raise ValueError(f"{name}: {metric!r} is not one of {', '.join(METRICS)}")
    word, keys = METRICS[number], plain_keywords(metric_kwds)
    for key in keys:
        if key not in _KEYWORDS.get(word, ()):
            raise ValueError(f"{name}_kwds: {word} takes no {key!r}")
    options = {"metric": number} | ({"p": keys["p"]} if "p" in keys else {})
    values = [keys[key] for key in ("V", "VI", "w") if key in keys]
    if word == "string" and keys:
        values = [(keys.get("max_distance", 20), keys.get("normalisation", 1))]
    return options, np.ascontiguousarray(values[0], dtype=np.float32).ravel() if values else None


def plain_name(metric):
    """The name of a metric without its aliases; a name that the library does not know is unchanged."""
    number = metric_from_name(metric)
    return metric if number < 0 else METRICS[number]


def plain_keywords(metric_kwds):
    return {_SPELLINGS.get(key, key): value for key, value in dict(metric_kwds or {}).items()}


def metric_disconnection(metric: str) -> float:
    """The distance from which on points are not neighbours, unless fit gets another. It is the distance of points that
    have nothing in common: 1 for jaccard and dice, 1 less its rounding for hellinger, 2 less their rounding for cosine
    and correlation, else infinity.

    Examples
    --------
    >>> import napier
    >>> napier.umap.metric_disconnection("jaccard"), napier.umap.metric_disconnection("euclidean")
    (1.0, inf)
    """
    return _napier._umap_metric_disconnection(_metric(metric, None)[0]["metric"], {})


def _check_variances(X, metric, metric_kwds):
    """Sparse data need the variances of their columns: a column with few values has a small one, so that these would decide."""
    if _is_sparse(X) and not metric_kwds and plain_name(metric) == "seuclidean":
        raise ValueError("metric_kwds: for sparse data seuclidean needs V, the variance of each column")


def _has_steps(low, high, spread, dtype):
    """Of which columns, from low to high, is the spread fewer than 4096 steps of this dtype, but not 0?"""
    largest = np.maximum(np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64)))
    return (spread > 0) & (spread < 4096.0 * np.spacing(largest.astype(dtype)).astype(np.float64))


def warn_of_integers(X, metric):
    """Warns of integers that differ in digits which float64 does not hold."""
    X = np.asarray(X) if isinstance(X, np.ndarray) or hasattr(X, "columns") else np.empty((0, 0))
    if callable(metric) or plain_name(metric) not in _MOVING or X.ndim != 2 or X.dtype.kind not in "iu" or not X.size:
        return
    low, high = X.min(axis=0), X.max(axis=0)
    steps = _has_steps(low, high, high.astype(np.uint64) - low.astype(np.uint64), np.float64)
    with np.errstate(invalid="ignore"):
        lost = [c for c in np.flatnonzero(steps) if (X[:, c].astype(np.float64).astype(X.dtype) != X[:, c]).any()]
    if lost:
        warnings.warn(
            f"X: column {lost[0]} has integers beyond 2**53 that differ in digits which float64 does not hold; subtract X.min(axis=0)",
            stacklevel=4,
        )


def _warn_of_stored(X, metric):
    """Warns of sparse rows, of which most columns have stored values that differ in digits which float32 does not hold."""
    if not _is_sparse(X) or plain_name(metric) not in _MOVING or np.asarray(X.data).dtype.itemsize < 8:
        return
    X = _csr(X, "X")
    values = np.asarray(X.data).astype(np.float64)
    low, high = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
    with np.errstate(invalid="ignore"):  # what is not finite is refused later
        np.minimum.at(low, X.indices, values)
        np.maximum.at(high, X.indices, values)
        some = np.isfinite(high - low) & (high > low)
    if 2 * _has_steps(low[some], high[some], high[some] - low[some], np.float32).sum() > some.sum():
        warnings.warn(
            "X: stored values differ in digits which float32 does not hold; use X.toarray(), of whose columns the "
            "middle is subtracted, or subtract what they have in common",
            stacklevel=4,
        )


def nearest_neighbors(
    X: Any,
    n_neighbors: int = 15,
    metric: str = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    *,
    method: str = "auto",
    random_state: int = 42,
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
) -> tuple[np.ndarray[Any, np.dtype[np.int32]], Floats]:
    """(indices int32, distances float32), both [n, n_neighbors]: the nearest rows of every row, nearest first. The
    first is the row itself. method: 'exact', 'nn_descent', or 'auto' for the faster one. metric_kwds: p (minkowski), V
    (seuclidean; sparse data need it), VI (mahalanobis).

    Examples
    --------
    >>> import napier
    >>> indices, distances = napier.umap.nearest_neighbors([[0.0], [1.0], [3.0]], 2)
    >>> indices.tolist(), distances.tolist()
    ([[0, 1], [1, 0], [2, 1]], [[0.0, 1.0], [0.0, 1.0], [0.0, 2.0]])
    """
    options, values = _metric(metric, metric_kwds)
    _check_variances(X, metric, metric_kwds)
    warn_of_integers(X, metric)
    _warn_of_stored(X, metric)
    samples = _samples(X)
    options |= {"n_neighbors": n_neighbors, "method": _word(method, "method", _METHODS), "seed": random_state}
    shape = (_rows(samples), _count(n_neighbors, "n_neighbors"))
    indices, distances = np.empty(shape, np.int32), np.empty(shape, np.float32)
    _napier._umap_nearest_neighbors(samples, values, indices, distances, options | _common(threads, progress))
    _warn_of_lost(_lost(samples, indices, distances, metric, metric_kwds), len(indices))
    return indices, distances


def nearest_neighbors_of(
    X: Any,
    queries: Any,
    n_neighbors: int = 15,
    metric: str = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    *,
    method: str = "auto",
    random_state: int = 42,
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
) -> tuple[np.ndarray[Any, np.dtype[np.int32]], Floats]:
    """The nearest rows of X for each row of `queries`: indices and distances, both [queries, n_neighbors].

    Examples
    --------
    >>> import napier
    >>> indices, distances = napier.umap.nearest_neighbors_of([[0.0], [1.0], [3.0]], [[2.5]], 2)
    >>> indices.tolist(), distances.tolist()
    ([[2, 1]], [[0.5, 1.5]])
    """
    options, values = _metric(metric, metric_kwds)
    samples, asked = _samples(X), _samples(queries, "queries")
    options |= {"n_neighbors": n_neighbors, "method": _word(method, "method", _METHODS), "seed": random_state}
    shape = (_rows(asked), _count(n_neighbors, "n_neighbors"))
    indices, distances = np.empty(shape, np.int32), np.empty(shape, np.float32)
    _napier._umap_nearest_neighbors_of(samples, asked, values, indices, distances, options | _common(threads, progress))
    return indices, distances


# ---- The fuzzy set --------------------------------------------------------------------------------------------------


def smooth_knn_dist(distances: Any, local_connectivity: float = 1.0) -> tuple[Floats, Floats]:
    """(sigmas, rhos), float32 [n]: each point's scale, and the distance of its neighbour number local_connectivity.

    Examples
    --------
    >>> import napier
    >>> sigmas, rhos = napier.umap.smooth_knn_dist([[0, 1, 2, 3]])
    >>> sigmas.round(3), rhos
    (array([2.078], dtype=float32), array([1.], dtype=float32))
    """
    distances = _array(distances, "distances", np.float32, 2)
    rhos, sigmas = np.empty((2, len(distances)), np.float32)
    _napier._umap_smooth_knn_dist(distances, local_connectivity, rhos, sigmas, {})
    return sigmas, rhos


def fuzzy_simplicial_set(indices: Any, distances: Any, local_connectivity: float = 1.0, set_op_mix_ratio: float = 1.0) -> Any:
    """The symmetrised graph of memberships, from neighbours as nearest_neighbors returns them. set_op_mix_ratio 1 is
    the union, 0 the intersection.

    Examples
    --------
    >>> import napier
    >>> indices, distances = napier.umap.nearest_neighbors([[0.0], [1.0], [3.0]], 2)
    >>> graph = napier.umap.fuzzy_simplicial_set(indices, distances)
    >>> graph.shape, float(graph.data.max())
    ((3, 3), 1.0)
    """
    return _graph(
        _napier._umap_fuzzy_simplicial_set(
            _array(indices, "indices", np.int32, 2), _array(distances, "distances", np.float32, 2), local_connectivity, set_op_mix_ratio, {}
        )
    )


def join_categories(graph: Any, categories: Any, target_weight: float = 0.5) -> Any:
    """The graph combined with categories, integers [n], negative if unknown. Edges between different categories get
    less weight.

    Examples
    --------
    >>> import napier
    >>> graph = napier.umap.graph_from_edges(([0, 0, 1, 2, 2, 3], [1, 2, 0, 0, 3, 2], [1, 1, 1, 1, 1, 1]), n=4)
    >>> joined = napier.umap.join_categories(graph, [0, 0, 1, 1])
    >>> bool(joined[0, 2] < joined[0, 1])
    True
    """
    categories = _array(categories, "categories", np.int32, 1)
    return _graph(_napier._umap_join_categories(*_vertices(graph), categories, target_weight, {}))


def join_numbers(graph: Any, numbers: Any, n_neighbors: int = 15, target_weight: float = 0.5) -> Any:
    """The graph combined with the fuzzy set of numbers [n].

    Examples
    --------
    >>> import napier
    >>> graph = napier.umap.graph_from_edges(([0, 0, 1, 2, 2, 3], [1, 2, 0, 0, 3, 2], [1, 1, 1, 1, 1, 1]), n=4)
    >>> joined = napier.umap.join_numbers(graph, [0.0, 0.1, 9.0, 9.1], n_neighbors=2)
    >>> bool(joined[0, 2] < joined[0, 1])
    True
    """
    numbers = _array(numbers, "numbers", np.float32, 1)
    return _graph(_napier._umap_join_numbers(*_vertices(graph), numbers, n_neighbors, target_weight, {}))


def join_distances(graph: Any, distances: Any, target_weight: float = 0.5) -> Any:
    """The graph combined with the distances of targets, one for each edge of the graph (graph.data): the greater the
    distance, the less the weight.

    Examples
    --------
    >>> import napier
    >>> graph = napier.umap.graph_from_edges(([0, 0, 1, 2, 2, 3], [1, 2, 0, 0, 3, 2], [1, 1, 1, 1, 1, 1]), n=4)
    >>> joined = napier.umap.join_distances(graph, [0, 5, 0, 5, 0, 0])
    >>> bool(joined[0, 2] < joined[0, 1])
    True
    """
    distances = _array(distances, "distances", np.float32, 1)
    return _graph(_napier._umap_join_distances(*_vertices(graph), distances, target_weight, {}))


def combine(left: Any, right: Any, operation: str = "union", weight: float = 0.5, n_neighbors: int = 0) -> Any:
    """The 'union', 'intersection' or 'difference' of two fuzzy sets of the same points. weight, 0 to 1, is that of the
    right one in an intersection. n_neighbors above 0: the weights of each point are raised to the power at which they
    sum to log2(n_neighbors), as a fuzzy set's do.

    Examples
    --------
    >>> import napier
    >>> left = napier.umap.graph_from_edges(([0, 1], [1, 0], [1, 1]), n=3)
    >>> right = napier.umap.graph_from_edges(([1, 2], [2, 1], [1, 1]), n=3)
    >>> len(napier.umap.combine(left, right, "union").data)
    4
    """
    return _graph(
        _napier._umap_combine(*_vertices(left), *_vertices(right), _word(operation, "operation", _OPERATIONS), weight, n_neighbors, {})
    )


# ---- Starts ---------------------------------------------------------------------------------------------------------


def spectral_layout(graph: Any, X: Any = None, n_components: int = 2, random_state: int = 42, *, threads: int = 0) -> Floats:
    """Eigenvectors of the graph's normalised Laplacian, float32 [n, n_components]. X is the data; it is used to place
    the connected components if there are many.

    Examples
    --------
    >>> import numpy as np, napier
    >>> indices, distances = napier.umap.nearest_neighbors(np.random.default_rng(0).normal(size=(100, 5)))
    >>> graph = napier.umap.fuzzy_simplicial_set(indices, distances)
    >>> napier.umap.spectral_layout(graph).shape
    (100, 2)
    """
    bits, n = _vertices(graph)
    samples = np.empty((0, 0), np.float32) if X is None else _samples(X)
    embedding = np.empty((n, _count(n_components, "n_components")), np.float32)
    _napier._umap_spectral_layout(bits, n, samples, embedding, {"seed": random_state, "threads": threads})
    return embedding


def pca_layout(X: Any, n_components: int = 2, random_state: int = 42, *, threads: int = 0) -> Floats:
    """The first principal components of X, float32 [n, n_components].

    Examples
    --------
    >>> import numpy as np, napier
    >>> napier.umap.pca_layout(np.random.default_rng(0).normal(size=(100, 5))).shape
    (100, 2)
    """
    samples = _samples(X)
    embedding = np.empty((_rows(samples), _count(n_components, "n_components")), np.float32)
    _napier._umap_pca_layout(samples, embedding, {"seed": random_state, "threads": threads})
    return embedding


def random_layout(n: int, n_components: int = 2, random_state: int = 42) -> Floats:
    """Uniform random numbers in [-10, 10), float32 [n, n_components].

    Examples
    --------
    >>> import napier
    >>> start = napier.umap.random_layout(100)
    >>> start.shape, bool(abs(start).max() <= 10)
    ((100, 2), True)
    """
    embedding = np.empty((_count(n, "n"), _count(n_components, "n_components")), np.float32)
    _napier._umap_random_layout(embedding, {"seed": random_state})
    return embedding


# ---- Layouts and models ---------------------------------------------------------------------------------------------


def optimize_layout(
    graph: Any,
    embedding: Any,
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
    knn: Any = None,
    maps_after: Iterable[int] = (),
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
) -> Any:
    """The layout of a symmetric graph, float32 [n, n_components], from the start `embedding`, which is not changed.
    densmap: densMAP's forces act too; they need knn, (indices, distances) of the data. maps_after: numbers of epochs;
    then the result is the list of the maps after these, and the last one.

    Examples
    --------
    >>> import numpy as np, napier
    >>> indices, distances = napier.umap.nearest_neighbors(np.random.default_rng(0).normal(size=(100, 5)))
    >>> graph = napier.umap.fuzzy_simplicial_set(indices, distances)
    >>> start = napier.umap.spectral_layout(graph)
    >>> napier.umap.optimize_layout(graph, start, n_epochs=50).shape
    (100, 2)
    """
    bits, n = _vertices(graph)
    embedding = _array(embedding, "embedding", np.float32, 2).copy()
    if densmap and knn is None:
        raise ValueError("densmap: needs knn, the neighbours and their distances")
    indices, distances = (None, None) if knn is None else (_array(knn[0], "knn", np.int32, 2), _array(knn[1], "knn", np.float32, 2))
    options = _without_none(n_epochs=n_epochs, a=a, b=b)
    options |= {
        "min_dist": min_dist,
        "spread": spread,
        "learning_rate": learning_rate,
        "seed": random_state,
        "repulsion_strength": repulsion_strength,
        "negative_sample_rate": negative_sample_rate,
        "densmap": int(bool(densmap)),
        "dens_lambda": dens_lambda,
        "dens_frac": dens_frac,
        "dens_var_shift": dens_var_shift,
    } | ({} if knn is None else {"n_neighbors": indices.shape[1]})
    kept = _Kept(embedding, maps_after, progress)
    _napier._umap_optimize_layout(bits, n, embedding, indices, distances, options | _common(threads, kept.watch))
    return embedding if not kept.wanted else [*kept.maps, embedding]


class _Kept:
    """Copies of the embedding after some epochs. The library calls `watch` after each, and changes it in place."""

    def __init__(self, embedding, maps_after, progress):
        self.wanted, self.progress = {int(n) for n in maps_after}, progress
        self.embedding, self.epochs, self.maps = embedding, 0, []
        self.watch = progress
        if self.wanted:
            self.watch = self._after_epoch
            self._keep()

    def _keep(self):
        if self.epochs in self.wanted:
            self.maps.append(self.embedding.copy())

    def _after_epoch(self, stage, done):
        self.epochs += 1
        self._keep()
        return self.progress is not None and self.progress(stage, done)


def disconnected(embedding: Any) -> int:
    """The number of NaN rows in an embedding: points that have no neighbour.

    Examples
    --------
    >>> import napier
    >>> napier.umap.disconnected([[0.0, 1.0], [float("nan"), float("nan")]])
    1
    """
    return _napier._umap_disconnected(_array(embedding, "embedding", np.float32, 2), {})


def _warn_of_disconnected(embedding, set_op_mix_ratio=1.0):
    count = disconnected(embedding)
    if count and set_op_mix_ratio == 0:
        warnings.warn(
            f"{count} of {len(embedding)} points have no mutual neighbour, and set_op_mix_ratio 0 keeps only edges "
            f"between points that are neighbours of each other: their rows of the map are NaN.",
            stacklevel=3,
        )
    elif count:
        share = "A few" if count <= 0.1 * len(embedding) else "A large number"
        warnings.warn(
            f"{share} of your vertices ({count} of {len(embedding)} points) have no neighbour nearer than "
            f"disconnection_distance: their rows of the map are NaN. A larger disconnection_distance "
            f"(numpy.inf: none) gives them a place.",
            stacklevel=3,
        )


def _warn_of_lost(lost, n):
    """Warns of rows that float32 makes equal to their neighbours."""
    if lost:
        warnings.warn(
            f"X: {lost} of {n} rows ({100 * lost / n:.3g} %) have half of their neighbours or more at distance 0, "
            f"though the rows differ: float32 does not hold the digits in which they do. Subtract what the rows "
            f"have in common, if the metric allows it, or leave out the outliers",
            stacklevel=4,
        )


def _lost(samples, indices, distances, metric, metric_kwds):
    """The number of these rows, as the library counts them in a fit."""
    k = indices.shape[1] - 1
    if isinstance(samples, tuple) or metric_kwds and "p" not in metric_kwds or plain_name(metric) not in _TELL_APART:
        return 0
    at_zero = (distances[:, 1:] == 0) & (indices[:, 1:] >= 0)
    rows = np.flatnonzero(2 * at_zero.sum(axis=1) >= max(k, 1))
    differ = [(samples[indices[i, 1:][at_zero[i]]] != samples[i]).any(axis=1).sum() for i in rows]
    return int(sum(2 * n >= k for n in differ))


class Model:
    """A fitted map, made by fit, model_load or model_from_bytes. Can be pickled.

    Examples
    --------
    >>> import numpy as np, napier
    >>> data = np.random.default_rng(0).normal(size=(100, 5))
    >>> model = napier.umap.fit(data, n_epochs=50)
    >>> model.embedding.shape, model.n_features, model.n_components
    ((100, 2), 5, 2)
    """

    __slots__ = ("_capsule",)

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    @property
    def embedding(self) -> Floats:
        """A copy of the map, float32 [n, n_components].

        Examples
        --------
        >>> import numpy as np, napier
        >>> model = napier.umap.fit(np.random.default_rng(0).normal(size=(100, 5)), n_epochs=50)
        >>> model.embedding.shape
        (100, 2)
        """
        points, components = _napier._umap_model_shape(self._capsule, {})[:2]
        return np.frombuffer(_napier._umap_model_embedding(self._capsule, {}), np.float32).reshape(points, components)

    @property
    def n_components(self) -> int:
        return _napier._umap_model_shape(self._capsule, {})[1]

    @property
    def n_features(self) -> int:
        """The number of columns that transform expects.

        Examples
        --------
        >>> import numpy as np, napier
        >>> model = napier.umap.fit(np.random.default_rng(0).normal(size=(100, 5)), n_epochs=50)
        >>> model.n_features
        5
        """
        return _napier._umap_model_shape(self._capsule, {})[2]

    @property
    def indistinct(self) -> int:
        """The number of rows of which fit found half of the neighbours or more at distance 0, though the rows differ:
        float32 does not hold the digits in which they do. 0 for a loaded model.

        Examples
        --------
        >>> import numpy as np, napier
        >>> napier.umap.fit(np.random.default_rng(0).normal(size=(100, 5)), n_epochs=50).indistinct
        0
        """
        return _napier._umap_model_shape(self._capsule, {})[3]

    @property
    def lost(self) -> int:
        """The old name of indistinct."""
        warnings.warn("Model.lost is now Model.indistinct", DeprecationWarning, stacklevel=2)
        return self.indistinct

    def transform(self, X: Any, *, threads: int = 0) -> Floats:
        """Positions of new rows on the map. Each depends only on its row and the model. A row without a neighbour is
        NaN, with a warning.

        Examples
        --------
        >>> import numpy as np, napier
        >>> data = np.random.default_rng(0).normal(size=(100, 5))
        >>> model = napier.umap.fit(data[:90], n_epochs=50)
        >>> model.transform(data[90:]).shape
        (10, 2)
        """
        embedding = self._transform(X, threads)
        _warn_of_disconnected(embedding)
        return embedding

    def _transform(self, X, threads):
        samples = _samples(X)
        embedding = np.empty((_rows(samples), self.n_components), np.float32)
        _napier._umap_transform(self._capsule, samples, embedding, {"threads": threads})
        return embedding

    def inverse_transform(self, points: Any, *, threads: int = 0) -> Floats:
        """Data, float32 [n, features], for points of the map [n, n_components].

        Examples
        --------
        >>> import numpy as np, napier
        >>> model = napier.umap.fit(np.random.default_rng(0).normal(size=(100, 5)), n_epochs=50)
        >>> model.inverse_transform([[0.0, 0.0]]).shape
        (1, 5)
        """
        points = _array(points, "points", np.float32, 2)
        samples = np.empty((len(points), self.n_features), np.float32)
        _napier._umap_inverse_transform(self._capsule, points, samples, {"threads": threads})
        return samples

    def save(self, path: str | PathLike[str]) -> None:
        """Saves the model to one file, with the same bytes on every machine.

        Examples
        --------
        >>> import numpy as np, napier
        >>> model = napier.umap.fit(np.random.default_rng(0).normal(size=(100, 5)), n_epochs=50)
        >>> model.save("points.map")
        """
        _napier._umap_model_save(self._capsule, path, {})

    def to_bytes(self) -> bytes:
        """The model as bytes: the contents of a saved file.

        Examples
        --------
        >>> import numpy as np, napier
        >>> model = napier.umap.fit(np.random.default_rng(0).normal(size=(100, 5)), n_epochs=50)
        >>> type(model.to_bytes())
        <class 'bytes'>
        """
        return _napier._umap_model_to_bytes(self._capsule, {})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Model:
        """Loads a model from a file; ValueError if it is damaged.

        Examples
        --------
        >>> import numpy as np, napier
        >>> model = napier.umap.fit(np.random.default_rng(0).normal(size=(100, 5)), n_epochs=50)
        >>> model.save("points.map")
        >>> napier.umap.Model.load("points.map").n_features
        5
        """
        return cls(_napier._umap_model_load(path, {}))

    @classmethod
    def from_bytes(cls, data: bytes) -> Model:
        """A model from its bytes; ValueError if they are invalid.

        Examples
        --------
        >>> import numpy as np, napier
        >>> model = napier.umap.fit(np.random.default_rng(0).normal(size=(100, 5)), n_epochs=50)
        >>> copy = napier.umap.Model.from_bytes(model.to_bytes())
        >>> bool((copy.embedding == model.embedding).all())
        True
        """
        return cls(_napier._umap_model_from_bytes(bytes(data), {}))

    def __reduce__(self):
        return Model.from_bytes, (self.to_bytes(),)


def fit(
    X: Any,
    *,
    n_neighbors: int = 15,
    metric: str = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    method: str = "auto",
    knn: Any = None,
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
    categories: Any = None,
    numbers: Any = None,
    target_n_neighbors: int = 0,
    target_weight: float = 0.5,
    densmap: bool = False,
    dens_lambda: float = 2.0,
    dens_frac: float = 0.3,
    dens_var_shift: float = 0.1,
    disconnection_distance: Optional[float] = None,
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
) -> Model:
    """Fits a Model of the rows of X. knn: (indices, distances) as nearest_neighbors returns them, to skip the search.
    init: 'spectral', 'pca', 'random' or an array [n, n_components]. categories (negative: unknown) or numbers: targets
    for supervision. disconnection_distance: points at this distance or farther are not neighbours (None:
    metric_disconnection). Points without any neighbour are NaN, with a warning.

    Examples
    --------
    >>> import numpy as np, napier
    >>> data = np.random.default_rng(0).normal(size=(100, 5))
    >>> model = napier.umap.fit(data, n_neighbors=10, min_dist=0.2, n_epochs=50)
    >>> model.embedding.shape
    (100, 2)
    """
    if disconnection_distance is not None and not disconnection_distance > 0:
        raise ValueError(f"disconnection_distance: {disconnection_distance!r} is not above 0")
    options, values = _metric(metric, metric_kwds)
    _check_variances(X, metric, metric_kwds)
    if knn is None:
        warn_of_integers(X, metric)
        _warn_of_stored(X, metric)
    samples = _samples(X)
    given = not isinstance(init, str)
    options |= {
        "n_neighbors": n_neighbors,
        "method": _word(method, "method", _METHODS),
        "n_components": n_components,
        "min_dist": min_dist,
        "spread": spread,
        "learning_rate": learning_rate,
        "set_op_mix_ratio": set_op_mix_ratio,
        "local_connectivity": local_connectivity,
        "repulsion_strength": repulsion_strength,
        "negative_sample_rate": negative_sample_rate,
        "init": 3 if given else _word(init, "init", _INITS),
        "seed": random_state,
        "transform_seed": transform_seed,
        "target_n_neighbors": target_n_neighbors,
        "target_weight": target_weight,
        "densmap": int(bool(densmap)),
        "dens_lambda": dens_lambda,
        "dens_frac": dens_frac,
        "dens_var_shift": dens_var_shift,
    }
    options |= _without_none(n_epochs=n_epochs, a=a, b=b, disconnection_distance=disconnection_distance)
    options |= _common(threads, progress)
    indices, distances = (None, None) if knn is None else (_array(knn[0], "knn", np.int32, 2), _array(knn[1], "knn", np.float32, 2))
    capsule = _napier._umap_fit(
        samples,
        values,
        indices,
        distances,
        _array(init, "init", np.float32, 2) if given else None,
        None if categories is None else _array(categories, "categories", np.int32, 1),
        None if numbers is None else _array(numbers, "numbers", np.float32, 1),
        options,
    )
    model = Model(capsule)
    _warn_of_lost(model.indistinct, len(model.embedding))
    _warn_of_disconnected(model.embedding, set_op_mix_ratio)
    return model


def model_create(
    X: Any,
    embedding: Any,
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
) -> Model:
    """A Model of the rows of X and their map, made elsewhere: embedding, float32 [n, n_components]. The other arguments,
    as in fit, are those that transform needs.

    Examples
    --------
    >>> import numpy as np, napier
    >>> data = np.random.default_rng(0).normal(size=(100, 5))
    >>> model = napier.umap.model_create(data, data[:, :2], n_neighbors=10)  # any map: here two of the columns
    >>> model.transform(data[:3] + 0.01).shape
    (3, 2)
    """
    options, values = _metric(metric, metric_kwds)
    embedding = _array(embedding, "embedding", np.float32, 2)
    options |= {
        "n_neighbors": n_neighbors,
        "method": _word(method, "method", _METHODS),
        "n_components": embedding.shape[1],
        "min_dist": min_dist,
        "spread": spread,
        "learning_rate": learning_rate,
        "local_connectivity": local_connectivity,
        "repulsion_strength": repulsion_strength,
        "negative_sample_rate": negative_sample_rate,
        "transform_seed": transform_seed,
    }
    options |= _without_none(a=a, b=b, disconnection_distance=disconnection_distance) | _common(threads, None)
    return Model(_napier._umap_model_of(_samples(X), values, embedding, options))


def transform(model: Any, X: Any, *, threads: int = 0) -> Any:
    return model.transform(X, threads=threads)


def inverse_transform(model: Any, points: Any, *, threads: int = 0) -> Any:
    return model.inverse_transform(points, threads=threads)


def model_embedding(model: Any) -> Floats:
    return model.embedding


def model_features(model: Any) -> int:
    return model.n_features


def model_indistinct(model: Any) -> int:
    return model.indistinct


def model_save(model: Any, path: str | PathLike[str]) -> None:
    model.save(path)


def model_load(path: str | PathLike[str]) -> Model:
    return Model.load(path)


def model_to_bytes(model: Any) -> bytes:
    return model.to_bytes()


def model_from_bytes(data: bytes) -> Model:
    return Model.from_bytes(data)


for _name in ("transform", "inverse_transform", "to_bytes", "save", "from_bytes", "load"):
    (globals().get(_name) or globals()["model_" + _name]).__doc__ = getattr(Model, _name).__doc__
model_embedding.__doc__ = Model.embedding.__doc__
model_features.__doc__ = Model.n_features.__doc__
model_indistinct.__doc__ = Model.indistinct.__doc__
optimizer_to_bytes.__doc__ = Optimizer.to_bytes.__doc__
optimizer_from_bytes.__doc__ = Optimizer.from_bytes.__doc__
del _name


# ---- Quality --------------------------------------------------------------------------------------------------------


def quality_of(
    X: Any,
    embedding: Any,
    labels: Any = None,
    n_neighbors: int = 15,
    metric: str = "euclidean",
    metric_kwds: Optional[dict[str, Any]] = None,
    *,
    rows: int = 0,
    threads: int = 0,
    progress: Optional[Callable[..., Any]] = None,
) -> Quality:
    """How well a map preserves the neighbours of the data, as a Quality. labels: integers [n], for the vote. rows: the
    number of points to evaluate; 0: all, at a cost that grows with n^2.

    Examples
    --------
    >>> import numpy as np, napier
    >>> data = np.random.default_rng(0).normal(size=(100, 2))
    >>> napier.umap.quality_of(data, data).trustworthiness  # a map that is the data
    1.0
    """
    options, values = _metric(metric, metric_kwds)
    options |= {"n_neighbors": n_neighbors} | _common(threads, progress)
    labels = None if labels is None else _array(labels, "labels", np.int32, 1)
    return Quality(*_napier._umap_quality_of(_samples(X), values, _array(embedding, "embedding", np.float32, 2), labels, rows, options))
