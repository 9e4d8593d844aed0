/* call.h - one call from Python: its arguments by a table, its results in order, and an error that later steps respect.
 *
 *     PYTHON_FUNCTION(swiglu) {
 *         napier_const_matrix gate, up;
 *         napier_dtype dtype;
 *         TAKE("swiglu", 3, 2, ON_HOST, ARG("gate", gate), ARG("up", up), DTYPE("dtype", dtype))
 *         const napier_matrix out = make_matrix(&c, gate.rows, gate.cols, dtype ? dtype : gate.dtype);
 *         COMPUTE(napier_swiglu(context, gate, up, out));
 *         return call_end(&c);
 *     }
 *
 * TAKE declares the call `c`. After an error (c.failed) every step does nothing, and call_end returns NULL. */
#ifndef NAPIER_PYTHON_CALL_H
#define NAPIER_PYTHON_CALL_H

#include <stddef.h>

#include "array/device.h"

enum { MOST_ARRAYS = 16 };

/* ON_HOST: arrays on a GPU are refused. ANYWHERE: all arrays may be on one GPU. */
enum { ON_HOST = 0, ANYWHERE = TAKE_DEVICE };

/* The arrays of one call are taken and made one by one, and released together. */
typedef struct py_call {
    const char *function;
    bool failed; /* with an error set */
    int where;   /* ON_HOST or ANYWHERE */
    int count, result_count;
    array arrays[MOST_ARRAYS];
    PyObject *results[MOST_ARRAYS]; /* owned */
} py_call;

void call_start(py_call *c, const char *function, int where);
/* Returns the one result, a tuple of several, or None without one; NULL if the call has failed. Releases everything. */
PyObject *call_end(py_call *c);
/* The same for one array, which is given as a value of its library (array_give). It is an array of this call. */
PyObject *call_end_giving(py_call *c, array *result);
void call_release(py_call *c);

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* The words of an argument that is an enumeration, the first of which is `first`. */
typedef struct word_list {
    int first, count;
    const char *words[10];
} word_list;

extern const word_list masked_words; /* "nan", "zero": napier_masked_rows */
extern const word_list kind_words;   /* "softmax", "log_softmax": napier_softmax_kind */

/* One argument: where its value goes and, by a letter, what it is. What is absent leaves numbers as they are, and makes
 * arrays and objects empty or NULL.
 *     d double, f float, l int64, u uint64, i int, b bool as int, B as int64, w word as int, W as int64, t dtype (absent: 0), O object,
 *     M matrix, V vector, I indices, m and v those to write to, A array; 0 what a function takes */
typedef int take_function(PyObject *value, const char *name, void *to); /* returns -1 with an error set */
typedef struct argument {
    const char *name;
    void *to;
    const word_list *words;
    take_function *take;
    int what; /* TAKE_.. flags of an array */
    char type;
    bool first; /* taken before the others: results are of its kind */
} argument;

#define TYPE_OF(x_) \
    _Generic((x_), double : 'd', int64_t : 'l', int : 'b', PyObject * : 'O', napier_const_matrix : 'M',       \
             napier_const_vector : 'V', napier_indices : 'I', napier_matrix : 'm', napier_vector : 'v')
#define ARG(name_, x_) \
    { .name = name_, .to = &(x_), .type = TYPE_OF(x_) }
#define FIRST(name_, x_) \
    { .name = name_, .to = &(x_), .type = TYPE_OF(x_), .first = true }
#define INTEGER(name_, x_) \
    { .name = name_, .to = &(x_), .type = 'i' }
#define BOOL(name_, x_) \
    { .name = name_, .to = &(x_), .type = sizeof(x_) == sizeof(int64_t) ? 'B' : 'b' }
#define DTYPE(name_, x_) \
    { .name = name_, .to = &(x_), .type = 't' }
#define WORD(name_, x_, words_) \
    { .name = name_, .to = &(x_), .words = &(words_), .type = sizeof(x_) == sizeof(int64_t) ? 'W' : 'w' }
#define ARRAY(name_, x_, what_) \
    { .name = name_, .to = &(x_), .what = (what_), .type = 'A' }
#define WITH(name_, x_, function_) \
    { .name = name_, .to = &(x_), .take = function_ }
/* One more flag of an array: replaced by a contiguous copy if needed. This is for arrays that are small compared with the
 * others of the call. */
enum { TAKE_CONTIGUOUS = 1 << 10 };

/* Declares a function of Python, and its entry in a table. What one of these defines, docs.txt documents. */
#define PYTHON_FUNCTION(name_) \
    static PyObject *py_##name_(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
