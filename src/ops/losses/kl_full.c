/* ops/losses/kl_full.c - KL divergence over the whole vocabulary, from two rows of logits. One worker computes a
 * row. */
#include <math.h>

#include "core/base/parallel.h"
#include "core/base/view.h"
#include "ops/isa/ops_kernels.h"
#include "core/math/f64.h"
#include "ops/losses/calls.h"
#include "ops/losses/kl_row.h"
#include "ops/softmax/options.h"
#include "ops/softmax/softmax_split.h"

typedef struct napier_kl_full_task {
    const napier_ops_kernels *kernels;
    napier_kl_full_job job;
    napier_softmax_job rows[2];  /* the jobs for the sums of the policy and of the reference */
    napier_vector kl;            /* forward */
    napier_const_vector grad_kl; /* backward */
    float *scratch;
} napier_kl_full_task;

/* The values of a row for its log-probabilities, from its sum: the log of the sum as two floats. False if it has
 * none. */
static bool napier_kl_row_of(const napier_kl_full_task *t, int which, int64_t row, float *scratch, napier_kl_row *out) {
    const napier_softmax_job *job = &t->rows[which];
    napier_sum sum;
    napier_sum_init(&sum);
    t->kernels->softmax.sum_range(job, row, 0, job->x.cols, &sum, scratch);
    return napier_kl_row_from(&sum, out);
}

/* The divergence of a row, and p and q for its gradient. NaN if one of the two is not a distribution. */
static double napier_kl_of_row(const napier_kl_full_task *t, int64_t row, float *scratch, napier_kl_row *p,
                               napier_kl_row *q) {
    if (!napier_kl_row_of(t, 0, row, scratch, p) || !napier_kl_row_of(t, 1, row, scratch, q)) {
        return napier_f64_nan();
    }
    double excess;
    const double kl = t->kernels->kl.full_row(&t->job, row, p, q, &excess);
    return napier_kl_settle(kl, excess, q);
}

static void napier_kl_full_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_kl_full_task *t = argument;
    float *scratch = t->scratch + (int64_t)worker * NAPIER_ROWS_SCRATCH;
    for (int64_t row = begin; row < end; row++) {
        napier_kl_row p, q;
        const double kl = t->job.policy.cols > 0 ? napier_kl_of_row(t, row, scratch, &p, &q) : 0.0;
        napier_f64_store(t->kl.data, t->kl.dtype, row * t->kl.stride, kl);
    }
}

static void napier_kl_fill_row(napier_matrix m, int64_t row, double value) {
    for (int64_t i = 0; m.data && i < m.cols; i++) {
        napier_f64_store(m.data, m.dtype, row * m.row_stride + i * m.col_stride, value);
    }
}

static void napier_kl_full_gradients(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_kl_full_task *t = argument;
    float *scratch = t->scratch + (int64_t)worker * NAPIER_ROWS_SCRATCH;
    for (int64_t row = begin; row < end; row++) {
        const double g = napier_f64_load(t->grad_kl.data, t->grad_kl.dtype, row * t->grad_kl.stride);
        napier_kl_row p, q;
        const double kl = g != 0 ? napier_kl_of_row(t, row, scratch, &p, &q) : 0.0;
        if (g != 0 && kl == kl) {
            t->kernels->kl.full_row_gradient(&t->job, row, &p, &q, (float)kl, (float)g);
        } else {
            napier_kl_fill_row(t->job.grad_policy, row, kl);
            napier_kl_fill_row(t->job.grad_ref, row, kl);
        }
    }
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

static napier_status napier_kl_full_arguments(napier_context *context, napier_const_matrix policy,
                                              napier_const_matrix ref, const napier_softmax_options *options,
                                              napier_softmax_options *o) {
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_matrix(context, "policy_logits", policy);
    if (!status)
        status = napier_check_not_f64(context, "policy_logits", policy.dtype);
    if (!status)
        status = napier_check_matrix(context, "ref_logits", ref);
    if (!status)
        status = napier_check_not_f64(context, "ref_logits", ref.dtype);
    if (!status && (ref.rows != policy.rows || ref.cols != policy.cols)) {
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT,
                             "ref_logits: shape %lld x %lld is not that of policy_logits, %lld x %lld",
                             (long long)ref.rows, (long long)ref.cols, (long long)policy.rows, (long long)policy.cols);
    }
    return status ? status : napier_softmax_options_read(context, options, NAPIER_F32, o);
}

static napier_status napier_kl_full_run(napier_context *context, napier_kl_full_task *t,
                                        const napier_softmax_options *o, napier_task *rows) {
    const napier_const_matrix x[2] = {t->job.policy, t->job.ref};
    t->kernels = napier_ops_kernels_of(context->isa);
    t->job.temperature = napier_float_of(o->temperature);
    for (int i = 0; i < 2; i++) {
        t->rows[i] = (napier_softmax_job){.op = NAPIER_OP_LOGSUMEXP, .x = x[i], .temperature = t->job.temperature};
    }
    const int64_t chunk = napier_row_chunk(context, x[0].rows, x[0].cols, 1);
    const int workers = napier_workers(context, x[0].rows, chunk);
    t->scratch = napier_alloc(&context->allocator, (size_t)workers, NAPIER_ROWS_SCRATCH * sizeof(float));
    if (!t->scratch) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "kl: no memory for %d workers", workers);
    }
    napier_parallel(context, x[0].rows, chunk, rows, t);
    napier_free(&context->allocator, t->scratch);
    return NAPIER_OK;
}

