"""Token ids against Hugging Face tokenizers, for text of every kind; chats against Jinja. The tokenizers are made here:
trained on this project's own files, with the normal form, expression and added tokens that Qwen2 and Qwen3 have."""
import ctypes
import functools
import glob
import json
import os
import random
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
import trl
from transformers import PreTrainedTokenizerFast

from napier_c import ROOT, NapierError, napier
from support import raises

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<think>", "</think>", "<tool_response>", "</tool_response>")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def corpus():
    """This project's own text, and some of other scripts."""
    paths = sorted(glob.glob(ROOT + "/docs/*.md") + glob.glob(ROOT + "/src/**/*.[ch]", recursive=True) + glob.glob(ROOT + "/*.md"))
    other = "".join(chr(0x4E00 + i * 7919 % 3000) + ("\u3002" if i % 9 == 0 else "") for i in range(20000))
    arabic = "".join(chr(0x627 + i * 31 % 36) + (" " if i % 5 == 0 else "") for i in range(5000))
    hangul = "".join(chr(0xAC00 + i * 577 % 11172) for i in range(5000))
    latin = "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m \U0001f469\u200d\U0001f467 " * 200
    return [read(path) for path in paths] + [other, arabic, hangul, latin]


def qwen_like(size):
    """A BPE tokenizer with all that Qwen's has around it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in SPECIAL])
    tokenizer.add_tokens([AddedToken(word, normalized=False, special=False) for word in ADDED])
    tokenizer.add_tokens([AddedToken("cafe\u0301!", normalized=True, special=False)])
    return tokenizer


class Ours:
    """Napier's tokenizer of the same file."""

    def __init__(self, text):
        self.pointer, self.ids, self.text = None, napier.make("napier_token_buffer"), napier.make("napier_text_buffer")
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            self.pointer = napier.create("napier_tokenizer_load", file.name)

    def encode(self, text, plain_special=False, **other):
        self.ids.size = 0
        data, options = text.encode(), napier.make("napier_encode_options", plain_special=int(plain_special), **other)
        napier.call("napier_tokenizer_encode", self.pointer, ctypes.c_char_p(data), len(data), options, self.ids)
        return list((ctypes.c_int32 * self.ids.size).from_address(self.ids.ids)) if self.ids.size else []

    def decode(self, ids, skip_special=False, replace_invalid=False):
        self.text.size = 0
        options = napier.make("napier_decode_options", skip_special=int(skip_special),
                              replace_invalid=int(replace_invalid))
        array = (ctypes.c_int32 * len(ids))(*ids)
        napier.call("napier_tokenizer_decode", self.pointer, ctypes.byref(array), len(ids), options, self.text)
        return ctypes.string_at(self.text.bytes, self.text.size) if self.text.size else b""

    def __del__(self):
        napier.call("napier_token_buffer_free", self.ids)
        napier.call("napier_text_buffer_free", self.text)
        napier.call("napier_tokenizer_destroy", self.pointer)


class Pair:
    """One file, two readers. `change` edits the file first."""

    def __init__(self, text, change=None):
        if change:
            document = json.loads(text)
            change(document)
            text = json.dumps(document)
        self.theirs, self.ours = Tokenizer.from_str(text), Ours(text)
        self.odd = {token["id"] for token in json.loads(text)["added_tokens"] if not token["content"].isascii()}

    def check(self, text, plain_special=False, back=True):
        """Compares the ids and, where `back`, the same text from them. An added token with a character of the byte alphabet
        beyond ASCII comes back from tokenizers as that one byte, no UTF-8; here as it was: not compared."""
        self.theirs.encode_special_tokens = plain_special
        wanted, got = self.theirs.encode(text).ids, self.ours.encode(text, plain_special)
        assert got == wanted, f"{ascii(text[:200])}: {got[:40]}, not {wanted[:40]}"
        if not back or self.odd & set(wanted):
            return len(wanted)
        for skip in (False, True):
            decoded = self.theirs.decode(wanted, skip_special_tokens=skip)
            ours = self.ours.decode(got, skip, replace_invalid=True).decode()
            assert ours == decoded, f"{wanted[:40]}: {ascii(ours[:200])}, not {ascii(decoded[:200])}"
        return len(wanted)


@functools.cache
def trained():
    return qwen_like(4000).to_str()


# ---- Text of every kind ------------------------------------------------------------------------------------------------

