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

/* A format that is built in. */
typedef struct napier_chat_builtin {
    const char *source;            /* its template */
    bool has_tools, has_reasoning; /* and a think block that disable_thinking leaves empty */
    bool has_date;
} napier_chat_builtin;
enum { NAPIER_CHAT_BUILTINS = NAPIER_CHAT_MISTRAL_V0_2 + 1 };
extern const napier_chat_builtin napier_chat_builtins[NAPIER_CHAT_BUILTINS];

/* Appends what the options' template writes, or that of the options' format. */
napier_status napier_chat_run(napier_context *context, const napier_chat_message *messages, int64_t count,
                              const napier_chat_options *options, napier_text_buffer *out);
napier_status napier_chat_template_find(napier_context *context, const char *directory, bool with_special,
                                        napier_chat_template **out);
const char *napier_chat_template_text(const napier_chat_template *t, size_t *size, const char **place);

/* The role of this name; NAPIER_ROLES if there is none. */
napier_role napier_chat_role(const char *name);

/* A span without the white space at both ends, as Python's str.strip() and Jinja's trim remove it. */
napier_span napier_chat_trim(napier_span span);
napier_span napier_chat_trim_start(napier_span span);
napier_span napier_chat_trim_end(napier_span span);

#endif
