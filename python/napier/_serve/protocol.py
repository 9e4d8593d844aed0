"""What a request may say: OpenAI's parameters, and those of vLLM that reinforcement learning uses. Whatever Napier does not do is
refused by its name."""

import json
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import limits as lim


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, message, param=None, status=400, code=None):
        super().__init__(message)
        self.param, self.status, self.code = param, status, code

    def body(self):
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


# ---- Values. Each of these returns a function that checks one and returns it. ----------------------------------------------------


def _wrong(name, expected, value):
    shown = json.dumps(value, default=str)
    raise Refused(f"{name}: expected {expected}, got {shown[:80] + '...' if len(shown) > 80 else shown}", name)


def _integer(least, most):
    def check(name, value):
        if type(value) is not int or not least <= value <= most:
            _wrong(name, f"an integer from {least} to {most}", value)
        return value

    return check


def _number(least, most, above=False):
    """above: `least` itself is not allowed."""

    def check(name, value):
        known = type(value) in (int, float) and least <= value <= most  # so it is finite
        if not known or (above and value == least):
            _wrong(name, f"a number {'above' if above else 'from'} {least} to {most}", value)
        return float(value)

    return check


def _boolean(name, value):
    if type(value) is not bool:
        _wrong(name, "true or false", value)
    return value


def _text(name, value):
    if not isinstance(value, str):
        _wrong(name, "a text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(f"{name}: has half of a surrogate pair, which is no character", name) from None
    return value


def _object(name, value):
    if not isinstance(value, dict):
        _wrong(name, "an object", value)
    return value


def _objects(name, value):
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        _wrong(name, "a list of objects", value)
    return value


def _stops(name, value):
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or len(texts) > lim.STOPS:
        _wrong(name, f"a text, or a list of at most {lim.STOPS}", value)
    for text in texts:
        if not 0 < len(_text(name, text).encode()) <= lim.STOP_BYTES:
            _wrong(name, f"texts of 1 to {lim.STOP_BYTES} bytes", text)
    return texts


def _ids(name, value):
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one < 2**31 for one in value):
        _wrong(name, "a list of token ids", value)
    return value


def _stop_ids(name, value):
    if len(_ids(name, value)) > lim.STOP_IDS:
        _wrong(name, f"at most {lim.STOP_IDS} ids", value)
    return value


def _prompts(name, value):
    """A list of texts or lists of ids."""
    if isinstance(value, str) or (isinstance(value, list) and value and type(value[0]) is int):
        value = [value]
    if not isinstance(value, list) or not 0 < len(value) <= lim.SEQUENCES:
        _wrong(name, f"a text, a list of ids, or a list of 1 to {lim.SEQUENCES} of them", value)
    return [_text(name, one) if isinstance(one, str) else _ids(name, one) for one in value]


def _continued(name, value):
    return value if type(value) is bool else _text(name, value)


def _message(name, message):
    """A message whose content is one text."""
    _text(f"{name}.role", message.get("role"))
    content = message.get("content")
    if isinstance(content, list):
        parts = _objects(f"{name}.content", content)
        for i, part in enumerate(parts):
            if part.get("type") != "text":
                raise Refused(f"{name}.content[{i}].type: only text is understood", f"{name}.content[{i}].type")
            _text(f"{name}.content[{i}].text", part.get("text"))
        content = "\n".join(part["text"] for part in parts)
    elif content is not None:
        _text(f"{name}.content", content)
    elif message["role"] != "assistant":
        _wrong(f"{name}.content", "a text", content)
    return {**message, "content": content}


def _messages(name, value):
    if not _objects(name, value):
        _wrong(name, "at least one message", value)
    return [_message(f"{name}[{i}]", message) for i, message in enumerate(value)]


