/* ext.h - the extension module napier._napier: arrays in and out, contexts, errors. It uses only Napier's public
 * headers and Python's limited API of 3.11, so that one wheel serves every later version. */
#ifndef NAPIER_PYTHON_EXT_H
#define NAPIER_PYTHON_EXT_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <stdbool.h>

#include <napier/napier.h>

#include "array/dlpack.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

enum { MOST_ARGUMENTS = 26 };

/* The names of a function's arguments, in order. The first `positional` may be given by position; the first `required`
 * must be given. */
typedef struct signature {
    const char *function;
    int count, positional, required;
    const char *names[MOST_ARGUMENTS];
} signature;

/* Sets values[i] to the value given for names[i], borrowed; NULL if nothing was given, or None. Returns -1 with an
 * error set. */
int arguments(const signature *s, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **values);
/* Whether None was given for this name; arguments() does not tell this from nothing. */
bool argument_is_none(const signature *s, PyObject *const *args, Py_ssize_t count, PyObject *names, int place);

/* Each leaves *out unchanged if the value is NULL. Errors name the argument. */
int take_double(PyObject *value, const char *name, double *out);
int take_int64(PyObject *value, const char *name, int64_t *out);
int take_int(PyObject *value, const char *name, int *out);
int take_bool(PyObject *value, const char *name, int *out);
/* Takes one of `count` words, as its index plus `first`. */
int take_word(PyObject *value, const char *name, const char *const *words, int count, int first, int *out);

/* ---- Arrays ------------------------------------------------------------------------------------------------------ */

enum { MOST_DIMS = 64 };

/* The library of an array: NumPy (also others on the host, by way of it), PyTorch, or another one on a GPU. Results are of
 * the same kind. */
typedef enum array_kind { KIND_NUMPY, KIND_TENSOR, KIND_LIBRARY } array_kind;

/* An array of the caller, or a converted copy of it; nothing is copied if dtype and layout are suitable. */
typedef struct array {
    PyObject *object; /* owned */
    Py_buffer buffer; /* object NULL: not used */
    dlpack_managed *old_tensor;
    dlpack_managed_versioned *tensor;
    const dlpack_exchange *exchange; /* of a KIND_TENSOR that provides it */
    PyObject
        *library; /* the namespace of an array of JAX or another library, owned; NULL: NumPy's, PyTorch's and others */
    array_kind kind;
    char *data;
    int ndim;
    int64_t shape[MOST_DIMS], strides[MOST_DIMS]; /* strides in elements */
    int64_t size;                                 /* elements */
    napier_dtype dtype;                           /* 0 for integers */
    napier_index_type integer;                    /* of 32 or 64 bits; 0: not integers */
    bool bytes;                                   /* 8-bit integers or bool */
    bool read_only;
    int32_t device_type, device_id; /* DLPack's; device_type 0: memory of the host */
    uintptr_t stream; /* of a KIND_LIBRARY: where it works now; 0: unknown, so calls use the default stream and wait */
} array;

/* Which arrays an argument may be. */
enum {
    TAKE_FLOATS = 1,   /* f32, f16, bf16, f64; integers and bool become f64 */
    TAKE_INTEGERS = 2, /* int32 or int64; other integers become int64 */
    TAKE_BYTES = 4,    /* bool, int8, uint8; others become bool */
    TAKE_WRITABLE = 8, /* the array itself, never a copy */
    TAKE_SINGLE = 16,  /* f32, f16, bf16; f64, integers and bool become f32 */
    TAKE_DEVICE = 32   /* also arrays on a GPU; without it they are refused */
};

int array_take(array *a, PyObject *object, const char *name, int what);
void array_release(array *a);
/* Whether the array is row-major without gaps. */
bool array_is_contiguous(const array *a);
/* A copy of the array's object without gaps, of its library. */
PyObject *array_copy_contiguous(const array *a);
/* Calls the function again over all elements, with contiguous copies of its required arguments and of out; or, if axis is
 * a tuple, with its axes joined into the last one. */
PyObject *call_with_copies(const signature *s, PyObject *const *values);

/* Makes a new array of a's kind. Its object is in result->object, one of NumPy or PyTorch; array_give returns it as the function's
 * value, for other libraries as an array of theirs. */
int array_make(array *result, const array *like, int ndim, const int64_t *shape, napier_dtype dtype);
int array_make_integers(array *result, const array *like, int ndim, const int64_t *shape);
PyObject *array_give(array *result);

/* Whether the array is on a GPU. */
bool array_on_device(const array *a);
bool device_is_ours(int32_t dlpack_type);
void device_emulate(bool on); /* tensors on the CPU count as those of the emulated device */
/* Makes a new tensor on the device of `like`, with the dtype that PyTorch calls by this word. */
int device_make(array *result, const array *like, int ndim, const int64_t *shape, const char *dtype);
/* Returns 0 if both are on the host or on one device; otherwise -1 with an error set that names a. */
int same_device(const array *a, const char *name, const array *first);

