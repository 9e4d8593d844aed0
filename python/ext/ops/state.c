/* state.c - napier.SoftmaxState: a reduction that can be streamed, distributed, or stored. */
#include "../ext.h"

#include <string.h>

/* Work on a state runs without the GIL. Meanwhile `lock` keeps other threads from the same state. */
typedef struct state_object {
    PyObject ob_base;
    napier_softmax_state *state;
    PyThread_type_lock lock;
} state_object;

static PyObject *state_type;

static napier_softmax_state *state_of(PyObject *self) { return ((state_object *)self)->state; }

/* Releases the GIL while it waits, because the thread that has the lock may need the GIL. */
static void state_lock(PyObject *self) {
    PyThread_type_lock lock = ((state_object *)self)->lock;
    if (!PyThread_acquire_lock(lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS PyThread_acquire_lock(lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
}

static void state_unlock(PyObject *self) { PyThread_release_lock(((state_object *)self)->lock); }

/* RUN_SIZED on a locked state. */
#define RUN_LOCKED(failed_, self_, function_, call_, elements_) \
    do {                                                        \
        state_lock(self_);                                      \
        RUN_SIZED(failed_, function_, call_, elements_);        \
        state_unlock(self_);                                    \
    } while (0)

static PyObject *state_wrap(napier_softmax_state *state) {
    state_object *o = PyObject_New(state_object, (PyTypeObject *)state_type);
    if (!o) {
        napier_softmax_state_destroy(state);
        return NULL;
    }
    o->state = state;
    o->lock = PyThread_allocate_lock();
    if (!o->lock) {
        Py_DECREF((PyObject *)o);
        return PyErr_NoMemory();
    }
    return (PyObject *)o;
}

static void state_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    napier_softmax_state_destroy(state_of(self));
    if (((state_object *)self)->lock) {
        PyThread_free_lock(((state_object *)self)->lock);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *state_make(PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "SoftmaxState", 5, 2, 0, {"dtype", "first_index", "temperature", "masked_rows", "weighted"}};
    static const char *const words[] = {"nan", "zero"};
    PyObject *v[5];
    napier_dtype dtype = NAPIER_F32;
    int64_t first = 0;
    int masked = NAPIER_MASKED_NAN, weighted = 0;
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    if (arguments(&names, args, count, keywords, v) || take_dtype(v[0], "dtype", &dtype) ||
        take_int64(v[1], "first_index", &first) || take_double(v[2], "temperature", &options.temperature) ||
        take_word(v[3], "masked_rows", words, 2, NAPIER_MASKED_NAN, &masked) ||
        take_bool(v[4], "weighted", &weighted)) {
        return NULL;
    }
    options.masked_rows = (napier_masked_rows)masked;
    napier_softmax_state *state = NULL;
    int failed;
    RUN_SIZED(failed, names.function,
              (weighted ? napier_softmax_state_create_weighted : napier_softmax_state_create)(context, dtype, first,
                                                                                              &options, &state),
              0);
    return failed ? NULL : state_wrap(state);
}

/* Parses the arguments of a type's call like those of a function. */
static PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)type;
    enum { MOST = 8 };
    PyObject *values[MOST], *key, *value;
    const Py_ssize_t count = PyTuple_Size(args), named = keywords ? PyDict_Size(keywords) : 0;
    if (count < 0 || named < 0 || count + named > MOST) {
        PyErr_SetString(PyExc_TypeError, "SoftmaxState() takes 5 arguments");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        values[i] = PyTuple_GetItem(args, i);
    }
    PyObject *names = named > 0 ? PyTuple_New(named) : NULL;
    if (named > 0 && !names) {
        return NULL;
    }
    Py_ssize_t at = 0, i = 0;
    while (named > 0 && PyDict_Next(keywords, &at, &key, &value)) {
        values[count + i] = value;
        (void)PyTuple_SetItem(names, i++, Py_NewRef(key));
    }
    PyObject *made = state_make(values, count, names);
    Py_XDECREF(names);
    return made;
}

static PyObject *state_update(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"update", 2, 2, 1, {"block", "weights"}};
    PyObject *v[2];
    array a, w;
    napier_const_vector x, b;
    if (arguments(&names, args, count, keywords, v) || array_take(&a, v[0], "block", TAKE_FLOATS)) {
        return NULL;
    }
    if (v[1] && array_take(&w, v[1], "weights", TAKE_FLOATS)) {
        array_release(&a);
        return NULL;
    }
    int failed = array_vector(&a, "block", &x) || (v[1] && array_vector(&w, "weights", &b)) ? -1 : 0;
    if (!failed && v[1]) {
        RUN_LOCKED(failed, self, names.function, napier_softmax_state_update_weighted(context, state_of(self), x, b),
                   x.size);
    } else if (!failed) {
        RUN_LOCKED(failed, self, names.function, napier_softmax_state_update(context, state_of(self), x), x.size);
    }
    if (v[1]) {
        array_release(&w);
    }
    array_release(&a);
    return failed ? NULL : Py_NewRef(self);
}

