/* lm/tokenizer/load.c - reads the steps of a tokenizer.json, in the order in which they run. */
#include "lm/tokenizer/tokenizer.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "core/base/scope.h"

static const size_t most_bytes = (size_t)1 << 28;

/* ---- Checks of a step -------------------------------------------------------------------------------------------- */

/* Checks the type of an object, such as {"type": "NFC"}. */
static void check_type(napier_json *json, const cJSON *object, const char *where, const char *only) {
    const cJSON *const type = napier_json_member(json, object, "type");
    if (!cJSON_IsString(type) || strcmp(type->valuestring, only) != 0) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: type %s, but only %s is supported", where,
                         napier_show_item(type).text, only);
    }
}

/* Checks that a member is false. `absent` is its default. */
static void check_false(napier_json *json, const cJSON *object, const char *where, const char *key, bool absent) {
    bool value = absent;
    napier_json_bool(json, object, key, &value);
    if (value) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: %s is true, which is not supported", where, key);
    }
}

/* ---- The steps --------------------------------------------------------------------------------------------------- */

static void read_normalizer(napier_json *json, napier_tokenizer *t) {
    const cJSON *const item = napier_json_member(json, json->root, "normalizer");
    t->nfc = item != NULL;
    if (t->nfc) {
        check_type(json, item, "normalizer", "NFC");
    }
}

static void read_pattern(napier_json *json, napier_tokenizer *t, const cJSON *split) {
    const char *regex = NULL, *behavior = "";
    check_type(json, split, "pre_tokenizer", "Split");
    check_false(json, split, "pre_tokenizer", "invert", false);
    napier_json_text(json, split, "behavior", &behavior);
    if (strcmp(behavior, "Isolated") != 0) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: behavior %.40s, but only Isolated is supported",
                         napier_show_text(behavior).text);
    }
    napier_json_text(json, napier_json_member(json, split, "pattern"), "Regex", &regex);
    if (regex == NULL) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: a pattern without Regex");
    }
    if (!json->status) {
        json->status = napier_split_compile(json, &t->allocator, regex, &t->split);
    }
}

/* Splitting by an expression, then converting bytes to characters. */
static void read_pre_tokenizer(napier_json *json, napier_tokenizer *t) {
    const cJSON *const item = napier_json_member(json, json->root, "pre_tokenizer");
    if (item == NULL) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: none, but Split and ByteLevel are wanted");
    }
    check_type(json, item, "pre_tokenizer", "Sequence");
    const cJSON *const list = napier_json_member(json, item, "pretokenizers");
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: a sequence of Split and ByteLevel is wanted");
        return;
    }
    read_pattern(json, t, list->child);
    const cJSON *const bytes = list->child->next;
    check_type(json, bytes, "pre_tokenizer", "ByteLevel");
    check_false(json, bytes, "pre_tokenizer", "add_prefix_space", true);
    check_false(json, bytes, "pre_tokenizer", "use_regex", true);
}

/* ByteLevel as a post-processor only changes offsets, which this library does not compute. */
static void check_ends(napier_json *json) {
    const cJSON *const after = napier_json_member(json, json->root, "post_processor");
    if (after != NULL) {
        check_type(json, after, "post_processor", "ByteLevel");
    }
    const cJSON *const decoder = napier_json_member(json, json->root, "decoder");
    if (decoder == NULL) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "decoder: none, but only ByteLevel is supported");
    }
    check_type(json, decoder, "decoder", "ByteLevel");
}

/* Refuses a prefix or suffix of the vocabulary's tokens. */
static void check_affix(napier_json *json, const cJSON *model, const char *key) {
    const char *text = "";
    napier_json_text(json, model, key, &text);
    if (*text != '\0') {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "model: %s is \"%s\", but only none is supported", key,
                         napier_show_text(text).text);
    }
}

/* unk_token, fuse_unk and byte_fallback apply to bytes without a token. There are none, because napier_load_tokens
 * refuses such files. */
static void read_model(napier_json *json, napier_token_lists *lists) {
    const cJSON *const model = napier_json_member(json, json->root, "model");
    double dropout = 0;
    check_type(json, model, "model", "BPE");
    napier_json_number(json, model, "dropout", &dropout);
    if (dropout != 0) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "model: dropout is %g, but only 0 is supported", dropout);
    }
    check_affix(json, model, "continuing_subword_prefix");
    check_affix(json, model, "end_of_word_suffix");
    napier_json_bool(json, model, "ignore_merges", &lists->ignore_merges);
    lists->vocab = napier_json_member(json, model, "vocab");
    lists->merges = napier_json_member(json, model, "merges");
}

/* Reads everything except the tokens. Refuses anything but byte-level BPE, with a message that names it. `truncation` and
 * `padding` do not affect a text's ids: transformers sets both in each call. */
static napier_status read_steps(napier_json *json, napier_tokenizer *t, napier_token_lists *lists) {
    const char *version = "1.0";
    napier_json_text(json, json->root, "version", &version);
    if (strcmp(version, "1.0") != 0) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "version: %.40s, but only 1.0 is supported",
                         napier_show_text(version).text);
    }
    read_normalizer(json, t);
    check_ends(json);
    read_model(json, lists);
    read_pre_tokenizer(json, t);
    lists->added = napier_json_member(json, json->root, "added_tokens");
    return json->status;
}

/* ---- The whole file ---------------------------------------------------------------------------------------------- */

static napier_status read_tokenizer(napier_json *json, napier_tokenizer *t) {
    napier_token_lists lists = {NULL, NULL, NULL, false};
    t->table = napier_alloc(&t->allocator, NAPIER_CODE_POINTS, 1);
    if (t->table == NULL) {
        return napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for the table of characters");
    }
    napier_unicode_table(t->table);
    NAPIER_TRY(read_steps(json, t, &lists));
    return napier_load_tokens(json, t, &lists);
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
    napier_json json;
    napier_status status = path != NULL ? napier_json_load(&json, context, path, most_bytes)
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
