"""make bench-rl: Napier's RL functions against PyTorch and TRL, and against the floors of the machine.

    bench/rl/run.sh [--only REGEX] [--rounds 3] [--threads 2] [--list] [--output FILE]
    bench/rl/run.sh --report [FILE...]          no measuring: docs/rl-benchmarks.md from results

One process a peer; they take turns, round by round, each asleep while another works; medians of medians. Every result is
compared with float64 before it is timed: Napier being wrong ends the run, a peer that is wrong is named and not timed.
Results go, a line a case as soon as it is measured, to a JSON-lines file; where a case is measured again, the later line
counts. All cases take about 15 minutes with 3 rounds and 9 GB of memory; most of that time are the linear ones."""
import argparse
import datetime
import json
import re
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import cases
import report_rl
from cases import widen

import bench  # in the folder above: cases put it into the path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEERS = ("napier", "torch")
SLICE = 0.1  # seconds of one turn of one variant, where a single run is shorter
LONG = 1.0  # seconds after which a run is not repeated for warmth
FLOORS = ("floor_memory", "floor_read", "floor_exp")
# What a peer's error may be, by its dtype: a plain f32 sum over the vocabulary, or every step rounded to bf16.
PEER_BOUND = {"f32": 1e-3, "bf16": 0.2}


