"""Rounding to bfloat16 or float16: of the log-probabilities, of the logits, of the head's input."""

from ..case import Candidate, Finding
from ..reference import bf16, float16

CAUSE = "precision"
MEND = "cast the logits to float32 before log_softmax"
FORMATS = {"values": ("bfloat16", 8, bf16), "values16": ("float16", 11, float16)}


def candidates(case):
    s = case.state
    if s.rounding:
        return
    rounding, says = _on_grid(case)
    if rounding:
        yield Candidate(CAUSE, s._replace(rounding=rounding), says, MEND)
    elif s.divide == 1 and not s.prompt and not s.row and not s.filters:
        mend = "keep the head's product in float32 (fp32 lm_head)"
        for rounding, what in (("logits", "bfloat16"), ("logits16", "float16")):
            says = f"the logits were rounded to {what} before a log-softmax in float32"
            yield Candidate(CAUSE, s._replace(rounding=rounding), says, mend, 1.0)
        says = "the head ran in bfloat16: its input and the logits were rounded"
        yield Candidate(CAUSE, s._replace(rounding="head"), says, mend, 1.0, few=True)


def _on_grid(case):
    """The rounding that the grid of the numbers shows, and the words."""
    for rounding, (name, bits, rounded) in FORMATS.items():
        share, count = case.on_grid(rounded)
        if share > 0.98 and count >= 20:
            return rounding, f"log-softmax in {name}: {100 * share:.0f} % of the numbers are exact in {name}, which has {bits} bits"
    return "", ""


def always(case):
    """The grid shows the rounding even where the engine's other errors hide its size."""
    says = "" if case.state.rounding else _on_grid(case)[1]
    if says:
        yield Finding(CAUSE, says, MEND)
