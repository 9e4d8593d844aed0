"""Rotary base, scaling, window: the residual grows with the position, begins at one, or jumps at multiples of a block."""

import json

import numpy as np

from ..case import Candidate, Finding

CAUSE = "positions"
BLOCKS = (16, 32, 64, 128, 256, 512, 1024, 2048)


def candidates(case):
    s, config = case.state, case.reference.config()
    if s.model or config is None:
        return
    parameters = dict(config.get("rope_parameters") or {})
    base = config.get("rope_theta", parameters.get("rope_theta", 10000.0))
    changes = []
    for theta in (10000.0, 500000.0, 1000000.0, 5000000.0):
        if theta != base:
            changed = {"rope_parameters": {**parameters, "rope_theta": theta}} if parameters else {"rope_theta": theta}
            changes.append((changed, f"the rotary base is {theta:g}, the model's is {base:g}"))
    if config.get("rope_scaling"):
        changes.append(({"rope_scaling": None}, "the scaling of positions (rope_scaling) is missing"))
    elif parameters.get("rope_type", "default") != "default":
        plain = {"rope_theta": base, "rope_type": "default"}
        changes.append(({"rope_parameters": plain}, f"the scaling of positions ({parameters['rope_type']}) is missing"))
    for changed, says in changes:
        name = "config:" + json.dumps(changed, sort_keys=True)
        mend = "compare the two config.json: rope_theta, rope_scaling, rope_parameters, sliding_window"
        yield Candidate(CAUSE, s._replace(model=name), says, mend, 0.05, few=True)


def inspect(case):
    """What the residual looks like over positions, where nothing explains it."""
    residual, where = case.flat()
    size = np.minimum(np.abs(residual), 5.0)
    if size.size < 200:
        return
    place = np.array([len(case.responses[i].prompt) + t for i, t in where])
    floor = max(case.floors["float32"], 1e-5)
    yield from _onset(size, place, floor)
    yield from _blocks(size, place)
    yield from _growth(size, place)


def _onset(size, place, floor):
    """A position before which there is nothing, and after which there is."""
    order = np.argsort(place, kind="stable")
    at, big = place[order], size[order] > floor
    if big.mean() < 0.02 or big.mean() > 0.95:
        return
    first = at[big].min()
    before, after = big[at < first], big[at >= first]
    if before.size >= 100 and after.size >= 50 and after.mean() > 0.6:
        block = max((b for b in BLOCKS if first % b == 0), default=0)
        multiple = f", a multiple of {block}" if block >= 16 else ""
        yield Finding(
            "blocks" if block else CAUSE,
            f"the residual begins at position {first}{multiple}: there is none before",
            f"look at what begins there: a sliding window (of {first - 1}), the scaling of positions, a chunk of the prefill, a cached prefix",
            1.0,
            int(big.sum()),
            {"position": int(first)},
        )


def _blocks(size, place):
    """A few positions after each multiple of a block are worse than the others."""
    best = None
    for block in BLOCKS:
        edge = place % block < max(1, block // 16)
        n, total = edge.sum(), size.sum()
        if n < 10 or len(np.unique(place[edge] // block)) < 2 or total == 0:
            continue
        share, expected = size[edge].sum() / total, n / size.size
        if share > max(0.5, 4 * expected) and (best is None or share / expected > best[1]):
            best = (block, share / expected, share, int(n))
    if best:
        yield Finding(
            "blocks",
            f"the residual stands at multiples of {best[0]} tokens: {100 * best[2]:.0f} % of it",
            "look at the engine's block edges: chunked prefill, paged keys and values, prefix cache; switch them off one at a time",
            best[2],
            best[3],
            {"block": best[0]},
        )


def _growth(size, place):
    """The residual of late positions against that of early ones."""
    low, high = np.quantile(place, [0.25, 0.75])
    early, late = size[place <= low], size[place >= high]
    if early.size < 50 or late.size < 50 or high - low < 16:
        return
    a, b = float(np.mean(early)), float(np.mean(late))
    error = np.sqrt(np.var(early) / early.size + np.var(late) / late.size)
    if b > 2 * a and b - a > 5 * error:
        yield Finding(
            CAUSE,
            f"the residual grows with the position: {a:.2g} nats early, {b:.2g} late",
            "compare rope_theta, rope_scaling and sliding_window of the two config.json",
            1 - a / b,
            int(late.size),
            {"early": a, "late": b},
        )
    elif a > 2 * b and a - b > 5 * error:
        yield Finding(
            "beginning",
            f"the residual is largest near the start: {a:.2g} nats early, {b:.2g} late",
            "compare the ids of the rendered prompts: BOS, system prompt, template, truncation",
            1 - b / a,
            int(early.size),
            {"early": a, "late": b},
        )
