/* cli/io/source.h - files to read: from a path, or from standard input. */
#ifndef NAPIER_CLI_SOURCE_H
#define NAPIER_CLI_SOURCE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The name of a file in messages: "standard input" of "-". */
const char *source_name(const char *path);

/* Opens `path` ("-": standard input); *name is its name in messages. Returns NULL after a message, also for a folder,
 * and for a device such as /dev/zero, which has no end. */
FILE *source_open(const char *path, const char **name);

/* Closes any file except standard input. NULL is allowed. */
void source_close(FILE *file);

/* The bytes of a regular file; -1 for any other. */
int64_t source_size(FILE *file);

typedef struct whole_file {
    const char *name;
    char *bytes; /* followed by a '\0' */
    size_t size;
} whole_file;

/* Reads a whole file, which may be a pipe. A file larger than half of the memory (memory_usable) is refused. Free it
 * even after a failure. */
int whole_file_read(whole_file *f, const char *path);
void whole_file_free(whole_file *f);

#endif
