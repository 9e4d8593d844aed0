/* ext.h - the extension module napier._napier: arrays in and out, contexts, errors. It sees Napier's public headers and
 * Python's limited API of 3.11 only, so that one wheel serves every version from there on. */
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

/* ---- Arguments ---------------------------------------------------------------------------------------------------- */

/* The names a function takes, in order. `positional` of them may be given by place; `required` must be given. */
typedef struct signature {
    const char *function;
    int count, positional, required;
    const char *names[24];
} signature;

/* values[i]: what was given for names[i], borrowed; NULL where nothing was, or None. Returns -1 with an error set. */
int arguments(const signature *s, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **values);
/* Was None given for this name, rather than nothing? (arguments() does not tell) */
bool argument_is_none(const signature *s, PyObject *const *args, Py_ssize_t count, PyObject *names, int place);

/* Each leaves *out as it is where the value is NULL. Errors name the argument. */
int take_double(PyObject *value, const char *name, double *out);
int take_int64(PyObject *value, const char *name, int64_t *out);
int take_int(PyObject *value, const char *name, int *out);
int take_bool(PyObject *value, const char *name, int *out);
/* One of `count` words, as its place among them plus `first`. */
int take_word(PyObject *value, const char *name, const char *const *words, int count, int first, int *out);

/* ---- Arrays ------------------------------------------------------------------------------------------------------- */

enum { MOST_DIMS = 64 };

/* Whose array it is: results are of the same kind. */
typedef enum array_kind { KIND_NUMPY, KIND_TENSOR } array_kind;

/* An array of the caller's, or a converted copy of what he gave; nothing is copied where dtype and layout serve. */
typedef struct array {
    PyObject *object; /* owned */
    Py_buffer buffer; /* object NULL: not used */
    dlpack_managed *old_tensor;
    dlpack_managed_versioned *tensor;
    const dlpack_exchange *exchange; /* of a KIND_TENSOR that has it */
    array_kind kind;
    char *data;
    int ndim;
    int64_t shape[MOST_DIMS], strides[MOST_DIMS]; /* strides in elements */
    int64_t size;                                 /* elements */
    napier_dtype dtype;                           /* 0 for integers */
    napier_index_type integer;                    /* of 32 or 64 bits; 0: no integers */
    bool bytes;                                   /* 8-bit integers or bool */
    bool read_only;
    int32_t device_type, device_id; /* DLPack's; device_type 0: memory of the host */
} array;

/* What an argument may be. */
enum {
    TAKE_FLOATS = 1,   /* f32, f16, bf16, f64; integers and bool become f64 */
    TAKE_INTEGERS = 2, /* int32 or int64; other integers become int64 */
    TAKE_BYTES = 4,    /* bool, int8, uint8; others become bool */
    TAKE_WRITABLE = 8, /* the array itself, never a copy */
    TAKE_SINGLE = 16,  /* f32, f16, bf16; f64, integers and bool become f32 */
    TAKE_DEVICE = 32   /* also tensors on a GPU; without it they are refused */
};

int array_take(array *a, PyObject *object, const char *name, int what);
void array_release(array *a);
/* Row-major, no gaps? */
bool array_is_contiguous(const array *a);
/* Calls the function again, over all elements, with copies of its required arguments and of out that are contiguous. */
PyObject *call_with_copies(const signature *s, PyObject *const *values);

/* A new array of a's kind; the object is in result->object and, as the function's value, in array_give. */
int array_make(array *result, const array *like, int ndim, const int64_t *shape, napier_dtype dtype);
int array_make_integers(array *result, const array *like, int ndim, const int64_t *shape);
PyObject *array_give(array *result);

/* Does it lie on a GPU? */
bool array_on_device(const array *a);
bool device_is_ours(int32_t dlpack_type);
void device_emulate(bool on); /* tensors on the CPU are the emulated device's */
/* A new tensor beside `like`, on its device, of a dtype that PyTorch knows by this word. */
int device_make(array *result, const array *like, int ndim, const int64_t *shape, const char *dtype);
/* 0 where both are on the host or on one device; -1 with an error set, which names a. */
int same_device(const array *a, const char *name, const array *first);

/* None, a dtype's name, or any object whose name ends in one (numpy.float32, torch.bfloat16). */
int take_dtype(PyObject *value, const char *name, napier_dtype *out);
/* -1 with an error set where dtype= was given and is not that of out=. */
int dtype_fits_out(PyObject *dtype_given, napier_dtype dtype, PyObject *out_given, const array *out);

/* An array of at most 2 dimensions as a matrix (a vector as one row), of 1 as a vector. */
int array_matrix(const array *a, const char *name, napier_const_matrix *out);
int array_vector(const array *a, const char *name, napier_const_vector *out);
napier_matrix writable_matrix(napier_const_matrix m);
napier_vector writable_vector(napier_const_vector v);
int array_indices(const array *a, const char *name, napier_indices *out);

/* ---- Memory of results -------------------------------------------------------------------------------------------- */

/* 64-byte aligned; large blocks come back from a pool, so that a result costs no page faults. */
void *block_take(size_t bytes);
void block_give(void *block);

/* ---- Contexts and errors ------------------------------------------------------------------------------------------ */

/* A context that nobody else uses; taken and given back with the GIL held. NULL with an error set. */
napier_context *context_take(void);
void context_give(napier_context *context);

/* Raises what the status stands for, with the context's text. Returns -1; 0 for NAPIER_OK. */
int raise_status(napier_context *context, napier_status status, const char *function);

/* Evaluates `call_`, a status, in which `context` is a context, without the GIL. failed_ becomes 0, or -1 with an error set. */
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

/* The same for work on so many elements: where it takes less time than giving the GIL away and back, it is kept. */
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

/* As RUN, and given_ becomes the object `value_` if it succeeded. */
#define RUN_FOR(given_, function_, call_, value_) \
    do {                                          \
        int failed_;                              \
        RUN(failed_, function_, call_);           \
        if (!failed_) {                           \
            (given_) = (value_);                  \
        }                                         \
    } while (0)

extern PyObject *numpy_module, *numpy_empty;

/* ---- Functions, room by room; each table ends with a NULL name ------------------------------------------------------ */

#define FAST(function_) (PyCFunction)(void (*)(void)) function_, METH_FASTCALL | METH_KEYWORDS

extern PyMethodDef softmax_functions[], token_functions[], loss_functions[], attention_functions[], state_functions[],
    umap_edge_functions[], umap_stage_functions[], model_functions[], device_functions[];
int context_start(PyObject *module);
int array_start(void);
int state_start(PyObject *module);
int model_start(PyObject *module);

#endif
