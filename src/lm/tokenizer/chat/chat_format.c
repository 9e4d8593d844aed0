/* lm/tokenizer/chat/chat_format.c - which format a model's chat template writes, recognised by parts of its text. */
#include "core/base/scope.h"
#include "lm/tokenizer/chat/chat.h"

/* ---- By the text ------------------------------------------------------------------------------------------------- */

enum { MOST_PARTS = 5 };

/* What a template of a format has, and what it does not have. */
typedef struct signature {
    int64_t format;
    const char *has[MOST_PARTS], *has_not[MOST_PARTS];
} signature;

#define LLAMA3_TURN \
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>", "message['content'] | trim + '<|eot_id|>'"

static const signature signatures[] = {
    {NAPIER_CHAT_QWEN3,
     {"'<|im_start|>' + message.role", "enable_thinking", "loop.index0 > ns.last_query_index", "<tool_call>"},
     {"<function=", "vision", "image", "generation %}"}},
    {NAPIER_CHAT_QWEN2_5,
     {"You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
      "'<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n'", "<tool_call>"},
     {"enable_thinking", "vision", "image"}},
    {NAPIER_CHAT_LLAMA3, /* the first one ends each text with the start of an answer */
     {LLAMA3_TURN, "content = bos_token + content", "{% if add_generation_prompt %}"},
     {"date_string", "generation %}", "eos_token"}},
    {NAPIER_CHAT_LLAMA3_1,
     {LLAMA3_TURN, "\"Cutting Knowledge Date: December 2023\\n\"", "\"Today Date: \" + date_string + \"\\n\\n\"",
      "\"26 Jul 2024\""},
     {"image", "generation %}"}},
    {NAPIER_CHAT_LLAMA2,
     {"bos_token + '[INST] ' + content.strip() + ' [/INST]'", "content.strip() + ' ' + eos_token", "<<SYS>>"},
     {"respectful and honest", "add_generation_prompt"}},
    {NAPIER_CHAT_MISTRAL_V0_1,
     {"{{ bos_token }}", "'[INST] ' + message['content'] + ' [/INST]'", "message['content'] + eos_token + ' ' }}"},
     {"'system'", "tool"}},
    {NAPIER_CHAT_MISTRAL_V0_2,
     {"{{ bos_token }}", "'[INST] ' + message['content'] + ' [/INST]'", "{{ message['content'] + eos_token}}"},
     {"'system'", "tool"}},
};

static bool occurs(napier_span text, const char *part) {
    const size_t size = strlen(part);
    for (size_t at = 0; at + size <= text.size; at++) {
        const char *const found = memchr(text.bytes + at, part[0], text.size - size + 1 - at);
        if (found == NULL) {
            return false;
        }
        at = (size_t)(found - text.bytes);
        if (memcmp(found, part, size) == 0) {
            return true;
        }
    }
    return false;
}

static bool fits(const signature *s, napier_span text) {
    bool good = true;
    for (int i = 0; i < MOST_PARTS && good; i++) {
        good =
            (s->has[i] == NULL || occurs(text, s->has[i])) && !(s->has_not[i] != NULL && occurs(text, s->has_not[i]));
    }
    return good;
}

/* The mark that says most about an unknown template. */
static const char *mark_of(napier_span text) {
    static const char *const marks[] = {"<|start_header_id|>", "[INST]", "<|im_start|>", "<start_of_turn>",
                                        "<|assistant|>"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (occurs(text, marks[i])) {
            return marks[i];
        }
    }
    return "no mark of a known one";
}

static napier_status format_of(napier_context *context, const char *chat_template, size_t size, const char *place,
                               int64_t *format) {
    const napier_span text = {chat_template, size};
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        if (fits(&signatures[i], text)) {
            *format = signatures[i].format;
            return NAPIER_OK;
        }
    }
    return napier_fail(
        context, NAPIER_UNSUPPORTED,
        "%s: none of the formats that are built in (it has %s); choose a format, or run it as a napier_chat_template",
        place, mark_of(text));
}

napier_status napier_chat_format_of(napier_context *context, const char *chat_template, size_t size, int64_t *format) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, chat_template == NULL || format == NULL, "%s: NULL",
                     chat_template == NULL ? "chat_template" : "format");
    return format_of(context, chat_template, size, "chat_template", format);
}

/* ---- By the folder ----------------------------------------------------------------------------------------------- */

napier_status napier_chat_format_load(napier_context *context, const char *directory, const napier_tokenizer *tokenizer,
                                      int64_t *format) {
    static const char start[] = "<|im_start|>";
    napier_chat_template *found = NULL;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, directory == NULL || format == NULL, "%s: NULL",
                     directory == NULL ? "directory" : "format");
    NAPIER_TRY(napier_chat_template_find(context, directory, false, &found));
    if (found != NULL) {
        size_t size = 0;
        const char *place = NULL;
        const char *const text = napier_chat_template_text(found, &size, &place);
        const napier_status status = format_of(context, text, size, place, format);
        napier_chat_template_destroy(context, found);
        return status;
    }
    if (tokenizer == NULL || napier_tokenizer_id(tokenizer, start, sizeof start - 1) >= 0) {
        *format = NAPIER_CHAT_QWEN3;
        return NAPIER_OK;
    }
    return napier_fail(context, NAPIER_UNSUPPORTED,
                       "%s: no chat_template, and the tokenizer has no %s of Qwen's format; choose a format", directory,
                       start);
}
