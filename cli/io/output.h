/* cli/io/output.h - the files that results go to. A named file is written beside its place under another name. When the
 * command has succeeded, all its files take their places: whatever fails before then, Ctrl-C included, leaves every old
 * file as it was and no new one. */
#ifndef NAPIER_CLI_OUTPUT_H
#define NAPIER_CLI_OUTPUT_H

#include "array.h"
#include "format.h"

#include <stdio.h>

typedef struct output {
    const char *name; /* for messages */
    FILE *file;
    struct output_slot *slot; /* NULL: standard output */
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

/* The file is complete and goes to the disk. It goes to its place with output_settle. */
int output_commit(output *out);

/* Frees all. A file that is not committed is removed. */
void output_discard(output *out);

/* What writing last failed with, by errno: a message unless the reader of a pipe has gone. Returns STATUS_FAILED. */
int output_error(const output *out);

/* The end of a command: if `status` is STATUS_OK, all committed files go to their places, otherwise they are removed.
 * Returns the program's status. */
int output_settle(int status);

/* From here on a signal that ends the program removes what is not in its place. Called once, at the start. */
void output_handle_signals(void);

#endif
