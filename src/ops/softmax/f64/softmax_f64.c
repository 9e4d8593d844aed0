/* ops/softmax/f64/softmax_f64.c - softmax, log_softmax, logsumexp and the gradient of logsumexp in double precision.
 *
 * All four do the same: sum a line's tiles (sum_f64.h), finish, and write. They differ only in what they write. Threads
 * take different lines or, if lines are long and few, different tiles of one line. */
#include "ops/softmax/f64/softmax_f64.h"

#include "core/base/fenv.h"
#include "ops/softmax/f64/span_f64.h"

typedef enum result { RESULT_SOFTMAX, RESULT_LOG_SOFTMAX, RESULT_LSE, RESULT_LSE_GRADIENT } result;

typedef struct job {
    result result;
    bool whole; /* one line of all elements, instead of one per row */
    napier_const_matrix logits;
    napier_matrix out;            /* unless RESULT_LSE */
    napier_vector lse;            /* RESULT_LSE */
    napier_const_vector grad_lse; /* RESULT_LSE_GRADIENT */
    napier_softmax_options options;
} job;

/* One line of a job, and its sum. */
typedef struct line {
    const job *job;
    int64_t index, size;
    napier_const_matrix in;
    napier_matrix out;
    double grad;
    napier_f64_final final;
    napier_f64_sum *sums; /* one per worker, if the line is split */
} line;

static int64_t line_count(const job *j) { return j->whole ? 1 : j->logits.rows; }
static int64_t line_size(const job *j) { return j->whole ? j->logits.rows * j->logits.cols : j->logits.cols; }

static void open_line(line *l, const job *j, int64_t index) {
    l->job = j;
    l->index = index;
    l->size = line_size(j);
    l->in = j->whole ? j->logits : napier_f64_row_of(j->logits, index);
    if (j->result != RESULT_LSE) {
        l->out = j->whole ? j->out : napier_f64_row_of_out(j->out, index);
    }
    if (j->result == RESULT_LSE_GRADIENT) {
        l->grad = napier_f64_load(j->grad_lse.data, j->grad_lse.dtype, index * j->grad_lse.stride);
    }
}

static void sum_tiles(const line *l, napier_f64_sum *sum, int64_t begin, int64_t end) {
    double z[NAPIER_F64_TILE];
    for (int64_t tile = begin; tile < end; tile++) {
        const int n = napier_f64_tile_size(l->size, tile);
        napier_f64_load_span(l->in, l->job->options.temperature, tile * NAPIER_F64_TILE, n, z);
        napier_f64_sum_add_tile(sum, z, n);
    }
}

/* Replaces z, n elements of the line, by the result. */
static void convert(const line *l, double *z, int n) {
    const napier_softmax_options *options = &l->job->options;
    if (l->job->result != RESULT_LSE_GRADIENT) {
        const napier_softmax_kind kind =
            l->job->result == RESULT_SOFTMAX ? NAPIER_KIND_SOFTMAX : NAPIER_KIND_LOG_SOFTMAX;
        napier_f64_apply(&l->final, kind, options->masked_rows, z, z, n);
        return;
    }
    napier_f64_apply(&l->final, NAPIER_KIND_SOFTMAX, NAPIER_MASKED_ZERO, z, z, n);
    for (int i = 0; i < n; i++) {
        z[i] = napier_f64_lse_gradient(z[i], l->grad, options->temperature);
    }
}

static void write_tiles(const line *l, int64_t begin, int64_t end) {
    double z[NAPIER_F64_TILE];
    for (int64_t tile = begin; tile < end; tile++) {
        const int n = napier_f64_tile_size(l->size, tile);
        const int64_t first = tile * NAPIER_F64_TILE;
        napier_f64_load_span(l->in, l->job->options.temperature, first, n, z);
        convert(l, z, n);
        napier_f64_store_span(l->out, first, n, z);
    }
}

static void store_lse(const line *l) {
    const napier_vector lse = l->job->lse;
    napier_f64_store(lse.data, lse.dtype, l->index * lse.stride, l->final.lse);
}

/* ---- Lines over threads ---------------------------------------------------------------------------------------- */

static void lines_task(void *argument, int worker, int64_t begin, int64_t end) {
    const job *j = argument;
    (void)worker;
    for (int64_t index = begin; index < end; index++) {
        line l;
        open_line(&l, j, index);
        const int64_t tiles = napier_f64_tiles(l.size);
        napier_f64_sum sum;
        napier_f64_sum_init(&sum);
        sum_tiles(&l, &sum, 0, tiles);
        napier_f64_finish(&sum, &l.final);
        if (j->result == RESULT_LSE) {
            store_lse(&l);
        } else {
            write_tiles(&l, 0, tiles);
        }
    }
}

