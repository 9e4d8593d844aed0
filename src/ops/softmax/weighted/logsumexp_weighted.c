/* ops/softmax/weighted/logsumexp_weighted.c - log |sum_j b_j exp(x_j)| and its sign, for weights of any sign.
 *
 * A tile is added as floats, in one fixed order, and tiles as integers (weighted_sum.h). So any division of a row over
 * threads gives the same bits. If all weights are 1, the bits are those of napier_logsumexp. */
#include <napier/softmax.h>

#include "core/base/scope.h"
#include "core/base/stop.h"
#include "ops/isa/ops_kernels.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/f64/span_f64.h"
#include "ops/softmax/weighted/weighted_sum.h"

typedef struct job {
    const napier_softmax_kernels *kernels;
    napier_const_matrix logits, weights;
    napier_vector lse, sign; /* sign.data NULL: not wanted */
    napier_softmax_options options;
    bool wide;            /* f64 */
    struct strip *strips; /* one per worker, if rows are packed together */
} job;

/* A tile of a row, in the compute type. */
typedef struct tile {
    union {
        float f32[NAPIER_TILE];
        double f64[NAPIER_F64_TILE];
    } x, b;
} tile;

/* ---- Tiles --------------------------------------------------------------------------------------------------------- */

static const void *element(napier_const_matrix m, int64_t row, int64_t col) {
    const int64_t index = row * m.row_stride + col * m.col_stride;
    return napier_f64_row_data(m.data, m.dtype, 1, index);
}

static void load_f32(const job *j, int64_t row, int64_t first, int n, tile *t) {
    const float temperature = (float)j->options.temperature; /* already rounded to f32 */
    j->kernels->pack(element(j->logits, row, first), j->logits.dtype, j->logits.col_stride, n, temperature, t->x.f32);
    j->kernels->pack(element(j->weights, row, first), j->weights.dtype, j->weights.col_stride, n, 1.0f, t->b.f32);
}

static void load_f64(const job *j, int64_t row, int64_t first, int n, tile *t) {
    napier_f64_load_span(napier_f64_row_of(j->logits, row), j->options.temperature, first, n, t->x.f64);
    napier_f64_load_span(napier_f64_row_of(j->weights, row), 1.0, first, n, t->b.f64);
}

static void add_tiles(const job *j, int64_t row, int64_t begin, int64_t end, napier_weighted_sum *sum) {
    tile t;
    for (int64_t index = begin; index < end; index++) {
        const int n = napier_f64_tile_size(j->logits.cols, index);
        (j->wide ? load_f64 : load_f32)(j, row, index * NAPIER_TILE, n, &t);
        napier_weighted_sum_add(j->kernels, sum, &t.x, &t.b, n);
    }
}

static void store(const job *j, int64_t row, napier_weighted_result r) {
    if (j->sign.data) {
        napier_f64_store(j->sign.data, j->sign.dtype, row * j->sign.stride, r.sign);
    } else if (r.sign < 0) {
        r.lse = napier_f64_nan(); /* the logarithm does not exist */
    }
    napier_f64_store(j->lse.data, j->lse.dtype, row * j->lse.stride, r.lse);
}

/* ---- Rows of one tile: there is nothing to add up ---------------------------------------------------------------------- */

/* Rows of f32 that are neighbours in memory are packed together. At a distance that is a
 * power of two they would share cache sets. */
enum { STRIP = 16, STRIP_COLS = NAPIER_TILE + 16 };

typedef struct strip {
    float x[STRIP][STRIP_COLS], b[STRIP][STRIP_COLS];
} strip;

static void short_row(void *argument, int64_t row) {
    const job *j = argument;
    const int n = (int)j->logits.cols;
    tile t;
    if (j->wide) {
        if (n > 0) {
            load_f64(j, row, 0, n, &t);
        }
        store(j, row, napier_weighted_one_tile_f64(j->kernels, t.x.f64, t.b.f64, n));
        return;
    }
    load_f32(j, row, 0, n, &t);
    store(j, row, napier_weighted_one_tile(j->kernels, t.x.f32, t.b.f32, n));
}

/* Column by column of up to 16 rows, because the elements of a column are adjacent in memory. */
static void pack_strip(const job *j, napier_const_matrix m, float temperature, int64_t row, int rows,
                       float z[STRIP][STRIP_COLS]) {
    const bool plain = m.dtype == NAPIER_F32 && m.row_stride == 1 && temperature == 1.0f;
    for (int64_t c = 0; c < m.cols; c++) {
        float room[STRIP];
        const float *column = plain ? element(m, row, c) : room;
        if (!plain) {
            j->kernels->pack(element(m, row, c), m.dtype, m.row_stride, rows, temperature, room);
        }
        for (int r = 0; r < rows; r++) {
            z[r][c] = column[r];
        }
    }
}

