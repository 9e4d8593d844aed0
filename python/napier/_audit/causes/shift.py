"""Log-probabilities that belong to a neighbouring token, or to the prompt. They agree with the reference at another offset."""

from ..case import Candidate

CAUSE = "shift"


def candidates(case):
    s = case.state
    if s.shift or s.row or s.prompt:
        return
    for by in (1, -1, 2, -2):
        place = f"{abs(by)} token{'s' if abs(by) > 1 else ''} {'later' if by > 0 else 'earlier'}"
        yield Candidate(
            CAUSE,
            s._replace(shift=by),
            f"the number at each token is that of the token {place}",
            "log-probability t belongs to token t of the response: slice logits[:, P-1:-1] for ids[:, P:], where P is the prompt's length",
            0.02,
        )
    for row in (1, -1):
        after = "after" if row > 0 else "two before"
        yield Candidate(
            CAUSE,
            s._replace(row=row),
            f"each token is scored with the row of logits {after} it: the labels are not shifted by one",
            "row t - 1 of the logits predicts token t: use logits[:, :-1] with ids[:, 1:]",
            0.02,
        )
    if not (s.filters or s.penalties or s.bias):
        for by in (0, 1):
            yield Candidate(
                CAUSE,
                s._replace(prompt=True, shift=by),
                "the list begins at the prompt: it has the numbers of the prompt's tokens in place of the response's",
                "cut the prompt off first: take the last T of the P + T - 1 log-probabilities, not the first T",
                0.02,
                few=True,
            )
