"""umap-learn: one fit, stage by stage, by itself and with random_state (`umap_seeded`). Compiled before it is timed."""
import time

import numba
import numpy as np
import umap
from umap import umap_ as inside

VERSION = umap.__version__
FIGURES = {}
start = numba.set_num_threads


def timed(name, function):
    def call(*args, **kwargs):
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        FIGURES[name] = FIGURES.get(name, 0.0) + time.perf_counter() - begin
        return result
    return call


inside.nearest_neighbors = timed("neighbours", inside.nearest_neighbors)
inside.spectral_layout = timed("start", inside.spectral_layout)
inside.optimize_layout_euclidean = timed("layout", inside.optimize_layout_euclidean)


def fit(job):
    x = job.arrays["data"].view(np.float32).reshape(job.rows, job.cols)
    options = {"umap": {"n_neighbors": job.n_neighbors}, "umap_seeded": {"n_neighbors": job.n_neighbors, "random_state": 42}}
    rng = np.random.default_rng(0)
    for rows in (1000, 5000):  # compiles every stage; below 4096 rows umap-learn compares all pairs, with code of its own
        some = rng.normal(size=(rows, x.shape[1])).astype(np.float32)
        for how in options.values():
            umap.UMAP(**how).fit_transform(some)

    def way(how):
        def call():
            FIGURES.clear()
            return {"map": umap.UMAP(**how).fit_transform(x).astype(np.float32)}
        return call

    return {name: way(how) for name, how in options.items()}


OPERATIONS = {"fit": fit}
