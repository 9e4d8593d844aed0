"""GRPO end to end on a small Qwen3: it learns which of two digits is larger, by reward alone.

    python grpo_qwen3.py [--steps N] [--curve CURVE.svg]

PyTorch trains, Napier samples and scores, with the same weights in memory. The model has Qwen3's shape with 2 layers and a
tokenizer of bytes; a prompt is "3,9>", a response is right if it is the larger digit and then the end. A warm start teaches the
form of an answer (any digit), so that a tenth of the answers are right by chance; GRPO does the rest. Napier's C forward pass
samples the answers, with the log-probabilities that they were drawn with, and scores them by the reference (the warm start) for
the KL penalty. The loss and its gradient are napier.torch's. Rewards are printed, and drawn if a file is named.

Needs torch and transformers, and a Napier built with its model (cJSON, PCRE2, utf8proc).
"""

import argparse
import copy
from typing import Iterable

import numpy as np
import tokenizers
import torch
import transformers

import napier
import napier.torch
from grpo_toy import draw

PROMPTS = [f"{a},{b}>" for a in range(10) for b in range(10)]
END = "<|im_end|>"
GROUP, BATCH, UPDATES, BETA = 8, 32, 2, 0.01


def byte_tokenizer() -> tokenizers.Tokenizer:
    """Bytes in, bytes out: a byte-level BPE without merges, behind Qwen's normal form."""
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(sorted(letters))}, []))
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\p{N}|\p{L}+|[^\p{L}\p{N}]+"), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    return tokenizer


def small_qwen3(tokenizer: tokenizers.Tokenizer) -> transformers.Qwen3ForCausalLM:
    end = tokenizer.token_to_id(END)
    config = transformers.Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        eos_token_id=end,
        bos_token_id=None,
    )
    return transformers.Qwen3ForCausalLM(config)


def encode(tokenizer: tokenizers.Tokenizer, texts: Iterable[str]) -> torch.Tensor:
    return torch.tensor([tokenizer.encode(t).ids for t in texts])


def warm_start(model: transformers.Qwen3ForCausalLM, tokenizer: tokenizers.Tokenizer, rng: np.random.Generator, steps: int = 150) -> None:
    """Cross-entropy on answers of the right form: any digit, then the end."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        texts = [p + str(rng.integers(10)) + END for p in rng.choice(PROMPTS, 64)]
        ids = encode(tokenizer, texts)
        loss = torch.nn.functional.cross_entropy(model(ids).logits[:, 3:-1].flatten(0, 1), ids[:, 4:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def reward(prompt: str, response: list[int], tokenizer: tokenizers.Tokenizer) -> float:
    right = max(prompt[0], prompt[2])
    return float(tokenizer.decode(response, skip_special_tokens=False) == right + END)


def policy_logprobs(model: transformers.Qwen3ForCausalLM, prompts: torch.Tensor, responses: list[list[int]], end: int) -> torch.Tensor:
    """Log-probabilities of the responses' tokens, one after another, with their gradients."""
    padded = torch.tensor([r + [end] * (2 - len(r)) for r in responses])
    logits = model(torch.cat([prompts, padded], dim=1)).logits[:, prompts.shape[1] - 1 : -1]
    there = torch.tensor([[True, len(r) > 1] for r in responses])
    return napier.torch.token_logprobs(logits[there].float(), padded[there]).logprobs


def train(steps: int, seed: int = 0) -> list[float]:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    tokenizer = byte_tokenizer()
    end = tokenizer.token_to_id(END) or 0
    model = small_qwen3(tokenizer)
    warm_start(model, tokenizer, rng)
    policy, reference = (napier.CausalLM.from_model(m, tokenizer=tokenizer) for m in (model, copy.deepcopy(model)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    curve, apart = [], 0.0
    for step in range(steps):
        questions = rng.choice(PROMPTS, BATCH)
        drawn = policy.generate(questions.tolist(), samples=GROUP, max_tokens=2, seed=step)
        texts = questions.repeat(GROUP)
        old, offsets = torch.from_numpy(drawn.logprobs), torch.from_numpy(drawn.offsets)
        responses = [ids.tolist() for ids in np.split(drawn.token_ids, drawn.offsets[1:-1])]
        rewards = torch.tensor([reward(t, r, tokenizer) for t, r in zip(texts, responses)])
        curve.append(rewards.mean().item())
        groups = rewards.view(BATCH, GROUP)
        advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()
        ref = torch.from_numpy(reference.batch_logprobs(texts.tolist(), responses).logprobs)
        for update in range(UPDATES):
            logprobs = policy_logprobs(model, encode(tokenizer, texts), responses, end)
            if update == 0:
                apart = (logprobs.detach() - old).abs().max().item()
            loss, metrics = napier.torch.grpo_loss(logprobs, advantages, offsets, old_logprobs=old, ref_logprobs=ref, beta=BETA)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        policy.update()
        if step % 20 == 0 or step == steps - 1:
            print(
                f"step {step:4d}  mean reward {curve[-1]:.2f}  {'#' * round(50 * curve[-1])}  (C and PyTorch at most {apart:.1e} apart)",
                flush=True,
            )
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--curve", help="an SVG file for the reward curve")
    arguments = parser.parse_args()
    curve = train(arguments.steps)
    smooth = [float(np.mean(curve[max(0, i - 9) : i + 1])) for i in range(len(curve))]
    if arguments.curve:
        draw(smooth, arguments.curve)
    print(f"mean reward of the first ten steps {np.mean(curve[:10]):.2f}, of the last ten {np.mean(curve[-10:]):.2f}")


if __name__ == "__main__":
    main()
