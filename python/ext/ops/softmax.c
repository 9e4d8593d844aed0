/* softmax.c - softmax, log_softmax, logsumexp and their gradients. Every function works on an n-D array and an axis.
 * napier/__init__.py has the docstrings and everything that need not be C. */
#include "softmax.h"

#include "../array/slices.h"

#include <string.h>

static const char *const algorithm_words[] = {"auto", "safe", "online", "parallel"};
static const char *const masked_words[] = {"nan", "zero"};

int take_masked_rows(PyObject *value, napier_softmax_options *options) {
    int masked = NAPIER_MASKED_NAN;
    if (take_word(value, "masked_rows", masked_words, 2, NAPIER_MASKED_NAN, &masked)) {
        return -1;
    }
    options->masked_rows = (napier_masked_rows)masked;
    return 0;
}

static int take_options(PyObject *const *values, napier_softmax_options *options) {
    int algorithm = NAPIER_ALGORITHM_AUTO;
    if (take_double(values[0], "temperature", &options->temperature) ||
        take_word(values[1], "algorithm", algorithm_words, 4, NAPIER_ALGORITHM_AUTO, &algorithm) ||
        take_masked_rows(values[2], options)) {
        return -1;
    }
    options->algorithm = (napier_algorithm)algorithm;
    return 0;
}

bool same_shape(const array *a, const array *b) {
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++) {
        same = a->shape[i] == b->shape[i];
    }
    return same;
}

/* The caller's out after checks, or a new array like x. */
static int result_like(array *y, const array *x, PyObject *out, napier_dtype dtype) {
    if (!out) {
        return array_make(y, x, x->ndim, x->shape, dtype);
    }
    if (array_take(y, out, "out", TAKE_FLOATS | TAKE_WRITABLE | (array_on_device(x) ? TAKE_DEVICE : 0))) {
        return -1;
    }
    if (!same_shape(x, y) || same_device(y, "out", x)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "out: its shape is not that of x");
        }
        array_release(y);
        return -1;
    }
    return 0;
}

/* Takes an input that must be on the device of another one. */
static int take_beside(array *a, PyObject *value, const char *name, const array *other) {
    if (array_take(a, value, name, TAKE_FLOATS | (array_on_device(other) ? TAKE_DEVICE : 0))) {
        return -1;
    }
    if (same_device(a, name, other)) {
        array_release(a);
        return -1;
    }
    return 0;
}

/* Makes an array without gaps one row; without dimensions it is one already. Returns the row's axis. */
static int as_one_row(array *x) {
    if (x->ndim > 0) {
        x->ndim = 1;
        x->shape[0] = x->size;
        x->strides[0] = 1;
    }
    return 0;
}

static bool all_contiguous(array *const *arrays, int count) {
    for (int k = 0; k < count; k++) {
        if (!array_is_contiguous(arrays[k])) {
            return false;
        }
    }
    return true;
}

PyObject *give_or_release(array *y, int failed) {
    if (failed) {
        array_release(y);
        return NULL;
    }
    return array_give(y);
}

/* ---- softmax and log_softmax ------------------------------------------------------------------------------------- */

static napier_status map_slices(napier_context *context, map_call *call, slices *s,
                                const napier_softmax_options *options) {
    napier_status status = NAPIER_OK;
    do {
        status = call(context, slices_matrix(s, 0), writable_matrix(slices_matrix(s, 1)), options);
    } while (!status && slices_next(s));
    return status;
}

static napier_status map_on_device(device_call *on, device_map *call, slices *s,
                                   const napier_softmax_options *options) {
    napier_status status = NAPIER_OK;
    do {
        DEVICE_CALL(status, on, call, slices_matrix(s, 0), writable_matrix(slices_matrix(s, 1)), options);
    } while (!status && slices_next(s));
    return status;
}

