/* test_tokenizer_parts - the parts alone: normal form against utf8proc's own, the expression's translation and what it
 * refuses, and files that are not what they should be. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <utf8proc.h>

#include "support/tiny_tokenizer.h"
#include "unit/lm/lm_support.h"
#include "lm/tokenizer/added.h"
#include "lm/tokenizer/merges.h"
#include "lm/tokenizer/normalize.h"
#include "lm/tokenizer/split.h"

static napier_context *context;
static uint8_t table[NAPIER_CODE_POINTS];
static napier_alphabet alphabet;

/* ---- Normal form ------------------------------------------------------------------------------------------------- */

static bool nfc(const char *text, size_t size, napier_text_buffer *out) {
    napier_scratch scratch = {0};
    out->size = 0;
    const bool good =
        succeeded(context, napier_normalize(context, NAPIER_NFC, table, (const uint8_t *)text, size, &scratch, out),
                  "napier_normalize");
    napier_scratch_free(context, &scratch);
    return good;
}

static void check_nfc(const char *text, size_t size, const char *wanted, size_t wanted_size) {
    napier_text_buffer out = {0};
    if (nfc(text, size, &out)) {
        expect(out.size == wanted_size && memcmp(out.bytes, wanted, wanted_size) == 0, "'%s' becomes '%.*s', not '%s'",
               text, (int)out.size, out.bytes, wanted);
        const bool same = size == wanted_size && memcmp(text, wanted, size) == 0;
        expect(same || napier_form_may_change(NAPIER_NFC, table, (const uint8_t *)text, size),
               "'%s': no change was announced", text);
    }
    napier_text_buffer_free(context, &out);
}

static void normal_form(void) {
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"e\u0301", "\u00e9"},
        {"xe\u0301x", "x\u00e9x"},
        {"a\u0323\u0307", "\u1ea1\u0307"},
        {"a\u0307\u0323", "\u1ea1\u0307"}, /* marks in order first */
        {"e\u0334\u0301", "\u00e9\u0334"}, /* U+0334, of class 1, does not block U+0301, of 230 */
        {"\u1112\u1161\u11ab", "\ud55c"},
        {"\ud558\u11ab", "\ud55c"},
        {"\u1112\u1161 \u11ab", "\ud558 \u11ab"},
        {"\u2126\u212b\u212a", "\u03a9\u00c5K"}, /* singletons */
        {"\u0958", "\u0915\u093c"},              /* excluded from composition */
        {"\u0344", "\u0308\u0301"},
        {"\u0301e", "\u0301e"}, /* nothing before it */
        {"\uac00\u11a8\u11a8", "\uac01\u11a8"},
        {"A\u030a\u0301", "\u01fa"},
        {"\U000105d2\u0307", "\U000105d2\u0307"}, /* joins in Unicode 16 only */
        {"a\u0897\u0334", "a\u0897\u0334"},       /* a mark since Unicode 16 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_nfc(cases[i][0], strlen(cases[i][0]), cases[i][1], strlen(cases[i][1]));
    }
    check_nfc("a\0\u0301", 4, "a\0\u0301", 4);
}

/* Characters of old versions, in which utf8proc is as old as the table; long runs of marks now and then. */
static size_t random_text(char *text) {
    static const uint32_t starts[] = {0x20,   0x41,   0xc0,   0x300,  0x300,  0x323,  0x390,  0x590,  0x5b0,  0x644,
                                      0x64b,  0x928,  0x93c,  0x9c7,  0xbc6,  0xdd9,  0x1025, 0x1100, 0x1161, 0x11a8,
                                      0x1e00, 0x1f80, 0x3046, 0x3099, 0x4e00, 0xac00, 0xf900, 0xfb1d, 0x1d15e};
    enum { STARTS = sizeof starts / sizeof starts[0] };
    size_t size = 0;
    const uint32_t marks = random_below(20) == 0 ? 60 : 0;
    for (uint32_t n = 1 + random_below(20); n > 0; n--) {
        const uint32_t c = starts[random_below(STARTS)] + random_below(random_below(3) == 0 ? 16 : 3);
        size += (size_t)utf8proc_encode_char((int32_t)c, (uint8_t *)text + size);
    }
    for (uint32_t n = 0; n < marks; n++) {
        size += (size_t)utf8proc_encode_char((int32_t)(0x300 + random_below(0x50)), (uint8_t *)text + size);
    }
    text[size] = '\0';
    return size;
}

static void against_utf8proc(void) {
    char text[512];
    napier_text_buffer out = {0};
    for (int trial = 0; trial < 20000; trial++) {
        const size_t size = random_text(text);
        utf8proc_uint8_t *const wanted = utf8proc_NFC((const utf8proc_uint8_t *)text);
        if (nfc(text, size, &out) && wanted != NULL) {
            expect(out.size == strlen((char *)wanted) && memcmp(out.bytes, wanted, out.size) == 0,
                   "trial %d: '%s' becomes '%.*s', not '%s'", trial, text, (int)out.size, out.bytes, (char *)wanted);
        }
        free(wanted);
    }
    napier_text_buffer_free(context, &out);
}

