"""Tables of log-probabilities under Qwen3, printed: the fastest of the rounds."""
from report import commands, machine_text, table

PAGE = None
RESULTS = "*-model-*.jsonl"


def prompt_rows(r):
    for who, found in r["results"].items():
        tokens = r["prompt"] + r["response"]
        yield [r["cell"], who, f"{1e-3 * found['min_ms']:.3f}", f"{1e3 * tokens / found['min_ms']:.0f}",
               f"{found['difference']:.2g}" if "difference" in found else "-"]


def sharing_rows(r):
    for kind in ("f32", "bf16"):
        times = [r["results"].get(f"{way}_{kind}", {}).get("min_ms") for way in ("napier", "unshared", "one_by_one")]
        if all(times):
            yield [r["cell"], kind, *(f"{1e-3 * t:.3f}" for t in times), f"{min(times[1:]) / times[0]:.2f}"]


def page(headers, records, paths, output):
    prompts = [row for r in records if r["op"] == "score" for row in prompt_rows(r)]
    shared = [row for r in records if r["op"] == "share" for row in sharing_rows(r)]
    return "\n".join([*commands(headers), f"- CPU: {machine_text(headers[-1]['machine'])}", "",
                      *table(["", "who", "seconds", "tokens a second", "difference"], prompts, 2), "",
                      *table(["", "", "shared, s", "unshared, s", "one by one, s", "times faster"], shared, 2)])
