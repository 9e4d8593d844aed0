"""The same sequence more than once with other numbers: the engine's results depend on the batch, or change from run to run."""

import numpy as np

from ..case import Finding


class Repeats:
    """Sees all responses; remembers the first numbers of at most `most` of them."""

    def __init__(self, most=20000):
        self._first, self._most, self.pairs = {}, most, {}

    def add(self, r):
        for name, x in r.engines.items():
            key = (name, r.key, tuple(r.parameters[k] for k in ("temperature", "top_p", "top_k")))
            first = self._first.get(key)
            if first is None:
                if len(self._first) < self._most:
                    self._first[key] = (r.line, x.astype(np.float32))
            else:
                d = np.abs(first[1] - x.astype(np.float32))
                d = d[np.isfinite(d)]
                count = self.pairs.setdefault(name, [0, 0, 0, 0.0, None])
                count[0] += 1
                count[1] += int((d > 0).sum())
                count[2] += d.size
                if d.size and d.max() > count[3]:
                    count[3], count[4] = float(d.max()), (first[0], r.line)

    def findings(self, name):
        if name in self.pairs:
            pairs, other, tokens, most, lines = self.pairs[name]
            if other:
                yield Finding(
                    "repeats",
                    f"{pairs} responses stand in the file twice or more, and {other} of their {tokens} tokens have other numbers, by up to "
                    f"{most:.2g} nats (lines {lines[0]} and {lines[1]})",
                    "the engine's sums depend on the batch, or are not deterministic: use its batch-invariant kernels",
                    0.0,
                    other,
                    {"largest": most, "lines": lines},
                )
