/* slices.c - see slices.h. */
#include "slices.h"

#include <string.h>

int take_axis(PyObject *value, const char *name, int ndim, int *axis) {
    if (take_int(value, name, axis)) {
        return -1;
    }
    const int most = ndim > 0 ? ndim : 1;
    if (*axis < -most || *axis >= most) {
        PyErr_Format(PyExc_IndexError, "%s: %d is out of range for an array of %d dimensions", name, *axis, ndim);
        return -1;
    }
    *axis += *axis < 0 ? most : 0;
    return 0;
}

/* Whether dimensions a and b can be joined into one in every operand. */
static bool follows(const slices *s, int a, int b) {
    for (int k = 0; k < s->operands; k++) {
        if (s->strides[a][k] != s->strides[b][k] * s->shape[b]) {
            return false;
        }
    }
    return true;
}

static void drop(slices *s, int d) {
    for (int i = d; i + 1 < s->outer; i++) {
        s->shape[i] = s->shape[i + 1];
        memcpy(s->strides[i], s->strides[i + 1], sizeof s->strides[i]);
    }
    s->outer--;
}

static void join(slices *s) {
    for (int d = 0; d + 1 < s->outer;) {
        if (follows(s, d, d + 1)) {
            s->shape[d + 1] *= s->shape[d];
            drop(s, d);
        } else {
            d++;
        }
    }
}

void slices_start(slices *s, const array *const *arrays, int operands, int axis, int reduced) {
    const array *first = arrays[0];
    s->operands = operands;
    s->outer = 0;
    s->cols = 1;
    for (int k = 0; k < operands; k++) {
        s->data[k] = arrays[k]->data;
        s->dtype[k] = arrays[k]->dtype;
        s->item[k] = napier_dtype_size(arrays[k]->dtype);
        s->col_stride[k] = 1;
        s->row_stride[k] = 0;
    }
    for (int d = 0; d < first->ndim; d++) {
        if (d == axis) {
            s->cols = first->shape[d];
        } else if (first->shape[d] != 1) {
            s->shape[s->outer] = first->shape[d];
        }
        for (int k = 0; k < operands; k++) {
            const bool lacks = k >= operands - reduced && arrays[k]->ndim < first->ndim;
            const int64_t stride = lacks && d == axis ? 0 : arrays[k]->strides[lacks && d > axis ? d - 1 : d];
            if (d == axis) {
                s->col_stride[k] = stride;
            } else if (first->shape[d] != 1) {
                s->strides[s->outer][k] = stride;
            }
        }
        s->outer += d != axis && first->shape[d] != 1;
    }
    join(s);
    s->rows = 1;
    int largest = -1;
    for (int d = 0; d < s->outer; d++) {
        if (largest < 0 || s->shape[d] > s->shape[largest]) {
            largest = d;
        }
    }
    if (largest >= 0) {
        s->rows = s->shape[largest];
        memcpy(s->row_stride, s->strides[largest], sizeof s->row_stride);
        drop(s, largest);
    }
    memset(s->index, 0, (size_t)s->outer * sizeof *s->index);
}

bool slices_next(slices *s) {
    for (int d = s->outer - 1; d >= 0; d--) {
        const bool more = ++s->index[d] < s->shape[d];
        const int64_t steps = more ? 1 : 1 - s->shape[d];
        for (int k = 0; k < s->operands; k++) {
            s->data[k] += steps * s->strides[d][k] * (int64_t)s->item[k];
        }
        if (more) {
            return true;
        }
        s->index[d] = 0;
    }
    return false;
}

napier_const_matrix slices_matrix(const slices *s, int k) {
    return (napier_const_matrix){s->data[k], s->rows, s->cols, s->row_stride[k], s->col_stride[k], s->dtype[k]};
}
