"""docs/rl-benchmarks.md from the JSON lines of bench_rl.py."""
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/rl-benchmarks.md"
FINDINGS = Path(__file__).resolve().parent / "findings.md"
FLOORS = ("floor_memory", "floor_read", "floor_exp")

TITLES = {
    "token_logprobs": "Log-probabilities of chosen tokens, and entropy: `napier_token_logprobs`",
    "log_softmax": "The whole matrix: `napier_fused_log_softmax`",
    "gather": "From a matrix of log-probabilities: `napier_gather_logprobs`",
    "linear": "From hidden states: `napier_linear_token_logprobs`",
    "linear_backward": "From hidden states, forward and backward",
    "grpo_from_logits": "GRPO from logits, forward and backward: `napier_grpo_from_logits`",
    "grpo_token": "GRPO, the losses of tokens: `napier_grpo_token_loss`",
    "grpo_loss": "GRPO, the loss and its gradient: `napier_grpo_loss`",
    "kl_k1": "KL by response, k1: `napier_kl_per_response`",
    "kl_k3": "KL by response, k3: `napier_kl_per_response`",
    "rubric": "Rubric scores, four criteria: `napier_rubric_score`",
}
VARIANTS = {
    "napier": "Napier", "napier_all": "Napier, with lse, argmax, rank", "napier_entropy": "Napier, with entropies",
    "napier_matmul": "`napier_matmul` alone", "log_softmax_gather": "PyTorch log_softmax, gather",
    "logsumexp_path": "PyTorch gather - logsumexp", "trl_selective": "TRL selective_log_softmax",
    "trl_with_entropy": "the same and TRL entropy_from_logits", "torch_plain": "PyTorch", "torch_out": "PyTorch, `out=`",
    "torch_gather": "PyTorch", "torch_matmul": "PyTorch product alone", "torch_matmul_out": "product, `out=`",
    "torch_whole": "PyTorch, all rows at once", "torch_chunked": "PyTorch, 256 rows at a time",
    "torch_padded": "PyTorch, padded", "torch_flat": "PyTorch, flat",
}


# ---- Reading ---------------------------------------------------------------------------------------------------------


def read(paths):
    """The headers, and the last record of each case."""
    headers, records = [], {}
    for path in paths:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if "header" in entry:
                headers.append(entry["header"])
            else:
                records.pop(entry["case"], None)
                records[entry["case"]] = {**entry, "header": headers[-1]}
    return headers, list(records.values())


def floor_parts(record):
    """Milliseconds of the memory and of the exponentials of a case; None where it has no floor."""
    results = record["results"]
    if "floor_exp" not in results:
        return None
    memory = results.get("floor_memory", results.get("floor_read"))["ms"]
    elements = record["rows"] * record["cols"]
    # the measured piece is 2^20 exponentials on each thread
    return memory, results["floor_exp"]["ms"] / 2**20 * elements / record["threads"]


def floor_ms(record):
    parts = floor_parts(record)
    return max(parts) if parts else None


def ms(record, variant):
    found = record["results"].get(variant)
    return found["ms"] if found else None


# ---- Targets ---------------------------------------------------------------------------------------------------------


def ratios(records, op, ratio, rows=None, dtype=None):
    """The ratio of each case of an operation; cases without it are left out."""
    for r in records:
        if r["op"] == op and (rows is None or r["rows"] in rows) and (dtype is None or r["dtype"] == dtype):
            value = ratio(r)
            if value is not None:
                yield r, value


def over(slower, faster="napier"):
    """How many times slower the fastest of `slower` is."""
    def ratio(r):
        times = [ms(r, v) for v in slower if ms(r, v) is not None]
        return min(times) / ms(r, faster) if times else None
    return ratio


def others(r):
    return [v for v in r["results"] if not v.startswith("napier") and v not in FLOORS]


def to_floor(r):
    return ms(r, "napier") / floor_ms(r)


def workspace(r):
    """MiB beyond inputs and results."""
    return r["results"]["napier"]["peak_mib"]


def gradient_error(r):
    return r["errors"]["napier"]["grad_logits"]


# what it says, operation, ratio, rows (None: all), dtype (None: both), bound, is less better?
TARGETS = [
    ("log-probability and entropy, 512 rows and more: times the floor", "token_logprobs", to_floor, (512, 2048), None,
     1.25, True),
    ("the same: faster than TRL's selective_log_softmax", "token_logprobs", over(["trl_selective"]), None, None, 3.5, False),
    ("the same: faster than TRL's with entropy", "token_logprobs", over(["trl_with_entropy"]), None, None, 5.0, False),
    ("from hidden states: faster than PyTorch's product alone", "linear", over(["torch_matmul", "torch_matmul_out"]), None,
     None, 1.0, False),
    ("from hidden states: workspace in MiB", "linear", workspace, None, None, 286.0, True),
    ("GRPO from logits: faster than PyTorch's autograd", "grpo_from_logits",
     over(["log_softmax_gather", "logsumexp_path", "trl_selective"]), None, None, 5.0, False),
    ("GRPO from logits: relative error of the gradient (f32)", "grpo_from_logits", gradient_error, None, "f32", 1e-6, True),
    ("log_softmax, 128 rows: faster than PyTorch's plain call", "log_softmax", over(["torch_plain"]), (128,), None, 2.3,
     False),
    *((f"{op}: never slower than PyTorch", op, lambda r: over(others(r))(r), None, None, 1.0, False)
      for op in ("gather", "kl_k1", "kl_k3", "rubric", "grpo_token", "grpo_loss")),
]


