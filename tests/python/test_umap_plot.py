"""napier.umap.plot: pixels against NumPy, pictures, pages, and what is refused."""

import html
import inspect
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import types
import warnings

import numpy as np
import pytest

import napier
from conftest import bits, refuses, run_python
from napier import UMAP, umap

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

import napier.umap.plot as plot  # noqa: E402
from napier._umap import bundle, colours, page, places, raster  # noqa: E402


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 120)
    return UMAP(n_neighbors=8, n_epochs=50).fit(4 * np.eye(3, 6)[labels] + rng.normal(size=(120, 6))), labels


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")
    plot._target.update(file=None, notebook=False, title=None)


def some_map(places):
    return types.SimpleNamespace(embedding_=np.asarray(places, np.float32), n_neighbors=15, min_dist=0.1)


def pixels_of(ax):
    return np.asarray(ax.images[0].get_array())


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


# ---- Pixels -----------------------------------------------------------------------------------------------------------


def test_points_in_pixels(rng):
    points = rng.uniform(-1.3, 1.3, (20_000, 2)).astype(np.float32)
    points[::50, 0] = np.nan
    points[1::50, 1] = np.inf
    codes = rng.integers(-1, 5, len(points)).astype(np.int32)
    amounts = rng.integers(-1000, 1000, (5, 3))
    sums = umap.raster_points(points, codes, amounts, extent=(-1, 1, -1, 1), width=40, height=30)
    wanted = np.zeros((30, 40, 3), np.int64)
    inside = (np.abs(points) <= 1).all(axis=1) & (codes >= 0)
    x, y = points[inside].astype(np.float64).T
    col, row = np.minimum((x + 1) * (40 / 2), 39).astype(int), np.minimum((1 - y) * (30 / 2), 29).astype(int)
    np.add.at(wanted, (row, col), amounts[codes[inside]])
    assert (sums == wanted).all() and sums.dtype == np.int64
    assert umap.raster_points(points, extent=(-1, 1, -1, 1), width=1, height=1)[0, 0, 0] == (np.abs(points) <= 1).all(axis=1).sum()


def test_lines_in_pixels(rng):
    ends = rng.integers(0, 50, (400, 2, 2))
    path = np.full((400, 3, 2), np.nan)
    path[:, :2] = ends + 0.5
    amounts = rng.integers(1, 100, 400)
    sums = umap.raster_lines(path.reshape(-1, 2), np.repeat(amounts, 3), extent=(0, 50, 0, 50), width=50, height=50)
    wanted = np.zeros((50, 50), np.int64)
    for (a, b), amount in zip(ends, amounts, strict=True):
        a, b = sorted(((49 - a[1], a[0]), (49 - b[1], b[0])))  # (row, column), the upper one first
        gap = np.subtract(b, a)
        steps = max(1, np.abs(gap).max())
        i = np.arange(np.abs(gap).max() + 1)
        walked = (2 * i * np.abs(gap)[:, None] + steps) // (2 * steps) * np.sign(gap)[:, None]
        wanted[a[0] + walked[0], a[1] + walked[1]] += amount
    assert (sums == wanted).all()


def test_pixels_are_the_same_everywhere(rng):
    points = rng.normal(size=(50_000, 2))
    mapper = some_map(points)
    edges = rng.integers(0, 60, (90, 2))

    def results():
        yield umap.raster_points(points, extent=(-2, 2, -2, 2), width=100, height=90)
        yield umap.raster_lines(points, extent=(-2, 2, -2, 2), width=100, height=90)
        yield pixels_of(plot.points(mapper, values=points[:, 0], width=300, height=300))
        yield pixels_of(plot.points(mapper, labels=np.arange(50_000) % 7, theme="fire", width=300, height=300))
        yield bundle.bundle((points[:60] + 5) / 10, edges[:, 0], edges[:, 1], np.ones(90, np.int64))[0]
        plt.close("all")

    want = [bits(r) for r in results()]
    for threads in (1, 3, 8):
        napier.set_num_threads(threads)
        assert [bits(r) for r in results()] == want, f"{threads} threads"
    napier.set_num_threads(0)
    for isa in ("scalar", "neon", "avx2", "avx512"):
        if napier.isa_available(isa):
            napier.set_isa(isa)
            assert [bits(r) for r in results()] == want, isa


