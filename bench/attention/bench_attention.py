#!/usr/bin/env python3
"""make bench-attention: napier_attention against PyTorch's scaled_dot_product_attention, f32, forward and backward.

    bench/attention/run.sh [--threads 2] [--seconds 4] [--cpu] [--only REGEX] [--list] [--output FILE]
    bench/attention/run.sh --report FILE...        no measuring: the table as Markdown

The two take turns, call by call, each in a process of its own; the times are the fastest and the first quartile of each.
Before it is timed every result of Napier is compared with PyTorch's. --cpu: processor time in place of the clock's, for
a machine that is busy with other things (one thread only). Results are added, a line a case, to a JSON-lines file."""
import argparse
import datetime
import json
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bench  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
HEADS = 16
TOLERANCE = 2e-5  # of the largest value


def all_cases():
    """(queries, keys, kv heads, dim, causal): whole sequences, and short suffixes of long ones."""
    whole = [(n, n, kv, dim, causal) for kv, dim in ((16, 128), (16, 64), (8, 128))
             for n in (128, 512, 2048, 8192) for causal in (False, True)]
    return whole + [(12, keys, 8, 128, False) for keys in (132, 1012)]


def name_of(case):
    queries, keys, kv_heads, dim, causal = case
    return f"{queries}x{keys}-{HEADS}:{kv_heads}x{dim}{'-causal' if causal else ''}"


