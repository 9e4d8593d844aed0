"""GRPO without mismatch: TRL trains a small Qwen3, and a token's log-probability is the same float in sampler, scorer and trainer.

    python zero_mismatch.py [--steps N] [--seeds N] [--picture PICTURE.svg]

A prompt is 2 to 6 digits, "3,9,1>", and a response is right if it is the largest digit and then the end. A warm start teaches the
form of an answer, any digit; GRPO does the rest. TRL's GRPOTrainer runs in four ways from one warm start: with napier.trl, whose
sampler and forward pass are Napier's, in f32 and in bf16 mode; and unchanged, with generate() of transformers, in float32 and in bf16 (mixed precision, TRL's default).

At every step three log-probabilities of every sampled token are compared: the one that it was drawn with, the one of a pass over the
whole text (CausalLM.batch_logprobs), and the one that the trainer differentiates. For Napier the differences must be 0.0, or
the program fails. For transformers it prints the largest one between generate() and the trainer.

Needs torch, transformers, trl, datasets and matplotlib, and a Napier built with its model.
"""
import argparse
import copy
import tempfile
import time
import warnings
from typing import Any

import datasets
import matplotlib.pyplot as plt
import numpy as np
import torch
import transformers
import trl

import napier.trl
from grpo_qwen3 import END, byte_tokenizer

GROUP, BATCH, LENGTH = 8, 64, 4
Run = tuple[list[float], list[float], list[float], float]  # rewards, differences to the trainer and to the scorer; seconds
COLOURS = ("#1565c0", "#26a69a", "#ef6c00", "#c62828")


def make_prompts(count: int = 600) -> list[str]:
    rng = np.random.default_rng(1)
    return [",".join(map(str, rng.integers(10, size=rng.integers(2, 7)))) + ">" for _ in range(count)]


def make_model(tokenizer: Any) -> transformers.Qwen3ForCausalLM:
    end = tokenizer.eos_token_id
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=128, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=64, tie_word_embeddings=True, eos_token_id=end, bos_token_id=None))


def warm_start(model: transformers.Qwen3ForCausalLM, tokenizer: Any, prompts: list[str], steps: int) -> None:
    """Cross-entropy on answers of the right form: any digit, then the end."""
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        texts = [p + str(rng.integers(10)) + END for p in rng.choice(prompts, 64)]
        batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
        labels = batch["input_ids"].clone()
        labels[:, :-2] = -100
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Compared(trl.GRPOTrainer):  # type: ignore[misc]
    """Notes, for each step, how far the trainer's log-probabilities are from those of the sampler, and counts the tokens that differ."""

    apart: list[float]
    scored: list[float]
    tokens = differing = 0

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        results = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self.forward = results[0].detach()
        return results

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        loss = super()._compute_loss(model, inputs)
        apart = (self.forward - inputs["sampling_per_token_logps"])[inputs["completion_mask"].bool()].abs()
        self.apart.append(apart.max().item())
        self.tokens, self.differing = self.tokens + apart.numel(), self.differing + int((apart != 0).sum())
        return loss


class WithNapier(Compared, napier.trl.GRPOTrainer):
    """Compares the sampler with the scorer, too."""

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        ids, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        model = self.rollout.sampler(self)
        scored = model.batch_logprobs(prompt_ids, ids, temperature=self.temperature).logprobs
        self.scored.append(float(np.abs(scored - np.concatenate(logprobs or [], dtype=np.float32)).max()))
        return ids, logprobs


class WithTransformers(Compared):
    """Keeps the log-probabilities that generate() draws with, which TRL discards."""

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        model, found = self.accelerator.unwrap_model(self.model), []
        plain = model.generate

        def generate(**inputs: Any) -> Any:
            out = plain(**inputs, return_dict_in_generate=True, output_scores=True)
            found.append(torch.stack(out.scores, dim=1).float().log_softmax(dim=-1))
            return out.sequences

        model.generate = generate
        try:
            ids, _ = super()._generate_single_turn(*args, **kwargs)
        finally:
            del model.generate
        return ids, [[row[t, i].item() for t, i in enumerate(each)] for row, each in zip(found[0], ids)]


def reward(prompts: list[str], completion_ids: list[list[int]], end: int, digits: dict[str, int], **_: Any) -> list[float]:
    """1 for the largest digit and then the end."""
    return [float(ids == [digits[max(p[:-1].split(","))], end]) for p, ids in zip(prompts, completion_ids)]