/* ---- The expression ---------------------------------------------------------------------------------------------- */

static napier_json *document(void) {
    static napier_json json;
    json = (napier_json){context, "a file", NULL, NAPIER_OK};
    return &json;
}

static napier_status compiled(const char *pattern, napier_split *split) {
    const napier_pattern expression = {pattern, false};
    return napier_split_compile(document(), &context->allocator, &alphabet, expression, split);
}

/* "he|llo| |1" where `pattern` cuts `text` into these. */
static void check_split(const char *pattern, const char *text, const char *wanted) {
    const napier_pattern expression = {pattern, false};
    napier_split split = {0};
    napier_matcher matcher = {0};
    uint8_t classes[256];
    char found[512] = "";
    succeeded(context, napier_split_collect(document(), &alphabet, expression), pattern);
    const size_t size = strlen(text), n = napier_classify(alphabet.codes, (const uint8_t *)text, size, classes);
    const char *at = text;
    if (succeeded(context, napier_split_compile(document(), &context->allocator, &alphabet, expression, &split),
                  pattern) &&
        succeeded(context, napier_matcher_prepare(context, &split, &matcher), pattern)) {
        napier_matcher_start(&matcher, n);
        for (size_t from = 0, begin, end; from < n; from = end) {
            if (!succeeded(context, napier_matcher_next(context, &matcher, classes, n, from, &begin, &end), pattern)) {
                break;
            }
            for (size_t i = from; i < end; i++) {
                strcat(found, i == begin && i > 0 ? "|" : "");
                strncat(found, at, napier_utf8_length((uint8_t)*at));
                at += napier_utf8_length((uint8_t)*at);
            }
            strcat(found, end < n ? "|" : "");
        }
    }
    /* A match that begins where the last ended puts two bars. */
    for (char *two = strstr(found, "||"); two != NULL; two = strstr(found, "||")) {
        memmove(two, two + 1, strlen(two));
    }
    expect(strcmp(found, wanted) == 0, "/%s/ cuts '%s' into '%s', not '%s'", pattern, text, found, wanted);
    napier_matcher_free(&matcher);
    napier_split_free(&split);
}

