"""Responses with log-probabilities, from JSON Lines in the shapes that engines write."""

import dataclasses
import hashlib
import json

import numpy as np

PARAMETERS = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


class BadInput(ValueError):
    """A line that cannot be read: its number, its key and what is wrong."""


@dataclasses.dataclass(eq=False)
class Response:
    line: int
    prompt: list
    ids: list
    engines: dict  # name -> float64 [T], NaN where there is none
    parameters: dict  # PARAMETERS, and logit_bias {id: bias}
    text: str | None = None  # of the response, where the line has it
    notes: dict = dataclasses.field(default_factory=dict)  # name -> what is odd about the list itself

    @property
    def key(self):
        return hashlib.sha256(repr((self.prompt, self.ids)).encode()).digest()


def _first(item, *names):
    for name in names:
        if item.get(name) is not None:
            return name, item[name]
    return None, None


def _fail(line, key, what):
    raise BadInput(f"line {line}: {key}: {what}")


def _ids(value, line, key):
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, (list, tuple)) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        _fail(line, key, "expected a list of ids")
    return list(value)


def _number(value, line, key):
    """A log-probability: a number, null, or one of the objects in which vLLM and OpenAI wrap it."""
    if isinstance(value, dict):
        if "logprob" in value:
            return _number(value["logprob"], line, key)
        if len(value) == 1:  # vLLM: {"id": {"logprob": ..}}
            return _number(next(iter(value.values())), line, key)
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        try:
            return float(value)  # "NaN", "-Infinity" as some writers put them
        except (TypeError, ValueError):
            _fail(line, key, f"expected a log-probability, got {value!r:.40}")
    return float(value)


def _of_token(value, token):
    """vLLM's dict of a position has the sampled id and the most probable ones: the sampled id's entry."""
    if isinstance(value, dict) and str(token) in value:
        return value[str(token)]
    return value


def _logprobs(value, ids, line, key):
    """The numbers of one engine."""
    if isinstance(value, dict):
        for name in ("content", "token_logprobs", "logprobs"):
            if isinstance(value.get(name), list):
                return _logprobs(value[name], ids, line, f"{key}.{name}")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, list):
        _fail(line, key, "expected a list of log-probabilities")
    same = len(value) == len(ids)
    return np.array([_number(_of_token(v, ids[i] if same else None), line, f"{key}[{i}]") for i, v in enumerate(value)], np.float64)


def _fit(values, prompt, ids, line, key, model):
    """The numbers of the response's tokens, and a note where the list has another length."""
    n, extra = len(ids), len(values) - len(ids)
    if extra == 0:
        return values, None
    if extra in (len(prompt), len(prompt) - 1):
        return values[extra:], "prompt"
    if extra == 1:
        return values[:n], "one more"
    if extra == -1:
        return np.append(values, np.nan), "one fewer"
    again = list(model.encode(model.decode(ids), continues=True)) if model.tokenizer is not None else []
    if len(again) == len(values):  # another tokenisation of the text: the numbers up to where it departs
        same = next((t for t, (a, b) in enumerate(zip(again, ids)) if a != b), 0)
        return np.append(values[:same], np.full(n - same, np.nan)), "retokenised"
    _fail(line, key, f"{len(values)} log-probabilities for {n} ids")


_ENGINE_KEYS = {  # the columns of TRL and of others that hold one engine's numbers
    "sampling_logprobs": "sampler",
    "sampling_per_token_logps": "sampler",
    "vllm_logprobs": "vllm",
    "rollout_log_probs": "rollout",
    "rollout_logprobs": "rollout",
    "old_per_token_logps": "trainer",
    "per_token_logps": "trainer",
    "trainer_logprobs": "trainer",
    "token_logprobs": "engine",
    "cumulative_logprobs": None,
}


def _engines(item):
    """(name, key, value) of each engine's numbers."""
    value = item.get("logprobs")
    if isinstance(value, dict) and not any(name in value for name in ("content", "token_logprobs")):
        yield from ((name, f"logprobs.{name}", v) for name, v in value.items())
    elif value is not None:
        yield "engine", "logprobs", value
    for key, name in _ENGINE_KEYS.items():
        if name is not None and item.get(key) is not None:
            yield name, key, item[key]


def _parts(item):
    """A line's object as a flat one: vLLM's `outputs` and OpenAI's `choices` (or `body` of a batch) hold the response inside."""
    for outer in ("response", "body"):
        if isinstance(item.get(outer), dict):
            item = {**item, **item[outer]}
    for inner in ("outputs", "choices"):
        if isinstance(item.get(inner), list):
            for part in item[inner]:
                if isinstance(part, dict):
                    message = part.get("message") if isinstance(part.get("message"), dict) else {}
                    flat = {k: v for k, v in item.items() if k not in (inner, "logprobs")}
                    yield {**flat, **part, **({"completion": message["content"]} if message.get("content") is not None else {})}
            return
    yield item


