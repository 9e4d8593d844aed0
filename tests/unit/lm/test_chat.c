/* test_chat - the formats of conversations beside Qwen3's: texts by hand, what a format has no place for, and which
 * template is recognised. tests/peers compares with transformers' rendering of the published templates. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/memory.h"
#include "support/tiny_tokenizer.h"
#include "unit/lm/lm_support.h"

static napier_context *context;

#define MESSAGE(who, text) \
    { .role = who, .content = text, .size = sizeof(text) - 1 }

static const napier_tool_call call = {"f", 1, "{\"x\": 1}", 8};
static const napier_chat_message talk[] = {MESSAGE("system", "Be kind."), MESSAGE("user", " Hi\n"),
                                           MESSAGE("assistant", "Yo "), MESSAGE("user", "\xe3\x80\x80why\xc2\xa0")};
static const napier_chat_message calls[] = {
    MESSAGE("user", "x"),
    {.role = "assistant", .content = "", .tool_calls = &call, .tool_call_count = 1},
    MESSAGE("tool", "a \"b\"\n\x01\\")};

#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define DATED HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: "

static const struct {
    int64_t format;
    const napier_chat_message *messages;
    int64_t count;
    int prompt;
    const char *date, *wanted;
} cases[] = {
    {NAPIER_CHAT_QWEN2_5, talk + 1, 1, 1, NULL,
     "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
     "<|im_start|>user\n Hi\n<|im_end|>\n<|im_start|>assistant\n"},
    {NAPIER_CHAT_QWEN2_5, talk, 2, 0, NULL,
     "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi\n<|im_end|>\n"},
    {NAPIER_CHAT_LLAMA3, talk, 4, 1, NULL,
     "<|begin_of_text|>" HEADER("system") "Be kind.<|eot_id|>" HEADER("user") "Hi<|eot_id|>" HEADER(
         "assistant") "Yo<|eot_id|>" HEADER("user") "why<|eot_id|>" HEADER("assistant")},
    {NAPIER_CHAT_LLAMA3_1, talk, 2, 0, NULL,
     "<|begin_of_text|>" DATED "26 Jul 2024\n\nBe kind.<|eot_id|>" HEADER("user") "Hi<|eot_id|>"},
    {NAPIER_CHAT_LLAMA3_1, calls, 3, 0, "1 May 2026",
     "<|begin_of_text|>" DATED "1 May 2026\n\n<|eot_id|>" HEADER("user") "x<|eot_id|>" HEADER(
         "assistant") "{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|eot_id|>" HEADER("ipython") "\"a "
                                                                                                  "\\\"b\\\"\\n\\u0001"
                                                                                                  "\\\\\"<|eot_id|>"},
    {NAPIER_CHAT_LLAMA2, talk, 4, 1, NULL,
     "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\n Hi [/INST] Yo </s><s>[INST] why [/INST]"},
    {NAPIER_CHAT_LLAMA2, talk + 1, 1, 0, NULL, "<s>[INST] Hi [/INST]"},
    {NAPIER_CHAT_MISTRAL_V0_1, talk + 1, 3, 0, NULL,
     "<s>[INST]  Hi\n [/INST]Yo </s> [INST] \xe3\x80\x80why\xc2\xa0 [/INST]"},
    {NAPIER_CHAT_MISTRAL_V0_2, talk + 1, 2, 1, NULL, "<s>[INST]  Hi\n [/INST]Yo </s>"},
};

static void formats(void) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
        napier_text_buffer text = {0};
        options.format = cases[i].format;
        options.add_generation_prompt = cases[i].prompt;
        options.date = cases[i].date;
        if (succeeded(context, napier_chat_text(context, cases[i].messages, cases[i].count, &options, &text), "chat")) {
            expect(text.size == strlen(cases[i].wanted) && memcmp(text.bytes, cases[i].wanted, text.size) == 0,
                   "case %zu: '%.*s', not '%s'", i, (int)text.size, text.bytes, cases[i].wanted);
        }
        napier_text_buffer_free(context, &text);
    }
}

static void check_refused(int64_t format, const napier_chat_message *messages, int64_t count, const char *word) {
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_text_buffer text = {0};
    options.format = format;
    invalid(context, napier_chat_text(context, messages, count, &options, &text), word);
    expect(text.size == 0, "%zu bytes are left", text.size);
    napier_text_buffer_free(context, &text);
}

static void no_place(void) {
    const napier_chat_message twice[] = {MESSAGE("user", "x"), MESSAGE("user", "y")};
    const napier_chat_message thinker = {.role = "assistant", .content = "", .reasoning = "hm", .reasoning_size = 2};
    const napier_tool_call both[] = {call, call};
    napier_chat_message caller = {.role = "assistant", .content = "", .tool_calls = both, .tool_call_count = 2};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_text_buffer text = {0};
    check_refused(NAPIER_CHAT_LLAMA2, twice, 2, "messages[1]: this turn is the assistant's");
    check_refused(NAPIER_CHAT_LLAMA2, talk + 2, 1, "messages[0]: this turn is the user's");
    check_refused(NAPIER_CHAT_MISTRAL_V0_2, talk, 2, "messages[0]");
    check_refused(NAPIER_CHAT_MISTRAL_V0_1, calls, 2, "messages[1]: tool_calls");
    check_refused(NAPIER_CHAT_LLAMA3, calls, 2, "messages[1]: tool_calls");
    check_refused(NAPIER_CHAT_LLAMA3_1, &caller, 1, "more than one of tool_calls");
    caller.tool_call_count = 1;
    caller.content = " ";
    caller.size = 1;
    check_refused(NAPIER_CHAT_LLAMA3_1, &caller, 1, "messages[0]: content beside tool_calls");
    check_refused(NAPIER_CHAT_QWEN2_5, &thinker, 1, "messages[0]: reasoning");
    check_refused(7, talk, 1, "format is 7");
    check_refused(-1, talk, 1, "format is -1");
    options.format = NAPIER_CHAT_LLAMA3;
    options.disable_thinking = 1;
    invalid(context, napier_chat_text(context, talk, 1, &options, &text), "disable_thinking");
    options = (napier_chat_options)NAPIER_CHAT_OPTIONS_INIT;
    options.format = NAPIER_CHAT_LLAMA3_1;
    options.tools = "{}";
    options.tools_size = 2;
    invalid(context, napier_chat_text(context, talk, 1, &options, &text), "tools");
    options = (napier_chat_options)NAPIER_CHAT_OPTIONS_INIT;
    options.date = "1 May 2026";
    for (options.format = NAPIER_CHAT_QWEN3; options.format <= NAPIER_CHAT_MISTRAL_V0_2; options.format++) {
        if (options.format != NAPIER_CHAT_LLAMA3_1) {
            invalid(context, napier_chat_text(context, talk + 1, 1, &options, &text), "date is '1 May 2026'");
        }
    }
}

/* ---- Recognising ------------------------------------------------------------------------------------------------- */

