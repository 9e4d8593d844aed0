#!/usr/bin/env python3
"""Draws the examples of umap-learn's documentation with umap-learn and with Napier, side by side: docs/umap-plot.md shows
the pictures.

    python3 tools/umap_documentation.py [FOLDER [NAME...]]      default: docs/pictures, all pictures

needs napier and umap-learn[plot], and Chromium for umap-interactive.png. Each example is a function of the module `umap`, which is umap-learn's or napier.umap;
it makes the calls of the documentation with their parameters. Data that would have to be fetched are replaced:
the digits of scikit-learn for MNIST and Fashion-MNIST, its flowers for the penguins."""

import io
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import matplotlib
import numpy as np
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from PIL import Image, ImageDraw, ImageFont  # noqa: E402

PANEL, GAP, TITLE, NAME = 196, 6, 20, 22  # pixels
COLOURS = 160  # of a file, to keep it small
SMALL = {"width": 400, "height": 400}  # so that points are seen in a panel
digits, iris = load_digits(), load_iris()


def scatter(places, labels, size=5):
    _, ax = plt.subplots(figsize=(5, 5))
    ax.scatter(places[:, 0], places[:, 1], s=size, c=labels, cmap="Spectral")
    ax.set(xticks=[], yticks=[])
    return ax


# ---- The examples: each yields a title and axes -------------------------------------------------------------------------


def start(umap):
    embedding = umap.UMAP(n_neighbors=5, min_dist=0.3, metric="correlation").fit_transform(digits.data)
    yield "README: correlation", scatter(embedding, digits.target)
    flowers = umap.UMAP().fit_transform(StandardScaler().fit_transform(iris.data))
    yield "basic usage: iris", scatter(flowers, iris.target, 9)
    reducer = umap.UMAP(random_state=42).fit(digits.data)
    yield "basic usage: digits", scatter(reducer.embedding_, digits.target)
    train, test, train_labels, test_labels = train_test_split(digits.data, digits.target, stratify=digits.target, random_state=42)
    trans = umap.UMAP(n_neighbors=5, random_state=42).fit(train)
    yield "transform: training set", scatter(trans.embedding_, train_labels)
    yield "transform: test set", scatter(trans.transform(test), test_labels)


def plotting(umap):
    mapper = umap.UMAP(random_state=42).fit(digits.data)
    yield "points", umap.plot.points(mapper, **SMALL)
    yield "points: labels", umap.plot.points(mapper, labels=digits.target, **SMALL)
    yield "points: values, fire", umap.plot.points(mapper, values=digits.data.mean(axis=1), theme="fire", **SMALL)
    yield "points: Paired on black", umap.plot.points(mapper, labels=digits.target, color_key_cmap="Paired", background="black", **SMALL)
    many = np.random.default_rng(1).normal(scale=0.12, size=(60, *mapper.embedding_.shape)) + mapper.embedding_
    yield (
        "107,820 points, fire",
        umap.plot.points(mapper, points=many.reshape(-1, 2).astype(np.float32), labels=np.tile(digits.target, 60), theme="fire", **SMALL),
    )


def connectivity(umap):
    mapper = umap.UMAP(random_state=42).fit(digits.data)
    yield "connectivity", umap.plot.connectivity(mapper, show_points=True, **SMALL)
    yield "connectivity: hammer", umap.plot.connectivity(mapper, edge_bundling="hammer")
    for kind in ("pca", "local_dim", "neighborhood"):
        yield f"diagnostic: {kind}", umap.plot.diagnostic(mapper, diagnostic_type=kind, **SMALL)