/* Locks both states in the order of their addresses, so that two threads that merge in opposite directions do not wait
 * for each other. */
static PyObject *state_merge(PyObject *self, PyObject *other) {
    if (Py_TYPE(other) != (PyTypeObject *)state_type) {
        PyErr_Format(PyExc_TypeError, "other: expected a SoftmaxState, got %R", other);
        return NULL;
    }
    PyObject *first = self < other ? self : other, *second = self < other ? other : self;
    int failed;
    state_lock(first);
    if (second != first) {
        state_lock(second);
    }
    RUN_SIZED(failed, "merge", napier_softmax_state_merge(context, state_of(self), state_of(other)), 0);
    if (second != first) {
        state_unlock(second);
    }
    state_unlock(first);
    return failed ? NULL : Py_NewRef(self);
}

static PyObject *state_finish(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"finish", 1, 0, 0, {"return_sign"}};
    PyObject *v[1];
    int with_sign = 0;
    if (arguments(&names, args, count, keywords, v) || take_bool(v[0], "return_sign", &with_sign)) {
        return NULL;
    }
    double lse = 0, sign = 0;
    int failed;
    RUN_LOCKED(failed, self, names.function,
               napier_softmax_state_finish_weighted(context, state_of(self), &lse, with_sign ? &sign : NULL), 0);
    return failed ? NULL : with_sign ? Py_BuildValue("dd", lse, sign) : PyFloat_FromDouble(lse);
}

static PyObject *state_apply(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"apply", 4, 2, 1, {"logits", "kind", "dtype", "out"}};
    static const char *const kinds[] = {"softmax", "log_softmax"};
    PyObject *v[4], *given = NULL;
    int kind = NAPIER_KIND_SOFTMAX;
    array x, y;
    if (arguments(&names, args, count, keywords, v) || take_word(v[1], "kind", kinds, 2, NAPIER_KIND_SOFTMAX, &kind) ||
        array_take(&x, v[0], "logits", TAKE_FLOATS)) {
        return NULL;
    }
    napier_dtype dtype = x.dtype;
    napier_const_vector in, out;
    if (array_vector(&x, "logits", &in) || take_dtype(v[2], "dtype", &dtype) ||
        (v[3] ? array_take(&y, v[3], "out", TAKE_FLOATS | TAKE_WRITABLE) : array_make(&y, &x, 1, x.shape, dtype))) {
        array_release(&x);
        return NULL;
    }
    int failed = array_vector(&y, "out", &out) || dtype_fits_out(v[2], dtype, v[3], &y) ? -1 : 0;
    if (!failed) {
        RUN_LOCKED(
            failed, self, names.function,
            napier_softmax_state_apply(context, state_of(self), (napier_softmax_kind)kind, in, writable_vector(out)),
            in.size);
    }
    if (!failed) {
        given = Py_NewRef(v[3] ? v[3] : y.object);
    }
    array_release(&y);
    array_release(&x);
    return given;
}

static PyObject *state_bytes(PyObject *self, PyObject *none) {
    (void)none;
    char room[36 * 1024]; /* the header guarantees that less is enough */
    size_t size = 0;
    int failed;
    state_lock(self);
    size = napier_softmax_state_size(state_of(self));
    RUN_SIZED(failed, "to_bytes", napier_softmax_state_save(context, state_of(self), room, sizeof room), 0);
    state_unlock(self);
    return failed ? NULL : PyBytes_FromStringAndSize(room, (Py_ssize_t)size);
}

