"""JSON Lines of responses: what grpo, kl and rubric read."""

import json

import mutate
from case import Case
from formats import npy

SHARE = 180

KEYS = ["logprobs", "old_logprobs", "ref_logprobs", "sampler_logprobs", "entropies", "advantage", "mask", "token_ids"]


def line(rng, count=4):
    numbers = lambda: [round(rng.uniform(-3, 0), 3) for _ in range(count)]
    return {"logprobs": numbers(), "old_logprobs": numbers(), "ref_logprobs": numbers(), "sampler_logprobs": numbers(),
            "entropies": [abs(x) for x in numbers()], "advantage": round(rng.uniform(-1, 1), 3),
            "mask": [rng.choice([1, 0]) for _ in range(count)], "token_ids": [rng.randrange(3) for _ in range(count)],
            "text": "unread"}


def command(rng, name):
    kind = rng.randrange(3)
    if kind == 0:
        out = ["out.json", "losses.npy", "grad.csv"]
        words = ["grpo", name, "-o", out[0], "--losses", out[1], "--gradients", out[2], "--loss-type",
                 rng.choice(["grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo", "sapo", "vespo", "luspo", "token_mean"])]
        if rng.random() < 0.3:
            words += ["--beta", "0.1"]
        return words, out
    if kind == 1:
        out = rng.choice(["out.jsonl", "out.npy", "out.csv"])
        return ["kl", name, "-o", out, "--kl-estimator", rng.choice(["k1", "k2", "k3"])], [out]
    out = rng.choice(["out.jsonl", "out.npy"])
    return ["rubric", name, "--rubric", "rubric.npy", "-o", out, "--rewards", "rewards.npy"], [out, "rewards.npy"]


# ---- Mutations: of a list of good lines ------------------------------------------------------------------------------


def tree(rng, lines):
    at = rng.randrange(len(lines))
    what, lines[at] = mutate.change_json(rng, lines[at].decode())
    return lines


def odd_member(rng, lines):
    """A member of a kind that it cannot have."""
    item = json.loads(lines[0], object_pairs_hook=mutate.Pairs)
    at = rng.randrange(len(item))
    item[at] = (item[at][0], mutate.odd_value(rng))
    lines[rng.choice([0, -1])] = mutate.json_bytes(item)
    return lines


def odd_element(rng, lines):
    item = json.loads(lines[-1], object_pairs_hook=mutate.Pairs)
    lists = [v for _, v in item if isinstance(v, list)]
    values = rng.choice(lists)
    values[rng.randrange(len(values))] = mutate.odd_value(rng)
    lines[-1] = mutate.json_bytes(item)
    return lines


def lengths(rng, lines):
    item = json.loads(lines[0])
    key = rng.choice([k for k, v in item.items() if isinstance(v, list)])
    item[key] = rng.choice([[], item[key] * 2, item[key][:-1], item[key] * 5000])
    lines[rng.randrange(len(lines))] = json.dumps(item).encode()
    return lines


def deep(rng, lines):
    lines.insert(rng.randrange(len(lines) + 1), mutate.json_bytes(mutate.nested(rng)))
    return lines


def between(rng, lines):
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(
        [b"", b" ", b"\0", b"null", b"[]", b"{}", b"1", b'"a"', b"nul", b"{", b"}", b"//", b"{}{}", b"\xef\xbb\xbf{}", b"\xff",
         b"# a", b"'a'", b"\x93NUMPY", b"{\"a\": " + b" " * 300000 + b"1}", b"\x1b[31m", b"NaN", b"-Infinity"]))
    return lines


def empty_lists(rng, lines):
    item = {k: ([] if isinstance(v, list) else v) for k, v in json.loads(lines[0]).items()}
    return [json.dumps(item).encode()] * rng.choice([1, 3, 2000])


def wide(rng, lines):
    """Many members, many elements: small in the file, large in a tree."""
    return rng.choice([
        lambda: [b"{" + b",".join(b'"k%d":0' % i for i in range(20000)) + b"}"],
        lambda: [b'{"logprobs":[0],"ref_logprobs":[0],"x":[' + b",".join([b"0"] * 10**6) + b"]}"],
        lambda: [b'{"x":[' + b",".join([b"[]"] * 100000) + b'],"logprobs":[0],"ref_logprobs":[0]}'],
        lambda: [b'{"logprobs":[0],"ref_logprobs":[0]}'] * 5000])()


MUTATIONS = [tree, odd_member, odd_element, lengths, deep, between, empty_lists, wide, tree, odd_element]


def good(rng):
    words, outputs = command(rng, "in.jsonl")
    lines = [json.dumps(line(rng)).encode() for _ in range(3)]
    return Case("good", words, {"in.jsonl": b"\n".join(lines), "rubric.npy": npy.table(rng, 2, 3)}, outputs=outputs)


def make(rng, index):
    how = MUTATIONS[index % len(MUTATIONS)]
    lines = [json.dumps(line(rng)).encode() for _ in range(rng.randint(1, 4))]
    data = rng.choice([b"\n", b"\n", b"\r\n"]).join(how(rng, lines)) + rng.choice([b"\n", b""])
    if rng.random() < 0.15:
        data = mutate.damage(rng, data)[1]
    name = mutate.file_name(rng, "in.jsonl")
    piped = rng.random() < 0.3
    words, out = command(rng, "-" if piped else name)
    files = {} if piped else {name: data}
    files["rubric.npy"] = npy.table(rng, 2, 3)
    return Case(how.__name__, words, files, data if piped else b"", out)
