/* ops/softmax/softmax.c - the calls of softmax, log_softmax, logsumexp and their gradients: checks the arguments, then
 * runs a job in f32 (softmax_split.c) or in f64 (the folder f64). The division of the work never changes a bit (sum.h),
 * so it is chosen for speed only. */
#include <napier/softmax.h>

#include "core/base/parallel.h"
#include "ops/isa/ops_kernels.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/f64/softmax_f64.h"
#include "ops/softmax/softmax_split.h"

static napier_softmax_job job_of(napier_softmax_op op, napier_const_matrix x, napier_matrix y,
                                 const napier_softmax_options *options) {
    return (napier_softmax_job){.op = op,
                                .x = x,
                                .y = y,
                                .temperature = napier_float_of(options->temperature),
                                .masked_rows = options->masked_rows,
                                .stream = napier_leaves_caches(y)};
}

static bool is_empty(napier_const_matrix m) { return m.rows == 0 || m.cols == 0; }

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static napier_status elementwise(napier_context *context, napier_softmax_kind kind, const char *name,
                                 napier_const_matrix logits, napier_matrix result,
                                 const napier_softmax_options *options) {
    napier_softmax_options o;
    const napier_status status = napier_elementwise_arguments(context, name, logits, result, options, &o);
    if (status || is_empty(logits)) {
        return status;
    }
    const napier_softmax_op op = kind == NAPIER_KIND_SOFTMAX ? NAPIER_OP_SOFTMAX : NAPIER_OP_LOG_SOFTMAX;
    const napier_softmax_job job = job_of(op, logits, result, &o);
    return napier_compute_dtype(logits.dtype, result.dtype) == NAPIER_F32
               ? napier_softmax_split(context, &job, o.algorithm)
               : napier_f64_softmax(context, kind, logits, result, &o);
}

napier_status napier_softmax(napier_context *context, napier_const_matrix logits, napier_matrix probs,
                             const napier_softmax_options *options) {
    return elementwise(context, NAPIER_KIND_SOFTMAX, "probs", logits, probs, options);
}

napier_status napier_log_softmax(napier_context *context, napier_const_matrix logits, napier_matrix logprobs,
                                 const napier_softmax_options *options) {
    return elementwise(context, NAPIER_KIND_LOG_SOFTMAX, "logprobs", logits, logprobs, options);
}

napier_status napier_logsumexp(napier_context *context, napier_const_matrix logits, napier_vector lse,
                               const napier_softmax_options *options) {
    napier_softmax_options o;
    const napier_status status = napier_logsumexp_arguments(context, logits, lse, logits.rows, options, &o);
    if (status || logits.rows == 0) {
        return status;
    }
    if (napier_compute_dtype(logits.dtype, lse.dtype) == NAPIER_F64) {
        return napier_f64_logsumexp(context, logits, lse, &o);
    }
    const napier_softmax_job job = job_of(NAPIER_OP_LOGSUMEXP, logits, napier_column(lse), &o);
    return napier_softmax_split(context, &job, o.algorithm);
}

napier_status napier_logsumexp_all(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                   const napier_softmax_options *options) {
    napier_softmax_options o;
    const napier_status status = napier_logsumexp_arguments(context, logits, lse, 1, options, &o);
    if (status) {
        return status;
    }
    if (napier_compute_dtype(logits.dtype, lse.dtype) == NAPIER_F64) {
        return napier_f64_logsumexp_all(context, logits, lse, &o);
    }
    const bool one_row = napier_is_one_run(logits);
    const napier_softmax_job job =
        job_of(NAPIER_OP_LOGSUMEXP, one_row ? napier_one_row(logits) : logits, napier_column(lse), &o);
    return one_row ? napier_softmax_split(context, &job, o.algorithm) : napier_logsumexp_of_all(context, &job);
}

/* ---- Gradients --------------------------------------------------------------------------------------------------- */

typedef struct backward_task {
    const napier_softmax_kernels *kernels;
    napier_softmax_kind kind;
    napier_const_matrix values, gradients;
    napier_matrix out;
    float temperature;
    float *scratch;
} backward_task;

