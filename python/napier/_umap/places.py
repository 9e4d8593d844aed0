"""Names of categories on a map: natural order, noise, and where a name lies. cli/plot/plot.c has the same rules."""

import numbers
import re

import numpy as np

from .targets import is_missing

MOST_IN_LEGEND = 30  # categories; beyond, names on the map tell them
LONGEST_NAME = 20  # letters on the map
_GRID = 48


def natural_key(name):
    """Orders alphabetically, but digits by the number they form: "a 9" before "a 10"."""
    parts = re.findall(r"[0-9]+|[^0-9]", name)
    return [(48, int(part)) if "0" <= part[0] <= "9" else (ord(part.lower()) if part.isascii() else ord(part), 0) for part in parts], name


def is_noise(name):
    """Is a category noise, which is grey and has no name on the map: -1, "-1_" and more, "noise", NaN or missing?"""
    if is_missing(name):
        return True
    if isinstance(name, numbers.Real):
        return bool(name == -1)
    text = str(name)
    return text == "-1" or text.startswith("-1_") or text.lower() in ("noise", "nan")


def shortened(name):
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "\u2026"


def densest_point(places, members, corner, side):
    """The densest of the members: of the 3 x 3 cells with the most of them, the one that is nearest to their mean."""
    own = places[members].astype(np.float64)
    cells = np.minimum(np.floor((own - corner) / side), _GRID - 1).astype(np.int64) if side > 0 else np.zeros(own.shape, np.int64)
    counts = np.zeros((_GRID + 2, _GRID + 2), np.int64)
    np.add.at(counts, (cells[:, 1] + 1, cells[:, 0] + 1), 1)
    around = sum(counts[i : i + _GRID, j : j + _GRID] for i in range(3) for j in range(3))
    row, column = np.unravel_index(around.argmax(), around.shape)
    near = own[(np.abs(cells - (column, row)) <= 1).all(axis=1)]
    gap = own - np.cumsum(near, axis=0)[-1] / len(near)  # one after another, as in the program
    return int(members[np.argmin((gap * gap).sum(axis=1))])


def name_points(places, codes, names, noise):
    """(code, point) of each category that gets a name, the largest first."""
    if len(names) < 2 or not len(places):
        return []
    sizes = np.bincount(codes, minlength=len(names))
    corner = places.min(axis=0).astype(np.float64)
    side = float((places.max(axis=0) - corner).max()) / _GRID
    order = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return [
        (code, densest_point(places, order[starts[code] : starts[code + 1]], corner, side))
        for code in np.argsort(-sizes, kind="stable").tolist()
        if sizes[code] > 0 and names[code] and not noise[code]
    ]


def free_places(points, halves, tall):
    """For each name, points [n, 2] in pixels and half its width: the place of its middle, on the point or a line above or
    below, where it overlaps none before it; None if there is no room."""
    taken: list = []
    for (x, y), half in zip(points, halves, strict=True):
        free = next(
            (
                (x, y + line * tall)
                for line in (0, 1, -1)
                if not any(abs(x - u) < half + other and abs(y + line * tall - v) < tall for u, v, other in filter(None, taken))
            ),
            None,
        )
        taken.append(None if free is None else (*free, half))
    return [None if place is None else place[:2] for place in taken]
