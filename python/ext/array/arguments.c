/* arguments.c - arguments by position and by name, without the cost of a format string. */
#include "../ext.h"

#include <string.h>

static int argument_place(const signature *s, PyObject *name) {
    for (int i = 0; i < s->count; i++) {
        if (PyUnicode_CompareWithASCIIString(name, s->names[i]) == 0) {
            return i;
        }
    }
    /* dim is PyTorch's word for axis. */
    const bool is_dim = PyUnicode_CompareWithASCIIString(name, "dim") == 0;
    for (int i = 0; is_dim && i < s->count; i++) {
        if (strcmp(s->names[i], "axis") == 0) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument 'dim': it is called axis",
                         s->function);
            return -1;
        }
    }
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", s->function, name);
    return -1;
}

int arguments(const signature *s, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **values) {
    if (count > s->positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d positional argument%s but %zd were given", s->function,
                     s->positional, s->positional == 1 ? "" : "s", count);
        return -1;
    }
    for (int i = 0; i < s->count; i++) {
        values[i] = i < count ? args[i] : NULL;
    }
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        const int place = argument_place(s, PyTuple_GetItem(names, i));
        if (place < 0) {
            return -1;
        }
        if (values[place]) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", s->function, s->names[place]);
            return -1;
        }
        values[place] = args[count + i];
    }
    for (int i = 0; i < s->count; i++) {
        if (i < s->required && !values[i]) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", s->function, s->names[i]);
            return -1;
        }
        if (i >= s->required && values[i] == Py_None) {
            values[i] = NULL;
        }
    }
    return 0;
}

bool argument_is_none(const signature *s, PyObject *const *args, Py_ssize_t count, PyObject *names, int place) {
    if (place < count) {
        return args[place] == Py_None;
    }
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, i), s->names[place]) == 0) {
            return args[count + i] == Py_None;
        }
    }
    return false;
}

/* Puts the argument's name in front of the error that is set. */
static int argument_wrong(const char *name, const char *wanted, PyObject *value) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: expected %s, got %R", name, wanted, value);
    return -1;
}

int take_double(PyObject *value, const char *name, double *out) {
    if (value) {
        const double x = PyFloat_AsDouble(value);
        if (x == -1.0 && PyErr_Occurred()) {
            return argument_wrong(name, "a number", value);
        }
        *out = x;
    }
    return 0;
}

int take_int64(PyObject *value, const char *name, int64_t *out) {
    if (value) {
        PyObject *index = PyNumber_Index(value);
        const long long x = index ? PyLong_AsLongLong(index) : -1;
        Py_XDECREF(index);
        if (x == -1 && PyErr_Occurred()) {
            return argument_wrong(name, "an integer", value);
        }
        *out = x;
    }
    return 0;
}

int take_int(PyObject *value, const char *name, int *out) {
    int64_t wide = *out;
    if (take_int64(value, name, &wide)) {
        return -1;
    }
    if (wide < INT32_MIN || wide > INT32_MAX) {
        return argument_wrong(name, "an integer of 32 bits", value);
    }
    *out = (int)wide;
    return 0;
}

int take_bool(PyObject *value, const char *name, int *out) {
    if (value) {
        const int truth = PyObject_IsTrue(value);
        if (truth < 0) {
            return argument_wrong(name, "True or False", value);
        }
        *out = truth;
    }
    return 0;
}

int take_word(PyObject *value, const char *name, const char *const *words, int count, int first, int *out) {
    if (!value) {
        return 0;
    }
    for (int i = 0; PyUnicode_Check(value) && i < count; i++) {
        if (PyUnicode_CompareWithASCIIString(value, words[i]) == 0) {
            *out = first + i;
            return 0;
        }
    }
    PyObject *list = PyUnicode_FromString("");
    for (int i = 0; list && i < count; i++) {
        PyObject *longer = PyUnicode_FromFormat("%U%s'%s'", list, i > 0 ? ", " : "", words[i]);
        Py_DECREF(list);
        list = longer;
    }
    if (list) {
        PyErr_Format(PyExc_ValueError, "%s: %R is not one of %U", name, value, list);
        Py_DECREF(list);
    }
    return -1;
}
