"""Faults of samplers and trainers, planted: log-probabilities as a faulty engine would report them.

An engine is a function of (prompt, ids) to the logits [P + T, V] of all positions. It may be Napier, or transformers in float32 or
bfloat16. FAULTS names each fault, its cause and others that an audit may rightly name beside it, the parameters that the responses are drawn with, and
how the numbers come about."""

from typing import Callable, NamedTuple

import numpy as np

BOS = 1


def bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32)).view(np.float32)


def log_softmax(z):
    z = np.asarray(z, np.float64)
    m = z.max(-1, keepdims=True)
    return z - m - np.log(np.exp(z - m).sum(-1, keepdims=True))


def pick(z, ids):
    return log_softmax(z)[np.arange(len(ids)), ids]


def rows(engine, prompt, ids):
    """The rows that predict the ids."""
    return engine(prompt, ids)[len(prompt) - 1 : -1].astype(np.float64)


def filtered(z, top_k=0, top_p=1.0, min_p=0.0):
    """Logits with those outside the kept set at minus infinity, written down apart from the audit's own."""
    z = z.copy()
    for row in z:
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))
        if top_k:
            row[order[top_k:]] = -np.inf
        p = np.exp(log_softmax(row))
        total = 0.0
        for i in order:
            if total >= top_p or p[i] < min_p * p[order[0]]:
                row[i] = -np.inf
            total += p[i]
    return z


def penalised(z, prompt, ids, repetition=1.0, presence=0.0, frequency=0.0):
    z = z.copy()
    for t in range(len(z)):
        seen = sorted(set(prompt) | set(ids[:t]))
        z[t, seen] = np.where(z[t, seen] > 0, z[t, seen] / repetition, z[t, seen] * repetition)
        z[t, sorted(set(ids[:t]))] -= presence
        np.subtract.at(z[t], ids[:t], frequency)
    return z


class Fault(NamedTuple):
    causes: tuple
    parameters: dict
    report: Callable  # (engine, prompt, ids, parameters) -> numbers
    beginning: tuple = ()  # ids that each prompt begins with
    lengths: tuple = (6, 14)  # of the prompts, without these


def plain(e, p, ids, s):
    return pick(rows(e, p, ids) / s.get("temperature", 1.0), ids)


def moved(by):
    def report(e, p, ids, s):
        x = plain(e, p, ids, s)
        return np.concatenate([x[by:], x[-1:]]) if by > 0 else np.concatenate([x[:1], x[:by]])

    return report


def own_row(e, p, ids, s):
    return pick(e(p, ids)[len(p) :] / s.get("temperature", 1.0), ids)


def of_prompt(e, p, ids, s):
    x = pick(e(p, ids)[:-1], (p + ids)[1:])
    return x[: len(ids)]


def filled(value, where):
    def report(e, p, ids, s):
        x = plain(e, p, ids, s)
        x[where] = value
        return x

    return report


def begun(change):
    def report(e, p, ids, s):
        return plain(e, change(p), ids, s)

    return report


def float16(x):
    return np.asarray(x, np.float32).astype(np.float16).astype(float)


def spiked(e, p, ids, s):
    """A kernel that errs at the first token of each block of 16."""
    x, place = plain(e, p, ids, s), len(p) + np.arange(len(ids))
    return x + np.where(place % 16 == 0, 0.3 * np.sin(place * 1.7 + ids), 0)


