"""Tokenizer.apply_chat_template against transformers, with the chat templates that TRL has stored of many models; the texts of
prompts with a BOS."""
import glob
import json
import os
import random
import tempfile

import numpy as np
import trl
from tokenizers import Tokenizer as TheirTokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import napier
from support import raises
from test_rl_tokenizer import CALLS, CONTENTS, TOOLS, trained
from test_rl_tokenizer_families import llama2, llama3

TEMPLATES = sorted(glob.glob(os.path.join(os.path.dirname(trl.__file__), "chat_templates", "*.jinja")))


def messages_of(dice):
    roles = ["system"] * (dice.random() < 0.4) + ["user", "assistant"] * dice.randrange(1, 3) + ["user"] * dice.randrange(2)
    if dice.random() < 0.3:
        roles = [dice.choice(("system", "user", "assistant", "tool")) for _ in range(dice.randrange(1, 5))]
    messages = [{"role": role, "content": dice.choice(CONTENTS), "name": None} for role in roles]
    for message in messages:
        if message["role"] == "assistant" and dice.random() < 0.3:
            message["tool_calls"] = [{"type": "function", "function": call} for call in dice.choices(CALLS[:1], k=1)]
        if message["role"] == "assistant" and dice.random() < 0.3:
            message[dice.choice(("reasoning_content", "thinking", "reasoning"))] = dice.choice(CONTENTS)
        if dice.random() < 0.1:
            message["content"] = [{"type": "text", "text": message["content"]}]
    return messages


def outcome(render):
    try:
        return render()
    except Exception:
        return None


def test_templates_of_many_models():
    rendered = refused = 0
    for path in TEMPLATES:
        dice = random.Random(os.path.basename(path))
        with tempfile.TemporaryDirectory() as folder:
            theirs = PreTrainedTokenizerFast(tokenizer_object=TheirTokenizer.from_str(trained()), bos_token="<|im_start|>",
                                             eos_token="<|im_end|>", chat_template=open(path, encoding="utf-8").read())
            theirs.save_pretrained(folder, save_jinja_files=dice.random() < 0.5)
            ours = napier.Tokenizer(os.path.join(folder, "tokenizer.json"))
            for _ in range(40):
                messages, tools = messages_of(dice), dice.choice((None, None, list(TOOLS[:1])))
                options = {"add_generation_prompt": dice.random() < 0.5, **dice.choice(({}, {"enable_thinking": False}))}
                wanted = outcome(lambda: theirs.apply_chat_template(messages, tools=tools, tokenize=False, **options))
                got = outcome(lambda: ours.apply_chat_template(messages, tools=tools, **options))
                assert got == wanted, f"{os.path.basename(path)}: {messages}: {got!r}, not {wanted!r}"
                rendered, refused = rendered + (wanted is not None), refused + (wanted is None)
    assert rendered > refused
    return f"{len(TEMPLATES)} templates, {rendered} texts, {refused} refused by both"


def test_several_templates():
    with tempfile.TemporaryDirectory() as folder:
        for save in (True, False):
            theirs = PreTrainedTokenizerFast(tokenizer_object=TheirTokenizer.from_str(trained()), eos_token="<|im_end|>",
                                             chat_template={"default": "{{ messages[0].content }}{{ eos_token }}",
                                                            "tool_use": "{{ tools | tojson(indent=2) }}"})
            theirs.save_pretrained(folder, save_jinja_files=save)
            ours, talk = napier.Tokenizer(os.path.join(folder, "tokenizer.json")), [{"role": "user", "content": "\u00e9"}]
            for tools, name in ((None, None), (list(TOOLS), None), (None, "tool_use"), (None, "{{ 1 + 1 }}{{ bos_token }}")):
                wanted = theirs.apply_chat_template(talk, tools=tools, chat_template=name, tokenize=False)
                assert ours.apply_chat_template(talk, tools=tools, chat_template=name) == wanted
            for file in os.listdir(folder):
                if os.path.isfile(os.path.join(folder, file)):
                    os.unlink(os.path.join(folder, file))


def test_templates_that_are_not_allowed():
    tokenizer, talk = napier.Tokenizer(trained().encode()), [{"role": "user", "content": "x"}]
    for template in ("{{ ''.__class__.__mro__ }}", "{% set x = messages.append(1) %}{{ x }}", "{{ raise_exception('no') }}", "{% if %}"):
        raises(ValueError, "", lambda: tokenizer.apply_chat_template(talk, chat_template=template))
    raises(ValueError, "chat_template: the model has none", lambda: tokenizer.apply_chat_template(talk))


def test_tokenizers_of_transformers():
    """The ids of texts with their BOS, as tokenizer(text) gives them."""
    for document in (llama3(), llama2()):
        bos = json.loads(document)["post_processor"]
        theirs = PreTrainedTokenizerFast(tokenizer_object=TheirTokenizer.from_str(document))
        ours = napier.Tokenizer(document.encode())
        for text in ("", "Hello  world", " a\n\u4e2d", "the end"):
            assert ours.encode(text, add_special_tokens=True) == theirs(text).input_ids
            assert ours.encode(text) == theirs(text, add_special_tokens=False).input_ids
            assert ours.decode(theirs(text).input_ids) == theirs.decode(theirs(text).input_ids, clean_up_tokenization_spaces=False)