/* _state_from_bytes(data) */
static PyObject *py_state_from_bytes(PyObject *self, PyObject *data) {
    (void)self;
    Py_buffer b;
    if (PyObject_GetBuffer(data, &b, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    napier_softmax_state *state = NULL;
    int failed;
    RUN_SIZED(failed, "from_bytes", napier_softmax_state_load(context, b.buf, (size_t)b.len, &state), 0);
    PyBuffer_Release(&b);
    return failed ? NULL : state_wrap(state);
}

static PyObject *state_reduce(PyObject *self, PyObject *none) {
    PyObject *bytes = state_bytes(self, none);
    PyObject *module = bytes ? PyImport_ImportModule("napier._napier") : NULL;
    PyObject *load = module ? PyObject_GetAttrString(module, "_state_from_bytes") : NULL;
    PyObject *given = load ? Py_BuildValue("O(O)", load, bytes) : NULL;
    Py_XDECREF(load);
    Py_XDECREF(module);
    Py_XDECREF(bytes);
    return given;
}

static PyObject *state_first(PyObject *self, void *closure) {
    (void)closure;
    state_lock(self);
    const int64_t n = napier_softmax_state_first_index(state_of(self));
    state_unlock(self);
    return PyLong_FromLongLong(n);
}

static PyObject *state_count(PyObject *self, void *closure) {
    (void)closure;
    state_lock(self);
    const int64_t n = napier_softmax_state_count(state_of(self));
    state_unlock(self);
    return PyLong_FromLongLong(n);
}

static PyMethodDef state_methods[] = {
    {"update", FAST(state_update),
     "update($self, block, weights=None)\n--\n\nAppends a block of logits, of any length, to the part. A weighted "
     "state "
     "takes their weights too. Returns the state."},
    {"merge", state_merge, METH_O,
     "merge($self, other, /)\n--\n\nTakes in the reduction of a part that lies beside this one in the row. Returns the "
     "state."},
    {"finish", FAST(state_finish),
     "finish($self, *, return_sign=False)\n--\n\nThe logsumexp of all that was seen, as a float; apply may be called "
     "then. "
     "return_sign: also the sign of the sum; without it a negative sum gives NaN."},
    {"apply", FAST(state_apply),
     "apply($self, logits, kind='softmax', *, dtype=None, out=None)\n--\n\n"
     "softmax or log_softmax of a block of the row, given the finished state of the whole row."},
    {"from_bytes", py_state_from_bytes, METH_O | METH_STATIC,
     "from_bytes(data, /)\n--\n\nThe state that to_bytes gave; anything that is none is a ValueError."},
    {"to_bytes", state_bytes, METH_NOARGS, "to_bytes($self, /)\n--\n\nThe portable form: the same on every machine."},
    {"__reduce__", state_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef state_values[] = {{"first_index", state_first, NULL, "Where the part begins in its row.", NULL},
                                     {"count", state_count, NULL, "How many elements it holds.", NULL},
                                     {NULL, NULL, NULL, NULL, NULL}};

/* A list of Python numbers is float64, which a float32 state refuses. Therefore the example has a dtype. */
static char state_doc[] = "SoftmaxState(dtype='float32', first_index=0, *, temperature=1.0, masked_rows='nan', "
                          "weighted=False)\n--\n\n"
                          "The reduction of a part of a row, which grows by update(), joins others by merge(), and\n"
                          "has, once finished, the bits of the one call on the whole row. first_index is where the\n"
                          "part begins in its row. A float32 state takes float32, float16 and bfloat16. A weighted\n"
                          "state is a part of logsumexp(a, b=weights).\n\n"
                          "Examples\n--------\n"
                          ">>> import napier\n>>> s = napier.SoftmaxState('float64')\n"
                          ">>> round(s.update([1000.0, 1001.0]).update([1002.0]).finish(), 4)\n1002.4076\n"
                          ">>> s.apply([1000.0, 1002.0]).round(4)\narray([0.09  , 0.6652])\n"
                          ">>> left, right = napier.SoftmaxState('float64'), napier.SoftmaxState('float64', 2)\n"
                          ">>> sent = right.update([1002.0]).to_bytes()\n"
                          ">>> left.update([1000.0, 1001.0]).merge(napier.SoftmaxState.from_bytes(sent)).finish() == "
                          "s.finish()\nTrue\n";

static PyType_Slot state_slots[] = {{Py_tp_methods, state_methods}, {Py_tp_getset, state_values},
                                    {Py_tp_dealloc, state_dealloc}, {Py_tp_new, state_new},
                                    {Py_tp_doc, state_doc},         {0, NULL}};
static PyType_Spec state_spec = {"napier.SoftmaxState", sizeof(state_object), 0, Py_TPFLAGS_DEFAULT, state_slots};

int state_start(PyObject *module) {
    state_type = PyType_FromSpec(&state_spec);
    return state_type ? PyModule_AddObjectRef(module, "SoftmaxState", state_type) : -1;
}

PyMethodDef state_functions[] = {{"_state_from_bytes", py_state_from_bytes, METH_O, NULL}, {NULL, NULL, 0, NULL}};
