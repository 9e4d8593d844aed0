/* test_tokenizer - encode and decode by a tiny tokenizer of Qwen's kind: ids worked out by hand, byte-pair encoding
 * against its definition, added tokens, text that is not UTF-8, both forms of merges, threads, and memory that runs out
 * at any point. tests/peers compares with Hugging Face tokenizers on any text. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/memory.h"
#include "support/tiny_tokenizer.h"
#include "unit/lm/lm_support.h"

static napier_context *context;
static napier_tokenizer *tiny;

/* ---- Ids by hand ------------------------------------------------------------------------------------------------- */

/* "72 220 259": the ids of a text, which lives until the next call. */
static const char *ids_of(const napier_tokenizer *tokenizer, const char *text, size_t size, bool plain) {
    static char line[4096];
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    napier_token_buffer ids = {0};
    size_t used = 0;
    options.plain_special = plain;
    line[0] = '\0';
    if (succeeded(context, napier_tokenizer_encode(context, tokenizer, text, size, &options, &ids), text)) {
        for (int64_t i = 0; i < ids.size && used < sizeof line - 16; i++) {
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%d", i > 0 ? " " : "", ids.ids[i]);
        }
    }
    napier_token_buffer_free(context, &ids);
    return line;
}

static void check_ids(const napier_tokenizer *tokenizer, const char *text, const char *wanted) {
    const char *const got = ids_of(tokenizer, text, strlen(text), false);
    expect(strcmp(got, wanted) == 0, "'%s' gives %s, not %s", text, got, wanted);
}

/* hello 259, " world" 264, two spaces 265, four 266, aa 267, aaaa 268, ab 269, ba 270, two line feeds 271, 's 272, 12
 * 273, e-acute 274, U+4E2D 276, " xyz" 277 (no merges lead there); then the added tokens from 278. A byte's id is its
 * place in GPT-2's alphabet: '!' 0, 'a' 64, line feed 198, space 220. */
static void words(void) {
    check_ids(tiny, "", "");
    check_ids(tiny, "hello world", "259 264");
    check_ids(tiny, "hellohello world", "259 259 264");
    check_ids(tiny, "hell", "258");
    check_ids(tiny, "a", "64");
    check_ids(tiny, "aaaaa", "268 64");
    check_ids(tiny, "aaab", "267 269");      /* a a before a b */
    check_ids(tiny, "bab", "65 269");        /* a b is merged before b a */
    check_ids(tiny, "12", "16 17");          /* a word for each digit: the merge "1 2" never applies */
    check_ids(tiny, "hello's", "259 272");   /* the suffix is a word */
    check_ids(tiny, "hello'S", "259 6 50");  /* ... in capitals too, but there is no merge for it */
    check_ids(tiny, " xyz", "220 87 88 89"); /* a token, but the merges do not make it */
    check_ids(tiny, "\xe4\xb8\xad", "276");  /* U+4E2D */
    check_ids(tiny, "caf\xc3\xa9", "66 64 69 274");
    check_ids(tiny, "cafe\xcc\x81", "66 64 69 274"); /* the same in normal form */
}

/* \s*[\r\n]+ takes spaces before a line feed; \s+(?!\S) leaves the last space to the word that follows. */
static void spaces(void) {
    check_ids(tiny, "    ", "266");
    check_ids(tiny, "     hello", "266 220 259");
}

static void added_tokens(void) {
    check_ids(tiny, "<|im_start|>a<|im_end|>\n", "279 64 280 198");
    check_ids(tiny, "<|im", "283"); /* a token that others begin with */
    check_ids(tiny, "<|im_<|im_end|>", "283 62 280");
    check_ids(tiny, "<think></think>", "281 282");
    check_ids(tiny, "caf\xc3\xa9!", "284"); /* looked for in the normal form */
    check_ids(tiny, "cafe\xcc\x81!!", "284 0");
    check_ids(tiny, "hello<|im_end|>world", "259 280 86 261 263");
    const char *const plain = ids_of(tiny, "<|im_end|><think>", 17, true); /* only special ones become text */
    expect(strcmp(plain, "27 91 72 76 62 68 77 67 91 29 281") == 0, "plain: %s", plain);
}

