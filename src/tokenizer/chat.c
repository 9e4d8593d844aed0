/* tokenizer/chat.c - a conversation as Qwen3's models were trained to read it: ChatML, with thoughts in <think> blocks.
 * What their chat template does without tools, written from its behaviour; tests/peers renders the same conversations
 * with Jinja. */
#include <stdbool.h>
#include <string.h>

#include "tokenizer/buffer.h"

typedef enum role { SYSTEM, USER, ASSISTANT, TOOL, ROLES } role;
static const char *const role_names[ROLES] = {"system", "user", "assistant", "tool"};

/* Bytes of a message. */
typedef struct span {
    const char *bytes;
    size_t size;
} span;

/* The conversation while it is rendered. */
typedef struct chat {
    napier_context *context;
    const napier_chat_message *messages;
    int64_t count;
    int64_t last_query; /* index of the last question: later turns keep their thoughts */
    napier_text_buffer *out;
} chat;

/* ---- Spans ---------------------------------------------------------------------------------------------------------
 */

static span content_of(const napier_chat_message *m) { return (span){m->content, m->size}; }

static bool starts_with(span s, const char *word) {
    const size_t size = strlen(word);
    return s.size >= size && memcmp(s.bytes, word, size) == 0;
}

static bool ends_with(span s, const char *word) {
    const size_t size = strlen(word);
    return s.size >= size && memcmp(s.bytes + s.size - size, word, size) == 0;
}

/* Where a word stands first, or s.size. */
static size_t first_of(span s, const char *word) {
    size_t at = 0;
    while (at < s.size && !starts_with((span){s.bytes + at, s.size - at}, word)) {
        at++;
    }
    return at;
}

/* What follows the last of a word, or all. */
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

/* ---- Rendering -----------------------------------------------------------------------------------------------------
 */

/* Appends texts, up to NULL. */
static napier_status put(const chat *c, const char *const *texts) {
    napier_status status = NAPIER_OK;
    for (; *texts != NULL && !status; texts++) {
        status = napier_text_buffer_append(c->context, c->out, *texts, strlen(*texts));
    }
    return status;
}

static napier_status put_span(const chat *c, span s) {
    return napier_text_buffer_append(c->context, c->out, s.bytes, s.size);
}

static role role_of(const char *name) {
    int r = 0;
    while (r < ROLES && strcmp(name, role_names[r]) != 0) {
        r++;
    }
    return (role)r;
}

static napier_status put_turn(const chat *c, const char *name, span content) {
    napier_status status = put(c, (const char *const[]){"<|im_start|>", name, "\n", NULL});
    if (!status) {
        status = put_span(c, content);
    }
    return status ? status : put(c, (const char *const[]){"<|im_end|>\n", NULL});
}

/* A turn after the last question: with its thoughts, and the last turn with a block for them even if it has none. */
static napier_status put_thoughts(const chat *c, span thoughts, span answer) {
    napier_status status = put(c, (const char *const[]){"<|im_start|>assistant\n<think>\n", NULL});
    if (!status) {
        status = put_span(c, without_newlines(thoughts, true, true));
    }
    if (!status) {
        status = put(c, (const char *const[]){"\n</think>\n\n", NULL});
    }
    if (!status) {
        status = put_span(c, without_newlines(answer, true, false));
    }
    return status ? status : put(c, (const char *const[]){"<|im_end|>\n", NULL});
}

static napier_status put_assistant(const chat *c, int64_t i) {
    span answer = content_of(&c->messages[i]), thoughts = {"", 0};
    const size_t end = first_of(answer, "</think>");
    if (end < answer.size) {
        thoughts = without_newlines((span){answer.bytes, end}, false, true);
        thoughts = without_newlines(after_last(thoughts, "<think>"), true, false);
        answer = without_newlines(after_last(answer, "</think>"), true, false);
    }
    const bool shown = i > c->last_query && (i == c->count - 1 || thoughts.size > 0);
    return shown ? put_thoughts(c, thoughts, answer) : put_turn(c, "assistant", answer);
}

/* Results one after another are one turn of the user's. */
static napier_status put_tool(const chat *c, int64_t i) {
    const bool first = i == 0 || role_of(c->messages[i - 1].role) != TOOL;
    const bool last = i == c->count - 1 || role_of(c->messages[i + 1].role) != TOOL;
    napier_status status = put(c, (const char *const[]){first ? "<|im_start|>user" : "", "\n<tool_response>\n", NULL});
    if (!status) {
        status = put_span(c, content_of(&c->messages[i]));
    }
    return status ? status : put(c, (const char *const[]){"\n</tool_response>", last ? "<|im_end|>\n" : "", NULL});
}

static napier_status put_message(const chat *c, int64_t i) {
    switch (role_of(c->messages[i].role)) {
    case ASSISTANT: return put_assistant(c, i);
    case TOOL: return put_tool(c, i);
    default: return put_turn(c, c->messages[i].role, content_of(&c->messages[i]));
    }
}

/* A result that is written as a user's turn is no question. */
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

/* ---- The call ------------------------------------------------------------------------------------------------------
 */

static napier_status check_messages(napier_context *context, const napier_chat_message *messages, int64_t count) {
    if (count < 0 || (messages == NULL && count > 0)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "messages: count %lld%s", (long long)count,
                           messages ? "" : ", and NULL");
    }
    for (int64_t i = 0; i < count; i++) {
        if (messages[i].role == NULL || (messages[i].content == NULL && messages[i].size > 0)) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT, "messages[%lld]: %s NULL", (long long)i,
                               messages[i].role == NULL ? "role" : "content");
        }
        if (role_of(messages[i].role) == ROLES) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                               "messages[%lld]: role '%.40s' is none of system, user, assistant, tool", (long long)i,
                               messages[i].role);
        }
    }
    return NAPIER_OK;
}

static napier_status render(const chat *c, const napier_chat_options *options) {
    napier_status status = NAPIER_OK;
    for (int64_t i = 0; i < c->count && !status; i++) {
        status = put_message(c, i);
    }
    if (status || !options->add_generation_prompt) {
        return status;
    }
    return put(c, (const char *const[]){"<|im_start|>assistant\n",
                                        options->disable_thinking ? "<think>\n\n</think>\n\n" : "", NULL});
}

napier_status napier_chat_text(napier_context *context, const napier_chat_message *messages, int64_t count,
                               const napier_chat_options *options, napier_text_buffer *text) {
    const napier_chat_options defaults = NAPIER_CHAT_OPTIONS_INIT;
    napier_status status = napier_begin(context);
    if (status) {
        return status;
    }
    options = options != NULL ? options : &defaults;
    if (options->struct_size != sizeof *options) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: struct_size %zu is not %zu",
                           options->struct_size, sizeof *options);
    }
    status = napier_check_text_buffer(context, "text", text);
    if (!status) {
        status = check_messages(context, messages, count);
    }
    if (status) {
        return status;
    }
    const size_t before = text->size;
    const chat c = {context, messages, count, last_query(messages, count), text};
    status = render(&c, options);
    if (status) {
        text->size = before;
    }
    return status;
}
