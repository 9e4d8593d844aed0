/* test_tokenizer_families - tokenizers like those of Llama 2 and Mistral (characters, bytes for those unknown), Llama 3 and
 * GPT-2: ids worked out by hand, the post-processor's tokens, decoding, texts that continue, long texts that are one word,
 * files that are refused. tests/peers compares the same kinds with Hugging Face tokenizers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/memory.h"
#include "support/tiny_characters.h"
#include "support/tiny_tokenizer.h"
#include "unit/lm/lm_support.h"

static napier_context *context;

/* ---- Files ------------------------------------------------------------------------------------------------------- */

typedef character_parts parts;
static const parts llama2 = LLAMA2_PARTS;

static napier_status load(const parts *p, napier_tokenizer **out) {
    static char text[CHARACTERS_ROOM];
    const size_t size = characters_text(p, text, sizeof text);
    assert_true(size > 0);
    return napier_tokenizer_from_json(context, text, size, out);
}

/* ---- Ids by hand ------------------------------------------------------------------------------------------------- */

static void check_options(const napier_tokenizer *t, const char *text, const napier_encode_options *options,
                          const char *wanted) {
    char line[512] = "";
    napier_token_buffer ids = {0};
    size_t used = 0;
    if (succeeded(context, napier_tokenizer_encode(context, t, text, strlen(text), options, &ids), text)) {
        for (int64_t i = 0; i < ids.size && used < sizeof line - 16; i++) {
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%d", i > 0 ? " " : "", ids.ids[i]);
        }
        expect(strcmp(line, wanted) == 0, "'%s' gives %s, not %s", text, line, wanted);
    }
    napier_token_buffer_free(context, &ids);
}

static void check_ids(const napier_tokenizer *t, const char *text, const char *wanted) {
    check_options(t, text, NULL, wanted);
}

/* Ids of texts under one form of the file. */
typedef struct form {
    const char *name;
    parts p;
    const char *texts[12][2];
} form;

static const form forms[] = {
    {"llama2",
     {LEGACY, "null", BOS, ENDS, "\"unk_token\": \"<unk>\", \"fuse_unk\": true, \"byte_fallback\": true",
      "\"" MARK " a\", \"b c\", \"" MARK "a bc\", \"" MARK " " MARK "\", \"" MARK MARK " " MARK MARK "\""},
     {{"", ""},
      {"abc", "266"},
      {" abc", "259 266"}, /* the space that is put before it stays apart: a space and "_a" come first by rank */
      {"abc abc", "266 266"},
      {"a  b", "264 267 261"},
      {"     ", "268 267"},
      {"\n", "259 13"},
      {"\xe4\xb8\xad", "259 231 187 176"},
      {"\xc3\xa9", "259 263"},
      {"<s>abc", "1 266"}, /* a piece after a token gets a space too */
      {"a[INST]a", "264 270 264"},
      {"<0x0A>", "259 63 51 123 51 68 65"}}}, /* text like any other */
    {"unknown characters are one token",
     {LEGACY, "null", BOS, ENDS, "\"unk_token\": \"<unk>\", \"fuse_unk\": true", "\"" MARK " a\""},
     {{"xyza", "259 0 260"}, {"x y", "259 0 259 0"}, {"x", "259 0"}}},
    {"unknown characters are a token each",
     {LEGACY, "null", BOS, ENDS, "\"unk_token\": \"<unk>\"", "\"" MARK " a\""},
     {{"xyza", "259 0 0 0 260"}}},
    {"a merge over a space",
     {LEGACY, "null", BOS, ENDS, "\"byte_fallback\": true", "\"a " MARK "\""},
     {{"a a a", "259 269 269 260"}, {"b b", "259 261 259 261"}}},
    {"metaspace first",
     {"null", METASPACE("first", "false"), BOS, ENDS, "\"byte_fallback\": true", "\"" MARK " a\""},
     {{"a a", "264 264"}, {" a", "264"}, {"[INST]a", "270 260"}, {"a[INST] a", "264 270 264"}, {MARK "a", "264"}}},
    {"metaspace always",
     {"null", METASPACE("always", "true"), BOS, METASPACE("always", "true"), "\"byte_fallback\": true",
      "\"" MARK " a\", \"" MARK " " MARK "\""},
     {{"a a", "264 264"}, {"[INST]a", "270 264"}, {"  a", "259 264"}}}, /* words of their own: no "__" */
    {"metaspace never",
     {"null", METASPACE("never", "false"), BOS, ENDS, "\"byte_fallback\": true", "\"" MARK " " MARK "\""},
     {{"a", "260"}, {"  a", "267 260"}}},
};

