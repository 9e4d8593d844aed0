#!/usr/bin/env python3
"""A random Qwen3 of 0.4 MB with a tokenizer of bytes, and some prompts, to try commands on any machine. It knows nothing: its
answers are random text.

    python small_model.py small                                            # small/, and prompts.jsonl beside it
    napier generate prompts.jsonl --model small --max-tokens 8
"""

import argparse
import json
import pathlib
from typing import Any, Iterator

import numpy as np

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, MIDDLE, VOCABULARY = 2, 64, 4, 2, 16, 128, 257
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "intermediate_size": MIDDLE,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
    "attention_bias": False,
    "eos_token_id": VOCABULARY - 1,
    "torch_dtype": "float32",
}


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    for i in range(LAYERS):
        for name, *shape in (
            ("input_layernorm", HIDDEN),
            ("post_attention_layernorm", HIDDEN),
            ("self_attn.q_norm", HEAD),
            ("self_attn.k_norm", HEAD),
            ("self_attn.q_proj", HEADS * HEAD, HIDDEN),
            ("self_attn.k_proj", KV_HEADS * HEAD, HIDDEN),
            ("self_attn.v_proj", KV_HEADS * HEAD, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * HEAD),
            ("mlp.gate_proj", MIDDLE, HIDDEN),
            ("mlp.up_proj", MIDDLE, HIDDEN),
            ("mlp.down_proj", HIDDEN, MIDDLE),
        ):
            yield f"model.layers.{i}.{name}.weight", tuple(shape)


def write_weights(path: pathlib.Path, seed: int = 0) -> None:
    """A file of safetensors: the length of the header, the header in JSON, and the numbers."""
    rng, body = np.random.default_rng(seed), b""
    header: dict[str, Any] = {}
    for name, shape in shapes():
        x = (rng.standard_normal(shape) * 0.1 + (len(shape) == 1)).astype(np.float32)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + x.nbytes]}
        body += x.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def write_tokenizer(path: pathlib.Path) -> None:
    """One token for each byte. Byte-level tokenizers write the bytes that are no visible characters as other ones."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    names = [chr(b if b in visible else next(others)) for b in range(256)]
    end = {
        "id": 256,
        "content": "<|endoftext|>",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": [end],
                "normalizer": None,
                "pre_tokenizer": level,
                "post_processor": None,
                "decoder": level,
                "model": {"type": "BPE", "vocab": {name: i for i, name in enumerate(names)}, "merges": [], "byte_fallback": False},
            }
        )
    )


def write_model(folder: pathlib.Path) -> None:
    folder.mkdir(exist_ok=True)
    write_weights(folder / "model.safetensors")
    write_tokenizer(folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps(CONFIG))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where the model goes; prompts.jsonl goes beside it")
    place = parser.parse_args().folder
    write_model(place)
    prompts = place.parent / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"{i} + {i} ="}) + "\n" for i in range(100)))
    print(f"{place}/ and {prompts}")
