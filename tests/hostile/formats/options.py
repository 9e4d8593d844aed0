"""Command lines: options with values at limits, without values, twice, misspelt, and words that are none."""

import mutate
from case import Case
from formats import jsonl, language, npy

import json

SHARE = 260

# What stands in for a number. How much work is asked for stays small: who writes the command line may ask for more.
NUMBERS = ["0", "-0", "1", "2", "-1", "3", "12", "13", "50", "51", "0.5", "1e-300", "1e-45", "1e300", "1e400", "-1e400", "nan", "NaN", "inf",
           "-inf", "Infinity", "", " ", " 1", "1 ", "+1", "1.", ".5", "1e", "0x10", "1_0", "1,5", "2147483647", "2147483648",
           "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
           "18446744073709551616", "9" * 500, "\u0661", "1\u00a0", "1\x1b[31m", "--", "-", "1K", "8M", "1G", "9999999999G", "K", "-1K"]
FEW = ["0", "1", "2", "7", "-1", "", "nan", "1.5", "64", "1025", "65536", "999999999999", "x", "\x1b[31m"]
WORDS = ["", "x", "auto", "none", "AUTO", "auto ", "a" * 3000, "\x1b[31mauto", "\n", "\xff", "%s%n", "f32", "npy", "mean", "token", "\u202e"]

NUMBER_OPTIONS = {
    "softmax": ["axis", "temperature", "buffer"],
    "umap": ["n-neighbors", "n-components", "seed", "transform-seed", "target-n-neighbors", "p", "min-dist", "spread", "a", "b",
             "learning-rate", "set-op-mix-ratio", "local-connectivity", "repulsion-strength", "dens-lambda", "dens-frac",
             "dens-var-shift", "target-weight", "disconnection-distance"],
    "grpo": ["epsilon", "epsilon-high", "delta", "beta", "sapo-temperature-pos", "sapo-temperature-neg", "vespo-k-pos",
             "vespo-lambda-pos", "vespo-k-neg", "vespo-lambda-neg", "num-items-in-batch", "importance-sampling-cap",
             "importance-sampling-floor", "top-entropy-quantile", "entropy-coefficient", "off-policy-mask-threshold",
             "max-completion-length"],
    "kl": ["clamp-ratio", "clamp-kl", "temperature"],
    "rubric": ["weights"],
    "logprobs": ["memory", "temperature", "prefix-token"],
    "judge": ["memory", "temperature"],
}
WORD_OPTIONS = {
    "softmax": ["masked-rows", "dtype", "format", "input-format", "algorithm", "isa", "output"],
    "umap": ["metric", "init", "neighbors", "target-metric", "label-type", "format", "input-format", "title", "plot", "output", "isa",
             "labels", "target", "hover", "model", "transform", "embedding", "inverse-transform"],
    "grpo": ["loss-type", "importance-sampling-level", "kl-estimator", "importance-sampling-mode", "isa", "losses", "gradients"],
    "kl": ["kl-estimator", "reduction", "format", "isa"],
    "rubric": ["format", "rubric", "rewards"],
    "logprobs": ["compute", "isa", "model"],
    "judge": ["compute", "verdict", "template", "criteria"],
    "tokenize": ["model", "output"],
}
FLAGS = ["help", "version", "densmap", "quality", "count", "tokens", "text", "plain", "plan", "chat", "decode", "lines", "no-thinking",
         "use-bias-correction-kl", "skip-special", "no-bos", "add-special"]
METRICS = ["euclidean", "manhattan", "chebyshev", "minkowski", "cosine", "correlation", "canberra", "braycurtis", "hellinger", "haversine",
           "seuclidean", "mahalanobis", "hamming", "jaccard", "dice", "yule", "russellrao", "rogerstanimoto", "sokalmichener",
           "sokalsneath", "kulsinski", "matching", "precomputed"]


