"""Numbers renormalised over the set that top-k, top-p or min-p keep. The residual is minus the log of the kept mass: never negative."""

import numpy as np

from ..case import Candidate

CAUSE = "filters"
TRIED = [(0, p, 0.0) for p in (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)]
TRIED += [(k, 1.0, 0.0) for k in (5, 10, 20, 40, 50, 64, 100)] + [(0, 1.0, m) for m in (0.02, 0.05, 0.1)]
TRIED += [(20, 0.8, 0.0), (20, 0.95, 0.0), (50, 0.95, 0.0)]
MEND = "compare like with like: raw or temperature-scaled numbers on both sides, or mask the trainer's logits by the same filters"


def name(filters):
    k, p, m = filters
    return ", ".join(text for text, on in ((f"top_k {k}", k), (f"top_p {p:g}", p < 1), (f"min_p {m:g}", m)) if on)


def candidates(case):
    s = case.state
    if s.filters is not None or s.divide != 1 or s.prompt or s.row or s.rounding:
        return
    if any(r.parameters["top_k"] or r.parameters["top_p"] < 1 or r.parameters["min_p"] for r in case.responses):
        yield Candidate(
            CAUSE, s._replace(filters="declared"), "the numbers are renormalised over the tokens that the declared filters keep", MEND
        )
    residual = case.flat()[0]
    if np.mean(residual > -3 * case.floors["bfloat16"]) < 0.7 or np.median(residual) < 0:  # of one sign
        return
    for filters in TRIED:
        yield Candidate(
            CAUSE,
            s._replace(filters=filters),
            f"the numbers are renormalised over the tokens that a filter keeps: {name(filters)} explains them best, and is not declared",
            MEND,
            0.05,
            few=True,
        )
