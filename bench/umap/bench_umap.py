"""make bench-umap: Napier, umap-learn and uwot on the same data, side by side, each fit in a process of its own.

    bench/umap/run.sh [--data NAME,...] [--peers napier,umap,umap-seeded,uwot] [--rounds 3] [--threads 2]
                      [--output FILE.jsonl]
    bench/umap/run.sh --report FILE.jsonl ...      docs/umap-benchmarks.md from stored results; fits nothing

Peers take turns, round by round; medians are reported. Quality: trustworthiness (15 neighbours, on 3,000 points spread
over all) and the share of points whose 15 nearest on the map vote for their label. "document" among the data: the rows
of the source document (document_rows.c). Each fit is appended to FILE (bench/results/DATE-umap.jsonl) when it is done;
what FILE already holds is not measured again, so a run that was cut goes on where it stopped.
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
ORDER = ["digits", "clusters20k", "cells60k", "digits70k", "hub30k", "wide200k", "document"]


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


def read_results(path):
    """The lines of a file of results; none where there is no file, and none that was cut off."""
    lines = []
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                try:
                    lines.append(json.loads(line))
                except json.JSONDecodeError:
                    print(f"{path}: a line that was cut off is left out", file=sys.stderr)
    return lines


def write_result(results, line):
    results.write(json.dumps(line) + "\n")
    results.flush()


def fits_of(lines, name):
    """By peer, the fits of one data set, ascending by round."""
    found = {}
    for line in lines:
        if line.get("data") == name and "peer" in line:
            found.setdefault(line["peer"], []).append(line)
    return {peer: sorted(fits, key=lambda f: f["round"]) for peer, fits in found.items()}


def wanted(options, done, round_):
    """Is this fit still to be made? One of more than two minutes is made once."""
    slow = bool(done) and done[0]["total"] > 120 and not options.all_rounds
    return not any(f["round"] == round_ for f in done) and not slow


def fit(options, name, peer, round_, folder, labels):
    """One fit with its figures, or None."""
    figures, y = run(peer, name, folder, options.threads, options.home, options.build)
    if figures is None:
        return None
    x = np.load(datasets.make(folder, name), mmap_mode="r")
    figures.update(data=name, shape=list(x.shape), peer=peer, round=round_, threads=options.threads)
    if round_ == 0:
        figures["trust"], figures["vote"] = quality(np.asarray(x), y, labels)
        figures["outliers"] = outliers(y)
    return figures


def measure(options, name, folder, stored, results):
    datasets.make(folder, name)
    labels = np.load(os.path.join(folder, name + ".labels.npy"))
    found, failed = fits_of(stored, name), set()
    for round_ in range(options.rounds):
        for peer in options.peers:
            done = found.setdefault(peer, [])
            if peer in failed or not wanted(options, done, round_):
                continue
            figures = fit(options, name, peer, round_, folder, labels)
            if figures is None:
                failed.add(peer)
                continue
            done.append(figures)
            write_result(results, figures)
            print(f"{name} {peer} {round_}: {figures['total']:.2f} s, peak {peak_of([figures])} MiB"
                  + (f", trust {figures['trust']:.4f}, vote {figures['vote']:.4f}" if round_ == 0 else ""), flush=True)


def measure_document(options, stored, results):
    """The source document's rows."""
    if any(line.get("data") == "document" for line in stored):
        return
    command = [os.path.join(options.build, "umap_document_rows"), str(options.threads)]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        figures = dict(json.loads(line), data="document", threads=options.threads)
        write_result(results, figures)
        print(f"document {figures['points']} points: {figures['seconds']:.3f} s", flush=True)


def peak_of(runs):
    """MiB; "-" where it was not measured."""
    peaks = [r["peak_hwm"] for r in runs if "peak_hwm" in r]
    return f"{statistics.median(peaks) / 2**20:.0f}" if peaks else "-"


def row(name, peer, runs, best):
    total = statistics.median(r["total"] for r in runs)
    stages = " | ".join(f"{statistics.median(r[s] for r in runs):.2f}" if s in runs[0] else "-" for s in STAGES)
    first, shape = runs[0], "x".join(map(str, runs[0].get("shape", [])))
    return (f"| {name} {shape} | {peer} | {total:.2f} | {total / best:.2f} | {stages} | {peak_of(runs)} | "
            f"{first['trust']:.4f} | {first['vote']:.4f} | {first['outliers']} | {len(runs)} |")


