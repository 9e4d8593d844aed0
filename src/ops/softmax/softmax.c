/* ops/softmax/softmax.c - the calls of softmax, log_softmax, logsumexp and their gradients: checks the arguments, then
 * runs a job in f32 (softmax_split.c) or in f64 (the folder f64). The division of the work never changes a bit (sum.h),
 * so it is chosen for speed only. */
#include <napier/softmax.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "ops/isa/ops_kernels.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/f64/softmax_f64.h"
#include "ops/softmax/softmax_split.h"

static napier_softmax_job job_of(const napier_context *context, napier_softmax_op op, napier_const_matrix x,
                                 napier_matrix y, const napier_softmax_options *options) {
    return (napier_softmax_job){.op = op,
                                .x = x,
                                .y = y,
                                .temperature = napier_float_of(options->temperature),
                                .masked_rows = options->masked_rows,
                                .stream = napier_leaves_caches(context, y)};
}

static bool is_empty(napier_const_matrix m) { return m.rows == 0 || m.cols == 0; }

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static napier_status elementwise(napier_context *context, napier_softmax_op op, const char *name,
                                 napier_const_matrix logits, napier_matrix result,
                                 const napier_softmax_options *options) {
    napier_softmax_options o;
    NAPIER_TRY(napier_elementwise_arguments(context, name, logits, result, options, &o));
    if (is_empty(logits)) {
        return NAPIER_OK;
    }
    if (napier_compute_dtype(logits.dtype, result.dtype) == NAPIER_F64) {
        const napier_f64_job wide = {.result = op == NAPIER_OP_SOFTMAX ? NAPIER_F64_SOFTMAX : NAPIER_F64_LOG_SOFTMAX,
                                     .in = logits,
                                     .out = result,
                                     .options = o};
        return napier_f64_run(context, &wide);
    }
    const napier_softmax_job job = job_of(context, op, logits, result, &o);
    return napier_softmax_split(context, &job, o.algorithm);
}

napier_status napier_softmax(napier_context *context, napier_const_matrix logits, napier_matrix probs,
                             const napier_softmax_options *options) {
    return elementwise(context, NAPIER_OP_SOFTMAX, "probs", logits, probs, options);
}

napier_status napier_log_softmax(napier_context *context, napier_const_matrix logits, napier_matrix logprobs,
                                 const napier_softmax_options *options) {
    return elementwise(context, NAPIER_OP_LOG_SOFTMAX, "logprobs", logits, logprobs, options);
}

/* all: one logsumexp, of all elements. */
static napier_status logsumexp(napier_context *context, bool all, napier_const_matrix logits, napier_vector lse,
                               const napier_softmax_options *options) {
    const int64_t size = all ? 1 : logits.rows;
    napier_softmax_options o;
    NAPIER_TRY(napier_logsumexp_arguments(context, logits, lse, size, options, &o));
    if (size == 0) {
        return NAPIER_OK;
    }
    if (napier_compute_dtype(logits.dtype, lse.dtype) == NAPIER_F64) {
        const napier_f64_job wide = {
            .result = NAPIER_F64_LSE, .whole = all, .in = logits, .out = napier_column(lse), .options = o};
        return napier_f64_run(context, &wide);
    }
    const bool scattered = all && !napier_is_one_run(logits);
    const napier_softmax_job job = job_of(context, NAPIER_OP_LOGSUMEXP,
                                          all && !scattered ? napier_one_row(logits) : logits, napier_column(lse), &o);
    return scattered ? napier_logsumexp_of_all(context, &job) : napier_softmax_split(context, &job, o.algorithm);
}

napier_status napier_logsumexp(napier_context *context, napier_const_matrix logits, napier_vector lse,
                               const napier_softmax_options *options) {
    return logsumexp(context, false, logits, lse, options);
}

napier_status napier_logsumexp_all(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                   const napier_softmax_options *options) {
    return logsumexp(context, true, logits, lse, options);
}

/* ---- Gradients --------------------------------------------------------------------------------------------------- */

typedef struct backward_task {
    const napier_softmax_kernels *kernels;
    bool log;  /* of log_softmax, otherwise of softmax */
    bool dots; /* the sums only */
    napier_const_matrix values, gradients;
    napier_matrix out; /* of sums one column */
    float temperature;
    float *scratch;
} backward_task;