/* The library refuses overlaps within a slice. This finds memory that several slices share. In place is allowed. */
static bool slices_overlap(const array *x, const array *y, const slices *s) {
    bool same = x->data == y->data && x->dtype == y->dtype;
    int64_t low[2] = {0, 0}, high[2] = {0, 0};
    const array *const both[] = {x, y};
    for (int d = 0; d < x->ndim; d++) {
        same = same && (x->shape[d] == 1 || x->strides[d] == y->strides[d]);
        for (int k = 0; k < 2; k++) {
            const int64_t reach = both[k]->strides[d] * (x->shape[d] - 1) * (int64_t)napier_dtype_size(both[k]->dtype);
            low[k] += reach < 0 ? reach : 0;
            high[k] += reach > 0 ? reach : 0;
        }
    }
    const intptr_t a = (intptr_t)x->data, b = (intptr_t)y->data;
    const int64_t last_x = a + high[0] + (int64_t)napier_dtype_size(x->dtype) - 1;
    const int64_t last_y = b + high[1] + (int64_t)napier_dtype_size(y->dtype) - 1;
    return s->outer > 0 && !same && a + low[0] <= last_y && b + low[1] <= last_x;
}

int map_arrays(const char *function, map_call *call, device_map *on_device, const array *x, const array *y, int axis,
               const napier_softmax_options *options) {
    slices s;
    const array *const both[] = {x, y};
    slices_start(&s, both, 2, axis, 0);
    if (x->size > 0 && slices_overlap(x, y, &s)) {
        PyErr_SetString(PyExc_ValueError, "out: overlaps x without being x");
        return -1;
    }
    int failed;
    if (x->size > 0) {
        RUN_EITHER(failed, x, function, map_slices(context, call, &s, options),
                   map_on_device(&on, on_device, &s, options), x->size);
    } else { /* the options must still be checked */
        const napier_const_matrix none = {NULL, 0, 0, 0, 1, x->dtype};
        const napier_const_matrix no_result = {NULL, 0, 0, 0, 1, y->dtype};
        RUN(failed, function, call(context, none, writable_matrix(no_result), options));
    }
    return failed;
}

/* `whole`: the axis is None, all elements. */
static PyObject *map_values(const signature *names, map_call *call, device_map *on_device, PyObject *const *v,
                            bool whole) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array x, y;
    if (take_options(v + 2, &options) || array_take(&x, v[0], "x", TAKE_FLOATS | TAKE_DEVICE)) {
        return NULL;
    }
    int axis = -1;
    napier_dtype dtype = x.dtype;
    if (take_axis(v[1], "axis", x.ndim, &axis) || take_dtype(v[5], "dtype", &dtype) ||
        result_like(&y, &x, v[6], dtype)) {
        array_release(&x);
        return NULL;
    }
    int failed = dtype_fits_out(v[5], dtype, v[6], &y);
    const bool copies = whole && !(array_is_contiguous(&x) && array_is_contiguous(&y));
    PyObject *given = NULL;
    if (!failed && copies) {
        given = call_with_copies(names, v);
    } else if (!failed) {
        if (whole) {
            axis = as_one_row(&x);
            as_one_row(&y);
        }
        failed = map_arrays(names->function, call, on_device, &x, &y, axis, &options);
        given = failed ? NULL : v[6] ? Py_NewRef(v[6]) : array_give(&y);
    }
    array_release(&x);
    array_release(&y);
    return given;
}

static PyObject *map_function(const signature *names, map_call *call, device_map *on_device, PyObject *const *args,
                              Py_ssize_t count, PyObject *keywords) {
    PyObject *v[9];
    if (arguments(names, args, count, keywords, v)) {
        return NULL;
    }
    if (v[7] || v[8]) {
        const bool whole = !v[1] && argument_is_none(names, args, count, keywords, 1);
        v[1] = whole ? Py_None : v[1];
        return call_with_copies(names, v);
    }
    if (v[1] && PyTuple_Check(v[1])) {
        return call_with_copies(names, v);
    }
    return map_values(names, call, on_device, v, !v[1] && argument_is_none(names, args, count, keywords, 1));
}

