/* ops/softmax/weighted/logsumexp_weighted.c - log |sum_j b_j exp(x_j)| and its sign, for weights of any sign.
 *
 * The online recurrence does not work here, because the size of a term depends on its weight too. So a
 * first pass over a row finds its largest x, M, and its largest term. Then every tile is summed in floats,
 * in one fixed order (weighted.h). The tiles' sums, and the weights of the elements that equal M, are
 * added exactly, as integers (signed_digits.h):
 *
 *     sum = exp(M) (W + R),     lse = M + log |W + R|
 *
 * Any division of a row over threads gives the same bits. If all weights are 1, W is the count and R the rest of sum.h,
 * and the bits are those of napier_logsumexp. */
#include <napier/softmax.h>

#include "core/base/scope.h"
#include "ops/isa/ops_kernels.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/signed_digits.h"
#include "ops/softmax/f64/span_f64.h"
#include "ops/softmax/weighted/weighted_f64.h"

/* Windows of digits: for weights the whole range of the dtype, for the rest as much as sum.h and sum_f64.h have. */
enum {
    WEIGHT_DIGITS = 13,
    WEIGHT_TOP = 5,
    WEIGHT_DIGITS_F64 = 88,
    WEIGHT_TOP_F64 = 42,
    HEADROOM = 2,
    UNIT_MOST_F64 = 500 /* powers of two between M's term and the largest term for which M's unit still serves */
};

typedef struct job {
    const napier_softmax_kernels *kernels;
    napier_const_matrix logits, weights;
    napier_vector lse, sign; /* sign.data NULL: not wanted */
    napier_softmax_options options;
    bool wide;            /* f64 */
    struct strip *strips; /* one per worker, if rows are packed together */
} job;

/* The exact sums of a row or a part of it, besides what the first pass finds. */
typedef struct sums {
    uint64_t weight[WEIGHT_DIGITS_F64], rest[NAPIER_F64_DIGITS];
} sums;

/* A row in progress. */
typedef struct line {
    const job *job;
    int64_t row;
    napier_weighted_look look; /* of the whole row */
    int64_t top;               /* of the digits of the rest */
    napier_weighted_look *looks;
    sums *sums; /* both one per worker, if the row is split */
} line;

/* A tile of a line, in the compute type. */
typedef struct tile {
    union {
        float f32[NAPIER_TILE];
        double f64[NAPIER_F64_TILE];
    } x, b;
    int n, at[NAPIER_TILE]; /* at: of elements that equal the maximum */
    napier_weighted_look look;
} tile;

static int weight_digits(const job *j) { return j->wide ? WEIGHT_DIGITS_F64 : WEIGHT_DIGITS; }
static int weight_top(const job *j) { return j->wide ? WEIGHT_TOP_F64 : WEIGHT_TOP; }
static int rest_digits(const job *j) { return j->wide ? NAPIER_F64_DIGITS : NAPIER_DIGITS; }

static bool is_huge(const job *j, double max) { return j->wide ? napier_f64_is_huge(max) : napier_is_huge((float)max); }

/* ---- Tiles --------------------------------------------------------------------------------------------------------- */

static const void *element(napier_const_matrix m, int64_t row, int64_t col) {
    const int64_t index = row * m.row_stride + col * m.col_stride;
    return napier_f64_row_data(m.data, m.dtype, 1, index);
}

static void load_f32(const line *l, int64_t first, tile *t) {
    const job *j = l->job;
    const float temperature = (float)j->options.temperature; /* already rounded to f32 */
    j->kernels->pack(element(j->logits, l->row, first), j->logits.dtype, j->logits.col_stride, t->n, temperature,
                     t->x.f32);
    j->kernels->pack(element(j->weights, l->row, first), j->weights.dtype, j->weights.col_stride, t->n, 1.0f, t->b.f32);
    j->kernels->weighted_look(t->x.f32, t->b.f32, t->n, &t->look);
}

