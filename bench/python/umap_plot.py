#!/usr/bin/env python3
"""Times the plots of many points: napier.umap.plot.points with its file, and an interactive map with hover and search.

    python3 bench/python/umap_plot.py [POINTS [ROUNDS]]      default: 200,000 points, 5 rounds

The map is random: ten groups of points. Prints the fastest and the median time in seconds, and the size of the file.
umap.plot's points are timed beside it if umap-learn[plot] is installed. Its interactive plot is not, because it has no
hover and no search above 64,000 points."""

import pathlib
import statistics
import sys
import tempfile
import time
import types

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

import napier.umap.plot as plot  # noqa: E402


def random_map(count):
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 10, count)
    centres = rng.uniform(-10, 10, (10, 2))
    places = centres[labels] + rng.normal(size=(count, 2)) * rng.uniform(0.3, 1.5, (10, 1))[labels]
    return types.SimpleNamespace(embedding_=places.astype(np.float32), n_neighbors=15, min_dist=0.1), labels


def pictures(module, mapper, labels, path):
    module.points(mapper, labels=labels).figure.savefig(path)
    plt.close("all")


def timed(rounds, work):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return times


def report(name, times, path):
    print(f"{name:34} {min(times):8.3f} {statistics.median(times):8.3f} s {path.stat().st_size / 1e6:8.2f} MB", flush=True)


def main():
    count, rounds = (int(a) for a in (sys.argv[1:] + ["200000", "5"][len(sys.argv) - 1 :])[:2])
    mapper, labels = random_map(count)
    names = [f"sample {i:07d}" for i in range(count)]
    page = lambda: plot.interactive(
        mapper,
        labels=labels,
        hover_data={"name": names},  # noqa: E731
        interactive_text_search=True,
    ).save(html)
    with tempfile.TemporaryDirectory() as folder:
        png, html = pathlib.Path(folder) / "map.png", pathlib.Path(folder) / "map.html"
        print(f"{count:,} points: fastest, median, size of the file")
        report("napier points, PNG", timed(rounds, lambda: pictures(plot, mapper, labels, png)), png)
        report("napier interactive, hover, HTML", timed(rounds, page), html)
        try:
            import umap.plot as theirs
        except ImportError:
            return
        pictures(theirs, mapper, labels, png)  # compiles
        report("umap.plot points, PNG", timed(rounds, lambda: pictures(theirs, mapper, labels, png)), png)


if __name__ == "__main__":
    main()
