"""Edge bundling by the density of the edges: C. Hurter, O. Ersoy and A. Telea, "Graph Bundling by Kernel Density
Estimation", 2012. Edges are cut into short pieces, which move up the gradient of the density of all pieces, over and over
with a narrower kernel. The ends stay where they are.

The density is a count, blurred by three running means of integers. All else is elementary arithmetic on each piece, so
the bits are the same on every machine."""

import numpy as np

from .raster import raster_points

MOST_CELLS = 384  # of the density on each side
CELLS = 6  # to the width of a kernel
PIECE = 0.012  # length of a piece, where the map is 1 wide
MOST_PIECES = 100  # of an edge
KERNELS = tuple(0.045 * 0.7**i for i in range(6))
STEPS = 8  # for each kernel
SMOOTHINGS = 2  # after each step


def _running_mean(cells, radius, axis):
    """The mean of 2 radius + 1 cells, rounded down; those beyond the edge are 0."""
    wide = 2 * radius + 1
    pad = [(radius + 1, radius) if a == axis else (0, 0) for a in (0, 1)]
    sums = np.cumsum(np.pad(cells, pad), axis=axis)
    upper, lower = [slice(None)] * 2, [slice(None)] * 2
    upper[axis], lower[axis] = slice(wide, None), slice(None, -wide)
    return (sums[tuple(upper)] - sums[tuple(lower)]) // wide


def _density(places, weights, kernel):
    size = min(MOST_CELLS, int(CELLS / kernel))
    cells = raster_points(places, np.arange(len(places), dtype=np.int32), weights[:, None], extent=(0, 1, 0, 1), width=size, height=size)[
        ::-1, :, 0
    ]
    cells = cells * (2**50 // max(int(cells.sum()), 1))  # at most 2^50 together, so that sums of sums stay integers
    radius = max(1, int(kernel * size + 0.5))
    for _ in range(3):
        cells = _running_mean(_running_mean(cells, radius, 0), radius, 1)
    return cells


def _slope(density, places):
    """The direction in which the density rises most, a unit vector or 0 for each place."""
    rise = np.gradient(density.astype(np.float64))
    size = len(density)
    cell = np.clip((places * size).astype(np.int64), 0, size - 1)
    at = cell[:, 1] * size + cell[:, 0]
    across, up = rise[1].ravel()[at], rise[0].ravel()[at]
    length = np.sqrt(across * across + up * up)
    return np.divide(np.stack([across, up], axis=1), length[:, None], out=np.zeros_like(places), where=length[:, None] > 0)


def pieces_of(places, sources, targets):
    """Points along straight edges, float64 [m, 2], with the edge of each and whether it is an end of it."""
    gap = places[targets] - places[sources]
    length = np.sqrt(gap[:, 0] * gap[:, 0] + gap[:, 1] * gap[:, 1])
    counts = np.clip(np.ceil(length / PIECE), 1, MOST_PIECES).astype(np.int64) + 1
    edge = np.repeat(np.arange(len(counts)), counts)
    step = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)
    share = step / (counts[edge] - 1)
    is_end = (step == 0) | (step == counts[edge] - 1)
    return places[sources][edge] + share[:, None] * gap[edge], edge, is_end


def bundle(places, sources, targets, weights):
    """Paths of the edges in the unit square, bundled: (points [m, 2], the edge of each)."""
    points, edge, is_end = pieces_of(places, sources, targets)
    weights = weights[edge].astype(np.int32)
    inner = np.flatnonzero(~is_end)
    if not len(inner):
        return points, edge
    for kernel in KERNELS:
        for _ in range(STEPS):
            slope = _slope(_density(points.astype(np.float32), weights, kernel), points[inner])
            points[inner] += 0.2 * kernel * slope
            for _ in range(SMOOTHINGS):
                points[inner] = 0.5 * points[inner] + 0.25 * (points[inner - 1] + points[inner + 1])
            np.clip(points, 0.0, 1.0, out=points)
    return points, edge
