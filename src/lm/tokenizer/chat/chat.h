/* lm/tokenizer/chat/chat.h - the rendering of a conversation: what the formats share. */
#ifndef NAPIER_LM_TOKENIZER_CHAT_CHAT_H
#define NAPIER_LM_TOKENIZER_CHAT_CHAT_H

#include <stdbool.h>
#include <string.h>

#include "lm/text/buffer.h"

typedef enum napier_role { NAPIER_SYSTEM, NAPIER_USER, NAPIER_ASSISTANT, NAPIER_TOOL, NAPIER_ROLES } napier_role;

/* A part of a message. */
typedef struct napier_span {
    const char *bytes;
    size_t size;
} napier_span;

/* The state of rendering. */
typedef struct napier_chat {
    napier_context *context;
    const napier_chat_message *messages;
    int64_t count;
    const napier_chat_options *options;
    napier_text_buffer *out;
    napier_status status; /* after a failure nothing more is written */
} napier_chat;

/* Fails with INVALID_ARGUMENT, and returns false, if a conversation has no place in a format. */
typedef void napier_chat_render(napier_chat *chat);

napier_chat_render napier_chat_qwen3, napier_chat_qwen2_5, napier_chat_llama3, napier_chat_llama3_1, napier_chat_llama2,
    napier_chat_mistral;

/* Runs the template of the options. */
napier_chat_render napier_chat_run_template;
napier_status napier_chat_template_find(napier_context *context, const char *directory, bool with_special,
                                        napier_chat_template **out);
const char *napier_chat_template_text(const napier_chat_template *t, size_t *size, const char **place);

/* The role of this name; NAPIER_ROLES if there is none. */
napier_role napier_chat_role(const char *name);
/* True if message i exists and has this role. */
bool napier_chat_is(const napier_chat *chat, int64_t i, napier_role role);
napier_span napier_chat_content(const napier_chat *chat, int64_t i);

void napier_chat_put(napier_chat *chat, const char *text);
void napier_chat_put_span(napier_chat *chat, napier_span span);

/* A span without the white space at both ends, as Python's str.strip() and Jinja's trim remove it. */
napier_span napier_chat_trim(napier_span span);
napier_span napier_chat_trim_start(napier_span span);
napier_span napier_chat_trim_end(napier_span span);

/* Fails with INVALID_ARGUMENT: message i has no place in the format, for this reason. */
void napier_chat_refuse(napier_chat *chat, int64_t i, const char *why);

#endif
