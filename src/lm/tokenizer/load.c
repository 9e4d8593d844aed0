/* lm/tokenizer/load.c - reads the steps of a tokenizer.json, in the order in which they run. */
#include "lm/tokenizer/load.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "core/base/fenv.h"
#include "lm/text/file.h"

static const size_t most_bytes = (size_t)1 << 28;

/* ---- Checks of a step ----------------------------------------------------------------------------------------------
 */

/* Checks the type of an object, such as {"type": "NFC"}. */
static napier_status check_type(const napier_json *json, const cJSON *object, const char *where, const char *only) {
    const cJSON *type;
    const napier_status status = napier_json_member(json, object, "type", &type);
    if (status || (cJSON_IsString(type) && strcmp(type->valuestring, only) == 0)) {
        return status;
    }
    return napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: type %s, but only %s is supported", where,
                            napier_show_item(type).text, only);
}

/* Checks that a member has the only supported value. `absent` is its default. */
static napier_status check_bool(const napier_json *json, const cJSON *object, const char *where, const char *key,
                                bool only, bool absent) {
    bool value = absent;
    const napier_status status = napier_json_bool(json, object, key, &value);
    return status || value == only ? status
                                   : napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: %s is %s, which is not supported",
                                                      where, key, value ? "true" : "false");
}

/* ---- The steps -----------------------------------------------------------------------------------------------------
 */

static napier_status read_normalizer(const napier_json *json, napier_tokenizer *t) {
    const cJSON *item;
    const napier_status status = napier_json_member(json, json->root, "normalizer", &item);
    t->nfc = item != NULL;
    return status || item == NULL ? status : check_type(json, item, "normalizer", "NFC");
}

static napier_status read_pattern(const napier_json *json, napier_tokenizer *t, const cJSON *split) {
    const cJSON *pattern;
    const char *regex = NULL, *behavior = "";
    napier_status status = check_type(json, split, "pre_tokenizer", "Split");
    if (!status) {
        status = check_bool(json, split, "pre_tokenizer", "invert", false, false);
    }
    if (!status) {
        status = napier_json_text(json, split, "behavior", &behavior);
    }
    if (!status && strcmp(behavior, "Isolated") != 0) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED,
                                "pre_tokenizer: behavior %.40s, but only Isolated is supported",
                                napier_show(behavior, strlen(behavior)).text);
    }
    if (!status) {
        status = napier_json_member(json, split, "pattern", &pattern);
    }
    if (!status) {
        status = napier_json_text(json, pattern, "Regex", &regex);
    }
    if (!status && regex == NULL) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: a pattern without Regex");
    }
    return status ? status : napier_split_compile(json, &t->allocator, regex, &t->split);
}

/* Splitting by an expression, then converting bytes to characters. */
static napier_status read_pre_tokenizer(const napier_json *json, napier_tokenizer *t) {
    const cJSON *item, *list = NULL, *bytes = NULL;
    napier_status status = napier_json_member(json, json->root, "pre_tokenizer", &item);
    if (!status && item == NULL) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: none, but Split and ByteLevel are wanted");
    }
    if (!status) {
        status = check_type(json, item, "pre_tokenizer", "Sequence");
    }
    if (!status) {
        status = napier_json_member(json, item, "pretokenizers", &list);
    }
    if (!status && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2)) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: a sequence of Split and ByteLevel is wanted");
    }
    if (!status) {
        status = read_pattern(json, t, list->child);
        bytes = list->child->next;
    }
    if (!status) {
        status = check_type(json, bytes, "pre_tokenizer", "ByteLevel");
    }
    if (!status) {
        status = check_bool(json, bytes, "pre_tokenizer", "add_prefix_space", false, true);
    }
    return status ? status : check_bool(json, bytes, "pre_tokenizer", "use_regex", false, true);
}

/* ByteLevel as a post-processor only changes offsets, which this library does not compute. */
static napier_status check_ends(const napier_json *json) {
    const cJSON *after, *decoder;
    napier_status status = napier_json_member(json, json->root, "post_processor", &after);
    if (!status && after != NULL) {
        status = check_type(json, after, "post_processor", "ByteLevel");
    }
    if (!status) {
        status = napier_json_member(json, json->root, "decoder", &decoder);
    }
    if (!status && decoder == NULL) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "decoder: none, but only ByteLevel is supported");
    }
    return status ? status : check_type(json, decoder, "decoder", "ByteLevel");
}

