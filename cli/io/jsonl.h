/* cli/io/jsonl.h - JSON Lines from untrusted files: an object on each line.
 *
 * cJSON parses (https://github.com/DaveGamble/cJSON). Without it the program reads no JSON Lines and says so. A line
 * has at most 64 MiB, takes at most 1 GiB when parsed (less where memory is short), has no byte 0, and nests at most
 * 1000 deep. Blank lines are skipped. Beyond JSON, NaN, Infinity and -Infinity are numbers, as Python's json writes
 * them. The caller gets them as the string "NaN" and as infinite numbers. */
#ifndef NAPIER_CLI_JSONL_H
#define NAPIER_CLI_JSONL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;

typedef struct jsonl_reader {
    FILE *file;
    const char *name;   /* for messages */
    int64_t line;       /* number of the last line read, from 1 */
    int64_t size, used; /* bytes of the file and bytes read so far; size -1: a pipe */
    char *bytes;        /* bytes[start .. end): the file from its next line on */
    size_t start, end, capacity;
    bool at_end;
    bool owns_file; /* jsonl_close closes the file */
    char *text;     /* the line as strict JSON */
    size_t text_capacity;
    struct cJSON *object;
} jsonl_reader;

/* Whether this build has cJSON. */
bool jsonl_available(void);

/* Opens `path` ("-": standard input). Close the reader even after a failure. */
int jsonl_open(jsonl_reader *r, const char *path);
/* The same on an open file, which is not closed. */
void jsonl_open_file(jsonl_reader *r, FILE *file, const char *name);
void jsonl_close(jsonl_reader *r);

/* Whether the line has an escaped byte 0 (\u0000), where cJSON would silently end a string. */
bool jsonl_has_zero(const jsonl_reader *r);

/* Reads the object on the next line, which the reader keeps until the next call; NULL at the end of the file. */
int jsonl_next(jsonl_reader *r, const struct cJSON **object);

#endif
