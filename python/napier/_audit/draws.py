"""Whether the ids were drawn from the distribution that was declared. Needs no log-probabilities of an engine.

Tokens in the order of falling probability have a cumulative distribution. The randomised probability integral transform of a drawn
token is uniform on [0, 1], and independent of the others', if the distribution is the declared one."""

import math

import numpy as np

from .case import Finding
from .reference import kept, penalised

TOKENS = 20000
WORK = 3_000_000  # tokens times vocabulary, for the likelihoods; but no fewer than 150 tokens
CELLS = 20
TEMPERATURES = np.geomspace(0.25, 2.5, 31)
TOP_P = (0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 1.0)
TOP_K = (1, 2, 5, 10, 20, 40, 50, 64, 100, 200, 0)
SMALLEST = 1e-5  # the p-value below which the declared distribution is rejected


def chi_square_tail(x, k):
    """P(chi-square with k degrees of freedom > x), by the Wilson-Hilferty approximation."""
    z = ((x / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))
    return 0.5 * math.erfc(z / math.sqrt(2))


def _rows(reference, r):
    p = r.parameters
    z = reference.logits(r)[:-1].astype(np.float32)
    for i, b in p["logit_bias"].items():
        z = z.copy()
        z[:, i] += b
    penalties = tuple(p[k] for k in ("repetition_penalty", "presence_penalty", "frequency_penalty"))
    return penalised(z, r.prompt, r.ids, *penalties) if penalties != (1.0, 0.0, 0.0) else z


def _transform(z, ids, temperature, filters, rng):
    """u of each id; NaN where the id cannot be drawn."""
    z = z.astype(np.float64) / temperature
    if filters != (0, 1.0, 0.0):
        z = np.where(kept(z, *filters), z, -np.inf)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    at = np.arange(len(ids))
    mine = p[at, ids]
    before = np.where(p > mine[:, None], p, 0).sum(1)
    tied = (p == mine[:, None]).sum(1)  # among equals the order is that of the random number
    return np.where(mine > 0, before + rng.random(len(ids)) * mine * tied, np.nan)


class _Fit:
    """Log-likelihoods of the ids over temperatures and filters."""

    def __init__(self):
        self.tokens = 0
        self.plain = np.zeros(len(TEMPERATURES))
        self.top_p = np.zeros((len(TEMPERATURES), len(TOP_P)))
        self.top_k = np.zeros((len(TEMPERATURES), len(TOP_K)))

    def add(self, z, ids):
        order = -np.sort(-z, axis=1).astype(np.float64)
        at = np.arange(len(ids))
        mine = z[at, ids].astype(np.float64)
        rank = (z > mine[:, None]).sum(1)
        last = rank + (z == mine[:, None]).sum(1) - 1
        for j, t in enumerate(TEMPERATURES):
            p = np.exp((order - order[:, :1]) / t)
            total = np.cumsum(p, 1)
            mass = total / total[:, -1:]
            lp = (mine - order[:, 0]) / t - np.log(total[:, -1])
            self.plain[j] += lp.sum()
            before = np.where(rank > 0, mass[at, rank - 1], 0.0)
            cells = np.searchsorted(TOP_P, mass) + (len(TOP_P) + 1) * at[:, None]
            below = np.bincount(cells.ravel(), minlength=(len(TOP_P) + 1) * len(ids)).reshape(len(ids), -1).cumsum(1)
            for i, top_p in enumerate(TOP_P):
                if top_p == 1:
                    self.top_p[j, i] += lp.sum()
                    continue
                size = np.minimum(below[:, i], mass.shape[1] - 1)  # ids before the mass exceeds top_p
                inside = before < top_p + 1e-6
                self.top_p[j, i] += np.where(inside, lp - np.log(mass[at, size]), -50.0).sum()
            for i, k in enumerate(TOP_K):
                if k == 0 or k >= z.shape[1]:
                    self.top_k[j, i] += lp.sum()
                else:
                    self.top_k[j, i] += np.where(last < k, lp - np.log(mass[:, k - 1]), np.where(rank < k, lp, -50.0)).sum()
        self.tokens += len(ids)


