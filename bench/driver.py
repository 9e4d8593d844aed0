"""The driver's side of the benchmark: workers, their results against the truth, and turns.

One process per peer, so that no thread pool meets another. Rounds alternate: every peer in turn, while all others sleep; the
driver waits until the one that just worked is asleep, and records how much processor time the others took all the same.
Times are medians over rounds of medians within a round. All peers get the same inputs, each in memory of the same kind.
Before it is timed, each result is compared with float64; Napier being wrong ends the run, a peer that is wrong is named and
not timed."""
import json
import os
import re
import select
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np

from machine import available_bytes, busy_seconds, distinct_cores, process_seconds, read
from suites.common import WAYS_OF_FLOORS, Wrong, compare, rounded

HERE = Path(__file__).resolve().parent
PATIENCE = 1800  # seconds a worker may take for one answer
LONG = 2.0  # seconds after which a run is not repeated for warmth
PROGRAMS = ("napier", "xnnpack", "onednn")
ENVIRONMENTS = {"torch": "rl", "transformers": "rl", "uwot": "plot"}  # of others: one of the peer's own name


# ---- Workers -------------------------------------------------------------------------------------------------------

class Lost(Exception):
    """A worker died or fell silent."""


class Worker:
    def __init__(self, peer, threads, home, build):
        self.peer, self.threads = peer, threads
        command, extra = self.command(peer, home, build)
        counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
        env = dict(os.environ, **dict.fromkeys(counts, str(threads)), CUDA_VISIBLE_DEVICES="",
                   JAX_PLATFORMS="cpu", TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1", **extra)
        cores = distinct_cores()[-threads:]
        self.process = subprocess.Popen(
            [*command, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
            preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.pending = b""
        word, rest = self.read_line()
        if word != "hello":
            self.stop()
            raise Lost(rest)
        self.version = rest.split(" ", 1)[1]

    @staticmethod
    def command(peer, home, build):
        """How the worker is started, and what its library needs in the environment."""
        extra = {}
        if peer == "onednn":  # it runs on Intel's OpenCL runtime for the CPU, which lies beside it
            lib = home / "onednn/lib"
            extra = {"OCL_ICD_FILENAMES": f"{lib}/libintelocl.so", "LD_LIBRARY_PATH": str(lib)}
        if peer in ("jax", "scipy"):  # they own their results: let malloc keep and reuse that memory, in huge pages
            extra = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20),
                     "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        if peer in PROGRAMS:
            return [str(build / f"bench/{peer}_worker")], extra
        python = home / ENVIRONMENTS.get(peer, peer) / "bin/python"
        return [str(python), str(HERE / "peers/worker.py"), peer], extra

    def read_line(self):
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not chunk:
                self.stop()
                raise Lost("no answer in time" if not ready else f"the worker ended (status {self.process.returncode})")
            self.pending += chunk
        line, self.pending = self.pending.split(b"\n", 1)
        word, _, rest = line.decode(errors="replace").partition(" ")
        return word, rest

    def ask(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self.stop()
            raise Lost("the worker ended")
        return self.read_line()

    def must(self, line):
        word, rest = self.ask(line)
        if word == "error":
            raise RuntimeError(rest)
        return rest

    def figures(self):
        return json.loads(self.must("figures"))

    def seconds(self):
        return process_seconds(self.process.pid)

    def wait_until_asleep(self):
        """Idle threads may spin for a while before they sleep. True if they do within half a second."""
        before = self.seconds()
        for _ in range(100):
            time.sleep(0.005)
            now = self.seconds()
            if now - before < 0.0003:
                return True
            before = now
        return False

    def resident_bytes(self):
        found = re.search(r"VmRSS:\s+(\d+) kB", read(f"/proc/{self.process.pid}/status"))
        return int(found.group(1)) * 1024 if found else 0

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Crew:
    """The workers of one thread count. One that is lost is started again for the next cell, three times at most."""

    def __init__(self, peers, threads, home, build):
        self.threads, self.home, self.build = threads, home, build
        self.workers, self.losses = {}, {}
        for peer in peers:
            self.start(peer)

    def start(self, peer):
        try:
            self.workers[peer] = Worker(peer, self.threads, self.home, self.build)
        except (OSError, Lost) as why:
            print(f"  {peer}: left out: {why}", flush=True)
            self.workers.pop(peer, None)

    def lost(self, peer):
        self.workers.pop(peer).stop()
        self.losses[peer] = self.losses.get(peer, 0) + 1
        if self.losses[peer] <= 3:
            self.start(peer)

    def slim(self, limit=3 << 30):
        """Starts workers anew that hold more memory than that; whether there was one."""
        fat = [peer for peer, worker in self.workers.items() if worker.resident_bytes() > limit]
        for peer in fat:
            self.workers[peer].stop()
            self.start(peer)
        return bool(fat)

    def seconds(self):
        return sum(w.seconds() for w in self.workers.values()) + time.process_time()

    def stop(self):
        for worker in self.workers.values():
            worker.stop()


# ---- Measuring -----------------------------------------------------------------------------------------------------

class Series:
    """The times of one variant in one cell."""

    def __init__(self, worker, variant, first, suite, cpu):
        self.worker, self.variant, self.first, self.suite, self.cpu = worker, variant, first, suite, cpu
        self.count, self.rounds, self.times, self.figures = 1, [], [], {}
        self.disturbed, self.spent = 0.0, 0.0

    def turn(self, crew, slice_):
        others = [w for w in crew.workers.values() if w is not self.worker]
        usual = statistics.median(self.times) if self.times else self.first
        self.count = int(min(max(slice_ / max(usual, 1e-7), 1), 5000))
        if self.suite.MEMORY:
            self.worker.must("fresh")
        before, start = sum(w.seconds() for w in others), time.monotonic()
        answer = [float(t) for t in self.worker.must(f"go {self.variant} {self.count} {int(usual < LONG)}").split()]
        self.spent += time.monotonic() - start
        self.disturbed += sum(w.seconds() for w in others) - before
        times = [t / self.worker.threads for t in answer[1::2]] if self.cpu else answer[::2]
        if self.suite.MEMORY or self.suite.FIGURES:
            found = self.worker.figures()
            self.figures = found | {"taken": max(found.get("taken", 0), self.figures.get("taken", 0))}
            times = [found.get("seconds", t) for t in times]
        self.times += times
        self.rounds.append(statistics.median(times))

    def summary(self):
        rounds, times = sorted(self.rounds) or [self.first], sorted(self.times) or [self.first]
        quarter = len(rounds) // 4
        found = {"ms": statistics.median(rounds) * 1e3, "min_ms": times[0] * 1e3, "q1_ms": times[len(times) // 4] * 1e3,
                 "low_ms": rounds[quarter] * 1e3, "high_ms": rounds[-1 - quarter] * 1e3, "rounds": len(rounds),
                 "runs": self.count}
        if self.suite.MEMORY:
            found |= {"peak_mib": round(self.figures.get("taken", 0) / 2**20, 1),
                      "results_mib": round(self.figures.get("results", 0) / 2**20, 1)}
        if self.suite.FIGURES:
            found |= {name: x for name, x in self.figures.items() if name not in ("ghz", "taken", "results", "seconds")}
        return {name: rounded(x) for name, x in found.items()}


class Bench:
    def __init__(self, suite, options, folder):
        self.suite, self.options, self.folder = suite, options, folder
        self.crew, self.data, self.inputs, self.files = None, None, {}, {}

    # ---- Inputs

    def load(self, cell, record):
        """The inputs of the cell in all workers: a copy for each, or one mapping where these would not fit memory."""
        need = cell.bytes * len(self.crew.workers) * 1.7
        record["shared"] = need > 0.6 * available_bytes() and self.suite.SHARES
        if (cell.data, cell.threads, record["shared"]) == self.data and not self.suite.NEW_WORKERS:
            return
        for worker in self.crew.workers.values():
            worker.must("clear")
        self.forget()
        self.inputs = self.suite.inputs(cell, self.folder)
        for name, array in self.inputs.items():
            path = self.folder / name
            if not path.exists():
                np.ascontiguousarray(array).tofile(path)
            self.files[name] = path
        if record["shared"]:
            self.files["result"] = self.folder / "result"
            with open(self.files["result"], "wb") as f:
                os.posix_fallocate(f.fileno(), 0, sum(path.stat().st_size for path in self.files.values()))
        self.data = (cell.data, cell.threads, record["shared"])
        for peer in list(self.crew.workers):
            self.hand_out(peer)

    def hand_out(self, peer):
        for name, path in self.files.items():
            self.crew.workers[peer].must(f"{'share' if self.data[2] else 'load'} {name} {path}")

    def forget(self):
        self.inputs, self.data = {}, None
        for path in self.files.values():
            path.unlink(missing_ok=True)
        self.files = {}

    # ---- Checks

    def enter(self, worker, cell, truths, record, kept):
        """Prepares, checks and runs once. The series to measure; none if the worker cannot do the cell."""
        word, rest = worker.ask(f"prepare {cell.op} " + " ".join(f"{k}={v}" for k, v in cell.words.items()))
        if word != "ready":
            record["skipped"][worker.peer] = rest
            if worker.peer == "napier":
                raise Wrong(f"{cell.name}: napier refuses: {rest}")
            return []
        series = []
        for variant in rest.split():
            if variant in WAYS_OF_FLOORS:
                took = float(worker.must(f"go {variant} 1 1").split()[0])
            elif not re.search(self.options.variants, variant):
                continue
            else:
                took = self.check(worker, variant, cell, truths, record, kept)
            if took is not None:
                series.append(Series(worker, variant, took, self.suite, self.options.cpu))
        return series

    def check(self, worker, variant, cell, truths, record, kept):
        """Seconds of the first run; None where the result is wrong."""
        prefix, errors, problem = self.folder / "check", {}, None
        wall, processor, *names = worker.must(f"check {variant} {prefix}").split()
        for name in names:
            path = self.files[name] if record["shared"] else Path(f"{prefix}.{name}")
            if name in truths and not problem:
                errors[name], problem = compare(path, truths[name], cell, worker.peer)
            if self.suite.KEEPS:
                kept.setdefault(variant, {})[name] = np.fromfile(path, np.float32)
            if not record["shared"]:
                path.unlink()
        if problem and worker.peer == "napier":
            raise Wrong(f"{cell.name}: {variant}: {problem}")
        if problem:
            record["skipped"][variant] = problem
            return None
        record["errors"][variant] = {name: rounded(x, 3) for name, x in errors.items()}
        took = float(processor) / worker.threads if self.options.cpu else float(wall)
        found = worker.figures() if self.suite.FIGURES else {}
        record["figures"][variant] = {k: rounded(v) for k, v in found.items() if k != "ghz"}
        return found.get("seconds", took)

    def guarded(self, peer, record, action):
        """A peer's failure costs its numbers in this cell, nothing else."""
        try:
            return action()
        except Lost as why:
            record["skipped"][peer] = str(why)
            self.crew.lost(peer)
            if peer in self.crew.workers and self.data:
                self.hand_out(peer)
        except RuntimeError as why:
            record["skipped"][peer] = str(why)
            if peer == "napier":
                raise Wrong(str(why)) from None
        return None

    # ---- Turns

    def rounds(self, series, deadline, record):
        """Everybody in turn until the time is up: one round at least, the suite's least number unless that takes twice
        the time we have. What takes longest keeps its first time."""
        least, most = self.options.rounds or self.suite.ROUNDS
        left = max(deadline - time.monotonic(), 0.5)
        once = 1e9 if self.options.rounds else self.suite.ONCE
        series = [s for s in series if s.first < once and s.first * 2 * least <= max(left, 2 * LONG)]
        slice_ = min(self.suite.SLICE, left / (least * (len(series) + 1)))
        for turn in range(most):
            late = time.monotonic() - deadline
            if turn > 0 and late > (0 if turn >= least else left):
                break
            last = None
            for s in list(series):
                if last is not None and last is not s.worker:
                    last.wait_until_asleep()
                if self.guarded(s.worker.peer, record, lambda s=s: (s.turn(self.crew, slice_), True)) is None:
                    series = [other for other in series if other.worker is not s.worker]
                last = s.worker
            if last is not None:
                last.wait_until_asleep()

    def measure(self, cell, allowance):
        """The record of a cell, which may take about so many seconds."""
        start, busy, used = time.monotonic(), busy_seconds(), self.crew.seconds()
        record = {"suite": self.suite.NAME, "cell": cell.name, "op": cell.op, **cell.words, "threads": cell.threads,
                  "results": {}, "errors": {}, "skipped": {}, "figures": {}}
        self.load(cell, record)
        truths, kept, series = self.suite.truths(cell, self.inputs), {}, []
        for peer in list(self.crew.workers):
            worker = self.crew.workers[peer]
            series += self.guarded(
                peer, record, lambda w=worker: self.enter(w, cell, truths, record, kept)) or []
            worker.wait_until_asleep()
        if self.suite.KEEPS:
            for variant, found in self.suite.judge(cell, self.inputs, kept).items():
                record["figures"].setdefault(variant, {}).update(found)
        self.rounds(series, start + allowance, record)
        self.finish(record, series)
        elapsed = time.monotonic() - start
        record["clock_ghz"] = rounded(self.crew.workers["napier"].figures()["ghz"]) if "napier" in self.crew.workers else None
        record["seconds"] = round(elapsed, 2)
        foreign = busy_seconds() - busy - max(self.crew.seconds() - used, 0.0)
        record["foreign_cpu"] = round(max(0.0, foreign) / elapsed, 3)
        return record

    def finish(self, record, everything):
        spent = sum(s.spent for s in everything)
        record["disturbed_by_peers"] = round(sum(s.disturbed for s in everything) / spent, 5) if spent else 0
        for s in everything:
            if s.variant in record["skipped"] or s.worker.peer in record["skipped"]:
                continue
            summary = s.summary()
            if s.variant in ("floor_exp", "floor_row"):  # the piece that is measured is 2^20 elements on each thread
                record[s.variant[6:] + "_ns"] = rounded(summary["ms"] * 1e6 / 2**20)
                record[s.variant[6:] + "_min_ns"] = rounded(summary["min_ms"] * 1e6 / 2**20)
            elif s.variant in WAYS_OF_FLOORS:
                record[s.variant[6:] + "_ms"], record[s.variant[6:] + "_min_ms"] = summary["ms"], summary["min_ms"]
            else:
                record["results"][s.variant] = summary | {
                    k: v for k, v in record["figures"].get(s.variant, {}).items() if k not in summary}
        del record["figures"]
