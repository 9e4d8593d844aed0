"""Plots of maps: the functions of umap.plot with their arguments and themes.

    from napier import UMAP
    import napier.umap.plot as plot

    mapper = UMAP().fit(data)
    plot.points(mapper, labels=labels)
    plot.interactive(mapper, labels=labels, hover_data={"name": names}).save("map.html")

Pictures are matplotlib's, which is imported at the first plot. Where points or edges are too many for it, Napier adds
them up in the pixels of a picture, which has the same bytes on every machine. The interactive map is one HTML page, which
needs neither matplotlib nor a network. docs/umap-plot.md has pictures and the differences from umap.plot.
"""

from __future__ import annotations

import numbers
import warnings
from os import PathLike
from typing import Any, Mapping, Optional, Sequence

import numpy as np

from napier._umap import colours, diagnostics, page, places as _place  # absolute: the module may be loaded as umap.plot as well
from napier._umap import raster as _raster
from napier._umap.bundle import bundle as _bundle
from napier._umap.page import InteractiveMap

__all__ = [
    "InteractiveMap",
    "connectivity",
    "diagnostic",
    "interactive",
    "nearest_neighbour_distribution",
    "output_file",
    "output_notebook",
    "points",
    "show",
]

_FAINTEST = 96 / 255  # opacity of a pixel with the lowest count, where colours show labels or values
_ONE = 65536  # the amount of an edge of weight 1
_TOOLS = ("pan", "wheel_zoom", "box_zoom", "save", "reset")
_ALWAYS = ("hover", "help")
_target = {"file": None, "notebook": False, "title": None}  # of show


# ---- What is drawn ----------------------------------------------------------------------------------------------------


def _places(umap_object, places=None):
    """The map's points [n, 2]."""
    if places is None:
        places = getattr(umap_object, "embedding_", None)
    if places is None:
        places = getattr(umap_object, "embedding", None)
    if places is None:
        raise ValueError(f"umap_object: {type(umap_object).__name__} has no embedding_; fit it first")
    places = np.asarray(places)
    if places.ndim != 2 or places.shape[1] != 2:
        raise ValueError(f"umap_object: plots need a map of two dimensions, got the shape {places.shape}")
    if places.dtype.kind not in "fiub":
        raise TypeError(f"umap_object: expected numbers, got an array of dtype {places.dtype}")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(places, np.float32)


class _Points:
    """The points that are drawn, their rows in the data, and what colours them."""

    def __init__(self, places, labels=None, values=None, subset_points=None):
        n = len(places)
        if labels is not None and values is not None:
            raise ValueError("labels and values: give only one of them")
        self.labels = _one_each(labels, "labels", n)
        self.values = None if values is None else _as_numbers(_one_each(values, "values", n))
        shown = np.isfinite(places[:, 0]) & np.isfinite(places[:, 1])
        if subset_points is not None:
            shown &= _mask(subset_points, n)
        self.rows = np.flatnonzero(shown)
        self.places = places if len(self.rows) == n else places[self.rows]
        self.labels = None if self.labels is None else self.labels[self.rows]
        self.values = None if self.values is None else self.values[self.rows]

    def __len__(self):
        return len(self.rows)

    def colour(self, look, color_key):
        """(table uint8 [shades, 3], the shade of each point or None)."""
        if self.labels is not None:
            self.kinds = colours.categories(self.labels)
            return colours.category_colours(self.kinds, color_key, look.color_key_cmap, look.background), self.kinds.codes
        if self.values is not None:
            table = np.vstack([colours.value_scale(look.cmap, look.background), np.array([colours.GREY], np.uint8)])
            return table, colours.value_steps(self.values).codes
        return colours.scale(look.cmap, 3)[1:2], None


def _one_each(given, name, n):
    if given is None:
        return None
    array = np.asarray(given)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n,):
        raise ValueError(f"{name}: expected {n}, one for each point, got the shape {array.shape}")
    return array


def _as_numbers(values):
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        wrong = next((value for value in values.tolist() if not _is_number(value)), values.dtype)
        raise ValueError(f"values: {wrong!r} is not a number; give categories as labels") from None