#define MAP_SIGNATURE(name_)                                                                                         \
    {                                                                                                                \
        name_, 9, 2, 1, { "x", "axis", "temperature", "algorithm", "masked_rows", "dtype", "out", "mask", "causal" } \
    }

static PyObject *py_softmax(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = MAP_SIGNATURE("softmax");
    (void)self;
    return map_function(&names, napier_softmax, napier_cuda_softmax, args, count, keywords);
}

static PyObject *py_log_softmax(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = MAP_SIGNATURE("log_softmax");
    (void)self;
    return map_function(&names, napier_log_softmax, napier_cuda_log_softmax, args, count, keywords);
}

static PyObject *py_sparsemax(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = MAP_SIGNATURE("sparsemax");
    (void)self;
    return map_function(&names, napier_sparsemax, napier_cuda_sparsemax, args, count, keywords);
}

/* ---- Their gradients --------------------------------------------------------------------------------------------- */

static napier_status gradient_slices(napier_context *context, gradient_call *call, slices *s,
                                     const napier_softmax_options *options) {
    napier_status status = NAPIER_OK;
    do {
        status = call(context, slices_matrix(s, 0), slices_matrix(s, 1), writable_matrix(slices_matrix(s, 2)), options);
    } while (!status && slices_next(s));
    return status;
}

static napier_status gradient_on_device(device_call *on, device_gradient *call, slices *s,
                                        const napier_softmax_options *options) {
    napier_status status = NAPIER_OK;
    do {
        DEVICE_CALL(status, on, call, slices_matrix(s, 0), slices_matrix(s, 1), writable_matrix(slices_matrix(s, 2)),
                    options);
    } while (!status && slices_next(s));
    return status;
}

int gradient_arrays(const char *function, gradient_call *call, device_gradient *on_device, const array *const *three,
                    int axis, const napier_softmax_options *options) {
    slices s;
    slices_start(&s, three, 3, axis, 0);
    if (three[0]->size > 0 && (slices_overlap(three[0], three[2], &s) || slices_overlap(three[1], three[2], &s))) {
        PyErr_SetString(PyExc_ValueError, "out: overlaps an input without being it");
        return -1;
    }
    int failed = 0;
    if (three[0]->size > 0) {
        RUN_EITHER(failed, three[0], function, gradient_slices(context, call, &s, options),
                   gradient_on_device(&on, on_device, &s, options), three[0]->size);
    }
    return failed;
}

static PyObject *gradient_function(const signature *names, gradient_call *call, device_gradient *on_device,
                                   PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    PyObject *v[5];
    if (arguments(names, args, count, keywords, v)) {
        return NULL;
    }
    if (v[2] && PyTuple_Check(v[2])) {
        return call_with_copies(names, v);
    }
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array result, grad, y;
    if (take_double(v[3], "temperature", &options.temperature) ||
        array_take(&result, v[0], names->names[0], TAKE_FLOATS | TAKE_DEVICE)) {
        return NULL;
    }
    if (take_beside(&grad, v[1], names->names[1], &result)) {
        array_release(&result);
        return NULL;
    }
    PyObject *given = NULL;
    int axis = -1;
    const bool whole = !v[2] && argument_is_none(names, args, count, keywords, 2);
    if (!same_shape(&result, &grad)) {
        PyErr_Format(PyExc_ValueError, "%s: its shape is not that of %s", names->names[1], names->names[0]);
    } else if (!take_axis(v[2], "axis", result.ndim, &axis) && !result_like(&y, &result, v[4], result.dtype)) {
        array *const three[] = {&result, &grad, &y};
        const bool copies = whole && !all_contiguous(three, 3);
        for (int k = 0; whole && !copies && k < 3; k++) {
            axis = as_one_row(three[k]);
        }
        if (copies) {
            given = call_with_copies(names, v);
        } else if (!gradient_arrays(names->function, call, on_device, (const array *const *)three, axis, &options)) {
            given = v[4] ? Py_NewRef(v[4]) : array_give(&y);
        }
        array_release(&y);
    }
    array_release(&result);
    array_release(&grad);
    return given;
}

