"""One engine's numbers beside the referee's: what the causes look at."""

import dataclasses
from typing import NamedTuple

import numpy as np

from .reference import State, bf16

CAP = 30.0  # nats: a residual larger than this counts as this


class Candidate(NamedTuple):
    """A state that may explain the numbers."""

    cause: str
    state: State
    says: str
    mend: str
    cost: float = 0.0  # what it assumes, in units of the gain
    few: bool = False  # judged on a few responses, because it runs the model again


class Finding(NamedTuple):
    cause: str
    says: str
    mend: str
    share: float = 0.0  # of the residual that it explains
    tokens: int = 0  # how many tokens show it
    evidence: dict = {}
    fault: bool = True  # whether it counts for the exit status


@dataclasses.dataclass
class Case:
    name: str
    responses: list
    reference: object
    floors: dict  # "float32", "bfloat16": median absolute residual that the precision alone causes
    state: State
    values: list = dataclasses.field(default_factory=list)  # of each response, NaN where removed
    findings: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        if not self.values:
            self.values = [r.engines[self.name].copy() for r in self.responses]

    @property
    def few(self):
        """The number of responses for questions that run the model again."""
        return min(len(self.responses), 24 if self.reference.model.info["parameters"] < 20_000_000 else 8)

    def some(self, few):
        return range(self.few if few else len(self.responses))

    def predicted(self, state, few=False):
        return [self.reference.predict(self.responses[i], state) for i in self.some(few)]

    def residuals(self, state, few=False):
        """Reported minus predicted, one array a response."""
        return [self.values[i] - p for i, p in zip(self.some(few), self.predicted(state, few))]

    def flat(self, state=None):
        """Residuals of all tokens under a state, those that are known; and the place of each: (response, token)."""
        residuals = self.residuals(self.state if state is None else state)
        where = [(i, t) for i, r in enumerate(residuals) for t in np.flatnonzero(np.isfinite(r))]
        return np.concatenate([r[np.isfinite(r)] for r in residuals] or [np.empty(0)]), where

    def size(self, state=None):
        """The median and the mean of the absolute residual."""
        r = np.minimum(np.abs(self.flat(state)[0]), CAP)
        return (float(np.median(r)), float(np.mean(r))) if r.size else (0.0, 0.0)

    def on_grid(self, rounded=bf16):
        """The share of the numbers that are exact in bfloat16, or in another format."""
        x = np.concatenate(self.values) if self.values else np.empty(0)
        x = x[np.isfinite(x) & (np.abs(x) > 1e-3)]
        return (float(np.mean(rounded(x) == x.astype(np.float32))), x.size) if x.size else (0.0, 0)


def _loss(residual, small):
    return np.log(np.minimum(np.abs(residual), CAP) + small)


def gain(case, state, few=False):
    """How much better a state explains the numbers than the present one: (mean of the log-ratio of residuals, its z-score over the
    responses, the share of the residual that it explains)."""
    now, then = case.residuals(case.state, few), case.residuals(state, few)
    q = [np.abs(a[np.isfinite(a)]) for a in now]
    typical = float(np.median(np.concatenate(q))) if any(a.size for a in q) else 0.0
    small = case.floors["float32"] / 2 + 0.02 * typical
    each, weights, before, after = [], [], 0.0, 0.0
    for a, b in zip(now, then):
        good = ~np.isnan(a) & ~np.isnan(b)
        if good.any():
            d = _loss(a[good], small) - _loss(b[good], small)
            each.append(d.mean())
            weights.append(good.sum())
            before += np.minimum(np.abs(a[good]), CAP).sum()
            after += np.minimum(np.abs(b[good]), CAP).sum()
    if not each:
        return 0.0, 0.0, 0.0
    each, weights = np.array(each), np.array(weights, float)
    mean = float(np.average(each, weights=weights))
    some = each != 0  # responses whose numbers both states predict alike tell nothing of chance
    middle = float(np.average(each[some], weights=weights[some])) if some.any() else 0.0
    spread = np.sqrt(np.sum((weights * (each - middle))[some] ** 2)) / weights.sum() if some.sum() > 1 else abs(mean) / 2
    return mean, mean / max(float(spread), 1e-12), 1 - after / before if before > 0 else 0.0


def float32_noise(widths):
    """float32's rounding noise as a share of bfloat16's, in a model with sums of so many products. bfloat16 rounds each sum once, and
    float32 each of its additions, whose errors add up like steps of a random walk."""
    return 2.0**-16 * max(widths) ** 0.5


def level(case, state=None):
    """What is left: 'float32', 'float16' or 'bfloat16' where that precision explains it, else ''."""
    size = np.abs(case.flat(state)[0])
    if size.size == 0:
        return "float32"
    half, high = np.median(size), np.quantile(size, 0.99)
    f = case.floors
    if half <= 4 * f["float32"] and high <= 4 * f["float32_99"]:
        return "float32"
    if half <= f["bfloat16"] / 4 and high <= f["bfloat16_99"] / 4:  # float16 rounds to an eighth
        return "float16"
    return "bfloat16" if half <= 4 * f["bfloat16"] and high <= 4 * f["bfloat16_99"] else ""
