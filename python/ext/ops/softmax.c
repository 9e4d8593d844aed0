/* softmax.c - softmax, log_softmax, logsumexp and their gradients. Every function works on an n-D array and an axis.
 * napier/__init__.py has the docstrings and everything that need not be C. */
#include "softmax.h"

#include "../array/slices.h"

#include <string.h>

static const word_list algorithm_words = {NAPIER_ALGORITHM_AUTO, 4, {"auto", "safe", "online", "parallel"}};

static int take_options(PyObject *const *values, napier_softmax_options *options) {
    return take_double(values[0], "temperature", &options->temperature) ||
           take_word_of(values[1], "algorithm", &algorithm_words, &options->algorithm) ||
           take_word_of(values[2], "masked_rows", &masked_words, &options->masked_rows);
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

/* The result's object, or NULL if the call failed. */
static PyObject *give_or_release(array *y, int failed) {
    if (failed) {
        array_release(y);
        return NULL;
    }
    return array_give(y);
}

/* ---- Slice by slice ---------------------------------------------------------------------------------------------- */

/* One operation on slices of up to four arrays: the host's function and the device's. */
typedef struct operation {
    enum { MAP, GRADIENT, DOT, REDUCE, SPREAD, REDUCE_WEIGHTED } kind;
    map_call *map;
    device_map *map_on_device;
    gradient_call *gradient;
    device_gradient *gradient_on_device;
} operation;

static napier_vector slices_vector(const slices *s, int k) {
    const napier_const_matrix m = slices_matrix(s, k);
    return (napier_vector){s->data[k], m.rows, m.rows > 1 ? m.row_stride : 1, m.dtype};
}

static napier_const_vector slices_const_vector(const slices *s, int k) {
    const napier_vector v = slices_vector(s, k);
    return (napier_const_vector){v.data, v.size, v.stride, v.dtype};
}

static napier_status run_slice(napier_context *context, const operation *o, const slices *s,
                               const napier_softmax_options *options) {
    const napier_const_matrix first = slices_matrix(s, 0), second = slices_matrix(s, 1);
    switch (o->kind) {
    case MAP: return o->map(context, first, writable_matrix(second), options);
    case GRADIENT: return o->gradient(context, first, second, writable_matrix(slices_matrix(s, 2)), options);
    case DOT: return napier_dot_rows(context, first, second, slices_vector(s, 2));
    case REDUCE: return napier_logsumexp(context, first, slices_vector(s, 1), options);
    case SPREAD:
        return napier_logsumexp_backward(context, first, slices_const_vector(s, 2), writable_matrix(second), options);
    default:
        return napier_logsumexp_weighted(context, first, second, slices_vector(s, 2), slices_vector(s, 3), options);
    }
}

static napier_status run_slice_on_device(device_call *on, const operation *o, const slices *s,
                                         const napier_softmax_options *options) {
    const napier_const_matrix first = slices_matrix(s, 0), second = slices_matrix(s, 1);
    napier_status status;
    switch (o->kind) {
    case MAP: DEVICE_CALL(status, on, o->map_on_device, first, writable_matrix(second), options); break;
    case GRADIENT:
        DEVICE_CALL(status, on, o->gradient_on_device, first, second, writable_matrix(slices_matrix(s, 2)), options);
        break;
    case DOT: DEVICE_CALL(status, on, napier_cuda_dot_rows, first, second, slices_vector(s, 2)); break;
    case REDUCE: DEVICE_CALL(status, on, napier_cuda_logsumexp, first, slices_vector(s, 1), options); break;
    default:
        DEVICE_CALL(status, on, napier_cuda_logsumexp_backward, first, slices_const_vector(s, 2),
                    writable_matrix(second), options);
    }
    return status;
}

/* Is an element finite (-1), an infinity (0) or NaN (1)? */
static int beside_infinity(const char *at, napier_dtype dtype) {
    const uint64_t infinity = dtype == NAPIER_F64   ? 0x7ff0000000000000
                              : dtype == NAPIER_F32 ? 0x7f800000
                              : dtype == NAPIER_F16 ? 0x7c00
                                                    : 0x7f80;
    const size_t size = napier_dtype_size(dtype), sign = 65 - 8 * size;
    uint64_t bits = 0;
    memcpy(&bits, at, size);
    return (bits << sign > infinity << sign) - (bits << sign < infinity << sign);
}

/* Does a finite logit of a row / temperature overflow? Then all its results are NaN, although all its logits are finite. */
static bool is_overflow(const slices *s, int64_t row) {
    const char *const y = s->data[1] + row * s->row_stride[1] * (int64_t)s->item[1];
    const char *x = s->data[0] + row * s->row_stride[0] * (int64_t)s->item[0];
    bool all = beside_infinity(y, s->dtype[1]) > 0;
    for (int64_t i = 0; i < s->cols && all; i++, x += s->col_stride[0] * (int64_t)s->item[0]) {
        all = beside_infinity(x, s->dtype[0]) < 0;
    }
    return all;
}

/* on: NULL on the host. */
static napier_status run_slices(napier_context *context, device_call *on, const operation *o, slices *s,
                                const napier_softmax_options *options, bool *overflows) {
    const bool look = !on && o->kind == MAP && options->temperature < 1 && s->data[0] != s->data[1];
    napier_status status;
    do {
        status = on ? run_slice_on_device(on, o, s, options) : run_slice(context, o, s, options);
        for (int64_t row = 0; look && !status && !*overflows && row < s->rows; row++) {
            *overflows = is_overflow(s, row);
        }
    } while (!status && slices_next(s));
    return status;
}

/* Runs the operation on arrays that have elements. Returns -1 with an error set. */
static int run_operation(const char *function, const operation *o, const array *like, slices *s,
                         const napier_softmax_options *options, int64_t elements) {
    int failed;
    bool overflows = false;
    RUN_EITHER(failed, like, function, run_slices(context, NULL, o, s, options, &overflows),
               run_slices(NULL, &on, o, s, options, &overflows), elements);
    if (!failed && overflows) {
        return PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                                "%s: x / temperature overflows, and the rows where it does are NaN; use dtype=\"float64\"",
                                function);
    }
    return failed;
}

