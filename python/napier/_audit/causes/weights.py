"""Other weights: which of the checkpoints given explains the numbers."""

from ..case import Candidate

CAUSE = "weights"


def candidates(case):
    s = case.state
    if s.model:
        return
    for name, path in case.reference.others.items():
        yield Candidate(
            CAUSE,
            s._replace(model=name),
            f"the numbers are those of the weights in {path}",
            "send the new weights to the engine before it samples, merge the adapter, and drop its prefix cache",
            0.02,
            few=True,
        )