#define ENTRY_AS(public_, name_) \
    { public_, FAST(py_##name_), NULL }
#define ENTRY(name_) ENTRY_AS(#name_, name_)
#define ENTRY_END \
    { NULL, NULL, 0, NULL }

/* Takes all arguments by the table. The first `positional_` may be given by position; the first `required_` must be. */
#define TAKE(function_, positional_, required_, where_, ...)                            \
    const argument table_[] = {__VA_ARGS__};                                            \
    _Static_assert(sizeof table_ / sizeof *table_ <= MOST_ARGUMENTS, "MOST_ARGUMENTS"); \
    const caller caller_ = {args, count, keywords};                                     \
    py_call c;                                                                          \
    (void)self;                                                                         \
    call_start(&c, function_, where_);                                                  \
    call_take_all(&c, &caller_, table_, (int)(sizeof table_ / sizeof *table_), positional_, required_);

typedef struct caller {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *keywords;
} caller;
void call_take_all(py_call *c, const caller *from, const argument *table, int count, int positional, int required);

/* Takes one of the words, to an enumeration. */
int take_word_of(PyObject *value, const char *name, const word_list *words, void *out);

/* The names of a dict's items, for structs of options. A table of them ends with a NULL name. */
typedef struct field {
    const char *name;
    size_t offset;
    char type; /* as that of an argument; j int32 */
    const word_list *words;
} field;

#define FIELD(struct_, name_, type_) \
    { #name_, offsetof(struct_, name_), type_, NULL }
#define FIELD_WORD(struct_, name_, field_, words_) \
    { name_, offsetof(struct_, field_), 'w', &(words_) }
#define FIELDS_END \
    { NULL, 0, 0, NULL }

/* Copies the dict into the struct at `to`; None changes nothing. Other names than those of the table and of `others`, a
 * list that ends with NULL, are errors. Returns -1 with an error set. */
int take_fields(PyObject *dict, const field *fields, const char *const *others, void *to);

/* Takes the next array from the caller's value. Returns NULL: it has failed, or the value is NULL (absent). */
array *call_take(py_call *c, PyObject *value, const char *name, int what);
/* Sets an error. */
void call_refuse(py_call *c, PyObject *exception, const char *format, ...);
/* Refuses an option that a GPU does not have. */
void call_on_host(py_call *c, const char *option, int given);

/* [size] bytes of any shape, not 0 for tokens that count; NULL if absent. */
const uint8_t *mask_of(py_call *c, const array *a, const char *name, int64_t size);
/* The elements of an array that must be contiguous and so many: int64 ('l') or float32 ('f'); NULL if absent. */
void *exact_elements(py_call *c, const array *a, const char *name, char type, int64_t size);

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Make a new array of the first one's kind, which is the next result; empty, and None, if it is not wanted. */
napier_vector make_vector_if(py_call *c, bool wanted, int64_t size, napier_dtype dtype);
napier_matrix make_matrix_if(py_call *c, bool wanted, int64_t rows, int64_t cols, napier_dtype dtype);
int64_t *make_integers_if(py_call *c, bool wanted, int64_t rows, int64_t cols); /* cols < 0: one dimension */
static inline napier_vector make_vector(py_call *c, int64_t size, napier_dtype dtype) {
    return make_vector_if(c, true, size, dtype);
}
static inline napier_matrix make_matrix(py_call *c, int64_t rows, int64_t cols, napier_dtype dtype) {
    return make_matrix_if(c, true, rows, cols, dtype);
}
/* The same for any shape. NULL: it has failed. */
array *make_array(py_call *c, int ndim, const int64_t *shape, napier_dtype dtype);
/* A new array that is no result. */
array *call_make(py_call *c, int ndim, const int64_t *shape, napier_dtype dtype);
/* The caller's `out`, which is the next result, or a new matrix. */
napier_matrix make_matrix_or(py_call *c, PyObject *out, int64_t rows, int64_t cols, napier_dtype dtype);
/* Adds an object, or sets the one at `place`; takes the reference. NULL: it has failed. */
void call_add(py_call *c, PyObject *object);
void call_set(py_call *c, int place, PyObject *object);

/* Of an operation on both, unless the caller says otherwise. */
static inline napier_dtype common_dtype(napier_dtype a, napier_dtype b) { return a == b ? a : NAPIER_F32; }

/* ---- Computation --------------------------------------------------------------------------------------------------- */

/* Evaluates `call_`, a status, with a context `context` and without the GIL. */
#define COMPUTE(call_)                      \
    do {                                    \
        int wrong_ = c.failed;              \
        if (!wrong_) {                      \
            RUN(wrong_, c.function, call_); \
        }                                   \
        c.failed = wrong_ != 0;             \
    } while (0)

/* Calls host_(context, ..), or device_(..) if the first array is on a device. */
#define COMPUTE_ANYWHERE(host_, device_, ...)                                            \
    do {                                                                                 \
        int wrong_ = c.failed;                                                           \
        if (!wrong_) {                                                                   \
            RUN_ANYWHERE(wrong_, &c.arrays[0], c.function, host_, device_, __VA_ARGS__); \
        }                                                                                \
        c.failed = wrong_ != 0;                                                          \
    } while (0)

#endif
