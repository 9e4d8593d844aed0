"""napier.audit.layers: the first layer whose hidden states differ by more than their precision explains."""

import json
from typing import Any, NamedTuple

import numpy as np

from .._lm.causal_lm import CausalLM, _config_json  # type: ignore[attr-defined]
from .._ops.layers import rms_norm


class Layers(NamedTuple):
    """What layers found: the relative difference after each layer (root of the mean square), what the precision explains there, and the
    first layer beyond it, from 1, or None."""

    differences: list
    noise: list
    first: int | None

    def text(self) -> str:
        """A line a layer, with a bar on a logarithmic scale from 1e-8 to 1."""
        lines = []
        for k, (d, n) in enumerate(zip(self.differences, self.noise), 1):
            bar = "#" * int(np.clip(5 * (np.log10(max(d, 1e-8)) + 8), 0, 40))
            mark = "  <- the drift starts here" if k == self.first else ""
            lines.append(f"layer {k:3}  {d:8.1e} (noise {n:8.1e})  {bar}{mark}")
        return "\n".join(lines) + "\n"


def layers(model: Any, ids: Any, states: Any = None) -> Layers:
    """Where drift starts: hidden states after each layer beside Napier's own forward pass with the same weights.

    Parameters
    ----------
    model : a model of transformers on the CPU, whose weights are used in place
    ids : one sequence
    states : hidden states [N, H] after the embedding and after each layer, the last one after the last norm, as output_hidden_states
        gives them; of another engine, perhaps. Default: those of `model`

    Precision is that of the states: what Napier's pass in bfloat16 differs by, or 2^-16 of it for float32; a layer is named beyond eight
    times that. Layers lie below each other: a fault in one shows in all that follow.
    """
    import torch

    ids = [int(i) for i in ids]
    if states is None:
        with torch.no_grad():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    exact = [_array(s, len(ids)) for s in states]
    coarse = any(str(getattr(s, "dtype", "")).endswith(("bfloat16", "float16")) for s in states)
    config, weights = json.loads(_config_json(model.config)), model.state_dict()
    config["architectures"] = [type(model).__name__]
    count = config["num_hidden_layers"]
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
        noise.append(float(np.sqrt(np.mean((rough - mine).astype(np.float64) ** 2))) / size * (1 if coarse else 2.0**-16))
    first = next((k for k, (d, n) in enumerate(zip(differences, noise), 1) if not d <= 8 * n + 1e-6), None)
    return Layers(differences, noise, first)


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
