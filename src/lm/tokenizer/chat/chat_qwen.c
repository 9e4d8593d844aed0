/* lm/tokenizer/chat/chat_qwen.c - ChatML as Qwen3's and Qwen2.5's templates write it: thoughts in <think> blocks, calls in
 * <tool_call> blocks. It is written from the behaviour of the templates; tests/peers renders the same conversations with
 * Jinja. */
#include "lm/tokenizer/chat/chat.h"

/* ---- Spans ------------------------------------------------------------------------------------------------------- */

static bool starts_with(napier_span s, const char *word) {
    const size_t size = strlen(word);
    return s.size >= size && memcmp(s.bytes, word, size) == 0;
}

static bool ends_with(napier_span s, const char *word) {
    const size_t size = strlen(word);
    return s.size >= size && memcmp(s.bytes + s.size - size, word, size) == 0;
}

/* The offset of the first occurrence of a word, or s.size. */
static size_t first_of(napier_span s, const char *word) {
    size_t at = 0;
    while (at < s.size && !starts_with((napier_span){s.bytes + at, s.size - at}, word)) {
        at++;
    }
    return at;
}

/* The part after the last occurrence of a word, or all. */
static napier_span after_last(napier_span s, const char *word) {
    for (size_t end = s.size; end > 0; end--) {
        if (ends_with((napier_span){s.bytes, end}, word)) {
            return (napier_span){s.bytes + end, s.size - end};
        }
    }
    return s;
}

static napier_span without_newlines(napier_span s, bool at_start, bool at_end) {
    while (at_start && s.size > 0 && s.bytes[0] == '\n') {
        s = (napier_span){s.bytes + 1, s.size - 1};
    }
    while (at_end && s.size > 0 && s.bytes[s.size - 1] == '\n') {
        s.size--;
    }
    return s;
}

/* ---- What both have ---------------------------------------------------------------------------------------------- */

static void put_turn(napier_chat *c, const char *name, napier_span content) {
    napier_chat_put(c, "<|im_start|>");
    napier_chat_put(c, name);
    napier_chat_put(c, "\n");
    napier_chat_put_span(c, content);
    napier_chat_put(c, "<|im_end|>\n");
}

/* Writes <tool_call> blocks, each on its own lines. */
static void put_calls(napier_chat *c, const napier_chat_message *m, bool after_text) {
    for (int64_t k = 0; k < m->tool_call_count; k++) {
        const napier_tool_call *const call = &m->tool_calls[k];
        napier_chat_put(c, k > 0 || after_text ? "\n<tool_call>\n{\"name\": \"" : "<tool_call>\n{\"name\": \"");
        napier_chat_put_span(c, (napier_span){call->name, call->name_size});
        napier_chat_put(c, "\", \"arguments\": ");
        napier_chat_put_span(c, (napier_span){call->arguments, call->arguments_size});
        napier_chat_put(c, "}\n</tool_call>");
    }
}

/* Removes the thoughts from an answer and returns them. */
static napier_span split_thoughts(napier_span *answer) {
    const size_t end = first_of(*answer, "</think>");
    if (end == answer->size) {
        return (napier_span){"", 0};
    }
    const napier_span before = without_newlines((napier_span){answer->bytes, end}, false, true);
    *answer = without_newlines(after_last(*answer, "</think>"), true, false);
    return without_newlines(after_last(before, "<think>"), true, false);
}

/* A turn after the last question keeps its thoughts. The last turn gets a block for them even if it has none. */
static void put_assistant(napier_chat *c, int64_t i, int64_t last_query) {
    const napier_chat_message *const m = &c->messages[i];
    napier_span answer = (napier_span){m->content, m->size};
    const napier_span thoughts =
        m->reasoning != NULL ? (napier_span){m->reasoning, m->reasoning_size} : split_thoughts(&answer);
    const bool shown = i > last_query && (i == c->count - 1 || thoughts.size > 0);
    napier_chat_put(c, "<|im_start|>assistant\n");
    if (shown) {
        napier_chat_put(c, "<think>\n");
        napier_chat_put_span(c, without_newlines(thoughts, true, true));
        napier_chat_put(c, "\n</think>\n\n");
    }
    napier_chat_put_span(c, without_newlines(answer, shown, false));
    put_calls(c, m, answer.size > 0);
    napier_chat_put(c, "<|im_end|>\n");
}

