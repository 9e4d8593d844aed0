"""Small random models of every family, RoPE scaling and head against transformers in float32, and bfloat16's error against
transformers' own."""
import json
import os

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from model_data import CONFIG, Model, checkpoint, make

LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64, "rope_theta": 5e5}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1e6}
FINE_YARN = {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "mscale": 0.8, "mscale_all_dim": 0.5, "truncate": False}

EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=40)

MODELS = {
    "qwen3": dict(),
    "qwen3, biases": dict(attention_bias=True),
    "qwen3, YaRN": dict(rope_parameters=YARN),
    "qwen2": dict(family="qwen2"),
    "qwen2, untied, YaRN of its own": dict(family="qwen2", tie_word_embeddings=False, rope_parameters=FINE_YARN),
    "qwen2, attention factor": dict(family="qwen2", rope_parameters={**YARN, "attention_factor": 1.3}),
    "qwen2, no head_dim": dict(family="qwen2", head_dim=None, num_key_value_heads=1),
    "llama": dict(family="llama", num_key_value_heads=None, tie_word_embeddings=False),
    "llama, llama3": dict(family="llama", rope_parameters=LLAMA3),
    "llama, linear": dict(family="llama", rope_parameters=LINEAR, head_dim=None),
    "llama, all biases": dict(family="llama", attention_bias=True, mlp_bias=True),
    "llama, YaRN": dict(family="llama", rope_parameters=YARN),
    "experts": dict(family="qwen3_moe", **EXPERTS, norm_topk_prob=True),
    "experts in two of three layers, shares as they are": dict(family="qwen3_moe", **EXPERTS, mlp_only_layers=[1]),
    "experts in one of three layers, no head_dim": dict(family="qwen3_moe", **EXPERTS, decoder_sparse_step=2, head_dim=None),
    "mistral": dict(family="mistral", sliding_window=None),
    "mistral, window": dict(family="mistral", sliding_window=300),
    "mistral, YaRN": dict(family="mistral", sliding_window=None, rope_parameters=FINE_YARN),
}


def made(dtype=torch.float32, **changes):
    """A model of these changes. Those that are None are left to the configuration class."""
    absent = [key for key, value in changes.items() if value is None and key in CONFIG]
    kept = {key: CONFIG.pop(key) for key in absent}
    try:
        return make(dtype, **{key: value for key, value in changes.items() if key not in absent})
    finally:
        CONFIG.update(kept)


def random_ids(count, seed):
    return np.random.default_rng(seed).integers(0, CONFIG["vocab_size"], count).tolist()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double()


def compare(theirs, mine, ids):
    """The largest differences of logits and of all log-probabilities; argmax must be equal."""
    wanted, got = logits_of(theirs, ids), torch.from_numpy(mine.forward(ids)[1]).double()
    assert (wanted.argmax(-1) == got.argmax(-1)).all(), "another argmax"
    logprobs = [torch.log_softmax(z, -1) for z in (wanted, got)]
    return float((wanted - got).abs().max()), float((logprobs[0] - logprobs[1]).abs().max())


def test_logits():
    worst, ids = [0.0, 0.0], random_ids(300, 1)
    for name, changes in MODELS.items():
        for dtype in (torch.float32, torch.bfloat16):
            model = made(dtype, **changes)
            with checkpoint(model, dtype=dtype) as place:
                mine = Model(place)
                assert mine.info().labels == 0
                errors = compare(model, mine, ids)
            assert max(errors) <= 1e-4, f"{name}, {dtype}: off by {errors[0]:.1e}, {errors[1]:.1e}"
            worst = [max(pair) for pair in zip(worst, errors)]
    return f"{2 * len(MODELS)} models: logits within {worst[0]:.1e}, log-probabilities {worst[1]:.1e}"


def test_old_configs():
    """rope_theta and rope_scaling at the top, as transformers 4 wrote them."""
    for family, rope in (("llama", LLAMA3), ("qwen2", YARN), ("mistral", LINEAR)):
        model = made(family=family, rope_parameters=rope, **({"sliding_window": None} if family == "mistral" else {}))
        with checkpoint(model) as place:
            ids = random_ids(200, 2)
            wanted = Model(place).forward(ids)[1]
            path = os.path.join(place, "config.json")
            config = json.load(open(path, encoding="utf-8"))
            config["rope_theta"] = config["rope_parameters"].pop("rope_theta")
            config["rope_scaling"] = config.pop("rope_parameters")
            config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")
            json.dump(config, open(path, "w", encoding="utf-8"))
            assert (Model(place).forward(ids)[1] == wanted).all(), family


def test_long():
    """Positions where float32's rounding of angles shows, beyond the original context."""
    worst = 0.0
    for family, rope in (("llama", LLAMA3), ("qwen2", YARN)):
        model = made(family=family, rope_parameters=rope, num_hidden_layers=2)
        with checkpoint(model) as place:
            errors = compare(model, Model(place), random_ids(2500, 3))
        assert max(errors) <= 1e-4, f"{family}: off by {errors[0]:.1e}, {errors[1]:.1e}"
        worst = max(worst, *errors)
    return f"2500 positions within {worst:.1e}"


def test_rewards():
    worst = 0.0
    prompts, responses = [random_ids(40, 4), random_ids(7, 5)], [random_ids(n, n) for n in (9, 1, 0, 30)]
    of = [0, 1, 0, 0]
    for name, changes in MODELS.items():
        for labels in (1, 3):
            model = made(labels=labels, **{**changes, "tie_word_embeddings": False})
            with checkpoint(model) as place:
                mine = Model(place)
                assert mine.info().labels == labels
                got = mine.rewards(prompts, responses, of)
                again = mine.forward(prompts[0] + responses[3])[1][-1]
            wanted = np.stack([logits_of(model, prompts[p] + r).numpy() for p, r in zip(of, responses)])
            error = abs(got - wanted).max()
            assert error <= 1e-4, f"{name}, {labels} labels: off by {error:.1e}"
            assert (again == got[3]).all(), f"{name}: other bits than the last logits"
            worst = max(worst, error)
    return f"{2 * len(MODELS)} models within {worst:.1e}"


def test_bf16():
    """bf16's log-probabilities differ from f32's no more than transformers' own do."""
    ids, told = random_ids(300, 8), []
    chosen = torch.tensor(ids[1:])[:, None]

    def of(logits):
        return torch.log_softmax(logits.double(), -1)[:-1].gather(1, chosen)

    for name in ("qwen2", "llama, all biases", "llama, llama3", "mistral, YaRN"):
        model = made(torch.bfloat16, spread=0.4, num_hidden_layers=6, **MODELS[name])
        with checkpoint(model, dtype=torch.bfloat16) as place:
            mine = [of(torch.from_numpy(Model(place, bf16=bf16).forward(ids)[1])) for bf16 in (False, True)]
            rounded = AutoModelForCausalLM.from_pretrained(place, dtype=torch.bfloat16, attn_implementation="eager").eval()
        theirs = [of(logits_of(model, ids)), of(logits_of(rounded, ids))]
        ours, other = [float((pair[1] - pair[0]).abs().mean()) for pair in (mine, theirs)]
        assert ours <= other, f"{name}: mean {ours} and {other}"
        told.append(f"{name} {ours:.4f} against {other:.4f}")
    return "mean " + ", ".join(told)