def _is_number(value):
    try:
        return value is None or float(value) is not None
    except (TypeError, ValueError):
        return False


def _mask(subset_points, n):
    """A subset as a mask; umap.plot takes masks, and indices here too."""
    subset = np.asarray(subset_points)
    if subset.dtype == bool:
        return _one_each(subset, "subset_points", n)
    if subset.dtype.kind not in "iu" or subset.ndim != 1:
        raise ValueError(f"subset_points: expected {n} booleans or a list of indices, got {subset.dtype} of the shape {subset.shape}")
    if len(subset) and not (-n <= subset.min() and subset.max() < n):
        raise ValueError(f"subset_points: {subset.min()} .. {subset.max()} are not indices of {n} points")
    mask = np.zeros(n, bool)
    mask[subset] = True
    return mask


def _check_share(name, value):
    if not isinstance(value, numbers.Real) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}: {value!r} is not 0 to 1")


def _check_alpha(alpha):
    if alpha is not None:
        _check_share("alpha", alpha)


def _extent(places):
    """(left, right, bottom, top) with a margin of a twentieth."""
    if not len(places):
        return -1.0, 1.0, -1.0, 1.0
    sides = [places[:, 0], places[:, 1]]
    least, most = np.array([side.min() for side in sides], float), np.array([side.max() for side in sides], float)
    margin = np.maximum(0.05 * (most - least), 1e-6 * np.maximum(np.abs(least), np.abs(most)) + 1e-30)
    return least[0] - margin[0], most[0] + margin[0], least[1] - margin[1], most[1] + margin[1]


# ---- Pictures of pixels -----------------------------------------------------------------------------------------------


def _shaded_points(drawn, extent, width, height, table, codes, cmap, alpha):
    """The colour and opacity of each pixel, float64 [height, width, 4] from 0 to 1."""
    frame = {"extent": extent, "width": width, "height": height}
    picture = np.zeros((height, width, 4))
    if codes is None:
        counts = _raster.raster_points(drawn.places, **frame)[:, :, 0]
        shown = counts > 0
        shade = _raster.levels(counts)[shown]
        picture[shown, :3] = colours.scale(cmap, 256)[(shade * 255 + 0.5).astype(np.int64)] / 255
        picture[shown, 3] = 1.0
    else:
        amounts = np.concatenate([np.ones((len(table), 1), np.int32), table.astype(np.int32)], axis=1)
        sums = _raster.raster_points(drawn.places, codes, amounts, **frame)
        shown = sums[:, :, 0] > 0
        picture[shown, :3] = sums[shown, 1:] / sums[shown, :1] / 255
        picture[shown, 3] = _FAINTEST + (1 - _FAINTEST) * _raster.levels(sums[:, :, 0])[shown]
    picture[:, :, 3] *= 1.0 if alpha is None else alpha
    return picture


def _shaded_edges(umap_object, places, extent, width, height, edge_bundling, edge_cmap, how):
    sources, targets, weights = _edges(umap_object)
    known = np.isfinite(places[sources]).all(axis=1) & np.isfinite(places[targets]).all(axis=1)
    sources, targets = sources[known], targets[known]
    amounts = np.maximum(np.rint(weights[known] * _ONE), 1).astype(np.int32)
    if edge_bundling is None:
        path = np.full((3 * len(sources), 2), np.nan, np.float32)
        path[0::3], path[1::3] = places[sources], places[targets]
        amounts = np.repeat(amounts, 3)
    else:
        path, amounts = _bundled(places, sources, targets, amounts, extent)
    sums = _raster.raster_lines(path, amounts, extent=extent, width=width, height=height)
    shown = sums > 0
    picture = np.zeros((height, width, 4))
    shade = _raster.levels(sums, how, _ONE)[shown]
    picture[shown, :3] = colours.scale(edge_cmap, 256)[(shade * 255 + 0.5).astype(np.int64)] / 255
    picture[shown, 3] = 1.0
    return picture


def _edges(umap_object):
    """Each edge of the graph once: (sources, targets, weights)."""
    from napier._umap import stages

    graph = getattr(umap_object, "graph_", None)
    if graph is None:
        raise ValueError(f"umap_object: {type(umap_object).__name__} has no graph_")
    edges = stages.edges(graph)
    once = edges[edges["source"] < edges["target"]]
    return once["source"].astype(np.int64), once["target"].astype(np.int64), once["weight"].astype(np.float64)


