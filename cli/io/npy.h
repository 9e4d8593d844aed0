/* cli/io/npy.h - reads headers of NumPy .npy files, versions 1.0, 2.0 and 3.0, also of untrusted files, and writes
 * them.
 * The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 *
 *     "\x93NUMPY"  major  minor  length of the text (2 bytes, from version 2.0 on 4 bytes; little-endian)
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   padded with spaces, then a newline
 *     the elements
 *
 * The text is a Python dict. The parser accepts exactly the three keys, in any order, and nothing that would have to be
 * evaluated. It keeps no state, allocates nothing and reads only the bytes it gets, so a fuzzer may call npy_parse. */
#ifndef NAPIER_CLI_NPY_H
#define NAPIER_CLI_NPY_H

#include "array.h"

enum {
    NPY_MAGIC_SIZE = 6,
    NPY_TEXT_MAX = 65535, /* the longest text of version 1.0; only headers of records are longer */
    NPY_HEADER_MAX = 12 + NPY_TEXT_MAX,
    NPY_ERROR_SIZE = 160
};

#define NPY_MAGIC "\x93NUMPY"

typedef struct npy_header {
    element_type element;
    array_shape shape;
    int64_t count;  /* elements; count * 8 fits an int64_t */
    int64_t offset; /* bytes from the start of the file to the first element */
} npy_header;

/* Reads up to `size` bytes of a file; fewer only at its end or on a read error. */
typedef size_t npy_reader(void *user, void *bytes, size_t size);

/* Reads a header from its first byte on; the reader is then at the first element. On false, `error` says what is wrong,
 * in printable characters. */
bool npy_read_header(npy_reader *read, void *user, npy_header *header, char error[NPY_ERROR_SIZE]);

/* Reads the same from memory. The elements that follow need not be there. */
bool npy_parse(const void *bytes, size_t size, npy_header *header, char error[NPY_ERROR_SIZE]);

/* Writes the header of version 1.0 for little-endian elements of `dtype` into `bytes`, and returns its size, a multiple
 * of 64. bfloat16 is written as ml_dtypes does: '<V2'. */
enum { NPY_WRITTEN_MAX = 1024 };
size_t npy_write_header(char bytes[NPY_WRITTEN_MAX], napier_dtype dtype, const array_shape *shape);

#endif
