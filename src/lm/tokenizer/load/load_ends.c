/* lm/tokenizer/load/load_ends.c - reads what follows the words: the post-processor, which puts ids around a text, and the
 * decoder. */
#include "lm/tokenizer/tokenizer.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "core/base/scope.h"

/* ---- The post-processor ------------------------------------------------------------------------------------------ */

enum { MOST_AROUND = 64 };

/* The list of the template's tokens of this name. */
static const cJSON *ids_of(napier_json *json, const cJSON *processor, const char *name) {
    const cJSON *const tokens = napier_json_member(json, processor, "special_tokens");
    const cJSON *const ids =
        tokens == NULL ? NULL : napier_json_member(json, napier_json_member(json, tokens, name), "ids");
    if (ids == NULL || !cJSON_IsArray(ids) || ids->child == NULL) { /* so add_ids bounds the number of pieces, too */
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "post_processor: special_tokens: no ids of '%s'",
                         napier_show_text(name).text);
        return NULL;
    }
    return ids;
}

static void add_id(napier_json *json, napier_tokenizer *t, const cJSON *id, size_t *count) {
    const bool good = napier_json_is_integer(id, 0, NAPIER_MOST_TOKENS - 1);
    if (!good || napier_token_of(t, (int64_t)id->valuedouble) == NULL || *count == MOST_AROUND) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "post_processor: %s is no token's id, or one of more than %d",
                         napier_show_item(id).text, MOST_AROUND);
        return;
    }
    t->around.ids[(*count)++] = (int32_t)id->valuedouble;
}

static void add_ids(napier_json *json, napier_tokenizer *t, const cJSON *ids, size_t *count) {
    for (const cJSON *id = ids != NULL ? ids->child : NULL; id != NULL && !json->status; id = id->next) {
        add_id(json, t, id, count);
    }
}

/* Reads {"cls": [text, id], "sep": [text, id]}: the first goes before a text, the second after it. */
static void read_pair(napier_json *json, napier_tokenizer *t, const cJSON *processor) {
    static const char *const names[] = {"cls", "sep"};
    size_t count = 0;
    for (int i = 0; i < 2 && !json->status; i++) {
        const cJSON *const pair = napier_json_member(json, processor, names[i]);
        add_id(json, t, cJSON_IsArray(pair) ? cJSON_GetArrayItem(pair, 1) : NULL, &count);
    }
    t->around.before = t->around.after = 1;
}

/* Reads a list of {"SpecialToken": {"id": name}} around {"Sequence": {"id": "A"}}, which is the text. */
static void read_template(napier_json *json, napier_tokenizer *t, const cJSON *processor) {
    const cJSON *const single = napier_json_member(json, processor, "single");
    bool has_text = false;
    size_t count = 0;
    for (const cJSON *piece = cJSON_IsArray(single) ? single->child : NULL; piece != NULL && !json->status;
         piece = piece->next) {
        const cJSON *const token = napier_json_member(json, piece, "SpecialToken");
        const char *name = "";
        napier_json_text(json, token != NULL ? token : napier_json_member(json, piece, "Sequence"), "id", &name);
        if (token != NULL) {
            add_ids(json, t, ids_of(json, processor, name), &count);
        } else if (strcmp(name, "A") == 0 && !has_text) {
            has_text = true;
            t->around.before = count;
        } else {
            napier_json_fail(json, NAPIER_UNSUPPORTED, "post_processor: single: a Sequence other than one A");
        }
    }
    t->around.after = count - t->around.before;
    if (!has_text) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "post_processor: single: no Sequence A");
    }
}

/* ByteLevel changes only offsets, which this library does not compute. */
static void read_processor(napier_json *json, napier_tokenizer *t, const cJSON *item, bool *has_template) {
    if (napier_load_is(json, item, "post_processor", "ByteLevel")) {
        return;
    }
    const bool is_pair = napier_load_is(json, item, "post_processor", "BertProcessing") ||
                         napier_load_is(json, item, "post_processor", "RobertaProcessing");
    if (!is_pair) {
        napier_load_type(json, item, "post_processor", "TemplateProcessing");
    }
    if (*has_template) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "post_processor: two that add tokens");
    }
    *has_template = true;
    if (!json->status) {
        (is_pair ? read_pair : read_template)(json, t, item);
    }
}

