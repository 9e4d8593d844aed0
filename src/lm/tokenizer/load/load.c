/* lm/tokenizer/load/load.c - reads a tokenizer.json. */
#include "lm/tokenizer/tokenizer.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "core/base/scope.h"
#include "lm/gguf/gguf.h"
#include "lm/tokenizer/unicode.h"

static const size_t most_bytes = (size_t)1 << 28;

/* ---- The model --------------------------------------------------------------------------------------------------- */

/* Refuses a prefix or suffix of the vocabulary's tokens. */
static void check_affix(napier_json *json, const cJSON *model, const char *key) {
    const char *text = "";
    napier_json_text(json, model, key, &text);
    if (*text != '\0') {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "model: %s is \"%s\", but only none is supported", key,
                         napier_show_text(text).text);
    }
}

static void read_model(napier_json *json, napier_vocabulary *v, napier_token_lists *lists) {
    const cJSON *const model = napier_json_member(json, json->root, "model");
    double dropout = 0;
    napier_load_type(json, model, "model", "BPE");
    napier_json_number(json, model, "dropout", &dropout);
    if (dropout != 0) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "model: dropout is %g, but only 0 is supported", dropout);
    }
    check_affix(json, model, "continuing_subword_prefix");
    check_affix(json, model, "end_of_word_suffix");
    napier_json_bool(json, model, "ignore_merges", &lists->ignore_merges);
    napier_json_bool(json, model, "byte_fallback", &v->byte_fallback);
    napier_json_bool(json, model, "fuse_unk", &v->fuse_unknown);
    napier_json_text(json, model, "unk_token", &lists->unk_token);
    lists->vocab = napier_json_member(json, model, "vocab");
    lists->merges = napier_json_member(json, model, "merges");
}

/* Reads everything except the tokens. Refuses what is not understood, with a message that names it. `truncation` and
 * `padding` do not affect a text's ids: transformers sets both in each call. */
static napier_status read_steps(napier_json *json, napier_tokenizer *t, napier_token_lists *lists) {
    const char *version = "1.0";
    napier_json_text(json, json->root, "version", &version);
    if (strcmp(version, "1.0") != 0) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "version: %.40s, but only 1.0 is supported",
                         napier_show_text(version).text);
    }
    napier_load_normalizer(json, t);
    read_model(json, &t->vocabulary, lists);
    napier_load_pre_tokenizer(json, t);
    napier_load_decoder(json, t);
    lists->added = napier_json_member(json, json->root, "added_tokens");
    lists->post_processor = napier_json_member(json, json->root, "post_processor");
    return json->status;
}

/* ---- The whole file ---------------------------------------------------------------------------------------------- */

static napier_status read_tokenizer(napier_json *json, napier_tokenizer *t) {
    napier_token_lists lists = {0};
    t->table = napier_alloc(&t->allocator, NAPIER_CODE_POINTS, 1);
    if (t->table == NULL) {
        return napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for the table of characters");
    }
    napier_unicode_table(t->table);
    NAPIER_TRY(napier_alphabet_prepare(json->context, t->table, &t->words.alphabet));
    NAPIER_TRY(read_steps(json, t, &lists));
    return napier_load_tokens(json, t, &lists);
}

/* Parses the document that a GGUF file says. */
static napier_status parse_gguf(napier_context *context, const char *path, napier_json *json) {
    napier_gguf file;
    napier_text_buffer text = {NULL, 0, 0};
    napier_status status = napier_gguf_open(context, path, &file);
    status = status ? status : napier_gguf_tokenizer(&file, &text);
    status = status ? status : napier_json_parse(json, context, path, text.bytes, text.size);
    napier_gguf_close(&file);
    napier_text_buffer_free(context, &text);
    return status;
}

static napier_status parse_file(napier_context *context, const char *path, napier_json *json) {
    if (napier_gguf_is(path)) {
        return parse_gguf(context, path, json);
    }
    NAPIER_TRY(napier_load_check_format(context, path));
    return napier_json_load(json, context, path, most_bytes);
}

/* Loads a file if `path` is not NULL, and otherwise `text`. */
static napier_status load(napier_context *context, const char *path, const char *text, size_t size,
                          napier_tokenizer **out) {
    NAPIER_DEFAULT_FENV;
    napier_tokenizer *const t = napier_alloc(&context->allocator, 1, sizeof *t);
    if (t == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for a tokenizer");
    }
    memset(t, 0, sizeof *t);
    t->allocator = context->allocator;
    napier_json json = {.context = context};
    napier_status status = path != NULL ? parse_file(context, path, &json)
                                        : napier_json_parse(&json, context, "tokenizer.json", text, size);
    status = status ? status : read_tokenizer(&json, t);
    napier_json_free(&json);
    if (status) {
        napier_tokenizer_destroy(context, t);
        return status;
    }
    *out = t;
    return NAPIER_OK;
}

/* `source` is the argument called `name`. */
static napier_status begin(napier_context *context, const char *name, const char *source, napier_tokenizer **out) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, out == NULL || source == NULL, "%s: NULL", out == NULL ? "out" : name);
    *out = NULL;
    return NAPIER_OK;
}

napier_status napier_tokenizer_from_json(napier_context *context, const char *json, size_t size,
                                         napier_tokenizer **out) {
    NAPIER_TRY(begin(context, "json", json, out));
    return load(context, NULL, json, size, out);
}

napier_status napier_tokenizer_load(napier_context *context, const char *path, napier_tokenizer **out) {
    NAPIER_TRY(begin(context, "path", path, out));
    return load(context, path, NULL, 0, out);
}
