"""docs/rl-benchmarks.md: the functions for reinforcement learning. Results of attention and of products are printed."""
from report import DOCS, HERE, cache_bytes, commands, floors, machine_text, ms, table

PAGE = DOCS / "rl-benchmarks.md"
RESULTS = "*-ops-*.jsonl"
HIDDEN = 1024

TITLES = {
    "token_logprobs": "Log-probabilities of chosen tokens, and entropy: `napier_token_logprobs`",
    "fused_log_softmax": "The whole matrix: `napier_log_softmax`",
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


def shape(r):
    """Describes a case in words."""
    if r["op"].startswith(("kl", "rubric", "grpo_token", "grpo_loss")):
        return f"{r['rows']:.0e}".replace("e+0", "e")
    middle = f" x {HIDDEN}" if r["op"].startswith("linear") else ""
    return f"{r['rows']}{middle} x {r['cols']}"


def level2(r):
    return cache_bytes(r["header"]["machine"], "L2")


def floor_parts(r):
    found = floors(r, level2(r))
    return found[:2] if found else None


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
    return [v for v in r["results"] if not v.startswith("napier")]


def to_floor(r):
    return ms(r, "napier") / max(floor_parts(r))


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
    ("log_softmax, 128 rows: faster than PyTorch's plain call", "fused_log_softmax", over(["torch_plain"]), (128,), None, 2.3,
     False),
    *((f"{op}: never slower than PyTorch", op, lambda r: over(others(r))(r), None, None, 1.0, False)
      for op in ("gather", "kl_k1", "kl_k3", "rubric", "grpo_token", "grpo_loss")),
]


def number(x):
    return f"{x:.2g}" if x < 0.01 else f"{x:.2f}" if x < 10 else f"{x:.1f}" if x < 100 else f"{x:,.0f}"


def target_lines(records):
    lines = []
    for text, op, ratio, rows, dtype, bound, less in TARGETS:
        found = list(ratios(records, op, ratio, rows, dtype))
        if not found:
            continue
        met = all(value <= bound if less else value >= bound for _, value in found)
        shown = ", ".join(f"{number(value)} ({r['dtype']} {shape(r).split(' ')[0]})" for r, value in found)
        lines.append([text, f"{'<=' if less else '>='} {number(bound)}", shown, "met" if met else "**missed**"])
    return table(["target", "bound", "measured", ""], lines, 4)


# ---- Tables ----------------------------------------------------------------------------------------------------------


def columns_of(records):
    seen = [v for r in records for v in (*r["results"], *r["skipped"]) ]
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


def tables(records):
    columns = columns_of(records)
    parts = [floor_parts(r) for r in records]
    with_floor = any(parts)
    head = ["case", *(["floor: memory", "floor: exp", "Napier / floor"] if with_floor else []),
            *(VARIANTS[v] for v in columns)]
    times = []
    for r, f in zip(records, parts):
        cells = [f"{r['dtype']} {shape(r)}"]
        if with_floor:
            cells += [number(f[0]), number(f[1]), number(to_floor(r))] if f else ["-"] * 3
        times.append(cells + [time_cell(r, v) for v in columns])
    memory = [[f"{r['dtype']} {shape(r)}", *(memory_cell(r, v) for v in columns)] for r in records]
    return ["Milliseconds, and how many times Napier's:", "", *table(head, times), "",
            "MiB beyond the inputs, and the largest error:", "", *table(["case", *(VARIANTS[v] for v in columns)], memory),
            *(f"\nNot timed: {r['dtype']} {shape(r)}, {who}: {why}." for r in records for who, why in r["skipped"].items())]


