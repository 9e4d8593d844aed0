"""The referee: Napier's own log-probabilities of the responses under any state of an engine (temperature, filters, prompt...)."""

import json
import os
import tempfile
from typing import NamedTuple

import numpy as np

from .._lm.causal_lm import CausalLM
from .._napier import matmul
from ..rl import token_logprobs

CACHE = 1 << 30  # bytes of logits that are kept
UNKNOWN = np.nan


class State(NamedTuple):
    """What an engine may have done with the model's logits. The default is what the declared parameters ask for at T = 1."""

    temperature: object = 1.0  # a number, or "declared": of each response
    filters: object = None  # "declared", or (top_k, top_p, min_p): renormalised over what they keep
    penalties: object = None  # "declared", or (repetition, presence, frequency)
    bias: bool = False  # whether logit_bias is applied
    beginning: str = ""  # a change of the prompt
    model: str = ""  # another model
    row: int = 0  # the row of logits that is read: 0 is right
    shift: int = 0  # the place whose value is reported: 0 is right
    prompt: bool = False  # the list begins at the prompt
    divide: object = 1.0  # the log-probability itself is divided by this, or by "declared" temperature
    rounding: str = ""  # "values", "logits", "head": to bfloat16; "values16", "logits16": to float16


def bf16(x):
    """Rounds to bfloat16, to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
    return bits.astype(np.uint32).view(np.float32)


def float16(x):
    """Rounds to float16, to nearest even."""
    return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


def kept(z, top_k, top_p, min_p):
    """The set that the filters keep of rows of logits: top-k first, then top-p of what is left, then min-p."""
    order = np.argsort(-z, axis=1, kind="stable")
    sorted_z = np.take_along_axis(z, order, 1).astype(np.float64)
    p = np.exp(sorted_z - sorted_z[:, :1])
    if 0 < top_k < z.shape[1]:
        p[:, top_k:] = 0
    p /= p.sum(1, keepdims=True)
    keep = p > 0
    if top_p < 1:
        keep &= np.cumsum(p, 1) - p < top_p
    if min_p > 0:
        keep &= p >= min_p * p[:, :1]
    result = np.empty_like(keep)
    np.put_along_axis(result, order, keep, 1)
    return result


def penalised(z, prompt, ids, repetition, presence, frequency):
    """Logits after the penalties: the repetition penalty counts the prompt too, the others only the response."""
    z = z.copy()
    counts = np.zeros(z.shape[1], np.float32)
    seen = np.zeros(z.shape[1], bool)
    seen[prompt] = True
    for t, row in enumerate(z):
        if repetition != 1:
            row[seen] = np.where(row[seen] > 0, row[seen] / repetition, row[seen] * repetition)
        row -= frequency * counts + presence * (counts > 0)
        if t < len(ids):
            seen[ids[t]] = True
            counts[ids[t]] += 1
    return z


class Reference:
    """Log-probabilities of responses under states. Values are kept by what they depend on, so a question asked twice costs once."""

    def __init__(self, model, others=(), memory=CACHE):
        self.model, self._memory, self._used = model, memory, 0
        self._logits, self._values = {}, {}
        self._models = {"": model}
        self.others = {f"weights:{os.fspath(path)}": path for path in others}
        self._folders, self._heads = [], {}

    def config(self):
        if self.model.directory is None:
            return None
        path = os.path.join(self.model.directory, "config.json")
        if not os.path.isfile(path):  # GGUF
            return None
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    @property
    def adapter(self):
        return self.model._options.get("adapter")

    def named(self, name):
        """A model by the name that a state has: '', 'bf16', 'base' (without the adapter), 'weights:DIR' (a checkpoint, or an adapter), or
        'config:' and JSON of changed entries."""
        if name not in self._models:
            folder, adapter, compute = self.model.directory, self.adapter, "float32"
            if name == "bf16":
                compute = "bfloat16"
            elif name == "base":
                adapter = None
            elif name not in self.others:
                folder = self._changed(json.loads(name.removeprefix("config:")))
            elif os.path.isfile(os.path.join(self.others[name], "adapter_config.json")):
                adapter = self.others[name]
            else:
                folder, adapter = self.others[name], None
            self._models[name] = CausalLM(folder, compute=compute, adapter=adapter)
        return self._models[name]

    def _changed(self, changes):
        """A folder with the same weights and another config.json."""
        self._folders.append(tempfile.TemporaryDirectory())
        folder = self._folders[-1].name
        for name in os.listdir(self.model.directory):
            if name != "config.json":
                os.symlink(os.path.join(self.model.directory, name), os.path.join(folder, name))
        config = {k: v for k, v in {**self.config(), **changes}.items() if v is not None}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        return folder

    def prompt(self, r, beginning):
        """The prompt's ids with a changed beginning; as they are where nothing would be left of them."""
        kind, _, value = beginning.partition(":")
        ids = [int(i) for i in value.split(",") if i]
        if kind == "":
            return r.prompt
        if kind == "add":
            return ids + r.prompt
        if kind == "append":
            return r.prompt + ids
        n = ids[0]
        if kind == "drop":
            return r.prompt[:n] + r.prompt[ids[1] :] or r.prompt
        if kind == "pad":  # the id, up to a length
            return [n] * (ids[1] - len(r.prompt)) + r.prompt
        return {"short": r.prompt[:-n], "first": r.prompt[:n], "last": r.prompt[-n:]}[kind] or r.prompt

    def close(self):
        """Drops what is kept, and removes the folders that were made."""
        self._logits, self._values, self._heads, self._models = {}, {}, {}, {"": self.model}
        while self._folders:
            self._folders.pop().cleanup()

    def logits(self, r, beginning="", model="", whole=False):
        """Rows that predict each id of the response, and one more; whole: all rows."""
        key = (id(r), beginning, model, whole)
        z = self._logits.get(key)
        if z is None:
            prompt = self.prompt(r, beginning)
            start = 0 if whole else len(prompt) - 1
            z = self.named(model).forward(prompt + r.ids)[start:]
            if self._used + z.nbytes <= self._memory:
                self._logits[key], self._used = z, self._used + z.nbytes
        return z

    def forget(self, beginning="", model=""):
        """Drops the logits of one kind, which will not be asked for again."""
        for key in [k for k in self._logits if k[1:3] == (beginning, model) and (beginning or model)]:
            self._used -= self._logits.pop(key).nbytes

    def predict(self, r, state):
        """What an engine in this state would report for the response: float64 [T], NaN where nothing can be said."""
        key = (id(r), state)
        if key not in self._values:
            self._values[key] = self._predict(r, state)
        return self._values[key]

    def _predict(self, r, s):
        if s.shift:
            whole, x = self.predict(r, s._replace(shift=0)), np.full(len(r.ids), UNKNOWN)
            n = len(x)
            if s.shift > 0:
                x[: max(n - s.shift, 0)] = whole[s.shift :]
            else:
                x[-s.shift :] = whole[: s.shift]
            return x
        if s.rounding.startswith("values"):
            return (float16 if s.rounding == "values16" else bf16)(self.predict(r, s._replace(rounding=""))).astype(np.float64)
        if s.divide != 1:
            by = r.parameters["temperature"] if s.divide == "declared" else s.divide
            return self.predict(r, s._replace(divide=1.0)) / by
        return self._plain(r, s)

    def _rough_head(self, r, s):
        """Logits of a head whose input is rounded to bfloat16."""
        model = self.named(s.model)
        prompt = self.prompt(r, s.beginning)
        hidden = model.forward(prompt + r.ids, hidden=True, logits=False)[0][len(prompt) - 1 : -1]
        if s.model not in self._heads:
            self._heads[s.model] = bf16(model.head()).T
        return matmul(bf16(hidden), self._heads[s.model])

    def _plain(self, r, s):
        temperature = r.parameters["temperature"] if s.temperature == "declared" else s.temperature
        n = len(r.ids)
        if s.prompt:
            z, ids = self.logits(r, s.beginning, s.model, whole=True)[:-1], (r.prompt + r.ids)[1:]
            return _logprobs(z[:n], ids[:n], temperature)
        z = self.logits(r, s.beginning, s.model)
        if s.row:
            x = np.full(n, UNKNOWN)
            rows = np.arange(n) + s.row
            good = (rows >= 0) & (rows < len(z))
            x[good] = _logprobs(z[rows[good]], np.asarray(r.ids)[good], temperature)
            return x
        z = z[:-1]
        if s.rounding == "head":
            z = self._rough_head(r, s)
        if s.rounding:
            z = (float16 if s.rounding == "logits16" else bf16)(z)
        if s.bias and r.parameters["logit_bias"]:
            z = z.copy()
            for i, b in r.parameters["logit_bias"].items():
                if 0 <= i < z.shape[1]:
                    z[:, i] += b
        penalties = s.penalties
        if penalties == "declared":
            penalties = tuple(r.parameters[k] for k in ("repetition_penalty", "presence_penalty", "frequency_penalty"))
        if penalties not in (None, (1.0, 0.0, 0.0)):
            z = penalised(z, r.prompt, r.ids, *penalties)
        filters = s.filters
        if filters == "declared":
            filters = tuple(r.parameters[k] for k in ("top_k", "top_p", "min_p"))
        if filters in (None, (0, 1.0, 0.0)):
            return _logprobs(z, r.ids, temperature)
        keep = kept(z / temperature, *filters)
        mine = keep[np.arange(n), r.ids]
        x = np.full(n, -np.inf)  # an id outside cannot have been drawn from this set
        x[mine] = _logprobs(z[mine], np.asarray(r.ids)[mine], temperature, keep[mine])
        return x


def _logprobs(z, ids, temperature, keep=None):
    if len(z) == 0:
        return np.empty(0)
    options = {} if keep is None else {"keep": keep}
    z = np.ascontiguousarray(z, np.float32)
    return np.asarray(token_logprobs(z, np.asarray(ids, np.int64), temperature=float(temperature), **options).logprobs, np.float64)
