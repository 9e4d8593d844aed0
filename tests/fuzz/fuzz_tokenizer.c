/* fuzz_tokenizer - bytes that claim to be a tokenizer.json, and any text for a true one.
 *
 * The first byte says which: a file; edits of a true file; a text; or a conversation. A tokenizer that is taken must
 * encode and decode; with the true one a text comes back in its normal form, which gives the same ids again. */
#include "fuzz.h"
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
        REQUIRE(back.size <= 3 * size, "%zu bytes became %zu", size, back.size);
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

/* Overwrites the true file: place, place, length, bytes. */
static void check_edits(napier_context *context, input *in) {
    char *const text = tiny_text(NULL, NULL);
    REQUIRE(text != NULL, "no memory");
    while (in->left > 3) {
        const size_t at = (size_t)take_bytes(in, 2) % TINY_SIZE;
        for (size_t n = take(in) % 8; n > 0 && at + n < TINY_SIZE; n--) {
            text[at + n] = (char)take(in);
        }
    }
    check_file(context, text, TINY_SIZE);
    free(text);
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
    case 'e': check_edits(context, &in); break;
    case 'c': check_chat(context, (const char *)in.at, in.left); break;
    default: check_text(context, tiny, true, (const char *)in.at, in.left); break;
    }
}