napier_status napier_kl_full_check(napier_context *context, napier_const_matrix policy_logits,
                                   napier_const_matrix ref_logits, const napier_softmax_options *options,
                                   napier_vector kl, napier_softmax_options *o) {
    napier_status status = napier_kl_full_arguments(context, policy_logits, ref_logits, options, o);
    if (!status)
        status = napier_check_tokens_out(context, "kl", kl, policy_logits.rows, false);
    const napier_matrix column = {kl.data, kl.size, 1, kl.stride, 1, kl.dtype};
    if (!status)
        status = napier_check_alias(context, "kl", column, "policy_logits", policy_logits);
    return status ? status : napier_check_alias(context, "kl", column, "ref_logits", ref_logits);
}

napier_status napier_kl_full(napier_context *context, napier_const_matrix policy_logits, napier_const_matrix ref_logits,
                             const napier_softmax_options *options, napier_vector kl) {
    napier_softmax_options o;
    const napier_status status = napier_kl_full_check(context, policy_logits, ref_logits, options, kl, &o);
    if (status || policy_logits.rows == 0) {
        return status;
    }
    napier_kl_full_task t = {.job = {.policy = policy_logits, .ref = ref_logits}, .kl = kl};
    return napier_kl_full_run(context, &t, &o, napier_kl_full_rows);
}

static napier_status napier_kl_full_check_out(napier_context *context, const char *name, napier_matrix out,
                                              napier_const_matrix policy, napier_const_matrix ref,
                                              napier_const_vector grad_kl) {
    if (!out.data) {
        return NAPIER_OK;
    }
    napier_status status = napier_check_matrix_out(context, name, out);
    if (!status)
        status = napier_check_not_f64(context, name, out.dtype);
    if (!status && (out.rows != policy.rows || out.cols != policy.cols)) {
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT,
                             "%s: shape %lld x %lld is not that of the logits, %lld x %lld", name, (long long)out.rows,
                             (long long)out.cols, (long long)policy.rows, (long long)policy.cols);
    }
    if (!status)
        status = napier_check_alias(context, name, out, "policy_logits", policy);
    if (!status)
        status = napier_check_alias(context, name, out, "ref_logits", ref);
    if (!status)
        status = napier_check_alias(context, name, out, "grad_kl", napier_vector_row(grad_kl));
    return status;
}

napier_status napier_kl_full_backward_check(napier_context *context, napier_const_matrix policy_logits,
                                            napier_const_matrix ref_logits, const napier_softmax_options *options,
                                            napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                            napier_matrix grad_ref_logits, napier_softmax_options *o) {
    napier_status status = napier_kl_full_arguments(context, policy_logits, ref_logits, options, o);
    if (!status)
        status = napier_check_tokens(context, "grad_kl", grad_kl, policy_logits.rows, false);
    if (!status) {
        status = napier_kl_full_check_out(context, "grad_policy_logits", grad_policy_logits, policy_logits, ref_logits,
                                          grad_kl);
    }
    if (!status) {
        status =
            napier_kl_full_check_out(context, "grad_ref_logits", grad_ref_logits, policy_logits, ref_logits, grad_kl);
    }
    const bool both = grad_policy_logits.data && grad_ref_logits.data;
    if (!status && both && grad_policy_logits.data == grad_ref_logits.data && policy_logits.rows > 0) {
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "grad_ref_logits: starts where grad_policy_logits does");
    }
    if (!status && both) {
        status = napier_check_alias(context, "grad_ref_logits", grad_ref_logits, "grad_policy_logits",
                                    napier_read_only(grad_policy_logits));
    }
    return status;
}

napier_status napier_kl_full_backward(napier_context *context, napier_const_matrix policy_logits,
                                      napier_const_matrix ref_logits, const napier_softmax_options *options,
                                      napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                      napier_matrix grad_ref_logits) {
    napier_softmax_options o;
    const napier_status status = napier_kl_full_backward_check(context, policy_logits, ref_logits, options, grad_kl,
                                                               grad_policy_logits, grad_ref_logits, &o);
    if (status || policy_logits.rows == 0 || policy_logits.cols == 0) {
        return status;
    }
    napier_kl_full_task t = {.job = {.policy = policy_logits,
                                     .ref = ref_logits,
                                     .grad_policy = grad_policy_logits,
                                     .grad_ref = grad_ref_logits},
                             .grad_kl = grad_kl};
    return napier_kl_full_run(context, &t, &o, napier_kl_full_gradients);
}
