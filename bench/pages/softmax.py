"""docs/benchmarks.md and its plot: softmax, log_softmax, logsumexp."""
import csv
import json
import math
import statistics
import sys
from collections import Counter

from report import DOCS, HERE, cache_bytes, commands, floors, is_long, machine_text, ms, ours, table, to_floor

PAGE = DOCS / "benchmarks.md"
RESULTS = "*-softmax-*.csv"
NAMES = {"torch": "PyTorch", "torch_out": "PyTorch `out=`", "ort": "ONNX Runtime", "jax": "JAX", "scipy": "SciPy",
         "onednn": "oneDNN", "xnnpack": "XNNPACK"}
COLUMNS = ("torch", "torch_out", "ort", "jax", "scipy", "onednn", "xnnpack")
NOISY = 0.05  # share of a processor that something else took during a cell
SLACK = 0.98  # a peer counts as faster from 2 % on: less is not told apart

# The documents' figures on two cores: (op, rows, cols) -> milliseconds
FIGURES = {("logsumexp", 1000, 50): 0.1, ("logsumexp", 10_000, 100): 1.0, ("logsumexp_all", 1000, 1000): 0.5,
           ("softmax", 1000, 50): 0.2}


# ---- The tracked summary ------------------------------------------------------------------------------------------

CELL = ("op", "dtype", "axis", "rows", "cols", "threads")
FLOORS = ("memory_ms", "read_ms", "exp_ns", "row_ns", "clock_ghz", "foreign_cpu")
WHO = ("napier", *COLUMNS)


def error_of(record, who):
    """The error of the one result that these operations have."""
    found = record["errors"].get(who)
    return found["result"] if isinstance(found, dict) else found


def write_summary(headers, records, path):
    """Headers as comments, then a line a cell: floors, and each library's milliseconds and error ("wrong": not timed)."""
    with path.open("w", encoding="utf-8", newline="") as out:
        for header in headers:
            out.write("# " + json.dumps(header) + "\n")
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow([*CELL, *FLOORS, *WHO, *(f"{who} error" for who in WHO)])
        short = lambda x: "" if x is None else f"{x:.4g}"  # noqa: E731
        for r in records:
            wrong = {who for who, why in r["skipped"].items() if why.startswith("wrong")}
            rows.writerow([*(r[name] for name in CELL), *(short(r.get(name)) for name in FLOORS),
                           *("wrong" if who in wrong else short(ms(r, who)) for who in WHO),
                           *(short(error_of(r, who)) for who in WHO)])


def read_summary(text):
    """The headers and records that write_summary wrote."""
    lines = text.splitlines()
    headers = [json.loads(line[2:]) for line in lines if line.startswith("# ")]
    records = []
    for row in csv.DictReader(line for line in lines if not line.startswith("# ")):
        record = {name: int(row[name]) if row[name].isdigit() else row[name] for name in CELL} | {"header": -1}
        record["cell"] = "{op}-{dtype}-{axis}-{rows}x{cols}-t{threads}".format(**record)
        record |= {name: float(row[name]) for name in FLOORS if row.get(name)}
        record["results"] = {who: {"ms": float(row[who])} for who in WHO if row[who] not in ("", "wrong")}
        record["skipped"] = {who: "wrong" for who in WHO if row[who] == "wrong"}
        record["errors"] = {who: float(row[f"{who} error"]) for who in WHO if row[f"{who} error"]}
        records.append(record)
    return headers, records


# ---- Targets -------------------------------------------------------------------------------------------------------

def key(record, **others):
    return tuple((record | others)[name] for name in CELL)


def best_peer(record):
    """The fastest peer and how many times longer than Napier it takes."""
    times = {v: ms(record, v) for v in record["results"] if v != "napier"}
    if not times:
        return None, None
    best = min(times, key=times.get)
    return best, times[best] / ours(record)


def targets(r, cells, level2):
    """(target, met, what was found) for each promise that speaks of this cell."""
    if ours(r) is None:
        return
    best, ratio = best_peer(r)
    last, row_op = r["axis"] == "last", r["op"] in ("softmax", "log_softmax")
    if row_op and best:
        yield "not slower than the fastest peer", ratio >= SLACK, f"{NAMES[best]} takes {ratio:.2f} of Napier's time"
    if row_op and last:
        limit = 1.25 if r["cols"] >= 32 else 1.4
        found = to_floor(r, level2)
        yield f"within {limit}x of the floor", found <= limit, f"{found:.2f}x"
    if r["op"] == "logsumexp" and last and r["cols"] >= 64:
        found = to_floor(r, level2)
        yield "logsumexp within 1.25x of its floor", found <= 1.25, f"{found:.2f}x"
    if r["op"].startswith("logsumexp"):
        torch = [t for t in (ms(r, "torch"), ms(r, "torch_out")) if t]
        if torch:
            found = min(torch) / ours(r)
            yield "logsumexp 3x faster than PyTorch", found >= 3, f"{found:.2f}x"
    along_last = cells.get(key(r, axis="last"))
    if not last and along_last and ours(along_last):
        found = ours(along_last) / ours(r)
        yield "first axis keeps 0.4 of the last axis' speed", found >= 0.4, f"{found:.2f}"
    figure = FIGURES.get((r["op"], r["rows"], r["cols"]))
    if figure and last and r["dtype"] == "f32" and r["threads"] == 2:
        yield "the documents' figures on two cores", ours(r) < figure, f"{ours(r):.3g} of {figure} ms"


