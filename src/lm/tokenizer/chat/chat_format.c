/* lm/tokenizer/chat/chat_format.c - which format a model's chat template writes, recognised by parts of its text. */
#define _POSIX_C_SOURCE 200809L

#include <cjson/cJSON.h>

#include "core/base/platform.h"
#include "core/base/scope.h"
#include "lm/gguf/gguf.h"
#include "lm/text/file.h"
#include "lm/text/json.h"
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

napier_status napier_chat_format_of(napier_context *context, const char *chat_template, size_t size, int64_t *format) {
    const napier_span text = {chat_template, size};
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, chat_template == NULL || format == NULL, "%s: NULL",
                     chat_template == NULL ? "chat_template" : "format");
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        if (fits(&signatures[i], text)) {
            *format = signatures[i].format;
            return NAPIER_OK;
        }
    }
    return napier_fail(
        context, NAPIER_UNSUPPORTED,
        "chat_template: none of the formats that are built in (it has %s); choose a format, or render it "
        "in Python with Tokenizer.apply_chat_template",
        mark_of(text));
}

/* ---- By the folder ----------------------------------------------------------------------------------------------- */

static const size_t most_bytes = (size_t)1 << 26;

/* The template of tokenizer_config.json: a text, or the one called "default" in a list of {"name", "template"}. */
static const char *template_of(napier_json *json) {
    const cJSON *const value = napier_json_member(json, json->root, "chat_template");
    const char *text = cJSON_IsString(value) ? value->valuestring : NULL;
    for (const cJSON *item = cJSON_IsArray(value) ? value->child : NULL; item != NULL && text == NULL;
         item = item->next) {
        const char *name = "";
        napier_json_text(json, item, "name", &name);
        if (strcmp(name, "default") == 0) {
            napier_json_text(json, item, "template", &text);
        }
    }
    return text;
}

/* Parses a tokenizer_config.json, or the one that a GGUF file says. */
static napier_status parse_config(napier_context *context, const char *path, napier_json *json) {
    napier_text_buffer text = {NULL, 0, 0};
    if (!napier_gguf_is(path)) {
        return napier_json_load(json, context, path, most_bytes);
    }
    *json = (napier_json){.context = context};
    napier_status status = napier_gguf_document(context, path, "tokenizer_config.json", &text);
    status = status ? status : napier_json_parse(json, context, path, text.bytes, text.size);
    napier_text_buffer_free(context, &text);
    return status;
}

static napier_status from_config(napier_context *context, const char *path, bool *found, int64_t *format) {
    napier_json json;
    napier_status status = parse_config(context, path, &json);
    const char *const text = status ? NULL : template_of(&json);
    status = status ? status : json.status;
    *found = text != NULL;
    if (!status && *found) {
        status = napier_chat_format_of(context, text, strlen(text), format);
    }
    napier_json_free(&json);
    return status;
}

static napier_status from_file(napier_context *context, const char *path, int64_t *format) {
    char *bytes = NULL;
    size_t size = 0;
    NAPIER_TRY(napier_read_file(context, path, most_bytes, &bytes, &size));
    const napier_status status = napier_chat_format_of(context, bytes, size, format);
    napier_free(&context->allocator, bytes);
    return status;
}

/* Adds the file's name to the error of the last call. */
static napier_status named(napier_context *context, napier_status status, const char *path) {
    char text[NAPIER_ERROR_TEXT];
    if (status != NAPIER_UNSUPPORTED) {
        return status;
    }
    (void)snprintf(text, sizeof text, "%s", napier_last_error(context));
    return napier_fail(context, status, "%s: %s", path, text);
}

napier_status napier_chat_format_load(napier_context *context, const char *directory, const napier_tokenizer *tokenizer,
                                      int64_t *format) {
    static const char start[] = "<|im_start|>";
    char *file = NULL, *config = NULL;
    bool found = false;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, directory == NULL || format == NULL, "%s: NULL",
                     directory == NULL ? "directory" : "format");
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_join_path(&memory, directory, "chat_template.jinja", &file));
    NAPIER_TRY(napier_join_path(&memory, directory, "tokenizer_config.json", &config));
    if (access(file, F_OK) == 0) {
        return named(context, from_file(context, file, format), file);
    }
    const char *const given = napier_gguf_is(directory) ? directory : config;
    if (access(given, F_OK) == 0) {
        const napier_status status = from_config(context, given, &found, format);
        if (status || found) {
            return named(context, status, given);
        }
    }
    if (tokenizer == NULL || napier_tokenizer_id(tokenizer, start, sizeof start - 1) >= 0) {
        *format = NAPIER_CHAT_QWEN3;
        return NAPIER_OK;
    }
    return napier_fail(context, NAPIER_UNSUPPORTED,
                       "%s: no chat_template, and the tokenizer has no %s of Qwen's format; choose a format", directory,
                       start);
}