def _interval(profile, values):
    """The values whose log-likelihood is within 1.92 of the best: 95 %."""
    good = np.flatnonzero(profile >= profile.max() - 1.92)
    return float(values[good[0]]), float(values[good[-1]])


def _vertex(profile, x):
    """The best place of a smooth profile, and the half width of its 95 % interval, from the parabola through three values."""
    k = int(np.clip(np.argmax(profile), 1, len(x) - 2))
    a, b, c = profile[k - 1], profile[k], profile[k + 1]
    h = x[1] - x[0]
    curve = (a - 2 * b + c) / h**2
    if curve >= 0:
        return x[k], h
    return x[k] - (c - a) / (2 * h) / curve, 1.96 / math.sqrt(-curve)


def check(reference, responses, seed=0):
    """(result, finding or None) for the ids of these responses."""
    rng, fit = np.random.default_rng(seed), _Fit()
    u, impossible, tokens = [], 0, 0
    declared = set()
    for r in responses:
        if tokens >= TOKENS:
            break
        z, p = _rows(reference, r), r.parameters
        filters = (p["top_k"], p["top_p"], p["min_p"])
        declared.add((p["temperature"], *filters))
        ids = np.asarray(r.ids)
        some = _transform(z, ids, p["temperature"], filters, rng)
        impossible += int(np.isnan(some).sum())
        u.append(some[~np.isnan(some)])
        tokens += len(ids)
        most = max(150, WORK // z.shape[1]) - fit.tokens
        if most > 0:
            fit.add(z[:most], ids[:most])
    u = np.concatenate(u) if u else np.empty(0)
    result = {"tokens": tokens, "impossible": impossible, "cells": [], "p_value": 1.0}
    if u.size < 5 * CELLS:
        return result, None
    cells = np.histogram(u, CELLS, (0, 1))[0]
    statistic = float(((cells - u.size / CELLS) ** 2).sum() / (u.size / CELLS))
    result |= {"cells": cells.tolist(), "p_value": chi_square_tail(statistic, CELLS - 1)}
    result |= _fitted(fit)
    if result["p_value"] >= SMALLEST and impossible <= 0.002 * tokens:
        return result, None
    what = ", ".join(
        f"temperature {t:g}" + (f" top_k {k}" if k else "") + (f" top_p {q:g}" if q < 1 else "") + (f" min_p {m:g}" if m else "")
        for t, k, q, m in sorted(declared)[:3]
    )
    fits = f"temperature {result['temperature']:.3g} ({result['temperature_interval'][0]:.3g} to {result['temperature_interval'][1]:.3g})"
    if result["top_p"] < 1:
        fits += f", top_p {result['top_p']:g}"
    if result["top_k"]:
        fits += f", top_k {result['top_k']}"
    says = f"the ids were not drawn from the declared distribution ({what}; p = {result['p_value']:.1g}"
    says += f", {impossible} ids outside the kept set" if impossible else ""
    return result, Finding(
        "draws",
        f"{says}): {fits} fits best",
        "check which sampling parameters reached the engine (defaults of generation_config.json count), and that the model is the one",
        0.0,
        tokens,
        {k: result[k] for k in ("p_value", "temperature", "top_p", "top_k")},
    )


def _fitted(fit):
    """The best temperature with its interval, and the filter, if one explains more than its freedom does."""
    x, best = np.log(TEMPERATURES), {"top_p": 1.0, "top_k": 0}
    profile, gain = fit.plain, fit.plain.max() + 6
    for name, values, table in (("top_p", TOP_P, fit.top_p), ("top_k", TOP_K, fit.top_k)):
        j, i = np.unravel_index(np.argmax(table), table.shape)
        if table[j, i] > gain:
            gain, profile, best = table[j, i], table[:, i], {"top_p": 1.0, "top_k": 0, name: values[i]}
            best[name + "_interval"] = _interval(table.max(0), np.array(values, float))
    middle, half = _vertex(profile, x)
    interval = [float(np.exp(middle - half)), float(np.exp(middle + half))]
    return {"temperature": float(np.exp(middle)), "temperature_interval": interval, **best}
