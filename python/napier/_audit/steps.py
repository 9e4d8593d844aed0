"""The steps within a layer: each from the engine's own inputs, in float64, so that a fault shows in its step and in no other."""

import numpy as np

from .reference import bf16

LINEAR = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "output": "self_attn.o_proj"}
LINEAR |= {"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
NORMS = {"norm": "input_layernorm", "q norm": "self_attn.q_norm", "k norm": "self_attn.k_norm", "norm 2": "post_attention_layernorm"}
STEPS = (
    "norm",
    "q",
    "k",
    "v",
    "q norm",
    "k norm",
    "cos",
    "sin",
    "attention",
    "output",
    "norm 2",
    "gate",
    "up",
    "down",
    "router",
    "experts",
    "sum",
)


def _narrow(x):
    return bf16(x).astype(np.float64)


def _silu(x):
    return x / (1 + np.exp(-np.clip(x, -700, None)))


class Steps:
    """What each step of a layer should give; `angles` are the cosines and sines of the positions."""

    def __init__(self, config, weights, angles):
        self._config, self._weights, self._angles = config, weights, angles

    def judge(self, layer, states):
        """{step: (difference, noise)}, relative, of the steps of a layer (from 0) whose inputs and result are among the states."""
        found = {}
        for step in STEPS:
            try:
                exact = self._step(step, layer, states, lambda x: x)
            except KeyError:
                continue
            rough, size = self._step(step, layer, states, _narrow), _size(exact) or 1.0
            found[step] = _size(states[step].reshape(exact.shape) - exact) / size, _size(rough - exact) / size
        return found

    def _weight(self, layer, name):
        return np.asarray(self._weights[f"model.layers.{layer}.{name}"].float().numpy(), np.float64)

    def _step(self, step, layer, states, narrow):
        s = {name: states[name] for name in (step, *self._inputs(step, states))}  # KeyError: the engine did not say
        if step in ("cos", "sin"):
            return narrow(self._angles[step == "sin"])
        if step in LINEAR:
            x = s[self._inputs(step, s)[0]] if step != "down" else narrow(narrow(_silu(s["gate"])) * s["up"])
            y, bias = x @ self._weight(layer, LINEAR[step] + ".weight").T, f"model.layers.{layer}.{LINEAR[step]}.bias"
            return narrow(y + self._weight(layer, LINEAR[step] + ".bias") if bias in self._weights else y)
        if step in NORMS:
            return self._norm(layer, step, s, narrow)
        if step == "attention":
            return self._attention(s, narrow)
        if step == "router":
            return narrow(s["norm 2"] @ self._weight(layer, "mlp.gate.weight").T)
        if step == "experts":
            return self._experts(layer, s, narrow)
        return narrow(narrow(s["input"] + s["output"]) + s[self._inputs(step, states)[-1]])

    def _inputs(self, step, states):
        last = "experts" if "experts" in states else "down"
        heads = [name + " norm" if name + " norm" in states else name for name in "qk"]
        return {
            "norm": ["input"], "q": ["norm"], "k": ["norm"], "v": ["norm"], "q norm": ["q"], "k norm": ["k"], "cos": [], "sin": [],
            "attention": [*heads, "v", "cos", "sin"], "output": ["attention"], "norm 2": ["input", "output"], "gate": ["norm 2"],
            "up": ["norm 2"], "down": ["gate", "up"], "router": ["norm 2"], "experts": ["norm 2", "router"], "sum": ["input", "output", last],
        }[step]  # fmt: skip

    def _norm(self, layer, step, s, narrow):
        weight = self._weight(layer, NORMS[step] + ".weight")
        x = narrow(s["input"] + s["output"]) if step == "norm 2" else s[{"norm": "input"}.get(step, step[0])]
        x = x.reshape(len(x), -1, len(weight))
        x = narrow(x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self._config.get("rms_norm_eps", 1e-6)))
        return narrow(weight * x).reshape(len(x), -1)

    def _attention(self, s, narrow):
        cos, sin = (s[name][:, None, : s[name].shape[1] // 2] for name in ("cos", "sin"))
        dim = 2 * cos.shape[-1]

        def heads(name):
            return (s[name + " norm"] if name + " norm" in s else s[name]).reshape(len(cos), -1, dim)

        def rotated(x):
            a, b = x[..., : dim // 2], x[..., dim // 2 :]
            return np.concatenate([narrow(narrow(a * cos) - narrow(b * sin)), narrow(narrow(b * cos) + narrow(a * sin))], -1)

        q, k, v = rotated(heads("q")), rotated(heads("k")), heads("v")
        later = np.triu(np.ones((len(q), len(q)), bool), 1)
        window = self._config.get("sliding_window") if self._config.get("use_sliding_window", True) else None
        if window:
            later |= np.tril(np.ones_like(later), -window)
        result = np.empty_like(q)
        for h in range(q.shape[1]):
            own = h * k.shape[1] // q.shape[1]
            z = np.where(later, -np.inf, narrow(narrow(q[:, h] @ k[:, own].T) * dim**-0.5))
            p = np.exp(z - z.max(1, keepdims=True))
            result[:, h] = narrow(narrow(p / p.sum(1, keepdims=True)) @ v[:, own])
        return result.reshape(len(q), -1)

    def _experts(self, layer, s, narrow):
        """The experts that the engine's own logits choose."""
        count = self._config["num_experts_per_tok"]
        both, down = (self._weight(layer, f"mlp.experts.{name}") for name in ("gate_up_proj", "down_proj"))
        p = np.exp(s["router"] - s["router"].max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        result = np.zeros((len(p), down.shape[1]))
        for row, (x, share) in enumerate(zip(s["norm 2"], p)):
            best = np.argsort(-share, kind="stable")[:count]
            share = share[best] / (share[best].sum() if self._config.get("norm_topk_prob", True) else 1.0)
            for e, w in zip(best, narrow(share)):
                gate, up = np.split(narrow(both[e] @ x), 2)
                result[row] = narrow(result[row] + narrow(w * narrow(down[e] @ narrow(narrow(_silu(gate)) * up))))
        return result


def _size(x):
    return float(np.sqrt(np.mean(x * x)))


def record(model, ids):
    """The hidden states of a model of transformers, and of each layer a dict of what its steps gave."""
    import torch

    layers, held = [{} for _ in model.model.layers], []

    def keep(module, place, name, before=False):
        def hook(_, inputs, keywords, *output):
            x = inputs[0] if inputs else keywords["hidden_states"]
            x = x if before else output[0]
            x = x[0] if isinstance(x, tuple) else x
            place[name] = np.asarray(x.detach().float().numpy(), np.float64).reshape(len(ids), -1)

        register = module.register_forward_pre_hook if before else module.register_forward_hook
        held.append(register(hook, with_kwargs=True))

    def angles(place):
        def hook(_, inputs, keywords):
            cos, sin = keywords["position_embeddings"]
            place["cos"], place["sin"] = (np.asarray(x[0].detach().float().numpy(), np.float64) for x in (cos, sin))

        return hook

    for layer, place in zip(model.model.layers, layers):
        keep(layer, place, "input", True)
        keep(layer, place, "sum")
        for step, name in {**LINEAR, **NORMS}.items():
            module = layer
            for part in name.split("."):
                module = getattr(module, part, None)
            if module is not None:
                keep(module, place, step)
        keep(layer.self_attn.o_proj, place, "attention", True)
        held.append(layer.self_attn.register_forward_pre_hook(angles(place), with_kwargs=True))
        if hasattr(layer.mlp, "experts"):
            keep(layer.mlp.gate, place, "router")
            keep(layer.mlp, place, "experts")
    try:
        with torch.no_grad():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    finally:
        for hook in held:
            hook.remove()
    return states, layers
