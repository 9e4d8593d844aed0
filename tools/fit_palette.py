#!/usr/bin/env python3
"""The colours of categories in cli/plot/palette.c and python/napier/_umap/colours.py: python3 tools/fit_palette.py

The first four are Okabe and Ito's. Each further one is the colour whose nearest neighbour among those chosen, white and the
grey of unnamed points, is farthest away - nearest for whichever of four readers sees the least difference: one with
normal vision, and those without long, middle or short cones (Machado, Oliveira and Fernandes, 2009). Distances are
Euclidean in Oklab (B. Ottosson, 2020). Every colour has a contrast of at least 3 on white, which WCAG asks of graphics.
On dark paper a colour keeps its hue and becomes lighter, so that it has that contrast there.

A line of the output is a colour on white, that on dark paper, and the smallest distance after the choice.
"""

GIVEN = ["0072b2", "d55e00", "009e73", "cc79a7"]
KEPT_AWAY_FROM = ["ffffff", "8c9299"]
DARK_PAPER = "15181c"
CONTRAST = 3.0
WANTED = 30
STEP = 12  # of the grid of candidates
LIGHTNESS = (0.30, 0.70)  # darker ones look black, lighter ones have too little contrast
DARK_LIGHTNESS = (0.57, 0.82)  # the same on dark paper
CHROMA = (0.05, 0.19)  # less looks grey, more shouts

VISIONS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
# Short cones are rarely missing: a difference for the others counts more.
WEIGHTS = {"normal": 1.0, "protan": 1.25, "deutan": 1.25, "tritan": 1.6}


def linear(rgb):
    """sRGB bytes to linear light."""
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)]


def oklab(light):
    r, g, b = (min(max(c, 0.0), 1.0) for c in light)
    l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
        1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
        0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
    )


def luminance(rgb):
    return sum(part * light for part, light in zip((0.2126, 0.7152, 0.0722), linear(rgb)))


def contrast(a, b):
    """WCAG's: 1 for the same lightness, 21 for black on white."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def from_oklab(lightness, a, b):
    """sRGB bytes, not rounded into their range."""
    l, m, s = (
        (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3,
        (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3,
        (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3,
    )
    light = (
        4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
    )
    return [255 * (12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055) for c in light]


def on_dark(rgb):
    """The colour of this hue whose lightness has the same place in the range of dark paper. It keeps as much of its
    chroma as sRGB has."""
    lightness, a, b = oklab(linear(rgb))
    place = (lightness - LIGHTNESS[0]) / (LIGHTNESS[1] - LIGHTNESS[0])
    lightness = DARK_LIGHTNESS[0] + place * (DARK_LIGHTNESS[1] - DARK_LIGHTNESS[0])
    share = 1.0
    while True:
        raised = from_oklab(lightness, share * a, share * b)
        if all(-0.5 < c < 255.5 for c in raised):
            return tuple(round(c) for c in raised)
        share -= 0.01


def seen(rgb):
    """What each reader sees, in Oklab."""
    light = linear(rgb)
    return [oklab([sum(row[i] * light[i] for i in range(3)) for row in matrix]) for matrix in VISIONS.values()]


def distance(a, b):
    return min(weight * sum((x - y) ** 2 for x, y in zip(p, q)) ** 0.5 for weight, p, q in zip(WEIGHTS.values(), a, b))


def from_hex(text):
    return tuple(int(text[i : i + 2], 16) for i in (0, 2, 4))


def candidates():
    levels = range(0, 256, STEP)
    for rgb in ((r, g, b) for r in levels for g in levels for b in levels):
        lightness, a, b = oklab(linear(rgb))
        chroma = (a * a + b * b) ** 0.5
        if LIGHTNESS[0] <= lightness <= LIGHTNESS[1] and CHROMA[0] <= chroma <= CHROMA[1] and contrast(rgb, (255, 255, 255)) >= CONTRAST:
            yield rgb


def main():
    chosen = [from_hex(text) for text in GIVEN]
    apart = {rgb: seen(rgb) for rgb in candidates()}
    nearest = {
        rgb: min(distance(sight, seen(other)) for other in chosen + [from_hex(text) for text in KEPT_AWAY_FROM])
        for rgb, sight in apart.items()
    }
    apart_now = [0.0] * len(chosen)
    while len(chosen) < WANTED:
        best = max(sorted(nearest), key=nearest.get)
        chosen.append(best)
        apart_now.append(nearest[best])
        new = seen(best)
        for rgb, sight in apart.items():
            nearest[rgb] = min(nearest[rgb], distance(sight, new))
    for rgb, gap in zip(chosen, apart_now):
        dark = on_dark(rgb)
        assert contrast(dark, from_hex(DARK_PAPER)) >= CONTRAST
        print("%02x%02x%02x %02x%02x%02x  %.3f" % (*rgb, *dark, gap))


if __name__ == "__main__":
    main()