static void load_f64(const line *l, int64_t first, tile *t) {
    const job *j = l->job;
    napier_f64_load_span(napier_f64_row_of(j->logits, l->row), j->options.temperature, first, t->n, t->x.f64);
    napier_f64_load_span(napier_f64_row_of(j->weights, l->row), 1.0, first, t->n, t->b.f64);
    l->job->kernels->f64_weighted_look(t->x.f64, t->b.f64, t->n, &t->look);
}

static void load(const line *l, int64_t index, tile *t) {
    t->n = napier_f64_tile_size(l->job->logits.cols, index);
    (l->job->wide ? load_f64 : load_f32)(l, index * NAPIER_TILE, t);
}

/* Does a tile with this maximum add anything but weights to the row? Beyond huge, only ties are near
 * enough to count. */
static bool has_rest(const line *l, double max) { return !is_huge(l->job, max) && !is_huge(l->job, l->look.max); }

static void add_rest(const line *l, sums *s, double x, int64_t exponent) {
    napier_digits_add(s->rest, rest_digits(l->job), l->top, x, exponent);
}

static void add_weight(const line *l, sums *s, double b) {
    const bool small = fabs(b) < 0x1p-1022; /* a digit needs a normal number */
    napier_digits_add(s->weight, weight_digits(l->job), weight_top(l->job), small ? b * 0x1p64 : b, small ? -64 : 0);
}

static void add_f32(const line *l, sums *s, tile *t) {
    const napier_weighted_look *const look = &t->look;
    const float max = (float)look->max;
    const int ties = l->job->kernels->weighted_ties(t->x.f32, t->b.f32, t->n, max, t->at);
    for (int i = 0; i < ties; i++) {
        const float b = t->b.f32[t->at[i]];
        if (look->max == l->look.max) {
            add_weight(l, s, (double)b);
        } else if (has_rest(l, look->max)) {
            const napier_exp_parts parts = napier_exp_parts_for(max, max);
            int32_t e;
            const float scaled = napier_weight_parts(b, &e) * parts.p;
            add_rest(l, s, (double)scaled, parts.n + e);
        }
    }
    if (has_rest(l, look->max)) {
        const double rest = (double)l->job->kernels->weighted_rest(t->x.f32, t->b.f32, t->n, look);
        add_rest(l, s, rest, look->unit - NAPIER_TERM_SCALE);
    }
}

static void add_f64(const line *l, sums *s, tile *t) {
    const napier_weighted_look *const look = &t->look;
    const double *const x = t->x.f64, *const b = t->b.f64;
    const bool rest = has_rest(l, look->max);
    for (int i = 0; i < t->n; i++) {
        if (x[i] != look->max || b[i] == 0) {
            continue;
        }
        if (look->max == l->look.max) {
            add_weight(l, s, b[i]);
        } else if (rest) {
            const napier_f64_parts parts = napier_f64_exp_parts(look->max);
            int e;
            const double scaled = napier_f64_weight_parts(b[i], &e) * parts.p;
            add_rest(l, s, scaled, parts.n + e);
        }
    }
    if (rest) {
        add_rest(l, s, l->job->kernels->f64_weighted_rest(x, b, t->n, look), look->unit - NAPIER_F64_TERM_SCALE);
    }
}

/* The first pass over tiles [begin, end) of the line. */
static void look_at_tiles(const line *l, napier_weighted_look *look, int64_t begin, int64_t end) {
    tile t;
    for (int64_t index = begin; index < end; index++) {
        load(l, index, &t);
        napier_weighted_join(look, &t.look);
    }
}

/* Adds the tiles to the sums. The first pass is done, and nothing in the line is special. */
static void sum_tiles(const line *l, sums *s, int64_t begin, int64_t end) {
    tile t;
    for (int64_t index = begin; index < end; index++) {
        load(l, index, &t);
        if (t.look.max != -HUGE_VAL) {
            (l->job->wide ? add_f64 : add_f32)(l, s, &t);
        }
    }
}

