"""GGUF files: counts, lengths and offsets that lie, types that are none, values of another kind, tensors that overlap."""

import json
import math
import itertools
import struct

import mutate
from case import Case
from formats import language

SHARE = 160
FILE = "model.gguf"
U32, I32, F32, BOOL, TEXT, ARRAY = 4, 5, 6, 7, 8, 9  # kinds of values
BLOCKS = {0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 13: (256, 176),
          14: (256, 210)}  # by a type's number: elements and bytes of a block


def tokens():
    """The lists of a tokenizer with the words of tests/support."""
    root = json.loads(language.TOKENIZER)
    words = dict(root["model"]["vocab"])
    added = {token["content"]: token["id"] for token in root["added_tokens"]}
    by_id = {id: word for word, id in [*words.items(), *added.items()]}
    size = language.CONFIG["vocab_size"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in root["model"]["merges"]]
    kinds = [3 if by_id.get(i) in added else 1 if i in by_id else 5 for i in range(size)]
    return [by_id.get(i, f"[PAD{i}]") for i in range(size)], kinds, merges


def values():
    """Key, kind, value; of an array (kind of its elements, list)."""
    words, kinds, merges = tokens()
    return [("general.architecture", TEXT, "llama"), ("llama.block_count", U32, 1), ("llama.context_length", U32, 64),
            ("llama.embedding_length", U32, 32), ("llama.feed_forward_length", U32, 32), ("llama.attention.head_count", U32, 2),
            ("llama.attention.head_count_kv", U32, 1), ("llama.attention.layer_norm_rms_epsilon", F32, 1e-6),
            ("llama.rope.freq_base", F32, 10000.0), ("llama.rope.dimension_count", U32, 16), ("general.alignment", U32, 32),
            ("tokenizer.ggml.model", TEXT, "gpt2"), ("tokenizer.ggml.pre", TEXT, "qwen2"), ("tokenizer.ggml.tokens", ARRAY, (TEXT, words)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, kinds)), ("tokenizer.ggml.merges", ARRAY, (TEXT, merges)),
            ("tokenizer.ggml.bos_token_id", U32, 278), ("tokenizer.ggml.eos_token_id", U32, 280), ("tokenizer.ggml.add_bos_token", BOOL, True),
            ("tokenizer.chat_template", TEXT, "{{ bos_token }}<|im_start|>")]


def pieces():
    """The same with a vocabulary of SentencePiece."""
    words, _, _ = tokens()
    scores = ("tokenizer.ggml.scores", ARRAY, (F32, [-float(i) for i in range(len(words))]))
    renamed = {"tokenizer.ggml.model": ("tokenizer.ggml.model", TEXT, "llama"), "tokenizer.ggml.merges": scores}
    return [renamed.get(one[0], one) for one in values()]


def tensors():
    """Name, shape and type."""
    layer = "blk.0."
    return [["token_embd.weight", [288, 32], 8], ["output_norm.weight", [32], 0], [layer + "attn_norm.weight", [32], 0],
            [layer + "ffn_norm.weight", [32], 0], [layer + "attn_q.weight", [32, 32], 8], [layer + "attn_k.weight", [16, 32], 1],
            [layer + "attn_v.weight", [16, 32], 30], [layer + "attn_output.weight", [32, 32], 2], [layer + "ffn_gate.weight", [32, 32], 3],
            [layer + "ffn_up.weight", [32, 32], 6], [layer + "ffn_down.weight", [32, 32], 7]]


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def plain(kind, value):
    return text(value) if kind == TEXT else struct.pack("<" + "BbHhIif?__Qqd"[kind], value)


def value_bytes(kind, value):
    if kind != ARRAY:
        return plain(kind, value)
    inner, elements = value
    return struct.pack("<IQ", inner, len(elements)) + b"".join(plain(inner, x) for x in elements)


def size_of(shape, type):
    block, size = BLOCKS.get(type, (1, 1))
    return math.prod(shape) // block * size


def data_of(size):
    """Numbers that are finite in each type: f16 below 2, and quarters in the place of bf16 and f32."""
    return bytes((i * 37 + 11) % 60 if i % 2 == 0 else 0x3C for i in range(size))