static void backward_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const backward_task *t = argument;
    const napier_softmax_kernels *k = t->kernels;
    float *scratch = t->scratch + (int64_t)worker * NAPIER_ROWS_SCRATCH;
    for (int64_t row = begin; row < end; row++) {
        if (t->kind == NAPIER_KIND_LOG_SOFTMAX) {
            const double sum = k->dot_range(t->gradients, NULL, row, 0, t->values.cols, scratch);
            k->log_softmax_gradient(t->values, t->gradients, t->out, row, (float)sum, t->temperature, scratch);
        } else {
            const double dot = k->dot_range(t->values, &t->gradients, row, 0, t->values.cols, scratch);
            k->softmax_gradient(t->values, t->gradients, t->out, row, (float)dot, t->temperature, scratch);
        }
    }
}

static napier_status backward(napier_context *context, napier_softmax_kind kind, const char *values_name,
                              napier_const_matrix values, const char *gradients_name, napier_const_matrix gradients,
                              napier_matrix out, const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(values.dtype, gradients.dtype, out.dtype);
    napier_softmax_options o;
    const napier_status status =
        napier_gradient_arguments(context, values_name, values, gradients_name, &gradients, out, options, compute, &o);
    if (status || is_empty(values)) {
        return status;
    }
    if (compute == NAPIER_F64) {
        return (kind == NAPIER_KIND_SOFTMAX ? napier_f64_softmax_backward
                                            : napier_f64_log_softmax_backward)(context, values, gradients, out, &o);
    }
    const int64_t chunk = napier_row_chunk(context, values.rows, values.cols, 1);
    const int workers = napier_workers(context, values.rows, chunk);
    backward_task task = {&napier_ops_kernels_of(context->isa)->softmax,
                          kind,
                          values,
                          gradients,
                          out,
                          napier_float_of(o.temperature),
                          napier_alloc(&context->allocator, (size_t)workers, NAPIER_ROWS_SCRATCH * sizeof(float))};
    if (!task.scratch) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "scratch: no memory for %d workers", workers);
    }
    napier_parallel(context, values.rows, chunk, backward_rows, &task);
    napier_free(&context->allocator, task.scratch);
    return NAPIER_OK;
}

napier_status napier_softmax_backward(napier_context *context, napier_const_matrix probs,
                                      napier_const_matrix grad_probs, napier_matrix grad_logits,
                                      const napier_softmax_options *options) {
    return backward(context, NAPIER_KIND_SOFTMAX, "probs", probs, "grad_probs", grad_probs, grad_logits, options);
}

napier_status napier_log_softmax_backward(napier_context *context, napier_const_matrix logprobs,
                                          napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                          const napier_softmax_options *options) {
    return backward(context, NAPIER_KIND_LOG_SOFTMAX, "logprobs", logprobs, "grad_logprobs", grad_logprobs, grad_logits,
                    options);
}

/* all: one gradient, of the logsumexp of all elements. */
static napier_status logsumexp_backward(napier_context *context, bool all, napier_const_matrix logits,
                                        napier_const_vector grad_lse, napier_matrix grad_logits,
                                        const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(logits.dtype, grad_lse.dtype, grad_logits.dtype);
    napier_softmax_options o;
    const napier_status status = napier_logsumexp_gradient_arguments(context, logits, grad_lse, all ? 1 : logits.rows,
                                                                     grad_logits, options, compute, &o);
    if (status || is_empty(logits)) {
        return status;
    }
    if (compute == NAPIER_F64) {
        return (all ? napier_f64_logsumexp_all_backward : napier_f64_logsumexp_backward)(context, logits, grad_lse,
                                                                                         grad_logits, &o);
    }
    const napier_softmax_job job = job_of(NAPIER_OP_SOFTMAX, logits, grad_logits, &o);
    return (all ? napier_scaled_softmax_all : napier_scaled_softmax)(context, &job, grad_lse);
}

napier_status napier_logsumexp_backward(napier_context *context, napier_const_matrix logits,
                                        napier_const_vector grad_lse, napier_matrix grad_logits,
                                        const napier_softmax_options *options) {
    return logsumexp_backward(context, false, logits, grad_lse, grad_logits, options);
}

napier_status napier_logsumexp_all_backward(napier_context *context, napier_const_matrix logits,
                                            napier_const_vector grad_lse, napier_matrix grad_logits,
                                            const napier_softmax_options *options) {
    return logsumexp_backward(context, true, logits, grad_lse, grad_logits, options);
}
