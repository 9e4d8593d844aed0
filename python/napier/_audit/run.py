"""napier.audit: reads responses, scores them, finds the causes."""

import base64
import hashlib
import json
import os
from dataclasses import replace
from typing import Any, Callable, Sequence

import numpy as np

from .._lm.causal_lm import CausalLM
from . import draws, records
from .case import Case, Finding, float32_noise, gain, level
from .causes import INSPECTIONS, STATES, experts, fill, positions, precision, repeats, retokenized
from .costs import Costs
from .layers import layers
from .reference import CACHE, Reference, State
from .report import Report

BATCH = 32  # responses scored in one call
PROBE, PROBE_TOKENS = 256, 32768  # of responses that the causes are sought in
ROUNDS = 5
EXPECTS = {
    "raw": State(),
    "temperature": State(temperature="declared"),
    "processed": State(temperature="declared", filters="declared", penalties="declared", bias=True),
}


def audit(
    responses: Any,
    model: Any,
    *,
    expect: str = "temperature",
    others: Sequence[Any] = (),
    sample: int | None = None,
    resume: str | None = None,
    eps: float = 0.2,
    seed: int = 0,
    progress: Callable[[float], Any] | None = None,
) -> Report:
    """Why do the log-probabilities of a sampler and of a trainer differ? Each engine's numbers are compared with those of this model,
    computed here; causes are sought in what differs. napier.audit.layers finds the layer in which hidden states begin to differ.

    Parameters
    ----------
    responses : a path of JSON Lines, or an iterable of dicts
        Each has a prompt (`prompt`, `messages` or `prompt_ids`), a response (`response_ids` or a text), and `logprobs`: a list, or a
        dict of engine to list. vLLM's, OpenAI's and TRL's shapes are read as they are. Sampling parameters, such as `temperature`,
        stand in the line or in its `sampling_params`.
    model : a directory, or a CausalLM
    expect : 'raw', 'temperature' or 'processed'
        What the numbers should be: of the model at T = 1; at the declared temperature, which TRL's trainers use; or of the
        distribution after filters and penalties.
    others : directories of other checkpoints, each tried as an explanation
    sample : the number of responses to look at, chosen at random; default all
    resume : path of a file that keeps the scores, so that a run that was stopped goes on from there
    eps : the clip range, for the share of tokens whose ratio lies outside [1 - eps, 1 + eps]
    progress : function of (share), called while scoring

    Returns
    -------
    Report : `findings`, `ok`, `text()`, `json()`, `html()`

    Examples
    --------
    >>> import napier
    >>> model = napier.CausalLM("Qwen3-0.6B")
    >>> made = model.generate([[5, 6, 7]] * 20, max_tokens=10, stop=[])
    >>> rows = [
    ...     {"prompt_ids": [5, 6, 7], "response_ids": ids.tolist(), "logprobs": (lps * 0.5).tolist()}
    ...     for ids, lps in zip(made.token_ids.reshape(20, 10), made.logprobs.reshape(20, 10))
    ... ]
    >>> report = napier.audit(rows, model)
    >>> report.ok, report.findings["engine"][0].cause
    (False, 'temperature')
    """
    if expect not in EXPECTS:
        raise ValueError(f"expect: {expect!r}; one of {', '.join(EXPECTS)}")
    if sample is not None and sample < 1:
        raise ValueError(f"sample: {sample}; 1 or more")
    if not isinstance(model, CausalLM):
        model = CausalLM(model)
    run = _Run(model, expect, others, eps, seed)
    run.read(responses, sample, resume, progress)
    return run.report()


def _reservoir(lines, most, rng):
    """`most` lines chosen at random, in their order."""
    held = []
    for count, line in enumerate(lines):
        if len(held) < most:
            held.append(line)
        else:
            at = int(rng.integers(count + 1))
            if at < most:
                held[at] = line
    return sorted(held, key=lambda line: line[0])


class _Scores:
    """A file of scores already computed: one line a batch."""

    def __init__(self, path, model):
        self._path, self._known = path, {}
        if path is None:
            return
        # The model is known by what it computes, so that scores of other weights or another precision are not taken for its own.
        ids = np.arange(min(16, model.info["vocabulary"]))
        self._salt = model.batch_logprobs([ids[:1]], [ids])[0].tobytes()
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    try:
                        item = json.loads(line)
                        self._known[item["key"]] = np.frombuffer(base64.b64decode(item["scores"]), "<f4")
                    except (ValueError, KeyError, TypeError):
                        continue  # a line that was cut when the run was stopped

    def of(self, batch, temperatures, compute):
        """The scores of a batch: those of the file, or what compute() returns."""
        if self._path is None:
            return compute()
        h = hashlib.sha256(self._salt)
        for r, temperature in zip(batch, temperatures):
            h.update(r.key + repr(temperature).encode())
        key = h.hexdigest()
        known = self._known.get(key)
        if known is not None and len(known) == sum(len(r.ids) for r in batch):
            return known
        scores = compute()
        with open(self._path, "a", encoding="utf-8") as file:
            text = base64.b64encode(np.ascontiguousarray(scores, "<f4").tobytes()).decode()
            file.write(json.dumps({"key": key, "scores": text}) + "\n")
        return scores