def build(meta=None, infos=None, alignment=32, offsets=None, header=None):
    """The bytes of a file. offsets: by a tensor's name, in place of the truth."""
    meta, infos = values() if meta is None else meta, tensors() if infos is None else infos
    out = header or b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(meta))
    for key, kind, value in meta:
        out += text(key) + struct.pack("<I", kind) + (value if isinstance(value, bytes) and kind != TEXT else value_bytes(kind, value))
    data = b""
    for name, shape, type in infos:
        at = (offsets or {}).get(name, len(data))
        out += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n & (2**64 - 1)) for n in reversed(shape))
        out += struct.pack("<IQ", type & (2**32 - 1), at & (2**64 - 1))
        size = size_of(shape, type) if all(0 <= n < 4096 for n in shape) else 32
        data += data_of(size) + b"\0" * (-size % alignment)
    return out + b"\0" * (-len(out) % alignment) + data


# ---- Mutations --------------------------------------------------------------------------------------------------------


def value(rng):
    """One value: another number, another kind, another text, or none."""
    meta = rng.choice([values, pieces])()
    i = rng.randrange(len(meta))
    key, kind, old = meta[i]
    how = rng.randrange(5)
    if how == 0 and kind in (U32, F32):
        meta[i] = (key, kind, rng.choice([0, 1, 3, 2**16, 2**31 - 1, 2**32 - 1]) if kind == U32 else rng.choice([0.0, -1.0, 1e38, float("inf"), float("nan")]))
    elif how == 1:
        meta[i] = (rng.choice([key, "", "a" * 70000, "\x1b[31m", "llama.logit_scale", "split.count", "general.architecture"]), kind, old)
    elif how == 2:
        meta[i] = (key, *rng.choice([(U32, 7), (TEXT, "qwen2"), (TEXT, "\0\x1b[2J"), (TEXT, b"\xff\xfe"), (BOOL, True), (F32, 1.5), (10, 2**63), (11, -1),
                                     (12, 1e300), (ARRAY, (U32, [1, 2])), (ARRAY, (TEXT, [])), (ARRAY, (TEXT, ["a"] * 3000)), (13, b""), (2**31, b"")]))
    elif how == 3:
        del meta[i]
    else:
        meta.append(meta[i])
    return build(meta)


def count(rng):
    """Counts and lengths that the file does not have."""
    many = rng.choice([2**64 - 1, 2**63, 2**32, 2**20, 2**20 + 1, 1000, 40, 0, 1])
    how = rng.randrange(4)
    if how == 0:
        return build(header=b"GGUF" + struct.pack("<IQQ", rng.choice([0, 1, 2, 3, 4, 3 << 24]), many, rng.choice([many, len(values())])))
    if how == 1:
        return build(header=b"GGUF" + struct.pack("<IQQ", 3, len(tensors()), many))
    meta = rng.choice([values, pieces])()
    i = rng.randrange(len(meta))
    meta[i] = (meta[i][0], ARRAY, struct.pack("<IQ", rng.choice([0, 4, 8, 8, 9, 12, 13]), many)) if how == 2 else (meta[i][0], U32, struct.pack("<Q", many))
    return build(meta)


def tensor(rng):
    """One tensor: its name, its shape, its type or its place."""
    infos, offsets = tensors(), {}
    info = rng.choice(infos)
    how = rng.randrange(5)
    if how == 0:
        info[2] = rng.choice([*range(42), 255, 2**31, 2**32 - 1])
    elif how == 1:
        info[1] = rng.choice([[], [1] * 5, [2**32, 2**32], [0, 32], [32, 0], [2**63], [2**53, 32], [31, 32], [32, 31], [32, 64], info[1][::-1], [1, *info[1]]])
    elif how == 2:
        info[0] = rng.choice(["", "a\0b", "x" * 70000, "\x1b[31m", "blk.0.attn_q.bias", "blk.1.attn_q.weight", "blk.00.attn_q.weight", "blk.-1.attn_q.weight",
                              "rope_freqs.weight", "output.weight", "blk.99999999999999999999.attn_q.weight", infos[0][0]])
    elif how == 3:
        offsets[info[0]] = rng.choice([0, 1, 32, 33, 2**20, 2**63, 2**64 - 32, 2**64 - 1, 1024])
    else:
        infos.remove(info)
    return build(infos=infos, offsets=offsets)


