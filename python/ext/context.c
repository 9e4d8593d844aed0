/* context.c - Napier's contexts in the package: a free list, because a context serves one thread at a time; the
 * settings; and the Python exception of each status. */
#include "ext.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What long calls ask: Ctrl-C, and bars of their progress ---------------------------------------------------- */

/* Python runs signal handlers on its main thread only, so that of Ctrl-C. */
static unsigned long main_thread;

static int find_main_thread(void) {
    PyObject *const threading = PyImport_ImportModule("threading");
    PyObject *const thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *const ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    main_thread = ident ? PyLong_AsUnsignedLong(ident) : 0;
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    return PyErr_Occurred() ? -1 : 0;
}

/* One call at a time has a bar, of napier._progress. All of it with the GIL, but for a look whether make_bar is NULL. */
static _Atomic(PyObject *) make_bar; /* makes the bar of a call; NULL: no bars */
static PyObject *bar;                /* of the call with bar_context, or NULL */
static const napier_context *bar_context;

/* What the call on this thread has told of itself: it knows better than its loops. */
static _Thread_local struct {
    const char *name; /* NULL: nothing */
    double done;
    bool is_shown; /* to the caller's own function */
} stage;

void context_in_stage(const char *name, double done, bool is_shown) {
    stage.name = name;
    stage.done = done;
    stage.is_shown = is_shown;
}

/* 0, or -1 with an error set. */
static int open_bar(const napier_context *context) {
    PyObject *const make = Py_NewRef(make_bar), *const made = PyObject_CallNoArgs(make);
    Py_DECREF(make);
    if (!made || bar) { /* another thread has made one meanwhile */
        Py_XDECREF(made);
        return made ? 0 : -1;
    }
    bar = made;
    bar_context = context;
    return 0;
}

int context_show(const napier_context *context, const char *what, double done) {
    if (!bar && make_bar && open_bar(context)) {
        return -1;
    }
    if (!bar || bar_context != context) {
        return 0;
    }
    PyObject *const shown = PyObject_CallMethod(bar, "show", "sd", what, done);
    Py_XDECREF(shown);
    return shown ? 0 : -1;
}

/* Shows how far a long call has come. */
static int show_progress(const napier_context *context) {
    if (stage.name) {
        return stage.is_shown ? 0 : context_show(context, stage.name, stage.done);
    }
    int64_t done = 0, items = 0;
    const int64_t loop = napier_context_progress(context, &done, &items);
    char step[32];
    snprintf(step, sizeof step, "step %lld", (long long)loop);
    return loop > 0 ? context_show(context, step, (double)done / (double)items) : 0;
}

int context_end_show(const napier_context *context) {
    stage.name = NULL;
    if (!bar || bar_context != context) {
        return 0;
    }
    PyObject *type, *value, *trace, *const ended = bar;
    PyErr_Fetch(&type, &value, &trace);
    bar = NULL;
    PyObject *const closed = PyObject_CallMethod(ended, "close", NULL);
    Py_XDECREF(closed);
    Py_DECREF(ended);
    if (type) {
        PyErr_Restore(type, value, trace);
    }
    return closed ? 0 : -1;
}

static PyObject *set_progress(PyObject *self, PyObject *value) {
    (void)self;
    PyObject *const old = make_bar;
    make_bar = value == Py_None ? NULL : Py_NewRef(value);
    return old ? old : Py_NewRef(Py_None);
}

/* Asked by a long call. Ends it where a signal handler raises, as that of Ctrl-C does: the call raises the same. */
static int has_raised(void *user) {
    const bool is_main = PyThread_get_thread_ident() == main_thread;
    if (!is_main && !make_bar) {
        return 0;
    }
    const PyGILState_STATE gil = PyGILState_Ensure();
    const int raised = (is_main && PyErr_CheckSignals()) || show_progress(user);
    PyGILState_Release(gil);
    return raised;
}

void context_watch_signals(napier_context *context) { napier_context_set_interrupt(context, has_raised, context); }

/* ---- Contexts: all of this with the GIL held --------------------------------------------------------------------- */

enum { FREE_CONTEXTS = 64 };

static struct {
    napier_context *free[FREE_CONTEXTS];
    int count;
    int threads; /* 0: as many as the library finds */
    napier_isa isa;
    int numerics; /* 0: the newest */
} pool = {.count = 0};

static void pool_empty(void) {
    while (pool.count > 0) {
        napier_context_destroy(pool.free[--pool.count]);
    }
}

napier_context *context_take(void) {
    if (pool.count > 0) {
        return pool.free[--pool.count];
    }
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = pool.threads;
    options.highest_isa = pool.isa;
    options.numerics = pool.numerics;
    napier_context *context = NULL;
    const napier_status status = napier_context_create(&context, &options);
    if (status) {
        raise_status(NULL, status, "context");
        return NULL;
    }
    context_watch_signals(context);
    return context;
}

void context_give(napier_context *context) {
    /* a context from before a change of the settings is not kept */
    const bool current = (pool.threads == 0 || pool.threads == napier_context_threads(context)) &&
                         (pool.isa == NAPIER_ISA_AUTO || pool.isa == napier_context_isa(context));
    if (current && pool.count < FREE_CONTEXTS) {
        pool.free[pool.count++] = context;
    } else {
        napier_context_destroy(context);
    }
}

/* Contexts that no call had are as good in the child. */
static void in_child_of_fork(void) {
    main_thread = PyThread_get_thread_ident(); /* in the child, that which called fork is the main one */
    bar = NULL;                                /* of another thread's call */
    memory_in_child();
}

