/* lm/text/json.h - JSON files of models, which may be hostile: tokenizer.json, config.json, headers of safetensors.
 *
 * cJSON parses them (https://github.com/DaveGamble/cJSON). Its memory comes from malloc, not from the context's
 * allocator, because its hooks affect the whole program. cJSON accepts three things that these functions refuse: a
 * member twice in one object, \u0000 in a string (it would end the string), and a document that needs more memory than
 * the limit. */
#ifndef NAPIER_LM_TEXT_JSON_H
#define NAPIER_LM_TEXT_JSON_H

#include <stdbool.h>

#include "core/base/context.h"

struct cJSON;

/* A document, and its name in messages. After the first failure all functions below do nothing, so a reader takes
 * several members and then looks at `status` once. */
typedef struct napier_json {
    napier_context *context;
    const char *name;
    struct cJSON *root;   /* an object */
    napier_status status; /* of the first failure */
} napier_json;

enum { NAPIER_JSON_MOST_MEMORY = 1 << 30 }; /* bytes: Qwen3's tokenizer.json takes less than a tenth */

/* Parses `size` bytes that must be one object. Free the document even after a failure. Errors: CORRUPT_DATA,
 * UNSUPPORTED (more values than NAPIER_JSON_MOST_MEMORY holds), OUT_OF_MEMORY. */
napier_status napier_json_parse(napier_json *json, napier_context *context, const char *name, const char *text,
                                size_t size);
/* The same for a file of at most `most` bytes. Also IO_ERROR. */
napier_status napier_json_load(napier_json *json, napier_context *context, const char *path, size_t most);
void napier_json_free(napier_json *json);

/* Fails with CORRUPT_DATA or another status. The message is the document's name followed by the text. Returns the status
 * of the first failure. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
napier_status
napier_json_fail(napier_json *json, napier_status status, const char *format, ...);

/* The member of that name. NULL if there is none, if it is null, and after a failure. It fails if the member occurs
 * twice, or if `object` is not an object. */
const struct cJSON *napier_json_member(napier_json *json, const struct cJSON *object, const char *key);

/* Fails if the value, an object or an array, has an object within that names a member twice, whoever reads it. */
void napier_json_check_names(napier_json *json, const struct cJSON *value);

/* Reads a member of the given type. If it is absent or null, and after a failure, *value does not change. */
void napier_json_integer(napier_json *json, const struct cJSON *object, const char *key, int64_t least, int64_t most,
                         int64_t *value);
void napier_json_number(napier_json *json, const struct cJSON *object, const char *key, double *value);
void napier_json_bool(napier_json *json, const struct cJSON *object, const char *key, bool *value);
void napier_json_text(napier_json *json, const struct cJSON *object, const char *key, const char **value);

/* True if the number is an integer in [least, most]. Both bounds are less than 2^53. */
bool napier_json_is_integer(const struct cJSON *item, int64_t least, int64_t most);

/* The beginning of an untrusted text, for a message. Bytes that are not printable ASCII become '?'. */
typedef struct napier_shown {
    char text[64];
} napier_shown;
napier_shown napier_show(const char *text, size_t size);
napier_shown napier_show_text(const char *text);

/* Any value of a document, for a message. */
napier_shown napier_show_item(const struct cJSON *item);

#endif
