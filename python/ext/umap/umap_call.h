/* umap_call.h - shared by the functions of UMAP. Only napier/_umap calls them, by position, with NumPy arrays of
 * exactly the dtype that the library reads, results included. It handles what a user may pass. Still, everything
 * that could crash the interpreter is checked here. */
#ifndef NAPIER_PYTHON_UMAP_CALL_H
#define NAPIER_PYTHON_UMAP_CALL_H

#include <stddef.h>

#include "../call.h"

/* One call: its arguments, the arrays taken, a context, and the progress. */
typedef struct umap_work {
    const char *function;
    PyObject *const *values;
    PyObject *options; /* the dict */
    py_call arrays;
    napier_context *context;
    bool own_context; /* has its own number of threads: not from the pool */
    napier_status status;
    PyObject *progress; /* borrowed; NULL: none, but Ctrl-C is still checked */
    PyThreadState *thread;
    double asked; /* when Ctrl-C was last checked, in seconds */
} umap_work;

/* Returns false with an error set. The last of the `wanted` values is a dict of options; every function has "threads"
 * and "progress". */
bool work_start(umap_work *w, const char *function, PyObject *const *values, Py_ssize_t count, Py_ssize_t wanted);
/* Releases everything. Returns `result` if `good`, else NULL (with an error set). */
PyObject *work_end(umap_work *w, bool good, PyObject *result);

void work_release(umap_work *w); /* the GIL */
bool work_retake(umap_work *w);  /* and raises the exception of the status */

/* True if the call returned NAPIER_OK. */
#define WORK(w_, call_) (work_release(w_), (w_)->status = (call_), work_retake(w_))

/* A callback for the library, with a work as `user`: checks for Ctrl-C at intervals, and calls the caller's
 * progress(stage, done), which stops the work by returning a true value. */
int work_progress(const char *stage, double done, void *user);

/* ---- Values by position; each function returns false with an error set ------------------------------------------- */

enum { OPTIONAL = 1, WRITABLE = 2 };

/* Takes a contiguous array of `ndim` dimensions: 'f' float32, 'i' int32 (or the bits of uint32), 'l' int64. *out is
 * NULL if an OPTIONAL one is None. */
bool work_array(umap_work *w, int place, const char *name, char type, int ndim, int flags, array **out);
/* Checks its shape; -1: any. A missing array has every shape. */
bool shape_is(const array *a, const char *name, int64_t rows, int64_t cols);
/* The elements; NULL for a missing array. */
void *elements(const array *a);

bool work_int64(umap_work *w, int place, const char *name, int64_t *out);
bool work_double(umap_work *w, int place, const char *name, double *out);

/* float32 [n, m]. */
bool work_matrix(umap_work *w, int place, const char *name, napier_const_matrix *out);
/* The same for a result. A missing OPTIONAL array is a matrix without data. */
bool work_result(umap_work *w, int place, const char *name, int64_t rows, int64_t cols, int flags, napier_matrix *out);

typedef struct edge_list {
    napier_umap_edge *edges;
    int64_t count;
} edge_list;

/* int32 [count, 3]: the bits of napier_umap_edge. */
bool work_edges(umap_work *w, int place, int flags, edge_list *out);

/* An array of floats of any layout [rows, cols], or a tuple (rows, cols, row_starts, columns, values). */
typedef struct sample_set {
    napier_csr_matrix sparse;
    napier_umap_samples samples;
    int64_t rows, cols;
} sample_set;
bool work_samples(umap_work *w, int place, const char *name, sample_set *out);

/* Defines a function with the library's name, with arguments `values` and a work `w`. */
#define RAW(name_) static PyObject *raw_##name_(PyObject *self, PyObject *const *values, Py_ssize_t count)
#define START(name_, wanted_)                                \
    umap_work w;                                             \
    (void)self;                                              \
    if (!work_start(&w, #name_, values, count, (wanted_))) { \
        return NULL;                                         \
    }
#define FUNCTION(name_) \
    { "_umap_" #name_, (PyCFunction)(void (*)(void))raw_##name_, METH_FASTCALL, NULL }

/* ---- Options: the dict, the last value --------------------------------------------------------------------------- */

/* Copies the work's dict into the struct at `to`; other names in it are errors. */
bool work_fields(umap_work *w, const field *fields, void *to);
/* The same for another dict. */
bool work_fields_of(PyObject *dict, const field *fields, void *to);

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* The bytes of a function that is first asked for their size. */
typedef napier_status to_bytes_function(napier_context *context, const void *object, uint8_t *bytes, size_t capacity,
                                        size_t *size);
PyObject *work_bytes(umap_work *w, to_bytes_function *function, const void *object);

/* Ends the work. Returns a graph as (starts, targets, weights), bytearrays, if `good`; destroys the graph, which may be
 * NULL. */
PyObject *end_with_graph(umap_work *w, bool good, napier_umap_graph *graph);

/* An object that lives longer than a call, in a capsule with its own context, which also destroys it. */
typedef struct kept {
    napier_context *context;
    void *object;
    bool busy; /* a call that changes it is running */
} kept;

typedef void destroy_function(napier_context *context, void *object);
/* Makes a new one without an object, in *capsule. */
kept *kept_new(umap_work *w, const char *kind, PyCapsule_Destructor end, PyObject **capsule);
/* Like work_retake, for a call with the context of the kept object. */
bool kept_retake(umap_work *w, kept *k);
void kept_end(PyObject *capsule, const char *kind, destroy_function *destroy);

/* Returns from a function that makes a kept object: made_, by call_, a status with the context of `k`. */
#define RETURN_KEPT(good_, kind_, end_, made_, call_)                   \
    do {                                                                \
        PyObject *capsule = NULL;                                       \
        kept *k = (good_) ? kept_new(&w, kind_, end_, &capsule) : NULL; \
        if (k) {                                                        \
            work_release(&w);                                           \
            w.status = (call_);                                         \
            k->object = (made_);                                        \
            if (!kept_retake(&w, k)) {                                  \
                Py_CLEAR(capsule);                                      \
            }                                                           \
        }                                                               \
        return work_end(&w, capsule != NULL, capsule);                  \
    } while (0)
kept *work_kept(umap_work *w, int place, const char *kind);

#endif
