"""The targets of a supervised fit: what y means under each target_metric."""

import numbers
import warnings

import numpy as np

from . import stages
from .functions import distance_of

NUMBER_METRICS = ("euclidean", "l2", "l1", "manhattan")  # for single numbers these are the same distance


def is_missing(value):
    """Is it None, NaN, or pandas' NA or NaT?"""
    if value is None or isinstance(value, bool):
        return value is None
    unequal = value != value
    return unequal is value or bool(unequal)  # NA != NA is NA


def _is_unknown(value):
    """Is a category missing or a negative number?"""
    return is_missing(value) or isinstance(value, numbers.Real) and bool(value < 0)


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


def _with_nan(y):
    """y, in which None and pandas' NA are NaN if all others are numbers."""
    if y.dtype.kind != "O" or not all(is_missing(v) or isinstance(v, numbers.Real) for v in y):
        return y
    return np.array([np.nan if is_missing(v) else v for v in y], np.float64)


def _numbers(y, target_metric, dtype=np.float32, unknown=False):
    """y in this dtype, checked. unknown: may some be NaN?"""
    if y.dtype.kind not in "fiub":
        raise ValueError(f"y: expected numbers, as target_metric is {target_metric!r}, got dtype {y.dtype}")
    with np.errstate(over="ignore"):
        values = y.astype(dtype)
    wrong = np.argwhere(np.isinf(values) if unknown else ~np.isfinite(values))
    if len(wrong):
        at = tuple(wrong[0])
        raise ValueError(
            f"y: element {', '.join(map(str, at))} is {y[at]}, and target_metric {target_metric!r} needs "
            f"finite numbers within {np.dtype(dtype).name}'s range; 'categorical' takes what is not known"
        )
    return values


def _near_zero(y):
    """Numbers less their middle, if float32 would lose the digits in which they differ: as the library has it for data."""
    y = y.astype(np.float64)
    known = y[~np.isnan(y)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    middle = low / 2 + high / 2
    exact = (known == known.astype(np.float32)).all()
    return (y if exact or abs(middle) < 16 * (high / 2 - low / 2) else y - middle).astype(np.float32)


def _warn_of_numbers(y):
    """Warns of categories of which nearly each has a single point, and which are fractions."""
    if y.dtype.kind == "f":
        known = y[np.isfinite(y)]
        if len(known) > 20 and len(np.unique(known)) > len(known) / 2 and (known != np.floor(known)).any():
            warnings.warn(
                f"y looks like numbers, {len(np.unique(known))} different ones, and target_metric 'categorical' takes "
                f"each for a category; target_metric='l2' compares numbers",
                stacklevel=4,
            )


# ---- Distances between two targets ----------------------------------------------------------------------------------


def _ordinal(y):
    """The distance of two ranks, in halves of the range of all."""
    half = float(y.max() - y.min()) / 2.0 or 1.0
    return lambda a, b: np.abs(y[a] - y[b]) / half


def _count(y):
    """The Poisson log-probabilities of the counts between two, in halves of those between the least and the greatest.
    The rate is the mean count."""
    import napier

    if len(y) and (y.min() < 0 or y.max() > 10**7 or (y != np.floor(y)).any()):
        wrong = np.flatnonzero((y < 0) | (y > 10**7) | (y != np.floor(y)))[0]
        raise ValueError(f"y: element {wrong} is {y[wrong]}, and target_metric 'count' needs whole numbers from 0 to 10,000,000")
    y = y.astype(np.int64)
    steps = np.arange(1, max(int(y.max()), 1) + 1, dtype=np.float64)
    rate = max(float(y.mean()), 1e-300)
    log = napier.logsumexp(np.zeros((len(steps) + 1, 1)), axis=1, b=np.append(steps, rate)[:, None])  # log of b
    log_factorial = np.append(0.0, np.cumsum(log[:-1]))[: len(steps)]
    sums = np.append(0.0, np.cumsum((steps - 1) * log[-1] - rate - log_factorial))
    half = abs(sums[y.max()] - sums[y.min()]) / 2.0 or 1.0
    return lambda a, b: np.abs(sums[y[a]] - sums[y[b]]) / half


def edit_distance(a, b, most):
    """The number of insertions, deletions and substitutions that make b of a (Levenshtein); at most `most`."""
    before = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other)))
        before = row
        if min(row) > most:
            return most
    return min(before[-1], most)