def _bundled(places, sources, targets, amounts, extent):
    """Bundled paths in the coordinates of the map, with a NaN row behind each."""
    left, right, bottom, top = extent
    corner, size = np.array([left, bottom]), np.array([right - left, top - bottom])
    weights = np.maximum(amounts >> 8, 1)
    paths, edge = _bundle((places.astype(np.float64) - corner) / size, sources, targets, weights)
    behind = np.flatnonzero(np.diff(edge)) + 1
    paths = np.insert(paths * size + corner, behind, np.nan, axis=0)
    return paths.astype(np.float32), np.insert(amounts[edge], behind, 0)


def _over(picture, below):
    """One picture over another, or over a colour."""
    below = np.asarray(below, np.float64)
    alpha = picture[:, :, 3:]
    return picture[:, :, :3] * alpha + below * (1 - alpha)


# ---- Axes -------------------------------------------------------------------------------------------------------------


def _pyplot():
    return colours.needs("matplotlib.pyplot", "napier.umap.plot")


def _axes(width, height):
    plt = _pyplot()
    dpi = plt.rcParams["figure.dpi"]
    return plt.figure(figsize=(width / dpi, height / dpi), layout="constrained").add_subplot(111)


def _show_pixels(ax, picture, extent):
    """Shows a picture in the coordinates of the map."""
    pixels = (np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8)
    ax.imshow(pixels, extent=extent, aspect="auto")


def _describe(umap_object):
    """The parameters of the map, as far as it has them."""
    names = ["n_neighbors", "min_dist"]
    metric = getattr(umap_object, "metric", "euclidean")
    if metric != "euclidean":
        names.insert(0, "metric")
    said = [
        f"{name}={getattr(getattr(umap_object, name), '__name__', getattr(umap_object, name))}"
        for name in names
        if hasattr(umap_object, name)
    ]
    return "UMAP: " + ", ".join(said) if said else ""


def _finish(ax, umap_object, background):
    ax.set(xticks=[], yticks=[])
    ax.text(
        0.99,
        0.01,
        _describe(umap_object),
        transform=ax.transAxes,
        horizontalalignment="right",
        color="white" if colours.is_dark(background) else "black",
    )
    return ax


def _explain(ax, drawn, table, background):
    """Says what the colours mean: a bar of values, a legend beside the axes, or names on the map if they are many."""
    if drawn.values is not None:
        _bar(ax, drawn.values, table)
    elif drawn.labels is not None and len(drawn.kinds.names) - sum(drawn.kinds.noise) <= _place.MOST_IN_LEGEND:
        _legend(ax, drawn.kinds, table)
    elif drawn.labels is not None:
        _names(ax, drawn, background)


def _bar(ax, values, table):
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    steps = colours.value_steps(values)
    if np.isfinite(values).any() and np.isfinite(steps.most - steps.least):
        scale = ScalarMappable(Normalize(steps.least, steps.most), ListedColormap(table[:255] / 255))
        ax.figure.colorbar(scale, ax=ax, shrink=0.7)


def _legend(ax, kinds, table):
    from matplotlib.patches import Patch

    order = sorted(range(len(kinds.names)), key=lambda i: kinds.noise[i])  # noise is last
    handles = [Patch(facecolor=table[i] / 255, label=_text(kinds.names[i])) for i in order]
    if handles:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _text(name):
    return "(no label)" if _place.is_missing(name) else "(blank)" if name == "" else str(name)