/* Consecutive tool results form one turn of the user. */
static void put_tool(napier_chat *c, int64_t i) {
    napier_chat_put(c, napier_chat_is(c, i - 1, NAPIER_TOOL) ? "" : "<|im_start|>user");
    napier_chat_put(c, "\n<tool_response>\n");
    napier_chat_put_span(c, napier_chat_content(c, i));
    napier_chat_put(c, "\n</tool_response>");
    napier_chat_put(c, napier_chat_is(c, i + 1, NAPIER_TOOL) ? "" : "<|im_end|>\n");
}

/* The first turn if there are tools: a text for the system and the description of the tools, which begins and ends the
 * same in both formats. */
static void put_tools(napier_chat *c, bool has_system, napier_span system) {
    napier_chat_put(c, "<|im_start|>system\n");
    napier_chat_put_span(c, system);
    napier_chat_put(c, has_system ? "\n\n" : "");
    napier_chat_put(c,
                    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided "
                    "with function signatures within <tools></tools> XML tags:\n<tools>\n");
    napier_chat_put_span(c, (napier_span){c->options->tools, c->options->tools_size});
    napier_chat_put(c, "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
                       "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
                       "\"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n");
}

/* ---- Qwen3 ------------------------------------------------------------------------------------------------------- */

/* A tool result in a user's turn is not a question. */
static int64_t last_query_of(const napier_chat *c) {
    for (int64_t i = c->count - 1; i >= 0; i--) {
        const napier_span content = napier_chat_content(c, i);
        if (napier_chat_is(c, i, NAPIER_USER) &&
            !(starts_with(content, "<tool_response>") && ends_with(content, "</tool_response>"))) {
            return i;
        }
    }
    return c->count - 1;
}

void napier_chat_qwen3(napier_chat *c) {
    const bool tools = c->options->tools_size > 0, has_system = napier_chat_is(c, 0, NAPIER_SYSTEM);
    const int64_t last_query = last_query_of(c);
    if (tools) {
        put_tools(c, has_system, has_system ? napier_chat_content(c, 0) : (napier_span){"", 0});
    }
    for (int64_t i = tools && has_system; i < c->count; i++) { /* put_tools writes the system's message */
        if (napier_chat_is(c, i, NAPIER_ASSISTANT)) {
            put_assistant(c, i, last_query);
        } else if (napier_chat_is(c, i, NAPIER_TOOL)) {
            put_tool(c, i);
        } else {
            put_turn(c, c->messages[i].role, napier_chat_content(c, i));
        }
    }
    if (c->options->add_generation_prompt) {
        napier_chat_put(c, "<|im_start|>assistant\n");
        napier_chat_put(c, c->options->disable_thinking ? "<think>\n\n</think>\n\n" : "");
    }
}

/* ---- Qwen2.5 ----------------------------------------------------------------------------------------------------- */

static void put_answer(napier_chat *c, int64_t i) {
    const napier_chat_message *const m = &c->messages[i];
    if (m->tool_call_count == 0) {
        put_turn(c, m->role, napier_chat_content(c, i));
        return;
    }
    napier_chat_put(c, "<|im_start|>assistant");
    napier_chat_put(c, m->size > 0 ? "\n" : "");
    napier_chat_put_span(c, napier_chat_content(c, i));
    put_calls(c, m, true);
    napier_chat_put(c, "<|im_end|>\n");
}

/* Without a system's message the template writes one. */
void napier_chat_qwen2_5(napier_chat *c) {
    static const char usual[] = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
    const bool has_system = napier_chat_is(c, 0, NAPIER_SYSTEM);
    const napier_span system = has_system ? napier_chat_content(c, 0) : (napier_span){usual, sizeof usual - 1};
    if (c->options->tools_size > 0) {
        put_tools(c, true, system);
    } else {
        put_turn(c, "system", system);
    }
    for (int64_t i = has_system; i < c->count; i++) {
        if (napier_chat_is(c, i, NAPIER_ASSISTANT)) {
            put_answer(c, i);
        } else if (napier_chat_is(c, i, NAPIER_TOOL)) {
            put_tool(c, i);
        } else {
            put_turn(c, c->messages[i].role, napier_chat_content(c, i));
        }
    }
    napier_chat_put(c, c->options->add_generation_prompt ? "<|im_start|>assistant\n" : "");
}
