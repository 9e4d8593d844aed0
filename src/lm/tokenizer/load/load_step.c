/* lm/tokenizer/load/load_step.c - checks of one object of a tokenizer.json, which all other files of this folder use. */
#include <string.h>

#include <cjson/cJSON.h>

#include "lm/tokenizer/tokenizer.h"
#include "lm/tokenizer/unicode.h"

bool napier_load_is(napier_json *json, const cJSON *object, const char *where, const char *type) {
    const cJSON *const item = napier_json_member(json, object, "type");
    if (!cJSON_IsString(item)) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: type %s, where a name should be", where,
                         napier_show_item(item).text);
    }
    return cJSON_IsString(item) && strcmp(item->valuestring, type) == 0;
}

bool napier_load_type(napier_json *json, const cJSON *object, const char *where, const char *only) {
    const bool good = napier_load_is(json, object, where, only);
    if (!good) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: type %s, but only %s is supported", where,
                         napier_show_item(napier_json_member(json, object, "type")).text, only);
    }
    return good;
}

void napier_load_short(napier_json *json, const cJSON *object, const char *where, const char *key,
                       napier_short_text *out) {
    const char *text = NULL;
    napier_json_text(json, object, key, &text);
    const size_t size = text != NULL ? strlen(text) : 0;
    if (text == NULL || size > NAPIER_MOST_STEP_BYTES || napier_utf8_check((const uint8_t *)text, size) < size) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: %s: %s, but a text of at most %d bytes is supported", where,
                         key, text != NULL ? napier_show_text(text).text : "none", NAPIER_MOST_STEP_BYTES);
        return;
    }
    memcpy(out->bytes, text, size);
    out->size = size;
}

void napier_load_replace(napier_json *json, const cJSON *object, const char *where, napier_step *step) {
    const cJSON *const pattern = napier_json_member(json, object, "pattern");
    step->kind = NAPIER_STEP_REPLACE;
    napier_load_short(json, pattern, where, "String", &step->from);
    napier_load_short(json, object, where, "content", &step->to);
    if (step->from.size == 0) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: Replace of an empty text", where);
    }
}

bool napier_load_is_text(const char *text) {
    const size_t size = strlen(text);
    return napier_utf8_check((const uint8_t *)text, size) == size;
}

napier_status napier_load_id(napier_json *json, const char *where, const char *text, const cJSON *id,
                             napier_load_sizes *s) {
    if (!napier_load_is_text(text)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: the token '%s' is not UTF-8", where,
                                napier_show_text(text).text);
    }
    if (!napier_json_is_integer(id, 0, NAPIER_MOST_TOKENS - 1)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: '%s': %s is no id from 0 to %d", where,
                                napier_show_text(text).text, napier_show_item(id).text, NAPIER_MOST_TOKENS - 1);
    }
    s->ids = id->valuedouble >= (double)s->ids ? (int64_t)id->valuedouble + 1 : s->ids;
    return NAPIER_OK;
}

/* Fails with the reason for which a table refused an element. */
