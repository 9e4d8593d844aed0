"""napier.UMAP: an estimator that follows scikit-learn's contract and has umap-learn's parameters. It is scikit-learn's
BaseEstimator if that is installed, and works without it."""

from __future__ import annotations

import hashlib
import numbers
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable, Optional, Self, Sequence

import numpy as np

from . import densities, gradients, inverse, rows as row_forms, stages, surfaces, targets
from .functions import as_distances, distance_of

if TYPE_CHECKING:  # scikit-learn has no types
    from .base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, NotFittedError, TransformerMixin, validate_data
else:
    try:
        from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import validate_data
    except ImportError:  # not installed, or older than 1.6: our own version of the parts used
        from .base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, NotFittedError, TransformerMixin, validate_data

_INITS = {"spectral": "spectral", "tswspectral": "spectral", "pca": "pca", "random": "random"}
_GRAPH_NEIGHBORS = 15  # of a combined graph, as in umap-learn
_SPARSE_ROWS = 256  # of an inverse of sparse data that are dense at a time


# ---- Parameters -----------------------------------------------------------------------------------------------------


def _seed(value, name):
    """A seed: 42 for None, a number itself, or a draw of a generator."""
    if value is None:
        return 42
    if isinstance(value, numbers.Integral):
        if not 0 <= int(value) < 2**64:
            raise ValueError(f"{name}: {value} is not 0 to 2**64 - 1")
        return int(value)
    if hasattr(value, "randint"):
        return int(value.randint(2**31 - 1))
    if hasattr(value, "integers"):
        return int(value.integers(2**63))
    raise ValueError(f"{name}: expected None, an integer or a random generator, got {value!r}")


def _check_count(name, value, least):
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise ValueError(f"{name}: expected an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: {value} is less than {least}")


def _threads(n_jobs):
    """The number of threads; 0 is all."""
    if n_jobs is None or n_jobs == -1:
        return 0
    if not isinstance(n_jobs, numbers.Integral) or n_jobs < 1:
        raise ValueError(f"n_jobs: {n_jobs!r} is not a number of threads, or -1 for all")
    return min(int(n_jobs), 1024)


class _Progress:
    """Shows a bar for each stage with tqdm, or a line if tqdm is not installed."""

    def __init__(self, tqdm_kwds):
        self.stage, self.bar, self.options = None, None, dict(tqdm_kwds or {})

    def __call__(self, stage, done):
        if stage != self.stage:
            self.close()
            self.stage = stage
            try:
                from tqdm.auto import tqdm
            except ImportError:
                print(f"UMAP: {stage}", file=sys.stderr, flush=True)
            else:
                form = "{l_bar}{bar}| [{elapsed}<{remaining}]"
                self.bar = tqdm(**({"total": 1.0, "desc": f"UMAP: {stage}", "bar_format": form} | self.options))
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
        return False

    def close(self):
        if self.bar is not None:
            self.bar.close()
        self.stage, self.bar = None, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- Rows that the map knows ----------------------------------------------------------------------------------------


