/* ops/softmax/f64/backward_f64.c - the gradients of softmax and log_softmax in double precision.
 *
 * Both need one sum over a row: of grad * prob, or of grad. A tile is summed over 256 lanes and folded by halves, as in
 * the forward direction. The tiles' sums are added in order of their index. If a long row is split over threads, the
 * tiles' sums are first stored in an array, so that the order is the same. */
#include "ops/softmax/f64/softmax_f64.h"

#include "core/base/fenv.h"
#include "ops/softmax/f64/span_f64.h"

typedef struct job {
    napier_softmax_kind kind;
    napier_const_matrix result, grad; /* the forward result and the gradient with respect to it */
    napier_matrix out;
    double temperature;
} job;

/* One row of a job. */
typedef struct line {
    const job *job;
    int64_t size;
    napier_const_matrix result, grad;
    napier_matrix out;
    double sum;
    double *tile_sums; /* one per tile, if the row is split */
} line;

static void open_line(line *l, const job *j, int64_t index) {
    l->job = j;
    l->size = j->out.cols;
    l->result = napier_f64_row_of(j->result, index);
    l->grad = napier_f64_row_of(j->grad, index);
    l->out = napier_f64_row_of_out(j->out, index);
}

static double tile_sum(const line *l, int64_t tile) {
    double y[NAPIER_F64_TILE], g[NAPIER_F64_TILE], lane[NAPIER_F64_LANES] = {0};
    const int n = napier_f64_tile_size(l->size, tile);
    const int64_t first = tile * NAPIER_F64_TILE;
    napier_f64_load_span(l->grad, 1, first, n, g);
    if (l->job->kind == NAPIER_KIND_LOG_SOFTMAX) {
        for (int i = 0; i < n; i++) {
            lane[i % NAPIER_F64_LANES] += g[i];
        }
        return napier_f64_fold(lane);
    }
    napier_f64_load_span(l->result, 1, first, n, y);
    for (int i = 0; i < n; i++) {
        if (y[i] != 0) {
            lane[i % NAPIER_F64_LANES] = fma(g[i], y[i], lane[i % NAPIER_F64_LANES]);
        }
    }
    return napier_f64_fold(lane);
}

static double gradient_of(const line *l, double result, double grad) {
    return l->job->kind == NAPIER_KIND_SOFTMAX
               ? napier_f64_softmax_gradient(result, grad, l->sum, l->job->temperature)
               : napier_f64_log_softmax_gradient(result, grad, l->sum, l->job->temperature);
}

static void write_tiles(const line *l, int64_t begin, int64_t end) {
    double y[NAPIER_F64_TILE], g[NAPIER_F64_TILE];
    for (int64_t tile = begin; tile < end; tile++) {
        const int n = napier_f64_tile_size(l->size, tile);
        const int64_t first = tile * NAPIER_F64_TILE;
        napier_f64_load_span(l->result, 1, first, n, y);
        napier_f64_load_span(l->grad, 1, first, n, g);
        for (int i = 0; i < n; i++) {
            y[i] = gradient_of(l, y[i], g[i]);
        }
        napier_f64_store_span(l->out, first, n, y);
    }
}

static void lines_task(void *argument, int worker, int64_t begin, int64_t end) {
    const job *j = argument;
    (void)worker;
    for (int64_t index = begin; index < end; index++) {
        line l = {.sum = 0};
        open_line(&l, j, index);
        const int64_t tiles = napier_f64_tiles(l.size);
        for (int64_t tile = 0; tile < tiles; tile++) {
            l.sum += tile_sum(&l, tile);
        }
        write_tiles(&l, 0, tiles);
    }
}

static void sum_task(void *argument, int worker, int64_t begin, int64_t end) {
    const line *l = argument;
    (void)worker;
    for (int64_t tile = begin; tile < end; tile++) {
        l->tile_sums[tile] = tile_sum(l, tile);
    }
}

static void write_task(void *argument, int worker, int64_t begin, int64_t end) {
    (void)worker;
    write_tiles(argument, begin, end);
}

static napier_status run_split(napier_context *context, const job *j) {
    const int64_t tiles = napier_f64_tiles(j->out.cols);
    double *tile_sums = napier_alloc(&context->allocator, (size_t)tiles, sizeof *tile_sums);
    if (tile_sums == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for the sums of a row's tiles");
    }
    const napier_fenv saved = napier_fenv_enter();
    for (int64_t index = 0; index < j->out.rows; index++) {
        line l = {.sum = 0, .tile_sums = tile_sums};
        open_line(&l, j, index);
        napier_parallel(context, tiles, NAPIER_F64_CHUNK_TILES, sum_task, &l);
        for (int64_t tile = 0; tile < tiles; tile++) {
            l.sum += tile_sums[tile];
        }
        napier_parallel(context, tiles, NAPIER_F64_CHUNK_TILES, write_task, &l);
    }
    napier_fenv_leave(saved);
    napier_free(&context->allocator, tile_sums);
    return NAPIER_OK;
}

static napier_status run(napier_context *context, job *j) {
    if (j->out.cols == 0) {
        return NAPIER_OK;
    }
    if (napier_f64_split(context, j->out.rows, j->out.cols, NAPIER_ALGORITHM_AUTO)) {
        return run_split(context, j);
    }
    napier_parallel(context, j->out.rows, napier_f64_lines_chunk(j->out.cols), lines_task, j);
    return NAPIER_OK;
}

napier_status napier_f64_softmax_backward(napier_context *context, napier_const_matrix probs,
                                          napier_const_matrix grad_probs, napier_matrix grad_logits,
                                          const napier_softmax_options *options) {
    job j = {NAPIER_KIND_SOFTMAX, probs, grad_probs, grad_logits, napier_f64_options(options).temperature};
    return run(context, &j);
}

napier_status napier_f64_log_softmax_backward(napier_context *context, napier_const_matrix logprobs,
                                              napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                              const napier_softmax_options *options) {
    job j = {NAPIER_KIND_LOG_SOFTMAX, logprobs, grad_logprobs, grad_logits, napier_f64_options(options).temperature};
    return run(context, &j);
}
