/* softmax_plain.c - softmax, log_softmax, sparsemax, logsumexp and their gradients for napier.torch, without what an
 * operator of PyTorch costs. Arguments are given by position. A result of None means that only the operator will do, or
 * that an argument is wrong, which the operator's function says in its own words. Errors are those of the computation.
 * Where PyTorch records a gradient, softmax_recorded.c makes a node. At the end are the functions of napier.torch that try
 * these ways one after the other. */
#include "softmax.h"

#include "../array/slices.h"

/* NULL without an error is None: the caller takes the other way. */
static PyObject *or_none(PyObject *given) {
    if (given || PyErr_Occurred()) {
        return given;
    }
    Py_RETURN_NONE;
}

/* What arguments give that only the operator takes, or that are wrong. */
static PyObject *other_way(void) {
    PyErr_Clear();
    return NULL;
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

/* map_arrays; where the rows of both lie one after the other on the host, without a search for them. */
static int map_plain(const char *name, map_call *call, device_map *on_device, const array *x, const array *y, int axis,
                     const napier_softmax_options *options) {
    if (axis != x->ndim - 1 || x->size == 0 || x->size > KEEP_GIL || array_on_device(x) || !array_is_contiguous(x)) {
        return map_arrays(name, call, on_device, x, y, axis, options);
    }
    const int64_t cols = x->shape[axis], rows = x->size / cols;
    int failed;
    RUN_SIZED(failed, name,
              call(context, (napier_const_matrix){x->data, rows, cols, cols, 1, x->dtype},
                   napier_rows(y->data, rows, cols, y->dtype), options),
              x->size);
    return failed;
}

/* The result where PyTorch only computes, or that of a node where it records. */
static PyObject *plainly(recorded_kind kind, plain_call *computed, PyObject *const *v) {
    const tensor_use use = tensor_use_of(v, 1);
    return use == USE_PLAIN ? computed(v) : use == USE_RECORDED ? record_call(kind, v) : NULL;
}

static PyObject *computed_map(const char *name, map_call *call, device_map *on_device, PyObject *const *v) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array x, y;
    int axis = -1;
    if (take_number(v[2], "temperature", &options.temperature) || take_masked_rows(v[3], &options) ||
        take_plain(&x, v[0], "x")) {
        return other_way();
    }
    PyObject *given = NULL;
    if (take_dimension(v[1], x.ndim, &axis)) {
        given = other_way();
    } else if (!array_make(&y, &x, x.ndim, x.shape, x.dtype)) {
        given = give_or_release(&y, map_plain(name, call, on_device, &x, &y, axis, &options));
    }
    array_release(&x);
    return given;
}

static PyObject *plain_gradient(const char *name, gradient_call *call, device_gradient *on_device, PyObject *const *v) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array result, grad, y;
    int axis = -1;
    if (tensor_use_of(v, 2) != USE_PLAIN || take_number(v[3], "temperature", &options.temperature) ||
        take_plain(&result, v[0], "result")) {
        return other_way();
    }
    if (take_plain(&grad, v[1], "grad")) {
        array_release(&result);
        return other_way();
    }
    PyObject *given = NULL;
    if (!same_shape(&result, &grad) || same_device(&grad, "grad", &result) ||
        take_dimension(v[2], result.ndim, &axis)) {
        given = other_way();
    } else if (!array_make(&y, &result, result.ndim, result.shape, result.dtype)) {
        const array *const three[] = {&result, &grad, &y};
        given = give_or_release(&y, gradient_arrays(name, call, on_device, three, axis, &options));
    }
    array_release(&result);
    array_release(&grad);
    return given;
}

