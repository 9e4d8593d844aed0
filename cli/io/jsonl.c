/* cli/io/jsonl.c - reads lines and parses them with cJSON. */
#include "jsonl.h"

#include "program/memory.h"
#include "program/message.h"
#include "source.h"

#ifdef NAPIER_CJSON
#include <cjson/cJSON.h>
#endif

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const size_t most_line = (size_t)64 << 20;

int jsonl_fault(const jsonl_reader *r, const char *format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return complain("%s:%" PRId64 ": %s", r->lines.name, r->lines.line, text);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static bool is_blank(const char *line, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
            return false;
        }
    }
    return true;
}

static int check_bytes(const jsonl_reader *r, const char *line, size_t size) {
    if (r->lines.line == 1 && size >= 6 && memcmp(line, "\x93NUMPY", 6) == 0) {
        return complain("%s: an .npy file, where JSON Lines are read; arrays are given by --logprobs and other options",
                        r->lines.name);
    }
    return memchr(line, '\0', size) != NULL ? jsonl_fault(r, "a byte 0: not JSON Lines") : STATUS_OK;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

#ifdef NAPIER_CJSON

static bool starts_word(const char *line, size_t at, size_t size, const char *word) {
    const size_t length = strlen(word);
    const char before = at > 0 ? line[at - 1] : ' ';
    return size - at >= length && memcmp(line + at, word, length) == 0 && strchr(" \t[,:-", before) != NULL;
}

/* The end of the string that starts with the quote line[at]: the index after its closing quote, or `size`. */
static size_t string_end(const char *line, size_t at, size_t size) {
    for (at++; at < size && line[at] != '"'; at++) {
        at += line[at] == '\\';
    }
    return at < size ? at + 1 : size;
}

/* The end of the part that is JSON already: whole strings, and all characters that cannot start one of the words. */
static size_t plain_end(const char *line, size_t at, size_t size) {
    const size_t start = at;
    while (at < size) {
        if (line[at] == '"') {
            at = string_end(line, at, size);
        } else if ((line[at] == 'N' || line[at] == 'I') && at > start) {
            break;
        } else {
            at++;
        }
    }
    return at;
}

/* Copies the line to r->text, with NaN in quotes and Infinity as a number too large for a double. */
static int make_strict(jsonl_reader *r, const char *line, size_t size) {
    if (!memory_grow(&r->text, &r->text_capacity, (int64_t)(size / 3 * 5 + 3), 1)) { /* NaN to "NaN" */
        return jsonl_fault(r, "out of memory");
    }
    char *to = r->text;
    for (size_t at = 0; at < size;) {
        const bool is_nan = starts_word(line, at, size, "NaN");
        if (is_nan || starts_word(line, at, size, "Infinity")) {
            to = (char *)memcpy(to, is_nan ? "\"NaN\"" : "1e999   ", is_nan ? 5 : 8) + (is_nan ? 5 : 8);
            at += is_nan ? 3 : 8;
            continue;
        }
        const size_t end = plain_end(line, at, size);
        memcpy(to, line + at, end - at);
        to += end - at;
        at = end;
    }
    *to = '\0';
    return STATUS_OK;
}

/* The limit on the memory that cJSON takes for a line. A number takes eighty bytes, forty times its size in the
 * file. */
static size_t most_memory;
static size_t memory_taken;
static bool memory_refused;

static size_t memory_of_a_line(void) {
    const int64_t most = (int64_t)1 << 30;
    const int64_t share = memory_usable() / 2;
    return (size_t)(share < most ? share : most);
}

static void *take_memory(size_t size) {
    void *const memory = size <= most_memory - memory_taken ? malloc(size) : NULL;
    memory_refused = memory_refused || memory == NULL;
    memory_taken += memory != NULL ? size : 0;
    return memory;
}

static int syntax_error(const jsonl_reader *r, const char *at) {
    char shown[32];
    if (memory_refused) {
        return jsonl_fault(r, "a line that takes more than %zu MiB when read: arrays (.npy) take less",
                           most_memory >> 20);
    }
    if (at == NULL || *at == '\0') {
        return jsonl_fault(r, "not JSON at the end of the line");
    }
    return jsonl_fault(r, "not JSON at '%s'%s", printable(shown, sizeof shown, at, strlen(at)),
                       at == r->text ? "; each line is an object, {...}: see --help" : "");
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Of two members with one name cJSON gives the first and Python the last, so no object may have them. */
static int check_names(const jsonl_reader *r, const cJSON *object) {
    const size_t count = (size_t)cJSON_GetArraySize(object);
    const char **const names = malloc((count + 1) * sizeof *names);
    char shown[40];
    int status = names != NULL ? STATUS_OK : jsonl_fault(r, "out of memory");
    size_t n = 0;
    for (const cJSON *member = object->child; names != NULL && member != NULL; member = member->next) {
        names[n++] = member->string;
    }
    if (n > 1) {
        qsort(names, n, sizeof *names, by_name);
    }
    for (size_t i = 1; i < n && status == STATUS_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status =
                jsonl_fault(r, "%s stands there twice", printable(shown, sizeof shown, names[i], strlen(names[i])));
        }
    }
    free(names);
    return status;
}

/* Checks the names of an object and of all objects within it. */
static int check_objects(const jsonl_reader *r, const cJSON *value) {
    int status = cJSON_IsObject(value) ? check_names(r, value) : STATUS_OK;
    for (const cJSON *part = value->child; part != NULL && status == STATUS_OK; part = part->next) {
        status = part->child != NULL ? check_objects(r, part) : STATUS_OK;
    }
    return status;
}

static int check_members(jsonl_reader *r) {
    char text[MEMBERS_TEXT];
    const jsonl_form *const f = r->form;
    const char *const error =
        f->used != NULL ? members_check(&r->ignored, r->object, f->used, f->runs_model, text) : NULL;
    return error != NULL ? jsonl_fault(r, "%s", error) : STATUS_OK;
}

static int parse_object(jsonl_reader *r) {
    cJSON_Hooks hooks = {take_memory, free};
    const char *end = NULL;
    cJSON_InitHooks(&hooks);
    most_memory = memory_of_a_line();
    memory_taken = 0;
    memory_refused = false;
    r->object = cJSON_ParseWithLengthOpts(r->text, strlen(r->text) + 1, &end, false);
    if (r->object == NULL || !is_blank(end, strlen(end))) {
        return syntax_error(r, end);
    }
    return cJSON_IsObject(r->object) ? check_objects(r, r->object) || check_members(r)
                                     : jsonl_fault(r, "not an object, {...}");
}

static void forget_object(jsonl_reader *r) {
    cJSON_Delete(r->object);
    r->object = NULL;
}

#else

static int make_strict(jsonl_reader *r, const char *line, size_t size) {
    (void)line, (void)size;
    return complain("%s: this build has no cJSON, which JSON Lines need; arrays (--logprobs FILE, ...) do not",
                    r->lines.name);
}
static int parse_object(const jsonl_reader *r) {
    (void)r;
    return STATUS_FAILED;
}
static void forget_object(const jsonl_reader *r) { (void)r; }

#endif

static int check_texts(const jsonl_reader *r) {
    for (const char *at = strchr(r->text, '\\'); at != NULL && at[1] != '\0'; at = strchr(at + 2, '\\')) {
        if (strncmp(at, "\\u0000", 6) == 0) {
            return jsonl_fault(r, "\\u0000 in a string");
        }
    }
    return STATUS_OK;
}

static int read_line(jsonl_reader *r, const char *line, size_t size, void *user) {
    const int status = check_bytes(r, line, size) || make_strict(r, line, size) || parse_object(r) ||
                       (r->form->has_texts && check_texts(r)) || r->form->take(user, r, r->object);
    forget_object(r);
    return status;
}

static int read_all(jsonl_reader *r, void *user) {
    char *line = NULL;
    size_t size = 0;
    int status;
    do {
        status = lines_next(&r->lines, &line, &size);
        if (status == STATUS_OK && line != NULL && !is_blank(line, size)) {
            const bool is_ours = r->shard.count < 2 || r->count % r->shard.count == r->shard.index;
            status = is_ours ? read_line(r, line, size, user) : STATUS_OK;
            r->count++;
        }
    } while (status == STATUS_OK && line != NULL);
    if (status == STATUS_OK) {
        members_warn(&r->ignored, r->lines.name);
    }
    lines_free(&r->lines);
    free(r->text);
    return status;
}

int jsonl_read_file(FILE *file, const char *name, const jsonl_form *form, void *user) {
    jsonl_reader r = {.form = form, .size = -1};
    r.lines = (line_reader){.file = file, .name = name, .most = most_line};
    return read_all(&r, user);
}

int jsonl_read_complete(FILE *file, const char *name, const jsonl_form *form, void *user) {
    jsonl_reader r = {.form = form, .size = -1};
    r.lines = (line_reader){.file = file, .name = name, .most = most_line, .is_complete = true};
    return read_all(&r, user);
}

int jsonl_read(const char *path, const jsonl_form *form, void *user) {
    return jsonl_read_shard(path, form, (line_shard){0, 1}, user, NULL);
}

int jsonl_read_shard(const char *path, const jsonl_form *form, line_shard shard, void *user, int64_t *count) {
    jsonl_reader r = {.lines = {.most = most_line}, .form = form, .shard = shard};
    r.lines.file = source_open(path, &r.lines.name);
    if (r.lines.file == NULL) {
        return STATUS_FAILED;
    }
    r.size = source_size(r.lines.file);
    const int status = read_all(&r, user);
    source_close(r.lines.file);
    if (count != NULL) {
        *count = r.count;
    }
    return status;
}
