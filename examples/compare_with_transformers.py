#!/usr/bin/env python3
"""A model in Napier and in transformers: the same token ids, and how far their log-probabilities are apart.

    python3 examples/compare_with_transformers.py MODEL [--compute float32|bfloat16] [--text FILE]

MODEL is a folder with config.json, model.safetensors and tokenizer.json. transformers computes in float32, whatever the weights are.
Exit status 1 if token ids differ, or if log-probabilities in float32 are more than 0.001 apart. See also: napier check-model MODEL.
"""

import argparse
import sys

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import napier

TEXT = """John Napier published the first table of logarithms in 1614. The logarithm of a product is the sum of the logarithms of its
factors, so a product of many small probabilities is a sum that does not underflow: log(a * b) = log(a) + log(b)."""


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("model", help="a folder")
    parser.add_argument("--compute", choices=("float32", "bfloat16"), default="float32", help="Napier's mode")
    parser.add_argument("--text", type=argparse.FileType(encoding="utf-8"), help="a text to compare on")
    options = parser.parse_args()
    text = options.text.read() if options.text else TEXT

    mine = napier.CausalLM.from_pretrained(options.model, compute=options.compute)
    ids = mine.encode(text, add_special_tokens=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{options.model}/tokenizer.json")
    their_ids = tokenizer.encode(text)
    print(f"{len(ids)} token ids: {'the same' if ids == their_ids else 'they differ'}")

    theirs = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0]
    wanted = torch.log_softmax(logits[:-1].double(), -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    logprobs = torch.from_numpy(mine.logprobs_for(ids[:1], ids[1:])).double()
    apart = (logprobs - wanted).abs()
    print(f"mean log-probability: {logprobs.mean():.5f} in Napier ({options.compute}), {wanted.mean():.5f} in transformers (float32)")
    print(f"log-probabilities of tokens: {apart.max():.2e} apart at most, {apart.mean():.2e} on average")
    return 0 if ids == their_ids and (apart.max() <= 1e-3 or options.compute != "float32") else 1


if __name__ == "__main__":
    sys.exit(main())