static void expressions(void) {
    static const char qwen[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
                               "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    check_split(qwen, "I've 12 \u4e2d\u6587's", "I|'ve| |1|2| \u4e2d\u6587|'s");
    check_split(qwen, "a'\u017f b'\u212a", "a|'\u017f| b|'\u212a"); /* the long s is an s; k is no suffix */
    check_split(qwen, "  x \n\n y\u3000z", " | x| \n\n| y|\u3000z");
    check_split(qwen,
                "\u180ea\xc2\x85"
                "b",
                "\u180ea|\xc2\x85"
                "b"); /* U+180E is no space since Unicode 6.3, U+0085 is one */
    check_split(qwen, "\u2167\u00bd\u0663", "\u2167|\u00bd|\u0663");
    check_split(qwen, "e\u0301 \u0301", "e|\u0301| \u0301");
    check_split("[ks]", "\u017f\u212aks", "\u017f\u212a|k|s");
    check_split("(?i:[ks])", "\u017f\u212aKa", "\u017f|\u212a|K|a");
    check_split("(?i:[^ks])", "\u017fx", "\u017f|x");
    check_split("\\p{M}", "e\u0301", "e|\u0301");
    check_split("\\P{L}+", "a \u0663!b", "a| \u0663!|b");
    check_split("a{2}|.", "aaa\n", "aa|a|\n");
    check_split("[a-c\\-]+", "ab-cd", "ab-c|d");
    check_split("(?=b)b|a(?!b)", "aab", "a|a|b");
    check_split("a++|\\.", "aa.", "aa|.");
    check_split("\\d+", "12\u0663\u2167", "12\u0663|\u2167");
    check_split("[\\p{P}\\p{S}]", "a.b$c\u3002\u20ac", "a|.|b|$|c|\u3002|\u20ac");
    check_split("[[a-c]d]+", "abxd", "ab|x|d");
    check_split("[^[a\u4e2d]&]+", "bca\u4e2d&\u6587", "bc|a\u4e2d&|\u6587");
    check_split("[\u4e00-\u9fa5\u3040-\u30ff]+", "a\u4e2d\u3042\uac00", "a|\u4e2d\u3042|\uac00");
    check_split("\u00e9|\u4e2d", "\u00e9\u00e8\u4e2d\u6587", "\u00e9|\u00e8|\u4e2d|\u6587");
    check_split("\\p{L}+", "\u4e2d\u00e9\u6587", "\u4e2d\u00e9\u6587"); /* the classes that these have divided */
    check_split(" +$", "a  \n b ", "a|  |\n b| ");
}

static void refused_expressions(void) {
    static const char *const patterns[] = {
        "\\w+",   "\\b",         "^a",      "[[^a]b]", "[[:a:]]", "\\p{Lx}", "\\p{Han}",     "\\p{^L}",
        "\\h",    "\\R",         "(?i)a",   "(?<=a)b", "(?>a)",   "(a",      "a)",           "[a",
        "[]a]",   "(?i:\u00e9)", "[a&&b]",  "[b-a]",   "[\\s-a]", "a**",     "a{2}?",        "a{2}+",
        "a{3,2}", "a{,2}",       "a{2000}", "*a",      "a|",      "a*",      "(?i:\\p{Lu})", "(?i:[^\\p{Ll}])",
        "\\p{L",  "\\pL",        "\\p{}",   "\xff",    "(?i:ss)", "(?i:fi)", "(?i:st)",      "a\\",
        "(?:",    "(?!a)*b",     "{2}",     "]",       "\\x41",
    };
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        napier_split split = {0};
        refused(context, compiled(patterns[i], &split), NAPIER_UNSUPPORTED, "a file", "pattern", NULL);
        napier_split_free(&split);
    }
    char deep[400] = "", wide[20000];
    for (int i = 0; i < 60; i++) {
        strcat(deep, "(?:");
    }
    memset(wide, 'a', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    napier_split split = {0};
    refused(context, compiled(deep, &split), NAPIER_UNSUPPORTED, "group", NULL);
    refused(context, compiled(wide, &split), NAPIER_UNSUPPORTED, "16384", NULL);
}

/* Letters 'a' and a '!' are refused with a word of the message, if the expression begins so. */
static void check_stopped(const char *begins, int64_t size, const char *word) {
    napier_tokenizer *t = NULL;
    napier_token_buffer ids = {0};
    char *const text = memset(scratch(size, 1), 'a', (size_t)size);
    text[size - 1] = '!';
    if (succeeded(context, tiny_load(context, "(?i:'s", begins, &t), begins)) {
        refused(context, napier_tokenizer_encode(context, t, text, (size_t)size, NULL, &ids), NAPIER_UNSUPPORTED,
                "pattern", word, NULL);
    }
    napier_token_buffer_free(context, &ids);
    napier_tokenizer_destroy(context, t);
}

/* An expression that goes back without end is stopped. */
static void endless(void) { check_stopped("(?:a+)+b|(?i:'s", 65, "limit"); }

/* One that looks through all that follows at each character, too: a megabyte would take minutes. */
static void looks_far(void) { check_stopped("a*b|a|(?i:'s", 1 << 20, "looks too far"); }

/* Words of any length, about those of the windows that PCRE2 sees too: letters, then spaces and a line feed. */
static void long_words(void) {
    enum { WORDS = 200, LONGEST = 9000 };
    napier_split split = {0};
    napier_matcher matcher = {0};
    uint8_t *const classes = scratch(WORDS * LONGEST, 1);
    size_t ends[WORDS], n = 0, start = 0, end = 0;
    for (size_t i = 0; i < WORDS; i++) {
        const uint32_t around[] = {512, 2048, 8192, 20};
        const size_t length =
            1 + (i % 3 == 0 ? random_below(LONGEST) : around[random_below(4)] - 10 + random_below(20));
        memset(classes + n, i % 2 == 0 ? 'x' : ' ', length);
        n += length;
        classes[n - 1] = i % 2 == 0 ? 'y' : '\n';
        ends[i] = n;
    }
    if (succeeded(context, compiled("\\p{L}+|\\s*[\\r\\n]+|\\s+", &split), "") &&
        succeeded(context, napier_matcher_prepare(context, &split, &matcher), "")) {
        napier_matcher_start(&matcher, n);
        for (size_t i = 0; i < WORDS; i++) {
            const size_t from = end;
            succeeded(context, napier_matcher_next(context, &matcher, classes, n, from, &start, &end), "a word");
            expect(start == from && end == ends[i], "word %zu ends at %zu, not %zu", i, end, ends[i]);
        }
    }
    napier_matcher_free(&matcher);
    napier_split_free(&split);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *from, *to;
    napier_status status;
    const char *word;
} edits[] = {
    {"{\"version\"", "[\"version\"", NAPIER_CORRUPT_DATA, "not JSON"},
    {"\"l l\",", "", NAPIER_OK, ""},
    {"\"1.0\"", "\"2.0\"", NAPIER_UNSUPPORTED, "version"},
    {"\"1.0\"", "3", NAPIER_CORRUPT_DATA, "version"},
    {"\"version\"", "\"normalizer\"", NAPIER_CORRUPT_DATA, "normalizer: given 2 times"},
    {"\"truncation\": null", "\"truncation\": {\"max_length\": 2, \"strategy\": \"LongestFirst\"}", NAPIER_OK, ""},
    {"\"padding\": null", "\"padding\": {\"strategy\": \"BatchLongest\", \"pad_id\": 1}", NAPIER_OK, ""},
    {"\"pretokenizers\": [", "\"pretokenizers\": [], \"pretokenizers\": [], \"x\": [", NAPIER_CORRUPT_DATA,
     "pretokenizers: given 2 times"},
    {"\"NFC\"", "\"NFD\"", NAPIER_OK, ""},
    {"\"NFC\"", "\"Nmt\"", NAPIER_UNSUPPORTED, "normalizer: type \"Nmt\""},
    {"{\"type\": \"NFC\"}", "3", NAPIER_CORRUPT_DATA, "3, where an object"},
    {"\"Sequence\"", "\"UnicodeScripts\"", NAPIER_UNSUPPORTED, "pre_tokenizer: type \"UnicodeScripts\""},
    {"\"Sequence\"", "\"ByteLevel\"", NAPIER_OK, ""},
    {"\"Sequence\"", "\"Metaspace\"", NAPIER_UNSUPPORTED, "replacement"},
    {"\"Split\"", "\"Digits\"", NAPIER_OK, ""},
    {"\"Regex\"", "\"String\"", NAPIER_OK, ""},
    {"\"Regex\"", "\"Strings\"", NAPIER_UNSUPPORTED, "without Regex or String"},
    {"\"Isolated\"", "\"Removed\"", NAPIER_OK, ""},
    {"\"Isolated\"", "\"Thrown\"", NAPIER_UNSUPPORTED, "behavior Thrown"},
    {"\"invert\": false", "\"invert\": true", NAPIER_OK, ""},
    {"\"invert\": false}", "\"invert\": false}, {}", NAPIER_UNSUPPORTED, "pre_tokenizer: type"},
    {"\"invert\": false}", "\"invert\": false}, {\"type\": \"ByteLevel\"}", NAPIER_UNSUPPORTED, "two of ByteLevel"},
    {"\"use_regex\": false", "\"use_regex\": true", NAPIER_OK, ""},
    {"\"add_prefix_space\": false", "\"add_prefix_space\": true", NAPIER_OK, ""},
    {"\"post_processor\": {\"type\": \"ByteLevel\"", "\"post_processor\": {\"type\": \"BertProcessing\"",
     NAPIER_CORRUPT_DATA, "no token's id"},
    {"\"post_processor\": {\"type\": \"ByteLevel\"", "\"post_processor\": {\"type\": \"TemplateProcessing\"",
     NAPIER_UNSUPPORTED, "no Sequence A"},
    {"\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"Metaspace\"", NAPIER_UNSUPPORTED, "Metaspace"},
    {"\"decoder\"", "\"decode\"", NAPIER_UNSUPPORTED, "decoder: none"},
    {"\"BPE\"", "\"WordPiece\"", NAPIER_UNSUPPORTED, "model: type \"WordPiece\""},
    {"\"dropout\": null", "\"dropout\": 0.1", NAPIER_UNSUPPORTED, "dropout is 0.1"},
    {"\"end_of_word_suffix\": \"\"", "\"end_of_word_suffix\": \"</w>\"", NAPIER_UNSUPPORTED, "end_of_word_suffix"},
    {"\"continuing_subword_prefix\": \"\"", "\"continuing_subword_prefix\": \"##\"", NAPIER_UNSUPPORTED, "prefix"},
    {"\"model\":", "\"models\":", NAPIER_CORRUPT_DATA, "type: looked for"},
    {"\"vocab\": {", "\"vocab\": [{", NAPIER_CORRUPT_DATA, "not JSON"},
    {"\"!\": 0", "\"!\": 1", NAPIER_CORRUPT_DATA, "given twice"},
    {"\"!\": 0", "\"a\": 0", NAPIER_CORRUPT_DATA, "given twice"},
    {"\"!\": 0", "\"aaa\": 0", NAPIER_OK, ""}, /* the byte is left out */
    {"\"!\": 0", "\"!\": 0.5", NAPIER_CORRUPT_DATA, "0.5 is no id"},
    {"\"!\": 0", "\"!\": -1", NAPIER_CORRUPT_DATA, "-1 is no id"},
    {"\"!\": 0", "\"!\": 1e300", NAPIER_CORRUPT_DATA, "is no id"},
    {"\"!\": 0", "\"!\": \"0\"", NAPIER_CORRUPT_DATA, "is no id"},
    {"\"!\": 0", "\"\xff\": 0", NAPIER_CORRUPT_DATA, "not UTF-8"},
    {"\"!\": 0", "\"\\u0000\": 0", NAPIER_CORRUPT_DATA, "\\u0000"},
    {"\"l l\"", "\"ll\"", NAPIER_CORRUPT_DATA, "merges[0]: \"ll\" is not two tokens"},
    {"\"l l\"", "\"l l l\"", NAPIER_CORRUPT_DATA, "is not two tokens"},
    {"\"l l\"", "[\"l\"]", NAPIER_CORRUPT_DATA, "is not two tokens"},
    {"\"l l\"", "[\"l\", \"l\", \"l\"]", NAPIER_CORRUPT_DATA, "is not two tokens"},
    {"\"l l\"", "3", NAPIER_CORRUPT_DATA, "is not two tokens"},
    {"\"l l\"", "\"l q\"", NAPIER_CORRUPT_DATA, "not in vocab"},
    {"\"l l\"", "\"l \xff\"", NAPIER_CORRUPT_DATA, "is not two tokens"},
    {"\"l l\"", "\"h e\"", NAPIER_CORRUPT_DATA, "merged before"},
    {"\"merges\": [", "\"merges\": {}, \"x\": [", NAPIER_CORRUPT_DATA, "merges is an object"},
    {"\"added_tokens\": [", "\"added_tokens\": 3, \"x\": [", NAPIER_CORRUPT_DATA, "added_tokens"},
    {"\"id\": 278", "\"id\": 279", NAPIER_CORRUPT_DATA, "belongs to another token"},
    {"\"id\": 278", "\"id\": 3", NAPIER_CORRUPT_DATA, "belongs to another token"},
    {"\"id\": 278", "\"id\": 1e9", NAPIER_CORRUPT_DATA, "is no id"},
    {"\"id\": 278, ", "", NAPIER_CORRUPT_DATA, "is no id"},
    {"<|endoftext|>", "", NAPIER_CORRUPT_DATA, "without content"},
    {"<|endoftext|>", "<|im_end|>", NAPIER_CORRUPT_DATA, "the same token twice"},
    {"<|endoftext|>", "hello", NAPIER_CORRUPT_DATA, "belongs to another token"},
    {"\"single_word\": false", "\"single_word\": true", NAPIER_OK, ""},
    {"\"lstrip\": false", "\"lstrip\": true", NAPIER_OK, ""},
    {"\"rstrip\": false", "\"rstrip\": true", NAPIER_OK, ""},
    {"\"special\": true", "\"special\": 1", NAPIER_CORRUPT_DATA, "special"},
    {"]}}\n", "]}} x\n", NAPIER_CORRUPT_DATA, "not JSON"},
    {"]}}\n", "]}", NAPIER_CORRUPT_DATA, "not JSON"},
};

static void files(void) {
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        napier_tokenizer *t = NULL;
        const napier_status status = tiny_load(context, edits[i].from, edits[i].to, &t);
        if (edits[i].status == NAPIER_OK) {
            succeeded(context, status, edits[i].from);
        } else if (!refused(context, status, edits[i].status, edits[i].word, NULL)) {
            problem("(edit %zu: %s to %s)", i, edits[i].from, edits[i].to);
        }
        expect((status == NAPIER_OK) == (t != NULL), "edit %zu: status %d, tokenizer %p", i, (int)status, (void *)t);
        napier_tokenizer_destroy(context, t);
    }
}