def _string(y):
    """The edit distance of two strings, in thirds of the longest length, at most 1."""
    texts, which = np.unique([str(value) for value in y], return_inverse=True)
    most = max((len(text) for text in texts), default=1) / 3.0 or 1.0
    known = {}

    def distance(a, b):
        pairs = np.stack([np.minimum(which[a], which[b]), np.maximum(which[a], which[b])], 1)
        kinds, at = np.unique(pairs, axis=0, return_inverse=True)
        for i, j in kinds.tolist():
            if (i, j) not in known:
                known[i, j] = edit_distance(texts[i], texts[j], most) / most
        return np.array([known[i, j] for i, j in kinds.tolist()])[at.ravel()]

    return distance


def _hierarchy(y, cat_hierarchy=()):
    """The share of the levels at which two categories differ; each level maps a category to its group."""
    for n, level in enumerate(cat_hierarchy):
        missing = [value for value in y.tolist() if value not in level]
        if missing:
            raise ValueError(f"target_metric_kwds: level {n} of cat_hierarchy has no {missing[0]!r}")
    levels = [np.unique([str(level[value]) for value in y.tolist()], return_inverse=True)[1] for level in cat_hierarchy]
    if not levels:
        raise ValueError("target_metric_kwds: hierarchical_categorical needs cat_hierarchy, a list of mappings")

    def distance(a, b):
        result = np.ones(len(a))
        for level in range(len(levels) - 1, -1, -1):
            result[levels[level][a] == levels[level][b]] = level / len(levels)
        return result

    return distance


_DISTANCES = {"ordinal": _ordinal, "count": _count, "string": _string, "myers": _string, "hierarchical_categorical": _hierarchy}
NAMES = ("categorical", *_DISTANCES)


# ---- Joining --------------------------------------------------------------------------------------------------------


def check_metric(metric):
    if metric in NAMES or callable(metric):
        return
    stages._metric(metric, None, "target_metric")


def prepare(y, n, target_metric, target_metric_kwds):
    """y as the arguments of stages.fit, where these can say it; else as {"join": function(graph, k, weight)}."""
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    several = target_metric not in NAMES and y.ndim == 2
    if len(y.shape) not in (1, 1 + several) or len(y) != n:
        raise ValueError(f"y: expected one value for each of {n} samples, got the shape {y.shape}")
    keywords = dict(target_metric_kwds or {})
    known = {"hierarchical_categorical": ("cat_hierarchy",)}.get(target_metric, ()) if target_metric in NAMES else keywords
    for name in keywords:
        if name not in known:
            raise ValueError(f"target_metric_kwds: {target_metric} takes no {name!r}")
    if target_metric == "categorical":
        _warn_of_numbers(y)
        return {"categories": _categories(y)}
    if target_metric in NUMBER_METRICS and y.ndim == 1 and not keywords:
        y = _with_nan(y)
        _numbers(y, target_metric, unknown=True)
        return {"numbers": _near_zero(y)}
    if target_metric in _DISTANCES:
        if target_metric in ("ordinal", "count"):
            y = _numbers(y, target_metric, np.float64)
        return {"join": _join_distances(_DISTANCES[target_metric](y, **keywords))}
    return {"join": _join_set(_numbers(y, target_metric, np.float64).reshape(n, -1), target_metric, keywords)}


def _join_distances(distance):
    def join(graph, k, weight):
        rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
        return stages.join_distances(graph, distance(rows, graph.indices), weight)

    return join


def _join_set(values, metric, keywords):
    """Joins with the fuzzy set of the targets themselves."""

    def join(graph, k, weight):
        if callable(metric):
            found = distance_of(metric, keywords, "target_metric").neighbors(values, k)
        else:
            found = stages.nearest_neighbors(values, k, metric, keywords)
        return stages.combine(graph, stages.fuzzy_simplicial_set(*found), "intersection", weight)

    return join


def join(graph, targets, k, weight):
    """The graph, combined with what prepare returned."""
    if "categories" in targets:
        return stages.join_categories(graph, targets["categories"], weight)
    if "numbers" in targets:
        return stages.join_numbers(graph, targets["numbers"], min(k, graph.shape[0]), weight)
    if "join" in targets:
        return targets["join"](graph, min(k, graph.shape[0]), weight)
    return graph
