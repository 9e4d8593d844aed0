/* cli/io/input.h - the array to read, from a file, a pipe or standard input, as .npy, CSV or TSV.
 * Elements come one after another, in the order of `shape`, converted to `dtype`, so an array need not fit into memory.
 * Text is f64 of shape rows x columns; text of one column is a vector. */
#ifndef NAPIER_CLI_INPUT_H
#define NAPIER_CLI_INPUT_H

#include "array.h"
#include "format.h"
#include "program/scratch.h"
#include "text.h"

typedef struct input {
    const char *name; /* for messages */
    FILE *file;
    file_format format; /* never AUTO once open */
    array_shape shape;
    int64_t count;      /* elements; -1: text of which only shape.dim[1] is known so far */
    napier_dtype dtype; /* of the elements that input_read returns */

    element_type element; /* as stored in an .npy file */
    int64_t first;        /* where the elements start in the file; -1: a pipe, which has no positions */
    int64_t next;         /* index of the element that input_read returns next */
    text_reader text;
    double *table;         /* all numbers of a text, once loaded */
    const char *unordered; /* all elements of a Fortran-ordered .npy file, to be returned in C order */
    scratch room;          /* the memory of `unordered` if it is not mapped */
    const void *mapping;
    size_t mapping_size;
} input;

/* Opens `path` ("-": standard input) and reads the header or the first row. AUTO checks the first bytes, then the name.
 * Close the input even after a failure. */
int input_open(input *in, const char *path, file_format format);
/* `columns`: of a text, which of its columns (text_open); NULL: all. */
int input_open_columns(input *in, const char *path, file_format format, const char *columns);
void input_close(input *in);

/* Reads the next `count` elements, or the remaining ones; *got is their number. If the count of a text is -1, it reads
 * whole rows. */
int input_read(input *in, void *out, int64_t count, int64_t *got);

/* Reads the rest of a text, so that its shape and count are known. Does nothing for .npy. */
int input_load(input *in);

/* After this, elements are returned in C order, whatever their order in the file. */
int input_use_c_order(input *in);

/* Ensures that input_seek works: copies a pipe to a temporary file. Call it before the first input_read. */
int input_make_seekable(input *in);

/* Call this before you take memory or disk for all elements, because the header of a pipe may announce any number of
 * them. A large number of elements is copied to a temporary file, which grows only as they arrive. */
int input_arrive(input *in);

/* Opens an array of any format, all of which is read, in C order. */
int input_open_whole(input *in, const char *path);

/* Passes all numbers to `take`, which returns what is wrong with one, or NULL: "is 3, which is neither 0 nor 1". */
typedef const char *number_taker(void *user, double value);
int input_take(input *in, number_taker *take, void *user);

/* Makes input_read continue at element `index`. */
int input_seek(input *in, int64_t index);

/* All elements in memory, if they can be used where they are in the file; else NULL, and input_read must read them. */
const void *input_map(input *in);

/* All elements: those of input_map, or else read into `room`. */
int input_elements(input *in, scratch *room, const void **elements);

/* Makes the numbers of a loaded text f32, in their place. Afterwards only input_map and input_elements give them. */
void input_narrow(input *in);

#endif
