/* cli/io/lines.c - reads lines. */
#include "lines.h"

#include "format.h"
#include "program/memory.h"
#include "program/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1 << 16 };

static int make_space(line_reader *r, size_t wanted) {
    const int64_t most = wanted < FIRST_CAPACITY ? FIRST_CAPACITY : (int64_t)wanted;
    return memory_grow(&r->bytes, &r->capacity, most, 1) ? STATUS_OK : out_of_memory(r->name);
}

int lines_begin(line_reader *r, const void *bytes, size_t size) {
    if (make_space(r, size)) {
        return STATUS_FAILED;
    }
    if (size > 0) {
        memcpy(r->bytes, bytes, size);
    }
    r->end = size;
    return STATUS_OK;
}

/* Refuses a file that is no text. */
static int check_start(const line_reader *r) {
    const char *const foreign = r->line == 1 ? format_foreign(r->bytes, r->end) : NULL;
    return foreign == NULL ? STATUS_OK : complain("%s: %s", r->name, foreign);
}

/* Moves what has been read of a line to the front and reads more. One byte is kept free for the '\0' after the line. */
static int fill(line_reader *r) {
    if (r->start > 0) {
        memmove(r->bytes, r->bytes + r->start, r->end - r->start);
        r->end -= r->start;
        r->start = 0;
    }
    if (r->end > r->most) {
        return r->is_whole ? complain("%s: a text of more than %zu MiB; with --lines each line is a text", r->name,
                                      r->most >> 20)
                           : complain("%s:%" PRId64 ": a line of more than %zu MiB", r->name, r->line, r->most >> 20);
    }
    if (make_space(r, r->end + 2)) {
        return STATUS_FAILED;
    }
    const size_t got = fread(r->bytes + r->end, 1, (size_t)r->capacity - r->end - 1, r->file);
    r->end += got;
    r->used += (int64_t)got;
    r->at_end = got == 0;
    if (ferror(r->file)) {
        return complain("%s: %s", r->name, strerror(errno));
    }
    return check_start(r);
}

int lines_next(line_reader *r, char **line, size_t *size) {
    char *newline = NULL;
    r->line++;
    if (check_start(r)) {
        return STATUS_FAILED;
    }
    for (size_t searched = 0;;) {
        const size_t have = r->end - r->start;
        newline =
            have > searched && !r->is_whole ? memchr(r->bytes + r->start + searched, '\n', have - searched) : NULL;
        if (newline != NULL || r->at_end) {
            break;
        }
        searched = have;
        if (fill(r)) {
            return STATUS_FAILED;
        }
    }
    char *const start = r->bytes + r->start;
    *size = newline != NULL ? (size_t)(newline - start) : r->end - r->start;
    *line = newline != NULL || (*size > 0 && !r->is_complete) ? start : NULL;
    start[*size] = '\0';
    r->start += *size + (newline != NULL);
    return STATUS_OK;
}

void lines_free(line_reader *r) {
    free(r->bytes);
    r->bytes = NULL;
}