def supervised(umap):
    data, target = digits.data / 16.0, digits.target
    yield "without labels", scatter(umap.UMAP(n_neighbors=5).fit_transform(data), target, 3)
    yield "with labels", scatter(umap.UMAP().fit_transform(data, y=target), target, 3)
    masked = target.copy().astype(np.int8)
    masked[np.random.default_rng(0).choice(len(target), size=len(target) // 7, replace=False)] = -1
    yield "one in 7 unlabelled", scatter(umap.UMAP().fit(data, y=masked).embedding_, target, 3)
    mapper = umap.UMAP(n_neighbors=10).fit(data[:1500], target[:1500])
    yield "training set", scatter(mapper.embedding_, target[:1500], 3)
    yield "test set", scatter(mapper.transform(data[1500:]), target[1500:], 6)


def densmap(umap):
    def plot(**options):
        return umap.plot.points(umap.UMAP(random_state=42, **options).fit(digits.data), labels=digits.target, show_legend=False, **SMALL)

    yield "UMAP", plot()
    yield "densMAP", plot(densmap=True)
    yield "dens_lambda=5", plot(densmap=True, dens_lambda=5.0)
    yield "dens_lambda=0.1", plot(densmap=True, dens_lambda=0.1)


def composition(umap):
    top = umap.UMAP(random_state=42).fit(digits.data[:, :32])
    bottom = umap.UMAP(random_state=42).fit(digits.data[:, 32:])
    for title, mapper in (
        ("top half", top),
        ("bottom half", bottom),
        ("top * bottom", top * bottom),
        ("top + bottom", top + bottom),
        ("top - bottom", top - bottom),
    ):
        yield title, umap.plot.points(mapper, labels=digits.target, show_legend=False, **SMALL)


def aligned(umap):
    order = np.argsort(digits.data.sum(axis=1), kind="stable")
    data, target = digits.data[order], digits.target[order]
    slices = [slice(150 * i, min(len(data), 150 * i + 400)) for i in range(10)]
    relations = [{i + 150: i for i in range(400 - 150)} for _ in range(9)]
    mapper = umap.AlignedUMAP(random_state=42).fit([data[s] for s in slices], relations=relations)
    every = np.vstack(mapper.embeddings_)
    for i in (0, 2, 4, 6, 8):
        ax = scatter(mapper.embeddings_[i], target[slices[i]], 6)
        ax.set(xlim=(every[:, 0].min() - 1, every[:, 0].max() + 1), ylim=(every[:, 1].min() - 1, every[:, 1].max() + 1))
        yield f"slice {i}", ax


EXAMPLES = (start, plotting, connectivity, supervised, densmap, composition, aligned)


# ---- Sheets -------------------------------------------------------------------------------------------------------------


def picture_of(ax):
    """What lies within the frame of the axes, PANEL pixels wide and high."""
    ax.set_title("")
    if ax.get_legend():
        ax.get_legend().remove()
    for text in list(ax.texts):
        text.remove()
    figure = ax.figure
    figure.set_dpi(160)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[:, :, :3]
    box = ax.get_window_extent()
    top, left = round(len(pixels) - box.y1), round(box.x0)
    image = Image.fromarray(pixels[max(0, top) : round(len(pixels) - box.y0), left : round(box.x1)])
    plt.close("all")
    return image.resize((PANEL, PANEL), Image.Resampling.LANCZOS)


def sheet(rows):
    """A picture of rows (name, [(title, picture)])."""
    columns = max(len(panels) for _, panels in rows)
    wide, high = NAME + columns * (PANEL + GAP), TITLE + len(rows) * (PANEL + GAP)
    result = Image.new("RGB", (wide, high), "white")
    draw, font = ImageDraw.Draw(result), ImageFont.load_default(13)
    for i, (name, panels) in enumerate(rows):
        top = TITLE + i * (PANEL + GAP)
        label = Image.new("RGB", (PANEL, NAME), "white")
        ImageDraw.Draw(label).text((PANEL / 2, 9), name, fill="#24292f", font=font, anchor="mm")
        result.paste(label.rotate(90, expand=True), (0, top))
        for k, (title, picture) in enumerate(panels):
            left = NAME + k * (PANEL + GAP)
            result.paste(picture, (left, top))
            draw.rectangle((left, top, left + PANEL - 1, top + PANEL - 1), outline="#d5d9de")
            draw.text((left + PANEL / 2, 9), title if i == 0 else "", fill="#24292f", font=font, anchor="mm")
    return result


HOVER = """<script>'use strict'; {
  const box = map.getBoundingClientRect(), at = {pointerId: 1, pointerType: 'mouse', bubbles: true};
  map.dispatchEvent(new PointerEvent('pointermove', {...at, clientX: box.left + screenX(xy[12]), clientY: box.top + screenY(xy[13])}));
}</script>"""


def interactive(umap, path):
    """A picture of the page, with the pointer at point 6."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("umap-interactive.png: no Chromium")
    about = {"image": range(len(digits.data)), "digit": digits.target, "ink": digits.data.mean(axis=1)}
    mapper = umap.UMAP(random_state=42).fit(digits.data)
    with tempfile.TemporaryDirectory() as work:
        page = pathlib.Path(work, "map.html")
        umap.plot.interactive(mapper, labels=digits.target, hover_data=about, interactive_text_search=True).save(str(page))
        page.write_text(page.read_text() + HOVER)
        options = ["--headless", "--no-sandbox", f"--user-data-dir={work}/profile", "--window-size=900,600", "--hide-scrollbars"]
        subprocess.run(
            [browser, *options, f"--screenshot={work}/page.png", f"file://{page}#2d"], check=True, capture_output=True, timeout=120
        )
        path.write_bytes(smaller(Image.open(f"{work}/page.png").convert("RGB")))


def smaller(image):
    packed = io.BytesIO()
    image.quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(packed, "png", optimize=True)
    return packed.getvalue()


def main():
    warnings.filterwarnings("ignore")
    import umap as theirs
    import umap.plot
    from napier import umap as ours

    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1] / "docs/pictures"
    folder.mkdir(exist_ok=True)
    for example in EXAMPLES:
        if len(sys.argv) > 2 and example.__name__ not in sys.argv[2:]:
            continue
        rows = [
            (name, [(title, picture_of(ax)) for title, ax in example(module)])
            for name, module in (("umap-learn", theirs), ("Napier", ours))
        ]
        path = folder / f"umap-{example.__name__}.png"
        path.write_bytes(smaller(sheet(rows)))
        print(f"{path}: {path.stat().st_size:,} bytes", flush=True)
    if len(sys.argv) <= 2 or "interactive" in sys.argv[2:]:
        interactive(ours, folder / "umap-interactive.png")


if __name__ == "__main__":
    main()
