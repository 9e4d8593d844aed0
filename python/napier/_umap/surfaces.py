"""Maps on surfaces and with other distances than the Euclidean one (output_metric).

Each epoch moves every point by the sum of the forces on it, with Adam, as the library's own layout does. The work is
NumPy's, in float64, with the same bits on every machine."""

from typing import Any

import numpy as np

from . import gradients, stages
from .adam import Adam
from .elementary import power

_CLIP = 4.0
METRICS = gradients.OF_MAPS
_PARAMETERS = {"minkowski": ("p",), "wminkowski": ("w", "p"), "seuclidean": ("V",), "mahalanobis": ("VI",), "symmetric_kl": ("z",)}
_NEEDED = ("V", "VI")


def metric_of(metric, keywords, table=None):
    """A function of rows x and y that returns distances and gradients. A function of the user's measures two rows."""
    if isinstance(metric, str):
        known: dict[str, Any] = METRICS if table is None else table
        measured = known[stages.plain_name(metric)]
        keywords = stages.plain_keywords(keywords)
        return lambda x, y: measured(x, y, **keywords)

    def measure(x, y):
        found = [metric(a.copy(), b.copy(), **keywords) for a, b in zip(x, y, strict=True)]
        return np.array([f[0] for f in found], np.float64), np.array([f[1] for f in found], np.float64)

    return measure


def is_flat(metric):
    return isinstance(metric, str) and stages.plain_name(metric) == "euclidean"


def check(metric, n_components, densmap, keywords):
    """Raises a ValueError if this output_metric is not possible."""
    if is_flat(metric):
        return
    if densmap:
        raise ValueError(f"output_metric: densMAP's is 'euclidean', not {metric!r}")
    if callable(metric):
        try:
            given = metric(np.zeros(n_components), np.ones(n_components), **keywords)
        except Exception as error:
            raise ValueError(f"output_metric: the function failed: {error}") from None
        if (
            not isinstance(given, tuple)
            or len(given) != 2
            or not np.isfinite(given[0])
            or np.shape(given[1]) != (n_components,)
            or not np.isfinite(given[1]).all()
        ):
            raise ValueError(
                f"output_metric: the function must return the distance and its gradient by the first row, {n_components} numbers"
            )
    elif isinstance(metric, str) and stages.plain_name(metric) in METRICS:
        _check_named(stages.plain_name(metric), n_components, stages.plain_keywords(keywords))
    else:
        raise ValueError(
            f"output_metric: {metric!r} is not 'euclidean', one of {', '.join(map(repr, METRICS))}, or a "
            f"function that returns a distance and its gradient"
        )


def _check_named(name, n_components, keywords):
    wanted = gradients.COMPONENTS.get(name, n_components)
    if n_components != wanted:
        raise ValueError(f"output_metric: {name!r} has {wanted} components, not {n_components}")
    for keyword, value in keywords.items():
        if keyword not in _PARAMETERS.get(name, ()):
            raise ValueError(f"output_metric_kwds: {name!r} takes no {keyword!r}")
        size = {"w": (n_components,), "V": (n_components,), "VI": (n_components, n_components)}.get(keyword, ())
        if np.shape(value) != size or not np.isfinite(np.asarray(value, np.float64)).all() and keyword != "p":
            raise ValueError(f"output_metric_kwds: {keyword} is not finite numbers of the shape {size}")
    for keyword in _PARAMETERS.get(name, ()):
        if keyword in _NEEDED and keyword not in keywords:
            raise ValueError(f"output_metric_kwds: {name!r} needs {keyword!r}")
    if not keywords.get("p", 1) >= 1:
        raise ValueError(f"output_metric_kwds: p {keywords['p']} is not at least 1")


def start(embedding, metric):
    """A start of -10 to 10, on the surface. Variances start at 1, angles at 0."""
    name = stages.plain_name(metric) if isinstance(metric, str) else None
    if name == "haversine":
        return (embedding.astype(np.float64) + 10) / 20 * np.array([np.pi, 2 * np.pi])
    if name in gradients.COMPONENTS:
        begun = np.ones_like(embedding)
        begun[:, :2] = embedding[:, :2]
        begun[:, 4:] = 0
        return begun
    return embedding / np.float32(10) if name == "hyperboloid" else embedding


# ---- The layout -----------------------------------------------------------------------------------------------------


def _sums(values, starts):
    """The sums of consecutive rows of `values`, in order: those of point v are starts[v] .. starts[v + 1] - 1."""
    whole = np.zeros((len(starts) - 1, values.shape[1]))
    filled = starts[:-1] < starts[1:]
    if filled.any():
        whole[filled] = np.add.reduceat(values, starts[:-1][filled], axis=0)
    return whole


def optimize(
    graph,
    embedding,
    fitted,
    measure,
    *,
    n_epochs,
    a,
    b,
    learning_rate,
    repulsion_strength,
    negative_sample_rate,
    random_state,
    maps_after=(),
    progress=None,
):
    """Moves the points of `embedding` by the edges of `graph`, whose columns are points of `fitted`, or of the embedding
    itself if that is None. With `fitted` each row moves by itself: all rows draw the same samples. Returns the places,
    float32; with maps_after a list of those after so many epochs, and the last ones."""
    y = np.array(embedding, np.float64)
    starts, columns = np.asarray(graph.indptr, np.int64), np.asarray(graph.indices)
    weights = np.asarray(graph.data, np.float64)[:, None]
    rows = np.repeat(np.arange(len(y)), np.diff(starts))
    repulsion = _sums(weights, starts) * repulsion_strength  # one set of samples for each edge, by its weight
    rate = max(int(negative_sample_rate), 0)
    adam = Adam(y.shape, y.dtype)
    maps = [y.astype(np.float32)] if 0 in maps_after else []
    for epoch in range(n_epochs):
        others = y if fitted is None else fitted
        distance, gradient = measure(y[rows], others[columns])
        distance = np.maximum(distance, 1e-12)  # an energy may be negative
        reach = a * power(distance, 2 * b)
        pull = -2 * b * reach / (1 + reach) / (distance + 1e-6)
        force = _sums(np.clip(pull[:, None] * gradient, -_CLIP, _CLIP) * weights, starts)
        drawn = stages.negative_targets(len(others), rate, epoch, random_state)
        drawn = drawn if fitted is None else np.broadcast_to(drawn[:1], (len(y), rate))
        for sample in drawn.T.astype(np.int64):
            distance, gradient = measure(y, others[sample])
            distance = np.maximum(distance, 1e-12)
            push = 2 * b / (1 + a * power(distance, 2 * b)) / (distance + 1e-6)
            force += np.clip(push[:, None] * gradient, -_CLIP, _CLIP) * repulsion
        y += adam.step(force, learning_rate * (1 - epoch / n_epochs), epoch)
        if epoch + 1 in maps_after:
            maps.append(y.astype(np.float32))
        if progress is not None and progress("layout", (epoch + 1) / n_epochs):
            raise RuntimeError("layout: cancelled")
    return [*maps, y.astype(np.float32)] if len(maps_after) else y.astype(np.float32)
