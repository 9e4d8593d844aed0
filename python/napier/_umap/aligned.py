"""napier.umap.AlignedUMAP: maps of several data sets whose points are related, near one another where the data are."""

from __future__ import annotations

import numbers
from typing import Any, Callable, Optional, Self, Sequence

import numpy as np

from . import stages
from .adam import Adam
from .estimator import UMAP, BaseEstimator, _seed, _threads

_EPOCHS = 200  # umap-learn's default
_FADE = 0.36787944117144233  # exp(-1): for each data set that lies between


_EACH = (
    "n_neighbors",
    "min_dist",
    "n_epochs",
    "learning_rate",
    "spread",
    "repulsion_strength",
    "negative_sample_rate",
    "local_connectivity",
    "set_op_mix_ratio",
)
_COMMON = (
    "n_components",
    "metric",
    "metric_kwds",
    "random_state",
    "target_n_neighbors",
    "target_metric",
    "target_metric_kwds",
    "target_weight",
    "transform_seed",
    "force_approximation_algorithm",
    "verbose",
    "a",
    "b",
    "n_jobs",
)


def _nth(value, n, name):
    """The value of a parameter for data set n: a list, tuple or array has one for each."""
    if not isinstance(value, (list, tuple, np.ndarray)):
        return value
    if len(value) <= n:
        raise ValueError(f"{name}: {len(value)} values, but there is a data set number {n + 1}")
    return value[n]


def _relation(mapping, rows, columns, name):
    """A dict of related points as a sparse matrix of 0 and 1, [rows, columns]."""
    from scipy.sparse import csr_matrix

    if not isinstance(mapping, dict):
        raise ValueError(f"{name}: expected a dict from points of one data set to points of the next, got {type(mapping).__name__}")
    pairs = np.array(sorted(mapping.items())).reshape(-1, 2)
    if len(pairs) and pairs.dtype.kind not in "iu":
        raise ValueError(f"{name}: points are numbers of rows, got {next(iter(mapping.items()))}")
    pairs = pairs.astype(np.int64)
    if len(pairs) and (pairs.min() < 0 or pairs[:, 0].max() >= rows or pairs[:, 1].max() >= columns):
        raise ValueError(f"{name}: relates points outside of 0 to {rows - 1} and 0 to {columns - 1}")
    return csr_matrix((np.ones(len(pairs), np.int64), (pairs[:, 0], pairs[:, 1])), shape=(rows, columns))


def _similarity(graph, other, relation):
    """For each pair of related points, the share of neighbours that they have in common, among those related."""
    a, b = ((g > 0).astype(np.int64) for g in (graph, other))
    mine, theirs = a @ relation, relation @ b
    reached = np.asarray(relation.sum(axis=0)).ravel() > 0
    theirs = theirs.multiply(reached[None, :]).tocsr()
    common = np.asarray(mine.multiply(theirs).sum(axis=1)).ravel()
    either = np.asarray(mine.sum(axis=1)).ravel() + np.asarray(theirs.sum(axis=1)).ravel() - common
    return np.divide(common, either, out=np.ones(len(common)), where=either > 0)


