"""Rows of data as the library takes them: strings and packed bits as numbers, and very large or small numbers scaled."""

import warnings

import numpy as np

from . import stages

_PACKED = {"bit_hamming": "manhattan", "bit_jaccard": "jaccard"}  # the metric of the bits
_LARGE = 2.0**52  # squares of differences of smaller numbers are within float32
_SMALL, _TINY = 2.0**-39, 2.0**-100  # squares of differences of smaller numbers, or they themselves, lose digits
_RAISED = 20  # the exponent of the largest number where all are small
_SEARCHED, _KEPT = 51, 100  # exponents of the largest number: for a search, and in a model where float32 holds no larger
_LOWERED = -31  # of distances after a search, as in the library: the search for sigmas begins at 1
_LEAST_SEARCHED = -40  # squares of differences of one unit in the last place of larger numbers are normal in float32
_MOST = float(np.finfo(np.float32).max)

# Metrics that a factor changes in proportion or not at all.
_GROWING = ("euclidean", "manhattan", "chebyshev", "minkowski", "wminkowski")
_FIXED = ("canberra", "braycurtis", "cosine", "correlation", "hellinger")  # they divide by a row's size first
_BOOLEAN = ("jaccard", "dice", "yule", "russellrao", "rogerstanimoto", "sokalmichener", "sokalsneath", "kulsinski", "matching")
_BY_COLUMN = ("canberra", "seuclidean", "mahalanobis")  # a column of small numbers counts like one of large numbers


def library_metric(metric):
    """The library's name of a metric: that of the bits for packed ones. Functions are unchanged."""
    if callable(metric):
        return metric
    return _PACKED.get(metric) or stages.plain_name(metric)


def warn_of_units(X, metric):
    """Warns of rows that are valid for the metric, but look like something else."""
    name, values = library_metric(metric), _values(X)
    if name == "haversine" and values.size and np.abs(values).max() > 7:  # more than a whole turn
        warnings.warn(f"X: haversine takes radians, and {np.abs(values).max():g} looks like degrees; use numpy.radians(X)", stacklevel=4)
    if name in _BOOLEAN and values is X and np.mean(X == 0) < 0.1 and (X != np.floor(X)).any():
        warnings.warn(f"X: {name} compares only which values are 0, and there are fractions and hardly any 0", stacklevel=4)


def is_text(metric):
    return not callable(metric) and stages.plain_name(metric) == "string"


def is_packed(metric):
    return not callable(metric) and metric in _PACKED


def of_strings(X, width, metric_kwds):
    """Character codes [n, width], and -1 after the end. width None: such that a longer string has the largest distance
    from all of these; else longer strings are cut to it."""
    if isinstance(X, np.ndarray) and X.dtype.kind == "f":
        return X  # these are codes already
    texts = np.asarray(X, dtype=object)
    if texts.ndim == 2 and texts.shape[1] == 1:
        texts = texts[:, 0]
    if texts.ndim != 1 or not all(isinstance(text, str) for text in texts.tolist()):
        raise ValueError("X: with the metric 'string' expected a list of strings")
    if width is None:
        most = dict(metric_kwds or {}).get("max_distance", 20)
        width = max((len(text) for text in texts), default=0) + int(most) + 1
    codes = np.full((len(texts), width), -1, np.float32)
    for i, text in enumerate(texts):
        cut = text[:width]
        codes[i, : len(cut)] = [ord(letter) for letter in cut]
    return codes


def of_bits(X):
    """The bits of bytes, one a column."""
    X = np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "iub" or X.size and (X.min() < 0 or X.max() > 255):
        raise ValueError("X: a metric of bits takes bytes, [n, columns] of 0 to 255")
    return np.unpackbits(X.astype(np.uint8), axis=1).astype(np.float32)


# ---- Very large and very small numbers ------------------------------------------------------------------------------


def _values(X):
    return np.asarray(X.data) if stages._is_sparse(X) else X


def _largest(X):
    values = _values(X)
    if values.dtype.kind != "f" or values.dtype.itemsize < 4 or not values.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        largest = max(float(values.max()), -float(values.min()))
    return largest if np.isfinite(largest) else 0.0


def _grows(metric, metric_kwds):
    """Are distances multiplied with the rows? None: neither so nor unchanged."""
    name = metric if callable(metric) else stages.plain_name(metric)
    if name in ("seuclidean", "mahalanobis"):
        return bool(metric_kwds)
    return True if name in _GROWING else False if name in _FIXED else None


class Scale:
    """Powers of two by which rows are multiplied: `searched` where distances are measured, `kept` in the model. Measured
    distances are then those of rows times 2^of_rows."""

    def __init__(self, searched=0, kept=0, grows=False):
        self.searched, self.kept, self.grows = searched, kept, grows
        self.of_rows = searched + _LOWERED if grows and searched else searched
        self.of_distances = self.of_rows if grows else 0

    def to_search(self, X):
        return times(X, self.searched)

    def to_keep(self, X):
        return times(X, self.kept)

    def lowered(self, distances):
        """Distances between rows of to_search, as they are taken from then on."""
        return np.ldexp(distances, _LOWERED) if self.of_distances else distances

    def limit(self, distance, kept=False):
        """A limit of the user's, for distances as they are measured here or by the model."""
        exponent = self.kept if kept and self.grows else 0 if kept else self.of_distances
        return distance if distance is None else float(np.ldexp(np.float64(distance), exponent))


def _least(X, name):
    """The size of the smallest row, or number for a metric of columns, that is not 0."""
    sizes = np.abs(_values(X)) if name in _BY_COLUMN else _row_sizes(X)
    return float(sizes.min(where=sizes > 0, initial=np.inf))


def _row_sizes(X):
    if not stages._is_sparse(X):
        return np.maximum(X.max(axis=1), -X.min(axis=1))
    return abs(X).max(axis=1).toarray()


def scale_of(X, metric, metric_kwds):
    """The arguments of Scale for these rows; none where a factor is not needed, or would lose distances of small rows."""
    grows, largest = _grows(metric, metric_kwds), _largest(X)
    name = None if callable(metric) else stages.plain_name(metric)
    beyond, tiny = largest > _MOST, 0 < largest < _TINY and _values(X).dtype.itemsize > 4
    if grows is None or not (beyond or tiny) and (name in _FIXED or not 0 < largest < _SMALL and largest < _LARGE):
        return ()
    exponent = int(np.frexp(largest)[1])
    if largest < _SMALL:
        return _RAISED - exponent, _RAISED - exponent if tiny else 0, grows
    searched, lowest = (_KEPT, -_KEPT) if name in _FIXED else (_SEARCHED, _LEAST_SEARCHED)
    least = _least(X, name)
    if np.frexp(least)[1] - 1 + searched - exponent >= lowest:
        return searched - exponent, _KEPT - exponent if beyond else 0, grows
    if beyond:
        raise ValueError(
            f"X: sizes from {least:g} to {largest:g} are more than float32 holds together; scale the columns, or leave out the outliers"
        )
    return ()  # float32 holds these, so the library decides


def times(X, exponent):
    """X times 2^exponent, in float64; X itself if the exponent is 0."""
    if exponent == 0:
        return X
    if not stages._is_sparse(X):
        return np.ldexp(np.asarray(X, np.float64), exponent)
    made = X.astype(np.float64)
    made.data = np.ldexp(made.data, exponent)
    return made