# ---- The page ------------------------------------------------------------------------------------------------------

def number(x, digits=3):
    if x is None:
        return ""
    return f"{x:.{digits}g}" if x < 10 ** digits else f"{x:.0f}"


def shape_text(rows, cols):
    short = {10**6: "1e6", 10**8: "1e8", 16_700_000: "16.7e6", 100_000: "1e5"}
    return f"{short.get(rows, rows)} x {short.get(cols, cols)}"


def mean(ratios):
    """The geometric mean, or nothing."""
    return f"{math.exp(statistics.fmean(map(math.log, ratios))):.2f}" if ratios else ""


def comparison(records):
    """A row for each operation, dtype, axis and number of threads, and one for all: how many times Napier's time each peer takes."""
    groups, everything = {}, list(filter(ours, records))
    for record in everything:
        groups.setdefault(tuple(record[name] for name in ("op", "dtype", "axis", "threads")), []).append(record)
    lines = []
    ops = ("softmax", "log_softmax", "logsumexp", "logsumexp_all")
    ordered = sorted(groups.items(), key=lambda g: (ops.index(g[0][0]), g[0][1] != "f32", g[0][2] != "last", g[0][3]))
    for group, records in [*ordered, (("all", "", "", ""), everything)]:
        fastest = [ratio for _, ratio in map(best_peer, records) if ratio]
        ahead = sum(ratio >= 1 for ratio in fastest)
        peers = [[ms(r, peer) / ours(r) for r in records if ms(r, peer)] for peer in COLUMNS]
        lines.append([*group, len(fastest), ahead, f"**{mean(fastest)}**", *map(mean, peers)])
    head = ["operation", "dtype", "axis", "threads", "cells", "ahead of all", "fastest peer", *(NAMES[peer] for peer in COLUMNS)]
    return "\n".join(table(head, lines, 3))


SHOWN = [(10**6, 2), (10**6, 8), (10**6, 32), (32768, 1024), (8192, 4096), (64, 128256), (1, 16_700_000)]
SHOWN_PEERS = [("softmax", ("torch", "torch_out", "ort", "jax", "onednn")), ("logsumexp", ("torch", "jax", "ort"))]


def some_shapes(records):
    """Napier's milliseconds and its peers' multiples of them: f32, last axis, two threads."""
    cells = {(r["op"], r["rows"], r["cols"]): r for r in records if (r["dtype"], r["axis"], r["threads"]) == ("f32", "last", 2)}
    head, lines = ["shape"], []
    for op, peers in SHOWN_PEERS:
        head += [f"Napier {op}", *(NAMES[peer] for peer in peers)]
    for shape in SHOWN:
        line = [shape_text(*shape)]
        for op, peers in SHOWN_PEERS:
            cell = cells.get((op, *shape))
            own = cell and ms(cell, "napier")
            line.append(f"**{number(own)}**" if own else "")
            line += [f"{ms(cell, peer) / own:.1f}x" if own and ms(cell, peer) else "" for peer in peers]
        lines.append(line)
    return "\n".join(table(head, lines))


def summary(records, level2):
    tally, cells = {}, {key(record): record for record in records}
    for record in records:
        for text, met, _ in targets(record, cells, level2):
            good, total = tally.get(text, (0, 0))
            tally[text] = good + met, total + 1
    return "\n".join(table(["target", "met"], [[text, "{} of {}".format(*met)] for text, met in sorted(tally.items())]))


def errors_text(records):
    """The largest error of each peer against float64, over all cells."""
    worst = {}
    for record in records:
        for variant in record["errors"]:
            kind = ("softmax, relative" if record["op"] == "softmax" else "logs, absolute", record["dtype"])
            of_kind = worst.setdefault(variant, {})
            of_kind[kind] = max(of_kind.get(kind, 0.0), error_of(record, variant))
    kinds = sorted({kind for found in worst.values() for kind in found}, key=lambda k: (k[1] != "f32", k[0]))
    lines = table(["", *(f"{dtype}: {what}" for what, dtype in kinds)],
                  [[NAMES.get(variant, "Napier"), *(number(worst[variant].get(kind), 2) for kind in kinds)]
                   for variant in WHO if variant in worst])
    wrong = Counter(who for record in records for who, why in record["skipped"].items() if why.startswith("wrong"))
    lines += [f"\n{NAMES[who]} was not timed in {count} cells, where its error is above its dtype's tolerance."
              for who, count in wrong.items()]
    return "\n".join(lines)


