"""napier.trl under TRL's GRPOTrainer: sampler and trainer agree on every token, with filters, a reference model, several updates for a
generation and both ways to plug it in; samples depend on seed and step alone; what is not supported is refused by name."""
import collections
import copy
import importlib
import os
import subprocess
import sys
import tempfile
import types
import unittest.mock
import warnings

import datasets
import torch
import transformers
import trl

import napier
import napier.hf
import napier.trl
from support import raises

warnings.filterwarnings("ignore")
END, WORDS = 3, 40


class Letters(transformers.PreTrainedTokenizerFast):
    """A token for each of 36 letters, and an end."""

    def __init__(self):
        import tokenizers
        names = ["<pad>", "<unk>", "<s>", "<end>", *"abcdefghijklmnopqrstuvwxyz0123456789"]
        inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({n: i for i, n in enumerate(names)}, "<unk>"))
        inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
        super().__init__(tokenizer_object=inner, eos_token="<end>", pad_token="<pad>", unk_token="<unk>")


def model_of(kind="Qwen3"):
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, max_position_embeddings=64, eos_token_id=END, bos_token_id=None)
    return getattr(transformers, f"{kind}ForCausalLM")(config)


def reward(completion_ids, **_):
    return [float(sum(i % 2 for i in ids)) / len(ids) for ids in completion_ids]


class Kept:
    """Keeps what was sampled, and compares it with the trainer's old log-probabilities or, without any, with its forward pass."""

    def _generate(self, prompts):
        made = super()._generate(prompts)
        self.made = getattr(self, "made", []) + [(made[1], made[4])]
        self.prompts = made[0]
        return made

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        results = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self.forward = results[0].detach()
        return results

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        old = inputs.get("old_per_token_logps", self.forward)
        mask = inputs["completion_mask"].bool()
        assert torch.equal(old[mask], inputs["sampling_per_token_logps"][mask])
        return loss


class Ours(Kept, napier.trl.GRPOTrainer):
    pass


class Theirs(Kept, trl.GRPOTrainer):
    pass


def run(kind, steps=3, model=None, more=(), resume=None, **options):
    options = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 7, "learning_rate": 1e-2, "seed": 5,
               "bf16": False, **options}
    with tempfile.TemporaryDirectory() as temporary:
        folder, model = options.pop("output_dir", temporary), model or model_of()
        adapter = hasattr(model, "peft_config") or "peft_config" in dict(more)
        if options.get("beta") and not adapter:  # TRL loads the reference from files
            model.save_pretrained(folder)
            model = type(model).from_pretrained(folder)
        trainer = kind(model=model, reward_funcs=reward, processing_class=Letters(), **dict(more),
                       train_dataset=datasets.Dataset.from_dict({"prompt": 4 * ["ab", "cde", "x", "hello7", "a1b2c3", "zz"]}),
                       args=trl.GRPOConfig(output_dir=folder, max_steps=steps, use_cpu=True, report_to="none",
                                           save_strategy="steps" if "save_steps" in options else "no", logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False,
                                           **{"gradient_checkpointing": False, **options}))
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train(resume_from_checkpoint=resume)
    return trainer


CASES = [
    {}, {"temperature": 0.7}, {"temperature": 1.3, "top_p": 0.8, "top_k": 20, "min_p": 0.01, "repetition_penalty": 1.2},
    {"num_iterations": 2, "beta": 0.1, "loss_type": "grpo"}, {"steps_per_generation": 4, "gradient_accumulation_steps": 2},
    {"importance_sampling_level": "sequence", "off_policy_mask_threshold": 0.5, "gradient_checkpointing": True}, {"bf16": True},
    {"generation_kwargs": {"presence_penalty": 0.5, "max_new_tokens": 5}, "mask_truncated_completions": True}]