/* ---- Byte-pair encoding by its definition ------------------------------------------------------------------------ */

/* The merges of tiny_tokenizer.json that letters take part in, in their order. */
static const char *const merges[][2] = {{"l", "l"}, {"h", "e"}, {"he", "ll"}, {"hell", "o"}, {"o", "r"},
                                        {"l", "d"}, {"a", "a"}, {"aa", "aa"}, {"a", "b"},    {"b", "a"}};
enum { MERGES = sizeof merges / sizeof merges[0], LONGEST = 400 };

/* Appends the ids of a word of letters: the first merge in the list that fits anywhere, at its leftmost place, again
 * and again. */
static int64_t merge_by_definition(const char *word, size_t size, int32_t *ids) {
    static char parts[LONGEST][8];
    size_t n = size;
    for (size_t i = 0; i < size; i++) {
        snprintf(parts[i], sizeof parts[i], "%c", word[i]);
    }
    for (size_t k = 0; k < MERGES;) {
        size_t i = 0;
        while (i + 1 < n && (strcmp(parts[i], merges[k][0]) != 0 || strcmp(parts[i + 1], merges[k][1]) != 0)) {
            i++;
        }
        if (i + 1 >= n) {
            k++;
            continue;
        }
        snprintf(parts[i], sizeof parts[i], "%s%s", merges[k][0], merges[k][1]);
        memmove(parts[i + 1], parts[i + 2], (n - i - 2) * sizeof parts[0]);
        n--;
        k = 0;
    }
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)napier_tokenizer_id(tiny, parts[i], strlen(parts[i]));
    }
    return (int64_t)n;
}

static void definition(void) {
    static const char letters[] = "heloworldaabba";
    char word[LONGEST];
    int32_t wanted[LONGEST];
    napier_token_buffer ids = {0};
    for (int trial = 0; trial < 3000; trial++) {
        const size_t size = 1 + random_below(trial % 10 == 0 ? LONGEST - 1 : 40); /* both ways of merging */
        const uint32_t kinds = trial % 3 == 0 ? 2 : (uint32_t)sizeof letters - 1;
        for (size_t i = 0; i < size; i++) {
            word[i] = letters[kinds == 2 ? 9 + 2 * random_below(2) : random_below(kinds)];
        }
        ids.size = 0;
        const int64_t n = merge_by_definition(word, size, wanted);
        if (succeeded(context, napier_tokenizer_encode(context, tiny, word, size, NULL, &ids), "encode") &&
            (ids.size != n || memcmp(ids.ids, wanted, (size_t)n * sizeof *wanted) != 0)) {
            problem("%.*s: %lld ids, but %lld by the definition, or others", (int)size, word, (long long)ids.size,
                    (long long)n);
        }
    }
    napier_token_buffer_free(context, &ids);
}

/* Decodes what it has encoded: as many bytes, and the same ones unless the normal form is another. */
static void check_round_trip(const char *text, size_t size, bool is_normal) {
    napier_token_buffer ids = {0};
    napier_text_buffer back = {0};
    if (succeeded(context, napier_tokenizer_encode(context, tiny, text, size, NULL, &ids), "encode") &&
        succeeded(context, napier_tokenizer_decode(context, tiny, ids.ids, ids.size, NULL, &back), "decode")) {
        expect(back.size == size && (!is_normal || memcmp(back.bytes, text, size) == 0),
               "%zu bytes '%.*s' come back as %zu, '%.*s'", size, (int)(size < 60 ? size : 60), text, back.size,
               (int)(back.size < 60 ? back.size : 60), back.bytes);
    }
    napier_token_buffer_free(context, &ids);
    napier_text_buffer_free(context, &back);
}

/* Runs that would take minutes if the time were quadratic in their length; the first decodes to itself. */
static void long_runs(void) {
    static const char *const units[] = {"a",     "ab",           " ", "\n", " \n", "!", "\xcc\xa3\xcc\x81",
                                        "<|im_", "\xe4\xb8\xad", "1"};
    enum { SIZE = 300000 };
    char *const text = scratch(SIZE, 1);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        const size_t unit = strlen(units[u]), size = SIZE / unit * unit;
        for (size_t i = 0; i < size; i++) {
            text[i] = units[u][i % unit];
        }
        check_round_trip(text, size, u != 6);
    }
}