#define QWEN2_5                                                                         \
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant. <tool_call> " \
    "'<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n'"

#define LLAMA3                                                                                                        \
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "   \
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}" \
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
#define ANSWER "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"

static void recognised(void) {
    int64_t format = -1;
    succeeded(context, napier_chat_format_of(context, QWEN2_5, strlen(QWEN2_5), &format), "of");
    expect(format == NAPIER_CHAT_QWEN2_5, "format %lld", (long long)format);
    format = -1;
    static const char other[] = QWEN2_5 " vision", empty[] = "", first[] = LLAMA3 ANSWER,
                      later[] = LLAMA3 "{% if add_generation_prompt %}" ANSWER "{% endif %}";
    refused(context, napier_chat_format_of(context, first, strlen(first), &format), NAPIER_UNSUPPORTED,
            "<|start_header_id|>", NULL);
    expect(format == -1, "format %lld after a refusal", (long long)format);
    succeeded(context, napier_chat_format_of(context, later, strlen(later), &format), "Llama 3");
    expect(format == NAPIER_CHAT_LLAMA3, "format %lld", (long long)format);
    format = -1;
    refused(context, napier_chat_format_of(context, other, strlen(other), &format), NAPIER_UNSUPPORTED, "<|im_start|>",
            NULL);
    refused(context, napier_chat_format_of(context, empty, 0, &format), NAPIER_UNSUPPORTED, "none of the formats",
            NULL);
    invalid(context, napier_chat_format_of(context, NULL, 3, &format), "chat_template");
    invalid(context, napier_chat_format_of(context, "x", 1, NULL), "format");
    invalid(context, napier_chat_format_load(context, NULL, NULL, &format), "directory");
    invalid(context, napier_chat_format_load(context, "x", NULL, NULL), "format");
    expect(format == -1, "format %lld after a refusal", (long long)format);
}