T7 = {"temperature": 0.7}
SYSTEM = (BOS, 21, 22, 23, 24, 25)
FAULTS = {
    "negated": Fault(("sign",), {}, lambda e, p, ids, s: -plain(e, p, ids, s)),
    "one later": Fault(("shift",), {}, moved(1)),
    "one earlier": Fault(("shift",), {}, moved(-1)),
    "labels not shifted": Fault(("shift",), {}, own_row),
    "by the prompt": Fault(("shift",), {}, of_prompt),
    "raw, T 0.7": Fault(("temperature",), T7, lambda e, p, ids, s: pick(rows(e, p, ids), ids)),
    "lp / T": Fault(("temperature",), T7, lambda e, p, ids, s: pick(rows(e, p, ids), ids) / 0.7),
    "T 0.9 undeclared": Fault(("temperature",), {}, lambda e, p, ids, s: pick(rows(e, p, ids) / 0.9, ids)),
    "top_p renormalised": Fault(("filters", "fill"), {"top_p": 0.9}, lambda e, p, ids, s: pick(filtered(rows(e, p, ids), 0, 0.9), ids)),
    "top_k renormalised": Fault(("filters", "fill"), {"top_k": 20}, lambda e, p, ids, s: pick(filtered(rows(e, p, ids), 20), ids)),
    "min_p renormalised": Fault(
        ("filters", "fill"), {"min_p": 0.05}, lambda e, p, ids, s: pick(filtered(rows(e, p, ids), 0, 1.0, 0.05), ids)
    ),
    "top_p undeclared": Fault(("filters", "fill"), {}, lambda e, p, ids, s: pick(filtered(rows(e, p, ids), 0, 0.95), ids)),
    "repetition penalty": Fault(
        ("penalties",), {"repetition_penalty": 1.2}, lambda e, p, ids, s: pick(penalised(rows(e, p, ids), p, ids, 1.2), ids)
    ),
    "presence undeclared": Fault(("penalties", "draws"), {}, lambda e, p, ids, s: pick(penalised(rows(e, p, ids), p, ids, 1, 1.0), ids)),
    "frequency penalty": Fault(
        ("penalties",), {"frequency_penalty": 0.5}, lambda e, p, ids, s: pick(penalised(rows(e, p, ids), p, ids, 1, 0, 0.5), ids)
    ),
    "logit bias": Fault(
        ("bias", "draws"),  # the responses are drawn without it
        {"logit_bias": {"7": 3.0, "9": -2.0}},
        lambda e, p, ids, s: pick(rows(e, p, ids) + np.array([3.0 * (i == 7) - 2.0 * (i == 9) for i in range(e(p, ids).shape[1])]), ids),
    ),
    "BOS missing": Fault(("beginning",), {}, begun(lambda p: p[1:]), (BOS,)),
    "BOS doubled": Fault(("beginning",), {}, begun(lambda p: [BOS, *p]), (BOS,)),
    "BOS added": Fault(("beginning",), {}, begun(lambda p: [BOS, *p])),
    "end of prompt missing": Fault(("beginning",), {}, begun(lambda p: p[:-2])),
    "system prompt missing": Fault(("beginning",), {}, begun(lambda p: p[len(SYSTEM) :]), SYSTEM),
    "system prompt missing, BOS kept": Fault(("beginning",), {}, begun(lambda p: [BOS, *p[len(SYSTEM) :]]), SYSTEM),
    "prompt cut to its last 16": Fault(("beginning",), {}, begun(lambda p: p[-16:]), (BOS,), (10, 40)),
    "prompt cut to its first 20": Fault(("beginning",), {}, begun(lambda p: p[:20]), (BOS,), (10, 40)),
    "padding attended to": Fault(("beginning",), {}, begun(lambda p: [0] * (13 - len(p)) + p)),
    "block edges": Fault(("blocks",), {}, spiked),
    "filled with 0": Fault(("fill",), {}, filled(0.0, slice(0, 2))),
    "filled with -9999": Fault(("fill",), {}, filled(-9999.0, slice(-1, None))),
    "filled with 1": Fault(("fill",), {}, filled(1.0, slice(3, 5))),
    "filled with NaN": Fault(("fill",), {}, filled(np.nan, slice(0, 1))),
    "log-softmax in bf16": Fault(("precision",), {}, lambda e, p, ids, s: bf16(plain(e, p, ids, s)).astype(float)),
    "log-softmax in fp16": Fault(("precision",), {}, lambda e, p, ids, s: float16(plain(e, p, ids, s))),
    "logits in bf16": Fault(("precision",), {}, lambda e, p, ids, s: pick(bf16(rows(e, p, ids)), ids)),
    "logits in fp16": Fault(("precision",), {}, lambda e, p, ids, s: pick(float16(rows(e, p, ids)), ids)),
}


