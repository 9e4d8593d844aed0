"""LoRA adapters of peft. Their values and gradients against peft's own; sampler, scorer and trainer agree bit for bit, also under TRL's
trainer; an adapter from files gives the bits of the one in memory; everything but plain LoRA is refused by name."""
import json
import os
import pickle
import tempfile
import warnings

import peft
import torch

import napier
import napier.hf
from support import raises
from test_torch_trl import WORDS, Ours, model_of, run

warnings.filterwarnings("ignore")
FAMILIES = ("Qwen3", "Qwen2", "Llama", "Mistral")
MODES = {"f32": "float32", "bf16": "bfloat16"}
IDS = torch.randint(4, WORDS, (3, 12), generator=torch.Generator().manual_seed(3))
MASK = torch.ones_like(IDS)
MASK[0, :3] = 0


def with_adapter(model, **options):
    """The model within a PeftModel, whose B are not 0 as they are at first."""
    made = peft.get_peft_model(
        model, peft.LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **options}))
    torch.manual_seed(2)
    for name, x in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(x, std=0.3)
    return made


def logits_of(model):
    return model(IDS, attention_mask=MASK, use_cache=False).logits


def gradients(model, weights):
    """The logits, and the gradients of a weighted sum of them."""
    logits = logits_of(model)
    model.zero_grad()
    (logits * weights * MASK[..., None]).sum().backward()
    return logits.detach(), {name: x.grad for name, x in model.named_parameters() if x.grad is not None}


def same(sampler, logits):
    return bool((sampler.forward(IDS[1].numpy()) == logits[1].detach().numpy()).all())


def test_values_and_gradients_are_those_of_peft():
    weights, worst = torch.randn(3, 12, WORDS, generator=torch.Generator().manual_seed(4)), 0.0
    for family in FAMILIES:
        model = with_adapter(model_of(family), use_rslora=family == "Llama")
        model.base_model.model.model.layers[0].mlp.up_proj.base_layer.weight.requires_grad_()  # trained beside the adapter
        theirs, wanted = gradients(model, weights)
        assert napier.hf.patch(model) is model and napier.hf.is_patched(model)
        ours, found = gradients(model, weights)
        assert found.keys() == wanted.keys() and len(found) == 2 * 2 * 7 + 1
        worst = max(worst, ((ours - theirs) * MASK[..., None]).abs().max().item())
        for name, x in wanted.items():
            assert (found[name] - x).norm() <= 1e-4 * x.norm(), (family, name)
        napier.hf.unpatch(model)
        assert torch.equal(gradients(model, weights)[0], theirs)
    assert worst < 1e-5, worst
    return f"logits within {worst:.1e}"


def test_sampler_has_the_bits_of_the_patched_model():
    for family in FAMILIES:
        for dtype in (torch.float32, torch.bfloat16):
            model = with_adapter(model_of(family).to(dtype))
            for mode, compute in MODES.items():
                napier.hf.patch(model, mode)
                sampler = napier.CausalLM.from_model(model, compute=compute)
                logits = logits_of(model)
                assert same(sampler, logits)
                found = napier.hf.token_logprobs(model, IDS[1:2], None, 5)[0].detach().numpy()
                assert (found == sampler.logprobs_for(IDS[1, :7].tolist(), IDS[1, 7:].tolist())).all()
                with model.disable_adapter():
                    sampler.update()
                    assert same(sampler, logits_of(model)) and not torch.equal(logits_of(model), logits)
                model.add_adapter("other", model.peft_config["default"])
                model.set_adapter("other")
                sampler.update()
                assert same(sampler, logits_of(model)) and not torch.equal(logits_of(model), logits)
                model.set_adapter("default")
                model.delete_adapter("other")
            unpatched = napier.hf.unpatch(model)
            sampler.update()
            assert unpatched is model and (sampler.forward(IDS[1].numpy()) == logits[1].detach().numpy()).all()


def test_adapter_without_a_peft_model():
    """Layers that peft puts into a model, after patch."""
    model = napier.hf.patch(model_of("Llama"))
    peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False), model)
    raises(NotImplementedError, "patch the model again", lambda: logits_of(model))
    napier.hf.patch(model)
    assert same(napier.CausalLM.from_model(model), logits_of(model))


