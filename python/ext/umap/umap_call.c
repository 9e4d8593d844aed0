/* umap_call.c - see umap_call.h. */
#include "umap_call.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Contexts ---------------------------------------------------------------------------------------------------- */

static napier_context *context_new(int threads) {
    napier_context *like = context_take(), *context = NULL;
    if (!like) {
        return NULL;
    }
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.highest_isa = napier_context_isa(like);
    options.threads = threads > 0 ? threads : napier_context_threads(like);
    const napier_status status = napier_context_create(&context, &options);
    context_give(like);
    if (status) {
        raise_status(NULL, status, "context");
        return NULL;
    }
    context_watch_signals(context);
    return context;
}

bool work_start(umap_work *w, const char *function, PyObject *const *values, Py_ssize_t count, Py_ssize_t wanted) {
    w->context = NULL;
    w->own_context = false;
    w->status = NAPIER_OK;
    w->progress = NULL;
    w->thread = NULL;
    w->asked = 0.0;
    call_start(&w->arrays, function, ON_HOST);
    w->function = function;
    w->values = values;
    if (count != wanted || !PyDict_Check(values[wanted - 1])) {
        PyErr_Format(PyExc_TypeError, "%s: expected %zd arguments, the last of them a dict", function, wanted);
        return false;
    }
    w->options = values[wanted - 1];
    PyObject *threads = PyDict_GetItemString(w->options, "threads");
    PyObject *progress = PyDict_GetItemString(w->options, "progress");
    int own = 0;
    if (take_int(threads == Py_None ? NULL : threads, "threads", &own)) {
        return false;
    }
    if (own < 0 || own > 1024) {
        PyErr_Format(PyExc_ValueError, "threads: %d is not in 0 .. 1024", own);
        return false;
    }
    if (progress && progress != Py_None && !PyCallable_Check(progress)) {
        PyErr_Format(PyExc_TypeError, "progress: expected a function of (stage, done), got %R", progress);
        return false;
    }
    w->progress = progress == Py_None ? NULL : progress;
    w->own_context = own > 0;
    w->context = own > 0 ? context_new(own) : context_take();
    return w->context != NULL;
}

static void work_give_context(umap_work *w) {
    if (w->own_context) {
        napier_context_destroy(w->context);
    } else if (w->context) {
        context_give(w->context);
    }
    w->own_context = false;
    w->context = NULL;
}

PyObject *work_end(umap_work *w, bool good, PyObject *result) {
    call_release(&w->arrays);
    work_give_context(w);
    return good ? result : NULL;
}

void work_release(umap_work *w) { w->thread = PyEval_SaveThread(); }

bool work_retake(umap_work *w) {
    PyEval_RestoreThread(w->thread);
    return raise_status(w->context, w->status, w->function) == 0 && !PyErr_Occurred();
}

/* ---- Progress ---------------------------------------------------------------------------------------------------- */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether the user wants to stop. Called with the GIL held. */
static bool asked_to_stop(const umap_work *w, const char *stage, double done) {
    if (PyErr_CheckSignals()) {
        return true;
    }
    if (!w->progress) {
        return context_show(w->context, stage, done) != 0;
    }
    PyObject *answer = PyObject_CallFunction(w->progress, "sd", stage, done);
    const int stop = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return stop != 0;
}

int work_progress(const char *stage, double done, void *user) {
    umap_work *w = user;
    const double now = seconds();
    if (!w->progress && now - w->asked < 0.05) { /* another thread may hold the GIL: not at every call */
        return 0;
    }
    w->asked = now;
    PyEval_RestoreThread(w->thread);
    const bool stop = asked_to_stop(w, stage, done);
    w->thread = PyEval_SaveThread();
    return stop;
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static array *take_array(umap_work *w, PyObject *value, const char *name, char type, int ndim, int flags) {
    const int what = (type == 'f' ? TAKE_SINGLE : TAKE_INTEGERS) | (flags & WRITABLE ? TAKE_WRITABLE : 0);
    array *a = call_take(&w->arrays, value, name, what);
    if (!a) {
        return NULL;
    }
    const bool served = type == 'f'   ? a->dtype == NAPIER_F32
                        : type == 'i' ? a->integer == NAPIER_I32
                                      : a->integer == NAPIER_I64;
    if (!served || a->ndim != ndim || !array_is_contiguous(a)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a contiguous array of %s in %d dimensions", name,
                     type == 'f'   ? "float32"
                     : type == 'i' ? "int32"
                                   : "int64",
                     ndim);
        return NULL;
    }
    return a;
}

