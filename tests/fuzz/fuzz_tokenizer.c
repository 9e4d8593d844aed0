/* fuzz_tokenizer - bytes that claim to be a tokenizer.json, and any text for a true one.
 *
 * The first byte says which: a file; edits of a true file, over bytes or over characters; a text for either; a
 * conversation, in any format; or a chat template. A tokenizer that is taken must
 * encode and decode; with the true one a text comes back in its normal form, which gives the same ids again. */
#include "fuzz.h"
#include "support/tiny_characters.h"
#include "support/tiny_tokenizer.h"

enum { MOST_TEXT = 4096 };

static void check_text(napier_context *context, const napier_tokenizer *t, bool whole, const char *text, size_t size) {
    napier_token_buffer ids = {0}, again = {0};
    napier_text_buffer back = {0};
    const napier_status status = napier_tokenizer_encode(context, t, text, size, NULL, &ids);
    REQUIRE(status == NAPIER_OK || status == NAPIER_INVALID_ARGUMENT || status == NAPIER_UNSUPPORTED, "status %d, %s",
            (int)status, napier_last_error(context));
    if (status == NAPIER_OK) {
        REQUIRE_OK(context, napier_tokenizer_decode(context, t, ids.ids, ids.size, NULL, &back));
        /* in an edited file the token for what is unknown may be a long text */
        REQUIRE(!whole || back.size <= 3 * size, "%zu bytes became %zu", size, back.size);
        const napier_status second = napier_tokenizer_encode(context, t, back.bytes, back.size, NULL, &again);
        REQUIRE(second == NAPIER_OK || !whole, "status %d: %s", (int)second, napier_last_error(context));
        REQUIRE(!whole || (again.size == ids.size &&
                           (ids.size == 0 || memcmp(ids.ids, again.ids, (size_t)ids.size * sizeof *ids.ids) == 0)),
                "%lld ids, then %lld or others", (long long)ids.size, (long long)again.size);
    } else {
        REQUIRE(ids.size == 0, "%lld ids of a text that was refused", (long long)ids.size);
    }
    napier_token_buffer_free(context, &ids);
    napier_token_buffer_free(context, &again);
    napier_text_buffer_free(context, &back);
}

static void check_file(napier_context *context, const char *json, size_t size) {
    static const char text[] = "Hello  world's 12\n\n<|im_end|> cafe\xcc\x81! \xe4\xb8\xad\xf0\x9f\x91\xa9 \t x";
    napier_tokenizer *t = NULL;
    const napier_status status = napier_tokenizer_from_json(context, json, size, &t);
    if (MADE(context, status, t != NULL, NAPIER_CORRUPT_DATA, NAPIER_UNSUPPORTED, NAPIER_OUT_OF_MEMORY)) {
        check_text(context, t, false, text, sizeof text - 1);
        check_text(context, t, false, json, size < MOST_TEXT ? size : MOST_TEXT);
    }
    napier_tokenizer_destroy(context, t);
}

/* Overwrites a true file: place, place, length, bytes. */
static void check_edits(napier_context *context, input *in, char *text, size_t size) {
    while (in->left > 3) {
        const size_t at = (size_t)take_bytes(in, 2) % size;
        for (size_t n = take(in) % 8; n > 0 && at + n < size; n--) {
            text[at + n] = (char)take(in);
        }
    }
    check_file(context, text, size);
}

static void check_tiny_edits(napier_context *context, input *in) {
    char *const text = tiny_text(NULL, NULL);
    REQUIRE(text != NULL, "no memory");
    check_edits(context, in, text, TINY_SIZE);
    free(text);
}

static const character_parts llama2 = LLAMA2_PARTS;

static void check_character_edits(napier_context *context, input *in) {
    static char text[CHARACTERS_ROOM];
    check_edits(context, in, text, characters_text(&llama2, text, sizeof text));
}

/* A text for a tokenizer of characters, with options from its first byte. Decoded to UTF-8 it can be encoded again. */
static void check_characters(napier_context *context, input *in) {
    static napier_tokenizer *t;
    static char json[CHARACTERS_ROOM];
    if (t == NULL) {
        REQUIRE_OK(context, napier_tokenizer_from_json(context, json, characters_text(&llama2, json, sizeof json), &t));
    }
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    napier_decode_options whole = NAPIER_DECODE_OPTIONS_INIT;
    napier_token_buffer ids = {0}, again = {0};
    napier_text_buffer back = {0};
    const uint32_t how = take(in);
    options.plain_special = how & 1;
    options.add_special = how / 2 % 3;
    options.continues = options.add_special == 0 && how & 16;
    whole.replace_invalid = 1;
    const napier_status status = napier_tokenizer_encode(context, t, (const char *)in->at, in->left, &options, &ids);
    REQUIRE(status == NAPIER_OK || status == NAPIER_INVALID_ARGUMENT, "status %d", (int)status);
    for (int64_t cut = ids.size > 9 ? ids.size - 9 : 0; cut < ids.size; cut++) { /* parts of characters too */
        back.size = 0;
        again.size = 0;
        REQUIRE_OK(context, napier_tokenizer_decode(context, t, ids.ids + cut, ids.size - cut, &whole, &back));
        REQUIRE_OK(context, napier_tokenizer_encode(context, t, back.bytes, back.size, NULL, &again));
    }
    napier_token_buffer_free(context, &ids);
    napier_token_buffer_free(context, &again);
    napier_text_buffer_free(context, &back);
}