/* ---- Results ------------------------------------------------------------------------------------------------------- */

typedef struct result {
    double lse, sign;
} result;

/* log u for u = W + R > 0 in plain doubles: napier_log1p of u - 1 or, below 1, minus that of 1 / u - 1. */
static double log_of(double weight, double rest) {
    const double above = (weight - 1.0) + rest, u = weight + rest;
    return above >= 0 ? napier_log1p(above) : -napier_log1p(-above / u);
}

/* weight and rest as in the sum above; rest in units of the power of two of
 * exp(max), not yet divided by its significand. */
static result finish_f32(double max, double weight, double rest) {
    if (!napier_is_huge((float)max)) {
        rest /= (double)napier_exp_parts_for((float)max, (float)max).p;
    }
    const double u = weight + rest;
    if (u == 0) {
        return (result){-HUGE_VAL, 0};
    }
    const double sign = u < 0 ? -1 : 1;
    const double log_sum = log_of(sign * weight, sign * rest);
    return (result){(double)napier_f64_to_f32((max + 0.0) + log_sum), sign};
}

static double weight_of(const sums *s) { return napier_digits_value(s->weight, WEIGHT_DIGITS, WEIGHT_TOP, 0); }

static result finish_line_f32(const line *l, const sums *s) {
    const float max = (float)l->look.max;
    double rest = 0;
    if (!napier_is_huge(max)) {
        rest = napier_digits_value(s->rest, NAPIER_DIGITS, l->top, napier_exp_parts_for(max, max).n);
    }
    return finish_f32(l->look.max, weight_of(s), rest);
}

/* As f64_finish_finite. If the largest term and M's term lie far apart,
 * W and R are in units of the largest term. */
static result finish_f64(const line *l, const sums *s) {
    const double max = l->look.max;
    napier_f64_parts parts = {.p = 1, .low = 0, .n = 0};
    int64_t unit = 0;
    double rest = 0;
    if (!napier_f64_is_huge(max)) {
        parts = napier_f64_exp_parts(max);
        unit = l->look.unit - parts.n;
        unit = unit >= -UNIT_MOST_F64 && unit <= UNIT_MOST_F64 ? 0 : unit;
        const int64_t exponent = parts.n + unit - NAPIER_F64_TERM_SCALE;
        rest = napier_digits_value(s->rest, NAPIER_F64_DIGITS, l->top, exponent) / parts.p;
        rest = fma(-rest, parts.low / parts.p, rest) * 0x1p-512;
    }
    napier_double2 u = napier_two_sum(napier_digits_value(s->weight, WEIGHT_DIGITS_F64, WEIGHT_TOP_F64, unit), rest);
    if (u.high == 0) {
        return (result){-HUGE_VAL, 0};
    }
    const double sign = u.high < 0 ? -1 : 1;
    u = (napier_double2){sign * u.high, sign * u.low};
    napier_double2 log_u = napier_f64_log_of_sum(u);
    if (unit != 0) {
        const napier_double2 shift = napier_two_product((double)unit, NAPIER_LN2_DOUBLE);
        const napier_double2 high = napier_two_sum(log_u.high, shift.high);
        const double low = high.low + (log_u.low + shift.low + (double)unit * 0x1.abc9e3b39803fp-56);
        log_u = (napier_double2){high.high, low};
    }
    const napier_double2 lse = napier_two_sum(max, log_u.high);
    return (result){lse.high + (lse.low + log_u.low), sign};
}

static bool is_special(const napier_weighted_look *look) {
    return look->nan || look->plus || look->minus || look->max == -HUGE_VAL;
}

