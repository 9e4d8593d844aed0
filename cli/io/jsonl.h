/* cli/io/jsonl.h - JSON Lines from untrusted files: an object on each line.
 *
 * cJSON parses (https://github.com/DaveGamble/cJSON). Without it the program reads no JSON Lines and says so. A line
 * has at most 64 MiB, takes at most 1 GiB when parsed (less where memory is short), has no byte 0, nests at most 1000
 * deep, and names no member of an object twice. Blank lines are skipped. Beyond JSON, NaN, Infinity and -Infinity are
 * numbers, as Python's json writes them. The caller gets them as the string "NaN" and as infinite numbers. */
#ifndef NAPIER_CLI_JSONL_H
#define NAPIER_CLI_JSONL_H

#include "program/message.h"
#include "lines.h"
#include "members.h"

struct cJSON;

/* The lines k, counted from 0 without blank ones, with k mod `count` = `index`. {0, 1}: all. */
typedef struct line_shard {
    int64_t index, count;
} line_shard;

struct jsonl_reader;

/* Gets the object on each line, which the reader frees afterwards. Returns STATUS_OK, or STATUS_FAILED after a message,
 * which ends the reading. */
typedef int jsonl_taker(void *user, const struct jsonl_reader *r, const struct cJSON *object);

/* How a command reads a line. */
typedef struct jsonl_form {
    jsonl_taker *take;
    const char *const *used; /* the members that it reads, for members_check; NULL ends them. NULL: not checked */
    bool runs_model;         /* for members_check */
    bool has_texts;          /* it reads strings: an escaped byte 0 (\u0000), where cJSON would end one, is an error */
} jsonl_form;

typedef struct jsonl_reader {
    line_reader lines;
    const jsonl_form *form;
    member_notes ignored;
    line_shard shard;
    int64_t count; /* lines that are not blank, before this one */
    int64_t size;  /* bytes of the file; -1: a pipe */
    char *text;    /* the line as strict JSON */
    int64_t text_capacity;
    struct cJSON *object;
} jsonl_reader;

/* Passes all objects of the file `path` ("-": standard input) to form->take. */
int jsonl_read(const char *path, const jsonl_form *form, void *user);
/* Does the same for the lines of a shard; the others are not parsed. `count` becomes the number of all lines; NULL: not
 * wanted. */
int jsonl_read_shard(const char *path, const jsonl_form *form, line_shard shard, void *user, int64_t *count);
/* Does what jsonl_read does for an open file, which is not closed. */
int jsonl_read_file(FILE *file, const char *name, const jsonl_form *form, void *user);
/* The same without a last line that has no line feed. */
int jsonl_read_complete(FILE *file, const char *name, const jsonl_form *form, void *user);

/* Prints a message with the file and the line in front of it. Returns STATUS_FAILED. */
int jsonl_fault(const jsonl_reader *r, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
