/* cli/io/input.h - the array to read: from a file, a pipe or standard input; .npy, CSV or TSV.
 * Elements come one after another, in the order of `shape`, converted to `dtype`, so that an array need not fit the
 * memory. Text is f64; its shape is rows x columns, or columns of one are a vector. */
#ifndef NAPIER_CLI_INPUT_H
#define NAPIER_CLI_INPUT_H

#include "array.h"
#include "format.h"
#include "../program/scratch.h"
#include "text.h"

typedef struct input {
    const char *name; /* for messages */
    FILE *file;
    file_format format; /* never AUTO once open */
    array_shape shape;
    int64_t count;      /* elements; -1: text, of which only shape.dim[1] is known so far */
    napier_dtype dtype; /* of what input_read gives */

    element_type element; /* as stored in an .npy file */
    int64_t first;        /* where the elements start in the file; -1: it has no positions (a pipe) */
    int64_t next;         /* index of the element that input_read gives next */
    text_reader text;
    double *table;         /* all of a text's numbers, once loaded */
    const char *unordered; /* all of a Fortran-ordered .npy file's elements, to be given in C order */
    scratch room;          /* where `unordered` lies if it is not mapped */
    void *mapping;
    size_t mapping_size;
} input;

/* Opens `path` ("-": standard input) and reads the header or the first row. AUTO looks at the first bytes, then at the
 * name. Close the input even after a failure. */
int input_open(input *in, const char *path, file_format format);
void input_close(input *in);

/* The next `count` elements, or as many as are left: *got of them. Of a text whose count is -1, whole rows. */
int input_read(input *in, void *out, int64_t count, int64_t *got);

/* Reads the rest of a text, so that its shape and count are known. Nothing to do for .npy. */
int input_load(input *in);

/* From here on elements are given in C order whatever the order in the file. */
int input_use_c_order(input *in);

/* Makes sure that input_seek works: a pipe is copied to a temporary file. Call it before the first input_read. */
int input_make_seekable(input *in);

/* Call it before memory or disk is taken for all elements: the header of a pipe may announce any number of them. Many are
 * copied to a temporary file, which grows only as they come. */
int input_arrive(input *in);

/* input_read goes on at element `index`. */
int input_seek(input *in, int64_t index);

/* All elements as memory, if they can be used where they are in the file; else NULL, and they have to be read. */
const void *input_map(input *in);

#endif