/* ---- Bad text, bad arguments ------------------------------------------------------------------------------------- */

static void not_utf8(void) {
    static const struct {
        const char *text;
        size_t size;
        const char *at;
    } cases[] = {
        {"\xff", 1, "byte 0, 0xff"},
        {"ab\x80", 3, "byte 2, 0x80"},
        {"12345678\xc3", 9, "byte 8, 0xc3"},     /* cut off */
        {"a\xc0\xaf", 3, "byte 1, 0xc0"},        /* overlong */
        {"a\xe0\x9f\xbf", 4, "byte 1, 0xe0"},    /* overlong */
        {"\xed\xa0\x80", 3, "byte 0, 0xed"},     /* a surrogate */
        {"\xf0\x8f\xbf\xbf", 4, "byte 0, 0xf0"}, /* overlong */
        {"\xf4\x90\x80\x80", 4, "byte 0, 0xf4"}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 4, "byte 0, 0xf5"},
        {"ok \xe4\xb8 no", 8, "byte 3, 0xe4"},
        {"ok <|im_end|> \xe2\x82", 16, "byte 14, 0xe2"},
    };
    int32_t kept[] = {7, 8};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        napier_token_buffer ids = {kept, 2, 2};
        invalid(context, napier_tokenizer_encode(context, tiny, cases[i].text, cases[i].size, NULL, &ids), "UTF-8",
                cases[i].at);
        expect(ids.size == 2 && ids.ids == kept && kept[1] == 8, "case %zu: the buffer was touched", i);
    }
}

static void arguments(void) {
    napier_token_buffer ids = {0}, broken = {NULL, 3, 2};
    napier_text_buffer text = {0};
    napier_encode_options encode = NAPIER_ENCODE_OPTIONS_INIT;
    napier_decode_options decode = NAPIER_DECODE_OPTIONS_INIT;
    const napier_status wrong = NAPIER_INVALID_ARGUMENT;
    encode.struct_size = decode.struct_size = 3;
    expect(napier_tokenizer_encode(NULL, tiny, "", 0, NULL, &ids) == wrong, "context NULL");
    invalid(context, napier_tokenizer_encode(context, NULL, "", 0, NULL, &ids), "tokenizer");
    invalid(context, napier_tokenizer_encode(context, tiny, NULL, 1, NULL, &ids), "text");
    invalid(context, napier_tokenizer_encode(context, tiny, "", 0, NULL, NULL), "ids", "NULL");
    invalid(context, napier_tokenizer_encode(context, tiny, "", 0, NULL, &broken), "ids", "size 3");
    invalid(context, napier_tokenizer_encode(context, tiny, "", 0, &encode, &ids), "struct_size is 3");
    invalid(context, napier_tokenizer_decode(context, NULL, NULL, 0, NULL, &text), "tokenizer");
    invalid(context, napier_tokenizer_decode(context, tiny, NULL, 1, NULL, &text), "ids");
    invalid(context, napier_tokenizer_decode(context, tiny, NULL, -1, NULL, &text), "count -1");
    invalid(context, napier_tokenizer_decode(context, tiny, NULL, 0, NULL, NULL), "text");
    invalid(context, napier_tokenizer_decode(context, tiny, NULL, 0, &decode, &text), "struct_size is 3");
    const int32_t bad[][2] = {{64, -1}, {64, INT32_MIN}};
    for (int i = 0; i < 2; i++) {
        invalid(context, napier_tokenizer_decode(context, tiny, bad[i], 2, NULL, &text), "ids[1]", "is no id");
        expect(text.size == 0, "half a text is left");
    }
    napier_text_buffer_free(context, &text);
    expect(napier_tokenizer_vocab_size(NULL) == 0 && !napier_tokenizer_token(NULL, 0, NULL) &&
               !napier_tokenizer_is_special(NULL, 0) && napier_tokenizer_id(NULL, "", 0) == -1,
           "questions to no tokenizer");
}