static void backward_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const backward_task *t = argument;
    const napier_softmax_kernels *k = t->kernels;
    float *scratch = t->scratch + (int64_t)worker * NAPIER_ROWS_SCRATCH;
    for (int64_t row = begin; row < end; row++) {
        const napier_certain_sums sums =
            k->gradient_sums(t->log, false, t->values, t->gradients, row, 0, t->values.cols, scratch);
        if (t->dots) {
            napier_f64_store(t->out.data, t->out.dtype, row * t->out.row_stride, (double)napier_certain_sum(&sums));
        } else {
            k->gradient(t->log, t->values, t->gradients, t->out, row, &sums, t->temperature, scratch);
        }
    }
}

static napier_status run_backward(napier_context *context, backward_task *task) {
    const int64_t rows = task->values.rows, chunk = napier_row_chunk(context, rows, task->values.cols, 1);
    const int workers = napier_workers(context, rows, chunk);
    NAPIER_MEMORY(memory, context);
    task->kernels = napier_ops_kernels_of(context->isa)->softmax;
    task->scratch = napier_take(&memory, workers, NAPIER_ROWS_SCRATCH * sizeof(float));
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %d workers", workers));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, rows, chunk, backward_rows, task);
    return napier_stopped(context);
}

static napier_status backward(napier_context *context, bool log, napier_const_matrix values,
                              napier_const_matrix gradients, napier_matrix out, const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(values.dtype, gradients.dtype, out.dtype);
    napier_softmax_options o;
    NAPIER_TRY(napier_gradient_arguments(context, log ? "logprobs" : "probs", values,
                                         log ? "grad_logprobs" : "grad_probs", &gradients, out, options, compute, &o));
    if (is_empty(values)) {
        return NAPIER_OK;
    }
    if (compute == NAPIER_F64) {
        const napier_f64_job wide = {.result = log ? NAPIER_F64_LOG_SOFTMAX_GRADIENT : NAPIER_F64_SOFTMAX_GRADIENT,
                                     .in = values,
                                     .grad = gradients,
                                     .out = out,
                                     .options = o};
        return napier_f64_run(context, &wide);
    }
    backward_task task = {.log = log,
                          .values = values,
                          .gradients = gradients,
                          .out = out,
                          .temperature = napier_float_of(o.temperature)};
    return run_backward(context, &task);
}

napier_status napier_softmax_backward(napier_context *context, napier_const_matrix probs,
                                      napier_const_matrix grad_probs, napier_matrix grad_logits,
                                      const napier_softmax_options *options) {
    return backward(context, false, probs, grad_probs, grad_logits, options);
}

napier_status napier_log_softmax_backward(napier_context *context, napier_const_matrix logprobs,
                                          napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                          const napier_softmax_options *options) {
    return backward(context, true, logprobs, grad_logprobs, grad_logits, options);
}

napier_status napier_dot_rows(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                              napier_vector dots) {
    NAPIER_TRY(napier_dot_arguments(context, a, b, dots));
    if (a.rows == 0) {
        return NAPIER_OK;
    }
    if (napier_compute_dtype3(a.dtype, b.dtype, dots.dtype) == NAPIER_F64) {
        const napier_f64_job wide = {.result = NAPIER_F64_DOT,
                                     .in = a,
                                     .grad = b,
                                     .out = napier_column(dots),
                                     .options = NAPIER_SOFTMAX_OPTIONS_INIT};
        return napier_f64_run(context, &wide);
    }
    backward_task task = {.dots = true, .values = a, .gradients = b, .out = napier_column(dots)};
    return run_backward(context, &task);
}

/* all: one gradient, of the logsumexp of all elements. */
static napier_status logsumexp_backward(napier_context *context, bool all, napier_const_matrix logits,
                                        napier_const_vector grad_lse, napier_matrix grad_logits,
                                        const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(logits.dtype, grad_lse.dtype, grad_logits.dtype);
    napier_softmax_options o;
    NAPIER_TRY(napier_logsumexp_gradient_arguments(context, logits, grad_lse, all ? 1 : logits.rows, grad_logits,
                                                   options, compute, &o));
    if (is_empty(logits)) {
        return NAPIER_OK;
    }
    if (compute == NAPIER_F64) {
        const napier_f64_job wide = {.result = NAPIER_F64_LSE_GRADIENT,
                                     .whole = all,
                                     .in = logits,
                                     .grad = napier_const_column(grad_lse),
                                     .out = grad_logits,
                                     .options = o};
        return napier_f64_run(context, &wide);
    }
    const napier_softmax_job job = job_of(context, NAPIER_OP_SOFTMAX, logits, grad_logits, &o);
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
