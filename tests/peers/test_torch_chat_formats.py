"""Chat templates in four documented formats, written here, against transformers' rendering and against the texts that the formats
prescribe: tools, calls and their results, thoughts, a message that is continued. Templates that mean harm are refused or bounded."""
import json
import pathlib
import resource
import threading
import time
from datetime import datetime, timedelta

import trl
from tokenizers import Tokenizer as TheirTokenizer
from transformers import PreTrainedTokenizerFast

import napier
from support import raises
from test_rl_tokenizer import TOOLS, trained

# ChatML as Qwen3 documents it: tools in <tools>, calls in <tool_call>, results in <tool_response> of a user's turn, thoughts in <think> of
# the turns after the last question, and enable_thinking.
QWEN3 = """
{%- if tools %}{{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n\\n<tools>' }}{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}{{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{- '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}
    {%- elif m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}
        {%- set thoughts = m.reasoning_content if m.reasoning_content is string else '' %}
        {%- set content = m.content if m.content is string else '' %}
        {%- if '</think>' in content %}{%- set thoughts = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}
        {%- if loop.index0 > ns.last and thoughts %}{{- '<think>\\n' ~ thoughts.strip('\\n') ~ '\\n</think>\\n\\n' }}{%- endif %}
        {%- generation %}{{- content }}{%- endgeneration %}
        {%- for call in m.tool_calls or [] %}{%- set f = call.function or call %}
            {{- '\\n<tool_call>\\n{"name": "' ~ f.name ~ '", "arguments": ' }}
            {{- f.arguments if f.arguments is string else f.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}{{- '<|im_end|>\\n' }}
    {%- elif m.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

# Qwen2.5's: a system's message of its own where there is none.
QWEN2_5 = """{%- if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' }}{% endif -%}
{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

# Llama 3: a BOS, headers and <|eot_id|>; texts are stripped.
LLAMA3 = """{{- bos_token }}{% macro turn(role, text) %}<|start_header_id|>{{ role }}<|end_header_id|>

{{ text | trim }}<|eot_id|>{% endmacro %}
{%- for m in messages %}
    {%- if m.tool_calls %}
        {%- if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
        {%- set f = m.tool_calls[0].function %}
        {{- turn('assistant', '{"name": "%s", "parameters": %s}' % (f.name, f.arguments | tojson)) }}
    {%- elif m.role == 'tool' %}{{- turn('ipython', m.content) }}
    {%- else %}{{- turn(m.role, m.content) }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

# Mistral's: roles alternate, [INST], the system's text before the last question, tools before it, and an EOS.
MISTRAL = """{%- set system = messages[0].content if messages[0].role == 'system' else none %}
{%- set loop_messages = messages[1:] if system is not none else messages %}
{%- set users = loop_messages | selectattr('role', 'equalto', 'user') | list %}{{ bos_token }}
{%- for m in loop_messages %}
    {%- if m.role == 'user' %}
        {%- if (loop.index0 % 2 == 1) and not tools %}{{ raise_exception('roles must alternate') }}{% endif %}
        {%- if tools and m == users[-1] %}{{ '[AVAILABLE_TOOLS] ' + (tools | map(attribute='function') | list | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
        {{- '[INST] ' + (system + '\\n\\n' if loop.last and system else '') + m.content + '[/INST]' }}
    {%- elif m.tool_calls %}{{ '[TOOL_CALLS] [' }}{% for call in m.tool_calls %}{{ call.function | tojson(sort_keys=true) }}
        {%- if not loop.last %}, {% endif %}{% endfor %}{{ ']' + eos_token }}
    {%- elif m.role == 'tool' %}{{ '[TOOL_RESULTS] ' + {'content': m.content} | tojson + '[/TOOL_RESULTS]' }}
    {%- else %}{{ ' ' + m.content | trim + eos_token }}{% endif %}
{%- endfor %}"""

TEMPLATES = {"qwen3": QWEN3, "qwen2.5": QWEN2_5, "llama3": LLAMA3, "mistral": MISTRAL}

CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2}}}
TALKS = [
    [{"role": "user", "content": "Why is the sky blue? "}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": " Hello! "},
     {"role": "user", "content": "Bye <|im_end|> \u00e9\u4e2d"}],
    [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "\nI should look.\n"},
     {"role": "tool", "content": "{\"sun\": true}"}, {"role": "tool", "content": "12 \u00b0C"},
     {"role": "assistant", "content": "<think>\nok\n</think>\n\nSunny.", "thinking": None}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "because"}, {"role": "user", "content": "c"},
     {"role": "assistant", "content": " d ", "reasoning": "really"}],
    [{"role": "assistant", "content": "I begin", "tool_calls": [CALL, CALL]}],
]


def pair(template):
    theirs = PreTrainedTokenizerFast(tokenizer_object=TheirTokenizer.from_str(trained()), bos_token="<s>", eos_token="</s>",
                                     chat_template=template)
    ours = napier.Tokenizer(trained().encode())
    ours._template = template, {"bos_token": "<s>", "eos_token": "</s>"}
    return theirs, ours


def outcome(call):
    try:
        return call()
    except Exception:
        return None


def test_texts_are_those_of_transformers():
    """Published templates, those that TRL carries, and ours: both write the same text, or both refuse."""
    published = {file.name: file.read_bytes().decode() for file in sorted((pathlib.Path(trl.__file__).parent / "chat_templates").glob("*.jinja"))}
    assert len(published) > 50
    texts = refused = 0
    for name, template in {**published, **TEMPLATES}.items():
        theirs, ours = pair(template)
        for talk in TALKS:
            for tools in (None, list(TOOLS)):
                for options in ({}, {"add_generation_prompt": True, "enable_thinking": False}):
                    wanted = outcome(lambda: theirs.apply_chat_template(talk, tools=tools, tokenize=False, **options))
                    assert outcome(lambda: ours.apply_chat_template(talk, tools=tools, **options)) == wanted, (name, talk, options)
                    texts += wanted is not None
                    refused += wanted is None
    assert texts > 1000
    return f"{len(published)} published templates, {texts} texts the same, {refused} refused by both"


def test_values_that_json_has():
    """Integers of any length, texts of any characters, and depths reach the template as they are."""
    theirs, ours = pair("{{ messages[0] | tojson }}{{ messages[0].n }}{{ x }}{{ messages[0].content | length }}")
    for value in (0, -1, 2**62, 2**63, -(10**40), 1.5, 1e300, -0.0, True, None, [], {}, [[[1]]], {"a": {"b": [None]}}, "\u2028\x7f\0\U0001f600\\"):
        talk = [{"role": "user", "content": "\u4e2d\n\"", "n": value}]
        wanted = theirs.apply_chat_template(talk, tokenize=False, x=value)
        assert ours.apply_chat_template(talk, x=value) == wanted, value
    year = ours.apply_chat_template([], chat_template="{{ strftime_now('%Y %d %b') }}")
    assert year in {datetime.now().strftime("%Y %d %b"), (datetime.now() - timedelta(minutes=1)).strftime("%Y %d %b")}


def test_what_the_formats_prescribe():
    said = {name: pair(template)[1].apply_chat_template for name, template in TEMPLATES.items()}
    question, talk = TALKS[0], TALKS[2]
    assert said["qwen3"](question, add_generation_prompt=True) == (
        "<|im_start|>user\nWhy is the sky blue? <|im_end|>\n<|im_start|>assistant\n")
    assert said["qwen3"](talk, tools=[CALL]) == (
        f'<|im_start|>system\n# Tools\n\n<tools>\n{json.dumps(CALL, ensure_ascii=False)}\n</tools><|im_end|>\n'
        '<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n<think>\nI should look.\n</think>\n\n'
        '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich", "days": 2}}\n</tool_call><|im_end|>\n'
        '<|im_start|>user\n<tool_response>\n{"sun": true}\n</tool_response>\n<tool_response>\n12 \u00b0C\n</tool_response><|im_end|>\n'
        '<|im_start|>assistant\n<think>\nok\n</think>\n\nSunny.<|im_end|>\n')
    assert said["qwen2.5"](question).startswith("<|im_start|>system\nYou are Qwen.<|im_end|>\n<|im_start|>user\nWhy")
    assert said["llama3"](talk) == (
        '<s><|start_header_id|>user<|end_header_id|>\n\nWeather?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n'
        '{"name": "weather", "parameters": {"city": "Zürich", "days": 2}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n'
        '{"sun": true}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n12 \u00b0C<|eot_id|>'
        '<|start_header_id|>assistant<|end_header_id|>\n\n<think>\nok\n</think>\n\nSunny.<|eot_id|>')
    assert said["mistral"](TALKS[1]) == "<s>[INST] Hi[/INST] Hello!</s>[INST] Be brief.\n\nBye <|im_end|> \u00e9\u4e2d[/INST]"


def test_a_message_that_is_continued():
    for template in TEMPLATES.values():
        theirs, ours = pair(template)
        for talk in TALKS:
            parts = [{**talk[-1], "content": [{"type": "text", "text": "x"}]}]
            for messages, field in ((talk, True), (talk, "content"), (talk, "reasoning_content"), (talk, "thinking"), (talk[:-1], True),
                                    (talk + parts, True)):
                wanted = outcome(lambda: theirs.apply_chat_template(messages, tokenize=False, continue_final_message=field))
                got = outcome(lambda: ours.apply_chat_template(messages, continue_final_message=field))
                assert got == wanted, (messages, field, got, wanted)
    _, ours = pair(QWEN3)
    text = ours.apply_chat_template([*TALKS[0], {"role": "assistant", "content": "Because"}], continue_final_message=True)
    assert text.endswith("<|im_start|>assistant\nBecause")
    for messages, options, word in ((TALKS[0], {"add_generation_prompt": True}, "give one of them"), ([], {}, "the last message has no content"),
                                    ([{"role": "system"}], {}, "has no content")):
        raises(ValueError, ("continue_final_message", word), lambda: ours.apply_chat_template(messages, continue_final_message=True, **options))
    raises(ValueError, "does not write the last message",
           lambda: ours.apply_chat_template(TALKS[0], chat_template="{{ messages[0].content | length }}", continue_final_message=True))


# ---- Templates that mean harm ------------------------------------------------------------------------------------------------

TOO_MUCH = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% if false %}x{% endif %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for a in [[1], [2]] recursive %}{{ loop([[1], [2]]) }}{% endfor %}",
    "{% for a in range(10 ** 9) %}{% endfor %}",
    "{{ 'x' * 10 ** 12 }}", "{{ 10 ** 12 * 'x' }}", "{{ ([0] * 10 ** 12) | length }}", "{{ 9 ** (9 ** 9) }}",
    "{% set ns = namespace(x=7) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ''.join([ns.x, ns.x]) %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x | replace('a', 'aa') %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x.replace('a', 'aa') %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = '%s%s' | format(ns.x, ns.x) %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = '{0}{0}'.format(ns.x) %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x | tojson }}",
    "{{ '%999999999d' % 1 }}", "{{ '%*d' % (999999999, 1) }}", "{{ '{:999999999}'.format(1) }}", "{{ '{:{w}}'.format(1, w=999999999) }}",
    "{{ 'a'.ljust(999999999) }}", "{{ 'a' | center(999999999) }}", "{{ 'a'.zfill(width=999999999) if false else 'a'.zfill(999999999) }}",
    "{{ 'a\\nb' | indent(999999999) }}", "{{ [1] | tojson(indent=999999999) }}", "{{ [1] | batch(999999999, 0) | list }}",
    "{{ [[0] * 999999, [0] * 999999] | sum(start=[]) | length }}", "{{ 'a'.translate({97: 'bbbb'}) }}", "{{ lipsum(999999) }}",
]
TOO_MUCH += [
    # work that looks like none
    "{% for i in range(3000) %}{% for j in range(1000) %}{% set _ = 0|step(-2) %}{% endfor %}{% endfor %}",
    "{% for i in range(3000) %}{% for j in range(1000) %}{% set _ = [0] | map('step!', -2) | list %}{% endfor %}{% endfor %}",
    "{% for i in range(3000) %}{% for j in range(1000) %}{% set _ = [0] | map('step!') | list %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) if j < 0 %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% set _ = range(100000) | sum %}{% endfor %}",
    "{% for i in range(100000) %}{% set _ = range(100000) | sort %}{% endfor %}",
    "{% for i in range(100000) %}{% set _ = range(100000) | select('lt', 0) | list %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) | select('lt', 0) %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% if -1 in range(100000) | list %}{% endif %}{% endfor %}",
    "{% set t = 'ab' * 5000000 %}{% for i in range(100000) %}{% if 'abb' in t %}{% endif %}{% endfor %}",
    "{% set t = 'ab' * 5000000 %}{% for i in range(100000) %}{% set _ = t.find('abb') %}{% endfor %}",
    "{% set t = 'ab' * 5000000 %}{% for i in range(100000) %}{% set _ = t is lower %}{% endfor %}",
    *(make.replace("TWICE", twice) for twice in ("[a, a]", "(a, a)", "{1: a, 2: a}", "dict(x=a, y=a)", "[a] * 2", "[a] + [a]") for make in (
        "{% set a = [1] %}" + "{% set a = TWICE %}" * 60 + "{% set b = [1] %}" + "{% set b = TWICE %}".replace("a", "b") * 60 + "{{ a == b }}",
        "{% set a = (1,) %}" + "{% set a = TWICE %}" * 60 + "{{ {a: 1} }}", "{% set a = (1,) %}" + "{% set a = TWICE %}" * 60 + "{{ {}[a] }}",
        "{% set a = (1,) %}" + "{% set a = TWICE %}" * 60 + "{{ {}.get(a) }}{{ [a, a] | sort }}{{ a in [a] }}")),
    "{% set a = namespace() %}" + "{% set a = namespace(x=a, y=a) %}" * 60 + "{{ a }}",
    "{% set a = [1] %}{% set b = [1] %}" + "{% set a = [a, a] %}{% set b = [b, b] %}" * 60
    + "{{ [namespace(x=a), namespace(x=b)] | sort(attribute='x') | length }}",
    "{% set a = [1] %}{% set b = [1] %}" + "{% set a = [a, a] %}{% set b = [b, b] %}" * 60 + "{{ [cycler(a), cycler(b)] | max(false, 'items') }}",
    "{% set a = [1] %}{% set b = [1] %}" + "{% set a = [a, a] %}{% set b = [b, b] %}" * 60 + "{{ [{1: a}, {1: b}] | sort(false, false, 1) }}",
    "{% set a = [1] %}{% set b = [1] %}" + "{% set a = [a, a] %}{% set b = [b, b] %}" * 60
    + "{% for x in [a, b] %}{{ loop.changed(x) }}{% endfor %}",
    "{% set ns = namespace() %}{% set ns.a = ns %}{{ [ns] * 9999 | map(attribute='a' + '.a' * 99999) | list }}",
    "{% block b0 %}{% endblock %}" + "".join(f"{{% block b{i} %}}{{{{ self.b{i - 1}() }}}}{{{{ self.b{i - 1}() }}}}{{% endblock %}}" for i in range(1, 60)),
    "{% set n = ('f' * 1000000) | int(base=16) %}{{ n // 3 }}", "{{ (9 ** 9999) // 7 }}", "{{ [1.5] | map('round', 999999) | list }}",
    # texts and lists without limit
    "{{ '{:{}}'.format('x', '1500000000') }}", "{{ '{:{}{}}'.format('x', 15000, 50000) }}", "{{ '{0:{1}}'.format('x', 1001) }}",
    "{{ '{:\u0661\u0665\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660}'.format('x') }}", "{{ '{:.999999999f}'.format(1.5) }}",
    "{{ '{x:999999999}'.format_map({'x': 1}) }}", "{{ ('%999999d' * 800) % ((1,) * 800) }}", "{{ '%.999999999f' % 1.5 }}",
    "{{ '%(a(b))999999999d' % {'a(b)': 1} }}", "{{ ('%999999d' * 800) | format(*((1,) * 800)) }}", "{{ '%-+999999999d' % 1 }}",
    "{{ ('\n' * 30000) | indent(30000, true, true) }}", "{{ ('\n' * 30000) | indent('b' * 30000, true, true) }}",
    "{{ ('\t' * 800).expandtabs(1000000) }}", "{{ ('\t' * 800).expandtabs(tabsize=1000000) }}",
    "{{ ('a' * 30000) | replace(new='b' * 30000, old='a') }}", "{{ ('a' * 30000) | replace('a', new='b' * 30000) }}",
    "{{ ('a' * 30000).replace('a', 'b' * 30000) }}", "{{ ('a' * 30000).replace('', 'b' * 30000) }}", "{{ ('b' * 30000).join('a' * 30000) }}",
    "{{ ('a' * 30000) | join('b' * 30000) }}", "{{ (['a'] * 30000) | join(d='b' * 30000) }}", "{{ ('a' * 30000) | wordwrap(1, true, 'b' * 30000) }}",
    "{{ 'a'.encode().ljust(9999999999) }}", "{{ (1).to_bytes(9999999999, 'big') }}", "{{ [1, 2] | tojson(indent=1001) }}",
    "{{ ([1] * 30000) | tojson(separators=('b' * 30000, ':')) }}", "{{ {}.fromkeys(range(99999), {}.fromkeys(range(99999), 1)) }}",
    "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson(indent=1000) | length }}",
    "{% set t = 'a' * 8000000 %}{% set l = [" + ", ".join(f"t[{i}:]" for i in range(20)) + "] %}{{ l | length }}",
    "{% set ns = namespace(l=[]) %}{% for i in range(500) %}{% set ns.l = [ns.l, range(100000) | list] %}{% endfor %}",
    "{% set ns = namespace(l=[]) %}{% for i in range(500) %}{% set ns.l = [ns.l, [" + "0, " * 9999 + "]] %}{% endfor %}",
    "{% set ns = namespace(l=[]) %}{% for i in range(500) %}{% set ns.l = [ns.l, ('\u4e00' * 100000) | list] %}{% endfor %}",
    "{% set ns = namespace(l=[]) %}{% for i in range(500) %}{% set ns.l = [ns.l, ('x ' * 100000).split()] %}{% endfor %}",
    "{% for i in range(2000) %}" + "x" * 10000 + "{% endfor %}", "{% for i in range(2000) %}{{ '" + "x" * 10000 + "' }}{% endfor %}",
    "{% for i in range(2000) %}{{ '" + "x" * 5000 + "' ~ '" + "x" * 5000 + "' }}{% endfor %}",
    "{% macro f() %}" + "x" * 10000 + "{% endmacro %}{% for i in range(2000) %}{{ f() }}{% endfor %}", "x" * 70000,
    "{% set ns = namespace(x=namespace(t='a' * 4000000)) %}{{ ([ns] * 999) | join(attribute='x.t') }}",
    "{% set ns = namespace(t='a' * 4000000) %}{{ ([ns] * 999) | map(attribute='t') | join }}", "{{ strftime_now('%Y' * 999999) }}",
    "{{ ('a ' * 4000000) | title | length }}", "{{ ('a ' * 4000000).split() | length }}", "{{ ('\u4e00' * 4000000) | list | length }}",
    "{{ ''.join(([namespace(t='a' * 4000000)] * 999) | map(attribute='t')) }}",
]
# copies that a type, a class or a macro makes of its arguments
TOO_MUCH += ["{% set d = dict(range(90000) | batch(2)) %}{% set l = range(90000) | list %}{% macro m() %}{% if false %}{{ varargs }}{{ kwargs }}"
             "{% endif %}{% endmacro %}{% set ns = namespace(l=()) %}{% for i in range(99999) %}{% set ns.l = (ns.l, " + made + ") %}{% endfor %}"
             for made in ("dict.copy(d)", "dict['x'](d)", "dict(d)", "namespace(d)", "cycler(*l)", "m(*l)")]
# what Python refuses to compile, or a class to make
TOO_MUCH += ["{{ cycler() }}", "{% for i in [0] %}" * 25 + "{% endfor %}" * 25, "{% if messages %}" * 110 + "{% endif %}" * 110,
             "{{ " + "(" * 3000 + ")" * 3000 + " }}"]
NOT_ITS_BUSINESS = [
    "{{ ''.__class__ }}", "{{ ''['__class__'] }}", "{{ '' | attr('__class__') }}", "{{ [].__class__.__base__.__subclasses__() }}",
    "{{ messages.append(1) }}", "{{ messages[0].update(a=1) }}", "{{ messages[0].clear() }}", "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__code__ }}", "{{ self._TemplateReference__context }}", "{{ namespace.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os }}", "{{ '{0.__class__}'.format(1) }}", "{% set ns = namespace(__class__=1) %}",
    "{% set ns = namespace() %}{% set ns.__init__ = 1 %}", "{% include 'x' %}", "{% import 'x' as x %}", "{% extends 'x' %}",
    "{{ messages | map(attribute='__class__') | list }}", "{{ [1] | map('attr', '__class__') | map('upper') | list | first | upper }}",
    "{{ dict.update(messages[0], {'a': 1}) }}", "{{ (dict | attr('update'))(messages[0], {'a': 1}) }}", "{{ dict['update'] }}",
    "{{ ({}.items.__self__) }}", "{{ joiner.__call__.__func__ }}",
]


def test_templates_that_mean_harm():
    """Each is refused, or ends soon with a text of bounded size."""
    _, ours = pair(None)
    slowest, memory, bounded = 0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    for template in TOO_MUCH:
        begin = time.monotonic()
        try:
            bounded += len(ours.apply_chat_template(TALKS[0], chat_template=template)) < 2**25
        except ValueError as error:
            assert "the chat template fails" in str(error), error
            bounded += 1
        slowest = max(slowest, time.monotonic() - begin)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
        assert slowest < 20 and grown < 2**19, (template[:200], slowest, grown)  # KiB
    assert bounded == len(TOO_MUCH)
    talk = [{"role": "user", "content": "x"}]
    for template in NOT_ITS_BUSINESS:
        found = outcome(lambda: ours.apply_chat_template(talk, chat_template=template))
        assert found in (None, "", "[]") or "class" not in found and "<" not in found, (template, found)
    assert talk == [{"role": "user", "content": "x"}]
    return f"{len(TOO_MUCH) + len(NOT_ITS_BUSINESS)} templates, the slowest ends after {slowest:.1f} s, and they need {grown >> 10} MiB"


def test_bounds_are_those_of_one_rendering():
    """What one rendering spends, another has: one after the other, in other threads, and after a refusal."""
    _, ours = pair("{% for a in range(99999) %}{% endfor %}{{ 'x' * 999 }}")
    results = []

    def render():
        results.extend(len(ours.apply_chat_template(TALKS[0])) for _ in range(30))

    threads = [threading.Thread(target=render) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [999] * 90


def test_long_conversations():
    """A thousand turns of two thousand characters are far from the bounds."""
    talk = [{"role": ("user", "assistant")[i % 2], "content": f"{i} " * 500} for i in range(1000)]
    for template in (QWEN3, QWEN2_5, LLAMA3, MISTRAL):
        theirs, ours = pair(template)
        assert ours.apply_chat_template(talk) == theirs.apply_chat_template(talk, tokenize=False)


def test_what_ordinary_templates_do_is_within_the_bounds():
    """Accumulated texts and lists, lengths, slices, formats and filters, in conversations of 300 turns."""
    talk = [{"role": ("user", "assistant")[i % 2], "content": f"{i} word " * 40} for i in range(300)]
    for template in (
            "{% set ns = namespace(t='', l=[]) %}{% for m in messages %}{% set ns.t = ns.t ~ m.content %}{% set ns.l = ns.l + [m] %}"
            "{{ messages | length }}{{ (messages | last).role }}{{ messages[loop.index0:] | length }}{% endfor %}{{ ns.t }}{{ ns.l | length }}",
            "{% for m in messages if m.content and '5' in m.content %}{{ '%-9s|%.3f' % (m.role, 1.5) }}{{ '{:>9}'.format(m.role) }}"
            "{{ m.content.split(' ')[-2:] | join('-') | upper }}{{ m.content | trim | indent(2) | title }}{% else %}none{% endfor %}",
            "{% macro f(m, all) %}{{ m.content | replace('word', 'w') }}{{ all[0] == m }}{{ m in all }}{% endmacro %}"
            "{% for m in messages[:20] %}{{ f(m, messages) }}{% endfor %}{{ messages | map(attribute='role') | unique | list | tojson(indent=4) }}",
            "{% set d = {'a': (1, 2), 'b': [3]} %}{% for k, v in d | dictsort %}{{ k }}{{ v }}{% endfor %}{{ d.items() | list }}{{ 1 < 2 < 3 }}"
            "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first }}{{ messages | sum(attribute='x', start=1) if false else [1, 2.5] | sum }}",
            "{{ '%5d|%-5d|%05d|%.2f|%5.1f|%s|%%|%i' % (7, -7, -7, 2.345, -1.25, 'x', true) }}{{ '{0}{0:>4}{x:^7}'.format('a', x='b') }}{{ '{:*<5}'.format('a') }}"
            "{{ '{:05}|{:d}|{:.3f}|{{}}|{}'.format(-3, 4, 2.0, [1]) }}{{ [3, 'a' * 3, [1] * 2, 2 * (1,)] }}{{ 7 | abs }}{{ -1.5 | abs }}{{ 3 | float }}"
            "{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A', 'c'] | sort(true, true) }}{{ messages | sort(attribute='role') | map(attribute='role') | first }}"
            "{{ [2, 3, 1] | max }}{{ ['b', 'B', 'a'] | min }}{{ ['b', 'B', 'a'] | max }}{{ [1, 2, 3] | select('gt', 1) | list }}{{ 'a' is lower }}"
            "{{ '1' is upper }}{{ 'b' is in 'abc' }}{{ [1, 2] | reject('le', 1) | list }}"):
        theirs, ours = pair(template)
        assert ours.apply_chat_template(talk) == theirs.apply_chat_template(talk, tokenize=False), template