/* ---- Decode and questions ---------------------------------------------------------------------------------------- */

static void check_text(const int32_t *ids, int64_t count, bool skip, const char *wanted) {
    napier_decode_options options = NAPIER_DECODE_OPTIONS_INIT;
    napier_text_buffer text = {0};
    options.skip_special = skip;
    if (succeeded(context, napier_tokenizer_decode(context, tiny, ids, count, &options, &text), wanted)) {
        expect(text.size == strlen(wanted) && memcmp(text.bytes, wanted, text.size) == 0, "'%.*s', not '%s'",
               (int)text.size, text.bytes, wanted);
    }
    napier_text_buffer_free(context, &text);
}

static void decode(void) {
    const int32_t ids[] = {279, 259, 264, 284, 281, 280};
    check_text(ids, 6, false, "<|im_start|>hello worldcaf\xc3\xa9!<think><|im_end|>");
    check_text(ids, 6, true, "hello worldcaf\xc3\xa9!<think>"); /* <think> is added, but not special */
    const int32_t bare[] = {285, 259, INT32_MAX, 280, 285};     /* a head may have more rows than there are tokens */
    check_text(bare, 5, false, "hello<|im_end|>");
    check_text(bare, 5, true, "hello");
    const int32_t half[] = {275, 64};
    check_text(half, 2, false,
               "\xe4\xb8"
               "a"); /* a character that lacks its last byte */
}

static void vocabulary(void) {
    size_t size = 99;
    expect(napier_tokenizer_vocab_size(tiny) == 285, "%lld ids", (long long)napier_tokenizer_vocab_size(tiny));
    for (int64_t id = 0; id < 285; id++) {
        const char *const bytes = napier_tokenizer_token(tiny, id, &size);
        expect(bytes && napier_tokenizer_id(tiny, bytes, size) == id, "id %lld is not its token's", (long long)id);
        expect(napier_tokenizer_is_special(tiny, id) == (id >= 278 && id <= 280), "special: %lld", (long long)id);
    }
    expect(!napier_tokenizer_token(tiny, 285, &size) && size == 0, "a token beyond the last");
    expect(!napier_tokenizer_token(tiny, -1, NULL), "a token before the first");
    expect(napier_tokenizer_id(tiny, "nothing", 7) == -1 && napier_tokenizer_id(tiny, "", 0) == -1, "unknown bytes");
    expect(napier_tokenizer_id(tiny, "\n", 1) == 198 && napier_tokenizer_id(tiny, " world", 6) == 264, "known bytes");
}

/* Any text comes back as its normal form; text of ASCII and letters without marks comes back as it is. */
static void round_trip(void) {
    static const char *const pieces[] = {"hello",      " ",        "\n",       "\t",
                                         "'s",         "12",       "\xc3\xa9", "\xe4\xb8\xad",
                                         "<|im_end|>", "<think>",  "!",        "\xf0\x9f\x91\xa9\xe2\x80\x8d",
                                         "\xc2\xa0",   "\xd8\xb3", "x"};
    char text[512];
    for (int trial = 0; trial < 2000; trial++) {
        size_t size = 0;
        for (uint32_t n = 1 + random_below(12); n > 0; n--) {
            const char *const piece = pieces[random_below(sizeof pieces / sizeof pieces[0])];
            memcpy(text + size, piece, strlen(piece));
            size += strlen(piece);
        }
        check_round_trip(text, size, true);
    }
}

/* ---- Other files ------------------------------------------------------------------------------------------------- */

