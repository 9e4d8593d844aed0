/* lm/tokenizer/chat.c - a conversation in the format of Qwen3's training: ChatML, with thoughts in <think> blocks and
 * calls in <tool_call> blocks. It is written from the behaviour of Qwen3's chat template; tests/peers renders the same
 * conversations with Jinja. */
#include <stdbool.h>
#include <string.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "lm/text/buffer.h"

typedef enum role { SYSTEM, USER, ASSISTANT, TOOL, ROLES } role;
static const char *const role_names[ROLES] = {"system", "user", "assistant", "tool"};

/* A part of a message. */
typedef struct span {
    const char *bytes;
    size_t size;
} span;

/* The state of rendering. */
typedef struct chat {
    napier_context *context;
    const napier_chat_message *messages;
    int64_t count;
    int64_t last_query; /* index of the last question; only later turns keep their thoughts */
    napier_text_buffer *out;
    napier_status status; /* after a failure nothing more is written */
} chat;

/* ---- Spans ------------------------------------------------------------------------------------------------------- */

static span content_of(const napier_chat_message *m) { return (span){m->content, m->size}; }

static bool starts_with(span s, const char *word) {
    const size_t size = strlen(word);
    return s.size >= size && memcmp(s.bytes, word, size) == 0;
}

static bool ends_with(span s, const char *word) {
    const size_t size = strlen(word);
    return s.size >= size && memcmp(s.bytes + s.size - size, word, size) == 0;
}

/* The offset of the first occurrence of a word, or s.size. */
static size_t first_of(span s, const char *word) {
    size_t at = 0;
    while (at < s.size && !starts_with((span){s.bytes + at, s.size - at}, word)) {
        at++;
    }
    return at;
}

/* The part after the last occurrence of a word, or all. */
static span after_last(span s, const char *word) {
    for (size_t end = s.size; end > 0; end--) {
        if (ends_with((span){s.bytes, end}, word)) {
            return (span){s.bytes + end, s.size - end};
        }
    }
    return s;
}

static span without_newlines(span s, bool at_start, bool at_end) {
    while (at_start && s.size > 0 && s.bytes[0] == '\n') {
        s = (span){s.bytes + 1, s.size - 1};
    }
    while (at_end && s.size > 0 && s.bytes[s.size - 1] == '\n') {
        s.size--;
    }
    return s;
}

/* ---- Rendering --------------------------------------------------------------------------------------------------- */

static void put_span(chat *c, span s) {
    if (!c->status) {
        c->status = napier_text_buffer_append(c->context, c->out, s.bytes, s.size);
    }
}

static void put(chat *c, const char *text) { put_span(c, (span){text, strlen(text)}); }

static role role_of(const char *name) {
    int r = 0;
    while (r < ROLES && strcmp(name, role_names[r]) != 0) {
        r++;
    }
    return (role)r;
}

static void put_turn(chat *c, const char *name, span content) {
    put(c, "<|im_start|>");
    put(c, name);
    put(c, "\n");
    put_span(c, content);
    put(c, "<|im_end|>\n");
}

/* Writes <tool_call> blocks, each on its own lines. */
static void put_calls(chat *c, const napier_chat_message *m, bool after_text) {
    for (int64_t k = 0; k < m->tool_call_count; k++) {
        const napier_tool_call *const call = &m->tool_calls[k];
        put(c, k > 0 || after_text ? "\n<tool_call>\n{\"name\": \"" : "<tool_call>\n{\"name\": \"");
        put_span(c, (span){call->name, call->name_size});
        put(c, "\", \"arguments\": ");
        put_span(c, (span){call->arguments, call->arguments_size});
        put(c, "}\n</tool_call>");
    }
}

/* Removes the thoughts from an answer and returns them. */
static span split_thoughts(span *answer) {
    const size_t end = first_of(*answer, "</think>");
    if (end == answer->size) {
        return (span){"", 0};
    }
    const span before = without_newlines((span){answer->bytes, end}, false, true);
    *answer = without_newlines(after_last(*answer, "</think>"), true, false);
    return without_newlines(after_last(before, "<think>"), true, false);
}

/* A turn after the last question keeps its thoughts. The last turn gets a block for them even if it has none. */
static void put_assistant(chat *c, int64_t i) {
    const napier_chat_message *const m = &c->messages[i];
    span answer = content_of(m);
    const span thoughts = m->reasoning != NULL ? (span){m->reasoning, m->reasoning_size} : split_thoughts(&answer);
    const bool shown = i > c->last_query && (i == c->count - 1 || thoughts.size > 0);
    put(c, "<|im_start|>assistant\n");
    if (shown) {
        put(c, "<think>\n");
        put_span(c, without_newlines(thoughts, true, true));
        put(c, "\n</think>\n\n");
    }
    put_span(c, without_newlines(answer, shown, false));
    put_calls(c, m, answer.size > 0);
    put(c, "<|im_end|>\n");
}

static bool has_role(const chat *c, int64_t i, role wanted) {
    return i >= 0 && i < c->count && role_of(c->messages[i].role) == wanted;
}

