/* ops/softmax/arguments.c - checks of arguments that the operations of this folder share, on the CPU and on a GPU. */
#include "ops/softmax/arguments.h"

#include "core/base/view.h"
#include "ops/softmax/options.h"

napier_status napier_elementwise_arguments(napier_context *context, const char *name, napier_const_matrix logits,
                                           napier_matrix result, const napier_softmax_options *options,
                                           napier_softmax_options *o) {
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_matrix(context, "logits", logits);
    if (!status)
        status = napier_check_matrix_out(context, name, result);
    if (!status) {
        status = napier_check_same_shape(context, name, result.rows, result.cols, "logits", logits.rows, logits.cols);
    }
    if (!status)
        status = napier_check_alias(context, name, result, "logits", logits);
    if (!status) {
        status = napier_softmax_options_read(context, options, napier_compute_dtype(logits.dtype, result.dtype), o);
    }
    return status;
}

napier_status napier_logsumexp_arguments(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                         int64_t size, const napier_softmax_options *options,
                                         napier_softmax_options *o) {
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_matrix(context, "logits", logits);
    if (!status)
        status = napier_check_vector_out(context, "lse", lse);
    if (!status)
        status = napier_check_size(context, "lse", lse.size, size);
    if (!status)
        status = napier_check_alias(context, "lse", napier_column(lse), "logits", logits);
    if (!status) {
        status = napier_softmax_options_read(context, options, napier_compute_dtype(logits.dtype, lse.dtype), o);
    }
    return status;
}

napier_status napier_gradient_arguments(napier_context *context, const char *a_name, napier_const_matrix a,
                                        const char *b_name, const napier_const_matrix *b, napier_matrix grad,
                                        const napier_softmax_options *options, napier_dtype compute,
                                        napier_softmax_options *o) {
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_matrix(context, a_name, a);
    if (!status && b)
        status = napier_check_matrix(context, b_name, *b);
    if (!status)
        status = napier_check_matrix_out(context, "grad_logits", grad);
    if (!status && b)
        status = napier_check_same_shape(context, b_name, b->rows, b->cols, a_name, a.rows, a.cols);
    if (!status)
        status = napier_check_same_shape(context, "grad_logits", grad.rows, grad.cols, a_name, a.rows, a.cols);
    if (!status)
        status = napier_check_alias(context, "grad_logits", grad, a_name, a);
    if (!status && b)
        status = napier_check_alias(context, "grad_logits", grad, b_name, *b);
    if (!status)
        status = napier_softmax_options_read(context, options, compute, o);
    return status;
}

/* The gradient of a logsumexp is the softmax times a factor per row. The gradient of a masked row is 0. */
napier_status napier_logsumexp_gradient_arguments(napier_context *context, napier_const_matrix logits,
                                                  napier_const_vector grad_lse, int64_t size, napier_matrix grad_logits,
                                                  const napier_softmax_options *options, napier_dtype compute,
                                                  napier_softmax_options *o) {
    napier_status status =
        napier_gradient_arguments(context, "logits", logits, NULL, NULL, grad_logits, options, compute, o);
    if (!status)
        status = napier_check_vector(context, "grad_lse", grad_lse);
    if (!status)
        status = napier_check_size(context, "grad_lse", grad_lse.size, size);
    if (!status) {
        status = napier_check_alias(context, "grad_logits", grad_logits, "grad_lse", napier_vector_row(grad_lse));
    }
    o->masked_rows = NAPIER_MASKED_ZERO;
    return status;
}