static char folder[] = "/tmp/napier-chat-XXXXXX";

static void write_file(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)remove(path);
    FILE *const file = text != NULL ? fopen(path, "wb") : NULL;
    if (file != NULL) {
        fputs(text, file);
        fclose(file);
    }
}

static void folders(void) {
    napier_tokenizer *tiny = NULL, *bare = NULL;
    int64_t format = -1;
    assert_non_null(mkdtemp(folder));
    succeeded(context, tiny_load(context, NULL, NULL, &tiny), "tiny");
    succeeded(context, tiny_load(context, "<|im_start|>", "<|other|>", &bare), "bare");
    succeeded(context, napier_chat_format_load(context, folder, tiny, &format), "without a template");
    expect(format == NAPIER_CHAT_QWEN3, "format %lld", (long long)format);
    refused(context, napier_chat_format_load(context, folder, bare, &format), NAPIER_UNSUPPORTED, "no chat_template",
            NULL);
    write_file("tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}, {\"name\": "
               "\"default\", \"template\": \"{{ bos_token }}'[INST] ' + message['content'] + ' "
               "[/INST]'{{ message['content'] + eos_token}}\"}]}");
    succeeded(context, napier_chat_format_load(context, folder, bare, &format), "a list");
    expect(format == NAPIER_CHAT_MISTRAL_V0_2, "format %lld", (long long)format);
    write_file("tokenizer_config.json", "{\"chat_template\": \"{{ '[INST]' }}\"}");
    refused(context, napier_chat_format_load(context, folder, tiny, &format), NAPIER_UNSUPPORTED,
            "tokenizer_config.json", "[INST]", NULL);
    write_file("tokenizer_config.json", "{\"chat_template\": ");
    refused(context, napier_chat_format_load(context, folder, tiny, &format), NAPIER_CORRUPT_DATA, "not JSON", NULL);
    write_file("chat_template.jinja", QWEN2_5); /* it comes first */
    succeeded(context, napier_chat_format_load(context, folder, bare, &format), "a file");
    expect(format == NAPIER_CHAT_QWEN2_5, "format %lld", (long long)format);
    write_file("chat_template.jinja", NULL);
    write_file("tokenizer_config.json", NULL);
    rmdir(folder);
    napier_tokenizer_destroy(context, tiny);
    napier_tokenizer_destroy(context, bare);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static napier_status render(napier_context *c, void *unused) {
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_text_buffer text = {0};
    int64_t format;
    (void)unused;
    options.format = NAPIER_CHAT_LLAMA3_1;
    napier_status status = napier_chat_text(c, calls, 3, &options, &text);
    napier_text_buffer_free(c, &text);
    return status ? status : napier_chat_format_load(c, "/nowhere", NULL, &format);
}

static void memory(void) { check_allocations("a conversation", render, NULL); }

int main(void) {
    context = context_of(NAPIER_ISA_AUTO, 1);
    const int failed = RUN_TESTS("chat", TEST(formats), TEST(no_place), TEST(recognised), TEST(folders), TEST(memory));
    napier_context_destroy(context);
    return failed;
}
