/* ops/softmax/f64/softmax_f64.c - softmax, log_softmax, logsumexp and their gradients in double precision.
 *
 * All do the same: sum a line's tiles, finish, and write. They differ in what they sum and write. Threads take different
 * lines or, if lines are long and few, different tiles of one line.
 *
 * The gradients of softmax and log_softmax need one plain sum over a row: of grad * prob, or of grad. A tile is summed
 * over 256 lanes and folded by halves, as in the forward direction (sum_f64.h). The tiles' sums are added in order of
 * their index. If a row is split over threads they are first stored in an array, so that the order is the same. */
#include "ops/softmax/f64/softmax_f64.h"

#include "core/base/scope.h"
#include "core/base/stop.h"
#include "ops/isa/ops_kernels.h"
#include "ops/softmax/f64/span_f64.h"

/* One line of a job, and its sum. */
typedef struct line {
    const napier_f64_job *job;
    int64_t index, size;
    napier_const_matrix in, grad;
    napier_matrix out;
    napier_f64_final final;
    napier_certain_sums sum;        /* of a plain sum */
    napier_f64_sum *sums;           /* if the line is split: one per worker, ... */
    napier_certain_sums *tile_sums; /* ... or one per tile */
    const double *terms;            /* NULL, or the terms of a line of one tile */
} line;

static bool has_plain_sum(const napier_f64_job *j) {
    return j->result == NAPIER_F64_SOFTMAX_GRADIENT || j->result == NAPIER_F64_LOG_SOFTMAX_GRADIENT ||
           j->result == NAPIER_F64_DOT;
}
/* One result for each line. */
static bool reduces(const napier_f64_job *j) { return j->result == NAPIER_F64_LSE || j->result == NAPIER_F64_DOT; }
static int64_t line_count(const napier_f64_job *j) { return j->whole ? 1 : j->in.rows; }
static int64_t line_size(const napier_f64_job *j) { return j->whole ? j->in.rows * j->in.cols : j->in.cols; }

