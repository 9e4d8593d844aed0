"""A map as one HTML page with zoom, hover and search. The page is cli/plot/plot_page.html, which the program uses too;
this module writes the data into it."""

from __future__ import annotations

import base64
import html
import json
import math
import numbers
import os
import pathlib
import secrets
import stat
from os import PathLike
from typing import Any, Optional

import numpy as np

from .colours import GREY, hexes
from .places import name_points
from .targets import is_missing

MOST_COLOURED = 250  # categories with a shade and a legend entry of their own


# ---- Parts of the data ----------------------------------------------------------------------------------------------


def _bytes(array, dtype):
    return base64.b64encode(np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<")).tobytes()).decode("ascii")


def _script_json(value):
    """JSON that may stand in a <script>: no text in it can end the script."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _text(value):
    """A value as it is shown; nothing for a missing one."""
    if is_missing(value):
        return ""
    return _number_text(value) if isinstance(value, float) else str(value)


def _number_text(value):
    """Whole numbers as integers, so that an id can be read and found; others with at most 9 significant digits."""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value:.9g}"


def _numbers_of(values):
    """As Python's numbers. Those of float32 have as few digits as in float32."""
    short = values.dtype.kind == "f" and values.dtype.itemsize < 8
    return [float(str(value)) for value in values] if short else values.tolist()


def column_of(name, values):
    """A column of texts for the page: distinct texts and the code of each point's, or one for each point."""
    values = np.asarray(values)
    if values.dtype.kind in "biufMm":
        distinct, codes = np.unique(values, return_inverse=True)
        texts, codes = [_text(value) for value in _numbers_of(distinct)], codes.ravel()
        if values.dtype.kind in "Mm":
            texts = [_text(str(value)) if value == value else "" for value in distinct]
    else:
        shown = [_text(value) for value in values.tolist()]
        places = {text: i for i, text in enumerate(dict.fromkeys(shown))}
        if 2 * len(places) > len(shown):
            return {"name": name, "texts": shown}
        texts, codes = list(places), np.array([places[text] for text in shown])
    return {"name": name, "texts": texts, "codes": _bytes(codes, np.int32)}


def _coloured(sizes, noise):
    """The index among the shades of each category: its own for the largest, else the grey behind them."""
    known = np.flatnonzero(np.logical_not(noise))
    largest = np.sort(known[np.argsort(-sizes[known], kind="stable")[:MOST_COLOURED]])
    shades = np.full(len(sizes), len(largest))
    shades[largest] = np.arange(len(largest))
    return shades, largest


def _ticks(least, most):
    """At most eight round numbers on the scale: [place from 0 to 1, text]."""
    length = most - least
    if not length > 0 or math.isinf(length):
        return [[0.5, f"{least:.6g}"]] if length == 0 else [[0.0, f"{least:.4g}"], [1.0, f"{most:.4g}"]]
    power = 10.0 ** math.floor(math.log10(length)) or length
    step = next((s * power for s in (0.2, 0.5, 1, 2, 5, 10) if s * power * 5 >= length), length)
    first = math.ceil(least / step - 1e-9)
    ticks = ((first + i) * step for i in range(8))
    return [[(tick - least) / length, f"{tick + 0.0:.6g}"] for tick in ticks if tick <= most + 1e-9 * step]


# ---- The map ----------------------------------------------------------------------------------------------------------


def categories_data(places, kinds, light, dark):
    """light and dark: the colours of the categories on a light and on a dark page."""
    missing = [is_missing(name) for name in kinds.names]
    kept = np.flatnonzero(np.logical_not(missing))
    place = np.full(len(missing) + 1, -1)
    place[kept] = np.arange(len(kept))  # those without a label have the code -1
    codes, noise = place[kinds.codes], [kinds.noise[i] for i in kept]
    sizes = np.bincount(codes[codes >= 0], minlength=len(kept))
    shades, coloured = _coloured(sizes, noise)
    names = [_text(kinds.names[i]) for i in kept]
    shown = {int(code) for code in coloured}
    marks = [
        mark for mark in name_points(places, kinds.codes, [_text(name) for name in kinds.names], kinds.noise) if place[mark[0]] in shown
    ]
    return {
        "kind": "categories",
        "codes": _bytes(codes, np.int32),
        "names": names,
        "sizes": sizes.tolist(),
        "shades": shades.tolist(),
        "noise": np.flatnonzero(noise).tolist(),
        "colours": hexes([*light[kept][coloured].tolist(), GREY]),
        "dark": hexes([*dark[kept][coloured].tolist(), GREY]),
        "marks": [[int(place[code]), point] for code, point in marks],
        "ticks": [],
    }


def values_data(values, steps, colours):
    known = np.where(np.isfinite(values), values, np.nan)
    wide = max(abs(steps.least), abs(steps.most)) > float(np.finfo(np.float32).max)
    return {
        "kind": "numbers",
        "values": _bytes(known, np.float64 if wide else np.float32),
        "wide": bool(wide),
        "least": steps.least,
        "most": steps.most,
        "colours": hexes([*colours.tolist(), GREY]),
        "marks": [],
        "ticks": _ticks(steps.least, steps.most),
    }


def plain_data(colour):
    return {"kind": "none", "colours": hexes([colour, GREY]), "marks": [], "ticks": []}


def places_data(places, rows, subtitle):
    """Where the points are, and how large their marks: as the program chooses them."""
    ratio = max(len(places) / 1000, 1)
    span = float(np.ptp(places.astype(np.float64), axis=0).max()) if len(places) else 0.0
    data = {
        "count": len(places),
        "flat": False,
        "title": "",
        "subtitle": subtitle,
        "radius": max(2.2 * ratio**-0.26, 0.45),
        "opacity": max(0.9 * ratio**-0.11, 0.2),
        "fit": 692 / span if span > 0 else 1.0,
        "xy": _bytes(places, np.float32),
    }
    return data if rows is None else data | {"rows": _bytes(rows, np.int32)}


def _pixels(name, value):
    """A size in pixels, which is written into a page."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}: {value!r} is not a whole number of pixels above 0")
    return int(value)


class InteractiveMap:
    """A page with a map. In a notebook it shows itself; save(path) writes it as an .html file, which loads nothing.

    Examples
    --------
    >>> import napier, napier.umap.plot, numpy as np
    >>> mapper = napier.UMAP(n_neighbors=10, n_epochs=50).fit(np.random.default_rng(0).normal(size=(100, 5)))
    >>> page = napier.umap.plot.interactive(mapper)
    >>> page.save("map.html")
    >>> "</html>" in page.to_html(title="A map")
    True
    """

    __module__ = "napier.umap.plot"
    width: int
    height: int

    def __init__(self, data: dict[str, Any], width: int, height: int) -> None:
        self._data, self.width, self.height = data, _pixels("width", width), _pixels("height", height)

    def to_html(self, title: Optional[str] = None) -> str:
        """The page as text."""
        data = self._data if title is None else self._data | {"title": str(title)}
        page = pathlib.Path(__file__).with_name("map_page.html").read_text(encoding="utf-8")
        head, rest = page.split("@TITLE@", 1)
        middle, tail = rest.split("@DATA@", 1)
        return "".join([head, html.escape(data["title"] or data["subtitle"]), middle, _script_json(data), tail])

    def save(self, path: str | PathLike[str], title: Optional[str] = None) -> None:
        """Writes the page to a file beside `path`, then renames it, so that `path` never holds a part of it."""
        write_beside(path, self.to_html(title).encode("utf-8", "replace"))

    def _repr_html_(self):
        page, width, height = html.escape(self.to_html()), _pixels("width", self.width), _pixels("height", self.height)
        return (
            f'<iframe srcdoc="{page}" width="{width}" height="{height}" style="border: 0; max-width: 100%" '
            'sandbox="allow-scripts allow-downloads"></iframe>'
        )

    def __repr__(self):
        return f"<InteractiveMap of {self._data['subtitle']}; show it in a notebook, or save('map.html')>"


def write_beside(path, content):
    """Writes a file by another one beside it. A link stays a link, and a file keeps its mode; a device or a pipe is
    written directly."""
    path = os.path.realpath(os.fspath(path))
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with open(path, "wb") as file:
            file.write(content)
        return
    beside = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        with open(beside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(beside, stat.S_IMODE(mode))
        os.replace(beside, path)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise
