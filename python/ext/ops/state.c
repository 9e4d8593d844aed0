/* state.c - napier.SoftmaxState: a reduction that can be streamed, distributed, or stored. */
#include "../call.h"

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

PYTHON_FUNCTION(make) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_softmax_state *state = NULL;
    napier_dtype dtype;
    int64_t first = 0;
    int weighted = 0;
    TAKE("SoftmaxState", 2, 0, ON_HOST, DTYPE("dtype", dtype), ARG("first_index", first),
         ARG("temperature", options.temperature), WORD("masked_rows", options.masked_rows, masked_words),
         ARG("weighted", weighted))
    dtype = dtype ? dtype : NAPIER_F32;
    if (!c.failed) {
        RUN_SIZED(c.failed, c.function,
                  (weighted ? napier_softmax_state_create_weighted : napier_softmax_state_create)(context, dtype, first,
                                                                                                  &options, &state),
                  0);
    }
    call_add(&c, c.failed ? NULL : state_wrap(state));
    return call_end(&c);
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
    PyObject *made = py_make(NULL, values, count, names);
    Py_XDECREF(names);
    return made;
}

PYTHON_FUNCTION(update) {
    array *block, *weights;
    napier_const_vector x = {0}, b = {0};
    TAKE("update", 2, 1, ON_HOST, ARRAY("block", block, TAKE_FLOATS), ARRAY("weights", weights, TAKE_FLOATS))
    c.failed = c.failed || array_vector(block, "block", &x) || (weights && array_vector(weights, "weights", &b));
    if (!c.failed && weights) {
        RUN_LOCKED(c.failed, self, c.function, napier_softmax_state_update_weighted(context, state_of(self), x, b),
                   x.size);
    } else if (!c.failed) {
        RUN_LOCKED(c.failed, self, c.function, napier_softmax_state_update(context, state_of(self), x), x.size);
    }
    call_add(&c, Py_NewRef(self));
    return call_end(&c);
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

PYTHON_FUNCTION(finish) {
    int with_sign = 0;
    double lse = 0, sign = 0;
    TAKE("finish", 0, 0, ON_HOST, ARG("return_sign", with_sign))
    if (!c.failed) {
        RUN_LOCKED(c.failed, self, c.function,
                   napier_softmax_state_finish_weighted(context, state_of(self), &lse, with_sign ? &sign : NULL), 0);
    }
    call_add(&c, with_sign ? Py_BuildValue("dd", lse, sign) : PyFloat_FromDouble(lse));
    return call_end(&c);
}

PYTHON_FUNCTION(apply) {
    napier_softmax_kind kind = NAPIER_KIND_SOFTMAX;
    napier_const_vector in = {0}, out = {0};
    napier_dtype dtype;
    array *x;
    PyObject *given;
    TAKE("apply", 2, 1, ON_HOST, ARRAY("logits", x, TAKE_FLOATS), WORD("kind", kind, kind_words), DTYPE("dtype", dtype),
         ARG("out", given))
    c.failed = c.failed || array_vector(x, "logits", &in);
    array *const y = given      ? call_take(&c, given, "out", TAKE_FLOATS | TAKE_WRITABLE)
                     : c.failed ? NULL
                                : call_make(&c, 1, x->shape, dtype ? dtype : x->dtype);
    c.failed = !y || array_vector(y, "out", &out) || dtype_fits_out(dtype ? given : NULL, dtype, given, y);
    if (!c.failed) {
        RUN_LOCKED(c.failed, self, c.function,
                   napier_softmax_state_apply(context, state_of(self), kind, in, writable_vector(out)), in.size);
    }
    call_add(&c, c.failed ? NULL : Py_NewRef(given ? given : y->object));
    return call_end(&c);
}

static PyObject *state_bytes(PyObject *self, PyObject *none) {
    (void)none;
    char room[36 * 1024]; /* the header guarantees that less is enough */
    size_t size = 0;
    int failed;
    state_lock(self);
    size = napier_softmax_state_size(state_of(self));
    RUN_SIZED(failed, "to_bytes", napier_softmax_state_to_bytes(context, state_of(self), room, sizeof room), 0);
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
    RUN_SIZED(failed, "from_bytes", napier_softmax_state_from_bytes(context, b.buf, (size_t)b.len, &state), 0);
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

/* closure: the function that reads the state. */
typedef int64_t state_reader(const napier_softmax_state *state);
static PyObject *state_value(PyObject *self, void *closure) {
    state_lock(self);
    const int64_t n = ((state_reader *)closure)(state_of(self));
    state_unlock(self);
    return PyLong_FromLongLong(n);
}

static PyMethodDef state_methods[] = {ENTRY(update),
                                      {"merge", state_merge, METH_O, NULL},
                                      ENTRY(finish),
                                      ENTRY(apply),
                                      {"from_bytes", py_state_from_bytes, METH_O | METH_STATIC, NULL},
                                      {"to_bytes", state_bytes, METH_NOARGS, NULL},
                                      {"__reduce__", state_reduce, METH_NOARGS, NULL},
                                      {NULL, NULL, 0, NULL}};

static PyGetSetDef state_values[] = {
    {"first_index", state_value, NULL, "Where the part begins in its row.", (void *)napier_softmax_state_first_index},
    {"count", state_value, NULL, "How many elements it holds.", (void *)napier_softmax_state_count},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot state_slots[] = {{Py_tp_doc, NULL},
                                    {Py_tp_methods, state_methods},
                                    {Py_tp_getset, state_values},
                                    {Py_tp_dealloc, state_dealloc},
                                    {Py_tp_new, state_new},
                                    {0, NULL}};
static PyType_Spec state_spec = {"napier.SoftmaxState", sizeof(state_object), 0, Py_TPFLAGS_DEFAULT, state_slots};

int state_start(PyObject *module) {
    document(state_methods, "SoftmaxState.");
    state_slots[0].pfunc = (char *)(uintptr_t)doc_of("", "SoftmaxState");
    state_type = PyType_FromSpec(&state_spec);
    return state_type ? PyModule_AddObjectRef(module, "SoftmaxState", state_type) : -1;
}

PyMethodDef state_functions[] = {{"_state_from_bytes", py_state_from_bytes, METH_O, NULL}, {NULL, NULL, 0, NULL}};