/* A file that ends anywhere is refused. */
static void cut_files(void) {
    char *const text = tiny_text(NULL, NULL);
    assert_non_null(text);
    for (size_t size = 0; size < TINY_SIZE - 1; size += 1 + size / 50) {
        napier_tokenizer *t = NULL;
        refused(context, napier_tokenizer_from_json(context, text, size, &t), NAPIER_CORRUPT_DATA, "not JSON", NULL);
        expect(t == NULL, "a tokenizer of %zu bytes", size);
    }
    free(text);
}

/* Allocation `fails_at` of those that malloc gives cJSON fails. */
static int64_t fails_at;

static void *fail_at_last(size_t size) {
    errno = fails_at == 0 ? ENOMEM : errno;
    return fails_at-- == 0 ? NULL : malloc(size);
}

/* cJSON's memory: that it runs out is told from bad JSON, and there is a limit. */
static void json_memory(void) {
    napier_tokenizer *t = NULL;
    cJSON_Hooks hooks = {fail_at_last, free};
    for (int64_t at = 0; at < 2000; at += 1 + at / 3) {
        fails_at = at;
        cJSON_InitHooks(&hooks);
        const napier_status status = tiny_load(context, NULL, NULL, &t);
        cJSON_InitHooks(NULL);
        if (fails_at < 0) {
            refused(context, status, NAPIER_OUT_OF_MEMORY, "tokenizer.json", "no memory", NULL);
        }
        napier_tokenizer_destroy(context, t);
    }
    enum { VALUES = 12 << 20 };
    char *const text = scratch(2 * VALUES + 8, 1); /* 25 MB of text, 1.2 GB of cJSON */
    memcpy(text, "{\"a\":[", 6);
    for (size_t i = 0; i < VALUES; i++) {
        memcpy(text + 6 + 2 * i, "0,", 2);
    }
    memcpy(text + 5 + 2 * VALUES, "]}", 3);
    refused(context, napier_tokenizer_from_json(context, text, strlen(text), &t), NAPIER_UNSUPPORTED, "MB as JSON",
            "1073 MB", NULL);
}