PyObject *computed_logsumexp(PyObject *const *v) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    int axis = -1, keepdims = 0;
    int64_t shape[MOST_DIMS];
    array x, y;
    if (take_bool(v[2], "keepdims", &keepdims) || take_number(v[3], "temperature", &options.temperature) ||
        take_plain(&x, v[0], "x")) {
        return other_way();
    }
    PyObject *given = NULL;
    if (take_dimension(v[1], x.ndim, &axis)) {
        given = other_way();
    } else if (!array_make(&y, &x, reduced_shape(&x, axis, keepdims, shape), shape, x.dtype)) {
        given = give_or_release(&y, reduce_arrays(&x, &y, axis, &options));
    }
    array_release(&x);
    return given;
}

/* grad has x's shape without the axis, or with size 1 there. */
PyObject *gradient_of_logsumexp(PyObject *const *v) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    array x, grad, want;
    int axis = -1;
    if (tensor_use_of(v, 2) != USE_PLAIN || take_number(v[3], "temperature", &options.temperature) ||
        take_plain(&x, v[0], "x")) {
        return other_way();
    }
    if (take_plain(&grad, v[1], "grad")) {
        array_release(&x);
        return other_way();
    }
    PyObject *given = NULL;
    if (same_device(&grad, "grad", &x) || take_dimension(v[2], x.ndim, &axis)) {
        given = other_way();
    } else {
        want.ndim = reduced_shape(&x, axis, grad.ndim == x.ndim, want.shape);
        given = same_shape(&want, &grad) ? spread(&x, &grad, axis, false, &options) : NULL;
    }
    array_release(&x);
    array_release(&grad);
    return given;
}

#define PLAINLY(name_, kind_)                                                                                    \
    PyObject *computed_##name_(PyObject *const *v) {                                                             \
        return computed_map(#name_, napier_##name_, napier_cuda_##name_, v);                                     \
    }                                                                                                            \
    PyObject *gradient_of_##name_(PyObject *const *v) {                                                          \
        return plain_gradient(#name_ "_backward", napier_##name_##_backward, napier_cuda_##name_##_backward, v); \
    }                                                                                                            \
    static PyObject *plainly_##name_(PyObject *const *v) { return plainly(kind_, computed_##name_, v); }

PLAINLY(softmax, RECORD_SOFTMAX)
PLAINLY(log_softmax, RECORD_LOG_SOFTMAX)
PLAINLY(sparsemax, RECORD_SPARSEMAX)

static PyObject *plain_logsumexp(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    return or_none(count == 4 ? plainly(RECORD_LOGSUMEXP, computed_logsumexp, args) : NULL);
}

/* ---- The functions of napier.torch ------------------------------------------------------------------------------- */

enum { MAP_ARGUMENTS = 4 };
static const char *const map_words[MAP_ARGUMENTS] = {"input", "dim", "temperature", "masked_rows"};
static PyObject *map_names[MAP_ARGUMENTS], *map_defaults[MAP_ARGUMENTS];

static bool map_start(void) {
    for (int i = 0; i < MAP_ARGUMENTS; i++) {
        map_names[i] = map_names[i] ? map_names[i] : PyUnicode_InternFromString(map_words[i]);
    }
    map_defaults[1] = PyLong_FromLong(-1);
    map_defaults[2] = PyFloat_FromDouble(1.0);
    map_defaults[3] = PyUnicode_InternFromString("nan");
    return map_names[3] && map_defaults[1] && map_defaults[2] && map_defaults[3];
}

/* The place of a keyword among the arguments of plain_map; MAP_ARGUMENTS for another one. Keywords of a call are
 * interned. */
static int map_place(PyObject *keyword) {
    int i = 0;
    while (i < MAP_ARGUMENTS && map_names[i] != keyword) {
        i++;
    }
    return i;
}

/* Sets v to the arguments of plain_map; false if there are others, or one is missing or given twice. */
static bool map_arguments(PyObject *const *args, Py_ssize_t count, PyObject *keywords, PyObject **v) {
    if (count > 2) {
        return false;
    }
    for (int i = 0; i < MAP_ARGUMENTS; i++) {
        v[i] = i < count ? args[i] : map_defaults[i];
    }
    const Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    for (Py_ssize_t k = 0; k < named; k++) {
        const int place = map_place(PyTuple_GetItem(keywords, k));
        if (place < count || place == MAP_ARGUMENTS) {
            return false;
        }
        v[place] = args[count + k];
    }
    return v[0] != NULL;
}