static void characters(void) {
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        napier_tokenizer *t = NULL;
        if (succeeded(context, load(&forms[f].p, &t), forms[f].name)) {
            for (size_t i = 0; i < 12 && forms[f].texts[i][0] != NULL; i++) {
                check_ids(t, forms[f].texts[i][0], forms[f].texts[i][1]);
            }
        }
        napier_tokenizer_destroy(context, t);
    }
}

/* ---- The tokens around a text ------------------------------------------------------------------------------------ */

static void around(void) {
    napier_tokenizer *t = NULL;
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    if (succeeded(context, load(&llama2, &t), "llama2")) {
        options.add_special = NAPIER_ADD_ALWAYS;
        check_options(t, "abc", &options, "1 266");
        check_options(t, "", &options, "1");
        check_options(t, "<s>abc", &options, "1 1 266");
        options.add_special = NAPIER_ADD_ONCE;
        check_options(t, "abc", &options, "1 266");
        check_options(t, "", &options, "1");
        check_options(t, "<s>abc", &options, "1 266");
        options.plain_special = 1; /* then it is no token of the text */
        check_options(t, "<s>", &options, "1 259 63 118 65");
        options = (napier_encode_options)NAPIER_ENCODE_OPTIONS_INIT;
        options.continues = 1;
        check_options(t, "abc", &options, "260 265");
        check_options(t, " abc", &options, "266");
        check_options(t, "b[INST]a", &options, "261 270 264");
        options.add_special = NAPIER_ADD_ONCE;
        napier_token_buffer ids = {0};
        invalid(context, napier_tokenizer_encode(context, t, "a", 1, &options, &ids), "add_special", "continues");
        options.continues = 0;
        options.add_special = 3;
        invalid(context, napier_tokenizer_encode(context, t, "a", 1, &options, &ids), "add_special is 3");
        options.add_special = -1;
        invalid(context, napier_tokenizer_encode(context, t, "a", 1, &options, &ids), "add_special is -1");
    }
    napier_tokenizer_destroy(context, t);
}

/* ---- Decode ------------------------------------------------------------------------------------------------------ */

static void check_text(const napier_tokenizer *t, const int32_t *ids, int64_t count, bool replace, bool skip,
                       const char *wanted) {
    napier_decode_options options = NAPIER_DECODE_OPTIONS_INIT;
    napier_text_buffer text = {0};
    options.replace_invalid = replace;
    options.skip_special = skip;
    if (succeeded(context, napier_tokenizer_decode(context, t, ids, count, &options, &text), wanted)) {
        expect(text.size == strlen(wanted) && (text.size == 0 || memcmp(text.bytes, wanted, text.size) == 0),
               "'%.*s', not '%s'", (int)text.size, text.bytes, wanted);
    }
    napier_text_buffer_free(context, &text);
}

#define TEXT(t, replace, skip, wanted, ...)                                                                        \
    check_text(t, (const int32_t[]){__VA_ARGS__}, sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t), replace, skip, \
               wanted)

