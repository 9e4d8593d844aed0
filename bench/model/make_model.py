"""Writes a random model of the exact shape of Qwen3-0.6B (or of another size), as transformers would save it.

    make_model.py DIRECTORY [--layers N] [--dtype bfloat16|float32|float16]

Weights are normal with the spread that makes activations stay of size 1, so that products see numbers as a real model
has them. The files are for measuring only: 1.2 GB in bfloat16.
"""
import argparse
import os

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

SHAPE = dict(hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
             intermediate_size=3072, vocab_size=151936, max_position_embeddings=40960, rope_theta=1e6,
             rms_norm_eps=1e-6, tie_word_embeddings=True, attention_bias=False, use_sliding_window=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"])
    parser.add_argument("--dtype", default="bfloat16")
    wanted = parser.parse_args()
    torch.manual_seed(6)
    dtype = getattr(torch, wanted.dtype)
    with torch.device("meta"):
        model = Qwen3ForCausalLM(Qwen3Config(**{**SHAPE, "num_hidden_layers": wanted.layers}))
    model = model.to_empty(device="cpu").to(dtype)
    model.tie_weights()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.fill_(1.0)
            else:
                weight.copy_(torch.randn(weight.shape) * (0.02 if "embed" in name else weight.shape[-1] ** -0.5))
    os.makedirs(wanted.directory, exist_ok=True)
    model.save_pretrained(wanted.directory)


main()
