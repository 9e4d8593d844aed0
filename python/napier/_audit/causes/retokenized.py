"""Ids that drift: the text of the response, tokenised again, has other ids."""

import numpy as np

from ..case import Finding


class Drift:
    """Counts the responses whose decoded text gives other ids than they have."""

    def __init__(self, model):
        self._model, self.responses, self.total, self.first, self._lines = model, 0, 0, None, set()

    def add(self, r):
        if self._model.tokenizer is None:
            return
        self.total += 1
        try:
            again = list(self._model.encode(self._model.decode(r.ids), continues=True))
        except (ValueError, UnicodeError):
            return
        if again != list(r.ids):
            self.responses += 1
            self._lines.add(r.line)
            if self.first is None:
                at = next((t for t, (a, b) in enumerate(zip(again, r.ids)) if a != b), min(len(again), len(r.ids)))
                self.first = (r.line, at)

    def findings(self, case):
        """A fault only if the numbers of these responses are worse than those of the others."""
        sizes = {True: [], False: []}
        for r, residual in zip(case.responses, case.residuals(case.state)):
            sizes[r.line in self._lines].append(np.abs(residual[np.isfinite(residual)]))
        if not sizes[True] or not sizes[False]:
            return
        bad, good = (float(np.mean(np.minimum(np.concatenate(sizes[k]), 30.0))) for k in (True, False))
        if bad > 10 * max(good, case.floors["bfloat16"]):
            yield Finding(
                "retokenised",
                f"{self.responses} of {self.total} responses have other ids when their text is tokenised again (first: line {self.first[0]}, "
                f"token {self.first[1]}), and their numbers are off by {bad:.2g} nats",
                "pass ids from the sampler to the trainer, never the text",
                0.0,
                self.responses,
                {"line": self.first[0], "token": self.first[1]},
            )