POOLS = (
    "abcdefghijklmnopqrstuvwxyz", "ABCKST", "'s'S'\u017f'T'RE're'Ve'LL'd'M'K'\u212a", "   \t\n\r\v\f",
    "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2000\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff",
    "0123456789\u0661\u0662\u0663\u096a\u096b\u2167\u00bd\u00b2\u2462",
    "\u4e2d\u6587\u5b57\u65e5\u672c\u304b\u30ca\u3099\ud55c\uad6d",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629\u064b\u064c\u0651\u0640",
    "aeou\u0301\u0300\u0308\u0323\u0327\u0345\u0334\u030a\u0306\u0338",
    "\u1100\u1112\u1161\u1175\u11a8\u11c2\uac00\ud7a3\u11a7",
    "\U0001f468\u200d\U0001f469\U0001f3fd\u2764\ufe0f\U0001f1e9\U0001f1ea\U0001f3f3",
    "!?.,;:#$%&()*+-/<=>@[]^_`{|}~\"\\", "\0\x01\x7f\x80\x9f\xad",
    "\u00c5\u00df\u1e9e\u0130\u0131\u0149\u01f0\ufb01\ufb05"
    "\u212b\u2126\u1f82\u0344\u0958\u09cb\u0dda\u1026\U0001d15e\u0f73\u2adc",
    "\U00016d40\U00016d67\U000105d2\u0307\U00011935\U00011930\u0897\u07fd\U0001e5ee\U0001f8d0\u0378\U000e0001")
WORDS = SPECIAL + ADDED + ("<|im_", "<|", "<thi", "caf\u00e9!", "cafe\u0301!", "cafe\u0301", "the", " return")


def random_character(dice):
    limit = dice.choice((0x300, 0x3000, 0x10000, 0x20000, 0x110000))
    c = dice.randrange(limit)
    return "" if 0xD800 <= c < 0xE000 else chr(c)


def random_text(dice):
    pieces = []
    for _ in range(dice.choice((1, 2, 3, 5, 10, 20, 60))):
        kind = dice.random()
        if kind < 0.08:
            pieces.append(dice.choice(WORDS))
        elif kind < 0.2:
            pieces.append(random_character(dice))
        else:
            pieces.append(dice.choice(dice.choice(POOLS)) * (1 if dice.random() < 0.9 else dice.randrange(1, 6)))
    return "".join(pieces)


def test_random_texts():
    dice, pair, tokens = random.Random(1), Pair(trained()), 0
    for trial in range(30000):
        tokens += pair.check(random_text(dice), plain_special=trial % 5 == 0)
    return f"30000 texts, {tokens} tokens"


def test_every_code_point():
    """Each once, and those of the planes 0, 1 and 14, where characters have properties of their own, in two more places."""
    pair = Pair(trained())
    every = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    special = [c for c in every if c >> 16 in (0, 1, 14)]
    for frame, points in ((" {}1", every), ("a{}\u0301\u0323 x", special), ("\u0308{}\u0334\u0345", special)):
        for i in range(0, len(points), 500):
            pair.check("|".join(frame.format(chr(c)) for c in points[i:i + 500]), back=False)
    return f"{len(every)} characters, {len(special)} of them in 3 places"


def test_real_text():
    pair = Pair(trained())
    return f"{sum(pair.check(text) for text in corpus())} tokens"


