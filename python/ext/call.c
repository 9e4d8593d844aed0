/* call.c - see call.h. */
#include "call.h"

#include <stdarg.h>
#include <string.h>

const word_list masked_words = {NAPIER_MASKED_NAN, 2, {"nan", "zero"}};
const word_list kind_words = {NAPIER_KIND_SOFTMAX, 2, {"softmax", "log_softmax"}};

void call_start(py_call *c, const char *function, int where) {
    c->function = function;
    c->failed = false;
    c->where = where;
    c->count = 0;
    c->result_count = 0;
}

void call_release(py_call *c) {
    while (c->result_count > 0) {
        Py_XDECREF(c->results[--c->result_count]);
    }
    while (c->count > 0) {
        array_release(&c->arrays[--c->count]);
    }
}

static PyObject *results_of(py_call *c) {
    if (c->result_count == 1) {
        return Py_NewRef(c->results[0]);
    }
    PyObject *tuple = c->result_count > 0 ? PyTuple_New(c->result_count) : Py_NewRef(Py_None);
    for (int i = 0; tuple && i < c->result_count; i++) {
        (void)PyTuple_SetItem(tuple, i, Py_NewRef(c->results[i]));
    }
    return tuple;
}

PyObject *call_end(py_call *c) {
    PyObject *given = c->failed ? NULL : results_of(c);
    call_release(c);
    return given;
}

PyObject *call_end_giving(py_call *c, array *result) {
    PyObject *given = c->failed ? NULL : array_give(result); /* which may be released once more */
    call_release(c);
    return given;
}