static result special_result(const napier_weighted_look *look) {
    if (look->nan || (look->plus && look->minus)) {
        return (result){napier_f64_nan(), napier_f64_nan()};
    }
    if (look->plus || look->minus) {
        return (result){HUGE_VAL, look->plus ? 1 : -1};
    }
    return (result){-HUGE_VAL, 0}; /* there is no term */
}

static void store(const job *j, int64_t row, result r) {
    if (j->sign.data) {
        napier_f64_store(j->sign.data, j->sign.dtype, row * j->sign.stride, r.sign);
    } else if (r.sign < 0) {
        r.lse = napier_f64_nan(); /* the logarithm does not exist */
    }
    napier_f64_store(j->lse.data, j->lse.dtype, row * j->lse.stride, r.lse);
}

static void clear(const job *j, sums *s) {
    memset(s->weight, 0, (size_t)weight_digits(j) * sizeof *s->weight);
    memset(s->rest, 0, (size_t)rest_digits(j) * sizeof *s->rest);
}

/* The line's window of digits, from the first pass. */
static void open_window(line *l) {
    const int64_t unit = is_huge(l->job, l->look.max) ? 0 : l->look.unit;
    l->top = napier_floor_div(unit, NAPIER_DIGIT_BITS) + HEADROOM;
}

static void finish(const line *l, const sums *s) {
    store(l->job, l->row, l->job->wide ? finish_f64(l, s) : finish_line_f32(l, s));
}

/* ---- Rows of one tile in f32: there is nothing to add up --------------------------------------------------------------- */

/* Rows that are neighbours in memory are packed together. At a distance that is a
 * power of two they would share cache sets. */
enum { STRIP = 16, STRIP_COLS = NAPIER_TILE + 16 };

typedef struct strip {
    float x[STRIP][STRIP_COLS], b[STRIP][STRIP_COLS];
} strip;

/* The weights of several elements that equal the maximum. */
static double weight_of_ties(const float *b, const int *at, int ties) {
    uint64_t digit[WEIGHT_DIGITS] = {0};
    for (int i = 0; i < ties; i++) {
        napier_digits_add(digit, WEIGHT_DIGITS, WEIGHT_TOP, (double)b[at[i]], 0);
    }
    return napier_digits_value(digit, WEIGHT_DIGITS, WEIGHT_TOP, 0);
}

static result one_tile(const job *j, const napier_weighted_look *look, const float *x, const float *b, int n) {
    if (is_special(look)) {
        return special_result(look);
    }
    const float max = (float)look->max;
    int at[NAPIER_TILE];
    const int ties = j->kernels->weighted_ties(x, b, n, max, at);
    const double weight = ties == 1 ? (double)b[at[0]] : weight_of_ties(b, at, ties);
    double rest = 0;
    if (!napier_is_huge(max)) {
        const int64_t unit = look->unit - NAPIER_TERM_SCALE - napier_exp_parts_for(max, max).n;
        rest = ldexp((double)j->kernels->weighted_rest(x, b, n, look), (int)unit);
    }
    return finish_f32(look->max, weight, rest);
}

static void short_row(void *argument, int64_t row) {
    const job *j = argument;
    const line l = {.job = j, .row = row};
    tile t;
    t.n = (int)j->logits.cols;
    load_f32(&l, 0, &t);
    store(j, row, one_tile(j, &t.look, t.x.f32, t.b.f32, t.n));
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
            napier_weighted_look look;
            j->kernels->weighted_look(s->x[r], s->b[r], n, &look);
            store(j, row + r, one_tile(j, &look, s->x[r], s->b[r], n));
        }
    }
}

static bool is_columns(napier_const_matrix m) { return m.row_stride == 1 && m.col_stride != 1; }

