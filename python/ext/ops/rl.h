/* rl.h - what the functions on tokens and on ragged responses share. */
#ifndef NAPIER_PYTHON_RL_H
#define NAPIER_PYTHON_RL_H

#include "../array/device.h"

enum { MOST_ARRAYS = 16 };

/* The arrays of one call: taken and made one by one, released together, whatever happens in between. */
typedef struct call_arrays {
    array arrays[MOST_ARRAYS];
    int count, what; /* what: added to what each of them may be */
} call_arrays;

/* ON_HOST: arrays on a GPU are refused; ANYWHERE: they may all lie on one. */
enum { ON_HOST = 0, ANYWHERE = TAKE_DEVICE };
void call_start(call_arrays *c, int where);

/* The next array, from the caller's value; NULL with an error set, or, if the value is NULL, without one (absent). */
array *call_take(call_arrays *c, PyObject *value, const char *name, int what);
/* A new array of the first one's kind. */
array *call_make(call_arrays *c, int ndim, const int64_t *shape, napier_dtype dtype);
array *call_make_integers(call_arrays *c, int ndim, const int64_t *shape);
void call_release(call_arrays *c);
/* The object of an array that was made, as a new reference; None for NULL. */
PyObject *call_object(const array *a);

/* Views of a value that may be absent. Return -1 with an error set. */
int call_vector(call_arrays *c, PyObject *value, const char *name, napier_const_vector *out);
int call_matrix(call_arrays *c, PyObject *value, const char *name, napier_const_matrix *out);
int call_indices(call_arrays *c, PyObject *value, const char *name, napier_indices *out);
/* [size] bytes of any shape, not 0 where a token counts. */
int call_mask(call_arrays *c, PyObject *value, const char *name, int64_t size, const uint8_t **out);
int call_made_vector(call_arrays *c, int64_t size, napier_dtype dtype, array **made, napier_vector *out);
int call_made_matrix(call_arrays *c, int64_t rows, int64_t cols, napier_dtype dtype, array **made, napier_matrix *out);

#endif
