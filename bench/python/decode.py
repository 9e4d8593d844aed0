"""Time of a decode step at 1, 8 and 64 sequences: Napier against transformers, on a random model of Qwen3-0.6B's shape.

    python bench/python/decode.py MODEL [--rounds 3] [--threads 2]     in an environment with napier, torch and transformers

MODEL is a folder of bench/model/make_model.py. Prompts have 32 tokens; sampling is at temperature 1 over the whole
vocabulary, in both. The libraries take turns, each in a process of its own. Prints the median step of all rounds, and the
time of one read of the weights at the speed of a plain read.
"""
import argparse
import json
import subprocess
import sys
import time

import numpy as np

CASES = ((1, 16), (8, 12), (64, 8))  # sequences, tokens
PROMPT = 32


def prompts_of(sequences, vocabulary):
    draw = np.random.default_rng(sequences)
    return [draw.integers(0, vocabulary, PROMPT) for _ in range(sequences)]


def napier_steps(folder, compute, threads):
    import napier
    napier.set_num_threads(threads)
    model = napier.Qwen3(folder, compute=compute, memory=4 << 30)
    for sequences, tokens in CASES:
        last = {}

        def on_token(sequence, index, token, logprob):
            last[index] = time.perf_counter()

        model.generate(prompts_of(sequences, model.info["vocabulary"]), max_tokens=tokens, stop=[], on_token=on_token)
        yield list(np.diff([last[i] for i in sorted(last)]))


def transformers_steps(folder, compute, threads):
    import torch
    from transformers import Qwen3ForCausalLM
    torch.set_num_threads(threads)
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=getattr(torch, compute)).eval()
    for sequences, tokens in CASES:
        ids, past, steps = torch.tensor(np.stack(prompts_of(sequences, model.config.vocab_size))), None, []
        with torch.no_grad():
            for _ in range(tokens):
                start = time.perf_counter()
                out = model(ids, past_key_values=past, use_cache=True)
                past = out.past_key_values
                ids = torch.multinomial(torch.softmax(out.logits[:, -1].float(), -1), 1)
                steps.append(time.perf_counter() - start)
        yield steps[1:]  # the first runs the prompts


def read_seconds(folder):
    """A plain read of as many bytes as the weights have."""
    weights = np.fromfile(f"{folder}/model.safetensors", np.uint64)
    least = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        weights.max()
        least = min(least, time.perf_counter() - start)
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.worker:
        who, compute = wanted.worker
        steps = (napier_steps if who == "napier" else transformers_steps)(wanted.model, compute, wanted.threads)
        print(json.dumps(list(steps)))
        return
    seconds = {}
    for _ in range(wanted.rounds):
        for compute in ("bfloat16", "float32"):
            for who in ("napier", "transformers"):
                done = subprocess.run([sys.executable, __file__, wanted.model, "--threads", str(wanted.threads), "--worker", who,
                                       compute], check=True, capture_output=True, text=True)
                for case, steps in zip(CASES, json.loads(done.stdout.splitlines()[-1])):
                    seconds.setdefault((compute, case[0], who), []).extend(steps)
    print(f"a plain read of the weights by one thread: {1e3 * read_seconds(wanted.model):.0f} ms")
    for compute in ("bfloat16", "float32"):
        for sequences, _ in CASES:
            ours, theirs = (1e3 * np.median(seconds[compute, sequences, who]) for who in ("napier", "transformers"))
            print(f"{compute}, {sequences} sequences: napier {ours:.1f} ms a step, transformers {theirs:.1f} ms: {theirs / ours:.2f}x")


if __name__ == "__main__":
    main()
