/* lm/text/json.c - parses with cJSON, and checks what cJSON does not. */
#include "lm/text/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "lm/text/file.h"

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

napier_shown napier_show(const char *text, size_t size) {
    napier_shown shown;
    const size_t room = sizeof shown.text - 1;
    const size_t kept = size > room ? room - 3 : size;
    for (size_t i = 0; i < kept; i++) {
        const unsigned char c = (unsigned char)text[i];
        shown.text[i] = (char)(c >= 0x20 && c < 0x7f ? c : '?');
    }
    memcpy(shown.text + kept, size > room ? "..." : "", size > room ? 4 : 1);
    return shown;
}

napier_shown napier_show_text(const char *text) { return napier_show(text, strlen(text)); }

napier_shown napier_show_item(const cJSON *item) {
    napier_shown shown = {"nothing"};
    if (cJSON_IsString(item)) {
        snprintf(shown.text, sizeof shown.text, "\"%.*s\"", (int)sizeof shown.text - 3,
                 napier_show_text(item->valuestring).text);
    } else if (cJSON_IsNumber(item)) {
        snprintf(shown.text, sizeof shown.text, "%.17g", item->valuedouble);
    } else if (item != NULL) {
        const char *const kind = cJSON_IsTrue(item)    ? "true"
                                 : cJSON_IsFalse(item) ? "false"
                                 : cJSON_IsNull(item)  ? "null"
                                 : cJSON_IsArray(item) ? "an array"
                                                       : "an object";
        snprintf(shown.text, sizeof shown.text, "%s", kind);
    }
    return shown;
}

napier_status napier_json_fail(napier_json *json, napier_status status, const char *format, ...) {
    if (json->status) {
        return json->status;
    }
    char text[NAPIER_ERROR_TEXT];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    const size_t length = strlen(json->name), most = 96; /* of a long path only the end */
    return json->status = napier_fail(json->context, status, "%s%s: %s", length > most ? "..." : "",
                                      json->name + (length > most ? length - most : 0), text);
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

/* True if a string has \u0000, as an escape or as the byte itself. */
static bool has_zero(const char *text, size_t size) {
    if (memchr(text, '\0', size) != NULL) {
        return true;
    }
    const char *const end = text + size;
    for (const char *at = memchr(text, '\\', size); at != NULL && end - at >= 2;
         at = memchr(at + 2, '\\', (size_t)(end - at) - 2)) {
        if (end - at >= 6 && memcmp(at, "\\u0000", 6) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_blank(const char *text, const char *end) {
    while (text < end && strchr(" \t\r\n", *text) != NULL) {
        text++;
    }
    return text == end;
}

/* An upper limit of cJSON's memory for a document: an element for each value, a string for each name and text, and
 * malloc's overhead for each. A value is the root, or follows one of [ { , outside of strings. */
static double bytes_taken(const char *text, size_t size) {
    enum { ADDED = 32 };
    size_t values = 1, strings = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"') {
            for (i++, strings++; i < size && text[i] != '"'; i++) {
                i += text[i] == '\\';
            }
        } else {
            values += text[i] == ',' || text[i] == '[' || text[i] == '{';
        }
    }
    return (double)values * (sizeof(cJSON) + ADDED) + (double)strings * ADDED + (double)size;
}

/* cJSON can only use malloc. So this function allocates as much from the context's allocator first and frees it, which
 * lets an allocator with a limit refuse. */
static napier_status check_memory(napier_json *json, const char *text, size_t size) {
    const double bytes = bytes_taken(text, size);
    if (bytes > (double)NAPIER_JSON_MOST_MEMORY) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED,
                                "takes %.0f MB as JSON, more than the %d MB that one file may take", bytes / 1e6,
                                NAPIER_JSON_MOST_MEMORY / 1000000);
    }
    void *const memory = napier_alloc(&json->context->allocator, (size_t)bytes, 1);
    napier_free(&json->context->allocator, memory);
    return memory != NULL ? NAPIER_OK
                          : napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for %.0f bytes of JSON", bytes);
}

/* cJSON does not say why it fails, but errno shows whether malloc failed. */
static napier_status parse_fail(napier_json *json, int reason, const char *text, size_t size, const char *end) {
    if (json->root == NULL && reason == ENOMEM) {
        return napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for its JSON");
    }
    const size_t at = end != NULL && end >= text ? (size_t)(end - text) : 0;
    return napier_json_fail(json, NAPIER_CORRUPT_DATA, "not JSON at byte %zu, '%.20s'", at,
                            napier_show(text + at, size - at).text);
}