def test_sampler_and_trainer_agree():
    for compute in ("f32", "bf16"):
        for case in CASES:
            trainer = run(Ours, more={"compute": compute}.items(), **case)
            logs = [log for log in trainer.state.log_history if "loss" in log]
            for kind, wanted in (("sampling_logp_difference/mean", 0), ("sampling_logp_difference/max", 0),
                                 ("importance_sampling_ratio/min", 1), ("importance_sampling_ratio/mean", 1),
                                 ("importance_sampling_ratio/max", 1)):
                assert len(logs) == 3 and all(log[f"sampling/{kind}"] == wanted for log in logs), (compute, case, kind)
            lengths = [len(ids) for completions, _ in trainer.made for ids in completions]
            limit = case.get("generation_kwargs", {}).get("max_new_tokens", trainer.max_completion_length)
            assert 1 <= min(lengths) and max(lengths) == limit


def test_rollout_for_the_trainer_of_trl():
    """rollout_func needs no vLLM. The model is patched, so TRL's own trainer has the sampler's bits."""
    for compute in ("f32", "bf16"):
        given = run(Theirs, model=napier.hf.patch(model_of(), compute), more={"rollout_func": napier.trl.Rollout()}.items())
        assert given.made == run(Ours, more={"compute": compute}.items()).made


def run_with_reference(kind, model, trainer_kind=trl.GRPOTrainer, **options):
    """A trainer of TRL after a step with a reference model, and the greatest |kl| that it logged."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        model = type(model).from_pretrained(folder)
        if kind is not None:
            napier.hf.patch(model, kind)
        config = {trl.GRPOTrainer: trl.GRPOConfig, trl.RLOOTrainer: trl.RLOOConfig, trl.DPOTrainer: trl.DPOConfig,
                  trl.KTOTrainer: trl.KTOConfig}[trainer_kind]
        sampled = trainer_kind in (trl.GRPOTrainer, trl.RLOOTrainer)
        data = {"prompt": 4 * ["ab", "cde"]}
        if trainer_kind is trl.DPOTrainer:
            data.update(chosen=8 * ["xyz"], rejected=8 * ["12"])
        elif trainer_kind is trl.KTOTrainer:
            data.update(completion=8 * ["xyz"], label=4 * [True, False])
        given = {"num_generations": 4, "max_completion_length": 7, "reward_funcs": reward} if sampled else {}
        given.update(options)
        more = {name: given.pop(name) for name in ("reward_funcs", "rollout_func", "ref_model") if name in given}
        trainer = trainer_kind(model=model, processing_class=Letters(), train_dataset=datasets.Dataset.from_dict(data), **more,
                               args=config(output_dir=folder, max_steps=1, use_cpu=True, report_to="none", bf16=False,
                                           save_strategy="no", logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False,
                                           per_device_train_batch_size=4, gradient_checkpointing=False, beta=0.1, **given))
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        return trainer


def logged(trainer, name):
    return [log[name] for log in trainer.state.log_history if name in log][0]


def test_reference_models_follow():
    """The divergence between equal weights is 0, in TRL's own trainers too, whose reference model patch does not see."""
    for compute in ("f32", "bf16"):
        trainer = run_with_reference(compute, model_of(), loss_type="grpo")
        assert logged(trainer, "kl") == 0 and trainer.ref_model.model._napier.mode.compute == compute
        sampled = run_with_reference(compute, model_of(), rollout_func=napier.trl.Rollout(compute))
        assert logged(sampled, "kl") == 0
        trainer = run_with_reference(compute, model_of(), trl.RLOOTrainer)
        assert logged(trainer, "kl") == 0
        for kind in (trl.DPOTrainer, trl.KTOTrainer):  # equal log-probabilities: rewards of 0
            trainer = run_with_reference(compute, model_of(), kind)
            assert napier.hf.is_patched(trainer.ref_model) and logged(trainer, "rewards/chosen") == 0, kind
    # another mode, and none, of the model later
    napier.hf.patch(trainer.model, "f32")
    trainer.evaluate(trainer.train_dataset)
    assert trainer.ref_model.model._napier.mode.compute == "f32"
    napier.hf.unpatch(trainer.model)
    trainer.evaluate(trainer.train_dataset)
    assert not napier.hf.is_patched(trainer.ref_model)