_COMMON = {
    "model": _text,
    "n": _integer(1, lim.SEQUENCES),
    "seed": _integer(-(2**63), 2**63 - 1),
    "stop": _stops,
    "stop_token_ids": _stop_ids,
    "ignore_eos": _boolean,
    "temperature": _number(0, 1000),
    "top_p": _number(0, 1, above=True),
    "top_k": _integer(-1, 2**31),
    "min_p": _number(0, 1),
    "repetition_penalty": _number(0, 1000, above=True),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "max_tokens": _integer(0, 2**31),
    "min_tokens": _integer(0, 2**31),
    "stream": _boolean,
    "stream_options": _object,
    "prompt_logprobs": _integer(0, lim.TOP),
    "plain_logprobs": _boolean,
    "return_token_ids": _boolean,
    "return_tokens_as_token_ids": _boolean,
    "add_special_tokens": _boolean,
}
_COMPLETION = {**_COMMON, "prompt": _prompts, "logprobs": _integer(0, lim.TOP), "echo": _boolean}
_CHAT = {
    **_COMMON,
    "messages": _messages,
    "logprobs": _boolean,
    "top_logprobs": _integer(0, lim.TOP),
    "max_completion_tokens": _integer(1, 2**31),
    "tools": _objects,
    "documents": _objects,
    "chat_template_kwargs": _object,
    "add_generation_prompt": _boolean,
    "continue_final_message": _continued,
}
# Parameters that have no effect on an answer.
_IGNORED = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "request_id", "priority", "verbosity"}
# Parameters that ask for something Napier does not do, with the values that ask for nothing.
_NEUTRAL: dict[str, tuple] = {
    "best_of": (1,),
    "suffix": ("",),
    "logit_bias": ({},),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True, False),
    "include_stop_str_in_output": (False,),
    "detokenize": (True,),
    "reasoning_effort": ("none",),
    "modalities": (["text"],),
    "logprobs_mode": ("processed_logprobs",),
}


def _refuse_constant(word):
    raise ValueError(f"{word} is no number of JSON")


def read(raw, chat):
    """The parameters of a request's body, checked one by one."""
    try:
        given = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Refused("the body is not a JSON object")
    checks, fields = _CHAT if chat else _COMPLETION, {}
    for name, value in given.items():
        if value is None or name in _IGNORED:
            continue
        if name in checks:
            fields[name] = checks[name](name, value)
        elif name not in _NEUTRAL:
            raise Refused(f"{_text('a name', name)[:80]}: there is no such parameter here", name[:80], code="unknown_parameter")
        elif not any(type(value) is type(one) and value == one for one in _NEUTRAL[name]):
            raise Refused(f"{name}: Napier does not do this", name, code="unsupported_parameter")
    wanted = "messages" if chat else "prompt"
    if wanted not in fields:
        raise Refused(f"{wanted}: missing", wanted)
    return fields


# ---- A request that can run ------------------------------------------------------------------------------------------------------


@dataclass
class Request:
    """What a request asks for, with the ids of its prompts."""

    chat: bool
    prompts: list[np.ndarray]
    n: int
    seed: int
    max_tokens: int
    sampling: dict[str, Any]  # options of CausalLM.generate
    stop_ids: list[int]
    stop_texts: list[str]
    min_tokens: int
    logprobs: int | None  # of generated tokens: None, or the number of the most probable ones besides
    prompt_logprobs: int | None
    shows_prompt: bool  # whether the answer has a member prompt_logprobs
    echo: bool
    stream: bool
    usage: bool  # in a stream
    plain: bool
    token_ids: bool
    names_are_ids: bool

    @property
    def temperature(self):
        """Of the distribution whose log-probabilities are given: greedy tokens have those at temperature 1."""
        return self.sampling["temperature"] or 1.0

    def waits(self):
        """Whether the answer needs what is known only after all its tokens."""
        greedy = self.logprobs is not None and not self.sampling["temperature"]
        return self.plain or greedy or bool(self.logprobs) or self.prompt_logprobs is not None

    def key(self):
        """Requests with the same key can share a call of generate. It reserves memory for max_tokens of each sequence."""
        same = *self.sampling.values(), *self.stop_ids, None, *self.stop_texts
        return same, self.min_tokens, self.n, self.chat, self.max_tokens.bit_length()


