#!/usr/bin/env python3
"""Measures Napier against its floors and its peers; driver.py says how. bench/run.sh calls this:

    bench/run.sh SUITE [--quick] [--only REGEX] [--list] [--output FILE]     SUITE: softmax, ops, umap, model

Results go, a line a cell as soon as it is measured, to a JSON-lines file."""
import argparse
import datetime
import importlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import build
import report
from driver import Bench, Crew
from machine import ISAS, available_bytes, cpu_model, distinct_cores, hold_to, machine
from suites.common import Wrong

HERE = Path(__file__).resolve().parent
SUITES = ("softmax", "ops", "umap", "model")
HIDDEN = ("--home", "--build", "--output")


def arguments():
    parser = argparse.ArgumentParser(description="Measure Napier against floors and peers.")
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--quick", action="store_true", help="few cells, the fastest peers")
    parser.add_argument("--only", default="", help="a regular expression on the cell's name, such as 'softmax-f32-last-.*-t2'")
    parser.add_argument("--peers", help="libraries, such as napier,torch")
    parser.add_argument("--variants", default="", help="a regular expression on the ways to call a library")
    parser.add_argument("--threads", help="such as 1,2")
    parser.add_argument("--isa", choices=ISAS, help="holds libraries that can be held to it")
    parser.add_argument("--shapes", help="softmax: such as 1000000x8,1x1000000, only these; ops: MxKxN, products of these")
    parser.add_argument("--minutes", type=float, help="how long the whole run may take, where the suite has a limit")
    parser.add_argument("--rounds", type=int, help="turns of each way, also of those that take long")
    parser.add_argument("--epochs", type=int, default=0, help="umap: epochs of Napier's fits, where not its own choice")
    parser.add_argument("--cpu", action="store_true", help="processor time, for a machine that others use too")
    parser.add_argument("--resume", action="store_true", help="leave out the cells that --output holds already")
    parser.add_argument("--list", action="store_true", help="print the cells and stop")
    parser.add_argument("--output", type=Path, help="the JSON-lines file, added to (default: a new one in the build folder)")
    for option in ("--home", "--build"):
        parser.add_argument(option, type=Path, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.isa:
        hold_to(options.isa)
    options.rounds = options.rounds and (options.rounds, options.rounds)
    return options


def chosen_cells(suite, options):
    cores = len(distinct_cores())
    threads = [int(t) for t in (options.threads or suite.THREADS).split(",")]
    if not options.threads and suite.THREADS == "2":
        threads = [min(2, cores)]
    for count in [t for t in threads if t > cores]:
        print(f"skipped: {count} threads: this machine has {cores} cores")
    found = suite.cells(options, [t for t in threads if t <= cores])
    if options.shapes and suite.NAME == "softmax":
        found = [c for c in found if f"{c.rows}x{c.cols}" in options.shapes.split(",")]
    found = [c for c in found if re.search(options.only, c.name)]
    for cell in [c for c in found if 3 * c.bytes > available_bytes()]:
        print(f"skipped: {cell.name}: needs more memory than there is")
        found.remove(cell)
    if options.resume and options.output and options.output.exists():
        done = {record["cell"] for record in report.read_lines(options.output.read_text(encoding="utf-8"))[1]}
        found = [c for c in found if c.name not in done]
    return found


def run(suite, options, todo, peers, folder, output):
    bench = Bench(suite, options, folder)
    minutes = options.minutes or (suite.MINUTES and suite.MINUTES[options.quick])
    end = time.monotonic() + 60 * minutes if minutes else None
    weight = [1.0 + c.bytes / 2**28 for c in todo]
    header = {"machine": machine(), "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "command": "bench/run.sh " + " ".join(shown_arguments()), "compiler": build.compiler(options.build), "versions": {},
              "clock": "processor" if options.cpu else "wall"}
    with open(output, "a", encoding="utf-8") as f:
        try:
            for k, cell in enumerate(todo):
                if bench.crew is None or bench.crew.threads != cell.threads or suite.NEW_WORKERS:
                    if bench.crew:
                        bench.crew.stop()
                    first = bench.crew is None or bench.crew.threads != cell.threads
                    bench.forget()
                    bench.crew = Crew(peers, cell.threads, options.home, options.build)
                    header["versions"] = {p: w.version for p, w in bench.crew.workers.items()}
                    header["left_out"] = [p for p in peers if p not in bench.crew.workers]
                    if first:
                        f.write(json.dumps({"header": header}) + "\n")
                allowance = 1e9
                if end:
                    allowance = max(end - time.monotonic(), 0.0) * weight[k] / sum(weight[k:])
                    allowance = min(max(allowance, 0.5), 6.0 * weight[k])
                record = bench.measure(cell, allowance)
                record.pop("model", None)
                if suite.SHARES and (k == 0 or todo[k - 1].data != cell.data):
                    if bench.crew.slim():
                        bench.forget()
                f.write(json.dumps(record) + "\n")
                f.flush()
                print(report.line_of(record, report.cache_bytes(header["machine"], "L2")), flush=True)
        finally:
            if bench.crew:
                bench.crew.stop()


def shown_arguments():
    shown, skip = [], False
    for word in sys.argv[1:]:
        if not skip and word not in HIDDEN:
            shown.append(word)
        skip = not skip and word in HIDDEN
    return shown


def in_memory():
    """A folder for arrays, in memory where that can be, which is gone after the `with`."""
    return tempfile.TemporaryDirectory(prefix="napier-bench-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None,
                                       ignore_cleanup_errors=True)


def publish(name, output):
    """The page of a whole run; of softmax also the summary that is tracked."""
    if name == "softmax":
        summary = HERE / "results" / f"{output.stem}.csv"
        report.main([name, str(output), "--summary", str(summary)])
        output = summary
    report.main([name, str(output)])


def main():
    options = arguments()
    suite = importlib.import_module(f"suites.{options.suite}")
    peers = options.peers.split(",") if options.peers else list(suite.QUICK_PEERS if options.quick else suite.PEERS)
    todo = chosen_cells(suite, options)
    if options.list:
        print("\n".join(c.name for c in todo))
        return 0
    if not todo:
        print("nothing to measure: no cell fits the filters", file=sys.stderr)
        return 2
    build.workers(peers, options.home, options.build)
    if suite.NAME == "model":
        model = build.model(options.home, options.build, options.quick)
        for cell in todo:
            cell.words["model"] = model
    name = re.sub(r"[^a-z0-9]+", "-", cpu_model().lower()).strip("-")
    output = options.output or options.build / f"{datetime.date.today().isoformat()}-{suite.NAME}-{name}.jsonl"
    try:
        with in_memory() as folder:
            run(suite, options, todo, peers, Path(folder), output)
    except Wrong as why:
        print(f"FAILED: {why}", file=sys.stderr)
        return 1
    print(f"results: {output}; the page of them: bench/run.sh {suite.NAME} --report {output}")
    part = (options.quick, options.only, options.peers, options.variants, options.threads, options.shapes, options.isa)
    if not any((*part, options.output)):
        publish(suite.NAME, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
