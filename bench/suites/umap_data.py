"""The data of the UMAP benchmark, made the same way every time: points (f32) and their labels."""
from pathlib import Path

import numpy as np

DIGITS = Path(__file__).resolve().parent.parent.parent / "data/digits"


def digits():
    return np.load(DIGITS / "images.npy").astype(np.float32), np.load(DIGITS / "labels.npy")


def clusters(n, columns, count, seed, sizes=None, spread=1.0, distance=8.0):
    """Normal clusters round random centres; sizes: relative."""
    rng = np.random.default_rng(seed)
    sizes = np.ones(count) if sizes is None else sizes
    labels = rng.choice(count, size=n, p=sizes / sizes.sum())
    centres = rng.normal(size=(count, columns)) * distance / np.sqrt(columns)
    widths = rng.uniform(0.5, 1.5, size=count)[:, None] * spread
    x = centres[labels] + rng.normal(size=(n, columns)) * widths[labels] / np.sqrt(columns) * 3
    return x.astype(np.float32), labels


def clusters20k():
    return clusters(20000, 128, 20, 1)


def cells60k():
    return clusters(60000, 50, 40, 2, sizes=1.0 / np.arange(1, 41))


def wide200k():
    return clusters(200000, 100, 50, 3)


def digits70k():
    """The digits, enlarged to 28 x 28, each turned, stretched, moved and dimmed a little: 784 columns."""
    images, labels = digits()
    images = images.reshape(-1, 8, 8)
    rng = np.random.default_rng(4)
    pick = rng.integers(0, len(images), size=70000)
    x = np.empty((70000, 784), np.float32)
    grid = (np.arange(28) - 13.5) / 28 * 8.0
    for begin in range(0, 70000, 5000):
        part = slice(begin, begin + 5000)
        m = len(pick[part])
        angle, scale = rng.normal(0, 0.12, m), np.exp(rng.normal(0, 0.08, m))
        shift = rng.normal(0, 0.35, (2, m))
        dim = rng.uniform(0.8, 1.0, m)
        cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
        gy, gx = np.meshgrid(grid, grid, indexing="ij")
        y = cos[:, None] * gy.ravel() - sin[:, None] * gx.ravel() + shift[0][:, None] + 3.5
        z = sin[:, None] * gy.ravel() + cos[:, None] * gx.ravel() + shift[1][:, None] + 3.5
        y0, z0 = np.floor(y).astype(int), np.floor(z).astype(int)
        fy, fz = y - y0, z - z0
        source = np.pad(images[pick[part]], ((0, 0), (1, 1), (1, 1)))
        row = np.arange(m)[:, None]
        at = lambda a, b: source[row, np.clip(a + 1, 0, 9), np.clip(b + 1, 0, 9)]
        value = (at(y0, z0) * (1 - fy) * (1 - fz) + at(y0 + 1, z0) * fy * (1 - fz)
                 + at(y0, z0 + 1) * (1 - fy) * fz + at(y0 + 1, z0 + 1) * fy * fz)
        x[part] = value * dim[:, None] + rng.normal(0, 0.3, value.shape)
    return x, labels[pick]


def hub30k():
    """Points on many thin rays: those near the middle are neighbours of all, a hub of very high degree."""
    rng = np.random.default_rng(5)
    n, columns = 30000, 300
    labels = rng.integers(0, 30, n)
    rays = rng.normal(size=(30, columns)) / np.sqrt(columns)
    x = rays[labels] * rng.uniform(0.5, 1.5, n)[:, None] + rng.normal(size=(n, columns)) * 1.2 / np.sqrt(columns)
    x[:3] *= 0.02
    return x.astype(np.float32), labels


def atlas(n, columns, seed=6, types=100, directions=12):
    """Cells of 100 types, for large maps: groups of unequal size on a tree, each with 12 directions of its own, and noise in
    all columns."""
    rng = np.random.default_rng(seed)
    sizes = 1.0 / np.arange(1, types + 1)
    labels = rng.choice(types, size=n, p=sizes / sizes.sum()).astype(np.int32)
    centres = np.zeros((types, columns))
    for t in range(1, types):
        centres[t] = centres[rng.integers(0, t)] + rng.normal(size=columns) * 4.0 / np.sqrt(columns)
    scales = 2.0 / np.sqrt(np.arange(1, directions + 1))
    bases = rng.normal(size=(types, directions, columns)) / np.sqrt(columns) * scales[:, None]
    x = np.empty((n, columns), np.float32)
    for t in range(types):
        rows = np.flatnonzero(labels == t)
        noise = rng.normal(scale=1.0 / np.sqrt(columns), size=(len(rows), columns))
        x[rows] = centres[t] + rng.normal(size=(len(rows), directions)) @ bases[t] + noise
    return x, labels
