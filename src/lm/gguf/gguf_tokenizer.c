/* lm/gguf/gguf_tokenizer.c - the tokenizer.json and the tokenizer_config.json of the file's model.
 *
 * tokenizer.ggml.model says which kind of BPE it is. "gpt2": tokens and merges, as in a tokenizer.json, and
 * tokenizer.ggml.pre names how texts are cut into words. "llama": SentencePiece's, as of Llama 2 and Mistral, with scores;
 * the document is that of transformers' converter. */
#include <inttypes.h>
#include <string.h>

#include "core/base/scope.h"
#include "lm/gguf/gguf.h"
#include "lm/text/json.h"

/* ---- How texts are cut ------------------------------------------------------------------------------------------- */

#define SPLIT(regex) \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex "\"}, \"behavior\": \"Isolated\", \"invert\": false}"
#define BYTES(regex) \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": " regex "}"
#define SEQUENCE(first, last) "{\"type\": \"Sequence\", \"pretokenizers\": [" first ", " last "]}"
#define DIGITS "{\"type\": \"Digits\", \"individual_digits\": true}"
#define QWEN(letters, mark, digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" letters "+|" digits "| ?[^\\\\s\\\\p{L}" mark \
    "\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define UPPER "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define LOWER "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define CASES(end, digits)                                                                                             \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" LOWER "*" end \
    "|" digits "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

/* What a name of tokenizer.ggml.pre stands for, as the models' own files say it. */
typedef struct cut {
    const char *names[4];
    const char *pre_tokenizer;
    bool nfc;
    bool ignore_merges, adds_bos; /* what llama.cpp takes if the file does not say it */
} cut;

static const cut cuts[] = {
    {{"gpt-2", "mpt", "phi-2", "jais"}, .pre_tokenizer = BYTES("true")},
    {{"olmo", "dbrx"}, .pre_tokenizer = BYTES("true"), .nfc = true},
    {{"smollm", "starcoder", "refact", "codeshell"}, .pre_tokenizer = SEQUENCE(DIGITS, BYTES("true"))},
    {{"llama-bpe", "llama3", "llama-v3"},
     .pre_tokenizer = SEQUENCE(SPLIT(QWEN("\\\\p{L}", "", "\\\\p{N}{1,3}")), BYTES("false")),
     .ignore_merges = true,
     .adds_bos = true},
    {{"qwen2", "deepseek-r1-qwen"},
     .pre_tokenizer = SEQUENCE(SPLIT(QWEN("\\\\p{L}", "", "\\\\p{N}")), BYTES("false")),
     .nfc = true},
    {{"qwen35"},
     .pre_tokenizer = SEQUENCE(SPLIT(QWEN("[\\\\p{L}\\\\p{M}]", "\\\\p{M}", "\\\\p{N}")), BYTES("false")),
     .nfc = true},
    {{"tekken"},
     .pre_tokenizer = SEQUENCE(SPLIT(CASES("", "\\\\p{N}")), BYTES("false")),
     .ignore_merges = true,
     .adds_bos = true},
    {{"gpt-4o", "llama4"}, .pre_tokenizer = SEQUENCE(SPLIT(CASES(SHORT, "\\\\p{N}{1,3}")), BYTES("false"))},
};

