#!/usr/bin/env python3
"""Measures Napier against its floors and its peers.

One process per peer, so that no thread pool meets another. Rounds alternate: every peer in turn, while all others sleep;
the driver waits until the one that just worked is asleep, and records how much processor time the others took all the
same. Times are medians over rounds of medians within a round. All peers get the same input, each in memory of the same
kind. Before it is timed, each result is compared with float64; Napier being wrong ends the run, a peer that is wrong is
named and not timed. Results go, one line a cell, to a JSON-lines file. Of a full run bench/report.py
makes a summary in bench/results and the page.

Run it through bench/run.sh, which prepares the peers and builds the C workers."""
import argparse
import datetime
import json
import os
import platform
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import report
from cells import OPS, cells

HERE = Path(__file__).resolve().parent
PEERS = ("napier", "torch", "ort", "jax", "scipy", "onednn", "xnnpack")
QUICK_PEERS = ("napier", "torch", "ort")
NAPIER_VARIANTS = ("napier", "floor_memory", "floor_read", "floor_exp")
SLICE = 0.03  # seconds of one turn of one variant, where a single run is shorter
ROUNDS = (3, 11)  # at least, at most
LONG = 2.0  # seconds after which a run is not repeated for warmth
FILTERS = ("--peers", "--ops", "--dtypes", "--axes", "--threads", "--shapes", "--only")
PATIENCE = 180  # seconds a worker may take for one answer


# ---- Machine -------------------------------------------------------------------------------------------------------

def read(path, default=""):
    try:
        return Path(path).read_text()
    except OSError:
        return default


def cpu_model():
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def distinct_cores():
    """One logical processor of each core that we may use."""
    seen, cpus = set(), []
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", str(cpu)).strip()
        if siblings not in seen:
            seen.add(siblings)
            cpus.append(cpu)
    return cpus


def machine():
    caches = {}
    for index in range(5):
        where = f"/sys/devices/system/cpu/cpu0/cache/index{index}/"
        if read(where + "type").strip() in ("Data", "Unified"):
            caches["L" + read(where + "level").strip()] = read(where + "size").strip()
    return {"cpu": cpu_model(), "arch": platform.machine(), "cores": len(distinct_cores()), "caches": caches,
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "kernel": platform.release()}


def available_bytes():
    found = re.search(r"MemAvailable:\s+(\d+) kB", read("/proc/meminfo"))
    return int(found.group(1)) * 1024 if found else 4 << 30


