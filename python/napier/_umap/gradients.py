"""Distances of rows x from rows y, both float64 [rows, columns], and their gradients by x. Where a distance has a corner
the gradient is one of its sides. The same bits on every machine (elementary)."""

import numpy as np

from .elementary import PI, arccosh, arcsin, cos, exp, log, power, sin

_SMALL = 1e-12


def _root(square):
    """The root of a sum of squares, and a divisor for its gradient."""
    distance = np.sqrt(square)
    return distance, (distance + 1e-6)[:, None]


def _total(x):
    return x.sum(axis=1)


def _euclidean(x, y):
    gap = x - y
    distance, divisor = _root(_total(gap * gap))
    return distance, gap / divisor


def _seuclidean(x, y, V):
    gap, V = x - y, np.asarray(V, np.float64)
    distance, divisor = _root(_total(gap * gap / V))
    return distance, gap / V / divisor


def _mahalanobis(x, y, VI):
    gap, VI = x - y, np.asarray(VI, np.float64)
    turned = np.zeros_like(gap)
    for j in range(gap.shape[1]):  # not by BLAS, whose order of a sum is its own
        turned += gap[:, j : j + 1] * VI[j]
    distance, divisor = _root(np.maximum(_total(turned * gap), 0))
    return distance, turned / divisor


def _manhattan(x, y):
    return _total(np.abs(x - y)), np.sign(x - y)


def _chebyshev(x, y):
    gap = x - y
    at, rows = np.abs(gap).argmax(axis=1), np.arange(len(gap))
    gradient = np.zeros_like(gap)
    gradient[rows, at] = np.sign(gap[rows, at])
    return np.abs(gap[rows, at]), gradient


def _minkowski(x, y, p=2.0, w=1.0):
    gap = x - y
    largest = np.maximum(np.abs(gap).max(axis=1, keepdims=True), _SMALL)
    if np.isinf(p):
        return _chebyshev(x, y)
    shares = np.abs(gap) / largest
    powers = power(shares, p - 1.0) if p > 1 else np.ones_like(shares)
    total = np.maximum(_total(w * powers * shares), _SMALL)[:, None]
    return (largest * power(total, 1 / p))[:, 0], w * powers * np.sign(gap) * (power(total, 1 / p) / total)


def _wminkowski(x, y, w=1.0, p=2.0):
    return _minkowski(x, y, p, np.asarray(w, np.float64))


def _canberra(x, y):
    gap, size = x - y, np.maximum(np.abs(x) + np.abs(y), _SMALL)
    return _total(np.abs(gap) / size), (np.sign(gap) - np.abs(gap) * np.sign(x) / size) / size


def _braycurtis(x, y):
    whole = np.maximum(_total(np.abs(x + y)), _SMALL)
    distance = _total(np.abs(x - y)) / whole
    return distance, (np.sign(x - y) - distance[:, None] * np.sign(x + y)) / whole[:, None]


def _cosine(x, y):
    inner, s, t = _total(x * y), np.sqrt(_total(x * x)), np.sqrt(_total(y * y))
    size = np.maximum(s * t, _SMALL)
    gradient = (x * (inner / np.maximum(s, _SMALL) ** 2)[:, None] - y) / size[:, None]
    return np.clip(1 - inner / size, 0, 2), gradient


def _correlation(x, y):
    return _cosine(x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True))


def _hellinger(x, y):
    x, y = np.maximum(x, 0), np.maximum(y, 0)
    size = np.maximum(np.sqrt(_total(x) * _total(y)), _SMALL)
    shared = _total(np.sqrt(x * y)) / size
    distance, divisor = _root(np.maximum(1 - shared, 0))
    away = np.sqrt(y / np.maximum(x, _SMALL)) / size[:, None] - (shared / np.maximum(_total(x), _SMALL))[:, None]
    return distance, -away / (4 * divisor)


def _softmax(x):
    raised = exp(x - x.max(axis=1, keepdims=True))
    return raised / _total(raised)[:, None]


def _softmax_hellinger(x, y):
    p, roots = _softmax(x), np.sqrt(_softmax(x) * _softmax(y))
    shared = _total(roots)
    distance, divisor = _root(np.maximum(1 - shared, 0))
    return distance, (p * shared[:, None] - roots) / (4 * divisor)


def _symmetric_kl(x, y, z=1e-11):
    x, y = np.maximum(x, 0) + z, np.maximum(y, 0) + z
    whole = _total(x)[:, None]
    p, q = x / whole, y / _total(y)[:, None]
    logs = log(p) - log(q)
    by_share = (logs + (p - q) / p) / 2
    return _total((p - q) * logs) / 2, (by_share - _total(p * by_share)[:, None]) / whole


def _haversine(x, y):
    """On the unit sphere; the columns are the polar angle and the azimuth."""
    half = (x - y) / 2
    sine, cosine = sin(half), cos(half)
    height = sin(x[:, 0]) * sin(y[:, 0])
    share = np.clip(sine[:, 0] ** 2 + height * sine[:, 1] ** 2, 0, 1)
    gradient = np.stack([sine[:, 0] * cosine[:, 0] + cos(x[:, 0]) * sin(y[:, 0]) * sine[:, 1] ** 2, height * sine[:, 1] * cosine[:, 1]], 1)
    return 2 * arcsin(np.sqrt(share)), gradient / (np.sqrt(share * (1 - share)) + 1e-6)[:, None]