static PyObject *py_softmax_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"softmax_backward", 5, 3, 2, {"probs", "grad_probs", "axis", "temperature", "out"}};
    (void)self;
    return gradient_function(&names, napier_softmax_backward, napier_cuda_softmax_backward, args, count, keywords);
}

static PyObject *py_log_softmax_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "log_softmax_backward", 5, 3, 2, {"logprobs", "grad_logprobs", "axis", "temperature", "out"}};
    (void)self;
    return gradient_function(&names, napier_log_softmax_backward, napier_cuda_log_softmax_backward, args, count,
                             keywords);
}

static PyObject *py_sparsemax_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "sparsemax_backward", 5, 3, 2, {"probs", "grad_probs", "axis", "temperature", "out"}};
    (void)self;
    return gradient_function(&names, napier_sparsemax_backward, napier_cuda_sparsemax_backward, args, count, keywords);
}

/* ---- logsumexp along an axis ------------------------------------------------------------------------------------- */

static napier_vector slices_vector(const slices *s, int k) {
    const napier_const_matrix m = slices_matrix(s, k);
    return (napier_vector){s->data[k], m.rows, m.rows > 1 ? m.row_stride : 1, m.dtype};
}

static napier_status reduce_slices(napier_context *context, slices *s, const napier_softmax_options *options) {
    napier_status status = NAPIER_OK;
    do {
        status = napier_logsumexp(context, slices_matrix(s, 0), slices_vector(s, 1), options);
    } while (!status && slices_next(s));
    return status;
}

static napier_status reduce_on_device(device_call *on, slices *s, const napier_softmax_options *options) {
    napier_status status = NAPIER_OK;
    do {
        DEVICE_CALL(status, on, napier_cuda_logsumexp, slices_matrix(s, 0), slices_vector(s, 1), options);
    } while (!status && slices_next(s));
    return status;
}

int reduce_arrays(const array *x, const array *y, int axis, const napier_softmax_options *options) {
    slices s;
    const array *const both[] = {x, y};
    slices_start(&s, both, 2, axis, 1);
    int failed = 0;
    if (y->size > 0) {
        RUN_EITHER(failed, x, "logsumexp", reduce_slices(context, &s, options), reduce_on_device(&on, &s, options),
                   x->size);
    }
    return failed;
}

int reduced_shape(const array *x, int axis, bool keepdims, int64_t *shape) {
    int n = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (d != axis || keepdims) {
            shape[n++] = d == axis ? 1 : x->shape[d];
        }
    }
    return n;
}

static int ones(int ndim, int64_t *shape) {
    for (int d = 0; d < ndim; d++) {
        shape[d] = 1;
    }
    return ndim;
}

/* _logsumexp(x, axis, keepdims, temperature, dtype): along one axis; or over all elements with None, where it returns
 * None if they are not contiguous. napier.logsumexp handles tuples and weights. */
static PyObject *py_logsumexp(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "logsumexp", 6, 3, 1, {"a", "axis", "keepdims", "temperature", "algorithm", "dtype"}};
    (void)self;
    PyObject *v[6];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    int axis = -1, keepdims = 0, algorithm = NAPIER_ALGORITHM_AUTO;
    array x, y;
    if (take_bool(v[2], "keepdims", &keepdims) || take_double(v[3], "temperature", &options.temperature) ||
        take_word(v[4], "algorithm", algorithm_words, 4, NAPIER_ALGORITHM_AUTO, &algorithm) ||
        array_take(&x, v[0], "a", TAKE_FLOATS | TAKE_DEVICE)) {
        return NULL;
    }
    options.algorithm = (napier_algorithm)algorithm;
    napier_dtype dtype = x.dtype;
    int64_t shape[MOST_DIMS];
    PyObject *given = NULL;
    if (!v[1] && !array_is_contiguous(&x)) {
        array_release(&x);
        Py_RETURN_NONE;
    }
    const int dims = x.ndim;
    if (!v[1]) {
        as_one_row(&x);
    }
    if (!take_axis(v[1], "axis", x.ndim, &axis) && !take_dtype(v[5], "dtype", &dtype) &&
        !array_make(&y, &x, v[1] ? reduced_shape(&x, axis, keepdims, shape) : ones(keepdims ? dims : 0, shape), shape,
                    dtype)) {
        given = give_or_release(&y, reduce_arrays(&x, &y, axis, &options));
    }
    array_release(&x);
    return given;
}

