"""Colours of plots: umap.plot's themes, scales, colours of labels and values. matplotlib is imported only for the colours
and scales that are not known here."""

from typing import NamedTuple

import numpy as np

from . import places

GREY = (0x8C, 0x92, 0x99)  # of points without a value, and of noise

# The program's colours of categories (cli/plot/palette.c), on white and on dark paper; with more categories they repeat.
_PALETTE = {
    "light": (
        "0072b2 d55e00 009e73 cc79a7 600018 001884 844854 303cb4 483054 b42400 "
        "b46ce4 604884 841800 9c5484 480c60 f06078 b45448 603c3c 4854cc 243c78 "
        "3c90fc 186c18 b47854 9078c0 a86c9c 8460d8 540c3c 487860 b4903c 843060"
    ),
    "dark": (
        "51abef ff955d 52cea0 f7a0d0 b7575e 4070de c5838f 6883ff 90759e f9684b "
        "d8a1ff 9e86c7 d3634c d689bb 965db2 ffa1ab ee887a a77e7d 8094fe 6583c5 "
        "8ebeff 5dac59 e5a580 bea6f1 da9acd b39aff a85b88 7eb096 deb967 cb70a0"
    ),
}
CONTRAST = 3.0  # of categories with the background, as WCAG asks of graphics


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


def _luminance(colours):
    parts = np.asarray(colours, np.float64) / 255
    light = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return light @ (0.2126, 0.7152, 0.0722)


def contrast(colours, background):
    """WCAG's contrast of each colour with the background: 1 for the same lightness, 21 for black on white."""
    a, b = _luminance(colours), _luminance(rgb(background))
    return (np.maximum(a, b) + 0.05) / (np.minimum(a, b) + 0.05)


def readable(colours, background):
    """The colours, where needed darker on a light background or lighter on a dark one, so that each has CONTRAST."""
    given = np.asarray(colours, np.float64)
    towards, result = 255.0 if is_dark(background) else 0.0, np.array(colours, np.uint8)
    for step in range(1, 65):
        low = contrast(result, background) < CONTRAST
        result[low] = np.rint(given + step / 64 * (towards - given))[low]
    return result


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
    names: list  # in ascending order where they have one, digits by the number they form
    codes: np.ndarray  # int32 [n]
    noise: list  # which of them are noise: -1, "noise", NaN, None


def categories(labels):
    """Distinct labels and the index of each point's."""
    try:
        distinct, codes = np.unique(labels, return_inverse=True)
        names: list = [name.item() if isinstance(name, np.generic) else name for name in distinct]
        keys = [places.natural_key(name) for name in names] if all(isinstance(name, str) for name in names) else None
    except TypeError:  # labels of several types, which have no order
        found: dict = {}
        codes = np.array([found.setdefault((type(x).__name__, str(x)), len(found)) for x in labels.tolist()])
        missing = {(type(x).__name__, str(x)) for x in labels.tolist() if places.is_missing(x)}
        names = [None if key in missing else key[1] for key in found]
        keys = [(key[0], places.natural_key(key[1])) for key in found]
    codes = codes.ravel()
    if keys is not None:
        order = sorted(range(len(names)), key=keys.__getitem__)
        rank = np.empty(len(names), np.int64)
        rank[order] = np.arange(len(names))
        names, codes = [names[i] for i in order], rank[codes]
    return Categories(names, codes.astype(np.int32), [places.is_noise(name) for name in names])


def category_colours(kinds, color_key, color_key_cmap, background):
    """A colour for each category, uint8 [categories, 3]: those of color_key, else of the scale, else the program's. Noise
    is grey, unless color_key has a colour for it."""
    names, others = kinds.names, np.flatnonzero(np.logical_not(kinds.noise))
    table = np.tile(np.array(GREY, np.uint8), (len(names), 1))
    if color_key is None:
        table[others] = (
            palette(len(others), background) if color_key_cmap is None else readable(scale(color_key_cmap, len(others)), background)
        )
        return table
    if hasattr(color_key, "keys"):
        missing = [names[i] for i in others if names[i] not in color_key]
        if missing:
            raise ValueError(f"color_key: no colour for the label {missing[0]!r}")
        chosen = [color_key.get(name, GREY) for name in names]
    else:
        chosen = list(color_key)
        if len(chosen) < len(names):
            raise ValueError(f"color_key: {len(chosen)} colours are not enough for {len(names)} labels")
    return np.array([rgb(colour, "color_key: ") for colour in chosen[: len(names)]], np.uint8).reshape(-1, 3)


def palette(count, background):
    """The program's colours of `count` categories, uint8 [count, 3]."""
    known = np.array([rgb("#" + colour) for colour in _PALETTE["dark" if is_dark(background) else "light"].split()], np.uint8)
    return readable(known[np.arange(count) % len(known)], background)


def value_scale(cmap, background):
    """255 steps of a scale for values, without its ends that are hardly seen on the background."""
    steps = scale(cmap, 255)
    seen = np.flatnonzero(contrast(steps, background) >= 1.5)
    if len(seen) in (0, 255):
        return steps
    return steps[np.rint(np.linspace(seen[0], seen[-1], 255)).astype(np.int64)]


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
