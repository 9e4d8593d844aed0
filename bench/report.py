#!/usr/bin/env python3
"""Makes the pages of the benchmark from results of bench.py.

    bench/run.sh SUITE --report [--output FILE.md] [RESULTS ...]
    bench/run.sh softmax --report --summary FILE.csv RESULTS ...      one line a cell: what is tracked

RESULTS are JSON Lines as bench.py writes them, or such a summary; where files share a cell the later one counts. Without a
file: those of the suite in bench/results. softmax, ops and umap have pages in docs; the tables of attention, products and
models are printed, as Markdown."""
import argparse
import importlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"


# ---- What was measured ---------------------------------------------------------------------------------------------

def cache_bytes(machine, level):
    text = machine.get("caches", {}).get(level, "")
    return int(text[:-1]) * 1024 if text.endswith("K") and text[:-1].isdigit() else {"L2": 1 << 20}.get(level, 32 << 20)


def is_long(record, level2):
    item = 2 if record["dtype"] == "bf16" else 4
    return record["op"] in ("softmax", "log_softmax") and record["cols"] * item > level2


def floors(record, level2):
    """Memory floor, compute floor and the greater of them, in ms. The compute floor is what any correct implementation does
    for an element of a row in L1 (row_ns), or exp and sum alone (exp_ns) in results that lack it. A softmax of rows that do
    not stay in L2 takes one exponential more: the first pass only sums them. None where the cell has no floors."""
    memory = record.get("memory_ms", record.get("read_ms"))
    if memory is None:
        return None
    again = record["exp_ns"] if record["op"] == "softmax" and is_long(record, level2) else 0
    # One reduction is one thread's work only if nothing can be split; any number of elements can.
    elements = record["rows"] * record["cols"] / record["threads"]
    compute = (record.get("row_ns", record["exp_ns"]) + again) * elements * 1e-6
    return memory, compute, max(memory, compute)


def read_lines(text):
    """The headers and records that bench.py wrote; a line that was cut off is left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            print("a line that was cut off is left out", file=sys.stderr)
    headers, records = [], []
    for each in found:
        if "header" in each:
            headers.append(each["header"])
        else:
            records.append(each | {"header": len(headers) - 1})
    return headers, records


def read(paths, read_summary=None):
    """The headers, and the last record of each cell; a record's header is its own."""
    headers, records = [], {}
    for path in paths:
        reader = read_summary if path.suffix == ".csv" else read_lines
        new_headers, new = reader(path.read_text(encoding="utf-8"))
        headers += [header for header in new_headers if header not in headers]
        for record in new:
            records.pop(record["cell"], None)
            records[record["cell"]] = record | {"header": new_headers[record["header"]] if new_headers else {}}
    return headers, list(records.values())


def ms(record, variant):
    found = record["results"].get(variant)
    return found["ms"] if found else None


def ours(record):
    """The time of Napier, in the first of its forms."""
    return next((ms(record, name) for name in record["results"] if name.startswith("napier")), None)


def to_floor(record, level2):
    return ours(record) / floors(record, level2)[2]


# ---- Text ----------------------------------------------------------------------------------------------------------

def table(head, rows, left=1):
    """A table in Markdown; all but the first `left` columns are numbers."""
    line = lambda cells: "| " + " | ".join(map(str, cells)) + " |"  # noqa: E731
    return [line(head), "|" + "---|" * left + "---:|" * (len(head) - left), *map(line, rows)]


def machine_text(machine):
    caches = ", ".join(f"{level} {size}" for level, size in machine.get("caches", {}).items())
    parts = [f"{machine['cpu']} ({machine['arch']}), {machine['cores']} cores", caches]
    return ", ".join(part for part in parts if part) + f"; {machine['memory_gib']} GiB; Linux {machine['kernel']}"


def commands(headers):
    """How the results were made, and what measures the same today where the driver has changed since."""
    return list(dict.fromkeys(
        f"- Command: `{each['command'].strip()}`, started {each['started']}"
        + (f"\n  - today: `{each['today']}`" if "today" in each else "") + (f"\n  - {each['note']}" if "note" in each else "")
        for each in headers))


def line_of(record, level2):
    """One line for the eye."""
    mine, results = ours(record), record["results"]
    parts = [f"{record['cell']:<44}"]
    if mine:
        parts.append(f"napier {mine:9.4g} ms")
        if floors(record, level2):
            parts.append(f"/floor {to_floor(record, level2):5.2f}")
    parts += [f"{name} {r['ms'] / mine if mine else r['ms']:.2f}{'x' if mine else ' ms'}"
              for name, r in results.items() if r["ms"] != mine]
    parts += [f"NOT TIMED {name}: {why}" for name, why in record["skipped"].items() if why.startswith("wrong")]
    if record["foreign_cpu"] > 0.05:
        parts.append(f"(foreign load {record['foreign_cpu']:.0%})")
    return "  ".join(parts)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Make the page of a suite from results.")
    parser.add_argument("suite")
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--output", type=Path, help="the page (default: the suite's in docs)")
    parser.add_argument("--summary", type=Path, help="softmax: write this summary of the results, and no page")
    options = parser.parse_intermixed_args(arguments)
    page = importlib.import_module(f"pages.{options.suite}")
    paths = options.results or sorted((HERE / "results").glob(page.RESULTS))
    if not paths:
        print(f"no results of {options.suite} in bench/results: run bench/run.sh {options.suite} first", file=sys.stderr)
        return 1
    headers, records = read(paths, getattr(page, "read_summary", None))
    if not any(map(ours, records)):
        print("no cell in these results holds Napier's time", file=sys.stderr)
        return 1
    if options.summary:
        page.write_summary(headers, records, options.summary)
        return 0
    output = options.output or page.PAGE
    text = page.page(headers, records, paths, output)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
        print(f"report: {output}")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
