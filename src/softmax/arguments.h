/* softmax/arguments.h - checks of arguments that the operations of this room share. */
#ifndef NAPIER_SOFTMAX_ARGUMENTS_H
#define NAPIER_SOFTMAX_ARGUMENTS_H

#include "base/context.h"

static inline napier_status napier_check_same_shape(napier_context *context, const char *a_name, int64_t a_rows,
                                                    int64_t a_cols, const char *b_name, int64_t b_rows,
                                                    int64_t b_cols) {
    if (a_rows != b_rows || a_cols != b_cols) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: shape %lld x %lld is not that of %s, %lld x %lld",
                           a_name, (long long)a_rows, (long long)a_cols, b_name, (long long)b_rows, (long long)b_cols);
    }
    return NAPIER_OK;
}

static inline napier_status napier_check_size(napier_context *context, const char *name, int64_t size, int64_t wanted) {
    if (size != wanted) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: size %lld is not %lld", name, (long long)size,
                           (long long)wanted);
    }
    return NAPIER_OK;
}

/* A vector with one element per row of a matrix, as a matrix of one column. */
static inline napier_matrix napier_column(napier_vector v) {
    const napier_matrix m = {v.data, v.size, 1, v.stride, 1, v.dtype};
    return m;
}

#endif
