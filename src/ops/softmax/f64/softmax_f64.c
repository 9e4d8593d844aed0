/* ops/softmax/f64/softmax_f64.c - softmax, log_softmax, logsumexp and their gradients in double precision.
 *
 * All do the same: sum a line's tiles, finish, and write. They differ in what they sum and write. Threads take different
 * lines or, if lines are long and few, different tiles of one line.
 *
 * The gradients of softmax and log_softmax need one plain sum over a row: of grad * prob, or of grad. A tile is summed
 * over 256 lanes and folded by halves, as in the forward direction (sum_f64.h). The tiles' sums are added in order of
 * their index. If a row is split over threads they are first stored in an array, so that the order is the same. */
#include "ops/softmax/f64/softmax_f64.h"

#include "core/base/fenv.h"
#include "ops/softmax/f64/span_f64.h"

typedef enum result {
    RESULT_SOFTMAX,
    RESULT_LOG_SOFTMAX,
    RESULT_LSE,
    RESULT_LSE_GRADIENT,
    RESULT_SOFTMAX_GRADIENT,
    RESULT_LOG_SOFTMAX_GRADIENT
} result;

typedef struct job {
    result result;
    bool whole;               /* one line of all elements, instead of one per row */
    napier_const_matrix in;   /* the logits; for the gradient of softmax or log_softmax the forward result */
    napier_const_matrix grad; /* the gradient with respect to the forward result; of logsumexp one column */
    napier_matrix out;        /* for logsumexp one column */
    napier_softmax_options options;
} job;

/* One line of a job, and its sum. */
typedef struct line {
    const job *job;
    int64_t index, size;
    napier_const_matrix in, grad;
    napier_matrix out;
    napier_f64_final final;
    double sum;           /* of a plain sum */
    napier_f64_sum *sums; /* if the line is split: one per worker, ... */
    double *tile_sums;    /* ... or one per tile */
} line;

static bool has_plain_sum(const job *j) { return j->result >= RESULT_SOFTMAX_GRADIENT; }
static int64_t line_count(const job *j) { return j->whole ? 1 : j->in.rows; }
static int64_t line_size(const job *j) { return j->whole ? j->in.rows * j->in.cols : j->in.cols; }

