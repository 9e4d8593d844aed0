"""Colours of plots: umap.plot's themes, scales, colours of labels and values. matplotlib is imported only for the colours
and scales that are not known here."""
from typing import NamedTuple

import numpy as np

GREY = (0xB8, 0xBC, 0xC2)  # of points without a value


class Theme(NamedTuple):
    cmap: str
    color_key_cmap: str
    background: str
    edge_cmap: str


THEMES = {
    "fire": Theme("fire", "rainbow", "black", "fire"),
    "viridis": Theme("viridis", "Spectral", "black", "gray"),
    "inferno": Theme("inferno", "Spectral", "black", "gray"),
    "blue": Theme("Blues", "tab20", "white", "gray_r"),
    "red": Theme("Reds", "tab20b", "white", "gray_r"),
    "green": Theme("Greens", "tab20c", "white", "gray_r"),
    "darkblue": Theme("darkblue", "rainbow", "black", "darkred"),
    "darkred": Theme("darkred", "rainbow", "black", "darkblue"),
    "darkgreen": Theme("darkgreen", "rainbow", "black", "darkpurple"),
}

# Scales by even steps. The first five are umap.plot's names for scales from black to white over the colour's own hues;
# the others are the defaults, so that the page needs no matplotlib: Brewer's Spectral and Blues.
_SCALES = {
    "fire": "000000 5a0000 a50a00 e03a00 fb7a00 ffb300 ffe14d ffffff",
    "darkblue": "000000 08104a 10267f 1745ac 1c6dc9 2f97d8 74c3e6 ffffff",
    "darkgreen": "000000 06260a 0c4a10 1a7018 3c9420 79b52a c0d455 ffffdc",
    "darkred": "000000 3a0510 740a1c ab1422 d63a1c ec6f14 f5a21a fbd34c",
    "darkpurple": "000000 0c0c58 1c14a0 5a10c8 a01cc8 d84cc8 f48ed2 ffffff",
    "Spectral": "9e0142 d53e4f f46d43 fdae61 fee08b ffffbf e6f598 abdda4 66c2a5 3288bd 5e4fa2",
    "Blues": "f7fbff deebf7 c6dbef 9ecae1 6baed6 4292c6 2171b5 08519c 08306b",
}


def needs(package, what):
    """Imports an optional package, or says what lacks it."""
    import importlib
    try:
        return importlib.import_module(package)
    except ImportError as error:
        name = {"sklearn": "scikit-learn"}.get(package.split(".")[0], package.split(".")[0])
        raise ImportError(f"{what} needs {name}, which cannot be imported ({error}); pip install {name}") from None


def theme_of(theme, cmap, color_key_cmap, background, edge_cmap=None):
    """The theme of this name, or one of the four values."""
    if theme is None:
        rgb(background, "background: ")
        return Theme(cmap, color_key_cmap, background, edge_cmap)
    if theme not in THEMES:
        raise ValueError(f"theme: {theme!r} is not one of {', '.join(map(repr, THEMES))}")
    return THEMES[theme]


def rgb(colour, argument=""):
    """A colour as three numbers from 0 to 255. argument: what an error begins with."""
    text = {"white": "#ffffff", "black": "#000000"}.get(colour, colour) if isinstance(colour, str) else colour
    if isinstance(text, str) and text.startswith("#") and len(text) == 7:
        try:
            return tuple(bytes.fromhex(text[1:]))
        except ValueError:
            raise ValueError(f"{argument}{colour!r} is not a colour") from None
    known = needs("matplotlib.colors", f"the colour {colour!r}")
    try:
        return tuple(int(255 * part + 0.5) for part in known.to_rgb(text))
    except (TypeError, ValueError):
        raise ValueError(f"{argument}{colour!r} is not a colour") from None


def hexes(colours):
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in np.asarray(colours).tolist()]


def is_dark(background):
    red, green, blue = rgb(background)
    return 299 * red + 587 * green + 114 * blue < 127500