class AlignedUMAP(BaseEstimator):
    """Maps several data sets, like umap-learn's AlignedUMAP. Related points are drawn together.

    The other parameters are those of napier.UMAP; n_neighbors, min_dist, n_epochs, learning_rate, spread, repulsion_strength,
    negative_sample_rate, local_connectivity and set_op_mix_ratio may be lists with a value for each data set. init is
    'spectral' or 'random'. unique is not supported: relations are between rows.

    Parameters
    ----------
    alignment_regularisation : how strongly related points are drawn together.
    alignment_window_size : the number of data sets before and after one that its points are related to.

    Attributes
    ----------
    embeddings_ : a list of maps, float32 [n, n_components].
    mappers_ : a list of fitted napier.UMAP, which hold the graphs.

    Examples
    --------
    >>> import numpy as np, napier
    >>> days = np.random.default_rng(0).normal(size=(3, 60, 5))  # the same 60 points on three days
    >>> same = {i: i for i in range(60)}
    >>> reducer = napier.umap.AlignedUMAP(n_neighbors=10, n_epochs=30)
    >>> maps = reducer.fit_transform(list(days[:2]), relations=[same])
    >>> _ = reducer.update(days[2], relations=same)
    >>> len(maps), len(reducer.embeddings_), reducer.embeddings_[2].shape
    (2, 3, (60, 2))
    """

    embeddings_: list[np.ndarray[Any, np.dtype[np.float32]]]
    mappers_: list[UMAP]
    dict_relations_: list[dict[int, int]]
    window_size_: int

    __module__ = "napier.umap"

    def __init__(
        self,
        n_neighbors: int | Sequence[int] = 15,
        n_components: int = 2,
        metric: str | Callable[..., Any] = "euclidean",
        metric_kwds: Optional[dict[str, Any]] = None,
        n_epochs: Optional[int | Sequence[int]] = None,
        learning_rate: float | Sequence[float] = 1.0,
        init: str = "spectral",
        alignment_regularisation: float = 1.0e-2,
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
        random_state: Any = None,
        angular_rp_forest: bool = False,
        target_n_neighbors: int = -1,
        target_metric: str | Callable[..., Any] = "categorical",
        target_metric_kwds: Any = None,
        target_weight: float = 0.5,
        transform_seed: int = 42,
        force_approximation_algorithm: bool = False,
        verbose: bool = False,
        unique: bool | Sequence[bool] = False,
        n_jobs: int = -1,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.metric = metric
        self.metric_kwds = metric_kwds
        self.n_epochs = n_epochs
        self.learning_rate = learning_rate
        self.init = init
        self.alignment_regularisation = alignment_regularisation
        self.alignment_window_size = alignment_window_size
        self.min_dist = min_dist
        self.spread = spread
        self.low_memory = low_memory
        self.set_op_mix_ratio = set_op_mix_ratio
        self.local_connectivity = local_connectivity
        self.repulsion_strength = repulsion_strength
        self.negative_sample_rate = negative_sample_rate
        self.transform_queue_size = transform_queue_size
        self.a = a
        self.b = b
        self.random_state = random_state
        self.angular_rp_forest = angular_rp_forest
        self.target_n_neighbors = target_n_neighbors
        self.target_metric = target_metric
        self.target_metric_kwds = target_metric_kwds
        self.target_weight = target_weight
        self.transform_seed = transform_seed
        self.force_approximation_algorithm = force_approximation_algorithm
        self.verbose = verbose
        self.unique = unique
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Sequence[Any],
        y: Optional[Sequence[Any]] = None,
        relations: Optional[Sequence[dict[int, int]]] = None,
        window_size: Optional[int] = None,
    ) -> Self:
        """Fits maps of the data sets X, a list. relations: a list of dicts, one fewer; each maps points (numbers of
        rows) of a data set to points of the next. y: a list of targets, one for each data set, or None.

        Examples
        --------
        >>> import numpy as np, napier
        >>> days = np.random.default_rng(0).normal(size=(2, 60, 5))  # the same 60 points on two days
        >>> same = {i: i for i in range(60)}
        >>> reducer = napier.umap.AlignedUMAP(n_neighbors=10, n_epochs=30).fit(list(days), relations=[same])
        >>> [map.shape for map in reducer.embeddings_]
        [(60, 2), (60, 2)]
        """
        if relations is None or len(relations) != len(X) - 1:
            raise ValueError(
                f"relations: expected {len(X) - 1} dicts between {len(X)} data sets, got {None if relations is None else len(relations)}"
            )
        if isinstance(self.n_components, (list, tuple, np.ndarray)):
            raise ValueError(f"n_components: one number for all data sets, not {self.n_components!r}")
        if not isinstance(self.init, str) or self.init not in ("spectral", "random"):
            raise ValueError(f"init: {self.init!r} is not 'spectral' or 'random'")
        if np.any(self.unique):
            raise ValueError("unique: relations are between rows, so equal rows stay apart")
        if y is not None and len(y) != len(X):
            raise ValueError(f"y: expected targets of {len(X)} data sets, got {len(y)}")
        window = self.alignment_window_size if window_size is None else window_size
        if not isinstance(window, numbers.Integral) or window < 0:
            raise ValueError(f"alignment_window_size: {window!r} is not a number of data sets")
        self.window_size_ = window
        self.mappers_, self.embeddings_, self.dict_relations_ = [], [], []
        self._relations: list[Any] = []
        for n, data in enumerate(X):
            self._add(data, None if y is None else y[n], relations[n - 1] if n else None)
        starts: list = []
        for n in range(len(X)):
            starts.append(self._start(n, starts))
        self.embeddings_ = self._lay_out(starts, range(len(X)))
        return self

    def fit_transform(
        self,
        X: Sequence[Any],
        y: Optional[Sequence[Any]] = None,
        relations: Optional[Sequence[dict[int, int]]] = None,
        window_size: Optional[int] = None,
    ) -> list[Any]:
        """Fits and returns the list of maps."""
        return self.fit(X, y, relations, window_size).embeddings_

    def update(self, X: Any, y: Any = None, relations: Optional[dict[int, int]] = None, **parameters: Any) -> Self:
        """Adds a data set after the last. relations: a dict from points of the last to its points. Earlier maps stay.
        parameters: values for this data set, such as n_neighbors."""
        if "mappers_" not in self.__dict__:
            raise ValueError("update: call 'fit' first")
        if relations is None:
            raise ValueError("relations: expected a dict from points of the last data set to points of the new one")
        n = len(self.mappers_)
        for name in parameters:
            if name not in _EACH:
                raise ValueError(f"{name} is not a parameter that data sets have each for themselves: {', '.join(_EACH)}")
        for name, value in parameters.items():
            now = getattr(self, name)
            before = list(now) if isinstance(now, (list, tuple, np.ndarray)) else [now] * n
            setattr(self, name, before[:n] + [value])
        self._add(X, y, relations)
        self.embeddings_ = self._lay_out(self.embeddings_ + [self._start(n, self.embeddings_)], [n])
        return self

    # ---- Data sets

    def _add(self, data, y, relations):
        n = len(self.mappers_)
        given = {name: _nth(getattr(self, name), n, name) for name in _EACH}
        given |= {name: getattr(self, name) for name in _COMMON}
        mapper = UMAP(transform_mode="graph", **given).fit(data, y)
        if relations is not None:
            rows, columns = self.mappers_[-1].graph_.shape[0], mapper.graph_.shape[0]
            self._relations.append(_relation(relations, rows, columns, f"relations[{n - 1}]"))
            self.dict_relations_.append(relations)
        self.mappers_.append(mapper)

    def _related(self, n, m):
        """The relation of data set n to data set m."""
        first, last = min(n, m), max(n, m)
        whole = self._relations[first]
        for k in range(first + 1, last):
            whole = whole @ self._relations[k]
        return whole if n < m else whole.T.tocsr()

    def _start(self, n, starts):
        """Places of the points of data set n: those of the related points of the one before, or the mean of those of
        their neighbours."""
        graph, seed = self.mappers_[n].graph_, _seed(self.random_state, "random_state")
        threads = _threads(self.n_jobs)
        own = (
            stages.spectral_layout(graph, None, self.n_components, seed, threads=threads)
            if self.init == "spectral"
            else stages.random_layout(graph.shape[0], self.n_components, seed)
        )
        if n == 0:
            return own
        relation = self._related(n, n - 1)
        pairs = np.repeat(np.arange(relation.shape[0]), np.diff(relation.indptr))
        before = np.nan_to_num(starts[n - 1])
        placed = np.zeros(len(own), bool)
        placed[pairs] = True
        own[pairs] = before[relation.indices]
        near = graph.multiply(placed[None, :].astype(np.float32)).tocsr()
        near.eliminate_zeros()
        for v in np.flatnonzero(~placed):
            edges = slice(near.indptr[v], near.indptr[v + 1])
            if near.indptr[v] < near.indptr[v + 1]:
                weights = near.data[edges, None]
                own[v] = (weights * own[near.indices[edges]]).sum(0) / weights.sum()
        return own

    # ---- The layout

    def _lay_out(self, starts, moving):
        """Maps of all data sets; those of `moving` move. Each epoch moves every point by Adam."""
        moving = list(moving)
        maps = [np.nan_to_num(np.array(start, np.float32)) for start in starts]
        slices = {n: self._slice(n) for n in moving}
        epochs = {n: _EPOCHS if slices[n]["n_epochs"] is None else slices[n]["n_epochs"] for n in moving}
        for epoch in range(max(epochs.values())):
            moves = {n: self._step(n, maps, slices[n], epoch, epochs[n]) for n in moving if epoch < epochs[n]}
            for n, move in moves.items():
                maps[n] = maps[n] + move
        for n in moving:
            maps[n][np.diff(self.mappers_[n].graph_.indptr) == 0] = np.nan
        return [maps[n] if n in moving else starts[n] for n in range(len(maps))]

    def _slice(self, n):
        """What the epochs of a data set need."""
        mapper = self.mappers_[n]
        graph = mapper.graph_
        size = (graph.shape[0], self.n_components)
        window = [m for m in range(n - self.window_size_, n + self.window_size_ + 1) if m != n and 0 <= m < len(self.mappers_)]
        partners = []
        for m in window:
            relation = self._related(n, m)
            pairs = np.repeat(np.arange(relation.shape[0]), np.diff(relation.indptr))
            near = _similarity(graph, self.mappers_[m].graph_, relation)[pairs]
            share = 4 * self.alignment_regularisation * _FADE ** (abs(n - m) - 1)  # both ends of both listings of an edge
            partners.append((m, pairs, relation.indices, (share * near).astype(np.float32)[:, None]))
        degree = np.asarray(graph.sum(axis=1), np.float32).reshape(-1, 1)
        draws = max(1, round(float(degree.mean())))  # each stands for one edge, or for its share of the degree
        return {
            "edges": stages.edges(graph),
            "degree": degree,
            "share": degree / np.float32(draws),
            "partners": partners,
            "adam": Adam(size, np.float32),
            "n_epochs": mapper.n_epochs,
            "rate": mapper.learning_rate,
            "params": {"a": mapper._a, "b": mapper._b, "repulsion_strength": mapper.repulsion_strength},
            "samples": draws * int(mapper.negative_sample_rate),
            "seed": _seed(self.random_state, "random_state"),
        }

    @staticmethod
    def _step(n, maps, s, epoch, epochs):
        """The step of each point of data set n in an epoch."""
        y = maps[n]
        drawn = stages.negative_targets(len(y), s["samples"], epoch, (s["seed"] + n) % 2**64)
        force = 2 * stages.gradients(y, s["edges"], False, **s["params"])  # a listed edge would move both its ends
        force += s["share"] * stages.negative_gradients(y, drawn, **s["params"])
        for m, pairs, partner, share in s["partners"]:
            pull = np.clip(share * (maps[m][partner] - y[pairs]), -4, 4) * s["degree"][pairs]
            np.add.at(force, pairs, pull)  # a point may be related to several
        return s["adam"].step(force, np.float32(s["rate"] * (1 - epoch / epochs)), epoch).astype(np.float32)