static void check_template(napier_context *context, const char *bytes, size_t size) {
    int64_t format = -1;
    const napier_status status = napier_chat_format_of(context, bytes, size, &format);
    REQUIRE(status == NAPIER_UNSUPPORTED ? format == -1 : status == NAPIER_OK && format >= 0, "format %lld",
            (long long)format);
    const napier_chat_message messages[] = {{.role = "user", .content = "a b", .size = 3},
                                            {.role = "assistant", .content = "<c>", .size = 3}};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_chat_template *made = NULL;
    napier_text_buffer text = {0};
    REQUIRE_OK(context, napier_chat_template_create(context, bytes, size, "<s>", "</s>", &made));
    options.chat_template = made;
    const napier_status run = napier_chat_text(context, messages, 2, &options, &text);
    REQUIRE(run == NAPIER_OK || run == NAPIER_UNSUPPORTED || run == NAPIER_INVALID_ARGUMENT, "status %d: %s", (int)run,
            napier_last_error(context));
    REQUIRE(run == NAPIER_OK || text.size == 0, "%zu bytes are left", text.size);
    options.variables = bytes; /* mostly no JSON */
    options.variables_size = size;
    const napier_status given = napier_chat_text(context, messages, 2, &options, &text);
    REQUIRE(given == NAPIER_OK || given == NAPIER_UNSUPPORTED || given == NAPIER_INVALID_ARGUMENT, "status %d: %s",
            (int)given, napier_last_error(context));
    napier_text_buffer_free(context, &text);
    napier_chat_template_destroy(context, made);
}

/* Each message's first byte says of whom it is, and what an assistant's has beside its content. */
static void check_chat(napier_context *context, const char *bytes, size_t size) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    napier_chat_message messages[16];
    napier_tool_call calls[2] = {{"f", 1, bytes, size}, {bytes, size, "{}", 2}};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_text_buffer text = {0};
    int64_t count = 0;
    for (size_t at = 0; at < size && count < 16;) {
        const char *const end = memchr(bytes + at, '\0', size - at);
        const size_t length = end != NULL ? (size_t)(end - bytes) - at : size - at;
        const uint8_t kind = length > 0 ? (uint8_t)bytes[at] : 1;
        napier_chat_message *const m = &messages[count++];
        *m = (napier_chat_message){.role = roles[kind % 4], .content = bytes + at, .size = length};
        if (kind % 4 == 2 && kind & 4) {
            m->reasoning = bytes + at;
            m->reasoning_size = length / 2;
        }
        m->tool_calls = calls;
        m->tool_call_count = kind % 4 == 2 ? kind / 8 % 3 : 0;
        at += length + 1;
    }
    options.tools = bytes;
    options.tools_size = size % 2 == 0 ? size : 0;
    REQUIRE_OK(context, napier_chat_text(context, messages, count, &options, &text));
    REQUIRE(text.size >= 22, "%zu bytes", text.size);
    options.tools_size = 0;
    for (int64_t format = NAPIER_CHAT_QWEN2_5; format <= NAPIER_CHAT_MISTRAL_V0_2; format++) {
        const size_t before = text.size;
        options.format = format;
        const napier_status status = napier_chat_text(context, messages, count, &options, &text);
        REQUIRE(status == NAPIER_OK || (status == NAPIER_INVALID_ARGUMENT && text.size == before), "status %d: %s",
                (int)status, napier_last_error(context));
    }
    napier_text_buffer_free(context, &text);
}

FUZZ(in) {
    const input all = in;
    static napier_tokenizer *tiny;
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    if (tiny == NULL) {
        REQUIRE_OK(context, tiny_load(context, NULL, NULL, &tiny));
    }
    switch (take(&in)) {
    case '{': check_file(context, (const char *)all.at, all.left); break;
    case 'e': check_tiny_edits(context, &in); break;
    case 'E': check_character_edits(context, &in); break;
    case 'l': check_characters(context, &in); break;
    case 't': check_template(context, (const char *)in.at, in.left); break;
    case 'c': check_chat(context, (const char *)in.at, in.left); break;
    default: check_text(context, tiny, true, (const char *)in.at, in.left); break;
    }
}