/* ---- logsumexp with weights -------------------------------------------------------------------------------------- */

static napier_status weighted_slices(napier_context *context, slices *s, const napier_softmax_options *options) {
    napier_status status = NAPIER_OK;
    do {
        status = napier_logsumexp_weighted(context, slices_matrix(s, 0), slices_matrix(s, 1), slices_vector(s, 2),
                                           slices_vector(s, 3), options);
    } while (!status && slices_next(s));
    return status;
}

static PyObject *weighted_arrays(const array *x, const array *b, int axis, bool keepdims, napier_dtype dtype,
                                 const napier_softmax_options *options) {
    int64_t shape[MOST_DIMS];
    const int ndim = reduced_shape(x, axis, keepdims, shape);
    array lse, sign;
    if (array_make(&lse, x, ndim, shape, dtype)) {
        return NULL;
    }
    if (array_make(&sign, x, ndim, shape, dtype)) {
        array_release(&lse);
        return NULL;
    }
    slices s;
    const array *const four[] = {x, b, &lse, &sign};
    slices_start(&s, four, 4, axis, 2);
    int failed = 0;
    if (lse.size > 0) {
        RUN_SIZED(failed, "logsumexp", weighted_slices(context, &s, options), x->size);
    }
    PyObject *first = give_or_release(&lse, failed), *second = give_or_release(&sign, failed);
    PyObject *pair = first && second ? PyTuple_Pack(2, first, second) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    return pair;
}

/* _logsumexp_weighted(a, b, axis, keepdims, temperature, algorithm, dtype): the logsumexp and its sign along one axis,
 * for arrays of one shape. */
static PyObject *py_logsumexp_weighted(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "logsumexp", 7, 4, 2, {"a", "b", "axis", "keepdims", "temperature", "algorithm", "dtype"}};
    (void)self;
    PyObject *v[7], *given = NULL;
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    int axis = -1, keepdims = 0, algorithm = NAPIER_ALGORITHM_AUTO;
    array x, b;
    if (arguments(&names, args, count, keywords, v) || take_bool(v[3], "keepdims", &keepdims) ||
        take_double(v[4], "temperature", &options.temperature) ||
        take_word(v[5], "algorithm", algorithm_words, 4, NAPIER_ALGORITHM_AUTO, &algorithm) ||
        array_take(&x, v[0], "a", TAKE_FLOATS)) {
        return NULL;
    }
    if (array_take(&b, v[1], "b", TAKE_FLOATS)) {
        array_release(&x);
        return NULL;
    }
    options.algorithm = (napier_algorithm)algorithm;
    napier_dtype dtype = x.dtype == b.dtype                               ? x.dtype
                         : x.dtype == NAPIER_F64 || b.dtype == NAPIER_F64 ? NAPIER_F64
                                                                          : NAPIER_F32;
    if (!same_shape(&x, &b)) {
        PyErr_SetString(PyExc_ValueError, "b: its shape is not that of a");
    } else if (!take_axis(v[2], "axis", x.ndim, &axis) && !take_dtype(v[6], "dtype", &dtype)) {
        given = weighted_arrays(&x, &b, axis, keepdims, dtype, &options);
    }
    array_release(&x);
    array_release(&b);
    return given;
}

/* ---- logsumexp of everything, and the gradients of both ---------------------------------------------------------- */