def test_shades_of_counts():
    counts = np.array([[0, 1, 1], [1, 1, 5], [9, 5, 0]])
    assert np.isnan(raster.levels(counts)[counts == 0]).all()
    assert raster.levels(counts)[counts > 0].tolist() == [0, 0, 0, 0, 2 / 3, 1, 2 / 3]  # 4, 6 and 7 pixels
    assert raster.levels(counts, "linear")[1].tolist() == [0, 0, 0.5]
    assert np.allclose(raster.levels(counts, "log")[1:, 2:][0], np.log(6 / 2) / np.log(10 / 2))
    assert raster.levels(np.array([3, 0, 3]))[::2].tolist() == [1, 1]
    assert np.isnan(raster.levels(np.zeros(4, int))).all()
    refuses(lambda: raster.levels(counts, "cbrt"), ValueError, "how: 'cbrt'")


def test_rasters_refuse():
    point = [[0.0, 0.0]]
    for kind, words, call in [
        (ValueError, "extent: expected", lambda: umap.raster_points(point, extent=(0, 1, 2))),
        (ValueError, "frame.right: 0 is not above", lambda: umap.raster_points(point, extent=(0, 0, 0, 1))),
        (ValueError, "frame.left: nan", lambda: umap.raster_lines(point, extent=(np.nan, 0, 0, 1))),
        (ValueError, "width: 0", lambda: umap.raster_points(point, extent=(0, 1, 0, 1), width=0)),
        (ValueError, "height: 2.5", lambda: umap.raster_points(point, extent=(0, 1, 0, 1), height=2.5)),
        (ValueError, "codes: element 0 is 1", lambda: umap.raster_points(point, [1], extent=(0, 1, 0, 1))),
        (ValueError, "codes", lambda: umap.raster_points(point, [0, 0], extent=(0, 1, 0, 1))),
        (TypeError, "amounts: expected integers", lambda: umap.raster_points(point, [0], [[0.5]], extent=(0, 1, 0, 1))),
        (ValueError, "channels: 0", lambda: umap.raster_points(point, [0], np.ones((1, 0), int), extent=(0, 1, 0, 1))),
        (ValueError, "places", lambda: umap.raster_points([[0.0, 0.0, 1.0]], extent=(0, 1, 0, 1))),
        (ValueError, "amounts", lambda: umap.raster_lines(point, [1, 2], extent=(0, 1, 0, 1))),
    ]:
        refuses(call, kind, words)


# ---- points -----------------------------------------------------------------------------------------------------------


def test_points_as_matplotlib_draws_them(fitted):
    mapper, labels = fitted
    ax = plot.points(mapper, labels=labels, theme="darkblue")
    shown = ax.collections[0]
    assert (shown.get_offsets() == mapper.embedding_).all() and ax.texts[0].get_text() == "UMAP: n_neighbors=8, min_dist=0.1"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["0", "1", "2"]
    rainbow = matplotlib.colormaps["rainbow"]([0.0, 0.5, 1.0])
    assert np.abs(shown.get_facecolors() - rainbow[labels]).max() < 1 / 255 and ax.get_facecolor() == (0, 0, 0, 1)
    assert ax.texts[0].get_color() == "white"
    mine = plt.figure().add_subplot()
    assert plot.points(mapper, labels=labels, ax=mine, show_legend=False) is mine and mine.get_legend() is None
    half = plot.points(mapper, subset_points=labels == 1, alpha=0.5).collections[0]
    assert len(half.get_offsets()) == (labels == 1).sum() and half.get_alpha() == 0.5
    moved = plot.points(mapper, points=mapper.embedding_ + 1).collections[0].get_offsets()
    assert (moved == mapper.embedding_ + 1).all()