static void open_line(line *l, const job *j, int64_t index) {
    l->job = j;
    l->index = index;
    l->size = line_size(j);
    l->in = j->whole ? j->in : napier_f64_row_of(j->in, index);
    if (j->grad.data) {
        l->grad = napier_f64_row_of(j->grad, index);
    }
    if (j->result != RESULT_LSE) {
        l->out = j->whole ? j->out : napier_f64_row_of_out(j->out, index);
    }
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

static void sum_tiles(const line *l, napier_f64_sum *sum, int64_t begin, int64_t end) {
    double z[NAPIER_F64_TILE];
    for (int64_t tile = begin; tile < end; tile++) {
        const int n = napier_f64_tile_size(l->size, tile);
        napier_f64_load_span(l->in, l->job->options.temperature, tile * NAPIER_F64_TILE, n, z);
        napier_f64_sum_add_tile(sum, z, n);
    }
}

static double plain_sum(const line *l, int64_t tile) {
    double y[NAPIER_F64_TILE], g[NAPIER_F64_TILE], lane[NAPIER_F64_LANES] = {0};
    const int n = napier_f64_tile_size(l->size, tile);
    const int64_t first = tile * NAPIER_F64_TILE;
    napier_f64_load_span(l->grad, 1, first, n, g);
    if (l->job->result == RESULT_LOG_SOFTMAX_GRADIENT) {
        for (int i = 0; i < n; i++) {
            lane[i % NAPIER_F64_LANES] += g[i];
        }
        return napier_f64_fold(lane);
    }
    napier_f64_load_span(l->in, 1, first, n, y);
    for (int i = 0; i < n; i++) {
        if (y[i] != 0) {
            lane[i % NAPIER_F64_LANES] = fma(g[i], y[i], lane[i % NAPIER_F64_LANES]);
        }
    }
    return napier_f64_fold(lane);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Replaces elements first .. first + n - 1 of the input by the result. */
static void convert(const line *l, int64_t first, double *z, int n) {
    const napier_softmax_options *o = &l->job->options;
    double g[NAPIER_F64_TILE];
    switch (l->job->result) {
    case RESULT_SOFTMAX: napier_f64_apply(&l->final, NAPIER_KIND_SOFTMAX, o->masked_rows, z, z, n); return;
    case RESULT_LOG_SOFTMAX: napier_f64_apply(&l->final, NAPIER_KIND_LOG_SOFTMAX, o->masked_rows, z, z, n); return;
    case RESULT_LSE: return; /* has no elements */
    case RESULT_LSE_GRADIENT:
        napier_f64_apply(&l->final, NAPIER_KIND_SOFTMAX, NAPIER_MASKED_ZERO, z, z, n);
        napier_f64_load_span(l->grad, 1, 0, 1, g);
        for (int i = 0; i < n; i++) {
            z[i] = napier_f64_lse_gradient(z[i], g[0], o->temperature);
        }
        return;
    case RESULT_SOFTMAX_GRADIENT:
    case RESULT_LOG_SOFTMAX_GRADIENT: break;
    }
    napier_f64_load_span(l->grad, 1, first, n, g);
    for (int i = 0; i < n; i++) {
        z[i] = l->job->result == RESULT_SOFTMAX_GRADIENT
                   ? napier_f64_softmax_gradient(z[i], g[i], l->sum, o->temperature)
                   : napier_f64_log_softmax_gradient(z[i], g[i], l->sum, o->temperature);
    }
}

static void write_tiles(const line *l, int64_t begin, int64_t end) {
    const double temperature = has_plain_sum(l->job) ? 1 : l->job->options.temperature;
    double z[NAPIER_F64_TILE];
    for (int64_t tile = begin; tile < end; tile++) {
        const int n = napier_f64_tile_size(l->size, tile);
        const int64_t first = tile * NAPIER_F64_TILE;
        napier_f64_load_span(l->in, temperature, first, n, z);
        convert(l, first, z, n);
        napier_f64_store_span(l->out, first, n, z);
    }
}

static void store_lse(const line *l) {
    const napier_matrix lse = l->job->out;
    napier_f64_store(lse.data, lse.dtype, l->index * lse.row_stride, l->final.lse);
}

/* ---- Lines over threads ------------------------------------------------------------------------------------------ */

static void lines_task(void *argument, int worker, int64_t begin, int64_t end) {
    const job *j = argument;
    (void)worker;
    for (int64_t index = begin; index < end; index++) {
        line l = {.sum = 0};
        open_line(&l, j, index);
        const int64_t tiles = napier_f64_tiles(l.size);
        for (int64_t tile = 0; tile < tiles && has_plain_sum(j); tile++) {
            l.sum += plain_sum(&l, tile);
        }
        if (!has_plain_sum(j)) {
            napier_f64_sum sum;
            napier_f64_sum_init(&sum);
            sum_tiles(&l, &sum, 0, tiles);
            napier_f64_finish(&sum, &l.final);
        }
        if (j->result == RESULT_LSE) {
            store_lse(&l);
        } else {
            write_tiles(&l, 0, tiles);
        }
    }
}

/* ---- Tiles of a line over threads -------------------------------------------------------------------------------- */

static void sum_task(void *argument, int worker, int64_t begin, int64_t end) {
    const line *l = argument;
    if (!has_plain_sum(l->job)) {
        sum_tiles(l, &l->sums[worker], begin, end);
        return;
    }
    for (int64_t tile = begin; tile < end; tile++) {
        l->tile_sums[tile] = plain_sum(l, tile);
    }
}

static void write_task(void *argument, int worker, int64_t begin, int64_t end) {
    (void)worker;
    write_tiles(argument, begin, end);
}

static void run_split_line(const napier_context *context, line *l, int workers) {
    const int64_t tiles = napier_f64_tiles(l->size);
    const bool plain = has_plain_sum(l->job);
    for (int w = 0; w < workers && !plain; w++) {
        napier_f64_sum_init(&l->sums[w]);
    }
    napier_parallel(context, tiles, NAPIER_F64_CHUNK_TILES, sum_task, l);
    for (int64_t tile = 0; tile < tiles && plain; tile++) {
        l->sum += l->tile_sums[tile];
    }
    for (int w = 1; w < workers && !plain; w++) {
        napier_f64_sum_merge(&l->sums[0], &l->sums[w]);
    }
    if (!plain) {
        napier_f64_finish(&l->sums[0], &l->final);
    }
    if (l->job->result == RESULT_LSE) {
        store_lse(l);
    } else {
        napier_parallel(context, tiles, NAPIER_F64_CHUNK_TILES, write_task, l);
    }
}

static napier_status run_split(napier_context *context, const job *j) {
    const int64_t tiles = napier_f64_tiles(line_size(j));
    const int workers = napier_workers(context, tiles, NAPIER_F64_CHUNK_TILES);
    void *const sums = has_plain_sum(j) ? napier_alloc(&context->allocator, (size_t)tiles, sizeof(double))
                                        : napier_alloc(&context->allocator, (size_t)workers, sizeof(napier_f64_sum));
    if (sums == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for the partial sums of %d workers", workers);
    }
    const napier_fenv saved = napier_fenv_enter();
    for (int64_t index = 0; index < line_count(j); index++) {
        line l = {.sums = sums, .tile_sums = sums};
        open_line(&l, j, index);
        run_split_line(context, &l, workers);
    }
    napier_fenv_leave(saved);
    napier_free(&context->allocator, sums);
    return NAPIER_OK;
}

static napier_status run(napier_context *context, job j, const napier_softmax_options *options) {
    const int64_t lines = line_count(&j), size = line_size(&j);
    j.options = options ? *options : (napier_softmax_options)NAPIER_SOFTMAX_OPTIONS_INIT;
    if (j.result != RESULT_LSE && size == 0) {
        return NAPIER_OK;
    }
    const napier_algorithm algorithm = has_plain_sum(&j) ? NAPIER_ALGORITHM_AUTO : j.options.algorithm;
    if (napier_f64_split(context, lines, size, algorithm)) {
        return run_split(context, &j);
    }
    napier_parallel(context, lines, napier_f64_lines_chunk(size), lines_task, &j);
    return NAPIER_OK;
}

/* ---- The operations ---------------------------------------------------------------------------------------------- */

napier_status napier_f64_softmax(napier_context *context, napier_softmax_kind kind, napier_const_matrix logits,
                                 napier_matrix out, const napier_softmax_options *options) {
    const result kind_of_result = kind == NAPIER_KIND_SOFTMAX ? RESULT_SOFTMAX : RESULT_LOG_SOFTMAX;
    return run(context, (job){.result = kind_of_result, .in = logits, .out = out}, options);
}

napier_status napier_f64_logsumexp(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                   const napier_softmax_options *options) {
    return run(context, (job){.result = RESULT_LSE, .in = logits, .out = napier_column(lse)}, options);
}

napier_status napier_f64_logsumexp_all(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                       const napier_softmax_options *options) {
    return run(context, (job){.result = RESULT_LSE, .whole = true, .in = logits, .out = napier_column(lse)}, options);
}

napier_status napier_f64_softmax_backward(napier_context *context, napier_const_matrix probs,
                                          napier_const_matrix grad_probs, napier_matrix grad_logits,
                                          const napier_softmax_options *options) {
    const job j = {.result = RESULT_SOFTMAX_GRADIENT, .in = probs, .grad = grad_probs, .out = grad_logits};
    return run(context, j, options);
}

napier_status napier_f64_log_softmax_backward(napier_context *context, napier_const_matrix logprobs,
                                              napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                              const napier_softmax_options *options) {
    const job j = {.result = RESULT_LOG_SOFTMAX_GRADIENT, .in = logprobs, .grad = grad_logprobs, .out = grad_logits};
    return run(context, j, options);
}

napier_status napier_f64_logsumexp_backward(napier_context *context, napier_const_matrix logits,
                                            napier_const_vector grad_lse, napier_matrix grad_logits,
                                            const napier_softmax_options *options) {
    const napier_const_matrix grad = napier_const_column(grad_lse);
    return run(context, (job){.result = RESULT_LSE_GRADIENT, .in = logits, .grad = grad, .out = grad_logits}, options);
}

napier_status napier_f64_logsumexp_all_backward(napier_context *context, napier_const_matrix logits,
                                                napier_const_vector grad_lse, napier_matrix grad_logits,
                                                const napier_softmax_options *options) {
    const job j = {.result = RESULT_LSE_GRADIENT,
                   .whole = true,
                   .in = logits,
                   .grad = napier_const_column(grad_lse),
                   .out = grad_logits};
    return run(context, j, options);
}
