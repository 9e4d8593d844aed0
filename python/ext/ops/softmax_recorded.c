/* softmax_recorded.c - softmax, log_softmax, sparsemax and logsumexp of a tensor whose gradient PyTorch records: both halves of
 * a node of torch.autograd.Function, without a step in Python. napier/_torch/base.py makes the node's class, and has the
 * gradient where these cannot compute it: one that is recorded itself, traced or batched. */
#include "softmax.h"

typedef struct recorded_function {
    const char *name;
    plain_call *forward, *backward;
    bool of_result;           /* the gradient is made from the result; else from x */
    int temperature;          /* its place among the arguments; the axis is the second */
    PyObject *apply;          /* apply(x) makes a node */
    PyObject *other_backward; /* backward(result or x, grad, axis, temperature) in Python */
} recorded_function;

static recorded_function recorded_functions[RECORDED_KINDS] = {
    [RECORD_SOFTMAX] = {"softmax", computed_softmax, gradient_of_softmax, true, 2, NULL, NULL},
    [RECORD_LOG_SOFTMAX] = {"log_softmax", computed_log_softmax, gradient_of_log_softmax, true, 2, NULL, NULL},
    [RECORD_SPARSEMAX] = {"sparsemax", computed_sparsemax, gradient_of_sparsemax, true, 2, NULL, NULL},
    [RECORD_LOGSUMEXP] = {"logsumexp", computed_logsumexp, gradient_of_logsumexp, false, 3, NULL, NULL}};

static PyObject *to_save_name, *saved_tensors_name, *options_name;
static PyObject *other_way; /* the exception with which a node's forward half leaves the call to the operator */

/* The arguments of the call for which a node is being made on this thread: PyTorch passes on x alone, which is quicker. */
static _Thread_local PyObject *const *pending;

static bool record_start(void) {
    if (!other_way) {
        to_save_name = PyUnicode_InternFromString("to_save");
        saved_tensors_name = PyUnicode_InternFromString("saved_tensors");
        options_name = PyUnicode_InternFromString("options");
        other_way = to_save_name && saved_tensors_name && options_name
                        ? PyErr_NewException("napier._napier.OtherWay", NULL, NULL)
                        : NULL;
    }
    return other_way;
}

PyObject *record_call(recorded_kind kind, PyObject *const *v) {
    PyObject *apply = recorded_functions[kind].apply;
    PyObject *const *outer = pending; /* a finalizer may call from within another call */
    pending = v;
    PyObject *y = apply ? PyObject_CallFunctionObjArgs(apply, v[0], NULL) : NULL;
    pending = outer;
    if (!y && apply && PyErr_ExceptionMatches(other_way)) {
        PyErr_Clear();
    }
    return y;
}

/* Whether the options are those that the class of nodes has. */
static bool is_default(PyObject *axis, PyObject *temperature) {
    return PyLong_AsLong(axis) == -1 && PyFloat_Check(temperature) && PyFloat_AsDouble(temperature) == 1.0;
}

/* Gives the node what its backward half needs. The arguments have been taken, so they have the right types. */
static int keep(PyObject *node, PyObject *tensor, PyObject *axis, PyObject *temperature) {
    PyObject *saved = PyTuple_Pack(1, tensor);
    int failed = !saved || PyObject_SetAttr(node, to_save_name, saved);
    Py_XDECREF(saved);
    if (!failed && !is_default(axis, temperature)) {
        PyObject *options = PyTuple_Pack(2, axis, temperature);
        failed = !options || PyObject_SetAttr(node, options_name, options);
        Py_XDECREF(options);
    }
    return failed ? -1 : 0;
}

/* forward(node, x); PyTorch records nothing meanwhile */
static PyObject *forward(const recorded_function *f, PyObject *const *args, Py_ssize_t count) {
    PyObject *const *v = pending;
    if (count != 2 || !v || v[0] != args[1]) {
        return PyErr_Format(PyExc_TypeError, "%s: a node that napier did not ask for", f->name);
    }
    PyObject *y = f->forward(v);
    if (!y && !PyErr_Occurred()) {
        PyErr_SetNone(other_way);
    }
    if (y && keep(args[0], f->of_result ? y : v[0], v[1], v[f->temperature])) {
        Py_CLEAR(y);
    }
    return y;
}

