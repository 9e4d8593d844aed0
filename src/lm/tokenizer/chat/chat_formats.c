/* lm/tokenizer/chat/chat_formats.c - the formats that are built in, as templates. They write what the published templates of
 * these models write; tests/peers renders the same conversations with both. Tools and arguments are texts here, which are
 * copied as they are. A line feed right behind a %} is not written. */
#include "lm/tokenizer/chat/chat.h"

#define REFUSE                                                                                                  \
    "{% macro refuse(i, why) %}{{ raise_exception('messages[' ~ i ~ ']: ' ~ why ~ ' a message of the role ' ~ " \
    "messages[i].role ~ ' has no place here in this format') }}{% endmacro %}"

/* ---- Qwen -------------------------------------------------------------------------------------------------------- */

/* ChatML. Calls stand in <tool_call> blocks, each on its own lines; consecutive results of tools form one turn of the user. */
#define QWEN                                                                                                           \
    "{% macro turn(m) %}<|im_start|>{{ m.role ~ '\n' ~ m.content }}<|im_end|>\n{% endmacro %}"                         \
    "{% macro calls(m, is_behind_text) %}{% for call in m.tool_calls or [] %}"                                         \
    "{{ '\n' if is_behind_text or not loop.first }}<tool_call>\n{\"name\": \"{{ call.function.name }}\", "             \
    "\"arguments\": "                                                                                                  \
    "{{ call.function.arguments }}}\n</tool_call>{% endfor %}{% endmacro %}"                                           \
    "{% macro result(m, before, next) %}{{ '<|im_start|>user' if before != 'tool' }}"                                  \
    "{{ '\n<tool_response>\n' ~ m.content ~ '\n</tool_response>' }}{{ '<|im_end|>\n' if next != 'tool' }}{% endmacro " \
    "%}"                                                                                                               \
    "{% macro described() %}# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "  \
    "provided with function signatures within <tools></tools> XML tags:\n<tools>\n{{ tools }}\n</tools>\n\nFor each "  \
    "function call, return a json object with function name and arguments within <tool_call></tool_call> XML "         \
    "tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n"     \
    "{% endmacro %}"                                                                                                   \
    "{% set has_system = messages and messages[0].role == 'system' %}"
#define RESULT "{{ result(m, '' if loop.first else loop.previtem.role, '' if loop.last else loop.nextitem.role) }}"

/* A turn after the last question keeps its thoughts. The last turn gets a block for them even if it has none. A result of
 * a tool in a user's turn is no question. */
