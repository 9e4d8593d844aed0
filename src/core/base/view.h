/* core/base/view.h - checks views, and whether two views overlap. Each check returns NAPIER_OK, or fails with a text
 * that names the argument and its value. */
#ifndef NAPIER_CORE_BASE_VIEW_H
#define NAPIER_CORE_BASE_VIEW_H

#include "core/base/context.h"

/* The shape is not negative, the dtype is known, the data are not NULL and aligned, and every address
 * is representable. */
napier_status napier_check_matrix(napier_context *context, const char *name, napier_const_matrix view);
napier_status napier_check_vector(napier_context *context, const char *name, napier_const_vector view);

/* The same checks for an output. Also, no two of its elements may share memory. */
napier_status napier_check_matrix_out(napier_context *context, const char *name, napier_matrix view);
napier_status napier_check_vector_out(napier_context *context, const char *name, napier_vector view);

/* `out` must be exactly `in` (data, dtype and strides: in place) or share no byte with it. The check is exact for any
 * strides: two interleaved halves of one array do not overlap. The shapes have been checked. */
napier_status napier_check_alias(napier_context *context, const char *out_name, napier_matrix out, const char *in_name,
                                 napier_const_matrix in);

/* A vector as a matrix of one row, so that one kind of check and kernel serves both. */
static inline napier_const_matrix napier_vector_row(napier_const_vector v) {
    napier_const_matrix m = {v.data, 1, v.size, 0, v.stride, v.dtype};
    return m;
}
static inline napier_matrix napier_vector_row_out(napier_vector v) {
    napier_matrix m = {v.data, 1, v.size, 0, v.stride, v.dtype};
    return m;
}

#endif
