/* ops/losses/kl_full.c - KL divergence over the whole vocabulary, from two rows of logits. One worker computes a
 * row. */
#include <math.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
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
    t->kernels->softmax->sum_range(job, row, 0, job->x.cols, &sum, scratch);
    return napier_kl_row_from(&sum, out);
}

/* The divergence of a row, and p, q and *certain for its gradient. NaN if one of the two is not a distribution. */
static double divergence_of(const full_task *t, int64_t row, float *scratch, napier_kl_row *p, napier_kl_row *q,
                            double *certain) {
    if (!row_of(t, 0, row, scratch, p) || !row_of(t, 1, row, scratch, q)) {
        return napier_f64_nan();
    }
    const napier_kl_sums sums = t->kernels->kl->full_row(&t->job, row, p, q);
    const double kl = napier_kl_settle(sums.kl, sums.excess, q);
    *certain = napier_kl_certain(kl, &sums);
    return kl;
}

static void run_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const full_task *t = argument;
    float *scratch = t->scratch + (int64_t)worker * NAPIER_ROWS_SCRATCH;
    for (int64_t row = begin; row < end; row++) {
        napier_kl_row p, q;
        double certain;
        const double kl = t->job.policy.cols > 0 ? divergence_of(t, row, scratch, &p, &q, &certain) : 0.0;
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
        double certain = 0.0;
        const double kl = g != 0 ? divergence_of(t, row, scratch, &p, &q, &certain) : 0.0;
        if (g != 0 && kl == kl) {
            t->kernels->kl->full_row_gradient(&t->job, row, &p, &q, (float)kl, (float)certain, (float)g);
        } else {
            fill_row(t->job.grad_policy, row, kl);
            fill_row(t->job.grad_ref, row, kl);
        }
    }
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

napier_status napier_kl_full_check(napier_context *context, const napier_kl_full_job *job,
                                   const napier_softmax_options *options, napier_const_vector kl, bool backward,
                                   napier_softmax_options *o) {
    const int64_t rows = job->policy.rows, cols = job->policy.cols;
    const unsigned in = NAPIER_IS_NARROW | NAPIER_MAY_BE_OUT, out = NAPIER_IS_OUT | NAPIER_IS_NARROW;
    const unsigned grad = out | NAPIER_MAY_BE_ABSENT;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("policy_logits", job->policy, in, rows, cols, NULL),
        NAPIER_ARGUMENT("ref_logits", job->ref, in, rows, cols, "policy_logits"),
        backward ? napier_row_argument("grad_kl", kl, in, rows) : napier_column_argument("kl", kl, out, rows),
        NAPIER_ARGUMENT("grad_policy_logits", napier_read_only(job->grad_policy), grad, rows, cols, "policy_logits"),
        NAPIER_ARGUMENT("grad_ref_logits", napier_read_only(job->grad_ref), grad, rows, cols, "policy_logits")};
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
    NAPIER_MEMORY(memory, context);
    t->scratch = napier_take(&memory, workers, NAPIER_ROWS_SCRATCH * sizeof(float));
    NAPIER_TRY(napier_taken(&memory, "kl: no memory for %d workers", workers));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, x[0].rows, chunk, rows, t);
    return napier_stopped(context);
}

napier_status napier_kl_full(napier_context *context, napier_const_matrix policy_logits, napier_const_matrix ref_logits,
                             const napier_softmax_options *options, napier_vector kl) {
    full_task t = {.job = {.policy = policy_logits, .ref = ref_logits}, .kl = kl};
    napier_softmax_options o;
    NAPIER_TRY(napier_kl_full_check(context, &t.job, options, napier_read_only_vector(kl), false, &o));
    return policy_logits.rows == 0 ? NAPIER_OK : run(context, &t, &o, run_rows);
}

napier_status napier_kl_full_backward(napier_context *context, napier_const_matrix policy_logits,
                                      napier_const_matrix ref_logits, const napier_softmax_options *options,
                                      napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                      napier_matrix grad_ref_logits) {
    full_task t = {.job = {.policy = policy_logits,
                           .ref = ref_logits,
                           .grad_policy = grad_policy_logits,
                           .grad_ref = grad_ref_logits},
                   .grad_kl = grad_kl};
    napier_softmax_options o;
    NAPIER_TRY(napier_kl_full_check(context, &t.job, options, grad_kl, true, &o));
    const bool nothing = policy_logits.rows == 0 || policy_logits.cols == 0;
    return nothing ? NAPIER_OK : run(context, &t, &o, run_gradients);
}
