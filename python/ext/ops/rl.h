/* rl.h - shared by the functions on tokens and on ragged responses. */
#ifndef NAPIER_PYTHON_RL_H
#define NAPIER_PYTHON_RL_H

#include "../array/device.h"

enum { MOST_ARRAYS = 16 };

/* The arrays of one call: taken and made one by one, released together, also after an error. */
typedef struct call_arrays {
    array arrays[MOST_ARRAYS];
    int count, what; /* what: flags added for each array */
} call_arrays;

/* ON_HOST: arrays on a GPU are refused. ANYWHERE: all arrays may be on one GPU. */
enum { ON_HOST = 0, ANYWHERE = TAKE_DEVICE };
void call_start(call_arrays *c, int where);

/* Takes the next array from the caller's value. Returns NULL with an error set, or, if the value is NULL (absent),
 * without one. */
array *call_take(call_arrays *c, PyObject *value, const char *name, int what);
/* Makes a new array of the first one's kind. */
array *call_make(call_arrays *c, int ndim, const int64_t *shape, napier_dtype dtype);
array *call_make_integers(call_arrays *c, int ndim, const int64_t *shape);
void call_release(call_arrays *c);
/* The object of a new array, as a new reference; None for NULL. */
PyObject *call_object(const array *a);

/* Views of a value that may be absent. They return -1 with an error set. */
int call_vector(call_arrays *c, PyObject *value, const char *name, napier_const_vector *out);
int call_matrix(call_arrays *c, PyObject *value, const char *name, napier_const_matrix *out);
int call_indices(call_arrays *c, PyObject *value, const char *name, napier_indices *out);
/* [size] bytes of any shape, not 0 for tokens that count. */
int call_mask(call_arrays *c, PyObject *value, const char *name, int64_t size, const uint8_t **out);
int call_made_vector(call_arrays *c, int64_t size, napier_dtype dtype, array **made, napier_vector *out);
int call_made_matrix(call_arrays *c, int64_t rows, int64_t cols, napier_dtype dtype, array **made, napier_matrix *out);

#endif