/* ---- Tiles of a line over threads ------------------------------------------------------------------------------ */

static void sum_task(void *argument, int worker, int64_t begin, int64_t end) {
    const line *l = argument;
    sum_tiles(l, &l->sums[worker], begin, end);
}

static void write_task(void *argument, int worker, int64_t begin, int64_t end) {
    (void)worker;
    write_tiles(argument, begin, end);
}

static void run_split_line(const napier_context *context, line *l, int workers) {
    const int64_t tiles = napier_f64_tiles(l->size);
    for (int w = 0; w < workers; w++) {
        napier_f64_sum_init(&l->sums[w]);
    }
    napier_parallel(context, tiles, NAPIER_F64_CHUNK_TILES, sum_task, l);
    for (int w = 1; w < workers; w++) {
        napier_f64_sum_merge(&l->sums[0], &l->sums[w]);
    }
    napier_f64_finish(&l->sums[0], &l->final);
    if (l->job->result == RESULT_LSE) {
        store_lse(l);
    } else {
        napier_parallel(context, tiles, NAPIER_F64_CHUNK_TILES, write_task, l);
    }
}

static napier_status run_split(napier_context *context, const job *j) {
    const int workers = napier_workers(context, napier_f64_tiles(line_size(j)), NAPIER_F64_CHUNK_TILES);
    napier_f64_sum *sums = napier_alloc(&context->allocator, (size_t)workers, sizeof *sums);
    if (sums == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for the partial sums of %d workers", workers);
    }
    const napier_fenv saved = napier_fenv_enter();
    for (int64_t index = 0; index < line_count(j); index++) {
        line l = {.sums = sums};
        open_line(&l, j, index);
        run_split_line(context, &l, workers);
    }
    napier_fenv_leave(saved);
    napier_free(&context->allocator, sums);
    return NAPIER_OK;
}

static napier_status run(napier_context *context, job *j) {
    const int64_t lines = line_count(j), size = line_size(j);
    if (j->result != RESULT_LSE && size == 0) {
        return NAPIER_OK;
    }
    if (napier_f64_split(context, lines, size, j->options.algorithm)) {
        return run_split(context, j);
    }
    napier_parallel(context, lines, napier_f64_lines_chunk(size), lines_task, j);
    return NAPIER_OK;
}

/* ---- The operations -------------------------------------------------------------------------------------------- */

napier_status napier_f64_softmax(napier_context *context, napier_softmax_kind kind, napier_const_matrix logits,
                                 napier_matrix out, const napier_softmax_options *options) {
    job j = {.result = kind == NAPIER_KIND_SOFTMAX ? RESULT_SOFTMAX : RESULT_LOG_SOFTMAX,
             .logits = logits,
             .out = out,
             .options = napier_f64_options(options)};
    return run(context, &j);
}

napier_status napier_f64_logsumexp(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                   const napier_softmax_options *options) {
    job j = {.result = RESULT_LSE, .logits = logits, .lse = lse, .options = napier_f64_options(options)};
    return run(context, &j);
}

napier_status napier_f64_logsumexp_all(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                       const napier_softmax_options *options) {
    job j = {.result = RESULT_LSE, .whole = true, .logits = logits, .lse = lse, .options = napier_f64_options(options)};
    return run(context, &j);
}

static napier_status logsumexp_backward(napier_context *context, bool whole, napier_const_matrix logits,
                                        napier_const_vector grad_lse, napier_matrix grad_logits,
                                        const napier_softmax_options *options) {
    job j = {.result = RESULT_LSE_GRADIENT,
             .whole = whole,
             .logits = logits,
             .out = grad_logits,
             .grad_lse = grad_lse,
             .options = napier_f64_options(options)};
    return run(context, &j);
}

napier_status napier_f64_logsumexp_backward(napier_context *context, napier_const_matrix logits,
                                            napier_const_vector grad_lse, napier_matrix grad_logits,
                                            const napier_softmax_options *options) {
    return logsumexp_backward(context, false, logits, grad_lse, grad_logits, options);
}

napier_status napier_f64_logsumexp_all_backward(napier_context *context, napier_const_matrix logits,
                                                napier_const_vector grad_lse, napier_matrix grad_logits,
                                                const napier_softmax_options *options) {
    return logsumexp_backward(context, true, logits, grad_lse, grad_logits, options);
}
