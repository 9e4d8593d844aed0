/* umap_call.h - what the functions of the umap room share. They are called by napier/umap.py only, by place, with NumPy
 * arrays of the very dtype that the library reads, results included: what a caller may give is that file's matter.
 * Still everything is checked here that could hurt the interpreter. */
#ifndef NAPIER_PYTHON_UMAP_CALL_H
#define NAPIER_PYTHON_UMAP_CALL_H

#include <stddef.h>

#include "../ops/rl.h"

/* One call: its arguments, the arrays taken, a context, and the progress. */
typedef struct umap_work {
    const char *function;
    PyObject *const *values;
    PyObject *options; /* the dict */
    call_arrays arrays;
    napier_context *context;
    bool own_context; /* of a count of threads of its own: not from the pool */
    napier_status status;
    PyObject *progress; /* borrowed; NULL: none, but Ctrl-C is still looked for */
    PyThreadState *thread;
    double asked; /* when Ctrl-C was last looked for, in seconds */
} umap_work;

/* False with an error set. The last of the `wanted` values is a dict of options, of which "threads" and "progress" are
 * every function's. */
bool work_start(umap_work *w, const char *function, PyObject *const *values, Py_ssize_t count, Py_ssize_t wanted);
/* Gives everything back; `result` if `good`, else NULL (with an error set). */
PyObject *work_end(umap_work *w, bool good, PyObject *result);

void work_release(umap_work *w); /* the GIL */
bool work_retake(umap_work *w);  /* and raises what the status stands for */

/* True if the call came to NAPIER_OK. */
#define WORK(w_, call_) (work_release(w_), (w_)->status = (call_), work_retake(w_))

/* For the library, with a work as `user`: looks for Ctrl-C now and then, and calls the caller's progress(stage, done),
 * which stops the work by a true answer. */
int work_progress(const char *stage, double done, void *user);

/* ---- Values: by place, each false with an error set -------------------------------------------------------------- */

enum { OPTIONAL = 1, WRITABLE = 2 };

/* A contiguous array of `ndim` dimensions: 'f' float32, 'i' int32 (or the bits of uint32), 'l' int64. *out is NULL
 * where an OPTIONAL one is None. */
bool work_array(umap_work *w, int place, const char *name, char type, int ndim, int flags, array **out);
/* Its shape; -1: any. An array that is not there has every shape. */
bool shape_is(const array *a, const char *name, int64_t rows, int64_t cols);
/* The elements, NULL of an array that is not there. */
void *elements(const array *a);

bool work_int64(umap_work *w, int place, const char *name, int64_t *out);
bool work_double(umap_work *w, int place, const char *name, double *out);

/* float32 [n, m]. */
bool work_matrix(umap_work *w, int place, const char *name, napier_const_matrix *out);
/* The same to write to; no array, where OPTIONAL, is a matrix without data. */
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

/* Functions are named as the library's, values come in `values`, and a work `w` is theirs. */
#define RAW(name_) static PyObject *raw_##name_(PyObject *self, PyObject *const *values, Py_ssize_t count)
#define START(name_, wanted_)                                \
    umap_work w;                                             \
    (void)self;                                              \
    if (!work_start(&w, #name_, values, count, (wanted_))) { \
        return NULL;                                         \
    }
#define FUNCTION(name_) \
    { "_umap_" #name_, (PyCFunction)(void (*)(void))raw_##name_, METH_FASTCALL, NULL }

/* ---- Options: the dict that comes last --------------------------------------------------------------------------- */

typedef enum field_kind { FIELD_INT, FIELD_INT32, FIELD_INT64, FIELD_UINT64, FIELD_FLOAT, FIELD_DOUBLE } field_kind;

typedef struct field {
    const char *name;
    size_t offset;
    field_kind kind;
} field;

#define FIELD(struct_, name_, kind_) \
    { #name_, offsetof(struct_, name_), kind_ }

#define FIELDS_END \
    { NULL, 0, FIELD_INT }

/* From the work's dict into the struct at `to`; other names in it are errors. The list ends with a NULL name. */
bool work_fields(umap_work *w, const field *fields, void *to);
/* From another dict. */
bool take_fields(PyObject *dict, const field *fields, void *to);

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Bytes of a function that is asked for their size first. */
typedef napier_status to_bytes_function(napier_context *context, const void *object, uint8_t *bytes, size_t capacity,
                                        size_t *size);
PyObject *work_bytes(umap_work *w, to_bytes_function *function, const void *object);

/* A graph or an error as (starts, targets, weights), bytearrays; destroys the graph. */
PyObject *work_graph(umap_work *w, napier_umap_graph *graph);

/* What lives longer than a call has a context of its own, with which it is destroyed, in a capsule. */
typedef struct kept {
    napier_context *context;
    void *object;
    bool busy; /* a call that changes it is under way */
} kept;

typedef void destroy_function(napier_context *context, void *object);
/* A new one without an object, in *capsule. */
kept *kept_new(umap_work *w, const char *kind, PyCapsule_Destructor end, PyObject **capsule);
/* As WORK, by the context of what is kept, which must be the one that makes it. */
#define KEPT_WORK(w_, kept_, call_) (work_release(w_), kept_work((w_), (kept_), (call_)))
bool kept_work(umap_work *w, kept *k, napier_status status);
void kept_end(PyObject *capsule, const char *kind, destroy_function *destroy);
kept *work_kept(umap_work *w, int place, const char *kind);

#endif