def _row_keys(X):
    """A key of 16 bytes for each row: a hash of the columns and values that are not 0, as float32, and of what float32
    leaves out of them. So a sparse row is equal to a dense one, and -0.0 to 0.0."""

    def key(*parts):
        made = hashlib.blake2b(digest_size=16)
        for part in parts:
            made.update(part)
        return made.digest()

    sparse = stages._is_sparse(X)
    X = stages._csr(X, "X") if sparse else np.asarray(X)
    values = np.asarray(X.data) if sparse else X
    high = values.astype(np.float32)
    rest: Any = (values - high).astype(np.float32) if values.dtype.itemsize > 4 else None
    if sparse:
        cuts: Any = [slice(a, b) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
        columns = np.asarray(X.indices, np.int32)
    else:
        cuts, columns = range(len(X)), None
        every = np.arange(X.shape[1], dtype=np.int32)
    keys = []
    for cut in cuts:
        own, left = every if columns is None else columns[cut], rest is not None and rest[cut].any()
        kept = (high[cut] != 0) | (rest[cut] != 0) if left else high[cut] != 0
        keys.append(key(own[kept], high[cut][kept], *([rest[cut][kept]] if left else [])))
    return keys


def _known_places(X):
    """The index of each row of X by its key. Equal rows have the first one's index."""
    places: dict = {}
    for i, key in enumerate(_row_keys(X)):
        places.setdefault(key, i)
    return places


def _fill_in(embedding, graph):
    """Gives points without a place, which now have neighbours, the mean of those of their neighbours."""
    lost = np.isnan(embedding).any(axis=1)
    for v in np.flatnonzero(lost & (np.diff(graph.indptr) > 0)):
        edges = slice(graph.indptr[v], graph.indptr[v + 1])
        near = ~lost[graph.indices[edges]]
        weights = graph.data[edges][near, None]
        if near.any():
            embedding[v] = (weights * embedding[graph.indices[edges][near]]).sum(axis=0) / weights.sum()
    return embedding


def _with_themselves(indices, distances, rows):
    """Neighbours with the point itself, at distance 0, before those of the rows that leave it out. They have a column more if
    all rows do, as those of scikit-learn's kneighbors(); else the farthest neighbour of these rows goes."""
    points = np.flatnonzero(rows)
    first = np.column_stack([points, indices[points]]), np.column_stack([np.zeros(len(points)), distances[points]])
    if len(points) == len(indices):
        return first
    made = indices.copy(), distances.copy()
    for whole, part in zip(made, first, strict=True):
        whole[points] = part[:, :-1]
    return made


def _dense(X):
    return X.toarray() if stages._is_sparse(X) else X


# ---- The estimator --------------------------------------------------------------------------------------------------


class UMAP(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Maps data to few dimensions, like umap-learn's UMAP. docs/moving-from-umap-learn.md lists the differences.

    Parameters
    ----------
    n_neighbors : 2 or more. Few neighbours show local structure, many show global structure.
    n_components : 1 to 256, the dimensions of the map.
    metric : a name (napier.umap.METRICS), 'precomputed' for a matrix of distances, or a function of two rows, which is
        called once for every pair, as distances are symmetric. It returns the distance, or a tuple that begins with it. 'string': X is a list of strings.
        'bit_hamming', 'bit_jaccard': X are bytes of 8 bits each.
    metric_kwds : p of minkowski, p and w (weights) of wminkowski, V (variances) of seuclidean, which sparse data need, VI
        (inverse covariance) of mahalanobis, max_distance and normalisation of string.
    n_epochs : None is 500 for up to 10,000 points, else 200. 0 is the start. A list: the map after the largest of these,
        and in embedding_list_ the maps after each.
    learning_rate, set_op_mix_ratio, local_connectivity, repulsion_strength, negative_sample_rate : as in umap-learn.
    init : 'spectral', 'pca', 'random', or an array [n, n_components] that is used unchanged.
    min_dist, spread, a, b : the curve. If a and b are given, both together, min_dist and spread are ignored.
    n_jobs : the number of threads; -1 is all. Results do not depend on it.
    random_state : None counts as 42: the same data always give the same map. An integer or a generator: another map.
    target_metric : of y: 'categorical' (negative, NaN, None or pandas' NA: unknown), 'euclidean' for numbers (NaN, None or
        NA: unknown), 'ordinal', 'count', 'string', 'hierarchical_categorical' (target_metric_kwds: cat_hierarchy), or any metric for rows.
    target_n_neighbors : for y that has neighbours of its own; -1 is n_neighbors.
    target_weight : 0: the data decides, 1: y decides.
    transform_seed : the seed of transform.
    force_approximation_algorithm : use NN-descent for any size.
    unique : map equal rows only once.
    densmap, dens_lambda, dens_frac, dens_var_shift : densMAP.
    disconnection_distance : points at this distance or farther are not neighbours. None is 1 for jaccard, dice and
        hellinger, 2 for cosine and correlation, else infinity. A point without a neighbour is NaN on the map.
    precomputed_knn : (indices, distances), as napier.umap.nearest_neighbors returns them, or without the points themselves.
    verbose : show progress, with tqdm if it is installed. tqdm_kwds : options of its bars.
    low_memory, angular_rp_forest, transform_queue_size : accepted, without effect.
    transform_mode : 'embedding', or 'graph': fit_transform and transform return memberships, and there is no map.
    output_dens : with densmap: fit_transform returns (embedding, rad_orig, rad_emb), the local radii of data and map.
    output_metric : the distance on the map: 'euclidean', 'haversine' (a sphere: polar angle, azimuth), 'hyperboloid',
        any of 'manhattan', 'chebyshev', 'minkowski', 'wminkowski', 'seuclidean', 'mahalanobis', 'canberra',
        'braycurtis', 'cosine', 'correlation', 'hellinger', 'softmax_hellinger' and 'symmetric_kl', with their keywords
        in output_metric_kwds; 'spherical_gaussian_energy', 'diagonal_gaussian_energy' or 'gaussian_energy' for maps of
        Gaussians (centre, then variances, then the angle: 3, 4 or 5 components); or a function of two rows that returns
        the distance and its gradient by the first row.

    Attributes
    ----------
    embedding_ : the map, float32 [n, n_components].
    embedding_list_ : where n_epochs is a list: the maps after so many epochs, ascending, and embedding_.
    graph_ : the fuzzy set, scipy.sparse.csr_matrix [n, n]; computed on first access.
    rad_orig_, rad_emb_ : with output_dens: the logarithms of the local radii.
    model_ : napier.umap.Model, which can be saved, and loaded by any program that uses the library.
    n_features_in_, feature_names_in_ : as in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from napier import UMAP
    >>> data = np.random.default_rng(0).normal(size=(100, 5))
    >>> UMAP(n_neighbors=10, min_dist=0.2).fit_transform(data).shape
    (100, 2)
    """

    # After fit. embedding_list_: where n_epochs is a list; rad_*: with output_dens; no embedding_ with transform_mode="graph".
    embedding_: np.ndarray[Any, np.dtype[np.float32]]
    embedding_list_: list[np.ndarray[Any, np.dtype[np.float32]]]
    rad_orig_: np.ndarray[Any, np.dtype[np.float32]]
    rad_emb_: np.ndarray[Any, np.dtype[np.float32]]
    model_: stages.Model
    n_features_in_: int
    feature_names_in_: np.ndarray[Any, np.dtype[np.object_]]

    __module__ = "napier"  # what pickles and help show
    _own_layout = False  # of a class whose _lay_out is not the library's

    def __init__(
        self,
        n_neighbors: int = 15,
        n_components: int = 2,
        metric: str | Callable[..., Any] = "euclidean",
        metric_kwds: Optional[dict[str, Any]] = None,
        output_metric: str | Callable[..., Any] = "euclidean",
        output_metric_kwds: Any = None,
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
        random_state: Any = None,
        angular_rp_forest: bool = False,
        target_n_neighbors: int = -1,
        target_metric: str | Callable[..., Any] = "categorical",
        target_metric_kwds: Any = None,
        target_weight: float = 0.5,
        transform_seed: int = 42,
        transform_mode: str = "embedding",
        force_approximation_algorithm: bool = False,
        verbose: bool = False,
        tqdm_kwds: Any = None,
        unique: bool = False,
        densmap: bool = False,
        dens_lambda: float = 2.0,
        dens_frac: float = 0.3,
        dens_var_shift: float = 0.1,
        output_dens: bool = False,
        disconnection_distance: Any = None,
        precomputed_knn: Any = (None, None, None),
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.metric = metric
        self.metric_kwds = metric_kwds
        self.output_metric = output_metric
        self.output_metric_kwds = output_metric_kwds
        self.n_epochs = n_epochs
        self.learning_rate = learning_rate
        self.init = init
        self.min_dist = min_dist
        self.spread = spread
        self.low_memory = low_memory
        self.n_jobs = n_jobs
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
        self.transform_mode = transform_mode
        self.force_approximation_algorithm = force_approximation_algorithm
        self.verbose = verbose
        self.tqdm_kwds = tqdm_kwds
        self.unique = unique
        self.densmap = densmap
        self.dens_lambda = dens_lambda
        self.dens_frac = dens_frac
        self.dens_var_shift = dens_var_shift
        self.output_dens = output_dens
        self.disconnection_distance = disconnection_distance
        self.precomputed_knn = precomputed_knn

    # ---- Fitting

    def fit(self, X: Any, y: Any = None, ensure_all_finite: bool | str = True, **kwargs: Any) -> Self:
        """Fits a map of the rows of X, an array or sparse matrix [n, features]. y, one value for each row, supervises.
        ensure_all_finite: as in scikit-learn; only a metric that is a function may get NaN or infinity.

        Examples
        --------
        >>> import numpy as np, napier
        >>> data = np.random.default_rng(0).normal(size=(100, 5))
        >>> reducer = napier.UMAP(n_neighbors=10, n_epochs=50).fit(data, y=np.arange(100) % 2)  # two known classes
        >>> reducer.embedding_.shape
        (100, 2)
        """
        self._check_parameters()
        stages.warn_of_integers(X, self.metric)
        X = self._validated(X, ensure_all_finite)
        if self._is_precomputed() and X.shape[0] != X.shape[1]:
            raise ValueError(f"X: expected a square matrix of distances, got the shape {X.shape}")
        known = {} if y is None else targets.prepare(y, X.shape[0], self.target_metric, self.target_metric_kwds)
        row_forms.warn_of_units(X, self.metric)
        self._fit_rows(X, known)
        return self

    def fit_transform(self, X: Any, y: Any = None, ensure_all_finite: bool | str = True, **kwargs: Any) -> Any:
        """Fits and returns the map, float32 [n, n_components].

        Examples
        --------
        >>> import numpy as np, napier
        >>> data = np.random.default_rng(0).normal(size=(100, 5))
        >>> napier.UMAP(n_neighbors=10, n_epochs=50, n_components=3).fit_transform(data).shape
        (100, 3)
        """
        self.fit(X, y, ensure_all_finite, **kwargs)
        if self.transform_mode == "graph":
            return self.graph_
        return (self.embedding_, self.rad_orig_, self.rad_emb_) if self.output_dens else self.embedding_

    def update(self, X: Any, ensure_all_finite: bool | str = True) -> Self:
        """Adds rows to the fitted ones. Fitted rows keep their places and new ones get theirs from transform, unless
        n_epochs is given: then so many epochs start from these places. Not for precomputed distances or with y.

        Examples
        --------
        >>> import numpy as np, napier
        >>> data = np.random.default_rng(0).normal(size=(100, 5))
        >>> reducer = napier.UMAP(n_neighbors=10, n_epochs=50).fit(data[:90])
        >>> reducer.update(data[90:]).embedding_.shape
        (100, 2)
        """
        self._check_fitted("update")
        if self._is_precomputed():
            raise ValueError("update: a map of precomputed distances cannot take new rows")
        if self._raw_data is None:
            raise ValueError("update: a combined map has no data of its own")
        if self._supervised:
            raise ValueError("update: a map that was fitted with y cannot take new rows")
        if self._model is None:
            raise ValueError("update: with transform_mode 'graph' there is no map; fit all rows")
        X = self._validated(X, ensure_all_finite, reset=False)
        start = np.vstack([self.embedding_, self._places(X)])
        if stages._is_sparse(self._raw_data):
            import scipy.sparse

            rows = scipy.sparse.vstack([self._raw_data, X], format="csr")
        else:
            rows = np.vstack([self._raw_data, _dense(X)])
        self._fit_rows(rows, {}, start)
        return self

    def _is_precomputed(self):
        return isinstance(self.metric, str) and self.metric == "precomputed"

    def _validated(self, X, ensure_all_finite, reset=True):
        stages.refuse_masked(X)
        if row_forms.is_text(self.metric):
            X = row_forms.of_strings(X, None if reset else self.n_features_in_, self.metric_kwds)
        elif row_forms.is_packed(self.metric):
            X = row_forms.of_bits(X)
        short = getattr(getattr(X, "dtype", None), "itemsize", 8) <= 2  # float32 holds these numbers
        floats = [np.float32, np.float64] if short else [np.float64, np.float32]  # other dtypes become the first
        try:
            return validate_data(
                self, X, accept_sparse="csr", dtype=[*floats, np.float16], ensure_all_finite=ensure_all_finite, reset=reset
            )
        except ValueError as error:
            column = stages._column_of_text(X)
            if column is None:
                raise
            raise ValueError(f"X: {column}") from error

    def _check_parameters(self):
        self._check_output()
        targets.check_metric(self.target_metric)
        if isinstance(self.init, str) and self.init not in _INITS:
            raise ValueError(f"init: {self.init!r} is not one of {tuple(_INITS)}, nor an array")
        if not isinstance(self.metric, str) and not callable(self.metric):
            raise ValueError(f"metric: {self.metric!r} is not a name or a function")
        if (self.a is None) != (self.b is None):
            raise ValueError(f"a and b: give both or neither, got {self.a!r} and {self.b!r}")
        for name, least in (("n_neighbors", 2), ("n_components", 1), ("n_epochs", 0)):
            value = getattr(self, name)
            if name == "n_epochs":
                for number in self._epoch_numbers():
                    _check_count(name, number, least)
                continue
            _check_count(name, value, least)
        limit = self.disconnection_distance
        if limit is not None and not (isinstance(limit, numbers.Real) and float(limit) > 0):
            raise ValueError(f"disconnection_distance: {limit!r} is not None or a number above 0")
        if self.target_n_neighbors != -1 and self.target_n_neighbors < 2:
            raise ValueError(f"target_n_neighbors: {self.target_n_neighbors} is less than 2, and not -1")
        if self.unique and (self._is_precomputed() or self._has_given_neighbors()):
            raise ValueError("unique: not with distances or neighbours that are precomputed")

    def _check_output(self):
        if self.transform_mode not in ("embedding", "graph"):
            raise ValueError(f"transform_mode: {self.transform_mode!r} is not 'embedding' or 'graph'")
        if self.output_dens and not self.densmap:
            raise ValueError("output_dens: radii are those of densMAP; set densmap=True")
        surfaces.check(self.output_metric, self.n_components, self.densmap, dict(self.output_metric_kwds or {}))

    def _keeps_maps(self):
        """Is n_epochs a list, so that the maps after these epochs are kept?"""
        return isinstance(self.n_epochs, (list, tuple, np.ndarray)) and getattr(self.n_epochs, "ndim", 1) > 0

    def _epoch_numbers(self):
        """n_epochs as a list; empty if it is None."""
        given: Any = self.n_epochs
        if self._keeps_maps():
            if not len(given):
                raise ValueError("n_epochs: the list is empty")
            return list(given)
        return [] if given is None else [given]

    def _last_epoch(self):
        return max(self._epoch_numbers(), default=None)

    def _maps_after(self):
        """The epochs after which maps are kept, before the last one."""
        if not self._keeps_maps():
            return []
        return sorted({int(n) for n in self._epoch_numbers()} - {int(self._last_epoch())})

    def _is_flat(self):
        return surfaces.is_flat(self.output_metric)

    def _fit_rows(self, X, known, start=None):
        """Fits the rows of X. start: places for all of them, which stay if n_epochs is None."""
        self._exponents = row_forms.scale_of(X, self.metric, self.metric_kwds)
        rows, known, start = self._without_twins(X, known, start)
        kept = self._scale.to_keep(rows)
        threads, seed = _threads(self.n_jobs), _seed(self.random_state, "random_state")
        a, b = (self.a, self.b) if self.a is not None else stages.find_ab_params(self.spread, self.min_dist)
        with _Progress(self.tqdm_kwds) as bars:
            watch = {"threads": threads, "progress": bars if self.verbose else None}
            knn = self._neighbors(rows, seed, watch)
            self._a: Any = a
            self._b: Any = b
            self._knn, self._raw_data, self._supervised = knn, X, bool(known)
            self._graph = self._model = None
            self._fuzzy = (
                self.local_connectivity,
                self.set_op_mix_ratio,
                known,
                self.target_weight,
                self.n_neighbors if self.target_n_neighbors == -1 else self.target_n_neighbors,
            )
            if self.transform_mode == "graph":
                self._graph = self._make_graph()
            elif (
                start is None
                and "join" not in known
                and not callable(self.metric)
                and self._is_flat()
                and self._last_epoch() != 0
                and not self._keeps_maps()
                and not self._own_layout
            ):
                self._model = self._fit_model(kept, known, seed, watch)
            else:
                self._graph = self._make_graph()
                maps = self._lay_out(kept, start, seed, watch)
                self._model = self._model_of(kept, maps[-1])
        self._fuzzy[2].pop("join", None)  # its work is done, and it cannot be pickled
        self._known = {} if self._is_precomputed() else _known_places(kept)
        self._set_results()
        if self._keeps_maps() and self._model is not None:
            self.embedding_list_ = maps if self._twins is None else [each[self._twins] for each in maps]

    def _set_results(self):
        for name in ("model_", "embedding_", "embedding_list_", "rad_orig_", "rad_emb_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self._n_features_out = self.n_components
        if self._model is None:
            return
        self.model_, embedding = self._model, self._model.embedding
        self.embedding_ = embedding if self._twins is None else embedding[self._twins]
        if self.output_dens and self._knn is None:
            self.rad_orig_ = self.rad_emb_ = np.full(len(self.embedding_), np.nan, np.float32)
        elif self.output_dens:
            self.rad_orig_ = densities.radii(self.graph_, *self._knn)
            self.rad_emb_ = densities.radii_of_map(embedding, self._knn[0].shape[1])
            if self._twins is not None:
                self.rad_orig_, self.rad_emb_ = self.rad_orig_[self._twins], self.rad_emb_[self._twins]

    def _without_twins(self, X, known, start):
        """The distinct rows if `unique` is set. self._twins maps all rows to their index among these."""
        self._twins = None
        if not self.unique:
            return X, known, start
        keys = np.array([np.void(key) for key in _row_keys(self._scale.to_keep(X))])
        first, back = np.unique(keys, return_index=True, return_inverse=True)[1:]
        order = np.sort(first)  # keep the order of the data
        self._twins = np.searchsorted(order, first)[back.ravel()]
        if "join" in known:
            raise ValueError(f"unique: not with target_metric {self.target_metric!r}")
        return X[order], {name: value[order] for name, value in known.items()}, None if start is None else start[order]

    def _neighbors(self, X, seed, watch):
        """(indices, distances), from which graph_ is also made; None if there is only one point."""
        n, k = X.shape[0], min(self.n_neighbors, X.shape[0])
        if n < 2:
            return None
        given = self._given_neighbors(n, k)
        if given is not None:
            return self._disconnect(*given, self._limit(scaled=False))
        X = self._scale.to_search(X)
        if callable(self.metric):
            indices, distances = self._function().neighbors(_dense(X), k, watch["progress"])
        else:
            method = "nn_descent" if self.force_approximation_algorithm else "auto"
            indices, distances = stages.nearest_neighbors(
                X, k, row_forms.library_metric(self.metric), self.metric_kwds, method=method, random_state=seed, **watch
            )
            if np.isinf(distances[indices >= 0]).any():
                raise ValueError("X: distances are more than float32 holds; divide the data by a power of two")
        return self._disconnect(indices, self._scale.lowered(distances), self._limit())

    def _has_given_neighbors(self):
        return self.precomputed_knn is not None and self.precomputed_knn[0] is not None

    def _given_neighbors(self, n, k):
        """precomputed_knn of n points, k of each; None, with a warning, if it is not of these."""
        if not self._has_given_neighbors():
            return None
        indices, distances = self.precomputed_knn[:2]
        for i, part in enumerate((indices, distances)):
            if not isinstance(part, np.ndarray) or part.ndim != 2:
                raise ValueError(f"precomputed_knn: element {i} is not an array of 2 dimensions")
        if indices.shape != distances.shape:
            raise ValueError(f"precomputed_knn: indices of the shape {indices.shape}, distances of {distances.shape}")
        own = (indices == np.arange(len(indices))[:, None]).any(axis=1)
        if len(indices) == n and not own.all():
            indices, distances = _with_themselves(indices, distances, ~own)
        wrong = (
            "of a different number of samples than the data"
            if len(indices) != n
            else f"of fewer neighbors than n_neighbors, {k}"
            if indices.shape[1] < k
            else None
        )
        if wrong:
            warnings.warn(f"precomputed_knn is {wrong}: it is ignored, and the neighbors are computed", stacklevel=4)
            return None
        if len(self.precomputed_knn) < 3 or self.precomputed_knn[2] is None:
            warnings.warn(
                f"precomputed_knn has no search index: transforming new data compares them with the fitted rows "
                f"by the metric {self.metric!r}",
                stacklevel=4,
            )
        return indices[:, :k].astype(np.int32), distances[:, :k].astype(np.float32)

    def _limit(self, scaled=True):
        """The distance from which on points are not neighbours."""
        if self.disconnection_distance is not None:
            return self._scale.limit(self.disconnection_distance) if scaled else self.disconnection_distance
        return np.inf if callable(self.metric) else stages.metric_disconnection(row_forms.library_metric(self.metric))

    @staticmethod
    def _disconnect(indices, distances, limit):
        """Points at the limit or farther are no neighbours; the point itself is at 0, so it stays."""
        far = distances >= limit
        indices[far], distances[far] = -1, np.inf
        return indices, distances

    def _function(self):
        return distance_of(self.metric, self.metric_kwds)

    def _model_options(self, X):
        return {
            "n_neighbors": min(self.n_neighbors, X.shape[0]) if self._knn else 2,
            "min_dist": self.min_dist,
            "spread": self.spread,
            "a": self.a,
            "b": self.b,
            "learning_rate": self.learning_rate,
            "local_connectivity": self.local_connectivity,
            "repulsion_strength": self.repulsion_strength,
            "negative_sample_rate": self.negative_sample_rate,
            "transform_seed": _seed(self.transform_seed, "transform_seed"),
            "disconnection_distance": self._scale.limit(self.disconnection_distance, kept=True),
        }

    def _fit_model(self, X, known, seed, watch):
        return stages.fit(
            X,
            metric=row_forms.library_metric(self.metric),
            metric_kwds=self.metric_kwds,
            knn=self._knn,
            n_components=self.n_components,
            n_epochs=self._last_epoch(),
            set_op_mix_ratio=self.set_op_mix_ratio,
            init=_INITS[self.init] if isinstance(self.init, str) else self.init,
            random_state=seed,
            target_n_neighbors=max(0, self.target_n_neighbors),
            target_weight=self.target_weight,
            densmap=self.densmap,
            dens_lambda=self.dens_lambda,
            dens_frac=self.dens_frac,
            dens_var_shift=self.dens_var_shift,
            **self._model_options(X),
            **known,
            **watch,
        )

    def _model_of(self, X, embedding):
        """A model of a map that was made here. That of a function's distances knows only the distances."""
        if callable(self.metric):
            n = X.shape[0]
            X = as_distances(*(self._knn or (np.zeros((1, 1), np.int32), np.zeros((1, 1), np.float32))), n)
            return stages.model_create(X, embedding, metric="precomputed", **self._model_options(X))
        return stages.model_create(
            X, embedding, metric=row_forms.library_metric(self.metric), metric_kwds=self.metric_kwds, **self._model_options(X)
        )

    def _lay_out(self, X, start, seed, watch):
        """The maps of self._graph: those after some epochs, if n_epochs is a list, and the last. start: places for all
        rows, which stay if n_epochs is None."""
        keep = self._last_epoch() == 0 or start is not None and self.n_epochs is None
        if start is None:
            start = self._start(X, seed, watch["threads"])
        wanted = {} if keep else {"maps_after": self._maps_after()}
        if keep or X.shape[0] == 1:
            maps = [start] * (len(self._maps_after()) + 1)
        elif not self._is_flat():
            maps = self._move(self._graph, np.nan_to_num(start), None, self._epochs(X.shape[0]), seed, progress=watch["progress"], **wanted)
        else:
            if self.densmap and self._knn is not None:
                wanted |= {
                    "densmap": True,
                    "dens_lambda": self.dens_lambda,
                    "dens_frac": self.dens_frac,
                    "dens_var_shift": self.dens_var_shift,
                    "knn": self._knn,
                }
            maps = stages.optimize_layout(
                self._graph,
                np.nan_to_num(start),
                n_epochs=self._last_epoch(),
                a=self._a,
                b=self._b,
                learning_rate=self.learning_rate,
                repulsion_strength=self.repulsion_strength,
                negative_sample_rate=self.negative_sample_rate,
                random_state=seed,
                **wanted,
                **watch,
            )
        maps = [np.array(each, np.float32) for each in (maps if isinstance(maps, list) else [maps])]
        for each in maps:
            if keep:
                _fill_in(each, self._graph)
            each[np.diff(self._graph.indptr) == 0] = np.nan if X.shape[0] > 1 else 0.0
        return maps

    def _epochs(self, n):
        last = self._last_epoch()
        return last if last is not None else 500 if n <= 10000 else 200

    def _move(self, graph, start, fitted, n_epochs, seed, maps_after=(), progress=None):
        """The layout with another distance than the Euclidean one."""
        measure = surfaces.metric_of(self.output_metric, dict(self.output_metric_kwds or {}))
        return surfaces.optimize(
            graph,
            start,
            fitted,
            measure,
            n_epochs=n_epochs,
            a=self._a,
            b=self._b,
            learning_rate=self.learning_rate / 10,
            repulsion_strength=self.repulsion_strength,
            negative_sample_rate=self.negative_sample_rate,
            random_state=seed,
            maps_after=maps_after,
            progress=progress,
        )

    def _start(self, X, seed, threads):
        n = self._graph.shape[0]
        if not isinstance(self.init, str):
            start = stages._array(self.init, "init", np.float32, 2)
            if start.shape != (n, self.n_components) or not np.isfinite(start).all():
                raise ValueError(f"init: expected finite places of shape ({n}, {self.n_components}), got {start.shape}")
            return start
        data = None if X is None or callable(self.metric) or self._is_precomputed() else X
        if _INITS[self.init] == "random":
            start = stages.random_layout(n, self.n_components, seed)
        elif _INITS[self.init] == "pca" and data is not None:
            start = stages.pca_layout(data, self.n_components, seed, threads=threads)
        else:
            start = stages.spectral_layout(self._graph, data, self.n_components, seed, threads=threads)
        return start if self._is_flat() else surfaces.start(start, self.output_metric)

    @property
    def graph_(self) -> Any:
        self._check_fitted("graph_", AttributeError)
        if self._graph is None:
            self._graph = self._make_graph()
        return self._graph

    def _make_graph(self):
        if self._knn is None:
            return stages.graph_from_edges(np.empty(0, stages.EDGE), 1)
        local_connectivity, set_op_mix_ratio, known, weight, k = self._fuzzy  # the values at the time of the fit
        graph = stages.fuzzy_simplicial_set(*self._knn, local_connectivity, set_op_mix_ratio)
        return targets.join(graph, known, k, weight)

    @property
    def _scale(self):
        return row_forms.Scale(*self._exponents)

    # ---- What umap-learn keeps

    @property
    def _knn_indices(self):
        return None if self._knn is None else self._knn[0]

    @property
    def _knn_dists(self):
        return None if self._knn is None else self._unscaled(self._knn[1])

    def _unscaled(self, distances):
        return row_forms.times(distances, 0 if self._has_given_neighbors() else -self._scale.of_distances)

    @property
    def _knn_search_index(self):
        return None  # there is none: new rows are compared with the data

    @property
    def _sigmas(self):
        return None if self._knn is None else self._unscaled(stages.smooth_knn_dist(self._knn[1], self._fuzzy[0])[0])

    @property
    def _rhos(self):
        return None if self._knn is None else self._unscaled(stages.smooth_knn_dist(self._knn[1], self._fuzzy[0])[1])

    @property
    def graph_dists_(self) -> Any:
        """With densmap: the distances of neighbours, a symmetric sparse matrix."""
        self._check_fitted("graph_dists_", AttributeError)
        if not self.densmap or self._knn is None:
            return None
        made = as_distances(self._knn[0], self._knn_dists, self.graph_.shape[0])
        return made.maximum(made.T).tocsr()

    @property
    def _unique_inverse_(self):
        self._check_fitted("_unique_inverse_", AttributeError)
        if self._twins is None:
            raise AttributeError("_unique_inverse_: unique was not set")
        return self._twins

    @property
    def _disconnection_distance(self):
        return self._limit(scaled=False)

    @property
    def _initial_alpha(self):
        return self.learning_rate

    @property
    def _small_data(self):
        return self.graph_.shape[0] < 4096

    @property
    def _metric_kwds(self):
        return dict(self.metric_kwds or {})

    @property
    def _output_metric_kwds(self):
        return dict(self.output_metric_kwds or {})

    @property
    def _target_metric_kwds(self):
        return dict(self.target_metric_kwds or {})

    @property
    def _densmap_kwds(self):
        return {
            "lambda": self.dens_lambda if self.densmap else 0.0,
            "frac": self.dens_frac if self.densmap else 0.0,
            "var_shift": self.dens_var_shift,
            "n_neighbors": self._n_neighbors,
            "graph_dists": self.graph_dists_,
        }

    @property
    def _input_hash(self):
        return hashlib.blake2b(b"".join(_row_keys(self._raw_data)), digest_size=16).hexdigest()

    @property
    def _n_neighbors(self):
        """At most as many as there are other points."""
        return min(self.n_neighbors, self.graph_.shape[0] - 1)

    @property
    def _sparse_data(self):
        return stages._is_sparse(self._raw_data)

    # ---- Two maps of the same points

    def __add__(self, other: UMAP) -> UMAP:
        """The map of points that are near in either of two fitted maps."""
        return self._combined(other, "union", _GRAPH_NEIGHBORS)

    def __mul__(self, other: UMAP) -> UMAP:
        """The map of points that are near in both."""
        return self._combined(other, "intersection", _GRAPH_NEIGHBORS)

    def __sub__(self, other: UMAP) -> UMAP:
        """The map of points that are near in the first and not in the second."""
        return self._combined(other, "difference", 0)

    def _combined(self, other, operation, n_neighbors):
        if not isinstance(other, UMAP):
            return NotImplemented
        for mapper in (self, other):
            mapper._check_fitted("maps are combined")
        for twins in (self._twins, other._twins):
            if twins is not None:
                raise ValueError("unique: maps of distinct rows cannot be combined, as their rows may differ")
        if self.graph_.shape != other.graph_.shape:
            raise ValueError(f"maps of {self.graph_.shape[0]} and {other.graph_.shape[0]} points cannot be combined")
        result = type(self)(**self.get_params())
        result.set_params(n_components=min(self.n_components, other.n_components), init="spectral", densmap=False, output_dens=False)
        result._graph = stages.combine(self.graph_, other.graph_, operation, n_neighbors=n_neighbors)
        result._a, result._b = (self._a + other._a) / 2, (self._b + other._b) / 2
        result._knn = result._model = result._raw_data = result._twins = None
        result._supervised, result._known, result._exponents = True, {}, ()
        watch = {"threads": _threads(self.n_jobs), "progress": None}
        maps = result._lay_out(result._graph, None, _seed(self.random_state, "random_state"), watch)
        result.embedding_ = maps[-1]
        if result._keeps_maps():
            result.embedding_list_ = maps
        result._n_features_out = result.n_components
        return result

    # ---- Using the map

    def _check_fitted(self, what, kind=NotFittedError):
        if "_known" not in self.__dict__:
            raise kind(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' before {what}.")

    def transform(self, X: Any, ensure_all_finite: bool | str = True) -> Any:
        """Positions of new rows on the map. Each depends only on the map and its row. A row of the fitted data has its
        position on the map. A row without a neighbour is NaN, with a warning. For a map of precomputed distances, X are
        the distances [rows, n] to the fitted points. transform_mode 'graph': memberships, sparse [rows, n].

        Examples
        --------
        >>> import numpy as np, napier
        >>> data = np.random.default_rng(0).normal(size=(100, 5))
        >>> reducer = napier.UMAP(n_neighbors=10, n_epochs=50).fit(data[:90])
        >>> reducer.transform(data[90:]).shape
        (10, 2)
        """
        self._check_fitted("transform")
        if self._raw_data is None:
            raise ValueError("transform: a combined map has no data to compare new rows with")
        if self._raw_data.shape[0] == 1:
            raise ValueError("transform: the map has a single point, so new rows cannot be placed")
        X = self._validated(X, ensure_all_finite, reset=False)
        if self.transform_mode == "graph":
            return self._memberships(*self._nearest(X))
        if self._model is None:
            raise ValueError("transform: there is no map, as transform_mode was 'graph' at the fit")
        result = self._places(X)
        stages._warn_of_disconnected(result)
        return result

    def _places(self, X):
        places = np.full(X.shape[0], -1, np.int64)
        if self._known:
            places[:] = [self._known.get(key, -1) for key in _row_keys(self._scale.to_keep(X))]
        new = np.flatnonzero(places < 0)
        result = self.model_.embedding[np.maximum(places, 0)]
        if len(new) and not self._is_flat():
            indices, distances = self._nearest(X[new])
            fitted, lost = self.model_.embedding, indices[:, 0] < 0
            placed = np.nan_to_num(fitted)
            result[new] = self._move(
                self._memberships(indices, distances),
                placed[indices[:, 0]],
                placed,
                self._epochs(len(fitted)) // 3,
                _seed(self.transform_seed, "transform_seed"),
            )
            result[new[lost | np.isnan(fitted[indices[:, 0]]).any(axis=1)]] = np.nan
        elif len(new):
            rows = as_distances(*self._nearest(X[new]), self._knn[0].shape[0]) if callable(self.metric) else self._scale.to_keep(X[new])
            result[new] = self.model_._transform(rows, _threads(self.n_jobs))
        return result

    def _nearest(self, X):
        """The fitted rows nearest to each row of X: (indices, distances)."""
        fitted, X, k = self._scale.to_search(self._fitted_rows()), self._scale.to_search(X), self._knn[0].shape[1]
        if callable(self.metric):
            found = self._function().neighbors_of(_dense(fitted), _dense(X), k)
        else:
            found = stages.nearest_neighbors_of(
                fitted, X, k, row_forms.library_metric(self.metric), self.metric_kwds, threads=_threads(self.n_jobs)
            )
        return self._disconnect(found[0], self._scale.lowered(found[1]), self._limit())

    def _fitted_rows(self):
        """The rows that the map has been made of: distinct ones with `unique`."""
        return self._raw_data if self._twins is None else self._raw_data[np.unique(self._twins, return_index=True)[1]]

    def _memberships(self, indices, distances):
        """Rows of the fuzzy set for new rows."""
        return as_distances(indices, densities.memberships(distances, self.local_connectivity), self.graph_.shape[0])

    def inverse_transform(self, X: Any, method: str = "mean") -> Any:
        """Data, float32 [rows, features], for points of the map [rows, n_components]; sparse if the fitted data are.
        method: 'mean', the weighted mean of the data of the nearest points of the map, or 'gradient': from there by
        gradient descent, as umap-learn does it, for metrics with a gradient.

        Examples
        --------
        >>> import numpy as np, napier
        >>> data = np.random.default_rng(0).normal(size=(100, 5))
        >>> reducer = napier.UMAP(n_neighbors=10, n_epochs=50).fit(data)
        >>> reducer.inverse_transform(reducer.embedding_[:3]).shape
        (3, 5)
        """
        self._check_fitted("inverse_transform")
        if self._model is None:
            raise ValueError("inverse_transform: there is no map of data")
        if self._is_precomputed() or row_forms.is_text(self.metric) or row_forms.is_packed(self.metric):
            raise ValueError(f"inverse_transform: not for the metric {self.metric!r}")
        if method not in ("mean", "gradient"):
            raise ValueError(f"method: {method!r} is not 'mean' or 'gradient'")
        points = stages._array(X, "X", np.float32, 2)
        measure = self._gradient() if method == "gradient" else None
        steps = range(0, max(len(points), 1), _SPARSE_ROWS if stages._is_sparse(self._raw_data) else max(len(points), 1))
        made = [self._inverse(points[begin : begin + steps.step], measure) for begin in steps]
        if not stages._is_sparse(self._raw_data):
            return made[0]
        import scipy.sparse

        return scipy.sparse.vstack([scipy.sparse.csr_matrix(part) for part in made], format="csr")

    def _inverse(self, points, measure):
        if callable(self.metric):
            result = self._mean_of_nearest(points)
        else:
            result = self.model_.inverse_transform(points, threads=_threads(self.n_jobs))
        if measure is not None and len(points):
            result = self._descend(points, result, measure)
        return row_forms.times(result, -self._scale.kept)

    def _gradient(self):
        """The metric's distances and gradients."""
        if callable(self.metric):
            probe = _dense(self._raw_data[:1])[0].astype(np.float64)
            if not isinstance(self.metric(probe.copy(), probe.copy(), **self._metric_kwds), tuple):
                raise ValueError("inverse_transform: the metric returns no gradient; use method='mean'")
            return surfaces.metric_of(self.metric, self._metric_kwds)
        if row_forms.library_metric(self.metric) not in gradients.OF_DATA:
            raise ValueError(f"inverse_transform: {self.metric!r} has no gradient; use method='mean'")
        keywords = self._metric_kwds
        if row_forms.library_metric(self.metric) == "seuclidean" and not keywords:
            rows = _dense(self._fitted_rows()).astype(np.float64)
            keywords = {"V": np.where(rows.var(axis=0, ddof=1) > 0, rows.var(axis=0, ddof=1), np.inf)}
        if row_forms.library_metric(self.metric) == "mahalanobis" and not keywords:
            raise ValueError("inverse_transform: give VI, the inverse covariance, in metric_kwds, or method='mean'")
        return surfaces.metric_of(self.metric, keywords, gradients.OF_DATA)

    def _descend(self, points, start, measure):
        last = self._last_epoch()
        n_epochs = last // 3 if last is not None else 100 if self.graph_.shape[0] <= 10000 else 30
        sigmas, rhos = stages.smooth_knn_dist(self._knn[1], self._fuzzy[0])
        down = self._scale.of_rows - self._scale.kept  # sigmas and rhos are those of the scaled rows
        made = inverse.by_gradients(
            row_forms.times(start, down),
            row_forms.times(self._fitted_rows(), self._scale.of_rows),
            sigmas,
            rhos,
            measure,
            *self._nearest_on_map(points),
            n_epochs=n_epochs,
            a=self._a,
            b=self._b,
            learning_rate=self.learning_rate / 4,
            repulsion_strength=self.repulsion_strength,
            negative_sample_rate=self.negative_sample_rate,
            random_state=_seed(self.transform_seed, "transform_seed"),
            least=0.0 if row_forms.library_metric(self.metric) in ("hellinger", "symmetric_kl") else -np.inf,
        )
        return row_forms.times(made, -down)

    def _nearest_on_map(self, points):
        """Indices of the fitted points nearest on the map, and their distances."""
        embedding = self.model_.embedding
        placed = np.flatnonzero(~np.isnan(embedding).any(axis=1))
        indices, distances = stages.nearest_neighbors_of(embedding[placed], points, min(self.n_neighbors, len(placed)))
        return placed[indices], distances

    def _mean_of_nearest(self, points):
        indices, distances = self._nearest_on_map(points)
        weights = densities.memberships(distances, self.local_connectivity).astype(np.float64)
        total = np.zeros(len(points))
        mean = np.zeros((len(points), self._raw_data.shape[1]))
        for slot in range(indices.shape[1]):  # in this order, so that the bits are the same everywhere
            total += weights[:, slot]
            mean += weights[:, slot, None] * _dense(self._fitted_rows()[indices[:, slot]])
        return (mean / np.maximum(total, np.finfo(np.float64).tiny)[:, None]).astype(np.float32)

    def plot(self, labels: Any = None, ax: Any = None, **options: Any) -> Any:
        """Draws the map with matplotlib and returns the axes. labels, one for each point, set the colour:
        floating-point numbers use a colour scale, other labels are categories. Options are those of Axes.scatter.

        Examples
        --------
        >>> import matplotlib, numpy as np, napier
        >>> matplotlib.use("agg")
        >>> data = np.random.default_rng(0).normal(size=(100, 5))
        >>> axes = napier.UMAP(n_neighbors=10, n_epochs=50).fit(data).plot(labels=np.arange(100) % 2)
        >>> axes.figure.savefig("map.png")
        """
        self._check_fitted("plot")
        import matplotlib.pyplot as plt

        if "embedding_" not in self.__dict__:
            raise ValueError("plot: there is no map, as transform_mode was 'graph' at the fit")
        if self.embedding_.shape[1] < 2:
            raise ValueError("plot: the map has one dimension, and needs two")
        if ax is None:
            ax = plt.subplots(figsize=(8, 8), layout="constrained")[1]
        points = self.embedding_[:, :2]
        options = {"s": float(np.clip(20000 / len(points), 0.5, 20)), "linewidths": 0} | options
        if labels is None:
            ax.scatter(*points.T, **options)
        else:
            self._plot_labels(ax, points, np.asarray(labels), options)
        ax.set(xticks=[], yticks=[], aspect="equal")
        return ax

    @staticmethod
    def _plot_labels(ax, points, labels, options):
        from ..umap import plot

        if labels.shape != (len(points),):
            raise ValueError(f"labels: expected {len(points)}, one for each point, got the shape {labels.shape}")
        plot._scatter_labels(ax, points, labels, options)

    # ---- For scikit-learn

    def __sklearn_is_fitted__(self):
        return "_known" in self.__dict__

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.target_tags.required = False
        tags.transformer_tags.preserves_dtype = []
        return tags