def _names(ax, drawn, background):
    """Names of the largest categories, each at its densest point, without overlap."""
    from matplotlib.patheffects import withStroke

    size, pixels = 8, ax.figure.dpi / 72
    texts = [_place.shortened(_text(name)) for name in drawn.kinds.names]
    ax.figure.draw_without_rendering()  # lays the axes out, so that pixels are known
    marks = _place.name_points(drawn.places, drawn.kinds.codes, texts, drawn.kinds.noise)
    points = ax.transData.transform(drawn.places[[point for _, point in marks]].astype(float))
    halves = [(0.32 * size * len(texts[code]) + 3) * pixels for code, _ in marks]
    ink, halo = ("white", "black") if colours.is_dark(background) else ("black", "white")
    for (code, _), place in zip(marks, _place.free_places(points, halves, 1.3 * size * pixels), strict=True):
        if place is not None:
            ax.text(
                *ax.transData.inverted().transform(place),
                texts[code],
                size=size,
                weight="bold",
                color=ink,
                ha="center",
                va="center",
                path_effects=[withStroke(linewidth=2.5, foreground=halo, alpha=0.85)],
            )


def _scatter(ax, drawn, table, codes, alpha, size=100.0):
    """One mark for each point, grey ones below. Sizes fall with their number, as in umap.plot."""
    if not len(drawn):
        return
    shades = table[codes] / 255 if codes is not None else np.repeat(table / 255, len(drawn), axis=0)
    order = np.argsort((shades != np.array(colours.GREY) / 255).any(axis=1), kind="stable")
    ax.scatter(drawn.places[order, 0], drawn.places[order, 1], s=size / np.sqrt(len(drawn)), c=shades[order], alpha=alpha)


def _scatter_labels(ax, places, labels, options):
    """Draws points for UMAP.plot: floating-point numbers are values, other labels are categories."""
    values = labels if labels.dtype.kind == "f" else None
    drawn = _Points(places, None if values is not None else labels, values)
    table, codes = drawn.colour(colours.theme_of(None, "viridis", None, "white"), None)
    ax.scatter(*drawn.places.T, c=table[codes] / 255, **options)
    _explain(ax, drawn, table, "white")


def points(
    umap_object: Any,
    points: Any = None,
    labels: Any = None,
    values: Any = None,
    theme: Optional[str] = None,
    cmap: Any = "Blues",
    color_key: Optional[Mapping[Any, Any] | Sequence[Any]] = None,
    color_key_cmap: Any = None,
    background: Any = "white",
    width: int = 800,
    height: int = 800,
    show_legend: bool = True,
    subset_points: Any = None,
    ax: Any = None,
    alpha: Optional[float] = None,
) -> Any:
    """Draws a map of two dimensions as points, and returns the axes.

    Up to width * height / 10 points are matplotlib's. More are added up in width x height pixels: their number as a shade,
    or their mean colour, which is fainter where there are few. Points without a place on the map (NaN) are left out.

    Parameters
    ----------
    umap_object : a fitted UMAP, or anything with an `embedding_`.
    points : other points [n, 2] than the map's, such as those of transform.
    labels : the category of each point, or
    values : a number for each point; grey is NaN.
    theme : 'fire', 'viridis', 'inferno', 'blue', 'red', 'green', 'darkblue', 'darkred' or 'darkgreen', in place of cmap,
        color_key_cmap and background.
    cmap : the scale of values, or of the number of points: a name of matplotlib's or of a theme.
    color_key : the colour of each label, as a dict or in the order of the labels.
    color_key_cmap : the scale that labels get colours from, if color_key is None; darker or lighter where they would
        hardly be seen on the background. None: the program's colours. Labels that are -1, 'noise' or NaN are grey.
    show_legend : says what the colours mean: a legend beside the axes, names on the map for more than 30 labels, or a bar
        of values.
    subset_points : a mask, or indices, of the points to be drawn.
    ax : the axes to draw on.
    alpha : opacity, 0 to 1.

    Examples
    --------
    >>> import matplotlib, napier, napier.umap.plot, numpy as np
    >>> matplotlib.use("agg")
    >>> data = np.random.default_rng(0).normal(size=(100, 5))
    >>> mapper = napier.UMAP(n_neighbors=10, n_epochs=50).fit(data)
    >>> axes = napier.umap.plot.points(mapper, labels=np.arange(100) % 3, theme="fire")
    >>> axes.figure.savefig("map.png")
    """
    look = colours.theme_of(theme, cmap, color_key_cmap, background)
    _check_alpha(alpha)
    drawn = _Points(_places(umap_object, points), labels, values, subset_points)
    table, codes = drawn.colour(look, color_key)
    _pyplot()
    ax = _axes(width, height) if ax is None else ax
    if len(drawn) <= width * height // 10:
        ax.set_facecolor(look.background)
        _scatter(ax, drawn, table, codes, alpha)
    else:
        extent = _extent(drawn.places)
        picture = _shaded_points(drawn, extent, width, height, table, codes, look.cmap, alpha)
        _show_pixels(ax, _over(picture, np.array(colours.rgb(look.background)) / 255), extent)
    if show_legend and len(drawn):
        _explain(ax, drawn, table, look.background)
    return _finish(ax, umap_object, look.background)