def test_reference_models_that_cannot_follow():
    raises(NotImplementedError, "precompute_ref_log_probs", lambda: run_with_reference(
        "f32", model_of(), trl.DPOTrainer, precompute_ref_log_probs=True, ref_model=model_of()))
    run_with_reference("f32", model_of(), trl.DPOTrainer, precompute_ref_log_probs=True, ref_model=napier.hf.patch(model_of()))
    other = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=1, n_head=2))
    raises(NotImplementedError, "ref_model: model: cannot patch a GPT2LMHeadModel",
           lambda: run_with_reference("f32", model_of(), trl.DPOTrainer, ref_model=other))


def test_a_trainer_that_is_imported_after_patch():
    """transformers.trainer changes when it is imported, which may be late."""
    code = ("import sys, napier.hf\nassert 'transformers.trainer' not in sys.modules\nimport transformers.trainer as t\n"
            "assert hasattr(t.Trainer.train, '__wrapped__') and t.Trainer.__module__ == 'transformers.trainer'\n"
            "assert napier.hf._Finder not in sys.meta_path")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_models_and_evaluation():
    for kind in ("Qwen2", "Llama"):
        run(Ours, model=model_of(kind), steps=1)
    trainer = run(Ours, steps=1, num_generations_eval=2, per_device_eval_batch_size=4)
    found = trainer.evaluate(datasets.Dataset.from_dict({"prompt": ["ab", "q"]}))
    assert found["eval_sampling/sampling_logp_difference/max"] == 0


def test_samples_depend_on_seed_and_step():
    one, again, other = run(Ours).made, run(Ours).made, run(Ours, seed=6, data_seed=5).made
    assert one == again and one[0] != one[1] and one[0][0] != other[0][0]
    # prompts in another order, and without groups: a completion depends on its prompt and its number
    trainer = run(Ours, steps=1)
    ids = [[4, 5], [6], [4, 5], [7, 8, 9]]
    trainer.rollout._place = None
    whole = trainer.rollout.complete(ids, trainer)
    trainer.rollout._place = None
    assert trainer.rollout.complete(ids[:2], trainer) == ([x for x in whole[0][:2]], [x for x in whole[1][:2]])


    # each process has numbers of its own, with any number of prompts
    with unittest.mock.patch.object(type(trainer.accelerator), "process_index", 1):
        trainer.rollout._place = None
        second = trainer.rollout.complete(ids, trainer)
        trainer.rollout._place = None
        assert trainer.rollout.complete(ids[:2], trainer) == (second[0][:2], second[1][:2])
        assert second[0] != whole[0]


def test_options_of_generation_apply():
    """With top_k=1 the completions are those that generate takes greedily, as long as max_new_tokens lets them be."""
    for compute, mode in (("f32", "float32"), ("bf16", "bfloat16")):
        start = model_of()
        greedy = napier.CausalLM.from_model(copy.deepcopy(start), compute=mode)
        trainer = run(Ours, steps=1, model=start, more={"compute": compute}.items(),
                      generation_kwargs={"top_k": 1, "max_new_tokens": 4, "temperature": 1.0})
        wanted = greedy.generate(trainer.prompts, temperature=0, max_tokens=4, stop=trainer.eos_token_ids)
        bounds = list(zip(wanted.offsets[:-1], wanted.offsets[1:]))
        assert trainer.made[0][0] == [wanted.token_ids[a:b].tolist() for a, b in bounds]
        assert max(len(ids) for ids in trainer.made[0][0]) == 4


def test_a_run_that_is_resumed():
    with tempfile.TemporaryDirectory() as folder:
        whole = run(Ours, steps=4, save_steps=2, output_dir=folder)
        again = run(Ours, steps=4, save_steps=2, output_dir=folder, resume=os.path.join(folder, "checkpoint-2"))
        assert len(again.made) == 2 and again.made == whole.made[2:]


def test_the_mode_of_a_model_that_is_patched():
    wanted = run(Ours, steps=1, more={"compute": "bf16"}.items()).made
    trainer = run(Ours, steps=1, model=napier.hf.patch(model_of(), "bf16"))
    assert trainer.model.model._napier.mode.compute == "bf16" and trainer.made == wanted
    trainer = run(Ours, steps=1, model=napier.hf.patch(model_of().bfloat16(), "bf16", bf16_gradient=True))
    assert trainer.model.model._napier.mode == ("bf16", True)
    trainer = run(Ours, steps=1, model=napier.hf.patch(model_of(), "bf16"), more={"compute": "f32"}.items())
    assert trainer.model.model._napier.mode.compute == "f32" and trainer.made != wanted


