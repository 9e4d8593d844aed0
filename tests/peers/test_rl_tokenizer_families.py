"""Token ids against Hugging Face tokenizers for the tokenizers of Llama, GPT-2 and Mistral: tiny ones of each kind, trained
here on this project's own files or made by hand, with what is around the published ones."""
import functools
import json
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from napier_c import NapierError, napier
from support import raises
from test_rl_tokenizer import Pair, corpus, random_text

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
MARK = "\u2581"


# ---- Over bytes: Llama 3, Mistral Nemo, GPT-2 ------------------------------------------------------------------------------

def train_bytes(pre_tokenizer, size=3000):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet,
                                                                show_progress=False))
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def with_bos(tokenizer, bos, others=()):
    """Builds it as in the published files: the BOS and others are special and not normalized, and a template adds the BOS."""
    tokenizer.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in (bos, *others)])
    return processors.TemplateProcessing(single=[bos, "$A"], pair=[bos, "$A", f"{bos}:1", "$B:1"],
                                         special_tokens=[(bos, tokenizer.token_to_id(bos))])


@functools.cache
def llama3(sequence=True):
    """Some tokens cannot be made by merges, as in the published file: ignore_merges finds them."""
    tokenizer = train_bytes(split(LLAMA3))
    template = with_bos(tokenizer, "<|begin_of_text|>", ("<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>"))
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template]) if sequence else template
    document = json.loads(tokenizer.to_str())
    document["model"]["ignore_merges"] = True
    document["model"]["merges"] = [m for i, m in enumerate(document["model"]["merges"]) if i % 10 != 7]
    return json.dumps(document)


@functools.cache
def tekken():
    tokenizer = train_bytes(split(TEKKEN))
    tokenizer.post_processor = with_bos(tokenizer, "<s>", ("<unk>", "</s>", "[INST]", "[/INST]"))
    return tokenizer.to_str()


@functools.cache
def gpt2(prefix):
    tokenizer = train_bytes(pre_tokenizers.ByteLevel(add_prefix_space=prefix))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=True, special=True)])
    tokenizer.add_tokens([AddedToken("a b", normalized=True), AddedToken(" x", normalized=False)])
    return tokenizer.to_str()


# ---- Over characters: Llama 2, Mistral -------------------------------------------------------------------------------------

LEGACY = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK},
                                              {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
ENDS = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


@functools.cache
def pieces():
    """A vocabulary and merges of characters, with few characters, so that many are unknown."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=2500, limit_alphabet=300, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer.to_str()


def llama2(normalizer=LEGACY, pre_tokenizer=None, decoder=ENDS, change=None, **model):
    """The published file's form: <unk>, <s>, </s>, the 256 bytes, then the pieces."""
    document = json.loads(pieces())
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    words = first + sorted(document["model"]["vocab"], key=document["model"]["vocab"].get)
    words += [MARK * n for n in range(2, 9) if MARK * n not in words]
    document["model"]["vocab"] = {word: i for i, word in enumerate(dict.fromkeys(words))}
    document["model"]["merges"] += [[MARK * a, MARK * b] for a in range(1, 5) for b in range(1, 5)
                                    if [MARK * a, MARK * b] not in document["model"]["merges"]]
    document["model"].update({"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>", **model})
    document["added_tokens"] = [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
                                 "normalized": False, "special": True} for i, word in enumerate(first[:3])]
    document.update(normalizer=normalizer, pre_tokenizer=pre_tokenizer, decoder=decoder)
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    if change:
        change(document)
    return json.dumps(document)


def metaspace(scheme, split, decoder=False):
    kind = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}
    return llama2(None, kind, kind if decoder else ENDS)


def add_words(document):
    """Added tokens that the normalizer changes, and others that hold a mark or look like a byte."""
    n = len(document["model"]["vocab"])
    for i, (word, normalized) in enumerate((("hello world", True), ("[INST]", False), (MARK + "x!q", False),
                                            ("<0x41>!", False), (" y", True), ("\u00e9t\u00e9", False))):
        document["added_tokens"].append({"id": n + i, "content": word, "single_word": False, "lstrip": False,
                                         "rstrip": False, "normalized": normalized, "special": i == 1})