def test_colours_of_labels_and_values(fitted):
    mapper, labels = fitted
    names = np.array(["a", "b", "c"])[labels]
    for key in ({"a": "#ff0000", "b": "lime", "c": "#0000ff"}, ["red", "#00ff00", (0, 0, 1)]):
        shown = plot.points(mapper, labels=names, color_key=key).collections[0]
        assert (shown.get_facecolors() == np.eye(3, 4)[labels] + [0, 0, 0, 1]).all()
    values = np.linspace(-1, 1, len(labels))
    values[5] = np.nan
    shown = plot.points(mapper, values=values, cmap="viridis")
    shades = shown.collections[0].get_facecolors()
    assert (shades[0, :3] * 255 == colours.GREY).all()  # grey points lie below the others
    assert np.abs(shades[1] - matplotlib.colormaps["viridis"](0.0)).max() < 1 / 255
    assert 1.5 <= colours.contrast(shades[-1, :3] * 255, "white") < 1.55  # where the scale ends on white
    bar = shown.figure.axes[1]
    assert bar.get_ylim() == (-1, 1) and len(plot.points(mapper, values=values, show_legend=False).figure.axes) == 1
    for given in (["x", 3, None] * 40, [True, False, True] * 40, [None] * 120, np.array([np.nan, 1.0, 2.0] * 40)):
        plot.points(mapper, labels=given)


@pytest.mark.parametrize("background", ["white", "#15181c", "black", "#808080"])
def test_categories_have_contrast(background):
    kinds = colours.categories(np.arange(58))
    for cmap in (None, "Spectral", "rainbow", "tab20b", "Blues", "fire"):
        table = colours.category_colours(kinds, None, cmap, background)
        assert colours.contrast(table, background).min() >= 3, cmap
    if background != "#808080":
        assert colours.contrast(colours.GREY, background) >= 3
        assert len(np.unique(colours.palette(30, background), axis=0)) == 30
    assert colours.contrast([0, 0, 0], "white") == 21


def test_colours_are_the_programs():
    source = (pathlib.Path(__file__).parents[2] / "cli/plot/palette.c").read_text()
    pairs = re.findall(r"\{\{(.{16})\}, \{(.{16})\}\}", source)
    assert len(pairs) == 30
    for side, background in enumerate(("white", "#15181c")):
        wanted = [[int(part, 16) for part in pair[side].split(", ")] for pair in pairs]
        assert colours.palette(30, background).tolist() == wanted


def test_order_and_noise_of_categories():
    kinds = colours.categories(np.array(["topic 10", "noise", "Topic 2", "topic 1", "-1_the_of", "a-", "a9"]))
    assert kinds.names == ["-1_the_of", "a-", "a9", "noise", "topic 1", "Topic 2", "topic 10"]
    assert [name for name, noise in zip(kinds.names, kinds.noise) if noise] == ["-1_the_of", "noise"]
    kinds = colours.categories(np.array([3.0, -1.0, np.nan, 10.0]))
    assert kinds.names[:3] == [-1, 3, 10] and kinds.noise == [True, False, False, True]
    mixed = colours.categories(np.array(["b", None, np.nan, 2], object))
    assert sum(mixed.noise) == 2 and [n for n in mixed.names if not places.is_missing(n)] == ["2", "b"]
    table = colours.category_colours(kinds, None, None, "white")
    assert (table[[0, 3]] == colours.GREY).all() and (table[1:3] == colours.palette(2, "white")).all()
    shown = plot.points(some_map(np.eye(2).repeat(2, 0)), labels=[-1, 0, 1, 1])
    assert [t.get_text() for t in shown.get_legend().get_texts()] == ["0", "1", "-1"]  # noise is last
    assert (shown.collections[0].get_facecolors()[0, :3] * 255 == colours.GREY).all()