napier_status napier_load_around(napier_json *json, napier_tokenizer *t, const cJSON *processor) {
    bool has_template = false;
    if (processor == NULL) {
        return NAPIER_OK;
    }
    t->around.ids = napier_alloc(&t->allocator, MOST_AROUND, sizeof *t->around.ids);
    if (t->around.ids == NULL) {
        return napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for the post_processor");
    }
    if (!napier_load_is(json, processor, "post_processor", "Sequence")) {
        read_processor(json, t, processor, &has_template);
        return json->status;
    }
    const cJSON *const list = napier_json_member(json, processor, "processors");
    for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item != NULL && !json->status;
         item = item->next) {
        read_processor(json, t, item, &has_template);
    }
    return json->status;
}

/* ---- The decoder ------------------------------------------------------------------------------------------------- */

static const char where[] = "decoder";

static void add_replace(napier_json *json, napier_decoder *d, const cJSON *item) {
    if (d->replace_count == NAPIER_MOST_REPLACEMENTS) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "decoder: more than %d of Replace", NAPIER_MOST_REPLACEMENTS);
        return;
    }
    napier_step *const step = &d->replace[d->replace_count++];
    napier_load_replace(json, item, where, step);
    if (step->to.size > step->from.size) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "decoder: Replace by a longer text");
    }
}

static void read_strip(napier_json *json, napier_decoder *d, const cJSON *item) {
    napier_short_text content = {"", 0};
    int64_t start = 0, stop = 0;
    napier_load_short(json, item, where, "content", &content);
    napier_json_integer(json, item, "start", 0, INT32_MAX, &start);
    napier_json_integer(json, item, "stop", 0, INT32_MAX, &stop);
    if (content.size != 1 || stop != 0) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "decoder: Strip other than of one ASCII character at the start");
    }
    d->strip = (size_t)start;
    d->strip_byte = content.bytes[0];
}

/* Llama 2's: Replace, ByteFallback, Fuse, Strip, in this order; each may be absent, but Strip needs Fuse. */
static void read_sequence(napier_json *json, napier_decoder *d, const cJSON *list) {
    const cJSON *item = cJSON_IsArray(list) ? list->child : NULL;
    bool fuses = false;
    for (; item != NULL && napier_load_is(json, item, where, "Replace") && !json->status; item = item->next) {
        add_replace(json, d, item);
    }
    if (item != NULL && napier_load_is(json, item, where, "ByteFallback")) {
        d->byte_fallback = true;
        item = item->next;
    }
    if (item != NULL && napier_load_is(json, item, where, "Fuse")) {
        fuses = true;
        item = item->next;
    }
    if (item != NULL && fuses && napier_load_is(json, item, where, "Strip")) {
        read_strip(json, d, item);
        item = item->next;
    }
    if (item != NULL) {
        napier_json_fail(json, NAPIER_UNSUPPORTED,
                         "decoder: %s there; a Sequence is Replace, ByteFallback, Fuse, Strip, in this order",
                         napier_show_item(napier_json_member(json, item, "type")).text);
    }
}

static void read_metaspace(napier_json *json, napier_decoder *d, const cJSON *item) {
    napier_step *const step = &d->replace[d->replace_count++];
    *step = (napier_step){.kind = NAPIER_STEP_REPLACE, .to = {" ", 1}};
    d->bare_start = napier_load_metaspace(json, item, "decoder: Metaspace", &step->from) != NAPIER_PREFIX_NEVER;
}

void napier_load_decoder(napier_json *json, napier_tokenizer *t) {
    const cJSON *const item = napier_json_member(json, json->root, "decoder");
    napier_decoder *const d = &t->decoder;
    const char *const wanted = t->vocabulary.of_characters ? "Sequence or Metaspace" : "ByteLevel";
    if (item == NULL) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "decoder: none, but only %s is supported", wanted);
        return;
    }
    if (!t->vocabulary.of_characters) {
        d->joins_bytes = napier_load_type(json, item, where, "ByteLevel");
    } else if (napier_load_is(json, item, where, "Sequence")) {
        read_sequence(json, d, napier_json_member(json, item, "decoders"));
    } else if (napier_load_is(json, item, where, "Metaspace")) {
        read_metaspace(json, d, item);
    } else {
        napier_load_type(json, item, where, wanted);
    }
}