def connectivity(
    umap_object: Any,
    edge_bundling: Optional[str] = None,
    edge_cmap: Any = "gray_r",
    show_points: bool = False,
    labels: Any = None,
    values: Any = None,
    theme: Optional[str] = None,
    cmap: Any = "Blues",
    color_key: Optional[Mapping[Any, Any] | Sequence[Any]] = None,
    color_key_cmap: Any = None,
    background: Any = "white",
    width: int = 800,
    height: int = 800,
) -> Any:
    """Draws the edges of the map's graph, and returns the axes. The shade of a pixel is the sum of the weights of the
    edges through it. The other arguments are those of `points`.

    Parameters
    ----------
    edge_bundling : None for straight lines, or 'hammer': edges that run side by side are drawn together, by the density
        of the edges (Hurter, Ersoy and Telea, 2012). That takes long for large maps.
    edge_cmap : the scale of the edges.
    show_points : draws the points over the edges.

    Examples
    --------
    >>> import matplotlib, napier, napier.umap.plot, numpy as np
    >>> matplotlib.use("agg")
    >>> mapper = napier.UMAP(n_neighbors=10, n_epochs=50).fit(np.random.default_rng(0).normal(size=(100, 5)))
    >>> axes = napier.umap.plot.connectivity(mapper, edge_bundling="hammer", show_points=True)
    >>> axes.figure.savefig("edges.png")
    """
    look = colours.theme_of(theme, cmap, color_key_cmap, background, edge_cmap)
    if edge_bundling not in (None, "hammer"):
        raise ValueError(f"edge_bundling: {edge_bundling!r} is not None or 'hammer'")
    places = _places(umap_object)
    drawn = _Points(places, labels, values)
    _pyplot()
    extent = _extent(drawn.places)
    edges = _shaded_edges(umap_object, places, extent, width, height, edge_bundling, look.edge_cmap, "log" if show_points else "eq_hist")
    picture = _over(edges, np.array(colours.rgb(look.background)) / 255)
    ax = _axes(width, height)
    if not show_points:
        _show_pixels(ax, picture, extent)
        return _finish(ax, umap_object, look.background)
    table, codes = drawn.colour(look, color_key)
    if len(drawn) <= width * height // 10:
        _show_pixels(ax, picture, extent)
        _scatter(ax, drawn, table, codes, None, size=25.0)  # small, so that the edges are seen
        ax.set(xlim=extent[:2], ylim=extent[2:])
    else:
        shaded = _shaded_points(drawn, extent, width, height, table, codes, look.cmap, None)
        _show_pixels(ax, _over(shaded, picture), extent)
    if len(drawn):
        _explain(ax, drawn, table, look.background)
    return _finish(ax, umap_object, look.background)


# ---- Diagnostics ------------------------------------------------------------------------------------------------------