/* ---- Added tokens ------------------------------------------------------------------------------------------------ */

/* The tokens of a text, one after another, by trying all at each place; returns where it differs, or -1. */
static int64_t first_difference(const napier_added_set *set, const char *text, size_t size, napier_scratch *hits) {
    napier_added_search search = {.set = set, .text = text, .size = size, .hits = hits};
    for (size_t from = 0, at; from <= size;) {
        const napier_added_token *wanted = NULL, *token;
        for (at = from; at < size && wanted == NULL; at++) {
            for (size_t k = 0; k < set->count; k++) {
                const napier_added_token *const one = &set->tokens[k];
                const bool there = one->size <= size - at && memcmp(one->text, text + at, one->size) == 0;
                wanted = there && (wanted == NULL || one->size > wanted->size) ? one : wanted;
            }
        }
        size_t place = 0;
        if (napier_added_next(context, &search, from, &token, &place) || token != wanted ||
            (wanted != NULL && place != at - 1)) {
            return (int64_t)from;
        }
        if (wanted == NULL) {
            break;
        }
        from = place + wanted->size;
    }
    return -1;
}

/* Random tokens of two letters, in texts of them: everything begins and ends alike. One text is longer than a window. */
static void added_by_definition(void) {
    enum { TOKENS = 12, LONGEST = 9, TEXT = 40000 };
    static char names[TOKENS][LONGEST], text[TEXT];
    napier_scratch hits = {0};
    for (int trial = 0; trial < 400; trial++) {
        napier_added_token tokens[TOKENS];
        napier_added_set set = {.tokens = tokens};
        for (int k = 0; k <= trial % TOKENS; k++) {
            const uint32_t length = 1 + random_below(1 + random_below(LONGEST));
            for (uint32_t i = 0; i < length; i++) {
                names[k][i] = (char)('a' + (random_below(4) == 0));
            }
            bool there = false;
            for (size_t i = 0; i < set.count; i++) {
                there = there || (tokens[i].size == length && memcmp(tokens[i].text, names[k], length) == 0);
            }
            tokens[set.count] = (napier_added_token){.text = names[k], .size = length, .id = k};
            set.count += !there;
        }
        const size_t size = trial == 0 ? TEXT : random_below(300);
        for (size_t i = 0; i < size; i++) {
            text[i] = (char)('a' + (random_below(5) == 0) + (random_below(40) == 0));
        }
        napier_added_sort(&set);
        if (succeeded(context, napier_added_build(context, &set), "the tree")) {
            const int64_t at = first_difference(&set, text, size, &hits);
            expect(at < 0, "trial %d: another token after place %lld", trial, (long long)at);
        }
        set.tokens = NULL;
        napier_added_free(&context->allocator, &set);
    }
    napier_scratch_free(context, &hits);
}