void call_refuse(py_call *c, PyObject *exception, const char *format, ...) {
    va_list values;
    va_start(values, format);
    (void)PyErr_FormatV(exception, format, values);
    va_end(values);
    c->failed = true;
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static array *call_next(py_call *c) {
    array *a = &c->arrays[c->count];
    a->object = NULL;
    return a;
}

array *call_take(py_call *c, PyObject *value, const char *name, int what) {
    if (!value || c->failed) {
        return NULL;
    }
    array *a = call_next(c);
    c->failed = array_take(a, value, name, (what & ~TAKE_CONTIGUOUS) | c->where) != 0;
    if (c->failed) {
        return NULL;
    }
    if (same_device(a, name, &c->arrays[0])) {
        c->failed = true;
        array_release(a);
        return NULL;
    }
    c->count++;
    if (!(what & TAKE_CONTIGUOUS) || array_is_contiguous(a)) {
        return a;
    }
    PyObject *copy = array_copy_contiguous(a);
    c->count--;
    array_release(a);
    c->failed = !copy;
    a = call_take(c, copy, name, what & ~TAKE_CONTIGUOUS);
    Py_XDECREF(copy);
    return a;
}

static int take_uint64(PyObject *value, const char *name, uint64_t *out) {
    PyObject *index = PyNumber_Index(value);
    const unsigned long long x = index ? PyLong_AsUnsignedLongLong(index) : (unsigned long long)-1;
    Py_XDECREF(index);
    if (x == (unsigned long long)-1 && PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s: expected an integer of 64 bits without a sign, got %R", name, value);
        return -1;
    }
    *out = x;
    return 0;
}

int take_word_of(PyObject *value, const char *name, const word_list *words, void *out) {
    return take_word(value, name, words->words, words->count, words->first, out);
}

/* Takes what is no array. Returns -1 with an error set. */
static int take_value(PyObject *value, const char *name, char type, const word_list *words, void *to) {
    int number = 0, failed = 0;
    double wide = 0.0;
    switch (type) {
    case 'd': return take_double(value, name, to);
    case 'l': return take_int64(value, name, to);
    case 'u': return take_uint64(value, name, to);
    case 'i': return take_int(value, name, to);
    case 'b': return take_bool(value, name, to);
    case 't': return take_dtype(value, name, to);
    case 'f':
        failed = take_double(value, name, &wide);
        *(float *)to = (float)wide;
        return failed;
    case 'j':
        failed = take_int(value, name, &number);
        *(int32_t *)to = number;
        return failed;
    case 'B':
        failed = take_bool(value, name, &number);
        *(int64_t *)to = number;
        return failed;
    case 'w': return take_word_of(value, name, words, to);
    case 'W':
        failed = take_word_of(value, name, words, &number);
        *(int64_t *)to = number;
        return failed;
    default: return 0;
    }
}

/* Sets the view of an array, or an empty one of NULL. Returns -1 with an error set. */
static int set_view(const array *a, const char *name, char type, void *to) {
    napier_const_matrix m = {0};
    napier_const_vector v = {0};
    napier_indices i = napier_indices_i64(NULL, 0);
    int failed = 0;
    switch (type) {
    case 'M':
        failed = a ? array_matrix(a, name, &m) : 0;
        *(napier_const_matrix *)to = m;
        return failed;
    case 'm':
        failed = a ? array_matrix(a, name, &m) : 0;
        *(napier_matrix *)to = writable_matrix(m);
        return failed;
    case 'V':
        failed = a ? array_vector(a, name, &v) : 0;
        *(napier_const_vector *)to = v;
        return failed;
    case 'v':
        failed = a ? array_vector(a, name, &v) : 0;
        *(napier_vector *)to = writable_vector(v);
        return failed;
    default:
        failed = a ? array_indices(a, name, &i) : 0;
        *(napier_indices *)to = i;
        return failed;
    }
}

/* Takes one argument, or sets it to what is absent. */
static void take_argument(py_call *c, const argument *g, PyObject *value) {
    const array *a = NULL;
    switch (g->type) {
    case 'A': *(array **)g->to = call_take(c, value, g->name, g->what); return;
    case 'M':
    case 'V': a = call_take(c, value, g->name, TAKE_SINGLE); break;
    case 'I': a = call_take(c, value, g->name, TAKE_INTEGERS | TAKE_CONTIGUOUS); break;
    case 'm':
    case 'v': a = call_take(c, value, g->name, TAKE_FLOATS | TAKE_WRITABLE); break;
    case 'O': *(PyObject **)g->to = value; return;
    default:
        if (value) {
            c->failed =
                (g->take ? g->take(value, g->name, g->to) : take_value(value, g->name, g->type, g->words, g->to)) != 0;
        } else if (g->type == 't') {
            *(napier_dtype *)g->to = (napier_dtype)0;
        }
        return;
    }
    c->failed = set_view(a, g->name, g->type, g->to) || c->failed;
}

void call_take_all(py_call *c, const caller *from, const argument *table, int count, int positional, int required) {
    signature s;
    PyObject *values[MOST_ARGUMENTS];
    int first = 0;
    s.function = c->function;
    s.count = count;
    s.positional = positional;
    s.required = required;
    for (int i = 0; i < count; i++) {
        s.names[i] = table[i].name;
        first = table[i].first ? i : first;
    }
    c->failed = arguments(&s, from->args, from->count, from->keywords, values) != 0;
    take_argument(c, &table[first], c->failed ? NULL : values[first]);
    for (int i = 0; i < count; i++) {
        if (i != first) {
            take_argument(c, &table[i], c->failed ? NULL : values[i]);
        }
    }
}

int take_fields(PyObject *dict, const field *fields, const char *const *others, void *to) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        const field *f = fields;
        while (name && f->name && strcmp(name, f->name) != 0) {
            f++;
        }
        const char *const *other = others;
        while (name && !f->name && *other && strcmp(name, *other) != 0) {
            other++;
        }
        if (name && !f->name && !*other) {
            PyErr_Format(PyExc_TypeError, "unexpected option '%s'", name);
        }
        if (!name || (!f->name && !*other)) {
            return -1;
        }
        if (f->name && value != Py_None && take_value(value, f->name, f->type, f->words, (char *)to + f->offset)) {
            return -1;
        }
    }
    return 0;
}

void call_on_host(py_call *c, const char *option, int given) {
    if (!c->failed && given && array_on_device(&c->arrays[0])) {
        call_refuse(c, PyExc_NotImplementedError, "%s: %s is for arrays on the CPU only", c->function, option);
    }
}