static void decode(void) {
    napier_tokenizer *t = NULL;
    if (succeeded(context, load(&llama2, &t), "llama2")) {
        TEXT(t, false, false, "abc abc", 266, 266);
        TEXT(t, false, false, " abc", 259, 266);
        TEXT(t, false, false, "<s> abc", 1, 266); /* the first space is not at the beginning */
        TEXT(t, false, true, "abc", 1, 266);
        TEXT(t, false, false, "\n", 259, 13);
        TEXT(t, true, false, "\xe4\xb8\xad", 259, 231, 187, 176);
        TEXT(t, false, false, "\xe4\xb8", 231, 187);
        TEXT(t, true, false,
             "\xef\xbf\xbd\xef\xbf\xbd"
             "a",
             231, 187, 260);
        TEXT(t, true, false, "\xef\xbf\xbd\xef\xbf\xbd", 13, 231); /* the bytes of a run stand or fall together */
        size_t size = 0;
        const char *const word = napier_tokenizer_token(t, 264, &size), *const byte =
                                                                            napier_tokenizer_token(t, 13, NULL);
        expect(size == 2 && memcmp(word, " a", 2) == 0 && *byte == '\n', "tokens within a text");
        expect(napier_tokenizer_id(t, " a", 2) == 264 && napier_tokenizer_id(t, MARK "a", 4) == 264 &&
                   napier_tokenizer_id(t, "\n", 1) == 13 && napier_tokenizer_id(t, "<0x0A>", 6) == 13,
               "their ids");
    }
    napier_tokenizer_destroy(context, t);
    parts p = llama2;
    p.decoder = METASPACE("always", "true");
    if (succeeded(context, load(&p, &t), "metaspace")) {
        TEXT(t, false, false, "abc abc", 266, 266);
        TEXT(t, false, false, "abc", 267, 260, 265); /* the first token loses all of them */
        TEXT(t, false, false, "<0x0A>", 13);
    }
    napier_tokenizer_destroy(context, t);
    p.decoder = "{\"type\": \"Metaspace\", \"replacement\": \"" MARK
                "\", \"prepend_scheme\": \"never\", \"add_prefix_space\": false}";
    if (succeeded(context, load(&p, &t), "metaspace, never")) {
        TEXT(t, false, false, " abc abc", 266, 266);
    }
    napier_tokenizer_destroy(context, t);
}

/* U+FFFD for each maximal part of a character, over bytes. */
static void invalid_bytes(void) {
    napier_tokenizer *t = NULL;
    static const struct {
        const char *bytes, *wanted;
    } cases[] = {
        {"\xff", "?"},           {"a\xe4\xb8", "a?"},      {"\xe4\xb8\xe4\xb8\xad", "?\xe4\xb8\xad"},
        {"\xc0\x80", "??"},      {"\xed\xa0\x80", "???"},  {"\xf0\x9f\x91", "?"},
        {"\xf0\x8f\x91", "???"}, {"\xf4\x90\x80", "???"},  {"\xf4\x8f\xbf", "?"},
        {"\xe0\x9f\xbf", "???"}, {"\xc3\xa9", "\xc3\xa9"}, {"\xf1\x80\x80\x41", "?A"},
    };
    if (succeeded(context, tiny_load(context, NULL, NULL, &t), "tiny")) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            int32_t ids[8];
            char wanted[64] = "";
            size_t used = 0;
            const size_t size = strlen(cases[i].bytes);
            for (size_t k = 0; k < size; k++) {
                ids[k] = (int32_t)napier_tokenizer_id(t, cases[i].bytes + k, 1);
            }
            for (const char *at = cases[i].wanted; *at != '\0'; at++) {
                used += (size_t)snprintf(wanted + used, sizeof wanted - used, "%.*s", *at == '?' ? 3 : 1,
                                         *at == '?' ? "\xef\xbf\xbd" : at);
            }
            check_text(t, ids, (int64_t)size, true, false, wanted);
            check_text(t, ids, (int64_t)size, false, false, cases[i].bytes);
        }
    }
    napier_tokenizer_destroy(context, t);
}

