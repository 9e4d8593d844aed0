/* softmax_plain.c - softmax, log_softmax, sparsemax, logsumexp and their gradients for napier.torch, without what an
 * operator of PyTorch costs. Arguments are given by position. A result of None means that only the operator will do, or
 * that an argument is wrong, which the operator's function says in its own words. A result of False means that PyTorch
 * records a gradient. */
#include "softmax.h"

#include "../array/slices.h"

/* A NULL without an error of its own: the caller takes the other way. */
static PyObject *or_none(PyObject *given) {
    if (given) {
        return given;
    }
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* Takes a tensor whose dtype Napier computes with. */
static int take_plain(array *a, PyObject *value, const char *name) {
    if (array_take(a, value, name, TAKE_FLOATS | TAKE_DEVICE | TAKE_PLAIN)) {
        return -1;
    }
    if (a->kind == KIND_TENSOR && a->object == value) {
        return 0;
    }
    array_release(a);
    return -1;
}

static int take_number(PyObject *value, const char *name, double *out) {
    return PyFloat_Check(value) || PyLong_Check(value) ? take_double(value, name, out) : -1;
}

static int take_dimension(PyObject *value, int ndim, int *axis) {
    return PyLong_Check(value) && !PyBool_Check(value) ? take_axis(value, "axis", ndim, axis) : -1;
}

static PyObject *plain_map(map_call *call, device_map *on_device, PyObject *const *v) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    const tensor_use use = tensor_use_of(v, 1);
    array x, y;
    int axis = -1;
    if (use == USE_OTHER || take_number(v[2], "temperature", &options.temperature) ||
        take_masked_rows(v[3], &options) || take_plain(&x, v[0], "x")) {
        return NULL;
    }
    PyObject *given = NULL;
    if (take_dimension(v[1], x.ndim, &axis)) {
        given = NULL;
    } else if (use == USE_RECORDED) {
        given = Py_NewRef(Py_False);
    } else if (!array_make(&y, &x, x.ndim, x.shape, x.dtype)) {
        given = give_or_release(&y, map_arrays("softmax", call, on_device, &x, &y, axis, &options));
    }
    array_release(&x);
    return given;
}

static PyObject *plain_gradient(gradient_call *call, device_gradient *on_device, PyObject *const *v) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array result, grad, y;
    int axis = -1;
    if (tensor_use_of(v, 2) != USE_PLAIN || take_number(v[3], "temperature", &options.temperature) ||
        take_plain(&result, v[0], "result")) {
        return NULL;
    }
    if (take_plain(&grad, v[1], "grad")) {
        array_release(&result);
        return NULL;
    }
    PyObject *given = NULL;
    if (same_shape(&result, &grad) && !same_device(&grad, "grad", &result) &&
        !take_dimension(v[2], result.ndim, &axis) &&
        !array_make(&y, &result, result.ndim, result.shape, result.dtype)) {
        const array *const three[] = {&result, &grad, &y};
        given = give_or_release(&y, gradient_arrays("softmax_backward", call, on_device, three, axis, &options));
    }
    array_release(&result);
    array_release(&grad);
    return given;
}

static PyObject *plain_logsumexp(PyObject *const *v) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    const tensor_use use = tensor_use_of(v, 1);
    int axis = -1, keepdims = 0;
    int64_t shape[MOST_DIMS];
    array x, y;
    if (use == USE_OTHER || take_bool(v[2], "keepdims", &keepdims) ||
        take_number(v[3], "temperature", &options.temperature) || take_plain(&x, v[0], "x")) {
        return NULL;
    }
    PyObject *given = NULL;
    if (take_dimension(v[1], x.ndim, &axis)) {
        given = NULL;
    } else if (use == USE_RECORDED) {
        given = Py_NewRef(Py_False);
    } else if (!array_make(&y, &x, reduced_shape(&x, axis, keepdims, shape), shape, x.dtype)) {
        given = give_or_release(&y, reduce_arrays(&x, &y, axis, &options));
    }
    array_release(&x);
    return given;
}

/* grad has x's shape without the axis, or with size 1 there. */
static PyObject *plain_logsumexp_backward(PyObject *const *v) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array x, grad, want;
    int axis = -1;
    if (tensor_use_of(v, 2) != USE_PLAIN || take_number(v[3], "temperature", &options.temperature) ||
        take_plain(&x, v[0], "x")) {
        return NULL;
    }
    if (take_plain(&grad, v[1], "grad")) {
        array_release(&x);
        return NULL;
    }
    PyObject *given = NULL;
    if (!same_device(&grad, "grad", &x) && !take_dimension(v[2], x.ndim, &axis)) {
        want.ndim = reduced_shape(&x, axis, grad.ndim == x.ndim, want.shape);
        given = same_shape(&want, &grad) ? spread(&x, &grad, axis, false, &options) : NULL;
    }
    array_release(&x);
    array_release(&grad);
    return given;
}

#define PLAIN(name_, how_, ...)                                                               \
    static PyObject *plain_##name_(PyObject *self, PyObject *const *args, Py_ssize_t count) { \
        (void)self;                                                                           \
        return or_none(count == 4 ? how_(__VA_ARGS__ args) : NULL);                           \
    }
#define BOTH(name_) napier_##name_, napier_cuda_##name_,

PLAIN(softmax_of, plain_map, BOTH(softmax))
PLAIN(log_softmax_of, plain_map, BOTH(log_softmax))
PLAIN(sparsemax_of, plain_map, BOTH(sparsemax))
PLAIN(logsumexp_of, plain_logsumexp, )
PLAIN(softmax_to, plain_gradient, BOTH(softmax_backward))
PLAIN(log_softmax_to, plain_gradient, BOTH(log_softmax_backward))
PLAIN(sparsemax_to, plain_gradient, BOTH(sparsemax_backward))
PLAIN(logsumexp_to, plain_logsumexp_backward, )

#define ENTRY(name_, function_) \
    { name_, (PyCFunction)(void (*)(void))plain_##function_, METH_FASTCALL, "See softmax_plain.c." }

PyMethodDef softmax_plain_functions[] = {ENTRY("_plain_softmax", softmax_of),
                                         ENTRY("_plain_log_softmax", log_softmax_of),
                                         ENTRY("_plain_sparsemax", sparsemax_of),
                                         ENTRY("_plain_logsumexp", logsumexp_of),
                                         ENTRY("_plain_softmax_backward", softmax_to),
                                         ENTRY("_plain_log_softmax_backward", log_softmax_to),
                                         ENTRY("_plain_sparsemax_backward", sparsemax_to),
                                         ENTRY("_plain_logsumexp_backward", logsumexp_to),
                                         {NULL, NULL, 0, NULL}};