def train(kind: Any, start: transformers.Qwen3ForCausalLM, tokenizer: Any, steps: int, folder: str, bf16: bool = False,
          seed: int = 1, **options: Any) -> Run:
    """One run: (rewards, differences to the trainer, differences to the scorer) of each step, and its seconds."""
    end, digits = tokenizer.eos_token_id, {d: tokenizer.encode(d)[0] for d in "0123456789"}
    config = trl.GRPOConfig(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=BATCH, num_generations=GROUP, max_completion_length=LENGTH,
        learning_rate=1e-3, lr_scheduler_type="constant", weight_decay=0.0, bf16=bf16, use_cpu=True, gradient_checkpointing=False,
        report_to="none", save_strategy="no", logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False, seed=seed)

    def right(prompts: list[str], completion_ids: list[list[int]], **others: Any) -> list[float]:
        return reward(prompts, completion_ids, end, digits)

    trainer = kind(model=copy.deepcopy(start), reward_funcs=right, args=config, processing_class=tokenizer,
                   train_dataset=datasets.Dataset.from_dict({"prompt": make_prompts()}), **options)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.apart, trainer.scored = [], []
    begin = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - begin
    return [log["reward"] for log in trainer.state.log_history if "reward" in log], trainer.apart, trainer.scored, seconds


# ---- The picture ---------------------------------------------------------------------------------------------------------------


def smooth(curve: list[float], width: int = 10) -> list[float]:
    return [float(np.mean(curve[max(0, i - width + 1):i + 1])) for i in range(len(curve))]


def draw(runs: dict[str, list[Run]], path: str, width: int = 10) -> None:
    """Rewards on the left; on the right the largest difference of each step. Lines: means of the seeds; areas: all of them."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for (name, some), colour in zip(runs.items(), COLOURS):
        worst = max(max(run[1]) for run in some)
        for axes, curves in ((left, [smooth(run[0], width) for run in some]), (right, [run[1] for run in some])):
            steps = np.arange(1, len(curves[0]) + 1)
            axes.plot(steps, np.mean(curves, axis=0), color=colour, label=f"{name}: at most {worst:.2g}")
            axes.fill_between(steps, np.min(curves, axis=0), np.max(curves, axis=0), color=colour, alpha=0.18, linewidth=0)
    left.set(title=f"mean reward of the last {width} steps", xlabel="step", ylim=(0, 1))
    right.set(title="largest |log p(trainer) - log p(sampler)|", xlabel="step", ylim=(0, 1))
    right.set_yscale("symlog", linthresh=1e-8)
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=1, help="runs of each kind")
    parser.add_argument("--picture", help="an SVG file for the curves")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), eos_token=END, pad_token=END)
    start = make_model(tokenizer)
    warm_start(start, tokenizer, make_prompts(), 100 if arguments.steps > 10 else 20)
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "Napier, f32": (WithNapier, {"compute": "f32"}), "Napier, bf16": (WithNapier, {"compute": "bf16"}),
        "transformers, float32": (WithTransformers, {}), "transformers, bf16": (WithTransformers, {"bf16": True})}
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (kind, options) in kinds.items():
            runs[name] = [train(kind, start, tokenizer, arguments.steps, folder, seed=seed, **options)
                          for seed in range(1, arguments.seeds + 1)]
            begins, ends = ([float(np.mean(rewards[part])) for rewards, *_ in runs[name]] for part in (slice(10), slice(-10, None)))
            apart = max(x for run in runs[name] for x in run[1])
            scored = max((x for run in runs[name] for x in run[2]), default=None)
            spread = f" ({min(ends):.2f} .. {max(ends):.2f})" if arguments.seeds > 1 else ""
            print(f"{name:22} reward {np.mean(begins):.2f} to {np.mean(ends):.2f}{spread}   largest difference to the trainer {apart:.2g}"
                  + (f", to the scorer {scored:.2g}" if scored is not None else "")
                  + f"   {np.mean([run[3] for run in runs[name]]):.0f} s", flush=True)
            if kind is WithNapier:
                assert all(len(run[1]) == len(run[2]) == arguments.steps for run in runs[name])
                assert apart == scored == 0.0, "the sampler, the scorer and the trainer disagree"
    if arguments.picture:
        draw(runs, arguments.picture)


if __name__ == "__main__":
    main()
