/* ops/softmax/softmax.c - softmax, log_softmax and logsumexp: checks the arguments, divides the work, calls the
 * kernels. The division of the work never changes a bit (sum.h), so it is chosen for speed only. */
#include <napier/softmax.h>

#include "core/base/parallel.h"
#include "core/base/view.h"
#include "ops/isa/ops_kernels.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/options.h"
#include "ops/softmax/f64/softmax_f64.h"
#include "ops/softmax/softmax_split.h"

/* Results larger than this are stored past the caches. They would not stay there,
 * and an ordinary store reads the line first. */
enum { NAPIER_STREAM_BYTES = 12 << 20 };

/* ---- The job ------------------------------------------------------------------------------------------------------- */

static napier_softmax_job napier_job_of(napier_softmax_op op, napier_const_matrix x, napier_matrix y,
                                        const napier_softmax_options *options) {
    const int64_t elements = y.rows * y.cols; /* cannot overflow: the view has been checked */
    const napier_softmax_job job = {.op = op,
                                    .x = x,
                                    .y = y,
                                    .temperature = napier_float_of(options->temperature),
                                    .masked_rows = options->masked_rows,
                                    .stream = elements > NAPIER_STREAM_BYTES / (int64_t)napier_dtype_size(y.dtype)};
    return job;
}

static napier_status napier_run(napier_context *context, napier_softmax_op op, napier_const_matrix x, napier_matrix y,
                                const napier_softmax_options *options) {
    if (x.rows == 0 || (x.cols == 0 && op != NAPIER_OP_LOGSUMEXP)) {
        return NAPIER_OK;
    }
    const napier_softmax_job job = napier_job_of(op, x, y, options);
    return napier_softmax_split(context, &job, options->algorithm);
}

static napier_status napier_elementwise_result(napier_context *context, napier_softmax_kind kind, const char *name,
                                               napier_const_matrix logits, napier_matrix result,
                                               const napier_softmax_options *options) {
    napier_softmax_options o;
    const napier_status status = napier_elementwise_arguments(context, name, logits, result, options, &o);
    if (status) {
        return status;
    }
    const napier_dtype compute = napier_compute_dtype(logits.dtype, result.dtype);
    if (compute == NAPIER_F64) {
        return napier_f64_softmax(context, kind, logits, result, &o);
    }
    const napier_softmax_op op = kind == NAPIER_KIND_SOFTMAX ? NAPIER_OP_SOFTMAX : NAPIER_OP_LOG_SOFTMAX;
    return napier_run(context, op, logits, result, &o);
}

napier_status napier_softmax(napier_context *context, napier_const_matrix logits, napier_matrix probs,
                             const napier_softmax_options *options) {
    return napier_elementwise_result(context, NAPIER_KIND_SOFTMAX, "probs", logits, probs, options);
}

napier_status napier_log_softmax(napier_context *context, napier_const_matrix logits, napier_matrix logprobs,
                                 const napier_softmax_options *options) {
    return napier_elementwise_result(context, NAPIER_KIND_LOG_SOFTMAX, "logprobs", logits, logprobs, options);
}

napier_status napier_logsumexp(napier_context *context, napier_const_matrix logits, napier_vector lse,
                               const napier_softmax_options *options) {
    napier_softmax_options o;
    const napier_status status = napier_logsumexp_arguments(context, logits, lse, logits.rows, options, &o);
    if (status) {
        return status;
    }
    if (napier_compute_dtype(logits.dtype, lse.dtype) == NAPIER_F64) {
        return napier_f64_logsumexp(context, logits, lse, &o);
    }
    return napier_run(context, NAPIER_OP_LOGSUMEXP, logits, napier_column(lse), &o);
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
    if (napier_is_one_run(logits)) {
        return napier_run(context, NAPIER_OP_LOGSUMEXP, napier_one_row(logits), napier_column(lse), &o);
    }
    const napier_softmax_job job = napier_job_of(NAPIER_OP_LOGSUMEXP, logits, napier_column(lse), &o);
    return napier_logsumexp_of_all(context, &job);
}

/* ---- Gradients ----------------------------------------------------------------------------------------------------- */

typedef struct napier_backward_task {
    const napier_softmax_kernels *kernels;
    bool log;
    napier_const_matrix values, gradients;
    napier_matrix out;
    float temperature;
    float *scratch;
} napier_backward_task;