def _parameters(item, line):
    given = {}
    for outer in ("sampling_params", "sampling_parameters", "params", "parameters"):
        if isinstance(item.get(outer), dict):
            given.update(item[outer])
    given.update({k: item[k] for k in (*PARAMETERS, "logit_bias") if item.get(k) is not None})
    found = {}
    for name, default in PARAMETERS.items():
        value = given.get(name)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
            _fail(line, name, f"expected a number, got {value!r:.40}")
        found[name] = type(default)(value)
    if found["temperature"] < 0:
        _fail(line, "temperature", f"below 0: {found['temperature']}")
    if found["temperature"] == 0:  # greedy: engines report the plain log-probabilities
        found["temperature"] = 1.0
    found["top_k"] = max(found["top_k"], 0)
    bias = given.get("logit_bias") or {}
    if not isinstance(bias, dict):
        _fail(line, "logit_bias", "expected an object of id to bias")
    found["logit_bias"] = {int(k): float(v) for k, v in bias.items()}
    return found


def _prompt(item, line, model):
    key, ids = _first(item, "prompt_ids", "prompt_token_ids", "input_ids")
    if ids is not None:
        return _ids(ids, line, key)
    key, value = _first(item, "prompt", "messages", "question")
    if value is None:
        _fail(line, "prompt", "missing (prompt, messages, prompt_ids or prompt_token_ids)")
    if isinstance(value, list) and value and isinstance(value[0], int):
        return _ids(value, line, key)
    if model.tokenizer is None:
        _fail(line, key, "a text, but the model has no tokenizer.json: give prompt_ids")
    if isinstance(value, list):
        try:
            value = model.tokenizer.apply_chat_template(value, add_generation_prompt=True)
        except Exception as error:
            _fail(line, key, f"the chat template: {error}")
    if not isinstance(value, str):
        _fail(line, key, "expected a text, messages or ids")
    return list(model.encode(value, add_special_tokens="once"))


def _response(item, line, model):
    key, ids = _first(item, "response_ids", "completion_ids", "token_ids", "output_ids")
    text = _first(item, "response", "completion", "text")[1]
    if isinstance(text, list) and text and isinstance(text[-1], dict):  # TRL: messages
        text = text[-1].get("content")
    text = text if isinstance(text, str) else None
    if ids is not None:
        return _ids(ids, line, key), text
    if text is None:
        _fail(line, "response_ids", "missing (response_ids, completion_ids, token_ids, or a text)")
    if model.tokenizer is None:
        _fail(line, "response", "a text, but the model has no tokenizer.json: give response_ids")
    return list(model.encode(text, continues=True)), text


def read_item(item, line, model):
    """The responses of one line's object."""
    if not isinstance(item, dict):
        _fail(line, "line", "expected an object")
    for part in _parts(item):
        prompt = _prompt(part, line, model)
        ids, text = _response(part, line, model)
        if not prompt:
            _fail(line, "prompt", "empty: the first token of the response has no log-probability")
        if not ids:
            continue
        rows = model.info["vocabulary"]
        for key, some in (("prompt", prompt), ("response_ids", ids)):
            if min(some) < 0 or max(some) >= rows:
                _fail(line, key, f"id {min(some) if min(some) < 0 else max(some)}, but the model's ids lie below {rows}")
        engines, notes = {}, {}
        for name, key, value in _engines(part):
            engines[name], note = _fit(_logprobs(value, ids, line, key), prompt, ids, line, key, model)
            if note:
                notes[name] = note
        if not engines:
            _fail(line, "logprobs", "missing: no engine's log-probabilities")
        yield Response(line, prompt, ids, engines, _parameters(part, line), text, notes)


def lines_of(source):
    """(number, text or object) of each line of a file, an open file, or a list of objects."""
    if isinstance(source, (str, bytes)) or hasattr(source, "__fspath__"):
        with open(source, encoding="utf-8") as file:
            yield from enumerate(file, 1)
    else:
        yield from enumerate(source, 1)


def parse(line, number, model):
    """The responses of a line."""
    if isinstance(line, str):
        if not line.strip():
            return []
        try:
            line = json.loads(line)
        except ValueError as error:
            raise BadInput(f"line {number}: JSON: {error}") from None
    return list(read_item(line, number, model))
