"""Files that logprobs, judge and generate go on with (--resume): cut, with damaged tails, or somebody else's."""

import json

import mutate
from case import Case
from formats import language

SHARE = 60

COMMANDS = {
    "logprobs": ("response", {"token_ids": [220], "logprobs": [-5.5], "entropies": [5.25], "sum": -5.5, "is_greedy": False}, []),
    "judge": ("response", {"scores": [1.5], "reward": 1.5}, ["--criteria", "criteria.jsonl"]),
    "generate": ("sample", {"token_ids": [5], "logprobs": [-5.5], "plain_logprobs": [-5.5], "text": "a", "finish": "length"},
                 ["--samples", "2", "--max-tokens", "1"]),
}
IN = b'{"prompt": "hello", "responses": [" world", "there"]}\n{"prompt": "he", "responses": ["a", "b"]}\n'


def lines_of(command):
    """The results of IN; only the numbers of lines and results are compared."""
    name, rest, _ = COMMANDS[command]
    return [json.dumps({"line": 1 + i // 2, name: i % 2, **rest}).encode() + b"\n" for i in range(4)]


def case(what, command, data, **more):
    words = [command, "in.jsonl", "--model", "model", "-o", "out.jsonl", "--resume", *COMMANDS[command][2]]
    files = {**language.files(), "in.jsonl": IN, "criteria.jsonl": language.CRITERIA, "out.jsonl": data}
    return Case(command + ": " + what, words, files, outputs=["out.jsonl"], **more)


def cut(rng, command):
    data = b"".join(lines_of(command))
    return case("cut", command, data[: rng.randrange(len(data) + 1)])


def damaged(rng, command):
    what, data = mutate.damage(rng, b"".join(lines_of(command)[: rng.randrange(1, 5)]))
    return case(what, command, data)


def changed(rng, command):
    lines = lines_of(command)[: rng.randrange(1, 5)]
    what, lines[-1] = mutate.change_json(rng, lines[-1].decode())
    return case(what, command, b"".join(lines) + rng.choice([b"", b"\n"]))


def tail(rng, command):
    """What follows complete lines is no beginning of a result."""
    end = rng.choice([b"\0", bytes(5000), b"{", b'{"line": 9}\n', b'{"line": 1}', b"\n", b"x" * 100000, b"[" * 5000, b"\xff\xfe",
                      rng.randbytes(100), b'{"line": ' + b"9" * 100000, lines_of(command)[0]])
    begins = b'{"line": '[: len(end)] == end[:9] and b"\n" not in end
    return case("a tail", command, b"".join(lines_of(command)) + end, must_fail=not begins and end != b"\n")


def mixed(rng, command):
    """Results in another order, twice, of another command, or more than there are."""
    lines = lines_of(rng.choice(list(COMMANDS))) + lines_of(command)
    rng.shuffle(lines)
    return case("other results", command, b"".join(lines), must_fail=True)


MUTATIONS = [cut, damaged, changed, tail, mixed]


def good(rng):
    command = rng.choice(list(COMMANDS))
    return case("good", command, b"".join(lines_of(command)[: rng.randrange(5)]))


def make(rng, index):
    return MUTATIONS[index % len(MUTATIONS)](rng, rng.choice(list(COMMANDS)))