static PyObject *py_logsumexp_all(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"logsumexp_all", 3, 1, 1, {"x", "temperature", "dtype"}};
    (void)self;
    PyObject *v[3];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix m;
    array x, y;
    if (take_double(v[1], "temperature", &options.temperature) ||
        array_take(&x, v[0], "x", TAKE_FLOATS | TAKE_DEVICE)) {
        return NULL;
    }
    napier_dtype dtype = x.dtype;
    PyObject *given = NULL;
    if (!take_dtype(v[2], "dtype", &dtype) && !array_matrix(&x, "x", &m) && !array_make(&y, &x, 0, NULL, dtype)) {
        int failed;
        RUN_ANYWHERE(failed, &x, "logsumexp_all", napier_logsumexp_all, napier_cuda_logsumexp_all, m,
                     napier_array(y.data, 1, dtype), &options);
        given = give_or_release(&y, failed);
    }
    array_release(&x);
    return given;
}

static napier_status spread_slices(napier_context *context, slices *s, const napier_softmax_options *options) {
    napier_status status = NAPIER_OK;
    do {
        const napier_const_matrix g = slices_matrix(s, 2);
        const napier_const_vector grad = {s->data[2], g.rows, g.rows > 1 ? g.row_stride : 1, g.dtype};
        status = napier_logsumexp_backward(context, slices_matrix(s, 0), grad, writable_matrix(slices_matrix(s, 1)),
                                           options);
    } while (!status && slices_next(s));
    return status;
}

static napier_status spread_on_device(device_call *on, slices *s, const napier_softmax_options *options) {
    napier_status status = NAPIER_OK;
    do {
        const napier_const_matrix g = slices_matrix(s, 2);
        const napier_const_vector grad = {s->data[2], g.rows, g.rows > 1 ? g.row_stride : 1, g.dtype};
        DEVICE_CALL(status, on, napier_cuda_logsumexp_backward, slices_matrix(s, 0), grad,
                    writable_matrix(slices_matrix(s, 1)), options);
    } while (!status && slices_next(s));
    return status;
}

PyObject *spread(array *x, array *grad, int axis, bool whole, const napier_softmax_options *options) {
    array y;
    if (array_make(&y, x, x->ndim, x->shape, x->dtype)) {
        return NULL;
    }
    if (whole) {
        axis = as_one_row(x);
        as_one_row(&y);
        grad->ndim = 0;
    }
    const array *const three[] = {x, &y, grad};
    slices s;
    slices_start(&s, three, 3, axis, 1);
    int failed = 0;
    if (x->size > 0) {
        RUN_EITHER(failed, x, "logsumexp_backward", spread_slices(context, &s, options),
                   spread_on_device(&on, &s, options), INT64_MAX);
    }
    return give_or_release(&y, failed);
}

static bool grad_fits(const array *x, const array *grad, int axis, bool whole) {
    array want;
    want.ndim = reduced_shape(x, axis, false, want.shape);
    if (whole ? grad->size == 1 : same_shape(&want, grad)) {
        return true;
    }
    PyErr_SetString(PyExc_ValueError, whole ? "grad_lse: expected 1 element, as axis is None"
                                            : "grad_lse: its shape is not that of x without the axis");
    return false;
}

static PyObject *py_logsumexp_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"logsumexp_backward", 4, 3, 2, {"x", "grad_lse", "axis", "temperature"}};
    (void)self;
    PyObject *v[4];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array x, grad;
    if (take_double(v[3], "temperature", &options.temperature) ||
        array_take(&x, v[0], "x", TAKE_FLOATS | TAKE_DEVICE)) {
        return NULL;
    }
    if (take_beside(&grad, v[1], "grad_lse", &x)) {
        array_release(&x);
        return NULL;
    }
    int axis = -1;
    PyObject *given = NULL;
    const bool whole = !v[2] && argument_is_none(&names, args, count, keywords, 2);
    if (!take_axis(v[2], "axis", x.ndim, &axis) && grad_fits(&x, &grad, axis, whole)) {
        given =
            whole && !array_is_contiguous(&x) ? call_with_copies(&names, v) : spread(&x, &grad, axis, whole, &options);
    }
    array_release(&x);
    array_release(&grad);
    return given;
}

