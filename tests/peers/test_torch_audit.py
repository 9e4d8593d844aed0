"""napier.audit beside transformers: healthy engines, and the layer in which drift starts."""
import os
import sys
import tempfile

import torch
from safetensors.torch import save_file

import napier
import numpy as np
from model_data import checkpoint, make
from napier._audit.steps import LINEAR, NORMS, record
from support import raises

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


EXPERTS = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48, decoder_sparse_step=1, norm_topk_prob=True)


def test_the_step_in_which_drift_starts():
    """Each step of the second layer is named where it errs, in float32 and bfloat16, and none where no step does."""
    ids, count = list(range(5, 30)), 0
    for family, dtype in (("qwen3", torch.float32), ("qwen3_moe", torch.bfloat16)):
        model = make(torch.bfloat16, family=family, **(EXPERTS if "moe" in family else {})).to(dtype)
        healthy = napier.audit.layers(model, ids)
        assert healthy.first_step is None and len(healthy.steps) == 3 and "step" not in healthy.text(), healthy.text()
        layer, size = model.model.layers[1], 1e-2 if dtype == torch.float32 else 0.2
        for step in healthy.steps[1] if family == "qwen3" else ("norm", "router", "experts", "sum"):
            name = {**LINEAR, **NORMS, "sum": "", "router": "mlp.gate", "experts": "mlp.experts"}.get(step)
            if name is not None:
                hook = layer.get_submodule(name).register_forward_hook(lambda _, x, y: change(y, size))
                found = napier.audit.layers(model, ids)
                hook.remove()
                assert found.first_step == (2, step) and f"{step:9}" in found.text().split("steps of layer 2")[1], (family, step, found.text())
                count += 1
        layer.self_attn.scaling *= 1 + size
        assert napier.audit.layers(model, ids).first_step == (2, "attention")
        layer.self_attn.scaling /= 1 + size
        model.model.rotary_emb.inv_freq *= 1 + size
        assert napier.audit.layers(model, ids).first_step == (1, "cos")
    return f"{count + 4} faults"


def change(y, size):
    if isinstance(y, tuple):  # of a router: logits, shares, experts
        return (y[0] * (1 + size), *y[1:])
    return y * (1 + size)


def test_the_states_of_another_engine():
    """From a file of safetensors or NumPy, or a dict; with steps that are known."""
    ids, model = list(range(5, 40)), make(torch.bfloat16)
    for dtype in (torch.float32, torch.bfloat16):
        with tempfile.TemporaryDirectory() as place:
            hidden, inner = record(model.to(dtype), ids)
            hidden, inner[2]["up"] = list(hidden), inner[2]["up"] * 1.5
            hidden[2] = hidden[2] + 0.5 * torch.randn_like(hidden[2])
            states = {f"hidden.{k}": x[0].clone() for k, x in enumerate(hidden)}
            states |= {f"layers.{k}.{step}": torch.tensor(x).to(dtype) for k, some in enumerate(inner, 1) for step, x in some.items()}
            save_file(states, place + "/states.safetensors")
            np.savez(place + "/states.npz", **{name: x.float().numpy() for name, x in states.items()})
            found = napier.audit.layers(model, ids, place + "/states.safetensors")
            assert (found.first, found.first_step) == (2, (3, "up")), found.text()
            assert napier.audit.layers(model, ids, states) == found
            if dtype == torch.float32:
                assert napier.audit.layers(model, ids, place + "/states.npz") == found
            few = {name: x for name, x in states.items() if "layers" not in name or "v" in name.split(".") or name.endswith("1.norm")}
            assert [*napier.audit.layers(model, ids, few).steps[0]] == ["norm", "v"]
    raises(ValueError, "states: 1; expected 4", lambda: napier.audit.layers(model, ids, {"hidden.0": hidden[0]}))


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
    engine = make(family="qwen3_moe", **EXPERTS)
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