def tokenize(model, text, special=True):
    """The ids of a prompt. special: with those that the tokenizer's file adds, such as a BOS."""
    if model.tokenizer is None:
        raise Refused("prompt: this model has no tokenizer; give ids", "prompt")
    return model.encode(_text("prompt", text), add_special_tokens="once" if special is not False else False)


def detokenize(model, ids):
    if model.tokenizer is None:
        raise Refused("tokens: this model has no tokenizer", "tokens")
    try:
        return model.decode(_ids("tokens", ids))
    except ValueError as error:
        raise Refused(f"tokens: {error}", "tokens") from None


def _rendered(model, fields):
    """The text of a conversation."""
    kwargs = fields.get("chat_template_kwargs", {})
    own = {"messages", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message", "self"}
    for name in own & set(kwargs):
        raise Refused(f"chat_template_kwargs.{name}: give it outside, or not at all", f"chat_template_kwargs.{name}")
    if model.tokenizer is None:
        raise Refused("messages: this model has no tokenizer; use /v1/completions with ids", "messages")
    going_on = fields.get("continue_final_message", False)
    try:
        return model.tokenizer.apply_chat_template(
            fields["messages"],
            tools=fields.get("tools"),
            documents=fields.get("documents"),
            add_generation_prompt=fields.get("add_generation_prompt", not going_on),
            continue_final_message=going_on,
            **kwargs,
        )
    except (ValueError, TypeError, ImportError, RecursionError) as error:
        name = str(error).split(":")[0]
        raise Refused(str(error), name if name in fields else "messages") from None


def _checked_prompts(model, prompts, most, param):
    rows, total = model.info["vocabulary"], 0
    for i, ids in enumerate(prompts):
        which = f"{param}[{i}]" if len(prompts) > 1 else param
        if not ids:
            raise Refused(f"{which}: empty", param)
        if max(ids) >= rows:
            raise Refused(f"{which}: id {max(ids)}, but the model's ids lie below {rows}", param)
        if len(ids) > most:
            raise Refused(f"{which}: {len(ids)} tokens, but the context is {most} with the answer", param, code="context_length_exceeded")
        total += len(ids)
    if total > lim.REQUEST_TOKENS:
        raise Refused(f"{param}: {total} tokens in one request; at most {lim.REQUEST_TOKENS}", param)
    return [np.asarray(ids, np.int64) for ids in prompts]


def _lengths(fields, chat, prompts, context):
    """max_tokens and min_tokens."""
    longest = max(map(len, prompts))
    name = "max_completion_tokens" if chat and "max_completion_tokens" in fields else "max_tokens"
    left = context - longest
    most = fields.get(name, min(left, lim.CHAT_TOKENS) if chat else min(left, 16))
    scored = not chat and (fields.get("echo") or "prompt_logprobs" in fields)
    if most > left:
        message = f"{name}: {most} after a prompt of {longest} tokens, but the context is {context}"
        raise Refused(message, name, code="context_length_exceeded")
    if most == 0 and not scored:
        raise Refused(f"{name}: 0, which only echo and prompt_logprobs allow" if name in fields else "the context is full", name)
    least = fields.get("min_tokens", 0)
    if least > most:
        raise Refused(f"min_tokens: {least}, more than max_tokens, {most}", "min_tokens")
    return most, least


def _sampling(fields):
    names = ("temperature", 1.0), ("top_p", 1.0), ("min_p", 0.0), ("repetition_penalty", 1.0)
    values = {name: fields.get(name, default) for name, default in (*names, ("presence_penalty", 0.0), ("frequency_penalty", 0.0))}
    return {**values, "top_k": max(fields.get("top_k", 0), 0)}


_OFF = {"top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_k": 0}


def _seed(fields, sequences):
    if "seed" not in fields:
        return secrets.randbelow(2**62)
    if fields["seed"] > 2**63 - 1 - sequences:
        raise Refused(f"seed: too large for {sequences} choices", "seed")
    return fields["seed"]


def _logprobs(fields, chat):
    if not chat:
        return fields.get("logprobs")
    if fields.get("logprobs"):
        return fields.get("top_logprobs", 0)
    if fields.get("top_logprobs"):
        raise Refused("top_logprobs: needs logprobs to be true", "top_logprobs")
    return None


def _check_tops(model, request, param):
    """The most probable tokens come from a second pass, without filters and penalties, whose logits are in memory."""
    others = [name for name, off in _OFF.items() if request.sampling[name] != off]
    if request.logprobs and others:
        raise Refused(f"{param}: Napier gives the most probable tokens without filters and penalties only, not with {others[0]}", param)
    longest = max(map(len, request.prompts))
    for name, most, tokens in (
        (param, request.logprobs, longest + request.max_tokens),
        ("prompt_logprobs", request.prompt_logprobs, longest),
    ):
        if most and tokens * model.info["vocabulary"] * 4 > lim.LOGITS:
            raise Refused(f"{name}: {tokens} tokens have more logits than {lim.LOGITS >> 20} MiB; 0 has no such limit", name)


def prepare(raw, chat, served, limits):
    """A Request of a body. served: the model and its name."""
    model, name = served
    fields = read(raw, chat)
    if fields.get("model", name) != name:
        raise Refused(f"model: {fields['model']!r} is not served here, but {name!r}", "model", 404, "model_not_found")
    param = "messages" if chat else "prompt"
    texts = [_rendered(model, fields)] if chat else fields["prompt"]
    special = fields.get("add_special_tokens", not chat)
    prompts = _checked_prompts(model, [tokenize(model, x, special) if isinstance(x, str) else x for x in texts], limits.context, param)
    most, least = _lengths(fields, chat, prompts, limits.context)
    n = fields.get("n", 1)
    if n * len(prompts) > lim.SEQUENCES:
        raise Refused(f"n: {n} for {len(prompts)} prompts; at most {lim.SEQUENCES} choices", "n")
    stops, stop_ids = fields.get("stop", []), fields.get("stop_token_ids", [])
    if any(one >= model.info["vocabulary"] for one in stop_ids):
        raise Refused(f"stop_token_ids: the model's ids lie below {model.info['vocabulary']}", "stop_token_ids")
    if stops and model.tokenizer is None:
        raise Refused("stop: this model has no tokenizer; use stop_token_ids", "stop")
    if stops and not stop_ids and fields.get("ignore_eos"):
        raise Refused("ignore_eos: not together with `stop` alone", "ignore_eos")
    logprobs, scored = _logprobs(fields, chat), fields.get("prompt_logprobs")
    echo = fields.get("echo", False)
    request = Request(
        chat=chat,
        prompts=prompts,
        n=n,
        seed=_seed(fields, n * len(prompts)),
        max_tokens=most,
        sampling=_sampling(fields),
        stop_ids=[*([] if fields.get("ignore_eos") else model.info["eos_ids"]), *stop_ids],
        stop_texts=stops,
        min_tokens=least,
        logprobs=logprobs,
        prompt_logprobs=logprobs if echo and scored is None else scored,
        shows_prompt=scored is not None,
        echo=echo,
        stream=fields.get("stream", False),
        usage=_boolean("stream_options.include_usage", fields.get("stream_options", {}).get("include_usage", False)),
        plain=fields.get("plain_logprobs", False),
        token_ids=fields.get("return_token_ids", False),
        names_are_ids=fields.get("return_tokens_as_token_ids", False),
    )
    if echo and request.stream:
        raise Refused("echo: not in a stream", "echo")
    _check_tops(model, request, "top_logprobs" if chat else "logprobs")
    return request