/* A token of a megabyte that nearly begins everywhere in a text of four: trying it at each place takes hours. */
static void long_added_token(void) {
    enum { LONG = 1 << 20, TEXT = 1 << 22 };
    char *const text = memset(scratch(TEXT, 1), 'a', TEXT), *const name = memset(scratch(LONG, 1), 'a', LONG);
    text[TEXT - 1] = name[LONG - 1] = 'b';
    napier_added_token tokens[3] = {
        {.text = name, .size = LONG}, {.text = name, .size = LONG - 1, .id = 1}, {.text = "ba", .size = 2, .id = 2}};
    napier_added_set set = {.tokens = tokens, .count = 3};
    napier_scratch hits = {0};
    napier_added_search search = {.set = &set, .text = text, .size = TEXT, .hits = &hits};
    const napier_added_token *token;
    int64_t found = 0;
    assert_true(napier_added_sort(&set));
    succeeded(context, napier_added_build(context, &set), "the tree");
    for (size_t from = 0, at; !napier_added_next(context, &search, from, &token, &at) && token != NULL;) {
        expect(token->id == (found < 4 ? 1 : 9) && at == from, "token %d at %zu, not at %zu", token->id, at, from);
        from = at + token->size;
        found++;
    }
    expect(found == 4, "%lld tokens", (long long)found);
    set.tokens = NULL;
    napier_added_free(&context->allocator, &set);
    napier_scratch_free(context, &hits);
}

/* ---- Files that are made to be slow ------------------------------------------------------------------------------ */

enum { CROWD = 600, TABLE = 4096 }; /* tokens that fall together; slots for 288 + 2 * CROWD tokens, or as many merges */

static size_t append(char *text, size_t size, const char *format, ...) {
    va_list values;
    va_start(values, format);
    const int length = vsprintf(text + size, format, values);
    va_end(values);
    return size + (size_t)length;
}

/* Tokens whose names fall on one slot are refused by name, before searching them takes long. */
static void crowded_tokens(void) {
    napier_tokenizer *t = NULL;
    char *const tokens = scratch(CROWD * 64, 1), name[16];
    size_t size = 0, found = 0;
    for (uint32_t i = 0; found < 2 * CROWD; i++) {
        const int length = snprintf(name, sizeof name, "!%x", i);
        if ((napier_hash((const uint8_t *)name, (size_t)length) & (TABLE - 1)) == 77) {
            size = append(tokens, size, "\"%s\": %zu, ", name, 1000 + found++);
        }
    }
    append(tokens, size, "\"!\": 0");
    refused(context, tiny_load(context, "\"!\": 0", tokens, &t), NAPIER_UNSUPPORTED, "vocab: '!",
            "512 fall on one place", NULL);
}

