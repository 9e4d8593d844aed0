"""Rows of data as the library takes them: strings and packed bits as numbers, and very large numbers scaled."""
import numpy as np

from . import stages

_PACKED = {"bit_hamming": "manhattan", "bit_jaccard": "jaccard"}  # the metric of the bits
_LARGE = 2.0 ** 52  # squares of differences of smaller numbers are within float32
_SEARCHED, _KEPT = 34, 100  # exponents of the largest number: for a search, and in a model where float32 holds no larger

# Metrics that a factor changes in proportion or not at all.
_GROWING = ("euclidean", "manhattan", "chebyshev", "minkowski", "wminkowski")
_FIXED = ("canberra", "braycurtis", "cosine", "correlation", "hellinger")


def library_metric(metric):
    """The library's name of a metric: that of the bits for packed ones. Functions are unchanged."""
    if callable(metric):
        return metric
    return _PACKED.get(metric) or stages.plain_name(metric)


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
        codes[i, :len(cut)] = [ord(letter) for letter in cut]
    return codes


def of_bits(X):
    """The bits of bytes, one a column."""
    X = np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "iub" or X.size and (X.min() < 0 or X.max() > 255):
        raise ValueError("X: a metric of bits takes bytes, [n, columns] of 0 to 255")
    return np.unpackbits(X.astype(np.uint8), axis=1).astype(np.float32)


# ---- Very large numbers ---------------------------------------------------------------------------------------------

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
    """Powers of two by which rows are multiplied: `searched` where distances are measured, `kept` in the model."""

    def __init__(self, searched=0, kept=0, grows=False):
        self.searched, self.kept, self.grows = searched, kept, grows
        self.of_distances = searched if grows else 0

    def to_search(self, X):
        return times(X, self.searched)

    def to_keep(self, X):
        return times(X, self.kept)

    def limit(self, distance, kept=False):
        """A limit of the user's, for distances as they are measured here or by the model."""
        exponent = self.kept if kept and self.grows else 0 if kept else self.of_distances
        return distance if distance is None else float(np.ldexp(np.float64(distance), exponent))


def scale_of(X, metric, metric_kwds):
    """The arguments of Scale for these rows."""
    grows, largest = _grows(metric, metric_kwds), _largest(X)
    if grows is None or largest < _LARGE:
        return ()
    exponent = int(np.frexp(largest)[1])
    return _SEARCHED - exponent, _KEPT - exponent if largest > float(np.finfo(np.float32).max) else 0, grows


def times(X, exponent):
    """X times 2^exponent, in float64; X itself if the exponent is 0."""
    if exponent == 0:
        return X
    if not stages._is_sparse(X):
        return np.ldexp(np.asarray(X, np.float64), exponent)
    made = X.astype(np.float64)
    made.data = np.ldexp(made.data, exponent)
    return made
