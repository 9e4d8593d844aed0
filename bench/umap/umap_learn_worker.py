"""One fit of umap-learn, timed: umap_learn_worker.py DATA.npy EMBEDDING.npy THREADS SEEDED [n_neighbors]. Compiles first."""
import json
import sys
import time

import numba
import numpy as np

data, out, threads, seeded = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1"
numba.set_num_threads(threads)
start = time.perf_counter()
import umap  # noqa: E402
from umap import umap_ as inside  # noqa: E402

imported = time.perf_counter() - start
rng = np.random.default_rng(0)
options = {"n_neighbors": int(sys.argv[5]) if len(sys.argv) > 5 else 15}
if seeded:
    options["random_state"] = 42
x = np.load(data)
start = time.perf_counter()
for rows in (1000, 5000):  # compiles every stage; below 4096 rows umap-learn compares all pairs, with code of its own
    umap.UMAP(**options).fit_transform(rng.normal(size=(rows, x.shape[1])).astype(np.float32))
compiled = time.perf_counter() - start

stages = {}


def timed(name, function):
    def call(*args, **kwargs):
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        stages[name] = stages.get(name, 0.0) + time.perf_counter() - begin
        return result

    return call


inside.nearest_neighbors = timed("neighbours", inside.nearest_neighbors)
inside.spectral_layout = timed("start", inside.spectral_layout)
inside.optimize_layout_euclidean = timed("layout", inside.optimize_layout_euclidean)
begin = time.perf_counter()
embedding = umap.UMAP(**options).fit_transform(x)
stages["total"] = time.perf_counter() - begin
stages["import"], stages["first call"] = imported, compiled
with open("/proc/self/status") as status:
    stages["peak_hwm"] = 1024 * int(next(line for line in status if line.startswith("VmHWM")).split()[1])
np.save(out, np.ascontiguousarray(embedding.astype(np.float32)))
print(json.dumps(stages))