bool work_array(umap_work *w, int place, const char *name, char type, int ndim, int flags, array **out) {
    *out = NULL;
    if (flags & OPTIONAL && w->values[place] == Py_None) {
        return true;
    }
    *out = take_array(w, w->values[place], name, type, ndim, flags);
    return *out != NULL;
}

bool shape_is(const array *a, const char *name, int64_t rows, int64_t cols) {
    if (!a || ((rows < 0 || a->shape[0] == rows) && (a->ndim < 2 || cols < 0 || a->shape[1] == cols))) {
        return true;
    }
    const long long have[2] = {a->shape[0], a->ndim > 1 ? a->shape[1] : 1};
    if (a->ndim < 2) {
        PyErr_Format(PyExc_ValueError, "%s: expected %lld elements, got %lld", name, (long long)rows, have[0]);
    } else {
        PyErr_Format(PyExc_ValueError, "%s: expected the shape (%lld, %lld), got (%lld, %lld)", name,
                     rows < 0 ? have[0] : (long long)rows, cols < 0 ? have[1] : (long long)cols, have[0], have[1]);
    }
    return false;
}

void *elements(const array *a) { return a ? a->data : NULL; }

bool work_int64(umap_work *w, int place, const char *name, int64_t *out) {
    return take_int64(w->values[place], name, out) == 0;
}

bool work_double(umap_work *w, int place, const char *name, double *out) {
    return take_double(w->values[place], name, out) == 0;
}

bool work_matrix(umap_work *w, int place, const char *name, napier_const_matrix *out) {
    array *a;
    if (!work_array(w, place, name, 'f', 2, 0, &a)) {
        return false;
    }
    *out = napier_const_rows(a->data, a->shape[0], a->shape[1], NAPIER_F32);
    return true;
}

bool work_result(umap_work *w, int place, const char *name, int64_t rows, int64_t cols, int flags, napier_matrix *out) {
    array *a;
    if (!work_array(w, place, name, 'f', 2, flags | WRITABLE, &a) || !shape_is(a, name, rows, cols)) {
        return false;
    }
    *out = a ? napier_rows(a->data, a->shape[0], a->shape[1], NAPIER_F32) : napier_rows(NULL, rows, cols, NAPIER_F32);
    return true;
}

bool work_edges(umap_work *w, int place, int flags, edge_list *out) {
    array *a;
    if (!work_array(w, place, "edges", 'i', 2, flags, &a) || !shape_is(a, "edges", -1, 3)) {
        return false;
    }
    *out = (edge_list){(napier_umap_edge *)(void *)a->data, a->shape[0]};
    return true;
}

static bool take_csr(umap_work *w, PyObject *tuple, const char *name, sample_set *out) {
    PyObject *part[5];
    for (int i = 0; i < 5; i++) {
        part[i] = PyTuple_GetItem(tuple, i);
        if (!part[i]) {
            return false;
        }
    }
    if (take_int64(part[0], name, &out->rows) || take_int64(part[1], name, &out->cols)) {
        return false;
    }
    const array *starts = take_array(w, part[2], name, 'l', 1, 0);
    const array *columns = starts ? take_array(w, part[3], name, 'i', 1, 0) : NULL;
    const array *values = columns ? take_array(w, part[4], name, 'f', 1, 0) : NULL;
    if (!values || out->rows < 0 || !shape_is(starts, "row_starts", out->rows + 1, -1)) {
        return false;
    }
    const int64_t *s = (const int64_t *)(const void *)starts->data;
    const int64_t entries = s[out->rows];
    if (entries < 0 || entries > columns->size || entries > values->size) {
        PyErr_Format(PyExc_ValueError, "%s: indptr ends at %lld, of %lld indices and %lld values", name,
                     (long long)entries, (long long)columns->size, (long long)values->size);
        return false;
    }
    out->sparse = (napier_csr_matrix){out->rows, out->cols, s, (const int32_t *)(const void *)columns->data,
                                      (const float *)(const void *)values->data};
    out->samples.sparse = &out->sparse;
    return true;
}

