"""Maps of hundreds of thousands to millions of points: Napier beside umap-learn and uwot.

    python bench/python/umap_large.py [--rows 1000000] [--columns 50] [--metric euclidean] [--peers napier,umap,uwot]
                                      [--threads 2] [--output FILE.jsonl]

in an environment with numpy and napier. umap-learn runs in the environment `umap` of the folder $NAPIER_BENCH_HOME (default
~/.cache/napier/bench), which `bench/setup.sh umap` makes; NAPIER_BENCH_UMAP names another environment's folder. uwot runs in
Rscript.

Each fit runs once, in a process of its own. Its line has: seconds; seconds of processor time (user and system), which other
processes on the machine disturb less; the peak of the process's memory in MiB, with the data; trustworthiness and vote
(docs/umap-benchmarks.md) of 2000 points, whose neighbours in the data and on the map are searched exactly; outliers.
umap-learn's compilation is not counted.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from suites.umap import outliers, quality  # noqa: E402
from suites.umap_data import atlas  # noqa: E402

HOME = Path(os.environ.get("NAPIER_BENCH_HOME", Path.home() / ".cache/napier/bench"))
UMAP = Path(os.environ.get("NAPIER_BENCH_UMAP", HOME / "umap")) / "bin/python"
NEIGHBORS, JUDGED = 15, 2000


def fit_napier(job):
    import napier

    x = np.fromfile(job["data"], np.float32).reshape(job["rows"], job["columns"])
    return lambda: napier.UMAP(n_neighbors=NEIGHBORS, metric=job["metric"], n_jobs=job["threads"], random_state=42).fit_transform(x)


def fit_umap(job):
    import numba

    numba.set_num_threads(job["threads"])
    import umap

    x = np.fromfile(job["data"], np.float32).reshape(job["rows"], job["columns"])
    draw = np.random.default_rng(0)
    for rows in (1000, 5000):  # compiles every stage
        umap.UMAP(metric=job["metric"]).fit_transform(draw.normal(size=(rows, job["columns"])).astype(np.float32))
    return lambda: umap.UMAP(n_neighbors=NEIGHBORS, metric=job["metric"]).fit_transform(x)


def fit_uwot(job):
    words = ["Rscript", HERE.parent / "peers/uwot.R", job["data"], job["rows"], job["columns"], job["map"], job["threads"], NEIGHBORS]
    return lambda: json.loads(subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def processor_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def work(job):
    """In the process of one peer: the fit, and a line of JSON."""
    fit = {"napier": fit_napier, "umap": fit_umap, "uwot": fit_uwot}[job["peer"]](job)
    begin, before = time.perf_counter(), processor_seconds()
    found = fit()
    line = {"seconds": time.perf_counter() - begin, "cpu": processor_seconds() - before}
    if job["peer"] == "uwot":  # writes its map itself; R's start and the reading of the data are not its seconds
        line |= {"seconds": found["seconds"], "peak": found["highest"] / 2**20}
    else:
        found.astype(np.float32).tofile(job["map"])
        line["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({name: round(value, 1) for name, value in line.items()}))


def main():
    wanted = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    wanted.add_argument("--rows", type=int, default=1000000)
    wanted.add_argument("--columns", type=int, default=50)
    wanted.add_argument("--metric", choices=("euclidean", "cosine"), default="euclidean", help="uwot: euclidean only")
    wanted.add_argument("--peers", default="napier,umap,uwot")
    wanted.add_argument("--threads", type=int, default=2)
    wanted.add_argument("--output", help="append a line of JSON for each fit")
    wanted.add_argument("--worker", help=argparse.SUPPRESS)
    options = wanted.parse_args()
    if options.worker:
        return work(json.loads(options.worker))
    x, labels = atlas(options.rows, options.columns)
    with tempfile.TemporaryDirectory() as folder:
        job = {
            "rows": options.rows,
            "columns": options.columns,
            "metric": options.metric,
            "threads": options.threads,
            "data": f"{folder}/data",
            "map": f"{folder}/map",
        }
        x.tofile(job["data"])
        if options.metric == "cosine":
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        for peer in options.peers.split(","):
            python = UMAP if peer == "umap" else sys.executable
            said = subprocess.run(
                [str(python), __file__, "--worker", json.dumps(job | {"peer": peer})],
                check=True,
                text=True,
                stdout=subprocess.PIPE,
                env=os.environ | {"OMP_NUM_THREADS": str(options.threads)},
            ).stdout
            y = np.fromfile(job["map"], np.float32).reshape(-1, 2)
            trust, vote = quality(x, y, labels, NEIGHBORS, JUDGED)
            line = {
                "peer": peer,
                "rows": options.rows,
                "columns": options.columns,
                "metric": options.metric,
                "threads": options.threads,
                **json.loads(said.splitlines()[-1]),
                "trust": round(float(trust), 4),
                "vote": round(float(vote), 4),
                "outliers": outliers(y),
            }
            print(json.dumps(line), flush=True)
            if options.output:
                with open(options.output, "a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