/* grad_lse: a number, as an array of one element. */
static PyObject *py_logsumexp_all_backward(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                           PyObject *keywords) {
    static const signature names = {"logsumexp_all_backward", 3, 2, 2, {"x", "grad_lse", "temperature"}};
    (void)self;
    PyObject *v[3];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix m, out;
    array x, grad, y;
    if (take_double(v[2], "temperature", &options.temperature) ||
        array_take(&x, v[0], "x", TAKE_FLOATS | TAKE_DEVICE)) {
        return NULL;
    }
    if (take_beside(&grad, v[1], "grad_lse", &x)) {
        array_release(&x);
        return NULL;
    }
    PyObject *given = NULL;
    if (grad.size != 1) {
        PyErr_Format(PyExc_ValueError, "grad_lse: expected 1 element, got %lld", (long long)grad.size);
    } else if (!array_matrix(&x, "x", &m) && !array_make(&y, &x, x.ndim, x.shape, x.dtype)) {
        const napier_const_vector g = {grad.data, 1, 1, grad.dtype};
        int failed = array_matrix(&y, "x", &out);
        if (!failed) {
            RUN_ANYWHERE(failed, &x, names.function, napier_logsumexp_all_backward, napier_cuda_logsumexp_all_backward,
                         m, g, writable_matrix(out), &options);
        }
        given = give_or_release(&y, failed);
    }
    array_release(&x);
    array_release(&grad);
    return given;
}

