"""Token ids of texts: napier.Tokenizer beside Hugging Face's tokenizers, one thread each.

    python bench/python/tokenizer.py [--json FILE]        in an environment with napier, numpy and tokenizers
    python bench/python/tokenizer.py --file tokenizer.json ...        the same texts with the files of models

The vocabulary is trained here, on the sources of Python's own library, the help texts that come with them, and characters
of Chinese drawn at random: byte-level BPE with the expression, normal form and special tokens of Qwen2 and Qwen3. Texts are
of the same kinds. Rounds alternate between the contestants; the median of a contestant's processor times counts. That of
tokenizers is without reading the ids out of its results, which napier gives as a list.
"""

import glob
import os
import random
import statistics
import sysconfig
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

import napier
from timing import add_rows, parser, turns

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


# ---- Texts ---------------------------------------------------------------------------------------------------------


def code():
    """Sources of Python's library, one after another."""
    library = sysconfig.get_path("stdlib")
    texts = []
    for path in sorted(glob.glob(library + "/*.py") + glob.glob(library + "/[a-z]*/*.py")):
        if "packages" not in path and "/test" not in path:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
    return "".join(texts)


def prose():
    """What help() prints of keywords and topics."""
    from pydoc_data.topics import topics

    return "".join(topics[name] for name in sorted(topics))


def chinese(count, seed):
    """Characters at random, few of them often, as in a language; stops, and emoji of one and of several characters."""
    draw = random.Random(seed)
    others = ["\u3002", "\uff0c", "\n", "\U0001f600", "\U0001f680", "\U0001f469\u200d\U0001f467", "\u2764\ufe0f"]
    return "".join(draw.choice(others) if draw.random() < 0.12 else chr(0x4E00 + int(20900 * draw.random() ** 4)) for _ in range(count))


def cut(text, size):
    """Pieces of about as many bytes each, of a megabyte of the text at most."""
    per_byte = len(text) / len(text.encode())
    text, step = text[: int(per_byte * 2**20)], int(per_byte * size)
    return [text[i : i + step] for i in range(0, len(text), step)]


def train(texts, size):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in SPECIAL])
    return tokenizer


# ---- Times ---------------------------------------------------------------------------------------------------------


def medians(calls, rounds):
    """The median of each call's processor times, in seconds."""
    return [statistics.median(times) for times in turns(calls, rounds, clock=time.process_time)]


def measure(name, texts, ours, theirs, rounds):
    for text, encoding in zip(texts, theirs.encode_batch_fast(texts, add_special_tokens=False)):
        if ours.encode(text) != encoding.ids:
            raise SystemExit(f"{name}: other ids than those of tokenizers")
    calls = [
        lambda: [ours.encode(text) for text in texts],
        lambda: [theirs.encode(text, add_special_tokens=False) for text in texts],
        lambda: theirs.encode_batch_fast(texts, add_special_tokens=False),
    ]
    megabytes = sum(len(text.encode()) for text in texts) * 1e-6
    return [name, *(megabytes / s for s in medians(calls, rounds))]


def compare(cases, ours, theirs, options):
    print(f"{'MB/s':26s} {'napier':>8s} {'encode':>8s} {'encode_batch_fast':>18s}")
    for case in cases:
        name, napiers, one, batch = row = measure(*case, ours, theirs, options.rounds)
        print(f"{name:26s} {napiers:8.1f} {one:8.2f} {batch:18.2f}   {napiers / one:.1f}x, {napiers / batch:.1f}x", flush=True)
        add_rows(options.json, [dict(zip(("what", "napier", "encode", "encode_batch_fast"), row)) | {"unit": "MB/s"}])


def main():
    words = parser(__doc__, 9)
    words.add_argument("--vocabulary", type=int, default=60000, help="tokens to train (default: 60000)")
    words.add_argument("--file", nargs="+", help="instead: files of models, each with its own vocabulary")
    options = words.parse_args()
    sources, texts = code(), prose()
    cases = [
        ("code, texts of 4 KB", cut(sources, 4096)),
        ("code, 200 bytes", cut(sources, 200)),
        ("code, one of 1 MB", cut(sources, 2**20)),
        ("prose, 4 KB", cut(texts, 4096)),
        ("prose, 200 bytes", cut(texts, 200)),
        ("Chinese and emoji, 4 KB", cut(chinese(400000, 2), 4096)),
    ]
    for path in options.file or ():
        print(path)
        compare([cases[i] for i in (0, 3, 5)], napier.Tokenizer(path), tokenizers.Tokenizer.from_file(path), options)
    if options.file:
        return
    trained = train([sources, texts, chinese(300000, 1)], options.vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        trained.save(path)
        read = medians([lambda: napier.Tokenizer(path), lambda: tokenizers.Tokenizer.from_file(path)], 5)
        print(
            f"{trained.get_vocab_size()} tokens, {os.path.getsize(path) * 1e-6:.1f} MB: read in {read[0]:.2f} s by napier, "
            f"{read[1]:.2f} s by tokenizers {tokenizers.__version__}"
        )
        ours, theirs = napier.Tokenizer(path), tokenizers.Tokenizer.from_file(path)
    compare(cases, ours, theirs, options)


if __name__ == "__main__":
    main()