/* ---- Long texts -------------------------------------------------------------------------------------------------- */

/* A text is one word here. Time that grows with the square of its length would be minutes. */
static void long_texts(void) {
    static const char *const units[] = {"a", "abc", " ", "a ", " abc", "\xe4\xb8\xad", "x", "a  ", MARK};
    enum { SIZE = 1 << 20 };
    char *const text = scratch(SIZE, 1);
    for (int whole = 0; whole < 2; whole++) {
        napier_tokenizer *t = NULL;
        parts p = llama2;
        p.merges = whole ? "\"a " MARK "\", \"" MARK " a\"" : llama2.merges; /* the first joins over a space */
        succeeded(context, load(&p, &t), "llama2");
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            const size_t unit = strlen(units[u]), size = SIZE / unit * unit;
            napier_token_buffer ids = {0};
            napier_text_buffer back = {0};
            for (size_t i = 0; i < size; i++) {
                text[i] = units[u][i % unit];
            }
            if (succeeded(context, napier_tokenizer_encode(context, t, text, size, NULL, &ids), units[u]) &&
                succeeded(context, napier_tokenizer_decode(context, t, ids.ids, ids.size, NULL, &back), units[u])) {
                expect(u == 8 || (back.size == size && memcmp(back.bytes, text, size) == 0), "'%s': %zu bytes back",
                       units[u], back.size);
            }
            napier_token_buffer_free(context, &ids);
            napier_text_buffer_free(context, &back);
        }
        napier_tokenizer_destroy(context, t);
    }
}

/* ---- GPT-2 and Llama 3 ------------------------------------------------------------------------------------------- */

/* Loads the tiny tokenizer with several parts replaced: pairs of texts, ended by NULL. */
static napier_status load_tiny(const char *const *edits, napier_tokenizer **out) {
    char *text = tiny_text(NULL, NULL);
    for (; text != NULL && *edits != NULL; edits += 2) {
        char *const place = strstr(text, edits[0]);
        assert_non_null(place);
        char *const made = malloc(strlen(text) + strlen(edits[1]) + 1);
        assert_non_null(made);
        sprintf(made, "%.*s%s%s", (int)(place - text), text, edits[1], place + strlen(edits[0]));
        free(text);
        text = made;
    }
    const napier_status status = napier_tokenizer_from_json(context, text, strlen(text), out);
    free(text);
    return status;
}

static void over_bytes(void) {
    static const char *const gpt2[] = {"\"type\": \"Sequence\"", "\"type\": \"ByteLevel\", \"add_prefix_space\": false",
                                       "{\"type\": \"NFC\"}", "null", NULL};
    static const char *const prefix[] = {"\"type\": \"Sequence\"", "\"type\": \"ByteLevel\"", NULL};
    static const char *const llama3[] = {
        "\\\\p{N}|", "\\\\p{N}{1,3}|", "\"post_processor\": {\"type\": \"ByteLevel\"",
        "\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, {\"type\": "
        "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"b\"}}, {\"Sequence\": {\"id\": \"A\"}}, "
        "{\"SpecialToken\": {\"id\": \"e\"}}], \"special_tokens\": {\"b\": {\"ids\": [279, 64]}, \"e\": {\"ids\": "
        "[280]}}}]}, \"other\": {\"type\": \"ByteLevel\"",
        NULL};
    napier_tokenizer *t = NULL;
    if (succeeded(context, load_tiny(gpt2, &t), "gpt2")) {
        check_ids(t, "hello world", "259 264");
        check_ids(t, "12", "273");           /* digits are one word */
        check_ids(t, "hello'S", "259 6 50"); /* only the small suffix is a word, with no merge of the other */
        check_ids(t, "a  b", "64 220 220 65");
    }
    napier_tokenizer_destroy(context, t);
    if (succeeded(context, load_tiny(prefix, &t), "prefix")) {
        check_ids(t, "world", "264");
        check_ids(t, " world", "264");
        check_ids(t, "hello<|im_end|>world", "220 259 280 264");
        check_ids(t, "", "");
        napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
        options.continues = 1;
        check_options(t, "hello<|im_end|>world", &options, "259 280 264");
    }
    napier_tokenizer_destroy(context, t);
    if (succeeded(context, load_tiny(llama3, &t), "llama3")) {
        napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
        check_ids(t, "1212", "273 16 17"); /* three digits, and one */
        options.add_special = NAPIER_ADD_ALWAYS;
        check_options(t, "hello", &options, "279 64 259 280");
        options.add_special = NAPIER_ADD_ONCE;
        check_options(t, "<|im_start|>a!<|im_end|>", &options, "279 64 0 280");
        check_options(t, "<|im_start|>a", &options, "279 64 280");
        check_options(t, "<|im_start|>", &options, "279 64 279 280");
        check_options(t, "<|im_end|>", &options, "279 64 280");
    }
    napier_tokenizer_destroy(context, t);
}