class _Run:
    def __init__(self, model, expect, others, eps, seed):
        self.model, self.expect, self.eps = model, expect, eps
        self.reference = Reference(model, others)
        self.rng = np.random.default_rng(seed)
        self.probe, self.seen, self.tokens, self.lines = [], 0, 0, 0
        self.costs, self.pairs = {}, {}
        self.repeats, self.drift = repeats.Repeats(), retokenized.Drift(model)

    # ---- Reading ----------------------------------------------------------------------------------------------------

    def read(self, source, sample, resume, progress):
        lines, size = records.lines_of(source), None
        if sample is not None:
            lines = _reservoir(lines, sample, self.rng)
            size = len(lines)
        elif isinstance(source, (str, bytes)) or hasattr(source, "__fspath__"):
            size = os.path.getsize(source)
        elif hasattr(source, "__len__"):
            size = len(source)
        scores, batch, done = _Scores(resume, self.model), [], 0
        for number, line in lines:
            done += len(line.encode()) if isinstance(line, str) and sample is None else 1
            self.lines += 1
            for r in records.parse(line, number, self.model):
                batch.append(r)
                if len(batch) == BATCH:
                    self._score(batch, scores)
                    batch = []
                    if progress is not None:
                        progress(done / size if size else 0.0)
        if batch:
            self._score(batch, scores)
        if not self.seen:
            raise records.BadInput("no responses: the input is empty")

    def _score(self, batch, scores):
        temperatures = [1.0 if self.expect == "raw" else r.parameters["temperature"] for r in batch]
        flat = scores.of(batch, temperatures, lambda: self._logprobs(batch, temperatures))
        offset = 0
        for r in batch:
            self._add(r, flat[offset : offset + len(r.ids)].astype(np.float64))
            offset += len(r.ids)

    def _logprobs(self, batch, temperatures):
        """The reference of a batch at the temperatures that are expected."""
        result = [None] * len(batch)
        by = {}
        for i, temperature in enumerate(temperatures):
            by.setdefault(temperature, []).append(i)
        for temperature, some in by.items():
            lps, _, offsets = self.model.batch_logprobs(
                [batch[i].prompt for i in some], [batch[i].ids for i in some], temperature=temperature
            )
            for k, i in enumerate(some):
                result[i] = np.asarray(lps[offsets[k] : offsets[k + 1]], np.float32)
        return np.concatenate(result)

    def _add(self, r, expected):
        self.seen += 1
        self.tokens += len(r.ids)
        self.repeats.add(r)
        self.drift.add(r)
        names = sorted(r.engines)
        for name in names:
            self.costs.setdefault(name, Costs(self.eps)).add(expected, r.engines[name], r)
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                self.pairs.setdefault((a, b), Costs(self.eps)).add(r.engines[b], r.engines[a])
        if len(self.probe) < PROBE:
            self.probe.append(r)
        else:
            at = int(self.rng.integers(self.seen))
            if at < PROBE:
                self.probe[at] = r

    # ---- Causes -----------------------------------------------------------------------------------------------------

    def report(self):
        probe = self._probe()
        floors = noise(self.reference, probe, EXPECTS[self.expect])
        findings, cases = {}, {}
        for name in sorted(self.costs):
            mine = [r for r in probe if name in r.engines]
            if mine:
                case = cases[name] = Case(name, mine, self.reference, floors, EXPECTS[self.expect])
                findings[name] = explain(case, self.drift) + list(self.repeats.findings(name))
        drawn, finding = draws.check(self.reference, probe)
        report = Report(self, findings, cases, floors, drawn, finding)
        self.reference.close()
        return report

    def _probe(self):
        """The responses in which causes are sought. Their logits are kept, so of a model with many ids each has its first tokens only,
        but no fewer than 16."""
        most = min(PROBE_TOKENS, CACHE // (4 * self.model.info["vocabulary"]))
        each = max(16, most // min(len(self.probe), 48))
        probe, tokens = [], 0
        for r in self.probe:
            if len(r.ids) > each:
                r = replace(r, ids=r.ids[:each], engines={k: x[:each] for k, x in r.engines.items()})
            if probe and tokens + len(r.ids) > most:
                break
            probe.append(r)
            tokens += len(r.ids)
        return probe


def noise(reference, responses, state):
    """The residual that float32 and bfloat16 cause by themselves, of this model on this text: the reference's own pass in bfloat16, with
    its logits rounded, beside float32; and for float32 a share of that."""
    some = responses[:8]
    model = "bf16" if reference.model.directory is not None else ""
    s = State(temperature=state.temperature, model=model, rounding="logits")
    exact = [reference.predict(r, s._replace(model="", rounding="")) for r in some]
    d = np.abs(np.concatenate([reference.predict(r, s) - e for r, e in zip(some, exact)]))
    d = d[np.isfinite(d)]
    lp = float(np.mean(np.abs(np.concatenate(exact))))
    half, high = (float(np.quantile(d, q)) for q in (0.5, 0.99))
    reference.forget(model=model)
    least, info = 2.0**-21 * max(lp, 1.0), reference.model.info
    share = float32_noise([info["hidden"], info["intermediate"], info["expert_intermediate"]])
    return {"float32": max(half * share, least), "float32_99": max(high * share, 8 * least), "bfloat16": half, "bfloat16_99": high}


def explain(case, drift):
    """The findings of one engine: causes removed one after the other, the best explanation first."""
    findings, chosen = [*fill.lengths(case), *fill.remove(case)], []
    start, first = case.state, case.size()[1]
    for _ in range(ROUNDS):
        if level(case) == "float32":
            break
        best = _best(case)
        if best is None:
            break
        candidate, share = best
        changed = _fields(candidate.state, case.state)
        chosen = [c for c in chosen if not c[2] <= changed] + [(candidate, share, changed)]
        case.state = candidate.state
    chosen = _needed(case, chosen, start)
    left = case.size()[1]
    for candidate, share, _ in chosen:
        evidence = {"residual_before": first, "residual_after": left, "state": _shown(case.state, start)}
        findings.append(Finding(candidate.cause, candidate.says, candidate.mend, share, 0, evidence))
    findings += precision.always(case)
    if level(case) != "float32":
        seen = list(drift.findings(case)) or list(experts.inspect(case))
        if seen and seen[0].cause == "experts":  # at block edges there are few and large residuals, too
            seen = [f for f in positions.inspect(case) if f.cause == "blocks"][:1] or seen
        if not seen and (level(case) == "" or _uneven(case)):
            seen = _inspected(case)
        findings += seen
        if not seen and level(case) == "":
            findings.append(_unexplained(case, bool(chosen)))
    return findings


def _fields(a, b):
    return {name for name, x, y in zip(a._fields, a, b) if x != y}


def _shown(state, start):
    return {name: getattr(state, name) for name in sorted(_fields(state, start))}


def _best(case):
    """The candidate that gains most after its cost, if it gains enough and beyond chance."""
    best, value = None, 0.1
    cheap, dear = [], []
    for module in STATES:
        for c in module.candidates(case):
            (dear if c.few else cheap).append(c)
    for some in (cheap, dear):
        for c in some:
            mean, z, share = gain(case, c.state, c.few)
            if mean - c.cost > value and z > 5 and share > 0.05:
                best, value = (c, share), mean - c.cost
            if c.few:
                case.reference.forget(c.state.beginning, c.state.model)
        if best is not None and level(case, best[0].state) == "float32":
            break
    return best


def _needed(case, chosen, start):
    """Drops what the later causes have made superfluous."""
    for item in list(chosen)[:-1]:
        back = case.state._replace(**{name: getattr(start, name) for name in item[2]})
        if back != case.state and gain(case, back)[0] > -0.05:
            case.state = back
            chosen = [c for c in chosen if c is not item]
    return chosen


def _uneven(case):
    """Whether most tokens agree to rounding of float32 and some do not."""
    size = np.abs(case.flat()[0])
    return np.median(size) <= 4 * case.floors["float32"] and np.quantile(size, 0.99) > 100 * case.floors["float32_99"]


def _inspected(case):
    for module in INSPECTIONS:
        found = list(module.inspect(case))
        if found:
            return found[:1]
    return []


def _unexplained(case, some):
    half, mean = case.size()
    rest = "what remains" if some else "the difference"
    return Finding(
        "unexplained",
        f"{rest} is {half:.2g} nats at the median token, {mean:.2g} on average, and bfloat16 would explain {case.floors['bfloat16']:.2g}: "
        "no cause that is known here fits",
        "large everywhere is what other weights look like: an earlier step, an adapter not merged, another quantisation, a head not tied; "
        "give checkpoints with --other",
        1.0,
        0,
        {"median": half, "mean": mean},
    )


audit.layers = layers  # type: ignore[attr-defined]