bool work_samples(umap_work *w, int place, const char *name, sample_set *out) {
    memset(out, 0, sizeof *out);
    out->samples.dense = napier_const_rows(NULL, 0, 0, NAPIER_F32);
    if (PyTuple_Check(w->values[place])) {
        return take_csr(w, w->values[place], name, out);
    }
    const array *a = call_take(&w->arrays, w->values[place], name, TAKE_FLOATS);
    if (!a) {
        return false;
    }
    if (a->ndim != 2) {
        PyErr_Format(PyExc_ValueError, "%s: expected 2 dimensions, got %d", name, a->ndim);
        return false;
    }
    out->rows = a->shape[0];
    out->cols = a->shape[1];
    return array_matrix(a, name, &out->samples.dense) == 0;
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

bool work_fields_of(PyObject *dict, const field *fields, void *to) {
    static const char *const everybodys[] = {"threads", "progress", NULL};
    return take_fields(dict, fields, everybodys, to) == 0;
}

bool work_fields(umap_work *w, const field *fields, void *to) { return work_fields_of(w->options, fields, to); }

/* ---- Results ----------------------------------------------------------------------------------------------------- */

PyObject *work_bytes(umap_work *w, to_bytes_function *function, const void *object) {
    size_t size = 0;
    if (!WORK(w, function(w->context, object, NULL, 0, &size))) {
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (bytes && !WORK(w, function(w->context, object, (uint8_t *)PyBytes_AsString(bytes), size, &size))) {
        Py_CLEAR(bytes);
    }
    return bytes;
}

/* (starts, targets, weights), bytearrays; NULL with an error set. */
static PyObject *graph_triple(const napier_umap_graph *graph) {
    const Py_ssize_t n = (Py_ssize_t)graph->n, edges = (Py_ssize_t)graph->starts[n];
    PyObject *starts =
        PyByteArray_FromStringAndSize((const char *)graph->starts, (n + 1) * (Py_ssize_t)sizeof(int64_t));
    PyObject *targets =
        PyByteArray_FromStringAndSize((const char *)graph->targets, edges * (Py_ssize_t)sizeof(uint32_t));
    PyObject *weights = PyByteArray_FromStringAndSize((const char *)graph->weights, edges * (Py_ssize_t)sizeof(float));
    PyObject *triple = starts && targets && weights ? PyTuple_Pack(3, starts, targets, weights) : NULL;
    Py_XDECREF(starts);
    Py_XDECREF(targets);
    Py_XDECREF(weights);
    return triple;
}

PyObject *end_with_graph(umap_work *w, bool good, napier_umap_graph *graph) {
    PyObject *given = good ? graph_triple(graph) : NULL;
    napier_umap_graph_destroy(w->context, graph);
    return work_end(w, given != NULL, given);
}

kept *kept_new(umap_work *w, const char *kind, PyCapsule_Destructor end, PyObject **capsule) {
    kept *k = calloc(1, sizeof *k);
    *capsule = k ? PyCapsule_New(k, kind, end) : PyErr_NoMemory();
    if (!*capsule) {
        free(k);
        return NULL;
    }
    k->context = context_new(napier_context_threads(w->context));
    if (!k->context) {
        Py_CLEAR(*capsule);
        return NULL;
    }
    return k;
}

bool kept_retake(umap_work *w, kept *k) {
    PyEval_RestoreThread(w->thread);
    const int raised = raise_status(k->context, w->status, w->function);
    return context_end_show(w->context) == 0 && raised == 0 && !PyErr_Occurred();
}

void kept_end(PyObject *capsule, const char *kind, destroy_function *destroy) {
    kept *k = PyCapsule_GetPointer(capsule, kind);
    if (k) {
        destroy(k->context, k->object);
        napier_context_destroy(k->context);
        free(k);
    }
}

kept *work_kept(umap_work *w, int place, const char *kind) {
    if (!PyCapsule_IsValid(w->values[place], kind)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a %s, got %R", w->function, kind, w->values[place]);
        return NULL;
    }
    return PyCapsule_GetPointer(w->values[place], kind);
}