def number(x):
    return f"{x:.2g}" if x < 0.01 else f"{x:.2f}" if x < 10 else f"{x:.1f}" if x < 100 else f"{x:,.0f}"


def target_lines(records):
    lines = ["| target | bound | measured | |", "|---|---:|---|---|"]
    for text, op, ratio, rows, dtype, bound, less in TARGETS:
        found = list(ratios(records, op, ratio, rows, dtype))
        if not found:
            continue
        met = all(value <= bound if less else value >= bound for _, value in found)
        shown = ", ".join(f"{number(value)} ({r['dtype']} {r['shape'].split(' ')[0]})" for r, value in found)
        lines.append(f"| {text} | {'<=' if less else '>='} {number(bound)} | {shown} | {'met' if met else '**missed**'} |")
    return lines


# ---- Tables ----------------------------------------------------------------------------------------------------------


def columns_of(records):
    seen = [v for r in records for v in (*r["results"], *r["skipped"]) if v not in FLOORS]
    return [v for v in VARIANTS if v in seen]


def time_cell(record, variant):
    found, ours = record["results"].get(variant), ms(record, "napier")
    if not found:
        return "-"
    return number(found["ms"]) if variant == "napier" else f"{number(found['ms'])} ({number(found['ms'] / ours)}x)"


def memory_cell(record, variant):
    """Memory in MiB beyond the inputs: what a run takes, and Napier's results, which lie ready."""
    found = record["results"].get(variant)
    if not found:
        return "-"
    worst = max(record["errors"].get(variant, {}).values(), default=None)
    error = "" if worst is None else f", {worst:.1e}" if worst else ", 0"
    return f"{found['peak_mib'] + found['results_mib']:.1f}{error}"


def table(records):
    columns = columns_of(records)
    floors = [floor_parts(r) for r in records]
    with_floor = any(floors)
    head = ["case", *(["floor: memory", "floor: exp", "Napier / floor"] if with_floor else []),
            *(VARIANTS[v] for v in columns)]
    lines = ["Milliseconds, and how many times Napier's:", "", "| " + " | ".join(head) + " |",
             "|---|" + "---:|" * (len(head) - 1)]
    for r, f in zip(records, floors):
        cells = [f"{r['dtype']} {r['shape']}"]
        if with_floor:
            cells += [number(f[0]), number(f[1]), number(to_floor(r))] if f else ["-"] * 3
        lines.append("| " + " | ".join(cells + [time_cell(r, v) for v in columns]) + " |")
    lines += ["", "MiB beyond the inputs, and the largest error:", "",
              "| case | " + " | ".join(VARIANTS[v] for v in columns) + " |", "|---|" + "---:|" * len(columns)]
    for r in records:
        lines.append(f"| {r['dtype']} {r['shape']} | " + " | ".join(memory_cell(r, v) for v in columns) + " |")
    for r in records:
        lines += [f"\nNot timed: {r['dtype']} {r['shape']}, {who}: {why}." for who, why in r["skipped"].items()]
    return lines


def opening(headers, records):
    used = []
    for r in records:
        if r["header"] not in used:
            used.append(r["header"])
    h = used[-1]
    machine = h["machine"]
    caches = ", ".join(f"{k} {v}" for k, v in machine["caches"].items())
    clocks = [r["clock_ghz"] for r in records if r.get("clock_ghz")]
    foreign = max(r["foreign_cpu"] for r in records)
    return [
        "# RL functions: benchmarks", "", "Made by `make bench-rl` (bench/rl/run.sh). Do not edit.", "",
        *(f"- Command: `{x['command']}`, {x['started']}" for x in used),
        f"- CPU: {machine['cpu']}, {machine['cores']} cores ({caches}), {machine['memory_gib']} GiB; "
        f"{h['threads']} threads; {min(clocks):.2f} to {max(clocks):.2f} GHz while measuring",
        f"- {h['compiler']}; " + "; ".join(h["versions"].values()),
        "- One process a library, which take turns, round by round, with sleeping threads (`OMP_WAIT_POLICY=passive`); medians",
        "  of medians. Every result was compared with float64 before it was timed.",
        "- Floors, measured in the same run, on the same buffers, with the same threads: *memory* is one read of the logits",
        "  (and one write where the operation writes as much; a second read where a row does not fit the second cache), *exp*",
        "  one exponential an element, from L1. The floor of a case is the greater.",
        "- Memory: the process's high-water mark (VmHWM) in the timed runs above what was resident before them; results",
        "  that lie ready before the call (Napier's, and `out=`) are added to it. Errors are relative to 1 + |value|, those of gradients",
        "  to the largest of the array, those of sums to the sum of the terms' magnitudes.",
        f"- Processor time of anything else on the machine: at most {foreign:.0%} of a case's time.", "",
    ]


def write(paths, page=PAGE):
    headers, records = read(paths)
    if not records:
        raise SystemExit(f"no results in {', '.join(map(str, paths)) or 'bench/results'}")
    lines = opening(headers, records) + ["## Targets", "", *target_lines(records), ""]
    if FINDINGS.exists():
        lines += FINDINGS.read_text(encoding="utf-8").splitlines() + [""]
    for op, title in TITLES.items():
        mine = sorted((r for r in records if r["op"] == op), key=lambda r: (r["dtype"] != "f32", r["rows"]))
        if mine:
            lines += [f"## {title}", "", *table(mine), ""]
    page.write_text("\n".join(lines), encoding="utf-8")
    print(f"wrote {page}")