def base(rng, command):
    """A good command line, its files and what it may write."""
    if command == "umap":
        return [command, "in.npy", "--n-epochs", "3", "--n-neighbors", "4", "-o", "out.npy"], {"in.npy": npy.table(rng)}, ["out.npy"]
    if command in ("softmax", "log-softmax", "logsumexp", "sparsemax"):
        return [command, "in.npy", "-o", "out.npy"], {"in.npy": npy.table(rng)}, ["out.npy"]
    if command in ("grpo", "kl", "rubric"):
        files = {"in.jsonl": b"\n".join(json.dumps(jsonl.line(rng)).encode() for _ in range(3)), "rubric.npy": npy.table(rng, 2, 3)}
        return [command, "in.jsonl", "-o", "out.jsonl"] + (["--rubric", "rubric.npy"] if command == "rubric" else []), files, ["out.jsonl"]
    if command == "tokenize":
        files = {"model/tokenizer.json": language.TOKENIZER.encode(), "text": b"hello world\n"}
        return [command, "text", "--model", "model", "-o", "out.txt"], files, ["out.txt"]
    words = [command, "in.jsonl", "--model", "model", "-o", "out.jsonl"]
    files = {**language.files(), "in.jsonl": b'{"prompt": "a", "responses": ["b", "c"]}\n', "c.jsonl": language.CRITERIA}
    return words + (["--criteria", "c.jsonl"] if command == "judge" else []), files, ["out.jsonl"]


def number(rng, command, words):
    options = NUMBER_OPTIONS.get(command) or NUMBER_OPTIONS["softmax"]
    for _ in range(rng.choice([1, 1, 2])):
        words += value(rng, rng.choice(options), rng.choice(NUMBERS))
    if command == "umap" and rng.random() < 0.3:
        words += rng.choice([["--densmap"], ["--metric", "minkowski"], ["--init", "random"], ["--init", "pca"]])


def few(rng, command, words):
    """Options that ask for work."""
    option = rng.choice(["threads", "n-epochs", "negative-sample-rate", "seconds"])
    words += value(rng, option, rng.choice(FEW))


def value(rng, option, text):
    return ["--%s=%s" % (option, text)] if rng.random() < 0.5 else ["--" + option, text]


def word(rng, command, words):
    words += value(rng, rng.choice(WORD_OPTIONS.get(command) or WORD_OPTIONS["softmax"]), rng.choice(WORDS))


def metric(rng, command, words):
    words += ["--metric", rng.choice(METRICS)]


def unknown(rng, command, words):
    words.insert(rng.randrange(len(words) + 1), rng.choice(
        ["--outputt", "--temperatur=1", "-x", "-", "--", "---", "--=", "-\x1b[31m", "--\xff", "--" + "a" * 100000, "-o", "--output", "-o=",
         "--out\x1b]0;x\x07put", "", "\x1b[2J", "--help=1", "-hh", "-j", "-j1x", "a b", "--densmap=1", "in2.npy", "-\n", "--\u202e"]))


def twice(rng, command, words):
    at = rng.randrange(1, len(words))
    words += words[at:] * rng.choice([1, 1, 500])


def less(rng, command, words):
    del words[rng.randrange(len(words))]


def flag(rng, command, words):
    words += ["--" + rng.choice(FLAGS) for _ in range(rng.choice([1, 2]))]


def swapped(rng, command, words):
    rng.shuffle(words)


MUTATIONS = [number, number, number, few, word, word, unknown, twice, less, flag, swapped, metric]
COMMANDS = ["softmax", "log-softmax", "logsumexp", "sparsemax", "umap", "umap", "umap", "grpo", "grpo", "kl", "rubric", "tokenize", "logprobs", "judge"]


def good(rng):
    words, files, outputs = base(rng, rng.choice(COMMANDS))
    return Case("good", words, files, outputs=outputs)


def make(rng, index):
    how = MUTATIONS[index % len(MUTATIONS)]
    command = "umap" if how is metric else rng.choice(COMMANDS)
    words, files, outputs = base(rng, command)
    how(rng, command, words)
    for i, text in enumerate(words):  # what asks for a file of such a name may write it
        before, _, after = text.partition("=")
        asked = after if before in ("--output", "--plot", "--model", "--losses", "--gradients", "--rewards") else text
        if asked and asked not in files and "/" not in asked and i > 0 and len(asked) < 200 and not asked.startswith("-"):
            outputs.append(asked)
    return Case("%s, %s" % (command, how.__name__), [w.encode("utf-8", "surrogateescape") for w in words], files, outputs=outputs)