def test_adapter_from_files():
    for family, dtype, options in (
            ("Llama", torch.float32, {}), ("Qwen2", torch.float32, {"target_modules": ["q_proj", "v_proj"]}),
            ("Qwen3", torch.bfloat16, {"use_rslora": True, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"down_proj": 3}})):
        with tempfile.TemporaryDirectory() as folder:
            base, files = os.path.join(folder, "base"), os.path.join(folder, "adapter")
            model = model_of(family).to(dtype)
            model.save_pretrained(base, max_shard_size="20KB" if family == "Llama" else "5GB")
            model = with_adapter(model, **options)
            model.save_pretrained(files)
            for compute in MODES.values():
                loaded, memory = napier.CausalLM.from_pretrained(base, adapter=files, compute=compute), napier.CausalLM.from_model(model, compute=compute)
                wanted = memory.forward(IDS[1].numpy())
                assert (loaded.forward(IDS[1].numpy()) == wanted).all()
                assert (pickle.loads(pickle.dumps(loaded)).forward(IDS[1].numpy()) == wanted).all()
                assert (napier.CausalLM(base, compute=compute).forward(IDS[1].numpy()) != wanted).any()
            spoil(base, files)


def spoil(base, files):
    """Files that say something else are refused by name."""
    path = os.path.join(files, "adapter_config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    for name, value in (("use_dora", True), ("bias", "all"), ("peft_type", "LOHA"), ("init_lora_weights", "pissa"), ("not_known_yet", 1),
                        ("fan_in_fan_out", True), ("modules_to_save", ["lm_head"]), ("layer_replication", [[0, 1]])):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**config, name: value}, file)
        raises(NotImplementedError, name, lambda: napier.CausalLM.from_pretrained(base, adapter=files))
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**config, "r": 3, "rank_pattern": {}}, file)
    raises(ValueError, "do not fit rank 3", lambda: napier.CausalLM.from_pretrained(base, adapter=files))


def test_no_mismatch_under_trl():
    """With a new adapter, and with a reference that is the base model, or a copy of the adapter."""
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    for compute in MODES:
        for case in ({}, {"beta": 0.1, "num_iterations": 2, "loss_type": "grpo"}, {"gradient_checkpointing": True}):
            for model, more in ((model_of(), {"peft_config": config}), (with_adapter(model_of()), {})):
                if "beta" in case and not more:
                    case = {**case, "num_iterations": 1}
                trainer = run(Ours, model=model, more={"compute": compute, **more}.items(), **case)
                logs = [log for log in trainer.state.log_history if "loss" in log]
                assert len(logs) == 3 and all(log["sampling/sampling_logp_difference/max"] == 0 for log in logs), (compute, case)
                assert "beta" not in case or logs[0]["kl"] == 0
                trained = napier.hf.unpatch(trainer.accelerator.unwrap_model(trainer.model)).unload()  # without the adapter
                assert all(torch.equal(x, y) for x, y in zip(trained.parameters(), model_of().parameters(), strict=True))


def test_what_is_not_plain_lora_is_refused():

    def refused(name, kind=napier.hf.patch, **options):
        model = with_adapter(model_of("Llama"), **options)
        before = dict(model.state_dict())
        raises(NotImplementedError, name, lambda: kind(model))
        assert not napier.hf.is_patched(model) and before.keys() == model.state_dict().keys()

    for kind in (napier.hf.patch, napier.CausalLM.from_model):
        refused("use_dora", kind, use_dora=True)
        refused("bias", kind, bias="all")
        refused("lora_bias", kind, lora_bias=True)
        refused("modules_to_save", kind, modules_to_save=["lm_head"])
        refused("embed_tokens", kind, target_modules=["embed_tokens", "q_proj"])
        refused("lm_head", kind, target_modules=["lm_head"])
        for config in (peft.IA3Config(task_type="CAUSAL_LM", target_modules=["k_proj"], feedforward_modules=[]),
                       peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)):
            raises(NotImplementedError, "peft_type", lambda: kind(peft.get_peft_model(model_of(), config)))
        merged = with_adapter(model_of())
        merged.merge_adapter()
        raises(NotImplementedError, "merged", lambda: kind(merged))
    refused("lora_dropout", lora_dropout=0.1)
    raises(NotImplementedError, "bf16_gradient", lambda: napier.hf.patch(with_adapter(model_of().bfloat16()), "bf16", bf16_gradient=True))
    napier.CausalLM.from_model(with_adapter(model_of("Llama"), lora_dropout=0.1))  # it has no effect on samples