def busy_seconds():
    """Processor time spent by everything on this machine since it started."""
    fields = [int(x) for x in read("/proc/stat", "cpu 0 0 0 0 0").splitlines()[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK") if len(fields) > 4 else 0.0


def process_seconds(pid):
    """Processor time of all threads of a process, to the nanosecond."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            total += int(read(f"/proc/{pid}/task/{task}/schedstat", "0").split()[0])
    except (OSError, IndexError):
        pass
    return total * 1e-9


# ---- Workers -------------------------------------------------------------------------------------------------------

class Lost(Exception):
    """A worker died or fell silent."""


class Worker:
    def __init__(self, peer, threads, home, build):
        self.peer, self.threads = peer, threads
        command, extra = self.command(peer, home, build)
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads),
                   OPENBLAS_NUM_THREADS=str(threads), CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu", **extra)
        cores = distinct_cores()[-threads:]
        self.process = subprocess.Popen(
            [*command, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
            preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.pending = b""
        self.version = ""
        word, rest = self.read_line()
        if word != "hello":
            self.stop()
            raise Lost(rest)
        self.version = rest.split(" ", 1)[1]

    @staticmethod
    def command(peer, home, build):
        """How the worker is started, and what its library needs in the environment."""
        if peer in ("napier", "xnnpack"):
            return [str(build / f"{peer}_worker")], {}
        if peer == "onednn":  # it runs on Intel's OpenCL runtime for the CPU, which lies beside it
            lib = home / "onednn/lib"
            return [str(build / "onednn_worker")], {"OCL_ICD_FILENAMES": f"{lib}/libintelocl.so",
                                                    "LD_LIBRARY_PATH": str(lib)}
        extra = {}
        if peer in ("jax", "scipy"):  # they own their results: let malloc keep and reuse that memory, in huge pages
            extra = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20),
                     "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        return [str(home / peer / "bin/python"), str(HERE / f"peers/{peer}_worker.py")], extra

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

    def times(self, variant, count):
        word, rest = self.ask(f"go {variant} {count}")
        if word != "times":
            raise RuntimeError(rest)
        return [float(t) for t in rest.split()]

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
        for peer, worker in list(self.workers.items()):
            if worker.resident_bytes() > limit:
                worker.stop()
                self.start(peer)

    def stop(self):
        for worker in self.workers.values():
            worker.stop()


# ---- Input and truth -----------------------------------------------------------------------------------------------

def bf16_bits(x):
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def widen(x):
    return x.astype(np.float64) if x.dtype != np.uint16 else (
        (x.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64))


class Input:
    """Logits of standard deviation 3 in a file that all workers read: a block of odd length over and over, so that rows
    differ."""

    BLOCK = (3 * np.random.default_rng(20240229).standard_normal(4_194_319, dtype=np.float32))
    BITS = bf16_bits(BLOCK)

    def __init__(self, folder, cell):
        self.path = folder / cell.data
        block = self.BITS if cell.dtype == "bf16" else self.BLOCK
        with open(self.path, "wb") as f:
            left = cell.elements
            while left > 0:
                block[:left].tofile(f)
                left -= len(block[:left])
        stored = (cell.rows, cell.cols) if cell.axis == "last" else (cell.cols, cell.rows)
        self.array = np.memmap(self.path, block.dtype, "r", shape=stored)
        self.out_path = None
        self.truths = {}

    def share_output(self, size):
        """The file that all workers write to, where their own copies would not fit memory."""
        self.out_path = self.out_path or self.path.with_name("output")
        if not self.out_path.exists() or self.out_path.stat().st_size < size:
            with open(self.out_path, "wb") as f:
                os.posix_fallocate(f.fileno(), 0, size)
        return self.out_path

    def close(self):
        self.array = None
        self.path.unlink(missing_ok=True)
        if self.out_path:
            self.out_path.unlink(missing_ok=True)

    def truth(self, cell, samples):
        """The result of the sampled rows in float64."""
        if cell.op not in self.truths:
            if cell.op == "logsumexp_all":
                x = widen(self.array).reshape(1, -1)
            else:
                rows = np.arange(samples) * cell.rows // samples
                x = widen(self.array[rows] if cell.axis == "last" else np.ascontiguousarray(self.array[:, rows].T))
            top = x.max(axis=1, keepdims=True)
            x -= top
            if cell.op == "softmax":
                np.exp(x, out=x)
                self.truths = {cell.op: x / x.sum(axis=1, keepdims=True)}
            else:
                log_sum = np.log1p(np.exp(x).sum(axis=1, keepdims=True) - 1.0)
                self.truths = {cell.op: x - log_sum if cell.op == "log_softmax" else (top + log_sum)[:, 0]}
        return self.truths[cell.op]


def tolerance(cell, peer):
    """Relative and absolute. Napier's own is what it promises (docs/numerics.md); a peer's is what its dtype can give."""
    half = 2.0**-8 if cell.dtype == "bf16" else 0.0  # the last rounding
    if peer == "napier":
        return (half * 1.01 + 1.5e-6, 2.0**-133) if cell.op == "softmax" else (half * 1.01 + 1.2e-7, 1.0e-6)
    length = cell.elements if cell.op == "logsumexp_all" else cell.cols
    long_sum = min(max(1e-4, length * 2.0**-24), 0.05)  # a plain f32 sum from left to right may lose that much
    if cell.dtype == "bf16":
        return (0.05, 1e-6) if cell.op == "softmax" else (0.02, 0.1)
    return (long_sum, 1e-30) if cell.op == "softmax" else (1e-5, long_sum)


def largest_error(cell, got, truth):
    """Relative for softmax, absolute for logs."""
    error = np.abs(got - truth)
    if cell.op == "softmax":
        keep = truth > 1e-30
        return float((error[keep] / truth[keep]).max())
    return float(error.max())


def check(worker, variant, cell, data, folder):
    """What is wrong (None if nothing), the largest error, and the seconds of this first run."""
    samples = cell.rows if cell.elements <= 4_000_000 else max(1, min(cell.rows, 4_000_000 // cell.cols))
    path = folder / "result"
    word, rest = worker.ask(f"check {variant} {samples} {path}")
    if word != "done":
        return rest or word, None, None
    took = float(rest)
    got = widen(np.fromfile(path, np.uint16 if cell.dtype == "bf16" else np.float32))
    path.unlink(missing_ok=True)
    truth = data.truth(cell, samples)
    if got.size != truth.size:
        return f"wrong size: {got.size} numbers, not {truth.size}", None, took
    got = got.reshape(truth.shape)
    relative, absolute = tolerance(cell, worker.peer)
    bad = ~(np.abs(got - truth) <= relative * np.abs(truth) + absolute)
    error = largest_error(cell, got, truth)
    if bad.any():
        first = np.unravel_index(int(np.argmax(bad)), bad.shape)
        return (f"wrong: {int(bad.sum())} of {bad.size}, first {got[first]:.9g} for {truth[first]:.9g}, error {error:.3g}",
                None, took)
    return None, error, took


# ---- Measuring -----------------------------------------------------------------------------------------------------

class Wrong(Exception):
    """Napier's result is not the truth."""


class Series:
    """The times of one variant in one cell."""

    def __init__(self, worker, variant, first):
        self.worker, self.variant, self.first = worker, variant, first
        self.count = 1
        self.rounds, self.fastest = [], first
        self.disturbed, self.spent = 0.0, 0.0

    def turn(self, crew):
        others = [w for w in crew.workers.values() if w is not self.worker]
        before, start = sum(w.seconds() for w in others), time.monotonic()
        times = self.worker.times(self.variant, self.count)
        self.spent += time.monotonic() - start
        self.disturbed += sum(w.seconds() for w in others) - before
        self.rounds.append(statistics.median(times))
        self.fastest = min(self.fastest, *times)

    def summary(self):
        rounds = sorted(self.rounds) or [self.first]
        quarter = len(rounds) // 4
        return {"ms": statistics.median(rounds) * 1e3, "min_ms": self.fastest * 1e3, "low_ms": rounds[quarter] * 1e3,
                "high_ms": rounds[-1 - quarter] * 1e3, "rounds": len(self.rounds), "runs": self.count}


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.crew, self.data, self.versions = None, None, {}

    def variants_of(self, worker, rest):
        return NAPIER_VARIANTS if worker.peer == "napier" else tuple(rest.split())

    def enter(self, worker, cell, record, out):
        """Prepares, checks and runs once. The series to measure; none if the worker cannot do the cell."""
        word, rest = worker.ask(
            f"prepare {cell.op} {cell.dtype} {cell.axis} {cell.rows} {cell.cols} {self.data.path} {out}")
        if word != "ready":
            record["skipped"][worker.peer] = rest
            if worker.peer == "napier":
                raise Wrong(f"{cell.name}: napier refuses: {rest}")
            return []
        series = []
        for variant in self.variants_of(worker, rest):
            took = 0.0
            if not variant.startswith("floor"):
                problem, error, took = check(worker, variant, cell, self.data, self.folder)
                if problem and worker.peer == "napier":
                    raise Wrong(f"{cell.name}: {problem}")
                if problem:
                    record["skipped"][variant] = problem
                    continue
                record["errors"][variant] = error
            # A run of seconds is not repeated just to have seen it warm.
            series.append(Series(worker, variant, took if took > LONG else worker.times(variant, 1)[0]))
        return series

    def guarded(self, peer, record, action):
        """A peer's failure costs its numbers in this cell, nothing else."""
        try:
            return action()
        except Lost as why:
            record["skipped"][peer] = str(why)
            self.crew.lost(peer)
        except RuntimeError as why:
            record["skipped"][peer] = str(why)
        return None

    def rounds(self, series, deadline, record):
        """Everybody in turn until the time is up: one round at least, three unless that takes twice the time we have.
        What takes seconds keeps its first time."""
        left = max(deadline - time.monotonic(), 0.5)
        series = [s for s in series if s.first < LONG and s.first * 2 * ROUNDS[0] <= max(left, 2 * LONG)]
        slice_ = min(SLICE, left / (ROUNDS[0] * (len(series) + 1)))
        for s in series:
            s.count = int(min(max(slice_ / max(s.first, 1e-7), 1), 2000))
        for turn in range(ROUNDS[1]):
            late = time.monotonic() - deadline
            if turn > 0 and late > (0 if turn >= ROUNDS[0] else left):
                break
            last = None
            for s in list(series):
                if last is not None and last is not s.worker:
                    last.wait_until_asleep()
                if self.guarded(s.worker.peer, record, lambda s=s: (s.turn(self.crew), True)) is None:
                    series = [other for other in series if other.worker is not s.worker]
                last = s.worker
            if last is not None:
                last.wait_until_asleep()

    def measure(self, cell, allowance):
        start = time.monotonic()
        record = {"cell": cell.name, "op": cell.op, "dtype": cell.dtype, "axis": cell.axis, "rows": cell.rows,
                  "cols": cell.cols, "threads": cell.threads, "results": {}, "errors": {}, "skipped": {}}
        if self.data is None or self.data.path.name != cell.data:
            if self.data:
                self.data.close()
            self.data = Input(self.folder, cell)
        busy, used = busy_seconds(), sum(w.seconds() for w in self.crew.workers.values()) + time.process_time()
        need = (cell.in_bytes + cell.out_bytes) * len(self.crew.workers) * 1.7
        record["shared"] = need > 0.6 * available_bytes()
        if record["shared"]:
            for peer in list(self.crew.workers):
                self.guarded(peer, record, lambda p=peer: self.crew.workers[p].ask("release"))
        out = self.data.share_output(max(cell.in_bytes, cell.out_bytes)) if record["shared"] else "-"
        series = []
        for peer in list(self.crew.workers):
            worker = self.crew.workers[peer]
            series += self.guarded(peer, record, lambda w=worker: self.enter(w, cell, record, out)) or []
            worker.wait_until_asleep()
        self.rounds(series, start + allowance, record)
        self.finish(record, series)
        record["clock_ghz"] = self.clock_ghz()
        elapsed = time.monotonic() - start
        used = sum(w.seconds() for w in self.crew.workers.values()) + time.process_time() - used
        record["seconds"] = round(elapsed, 2)
        record["foreign_cpu"] = round(max(0.0, busy_seconds() - busy - max(used, 0.0)) / elapsed, 3)
        return record

    def finish(self, record, everything):
        spent = sum(s.spent for s in everything)
        record["disturbed_by_peers"] = round(sum(s.disturbed for s in everything) / spent, 5) if spent else 0
        for s in everything:
            if s.variant in record["skipped"] or s.worker.peer in record["skipped"]:
                continue
            summary = {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in s.summary().items()}
            if s.variant == "floor_exp":
                record["exp_ns"] = float(f"{summary['ms'] * 1e6 / 2**20:.5g}")
                record["exp_min_ns"] = float(f"{summary['min_ms'] * 1e6 / 2**20:.5g}")
            elif s.variant in ("floor_memory", "floor_read"):
                record[s.variant[6:] + "_ms"], record[s.variant[6:] + "_min_ms"] = summary["ms"], summary["min_ms"]
            else:
                record["results"][s.variant] = summary
        record["errors"] = {k: float(f"{v:.3g}") for k, v in record["errors"].items()}

    def clock_ghz(self):
        """So that times can be told in cycles."""
        worker = self.crew.workers.get("napier")
        return round(max(worker.times("clock", 1)), 3) if worker else None


def line_of(record, level2):
    """One line for the eye."""
    results = record["results"]
    ours = results.get("napier", {}).get("ms")
    parts = [f"{record['cell']:<44}"]
    if ours:
        parts.append(f"napier {ours:9.4g} ms")
        parts.append(f"/floor {ours / report.floors(record, level2)[2]:5.2f}")
    parts += [f"{name} {r['ms'] / ours if ours else r['ms']:.2f}{'x' if ours else ' ms'}"
              for name, r in results.items() if name != "napier"]
    wrong = [name for name, why in record["skipped"].items() if why.startswith("wrong")]
    if wrong:
        parts.append("WRONG: " + " ".join(wrong))
    if record["foreign_cpu"] > 0.05:
        parts.append(f"(foreign load {record['foreign_cpu']:.0%})")
    return "  ".join(parts)


def arguments():
    parser = argparse.ArgumentParser(description="Measure Napier against floors and peers.")
    parser.add_argument("--quick", action="store_true", help="a third of the shapes, napier, torch and ort, 9 minutes")
    parser.add_argument("--minutes", type=float, help="how long the whole run may take (default 85, quick 9)")
    parser.add_argument("--peers", help=f"of {','.join(PEERS)}")
    parser.add_argument("--ops", default=",".join((*OPS, "logsumexp_all")))
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--axes", default="last,first")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--shapes", help="such as 1000000x8,1x1000000: only these")
    parser.add_argument("--only", help="a regular expression on the cell's name, such as 'softmax-f32-last-.*-t2'")
    parser.add_argument("--output", type=Path, help="the JSON-lines file (default: a new one in the build folder)")
    parser.add_argument("--list", action="store_true", help="print the cells and stop")
    parser.add_argument("--home", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--compiler", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen_cells(options):
    cores = len(distinct_cores())
    threads = [int(t) for t in options.threads.split(",")]
    for count in [t for t in threads if t > cores]:
        print(f"skipped: {count} threads: this machine has {cores} cores")
    found = cells(options.quick, [t for t in threads if t <= cores], options.dtypes.split(","), options.axes.split(","),
                  options.ops.split(","))
    if options.shapes:
        found = [c for c in found if c.shape in options.shapes.split(",")]
    if options.only:
        found = [c for c in found if re.search(options.only, c.name)]
    for cell in [c for c in found if 1.5 * (2 * c.in_bytes + 2 * c.out_bytes) > available_bytes()]:
        print(f"skipped: {cell.name}: needs more memory than there is")
        found.remove(cell)
    return found


def run(options, todo, folder, output):
    peers = options.peers.split(",") if options.peers else list(QUICK_PEERS if options.quick else PEERS)
    bench = Bench(options, folder)
    end = time.monotonic() + 60 * (options.minutes or (9 if options.quick else 85))
    weight = [1.0 + (c.in_bytes + c.out_bytes) / 2**28 for c in todo]
    header = {"machine": machine(), "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "command": "bench/run.sh " + " ".join(shown_arguments()), "compiler": options.compiler, "versions": {}}
    with open(output, "w", encoding="utf-8") as f:
        try:
            for k, cell in enumerate(todo):
                if bench.crew is None or bench.crew.threads != cell.threads:
                    if bench.crew:
                        bench.crew.stop()
                    bench.crew = Crew(peers, cell.threads, options.home, options.build)
                    header["versions"] = {p: w.version for p, w in bench.crew.workers.items()}
                    header["left_out"] = [p for p in peers if p not in bench.crew.workers]
                    f.write(json.dumps({"header": header}) + "\n")
                allowance = max(end - time.monotonic(), 0.0) * weight[k] / sum(weight[k:])
                record = bench.measure(cell, min(max(allowance, 0.5), 6.0 * weight[k]))
                if k == 0 or todo[k - 1].data != cell.data:
                    bench.crew.slim()
                f.write(json.dumps(record) + "\n")
                f.flush()
                print(line_of(record, report.cache_bytes(header["machine"], "L2")), flush=True)
        finally:
            if bench.crew:
                bench.crew.stop()


def shown_arguments():
    hidden, shown = ("--home", "--build", "--compiler", "--output"), []
    skip = False
    for word in sys.argv[1:]:
        if not skip and word not in hidden:
            shown.append(word)
        skip = not skip and word in hidden
    return shown


def in_memory():
    """A folder for arrays, in memory where that can be, which is gone after the `with`."""
    return tempfile.TemporaryDirectory(prefix="napier-bench-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None,
                                       ignore_cleanup_errors=True)


def main():
    options = arguments()
    todo = chosen_cells(options)
    if options.list:
        print("\n".join(c.name for c in todo))
        return 0
    if not todo:
        print("nothing to measure: no cell fits the filters", file=sys.stderr)
        return 2
    partial = any(word.split("=")[0] in FILTERS for word in shown_arguments())
    output = options.output
    if output is None:
        name = re.sub(r"[^a-z0-9]+", "-", cpu_model().lower()).strip("-")
        kind = ("-quick" if options.quick else "") + ("-partial" if partial else "")
        output = Path(options.build) / f"{datetime.date.today().isoformat()}-softmax-{name}{kind}.jsonl"
    try:
        with in_memory() as folder:
            run(options, todo, Path(folder), output)
    except Wrong as why:
        print(f"FAILED: {why}", file=sys.stderr)
        return 1
    print(f"results: {output}")
    if options.output is None and not partial:
        summary = HERE / "results" / f"{output.stem}.csv"
        report.main([str(output), "--summary", str(summary)])
        report.main([str(summary)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
