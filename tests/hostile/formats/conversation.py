"""What a model is asked: texts, ids and conversations in JSON Lines, lists of ids to decode, criteria and templates."""

import json

import mutate
from case import Case
from formats import language

SHARE = 130

GOOD = ['{"prompt": "hello", "responses": [" world", "", " there!"]}', '{"prompt": [104, 101], "response": [108, 108, 111]}',
        '{"prompt": [{"role": "user", "content": "Hi"}], "responses": ["Hello", [1, 2]]}']
CHAT = '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Hello"}, ' \
       '{"role": "assistant", "content": "<think>a</think>b"}, {"role": "tool", "content": "t"}]}'
CRITERION = '{"criterion": "It is right.", "weight": 2}'


def scored(rng):
    lines = [g.encode() for g in GOOD]
    at = rng.randrange(3)
    what, lines[at] = mutate.change_json(rng, GOOD[at])
    words = ["logprobs", "in.jsonl", "--model", "model", "-o", "out.jsonl"]
    words += rng.choice([[], ["--plan"], ["--compute", "bf16"], ["--prefix-token", "5"], ["--memory", rng.choice(["1", "4K", "8M"])]])
    return Case(what, words, {**language.files(), "in.jsonl": b"\n".join(lines)}, outputs=["out.jsonl"])


def judged(rng):
    what, data = mutate.change_json(rng, CRITERION)
    words = ["judge", "in.jsonl", "--model", "model", "--criteria", "c.jsonl", "-o", "out.jsonl"]
    files = {**language.files(), "in.jsonl": b'{"prompt": "a", "responses": ["b", "c"]}\n', "c.jsonl": data}
    if rng.random() < 0.4:
        files["c.jsonl"] = CRITERION.encode()
        files["template"] = rng.choice([b"", b"{prompt}", b"{response", b"{}{criterion}" * 100, b"\xff", b"\0", b"{response}" * 2000])
        words += ["--template", "template"] + rng.choice([[], ["--plain"]])
    if rng.random() < 0.3:
        words += ["--verdict", rng.choice(["Yes=1", "=1", "Yes", "Yes=nan", "\x1b[31m=2", "Yes=1e999", "a" * 3000 + "=1", "a=b=1"])]
    return Case("criteria: " + what, words, files, outputs=["out.jsonl"])


def chatted(rng):
    what, data = mutate.change_json(rng, CHAT)
    words = ["tokenize", "in.jsonl", "--model", "model", "--chat", "-o", "out.txt"]
    words += rng.choice([[], ["--text"], ["--no-thinking"], ["--no-generation-prompt"]])
    return Case("chat: " + what, words, {"model/tokenizer.json": language.TOKENIZER.encode(), "in.jsonl": data}, outputs=["out.txt"])


def decoded(rng):
    ids = [rng.choice(mutate.NUMBER_TEXTS + [str(mutate.number(rng)), "0", "5", "282", "283"]) for _ in range(rng.choice([1, 5, 50]))]
    data = rng.choice([" ", ",", "\n", "]["]).join(ids).encode("utf-8", "replace")
    if rng.random() < 0.3:
        data = mutate.damage(rng, data)[1]
    words = ["tokenize", "ids", "--model", "model", "--decode", "-o", "out.txt"] + rng.choice([[], ["--lines"], ["--skip-special"]])
    return Case("ids to decode", words, {"model/tokenizer.json": language.TOKENIZER.encode(), "ids": data}, outputs=["out.txt"])


def long_text(rng):
    data = json.dumps({"prompt": "ab" * rng.choice([10, 600]), "responses": ["c" * 300, "\u0301" * 200, ""] * rng.choice([1, 4])})
    words = ["logprobs", "in.jsonl", "--model", "model", "-o", "out.jsonl", "--memory", rng.choice(["1M", "16M", "64M"])]
    return Case("long texts", words, {**language.files(), "in.jsonl": data.encode()}, outputs=["out.jsonl"])


MUTATIONS = [scored, judged, chatted, decoded, scored, long_text]


def good(rng):
    files = {**language.files(), "in.jsonl": "\n".join(GOOD).encode(), "chat.jsonl": CHAT.encode()}
    return rng.choice([
        Case("good", ["logprobs", "in.jsonl", "--model", "model", "-o", "out.jsonl"], files, outputs=["out.jsonl"]),
        Case("good", ["tokenize", "chat.jsonl", "--chat", "--model", "model", "-o", "out.txt"], files, outputs=["out.txt"])])


def make(rng, index):
    return MUTATIONS[index % len(MUTATIONS)](rng)
