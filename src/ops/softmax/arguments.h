/* ops/softmax/arguments.h - checks the arguments and options of the softmax calls, for f32 and f64, on the CPU and on a
 * GPU. */
#ifndef NAPIER_OPS_SOFTMAX_ARGUMENTS_H
#define NAPIER_OPS_SOFTMAX_ARGUMENTS_H

#include <napier/softmax.h>

#include "core/base/view.h"

/* f64 if either is f64, otherwise f32. */
static inline napier_dtype napier_compute_dtype(napier_dtype in, napier_dtype out) {
    return in == NAPIER_F64 || out == NAPIER_F64 ? NAPIER_F64 : NAPIER_F32;
}
static inline napier_dtype napier_compute_dtype3(napier_dtype a, napier_dtype b, napier_dtype c) {
    return napier_compute_dtype(napier_compute_dtype(a, b), c);
}

/* x rounded to nearest even, subnormals kept, whatever the caller's floating-point state is. */
float napier_float_of(double x);

/* *out becomes the caller's options, or the defaults for NULL. The temperature is rounded to `compute`, and must be
 * finite and above 0 there too. */
napier_status napier_softmax_options_read(napier_context *context, const napier_softmax_options *options,
                                          napier_dtype compute, napier_softmax_options *out);

/* If its elements are contiguous, a matrix can be treated as one long row. */
static inline bool napier_is_one_run(napier_const_matrix m) {
    return (m.cols <= 1 || m.col_stride == 1) && (m.rows <= 1 || (m.row_stride == m.cols && m.col_stride == 1));
}

static inline napier_const_matrix napier_one_row(napier_const_matrix m) {
    return (napier_const_matrix){m.data, 1, m.rows * m.cols, 0, 1, m.dtype};
}

/* Each function starts a call, checks all its arguments and reads the options. */
napier_status napier_softmax_arguments(napier_context *context, const napier_argument *all, size_t count,
                                       const napier_softmax_options *options, napier_dtype compute,
                                       napier_softmax_options *o);
napier_status napier_elementwise_arguments(napier_context *context, const char *name, napier_const_matrix logits,
                                           napier_matrix result, const napier_softmax_options *options,
                                           napier_softmax_options *o);
/* size: 1 for the logsumexp of the whole matrix, otherwise the number of its rows. */
napier_status napier_logsumexp_arguments(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                         int64_t size, const napier_softmax_options *options,
                                         napier_softmax_options *o);
napier_status napier_gradient_arguments(napier_context *context, const char *result_name, napier_const_matrix result,
                                        const char *grad_name, const napier_const_matrix *grad, napier_matrix out,
                                        const napier_softmax_options *options, napier_dtype compute,
                                        napier_softmax_options *o);
napier_status napier_dot_arguments(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                   napier_vector dots);
napier_status napier_logsumexp_gradient_arguments(napier_context *context, napier_const_matrix logits,
                                                  napier_const_vector grad_lse, int64_t size, napier_matrix grad_logits,
                                                  const napier_softmax_options *options, napier_dtype compute,
                                                  napier_softmax_options *o);

#endif
