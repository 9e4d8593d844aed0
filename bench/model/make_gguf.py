"""Writes a model of make_model.py as llama.cpp reads it: make_gguf.py DIRECTORY FILE.gguf [--dtype bf16|f16|f32]

Runs with `gguf` and NumPy alone. Norms stay f32, as llama.cpp wants them; f16 and f32 are what bf16 says exactly, but
for f16's smallest numbers. There is no tokenizer: ids are all that is asked for.
"""
import argparse
import json
import os

import gguf
import numpy as np

TYPES = {"bf16": gguf.GGMLQuantizationType.BF16, "f16": gguf.GGMLQuantizationType.F16,
         "f32": gguf.GGMLQuantizationType.F32}
NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    if name.startswith("model.layers."):
        _, _, layer, rest = name.split(".", 3)
        return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"
    return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
            "lm_head.weight": "output.weight"}[name]


def tensors(path):
    """The bf16 tensors of a safetensors file, as f32."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    raw = np.memmap(path, np.uint8, "r", 8 + size)
    for name, about in header.items():
        if name == "__metadata__":
            continue
        if about["dtype"] != "BF16":
            raise SystemExit(f"{name}: {about['dtype']}: only BF16 is read")
        begin, end = about["data_offsets"]
        bits = raw[begin:end].view(np.uint16).astype(np.uint32) << 16
        yield name, bits.view(np.float32).reshape(about["shape"])


def describe(writer, config):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    writer.add_rope_freq_base(theta)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("file")
    parser.add_argument("--dtype", choices=TYPES, default="bf16")
    wanted = parser.parse_args()
    with open(os.path.join(wanted.directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    writer = gguf.GGUFWriter(wanted.file + ".part", "qwen3")
    describe(writer, config)
    for name, values in tensors(os.path.join(wanted.directory, "model.safetensors")):
        kind = TYPES["f32" if values.ndim == 1 else wanted.dtype]
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(wanted.file + ".part", wanted.file)


main()