static const char qwen3[] = QWEN
    "{% set ns = namespace(last=messages | length - 1, is_found=false) %}{% for m in messages[::-1] %}"
    "{% if not ns.is_found and m.role == 'user' and not (m.content.startswith('<tool_response>') and "
    "m.content.endswith('</tool_response>')) %}{% set ns.is_found = true %}"
    "{% set ns.last = messages | length - 1 - loop.index0 %}{% endif %}{% endfor %}"
    "{% if tools %}<|im_start|>system\n{{ messages[0].content ~ '\n\n' if has_system }}{{ described() }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% set thoughts = m.reasoning_content %}{% set answer = m.content %}"
    "{% if thoughts is not defined and '</think>' in answer %}"
    "{% set thoughts = answer.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
    "{% set answer = answer.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "<|im_start|>assistant\n{{ '<think>\n' ~ (thoughts or '').strip('\n') ~ '\n</think>\n\n' ~ answer.lstrip('\n') "
    "if loop.index0 > ns.last and (loop.last or thoughts) else answer }}{{ calls(m, answer) }}<|im_end|>\n"
    "{% elif m.role == 'tool' %}" RESULT
    "{% elif not (tools and has_system and loop.first) %}{{ turn(m) }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{{ '<think>\n\n</think>\n\n' if enable_thinking is defined }}{% endif %}";

static const char qwen2_5[] = QWEN
    "<|im_start|>system\n{{ messages[0].content if has_system else "
    "'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}"
    "{{ '\n\n' ~ described() if tools else '<|im_end|>\n' }}"
    "{% for m in messages %}{% if m.role == 'tool' %}" RESULT
    "{% elif m.tool_calls %}<|im_start|>assistant{{ '\n' ~ m.content if m.content }}{{ calls(m, true) }}<|im_end|>\n"
    "{% elif not (has_system and loop.first) %}{{ turn(m) }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* ---- Llama 3 ----------------------------------------------------------------------------------------------------- */

#define LLAMA3                                                                                 \
    REFUSE                                                                                     \
    "{% macro header(role) %}<|start_header_id|>{{ role }}<|end_header_id|>\n\n{% endmacro %}" \
    "{% macro turn(m) %}{{ header(m.role) ~ m.content | trim }}<|eot_id|>{% endmacro %}"
#define PROMPT "{% if add_generation_prompt %}{{ header('assistant') }}{% endif %}"

static const char llama3[] =
    LLAMA3 "{{ '<|begin_of_text|>' if messages }}{% for m in messages %}"
           "{{ refuse(loop.index0, 'tool_calls in') if m.tool_calls }}{{ turn(m) }}{% endfor %}" PROMPT;

/* The published template drops the content beside a call without a word. */
static const char llama3_1[] = LLAMA3
    "<|begin_of_text|>{{ header('system') }}Cutting Knowledge Date: December 2023\nToday Date: "
    "{{ date_string or '26 Jul 2024' }}\n\n{% set has_system = messages and messages[0].role == 'system' %}"
    "{{ messages[0].content | trim if has_system }}<|eot_id|>{% for m in messages %}{% if m.tool_calls %}"
    "{{ refuse(loop.index0, 'more than one of tool_calls in') if m.tool_calls | length > 1 }}"
    "{{ refuse(loop.index0, 'content beside tool_calls in') if m.content }}"
    "{% set f = m.tool_calls[0].function %}{{ header('assistant') }}{\"name\": \"{{ f.name }}\", \"parameters\": "
    "{{ f.arguments }}}<|eot_id|>"
    "{% elif m.role == 'tool' %}{{ header('ipython') ~ m.content | tojson }}<|eot_id|>"
    "{% elif not (has_system and loop.first) %}{{ turn(m) }}{% endif %}{% endfor %}" PROMPT;

/* ---- Llama 2 and Mistral ----------------------------------------------------------------------------------------- */

/* Turns alternate, from the user's on. */
#define CHECK                                                            \
    "{% set role = 'user' if loop.index0 % 2 == 0 else 'assistant' %}"   \
    "{{ refuse(loop.index0 + first, 'tool_calls in') if m.tool_calls }}" \
    "{{ refuse(loop.index0 + first, \"this turn is the \" ~ role ~ \"'s, and\") if m.role != role }}"

/* The system's text is a part of the first question. White space around the whole is removed. */
static const char llama2[] = REFUSE
    "{% set first = 1 if messages and messages[0].role == 'system' else 0 %}{% for m in messages[first:] %}" CHECK
    "{% set system = '<<SYS>>\n' ~ messages[0].content ~ '\n<</SYS>>\n\n' if first == 1 and loop.first else '' %}"
    "{% if role == 'user' %}{{ '<s>[INST] ' ~ (system ~ m.content) | trim ~ ' [/INST]' }}"
    "{% else %}{{ ' ' ~ m.content | trim ~ ' </s>' }}{% endif %}{% endfor %}";

#define MISTRAL(end)                                             \
    REFUSE "{% set first = 0 %}<s>{% for m in messages %}" CHECK \
           "{{ '[INST] ' ~ m.content ~ ' [/INST]' if role == 'user' else m.content ~ '" end "' }}{% endfor %}"
static const char mistral_v0_1[] = MISTRAL("</s> "), mistral_v0_2[] = MISTRAL("</s>");

const napier_chat_builtin napier_chat_builtins[NAPIER_CHAT_BUILTINS] = {
    [NAPIER_CHAT_QWEN3] = {qwen3, true, true, false},
    [NAPIER_CHAT_QWEN2_5] = {qwen2_5, true, false, false},
    [NAPIER_CHAT_LLAMA3] = {llama3, false, false, false},
    [NAPIER_CHAT_LLAMA3_1] = {llama3_1, false, false, true},
    [NAPIER_CHAT_LLAMA2] = {llama2, false, false, false},
    [NAPIER_CHAT_MISTRAL_V0_1] = {mistral_v0_1, false, false, false},
    [NAPIER_CHAT_MISTRAL_V0_2] = {mistral_v0_2, false, false, false}};