static void other_forms(void) {
    napier_tokenizer *t = NULL;
    /* A merge as an array, as newer files have them. */
    if (succeeded(context, tiny_load(context, "\"l l\"", "[\"l\", \"l\"]", &t), "arrays")) {
        check_ids(t, "hello world", "259 264");
    }
    napier_tokenizer_destroy(context, t);
    /* Without normal form the accent stays apart. */
    if (succeeded(context, tiny_load(context, "{\"type\": \"NFC\"}", "null", &t), "no normalizer")) {
        check_ids(t, "e\xcc\x81", "68 136 223");
        check_ids(t, "caf\xc3\xa9!", "284");
    }
    napier_tokenizer_destroy(context, t);
    if (succeeded(context, tiny_load(context, "\"ignore_merges\": false", "\"ignore_merges\": true", &t), "whole")) {
        check_ids(t, " xyz", "277");
        check_ids(t, " xyzz", "220 87 88 89 89");
    }
    napier_tokenizer_destroy(context, t);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

/* One thread with a context of its own; returns whether all went well. */
static void *encode_often(void *unused) {
    static const char text[] = "hello world aaaab caf\xc3\xa9! <|im_end|> e\xcc\x81";
    static const int32_t wanted[] = {259, 264};
    napier_context *own = NULL;
    napier_token_buffer ids = {0};
    bool good = napier_context_create(&own, NULL) == NAPIER_OK;
    for (int i = 0; i < 2000 && good; i++) {
        ids.size = 0;
        good = napier_tokenizer_encode(own, tiny, text, sizeof text - 1, NULL, &ids) == NAPIER_OK && ids.size > 2 &&
               memcmp(ids.ids, wanted, sizeof wanted) == 0;
    }
    napier_token_buffer_free(own, &ids);
    napier_context_destroy(own);
    return good ? unused : NULL;
}

static void threads(void) {
    pthread_t all[4];
    char token = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&all[i], NULL, encode_often, &token), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        pthread_join(all[i], &result);
        expect(result == &token, "thread %d saw something else", i);
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Loads, encodes and decodes; the first status that is not OK. */
static napier_status whole_life(napier_context *c) {
    static const char text[] = "hello wo\xcc\x81rld <|im_end|> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const napier_chat_message message = {.role = "user", .content = text, .size = sizeof text - 1};
    napier_tokenizer *t = NULL;
    napier_token_buffer ids = {0};
    napier_text_buffer back = {0};
    napier_status status = tiny_load(c, NULL, NULL, &t);
    status = status ? status : napier_tokenizer_encode(c, t, text, sizeof text - 1, NULL, &ids);
    status = status ? status : napier_tokenizer_decode(c, t, ids.ids, ids.size, NULL, &back);
    status = status ? status : napier_chat_text(c, &message, 1, NULL, &back);
    napier_token_buffer_free(c, &ids);
    napier_text_buffer_free(c, &back);
    napier_tokenizer_destroy(c, t);
    return status;
}

static void memory(void) {
    ledger l = LEDGER_INIT;
    napier_context *const c = ledger_context(&l, 0);
    ledger_fail(&l, -1);
    assert_int_equal(whole_life(c), NAPIER_OK);
    const int64_t calls = l.calls;
    int64_t refusals = 0;
    expect(calls > 10 && l.live == 1, "%lld calls, %lld blocks lost", (long long)calls, (long long)l.live - 1);
    for (int64_t k = 0; k < calls; k++) {
        ledger_fail(&l, k);
        const napier_status status = whole_life(c);
        /* Without memory for machine code PCRE2 interprets the expression: all is well then. */
        expect(status == NAPIER_OUT_OF_MEMORY || status == NAPIER_OK, "allocation %lld fails: status %d, %s",
               (long long)k, (int)status, napier_last_error(c));
        refusals += status == NAPIER_OUT_OF_MEMORY;
        expect(l.live == 1, "allocation %lld fails: %lld blocks lost", (long long)k, (long long)l.live - 1);
    }
    expect(refusals > calls / 2, "only %lld of %lld failures were told", (long long)refusals, (long long)calls);
    napier_context_destroy(c);
}

int main(void) {
    context = context_of(NAPIER_ISA_AUTO, 1);
    assert_int_equal(tiny_load(context, NULL, NULL, &tiny), NAPIER_OK);
    const int failed = RUN_TESTS("tokenizer", TEST(words), TEST(spaces), TEST(added_tokens), TEST(definition),
                                 TEST(long_runs), TEST(not_utf8), TEST(arguments), TEST(decode), TEST(vocabulary),
                                 TEST(round_trip), TEST(other_forms), TEST(threads), TEST(memory));
    napier_tokenizer_destroy(context, tiny);
    napier_context_destroy(context);
    return failed;
}