def test_a_legend_beside_the_axes_and_names_on_the_map(rng):
    for count in (2, 30, 58, 128):
        middles = rng.normal(size=(count, 2)) * 6
        labels = np.arange(40 * count) % count
        names = np.array([f"topic {i}" for i in range(count)])[labels]
        ax = plot.points(some_map(middles[labels] + rng.normal(size=(len(labels), 2)) * 0.3), labels=names)
        ax.figure.draw_without_rendering()
        axes, figure = ax.get_window_extent(), ax.figure.bbox
        assert axes.width > 0.7 * figure.width, count  # the map keeps its room
        if count <= 30:
            legend = ax.get_legend().get_window_extent()
            assert legend.x0 >= axes.x1 - 1 and legend.x1 <= figure.x1 + 1
            continue
        assert ax.get_legend() is None
        boxes = [text.get_window_extent() for text in ax.texts if text.get_text().startswith("topic")]
        assert len(boxes) > 20 and not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_names_lie_where_the_program_has_them():
    """tests/cli/cases/umap/umap-plot-many.sh has the same data."""
    i = np.arange(320)
    spots = np.stack([i * 37 % 320 % 20 * 3, i * 37 % 320 // 20 * 2], 1).astype(np.float32)
    out = (pathlib.Path(__file__).parents[1] / "cli/cases/umap/umap-plot-many.out").read_text()
    wanted = [json.loads("{" + line.rstrip(",") + "}") for line in out.splitlines() if line.startswith('"')]
    for n, (noise, count) in enumerate((("noise", 40), ("-1", 31))):
        labels = np.where(i % count == 3, noise, np.char.add("kind ", (i % count).astype(str)))
        data = data_of(plot.interactive(some_map(spots), labels=labels).to_html())
        for part in wanted[3 * n : 3 * n + 3]:
            assert {name: data[name] for name in part} == part


def test_many_points_become_pixels(rng):
    places = rng.normal(size=(30_000, 2)).astype(np.float32)
    labels = (places[:, 0] > 0).astype(int)
    ax = plot.points(some_map(places), labels=labels, color_key=["#ff0000", "#0000ff"], width=200, height=100)
    picture, extent = pixels_of(ax), ax.images[0].get_extent()
    assert picture.shape == (100, 200, 3) and extent[0] < places[:, 0].min() and extent[3] > places[:, 1].max()
    counts = umap.raster_points(places, extent=extent, width=200, height=100)[:, :, 0]
    assert (picture[counts == 0] == 255).all() and (picture[counts > 0] != 255).any(axis=1).all()
    red = umap.raster_points(places, labels - 1, extent=extent, width=200, height=100)[:, :, 0] == 0
    assert (picture[(counts > 0) & red, 0] > 0).all()
    most = np.unravel_index(np.argmax(np.where(red, counts, 0)), counts.shape)
    assert picture[most][2] < picture[most][0]  # where most points are red, red is strongest
    plain = pixels_of(plot.points(some_map(places), theme="inferno", width=200, height=100))
    assert (plain[counts == 0] == 0).all() and plain[counts == counts.max()].astype(int).sum() > 600
    faint = pixels_of(plot.points(some_map(places), labels=labels, width=200, height=100, alpha=0.0))
    assert (faint == 255).all()


def test_points_without_a_place():
    places = np.array([[0, 0], [1, 1], [np.nan, np.nan], [2, 0], [np.inf, 1]])
    shown = plot.points(some_map(places), labels=["a", "b", "c", "d", "e"])
    assert len(shown.collections[0].get_offsets()) == 3
    nowhere = some_map(np.full((4, 2), np.nan))
    plot.points(nowhere, labels=list("abcd"))
    plot.points(nowhere, width=1, height=1)
    assert data_of(plot.interactive(nowhere, values=np.ones(4)).to_html())["count"] == 0
    one = some_map(np.ones((30, 2)))
    plot.points(one, width=10, height=10)
    data_of(plot.interactive(one, labels=["x"] * 30).to_html())


def test_plots_refuse(fitted):
    mapper, labels = fitted
    for kind, words, call in [
        (ValueError, "labels: expected 120", lambda: plot.points(mapper, labels=labels[:5])),
        (ValueError, "values: expected 120", lambda: plot.points(mapper, values=np.ones((120, 2)))),
        (ValueError, "labels and values", lambda: plot.points(mapper, labels=labels, values=labels)),
        (ValueError, "theme: 'pink' is not one of 'fire'", lambda: plot.points(mapper, theme="pink")),
        (ValueError, "alpha: 2", lambda: plot.points(mapper, alpha=2)),
        (ValueError, "alpha: 'x' is not 0 to 1", lambda: plot.points(mapper, alpha="x")),
        (ValueError, "^values: 'a' is not a number", lambda: plot.points(mapper, values=["1"] * 119 + ["a"])),
        (ValueError, "^background: 'nope' is not a colour", lambda: plot.points(mapper, background="nope")),
        (ValueError, "^background: 'nope' is not a colour", lambda: plot.connectivity(mapper, background="nope")),
        (ValueError, "^background: 'nope' is not a colour", lambda: plot.diagnostic(mapper, "neighborhood", background="nope")),
        (ValueError, "no colour for the label 2", lambda: plot.points(mapper, labels=labels, color_key={0: "red", 1: "red"})),
        (ValueError, "2 colours are not enough for 3", lambda: plot.points(mapper, labels=labels, color_key=["red"] * 2)),
        (ValueError, "'reddish' is not a colour", lambda: plot.points(mapper, labels=labels, color_key=["reddish"] * 3)),
        (ValueError, "cmap: 'Blue'", lambda: plot.points(mapper, values=labels, cmap="Blue")),
        (ValueError, "subset_points: expected 120", lambda: plot.points(mapper, subset_points=labels[:9] > 0)),
        (ValueError, "subset_points: 0 .. 120", lambda: plot.points(mapper, subset_points=[0, 120])),
        (ValueError, "two dimensions", lambda: plot.points(some_map(np.ones((5, 3))))),
        (ValueError, "UMAP has no embedding_", lambda: plot.points(UMAP())),
        (ValueError, "edge_bundling: 'pipe'", lambda: plot.connectivity(mapper, edge_bundling="pipe")),
        (ValueError, "has no graph_", lambda: plot.connectivity(some_map(np.ones((5, 2))))),
        (ValueError, "diagnostic_type: 'lda'", lambda: plot.diagnostic(mapper, "lda")),
        (ValueError, "nhood_size: 1", lambda: plot.diagnostic(mapper, "neighborhood", nhood_size=1)),
        (ValueError, "has no data", lambda: plot.diagnostic(some_map(np.ones((5, 2))))),
        (ValueError, "no distances", lambda: plot.nearest_neighbour_distribution(some_map(np.ones((5, 2))))),
        (ValueError, "plot_to_show", lambda: plot.show(3)),
    ]:
        refuses(call, kind, words)


def test_without_matplotlib(tmp_path):
    """Static plots say what they lack; the page works without it, and importing plot takes nothing along."""
    code = """if True:
        import sys
        sys.modules["matplotlib"] = None
        import types, numpy as np, napier.umap.plot as plot
        mapper = types.SimpleNamespace(embedding_=np.random.default_rng(0).normal(size=(50, 2)), n_neighbors=5, min_dist=0.1)
        for call in (plot.points, plot.connectivity, plot.diagnostic, lambda m: plot.interactive(m, theme="viridis")):
            try:
                call(mapper)
            except ImportError as error:
                assert "needs matplotlib" in str(error) and "pip install matplotlib" in str(error), error
            else:
                raise AssertionError(call)
        for options in ({}, {"labels": [1, 2] * 25}, {"values": range(50)}):
            assert "<html" in plot.interactive(mapper, **options).to_html()
    """
    run_python("-c", code)
    assert (
        run_python("-c", "import sys, napier.umap.plot; print([m for m in ('matplotlib', 'sklearn', 'scipy') if m in sys.modules])").strip()
        == "[]"
    )


# ---- connectivity, diagnostic -----------------------------------------------------------------------------------------


def test_connectivity(fitted):
    mapper, labels = fitted
    straight = pixels_of(plot.connectivity(mapper, width=200, height=200))
    bundled = pixels_of(plot.connectivity(mapper, edge_bundling="hammer", width=200, height=200))
    assert straight.shape == bundled.shape == (200, 200, 3)
    assert (bundled < 255).any(axis=2).sum() < (straight < 255).any(axis=2).sum()  # together they cover less
    both = plot.connectivity(mapper, show_points=True, labels=labels, theme="darkred", width=200, height=200)
    assert len(both.collections[0].get_offsets()) == 120 and (pixels_of(both)[0, 0] == 0).all()
    over = pixels_of(plot.connectivity(mapper, show_points=True, labels=labels, width=30, height=30))
    assert (over != pixels_of(plot.connectivity(mapper, width=30, height=30))).any()


def test_bundles_keep_their_ends(rng):
    places = rng.uniform(0.1, 0.9, (40, 2))
    sources, targets = rng.integers(0, 40, 200), rng.integers(0, 40, 200)
    points, edge = bundle.bundle(places, sources, targets, np.ones(200, np.int64))
    first = np.flatnonzero(np.diff(edge, prepend=-1))
    last = np.flatnonzero(np.diff(edge, append=200))
    assert (points[first] == places[sources]).all() and np.allclose(points[last], places[targets], atol=1e-15)
    assert (points >= 0).all() and (points <= 1).all()


def test_diagnostics(fitted):
    mapper, _ = fitted
    axes, numbers = plot.diagnostic(mapper, "all", return_diagnostics=True)
    assert len(axes) == 5 and list(numbers) == ["pca", "ica", "vq", "local_dim", "neighborhood"]
    for kind in ("pca", "ica", "vq"):
        assert numbers[kind].shape == (120, 3) and numbers[kind].min() == 0 and numbers[kind].max() == 1
    data, near = mapper._raw_data, mapper._knn_indices
    spread = np.linalg.svd(data[near[7]] - data[near[7]].mean(axis=0), compute_uv=False) ** 2
    assert numbers["local_dim"][7] == np.flatnonzero(np.cumsum(spread) / spread.sum() > 0.8)[0]
    high, low = umap.nearest_neighbors(data, 10)[0], umap.nearest_neighbors(mapper.embedding_, 10)[0]
    shares = [len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in zip(high, low, strict=True)]
    assert np.allclose(plot.diagnostic(mapper, "neighborhood", nhood_size=10, return_diagnostics=True, plot_result=False), shares)
    assert plot.diagnostic(mapper, "pca", plot_result=False) is None
    assert plot.nearest_neighbour_distribution(mapper, bins=7).patches[6] is not None


# ---- The page -----------------------------------------------------------------------------------------------------------

HOSTILE = ["</script><script>intruder=1</script>", "<!--<script>", "\"&'\u2028", "\ud800 lone", "\0 nul", ""]


def test_page_holds_what_was_given(fitted):
    mapper, labels = fitted
    shown = plot.interactive(
        mapper,
        labels=labels,
        hover_data={"row": np.arange(120), "kind": np.array(["u", "v", "w"])[labels]},
        interactive_text_search=True,
        theme="fire",
        point_size=8,
        alpha=0.5,
        tools="pan,wheel_zoom, hover",
        interactive_text_search_alpha_contrast=0.75,
    )
    data = data_of(shown.to_html(title="T"))
    assert (data["count"], data["title"], data["paper"], data["theme"]) == (120, "T", [0, 0, 0], "dark")
    assert (data["radius"], data["opacity"], data["tools"], data["faded"]) == (4, 0.5, ["pan", "wheel_zoom"], 0.25)
    import base64

    assert base64.b64decode(data["xy"]) == mapper.embedding_.astype("<f4").tobytes()
    assert base64.b64decode(data["codes"]) == labels.astype("<i4").tobytes()
    row, kind = data["columns"]
    assert row["texts"][119] == "119" and set(kind["texts"]) == {"u", "v", "w"}
    assert data["search"] and data["searchNames"] and all(column["sought"] for column in data["columns"])
    some = data_of(plot.interactive(mapper, values=np.arange(120.0), subset_points=labels == 0).to_html())
    assert base64.b64decode(some["rows"]) == np.flatnonzero(labels == 0).astype("<i4").tobytes() and not some["search"]


def test_texts_of_columns():
    assert page.column_of("a", [1.5, np.nan, 1e20])["texts"][:2] == ["1.5", "1e+20"]
    assert page.column_of("a", np.array(["2020-01-01", "NaT"], "datetime64[D]"))["texts"] == ["2020-01-01", ""]
    assert page.column_of("a", [True, False, True])["texts"] == ["False", "True"]
    assert page.column_of("a", [None, "x", 3])["texts"] == ["", "x", "3"]
    assert page.column_of("id", [1234567.0, np.nan, 987654321012.0, -0.0])["texts"] == ["0", "1234567", "987654321012", ""]
    mixed = page.column_of("id", np.array([1234567.0, None, True, 2.0**53], object))
    assert mixed["texts"] == ["1234567", "", "True", "9.00719925e+15"]
    assert page.column_of("a", np.array([0.1, 1234.5678], np.float32))["texts"] == ["0.1", "1234.5677"]
    assert page.column_of("a", [1 / 3, np.inf, 0.1])["texts"] == ["0.1", "0.333333333", "inf"]


def test_floats_as_ids_on_the_page():
    shown = plot.interactive(some_map(np.eye(2)), labels=[1234567.0, 2.5], hover_data={"id": [7654321.0, np.nan]})
    data = data_of(shown.to_html())
    assert data["names"] == ["2.5", "1234567"] and data["columns"][0]["texts"] == ["7654321", ""]


def test_maps_without_points(fitted):
    mapper, labels = fitted
    none = np.zeros(120, bool)
    for options in ({"labels": labels}, {"values": labels}, {}):
        assert data_of(plot.interactive(mapper, subset_points=none, **options).to_html())["count"] == 0
        plot.points(mapper, subset_points=none, **options)


def test_the_largest_values():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = data_of(plot.interactive(some_map(np.eye(2)), values=[1.7e308, -1.7e308]).to_html())
    assert (data["least"], data["most"], data["wide"]) == (-1.7e308, 1.7e308, True)
    assert page.column_of("a", ["x"] * 4)["texts"] == ["x"] and "codes" in page.column_of("a", ["x"] * 4)


def test_labels_cannot_leave_the_page(tmp_path):
    mapper = some_map(np.random.default_rng(0).normal(size=(len(HOSTILE), 2)))
    shown = plot.interactive(mapper, labels=HOSTILE, hover_data={HOSTILE[0]: HOSTILE[::-1]}, interactive_text_search=True)
    text = shown.to_html(title=HOSTILE[0])
    assert text.count("intruder") == text.count(r"\u003cscript>intruder") + text.count("&lt;script&gt;intruder") > 3
    assert text.lower().count("</script") == 2
    data = data_of(text)
    assert set(data["names"]) == set(HOSTILE)
    frame = shown._repr_html_()
    assert frame.count("<") == 2 and frame.count('"') == 2 * 5
    assert html.unescape(re.search('srcdoc="(.*?)"', frame, re.S)[1]) == shown.to_html()
    shown.save(tmp_path / "map.html")
    assert data_of((tmp_path / "map.html").read_text(encoding="utf-8"))["count"] == len(HOSTILE)


def test_interactive_refuses(fitted):
    mapper, labels = fitted
    for kind, words, call in [
        (ValueError, "hover_data: column 'x' has the shape", lambda: plot.interactive(mapper, hover_data={"x": [1, 2, 3]})),
        (TypeError, "hover_data: expected a data frame", lambda: plot.interactive(mapper, hover_data=[1] * 120)),
        (ValueError, "point_size: 0", lambda: plot.interactive(mapper, point_size=0)),
        (ValueError, "point_size: '9'", lambda: plot.interactive(mapper, point_size="9")),
        (ValueError, "alpha: nan", lambda: plot.interactive(mapper, alpha=np.nan)),
        (ValueError, "alpha: 'x'", lambda: plot.interactive(mapper, alpha="x")),
        (ValueError, "tools: 5 is not", lambda: plot.interactive(mapper, tools=5)),
        (ValueError, "^values: 'a'", lambda: plot.interactive(mapper, values=["a"] * 120)),
        (ValueError, "^background: 'nope'", lambda: plot.interactive(mapper, background="nope")),
        (ValueError, "contrast: 3", lambda: plot.interactive(mapper, interactive_text_search_alpha_contrast=3)),
        (
            ValueError,
            "'x' is not one of 'label'",
            lambda: plot.interactive(mapper, labels=labels, interactive_text_search=True, interactive_text_search_columns=["x"]),
        ),
    ]:
        refuses(call, kind, words)
    with pytest.warns(UserWarning, match="no labels and no hover_data"):
        plot.interactive(mapper, interactive_text_search=True)
    with pytest.warns(UserWarning, match="no 'lasso_select'"):
        plot.interactive(mapper, tools=["pan", type("LassoSelectTool", (), {})()])


@pytest.mark.parametrize("size", ['"><script>', "800", 0, -5, 800.5, None, True])
def test_sizes_are_whole_numbers(fitted, size):
    refuses(lambda: plot.interactive(fitted[0], width=size), ValueError, f"^width: {size!r} is not a whole number")
    refuses(lambda: plot.interactive(fitted[0], height=size), ValueError, "^height: ")
    shown = plot.interactive(fitted[0], width=np.int64(640), height=480)
    assert 'width="640" height="480"' in shown._repr_html_()
    shown.width = size
    refuses(shown._repr_html_, ValueError, "^width: ")


def test_save_replaces_whole_files(fitted, tmp_path, monkeypatch):
    shown = plot.interactive(fitted[0])
    path, link = tmp_path / "map.html", tmp_path / "link.html"
    path.write_text("before")
    path.chmod(0o640)
    link.symlink_to(path)
    shown.save(link)
    assert link.is_symlink() and path.read_text() == shown.to_html() and stat.S_IMODE(path.stat().st_mode) == 0o640
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    refuses(lambda: shown.save(path, "other"), OSError, "full")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.html", "map.html"] and path.read_text() == shown.to_html()
    refuses(lambda: shown.save(tmp_path / "none" / "map.html"), FileNotFoundError)


def test_show(fitted, tmp_path, monkeypatch):
    import webbrowser

    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    plot.output_file(tmp_path / "map.html", title="Mine")
    plot.show(plot.interactive(fitted[0]))
    assert opened == [(tmp_path / "map.html").as_uri()] and "<title>Mine</title>" in (tmp_path / "map.html").read_text()
    plot.output_notebook()
    display = types.ModuleType("IPython.display")
    display.display = opened.append
    monkeypatch.setitem(__import__("sys").modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(__import__("sys").modules, "IPython.display", display)
    plot.show(plot.interactive(fitted[0]))
    assert isinstance(opened[1], plot.InteractiveMap)
    plot.show(plot.points(fitted[0]))


def test_signatures_are_umap_plots():
    """The names and defaults of umap.plot 0.5.12."""
    look = "theme=None, cmap='Blues', color_key=None, color_key_cmap=None, background='white', width=800, height=800"
    for function, wanted in [
        (
            plot.points,
            f"umap_object, points=None, labels=None, values=None, {look}, show_legend=True, subset_points=None, ax=None, alpha=None",
        ),
        (plot.connectivity, f"umap_object, edge_bundling=None, edge_cmap='gray_r', show_points=False, labels=None, values=None, {look}"),
        (
            plot.diagnostic,
            "umap_object, diagnostic_type='pca', nhood_size=15, local_variance_threshold=0.8, ax=None, "
            "cmap='viridis', point_size=None, background='white', width=800, height=800, "
            "return_diagnostics=False, plot_result=True",
        ),
        (
            plot.interactive,
            f"umap_object, labels=None, values=None, hover_data=None, tools=None, {look}, point_size=None, "
            "subset_points=None, interactive_text_search=False, interactive_text_search_columns=None, "
            "interactive_text_search_alpha_contrast=0.95, alpha=None",
        ),
        (plot.nearest_neighbour_distribution, "umap_object, bins=25, ax=None"),
        (plot.show, "plot_to_show"),
    ]:
        plain = [p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values()]
        assert str(inspect.Signature(plain)) == f"({wanted})", function


BROWSER = next(filter(None, (shutil.which(name, path="/usr/bin:/usr/local/bin") for name in ("chromium", "google-chrome"))), None)
SCRIPT = """<script>'use strict'; {
  const lines = [document.documentElement.dataset.state];
  const search = element('search');
  search.value = 'GREEN';
  search.dispatchEvent(new Event('input', { bubbles: true }));
  lines.push(element('found').textContent, sought.join(''));
  point(2);
  lines.push(tip.firstElementChild.textContent, element('facts').textContent, tip.lastElementChild.textContent.split(' \\u00b7 ')[0]);
  lines.push([...paper].join(), css(shade[0]), String(globalThis.intruder), String(can('pan')), String(can('save')));
  const pre = document.createElement('pre');
  pre.id = 'report';
  pre.textContent = `\\n${lines.join('\\n')}\\n`;
  document.body.append(pre);
}</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_the_page_in_a_browser(tmp_path):
    mapper = some_map([[0, 0], [np.nan, np.nan], [1, 1], [0, 1]])
    shown = plot.interactive(
        mapper,
        labels=["a", "lost", "<b>b</b>", "c"],
        background="#102030",
        color_key=["#ff0000"] * 4,
        hover_data={"leaf": ["red", "green", "Dark <i>green</i>", "blue"]},
        interactive_text_search=True,
        tools=["pan"],
    )
    (tmp_path / "map.html").write_text(shown.to_html() + SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path}/profile",
            "--window-size=1000,800",
            "--dump-dom",
            f"file://{tmp_path}/map.html#2d",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    report = re.search('<pre id="report">\n(.*?)\n</pre>', done.stdout, re.S)
    if not report and "data-state" not in done.stdout:
        pytest.skip("Chromium does not start here")
    assert html.unescape(report[1]).split("\n") == [
        "ready 3 points",
        "1 found",
        "010",
        "c",
        "leafblue",
        "point 3",
        "16,32,48",
        "rgb(255, 0, 0)",
        "undefined",
        "true",
        "false",
    ]