def opening(records):
    used = []
    for r in records:
        if r["header"] not in used:
            used.append(r["header"])
    h = used[-1]
    clocks = [r["clock_ghz"] for r in records if r.get("clock_ghz")]
    foreign = max(r["foreign_cpu"] for r in records)
    rounds = [found["rounds"] for r in records for found in r["results"].values()]
    return [
        "# RL functions: benchmarks", "", "Made by `make bench-rl` (bench/run.sh ops). Do not edit.", "",
        *commands(used), f"- CPU: {machine_text(h['machine'])}; {records[0]['threads']} threads; "
        f"{min(clocks):.2f} to {max(clocks):.2f} GHz while measuring",
        f"- {h['compiler']}; " + "; ".join(h["versions"].values()),
        "- One process a library, which take turns, round by round, with sleeping threads (`OMP_WAIT_POLICY=passive`); medians",
        f"  over {min(rounds)} to {max(rounds)} rounds of medians. Every result was compared with float64 before it was timed.",
        "- Floors, measured in the same run, on the same buffers, with the same threads: *memory* is one read of the logits",
        "  (and one write where the operation writes as much; a second read where a row does not fit the second cache), *exp*",
        "  one exponential an element, from L1. The floor of a case is the greater.",
        "- Memory: the process's high-water mark (VmHWM) in the timed runs above what was resident before them; results",
        "  that lie ready before the call (Napier's, and `out=`) are added to it. Errors are relative to 1 + |value|, those of gradients",
        "  to the largest of the array, those of sums to the sum of the terms' magnitudes.",
        f"- Processor time of anything else on the machine: at most {foreign:.0%} of a case's time.", "",
    ]


# ---- Attention and products --------------------------------------------------------------------------------------------


def digits(x):
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def fastest(r, who):
    return r["results"][who]["min_ms"]


def attention_lines(records):
    """The fastest call of each, and how many operations a second Napier does."""
    rows = []
    for r in sorted(records, key=lambda r: (-r["kv_heads"], -r["dim"])):
        rate = 4 * r["rows"] * r["cols"] * r["dim"] * r["heads"] / (2 if r["causal"] else 1)
        rate *= 2.5 if r["op"].startswith("attention_backward") else 1.0
        ours, theirs = fastest(r, "napier"), fastest(r, "torch")
        rows.append([r["op"], f"{r['rows']} x {r['cols']}", f"{r['heads']}:{r['kv_heads']}", r["dim"],
                     "causal" if r["causal"] else "", digits(theirs), digits(ours), f"{1e-6 * rate / ours:.0f}",
                     f"{theirs / ours:.2f}"])
    return table(["", "queries x keys", "heads", "dim", "", "PyTorch ms", "Napier ms", "GFLOP/s", "times faster"], rows, 5)


def product_lines(records):
    rows = []
    for r in records:
        ours, theirs = fastest(r, "napier"), fastest(r, "torch_out")
        rate = 2e-6 * r["rows"] * r["inner"] * r["cols"] / ours
        rows.append([f"{r['rows']} x {r['inner']} x {r['cols']}, {r['dtype']}", digits(theirs), digits(ours),
                     f"{rate:.0f}", f"{theirs / ours:.2f}"])
    return table(["m x k x n", "PyTorch ms", "Napier ms", "GFLOP/s", "times faster"], rows)


def page(headers, records, paths, output):
    whole = [r for r in records if r["op"].startswith("attention") and "torch" in r["results"]]
    products = [r for r in records if r["op"] == "matmul" and "torch_out" in r["results"]]
    for found, lines in ((whole, attention_lines), (products, product_lines)):
        if found:
            print("\n".join([*lines(found), ""]))
    mine = [r for r in records if r["op"] in TITLES]
    if not mine:
        return ""
    lines = opening(mine) + ["## Targets", "", *target_lines(mine), ""]
    lines += (HERE / "findings/rl.md").read_text(encoding="utf-8").splitlines() + [""]
    for op, title in TITLES.items():
        chosen = sorted((r for r in mine if r["op"] == op), key=lambda r: (r["dtype"] != "f32", r["rows"]))
        if chosen:
            lines += [f"## {title}", "", *tables(chosen), ""]
    return "\n".join(lines)