def diagnostic(
    umap_object: Any,
    diagnostic_type: str = "pca",
    nhood_size: int = 15,
    local_variance_threshold: float = 0.8,
    ax: Any = None,
    cmap: Any = "viridis",
    point_size: Optional[float] = None,
    background: Any = "white",
    width: int = 800,
    height: int = 800,
    return_diagnostics: bool = False,
    plot_result: bool = True,
) -> Any:
    """Colours the points by what they are in the data, to judge the map. Returns the axes, with return_diagnostics (axes, numbers),
    without plot_result only the numbers or None.

    Parameters
    ----------
    diagnostic_type : 'pca', 'ica' and 'vq' show the data's three main directions, three independent components, or the
        distances to three centres as red, green and blue. 'local_dim' shows the local dimension of the data: the index,
        from 0, of the principal component of a neighbourhood with which its variance exceeds local_variance_threshold.
        'neighborhood' shows the Jaccard index of the nhood_size nearest in the data and on the map. 'all' draws all five.
        The first three need scikit-learn.

    Examples
    --------
    >>> import matplotlib, napier, napier.umap.plot, numpy as np
    >>> matplotlib.use("agg")
    >>> mapper = napier.UMAP(n_neighbors=10, n_epochs=50).fit(np.random.default_rng(0).normal(size=(100, 5)))
    >>> axes, kept = napier.umap.plot.diagnostic(mapper, "neighborhood", nhood_size=10, return_diagnostics=True)
    >>> kept.shape, bool((kept >= 0).all() and (kept <= 1).all())
    ((100,), True)
    """
    if diagnostic_type != "all" and diagnostic_type not in diagnostics.MEASURES:
        raise ValueError(f"diagnostic_type: {diagnostic_type!r} is not 'all' or one of {', '.join(map(repr, diagnostics.MEASURES))}")
    places = _places(umap_object)
    if plot_result:
        _pyplot()
        colours.rgb(background, "background: ")
    options = {"nhood_size": nhood_size, "local_variance_threshold": local_variance_threshold}
    size = 100.0 / np.sqrt(max(len(places), 1)) if point_size is None else point_size
    if diagnostic_type == "all":
        numbers, axes = _all_diagnostics(umap_object, places, options, cmap, size / 4, background, plot_result)
    else:
        numbers = diagnostics.MEASURES[diagnostic_type](umap_object, **options)
        axes = _diagnostic_axes(ax, diagnostic_type, width, height) if plot_result else None
        if plot_result:
            _draw_diagnostic(axes, umap_object, places, diagnostic_type, numbers, cmap, size, background)
    if return_diagnostics:
        return (axes, numbers) if plot_result else numbers
    return axes


def _diagnostic_axes(ax, kind, width, height):
    wider = 1.1 if kind in ("local_dim", "neighborhood") else 1.0  # room for the scale
    return _axes(width * wider, height) if ax is None else ax


def _all_diagnostics(umap_object, places, options, cmap, size, background, plot_result):
    numbers = {kind: measure(umap_object, **options) for kind, measure in diagnostics.MEASURES.items()}
    if not plot_result:
        return numbers, None
    figure, grid = _pyplot().subplots(3, 2, figsize=(10, 10), constrained_layout=True)
    grid = grid.ravel()
    grid[-1].remove()
    for ax, (kind, some) in zip(grid, numbers.items(), strict=False):
        _draw_diagnostic(ax, umap_object, places, kind, some, cmap, size, background)
    return numbers, grid[:-1]


def _draw_diagnostic(ax, umap_object, places, kind, numbers, cmap, size, background):
    ax.set_facecolor(background)
    if numbers.ndim == 2:
        ax.scatter(places[:, 0], places[:, 1], s=size, c=numbers, alpha=0.66)
    else:
        least, most = np.nanpercentile(numbers, 5), np.nanpercentile(numbers, 95)
        shown = ax.scatter(places[:, 0], places[:, 1], s=size, c=numbers, cmap=colours.colormap(cmap), vmin=least, vmax=most)
        ax.figure.colorbar(shown, ax=ax)
    ax.set_title(diagnostics.TITLES[kind])
    _finish(ax, umap_object, background)


def nearest_neighbour_distribution(umap_object: Any, bins: int | Any = 25, ax: Any = None) -> Any:
    """Draws a histogram of the points' mean distance to their neighbours in the data, and returns the axes.

    Examples
    --------
    >>> import matplotlib, napier, napier.umap.plot, numpy as np
    >>> matplotlib.use("agg")
    >>> mapper = napier.UMAP(n_neighbors=10, n_epochs=50).fit(np.random.default_rng(0).normal(size=(100, 5)))
    >>> axes = napier.umap.plot.nearest_neighbour_distribution(mapper, bins=10)
    >>> len(axes.patches)
    10
    """
    distances = getattr(umap_object, "_knn_dists", None)
    if distances is None:
        raise ValueError("umap_object: the map has no distances of neighbours")
    others = np.asarray(distances, np.float64)[:, 1:]
    counts = np.isfinite(others).sum(axis=1)
    sums = np.where(np.isfinite(others), others, 0.0).sum(axis=1)
    means = sums[counts > 0] / counts[counts > 0]
    ax = _pyplot().figure().add_subplot(111) if ax is None else ax
    ax.set(xlabel="Mean distance to the nearest neighbours", ylabel="Points")
    ax.hist(means, bins=bins)
    return ax