const uint8_t *mask_of(py_call *c, const array *a, const char *name, int64_t size) {
    if (a && !c->failed && a->size != size) {
        call_refuse(c, PyExc_ValueError, "%s: expected %lld elements, got %lld", name, (long long)size,
                    (long long)a->size);
    }
    return a && !c->failed ? (const uint8_t *)a->data : NULL;
}

void *exact_elements(py_call *c, const array *a, const char *name, char type, int64_t size) {
    if (!a || c->failed) {
        return NULL;
    }
    const bool fits = type == 'l' ? a->integer == NAPIER_I64 : a->dtype == NAPIER_F32;
    if (!fits || !array_is_contiguous(a) || a->size != size) {
        call_refuse(c, PyExc_ValueError, "%s: expected %lld contiguous %s", name, (long long)size,
                    type == 'l' ? "int64" : "float32");
    }
    return a->data;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

void call_set(py_call *c, int place, PyObject *object) {
    Py_XDECREF(c->results[place]);
    c->results[place] = object;
    c->failed = c->failed || !object;
}

void call_add(py_call *c, PyObject *object) {
    c->results[c->result_count++] = NULL;
    call_set(c, c->result_count - 1, object);
}

/* integers: a new array of int64. */
static array *make_next(py_call *c, int ndim, const int64_t *shape, napier_dtype dtype, bool integers) {
    if (c->failed) {
        return NULL;
    }
    array *a = call_next(c);
    c->failed = (integers ? array_make_integers(a, &c->arrays[0], ndim, shape)
                          : array_make(a, &c->arrays[0], ndim, shape, dtype)) != 0;
    if (c->failed) {
        array_release(a);
        return NULL;
    }
    c->count++;
    return a;
}

array *call_make(py_call *c, int ndim, const int64_t *shape, napier_dtype dtype) {
    return make_next(c, ndim, shape, dtype, false);
}

/* Makes the array the next result. */
static array *as_result(py_call *c, array *a) {
    if (a) {
        call_add(c, Py_NewRef(a->object));
    }
    return a;
}

array *make_array(py_call *c, int ndim, const int64_t *shape, napier_dtype dtype) {
    return as_result(c, call_make(c, ndim, shape, dtype));
}

/* Adds None where the result is not wanted. */
static bool is_wanted(py_call *c, bool wanted) {
    if (!wanted && !c->failed) {
        call_add(c, Py_NewRef(Py_None));
    }
    return wanted;
}

napier_vector make_vector_if(py_call *c, bool wanted, int64_t size, napier_dtype dtype) {
    const array *a = is_wanted(c, wanted) ? make_array(c, 1, &size, dtype) : NULL;
    return a ? napier_array(a->data, size, dtype) : (napier_vector){0};
}

napier_matrix make_matrix_if(py_call *c, bool wanted, int64_t rows, int64_t cols, napier_dtype dtype) {
    const int64_t shape[2] = {rows, cols};
    const array *a = is_wanted(c, wanted) ? make_array(c, 2, shape, dtype) : NULL;
    return a ? napier_rows(a->data, rows, cols, dtype) : (napier_matrix){0};
}

int64_t *make_integers_if(py_call *c, bool wanted, int64_t rows, int64_t cols) {
    const int64_t shape[2] = {rows, cols};
    const array *a =
        is_wanted(c, wanted) ? as_result(c, make_next(c, cols < 0 ? 1 : 2, shape, NAPIER_F32, true)) : NULL;
    return a ? (int64_t *)(void *)a->data : NULL;
}

napier_matrix make_matrix_or(py_call *c, PyObject *out, int64_t rows, int64_t cols, napier_dtype dtype) {
    if (!out) {
        return make_matrix(c, rows, cols, dtype);
    }
    napier_matrix m = {0};
    const array *a = call_take(c, out, "out", TAKE_FLOATS | TAKE_WRITABLE);
    c->failed = !a || set_view(a, "out", 'm', &m);
    call_add(c, Py_NewRef(out));
    return m;
}