def test_long_runs():
    pair = Pair(trained())
    for unit in ("a", "ab", " ", "\n", " \n", "\n ", "!", "\u0323\u0301", "\u4e2d", "1", "e\u0301", "<|im_", "\u3000"):
        pair.check(unit * (20000 // len(unit)) + "x")


# ---- Other files --------------------------------------------------------------------------------------------------------

def test_tiny_file_in_all_forms():
    def arrays(document):
        document["model"]["merges"] = [merge.split(" ") for merge in document["model"]["merges"]]

    def no_normalizer(document):
        document["normalizer"] = None

    def ignore_merges(document):
        document["model"]["ignore_merges"] = True

    pieces = ("hello", " world", "a", "b", "l", "he", " xyz", "12", "'s", "\n", "  ", "<|im", "_end|>", "<|im_end|>")
    text = read(ROOT + "/tests/support/tiny_tokenizer.json")
    for change in (None, arrays, no_normalizer, ignore_merges):
        dice, pair = random.Random(2), Pair(text, change)
        for trial in range(2000):
            pair.check(random_text(dice), plain_special=trial % 2 == 0)
            pair.check("".join(dice.choice(pieces) for _ in range(12)), plain_special=trial % 2 == 0)


def test_what_is_refused():
    """What tokenizers would do otherwise is an error here, not other ids."""
    def of(*path_and_value):
        *path, key, value = path_and_value

        def change(document):
            for name in path:
                document = document[name]
            document[key] = value
        return change

    for change in (of("normalizer", {"type": "Nmt"}), of("model", "dropout", 0.5),
                   of("pre_tokenizer", "pretokenizers", 0, {"type": "UnicodeScripts"}),
                   of("pre_tokenizer", "pretokenizers", 0, "pattern", {"Regex": r"\w+|\W"})):
        document = json.loads(trained())
        change(document)
        raises(NapierError, f"status {napier.NAPIER_UNSUPPORTED}: ", lambda: Ours(json.dumps(document)))


# ---- Chat ---------------------------------------------------------------------------------------------------------------

CALLS = ({"name": "f", "arguments": {"x": 1.5, "caf\u00e9": [None, True]}}, {"name": "g", "arguments": "{}"},
         {"name": "\u4e2d", "arguments": {}})
TOOLS = ({"type": "function", "function": {"name": "f", "parameters": {"x": 1.0}}}, {"name": "g \u00e9", "d": "a\n\"b\""})


def template():
    """Qwen3's, as TRL has it."""
    return read(os.path.join(os.path.dirname(trl.__file__), "chat_templates", "qwen3.jinja"))


CONTENTS = ("", "q", "\n\nq\n", "<think>\nhm\n</think>\n\nanswer", "<think></think>x", "a</think>b</think>\n\nc",
            "<think>a<think>\n\nb\n\n</think>\n\n\nc\n", "</think>", "<think>", "\n<think>\n\n</think>\n\n",
            "<tool_response>\n1\n</tool_response>", "<tool_response>", "x</tool_response>", "<|im_end|>",
            "\u00e9 \u4e2d")


class Texts:
    """Pointers to texts, which live as long as this."""

    def __init__(self):
        self.kept = []

    def set(self, place, text, pointer, size):
        data = text.encode()
        self.kept.append(data)
        setattr(place, pointer, ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p))
        if size:
            setattr(place, size, len(data))

    def calls(self, place, calls):
        array = (napier.headers.struct("napier_tool_call") * len(calls))()
        self.kept.append(array)
        for one, call in zip(array, calls):
            self.set(one, call["name"], "name", "name_size")
            arguments = call["arguments"]
            self.set(one, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
                     "arguments", "arguments_size")
        place.tool_calls = ctypes.cast(array, ctypes.c_void_p)
        place.tool_call_count = len(calls)


def render(messages, tools, prompt, thinking, **other):
    texts, array = Texts(), (napier.headers.struct("napier_chat_message") * len(messages))()
    for place, message in zip(array, messages):
        texts.set(place, message["role"], "role", None)
        texts.set(place, message["content"], "content", "size")
        if "reasoning_content" in message:
            texts.set(place, message["reasoning_content"], "reasoning", "reasoning_size")
        texts.calls(place, message.get("tool_calls", ()))
    options = napier.make("napier_chat_options", add_generation_prompt=int(prompt), disable_thinking=int(not thinking),
                          **{key: value for key, value in other.items() if key != "date"})
    if "date" in other:
        texts.set(options, other["date"] + "\0", "date", None)
    if tools:
        texts.set(options, "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools), "tools", "tools_size")
    text = napier.make("napier_text_buffer")
    napier.call("napier_chat_text", ctypes.byref(array), len(messages), options, text)
    result = ctypes.string_at(text.bytes, text.size) if text.size else b""
    napier.call("napier_text_buffer_free", text)
    return result.decode()


def random_message(dice):
    message = {"role": dice.choice(("system", "user", "user", "assistant", "assistant", "tool")),
               "content": dice.choice(CONTENTS)}
    if message["role"] == "assistant" and dice.random() < 0.4:
        message["reasoning_content"] = dice.choice(CONTENTS)
    if message["role"] == "assistant" and dice.random() < 0.4:
        message["tool_calls"] = dice.choices(CALLS, k=dice.randrange(1, 4))
    return message


def test_chats():
    dice = random.Random(3)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(trained()), chat_template=template())
    for _ in range(5000):
        messages = [random_message(dice) for _ in range(dice.randrange(1, 7))]
        prompt, thinking, tools = dice.random() < 0.5, dice.random() < 0.5, dice.choice((None, None, TOOLS[:1], TOOLS))
        wanted = tokenizer.apply_chat_template(messages, tools=tools and list(tools), tokenize=False,
                                               add_generation_prompt=prompt, enable_thinking=thinking)
        got = render(messages, tools, prompt, thinking)
        assert got == wanted, f"{messages}: {got!r}, not {wanted!r}"
    return "5000 conversations"
