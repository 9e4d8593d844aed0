/* ops/shards/shard_softmax.c - softmax, log_softmax and their gradients for some columns of rows whose finals are known. */
#include "core/base/parallel.h"
#include "core/base/stop.h"
#include "ops/isa/ops_kernels.h"
#include "ops/shards/shards.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/softmax_split.h"

static bool is_empty(napier_const_matrix m) { return m.rows == 0 || m.cols == 0; }

/* ---- Results, and the gradient of logsumexp ------------------------------------------------------------------------- */

typedef struct write_job {
    napier_softmax_job job;
    const napier_softmax_kernels *kernels;
    const int64_t *finals;
    napier_const_vector factor; /* data NULL: none */
    float *scratch;             /* of each worker */
} write_job;

static void write_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const write_job *w = argument;
    for (int64_t row = begin; row < end; row++) {
        napier_final final = napier_token_final_at(w->finals, row).row;
        if (w->factor.data) {
            const float g = (float)napier_f64_load(w->factor.data, w->factor.dtype, row * w->factor.stride);
            final.factor = g / w->job.temperature;
        }
        w->kernels->write_range(&w->job, row, 0, w->job.x.cols, &final,
                                w->scratch + (int64_t)worker * NAPIER_ROWS_SCRATCH);
    }
}

static napier_status write_all(napier_context *context, write_job *w) {
    const int64_t rows = w->job.x.rows, chunk = napier_row_chunk(context, rows, w->job.x.cols, 1);
    const int workers = napier_workers(context, rows, chunk);
    NAPIER_MEMORY(memory, context);
    w->kernels = napier_ops_kernels_of(context->isa)->softmax;
    w->scratch = napier_take(&memory, workers, NAPIER_ROWS_SCRATCH * sizeof(float));
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %d workers", workers));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, rows, chunk, write_rows, w);
    return napier_stopped(context);
}

napier_status napier_shard_softmax(napier_context *context, const int64_t *finals, napier_softmax_kind kind,
                                   napier_const_matrix logits, napier_matrix result,
                                   const napier_softmax_options *options) {
    const unsigned narrow = NAPIER_IS_NARROW;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("logits", logits, narrow | NAPIER_MAY_BE_OUT, logits.rows, logits.cols, NULL),
        NAPIER_ARGUMENT("result", napier_read_only(result), narrow | NAPIER_IS_OUT, logits.rows, logits.cols, "logits"),
        napier_token_words("finals", finals, logits.rows, NAPIER_SHARD_FINAL_WORDS, 0)};
    napier_softmax_options o;
    NAPIER_TRY(napier_softmax_arguments(context, all, sizeof all / sizeof *all, options, NAPIER_F32, &o));
    NAPIER_REFUSE_IF(context, (unsigned)kind > NAPIER_KIND_LOG_SOFTMAX, "kind: %d is unknown", (int)kind);
    if (is_empty(logits)) {
        return NAPIER_OK;
    }
    write_job w = {.finals = finals};
    w.job = (napier_softmax_job){.op = kind == NAPIER_KIND_SOFTMAX ? NAPIER_OP_SOFTMAX : NAPIER_OP_LOG_SOFTMAX,
                                 .x = logits,
                                 .y = result,
                                 .temperature = napier_float_of(o.temperature),
                                 .masked_rows = o.masked_rows,
                                 .stream = napier_leaves_caches(context, result)};
    return write_all(context, &w);
}

napier_status napier_shard_logsumexp_backward(napier_context *context, const int64_t *finals,
                                              napier_const_matrix logits, napier_const_vector grad_lse,
                                              napier_matrix grad_logits, const napier_softmax_options *options) {
    const unsigned narrow = NAPIER_IS_NARROW;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("logits", logits, narrow | NAPIER_MAY_BE_OUT, logits.rows, logits.cols, NULL),
        napier_column_argument("grad_lse", grad_lse, narrow, logits.rows),
        NAPIER_ARGUMENT("grad_logits", napier_read_only(grad_logits), narrow | NAPIER_IS_OUT, logits.rows, logits.cols,
                        "logits"),
        napier_token_words("finals", finals, logits.rows, NAPIER_SHARD_FINAL_WORDS, 0)};
    napier_softmax_options o;
    NAPIER_TRY(napier_softmax_arguments(context, all, sizeof all / sizeof *all, options, NAPIER_F32, &o));
    if (is_empty(logits)) {
        return NAPIER_OK;
    }
    write_job w = {.finals = finals, .factor = grad_lse};
    w.job = (napier_softmax_job){.op = NAPIER_OP_SOFTMAX,
                                 .x = logits,
                                 .y = grad_logits,
                                 .temperature = napier_float_of(o.temperature),
                                 .masked_rows = NAPIER_MASKED_ZERO,
                                 .stream = napier_leaves_caches(context, grad_logits)};
    return write_all(context, &w);
}

/* ---- Gradients of softmax and log_softmax ----------------------------------------------------------------------------- */

typedef struct gradient_job {
    const napier_softmax_kernels *kernels;
    napier_const_matrix values, gradients; /* values: data NULL: none */
    napier_const_matrix dots;
    napier_matrix out;
    bool log;
    float temperature;
    float *scratch; /* of each worker */
} gradient_job;

