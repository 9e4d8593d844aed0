#!/usr/bin/env python3
"""The colours of nine to twenty categories in cli/plot/palette.c: python3 tools/fit_palette.py

The first six are Okabe and Ito's. Each further one is the colour whose nearest neighbour among those chosen, white and the
grey of unnamed points, is farthest away - nearest for whichever of four readers sees the least difference: one with
normal vision, and those without long, middle or short cones (Machado, Oliveira and Fernandes, 2009). Distances are
Euclidean in Oklab (B. Ottosson, 2020). The smallest distance after each choice is printed beside it.
"""

GIVEN = ["0072b2", "d55e00", "009e73", "cc79a7", "56b4e9", "e69f00"]
KEPT_AWAY_FROM = ["ffffff", "b8bcc2"]
WANTED = 20
STEP = 12  # of the grid of candidates
LIGHTNESS = (0.30, 0.86)  # darker ones look black, lighter ones vanish on white
CHROMA = (0.05, 0.17)  # less looks grey, more shouts

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


def seen(rgb):
    """What each reader sees, in Oklab."""
    light = linear(rgb)
    return [
        oklab([sum(row[i] * light[i] for i in range(3)) for row in matrix]) for matrix in VISIONS.values()
    ]


def distance(a, b):
    return min(
        weight * sum((x - y) ** 2 for x, y in zip(p, q)) ** 0.5 for weight, p, q in zip(WEIGHTS.values(), a, b)
    )


def from_hex(text):
    return tuple(int(text[i : i + 2], 16) for i in (0, 2, 4))


def candidates():
    levels = range(0, 256, STEP)
    for rgb in ((r, g, b) for r in levels for g in levels for b in levels):
        lightness, a, b = oklab(linear(rgb))
        chroma = (a * a + b * b) ** 0.5
        if LIGHTNESS[0] <= lightness <= LIGHTNESS[1] and CHROMA[0] <= chroma <= CHROMA[1]:
            yield rgb


def main():
    chosen = [from_hex(text) for text in GIVEN]
    apart = {rgb: seen(rgb) for rgb in candidates()}
    nearest = {
        rgb: min(distance(sight, seen(other)) for other in chosen + [from_hex(text) for text in KEPT_AWAY_FROM])
        for rgb, sight in apart.items()
    }
    for rgb in chosen:
        print("%02x%02x%02x" % rgb)
    while len(chosen) < WANTED:
        best = max(sorted(nearest), key=nearest.get)
        print("%02x%02x%02x  %.3f" % (best + (nearest[best],)))
        chosen.append(best)
        new = seen(best)
        for rgb, sight in apart.items():
            nearest[rgb] = min(nearest[rgb], distance(sight, new))


if __name__ == "__main__":
    main()
