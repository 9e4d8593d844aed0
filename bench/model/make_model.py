"""Writes a random model of the exact shape of Qwen3-0.6B (or of another family), as transformers would save it.

    make_model.py DIRECTORY [--family qwen3|qwen2|llama|smollm2|mistral] [--layers N] [--dtype bfloat16|float32|float16]

Weights are normal with the spread that makes activations stay of size 1, so that products see numbers as a real model
has them. The files are for measuring only: 1.2 GB in bfloat16.
"""
import argparse
import os

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SHAPES = {
    "qwen3": dict(hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
                  intermediate_size=3072, vocab_size=151936, max_position_embeddings=40960, rope_theta=1e6,
                  rms_norm_eps=1e-6, tie_word_embeddings=True, attention_bias=False, use_sliding_window=False),
    "qwen2": dict(hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,  # 2.5, 0.5B
                  intermediate_size=4864, vocab_size=151936, max_position_embeddings=32768, rope_theta=1e6,
                  rms_norm_eps=1e-6, tie_word_embeddings=True, use_sliding_window=False),
    "llama": dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,  # 3.2, 1B
                  head_dim=64, intermediate_size=8192, vocab_size=128256, max_position_embeddings=131072,
                  rms_norm_eps=1e-5, tie_word_embeddings=True,
                  rope_parameters=dict(rope_type="llama3", rope_theta=5e5, factor=32.0, low_freq_factor=1.0,
                                       high_freq_factor=4.0, original_max_position_embeddings=8192)),
    "smollm2": dict(model_type="llama", hidden_size=576, num_hidden_layers=30, num_attention_heads=9,  # 135M
                    num_key_value_heads=3, head_dim=64, intermediate_size=1536, vocab_size=49152,
                    max_position_embeddings=8192, rope_parameters=dict(rope_type="default", rope_theta=1e5), rms_norm_eps=1e-5,
                    tie_word_embeddings=True),
    "mistral": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,  # 7B, 0.3
                    intermediate_size=14336, vocab_size=32768, max_position_embeddings=32768, rope_theta=1e6,
                    rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=None),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--family", choices=SHAPES, default="qwen3")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--dtype", default="bfloat16")
    wanted = parser.parse_args()
    torch.manual_seed(6)
    dtype = getattr(torch, wanted.dtype)
    with torch.device("meta"):
        shape = SHAPES[wanted.family]
        shape["num_hidden_layers"] = wanted.layers or shape["num_hidden_layers"]
        family = shape.pop("model_type", wanted.family)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **shape))
    model = model.to_empty(device="cpu").to(dtype)
    model.tie_weights()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.fill_(1.0)
            elif name.endswith("bias"):
                weight.copy_(torch.randn(weight.shape))
            else:
                weight.copy_(torch.randn(weight.shape) * (0.02 if "embed" in name else weight.shape[-1] ** -0.5))
    os.makedirs(wanted.directory, exist_ok=True)
    model.save_pretrained(wanted.directory)


main()
