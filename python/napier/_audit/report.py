"""The result of an audit: in plain words, as JSON, as a page."""

import json
from typing import Any

from .case import CAP, level as level_of
from .page import page


class Report:
    """What an audit found.

    Attributes
    ----------
    findings : dict of engine to list of findings, the best explanation first; each has cause, says, mend, share, tokens, evidence
    draws : the finding about the ids themselves, or None
    ok : whether no cause was found
    """

    def __init__(self, run, findings, cases, floors, drawn, draws):
        self.findings, self.draws, self.floors, self.drawn = findings, draws, floors, drawn
        self._run = run
        self.levels = {name: level_of(case) for name, case in cases.items()}
        self.residuals = {name: case.size() for name, case in cases.items()}
        self.costs = {name: cost.result() for name, cost in run.costs.items()}
        self.pairs = {pair: cost.result() for pair, cost in run.pairs.items()}

    @property
    def ok(self) -> bool:
        return self.draws is None and not any(f.fault for some in self.findings.values() for f in some)

    def __repr__(self):
        return f"<audit of {self._run.seen} responses: {'agreement' if self.ok else 'causes found'}>"

    def __str__(self):
        return self.text()

    # ---- Plain words ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The report in plain words."""
        run = self._run
        lines = [f"{run.seen} responses, {run.tokens} tokens, beside {run.model!r}", ""]
        for name, found in self.findings.items():
            lines += self._engine(name, found) + [""]
        for (a, b), cost in self.pairs.items():
            lines.append(f"{b} against {a}: {_cost(cost)}")
        lines += ["", *self._draws(), "", _floors(self.floors)]
        return "\n".join(lines).replace("\n\n\n", "\n\n").strip() + "\n"

    def verdict(self, name):
        """One sentence about an engine."""
        found = [f for f in self.findings[name] if f.fault]
        if not found:
            kind = self.levels[name]
            if kind == "float32":
                return "agrees with the reference to rounding of float32"
            return f"differs from the reference by what {kind} costs, and no more" if kind else "no cause found"
        causes = ", ".join(dict.fromkeys(f.cause for f in found))
        if any(f.cause == "unexplained" for f in found):
            return f"differs: {causes}"
        kind = self.levels[name]
        rest = "rounding of float32" if kind == "float32" else f"what {kind} costs"
        return f"differs: {causes}" + (f"; with that it agrees, to {rest}" if kind else "")

    def _engine(self, name, found):
        lines = [f"{name}: {self.verdict(name)}."]
        for i, f in enumerate(found, 1):
            share = f" ({100 * f.share:.1f} % of the difference)" if 0 < f.share < 1 else ""
            lines += [f"  {i}. {f.cause}: {f.says}{share}.", f"     Mend: {f.mend}."]
        lines.append(f"  Cost: {_cost(self.costs[name])}")
        worst = self.worst(name)[:5] if any(f.fault for f in found) else []
        if worst:
            lines.append("  The worst tokens (line, token: reference, reported):")
            for w in worst:
                lines.append(f"    {w['line']}, {w['place'] + 1}: {w['reference']:.3f}, {w['reported']:.3f}  {w['before']}[{w['token']}]")
        return lines

    def _draws(self):
        d = self.drawn
        if self.draws is not None:
            return [f"draws: {self.draws.says}.", f"  Mend: {self.draws.mend}."]
        if not d["cells"]:
            return [f"draws: {d['tokens']} tokens are too few to test the distribution they were drawn from."]
        low, high = d["temperature_interval"]
        return [f"draws: the ids fit the declared distribution (p = {d['p_value']:.2g}; T by likelihood: {low:.3f} to {high:.3f})."]

    # ---- Machines ---------------------------------------------------------------------------------------------------

    def worst(self, name):
        """The twenty tokens with the largest ratio, in their text."""
        return [self._worst(*item) for item in self._run.costs[name].worst()]

    def _worst(self, r, place, reference, reported):
        show, space = self._show, " " if self._run.model.tokenizer is None else ""
        return {
            "line": r.line,
            "place": place,
            "id": r.ids[place],
            "reference": reference,
            "reported": max(reported, -CAP * 1000),
            "before": show(r.ids[max(0, place - 8) : place]) + space,
            "token": show(r.ids[place : place + 1]),
            "after": space + show(r.ids[place + 1 : place + 6]),
        }

    def _show(self, ids):
        if self._run.model.tokenizer is None:
            return " ".join(map(str, ids))
        return json.dumps(self._run.model.tokenizer.decode(ids), ensure_ascii=False)[1:-1] if ids else ""

    def data(self) -> dict:
        """The report as dicts and lists."""
        run = self._run
        engines = {
            name: {
                "verdict": self.verdict(name),
                "findings": [f._asdict() for f in found],
                "residual": dict(zip(("median", "mean"), self.residuals[name])),
                "explained_to": self.levels[name],
                "cost": self.costs[name],
                "curves": run.costs[name].curves(),
                "worst": self.worst(name),
            }
            for name, found in self.findings.items()
        }
        return {
            "ok": self.ok,
            "expect": run.expect,
            "model": {"directory": run.model.directory, **run.model.info},
            "responses": run.seen,
            "tokens": run.tokens,
            "noise": self.floors,
            "engines": engines,
            "pairs": [{"source": a, "target": b, "cost": cost} for (a, b), cost in self.pairs.items()],
            "draws": {**self.drawn, "finding": None if self.draws is None else self.draws._asdict()},
        }

    def json(self) -> str:
        """The report as JSON."""
        return json.dumps(_plain(self.data()), ensure_ascii=False, indent=1, allow_nan=False)

    def html(self, path: Any = None) -> str | None:
        """The report as one HTML page, which needs no network. Writes it to path, or returns it."""
        text = page(_plain(self.data()))
        if path is None:
            return text
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return None


def _plain(value):
    """A value of JSON's types: numbers of NumPy become Python's, and what JSON has no number for becomes null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _cost(c):
    return (
        f"k1 {c['k1']:.3g}, k2 {c['k2']:.3g}, k3 {c['k3']:.3g}; {100 * c['outside']:.2g} % of the tokens outside "
        f"[{1 - c['eps']:g}, {1 + c['eps']:g}]; effective sample {100 * c['ess']:.3g} % of the tokens, {100 * c['ess_sequences']:.3g} % of the "
        "responses."
    )


def _floors(f):
    return (
        f"Noise of this model on this text, by its own two passes: {f['bfloat16']:.2g} nats at the median token in bfloat16 "
        f"(1 % above {f['bfloat16_99']:.2g}), {f['float32']:.1g} in float32."
    )
