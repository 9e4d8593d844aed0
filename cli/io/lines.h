/* cli/io/lines.h - reads a file of untrusted text line by line. */
#ifndef NAPIER_CLI_LINES_H
#define NAPIER_CLI_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct line_reader {
    FILE *file;
    const char *name; /* for messages */
    size_t most;      /* bytes of a line */
    bool is_whole;    /* the whole file is one line */
    bool is_complete; /* a last line without a line feed is left out */
    int64_t line;     /* number of the last line read, from 1 */
    int64_t used;     /* bytes read from the file */
    char *bytes;      /* bytes[start .. end): the file from its next line on */
    size_t start, end;
    int64_t capacity;
    bool at_end;
} line_reader;

/* Puts bytes that have been read already in front of the file. */
int lines_begin(line_reader *r, const void *bytes, size_t size);

/* Reads the next line without its line feed, '\0'-terminated and valid until the next call; NULL at the end of the
 * file. A line may contain bytes 0. */
int lines_next(line_reader *r, char **line, size_t *size);
void lines_free(line_reader *r);

#endif