def few_bytes(document):
    """Only some bytes have a token, so a part of the unknown characters is <unk>, before or after the bytes of others."""
    for byte in range(0x80, 0x100, 3):
        vocab = document["model"]["vocab"]
        vocab[f"<0x{byte:02x}>"] = vocab.pop(f"<0x{byte:02X}>")


def merges_over_spaces(document):
    """A token with a space inside, so a text is truly one word."""
    vocab = document["model"]["vocab"]
    for left, right in (("s", MARK + "t"), ("e", MARK), ("x" if "x" in vocab else "a", MARK * 2)):
        if left in vocab and right in vocab and left + right not in vocab:
            vocab[left + right] = max(vocab.values()) + 1
            document["model"]["merges"].insert(5, [left, right])


def kinds():
    yield "llama3", llama3()
    yield "llama3 template alone", llama3(False)
    yield "tekken", tekken()
    yield "gpt2", gpt2(False)
    yield "gpt2 prefix", gpt2(True)
    yield "llama2", llama2()
    yield "llama2 words", llama2(change=add_words)
    yield "llama2 normalized specials", llama2(change=lambda d: [t.update(normalized=True) for t in d["added_tokens"]])
    yield "llama2 no fallback", llama2(byte_fallback=False)
    yield "llama2 unfused", llama2(byte_fallback=False, fuse_unk=False)
    yield "llama2 few bytes", llama2(change=few_bytes)
    yield "llama2 few bytes, unfused", llama2(change=few_bytes, fuse_unk=False)
    yield "llama2 across spaces", llama2(change=merges_over_spaces)
    yield "llama2 ignore_merges", llama2(ignore_merges=True)
    yield "llama2 NFC", llama2({"type": "Sequence", "normalizers": [{"type": "NFC"}] + LEGACY["normalizers"]})
    yield "replacements", llama2({"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "aa"}, "content": "b c"},
        {"type": "Replace", "pattern": {"String": "the"}, "content": ""}, *LEGACY["normalizers"]]})
    for scheme in ("first", "always", "never"):
        for split in (True, False):
            yield f"metaspace {scheme} {split}", metaspace(scheme, split, decoder=split)
    yield "metaspace words", llama2(None, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first",
                                           "split": False}, change=add_words)
    yield "metaspace of another mark", llama2(None, {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always",
                                                     "split": True}, {"type": "Metaspace", "replacement": "_"})


WORDS = (MARK, MARK * 3 + "t", MARK + "x!q", " the", "the  a", "hello world", "<s>", "</s>", "<s> ", "<unk>", "<0x41>", "<0x0A>", "[INST]",
         "<|begin_of_text|>", "<|endoftext|>", "aaaa", "\u00e9t\u00e9", " x", " y", "a b", "HELLOWorld", "\u01c5a", "\u02b0\u00aa",
         "123456", "\u0661\u0662\u0663\u0664", "\u2160\u2170", "\U00010400\U00010428", "Ab\u0301C", "a/\n/", "_", "__a", "s t", "e ")


def text_of(dice):
    return "".join(dice.choice((random_text(dice), dice.choice(WORDS), " " * dice.randrange(4))) for _ in range(dice.randrange(5)))


def check(pair, dice, text, plain=False):
    pair.check(text, plain_special=plain)
    theirs = pair.theirs.encode(text).ids
    bare = pair.theirs.encode(text, add_special_tokens=False).ids
    always = pair.ours.encode(text, plain, add_special=1)
    assert always == theirs, f"{ascii(text[:200])}: {always[:40]}, not {theirs[:40]}"
    once = pair.ours.encode(text, plain, add_special=2)
    around = theirs[:len(theirs) - len(bare)]
    assert once == (bare if around and bare[:len(around)] == around else theirs), f"once: {ascii(text[:200])}"


