"""napier.trl under TRL's GRPOTrainer: sampler and trainer agree on every token, with filters, a reference model, several updates for a
generation and both ways to plug it in; samples depend on seed and step alone; what is not supported is refused by name."""
import tempfile
import warnings

import datasets
import torch
import transformers
import trl

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


def run(kind, steps=3, model=None, more=(), **options):
    options = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 7, "learning_rate": 1e-2, "seed": 5,
               "bf16": False, **options}
    with tempfile.TemporaryDirectory() as folder:
        model = model or model_of()
        if options.get("beta"):  # TRL loads the reference from files
            model.save_pretrained(folder)
            model = type(model).from_pretrained(folder)
        trainer = kind(model=model, reward_funcs=reward, processing_class=Letters(), **dict(more),
                       train_dataset=datasets.Dataset.from_dict({"prompt": 4 * ["ab", "cde", "x", "hello7", "a1b2c3", "zz"]}),
                       args=trl.GRPOConfig(output_dir=folder, max_steps=steps, use_cpu=True, report_to="none", save_strategy="no",
                                           logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False,
                                           **{"gradient_checkpointing": False, **options}))
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
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
            assert 1 <= min(lengths) and max(lengths) <= trainer.max_completion_length


def test_rollout_for_the_trainer_of_trl():
    """rollout_func needs no vLLM. The model is patched, so TRL's own trainer has the sampler's bits."""
    for compute in ("f32", "bf16"):
        given = run(Theirs, model=napier.hf.patch(model_of(), compute), more={"rollout_func": napier.trl.Rollout()}.items())
        assert given.made == run(Ours, more={"compute": compute}.items()).made


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


def test_refusals():
    raises(ValueError, "compute", lambda: napier.trl.Rollout("f64"))
    raises(ValueError, "compute", lambda: run(Ours, more={"compute": "f64"}.items()))
    raises(ValueError, "generation_kwargs: num_beams is not supported", lambda: run(Ours, generation_kwargs={"num_beams": 2}))
    raises(ValueError, "temperature", lambda: run(Ours, generation_kwargs={"temperature": -1.0}))
