/* cli/io/jsonl.c - reads lines and parses them with cJSON. */
#define _POSIX_C_SOURCE 200809L

#include "jsonl.h"

#include "../program/memory.h"
#include "../program/message.h"
#include "source.h"

#ifdef NAPIER_CJSON
#include <cjson/cJSON.h>
#endif

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const size_t most_line = (size_t)64 << 20;

bool jsonl_available(void) {
#ifdef NAPIER_CJSON
    return true;
#else
    return false;
#endif
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

void jsonl_open_file(jsonl_reader *r, FILE *file, const char *name) {
    memset(r, 0, sizeof *r);
    r->file = file;
    r->name = name;
    r->size = -1;
}

int jsonl_open(jsonl_reader *r, const char *path) {
    const char *name;
    FILE *const file = source_open(path, &name);
    jsonl_open_file(r, file, name);
    if (file == NULL) {
        return STATUS_FAILED;
    }
    r->owns_file = true;
    r->size = source_size(file);
    return STATUS_OK;
}

static int no_memory(const jsonl_reader *r) { return complain("%s:%" PRId64 ": out of memory", r->name, r->line); }

/* Makes space for more of a line: moves what has been read of it to the front, or grows the buffer. */
static int make_room(jsonl_reader *r) {
    enum { FIRST_CAPACITY = 1 << 16 };
    if (r->start > 0) {
        memmove(r->bytes, r->bytes + r->start, r->end - r->start);
        r->end -= r->start;
        r->start = 0;
    }
    if (r->end < r->capacity) {
        return STATUS_OK;
    }
    if (r->capacity >= most_line) {
        return complain("%s:%" PRId64 ": a line of more than %zu MiB", r->name, r->line, most_line >> 20);
    }
    const size_t capacity = r->capacity > 0 ? 2 * r->capacity : FIRST_CAPACITY;
    char *const bytes = realloc(r->bytes, capacity);
    if (bytes == NULL) {
        return no_memory(r);
    }
    r->bytes = bytes;
    r->capacity = capacity;
    return STATUS_OK;
}

/* Reads the next line without its line feed; *line is NULL at the end of the file. */
static int read_line(jsonl_reader *r, const char **line, size_t *size) {
    r->line++;
    for (size_t looked = 0;;) {
        const char *const from = r->bytes != NULL ? r->bytes + r->start : NULL;
        const size_t have = r->end - r->start;
        const char *const newline = have > looked ? memchr(from + looked, '\n', have - looked) : NULL;
        if (newline != NULL || r->at_end) {
            *line = newline != NULL || have > 0 ? from : NULL;
            *size = newline != NULL ? (size_t)(newline - from) : have;
            r->start += newline != NULL ? *size + 1 : have;
            return STATUS_OK;
        }
        looked = have;
        const int status = make_room(r);
        if (status != STATUS_OK) {
            return status;
        }
        const size_t got = fread(r->bytes + r->end, 1, r->capacity - r->end, r->file);
        r->end += got;
        r->used += (int64_t)got;
        r->at_end = got == 0;
        if (ferror(r->file)) {
            return complain("%s: %s", r->name, strerror(errno));
        }
    }
}

static bool is_blank(const char *line, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
            return false;
        }
    }
    return true;
}

static int check_bytes(const jsonl_reader *r, const char *line, size_t size) {
    if (r->line == 1 && size >= 6 && memcmp(line, "\x93NUMPY", 6) == 0) {
        return complain("%s: an .npy file, where JSON Lines are read; arrays are given by --logprobs and other options",
                        r->name);
    }
    if (memchr(line, '\0', size) != NULL) {
        return complain("%s:%" PRId64 ": a byte 0: not JSON Lines", r->name, r->line);
    }
    return STATUS_OK;
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

static int text_room(jsonl_reader *r, size_t size) {
    if (r->text_capacity < size) {
        free(r->text);
        r->text = malloc(size);
        r->text_capacity = r->text != NULL ? size : 0;
    }
    return r->text != NULL ? STATUS_OK : no_memory(r);
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
    const int status = text_room(r, size / 3 * 5 + 3); /* NaN to "NaN" */
    if (status != STATUS_OK) {
        return status;
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
        return complain("%s:%" PRId64 ": a line that takes more than %zu MiB when read: arrays (.npy) take less",
                        r->name, r->line, most_memory >> 20);
    }
    if (at == NULL || *at == '\0') {
        return complain("%s:%" PRId64 ": not JSON at the end of the line", r->name, r->line);
    }
    return complain("%s:%" PRId64 ": not JSON at '%s'", r->name, r->line,
                    printable(shown, sizeof shown, at, strlen(at)));
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
    if (!cJSON_IsObject(r->object)) {
        return complain("%s:%" PRId64 ": not an object, {...}", r->name, r->line);
    }
    return STATUS_OK;
}

static void forget_object(jsonl_reader *r) {
    cJSON_Delete(r->object);
    r->object = NULL;
}

#else

static int make_strict(jsonl_reader *r, const char *line, size_t size) {
    (void)line, (void)size;
    return complain("%s: this build has no cJSON, which JSON Lines need; arrays (--logprobs FILE, ...) do not",
                    r->name);
}
static int parse_object(jsonl_reader *r) {
    (void)r;
    return STATUS_FAILED;
}
static void forget_object(jsonl_reader *r) { (void)r; }

#endif

int jsonl_next(jsonl_reader *r, const struct cJSON **object) {
    const char *line = NULL;
    size_t size = 0;
    int status;
    forget_object(r);
    *object = NULL;
    do {
        status = read_line(r, &line, &size);
    } while (status == STATUS_OK && line != NULL && is_blank(line, size));
    if (status == STATUS_OK && line != NULL) {
        status = check_bytes(r, line, size);
        if (status == STATUS_OK) {
            status = make_strict(r, line, size);
        }
        if (status == STATUS_OK) {
            status = parse_object(r);
        }
        *object = r->object;
    }
    return status;
}

bool jsonl_has_zero(const jsonl_reader *r) {
    for (const char *at = strchr(r->text, '\\'); at != NULL && at[1] != '\0'; at = strchr(at + 2, '\\')) {
        if (strncmp(at, "\\u0000", 6) == 0) {
            return true;
        }
    }
    return false;
}

void jsonl_close(jsonl_reader *r) {
    forget_object(r);
    free(r->bytes);
    free(r->text);
    if (r->owns_file) {
        source_close(r->file);
    }
    memset(r, 0, sizeof *r);
}
