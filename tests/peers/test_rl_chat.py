"""The built-in chat formats against transformers' rendering of the published templates, and which template is recognised as
which format."""
import ctypes
import glob
import os
import random
import tempfile
from datetime import datetime

import trl
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from napier_c import NapierError, napier
from support import raises
from test_rl_tokenizer import CALLS, CONTENTS, TOOLS, read, render, trained

TEMPLATES = os.path.join(os.path.dirname(trl.__file__), "chat_templates")

# From the tokenizer_config.json of meta-llama/Llama-2-7b-chat-hf, mistralai/Mistral-7B-Instruct-v0.1 and -v0.2.
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
    "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate "
    "user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = "
    r"'<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}"
    "{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("
    "'Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token"
    "END}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}")


def stored(name):
    return read(os.path.join(TEMPLATES, name + ".jinja"))


def formats():
    """The number of each format, its template and its tokens."""
    llama3 = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    llama2 = {"bos_token": "<s>", "eos_token": "</s>"}
    return {"qwen3": (napier.NAPIER_CHAT_QWEN3, stored("qwen3"), {}),
            "qwen2_5": (napier.NAPIER_CHAT_QWEN2_5, stored("qwen2_5"), {}),
            "llama3": (napier.NAPIER_CHAT_LLAMA3, stored("llama3"), llama3),
            "llama3_1": (napier.NAPIER_CHAT_LLAMA3_1, stored("llama3_1"), llama3),
            "llama3_2": (napier.NAPIER_CHAT_LLAMA3_1, stored("llama3_2"), llama3),
            "llama2": (napier.NAPIER_CHAT_LLAMA2, LLAMA2, llama2),
            "mistral_v0_1": (napier.NAPIER_CHAT_MISTRAL_V0_1, MISTRAL.replace("END", " + ' ' "), llama2),
            "mistral_v0_2": (napier.NAPIER_CHAT_MISTRAL_V0_2, MISTRAL.replace("END", ""), llama2)}


WHITE = ("", " ", "\n\n", "\u3000 x \u2003", "\x1c\x85 y\u00a0", "  a\n b  ", "\u200b", "\"q\" \\ \x01\x7f\t\u00e9/", "\xa0")


def conversation(dice, name):
    """Turns as the format wants them, in most cases."""
    plain = name in ("llama2", "mistral_v0_1", "mistral_v0_2")
    roles = ["system"] if dice.random() < 0.4 and "mistral" not in name else []
    if plain and dice.random() < 0.9:
        roles += ["user", "assistant"] * dice.randrange(1, 3) + ["user"] * dice.randrange(2)
    else:
        roles += [dice.choice(("user", "assistant", "user" if plain else "tool", "system")) for _ in range(dice.randrange(1, 5))]
    messages = [{"role": role, "content": dice.choice(CONTENTS + WHITE)} for role in roles]
    for message in messages:
        if message["role"] == "assistant" and name in ("qwen2_5", "llama3_1", "llama3_2") and dice.random() < 0.4:
            calls = [c for c in CALLS if not isinstance(c["arguments"], str)]
            few = dice.choices(calls, k=dice.randrange(1, 3) if name == "qwen2_5" else 1)
            message["tool_calls"] = [{"type": "function", "function": call} for call in few]
            if "llama3" in name and dice.random() < 0.8:
                message["content"] = ""
    return messages


def ours_of(messages, tools, prompt, **options):
    plain = [{**m, "tool_calls": [c["function"] for c in m["tool_calls"]]} if "tool_calls" in m else m for m in messages]
    return render(plain, tools, prompt, True, **options)


def test_formats_against_templates():
    refusals = 0
    for name, (number, template, special) in formats().items():
        if name == "qwen3":
            continue  # test_rl_tokenizer compares it
        dice = random.Random(name)
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(trained()), chat_template=template, **special)
        options = {"format": number, **({"date": datetime.now().strftime("%d %b %Y")} if name == "llama3_2" else {})}
        for _ in range(1500):
            messages, prompt = conversation(dice, name), dice.random() < 0.5
            tools = dice.choice((None, TOOLS)) if name == "qwen2_5" else None
            try:
                wanted = tokenizer.apply_chat_template(messages, tools=tools and list(tools), tokenize=False,
                                                       add_generation_prompt=prompt)
            except Exception:
                raises(NapierError, "has no place here in this format", lambda: ours_of(messages, tools, prompt, **options))
                refusals += 1
                continue
            try:
                got = ours_of(messages, tools, prompt, **options)
            except NapierError as error:  # these templates drop a system's or tool's turn, or a content, without a word
                assert name == "llama2" or "content beside tool_calls" in str(error), f"{name}: {messages}: {error}"
                assert "has no place here" in str(error), f"{name}: {messages}: {error}"
                continue
            assert got == wanted, f"{name}: {messages}: {got!r}, not {wanted!r}"
    return f"{refusals} refused by both"


def recognised(template):
    number = ctypes.c_int64(-1)
    data = template.encode()
    napier.call("napier_chat_format_of", ctypes.c_char_p(data), len(data), ctypes.byref(number))
    return number.value


def test_templates_are_recognised():
    for name, (number, template, _) in formats().items():
        assert recognised(template) == number, name
    known = {"qwen2_5_training", *formats()}  # that variant differs only in marks of generation, which write nothing
    others = [path for path in glob.glob(TEMPLATES + "/*.jinja") if os.path.basename(path)[:-6] not in known]
    for path in others:
        raises(NapierError, "none of the formats", lambda: recognised(read(path)))
    return f"{len(others)} others are refused"


def test_formats_of_folders():
    def load(folder):
        number = ctypes.c_int64(-1)
        napier.call("napier_chat_format_load", ctypes.c_char_p(folder.encode()), None, ctypes.byref(number))
        return number.value

    for name, (number, template, special) in formats().items():
        for jinja in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(trained()), chat_template=template,
                                                    **special)
                tokenizer.save_pretrained(folder, save_jinja_files=jinja)
                assert load(folder) == number, (name, os.listdir(folder))
