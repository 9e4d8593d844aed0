"""Another temperature: raw where processed is wanted, the reverse, another number, or the log-probability itself divided by T."""

import numpy as np

from ..case import Candidate

CAUSE = "temperature"
COMMON = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0)
TOKENS = 2000  # for the fit


def _declared(case):
    return sorted({r.parameters["temperature"] for r in case.responses})


def fit(case):
    """The temperature that explains most, by golden section on the logarithm of T, and its standard error."""
    count = max(1, min(len(case.responses), TOKENS // max(1, int(np.mean([len(r.ids) for r in case.responses])))))
    rows = range(count)

    def loss(log_t):
        s = case.state._replace(temperature=float(np.exp(log_t)))
        total, n = 0.0, 0
        for i in rows:
            r = case.values[i] - case.reference._predict(case.responses[i], s)
            r = np.minimum(np.abs(r[np.isfinite(r)]), 5.0)
            total, n = total + r.sum(), n + r.size
        return total / max(n, 1)

    grid = np.log(np.geomspace(0.2, 4, 13))
    losses = [loss(g) for g in grid]
    k = int(np.argmin(losses))
    a, b = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
    golden = (np.sqrt(5) - 1) / 2
    c, d = b - golden * (b - a), a + golden * (b - a)
    fc, fd = loss(c), loss(d)
    while b - a > 1e-5:
        if fc < fd:
            b, d, fd = d, c, fc
            c = b - golden * (b - a)
            fc = loss(c)
        else:
            a, c, fc = c, d, fd
            d = a + golden * (b - a)
            fd = loss(d)
    t = float(np.exp((a + b) / 2))
    at = case.state._replace(temperature=t)
    slope, rest = [], []
    for i in rows:
        here = case.reference._predict(case.responses[i], at)
        there = case.reference._predict(case.responses[i], at._replace(temperature=t * 1.001))
        good = np.isfinite(here) & np.isfinite(there) & np.isfinite(case.values[i])
        slope.append((there[good] - here[good]) / (t * 0.001))
        rest.append(case.values[i][good] - here[good])
    slope, rest = np.concatenate(slope), np.concatenate(rest)
    error = float(np.sqrt(np.mean(rest**2) / max(np.sum(slope**2), 1e-30)))
    return t, max(error, 1e-6 * t)


def candidates(case):
    s = case.state
    if s.divide != 1 or s.rounding == "values":
        return
    declared = _declared(case)
    if s.temperature != 1.0 and declared != [1.0]:
        yield Candidate(
            CAUSE,
            s._replace(temperature=1.0),
            "the numbers are raw: those of the model at T = 1, though the tokens were drawn at T = " + _list(declared),
            "ask for processed log-probabilities (vLLM: logprobs_mode='processed_logprobs'), or score with the logits divided by T",
        )
    if s.temperature != "declared" and declared != [1.0]:
        yield Candidate(
            CAUSE,
            s._replace(temperature="declared"),
            f"the numbers are those at the sampling temperature, T = {_list(declared)}, and raw ones (T = 1) are expected",
            "ask for raw log-probabilities, or divide the trainer's logits by T, too",
        )
    if declared != [1.0]:
        yield Candidate(
            CAUSE,
            s._replace(temperature=1.0, divide="declared"),
            "the log-probability itself was divided by T: lp / T is not the log-probability at temperature T",
            "divide the logits by T before the log-softmax, not the result after it",
        )
    t, error = fit(case)
    now = s.temperature if s.temperature != "declared" else (declared[0] if len(declared) == 1 else None)
    if now is not None and abs(t / now - 1) < 0.004:
        return
    near = min(COMMON, key=lambda c: abs(c - t))
    if abs(near - t) < max(4 * error, 0.004 * t):
        t = near
    yield Candidate(
        CAUSE,
        s._replace(temperature=t),
        f"the numbers are those at T = {t:.4g} (fitted, +- {error:.2g}); T = {_list(declared)} is declared",
        "give the sampler and the scorer the same temperature",
        0.03,
    )
    if not (s.filters or s.penalties or s.bias or s.prompt or s.row):
        plain = case.predicted(s._replace(temperature=1.0))
        ratios = np.concatenate([(p / v)[np.isfinite(p / v) & (np.abs(v) > 0.1)] for p, v in zip(plain, case.values[: len(plain)])])
        if ratios.size > 20:
            by = float(np.median(ratios))
            by = round(by, 2) if abs(round(by, 2) / by - 1) < 2e-3 else by
            if by > 0.05 and abs(by - 1) > 0.03:  # nearer 1 it is a bias of low precision
                yield Candidate(
                    CAUSE,
                    s._replace(temperature=1.0, divide=by),
                    f"the log-probability itself was divided by {by:.4g}: lp / T is not the log-probability at temperature T",
                    "divide the logits by T before the log-softmax, not the result after it",
                    0.03,
                )


def _list(values):
    return ", ".join(f"{v:g}" for v in values[:4]) + (", ..." if len(values) > 4 else "")