static float *scratch_of(const gradient_job *j, int worker) {
    return j->scratch + (int64_t)worker * NAPIER_ROWS_SCRATCH;
}

static napier_status run(napier_context *context, gradient_job *j, napier_task *task) {
    const int64_t rows = j->gradients.rows, chunk = napier_row_chunk(context, rows, j->gradients.cols, 1);
    const int workers = napier_workers(context, rows, chunk);
    NAPIER_MEMORY(memory, context);
    j->kernels = napier_ops_kernels_of(context->isa)->softmax;
    j->scratch = napier_take(&memory, workers, NAPIER_ROWS_SCRATCH * sizeof(float));
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %d workers", workers));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, rows, chunk, task, j);
    return napier_stopped(context);
}

static void dot_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const gradient_job *j = argument;
    const int64_t cols = j->gradients.cols, step = j->out.col_stride;
    for (int64_t row = begin; row < end; row++) {
        float *to = (float *)j->out.data + row * j->out.row_stride;
        for (int64_t i = 0; i < cols; i += NAPIER_TILE, to += NAPIER_SHARD_DOTS * step) {
            const napier_certain_sums sums =
                j->kernels->gradient_sums(j->values.data == NULL, true, j->values, j->gradients, row, i,
                                          napier_least(i + NAPIER_TILE, cols), scratch_of(j, worker));
            to[0] = (float)sums.certain; /* the sums of one tile are floats */
            to[step] = (float)sums.rest;
            to[2 * step] = (float)sums.prob;
        }
    }
}

napier_status napier_shard_dots(napier_context *context, napier_const_matrix probs, napier_const_matrix gradients,
                                napier_matrix dots) {
    const unsigned narrow = NAPIER_IS_NARROW;
    const int64_t tiles = gradients.cols > 0 ? napier_token_tiles(gradients.cols) : 0;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("gradients", gradients, narrow, gradients.rows, gradients.cols, NULL),
        NAPIER_ARGUMENT("probs", probs, narrow | NAPIER_MAY_BE_ABSENT, gradients.rows, gradients.cols, "gradients"),
        NAPIER_ARGUMENT("dots", napier_read_only(dots), NAPIER_IS_F32 | NAPIER_IS_OUT, gradients.rows,
                        NAPIER_SHARD_DOTS * tiles, NULL)};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    if (is_empty(gradients)) {
        return NAPIER_OK;
    }
    gradient_job j = {.values = probs, .gradients = gradients, .out = dots};
    return run(context, &j, dot_rows);
}

static void gradient_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const gradient_job *j = argument;
    for (int64_t row = begin; row < end; row++) {
        const float *const dots = (const float *)j->dots.data + row * j->dots.row_stride;
        const int64_t step = j->dots.col_stride;
        napier_certain_sums sums = {0, 0, 0};
        for (int64_t t = 0; t + NAPIER_SHARD_DOTS <= j->dots.cols; t += NAPIER_SHARD_DOTS) {
            const float *tile = dots + t * step;
            const napier_certain_sums add = {(double)tile[0], (double)tile[step], (double)tile[2 * step]};
            napier_certain_sums_add(&sums, &add);
        }
        j->kernels->gradient(j->log, j->values, j->gradients, j->out, row, &sums, j->temperature,
                             scratch_of(j, worker));
    }
}

napier_status napier_shard_softmax_backward(napier_context *context, napier_softmax_kind kind,
                                            napier_const_matrix result, napier_const_matrix gradients,
                                            napier_const_matrix dots, napier_matrix grad_logits,
                                            const napier_softmax_options *options) {
    const unsigned narrow = NAPIER_IS_NARROW;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("result", result, narrow | NAPIER_MAY_BE_OUT, result.rows, result.cols, NULL),
        NAPIER_ARGUMENT("gradients", gradients, narrow | NAPIER_MAY_BE_OUT, result.rows, result.cols, "result"),
        NAPIER_ARGUMENT("dots", dots, NAPIER_IS_F32, result.rows, dots.cols, NULL),
        NAPIER_ARGUMENT("grad_logits", napier_read_only(grad_logits), narrow | NAPIER_IS_OUT, result.rows, result.cols,
                        "result")};
    napier_softmax_options o;
    NAPIER_TRY(napier_softmax_arguments(context, all, sizeof all / sizeof *all, options, NAPIER_F32, &o));
    NAPIER_REFUSE_IF(context, (unsigned)kind > NAPIER_KIND_LOG_SOFTMAX, "kind: %d is unknown", (int)kind);
    NAPIER_REFUSE_IF(context, dots.cols % NAPIER_SHARD_DOTS != 0, "dots: %lld columns are not three for each tile",
                     (long long)dots.cols);
    if (is_empty(result)) {
        return NAPIER_OK;
    }
    gradient_job j = {.values = result,
                      .gradients = gradients,
                      .dots = dots,
                      .out = grad_logits,
                      .log = kind == NAPIER_KIND_LOG_SOFTMAX,
                      .temperature = napier_float_of(o.temperature)};
    return run(context, &j, gradient_rows);
}