class Napier:
    def __init__(self, worker, folder, case, threads):
        queries, keys, kv_heads, dim, causal = case
        words = [queries, keys, HEADS, kv_heads, dim, int(causal), threads]
        self.process = subprocess.Popen([worker, folder, *map(str, words)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class Torch:
    def __init__(self, arrays, case):
        import torch

        self.torch, self.case = torch, case
        self.q, self.k, self.v, self.grad = (torch.from_numpy(arrays[name])[None] for name in ("q", "k", "v", "grad"))
        self.inputs = [x.requires_grad_() for x in (self.q, self.k, self.v)]
        self.output = self.attend()

    def attend(self):
        return self.torch.nn.functional.scaled_dot_product_attention(
            self.q, self.k, self.v, is_causal=self.case[4], enable_gqa=self.case[2] != HEADS)

    def forward(self):
        with self.torch.no_grad():
            return self.attend()

    def backward(self):
        return self.torch.autograd.grad(self.output, self.inputs, self.grad, retain_graph=True)


def make_arrays(case):
    import numpy as np

    queries, keys, kv_heads, dim, _ = case
    rng = np.random.default_rng(queries + dim)
    shapes = {"q": (HEADS, queries, dim), "k": (kv_heads, keys, dim), "v": (kv_heads, keys, dim),
              "grad": (HEADS, queries, dim)}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def check(napier, torch, folder):
    """The largest difference of each result, as a part of the largest value."""
    import numpy as np

    for step in ("forward", "backward"):
        napier.ask(step)
    napier.ask("write")
    wanted = dict(zip(("output", "grad_q", "grad_k", "grad_v"), (torch.forward(), *torch.backward())))
    errors = {}
    for name, value in wanted.items():
        got = np.fromfile(Path(folder) / name, np.float32)
        value = value.detach().numpy().ravel()
        errors[name] = float(np.abs(got - value).max() / np.abs(value).max())
        if not errors[name] <= TOLERANCE:
            raise SystemExit(f"FAILED: {name} differs by {errors[name]:.2g}")
    return errors


def quartile(times):
    return sorted(times)[len(times) // 4]


def race(napier, torch, step, options):
    """Times of both, taking turns."""
    clock, column = (time.process_time, 1) if options.cpu else (time.perf_counter, 0)
    ours, theirs, end = [], [], time.monotonic() + options.seconds
    while time.monotonic() < end or len(ours) < 3:
        ours.append(float(napier.ask(step)[column]))
        start = clock()
        getattr(torch, step)()
        theirs.append(clock() - start)
    return {"napier_ms": 1e3 * min(ours), "torch_ms": 1e3 * min(theirs), "napier_q1_ms": 1e3 * quartile(ours),
            "torch_q1_ms": 1e3 * quartile(theirs), "runs": len(ours)}


def measure(case, options):
    arrays = make_arrays(case)
    with bench.in_memory() as folder:
        for name, array in arrays.items():
            array.tofile(Path(folder) / name)
        torch = Torch(arrays, case)
        napier = Napier(options.worker, folder, case, options.threads)
        record = {"case": name_of(case), "threads": options.threads, "errors": check(napier, torch, folder)}
        for step in ("forward", "backward"):
            record[step] = race(napier, torch, step, options)
        record["inputs_and_results_mib"] = sum(a.nbytes for a in arrays.values()) * 2 / 2**20
        record["peak_mib"] = int(napier.ask("peak")[0]) / 2**20
        napier.stop()
    return record


def flops(case):
    queries, keys, _, dim, causal = case
    return 4 * queries * keys * dim * HEADS / (2 if causal else 1)


def digits(ms):
    return f"{ms:,.0f}" if ms >= 1000 else f"{ms:.3g}"


def report(paths):
    cases = {name_of(case): case for case in all_cases()}
    records = {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            record = json.loads(line)
            if "case" in record:
                records[record["case"]] = record
    print("| queries x keys | heads | dim | | forward: PyTorch ms | Napier ms | GFLOP/s | times faster "
          "| backward: PyTorch ms | Napier ms | GFLOP/s | times faster |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name, case in cases.items():
        if name not in records:
            continue
        cells = [f"{case[0]} x {case[1]}", f"{HEADS}:{case[2]}", str(case[3]), "causal" if case[4] else ""]
        for step, factor in (("forward", 1.0), ("backward", 2.5)):
            r = records[name][step]
            rate = factor * flops(case) / r["napier_ms"] * 1e-6
            cells += [digits(r["torch_ms"]), digits(r["napier_ms"]), f"{rate:.0f}",
                      f"{r['torch_ms'] / r['napier_ms']:.2f}"]
        print("| " + " | ".join(cells) + " |")


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--worker", help=argparse.SUPPRESS)
    words.add_argument("--compiler", default="", help=argparse.SUPPRESS)
    words.add_argument("--threads", type=int, default=min(2, len(bench.distinct_cores())))
    words.add_argument("--seconds", type=float, default=4.0, help="for each step of a case, at least three calls")
    words.add_argument("--cpu", action="store_true")
    words.add_argument("--only", default="", help="a regular expression on the case's name, such as '^512x|causal'")
    words.add_argument("--list", action="store_true")
    words.add_argument("--output", type=Path)
    words.add_argument("--report", action="store_true")
    words.add_argument("files", nargs="*")
    options = words.parse_args()
    todo = [case for case in all_cases() if re.search(options.only, name_of(case))]
    if options.report:
        return report(options.files)
    if options.list:
        return print("\n".join(name_of(case) for case in todo))
    import torch

    torch.set_num_threads(options.threads)
    output = options.output or ROOT / f"bench/results/{datetime.date.today().isoformat()}-attention.jsonl"
    with open(output, "a", encoding="utf-8") as f:
        header = {"machine": bench.machine(), "compiler": options.compiler, "threads": options.threads,
                  "clock": "cpu" if options.cpu else "wall", "torch": torch.__version__,
                  "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
        f.write(json.dumps({"header": header}) + "\n")
        for case in todo:
            record = measure(case, options)
            f.write(json.dumps(record) + "\n")
            f.flush()
            line = "  ".join(f"{step} {record[step]['napier_ms']:9.3f} ms, PyTorch {record[step]['torch_ms']:9.3f}, "
                             f"{record[step]['torch_ms'] / record[step]['napier_ms']:5.2f}x"
                             for step in ("forward", "backward"))
            print(f"{record['case']:<26} {line}  {record['peak_mib']:.0f} MiB", flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