/* Consecutive tool results form one turn of the user. */
static void put_tool(chat *c, int64_t i) {
    put(c, has_role(c, i - 1, TOOL) ? "" : "<|im_start|>user");
    put(c, "\n<tool_response>\n");
    put_span(c, content_of(&c->messages[i]));
    put(c, "\n</tool_response>");
    put(c, has_role(c, i + 1, TOOL) ? "" : "<|im_end|>\n");
}

static void put_message(chat *c, int64_t i) {
    switch (role_of(c->messages[i].role)) {
    case ASSISTANT: put_assistant(c, i); break;
    case TOOL: put_tool(c, i); break;
    default: put_turn(c, c->messages[i].role, content_of(&c->messages[i])); break;
    }
}

/* The first turn if there are tools: the system's text, and the description of the tools. */
static void put_tools(chat *c, span tools) {
    put(c, "<|im_start|>system\n");
    if (has_role(c, 0, SYSTEM)) {
        put_span(c, content_of(&c->messages[0]));
        put(c, "\n\n");
    }
    put(c, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
           "function "
           "signatures within <tools></tools> XML tags:\n<tools>\n");
    put_span(c, tools);
    put(c, "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
           "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
           "<args-json-object>}\n</tool_call><|im_end|>\n");
}

/* A tool result in a user's turn is not a question. */
static int64_t last_query(const napier_chat_message *messages, int64_t count) {
    for (int64_t i = count - 1; i >= 0; i--) {
        const span content = content_of(&messages[i]);
        if (role_of(messages[i].role) == USER &&
            !(starts_with(content, "<tool_response>") && ends_with(content, "</tool_response>"))) {
            return i;
        }
    }
    return count - 1;
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

static const char *absent_part(const napier_chat_message *m) {
    for (int64_t k = 0; k < m->tool_call_count && m->tool_calls != NULL; k++) {
        if (m->tool_calls[k].name == NULL || m->tool_calls[k].arguments == NULL) {
            return m->tool_calls[k].name == NULL ? "name of a tool call" : "arguments of a tool call";
        }
    }
    return m->role == NULL                                    ? "role"
           : m->content == NULL && m->size > 0                ? "content"
           : m->reasoning == NULL && m->reasoning_size > 0    ? "reasoning"
           : m->tool_call_count != 0 && m->tool_calls == NULL ? "tool_calls"
                                                              : NULL;
}

static napier_status check_message(napier_context *context, const napier_chat_message *m, int64_t i) {
    const char *const absent = absent_part(m);
    NAPIER_REFUSE_IF(context, absent != NULL || m->tool_call_count < 0, "messages[%lld]: %s%s", (long long)i,
                     absent != NULL ? absent : "tool_call_count is negative", absent != NULL ? " NULL" : "");
    const role r = role_of(m->role);
    NAPIER_REFUSE_IF(context, r == ROLES, "messages[%lld]: role '%.40s' is none of system, user, assistant, tool",
                     (long long)i, m->role);
    NAPIER_REFUSE_IF(context, r != ASSISTANT && (m->reasoning != NULL || m->tool_call_count > 0),
                     "messages[%lld]: %s of a %s message, but the format has them for the assistant only", (long long)i,
                     m->reasoning != NULL ? "reasoning" : "tool calls", m->role);
    return NAPIER_OK;
}

static napier_status check_messages(napier_context *context, const napier_chat_message *messages, int64_t count) {
    NAPIER_REFUSE_IF(context, count < 0 || (messages == NULL && count > 0), "messages: count %lld%s", (long long)count,
                     messages ? "" : ", and NULL");
    for (int64_t i = 0; i < count; i++) {
        NAPIER_TRY(check_message(context, &messages[i], i));
    }
    return NAPIER_OK;
}

static void render(chat *c, const napier_chat_options *options) {
    const bool tools = options->tools_size > 0;
    if (tools) {
        put_tools(c, (span){options->tools, options->tools_size});
    }
    for (int64_t i = tools && has_role(c, 0, SYSTEM); i < c->count; i++) { /* put_tools writes the system's message */
        put_message(c, i);
    }
    if (options->add_generation_prompt) {
        put(c, "<|im_start|>assistant\n");
        put(c, options->disable_thinking ? "<think>\n\n</think>\n\n" : "");
    }
}

napier_status napier_chat_text(napier_context *context, const napier_chat_message *messages, int64_t count,
                               const napier_chat_options *options, napier_text_buffer *text) {
    napier_chat_options o = NAPIER_CHAT_OPTIONS_INIT;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_read_options(context, "options", "NAPIER_CHAT_OPTIONS_INIT", options, &o));
    NAPIER_REFUSE_IF(context, o.tools == NULL && o.tools_size > 0, "options: tools NULL, but %zu bytes", o.tools_size);
    NAPIER_TRY(napier_check_text_buffer(context, "text", text));
    NAPIER_TRY(check_messages(context, messages, count));
    const size_t before = text->size;
    chat c = {context, messages, count, last_query(messages, count), text, NAPIER_OK};
    render(&c, &o);
    text->size = c.status ? before : text->size;
    return c.status;
}