class Worker(bench.Worker):
    @staticmethod
    def command(peer, home, build):
        sleeping = {"OMP_WAIT_POLICY": "passive", "TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
        if peer == "napier":
            return [str(build / "rl_worker")], sleeping
        return [str(home / "rl/bin/python"), str(HERE / f"{peer}_worker.py")], sleeping

    def must(self, line):
        word, rest = self.ask(line)
        if word == "error":
            raise RuntimeError(rest)
        return rest

    def timed(self, variant, count, warm):
        return [float(t) for t in self.must(f"go {variant} {count} {int(warm)}").split()]


class Wrong(Exception):
    """Napier's result is not the truth, or there is none."""


class Series:
    """The times of one variant in one case."""

    def __init__(self, worker, variant, warm=True):
        self.worker, self.variant = worker, variant
        self.rounds, self.fastest, self.peak, self.results = [], float("inf"), 0, 0
        self.count, self.warm = 1, warm

    def turn(self):
        times = self.worker.timed(self.variant, self.count, self.warm)
        self.fastest = min(self.fastest, *times)
        self.rounds.append(statistics.median(times))
        if not self.rounds[1:]:  # the first turn tells how often later ones repeat
            self.count = int(min(max(SLICE / max(times[0], 1e-7), 1), 5000))
            self.warm = times[0] < LONG
        peak, results = (int(x) for x in self.worker.must("peak").split())
        self.peak, self.results = max(self.peak, peak), results

    def summary(self):
        # of what is repeated often, the first round (one cold run) is no measurement
        counted = self.rounds[1:] if self.count > 1 else self.rounds
        return {"ms": rounded(statistics.median(counted) * 1e3), "min_ms": rounded(self.fastest * 1e3),
                "low_ms": rounded(min(counted) * 1e3), "high_ms": rounded(max(counted) * 1e3), "rounds": len(counted),
                "runs": self.count, "peak_mib": round(self.peak / 2**20, 1),
                "results_mib": round(self.results / 2**20, 1)}


def rounded(x):
    return float(f"{x:.5g}")


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.workers = {peer: Worker(peer, options.threads, options.home, options.build) for peer in options.peers}
        self.data, self.inputs = None, {}

    def load(self, data):
        """The inputs of this kind and size in all workers; what was there before goes."""
        if data == self.data:
            return
        for worker in self.workers.values():
            worker.must("clear")
        self.inputs = {}
        self.inputs = cases.make_inputs(data)
        for name, array in self.inputs.items():
            path = self.folder / name
            np.ascontiguousarray(array).tofile(path)
            for worker in self.workers.values():
                worker.must(f"load {name} {path}")
            path.unlink()
        self.data = data

    def enter(self, peer, case, truths, record):
        """Prepares, checks every variant, and returns their series."""
        worker, series = self.workers[peer], []
        try:
            variants = worker.must(f"prepare {case.op} {case.dtype} {case.rows} {case.cols}").split()
        except RuntimeError as why:
            if peer == "napier":
                raise Wrong(f"{case.name}: {why}") from None
            record["skipped"][peer] = str(why)
            return []
        for variant in variants:
            if variant in FLOORS:
                series.append(Series(worker, variant))
                continue
            begin = time.monotonic()
            problem, errors = self.check(worker, variant, case, truths)
            if problem and peer == "napier":
                raise Wrong(f"{case.name}: {variant}: {problem}")
            record["errors"][variant] = errors
            if problem:
                record["skipped"][variant] = problem
            else:
                series.append(Series(worker, variant, time.monotonic() - begin < 2 * LONG))
        return series

    def check(self, worker, variant, case, truths):
        """What is wrong (None if nothing), and the largest error of each result."""
        prefix, errors = self.folder / "result", {}
        try:
            names = worker.must(f"check {variant} {prefix}").split()
        except RuntimeError as why:
            return str(why), errors
        for name in names:
            path = Path(f"{prefix}.{name}")
            if name in truths:
                errors[name] = rounded(largest_error(path, truths[name]))
            path.unlink()
        for name, error in errors.items():
            bound = truths[name].bound if worker.peer == "napier" else max(PEER_BOUND[case.dtype], truths[name].bound)
            if not error <= bound:
                return f"wrong: {name}: error {error:.3g}, more than {bound:.3g}", errors
        return None, errors

    def measure(self, case):
        start, busy = time.monotonic(), bench.busy_seconds()
        own = self.own_seconds()
        record = {"case": case.name, "op": case.op, "dtype": case.dtype, "rows": case.rows, "cols": case.cols,
                  "shape": case.shape, "threads": self.options.threads, "results": {}, "errors": {}, "skipped": {}}
        self.load(case.data)
        truths = cases.truths_of(case, self.inputs)
        everything = []
        for peer, worker in self.workers.items():
            everything += self.enter(peer, case, truths, record)
            worker.wait_until_asleep()
        for _ in range(self.options.rounds + 1):
            for worker in self.workers.values():
                for series in [s for s in everything if s.worker is worker]:
                    if len(series.rounds) < self.options.rounds + (series.count > 1):
                        series.turn()
                worker.wait_until_asleep()
        for s in everything:
            record["results"][s.variant] = s.summary()
        record["clock_ghz"] = round(max(self.workers["napier"].timed("clock", 1, False)), 3)
        record["seconds"] = round(time.monotonic() - start, 1)
        foreign = bench.busy_seconds() - busy - (self.own_seconds() - own)
        record["foreign_cpu"] = round(max(0.0, foreign) / max(record["seconds"], 0.1), 3)
        return record

    def own_seconds(self):
        return sum(w.seconds() for w in self.workers.values()) + time.process_time()

    def stop(self):
        for worker in self.workers.values():
            worker.stop()


def largest_error(path, truth):
    """Of the compared rows of the result in the file, relative to the truth's scale."""
    count = int(np.prod(truth.shape))
    size = path.stat().st_size // max(count, 1)
    whole = np.issubdtype(truth.values.dtype, np.integer)
    kind = {2: np.uint16, 4: np.float32, 8: np.int64 if whole else np.float64}[size]
    got = np.memmap(path, kind, "r", shape=truth.shape)
    got = widen(np.ascontiguousarray(got if truth.where is None else got[truth.where]))
    error = np.abs(got - truth.values) / truth.scale
    return float("inf") if np.isnan(error).any() else float(error.max(initial=0.0))


def line_of(record):
    """One line for the eye."""
    results = record["results"]
    ours = results["napier"]["ms"]
    parts = [f"{record['case']:<40} napier {ours:9.4g} ms"]
    floor = report_rl.floor_ms(record)
    if floor:
        parts.append(f"/floor {ours / floor:5.2f}")
    parts += [f"{name} {r['ms'] / ours:.2f}x" for name, r in results.items() if name not in ("napier", *FLOORS)]
    parts += [f"NOT TIMED {name}: {why}" for name, why in record["skipped"].items()]
    if record["foreign_cpu"] > 0.05:
        parts.append(f"(foreign load {record['foreign_cpu']:.0%})")
    return "  ".join(parts)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression on the case's name, such as 'kl|bf16-512'")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=min(2, len(bench.distinct_cores())))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    parser.add_argument("--report", action="store_true", help="write the page from results and stop")
    parser.add_argument("--output", type=Path, help="the JSON-lines file, to which results are added")
    parser.add_argument("--home", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--compiler", default="", help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", help="with --report: results (default: all in bench/results/*-rl*.jsonl)")
    options = parser.parse_args()
    options.peers = options.peers.split(",")
    return options


def run(options, todo, folder, output):
    todo = [c for c in todo if 5 * c.rows * c.cols * 4 < bench.available_bytes() or c.data[0] == "tokens"]
    bench_ = Bench(options, folder)
    header = {"machine": bench.machine(), "compiler": options.compiler, "threads": options.threads,
              "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "command": f"make bench-rl  # --rounds {options.rounds} --threads {options.threads}"
                         + (f" --only '{options.only}'" if options.only else ""),
              "versions": {peer: worker.version for peer, worker in bench_.workers.items()}}
    try:
        with open(output, "a", encoding="utf-8") as f:
            f.write(json.dumps({"header": header}) + "\n")
            for case in todo:
                record = bench_.measure(case)
                f.write(json.dumps(record) + "\n")
                f.flush()
                print(line_of(record), flush=True)
    finally:
        bench_.stop()


def main():
    options = arguments()
    todo = [c for c in cases.all_cases() if re.search(options.only, c.name)]
    if options.list:
        print("\n".join(c.name for c in todo))
        return 0
    results = ROOT / "bench/results"
    if options.report:
        report_rl.write(options.files or sorted(str(p) for p in results.glob("*-rl*.jsonl")))
        return 0
    if not todo:
        print("nothing to measure: no case fits --only", file=sys.stderr)
        return 2
    output = options.output or results / f"{datetime.date.today().isoformat()}-rl.jsonl"
    try:
        with bench.in_memory() as folder:
            run(options, todo, Path(folder), output)
    except Wrong as why:
        print(f"FAILED: {why}", file=sys.stderr)
        return 1
    print(f"results: {output}")
    if options.output is None:
        report_rl.write([str(output)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
