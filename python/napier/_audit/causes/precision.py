"""Rounding to bfloat16: of the log-probabilities, or of the logits."""

from ..case import Candidate, Finding

CAUSE = "precision"
MEND = "cast the logits to float32 before log_softmax"


def candidates(case):
    s = case.state
    if s.rounding:
        return
    says = _on_grid(case)
    if says:
        yield Candidate(CAUSE, s._replace(rounding="values"), says, MEND)
    elif s.divide == 1 and not s.prompt and not s.row and not s.filters:
        yield Candidate(
            CAUSE,
            s._replace(rounding="logits"),
            "the logits were rounded to bfloat16 before a log-softmax in float32",
            "keep the head's product in float32 (fp32 lm_head)",
            1.0,
        )


def _on_grid(case):
    share, count = case.on_grid()
    if share > 0.98 and count >= 20:
        return f"log-softmax in bfloat16: {100 * share:.0f} % of the numbers are exact in bfloat16, which has 8 bits"


def always(case):
    """The grid shows the rounding even where the engine's other errors hide its size."""
    says = None if case.state.rounding else _on_grid(case)
    if says:
        yield Finding(CAUSE, says, MEND)
