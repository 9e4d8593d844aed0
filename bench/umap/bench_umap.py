"""make bench-umap: Napier, umap-learn and uwot on the same data, side by side, each fit in a process of its own.

    bench/umap/run.sh [--data NAME,...] [--peers napier,umap,umap-seeded,uwot] [--rounds 3] [--threads 2]

Peers take turns, round by round; medians are reported. Quality: trustworthiness (15 neighbours, on 3,000 points spread over
all) and the share of points whose 15 nearest on the map vote for their label. Writes bench/results/umap-*.jsonl and
docs/umap-benchmarks.md.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import data as datasets  # noqa: E402

STAGES = ["neighbours", "fuzzy set", "start", "layout"]


def quality(x, y, labels, k=15, rows=3000):
    """Trustworthiness and the neighbours' vote, for `rows` points against all."""
    n = len(x)
    pick = np.unique(np.arange(rows) * n // rows) if rows < n else np.arange(n)
    x = x - x.mean(0)
    xx, yy = (x.astype(np.float64) ** 2).sum(1), (y.astype(np.float64) ** 2).sum(1)
    penalty, votes = 0, 0
    for begin in range(0, len(pick), 200):
        part = pick[begin:begin + 200]
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


def run(peer, name, folder, threads, home, build):
    """One fit; returns its figures and the embedding."""
    path, out = datasets.make(folder, name), os.path.join(folder, f"{name}.{peer}.npy")
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), NUMBA_NUM_THREADS=str(threads))
    if peer == "napier":
        command = [os.path.join(build, "umap_worker"), path, out, str(threads)]
    elif peer.startswith("umap"):
        seeded = "1" if peer == "umap-seeded" else "0"
        command = [os.path.join(home, "umap", "bin", "python"), os.path.join(HERE, "umap_learn_worker.py"), path, out,
                   str(threads), seeded]
    else:
        x = np.load(path, mmap_mode="r")
        raw = path.replace(".npy", ".bin")
        if not os.path.exists(raw):
            np.asarray(x).tofile(raw)
        out = out.replace(".npy", ".bin")
        command = ["Rscript", os.path.join(HERE, "uwot_worker.R"), raw, *map(str, x.shape), out, str(threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{name} {peer}: failed: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None, None
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    return figures, np.fromfile(out, np.float32).reshape(-1, 2) if peer == "uwot" else np.load(out)


def measure(options, name, folder, results):
    x = np.load(datasets.make(folder, name))
    labels = np.load(os.path.join(folder, name + ".labels.npy"))
    found = {peer: [] for peer in options.peers}
    for round_ in range(options.rounds):
        for peer in options.peers:
            if not options.all_rounds and round_ > 0 and found[peer] and found[peer][0]["total"] > 120:
                continue  # minutes a fit: once is enough
            figures, y = run(peer, name, folder, options.threads, options.home, options.build)
            if figures is None:
                break
            if round_ == 0:
                figures["trust"], figures["vote"] = quality(x, y, labels)
                figures["outliers"] = outliers(y)
            figures.update(data=name, peer=peer, round=round_, threads=options.threads)
            found[peer].append(figures)
            results.write(json.dumps(figures) + "\n")
            results.flush()
            print(f"{name} {peer}: {figures['total']:.2f} s, peak {peak_of([figures])} MiB"
                  + (f", trust {figures['trust']:.4f}, vote {figures['vote']:.4f}" if round_ == 0 else ""), flush=True)
    return {peer: runs for peer, runs in found.items() if runs}


def peak_of(runs):
    """MiB; "-" where it was not measured."""
    peaks = [r["peak_hwm"] for r in runs if "peak_hwm" in r]
    return f"{statistics.median(peaks) / 2**20:.0f}" if peaks else "-"


def row(name, shape, peer, runs, best):
    total = statistics.median(r["total"] for r in runs)
    stages = " | ".join(f"{statistics.median(r[s] for r in runs):.2f}" if s in runs[0] else "-" for s in STAGES)
    first = runs[0]
    return (f"| {name} {shape} | {peer} | {total:.2f} | {total / best:.2f} | {stages} | "
            f"{peak_of(runs)} | {first['trust']:.4f} | {first['vote']:.4f} | "
            f"{first['outliers']} |")


def report(options, all_found, folder, command):
    lines = ["# UMAP: benchmarks", "",
             "Made by `make bench-umap` (bench/umap/run.sh). Do not edit.", "",
             f"- Command: `{command}`, {datetime.datetime.now().astimezone().isoformat(timespec='seconds')}",
             f"- CPU: {cpu()}, {options.threads} threads; {platform.platform()}",
             "- Seconds of one fit on data in memory, median of rounds in which the peers took turns; one process a fit.",
             "  umap-learn's compilation (first call) and import are not counted. *seeded* is umap-learn with random_state.",
             "- trust: trustworthiness at 15 neighbours; vote: share of points whose 15 nearest on the map vote for their",
             "  label; out: points beyond 5 times the radius of 99 %.", "",
             "| data | who | total s | / Napier | neighbours | fuzzy set | start | layout | peak MiB | trust | vote | out |",
             "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for name, found in all_found.items():
        if "napier" not in found:
            continue
        shape = "x".join(map(str, np.load(datasets.make(folder, name), mmap_mode="r").shape))
        best = statistics.median(r["total"] for r in found["napier"])
        lines += [row(name, shape, peer, runs, best) for peer, runs in found.items()]
    with open(os.path.join(ROOT, "docs", "umap-benchmarks.md"), "w") as page:
        page.write("\n".join(lines) + "\n")


def cpu():
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits,clusters20k,cells60k,digits70k,hub30k,wide200k")
    parser.add_argument("--peers", default="napier,umap,umap-seeded,uwot")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--all-rounds", action="store_true", help="also repeat fits of more than two minutes")
    parser.add_argument("--home", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--output")
    options = parser.parse_args()
    options.peers = options.peers.split(",")
    folder = os.path.join(options.build, "umap-data")
    os.makedirs(folder, exist_ok=True)
    stamp = datetime.date.today().isoformat()
    output = options.output or os.path.join(ROOT, "bench", "results", f"{stamp}-umap.jsonl")
    found = {}
    with open(output, "w") as results:
        for name in options.data.split(","):
            found[name] = measure(options, name, folder, results)
    report(options, found, folder, f"make bench-umap  # --data {options.data} --rounds {options.rounds}")


if __name__ == "__main__":
    main()
