"""Maps on surfaces and with other distances than the Euclidean one (output_metric).

Each epoch moves every point by the sum of the forces on it, with Adam, as the library's own layout does. The work is
NumPy's, so the bits of such a map depend on NumPy's sine, cosine and powers."""
import numpy as np

from . import stages
from .adam import Adam

_CLIP = 4.0


# ---- Distances of rows x to rows y, and their gradients by x --------------------------------------------------------

def _haversine(x, y):
    """On the unit sphere; the columns are the polar angle and the azimuth."""
    half = (x - y) / 2
    sine, cosine = np.sin(half), np.cos(half)
    height = np.sin(x[:, 0]) * np.sin(y[:, 0])
    share = np.clip(sine[:, 0] ** 2 + height * sine[:, 1] ** 2, 0, 1)
    gradient = np.stack([sine[:, 0] * cosine[:, 0] + np.cos(x[:, 0]) * np.sin(y[:, 0]) * sine[:, 1] ** 2,
                         height * sine[:, 1] * cosine[:, 1]], 1)
    return 2 * np.arcsin(np.sqrt(share)), gradient / (np.sqrt(share * (1 - share)) + 1e-6)[:, None]


def _hyperboloid(x, y):
    """On the upper sheet of the hyperboloid whose height over a point x is sqrt(1 + |x|^2)."""
    s, t = (np.sqrt(1 + (z ** 2).sum(1)) for z in (x, y))
    inner = np.maximum(s * t - (x * y).sum(1), 1 + 1e-8)
    return np.arccosh(inner), (x * (t / s)[:, None] - y) / np.sqrt(inner ** 2 - 1)[:, None]


def _manhattan(x, y):
    return np.abs(x - y).sum(1), np.sign(x - y)


def _cosine(x, y):
    inner, s, t = (x * y).sum(1), np.sqrt((x ** 2).sum(1)), np.sqrt((y ** 2).sum(1))
    size = np.maximum(s * t, 1e-12)
    gradient = (x * (inner / np.maximum(s, 1e-12) ** 2)[:, None] - y) / size[:, None]
    return np.clip(1 - inner / size, 0, 2), gradient


METRICS = {"haversine": _haversine, "hyperboloid": _hyperboloid, "manhattan": _manhattan, "l1": _manhattan,
           "cosine": _cosine}


def metric_of(metric, keywords):
    """A function of rows x and y that returns distances and gradients. A function of the user's measures two rows."""
    if isinstance(metric, str):
        return METRICS[metric]

    def measure(x, y):
        found = [metric(a.copy(), b.copy(), **keywords) for a, b in zip(x, y, strict=True)]
        return np.array([f[0] for f in found], np.float64), np.array([f[1] for f in found], np.float64)
    return measure


def is_flat(metric):
    return isinstance(metric, str) and metric in ("euclidean", "l2")


def check(metric, n_components, densmap, keywords):
    """Raises a ValueError if this output_metric is not possible."""
    if is_flat(metric):
        return
    if densmap:
        raise ValueError(f"output_metric: densMAP's is 'euclidean', not {metric!r}")
    if keywords and not callable(metric):
        raise ValueError(f"output_metric_kwds: {metric!r} takes no {next(iter(keywords))!r}")
    if isinstance(metric, str) and metric == "haversine" and n_components != 2:
        raise ValueError(f"output_metric: 'haversine' has 2 components, not {n_components}")
    if callable(metric):
        try:
            given = metric(np.zeros(n_components), np.ones(n_components), **keywords)
        except Exception as error:
            raise ValueError(f"output_metric: the function failed: {error}") from None
        if not isinstance(given, tuple) or len(given) != 2 or not np.isfinite(given[0]) or \
                np.shape(given[1]) != (n_components,) or not np.isfinite(given[1]).all():
            raise ValueError("output_metric: the function must return the distance and its gradient by the first row, "
                             f"{n_components} numbers")
    elif not isinstance(metric, str) or metric not in METRICS:
        raise ValueError(f"output_metric: {metric!r} is not 'euclidean', one of {', '.join(map(repr, METRICS))}, or a "
                         f"function that returns a distance and its gradient")


def start(embedding, metric):
    """A start of -10 to 10, on the surface."""
    if isinstance(metric, str) and metric == "haversine":
        return (embedding.astype(np.float64) + 10) / 20 * np.array([np.pi, 2 * np.pi])
    return embedding / np.float32(10) if isinstance(metric, str) and metric == "hyperboloid" else embedding


# ---- The layout -----------------------------------------------------------------------------------------------------

def _sums(values, starts):
    """The sums of consecutive rows of `values`, in order: those of point v are starts[v] .. starts[v + 1] - 1."""
    whole = np.zeros((len(starts) - 1, values.shape[1]))
    filled = starts[:-1] < starts[1:]
    if filled.any():
        whole[filled] = np.add.reduceat(values, starts[:-1][filled], axis=0)
    return whole


def optimize(graph, embedding, fitted, measure, *, n_epochs, a, b, learning_rate, repulsion_strength,
             negative_sample_rate, random_state, progress=None):
    """Moves the points of `embedding` by the edges of `graph`, whose columns are points of `fitted`, or of the embedding
    itself if that is None. With `fitted` each row moves by itself: all rows draw the same samples. Returns the places,
    float32."""
    y = np.array(embedding, np.float64)
    starts, columns = np.asarray(graph.indptr, np.int64), np.asarray(graph.indices)
    weights = np.asarray(graph.data, np.float64)[:, None]
    rows = np.repeat(np.arange(len(y)), np.diff(starts))
    repulsion = _sums(weights, starts) * repulsion_strength  # one set of samples for each edge, by its weight
    rate = max(int(negative_sample_rate), 0)
    adam = Adam(y.shape, y.dtype)
    for epoch in range(n_epochs):
        others = y if fitted is None else fitted
        distance, gradient = measure(y[rows], others[columns])
        reach = a * np.maximum(distance, 1e-12) ** (2 * b)
        pull = -2 * b * reach / (1 + reach) / (distance + 1e-6)
        force = _sums(np.clip(pull[:, None] * gradient, -_CLIP, _CLIP) * weights, starts)
        drawn = stages.negative_targets(len(others), rate, epoch, random_state)
        drawn = drawn if fitted is None else np.broadcast_to(drawn[:1], (len(y), rate))
        for sample in drawn.T.astype(np.int64):
            distance, gradient = measure(y, others[sample])
            push = 2 * b / (1 + a * np.maximum(distance, 1e-12) ** (2 * b)) / (distance + 1e-6)
            force += np.clip(push[:, None] * gradient, -_CLIP, _CLIP) * repulsion
        y += adam.step(force, learning_rate * (1 - epoch / n_epochs), epoch)
        if progress is not None and progress("layout", (epoch + 1) / n_epochs):
            raise RuntimeError("layout: cancelled")
    return y.astype(np.float32)
