"""Points and lines in the pixels of a picture, and the shades of their counts. All sums are integers, and logarithms are
Napier's, so a picture has the same bytes on every machine, for any number of threads."""

from __future__ import annotations

import numbers
from typing import Any, Sequence

import numpy as np

from .. import _napier
from . import stages

MOST_PIXELS = 65536


def frame_of(extent, width, height):
    """The frame for the extension: extent is (left, right, bottom, top), as matplotlib has it."""
    try:
        left, right, bottom, top = (float(edge) for edge in extent)
    except (TypeError, ValueError):
        raise ValueError(f"extent: expected (left, right, bottom, top), got {extent!r}") from None
    for name, size in (("width", width), ("height", height)):
        if not isinstance(size, numbers.Integral) or not 1 <= int(size) <= MOST_PIXELS:
            raise ValueError(f"{name}: {size!r} is not a number of pixels from 1 to {MOST_PIXELS}")
    return {"left": left, "right": right, "bottom": bottom, "top": top, "width": int(width), "height": int(height)}


def raster_points(
    points: Any,
    codes: Any = None,
    amounts: Any = ((1,),),
    *,
    extent: Sequence[float],
    width: int = 800,
    height: int = 800,
    threads: int = 0,
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Sums over the points of each pixel, int64 [height, width, channels]; row 0 is at the top.

    points [n, 2]; a point that is NaN or outside of `extent` (left, right, bottom, top) is left out. amounts [kinds,
    channels], integers: what a point of each kind adds. codes [n]: the kind of each point, or below 0 to leave it out;
    None: all are of kind 0. The default counts the points.

    Examples
    --------
    >>> import napier
    >>> places = [[0.1, 0.1], [0.2, 0.9], [0.3, 0.8]]
    >>> napier.umap.raster_points(places, extent=(0, 1, 0, 1), width=2, height=2)[:, :, 0]
    array([[2, 0],
           [1, 0]])
    """
    places = stages._array(points, "points", np.float32, 2)
    kinds = None if codes is None else stages._array(codes, "codes", np.int32, 1)
    table = stages._array(amounts, "amounts", np.int32, 2)
    frame = frame_of(extent, width, height)
    sums = np.empty((frame["height"] * frame["width"], table.shape[1]), np.int64)
    _napier._umap_raster_points(places, kinds, table, sums, frame | stages._common(threads, None))
    return sums.reshape(frame["height"], frame["width"], -1)


def raster_lines(
    points: Any, amounts: Any = None, *, extent: Sequence[float], width: int = 800, height: int = 800, threads: int = 0
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Sums over the lines through each pixel, int64 [height, width]; row 0 is at the top.

    Line i leads from points[i] to points[i + 1] and adds amounts[i], an integer (None: 1). A row of points that is NaN or
    outside of `extent` has no line, so NaN rows separate paths.

    Examples
    --------
    >>> import napier
    >>> napier.umap.raster_lines([[0.2, 0.2], [1.8, 1.8]], extent=(0, 2, 0, 2), width=2, height=2)
    array([[0, 1],
           [1, 0]])
    """
    places = stages._array(points, "points", np.float32, 2)
    weights = np.ones(len(places), np.int32) if amounts is None else stages._array(amounts, "amounts", np.int32, 1)
    frame = frame_of(extent, width, height)
    sums = np.empty((frame["height"] * frame["width"], 1), np.int64)
    _napier._umap_raster_lines(places, weights, sums, frame | stages._common(threads, None))
    return sums.reshape(frame["height"], frame["width"])


def levels(counts, how="eq_hist", unit=1):
    """A shade from 0 to 1 for each count above 0, float64 of the same shape; NaN for the others. 'eq_hist' is the share
    of pixels with a lower count, so that each shade covers about as many pixels; 'log' is log(1 + count / unit), 'linear'
    the count."""
    result = np.full(counts.shape, np.nan)
    shown = counts > 0
    if not shown.any():
        return result
    values, places, pixels = np.unique(counts[shown], return_inverse=True, return_counts=True)
    if how == "eq_hist":
        scale = np.cumsum(pixels).astype(np.float64)
    elif how == "log":
        import napier

        scale = napier.logsumexp(np.zeros((len(values), 1)), axis=1, b=1.0 + values[:, None] / unit)
    elif how == "linear":
        scale = values.astype(np.float64)
    else:
        raise ValueError(f"how: {how!r} is not 'eq_hist', 'log' or 'linear'")
    length = scale[-1] - scale[0]
    result[shown] = ((scale - scale[0]) / length if length > 0 else np.ones(len(values)))[places.ravel()]
    return result
