"""napier.UMAP: an estimator that follows scikit-learn's contract and has umap-learn's parameters. It is scikit-learn's
BaseEstimator if that is installed, and works without it."""
import hashlib
import numbers
import sys

import numpy as np

from . import stages

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import validate_data
except ImportError:  # not installed, or older than 1.6: our own version of the parts used
    from .base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, NotFittedError, TransformerMixin, \
        validate_data

_INITS = {"spectral": "spectral", "tswspectral": "spectral", "pca": "pca", "random": "random"}
_NUMBER_METRICS = ("euclidean", "l2", "l1", "manhattan")  # for single numbers these are the same distance


# ---- Parameters -----------------------------------------------------------------------------------------------------

def _seed(value, name):
    """A seed: 42 for None, a number itself, or a draw of a generator."""
    if value is None:
        return 42
    if isinstance(value, numbers.Integral):
        if not 0 <= value < 2**64:
            raise ValueError(f"{name}: {value} is not 0 to 2**64 - 1")
        return int(value)
    if hasattr(value, "randint"):
        return int(value.randint(2**31 - 1))
    if hasattr(value, "integers"):
        return int(value.integers(2**63))
    raise ValueError(f"{name}: expected None, an integer or a random generator, got {value!r}")


def _threads(n_jobs):
    """The number of threads, counted like joblib: -1 is all, -2 all but one."""
    if n_jobs is None or n_jobs == -1:
        return 0
    if not isinstance(n_jobs, numbers.Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs: {n_jobs!r} is not a number of threads, or -1 for all")
    if n_jobs > 0:
        return min(int(n_jobs), 1024)
    return max(1, stages._napier.get_num_threads() + 1 + int(n_jobs))


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
    """A key of 16 bytes for each row: a hash of its values as float32."""
    def key(*parts):
        made = hashlib.blake2b(digest_size=16)
        for part in parts:
            made.update(part)
        return made.digest()

    if stages._is_sparse(X):
        X = stages._csr(X, "X")
        starts, columns = np.asarray(X.indptr), np.asarray(X.indices, np.int32)
        values = np.asarray(X.data, np.float32)
        return [key(columns[a:b], values[a:b]) for a, b in zip(starts[:-1], starts[1:], strict=True)]
    return [key(row) for row in np.ascontiguousarray(X, dtype=np.float32)]


def _known_places(X):
    """The index of each row of X by its key. Equal rows have the first one's index."""
    places = {}
    for i, key in enumerate(_row_keys(X)):
        places.setdefault(key, i)
    return places


# ---- Targets --------------------------------------------------------------------------------------------------------

def _is_unknown(value):
    """Is a category unknown: None, NaN, pandas' NA or NaT, or a negative number?"""
    if value is None or isinstance(value, numbers.Real) and value < 0:
        return True
    unequal = value != value
    return unequal is value or bool(unequal)  # NA != NA is NA


def _categories(y):
    """int32 codes of the categories; -1 if unknown."""
    if y.dtype.kind == "f":
        unknown = np.isnan(y) | (y < 0)
    elif y.dtype.kind in "iu":
        unknown = y < 0
    elif y.dtype.kind in "mM":
        unknown = np.isnat(y)
    elif y.dtype.kind == "O":
        unknown = np.array([_is_unknown(v) for v in y], bool)
        y = np.array(["" if gone else str(v) for v, gone in zip(y, unknown, strict=True)])
    else:
        unknown = np.zeros(len(y), bool)
    codes = np.full(len(y), -1, np.int32)
    codes[~unknown] = np.unique(y[~unknown], return_inverse=True)[1].ravel()
    return codes


def _targets(y, n, target_metric):
    """The arguments of umap.fit that y gives."""
    if y is None:
        return {}
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or len(y) != n:
        raise ValueError(f"y: expected one value for each of {n} samples, got the shape {y.shape}")
    if target_metric == "categorical":
        return {"categories": _categories(y)}
    if y.dtype.kind not in "fiub":
        raise ValueError(f"y: expected numbers, as target_metric is {target_metric!r}, got dtype {y.dtype}")
    with np.errstate(over="ignore"):
        values = y.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(f"y: element {wrong[0]} is {y[wrong[0]]}, and target_metric {target_metric!r} needs finite numbers "
                         "within float32's range; 'categorical' takes what is not known")
    return {"numbers": values}


# ---- The estimator --------------------------------------------------------------------------------------------------

class UMAP(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Maps data to few dimensions, like umap-learn's UMAP. docs/moving-from-umap-learn.md lists the differences.

    >>> import numpy as np
    >>> from napier import UMAP
    >>> data = np.random.default_rng(0).normal(size=(100, 5))
    >>> UMAP(n_neighbors=10, min_dist=0.2).fit_transform(data).shape
    (100, 2)

    Parameters
    ----------
    n_neighbors : 2 or more. Few neighbours show local structure, many show global structure.
    n_components : 1 to 50, the dimensions of the map.
    metric : a name (napier.umap.METRICS), or 'precomputed' for a matrix of distances.
    metric_kwds : p of minkowski, V (variances) of seuclidean, VI (inverse covariance) of mahalanobis.
    n_epochs : None is 500 for up to 10,000 points, else 200.
    learning_rate, set_op_mix_ratio, local_connectivity, repulsion_strength, negative_sample_rate : as in umap-learn.
    init : 'spectral', 'pca', 'random', or an array [n, n_components] that is used unchanged.
    min_dist, spread, a, b : the curve. If a and b are given, both together, min_dist and spread are ignored.
    n_jobs : the number of threads; -1 is all. Results do not depend on it.
    random_state : None counts as 42: the same data always give the same map. An integer or a generator: another map.
    target_metric : of y: 'categorical' (negative, NaN, None or pandas' NA: unknown), or 'euclidean' for numbers.
    target_n_neighbors : for numbers in y; -1 is n_neighbors.
    target_weight : 0: the data decides, 1: y decides.
    transform_seed : the seed of transform.
    force_approximation_algorithm : use NN-descent for any size.
    unique : map equal rows only once.
    densmap, dens_lambda, dens_frac, dens_var_shift : densMAP.
    disconnection_distance : points at this distance or farther are not neighbours. None is 1 for jaccard, dice and
        hellinger, 2 for cosine and correlation, else infinity. A point without a neighbour is NaN on the map.
    precomputed_knn : (indices, distances), as napier.umap.nearest_neighbors returns them.
    verbose : show progress, with tqdm if it is installed. tqdm_kwds : options of its bars.
    low_memory, angular_rp_forest, transform_queue_size : accepted, without effect.
    output_metric, output_metric_kwds, transform_mode, output_dens, target_metric_kwds : only the default is supported.

    Attributes
    ----------
    embedding_ : the map, float32 [n, n_components].
    graph_ : the fuzzy set, scipy.sparse.csr_matrix [n, n]; computed on first access.
    model_ : napier.umap.Model, which can be saved, and loaded by any program that uses the library.
    n_features_in_, feature_names_in_ : as in scikit-learn.
    """

    __module__ = "napier"  # what pickles and help show

    def __init__(self, n_neighbors=15, n_components=2, metric="euclidean", metric_kwds=None,
                 output_metric="euclidean", output_metric_kwds=None, n_epochs=None, learning_rate=1.0, init="spectral",
                 min_dist=0.1, spread=1.0, low_memory=True, n_jobs=-1, set_op_mix_ratio=1.0, local_connectivity=1.0,
                 repulsion_strength=1.0, negative_sample_rate=5, transform_queue_size=4.0, a=None, b=None,
                 random_state=None, angular_rp_forest=False, target_n_neighbors=-1, target_metric="categorical",
                 target_metric_kwds=None, target_weight=0.5, transform_seed=42, transform_mode="embedding",
                 force_approximation_algorithm=False, verbose=False, tqdm_kwds=None, unique=False, densmap=False,
                 dens_lambda=2.0, dens_frac=0.3, dens_var_shift=0.1, output_dens=False, disconnection_distance=None,
                 precomputed_knn=(None, None, None)):
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

    def fit(self, X, y=None):
        """Fits a map of the rows of X, an array or sparse matrix [n, features]. y, one value for each row,
        supervises."""
        self._check_parameters()
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64, np.float16])
        if self.metric == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(f"X: expected a square matrix of distances, got the shape {X.shape}")
        if y is not None:
            y = _targets(y, X.shape[0], self.target_metric)
        rows, y = self._without_twins(X, y or {})
        threads, seed = _threads(self.n_jobs), _seed(self.random_state, "random_state")
        self._a, self._b = (self.a, self.b) if self.a is not None else stages.find_ab_params(self.spread, self.min_dist)
        with _Progress(self.tqdm_kwds) as bars:
            watch = {"threads": threads, "progress": bars if self.verbose else None}
            self._knn = self._neighbors(rows, seed, watch)
            self.model_ = self._fit_model(rows, y, seed, watch)
        self._fuzzy = self.local_connectivity, self.set_op_mix_ratio, y, self.target_weight, \
            self.n_neighbors if self.target_n_neighbors == -1 else self.target_n_neighbors
        self._known = {} if self.metric == "precomputed" else _known_places(rows)
        embedding = self.model_.embedding
        self.embedding_ = embedding if self._twins is None else embedding[self._twins]
        self._n_features_out = self.embedding_.shape[1]
        return self

    def fit_transform(self, X, y=None):
        """Fits and returns the map, float32 [n, n_components]."""
        return self.fit(X, y).embedding_

    def _check_parameters(self):
        for name, only in (("output_metric", "euclidean"), ("transform_mode", "embedding"), ("output_dens", False),
                           ("output_metric_kwds", None), ("target_metric_kwds", None)):
            value = getattr(self, name)
            if value != only and not (only is None and value == {}):
                raise NotImplementedError(f"{name}: only {only!r} is supported, got {value!r}")
        if self.target_metric != "categorical" and self.target_metric not in _NUMBER_METRICS:
            raise ValueError(f"target_metric: {self.target_metric!r} is not 'categorical' or one of {_NUMBER_METRICS}")
        if isinstance(self.init, str) and self.init not in _INITS:
            raise ValueError(f"init: {self.init!r} is not one of {tuple(_INITS)}, nor an array")
        if (self.a is None) != (self.b is None):
            raise ValueError(f"a and b: give both or neither, got {self.a!r} and {self.b!r}")
        for name, least in (("n_neighbors", 2), ("n_components", 1), ("n_epochs", 1)):
            value = getattr(self, name)
            if value is None and name == "n_epochs":
                continue
            if not isinstance(value, numbers.Integral) or isinstance(value, bool):
                raise TypeError(f"{name}: expected an integer, got {value!r}")
            if value < least:
                raise ValueError(f"{name}: {value} is less than {least}")
        limit = self.disconnection_distance
        if limit is not None and not (isinstance(limit, numbers.Real) and limit > 0):
            raise ValueError(f"disconnection_distance: {limit!r} is not None or a number above 0")
        if self.target_n_neighbors != -1 and self.target_n_neighbors < 2:
            raise ValueError(f"target_n_neighbors: {self.target_n_neighbors} is less than 2, and not -1")
        if self.unique and (self.metric == "precomputed" or self.precomputed_knn[0] is not None):
            raise ValueError("unique: not with distances or neighbours that are precomputed")

    def _without_twins(self, X, y):
        """The distinct rows if `unique` is set. self._twins maps all rows to their index among these."""
        self._twins = None
        if not self.unique:
            return X, y
        keys = np.array([np.void(key) for key in _row_keys(X)])
        first, back = np.unique(keys, return_index=True, return_inverse=True)[1:]
        order = np.sort(first)  # keep the order of the data
        self._twins = np.searchsorted(order, first)[back.ravel()]
        return X[order], {name: value[order] for name, value in y.items()}

    def _neighbors(self, X, seed, watch):
        """(indices, distances), from which graph_ is also made; None if there is only one point."""
        n, k = X.shape[0], min(self.n_neighbors, X.shape[0])
        if n < 2:
            return None
        if self.precomputed_knn[0] is not None:
            indices, distances = (np.asarray(part) for part in self.precomputed_knn[:2])
            if indices.shape != distances.shape or indices.ndim != 2 or len(indices) != n or indices.shape[1] < k:
                raise ValueError(f"precomputed_knn: expected indices and distances of the shape ({n}, {k}) or wider, "
                                 f"got {indices.shape} and {distances.shape}")
            indices, distances = indices[:, :k].astype(np.int32), distances[:, :k].astype(np.float32)
        else:
            method = "nn_descent" if self.force_approximation_algorithm else "auto"
            indices, distances = stages.nearest_neighbors(X, k, self.metric, self.metric_kwds, method=method,
                                                          random_state=seed, **watch)
            if np.isinf(distances[indices >= 0]).any():
                raise ValueError("X: distances are more than float32 holds; divide the data by a power of two")
        limit = self.disconnection_distance
        far = distances >= (stages.metric_disconnection(self.metric) if limit is None else limit)
        indices[far], distances[far] = -1, np.inf  # the point itself is at 0, so it stays
        return indices, distances

    def _fit_model(self, X, y, seed, watch):
        return stages.fit(
            X, n_neighbors=min(self.n_neighbors, X.shape[0]) if self._knn else 2, metric=self.metric,
            metric_kwds=self.metric_kwds, knn=self._knn, n_components=self.n_components, n_epochs=self.n_epochs,
            min_dist=self.min_dist, spread=self.spread, a=self.a, b=self.b, learning_rate=self.learning_rate,
            set_op_mix_ratio=self.set_op_mix_ratio, local_connectivity=self.local_connectivity,
            repulsion_strength=self.repulsion_strength, negative_sample_rate=self.negative_sample_rate,
            init=_INITS[self.init] if isinstance(self.init, str) else self.init, random_state=seed,
            transform_seed=_seed(self.transform_seed, "transform_seed"),
            target_n_neighbors=max(0, self.target_n_neighbors), target_weight=self.target_weight,
            densmap=self.densmap, dens_lambda=self.dens_lambda, dens_frac=self.dens_frac,
            dens_var_shift=self.dens_var_shift, disconnection_distance=self.disconnection_distance, **y, **watch)

    @property
    def graph_(self):
        self._check_fitted("graph_", AttributeError)
        if getattr(self, "_graph", None) is None or self._graph[0] is not self.model_:
            self._graph = self.model_, self._make_graph()
        return self._graph[1]

    def _make_graph(self):
        if self._knn is None:
            return stages.graph_from_edges(np.empty(0, stages.EDGE), 1)
        local_connectivity, set_op_mix_ratio, y, weight, k = self._fuzzy  # the values at the time of the fit
        graph = stages.fuzzy_simplicial_set(*self._knn, local_connectivity, set_op_mix_ratio)
        if "categories" in y:
            return stages.join_categories(graph, y["categories"], weight)
        if "numbers" in y:
            return stages.join_numbers(graph, y["numbers"], min(k, graph.shape[0]), weight)
        return graph

    # ---- Using the map

    def _check_fitted(self, what, kind=NotFittedError):
        if "model_" not in self.__dict__:
            raise kind(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' before {what}.")

    def transform(self, X):
        """Positions of new rows on the map. Each depends only on the map and its row. A row of the fitted data has its
        position on the map. A row without a neighbour is NaN, with a warning."""
        self._check_fitted("transform")
        if self.metric == "precomputed":
            raise NotImplementedError("transform: a map of precomputed distances has no data to compare new rows with")
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64, np.float16], reset=False)
        places = np.array([self._known.get(key, -1) for key in _row_keys(X)], np.int64)
        new = np.flatnonzero(places < 0)
        map_ = self.model_.embedding
        result = map_[np.maximum(places, 0)]
        if len(new):
            result[new] = self.model_._transform(X[new], _threads(self.n_jobs))
        stages._warn_of_disconnected(result)
        return result

    def inverse_transform(self, X):
        """Data, float32 [rows, features], for points of the map [rows, n_components]."""
        self._check_fitted("inverse_transform")
        return self.model_.inverse_transform(X, threads=_threads(self.n_jobs))

    def plot(self, labels=None, ax=None, **options):
        """Draws the map with matplotlib and returns the axes. labels, one for each point, set the colour:
        floating-point numbers use a colour scale, other labels are categories. Options are those of Axes.scatter."""
        self._check_fitted("plot")
        import matplotlib.pyplot as plt
        if self.embedding_.shape[1] < 2:
            raise ValueError("plot: the map has one dimension, and needs two")
        if ax is None:
            ax = plt.subplots(figsize=(8, 8))[1]
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
        if labels.shape != (len(points),):
            raise ValueError(f"labels: expected {len(points)}, one for each point, got the shape {labels.shape}")
        if labels.dtype.kind == "f":
            ax.figure.colorbar(ax.scatter(*points.T, c=labels, **options), ax=ax, shrink=0.7)
            return
        import matplotlib
        names, codes = np.unique(labels, return_inverse=True)
        colors = matplotlib.colormaps["tab10" if len(names) <= 10 else "gist_rainbow"]
        for i, name in enumerate(names):
            color = colors(i if len(names) <= 10 else i / (len(names) - 1))
            ax.scatter(*points[codes == i].T, color=color, label=str(name), **options)
        if len(names) <= 30:
            ax.legend(markerscale=3, fontsize="small", loc="best")

    # ---- For scikit-learn

    def __sklearn_is_fitted__(self):
        return "model_" in self.__dict__

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.target_tags.required = False
        tags.transformer_tags.preserves_dtype = []
        return tags