def raw(e, p, ids, s):
    return pick(rows(e, p, ids), ids)


# Faults that were reported in public, rebuilt: the fault, and words of the verdict that it must have.
REPORTS = {
    "huggingface/trl 4159": (Fault(("temperature",), {"temperature": 0.6}, raw), "the numbers are raw"),
    "vllm-project/vime 64": (Fault(("temperature",), {"temperature": 0.8}, raw), "drawn at T = 0.8"),
    "THUDM/slime 2085, radixark/miles 1345": (Fault(("temperature",), {"temperature": 1.2}, raw), "drawn at T = 1.2"),
    "PrimeIntellect-ai/prime-rl 697": (FAULTS["lp / T"], "lp / T is not the log-probability"),
    "GMISWE/tinker-cloud 26": (
        Fault(("temperature",), {}, lambda e, p, ids, s: pick(rows(e, p, ids) / 0.7, ids)),
        "those at T = 0.7 (fitted",
    ),
    "huggingface/trl 6789": (
        Fault(("filters", "fill"), {"top_p": 0.8}, lambda e, p, ids, s: pick(filtered(rows(e, p, ids), 0, 0.8), ids)),
        "renormalised over the tokens that the declared filters keep",
    ),
    "vllm-project/vime 70": (Fault(("fill",), {}, filled(0.0, slice(-2, None))), "a filler for a missing one"),
    "vllm-project/vllm 15420": (FAULTS["BOS missing"], "the prompt has no BOS"),
    "huggingface/open-r1 695": (FAULTS["BOS doubled"], "a second BOS"),
}
PAIRS = [
    ("raw, T 0.7", "one later"),
    ("raw, T 0.7", "filled with 0"),
    ("lp / T", "filled with -9999"),
    ("BOS missing", "filled with 0"),
    ("BOS missing", "T 0.9 undeclared"),
    ("T 0.9 undeclared", "log-softmax in bf16"),
    ("one earlier", "BOS added"),
    ("top_p renormalised", "BOS added"),
    ("repetition penalty", "filled with 1"),
]


def both(a, b):
    """A fault of two: the first one's numbers, by an engine that has the second. Fillers and roundings come last, shifts before them."""
    first, second = FAULTS[a], FAULTS[b]
    parameters = {**first.parameters, **second.parameters}

    def report(e, p, ids, s):
        if b.startswith("BOS"):
            change = (lambda q: q[1:]) if "missing" in b else (lambda q: [BOS, *q])
            return first.report(lambda q, i: e(change(q), i)[-(len(q) + len(i)) :], p, ids, s)
        x = np.asarray(first.report(e, p, ids, s), float)
        if b == "T 0.9 undeclared":
            return pick(rows(e, p[1:], ids) / 0.9, ids)
        if b.startswith("one"):
            return np.concatenate([x[1:], x[-1:]]) if "later" in b else np.concatenate([x[:1], x[:-1]])
        if b == "log-softmax in bf16":
            return bf16(x).astype(float)
        filler = np.array(second.report(e, p, ids, s))
        value = {"0": 0.0, "-9999": -9999.0, "1": 1.0}[b.split()[-1]]
        x[filler == value] = value
        return x

    return Fault((first.causes, second.causes), parameters, report, first.beginning or second.beginning)


def line(fault, engine, prompt, ids, numbers=None):
    """One line of the input."""
    x = fault.report(engine, prompt, ids, fault.parameters) if numbers is None else numbers
    shown = [float(v) if np.isfinite(v) else None for v in x]
    return {"prompt_ids": prompt, "response_ids": ids, "logprobs": {"engine": shown}, **fault.parameters}