/* One edit of the tiny file, a text and its ids. tests/peers compares many more with `tokenizers`. */
static void steps(void) {
    static const struct {
        const char *edit[3], *text, *ids;
    } cases[] = {
        {{"\"Split\"", "\"Digits\", \"individual_digits\": true"}, "a12", "64 16 17"},
        {{"\"Split\"", "\"Digits\", \"individual_digits\": false"}, "a12", "64 273"},
        {{"\"Isolated\"", "\"Removed\""}, "hello world", ""},
        {{"\"Isolated\", \"invert\": false", "\"Removed\", \"invert\": true"}, "hello world", "259 264"},
        {{"\"Isolated\"", "\"MergedWithNext\""}, "hello world", "259 264"},
        {{"\"NFC\"", "\"Lowercase\""}, "HELLO", "259"},
        {{"\"NFC\"", "\"NFKC\""}, "\uff48\uff45\uff4c\uff4c\uff4f", "259"},
        {{"\"rstrip\": false", "\"rstrip\": true"}, "hello<|endoftext|>  \u3000hello", "259 278 259"},
        {{"\"lstrip\": false", "\"lstrip\": true"}, "hello \n<|endoftext|>hello", "259 278 259"},
        {{"\"!\": 0", "\"aaa\": 0"}, "a!b", "64 65"}, /* a byte without a token */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        napier_tokenizer *t = NULL;
        if (succeeded(context, load_tiny(cases[i].edit, &t), cases[i].edit[1])) {
            check_ids(t, cases[i].text, cases[i].ids);
        }
        napier_tokenizer_destroy(context, t);
    }
}

/* ---- What is refused --------------------------------------------------------------------------------------------- */

#define PIECE "{\"SpecialToken\": {\"id\": \"x\"}}, "
#define FOUR(text) text text text text