int raise_status(napier_context *context, napier_status status, const char *function) {
    if (context_end_show(context) == 0 && status == NAPIER_OK) {
        return 0;
    }
    if (PyErr_Occurred()) { /* set by a callback */
        return -1;
    }
    const char *text = context ? napier_last_error(context) : "";
    PyObject *kind = PyExc_RuntimeError;
    switch (status) {
    case NAPIER_INVALID_ARGUMENT:
    case NAPIER_STATE_MISMATCH:
    case NAPIER_CORRUPT_DATA: kind = PyExc_ValueError; break;
    case NAPIER_OUT_OF_MEMORY: kind = PyExc_MemoryError; break;
    case NAPIER_UNSUPPORTED: kind = PyExc_NotImplementedError; break;
    case NAPIER_IO_ERROR: kind = PyExc_OSError; break;
    default: break;
    }
    PyErr_Format(kind, "%s: %s", function, text[0] ? text : napier_status_string(status));
    return -1;
}

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

/* What sets it wants no more threads than that in a process: joblib, Dask, Ray, torchrun. 0 if it is no number. */
static int threads_of_environment(void) {
    const char *const text = getenv("OMP_NUM_THREADS");
    char *end = NULL;
    const long threads = text ? strtol(text, &end, 10) : 0;
    return threads >= 1 && threads <= 1024 && (*end == '\0' || *end == ',') ? (int)threads : 0;
}

static PyObject *set_num_threads(PyObject *self, PyObject *value) {
    (void)self;
    int threads = 0;
    if (take_int(value, "threads", &threads)) {
        return NULL;
    }
    if (threads < 0 || threads > 1024) {
        return PyErr_Format(PyExc_ValueError, "threads: %d is not in 0 .. 1024", threads);
    }
    pool.threads = threads ? threads : threads_of_environment();
    pool_empty();
    Py_RETURN_NONE;
}

static PyObject *get_num_threads(PyObject *self, PyObject *none) {
    (void)self;
    (void)none;
    napier_context *context = context_take();
    if (!context) {
        return NULL;
    }
    const int threads = napier_context_threads(context);
    context_give(context);
    return PyLong_FromLong(threads);
}

static const char *const isa_words[] = {"auto", "scalar", "neon", "avx2", "avx512"};

static PyObject *set_isa(PyObject *self, PyObject *value) {
    (void)self;
    int isa = NAPIER_ISA_AUTO;
    if (take_word(value, "isa", isa_words, 5, NAPIER_ISA_AUTO, &isa)) {
        return NULL;
    }
    if (!napier_isa_available((napier_isa)isa)) {
        return PyErr_Format(PyExc_NotImplementedError, "isa: this machine or build has no %s", isa_words[isa]);
    }
    pool.isa = (napier_isa)isa;
    pool_empty();
    Py_RETURN_NONE;
}

static PyObject *get_isa(PyObject *self, PyObject *none) {
    (void)self;
    (void)none;
    napier_context *context = context_take();
    if (!context) {
        return NULL;
    }
    const napier_isa isa = napier_context_isa(context);
    context_give(context);
    return PyUnicode_FromString(napier_isa_name(isa));
}

static PyObject *set_numerics(PyObject *self, PyObject *value) {
    (void)self;
    int version = 0;
    if (take_int(value, "numerics", &version)) {
        return NULL;
    }
    if (version < 0 || version > napier_numerics_version()) {
        return PyErr_Format(PyExc_NotImplementedError, "numerics: %d is not 1, or 0 for the newest version", version);
    }
    pool.numerics = version;
    pool_empty();
    Py_RETURN_NONE;
}

static PyObject *get_numerics(PyObject *self, PyObject *none) {
    (void)self;
    (void)none;
    return PyLong_FromLong(pool.numerics ? pool.numerics : napier_numerics_version());
}

static PyObject *isa_available(PyObject *self, PyObject *value) {
    (void)self;
    int isa = 0;
    if (take_word(value, "isa", isa_words, 5, NAPIER_ISA_AUTO, &isa)) {
        return NULL;
    }
    return PyBool_FromLong(napier_isa_available((napier_isa)isa));
}

static PyObject *release_memory(PyObject *self, PyObject *none) {
    (void)self;
    (void)none;
    pool_empty(); /* contexts keep memory for their calls */
    return PyLong_FromSize_t(memory_release());
}

PyMethodDef context_functions[] = {{"set_num_threads", set_num_threads, METH_O, NULL},
                                   {"get_num_threads", get_num_threads, METH_NOARGS, NULL},
                                   {"set_isa", set_isa, METH_O, NULL},
                                   {"get_isa", get_isa, METH_NOARGS, NULL},
                                   {"isa_available", isa_available, METH_O, NULL},
                                   {"set_numerics", set_numerics, METH_O, NULL},
                                   {"get_numerics", get_numerics, METH_NOARGS, NULL},
                                   {"_set_progress", set_progress, METH_O, NULL},
                                   {"release_memory", release_memory, METH_NOARGS, NULL},
                                   {NULL, NULL, 0, NULL}};

#if defined(NAPIER_HAS_CUDA)
enum { HAS_CUDA = 1 };
#else
enum { HAS_CUDA = 0 };
#endif

int context_start(PyObject *module) {
    pool.threads = threads_of_environment();
    if (memory_start() || watch_forks(memory_before_fork, memory_after_fork, in_child_of_fork)) {
        PyErr_SetString(PyExc_ImportError, "napier: no memory to begin with");
        return -1;
    }
    return find_main_thread() || PyModule_AddStringConstant(module, "__version__", napier_version()) ||
                   PyModule_AddIntConstant(module, "numerics_version", napier_numerics_version()) ||
                   PyModule_AddIntConstant(module, "_has_cuda", HAS_CUDA)
               ? -1
               : 0;
}
