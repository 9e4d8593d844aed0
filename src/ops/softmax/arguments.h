/* ops/softmax/arguments.h - checks of arguments that the operations of this folder share. */
#ifndef NAPIER_OPS_SOFTMAX_ARGUMENTS_H
#define NAPIER_OPS_SOFTMAX_ARGUMENTS_H

#include <napier/softmax.h>
#include <stdbool.h>

#include "core/base/context.h"

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

/* If its elements are contiguous, a matrix can be treated as one long row. */
static inline bool napier_is_one_run(napier_const_matrix m) {
    return (m.cols <= 1 || m.col_stride == 1) && (m.rows <= 1 || (m.row_stride == m.cols && m.col_stride == 1));
}

static inline napier_const_matrix napier_one_row(napier_const_matrix m) {
    const napier_const_matrix row = {m.data, 1, m.rows * m.cols, 0, 1, m.dtype};
    return row;
}

/* Each function checks all arguments of its operations and reads the options. The
 * compute type is f64 if any dtype is f64. */
napier_status napier_elementwise_arguments(napier_context *context, const char *name, napier_const_matrix logits,
                                           napier_matrix result, const napier_softmax_options *options,
                                           napier_softmax_options *o);
/* size: 1 for the logsumexp of the whole matrix, otherwise the number of its rows. */
napier_status napier_logsumexp_arguments(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                         int64_t size, const napier_softmax_options *options,
                                         napier_softmax_options *o);
napier_status napier_gradient_arguments(napier_context *context, const char *a_name, napier_const_matrix a,
                                        const char *b_name, const napier_const_matrix *b, napier_matrix grad,
                                        const napier_softmax_options *options, napier_dtype compute,
                                        napier_softmax_options *o);
napier_status napier_logsumexp_gradient_arguments(napier_context *context, napier_const_matrix logits,
                                                  napier_const_vector grad_lse, int64_t size, napier_matrix grad_logits,
                                                  const napier_softmax_options *options, napier_dtype compute,
                                                  napier_softmax_options *o);

#endif