static void refused_files(void) {
    static const struct {
        parts p; /* NULL: as in llama2 */
        napier_status status;
        const char *word;
    } cases[] = {
        {{.normalizer = "{\"type\": \"Precompiled\"}"}, NAPIER_UNSUPPORTED, "normalizer: type \"Precompiled\""},
        {{.normalizer = "{\"type\": \"Prepend\", \"prepend\": \"12345678901234567\"}"}, NAPIER_UNSUPPORTED, "16 bytes"},
        {{.normalizer = "{\"type\": \"Prepend\"}"}, NAPIER_UNSUPPORTED, "prepend: none"},
        {{.normalizer = "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" \"}, \"content\": \"_\"}"},
         NAPIER_UNSUPPORTED,
         "String"},
        {{.normalizer = "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"_\"}"},
         NAPIER_UNSUPPORTED,
         "empty"},
        {{.pre_tokenizer = METASPACE("last", "true")}, NAPIER_UNSUPPORTED, "prepend_scheme last"},
        {{.pre_tokenizer = METASPACE("first", "true")}, NAPIER_UNSUPPORTED, "moves text"},
        {{.pre_tokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}"}, NAPIER_UNSUPPORTED, "one character"},
        {{.pre_tokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false}"},
         NAPIER_UNSUPPORTED,
         "add_prefix_space"},
        {{.pre_tokenizer = "{\"type\": \"UnicodeScripts\"}"}, NAPIER_UNSUPPORTED, "UnicodeScripts"},
        {{.pre_tokenizer =
              "{\"type\": \"Sequence\", \"pretokenizers\": [" METASPACE("never", "true") ", {\"type\": \"Digits\"}]}"},
         NAPIER_UNSUPPORTED,
         "after Metaspace"},
        {{.pre_tokenizer = "{\"type\": \"Sequence\", \"pretokenizers\": [" FOUR(
              FOUR("{\"type\": \"Digits\"}, ")) "{\"type\": \"Digits\"}]}"},
         NAPIER_UNSUPPORTED,
         "16 steps"},
        {{.pre_tokenizer = "{\"type\": \"Punctuation\", \"behavior\": \"Other\"}"}, NAPIER_UNSUPPORTED, "behavior"},
        {{.decoder = "null"}, NAPIER_UNSUPPORTED, "decoder: none"},
        {{.decoder = "{\"type\": \"ByteLevel\"}"}, NAPIER_UNSUPPORTED, "Sequence or Metaspace"},
        {{.decoder = "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"ByteFallback\"}]}"},
         NAPIER_UNSUPPORTED,
         "ByteFallback"},
        {{.decoder = "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, "
                     "\"stop\": 0}]}"},
         NAPIER_UNSUPPORTED,
         "Strip"},
        {{.decoder = "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": "
                     "\" \", \"start\": 1, \"stop\": 1}]}"},
         NAPIER_UNSUPPORTED,
         "Strip"},
        {{.decoder = "{\"type\": \"Metaspace\", \"replacement\": \"\"}"}, NAPIER_UNSUPPORTED, "replacement"},
        {{.decoder = "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}"}, NAPIER_UNSUPPORTED, "one character"},
        {{.decoder = METASPACE("last", "true")}, NAPIER_UNSUPPORTED, "decoder: Metaspace: prepend_scheme last"},
        {{.decoder = "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false}"},
         NAPIER_UNSUPPORTED,
         "add_prefix_space"},
        {{.model = "\"unk_token\": \"<none>\""}, NAPIER_UNSUPPORTED, "nor has unk_token"},
        {{.post_processor = "{\"type\": \"TemplateProcessing\", \"single\": []}"}, NAPIER_UNSUPPORTED, "no Sequence A"},
        {{.post_processor = "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"B\"}}]}"},
         NAPIER_UNSUPPORTED,
         "one A"},
        {{.post_processor = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}]}"},
         NAPIER_CORRUPT_DATA,
         "no ids"},
        {{.post_processor = "{\"type\": \"TemplateProcessing\", \"special_tokens\": {\"x\": {\"ids\": [271]}}, "
                            "\"single\": [{\"SpecialToken\": {\"id\": \"x\"}}]}"},
         NAPIER_CORRUPT_DATA,
         "271 is no token"},
        {{.post_processor = "{\"type\": \"TemplateProcessing\", \"special_tokens\": {\"x\": {\"ids\": []}}, "
                            "\"single\": [{\"SpecialToken\": {\"id\": \"x\"}}, {\"Sequence\": {\"id\": \"A\"}}]}"},
         NAPIER_CORRUPT_DATA,
         "no ids of 'x'"},
        {{.post_processor = "{\"type\": \"TemplateProcessing\", \"special_tokens\": {\"x\": {\"ids\": [1]}}, "
                            "\"single\": [" FOUR(FOUR(FOUR(PIECE))) PIECE "{\"Sequence\": {\"id\": \"A\"}}]}"},
         NAPIER_CORRUPT_DATA,
         "more than 64"},
        {{.post_processor = "{\"type\": \"Sequence\", \"processors\": [" BOS ", " BOS "]}"},
         NAPIER_UNSUPPORTED,
         "two that add"},
        {{.merges = "\"" MARK " x\""}, NAPIER_CORRUPT_DATA, "not in vocab"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        napier_tokenizer *t = NULL;
        parts p = cases[i].p;
        const parts *const o = &llama2;
        p.normalizer = p.normalizer ? p.normalizer : o->normalizer;
        p.pre_tokenizer = p.pre_tokenizer ? p.pre_tokenizer : o->pre_tokenizer;
        p.post_processor = p.post_processor ? p.post_processor : o->post_processor;
        p.decoder = p.decoder ? p.decoder : o->decoder;
        p.model = p.model ? p.model : o->model;
        p.merges = p.merges ? p.merges : o->merges;
        if (!refused(context, load(&p, &t), cases[i].status, cases[i].word, NULL)) {
            problem("(case %zu)", i);
        }
        expect(t == NULL, "case %zu: a tokenizer", i);
        napier_tokenizer_destroy(context, t);
    }
}

