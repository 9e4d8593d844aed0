"""GRPO on any number of processes with the same weights:

    python examples/any_number_of_processes.py                                         # one process
    torchrun --nproc-per-node 4 examples/any_number_of_processes.py [--family Llama] [--compute bf16] [--steps N]

in an environment with napier, torch, transformers, trl and datasets. The printed checksum of the weights is the same for 1, 2, 4
and 8 processes. --plain trains without napier.torch.data_parallel, for comparison: then it is not.
"""

import argparse
import hashlib
import os
import tempfile
import warnings
from typing import Any

import datasets
import torch
import transformers
import trl

import napier.torch.data_parallel
import napier.trl
from grpo_qwen3 import END, byte_tokenizer

BATCH = 8  # completions for a step, of all processes


def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [sum(i % 2 for i in ids) / len(ids) for ids in completion_ids]


def make_model(family: str, compute: str, tokenizer: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, family + "Config")(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return getattr(transformers, family + "ForCausalLM")(config).to(torch.bfloat16 if compute == "bf16" else torch.float32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", default="Qwen3")
    parser.add_argument("--compute", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), eos_token=END, pad_token=END)
    model = make_model(args.family, args.compute, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        config = trl.GRPOConfig(
            folder,
            max_steps=args.steps,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=BATCH // processes,
            num_generations=4,
            max_completion_length=12,
            learning_rate=1e-3,
            bf16=False,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            logging_steps=args.steps,
        )
        prompts = datasets.Dataset.from_dict({"prompt": [f"{a}+{b}=" for a in range(10) for b in range(10)]})
        trainer = napier.trl.GRPOTrainer(
            model, reward, args=config, train_dataset=prompts, processing_class=tokenizer, compute=args.compute
        )
        if not args.plain:
            napier.torch.data_parallel.attach(trainer)
        trainer.train()
    weights = b"".join(p.detach().contiguous().view(torch.uint8).numpy().tobytes() for p in model.parameters())
    if rank == 0:
        seconds = trainer.state.log_history[-1]["train_runtime"]
        print(f"{processes} processes, {args.steps} steps, {seconds:.1f} s: weights {hashlib.sha256(weights).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