static void napier_backward_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_backward_task *t = argument;
    const napier_softmax_kernels *k = t->kernels;
    float *scratch = t->scratch + (int64_t)worker * NAPIER_ROWS_SCRATCH;
    for (int64_t row = begin; row < end; row++) {
        if (t->log) {
            const double sum = k->dot_range(t->gradients, NULL, row, 0, t->values.cols, scratch);
            k->log_softmax_gradient(t->values, t->gradients, t->out, row, (float)sum, t->temperature, scratch);
        } else {
            const double dot = k->dot_range(t->values, &t->gradients, row, 0, t->values.cols, scratch);
            k->softmax_gradient(t->values, t->gradients, t->out, row, (float)dot, t->temperature, scratch);
        }
    }
}

static napier_status napier_backward(napier_context *context, bool log, napier_const_matrix values,
                                     napier_const_matrix gradients, napier_matrix out,
                                     const napier_softmax_options *options) {
    if (values.rows == 0 || values.cols == 0) {
        return NAPIER_OK;
    }
    const int64_t chunk = napier_row_chunk(context, values.rows, values.cols, 1);
    const int workers = napier_workers(context, values.rows, chunk);
    napier_backward_task task = {
        &napier_ops_kernels_of(context->isa)->softmax,
        log,
        values,
        gradients,
        out,
        napier_float_of(options->temperature),
        napier_alloc(&context->allocator, (size_t)workers, NAPIER_ROWS_SCRATCH * sizeof(float))};
    if (!task.scratch) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "scratch: no memory for %d workers", workers);
    }
    napier_parallel(context, values.rows, chunk, napier_backward_rows, &task);
    napier_free(&context->allocator, task.scratch);
    return NAPIER_OK;
}

napier_status napier_softmax_backward(napier_context *context, napier_const_matrix probs,
                                      napier_const_matrix grad_probs, napier_matrix grad_logits,
                                      const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(probs.dtype, grad_probs.dtype, grad_logits.dtype);
    napier_softmax_options o;
    const napier_status status = napier_gradient_arguments(context, "probs", probs, "grad_probs", &grad_probs,
                                                           grad_logits, options, compute, &o);
    if (status) {
        return status;
    }
    return compute == NAPIER_F64 ? napier_f64_softmax_backward(context, probs, grad_probs, grad_logits, &o)
                                 : napier_backward(context, false, probs, grad_probs, grad_logits, &o);
}

napier_status napier_log_softmax_backward(napier_context *context, napier_const_matrix logprobs,
                                          napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                          const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(logprobs.dtype, grad_logprobs.dtype, grad_logits.dtype);
    napier_softmax_options o;
    const napier_status status = napier_gradient_arguments(context, "logprobs", logprobs, "grad_logprobs",
                                                           &grad_logprobs, grad_logits, options, compute, &o);
    if (status) {
        return status;
    }
    return compute == NAPIER_F64 ? napier_f64_log_softmax_backward(context, logprobs, grad_logprobs, grad_logits, &o)
                                 : napier_backward(context, true, logprobs, grad_logprobs, grad_logits, &o);
}

napier_status napier_logsumexp_backward(napier_context *context, napier_const_matrix logits,
                                        napier_const_vector grad_lse, napier_matrix grad_logits,
                                        const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(logits.dtype, grad_lse.dtype, grad_logits.dtype);
    napier_softmax_options o;
    const napier_status status =
        napier_logsumexp_gradient_arguments(context, logits, grad_lse, logits.rows, grad_logits, options, compute, &o);
    if (status) {
        return status;
    }
    if (compute == NAPIER_F64) {
        return napier_f64_logsumexp_backward(context, logits, grad_lse, grad_logits, &o);
    }
    if (logits.rows == 0 || logits.cols == 0) {
        return NAPIER_OK;
    }
    const napier_softmax_job job = napier_job_of(NAPIER_OP_SOFTMAX, logits, grad_logits, &o);
    return napier_scaled_softmax(context, &job, grad_lse);
}

napier_status napier_logsumexp_all_backward(napier_context *context, napier_const_matrix logits,
                                            napier_const_vector grad_lse, napier_matrix grad_logits,
                                            const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(logits.dtype, grad_lse.dtype, grad_logits.dtype);
    napier_softmax_options o;
    const napier_status status =
        napier_logsumexp_gradient_arguments(context, logits, grad_lse, 1, grad_logits, options, compute, &o);
    if (status) {
        return status;
    }
    if (compute == NAPIER_F64) {
        return napier_f64_logsumexp_all_backward(context, logits, grad_lse, grad_logits, &o);
    }
    if (logits.rows == 0 || logits.cols == 0) {
        return NAPIER_OK;
    }
    const napier_softmax_job job = napier_job_of(NAPIER_OP_SOFTMAX, logits, grad_logits, &o);
    return napier_scaled_softmax_all(context, &job, grad_lse);
}