HEADING = """# UMAP: benchmarks

Made by `make bench-umap` (bench/umap/run.sh). Do not edit.
"""
LEGEND = """
- Seconds of one fit on data in memory, median of rounds in which the peers took turns (*n*: how many); one process a fit.
  umap-learn's compilation (first call) and import are not counted. *umap-seeded* is umap-learn with random_state.
- peak: the most memory that the process held, data and runtime included (VmHWM, read by the process itself).
- trust: trustworthiness at 15 neighbours; vote: share of points whose 15 nearest on the map vote for their
  label; out: points beyond 5 times the radius of 99 %.

| data | who | total s | / Napier | neighbours | fuzzy set | start | layout | peak MiB | trust | vote | out | n |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"""
DOCUMENT = """
## The source document's rows

Layout alone, SGD, all edges, 5 samples a vertex in each epoch; median of five. Workspace: the most that the library held
beside edges and embedding.

| points | edges | components | epochs | seconds | the document says | ratio | workspace MB |
|---:|---:|---:|---:|---:|---:|---:|---:|"""


def heads_of(path, lines):
    """What a file says of the runs it holds."""
    name = os.path.relpath(path, ROOT)
    heads = [line["run"] for line in lines if "run" in line]
    if not heads:
        return [f"- `{name}`: no record of its command and machine"]
    return [f"- `{name}`: `{h['command']}`, {h['date']}, {h['cpu']}, {h['threads']} threads, {h['platform']}"
            for h in heads]


def report(paths):
    """The page, from files of results. Of a data set that is in several, the last file has all of it."""
    heads, chosen = [], {}
    for path in paths:
        lines = read_results(path)
        heads += heads_of(path, lines)
        for name in dict.fromkeys(line["data"] for line in lines if "data" in line):
            chosen[name] = [line for line in lines if line.get("data") == name]
    page = [HEADING, *heads, LEGEND]
    for name, lines in sorted(chosen.items(), key=lambda item: ORDER.index(item[0])):
        found = fits_of(lines, name)
        if "napier" in found:
            best = statistics.median(r["total"] for r in found["napier"])
            page += [row(name, peer, runs, best) for peer, runs in found.items()]
    if "document" in chosen:
        page.append(DOCUMENT)
        page += [f"| {d['points']} | {d['edges']} | {d['components']} | {d['epochs']} | {d['seconds']:.3f} | "
                 f"{d['document']:.0f} | {d['document'] / d['seconds']:.0f} | {d['workspace'] / 1e6:.2f} |"
                 for d in chosen["document"]]
    with open(os.path.join(ROOT, "docs", "umap-benchmarks.md"), "w") as out:
        out.write("\n".join(page) + "\n")


def cpu():
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor()


def head(options):
    """What the page says of a run."""
    command = f"bench/umap/run.sh --rounds {options.rounds} --peers {','.join(options.peers)} --data {options.data}"
    return {"run": {"command": command, "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
                    "cpu": cpu(), "threads": options.threads, "platform": platform.platform()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(ORDER))
    parser.add_argument("--peers", default="napier,umap,umap-seeded,uwot")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--all-rounds", action="store_true", help="also repeat fits of more than two minutes")
    parser.add_argument("--home", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--output", help="appended to; default: bench/results/DATE-umap.jsonl")
    parser.add_argument("--report", nargs="+", metavar="FILE", help="only write the page, from these files")
    options = parser.parse_args()
    if options.report:
        report(options.report)
        return
    options.peers = options.peers.split(",")
    folder = os.path.join(options.build, "umap-data")
    os.makedirs(folder, exist_ok=True)
    stamp = datetime.date.today().isoformat()
    output = os.path.abspath(options.output or os.path.join(ROOT, "bench", "results", f"{stamp}-umap.jsonl"))
    stored = read_results(output)
    with open(output, "a") as results:
        write_result(results, head(options))
        for name in options.data.split(","):
            if name == "document":
                measure_document(options, stored, results)
            else:
                measure(options, name, folder, stored, results)
    report([output])


if __name__ == "__main__":
    main()
