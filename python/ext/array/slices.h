/* slices.h - an n-D array as a sequence of matrices: any axis of any array, without copies. */
#ifndef NAPIER_PYTHON_SLICES_H
#define NAPIER_PYTHON_SLICES_H

#include "../ext.h"

enum { MOST_OPERANDS = 4 };

/* Up to four arrays of one shape, an axis of which is the columns. Of the other dimensions those are joined that lie
 * behind one another in all arrays; the largest that is left is the rows, the rest is walked through. */
typedef struct slices {
    int operands;
    char *data[MOST_OPERANDS];
    size_t item[MOST_OPERANDS];
    napier_dtype dtype[MOST_OPERANDS];
    int64_t cols, col_stride[MOST_OPERANDS];
    int64_t rows, row_stride[MOST_OPERANDS];
    int outer; /* dimensions walked through */
    int64_t shape[MOST_DIMS], strides[MOST_DIMS][MOST_OPERANDS], index[MOST_DIMS];
} slices;

/* axis counts from 0; arrays have their shape in common, except that the last `reduced` of them have size 1 along the
 * axis, or lack it. */
void slices_start(slices *s, const array *const *arrays, int operands, int axis, int reduced);
/* The next slice; false after the last. Not to be called on arrays without elements. */
bool slices_next(slices *s);
napier_const_matrix slices_matrix(const slices *s, int operand);

/* -ndim .. ndim - 1 to 0 .. ndim - 1. A number (0 dimensions) has one axis, of size 1, as in PyTorch. */
int take_axis(PyObject *value, const char *name, int ndim, int *axis);

#endif
