"""napier.audit.layers: the first layer, and the first step in it, that differs by more than its precision explains."""

import json
import os
from typing import Any, NamedTuple

import numpy as np

from .._lm.causal_lm import CausalLM, _config_json  # type: ignore[attr-defined]
from .._ops.layers import rms_norm, rotary_angles
from .case import float32_noise
from .steps import STEPS, Steps, record


class Layers(NamedTuple):
    """What layers found: the relative difference after each layer (root of the mean square), what the precision explains there, and the
    first layer beyond it, from 1, or None; of each layer {step: (difference, noise)}, and the first (layer, step) beyond it, or None."""

    differences: list
    noise: list
    first: int | None
    steps: list = []
    first_step: tuple | None = None

    def text(self) -> str:
        """A line a layer, with a bar on a logarithmic scale from 1e-8 to 1, and the steps of the layer in which the drift starts."""
        lines = [_line(f"layer {k:3}", d, n, k == self.first) for k, (d, n) in enumerate(zip(self.differences, self.noise), 1)]
        at = self.first_step[0] if self.first_step else self.first
        if at is not None and self.steps and self.steps[at - 1]:
            lines += ["", f"steps of layer {at}, each from the inputs that it was given"]
            lines += [_line(f"{step:9}", d, n, self.first_step == (at, step)) for step, (d, n) in self.steps[at - 1].items()]
        return "\n".join(lines) + "\n"


def _line(name, d, n, starts):
    bar = "#" * int(np.clip(5 * (np.log10(max(d, 1e-8)) + 8), 0, 40))
    return f"{name}  {d:8.1e} (noise {n:8.1e})  {bar}{'  <- the drift starts here' if starts else ''}"


def layers(model: Any, ids: Any, states: Any = None) -> Layers:
    """Where drift starts: hidden states after each layer beside Napier's own forward pass with the same weights, and each step of a layer
    beside float64.

    Parameters
    ----------
    model : a model of transformers on the CPU, whose weights are used in place
    ids : one sequence
    states : what another engine computed; default: `model` itself, with its steps
        Hidden states [N, H] after the embedding and after each layer, the last one after the last norm, as output_hidden_states gives
        them; or a path of .safetensors or .npz, or a dict, with these as `hidden.0`, `hidden.1` ..., and with the steps that are known as
        `layers.1.q`, `layers.1.attention` ...

    Steps are norm, q, k, v, q norm, k norm, cos, sin (of the rotation), attention (before its output matrix), output, norm 2, gate, up, down,
    router, experts, and sum (after the layer). Each is judged from the inputs that it was given, so that a fault shows in its own step.

    Precision is that of the states: what bfloat16 differs by, or a share of it for float32; a layer or step is named beyond eight times
    that. Layers lie below each other: a fault in one shows in all that follow.
    """
    ids = [int(i) for i in ids]
    config, weights = json.loads(_config_json(model.config)), model.state_dict()
    config["architectures"] = [type(model).__name__]
    count = config["num_hidden_layers"]
    if states is None:
        states, inner = record(model, ids)
    else:
        states, inner = _saved(states, count, len(ids))
    exact = [_array(s, len(ids)) for s in states]
    coarse = any(str(getattr(s, "dtype", "")).endswith(("bfloat16", "float16")) for s in states)
    scale = 1 if coarse else float32_noise([config["hidden_size"], config["intermediate_size"]])
    if len(exact) != count + 1:
        raise ValueError(f"states: {len(exact)}; expected {count + 1}: after the embedding and after each of {count} layers")
    norm, eps = weights["model.norm.weight"].float().numpy(), config.get("rms_norm_eps", 1e-6)
    differences, noise = [], []
    for k in range(1, count + 1):
        theirs = exact[k] if k == count else np.asarray(rms_norm(exact[k], norm, epsilon=eps))
        mine, rough = (
            _first(config, weights, k, compute).forward(ids, hidden=True, logits=False)[0] for compute in ("float32", "bfloat16")
        )
        size = float(np.sqrt(np.mean(mine.astype(np.float64) ** 2))) or 1.0
        differences.append(float(np.sqrt(np.mean((theirs - mine).astype(np.float64) ** 2))) / size)
        noise.append(float(np.sqrt(np.mean((rough - mine).astype(np.float64) ** 2))) / size * scale)
    first = next((k for k, (d, n) in enumerate(zip(differences, noise), 1) if _beyond(d, n)), None)
    judge, found = Steps(config, weights, _angles(model.config, len(ids))), []
    for k, place in enumerate(inner, 1):
        found.append({step: (d, n * scale) for step, (d, n) in judge.judge(k - 1, place).items()})
    starts = next(((k, step) for k, some in enumerate(found, 1) for step, (d, n) in some.items() if _beyond(d, n)), None)
    return Layers(differences, noise, first, found, starts)


def _beyond(difference, noise):
    return not difference <= 8 * noise + 1e-6


def _angles(config, tokens):
    """Cosines and sines [N, dim] of the positions, as transformers has them: both halves alike."""
    from ..hf import _frequencies

    inverse, scale = _frequencies(config)
    return [np.concatenate([np.asarray(x, np.float64)] * 2, 1) for x in rotary_angles(np.arange(tokens), inverse.numpy(), scale)]


def _saved(states, count, tokens):
    """The hidden states of a list, a dict or a file, and of each layer what is known of its steps."""
    if isinstance(states, (str, bytes)) or hasattr(states, "__fspath__"):
        if os.fsdecode(states).endswith(".npz"):
            with np.load(states) as file:
                states = dict(file)
        else:
            from safetensors.torch import load_file

            states = load_file(os.fsdecode(states))
    if not hasattr(states, "keys"):
        return list(states), []
    hidden = [states[f"hidden.{k}"] for k in range(count + 1) if f"hidden.{k}" in states]
    inner = []
    for k in range(1, count + 1):
        known = {"input": f"hidden.{k - 1}", **({"sum": f"hidden.{k}"} if k < count else {})}
        known.update((step, f"layers.{k}.{step}") for step in ("input", *STEPS) if f"layers.{k}.{step}" in states)
        inner.append({step: _array(states[name], tokens).astype(np.float64) for step, name in known.items() if name in states})
    return hidden, inner


def _array(state, tokens):
    x = np.asarray(state.detach().float().numpy() if hasattr(state, "detach") else state, np.float32)
    if x.size % tokens:
        raise ValueError(f"states: {x.shape}; expected [{tokens}, hidden]")
    return np.ascontiguousarray(x.reshape(tokens, -1))


def _first(config, weights, count, compute):
    """The model's first layers, the last norm and the head."""
    config = {**config, "num_hidden_layers": count}
    if config.get("layer_types"):
        config["layer_types"] = config["layer_types"][:count]
    kept = {n: w for n, w in weights.items() if ".layers." not in n or int(n.split(".layers.")[1].split(".")[0]) < count}
    return CausalLM.from_state_dict(config, kept, compute=compute)