/* Does the same with merges: of tokens X0, X1, ..., whose ids are chosen, with 'z', whose id is 89. */
static void crowded_merges(void) {
    napier_tokenizer *t = NULL;
    char *const text = tiny_text(NULL, NULL), *const made = scratch(TINY_SIZE + CROWD * 100, 1);
    const char *const vocab = strstr(text, "\"!\": 0"), *const merges = strstr(text, "\"l l\"");
    assert_true(vocab != NULL && merges != NULL && vocab < merges);
    size_t size = append(made, 0, "%.*s", (int)(vocab - text), text);
    int32_t id = 1000, ids[CROWD];
    for (int i = 0; i < CROWD; i++, id++) {
        while ((napier_merge_hash(id, 89) & (TABLE / 2 - 1)) != 77) {
            id++;
        }
        ids[i] = id;
        size = append(made, size, "\"X%x\": %d, ", i, id);
    }
    for (int i = 0, free_id = 300; i < CROWD; i++, free_id++) {
        size = append(made, size, "\"X%xz\": %d, ", i, free_id);
    }
    size = append(made, size, "%.*s", (int)(merges - vocab), vocab);
    for (int i = 0; i < CROWD; i++) {
        size = append(made, size, "\"X%x z\", ", i);
    }
    size = append(made, size, "%s", merges);
    expect(id < 1 << 22 && ids[0] >= 1000, "ids up to %d", id);
    refused(context, napier_tokenizer_from_json(context, made, size, &t), NAPIER_UNSUPPORTED,
            "merges[512]: 'X200' and 'z'", "512 fall on one place", NULL);
    free(text);
}

static void paths(void) {
    napier_tokenizer *t = NULL;
    const napier_status bad = NAPIER_IO_ERROR, wrong = NAPIER_INVALID_ARGUMENT;
    refused(context, napier_tokenizer_load(context, "/nowhere/tokenizer.json", &t), bad, "/nowhere", NULL);
    refused(context, napier_tokenizer_load(context, "/", &t), bad, "/: a folder", NULL);
    refused(context, napier_tokenizer_load(context, "/dev/zero", &t), bad, "/dev/zero: a device", NULL);
    invalid(context, napier_tokenizer_load(context, NULL, &t), "path");
    invalid(context, napier_tokenizer_load(context, "x", NULL), "out");
    invalid(context, napier_tokenizer_from_json(context, NULL, 3, &t), "json");
    expect(napier_tokenizer_load(NULL, "x", &t) == wrong, "context NULL");
    napier_tokenizer_destroy(context, NULL);
    napier_tokenizer_destroy(NULL, NULL);
}