/* function(*args, **keywords) */
static PyObject *call_python(PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    PyObject *given = PyTuple_New(count), *named = keywords ? PyDict_New() : NULL, *result = NULL;
    bool made = given && (named || !keywords);
    for (Py_ssize_t i = 0; made && i < count; i++) {
        made = PyTuple_SetItem(given, i, Py_NewRef(args[i])) == 0;
    }
    for (Py_ssize_t k = 0; made && keywords && k < PyTuple_Size(keywords); k++) {
        made = PyDict_SetItem(named, PyTuple_GetItem(keywords, k), args[count + k]) == 0;
    }
    result = made ? PyObject_Call(function, given, named) : NULL;
    Py_XDECREF(given);
    Py_XDECREF(named);
    return result;
}

/* A function of napier.torch, and the one in Python for all that `plainly` does not do. */
typedef struct quick_function {
    plain_call *plainly;
    PyObject *python;
} quick_function;

static PyObject *quick_map(const quick_function *f, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    PyObject *v[MAP_ARGUMENTS];
    PyObject *given = map_arguments(args, count, keywords, v) ? f->plainly(v) : NULL;
    return given || PyErr_Occurred() ? given : call_python(f->python, args, count, keywords);
}

enum { QUICK_SOFTMAX, QUICK_LOG_SOFTMAX, QUICK_SPARSEMAX, QUICK_FUNCTIONS };
static quick_function quick_functions[QUICK_FUNCTIONS] = {
    {plainly_softmax, NULL}, {plainly_log_softmax, NULL}, {plainly_sparsemax, NULL}};

#define QUICK(name_, which_)                                                                              \
    static PyObject *name_(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) { \
        (void)self;                                                                                       \
        return quick_map(&quick_functions[which_], args, count, keywords);                                \
    }
QUICK(quick_softmax, QUICK_SOFTMAX)
QUICK(quick_log_softmax, QUICK_LOG_SOFTMAX)
QUICK(quick_sparsemax, QUICK_SPARSEMAX)

/* _quick(name, python, doc), once for each name: the function. It has no self, so that pickle writes its
 * name. */
static PyObject *quick(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    static PyMethodDef definitions[QUICK_FUNCTIONS] = {{"softmax", FAST(quick_softmax), NULL},
                                                       {"log_softmax", FAST(quick_log_softmax), NULL},
                                                       {"sparsemax", FAST(quick_sparsemax), NULL}};
    (void)self;
    int which = 0;
    if (count != 3 || !PyUnicode_Check(args[0]) || !PyUnicode_Check(args[2]) || !map_start()) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "_quick: takes a name, a function and a text");
    }
    while (which < QUICK_FUNCTIONS && PyUnicode_CompareWithASCIIString(args[0], definitions[which].ml_name) != 0) {
        which++;
    }
    if (which == QUICK_FUNCTIONS) {
        return PyErr_Format(PyExc_ValueError, "_quick: no function %R", args[0]);
    }
    definitions[which].ml_doc =
        PyUnicode_AsUTF8AndSize(Py_NewRef(args[2]), NULL); /* kept for good, as is the function */
    quick_functions[which].python = Py_NewRef(args[1]);
    PyObject *module = definitions[which].ml_doc ? PyUnicode_FromString("napier.torch") : NULL;
    PyObject *function = module ? PyCFunction_NewEx(&definitions[which], NULL, module) : NULL;
    Py_XDECREF(module);
    return function;
}

PyMethodDef softmax_plain_functions[] = {
    {"_plain_logsumexp", (PyCFunction)(void (*)(void))plain_logsumexp, METH_FASTCALL, "See softmax_plain.c."},
    {"_quick", (PyCFunction)(void (*)(void))quick, METH_FASTCALL, "See softmax_plain.c."},
    {NULL, NULL, 0, NULL}};
