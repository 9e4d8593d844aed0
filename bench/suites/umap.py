"""Maps, against umap-learn and uwot: whole fits on data of six kinds; and layouts alone."""
import numpy as np

from suites import umap_data
from suites.common import Cell

NAME = "umap"
PEERS = QUICK_PEERS = ("napier", "umap", "uwot")
THREADS = "2"
ROUNDS, SLICE, ONCE = (3, 3), 0.0, 120.0  # seconds after which a fit is made once
MINUTES = None
FIGURES = KEEPS = NEW_WORKERS = True
MEMORY = SHARES = False

SHAPES = {"digits": (1797, 64), "clusters20k": (20000, 128), "cells60k": (60000, 50), "digits70k": (70000, 784),
          "hub30k": (30000, 300), "wide200k": (200000, 100)}
NEIGHBORS = 15
LAYOUTS = (1000, 5000, 10000)  # points


def cells(options, threads):
    found = []
    for count in threads:
        for name, (rows, cols) in list(SHAPES.items())[:1 if options.quick else None]:
            found.append(Cell(name, "fit", count, (name,), 8 * rows * cols,
                              {"dtype": "f32", "rows": rows, "cols": cols, "n_neighbors": NEIGHBORS, "n_epochs": options.epochs}))
        for points in LAYOUTS[:1 if options.quick else None]:
            found.append(Cell(f"layout-{points}", "layout", count, (), 1 << 20, {"dtype": "f32", "rows": points, "cols": 15}))
    return found


def inputs(cell, folder):
    if cell.op == "layout":
        return {}
    x, labels = getattr(umap_data, cell.data[0])()
    return {"data": x, "labels": labels.astype(np.int32)}


def truths(cell, arrays):
    return {}  # there is no right map: judge says how good each is


def quality(x, y, labels, k=15, rows=3000):
    """Trustworthiness and the neighbours' vote, for `rows` points against all."""
    n = len(x)
    pick = np.unique(np.arange(rows) * n // rows) if rows < n else np.arange(n)
    x = x - x.mean(0)
    xx, yy = (x.astype(np.float64) ** 2).sum(1), (y.astype(np.float64) ** 2).sum(1)
    penalty, votes = 0, 0
    step = max(1, min(200, 40_000_000 // n))  # points at a time: their distances are a few arrays of at most 320 MB
    for begin in range(0, len(pick), step):
        part = pick[begin:begin + step]
        dx = xx[part][:, None] + xx - 2.0 * (x[part] @ x.T)
        dy = yy[part][:, None] + yy - 2.0 * (y[part].astype(np.float64) @ y.T)
        rows_ = np.arange(len(part))
        dx[rows_, part], dy[rows_, part] = np.inf, np.inf
        near = np.argpartition(dy, k, axis=1)[:, :k]
        threshold = np.partition(dx, k - 1, axis=1)[:, k - 1]
        for r in range(len(part)):
            far = near[r][dx[r, near[r]] > threshold[r]]
            if len(far):
                order = np.sort(dx[r])
                penalty += int((np.searchsorted(order, dx[r, far]) + 1 - k).sum())
            votes += np.bincount(labels[near[r]]).argmax() == labels[part[r]]
    m = len(pick)
    return 1 - 2 * penalty / (m * k * (2 * n - 3 * k - 1)), votes / m


def outliers(y):
    """Points beyond five times the radius that holds 99 %."""
    r = np.linalg.norm(y - np.median(y, axis=0), axis=1)
    return int((r > 5 * np.quantile(r, 0.99)).sum())


def judge(cell, arrays, kept):
    """Measures each map: trustworthiness, the vote, and the outliers."""
    found = {}
    for variant, results in kept.items() if cell.op == "fit" else ():
        y = results["map"].reshape(-1, 2)
        trust, vote = quality(arrays["data"], y, arrays["labels"])
        found[variant] = {"trust": round(float(trust), 4), "vote": round(float(vote), 4), "outliers": outliers(y)}
    return found
