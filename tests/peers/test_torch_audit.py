"""napier.audit beside transformers: healthy engines, and the layer in which drift starts."""
import os
import sys

import torch

import napier
import numpy as np
from model_data import checkpoint, make

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import audit_faults  # noqa: E402


def lines(folder, model, count=20, tokens=40, temperature=0.7):
    referee = napier.CausalLM(folder)
    prompts = [np.random.default_rng(i).integers(5, 300, 9).tolist() for i in range(count)]
    made = referee.generate(prompts, max_tokens=tokens, stop=[], temperature=temperature)

    def engine(prompt, ids):
        with torch.no_grad():
            return model(torch.tensor([[*prompt, *ids]])).logits[0].float().numpy()

    fault = audit_faults.Fault((), {"temperature": temperature}, audit_faults.plain)
    ids = [made.token_ids[a:b].tolist() for a, b in zip(made.offsets[:-1], made.offsets[1:])]
    return [audit_faults.line(fault, engine, p, i) for p, i in zip(prompts, ids)]


def test_transformers_is_healthy():
    for family in ("qwen3", "llama"):
        model = make(torch.bfloat16, family=family)
        with checkpoint(model) as folder:
            for dtype, level in ((torch.float32, "float32"), (torch.bfloat16, "bfloat16")):
                report = napier.audit(lines(folder, model.to(dtype)), folder)
                assert report.ok and report.levels["engine"] == level, report.text()


def test_the_layer_in_which_drift_starts():
    ids = list(range(5, 60))
    for dtype in (torch.float32, torch.bfloat16):
        model = make(torch.bfloat16).to(dtype)
        assert napier.audit.layers(model, ids).first is None
        with torch.no_grad():
            states = list(model(torch.tensor([ids]), output_hidden_states=True).hidden_states)
            states[2] = states[2] * (1 + 0.5 * torch.randn_like(states[2]))
        found = napier.audit.layers(model, ids, states)
        assert found.first == 2 and "layer   2" in found.text() and "starts here" in found.text()