def alignment(rng):
    wanted = rng.choice([0, 1, 4, 7, 8, 16, 33, 64, 4096, 2**16, 2**17, 2**31, 2**32 - 1])
    meta = [(k, kind, wanted if k == "general.alignment" else v) for k, kind, v in values()]
    return build(meta, alignment=wanted if wanted in (8, 16, 64, 4096, 2**16) and rng.random() < 0.7 else 32)


def cut(rng):
    data = build()
    return data[: rng.choice([0, 3, 4, 7, 8, 23, 24, 30, 100, len(data) // 3, len(data) // 2, len(data) - 1, rng.randrange(len(data))])]


def damaged(rng):
    return mutate.damage(rng, build())[1]


def words(rng):
    """Tokens, their types and merges that do not fit together."""
    meta = {key: (kind, old) for key, kind, old in values()}
    tokens_, kinds, merges = tokens()
    how = rng.randrange(6)
    if how == 0:
        tokens_[rng.randrange(288)] = rng.choice(["", "a", "a" * 70000, "\0", "\x1b", "<|im_start|>"])
    elif how == 1:
        kinds[rng.randrange(288)] = rng.choice([-1, 0, 2, 3, 4, 5, 6, 7, 2**31 - 1])
    elif how == 2:
        kinds = kinds[: rng.randrange(288)]
    elif how == 3:
        merges[rng.randrange(len(merges))] = rng.choice(["", " ", "a", "a b c", "zz zz", "\0 a", merges[0]])
    elif how == 4:
        tokens_ = tokens_ * rng.choice([0, 2, 40])
    else:
        tokens_[5] = b"\xff\xfe"
    meta["tokenizer.ggml.tokens"] = (ARRAY, (TEXT, tokens_))
    meta["tokenizer.ggml.token_type"] = (ARRAY, (I32, kinds))
    meta["tokenizer.ggml.merges"] = (ARRAY, (TEXT, merges))
    meta["tokenizer.ggml.pre"] = (TEXT, rng.choice(["qwen2", "gpt-2", "smollm", "llama-bpe", "tekken", "\x1b", "default"]))
    return build([(key, *pair) for key, pair in meta.items()])


def dense(rng):
    """A vocabulary of SentencePiece in which every part of a piece is a piece."""
    letters, longest = rng.choice([("ab", 12), ("abc", 8), ("abcd", 7), ("abcdef", 5)])
    words = ["<unk>", "<s>", "</s>", *("".join(w) for n in range(1, rng.randrange(2, longest + 1)) for w in itertools.product(letters, repeat=n))]
    meta = {key: (kind, old) for key, kind, old in pieces()}
    meta["tokenizer.ggml.tokens"] = (ARRAY, (TEXT, words))
    meta["tokenizer.ggml.token_type"] = (ARRAY, (I32, [1] * len(words)))
    meta["tokenizer.ggml.scores"] = (ARRAY, (F32, [rng.random() for _ in words]))
    return build([(key, *pair) for key, pair in meta.items()])


MUTATIONS = [dense, value, count, tensor, cut, damaged, words, alignment, value, tensor]
LINES = b'{"prompt": "hello", "responses": [" world", "", " there!"]}\n{"prompt": [104, 101], "response": [108, 108]}\n'


def command(rng):
    if rng.random() < 0.3:
        return ["tokenize", "in.jsonl", "--model", FILE, "-o", "out.jsonl", *rng.choice([[], ["--add-special"]])]
    return ["logprobs", "in.jsonl", "--model", FILE, "-o", "out.jsonl", *rng.choice([[], ["--compute", "bf16"]])]


def good(rng):
    return Case("good", command(rng), {FILE: build(), "in.jsonl": LINES}, outputs=["out.jsonl"])


def make(rng, index):
    how = MUTATIONS[index % len(MUTATIONS)]
    return Case(how.__name__, command(rng), {FILE: how(rng), "in.jsonl": LINES}, outputs=["out.jsonl"])
