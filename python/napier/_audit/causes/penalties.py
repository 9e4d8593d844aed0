"""Penalties and biases of logits. The residual stands at ids that were seen before, or at some ids."""

import numpy as np

from ..case import Candidate, Finding

CAUSE = "penalties"
TRIED = [(r, 0.0, 0.0) for r in (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5)]
TRIED += [(1.0, a, 0.0) for a in (0.1, 0.2, 0.5, 1.0, 1.5, 2.0)] + [(1.0, 0.0, a) for a in (0.1, 0.2, 0.5, 1.0, 2.0)]
MEND = "score without penalties and train with them at 0 (repetition_penalty 1), or apply them to the trainer's logits, too"
NAMES = ("repetition_penalty", "presence_penalty", "frequency_penalty")


def candidates(case):
    s = case.state
    if s.divide != 1 or s.prompt or s.row or s.rounding:
        return
    if not s.bias and any(r.parameters["logit_bias"] for r in case.responses):
        yield Candidate("bias", s._replace(bias=True), "the numbers have the declared logit_bias in them", "score without logit_bias")
    if s.penalties is not None:
        return
    if any(r.parameters[n] != (n[0] == "r") for r in case.responses for n in NAMES):
        yield Candidate(CAUSE, s._replace(penalties="declared"), "the numbers have the declared penalties in them", MEND)
    if not _seen_differ(case):
        return
    for penalties in TRIED:
        text = next(f"{n} {v:g}" for n, v in zip(NAMES, penalties) if v != (n[0] == "r"))
        yield Candidate(
            CAUSE,
            s._replace(penalties=penalties),
            f"ids that were seen before are penalised: {text} explains it best, and is not declared",
            MEND,
            0.05,
            few=True,
        )


def _seen_differ(case):
    """Whether the residual of ids that were seen before differs from that of new ones, well beyond its spread."""
    seen, new = [], []
    for r, residual in zip(case.responses, case.residuals(case.state)):
        before = set(r.prompt)
        for i, x in zip(r.ids, residual):
            if np.isfinite(x):
                (seen if i in before else new).append(x)
            before.add(i)
    if len(seen) < 20 or len(new) < 20:
        return False
    seen, new = np.clip(seen, -5, 5), np.clip(new, -5, 5)
    error = np.sqrt(np.var(seen) / len(seen) + np.var(new) / len(new)) + 1e-12
    return abs(np.mean(seen) - np.mean(new)) > 4 * error


def inspect(case):
    """Ids whose residual is one number, far from that of the others: a bias nobody declared."""
    residual, where = case.flat()
    if residual.size < 50 or np.median(np.abs(residual)) > 0.5:
        return
    by_id = {}
    for x, (i, t) in zip(residual, where):
        by_id.setdefault(case.responses[i].ids[t], []).append(x)
    typical = float(np.median(np.abs(residual)))
    found = {}
    for token, values in by_id.items():
        values = np.array(values)
        if len(values) >= 5 and abs(np.mean(values)) > max(10 * typical, 0.05) and np.std(values) < 0.5 * abs(np.mean(values)):
            found[token] = float(np.mean(values))
    if not found:
        return
    total = np.abs(residual).sum()
    share = sum(np.abs(by_id[token]).sum() for token in found) / total
    if share > 0.3:
        some = sorted(found.items(), key=lambda item: -abs(item[1]))[:5]
        yield Finding(
            "bias",
            "the residual stands at some ids: " + ", ".join(f"id {i} by {x:+.3g}" for i, x in some),
            "look for a logit_bias, for forced or forbidden ids, or for rows of the head that differ (a resized vocabulary)",
            share,
            sum(len(by_id[i]) for i in found),
            {"ids": found},
        )