def bandwidths(records, machine, threads):
    """GB/s of copy and read on arrays far larger than the last cache; nanoseconds and cycles of one exponential."""
    large = 4 * cache_bytes(machine, "L3")
    copies, reads, exps, clocks = [], [], [], []
    for r in records:
        if r["threads"] != threads or "memory_ms" not in r:
            continue
        item = 2 if r["dtype"] == "bf16" else 4
        size = r["rows"] * r["cols"] * item
        exps.append(r["exp_ns"])
        if r.get("clock_ghz"):
            clocks.append(r["clock_ghz"])
        if size >= large:
            reads.append(size / r["read_ms"] * 1e-6)
            if r["op"] in ("softmax", "log_softmax") and not is_long(r, cache_bytes(machine, "L2")):
                copies.append(2 * size / r["memory_ms"] * 1e-6)
    middle = lambda values: statistics.median(values) if values else None  # noqa: E731
    return middle(copies), middle(reads), middle(exps), middle(clocks)


def run_text(headers, records):
    machine = headers[-1]["machine"]
    versions = {}
    for header in headers:
        versions.update(header["versions"])
    lines = [*commands(headers), f"- CPU: {machine_text(machine)}",
             f"- Napier {versions.get('napier', '?')}, built with {headers[-1]['compiler'] or 'cc'}",
             "- Peers: " + (", ".join(f"{NAMES.get(p, p)} {v}" for p, v in versions.items() if p != "napier") or "none")]
    absent = sorted({p for header in headers for p in header.get("left_out", ())})
    if absent:
        lines.append("- Not to be had on this machine, and left out: " + ", ".join(NAMES.get(p, p) for p in absent))
    for threads in sorted({r["threads"] for r in records}):
        copy, read, exp, clock = bandwidths(records, machine, threads)
        text = f"- {threads} thread{'s' if threads > 1 else ''}:"
        if copy:
            text += f" copy {copy:.1f} GB/s (read + write),"
        if read:
            text += f" read {read:.1f} GB/s,"
        if exp:
            text += f" exp + sum in L1 {exp:.3f} ns an element and core"
            text += f" ({exp * clock:.2f} cycles at {clock:.2f} GHz)" if clock else ""
        lines.append(text)
    noisy = sum(r.get("foreign_cpu", 0) > NOISY for r in records)
    lines.append(f"- {len(records)} cells; during {noisy} of them something else used more than {NOISY:.0%} of a processor.")
    return "\n".join(lines)


PREFACE = """# Benchmarks

`make bench` (`bench/run.sh softmax`) measures, and `bench/report.py` makes this page. Do not edit it: write the reasons for
missed targets in `bench/findings/softmax.md`, which is included below. All cells, with the time of each library:
{sources}.

- R x C is R reductions of length C. Last axis: stored [R, C]. First axis: the same work stored [C, R].
- A time is the median over rounds of the medians within a round. Each peer has one process. The peers take turns, and all
  others sleep. Every result is compared with float64 before it is timed.
- The memory floor is the fastest known copy of the shape's bytes, or for logsumexp a read of them. The compute floor is what
  any correct implementation must do for an element, measured in L1 on rows of 1024 with the same instruction set: maximum,
  difference, exp, sum, and for results of the input's size a scale (or a difference) and a store; for a softmax of rows that
  do not fit L2 also a second exp. Results without a column row_ns are older: there it is exp and sum alone. The floor is the
  greater of the two.
"""


def page(headers, records, paths, output):
    plot, level2 = draw(headers[-1]["machine"], records, output.with_suffix(".png")), cache_bytes(headers[-1]["machine"], "L2")
    sources = ", ".join(f"[{path.name}](../bench/results/{path.name})" for path in paths)
    parts = [PREFACE.format(sources=sources), "## Against each peer\n",
             "How many times Napier's time a peer takes, as geometric means over cells; above 1 Napier is faster.\n"
             "*Fastest peer* takes the fastest one of each cell. A blank: the peer cannot do it.\n", comparison(records)]
    parts += ["\n## Some shapes\n", "f32, last axis, two threads: Napier's milliseconds, and how many times as long a peer takes.\n",
              some_shapes(records)]
    if plot:
        parts += [f"\n![Time over floor, and the roofline]({plot.name})"]
    parts += ["\n## Targets\n", summary(records, level2)]
    findings = HERE / "findings/softmax.md"
    if findings.exists():
        parts += ["\n## Why targets are missed\n", findings.read_text(encoding="utf-8").strip()]
    parts += ["\n## Largest error against float64\n", errors_text(records), "\n## The run\n", run_text(headers, records)]
    return "\n".join(parts) + "\n"