# ---- The interactive map ----------------------------------------------------------------------------------------------


def interactive(
    umap_object: Any,
    labels: Any = None,
    values: Any = None,
    hover_data: Optional[Mapping[str, Any]] = None,
    tools: Optional[str | Sequence[Any]] = None,
    theme: Optional[str] = None,
    cmap: Any = "Blues",
    color_key: Optional[Mapping[Any, Any] | Sequence[Any]] = None,
    color_key_cmap: Any = None,
    background: Any = "white",
    width: int = 800,
    height: int = 800,
    point_size: Optional[float] = None,
    subset_points: Any = None,
    interactive_text_search: bool = False,
    interactive_text_search_columns: Optional[Sequence[str]] = None,
    interactive_text_search_alpha_contrast: float = 0.95,
    alpha: Optional[float] = None,
) -> InteractiveMap:
    """Returns a map that can be zoomed, with what is known of the point under the pointer. It shows itself in a notebook;
    save(path) writes it as one .html file. The other arguments are those of `points`; width and height are the size in a notebook.

    Parameters
    ----------
    hover_data : what is said of each point: a data frame or a dict of columns.
    tools : which of 'pan', 'wheel_zoom', 'box_zoom' (drag with Shift), 'save' and 'reset' work, as a list or as text with
        commas; None: all.
    point_size : the diameter of a point in pixels.
    alpha : its opacity, 0 to 1.
    interactive_text_search : adds a field that searches the labels and hover_data, or interactive_text_search_columns
        ('label' are the labels). Points that do not match fade to 1 - interactive_text_search_alpha_contrast.

    Examples
    --------
    >>> import napier, napier.umap.plot, numpy as np
    >>> mapper = napier.UMAP(n_neighbors=10, n_epochs=50).fit(np.random.default_rng(0).normal(size=(100, 5)))
    >>> page = napier.umap.plot.interactive(mapper, hover_data={"number": np.arange(100)})
    >>> page.save("map.html")
    """
    look = colours.theme_of(theme, cmap, color_key_cmap, background)
    _check_alpha(alpha)
    _check_share("interactive_text_search_alpha_contrast", interactive_text_search_alpha_contrast)
    if point_size is not None and not (isinstance(point_size, numbers.Real) and 0 < point_size < np.inf):
        raise ValueError(f"point_size: {point_size!r} is not above 0")
    places = _places(umap_object)
    drawn = _Points(places, labels, values, subset_points)
    columns = _hover_columns(hover_data, len(places), drawn.rows)
    data = _page_points(drawn, len(places), _describe(umap_object))
    data |= _page_colours(drawn, look, color_key)
    data |= _page_look(look, tools, point_size, alpha)
    data |= _page_search(
        columns, drawn.labels is not None, interactive_text_search, interactive_text_search_columns, interactive_text_search_alpha_contrast
    )
    return InteractiveMap(data, width, height)


def _page_points(drawn, total, description):
    count = f"{len(drawn):,} point{'s' if len(drawn) != 1 else ''}"
    rows = None if len(drawn) == total else drawn.rows
    return page.places_data(drawn.places, rows, f"{count} \u00b7 {description}" if description else count)


def _page_colours(drawn, look, color_key):
    if drawn.labels is not None:
        kinds = colours.categories(drawn.labels)
        papers = ("white", "#15181c") if look.background == "white" else (look.background,) * 2
        return page.categories_data(
            drawn.places, kinds, *(colours.category_colours(kinds, color_key, look.color_key_cmap, paper) for paper in papers)
        )
    if drawn.values is not None:
        return page.values_data(drawn.values, colours.value_steps(drawn.values), colours.value_scale(look.cmap, look.background))
    return page.plain_data(colours.scale(look.cmap, 3)[1].tolist())


