"""Time of a whole GRPO step (sample, reward, train) of TRL's GRPOTrainer: with napier.trl, and with generate() of transformers.

    python bench/python/grpo_step.py [--size tiny large] [--mode f32 bf16 bf16_weights] [--steps 3]

in an environment with napier, torch, trl and datasets.

Random models with float32 weights: tiny (hidden 128, 3 layers, 258 tokens; 64 completions of 16) and large (hidden 512, 8 layers,
151,936 tokens; 16 completions of 24). Prompts have 32 tokens, in groups of 8 completions. bf16: napier's bf16 mode, and TRL's
bf16=True (mixed precision). bf16_weights: a model of bfloat16, for napier with bf16_gradient. The libraries take turns, each in a
process of its own; the first step of each does not count.
Prints the median step, and the largest difference between the log-probabilities of sampler and trainer.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time

PROMPT, GROUP = 32, 8
MODES = ("f32", "bf16", "bf16_weights")
SIZES = {  # width, inner width, layers, vocabulary, completions, tokens of each
    "tiny": (128, 384, 3, 258, 64, 16),
    "large": (512, 1536, 8, 151936, 16, 24),
}


def model_and_tokenizer(size):
    import tokenizers
    import torch
    import transformers

    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate([*letters, "<end>"])}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.add_special_tokens(["<end>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", pad_token="<end>")
    width, inner_width, layers, vocabulary, *_ = SIZES[size]
    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=inner_width,
            num_hidden_layers=layers,
            num_attention_heads=width // 32,
            num_key_value_heads=width // 64,
            head_dim=32,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    ), tokenizer


def run(library, size, mode, steps):
    """The seconds of each step."""
    import warnings
    import datasets
    import numpy as np
    import transformers
    import trl

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    model, tokenizer = model_and_tokenizer(size)
    *_, batch, tokens = SIZES[size]
    seconds, draw = [], np.random.default_rng(0)

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.begin = time.perf_counter()

        def on_step_end(self, *_, **__):
            seconds.append(time.perf_counter() - self.begin)

    def reward(completion_ids, **_):
        return [float(sum(ids) % 7) for ids in completion_ids]

    prompts = ["".join(map(chr, draw.integers(97, 123, PROMPT))) for _ in range(64)]
    kind = trl.GRPOTrainer
    if mode == "bf16_weights":
        model = model.bfloat16()
    if library == "napier":
        import napier.hf
        import napier.trl

        kind = napier.trl.GRPOTrainer
        napier.hf.patch(model, mode.removesuffix("_weights"), bf16_gradient=mode == "bf16_weights")
    with tempfile.TemporaryDirectory() as folder:
        trainer = kind(
            model=model,
            reward_funcs=reward,
            processing_class=tokenizer,
            callbacks=[Clock()],
            train_dataset=datasets.Dataset.from_dict({"prompt": prompts}),
            args=trl.GRPOConfig(
                output_dir=folder,
                max_steps=steps + 1,
                per_device_train_batch_size=batch,
                num_generations=GROUP,
                max_completion_length=tokens,
                learning_rate=1e-5,
                bf16=mode == "bf16" and library == "trl",
                use_cpu=True,
                gradient_checkpointing=False,
                report_to="none",
                save_strategy="no",
                logging_steps=1,
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        apart = [
            log["sampling/sampling_logp_difference/max"]
            for log in trainer.state.log_history
            if "sampling/sampling_logp_difference/max" in log
        ]
    print(json.dumps({"seconds": seconds[1:], "apart": max(apart, default=None)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--library", choices=("napier", "trl"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.library:
        return run(arguments.library, arguments.size[0], arguments.mode[0], arguments.steps)
    for size in arguments.size:
        for mode in arguments.mode:
            median = {}
            for library in ("napier", "trl"):
                done = subprocess.run(
                    [sys.executable, __file__, "--library", library, "--size", size, "--mode", mode, "--steps", str(arguments.steps)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                found = json.loads(done.stdout.splitlines()[-1])
                median[library] = statistics.median(found["seconds"])
                apart = "" if found["apart"] is None else f", log-probabilities off by {found['apart']:.2g}"
                print(f"{size:6} {mode:12} {library:7} {median[library]:8.3f} s a step{apart}", flush=True)
            print(f"{size:6} {mode:12} {median['trl'] / median['napier']:.2f} times as fast", flush=True)


if __name__ == "__main__":
    main()
