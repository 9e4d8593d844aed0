"""docs/umap-benchmarks.md: maps."""
from report import DOCS, commands, machine_text, ms, table

PAGE = DOCS / "umap-benchmarks.md"
RESULTS = "*-umap-*.jsonl"
STAGES = ("neighbours", "fuzzy set", "start", "layout")

LEGEND = """
- Seconds of one fit on data in memory, median of rounds in which the peers took turns (*n*: how many); one process a peer
  and data set, unless a command above says otherwise. umap-learn's compilation (first call) and import are not counted.
  *umap_seeded* is umap-learn with random_state.
- n = 1: one fit each, without a measure of its spread; ratios near 1 would say nothing. `--rounds 3` repeats.
- peak: the most memory that the process held, data and runtime included (VmHWM, read by the process itself).
- trust: trustworthiness at 15 neighbours; vote: share of points whose 15 nearest on the map vote for their
  label; out: points beyond 5 times the radius of 99 %.
"""
LAYOUTS = """
## Layout alone

SGD, all edges, 5 samples a vertex in each epoch; median of *n* rounds. Workspace: the most that the library held beside edges
and embedding.
"""


def fit_rows(r):
    for who, found in r["results"].items():
        stages = [f"{found[s]:.2f}" if s in found else "-" for s in STAGES]
        yield [f"{r['cell'].rsplit('-t', 1)[0]} {r['rows']}x{r['cols']}", who, f"{1e-3 * found['ms']:.2f}",
               f"{found['ms'] / ms(r, 'napier'):.2f}", *stages, f"{found['highest'] / 2**20:.0f}", f"{found['trust']:.4f}",
               f"{found['vote']:.4f}", found["outliers"], found["rounds"]]


def layout_row(r):
    return [r["rows"], 15 * r["rows"], 15, 200, f"{1e-3 * ms(r, 'napier'):.3f}",
            f"{r['results']['napier']['workspace'] / 1e6:.2f}", r["results"]["napier"]["rounds"]]


def page(headers, records, paths, output):
    fits = table(["data", "who", "total s", "/ Napier", *STAGES, "peak MiB", "trust", "vote", "out", "n"],
                 [row for r in records if r["op"] == "fit" for row in fit_rows(r)], 2)
    layouts = table(["points", "edges", "components", "epochs", "seconds", "workspace MB", "n"],
                    [layout_row(r) for r in records if r["op"] == "layout"], 0)
    return "\n".join(["# UMAP: benchmarks", "", "Made by `make bench-umap` (bench/run.sh umap). Do not edit.", "",
                      *commands(headers), f"- CPU: {machine_text(headers[-1]['machine'])}", LEGEND, *fits, LAYOUTS, *layouts, ""])