/* Files of other formats are named, with the way to convert them. */
static void other_formats(void) {
    static const struct {
        const char *begins, *name;
    } cases[] = {{"IQ== 0\nIg== 1\n", "tiktoken"},
                 {"\n\x0e\n\x05<unk>\x15", "sentencepiece"},
                 {"{\"config\": {\"default_num_special_tokens\": 1000}}", "tekken"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        napier_tokenizer *t = NULL;
        FILE *const file = fopen("test_tokenizer_format.tmp", "wb");
        assert_non_null(file);
        fputs(cases[i].begins, file);
        fclose(file);
        refused(context, napier_tokenizer_load(context, "test_tokenizer_format.tmp", &t), NAPIER_UNSUPPORTED,
                cases[i].name, "AutoTokenizer", NULL);
    }
    remove("test_tokenizer_format.tmp");
}

/* ---- Chat -------------------------------------------------------------------------------------------------------- */

/* tests/peers renders many more with Jinja. */
static void check_chat(const napier_chat_message *messages, int64_t count, int prompt, int quiet, const char *wanted) {
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_text_buffer text = {0};
    options.add_generation_prompt = prompt;
    options.disable_thinking = quiet;
    if (succeeded(context, napier_chat_text(context, messages, count, &options, &text), wanted)) {
        const bool same = text.size == strlen(wanted) && (text.size == 0 || memcmp(text.bytes, wanted, text.size) == 0);
        expect(same, "'%.*s', not '%s'", (int)text.size, text.bytes, wanted);
    }
    napier_text_buffer_free(context, &text);
}

#define MESSAGE(who, text) \
    { .role = who, .content = text, .size = sizeof text - 1 }

static void chat(void) {
    const napier_chat_message talk[] = {
        MESSAGE("system", "s"),
        MESSAGE("user", "q"),
        MESSAGE("assistant", "<think>\nhm\n</think>\n\na"),
        MESSAGE("user", "r"),
        MESSAGE("assistant", "<think>\nwell\n</think>\n\nb"),
        MESSAGE("tool", "1"),
        MESSAGE("tool", "2"),
        MESSAGE("assistant", "c"),
    };
    check_chat(NULL, 0, 1, 0, "<|im_start|>assistant\n");
    check_chat(NULL, 0, 1, 1, "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    check_chat(NULL, 0, 0, 0, "");
    check_chat(talk, 2, 1, 0,
               "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
    check_chat(talk + 1, 2, 0, 0,
               "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\na<|im_end|>\n");
    check_chat(talk + 1, 3, 0, 0,
               "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nr<|im_end|>\n");
    check_chat(
        talk + 3, 5, 0, 0,
        "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n<think>\nwell\n</think>\n\nb<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\nc<|im_end|>\n");
}

/* reasoning_content, tool calls and tools, as Qwen3's template writes them. */
static void chat_tools(void) {
    const napier_tool_call calls[] = {{"f", 1, "{\"x\": 1}", 8}, {"g", 1, "{}", 2}};
    const napier_chat_message talk[] = {
        MESSAGE("system", "s"),
        MESSAGE("user", "q"),
        {.role = "assistant",
         .content = "a",
         .size = 1,
         .reasoning = "\nhm\n",
         .reasoning_size = 4,
         .tool_calls = calls,
         .tool_call_count = 2},
        MESSAGE("tool", "1"),
        {.role = "assistant", .reasoning = "", .tool_calls = calls + 1, .tool_call_count = 1},
    };
    const char end[] = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\na\n"
                       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\n"
                       "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call><|im_end|>\n"
                       "<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n"
                       "<|im_start|>assistant\n<think>\n\n</think>\n\n"
                       "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call><|im_end|>\n";
    check_chat(talk + 1, 4, 0, 0, end);
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_text_buffer text = {0};
    options.add_generation_prompt = 0;
    options.tools = "{\"a\": 1}\n{\"b\": 2}";
    options.tools_size = strlen(options.tools);
    for (int system = 0; system < 2; system++) {
        text.size = 0;
        succeeded(context, napier_chat_text(context, talk + 1 - system, 4 + system, &options, &text), "tools");
        const char *const begin = system ? "<|im_start|>system\ns\n\n# Tools\n\nYou may call one or more functions to "
                                         : "<|im_start|>system\n# Tools\n\nYou may call one or more functions to ";
        const char list[] = "<tools>\n{\"a\": 1}\n{\"b\": 2}\n</tools>\n\nFor each function call, return a json object";
        text.bytes[text.size - sizeof end + 1] = '\0'; /* checked above */
        expect(strncmp(text.bytes, begin, strlen(begin)) == 0 && strstr(text.bytes, list) != NULL, "'%s'", text.bytes);
    }
    napier_text_buffer_free(context, &text);
}

static void chat_arguments(void) {
    const napier_chat_message robot = MESSAGE("robot", "x"), nobody = {.content = "x", .size = 1},
                              nothing = {.role = "user", .size = 1},
                              thinker = {.role = "user", .reasoning = "hm", .reasoning_size = 2},
                              caller = {.role = "assistant", .tool_call_count = 1};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_text_buffer text = {0};
    invalid(context, napier_chat_text(context, &robot, 1, NULL, &text), "messages[0]", "robot");
    invalid(context, napier_chat_text(context, &nobody, 1, NULL, &text), "role");
    invalid(context, napier_chat_text(context, &nothing, 1, NULL, &text), "content");
    invalid(context, napier_chat_text(context, &thinker, 1, NULL, &text), "messages[0]", "reasoning of a user");
    invalid(context, napier_chat_text(context, &caller, 1, NULL, &text), "messages[0]", "tool_calls NULL");
    invalid(context, napier_chat_text(context, NULL, 1, NULL, &text), "messages");
    invalid(context, napier_chat_text(context, &robot, -1, NULL, &text), "count -1");
    invalid(context, napier_chat_text(context, &robot, 0, NULL, NULL), "text");
    options.struct_size = 1;
    invalid(context, napier_chat_text(context, &robot, 0, &options, &text), "struct_size");
}

int main(void) {
    napier_unicode_table(table);
    context = context_of(NAPIER_ISA_AUTO, 1);
    succeeded(context, napier_alphabet_prepare(context, table, &alphabet), "the alphabet");
    const int failed = RUN_TESTS("tokenizer's parts", TEST(normal_form), TEST(against_utf8proc), TEST(expressions),
                                 TEST(refused_expressions), TEST(endless), TEST(looks_far), TEST(long_words),
                                 TEST(files), TEST(cut_files), TEST(json_memory), TEST(added_by_definition),
                                 TEST(long_added_token), TEST(crowded_tokens), TEST(crowded_merges), TEST(paths),
                                 TEST(other_formats), TEST(chat), TEST(chat_tools), TEST(chat_arguments));
    napier_alphabet_free(&context->allocator, &alphabet);
    napier_context_destroy(context);
    return failed;
}