def _blend(anchors, at):
    """The colours at 0 to 1 on a scale of even steps, [n, 3] from 0 to 255."""
    steps = np.array([rgb("#" + anchor) for anchor in anchors.split()], np.float64)
    place = at * (len(steps) - 1)
    low = np.minimum(place.astype(np.int64), len(steps) - 2)
    return steps[low] + (place - low)[:, None] * (steps[low + 1] - steps[low])


def scale(cmap, count):
    """`count` even steps of a scale, uint8 [count, 3]. cmap: a name, a matplotlib colormap, or a list of colours."""
    at = np.linspace(0.0, 1.0, count) if count > 1 else np.zeros(count)
    if isinstance(cmap, str) and cmap in _SCALES:
        return (_blend(_SCALES[cmap], at) + 0.5).astype(np.uint8)
    return (np.asarray(colormap(cmap)(at))[:, :3] * 255 + 0.5).astype(np.uint8)


def colormap(cmap):
    """As a matplotlib colormap."""
    matplotlib = needs("matplotlib", f"the colour scale {cmap!r}")
    if isinstance(cmap, str) and cmap in _SCALES:
        anchors = ["#" + anchor for anchor in _SCALES[cmap].split()]
        return needs("matplotlib.colors", "a scale").LinearSegmentedColormap.from_list(cmap, anchors)
    if isinstance(cmap, (list, tuple)):
        return needs("matplotlib.colors", "a scale").LinearSegmentedColormap.from_list("list", cmap)
    if not isinstance(cmap, str):
        return cmap
    try:
        return matplotlib.colormaps[cmap]
    except KeyError:
        raise ValueError(f"cmap: {cmap!r} is not a colour scale of matplotlib or one of {', '.join(_SCALES)}") from None


# ---- What colours the points ----------------------------------------------------------------------------------------

class Categories(NamedTuple):
    names: list  # in ascending order where they have one
    codes: np.ndarray  # int32 [n]


def categories(labels):
    """Distinct labels and the index of each point's."""
    try:
        names, codes = np.unique(labels, return_inverse=True)
    except TypeError:  # labels of several types, which have no order
        places = {}
        codes = np.array([places.setdefault((type(x).__name__, str(x)), len(places)) for x in labels.tolist()])
        order = sorted(places, key=lambda key: key)
        rank = np.empty(len(places), np.int64)
        rank[[places[key] for key in order]] = np.arange(len(places))
        names, codes = [key[1] for key in order], rank[codes]
    return Categories([name.item() if isinstance(name, np.generic) else name for name in names],
                      codes.ravel().astype(np.int32))


def category_colours(names, color_key, color_key_cmap):
    """A colour for each category, uint8 [categories, 3]."""
    if color_key is None:
        return scale(color_key_cmap, len(names))
    if hasattr(color_key, "keys"):
        missing = [name for name in names if name not in color_key]
        if missing:
            raise ValueError(f"color_key: no colour for the label {missing[0]!r}")
        chosen = [color_key[name] for name in names]
    else:
        chosen = list(color_key)
        if len(chosen) < len(names):
            raise ValueError(f"color_key: {len(chosen)} colours are not enough for {len(names)} labels")
    return np.array([rgb(colour, "color_key: ") for colour in chosen[:len(names)]], np.uint8).reshape(-1, 3)


class Values(NamedTuple):
    codes: np.ndarray  # int32 [n]: 0 to 254 on the scale, 255 for none
    least: float
    most: float


def value_steps(values):
    """The place of each value on a scale of 255 steps."""
    known = np.isfinite(values)
    if not known.any():
        return Values(np.full(len(values), 255, np.int32), 0.0, 0.0)
    least, most = float(values[known].min()), float(values[known].max())
    length = most / 2 - least / 2  # halves: the whole may be infinite
    share = (values / 2 - least / 2) / length if length > 0 else np.full(len(values), 0.5)
    return Values(np.where(known, np.floor(np.where(known, share, 0) * 254 + 0.5), 255).astype(np.int32), least, most)
