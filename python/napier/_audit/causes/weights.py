"""Other weights: which of the checkpoints given explains the numbers; the model without its adapter."""

from ..case import Candidate

CAUSE = "weights"
SEND = "send the new weights to the engine before it samples, merge the adapter, and drop its prefix cache"


def candidates(case):
    s, reference = case.state, case.reference
    if s.model:
        return
    found = {name: (f"the numbers are those of the weights in {path}", SEND) for name, path in reference.others.items()}
    if reference.adapter is not None:
        says = "the numbers are those of the model without its adapter"
        found["base"] = (says, "merge the adapter into the weights that the engine gets, or load it there")
    for name, (says, mend) in found.items():
        yield Candidate(CAUSE, s._replace(model=name), says, mend, 0.02, few=True)