def _of_places(x, y):
    """The haversine distance of latitudes and longitudes: polar angles count from a pole."""
    return _haversine(x + np.array([PI / 2, 0]), y + np.array([PI / 2, 0]))


def _hyperboloid(x, y):
    """On the upper sheet of the hyperboloid whose height over a point x is sqrt(1 + |x|^2)."""
    s, t = (np.sqrt(1 + _total(z * z)) for z in (x, y))
    inner = np.maximum(s * t - _total(x * y), 1 + 1e-8)
    return arccosh(inner), (x * (t / s)[:, None] - y) / np.sqrt(inner**2 - 1)[:, None]


# ---- Energies of pairs of Gaussians: the negative logarithm of their overlap ----------------------------------------
# A point of the map is a Gaussian: its centre, then its variances. Variances count by their size, whatever their sign.

_LOG_2_PI = float(log(np.array([2 * PI]))[0])


def _spherical_gaussian_energy(x, y):
    """Columns: the centre (2), the variance."""
    gap = x[:, :2] - y[:, :2]
    width = np.maximum(np.abs(x[:, 2]) + np.abs(y[:, 2]), _SMALL)
    square = _total(gap * gap)
    by_width = np.sign(x[:, 2]) * (1 / width - square / (2 * width * width))
    return square / (2 * width) + log(width) + _LOG_2_PI, np.column_stack([gap / width[:, None], by_width])


def _diagonal_gaussian_energy(x, y):
    """Columns: the centre (2), the variances along the axes (2)."""
    gap = x[:, :2] - y[:, :2]
    width = np.maximum(np.abs(x[:, 2:4]) + np.abs(y[:, 2:4]), _SMALL)
    by_width = np.sign(x[:, 2:4]) * (1 / width - (gap / width) ** 2) / 2
    return _total(gap * gap / width + log(width)) / 2 + _LOG_2_PI, np.column_stack([gap / width, by_width])


def _gaussian_energy(x, y):
    """Columns: the centre (2), the variances along the Gaussian's own axes (2), the angle of the first axis. As in
    umap-learn this energy is twice that of the others."""
    first, second = x[:, 0] - y[:, 0], x[:, 1] - y[:, 1]
    c, s = cos(x[:, 4]), sin(x[:, 4])
    other_c, other_s = cos(y[:, 4]), sin(y[:, 4])
    u, v, other_u, other_v = np.abs(x[:, 2]), np.abs(x[:, 3]), np.abs(y[:, 2]), np.abs(y[:, 3])
    a = u * c * c + v * s * s + other_u * other_c**2 + other_v * other_s**2
    b = (u - v) * s * c + (other_u - other_v) * other_s * other_c
    d = u * s * s + v * c * c + other_u * other_s**2 + other_v * other_c**2
    size = np.maximum(a * d - b * b, _SMALL)
    # the inverse of the sum of the covariances times the gap, and the gradient by the covariance: inverse - solved solved'
    p, q = (d * first - b * second) / size, (a * second - b * first) / size
    by_a, by_b, by_d = d / size - p * p, -b / size - p * q, a / size - q * q
    by_u = np.sign(x[:, 2]) * (by_a * c * c + 2 * by_b * s * c + by_d * s * s)
    by_v = np.sign(x[:, 3]) * (by_a * s * s - 2 * by_b * s * c + by_d * c * c)
    by_angle = (u - v) * (2 * by_b * (c * c - s * s) + 2 * s * c * (by_d - by_a))
    return first * p + second * q + log(size) + _LOG_2_PI, np.stack([2 * p, 2 * q, by_u, by_v, by_angle], 1)


OF_DATA = {
    "euclidean": _euclidean,
    "manhattan": _manhattan,
    "chebyshev": _chebyshev,
    "minkowski": _minkowski,
    "wminkowski": _wminkowski,
    "seuclidean": _seuclidean,
    "mahalanobis": _mahalanobis,
    "canberra": _canberra,
    "braycurtis": _braycurtis,
    "cosine": _cosine,
    "correlation": _correlation,
    "hellinger": _hellinger,
    "softmax_hellinger": _softmax_hellinger,
    "symmetric_kl": _symmetric_kl,
    "haversine": _of_places,
}
OF_MAPS = {name: OF_DATA[name] for name in OF_DATA if name not in ("euclidean", "haversine")} | {
    "haversine": _haversine,
    "hyperboloid": _hyperboloid,
    "spherical_gaussian_energy": _spherical_gaussian_energy,
    "diagonal_gaussian_energy": _diagonal_gaussian_energy,
    "gaussian_energy": _gaussian_energy,
}
COMPONENTS = {"haversine": 2, "spherical_gaussian_energy": 3, "diagonal_gaussian_energy": 4, "gaussian_energy": 5}
