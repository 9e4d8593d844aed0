"""Time of a step of training (forward, head, backward) of a bfloat16 model of transformers: as it is, patched by napier.hf, and
patched with bf16_gradient.

    python bench/python/hf_step.py [--rounds 9] [--threads 2] [--layers 6]     with napier, torch and transformers

A random model of Qwen3-0.6B's shape with fewer layers and a vocabulary of 18,992; four sequences of 128 tokens. The three take
turns. Prints the medians in milliseconds.
"""

import argparse
import time

import numpy as np
import torch
import transformers

import napier.hf
import napier.torch

SEQUENCES, LENGTH, VOCABULARY = 4, 128, 18992


def model_of(layers):
    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=layers,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            tie_word_embeddings=True,
        )
    ).to(torch.bfloat16)


def head_of_torch(model, hidden, ids, rounded):
    return torch.log_softmax(model.lm_head(hidden).float(), -1).gather(-1, ids[..., None])


def head_of_napier(model, hidden, ids, rounded):
    return napier.torch.linear_token_logprobs(hidden.bfloat16(), model.lm_head.weight, ids, bf16_gradient=rounded).logprobs


def step(model, ids, head, rounded):
    """Seconds of forward, head and backward."""
    times = [time.perf_counter()]
    hidden = model.model(ids).last_hidden_state[:, :-1]
    times.append(time.perf_counter())
    loss = -head(model, hidden, ids[:, 1:], rounded).mean()
    times.append(time.perf_counter())
    loss.backward()
    times.append(time.perf_counter())
    model.zero_grad()
    return np.diff(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=6)
    wanted = parser.parse_args()
    torch.set_num_threads(wanted.threads)
    napier.set_num_threads(wanted.threads)
    ids = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(1))
    runs = {"transformers": (model_of(wanted.layers), head_of_torch, False)}
    for rounded in (False, True):
        model = napier.hf.patch(model_of(wanted.layers), "bf16", bf16_gradient=rounded)
        runs["napier, bf16_gradient" if rounded else "napier"] = model, head_of_napier, rounded
    seconds = {name: [] for name in runs}
    for i in range(wanted.rounds + 1):
        for name, (model, head, rounded) in runs.items():
            taken = step(model, ids, head, rounded)
            if i > 0:  # the first waits for memory
                seconds[name].append(taken)
    for name, taken in seconds.items():
        forward, head, backward = 1e3 * np.median(taken, axis=0)
        print(
            f"{name}: forward {forward:.0f} ms, head {head:.0f}, backward {backward:.0f}, all {1e3 * np.median(np.sum(taken, axis=1)):.0f}"
        )


if __name__ == "__main__":
    main()
