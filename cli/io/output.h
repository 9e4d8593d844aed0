/* cli/io/output.h - the files that results go to. A named file is written under a temporary name in the same folder.
 * When the command has succeeded, all its files take their final names. If anything fails before then, Ctrl-C included,
 * every old file stays as it was and no new one appears. */
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
    int64_t column;  /* of the next number */
} output;

/* The default format of a result: that of the name; else CSV on a terminal for .npy input; else the input's. */
file_format output_format(const char *path, file_format input_format);

/* Opens `path` (NULL or "-": standard output). Discard the output even after a failure. */
int output_open(output *out, const char *path);

/* Says what will be written. Text takes its number of columns from the last of two or more dimensions, and its first
 * line from `header` (NULL: none). */
int output_begin(output *out, file_format format, napier_dtype dtype, const array_shape *shape, const char *header);

/* Writes the next elements in the order of the shape, at most as many as remain. */
int output_write(output *out, const void *elements, int64_t count);

/* Completes the file and writes it to the disk. output_settle gives it its final name. */
int output_commit(output *out);

/* Frees all. A file that is not committed is removed. */
void output_discard(output *out);

/* Reports by errno why writing failed, with a message unless the reader of a pipe has closed it. Returns
 * STATUS_FAILED. */
int output_error(const output *out);

/* ---- Whole files: open, write, commit ---------------------------------------------------------------------------- */

/* An array of f32. */
int output_array(const char *path, file_format format, const array_shape *shape, const float *numbers);
int output_bytes(const char *path, const void *bytes, size_t size);

/* What `print` prints. If it returns STATUS_FAILED, after a message, the file is removed. */
typedef int output_printer(FILE *file, void *user);
int output_print(const char *path, output_printer *print, void *user);

/* Print a number of a dtype as JSON, with the fewest digits that read back as the same value, or NaN, Infinity and
 * -Infinity, as Python's json writes it; and a list of numbers. */
void json_number(FILE *file, napier_dtype dtype, const void *number);
void json_f64(FILE *file, double number);
void json_list(FILE *file, const float *numbers, int64_t count);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Ends a command: if `status` is STATUS_OK, all committed files take their final names, otherwise they are removed.
 * Returns the program's status. */
int output_settle(int status);

/* After this call, a signal that ends the program removes the temporary files. Call it once, at the start. */
void output_handle_signals(void);

#endif
