"""Constants in the place of numbers that are missing: 0, 1, -9999, NaN, null; and tokens after the end."""

from collections import Counter

import numpy as np

from ..case import Finding


LENGTHS = {
    "prompt": ("shift", "the lists have the prompt's log-probabilities, too; the last ones were taken", "cut the prompt off"),
    "one more": ("length", "the lists have one number more than the response has ids", "do not score what follows the last id"),
    "one fewer": (
        "length",
        "the lists have one number fewer than the response has ids; the last id has none",
        "score the end-of-text id, too",
    ),
    "retokenised": (
        "retokenised",
        "the lists have as many numbers as the text has ids when it is tokenised again, not as many as the response has",
        "pass ids from the sampler to the trainer, never the text",
    ),
}


def lengths(case):
    """What the lengths of the lists tell."""
    for note, (cause, says, mend) in LENGTHS.items():
        count = sum(r.notes.get(case.name) == note for r in case.responses)
        if count:
            yield Finding(cause, f"{says} ({count} of {len(case.responses)} responses)", mend, 0.0, count, {}, note != "prompt")


def remove(case):
    """Finds them, and takes them out of the case. Yields what was found."""
    yield from _negated(case)
    predicted = case.predicted(case.state)
    counts, missing, total = Counter(), 0, 0
    coarse = case.on_grid()[0] > 0.9  # where whole numbers are common
    for r, x, p in zip(case.responses, case.values, predicted):
        total += x.size
        missing += int(np.isnan(x).sum()) if case.name not in r.notes else 0
        for value, reference in zip(x, p):
            if np.isnan(value):
                continue
            if value > 1e-6 or np.isinf(value) or (value == 0 and reference < -0.05) or value <= -99:
                counts[float(value)] += 1
            elif not coarse and value == round(value) and value < 0 and abs(value - reference) > 0.1:
                counts[float(value)] += 1
    if missing:
        yield _finding("NaN or null", missing, total, _places(case, np.isnan))
    for value, count in counts.items():
        if value > 1e-6 and count < 3 and count < 0.001 * total:
            pass
        elif count < 3 or (value == round(value) and value < 0 and value > -99 and count < 5):
            continue
        yield _finding(f"{value:g}", count, total, _places(case, lambda x, v=value: x == v))
        for x, p in zip(case.values, predicted):
            x[(x == value) & ~(np.abs(x - p) < 0.05)] = np.nan
    yield from _after_the_end(case)


def _negated(case):
    """Losses in place of log-probabilities: turned round, so that other causes are seen."""
    flat = np.concatenate(case.values)
    if flat.size and np.mean(flat > 1e-6) > 0.8:
        for x in case.values:
            np.negative(x, out=x)
        says = "the numbers are positive: losses, minus the log-probability"
        yield Finding("sign", says, "negate them: a log-probability is 0 or less", 0.0, flat.size)


def _places(case, test):
    """Where the first of them stand: at the start, the end, or anywhere."""
    share = [np.flatnonzero(test(x)) / max(1, x.size - 1) for x in case.values]
    share = np.concatenate(share) if share else np.empty(0)
    if share.size == 0:
        return "nowhere"
    return "at the first token" if share.max() == 0 else "at the last token" if share.min() == 1 else "between others"


def _finding(value, count, total, place):
    return Finding(
        "fill",
        f"{count} of {total} numbers are {value}, {place}: a filler for a missing one, not a log-probability",
        "mask tokens without a log-probability out of the loss; do not fill them with a constant",
        0.0,
        count,
        {"value": value},
    )


def _after_the_end(case):
    config = case.reference.config() or {}
    ends = config.get("eos_token_id")
    ends = {ends} if isinstance(ends, int) else set(ends or [])
    padding = ends | {config.get("pad_token_id")}
    after, lines = 0, set()
    for r, x in zip(case.responses, case.values):
        stop = next((t for t, i in enumerate(r.ids) if i in ends), len(r.ids))
        extra = len(r.ids) - stop - 1
        pads = len(set(r.ids[stop + 1 :])) == 1 and (r.ids[-1] in padding or extra >= 4)
        if extra > 0 and pads:
            after += extra
            lines.add(r.line)
            x[stop + 1 :] = np.nan
    if after:
        yield Finding(
            "after the end",
            f"{after} tokens stand after the end of their response (padding), in {len(lines)} responses, first in line {min(lines)}",
            "mask the tokens after the first end-of-text id",
            0.0,
            after,
            {"lines": sorted(lines)[:20]},
        )