static const cut *cut_of(napier_gguf *file) {
    const napier_text name = napier_gguf_text(file, "tokenizer.ggml.pre", "");
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        for (int k = 0; k < 4 && cuts[i].names[k] != NULL; k++) {
            if (napier_gguf_same(name, cuts[i].names[k])) {
                return &cuts[i];
            }
        }
    }
    napier_gguf_fail(file, NAPIER_UNSUPPORTED,
                     "tokenizer.ggml.pre: \"%s\": this way to cut texts is not known; give ids",
                     napier_show(name.bytes, name.size).text);
    return NULL;
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* The types of tokens, as the format numbers them. */
enum { UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

/* Walks the tokens with their types; a file without types has only normal tokens. */
typedef struct token_walk {
    napier_gguf_walk tokens, types;
    int64_t id;
    napier_text text;
    int type;
} token_walk;

static token_walk tokens_of(napier_gguf *file) {
    return (token_walk){.tokens = napier_gguf_texts(file, "tokenizer.ggml.tokens"),
                        .types = napier_gguf_numbers(file, "tokenizer.ggml.token_type"),
                        .id = -1};
}

static bool next_token(token_walk *walk) {
    double type = 1;
    (void)napier_gguf_next_number(&walk->types, &type);
    walk->type = type >= 1 && type <= 6 ? (int)type : 1;
    walk->id++;
    return napier_gguf_next_text(&walk->tokens, &walk->text);
}

/* The text of the token whose id a key gives; bytes NULL: there is no such key. */
static napier_text token_of(napier_gguf *file, const char *key, int64_t *id) {
    *id = napier_gguf_integer(file, key, -1);
    token_walk walk = tokens_of(file);
    while (*id >= 0 && next_token(&walk)) {
        if (walk.id == *id) {
            return walk.text;
        }
    }
    if (*id >= 0) {
        napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%s: %" PRId64 " is no token", key, *id);
    }
    return (napier_text){NULL, 0};
}

/* ---- tokenizer.json ---------------------------------------------------------------------------------------------- */

static void put_added(napier_gguf_writer *w, bool with_unknown) {
    token_walk walk = tokens_of(w->file);
    const char *between = "\"added_tokens\": [";
    while (next_token(&walk)) {
        if (walk.type == CONTROL || walk.type == USER_DEFINED || (walk.type == UNKNOWN && with_unknown)) {
            napier_gguf_putf(w, "%s{\"id\": %" PRId64 ", \"special\": %s, ", between, walk.id,
                             walk.type == USER_DEFINED ? "false" : "true");
            napier_gguf_put(w, "\"normalized\": false, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                               "\"content\": ");
            napier_gguf_put_text(w, walk.text);
            napier_gguf_put(w, "}");
            between = ",\n";
        }
    }
    napier_gguf_put(w, *between == ',' ? "],\n" : "\"added_tokens\": [],\n");
}

static void put_vocab(napier_gguf_writer *w) {
    token_walk walk = tokens_of(w->file);
    const char *between = "\"vocab\": {";
    while (next_token(&walk)) {
        if (walk.type != UNUSED) {
            napier_gguf_put(w, between);
            napier_gguf_put_text(w, walk.text);
            napier_gguf_putf(w, ": %" PRId64, walk.id);
            between = ", ";
        }
    }
    napier_gguf_put(w, *between == ',' ? "},\n" : "\"vocab\": {},\n");
}

static void put_merges(napier_gguf_writer *w) {
    napier_gguf_walk walk = napier_gguf_texts(w->file, "tokenizer.ggml.merges");
    napier_text merge;
    const char *between = "\"merges\": [";
    for (; napier_gguf_next_text(&walk, &merge); between = ", ") {
        napier_gguf_put(w, between);
        napier_gguf_put_text(w, merge);
    }
    napier_gguf_put(w, *between == ',' ? "]" : "\"merges\": []");
}

/* A token before or after a text. */
static void put_piece(napier_gguf_writer *w, napier_text token) {
    napier_gguf_put(w, "{\"SpecialToken\": {\"id\": ");
    napier_gguf_put_text(w, token);
    napier_gguf_put(w, ", \"type_id\": 0}}");
}

static void put_special(napier_gguf_writer *w, napier_text token, int64_t id) {
    napier_gguf_put_text(w, token);
    napier_gguf_put(w, ": {\"id\": ");
    napier_gguf_put_text(w, token);
    napier_gguf_putf(w, ", \"ids\": [%" PRId64 "], \"tokens\": [", id);
    napier_gguf_put_text(w, token);
    napier_gguf_put(w, "]}");
}

/* The tokens that llama.cpp puts around a text. */
static void put_around(napier_gguf_writer *w, bool adds_bos) {
    int64_t first = -1, last = -1;
    napier_text bos = {NULL, 0}, eos = {NULL, 0};
    if (napier_gguf_bool(w->file, "tokenizer.ggml.add_bos_token", adds_bos)) {
        bos = token_of(w->file, "tokenizer.ggml.bos_token_id", &first);
    }
    if (napier_gguf_bool(w->file, "tokenizer.ggml.add_eos_token", false)) {
        eos = token_of(w->file, "tokenizer.ggml.eos_token_id", &last);
    }
    if (bos.bytes == NULL && eos.bytes == NULL) {
        return;
    }
    napier_gguf_put(w, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [");
    if (bos.bytes != NULL) {
        put_piece(w, bos);
        napier_gguf_put(w, ", ");
    }
    napier_gguf_put(w, "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}");
    if (eos.bytes != NULL) {
        napier_gguf_put(w, ", ");
        put_piece(w, eos);
    }
    napier_gguf_put(w, "], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
                       "{\"Sequence\": {\"id\": \"B\", \"type_id\": 0}}], \"special_tokens\": {");
    if (bos.bytes != NULL) {
        put_special(w, bos, first);
    }
    if (eos.bytes != NULL && (bos.bytes == NULL || last != first)) {
        napier_gguf_put(w, bos.bytes != NULL ? ", " : "");
        put_special(w, eos, last);
    }
    napier_gguf_put(w, "}},\n");
}

static void put_gpt2(napier_gguf_writer *w) {
    const cut *const c = cut_of(w->file);
    if (c == NULL) {
        return;
    }
    napier_gguf_put(w, "{\"version\": \"1.0\",\n");
    put_added(w, false);
    napier_gguf_put(w, c->nfc ? "\"normalizer\": {\"type\": \"NFC\"},\n\"pre_tokenizer\": "
                              : "\"normalizer\": null,\n\"pre_tokenizer\": ");
    napier_gguf_put(w, c->pre_tokenizer);
    napier_gguf_put(w, ",\n");
    put_around(w, c->adds_bos);
    napier_gguf_put(w, "\"decoder\": " BYTES("true") ",\n\"model\": {\"type\": \"BPE\", ");
    napier_gguf_put(w, c->ignore_merges ? "\"ignore_merges\": true,\n" : "\"ignore_merges\": false,\n");
    put_vocab(w);
    put_merges(w);
    napier_gguf_put(w, "}}\n");
}

static bool has_bytes(napier_gguf *file) {
    token_walk walk = tokens_of(file);
    while (next_token(&walk)) {
        if (walk.type == BYTE) {
            return true;
        }
    }
    return false;
}

#define SPACE "\xe2\x96\x81" /* the mark of a space, U+2581 */
#define TO_MARK "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SPACE "\"}"
#define TO_SPACE "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" SPACE "\"}, \"content\": \" \"}"

static void put_sentencepiece(napier_gguf_writer *w) {
    const bool prefix = napier_gguf_bool(w->file, "tokenizer.ggml.add_space_prefix", true);
    int64_t id;
    const napier_text unknown = token_of(w->file, "tokenizer.ggml.unknown_token_id", &id);
    if (napier_gguf_bool(w->file, "tokenizer.ggml.remove_extra_whitespaces", false) ||
        napier_gguf_find(w->file, "tokenizer.ggml.precompiled_charsmap")) {
        napier_gguf_fail(w->file, NAPIER_UNSUPPORTED,
                         "tokenizer.ggml: a vocabulary that changes texts (remove_extra_whitespaces, "
                         "precompiled_charsmap) is not supported; give ids");
        return;
    }
    napier_gguf_put(w, "{\"version\": \"1.0\",\n");
    put_added(w, true);
    napier_gguf_put(w, "\"normalizer\": ");
    napier_gguf_put(w, prefix
                           ? "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"" SPACE
                             "\"}, " TO_MARK "]}"
                           : TO_MARK);
    napier_gguf_put(w, ",\n\"pre_tokenizer\": null,\n");
    put_around(w, true);
    napier_gguf_put(w, "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [" TO_SPACE
                       ", {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}");
    napier_gguf_put(w,
                    prefix ? ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},\n" : "]},\n");
    napier_gguf_put(w, "\"model\": {\"type\": \"BPE\", \"fuse_unk\": true, \"unk_token\": ");
    if (unknown.bytes != NULL) {
        napier_gguf_put_text(w, unknown);
    } else {
        napier_gguf_put(w, "null");
    }
    napier_gguf_put(w, has_bytes(w->file) ? ", \"byte_fallback\": true,\n" : ", \"byte_fallback\": false,\n");
    put_vocab(w);
    napier_gguf_put_scored_merges(w);
    napier_gguf_put(w, "}}\n");
}

napier_status napier_gguf_tokenizer(napier_gguf *file, napier_text_buffer *json) {
    napier_gguf_writer w = {file, json};
    const napier_text model = napier_gguf_text(file, "tokenizer.ggml.model", "none");
    if (napier_gguf_same(model, "gpt2")) {
        put_gpt2(&w);
    } else if (napier_gguf_same(model, "llama")) {
        put_sentencepiece(&w);
    } else {
        napier_gguf_fail(file, NAPIER_UNSUPPORTED,
                         "tokenizer.ggml.model: \"%s\", but only gpt2 and llama are supported; give ids",
                         napier_show(model.bytes, model.size).text);
    }
    return file->status;
}

/* ---- tokenizer_config.json --------------------------------------------------------------------------------------- */

napier_status napier_gguf_tokenizer_config(napier_gguf *file, napier_text_buffer *json) {
    static const char *const tokens[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                            {"eos_token", "tokenizer.ggml.eos_token_id"},
                                            {"pad_token", "tokenizer.ggml.padding_token_id"},
                                            {"unk_token", "tokenizer.ggml.unknown_token_id"}};
    napier_gguf_writer w = {file, json};
    napier_gguf_put(&w, "{");
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        int64_t id;
        const napier_text token = token_of(file, tokens[i][1], &id);
        if (token.bytes != NULL) {
            napier_gguf_putf(&w, "\"%s\": ", tokens[i][0]);
            napier_gguf_put_text(&w, token);
            napier_gguf_put(&w, ", ");
        }
    }
    const napier_text chat = napier_gguf_text(file, "tokenizer.chat_template", NULL);
    napier_gguf_put(&w, "\"chat_template\": ");
    if (chat.bytes != NULL) {
        napier_gguf_put_text(&w, chat);
    } else {
        napier_gguf_put(&w, "null");
    }
    napier_gguf_put(&w, "}\n");
    return file->status;
}