/* Steps that make a text ever longer are stopped, before they take the memory: 16 times 16 times the text. */
static void growing_text(void) {
    static const char grow[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aaaaaaaaaaaaaaaa\"}";
    ledger l = LEDGER_INIT;
    napier_context *const measured = ledger_context(&l, 1);
    char normalizer[1024];
    napier_tokenizer *t = NULL;
    napier_token_buffer ids = {0};
    parts p = llama2;
    char *const text = memset(scratch(100000, 1), 'a', 100000);
    snprintf(normalizer, sizeof normalizer, "{\"type\": \"Sequence\", \"normalizers\": [%s, %s]}", grow, grow);
    p.normalizer = normalizer;
    if (succeeded(context, load(&p, &t), "growing")) {
        refused(measured, napier_tokenizer_encode(measured, t, text, 100000, NULL, &ids), NAPIER_UNSUPPORTED,
                "more than 1600128 bytes", NULL);
        expect(l.most < 12800000, "%zu bytes were taken", l.most);
    }
    napier_token_buffer_free(measured, &ids);
    napier_tokenizer_destroy(context, t);
    napier_context_destroy(measured);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static napier_status load_and_use(napier_context *c, void *unused) {
    (void)unused;
    napier_context *const before = context;
    napier_tokenizer *t = NULL;
    napier_token_buffer ids = {0};
    napier_text_buffer text = {0};
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    napier_decode_options whole = NAPIER_DECODE_OPTIONS_INIT;
    options.add_special = NAPIER_ADD_ONCE;
    whole.replace_invalid = 1;
    context = c;
    napier_status status = load(&llama2, &t);
    static const char words[] = "abc x\xe4\xb8\xad <s> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    status = status ? status : napier_tokenizer_encode(c, t, words, sizeof words - 1, &options, &ids);
    ids.size -= status ? 0 : 3;
    status = status ? status : napier_tokenizer_decode(c, t, ids.ids, ids.size, &whole, &text);
    napier_token_buffer_free(c, &ids);
    napier_text_buffer_free(c, &text);
    napier_tokenizer_destroy(c, t);
    context = before;
    return status;
}

static void memory(void) { check_allocations("a tokenizer of characters", load_and_use, NULL); }

int main(void) {
    context = context_of(NAPIER_ISA_AUTO, 1);
    const int failed = RUN_TESTS("tokenizer_families", TEST(characters), TEST(around), TEST(decode),
                                 TEST(invalid_bytes), TEST(long_texts), TEST(over_bytes), TEST(steps),
                                 TEST(refused_files), TEST(growing_text), TEST(memory));
    napier_context_destroy(context);
    return failed;
}