/* Refuses a prefix or suffix of the vocabulary's tokens. */
static napier_status check_affix(const napier_json *json, const cJSON *model, const char *key) {
    const char *text = "";
    const napier_status status = napier_json_text(json, model, key, &text);
    return status || *text == '\0'
               ? status
               : napier_json_fail(json, NAPIER_UNSUPPORTED, "model: %s is \"%s\", but only none is supported", key,
                                  napier_show(text, strlen(text)).text);
}

/* unk_token, fuse_unk and byte_fallback apply to bytes without a token. There are none, because napier_load_tokens
 * refuses such files. */
static napier_status read_model(const napier_json *json, napier_token_lists *lists) {
    const cJSON *model;
    double dropout = 0;
    napier_status status = napier_json_member(json, json->root, "model", &model);
    if (!status) {
        status = check_type(json, model, "model", "BPE");
    }
    if (!status) {
        status = napier_json_number(json, model, "dropout", &dropout);
    }
    if (!status && dropout != 0) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "model: dropout is %g, but only 0 is supported", dropout);
    }
    if (!status) {
        status = check_affix(json, model, "continuing_subword_prefix");
    }
    if (!status) {
        status = check_affix(json, model, "end_of_word_suffix");
    }
    if (!status) {
        status = napier_json_bool(json, model, "ignore_merges", &lists->ignore_merges);
    }
    if (!status) {
        status = napier_json_member(json, model, "vocab", &lists->vocab);
    }
    return status ? status : napier_json_member(json, model, "merges", &lists->merges);
}

/* `truncation` and `padding` do not affect a text's ids: transformers sets both in each call. */
napier_status napier_load_steps(const napier_json *json, napier_tokenizer *t, napier_token_lists *lists) {
    const char *version = "1.0";
    napier_status status = napier_json_text(json, json->root, "version", &version);
    if (!status && strcmp(version, "1.0") != 0) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "version: %.40s, but only 1.0 is supported",
                                napier_show(version, strlen(version)).text);
    }
    if (!status) {
        status = read_normalizer(json, t);
    }
    if (!status) {
        status = check_ends(json);
    }
    if (!status) {
        status = read_model(json, lists);
    }
    if (!status) {
        status = read_pre_tokenizer(json, t);
    }
    return status ? status : napier_json_member(json, json->root, "added_tokens", &lists->added);
}

/* ---- The whole file ------------------------------------------------------------------------------------------------
 */

static napier_status load(const napier_json *json, napier_tokenizer *t) {
    napier_token_lists lists = {NULL, NULL, NULL, false};
    t->table = napier_alloc(&t->allocator, NAPIER_CODE_POINTS, 1);
    if (t->table == NULL) {
        return napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for the table of characters");
    }
    napier_unicode_table(t->table);
    const napier_status status = napier_load_steps(json, t, &lists);
    return status ? status : napier_load_tokens(json, t, &lists);
}

static napier_status from_json(napier_context *context, const char *name, const char *text, size_t size,
                               napier_tokenizer **out) {
    napier_tokenizer *const t = napier_alloc(&context->allocator, 1, sizeof *t);
    if (t == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for a tokenizer");
    }
    memset(t, 0, sizeof *t);
    t->allocator = context->allocator;
    napier_json json;
    const napier_fenv caller = napier_fenv_enter();
    napier_status status = napier_json_parse(&json, context, name, text, size);
    if (!status) {
        status = load(&json, t);
    }
    napier_json_free(&json);
    napier_fenv_leave(caller);
    if (status) {
        napier_tokenizer_destroy(context, t);
        return status;
    }
    *out = t;
    return NAPIER_OK;
}

napier_status napier_tokenizer_from_json(napier_context *context, const char *json, size_t size,
                                         napier_tokenizer **out) {
    const napier_status status = napier_begin(context);
    if (status) {
        return status;
    }
    if (out == NULL || json == NULL) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: NULL", out == NULL ? "out" : "json");
    }
    *out = NULL;
    return from_json(context, "tokenizer.json", json, size, out);
}

napier_status napier_tokenizer_load(napier_context *context, const char *path, napier_tokenizer **out) {
    napier_status status = napier_begin(context);
    if (status) {
        return status;
    }
    if (out == NULL || path == NULL) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: NULL", out == NULL ? "out" : "path");
    }
    *out = NULL;
    char *bytes;
    size_t size;
    status = napier_read_file(context, path, most_bytes, &bytes, &size);
    if (!status) {
        status = from_json(context, path, bytes, size, out);
    }
    napier_free(&context->allocator, bytes);
    return status;
}
