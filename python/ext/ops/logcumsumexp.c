/* logcumsumexp.c - the logsumexp of every prefix along an axis, and its derivatives. */
#include "softmax.h"

#include "../array/slices.h"

/* There is no kernel for a GPU: arrays are taken without TAKE_DEVICE, which refuses its tensors by name. */
static int axis_of(const signature *names, int place, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
                   PyObject *value, int ndim, int *axis) {
    if (argument_is_none(names, args, count, keywords, place)) {
        PyErr_SetString(PyExc_TypeError, "axis: expected an integer, got None; logcumsumexp runs along one axis");
        return -1;
    }
    *axis = -1;
    return take_axis(value, "axis", ndim, axis);
}

static PyObject *py_logcumsumexp(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"logcumsumexp", 4, 2, 1, {"x", "axis", "temperature", "dtype"}};
    (void)self;
    PyObject *v[4], *given = NULL;
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array x, y;
    if (arguments(&names, args, count, keywords, v) || take_double(v[2], "temperature", &options.temperature) ||
        array_take(&x, v[0], "x", TAKE_FLOATS)) {
        return NULL;
    }
    int axis;
    napier_dtype dtype = x.dtype;
    if (!axis_of(&names, 1, args, count, keywords, v[1], x.ndim, &axis) && !take_dtype(v[3], "dtype", &dtype) &&
        !array_make(&y, &x, x.ndim, x.shape, dtype)) {
        given = give_or_release(&y, map_arrays(names.function, napier_logcumsumexp, NULL, &x, &y, axis, &options));
    }
    array_release(&x);
    return given;
}

static PyObject *derivative(const signature *names, gradient_call *call, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords) {
    PyObject *v[4], *given = NULL;
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array x, with, y;
    if (arguments(names, args, count, keywords, v) || take_double(v[3], "temperature", &options.temperature) ||
        array_take(&x, v[0], "x", TAKE_FLOATS)) {
        return NULL;
    }
    if (array_take(&with, v[1], names->names[1], TAKE_FLOATS)) {
        array_release(&x);
        return NULL;
    }
    int axis;
    if (!same_shape(&x, &with)) {
        PyErr_Format(PyExc_ValueError, "%s: its shape is not that of x", names->names[1]);
    } else if (!axis_of(names, 2, args, count, keywords, v[2], x.ndim, &axis) &&
               !array_make(&y, &x, x.ndim, x.shape, x.dtype)) {
        const array *const three[] = {&x, &with, &y};
        given = give_or_release(&y, gradient_arrays(names->function, call, NULL, three, axis, &options));
    }
    array_release(&x);
    array_release(&with);
    return given;
}

static PyObject *py_logcumsumexp_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"logcumsumexp_backward", 4, 3, 2, {"x", "grad_lse", "axis", "temperature"}};
    (void)self;
    return derivative(&names, napier_logcumsumexp_backward, args, count, keywords);
}

static PyObject *py_logcumsumexp_tangent(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"logcumsumexp_tangent", 4, 3, 2, {"x", "tangent", "axis", "temperature"}};
    (void)self;
    return derivative(&names, napier_logcumsumexp_tangent, args, count, keywords);
}

PyMethodDef logcumsumexp_functions[] = {
    {"logcumsumexp", FAST(py_logcumsumexp),
     "logcumsumexp(x, axis=-1, *, temperature=1.0, dtype=None)\n--\n\n"
     "The logsumexp of every prefix along an axis: element k is log(sum of exp(x / temperature) over elements 0 .. "
     "k).\n\n"
     "Examples\n--------\n"
     ">>> import napier\n>>> napier.logcumsumexp([1000.0, 1000.0, 0.0]).round(4).tolist()\n"
     "[1000.0, 1000.6931, 1000.6931]\n"},
    {"logcumsumexp_backward", FAST(py_logcumsumexp_backward),
     "logcumsumexp_backward(x, grad_lse, axis=-1, *, temperature=1.0)\n--\n\n"
     "The gradient with respect to x, from that with respect to the result of logcumsumexp.\n"
     "\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> napier.logcumsumexp_backward([0.0, 0.0], [0.0, 1.0]).tolist()\n"
     "[0.5, 0.5]\n"},
    {"logcumsumexp_tangent", FAST(py_logcumsumexp_tangent),
     "logcumsumexp_tangent(x, tangent, axis=-1, *, temperature=1.0)\n--\n\n"
     "Forward mode: the tangent of logcumsumexp's result, from that of x. With temperature 1 it is the mean of the "
     "tangents so\nfar, weighted by exp(x).\n"
     "\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> napier.logcumsumexp_tangent([0.0, 0.0], [1.0, 0.0]).tolist()\n"
     "[1.0, 0.5]\n"},
    {NULL, NULL, 0, NULL}};