/* ---- softmax and log_softmax ------------------------------------------------------------------------------------- */

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
    if (x->size > 0) {
        const operation o = {.kind = MAP, .map = call, .map_on_device = on_device};
        return run_operation(function, &o, x, &s, options, x->size);
    }
    const napier_const_matrix none = {NULL, 0, 0, 0, 1, x->dtype};
    const napier_const_matrix no_result = {NULL, 0, 0, 0, 1, y->dtype};
    int failed; /* the options must still be checked */
    RUN(failed, function, call(context, none, writable_matrix(no_result), options));
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

#define MAP_FUNCTION(name_)                                                                              \
    PYTHON_FUNCTION(name_) {                                                                             \
        static const signature names = {                                                                 \
            #name_,                                                                                      \
            9,                                                                                           \
            2,                                                                                           \
            1,                                                                                           \
            {"x", "axis", "temperature", "algorithm", "masked_rows", "dtype", "out", "mask", "causal"}}; \
        (void)self;                                                                                      \
        return map_function(&names, napier_##name_, napier_cuda_##name_, args, count, keywords);         \
    }
MAP_FUNCTION(softmax)
MAP_FUNCTION(log_softmax)
MAP_FUNCTION(sparsemax)

/* ---- Their gradients --------------------------------------------------------------------------------------------- */

int gradient_arrays(const char *function, gradient_call *call, device_gradient *on_device, const array *const *three,
                    int axis, const napier_softmax_options *options) {
    slices s;
    slices_start(&s, three, 3, axis, 0);
    if (three[0]->size > 0 && (slices_overlap(three[0], three[2], &s) || slices_overlap(three[1], three[2], &s))) {
        PyErr_SetString(PyExc_ValueError, "out: overlaps an input without being it");
        return -1;
    }
    const operation o = {.kind = GRADIENT, .gradient = call, .gradient_on_device = on_device};
    return three[0]->size > 0 ? run_operation(function, &o, three[0], &s, options, three[0]->size) : 0;
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

#define GRADIENT_FUNCTION(name_, result_, grad_)                                                          \
    PYTHON_FUNCTION(name_) {                                                                              \
        static const signature names = {#name_, 5, 3, 2, {result_, grad_, "axis", "temperature", "out"}}; \
        (void)self;                                                                                       \
        return gradient_function(&names, napier_##name_, napier_cuda_##name_, args, count, keywords);     \
    }
GRADIENT_FUNCTION(softmax_backward, "probs", "grad_probs")
GRADIENT_FUNCTION(log_softmax_backward, "logprobs", "grad_logprobs")
GRADIENT_FUNCTION(sparsemax_backward, "probs", "grad_probs")

/* ---- logsumexp along an axis ------------------------------------------------------------------------------------- */

/* x to its logsumexp along the axis; y has that axis with size 1, or lacks it. */
static int reduce_arrays(const array *x, const array *y, int axis, const napier_softmax_options *options) {
    slices s;
    const array *const both[] = {x, y};
    slices_start(&s, both, 2, axis, 1);
    const operation o = {.kind = REDUCE};
    return y->size > 0 ? run_operation("logsumexp", &o, x, &s, options, x->size) : 0;
}

/* The shape of x without the axis, or with size 1 there; returns the number of dimensions. */
static int reduced_shape(const array *x, int axis, bool keepdims, int64_t *shape) {
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
PYTHON_FUNCTION(logsumexp) {
    static const signature names = {
        "logsumexp", 6, 3, 1, {"a", "axis", "keepdims", "temperature", "algorithm", "dtype"}};
    (void)self;
    PyObject *v[6];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    int axis = -1, keepdims = 0;
    array x, y;
    if (take_bool(v[2], "keepdims", &keepdims) || take_double(v[3], "temperature", &options.temperature) ||
        take_word_of(v[4], "algorithm", &algorithm_words, &options.algorithm) ||
        array_take(&x, v[0], "a", TAKE_FLOATS | TAKE_DEVICE)) {
        return NULL;
    }
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

/* _logsumexp_weighted(a, b, axis, keepdims, temperature, algorithm, dtype): the logsumexp and its sign along one axis,
 * for arrays of one shape. */
PYTHON_FUNCTION(logsumexp_weighted) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array *x, *b;
    PyObject *axis_given;
    int axis = -1, keepdims = 0;
    napier_dtype dtype;
    TAKE("logsumexp", 4, 2, ON_HOST, ARRAY("a", x, TAKE_FLOATS), ARRAY("b", b, TAKE_FLOATS), ARG("axis", axis_given),
         ARG("keepdims", keepdims), ARG("temperature", options.temperature),
         WORD("algorithm", options.algorithm, algorithm_words), DTYPE("dtype", dtype))
    if (!c.failed && !same_shape(x, b)) {
        call_refuse(&c, PyExc_ValueError, "b: its shape is not that of a");
    }
    if (c.failed || take_axis(axis_given, "axis", x->ndim, &axis)) {
        c.failed = true;
        return call_end(&c);
    }
    const napier_dtype wider = x->dtype != b->dtype && (x->dtype == NAPIER_F64 || b->dtype == NAPIER_F64)
                                   ? NAPIER_F64
                                   : common_dtype(x->dtype, b->dtype);
    int64_t shape[MOST_DIMS];
    const int ndim = reduced_shape(x, axis, keepdims, shape);
    array *const lse = call_make(&c, ndim, shape, dtype ? dtype : wider);
    array *const sign = call_make(&c, ndim, shape, dtype ? dtype : wider);
    if (!c.failed) {
        slices s;
        const operation o = {.kind = REDUCE_WEIGHTED};
        const array *const four[] = {x, b, lse, sign};
        slices_start(&s, four, 4, axis, 2);
        c.failed = lse->size > 0 && run_operation("logsumexp", &o, x, &s, &options, x->size);
    }
    call_add(&c, c.failed ? NULL : array_give(lse));
    call_add(&c, c.failed ? NULL : array_give(sign));
    return call_end(&c);
}

/* ---- Terms of derivatives ---------------------------------------------------------------------------------------- */

/* _dot_rows(a, b, axis): the sums of a * b along the axis, which has size 1 then. */
PYTHON_FUNCTION(dot_rows) {
    array *a, *b;
    PyObject *axis_given;
    int axis = -1;
    int64_t shape[MOST_DIMS];
    TAKE("dot_rows", 3, 2, ANYWHERE, ARRAY("a", a, TAKE_FLOATS), ARRAY("b", b, TAKE_FLOATS), ARG("axis", axis_given))
    if (!c.failed && !same_shape(a, b)) {
        call_refuse(&c, PyExc_ValueError, "b: its shape is not that of a");
    }
    c.failed = c.failed || take_axis(axis_given, "axis", a->ndim, &axis);
    array *const dots = c.failed ? NULL : call_make(&c, reduced_shape(a, axis, true, shape), shape, a->dtype);
    if (dots && dots->size > 0) {
        slices s;
        const operation o = {.kind = DOT};
        const array *const three[] = {a, b, dots};
        slices_start(&s, three, 3, axis, 1);
        c.failed = run_operation("dot_rows", &o, a, &s, NULL, a->size) != 0;
    }
    return call_end_giving(&c, dots);
}

typedef napier_status element_call(napier_context *context, napier_const_vector x, napier_vector y);

static PyObject *each_element(const char *function, element_call *call, PyObject *self, PyObject *const *args,
                              Py_ssize_t count, PyObject *keywords) {
    array *x;
    TAKE(function, 1, 1, ON_HOST, ARRAY("x", x, TAKE_FLOATS | TAKE_CONTIGUOUS))
    array *const y = c.failed ? NULL : call_make(&c, x->ndim, x->shape, x->dtype);
    COMPUTE(call(context, napier_const_array(x->data, x->size, x->dtype), napier_array(y->data, y->size, y->dtype)));
    return call_end_giving(&c, y);
}
PYTHON_FUNCTION(exp) { return each_element("exp", napier_exp, self, args, count, keywords); }
PYTHON_FUNCTION(log) { return each_element("log", napier_log, self, args, count, keywords); }

/* ---- logsumexp of everything, and the gradients of both ---------------------------------------------------------- */

PYTHON_FUNCTION(logsumexp_all) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array *x;
    napier_dtype dtype;
    napier_const_matrix m = {0};
    TAKE("logsumexp_all", 1, 1, ANYWHERE, ARRAY("x", x, TAKE_FLOATS), ARG("temperature", options.temperature),
         DTYPE("dtype", dtype))
    c.failed = c.failed || array_matrix(x, "x", &m);
    array *const y = call_make(&c, 0, NULL, dtype ? dtype : m.dtype);
    const napier_vector lse = y ? napier_array(y->data, 1, y->dtype) : (napier_vector){0};
    COMPUTE_ANYWHERE(napier_logsumexp_all, napier_cuda_logsumexp_all, m, lse, &options);
    return call_end_giving(&c, y);
}

/* The gradient of each element of x. grad has x's shape without the axis, or one element if x is one row. */
static PyObject *spread(array *x, array *grad, int axis, bool whole, const napier_softmax_options *options) {
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
    const operation o = {.kind = SPREAD};
    return give_or_release(&y, x->size > 0 && run_operation("logsumexp_backward", &o, x, &s, options, INT64_MAX));
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

PYTHON_FUNCTION(logsumexp_backward) {
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
PYTHON_FUNCTION(logsumexp_all_backward) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array *x, *grad;
    napier_const_matrix m = {0}, out = {0};
    TAKE("logsumexp_all_backward", 2, 2, ANYWHERE, ARRAY("x", x, TAKE_FLOATS), ARRAY("grad_lse", grad, TAKE_FLOATS),
         ARG("temperature", options.temperature))
    if (!c.failed && grad->size != 1) {
        call_refuse(&c, PyExc_ValueError, "grad_lse: expected 1 element, got %lld", (long long)grad->size);
    }
    c.failed = c.failed || array_matrix(x, "x", &m);
    array *const y = c.failed ? NULL : call_make(&c, x->ndim, x->shape, x->dtype);
    c.failed = !y || array_matrix(y, "x", &out);
    const napier_const_vector g =
        c.failed ? (napier_const_vector){0} : (napier_const_vector){grad->data, 1, 1, grad->dtype};
    COMPUTE_ANYWHERE(napier_logsumexp_all_backward, napier_cuda_logsumexp_all_backward, m, g, writable_matrix(out),
                     &options);
    return call_end_giving(&c, y);
}

PyMethodDef softmax_functions[] = {ENTRY(softmax),
                                   ENTRY(log_softmax),
                                   ENTRY(sparsemax),
                                   ENTRY_AS("_logsumexp", logsumexp),
                                   ENTRY_AS("_logsumexp_weighted", logsumexp_weighted),
                                   ENTRY_AS("_dot_rows", dot_rows),
                                   ENTRY_AS("_exp", exp),
                                   ENTRY_AS("_log", log),
                                   ENTRY(logsumexp_all),
                                   ENTRY(softmax_backward),
                                   ENTRY(sparsemax_backward),
                                   ENTRY(log_softmax_backward),
                                   ENTRY(logsumexp_backward),
                                   ENTRY(logsumexp_all_backward),
                                   ENTRY_END};
