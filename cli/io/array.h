/* cli/io/array.h - what a file says about its array (element type, shape, order), and the conversion of its
 * elements. */
#ifndef NAPIER_CLI_ARRAY_H
#define NAPIER_CLI_ARRAY_H

#include <napier/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ARRAY_MAX_DIMS = 32 };

typedef enum element_kind { ELEMENT_FLOAT, ELEMENT_BFLOAT, ELEMENT_INT, ELEMENT_UINT, ELEMENT_BOOL } element_kind;

typedef struct element_type {
    element_kind kind;
    size_t size;     /* bytes: 2, 4, 8 for floats, 2 for bfloat, 1 to 8 for integers, 1 for bool */
    bool big_endian; /* as stored; false where size is 1 */
} element_type;

typedef struct array_shape {
    int dims; /* 0 to ARRAY_MAX_DIMS; 0 is a single number */
    int64_t dim[ARRAY_MAX_DIMS];
    bool fortran; /* the first index runs fastest in memory, not the last */
} array_shape;

/* The number of elements; -1 if that many elements of 8 bytes could not be addressed. Dimensions of 0 do not hide an
 * overflow of the others, so the product of any of the dimensions is safe too. */
int64_t shape_count(const array_shape *shape);

/* The dtype in which the elements are computed: floats keep theirs, integers and bool become f64. */
napier_dtype element_dtype(element_type type);

/* Converts stored elements to numbers of element_dtype in this machine's byte order. `raw` may be the last count *
 * type.size bytes of the memory at `out`. */
void elements_convert(element_type type, const void *raw, void *out, int64_t count);

/* Whether elements_convert would change nothing. */
bool element_is_native(element_type type);

/* Reverses the bytes of each of `count` elements of `size` bytes. */
void bytes_swap(void *elements, size_t size, int64_t count);
bool machine_is_big_endian(void);

/* The value of one number of a dtype; every dtype's numbers are doubles too. */
double element_value(napier_dtype dtype, const void *element);

#endif
