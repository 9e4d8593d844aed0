"""A tiny Qwen3 model, in code: the tokenizer of tests/support, a config and weights of one layer."""

import json
import math
import os
import struct

CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "hidden_size": 8,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 8,
          "vocab_size": 288, "rms_norm_eps": 1e-06, "rope_theta": 10000, "tie_word_embeddings": True,
          "attention_bias": False, "eos_token_id": 280, "bos_token_id": 278}
LAYER = "model.layers.0."
TENSORS = [("model.embed_tokens", [288, 8]), ("model.norm", [8]), (LAYER + "input_layernorm", [8]),
           (LAYER + "post_attention_layernorm", [8]), (LAYER + "self_attn.q_proj", [8, 8]), (LAYER + "self_attn.k_proj", [4, 8]),
           (LAYER + "self_attn.v_proj", [4, 8]), (LAYER + "self_attn.o_proj", [8, 8]), (LAYER + "self_attn.q_norm", [4]),
           (LAYER + "self_attn.k_norm", [4]), (LAYER + "mlp.gate_proj", [8, 8]), (LAYER + "mlp.up_proj", [8, 8]),
           (LAYER + "mlp.down_proj", [8, 8])]

with open(os.path.join(os.path.dirname(__file__), "..", "..", "support", "tiny_tokenizer.json"), encoding="utf-8") as file:
    TOKENIZER = file.read()


def tensors(shapes=TENSORS, wide=()):
    """The entries of the header, and the data: bf16 numbers between 1/4 and 2, for the names in `wide` as f32."""
    entries, data = {}, b""
    for name, shape in shapes:
        numbers = [0x3E80 + (i * 37 + len(name)) % 0x180 for i in range(math.prod(shape))]
        part = b"".join(struct.pack("<HH", 0, n) if name in wide else struct.pack("<H", n) for n in numbers)
        entries[name if len(shape) == 3 else name + ".weight"] = {
            "dtype": "F32" if name in wide else "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    return entries, data


def safetensors(header, data, length=None):
    """The bytes; `length` is what the file says of its header, by default the truth."""
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", (len(header) if length is None else length) & (2**64 - 1)) + header + data


def files(folder="model"):
    """A good model."""
    entries, data = tensors()
    return {folder + "/tokenizer.json": TOKENIZER.encode(), folder + "/config.json": json.dumps(CONFIG).encode(),
            folder + "/model.safetensors": safetensors(json.dumps(entries).encode(), data)}


LINES = b'{"prompt": "hello", "responses": [" world", "", " there!"]}\n{"prompt": [104, 101], "response": [108, 108]}\n'
CRITERIA = b'{"criterion": "It is right.", "weight": 2}\n'


def command(rng):
    """One of those that read a whole model: words, more files, outputs."""
    if rng.random() < 0.7:
        return ["logprobs", "in.jsonl", "--model", "model", "-o", "out.jsonl"], {"in.jsonl": LINES}, ["out.jsonl"]
    return ["judge", "in.jsonl", "--model", "model", "--criteria", "criteria.jsonl", "-o", "out.jsonl"], \
        {"in.jsonl": LINES.replace(b"[104, 101]", b'"a"').replace(b"[108, 108]", b'"b"'), "criteria.jsonl": CRITERIA}, \
        ["out.jsonl"]