class Bare(Pair):
    """A pair that compares ids without those of the post-processor."""

    def __init__(self, text):
        super().__init__(text)
        self.whole = self.theirs.encode
        document = json.loads(text)
        if document["normalizer"]:  # tokenizers decodes these to what the normalizer makes of them: not compared
            self.odd |= {token["id"] for token in document["added_tokens"] if token["normalized"]}
        self.odd -= set() if document["decoder"]["type"] == "ByteLevel" else {
            token["id"] for token in document["added_tokens"] if not token["normalized"]}

    def check(self, text, plain_special=False, back=True):
        class Theirs:
            encode = lambda _, text: self.whole(text, add_special_tokens=False)
            decode = self.theirs.decode

        theirs, self.theirs.encode_special_tokens = self.theirs, plain_special
        self.theirs = Theirs()
        try:
            return super().check(text, plain_special, back)
        finally:
            self.theirs = theirs


def check_decode(pair, dice, size):
    """Any ids, whether a text gives them or not."""
    ids = [dice.randrange(size) for _ in range(dice.randrange(1, 12))]
    if size > 259 and dice.random() < 0.5:
        ids = [dice.randrange(259) if dice.random() < 0.7 else i for i in ids]
    ids = [i for i in ids if pair.theirs.id_to_token(i) is not None and i not in pair.odd]
    for skip in (False, True):
        wanted = pair.theirs.decode(ids, skip_special_tokens=skip)
        got = pair.ours.decode(ids, skip, replace_invalid=True).decode()
        assert got == wanted, f"{ids}: {got!r}, not {wanted!r}"


def test_kinds_of_tokenizers():
    count = 0
    for name, document in kinds():
        dice, pair = random.Random(name), Bare(document)
        size = pair.theirs.get_vocab_size()
        try:
            for trial in range(250):
                check(pair, dice, text_of(dice), plain=trial % 4 == 0)
                check_decode(pair, dice, size)
                count += 1
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    return f"{count} texts"


def test_every_code_point_of_the_kinds():
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for document, step in ((tekken(), 1), (llama2(), 9)):
        pair, some = Bare(document), characters[::step]
        for i in range(0, len(some), 1000):
            pair.check("|".join(f"a{c}B" for c in some[i:i + 1000]), back=False)


def test_long_texts_of_the_kinds():
    """One word of any length, as in Llama 2: the same ids, and no time that is quadratic."""
    files = dict(kinds())
    for name in ("llama2", "llama2 across spaces", "metaspace never False"):
        pair = Bare(files[name])
        for unit in ("a", "ab", " ", "the ", "  a", "\u4e2d", "\n", "s t", "e "):
            pair.check(unit * (60000 // len(unit)) + "x")


def test_texts_that_continue():
    """The ids of a prompt and those of what continues it give the prompt's text and then the other, unchanged."""
    for document in (llama2(), metaspace("first", False), metaspace("always", True), gpt2(True), llama3()):
        dice, ours = random.Random(5), Bare(document).ours
        for _ in range(300):
            a, b = ("".join(dice.choice(("a", " the", " ", "b c", "\n", "12", "\u00e9")) for _ in range(6)) for _ in range(2))
            ids = ours.encode(a)
            both = ours.decode(ids + ours.encode(b, continues=1))
            assert both == ours.decode(ids) + b.encode(), f"{a!r} {b!r}: {both!r}"


def test_refused_kinds():
    def of(value, *path):
        def change(document):
            for name in path[:-1]:
                document = document[name]
            document[path[-1]] = value
        return change

    changes = (of({"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                   "lowercase": True}, "normalizer"),
               of({"Regex": " "}, "normalizer", "normalizers", 1, "pattern"),
               of({"type": "UnicodeScripts"}, "pre_tokenizer"),
               of({"type": "WordPiece", "prefix": "##", "cleanup": True}, "decoder"), of(None, "decoder"),
               of([{"type": "Fuse"}, {"type": "ByteFallback"}], "decoder", "decoders"),
               of("</w>", "model", "end_of_word_suffix"))
    for change in changes:
        raises(NapierError, f"status {napier.NAPIER_UNSUPPORTED}: ", lambda: Pair(llama2(), change))