# ---- The plot ------------------------------------------------------------------------------------------------------

COLOURS = {"napier": "black", "torch": "#d95f02", "torch_out": "#e6ab02", "ort": "#7570b3", "jax": "#1b9e77",
           "scipy": "#999999", "onednn": "#e7298a", "xnnpack": "#66a61e"}


TARGET = 1.25  # times the floor


def plot_ratios(axes, machine, records, op, threads):
    """A line of the plot is a shape, with a mark for each library: shapes are not steps of a curve, so nothing joins them."""
    level2 = cache_bytes(machine, "L2")
    records = sorted((r for r in records if (r["op"], r["dtype"], r["axis"], r["threads"]) == (op, "f32", "last", threads) and ours(r)),
                     key=lambda r: (r["cols"], r["rows"]), reverse=True)
    for variant in reversed(WHO):
        points = [(ms(r, variant) / floors(r, level2)[2], y) for y, r in enumerate(records) if ms(r, variant)]
        if points:
            axes.plot(*zip(*points), "o", markersize=8 if variant == "napier" else 6, color=COLOURS[variant], alpha=0.9,
                      label=NAMES.get(variant, "Napier").replace("`", ""), zorder=3 if variant == "napier" else 2)
    axes.axvline(1.0, color="black", linewidth=1, label="the floor")
    axes.axvline(TARGET, color="black", linewidth=1, linestyle=":", label=f"the target, {TARGET} floors")
    axes.set_xscale("log")
    ticks = (1, 2, 5, 10, 20, 50, 100)
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(records)), [shape_text(r["rows"], r["cols"]) for r in records])
    axes.set_ylim(-1, len(records))
    axes.set_xlabel("time / floor")
    axes.set_title(f"{op}, f32, last axis, {threads} thread{'s' if threads > 1 else ''}")
    axes.grid(alpha=0.3)
    if records:
        axes.legend(fontsize=10, ncols=5, loc="upper center", bbox_to_anchor=(0.45, -0.06))


def plot_roofline(axes, machine, records, threads):
    """Exponentials per second against exponentials per byte, for arrays that do not fit the last cache."""
    copy, read, exp, _ = bandwidths(records, machine, threads)
    if not exp:
        return
    bandwidth, peak = copy or read or 1.0, threads / exp
    x = [2.0 ** k for k in (-5, -4, -3, -2, -1, 0, 1)]
    axes.plot(x, [min(peak, bandwidth * i) for i in x], color="black", linewidth=1.5,
              label=f"{bandwidth:.0f} GB/s copy, {peak:.1f} Gexp/s")
    if read:
        axes.plot(x, [min(peak, read * i) for i in x], color="black", linewidth=1, linestyle=":",
                  label=f"{read:.0f} GB/s read")
    drawn = set()
    for r in records:
        item = 2 if r["dtype"] == "bf16" else 4
        n = r["rows"] * r["cols"]
        if r["axis"] != "last" or r["threads"] != threads or n * item < 2 * cache_bytes(machine, "L3"):
            continue
        out = r["rows"] if r["op"] == "logsumexp" else n
        moved = (n * (2 if is_long(r, cache_bytes(machine, "L2")) else 1) + out) * item
        for variant in ("torch_out", "ort", "jax", "onednn", "xnnpack", "napier"):
            if time := ms(r, variant):
                label = NAMES.get(variant, "Napier").replace("`", "") if variant not in drawn else None
                drawn.add(variant)
                axes.plot(n / moved, n / time * 1e-6, "o", markersize=5 if variant == "napier" else 3,
                          color=COLOURS[variant], alpha=0.7, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("elements per byte moved")
    axes.set_ylabel("Gelements/s")
    axes.set_title(f"Roofline, {threads} thread{'s' if threads > 1 else ''}, arrays larger than the last cache")
    axes.legend(fontsize=10)
    axes.grid(alpha=0.3)


def draw(machine, records, path):
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("no plot: matplotlib is missing", file=sys.stderr)
        return None
    threads = max(r["threads"] for r in records)
    plt.rcParams["font.size"] = 12
    figure, axes = plt.subplots(3, 1, figsize=(9.5, 25), height_ratios=(10, 10, 5), constrained_layout=True)
    plot_ratios(axes[0], machine, records, "softmax", threads)
    plot_ratios(axes[1], machine, records, "logsumexp", threads)
    plot_roofline(axes[2], machine, records, threads)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