static void open_line(line *l, const napier_f64_job *j, int64_t index) {
    l->job = j;
    l->index = index;
    l->size = line_size(j);
    l->in = j->whole ? j->in : napier_f64_row_of(j->in, index);
    if (j->grad.data) {
        l->grad = napier_f64_row_of(j->grad, index);
    }
    if (!reduces(j)) {
        l->out = j->whole ? j->out : napier_f64_row_of_out(j->out, index);
    }
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

static void sum_tiles(const line *l, napier_f64_sum *sum, int64_t begin, int64_t end) {
    double z[NAPIER_F64_TILE];
    for (int64_t tile = begin; tile < end; tile++) {
        const int n = napier_f64_tile_size(l->size, tile);
        napier_f64_load_span(l->in, l->job->options.temperature, tile * NAPIER_F64_TILE, n, z);
        napier_f64_tile_part part;
        l->job->kernels->f64_tile(z, n, &part, NULL);
        napier_f64_sum_add_part(sum, &part);
    }
}

static void plain_sum(const line *l, int64_t tile, napier_certain_sums *sums) {
    double y[NAPIER_F64_TILE], g[NAPIER_F64_TILE];
    double rest[NAPIER_F64_LANES] = {0}, prob[NAPIER_F64_LANES] = {0}, certain[NAPIER_F64_LANES] = {0};
    const int n = napier_f64_tile_size(l->size, tile);
    const int64_t first = tile * NAPIER_F64_TILE;
    napier_f64_load_span(l->grad, 1, first, n, g);
    const bool log = l->job->result == NAPIER_F64_LOG_SOFTMAX_GRADIENT;
    if (!log) {
        napier_f64_load_span(l->in, 1, first, n, y);
    }
    for (int i = 0; i < n; i++) {
        const int lane = i % NAPIER_F64_LANES;
        if (log) {
            rest[lane] += g[i];
        } else if (y[i] > (double)NAPIER_CERTAIN) {
            certain[lane] = fma(g[i], y[i], certain[lane]);
        } else if (y[i] != 0) {
            rest[lane] = fma(g[i], y[i], rest[lane]);
            prob[lane] += y[i];
        }
    }
    *sums = (napier_certain_sums){napier_f64_fold(certain), napier_f64_fold(rest), napier_f64_fold(prob)};
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Replaces elements first .. first + n - 1 of the input by the result. */
static void convert(const line *l, int64_t first, double *z, int n) {
    const napier_softmax_options *o = &l->job->options;
    double g[NAPIER_F64_TILE];
    switch (l->job->result) {
    case NAPIER_F64_SOFTMAX:
        l->job->kernels->f64_apply(&l->final, NAPIER_KIND_SOFTMAX, o->masked_rows, z, l->terms, z, n);
        return;
    case NAPIER_F64_LOG_SOFTMAX:
        l->job->kernels->f64_apply(&l->final, NAPIER_KIND_LOG_SOFTMAX, o->masked_rows, z, l->terms, z, n);
        return;
    case NAPIER_F64_LSE_GRADIENT:
        l->job->kernels->f64_apply(&l->final, NAPIER_KIND_SOFTMAX, NAPIER_MASKED_ZERO, z, l->terms, z, n);
        napier_f64_load_span(l->grad, 1, 0, 1, g);
        for (int i = 0; i < n; i++) {
            z[i] = napier_f64_lse_gradient(z[i], g[0], o->temperature);
        }
        return;
    case NAPIER_F64_LSE:
    case NAPIER_F64_DOT:
    case NAPIER_F64_STATE: return;
    case NAPIER_F64_SOFTMAX_GRADIENT:
    case NAPIER_F64_LOG_SOFTMAX_GRADIENT: break;
    }
    napier_f64_load_span(l->grad, 1, first, n, g);
    for (int i = 0; i < n; i++) {
        z[i] = l->job->result == NAPIER_F64_SOFTMAX_GRADIENT
                   ? napier_f64_softmax_gradient(z[i], g[i], &l->sum, o->temperature)
                   : napier_f64_log_softmax_gradient(z[i], g[i], &l->sum, o->temperature);
    }
}

/* The one result of a line. */
static void store_reduced(const line *l) {
    const napier_matrix out = l->job->out;
    const double result = l->job->result == NAPIER_F64_DOT ? l->sum.rest + l->sum.certain : l->final.lse;
    napier_f64_store(out.data, out.dtype, l->index * out.row_stride, result);
}

/* A line of one tile: its elements are read once, and each needs one exp. Not for a plain sum. */
static void run_tile(line *l) {
    double z[NAPIER_F64_TILE], terms[NAPIER_F64_TILE];
    const int n = (int)l->size;
    napier_f64_tile_part part;
    napier_f64_load_span(l->in, l->job->options.temperature, 0, n, z);
    l->terms = l->job->kernels->f64_tile(z, n, &part, terms) ? terms : NULL;
    napier_f64_finish_tile(&part, &l->final);
    if (reduces(l->job)) {
        store_reduced(l);
        return;
    }
    convert(l, 0, z, n);
    napier_f64_store_span(l->out, 0, n, z);
}

static void write_tile(void *argument, int64_t tile) {
    const line *l = argument;
    const double temperature = has_plain_sum(l->job) ? 1 : l->job->options.temperature;
    const int n = napier_f64_tile_size(l->size, tile);
    const int64_t first = tile * NAPIER_F64_TILE;
    double z[NAPIER_F64_TILE];
    napier_f64_load_span(l->in, temperature, first, n, z);
    convert(l, first, z, n);
    napier_f64_store_span(l->out, first, n, z);
}

/* ---- Lines over threads ------------------------------------------------------------------------------------------ */

static void run_line(void *argument, int64_t index) {
    const napier_f64_job *j = argument;
    line l = {.index = 0};
    open_line(&l, j, index);
    const int64_t tiles = napier_f64_tiles(l.size);
    if (tiles == 1 && !has_plain_sum(j)) {
        run_tile(&l);
        return;
    }
    for (int64_t tile = 0; tile < tiles && has_plain_sum(j); tile++) {
        napier_certain_sums sums;
        plain_sum(&l, tile, &sums);
        napier_certain_sums_add(&l.sum, &sums);
    }
    if (!has_plain_sum(j)) {
        napier_f64_sum sum;
        napier_f64_sum_init(&sum);
        sum_tiles(&l, &sum, 0, tiles);
        napier_f64_finish(&sum, &l.final);
    }
    if (reduces(j)) {
        store_reduced(&l);
        return;
    }
    for (int64_t tile = 0; tile < tiles; tile++) {
        write_tile(&l, tile);
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
        plain_sum(l, tile, &l->tile_sums[tile]);
    }
}

static void run_split_line(const napier_context *context, line *l, int workers) {
    const int64_t tiles = napier_f64_tiles(l->size);
    const bool plain = has_plain_sum(l->job);
    for (int w = 0; w < workers && !plain; w++) {
        napier_f64_sum_init(&l->sums[w]);
    }
    napier_parallel(context, tiles, NAPIER_F64_CHUNK_TILES, sum_task, l);
    for (int64_t tile = 0; tile < tiles && plain; tile++) {
        napier_certain_sums_add(&l->sum, &l->tile_sums[tile]);
    }
    for (int w = 1; w < workers && !plain; w++) {
        napier_f64_sum_merge(&l->sums[0], &l->sums[w]);
    }
    if (!plain) {
        napier_f64_finish(&l->sums[0], &l->final);
    }
    if (reduces(l->job)) {
        store_reduced(l);
    } else {
        napier_parallel_each(context, tiles, NAPIER_F64_CHUNK_TILES, write_tile, l);
    }
}

static napier_status run_split(napier_context *context, const napier_f64_job *j) {
    const int64_t tiles = napier_f64_tiles(line_size(j));
    const int workers = napier_workers(context, tiles, NAPIER_F64_CHUNK_TILES);
    NAPIER_DEFAULT_FENV;
    NAPIER_MAY_STOP(context);
    NAPIER_MEMORY(memory, context);
    const int64_t count = has_plain_sum(j) ? tiles : workers;
    void *const sums =
        napier_take(&memory, count, has_plain_sum(j) ? sizeof(napier_certain_sums) : sizeof(napier_f64_sum));
    NAPIER_TRY(napier_taken(&memory, "no memory for %lld partial sums", (long long)count));
    for (int64_t index = 0; index < line_count(j); index++) {
        line l = {.sums = sums, .tile_sums = sums};
        open_line(&l, j, index);
        run_split_line(context, &l, workers);
    }
    return napier_stopped(context);
}

napier_status napier_f64_run(napier_context *context, const napier_f64_job *job) {
    const int64_t lines = line_count(job), size = line_size(job);
    if (!reduces(job) && size == 0) {
        return NAPIER_OK;
    }
    napier_f64_job copy = *job;
    copy.kernels = napier_ops_kernels_of(context->isa)->softmax;
    const napier_algorithm algorithm = has_plain_sum(job) ? NAPIER_ALGORITHM_AUTO : job->options.algorithm;
    if (napier_f64_split(context, lines, size, algorithm)) {
        return run_split(context, &copy);
    }
    NAPIER_MAY_STOP(context);
    napier_parallel_each(context, lines, napier_f64_lines_chunk(size), run_line, &copy);
    return napier_stopped(context);
}