/* Takes None, a dtype's name, or any object whose name ends in one (numpy.float32, torch.bfloat16). */
int take_dtype(PyObject *value, const char *name, napier_dtype *out);
/* Returns -1 with an error set if dtype= was given and differs from that of out=. */
int dtype_fits_out(PyObject *dtype_given, napier_dtype dtype, PyObject *out_given, const array *out);

/* Converts an array of at most 2 dimensions to a matrix (a vector becomes one row), and one of 1 dimension to a
 * vector. */
int array_matrix(const array *a, const char *name, napier_const_matrix *out);
int array_vector(const array *a, const char *name, napier_const_vector *out);
napier_matrix writable_matrix(napier_const_matrix m);
napier_vector writable_vector(napier_const_vector v);
int array_indices(const array *a, const char *name, napier_indices *out);

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Memory of results, aligned to 64 bytes. Large blocks come from a pool and are reused, so that a result costs no page
 * faults. memory_release gives those that are kept back to the system, and returns their bytes. */
void *block_take(size_t bytes);
void block_give(void *memory);
size_t memory_release(void);

int memory_start(void); /* 0, or -1 if there is no memory */
void memory_before_fork(void);
void memory_after_fork(void);
void memory_in_child(void);

/* ---- What operating systems do differently ------------------------------------------------------------------------- */

/* Memory of the system's own pages, a multiple of 4096 bytes and from HUGE_PAGE on of that; NULL if there is none. */
#define HUGE_PAGE ((size_t)2 * 1024 * 1024)
void *pages_take(size_t bytes);
void pages_give(void *pages, size_t bytes);
/* Nobody needs what these pages hold. The system may take them where it lacks memory; written pages are there again. */
void pages_idle(void *pages, size_t bytes);
/* The memory of this machine; 0: unknown. */
size_t machine_bytes(void);

/* Calls these around each fork, where there is one. 0, or another value if there is no memory for it. */
int watch_forks(void (*before)(void), void (*after)(void), void (*in_child)(void));

/* ---- Contexts and errors ----------------------------------------------------------------------------------------- */

/* A context that no one else uses; taken and returned with the GIL held. NULL with an error set. */
napier_context *context_take(void);
void context_give(napier_context *context);
/* Long calls with this context end with an exception where a signal handler raises one: contexts of context_take do. */
void context_watch_signals(napier_context *context);
/* Where napier.progress shows bars, shows how far the call with this context has come: the share of a stage; and removes the
 * bar at the call's end, as raise_status does, too. -1 with the error of a signal handler; bars keep their own errors. An error
 * that is set at the end stays. With the GIL held. */
int context_show(const napier_context *context, const char *what, double done);
int context_end_show(const napier_context *context);
/* What the interrupt shows of the call on this thread from now on, in place of its loops. is_shown: the caller shows it. */
void context_in_stage(const char *name, double done, bool is_shown);

/* Raises the exception of a status, with the context's text, and returns -1; returns 0 for NAPIER_OK. */
int raise_status(napier_context *context, napier_status status, const char *function);

/* Evaluates `call_`, a status, with a context `context` and without the GIL. failed_ becomes 0, or -1 with an error
 * set. */
#define RUN(failed_, function_, call_)                                                 \
    do {                                                                               \
        napier_context *context = context_take();                                      \
        (failed_) = -1;                                                                \
        if (context) {                                                                 \
            napier_status status_;                                                     \
            Py_BEGIN_ALLOW_THREADS status_ = (call_);                                  \
            Py_END_ALLOW_THREADS(failed_) = raise_status(context, status_, function_); \
            context_give(context);                                                     \
        }                                                                              \
    } while (0)

/* The same for work on `elements_` elements: work that takes less time than releasing and retaking the GIL keeps it. */
#define RUN_SIZED(failed_, function_, call_, elements_)                \
    do {                                                               \
        if ((elements_) > KEEP_GIL) {                                  \
            RUN(failed_, function_, call_);                            \
        } else {                                                       \
            napier_context *context = context_take();                  \
            (failed_) = -1;                                            \
            if (context) {                                             \
                (failed_) = raise_status(context, (call_), function_); \
                context_give(context);                                 \
            }                                                          \
        }                                                              \
    } while (0)
enum { KEEP_GIL = 1024 };

extern PyObject *numpy_module, *numpy_empty;

/* ---- Functions by module; each table ends with a NULL name ------------------------------------------------------- */

#define FAST(function_) (PyCFunction)(void (*)(void)) function_, METH_FASTCALL | METH_KEYWORDS

extern PyMethodDef softmax_functions[], token_functions[], loss_functions[], attention_functions[], state_functions[],
    umap_edge_functions[], umap_stage_functions[], umap_raster_functions[], model_functions[], device_functions[],
    layer_functions[], shard_functions[], logcumsumexp_functions[], context_functions[];
/* The docstring of a function, or of a method of owner "CLASS.", in docs.txt; NULL: none. document() gives it to the functions
 * of a table. */
const char *doc_of(const char *owner, const char *name);
void document(PyMethodDef *table, const char *owner);
int context_start(PyObject *module);
int array_start(void);
int state_start(PyObject *module);
int model_start(PyObject *module);

#endif