napier_status napier_json_parse(napier_json *json, napier_context *context, const char *name, const char *text,
                                size_t size) {
    *json = (napier_json){context, name, NULL, NAPIER_OK};
    if (has_zero(text, size)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "a byte 0 or \\u0000, which no name or token has");
    }
    if (check_memory(json, text, size)) {
        return json->status;
    }
    const char *end = text;
    errno = 0;
    json->root = cJSON_ParseWithLengthOpts(text, size, &end, 0);
    if (json->root == NULL || !is_blank(end, text + size)) {
        return parse_fail(json, errno, text, size, end);
    }
    return cJSON_IsObject(json->root) ? NAPIER_OK : napier_json_fail(json, NAPIER_CORRUPT_DATA, "not an object, {...}");
}

napier_status napier_json_load(napier_json *json, napier_context *context, const char *path, size_t most) {
    char *bytes;
    size_t size;
    *json = (napier_json){context, path, NULL, napier_read_file(context, path, most, &bytes, &size)};
    if (!json->status) {
        napier_json_parse(json, context, path, bytes, size);
    }
    napier_free(&context->allocator, bytes);
    return json->status;
}

void napier_json_free(napier_json *json) {
    cJSON_Delete(json->root);
    json->root = NULL;
}

/* ---- Members ----------------------------------------------------------------------------------------------------- */

const cJSON *napier_json_member(napier_json *json, const cJSON *object, const char *key) {
    if (json->status) {
        return NULL;
    }
    if (!cJSON_IsObject(object)) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: looked for in %s, where an object should be", key,
                         napier_show_item(object).text);
        return NULL;
    }
    int count = 0;
    const cJSON *member, *found = NULL;
    cJSON_ArrayForEach(member, object) {
        if (strcmp(member->string, key) == 0) {
            count++;
            found = cJSON_IsNull(member) ? NULL : member;
        }
    }
    if (count > 1) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: given %d times", key, count);
        return NULL;
    }
    return found;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static void check_object(napier_json *json, const cJSON *object) {
    const size_t most = (size_t)cJSON_GetArraySize(object);
    const char **const names = napier_alloc(&json->context->allocator, most + 1, sizeof *names);
    size_t count = 0;
    const cJSON *member;
    if (names == NULL) {
        napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for %zu names", most);
        return;
    }
    cJSON_ArrayForEach(member, object) { names[count++] = member->string; }
    qsort(names, count, sizeof *names, by_text);
    for (size_t i = 1, same = 1; i < count; i++) {
        same = strcmp(names[i - 1], names[i]) == 0 ? same + 1 : 1;
        if (same > 1 && (i + 1 == count || strcmp(names[i], names[i + 1]) != 0)) {
            napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: given %zu times", napier_show_text(names[i]).text, same);
        }
    }
    napier_free(&json->context->allocator, names);
}

void napier_json_check_names(napier_json *json, const cJSON *value) {
    const cJSON *part;
    if (cJSON_IsObject(value)) {
        check_object(json, value);
    }
    cJSON_ArrayForEach(part, value) {
        if (part->child != NULL && !json->status) {
            napier_json_check_names(json, part);
        }
    }
}

bool napier_json_is_integer(const cJSON *item, int64_t least, int64_t most) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= (double)least && item->valuedouble <= (double)most)) {
        return false;
    }
    return (double)(int64_t)item->valuedouble == item->valuedouble;
}

/* True if a member is there and has the right type. Fails if the type is wrong. */
static bool is_given(napier_json *json, const char *key, const cJSON *item, bool right, const char *wanted) {
    if (item != NULL && !right) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: %s, where %s should be", key, napier_show_item(item).text,
                         wanted);
    }
    return item != NULL && right;
}

void napier_json_integer(napier_json *json, const cJSON *object, const char *key, int64_t least, int64_t most,
                         int64_t *value) {
    char wanted[80];
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", (long long)least, (long long)most);
    const cJSON *const item = napier_json_member(json, object, key);
    if (is_given(json, key, item, napier_json_is_integer(item, least, most), wanted)) {
        *value = (int64_t)item->valuedouble;
    }
}

void napier_json_number(napier_json *json, const cJSON *object, const char *key, double *value) {
    const cJSON *const item = napier_json_member(json, object, key);
    if (is_given(json, key, item, cJSON_IsNumber(item), "a number")) {
        *value = item->valuedouble;
    }
}

void napier_json_bool(napier_json *json, const cJSON *object, const char *key, bool *value) {
    const cJSON *const item = napier_json_member(json, object, key);
    if (is_given(json, key, item, cJSON_IsBool(item), "true or false")) {
        *value = cJSON_IsTrue(item);
    }
}

void napier_json_text(napier_json *json, const cJSON *object, const char *key, const char **value) {
    const cJSON *const item = napier_json_member(json, object, key);
    if (is_given(json, key, item, cJSON_IsString(item), "a string")) {
        *value = item->valuestring;
    }
}
