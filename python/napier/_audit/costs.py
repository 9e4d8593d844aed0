"""What a mismatch costs a run, in bounded memory: KL, the ratio's quantiles, the effective sample size, the share that a clip cuts."""

import heapq

import numpy as np

EDGES = np.concatenate([-np.geomspace(30, 1e-8, 1500), [0.0], np.geomspace(1e-8, 30, 1500)])
POSITIONS = np.unique(np.concatenate([np.arange(32), np.geomspace(32, 65536, 60)]).astype(int))
LOGPROBS = -np.geomspace(1e-3, 30, 31)[::-1]
WORST = 20


class Costs:
    """The log-ratio of target to source for tokens that the source drew: log r = target - source."""

    def __init__(self, eps=0.2):
        self.eps, self.tokens, self.responses = eps, 0, 0
        self._sum = np.zeros(6)  # log r, log r ^ 2, r - 1 - log r, r, r ^ 2, outside
        self._sequence = np.zeros(2)
        self._bins = np.zeros(len(EDGES) + 1, np.int64)
        self._position = np.zeros((2, len(POSITIONS) + 1))
        self._logprob = np.zeros((2, len(LOGPROBS) + 1))
        self._worst, self._count = [], 0

    def add(self, target, source, of=None):
        d = np.clip(target - source, -30, 30)
        good = np.isfinite(d)
        place, d, lp = np.flatnonzero(good), d[good], np.minimum(target[good], 0)
        if d.size == 0:
            return
        r = np.exp(d)
        self.tokens, self.responses = self.tokens + d.size, self.responses + 1
        self._sum += [d.sum(), (d * d).sum(), (np.expm1(d) - d).sum(), r.sum(), (r * r).sum(), (np.abs(r - 1) > self.eps).sum()]
        w = np.exp(np.clip(d.sum(), -30, 30))
        self._sequence += [w, w * w]
        np.add.at(self._bins, np.searchsorted(EDGES, d), 1)
        for table, bins in ((self._position, np.searchsorted(POSITIONS, place, "right")), (self._logprob, np.searchsorted(LOGPROBS, lp))):
            np.add.at(table[0], bins, np.abs(d))
            np.add.at(table[1], bins, 1)
        if of is not None:
            for k in np.argsort(-np.abs(d), kind="stable")[:WORST]:
                self._count += 1
                item = (abs(float(d[k])), -self._count, int(place[k]), float(target[place[k]]), float(source[place[k]]), of)
                (heapq.heappush if len(self._worst) < WORST else heapq.heappushpop)(self._worst, item)

    def worst(self):
        """(response, place, target, source) of the tokens with the largest ratio, the largest first."""
        return [(of, place, t, s) for _, _, place, t, s, of in sorted(self._worst, key=lambda item: item[:2], reverse=True)]

    def _quantile(self, q):
        k = int(np.searchsorted(np.cumsum(self._bins), q * self.tokens))
        low, high = EDGES[max(k - 1, 0)], EDGES[min(k, len(EDGES) - 1)]
        return float(np.exp((low + high) / 2))

    def result(self):
        n = max(self.tokens, 1)
        s = self._sum
        return {
            "tokens": self.tokens,
            "responses": self.responses,
            "k1": float(-s[0] / n),
            "k2": float(s[1] / 2 / n),
            "k3": float(s[2] / n),
            "ratio": {f"{100 * q:g}%": self._quantile(q) for q in (0.001, 0.01, 0.5, 0.99, 0.999)} if self.tokens else {},
            "outside": float(s[5] / n),
            "eps": self.eps,
            "ess": float(s[3] ** 2 / (n * s[4])) if s[4] else 1.0,
            "ess_sequences": float(self._sequence[0] ** 2 / (max(self.responses, 1) * self._sequence[1])) if self._sequence[1] else 1.0,
        }

    def curves(self):
        """The mean of |log r| by position and by log-probability: lists of [from, mean, tokens]."""
        starts = {"position": np.concatenate([[0], POSITIONS]), "logprob": np.concatenate([[-30.0], LOGPROBS])}
        return {
            name: [[float(a), float(t / n), int(n)] for a, t, n in zip(starts[name], table[0], table[1]) if n]
            for name, table in (("position", self._position), ("logprob", self._logprob))
        }