static napier_status run_short(napier_context *context, job *j) {
    const int64_t chunk = (napier_f64_lines_chunk(j->logits.cols) + STRIP - 1) / STRIP * STRIP;
    if (!is_columns(j->logits) || j->logits.rows == 1) {
        napier_parallel_each(context, j->logits.rows, chunk, short_row, j);
        return NAPIER_OK;
    }
    const int workers = napier_workers(context, j->logits.rows, chunk);
    NAPIER_MEMORY(memory, context);
    j->strips = napier_take(&memory, workers, sizeof *j->strips);
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %d workers", workers));
    napier_parallel(context, j->logits.rows, chunk, strips_task, j);
    return NAPIER_OK;
}

/* ---- Rows over threads --------------------------------------------------------------------------------------------- */

static void run_row(void *argument, int64_t row) {
    const job *j = argument;
    const int64_t tiles = napier_f64_tiles(j->logits.cols);
    sums s;
    line l = {.job = j, .row = row, .look = napier_weighted_nothing()};
    look_at_tiles(&l, &l.look, 0, tiles);
    if (is_special(&l.look)) {
        store(j, row, special_result(&l.look));
        return;
    }
    open_window(&l);
    clear(j, &s);
    sum_tiles(&l, &s, 0, tiles);
    finish(&l, &s);
}

/* ---- Tiles of a row over threads ----------------------------------------------------------------------------------- */

static void look_task(void *argument, int worker, int64_t begin, int64_t end) {
    const line *l = argument;
    look_at_tiles(l, &l->looks[worker], begin, end);
}

static void sum_task(void *argument, int worker, int64_t begin, int64_t end) {
    const line *l = argument;
    sum_tiles(l, &l->sums[worker], begin, end);
}

static void merge(const job *j, sums *into, const sums *from) {
    for (int i = 0; i < weight_digits(j); i++) {
        into->weight[i] += from->weight[i];
    }
    for (int i = 0; i < rest_digits(j); i++) {
        into->rest[i] += from->rest[i];
    }
}

static void run_split_row(const napier_context *context, line *l, int workers) {
    const int64_t tiles = napier_f64_tiles(l->job->logits.cols);
    for (int w = 0; w < workers; w++) {
        l->looks[w] = napier_weighted_nothing();
        clear(l->job, &l->sums[w]);
    }
    napier_parallel(context, tiles, NAPIER_F64_CHUNK_TILES, look_task, l);
    l->look = napier_weighted_nothing();
    for (int w = 0; w < workers; w++) {
        napier_weighted_join(&l->look, &l->looks[w]);
    }
    if (is_special(&l->look)) {
        store(l->job, l->row, special_result(&l->look));
        return;
    }
    open_window(l);
    napier_parallel(context, tiles, NAPIER_F64_CHUNK_TILES, sum_task, l);
    for (int w = 1; w < workers; w++) {
        merge(l->job, &l->sums[0], &l->sums[w]);
    }
    finish(l, &l->sums[0]);
}

static napier_status run_split(napier_context *context, const job *j) {
    const int workers = napier_workers(context, napier_f64_tiles(j->logits.cols), NAPIER_F64_CHUNK_TILES);
    NAPIER_DEFAULT_FENV;
    NAPIER_MEMORY(memory, context);
    line l = {.job = j};
    l.looks = napier_take(&memory, workers, sizeof *l.looks);
    l.sums = napier_take(&memory, workers, sizeof *l.sums);
    NAPIER_TRY(napier_taken(&memory, "no memory for the partial sums of %d workers", workers));
    for (l.row = 0; l.row < j->logits.rows; l.row++) {
        run_split_row(context, &l, workers);
    }
    return NAPIER_OK;
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
    j.kernels = &napier_ops_kernels_of(context->isa)->softmax;
    if (!j.wide && logits.cols <= NAPIER_TILE) {
        return run_short(context, &j);
    }
    if (napier_f64_split(context, logits.rows, logits.cols, j.options.algorithm)) {
        return run_split(context, &j);
    }
    napier_parallel_each(context, logits.rows, napier_f64_lines_chunk(logits.cols), run_row, &j);
    return NAPIER_OK;
}
