/* slices.h - an n-D array as a sequence of matrices: any axis of any array, without copies. */
#ifndef NAPIER_PYTHON_SLICES_H
#define NAPIER_PYTHON_SLICES_H

#include "../ext.h"

enum { MOST_OPERANDS = 4 };

/* Up to four arrays of one shape, of which one axis is the columns. Other dimensions that can be joined in all arrays
 * are joined. The largest of the result is the rows; the others are iterated. */
typedef struct slices {
    int operands;
    char *data[MOST_OPERANDS];
    size_t item[MOST_OPERANDS];
    napier_dtype dtype[MOST_OPERANDS];
    int64_t cols, col_stride[MOST_OPERANDS];
    int64_t rows, row_stride[MOST_OPERANDS];
    int outer; /* dimensions iterated */
    int64_t shape[MOST_DIMS], strides[MOST_DIMS][MOST_OPERANDS], index[MOST_DIMS];
} slices;

/* axis counts from 0. The arrays have the same shape, except that in the last `reduced` of them the axis has size 1 or
 * is missing. */
void slices_start(slices *s, const array *const *arrays, int operands, int axis, int reduced);
/* Moves to the next slice; false after the last. Not for arrays without elements. */
bool slices_next(slices *s);
napier_const_matrix slices_matrix(const slices *s, int operand);

/* Converts -ndim .. ndim - 1 to 0 .. ndim - 1. A number (0 dimensions) has one axis of size 1, as in PyTorch. */
int take_axis(PyObject *value, const char *name, int ndim, int *axis);

#endif
