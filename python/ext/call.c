/* call.c - see rl.h. */
#include "ops/rl.h"

void call_start(call_arrays *c, int where) {
    c->count = 0;
    c->what = where;
}

static array *call_next(call_arrays *c) {
    array *a = &c->arrays[c->count];
    a->object = NULL;
    return a;
}

array *call_take(call_arrays *c, PyObject *value, const char *name, int what) {
    array *a = call_next(c);
    if (!value || array_take(a, value, name, what | c->what)) {
        return NULL;
    }
    if (same_device(a, name, &c->arrays[0])) {
        array_release(a);
        return NULL;
    }
    c->count++;
    return a;
}

array *call_make(call_arrays *c, int ndim, const int64_t *shape, napier_dtype dtype) {
    array *a = call_next(c);
    if (array_make(a, &c->arrays[0], ndim, shape, dtype)) {
        array_release(a);
        return NULL;
    }
    c->count++;
    return a;
}

array *call_make_integers(call_arrays *c, int ndim, const int64_t *shape) {
    array *a = call_next(c);
    if (array_make_integers(a, &c->arrays[0], ndim, shape)) {
        array_release(a);
        return NULL;
    }
    c->count++;
    return a;
}

void call_release(call_arrays *c) {
    while (c->count > 0) {
        array_release(&c->arrays[--c->count]);
    }
}

PyObject *call_object(const array *a) { return Py_NewRef(a ? a->object : Py_None); }

int call_vector(call_arrays *c, PyObject *value, const char *name, napier_const_vector *out) {
    *out = (napier_const_vector){0};
    const array *a = call_take(c, value, name, TAKE_SINGLE);
    return a ? array_vector(a, name, out) : value ? -1 : 0;
}

int call_matrix(call_arrays *c, PyObject *value, const char *name, napier_const_matrix *out) {
    *out = (napier_const_matrix){0};
    const array *a = call_take(c, value, name, TAKE_SINGLE);
    return a ? array_matrix(a, name, out) : value ? -1 : 0;
}

/* Replaces the array by a contiguous copy if needed. This is for arrays that are small compared with the others of the
 * call. */
static array *call_contiguous(call_arrays *c, array *a, const char *name, int what) {
    if (!a || array_is_contiguous(a)) {
        return a;
    }
    PyObject *copy = array_copy_contiguous(a);
    c->count--;
    array_release(a);
    a = copy ? call_take(c, copy, name, what) : NULL;
    Py_XDECREF(copy);
    return a;
}

int call_indices(call_arrays *c, PyObject *value, const char *name, napier_indices *out) {
    *out = napier_indices_i64(NULL, 0);
    const array *a = call_contiguous(c, call_take(c, value, name, TAKE_INTEGERS), name, TAKE_INTEGERS);
    return a ? array_indices(a, name, out) : value ? -1 : 0;
}

int call_mask(call_arrays *c, PyObject *value, const char *name, int64_t size, const uint8_t **out) {
    *out = NULL;
    const array *a = call_contiguous(c, call_take(c, value, name, TAKE_BYTES), name, TAKE_BYTES);
    if (!a) {
        return value ? -1 : 0;
    }
    if (a->size != size) {
        PyErr_Format(PyExc_ValueError, "%s: expected %lld elements, got %lld", name, (long long)size,
                     (long long)a->size);
        return -1;
    }
    *out = (const uint8_t *)a->data;
    return 0;
}

int call_made_vector(call_arrays *c, int64_t size, napier_dtype dtype, array **made, napier_vector *out) {
    *made = call_make(c, 1, &size, dtype);
    *out = *made ? napier_array((*made)->data, size, dtype) : (napier_vector){0};
    return *made ? 0 : -1;
}

int call_made_matrix(call_arrays *c, int64_t rows, int64_t cols, napier_dtype dtype, array **made, napier_matrix *out) {
    const int64_t shape[2] = {rows, cols};
    *made = call_make(c, 2, shape, dtype);
    *out = *made ? napier_rows((*made)->data, rows, cols, dtype) : (napier_matrix){0};
    return *made ? 0 : -1;
}
