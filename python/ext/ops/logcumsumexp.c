/* logcumsumexp.c - the logsumexp of every prefix along an axis, and its derivatives. There is no kernel for a GPU. */
#include "softmax.h"

#include "../array/slices.h"

/* The axis, which may not be None. Arguments do not tell that from nothing. */
static int take_one_axis(py_call *c, const caller *from, int place, PyObject *value, const array *x) {
    static const signature names = {.names = {[1] = "axis", [2] = "axis"}};
    int axis = -1;
    if (!c->failed && argument_is_none(&names, from->args, from->count, from->keywords, place)) {
        call_refuse(c, PyExc_TypeError, "axis: expected an integer, got None; logcumsumexp runs along one axis");
    }
    c->failed = c->failed || take_axis(value, "axis", x->ndim, &axis);
    return axis;
}

PYTHON_FUNCTION(logcumsumexp) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array *x;
    PyObject *axis_given;
    napier_dtype dtype;
    TAKE("logcumsumexp", 2, 1, ON_HOST, ARRAY("x", x, TAKE_FLOATS), ARG("axis", axis_given),
         ARG("temperature", options.temperature), DTYPE("dtype", dtype))
    const int axis = take_one_axis(&c, &caller_, 1, axis_given, x);
    array *const y = c.failed ? NULL : call_make(&c, x->ndim, x->shape, dtype ? dtype : x->dtype);
    c.failed = !y || map_arrays(c.function, napier_logcumsumexp, NULL, x, y, axis, &options);
    return call_end_giving(&c, y);
}

/* with_: the name of the gradient or tangent. */
#define DERIVATIVE(name_, with_)                                                                             \
    PYTHON_FUNCTION(name_) {                                                                                 \
        napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;                                        \
        array *x, *with;                                                                                     \
        PyObject *axis_given;                                                                                \
        TAKE(#name_, 3, 2, ON_HOST, ARRAY("x", x, TAKE_FLOATS), ARRAY(with_, with, TAKE_FLOATS),             \
             ARG("axis", axis_given), ARG("temperature", options.temperature))                               \
        return derivative(&c, napier_##name_, with_, x, with, take_one_axis(&c, &caller_, 2, axis_given, x), \
                          &options);                                                                         \
    }

static PyObject *derivative(py_call *c, gradient_call *function, const char *name, const array *x, const array *with,
                            int axis, const napier_softmax_options *options) {
    if (!c->failed && !same_shape(x, with)) {
        call_refuse(c, PyExc_ValueError, "%s: its shape is not that of x", name);
    }
    array *const y = c->failed ? NULL : call_make(c, x->ndim, x->shape, x->dtype);
    const array *const three[] = {x, with, y};
    c->failed = !y || gradient_arrays(c->function, function, NULL, three, axis, options);
    return call_end_giving(c, y);
}

DERIVATIVE(logcumsumexp_backward, "grad_lse")
DERIVATIVE(logcumsumexp_tangent, "tangent")

PyMethodDef logcumsumexp_functions[] = {ENTRY(logcumsumexp), ENTRY(logcumsumexp_backward), ENTRY(logcumsumexp_tangent),
                                        ENTRY_END};
