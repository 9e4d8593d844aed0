"""tokenizer.json: every part of it replaced, doubled, left out; vocabularies and merges that do not fit; long tokens."""

import json

import mutate
from case import Case
from formats import language

SHARE = 180

TEXTS = [b"hello world", b"", b"<|im_start|>user\nhi<|im_end|>", "caf\u00e9! cafe\u0301!".encode(), b"a" * 3000,
         "\u0301".encode() * 500, b"\0", b"\xff\xfe", b" \n\r\t" * 50, "\U0001f600\u4f60\u597d".encode() * 30, b"'s't" * 200]


def pairs():
    return mutate.read_json(language.TOKENIZER)


def member(tree, *path):
    for key in path:
        tree = dict(tree)[key] if isinstance(tree, mutate.Pairs) else tree[key]
    return tree


def put(tree, key, value):
    for i, (name, _) in enumerate(tree):
        if name == key:
            tree[i] = (key, value)


def over_characters():
    """Makes one like Llama 2's: pieces, bytes for unknown characters, spaces as U+2581, a BOS."""
    mark = "\u2581"
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), mark, "a", "h", "e", "l", "o", mark + "a", "he", "ll"]
    return json.dumps({
        "version": "1.0", "added_tokens": [{"id": 1, "content": "<s>", "special": True, "normalized": True}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": mark}, {
            "type": "Replace", "pattern": {"String": " "}, "content": mark}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": mark, "prepend_scheme": "always", "split": False},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                           "special_tokens": {"<s>": {"ids": [1]}}},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": mark}, "content": " "}, {
            "type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "merges": [[mark, "a"], ["h", "e"], ["l", "l"]], "vocab": {word: i for i, word in enumerate(words)}}})


CHARACTERS = over_characters()


# ---- Mutations: each changes the tree, or returns the bytes in place of it ---------------------------------------------


def tree(rng, _):
    return mutate.change_json(rng, language.TOKENIZER)[1]


def characters(rng, _):
    """The other kind, with one change anywhere, or one among its steps."""
    if rng.random() < 0.5:
        return mutate.change_json(rng, CHARACTERS)[1]
    root = mutate.read_json(CHARACTERS)
    mutate.change_tree(rng, member(root, rng.choice(["normalizer", "pre_tokenizer", "post_processor", "decoder"])))
    return mutate.json_bytes(root)


def top(rng, root):
    """A whole part replaced, doubled or left out."""
    at = rng.randrange(len(root))
    kind = rng.randrange(3)
    if kind == 0:
        root[at] = (root[at][0], mutate.odd_value(rng))
    elif kind == 1:
        root.append((root[at][0], mutate.odd_value(rng) if rng.random() < 0.5 else root[at][1]))
    else:
        del root[at]


def splitting(rng, root):
    part = member(root, "pre_tokenizer")
    mutate.change_tree(rng, part)
    if rng.random() < 0.5:
        part.append(("pretokenizers", rng.choice([[], [[]], None])))


def pattern(rng, root):
    """Expressions that cannot be, or that backtrack."""
    split = member(root, "pre_tokenizer", "pretokenizers")[0]
    put(split, "pattern", mutate.Pairs([("Regex", rng.choice(
        ["", "(", "(a+)+$", "(?:a|a)*b", "\\", "[z-a]", "(?R)", "(?=a)*", "(?<=a)b", "\\1", "a{100000}", "(a{1,1000}){1,1000}",
         "(((((((((((a*)*)*)*)*)*)*)*)*)*)*b", "(*LIMIT_MATCH=1)a", "(*UTF)", "\\C", "\\K", "(?C1)a", "\x00", "\\p{Lx}",
         "|", "$", "(?i:'s)|.", "(?#" + "a" * 60000 + ")", "(" * 300 + ")" * 300, "(?s:.*)", "\\X+"]))]))


def merges(rng, root):
    model = member(root, "model")
    rules = member(model, "merges")
    at = rng.randrange(len(rules))
    rules[at] = rng.choice([["a"], ["a", "b", "c"], [], "a", "a b c", " ", "", ["", ""], ["a", "zz"], [1, 2], None, rules[0],
                            rules[at], [rules[0], rules[0]], "x" * 5000, "\u0000 a"])
    if rng.random() < 0.3:
        rules += [rules[rng.randrange(len(rules))]] * rng.choice([1, 3000])


def vocabulary(rng, root):
    model = member(root, "model")
    words = member(model, "vocab")
    at = rng.randrange(len(words))
    kind = rng.randrange(5)
    if kind == 0:
        words[at] = (words[at][0], mutate.number(rng))
    elif kind == 1:
        words[at] = (words[at][0], words[rng.randrange(len(words))][1])
    elif kind == 2:
        words[at] = (mutate.odd_text(rng), words[at][1])
    elif kind == 3:
        del words[at]
    else:
        words.append((words[at][0], len(words)))


def added(rng, root):
    tokens = member(root, "added_tokens")
    token = tokens[rng.randrange(len(tokens))]
    kind = rng.randrange(4)
    if kind == 0:
        put(token, "content", mutate.odd_text(rng))
    elif kind == 1:
        put(token, "id", mutate.number(rng))
    elif kind == 2:  # many that begin alike: each place of a text may be the start of any
        tokens += [mutate.Pairs([("id", 300 + i), ("content", "a" * (i + 2)), ("special", False), ("normalized", False)])
                   for i in range(rng.choice([10, 300]))]
    else:
        put(token, "content", "a" * rng.choice([1000, 50000]) + "b")


def colliding(rng, root):
    """Many merges, whose ids follow a pattern that an unseeded hash may not like."""
    alphabet = [w for w, _ in member(root, "model", "vocab")][:64]
    model = member(root, "model")
    words = [w for w, _ in member(model, "vocab")]
    known, rules = set(words), []
    count = rng.choice([500, 3000])
    for a in alphabet:
        for b in alphabet:
            if len(rules) < count and a + b not in known:
                known.add(a + b)
                words.append(a + b)
                rules.append([a, b])
    put(model, "vocab", mutate.Pairs([(w, 1000 + i * rng.choice([1, 1, 4096]) if i > 300 else i) for i, w in enumerate(words)]))
    put(model, "merges", rules)
    put(root, "added_tokens", [])


def wide(rng, root):
    """Small in the file, large in a tree."""
    where = rng.choice([root, member(root, "model"), member(root, "pre_tokenizer")])
    where.append(("x", mutate.Raw(rng.choice(["[" + "0," * 10**6 + "0]", "[" + "[]," * 300000 + "0]", '{"a":' + "[0," * 900 + "0" + "]" * 900 + "}"]))))


def damaged(rng, _):
    return mutate.damaged(rng, language.TOKENIZER.encode())


MUTATIONS = [tree, top, splitting, pattern, merges, vocabulary, added, colliding, damaged, tree, top, vocabulary, wide, characters, characters]


def good(rng):
    return Case("good", ["tokenize", "text", "--model", "model", "-o", "out.txt"],
                {"model/tokenizer.json": mutate.json_bytes(pairs()), "text": b"hello world"}, outputs=["out.txt"])


def make(rng, index):
    how = MUTATIONS[index % len(MUTATIONS)]
    text = rng.choice(TEXTS)
    if how is added and rng.random() < 0.5:
        text = b"a" * 60000
    if how is pattern:
        text = rng.choice([b"a" * 5000, text])
    words = ["tokenize", "text", "--model", rng.choice(["model", "model/tokenizer.json"]), "-o", "out.txt"]
    words += rng.choice([[], [], ["--lines"], ["--tokens"], ["--count"], ["--plain-special"], ["--add-special"]])
    root = pairs()
    data = how(rng, root) or mutate.json_bytes(root)
    return Case(how.__name__, words, {"model/tokenizer.json": data, "text": text}, outputs=["out.txt"])