static void strips_task(void *argument, int worker, int64_t begin, int64_t end) {
    const job *j = argument;
    strip *s = &j->strips[worker];
    const int n = (int)j->logits.cols;
    for (int64_t row = begin; row < end; row += STRIP) {
        const int rows = (int)napier_least(end - row, STRIP);
        pack_strip(j, j->logits, (float)j->options.temperature, row, rows, s->x);
        pack_strip(j, j->weights, 1.0f, row, rows, s->b);
        for (int r = 0; r < rows; r++) {
            store(j, row + r, napier_weighted_one_tile(j->kernels, s->x[r], s->b[r], n));
        }
    }
}

static bool is_columns(napier_const_matrix m) { return m.row_stride == 1 && m.col_stride != 1; }

static napier_status run_short(napier_context *context, job *j) {
    const int64_t chunk = (napier_f64_lines_chunk(j->logits.cols) + STRIP - 1) / STRIP * STRIP;
    if (j->wide || !is_columns(j->logits) || j->logits.rows == 1) {
        napier_parallel_each(context, j->logits.rows, chunk, short_row, j);
        return napier_stopped(context);
    }
    const int workers = napier_workers(context, j->logits.rows, chunk);
    NAPIER_MEMORY(memory, context);
    j->strips = napier_take(&memory, workers, sizeof *j->strips);
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %d workers", workers));
    napier_parallel(context, j->logits.rows, chunk, strips_task, j);
    return napier_stopped(context);
}

/* ---- Rows over threads --------------------------------------------------------------------------------------------- */

static void run_row(void *argument, int64_t row) {
    const job *j = argument;
    napier_weighted_sum sum;
    napier_weighted_sum_init(&sum, j->wide);
    add_tiles(j, row, 0, napier_f64_tiles(j->logits.cols), &sum);
    store(j, row, napier_weighted_sum_finish(&sum));
}

/* ---- Tiles of a row over threads ----------------------------------------------------------------------------------- */

typedef struct split_row {
    const job *job;
    int64_t row;
    napier_weighted_sum *sums; /* one per worker */
} split_row;

static void split_task(void *argument, int worker, int64_t begin, int64_t end) {
    const split_row *s = argument;
    add_tiles(s->job, s->row, begin, end, &s->sums[worker]);
}

static napier_status run_split(napier_context *context, const job *j) {
    const int64_t tiles = napier_f64_tiles(j->logits.cols);
    const int workers = napier_workers(context, tiles, NAPIER_F64_CHUNK_TILES);
    NAPIER_DEFAULT_FENV;
    NAPIER_MEMORY(memory, context);
    split_row s = {.job = j, .sums = napier_take(&memory, workers, sizeof *s.sums)};
    NAPIER_TRY(napier_taken(&memory, "no memory for the partial sums of %d workers", workers));
    for (s.row = 0; s.row < j->logits.rows; s.row++) {
        for (int w = 0; w < workers; w++) {
            napier_weighted_sum_init(&s.sums[w], j->wide);
        }
        napier_parallel(context, tiles, NAPIER_F64_CHUNK_TILES, split_task, &s);
        for (int w = 1; w < workers; w++) {
            napier_weighted_sum_merge(&s.sums[0], &s.sums[w]);
        }
        store(j, s.row, napier_weighted_sum_finish(&s.sums[0]));
    }
    return napier_stopped(context);
}

/* ---- Arguments ----------------------------------------------------------------------------------------------------- */

napier_status napier_logsumexp_weighted(napier_context *context, napier_const_matrix logits,
                                        napier_const_matrix weights, napier_vector lse, napier_vector sign,
                                        const napier_softmax_options *options) {
    job j = {.logits = logits, .weights = weights, .lse = lse, .sign = sign};
    const int64_t rows = logits.rows;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("logits", logits, NAPIER_MAY_BE_OUT, rows, logits.cols, NULL),
        NAPIER_ARGUMENT("weights", weights, NAPIER_MAY_BE_OUT, rows, logits.cols, "logits"),
        napier_column_argument("lse", napier_read_only_vector(lse), NAPIER_IS_OUT, rows),
        napier_column_argument("sign", napier_read_only_vector(sign), NAPIER_IS_OUT | NAPIER_MAY_BE_ABSENT, rows)};
    const napier_dtype compute = napier_compute_dtype3(logits.dtype, weights.dtype, lse.dtype);
    NAPIER_TRY(napier_softmax_arguments(context, all, sizeof all / sizeof *all, options, compute, &j.options));
    j.wide = compute == NAPIER_F64;
    j.kernels = napier_ops_kernels_of(context->isa)->softmax;
    NAPIER_MAY_STOP(context);
    if (logits.cols <= NAPIER_TILE) {
        return run_short(context, &j);
    }
    if (napier_f64_split(context, logits.rows, logits.cols, j.options.algorithm)) {
        return run_split(context, &j);
    }
    napier_parallel_each(context, logits.rows, napier_f64_lines_chunk(logits.cols), run_row, &j);
    return napier_stopped(context);
}
