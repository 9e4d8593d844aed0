/* ops/losses/kl_full.c - KL divergence over the whole vocabulary, from two rows of logits. One worker computes a
 * row. */
#include <math.h>

#include "core/base/parallel.h"
#include "ops/isa/ops_kernels.h"
#include "core/math/f64.h"
#include "ops/losses/calls.h"
#include "ops/losses/kl_row.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/softmax_split.h"

typedef struct full_task {
    const napier_ops_kernels *kernels;
    napier_kl_full_job job;
    napier_softmax_job rows[2];  /* the jobs for the sums of the policy and of the reference */
    napier_vector kl;            /* forward */
    napier_const_vector grad_kl; /* backward */
    float *scratch;
} full_task;

/* The values of a row for its log-probabilities, from its sum: the log of the sum as two floats. False if it has
 * none. */
static bool row_of(const full_task *t, int which, int64_t row, float *scratch, napier_kl_row *out) {
    const napier_softmax_job *job = &t->rows[which];
    napier_sum sum;
    napier_sum_init(&sum);
    t->kernels->softmax.sum_range(job, row, 0, job->x.cols, &sum, scratch);
    return napier_kl_row_from(&sum, out);
}

/* The divergence of a row, and p and q for its gradient. NaN if one of the two is not a distribution. */
static double divergence_of(const full_task *t, int64_t row, float *scratch, napier_kl_row *p, napier_kl_row *q) {
    if (!row_of(t, 0, row, scratch, p) || !row_of(t, 1, row, scratch, q)) {
        return napier_f64_nan();
    }
    double excess;
    const double kl = t->kernels->kl.full_row(&t->job, row, p, q, &excess);
    return napier_kl_settle(kl, excess, q);
}

static void run_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const full_task *t = argument;
    float *scratch = t->scratch + (int64_t)worker * NAPIER_ROWS_SCRATCH;
    for (int64_t row = begin; row < end; row++) {
        napier_kl_row p, q;
        const double kl = t->job.policy.cols > 0 ? divergence_of(t, row, scratch, &p, &q) : 0.0;
        napier_f64_store(t->kl.data, t->kl.dtype, row * t->kl.stride, kl);
    }
}

static void fill_row(napier_matrix m, int64_t row, double value) {
    for (int64_t i = 0; m.data && i < m.cols; i++) {
        napier_f64_store(m.data, m.dtype, row * m.row_stride + i * m.col_stride, value);
    }
}

static void run_gradients(void *argument, int worker, int64_t begin, int64_t end) {
    const full_task *t = argument;
    float *scratch = t->scratch + (int64_t)worker * NAPIER_ROWS_SCRATCH;
    for (int64_t row = begin; row < end; row++) {
        const double g = napier_f64_load(t->grad_kl.data, t->grad_kl.dtype, row * t->grad_kl.stride);
        napier_kl_row p, q;
        const double kl = g != 0 ? divergence_of(t, row, scratch, &p, &q) : 0.0;
        if (g != 0 && kl == kl) {
            t->kernels->kl.full_row_gradient(&t->job, row, &p, &q, (float)kl, (float)g);
        } else {
            fill_row(t->job.grad_policy, row, kl);
            fill_row(t->job.grad_ref, row, kl);
        }
    }
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

napier_status napier_kl_full_check(napier_context *context, napier_const_matrix policy_logits,
                                   napier_const_matrix ref_logits, const napier_softmax_options *options,
                                   napier_vector kl, napier_softmax_options *o) {
    const int64_t rows = policy_logits.rows, cols = policy_logits.cols;
    const unsigned in = NAPIER_IS_NARROW | NAPIER_MAY_BE_OUT;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("policy_logits", policy_logits, in, rows, cols, NULL),
        NAPIER_ARGUMENT("ref_logits", ref_logits, in, rows, cols, "policy_logits"),
        napier_column_argument("kl", napier_read_only_vector(kl), NAPIER_IS_OUT | NAPIER_IS_NARROW, rows)};
    return napier_softmax_arguments(context, all, sizeof all / sizeof *all, options, NAPIER_F32, o);
}

napier_status napier_kl_full_backward_check(napier_context *context, napier_const_matrix policy_logits,
                                            napier_const_matrix ref_logits, const napier_softmax_options *options,
                                            napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                            napier_matrix grad_ref_logits, napier_softmax_options *o) {
    const int64_t rows = policy_logits.rows, cols = policy_logits.cols;
    const unsigned in = NAPIER_IS_NARROW | NAPIER_MAY_BE_OUT;
    const unsigned out = NAPIER_IS_OUT | NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("policy_logits", policy_logits, in, rows, cols, NULL),
        NAPIER_ARGUMENT("ref_logits", ref_logits, in, rows, cols, "policy_logits"),
        napier_row_argument("grad_kl", grad_kl, in, rows),
        NAPIER_ARGUMENT("grad_policy_logits", napier_read_only(grad_policy_logits), out, rows, cols, "policy_logits"),
        NAPIER_ARGUMENT("grad_ref_logits", napier_read_only(grad_ref_logits), out, rows, cols, "policy_logits")};
    return napier_softmax_arguments(context, all, sizeof all / sizeof *all, options, NAPIER_F32, o);
}

static napier_status run(napier_context *context, full_task *t, const napier_softmax_options *o, napier_task *rows) {
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

napier_status napier_kl_full(napier_context *context, napier_const_matrix policy_logits, napier_const_matrix ref_logits,
                             const napier_softmax_options *options, napier_vector kl) {
    napier_softmax_options o;
    const napier_status status = napier_kl_full_check(context, policy_logits, ref_logits, options, kl, &o);
    if (status || policy_logits.rows == 0) {
        return status;
    }
    full_task t = {.job = {.policy = policy_logits, .ref = ref_logits}, .kl = kl};
    return run(context, &t, &o, run_rows);
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
    full_task t = {.job = {.policy = policy_logits,
                           .ref = ref_logits,
                           .grad_policy = grad_policy_logits,
                           .grad_ref = grad_ref_logits},
                   .grad_kl = grad_kl};
    return run(context, &t, &o, run_gradients);
}