static PyObject *gradient(const recorded_function *f, PyObject *saved, PyObject *grad, PyObject *options) {
    PyObject *v[4] = {PyTuple_GetItem(saved, 0), grad, PyTuple_GetItem(options, 0), PyTuple_GetItem(options, 1)};
    if (!v[0] || !v[2] || !v[3]) {
        return NULL;
    }
    PyObject *made = f->backward(v);
    return made || PyErr_Occurred() ? made
                                    : PyObject_CallFunctionObjArgs(f->other_backward, v[0], v[1], v[2], v[3], NULL);
}

/* node.apply(grad): the gradient of x */
static PyObject *backward(const recorded_function *f, PyObject *node, PyObject *const *args, Py_ssize_t count) {
    if (count != 1) {
        return PyErr_Format(PyExc_TypeError, "%s: takes one gradient", f->name);
    }
    PyObject *saved = PyObject_GetAttr(node, saved_tensors_name);
    PyObject *options = saved ? PyObject_GetAttr(node, options_name) : NULL;
    PyObject *made = options ? gradient(f, saved, args[0], options) : NULL;
    Py_XDECREF(options);
    Py_XDECREF(saved);
    return made;
}

#define HALVES(name_, kind_)                                                                    \
    static PyObject *name_##_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) { \
        (void)self;                                                                             \
        return forward(&recorded_functions[kind_], args, count);                                \
    }                                                                                           \
    static PyObject *name_##_apply(PyObject *node, PyObject *const *args, Py_ssize_t count) {   \
        return backward(&recorded_functions[kind_], node, args, count);                         \
    }
HALVES(softmax, RECORD_SOFTMAX)
HALVES(log_softmax, RECORD_LOG_SOFTMAX)
HALVES(sparsemax, RECORD_SPARSEMAX)
HALVES(logsumexp, RECORD_LOGSUMEXP)

#define HALF(name_, function_) \
    { name_, (PyCFunction)(void (*)(void))function_, METH_FASTCALL, NULL }

static PyMethodDef forwards[RECORDED_KINDS] = {[RECORD_SOFTMAX] = HALF("forward", softmax_forward),
                                               [RECORD_LOG_SOFTMAX] = HALF("forward", log_softmax_forward),
                                               [RECORD_SPARSEMAX] = HALF("forward", sparsemax_forward),
                                               [RECORD_LOGSUMEXP] = HALF("forward", logsumexp_forward)};
static PyMethodDef applies[RECORDED_KINDS] = {[RECORD_SOFTMAX] = HALF("apply", softmax_apply),
                                              [RECORD_LOG_SOFTMAX] = HALF("apply", log_softmax_apply),
                                              [RECORD_SPARSEMAX] = HALF("apply", sparsemax_apply),
                                              [RECORD_LOGSUMEXP] = HALF("apply", logsumexp_apply)};

/* Gives the class its forward half, and the class of its nodes their apply. */
static int give_halves(recorded_kind kind, PyObject *of_calls, PyObject *of_nodes) {
    PyObject *function = PyCFunction_NewEx(&forwards[kind], NULL, NULL);
    PyObject *method = PyDescr_NewMethod((PyTypeObject *)of_nodes, &applies[kind]);
    const int failed = !function || !method || PyObject_SetAttrString(of_calls, "forward", function) ||
                       PyObject_SetAttrString(of_nodes, "apply", method);
    Py_XDECREF(function);
    Py_XDECREF(method);
    return failed ? -1 : 0;
}

/* _record(name, class, class of its nodes, apply, backward), once for each name. */
static PyObject *record(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    int kind = 0;
    if (count != 5 || !PyUnicode_Check(args[0]) || !PyType_Check(args[2]) || !record_start()) {
        return PyErr_Occurred() ? NULL
                                : PyErr_Format(PyExc_TypeError, "_record: takes a name, two classes and two functions");
    }
    while (kind < RECORDED_KINDS && PyUnicode_CompareWithASCIIString(args[0], recorded_functions[kind].name) != 0) {
        kind++;
    }
    if (kind == RECORDED_KINDS) {
        return PyErr_Format(PyExc_ValueError, "_record: no function %R", args[0]);
    }
    if (give_halves((recorded_kind)kind, args[1], args[2])) {
        return NULL;
    }
    recorded_functions[kind].apply = Py_NewRef(args[3]); /* kept for good, as the next */
    recorded_functions[kind].other_backward = Py_NewRef(args[4]);
    Py_RETURN_NONE;
}

PyMethodDef softmax_recorded_functions[] = {
    {"_record", (PyCFunction)(void (*)(void))record, METH_FASTCALL, "See softmax_recorded.c."}, {NULL, NULL, 0, NULL}};
