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


def causes(report):
    return [f.cause for f in report.findings["engine"] if f.fault]


def judged(engine, reference, count=20, tokens=40, **options):
    """The causes that are named where `engine` reports the numbers, beside the reference's folder."""
    report = napier.audit(lines(reference, engine, count, tokens, 1.0), napier.CausalLM(reference, **options))
    return causes(report), report.text()


def test_a_window_that_the_reference_has_not():
    engine = make(family="mistral", sliding_window=24)
    with checkpoint(make(family="mistral", sliding_window=None)) as folder:
        found, text = judged(engine, folder)
        assert found in (["positions"], ["blocks"]) and "begins at position 25" in text, text


def test_positions_that_drift_apart():
    engine = make(rope_theta=9000.0)
    with checkpoint(make(rope_theta=10000.0)) as folder:
        found, text = judged(engine, folder, 20, 120)
        assert found == ["positions"] and "grows with the position" in text, text


def test_a_router_in_bfloat16():
    experts = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48, decoder_sparse_step=1, norm_topk_prob=True)
    engine = make(family="qwen3_moe", **experts)
    with checkpoint(engine) as folder:
        for layer in engine.model.layers:
            layer.mlp.gate.weight.data = layer.mlp.gate.weight.data.bfloat16().float()
        found, text = judged(engine, folder, 40, 60)
        assert found == ["experts"], text


def test_the_head_in_bfloat16():
    engine = make(torch.bfloat16)
    with checkpoint(engine) as folder:
        head = engine.lm_head.weight.data.bfloat16()
        engine.lm_head.forward = lambda h: (h.bfloat16() @ head.T).float()
        found, text = judged(engine, folder)
        assert found == ["precision"] and "the head ran in bfloat16" in text, text


def test_an_adapter_that_was_not_merged():
    import peft

    base = make(family="llama")
    with checkpoint(base) as folder, checkpoint(base) as other:
        made = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
        for name, x in made.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(x, std=0.1)
        made.save_pretrained(other + "/adapter")
        with made.disable_adapter():
            found, text = judged(made, folder, adapter=other + "/adapter")
        assert found == ["weights"] and "without its adapter" in text, text
        report = napier.audit(lines(folder, made, 20, 40, 1.0), folder, others=[other + "/adapter"])
        assert causes(report) == ["weights"], report.text()
