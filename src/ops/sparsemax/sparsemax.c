/* ops/sparsemax/sparsemax.c - sparsemax and its gradient: checks the arguments, divides the rows over threads. */
#include "ops/sparsemax/sparsemax.h"

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "ops/isa/ops_kernels.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/softmax_split.h"

static napier_sparsemax_job job_of(napier_const_matrix x, napier_const_matrix grad, napier_matrix out,
                                   const napier_softmax_options *o, napier_dtype compute) {
    napier_sparsemax_job job = {x, grad, out, o->temperature, 0.0, compute == NAPIER_F64};
    job.masked = o->masked_rows == NAPIER_MASKED_ZERO ? 0.0 : napier_f64_nan();
    job.out.rows = out.cols > 0 ? out.rows : 0;
    return job;
}

napier_status napier_sparsemax_arguments(napier_context *context, napier_const_matrix logits, napier_matrix probs,
                                         const napier_softmax_options *options, napier_sparsemax_job *job) {
    napier_softmax_options o;
    NAPIER_TRY(napier_elementwise_arguments(context, "probs", logits, probs, options, &o));
    *job = job_of(logits, logits, probs, &o, napier_compute_dtype(logits.dtype, probs.dtype));
    return NAPIER_OK;
}

napier_status napier_sparsemax_gradient_arguments(napier_context *context, napier_const_matrix probs,
                                                  napier_const_matrix grad_probs, napier_matrix grad_logits,
                                                  const napier_softmax_options *options, napier_sparsemax_job *job) {
    const napier_dtype compute = napier_compute_dtype3(probs.dtype, grad_probs.dtype, grad_logits.dtype);
    napier_softmax_options o;
    NAPIER_TRY(napier_gradient_arguments(context, "probs", probs, "grad_probs", &grad_probs, grad_logits, options,
                                         compute, &o));
    *job = job_of(probs, grad_probs, grad_logits, &o, compute);
    return NAPIER_OK;
}

/* ---- Work --------------------------------------------------------------------------------------------------------- */

typedef struct task {
    void (*kernel)(const napier_sparsemax_job *job, int64_t row);
    napier_sparsemax_job job;
} task;

static void run_row(void *argument, int64_t row) {
    const task *const t = argument;
    t->kernel(&t->job, row);
}

static napier_status run(napier_context *context, task *t) {
    const int64_t rows = t->job.out.rows;
    NAPIER_MAY_STOP(context);
    if (rows > 0) {
        napier_parallel_each(context, rows, napier_row_chunk(context, rows, t->job.out.cols, 1), run_row, t);
    }
    return napier_stopped(context);
}

napier_status napier_sparsemax(napier_context *context, napier_const_matrix logits, napier_matrix probs,
                               const napier_softmax_options *options) {
    task t;
    NAPIER_TRY(napier_sparsemax_arguments(context, logits, probs, options, &t.job));
    t.kernel = napier_ops_kernels_of(context->isa)->sparsemax->forward;
    return run(context, &t);
}

napier_status napier_sparsemax_backward(napier_context *context, napier_const_matrix probs,
                                        napier_const_matrix grad_probs, napier_matrix grad_logits,
                                        const napier_softmax_options *options) {
    task t;
    NAPIER_TRY(napier_sparsemax_gradient_arguments(context, probs, grad_probs, grad_logits, options, &t.job));
    t.kernel = napier_ops_kernels_of(context->isa)->sparsemax->gradient;
    return run(context, &t);
}
