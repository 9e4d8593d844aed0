/* lm/text/json.h - JSON files of models, read with distrust: tokenizer.json, config.json, headers of safetensors.
 *
 * cJSON parses (https://github.com/DaveGamble/cJSON); its memory comes from malloc, not from the context's allocator: its
 * hooks are of the whole program. What it lets pass and we do not: a member twice in one object, \u0000 in a string,
 * where it would end the string, and a document that takes more memory than it may.
 */
#ifndef NAPIER_LM_TEXT_JSON_H
#define NAPIER_LM_TEXT_JSON_H

#include <stdbool.h>

#include "core/base/context.h"

struct cJSON;

/* A document, and the name by which messages call it. */
typedef struct napier_json {
    napier_context *context;
    const char *name;
    struct cJSON *root; /* an object */
} napier_json;

enum { NAPIER_JSON_MOST_MEMORY = 1 << 30 }; /* bytes: Qwen3's tokenizer.json takes less than a tenth */

/* Parses `size` bytes that must be one object. Free the document even after a failure. Errors: CORRUPT_DATA,
 * UNSUPPORTED (more values than NAPIER_JSON_MOST_MEMORY holds), OUT_OF_MEMORY. */
napier_status napier_json_parse(napier_json *json, napier_context *context, const char *name, const char *text,
                                size_t size);
void napier_json_free(napier_json *json);

/* CORRUPT_DATA (or another status), the text after the document's name. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
napier_status
napier_json_fail(const napier_json *json, napier_status status, const char *format, ...);

/* *item: the member of that name; NULL where there is none or it is null, and after an error. Twice is an error, and so
 * is an `object` that is none. */
napier_status napier_json_member(const napier_json *json, const struct cJSON *object, const char *key,
                                 const struct cJSON **item);

/* A member of a kind. Absent or null: *value stays as it is. */
napier_status napier_json_integer(const napier_json *json, const struct cJSON *object, const char *key, int64_t least,
                                  int64_t most, int64_t *value);
napier_status napier_json_number(const napier_json *json, const struct cJSON *object, const char *key, double *value);
napier_status napier_json_bool(const napier_json *json, const struct cJSON *object, const char *key, bool *value);
napier_status napier_json_text(const napier_json *json, const struct cJSON *object, const char *key,
                               const char **value);

/* Whether a number is whole and lies within [least, most], which are less than 2^53. */
bool napier_json_is_integer(const struct cJSON *item, int64_t least, int64_t most);

/* The beginning of a foreign text, fit for a message: bytes that are not printable ASCII become '?'. */
typedef struct napier_shown {
    char text[64];
} napier_shown;
napier_shown napier_show(const char *text, size_t size);

/* Any value of a document, fit for a message. */
napier_shown napier_show_item(const struct cJSON *item);

#endif
