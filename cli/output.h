/* cli/output.h - the file a result goes to. A named file is written beside its place under another name and takes the
 * place when it is complete: whatever fails before then, Ctrl-C included, leaves the old file as it was. */
#ifndef NAPIER_CLI_OUTPUT_H
#define NAPIER_CLI_OUTPUT_H

#include "array.h"
#include "format.h"

#include <stdio.h>

typedef struct output {
    const char *name; /* for messages */
    FILE *file;
    char *place; /* where the file is to be in the end; NULL: it is written where it is (standard output, a device) */
    char *temporary; /* where it is until then */
    file_format format;
    napier_dtype dtype;
    int64_t columns; /* of a line of text */
    int64_t column;  /* where the next number goes */
} output;

/* The format for a result when nothing says otherwise: the name's, else for a terminal or text input text, else .npy. */
file_format output_format(const char *path, file_format input_format);

/* Opens `path` (NULL or "-": standard output). Discard the output even after a failure. */
int output_open(output *out, const char *path);

/* What will be written. Text takes its columns from the last dimension of two and more, and `header` (NULL: none) as its
 * first line. */
int output_begin(output *out, file_format format, napier_dtype dtype, const array_shape *shape, const char *header);

/* The next elements in the order of the shape, at most what is left of it. Changes their byte order in place where the
 * file's is another. */
int output_write(output *out, void *elements, int64_t count);

/* The file is complete: it goes to the disk and to its place. */
int output_commit(output *out);

/* Frees all. A file that is not committed is removed. */
void output_discard(output *out);

#endif