def difference(others, mask, forward):
    """What a process logs, where the others gather these rows."""
    gathered = []

    def gather(x):
        gathered.append(x)
        return torch.cat([x, *others])

    self = types.SimpleNamespace(_forward_logps=forward, accelerator=types.SimpleNamespace(gather=gather),
                                 model=types.SimpleNamespace(training=True), _metrics={"train": collections.defaultdict(list)})
    napier.trl.GRPOTrainer._log_difference(self, {"sampling_per_token_logps": torch.zeros(2, 2), "completion_mask": mask})
    assert len(gathered) == 1 and gathered[0].shape == (1, 6)
    return gathered[0], dict(self._metrics["train"])


def test_every_process_gathers():
    """A process without tokens gathers as often as one with tokens, and does not count. A NaN of a token does."""
    none, some, apart = torch.zeros(2, 2).long(), torch.tensor([[1, 1], [0, 1]]), torch.tensor([[0.5, -1.0], [9.0, 0.0]])
    empty, metrics = difference([], none, apart)
    assert metrics == {}
    row, alone = difference([], some, apart)
    assert alone["sampling/sampling_logp_difference/mean"] == [0.5] and alone["sampling/sampling_logp_difference/max"] == [1.0]
    for kind in ("min", "mean", "max"):
        ratio = getattr(torch.tensor([0.5, -1.0, 0.0]).exp(), kind)().item()
        assert alone[f"sampling/importance_sampling_ratio/{kind}"] == [ratio]
    assert difference([empty], some, apart)[1] == difference([row], none, apart)[1] == alone
    assert difference([empty], none, apart)[1] == {}
    assert all(x != x for [x] in difference([row], some, apart * torch.nan)[1].values())


def test_refusals():
    raises(ValueError, "compute", lambda: napier.trl.Rollout("f64"))
    raises(ValueError, "compute", lambda: run(Ours, more={"compute": "f64"}.items()))
    for temperature in (0.0, -1.0, float("inf")):
        raises(ValueError, f"temperature: {temperature}; ", lambda t=temperature: run(Ours, temperature=t))
        raises(ValueError, f"temperature: {temperature}; ", lambda t=temperature: run(
            Theirs, model=napier.hf.patch(model_of()), temperature=t, more={"rollout_func": napier.trl.Rollout()}.items()))
    raises(ValueError, "model: not patched", lambda: run(Theirs, more={"rollout_func": napier.trl.Rollout()}.items()))
    for compute, other in (("f32", "bf16"), ("bf16", "f32")):
        raises(ValueError, f"compute: {compute!r}, but the model is patched in {other!r}", lambda c=compute, o=other: run(
            Theirs, model=napier.hf.patch(model_of(), o), more={"rollout_func": napier.trl.Rollout(c)}.items()))
    raises(ValueError, "generation_kwargs: num_beams is not supported", lambda: run(Ours, generation_kwargs={"num_beams": 2}))
    raises(ValueError, "generation_kwargs: temperature is 0.5, but the trainer computes log-probabilities at 0.7",
           lambda: run(Ours, temperature=0.7, generation_kwargs={"temperature": 0.5}))
    for name in ("use_vllm", "use_transformers_continuous_batching", "cast_lm_head_to_fp32"):
        raises(ValueError, f"{name}: ", lambda name=name: run(Ours, **{name: True}))
    raises(ValueError, "cast_lm_head_to_fp32: ", lambda: run(Theirs, model=napier.hf.patch(model_of()), cast_lm_head_to_fp32=True,
                                                             more={"rollout_func": napier.trl.Rollout()}.items()))
    raises(NotImplementedError, "ref_model: lm_head: the module has a forward method of its own", lambda: run_with_reference(
        "f32", model_of(), cast_lm_head_to_fp32=True))


def test_another_trl():
    with unittest.mock.patch.object(trl, "GRPOTrainer", type("GRPOTrainer", (), {"_compute_loss": None})):
        raises(ImportError, (f"TRL {trl.__version__}", "_generate_single_turn"), lambda: importlib.reload(napier._lm.grpo_trainer))