PyMethodDef softmax_functions[] = {
    {"softmax", FAST(py_softmax),
     "softmax(x, axis=-1, *, temperature=1.0, algorithm='auto', masked_rows='nan', dtype=None, out=None, mask=None, "
     "causal=False)\n--\n\n"
     "exp(x / temperature - logsumexp) along an axis.\n\n"
     "Parameters\n----------\n"
     "x : array of any shape\n"
     "    NumPy array (float16, float32, float64, ml_dtypes' bfloat16), PyTorch tensor on the CPU, anything with "
     "DLPack or\n"
     "    the buffer protocol, or nested lists. Integers become float64. Views of any strides are read as they lie.\n"
     "axis : int, tuple of int, or None\n    Several axes, or all (None): their elements are one row, in row-major "
     "order, as in "
     "SciPy.\n"
     "temperature : float, > 0\n"
     "algorithm : 'auto', 'safe', 'online', 'parallel'\n    How a row is read; all give the same bits.\n"
     "masked_rows : 'nan' or 'zero'\n    What a row of only -inf gives.\n"
     "dtype : of the result; default: x's. With `out` it must be out's.\n"
     "out : array to write to, of x's shape; may be x itself\n"
     "mask : bool or int array that broadcasts to x, or None\n    0 hides an element, as -inf does, whatever it is.\n"
     "causal : bool\n    Of the last two axes, queries and keys, the last query keeps all keys, and each earlier query "
     "one fewer.\n\n"
     "Returns\n-------\nAn array of x's kind and shape, or `out`.\n\n"
     "Examples\n--------\n"
     ">>> import napier\n>>> napier.softmax([1000.0, 1001.0, 1002.0]).round(4)\narray([0.09  , 0.2447, 0.6652])\n"},
    {"log_softmax", FAST(py_log_softmax),
     "log_softmax(x, axis=-1, *, temperature=1.0, algorithm='auto', masked_rows='nan', dtype=None, out=None, "
     "mask=None, causal=False)\n--\n\n"
     "x / temperature - logsumexp along an axis; never positive. Parameters as in softmax; a row of only -inf gives "
     "-inf\n"
     "with masked_rows='zero'.\n\n"
     "Examples\n--------\n"
     ">>> import napier\n>>> napier.log_softmax([[0.0, -1e30], [5.0, 5.0]]).round(4).tolist()\n"
     "[[0.0, -1e+30], [-0.6931, -0.6931]]\n"},
    {"sparsemax", FAST(py_sparsemax),
     "sparsemax(x, axis=-1, *, temperature=1.0, algorithm='auto', masked_rows='nan', dtype=None, out=None, mask=None, "
     "causal=False)\n--\n\n"
     "The probabilities nearest to x / temperature along an axis; most are exactly 0. Parameters as in softmax; "
     "algorithm\nchanges nothing.\n\n"
     "Examples\n--------\n"
     ">>> import napier\n>>> napier.sparsemax([1.0, 1.5, 0.25, -3.0]).tolist()\n[0.25, 0.75, 0.0, 0.0]\n"},
    {"_logsumexp", FAST(py_logsumexp),
     "_logsumexp(x, axis, keepdims, *, temperature, algorithm, dtype)\n--\n\nAlong one axis."},
    {"_logsumexp_weighted", FAST(py_logsumexp_weighted),
     "_logsumexp_weighted(a, b, axis, keepdims, *, temperature, algorithm, dtype)\n--\n\n"
     "(logsumexp, sign) along one axis, with weights b of a's shape."},
    {"logsumexp_all", FAST(py_logsumexp_all),
     "logsumexp_all(x, *, temperature=1.0, dtype=None)\n--\n\n"
     "logsumexp of all elements of an array of 1 or 2 dimensions, with the bits of one row that holds them in "
     "row-major\n"
     "order.\n"
     "\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> round(napier.logsumexp_all([[0.0, 0.0], [0.0, 0.0]]).item(), 4)\n"
     "1.3863\n"},
    {"softmax_backward", FAST(py_softmax_backward),
     "softmax_backward(probs, grad_probs, axis=-1, *, temperature=1.0, out=None)\n--\n\n"
     "The gradient with respect to the logits, from the result of softmax and the gradient with respect to it; axis as "
     "there.\n"
     "\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> probs = napier.softmax([0.0, 0.0])\n"
     ">>> napier.softmax_backward(probs, [1.0, 0.0]).tolist()\n"
     "[0.25, -0.25]\n"},
    {"sparsemax_backward", FAST(py_sparsemax_backward),
     "sparsemax_backward(probs, grad_probs, axis=-1, *, temperature=1.0, out=None)\n--\n\n"
     "The gradient with respect to the logits, from the result of sparsemax and the gradient with respect to it; axis "
     "as "
     "there.\n"
     "\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> probs = napier.sparsemax([1.0, 0.5, -1.0])\n"
     ">>> napier.sparsemax_backward(probs, [1.0, 0.0, 5.0]).tolist()\n"
     "[0.5, -0.5, 0.0]\n"},
    {"log_softmax_backward", FAST(py_log_softmax_backward),
     "log_softmax_backward(logprobs, grad_logprobs, axis=-1, *, temperature=1.0, out=None)\n--\n\n"
     "The gradient with respect to the logits, from the result of log_softmax and the gradient with respect to it; "
     "axis as there.\n"
     "\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> logprobs = napier.log_softmax([1.0, 2.0, 3.0])\n"
     ">>> napier.log_softmax_backward(logprobs, [0.0, 0.0, -1.0]).round(4).tolist()\n"
     "[0.09, 0.2447, -0.3348]\n"},
    {"logsumexp_backward", FAST(py_logsumexp_backward),
     "logsumexp_backward(x, grad_lse, axis=-1, *, temperature=1.0)\n--\n\n"
     "grad_lse * softmax(x / temperature) / temperature; grad_lse has x's shape without the axis, and one element "
     "where "
     "it is\nNone, for all elements.\n"
     "\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> napier.logsumexp_backward([[0.0, 0.0], [0.0, -1e30]], [1.0, 2.0]).tolist()\n"
     "[[0.5, 0.5], [2.0, 0.0]]\n"},
    {"logsumexp_all_backward", FAST(py_logsumexp_all_backward),
     "logsumexp_all_backward(x, grad_lse, *, temperature=1.0)\n--\n\n"
     "The gradient of logsumexp_all with respect to x; grad_lse is a number.\n"
     "\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> napier.logsumexp_all_backward([[0.0, 0.0], [0.0, 0.0]], 2.0).tolist()\n"
     "[[0.5, 0.5], [0.5, 0.5]]\n"},
    {NULL, NULL, 0, NULL}};