def _page_look(look, tools, point_size, alpha):
    data = {"exact": True, "theme": "dark" if colours.is_dark(look.background) else "light", "paper": list(colours.rgb(look.background))}
    if tools is not None:
        data["tools"] = _tool_names(tools)
    if point_size is not None:
        data["radius"] = float(point_size) / 2
    if alpha is not None:
        data["opacity"] = float(alpha)
    return data


def _tool_names(tools):
    """The names of tools. Those of bokeh that the page lacks are left out with a warning."""
    if not isinstance(tools, str) and not np.iterable(tools):
        raise ValueError(f"tools: {tools!r} is not a list of names, or text with commas")
    given = tools.split(",") if isinstance(tools, str) else list(tools)
    names = []
    for tool in given:
        name = tool.strip() if isinstance(tool, str) else _snake(type(tool).__name__)
        if name in _TOOLS:
            names.append(name)
        elif name and name not in _ALWAYS:
            warnings.warn(f"tools: the map has no {name!r}; it has {', '.join(_TOOLS)}", stacklevel=4)
    return names


def _snake(name):
    """'WheelZoomTool' as 'wheel_zoom'."""
    return "".join("_" + c.lower() if c.isupper() else c for c in name.removesuffix("Tool")).lstrip("_")


def _hover_columns(hover_data, n, rows):
    if hover_data is None:
        return []
    if not hasattr(hover_data, "keys"):
        raise TypeError(f"hover_data: expected a data frame or a dict of columns, got {type(hover_data).__name__}")
    columns = []
    for name in hover_data.keys():
        values = np.asarray(hover_data[name])
        if values.shape != (n,):
            raise ValueError(f"hover_data: column {name!r} has the shape {values.shape}, for {n} points")
        columns.append(page.column_of(str(name), values[rows]))
    return columns


def _page_search(columns, has_labels, wanted, names, contrast):
    """The columns of the page, and which of them the search looks through."""
    known = [column["name"] for column in columns] + ["label"] * has_labels
    if wanted and not known:
        warnings.warn("interactive_text_search: there are no labels and no hover_data to search", stacklevel=3)
    chosen = known if names is None else [str(name) for name in names]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"interactive_text_search_columns: {unknown[0]!r} is not one of {', '.join(map(repr, known))}")
    return {
        "columns": [column | {"sought": column["name"] in chosen} for column in columns],
        "search": bool(wanted and known),
        "searchNames": has_labels and "label" in chosen,
        "faded": 1 - contrast,
    }


def __getattr__(name):
    if name == "plt":  # umap.plot.plt, which umap-learn's documentation uses
        return _pyplot()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---- Showing ----------------------------------------------------------------------------------------------------------


def output_notebook(*_: Any, **__: Any) -> None:
    """From now on `show` displays interactive maps in the notebook."""
    _target.update(file=None, notebook=True)


def output_file(filename: str | PathLike[str], title: Optional[str] = None, *_: Any, **__: Any) -> None:
    """From now on `show` saves interactive maps to this file before it opens them."""
    _target.update(file=filename, notebook=False, title=title)


def show(plot_to_show: Any | InteractiveMap) -> None:
    """Shows a plot of this module: axes by matplotlib, an interactive map in the notebook or the browser."""
    if isinstance(plot_to_show, InteractiveMap):
        _show_map(plot_to_show)
    elif hasattr(plot_to_show, "figure") or isinstance(plot_to_show, np.ndarray):
        _pyplot().show()
    else:
        raise ValueError(f"plot_to_show: expected axes or an interactive map, got {type(plot_to_show).__name__}")


def _show_map(shown):
    if _target["notebook"] or (_target["file"] is None and _in_notebook()):
        from IPython.display import display

        display(shown)
        return
    import pathlib
    import tempfile
    import webbrowser

    path = _target["file"] or pathlib.Path(tempfile.mkdtemp(prefix="napier-map-")) / "map.html"
    shown.save(path, _target["title"])
    webbrowser.open(pathlib.Path(path).resolve().as_uri())


def _in_notebook():
    import sys

    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")
