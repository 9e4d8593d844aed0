"""A model's own chat template, which the C library's interpreter of Jinja runs; its text is the one that transformers renders."""

import calendar
import json
import os
import time

from .. import _napier


def load(directory):
    """The chat template of a model's directory (a text, a dict of name to text, or None), and its special tokens by name."""
    config = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        config.update(read_json(os.path.join(directory, file)))
    template, special = of_config(config)
    file, others = (os.path.join(directory, name) for name in ("chat_template.jinja", "additional_chat_templates"))
    if os.path.exists(file):
        template = _text(file)
    if os.path.isdir(others):
        named = {name[:-6]: _text(os.path.join(others, name)) for name in os.listdir(others) if name.endswith(".jinja")}
        template = {**({"default": template} if isinstance(template, str) else template or {}), **named}
    return template, special


def of_config(config):
    """The same of a tokenizer_config.json alone."""
    special = {
        key: value["content"] if isinstance(value, dict) else value
        for key, value in config.items()
        if key.endswith("_token") and isinstance(value, (str, dict))
    }
    template = config.get("chat_template")
    if isinstance(template, list):
        template = {one["name"]: one["template"] for one in template}
    return template, special


def choose(template, name, tools):
    """The template to render: `name`, which is one of several or a template itself, or the model's."""
    if isinstance(template, dict):
        if name in template:
            return template[name]
        template = template.get("tool_use" if tools is not None and "tool_use" in template else "default", template)
    chosen = template if name is None else name
    if isinstance(chosen, dict):
        raise ValueError(f"chat_template: the model has several and none is called 'default'; choose one of {sorted(chosen)}")
    if chosen is None:
        raise ValueError("chat_template: the model has none; give one, or use Tokenizer.chat with a format")
    return chosen


def render(template, special, messages, tools, documents, add_generation_prompt, continue_final_message, variables):
    """The text of a conversation."""
    if isinstance(messages, (str, bytes)) or not all(hasattr(message, "items") for message in messages):
        raise TypeError("messages: expected a list of dicts")
    if tools is not None and not all(isinstance(tool, dict) for tool in tools):
        raise TypeError("tools: expected a list of dicts, the JSON schemas of functions")
    plain = [_aliased({key: _plain(value) for key, value in message.items() if value is not None}) for message in messages]
    last = _marked(plain, continue_final_message, add_generation_prompt) if continue_final_message else None
    given = {"messages": plain, "tools": tools, "documents": documents, "add_generation_prompt": add_generation_prompt}
    document = json.dumps({**special, **given, **_plain(variables)}, ensure_ascii=False, default=_plain)
    now = calendar.timegm(time.localtime())
    try:
        text = _napier._chat_text([], None, False, False, chat_template=template, variables=document, now=now).decode()
    except Exception as error:
        said = str(error).removeprefix("chat: ").removeprefix("messages: the chat template says: ")
        raise ValueError(f"messages: the chat template fails: {said}") from error
    return text if last is None else _cut(text, last)


_THOUGHTS = ("reasoning_content", "thinking", "reasoning")  # the names under which templates read them
_MARK = "NAPIER_ENDS_HERE "


def _marked(messages, field, add_generation_prompt):
    """Marks the end of the text that the model continues; returns the text."""
    field = "content" if field is True else field
    if add_generation_prompt:
        raise ValueError("continue_final_message: goes on with a message, but add_generation_prompt begins another; give one of them")
    value = messages[-1].get(field) if messages else None
    if isinstance(value, list):
        part = next((part for part in reversed(value) if isinstance(part, dict) and isinstance(part.get("text"), str)), None)
        if part is None:
            raise ValueError(f"continue_final_message: no part of the last message's {field} is a text")
        part["text"], value = part["text"] + _MARK, part["text"]
        return value
    if not isinstance(value, str):
        raise ValueError(f"continue_final_message: the last message has no {field}")
    for name in _THOUGHTS if field in _THOUGHTS else (field,):
        if messages[-1].get(name) == value:
            messages[-1][name] = value + _MARK
    return value


def _cut(text, last):
    """The text up to the mark. A template that strips what a message ends with has stripped the mark's space too."""
    end = text.rfind(_MARK.strip())
    if end < 0 or last.strip() not in text:
        raise ValueError("continue_final_message: the chat template does not write the last message as it is")
    return text[:end] if text[end:].startswith(_MARK) else text[:end].rstrip()


def _aliased(message):
    """A message whose thoughts have all names under which templates read them."""
    thoughts = next((message[name] for name in _THOUGHTS if message.get(name) is not None), None)
    return message if thoughts is None else {"thinking": thoughts, **message, "reasoning_content": thoughts}


def _plain(value):
    """A value of JSON's types alone."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if hasattr(value, "items"):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else f"<{type(value).__name__}>"


def _text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_json(path):
    """The object in a JSON file; {} if there is no such file. A name that stands in one object twice is a ValueError."""

    def unique(pairs):
        members = {}
        for name, value in pairs:
            if name in members:
                raise ValueError(f"{path}: {name!r} stands there twice")
            members[name] = value
        return members

    return json.loads(_text(path), object_pairs_hook=unique) if os.path.exists(path) else {}
