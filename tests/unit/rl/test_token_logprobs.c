/* token_logprobs and its gradient: against formulas in long double, sorting and counting; the same bits as log_softmax and
 * logsumexp, on every instruction set, thread count and layout, for a row alone and in a batch; hostile arguments. */
#include "support/check.h"

#include <float.h>
#include <math.h>
#include <napier/rl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/formats.h"
#include "support/scores.h"

enum { VOCABULARY = 151936 };

static napier_token_options plain_options(void) {
    const napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    return o;
}

/* Ids of every sort: the first, the last, some between, now and then the same twice. */
static int64_t *some_ids(int64_t rows, int64_t k, int64_t cols, uint64_t seed) {
    int64_t *ids = scratch(rows * k + 1, sizeof *ids);
    rng r = rng_make(seed);
    for (int64_t i = 0; i < rows * k; i++) {
        ids[i] = i % 7 == 1 ? 0 : i % 7 == 3 ? cols - 1 : i % 7 == 5 ? ids[i - 1] : rng_below(&r, cols);
    }
    return ids;
}

/* ---- The truth about a row of z ---------------------------------------------------------------------------------- */

typedef struct truth {
    bool nan, finite;
    long double max, lse, entropy, total;
    int64_t argmax;
} truth;

static truth truth_of(const float *z, int64_t n) {
    truth t = {.max = -HUGE_VALL, .argmax = -1};
    for (int64_t j = 0; j < n; j++) {
        t.nan = t.nan || isnan(z[j]);
        if ((long double)z[j] > t.max) {
            t.max = (long double)z[j];
            t.argmax = j;
        }
        t.total += (long double)z[j];
    }
    t.finite = !t.nan && fabsl(t.max) < HUGE_VALL;
    t.argmax = t.nan ? -1 : t.argmax;
    long double sum = 0, spread = 0;
    for (int64_t j = 0; j < n && t.finite; j++) {
        const long double down = t.max - (long double)z[j];
        if (down < 11000) {
            sum += expl(-down);
            spread += expl(-down) * down;
        }
    }
    t.lse = t.finite ? t.max + logl(sum) : t.nan ? (long double)NAN : t.max;
    t.entropy = t.finite ? logl(sum) + spread / sum : (long double)NAN;
    return t;
}

static double worst_entropy; /* the largest error, in units of the bound */

static void check_entropy(const truth *t, float got, int64_t n, const char *what) {
    if (!t->finite) {
        expect(f32_bits(got) == 0x7fc00000u, "%s: entropy %g of a row that is not finite", what, (double)got);
        return;
    }
    const long double bound = 0x1p-20L * (1 + t->entropy) + 0x1p-22L * logl((long double)n);
    const double error = (double)(fabsl((long double)got - t->entropy) / bound);
    worst_entropy = error > worst_entropy ? error : worst_entropy;
    expect(error <= 1 && got >= 0, "%s: entropy %.9g is not %.9Lg (%g of the bound)", what, (double)got, t->entropy,
           error);
}

static int64_t count_before(const float *z, int64_t n, int64_t id) {
    int64_t before = 0;
    for (int64_t j = 0; j < n; j++) {
        before += z[j] > z[id] || (z[j] == z[id] && j < id);
    }
    return before;
}

static const float *sorting; /* z, for qsort */
static int by_rank(const void *a, const void *b) {
    const int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    return sorting[i] > sorting[j] ? -1 : sorting[i] < sorting[j] ? 1 : i < j ? -1 : i > j;
}

static void check_top(const float *z, int64_t n, const truth *t, const float *logprobs, const scores *s, int64_t row,
                      const char *what) {
    int64_t *order = scratch(n, sizeof *order), kept = 0;
    for (int64_t j = 0; j < n && !t->nan; j++) {
        order[kept] = j;
        kept += z[j] > -INFINITY;
    }
    sorting = z;
    qsort(order, (size_t)kept, sizeof *order, by_rank);
    for (int64_t i = 0; i < s->top_k; i++) {
        const int64_t wanted = i < kept ? order[i] : -1;
        const int64_t at = row * s->top_k + i;
        const float lp = !t->finite ? f32_of_bits(0x7fc00000u) : wanted >= 0 ? logprobs[wanted] : -INFINITY;
        expect(s->top_ids[at] == wanted && f32_bits(s->top_logprobs[at]) == f32_bits(lp),
               "%s: top %lld is %lld (%g), not %lld (%g)", what, (long long)i, (long long)s->top_ids[at],
               (double)s->top_logprobs[at], (long long)wanted, (double)lp);
    }
}

/* One row of results against z and the bits of log_softmax and logsumexp of it. */
static void check_row(const float *z, int64_t n, const float *logprobs, float lse, const int64_t *ids, const scores *s,
                      int64_t row, const char *what) {
    const truth t = truth_of(z, n);
    expect(f32_bits(s->lse[row]) == f32_bits(lse), "%s: lse %.9g is not %.9g", what, (double)s->lse[row], (double)lse);
    check_entropy(&t, s->entropy[row], n, what);
    expect(s->argmax[row] == t.argmax, "%s: argmax %lld is not %lld", what, (long long)s->argmax[row],
           (long long)t.argmax);
    for (int64_t k = 0; k < s->k; k++) {
        const int64_t at = row * s->k + k, rank = t.nan ? -1 : count_before(z, n, ids[at]);
        expect(f32_bits(s->logprobs[at]) == f32_bits(logprobs[ids[at]]), "%s: logprob %.9g of id %lld is not %.9g",
               what, (double)s->logprobs[at], (long long)ids[at], (double)logprobs[ids[at]]);
        expect(s->rank[at] == rank, "%s: rank %lld of id %lld is not %lld", what, (long long)s->rank[at],
               (long long)ids[at], (long long)rank);
    }
    if (s->top_k > 0) {
        check_top(z, n, &t, logprobs, s, row, what);
    }
}

/* What the options make of a row of logits, by plain float operations; a softcap's tanh by libm's, so not to the bit. */
static void z_of(const grid *logits, int64_t row, const napier_token_options *o, float *z) {
    for (int64_t j = 0; j < logits->view.cols; j++) {
        z[j] = (float)grid_get(logits, row, j) / (float)o->temperature;
        if (o->keep && !o->keep[row * o->keep_stride + j]) {
            z[j] = -INFINITY;
        }
    }
}

/* All rows of a grid, without softcap. */
static void check_scores(napier_context *context, const grid *logits, const int64_t *ids, const napier_token_options *o,
                         const scores *s, const char *what) {
    const int64_t rows = logits->view.rows, n = logits->view.cols;
    float *z = scratch(n, sizeof *z), *logprobs = scratch(n, sizeof *logprobs), lse;
    for (int64_t i = 0; i < rows; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s, %lld columns, row %lld", what, (long long)n, (long long)i);
        z_of(logits, i, o, z);
        works(napier_log_softmax, context, napier_const_rows_f32(z, 1, n), napier_rows_f32(logprobs, 1, n), NULL);
        works(napier_logsumexp, context, napier_const_rows_f32(z, 1, n), napier_array_f32(&lse, 1), NULL);
        check_row(z, n, logprobs, lse, ids, s, i, name);
    }
}

static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_BF16, NAPIER_F16};

/* ---- Forward ----------------------------------------------------------------------------------------------------- */

/* Every kind of row, every length where something changes, every dtype and some layout. */
static void test_against_oracle(napier_context *context) {
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 33, 300, 1023, 1024, 1025, 4097};
    const napier_token_options o = plain_options();
    for (size_t v = 0; v < sizeof sizes / sizeof *sizes; v++) {
        for (int d = 0; d < 3; d++) {
            const int64_t k = (int64_t)v % 6, top = (int64_t)(v % 3) * 3;
            grid g = grid_make((layout)((v + (size_t)d) % LAYOUTS), ROW_KINDS, sizes[v], dtypes[d]);
            grid_fill(&g, ROW_KINDS, 0);
            scores s = scores_make(ROW_KINDS, k, top < sizes[v] ? top : sizes[v]);
            int64_t *ids = some_ids(ROW_KINDS, k, sizes[v], v);
            if (scores_fill(context, grid_input(&g), ids, &o, &s)) {
                check_scores(context, &g, ids, &o, &s, napier_dtype_name(dtypes[d]));
            }
        }
    }
    print_message("entropy: at most %.3f of its bound\n", worst_entropy);
}

/* Long rows in which one tile of many is not like the others: what finds its maximum, its least and its NaN for another
 * tile's sake must find them for it. */
enum { TILE = 1024, TILED = 9 * TILE + 500, ODD_ONES = 16 };

static void odd_one(double *z, int what, int64_t at) {
    for (int i = 0; i < TILE && what < 6; i++) {
        const double tied[] = {7, -3, 0, -0.0, -0.0, 1e-39}; /* in every pair of vectors, of either sign and of none */
        z[i] = what == 4 && i % 2 ? 0.0 : i % 37 == 5 || what == 5 ? tied[what] : tied[what] - 1 - i % 90;
    }
    switch (what) {
    case 6: z[at] = (double)NAN; break;
    case 8: z[at] = HUGE_VAL; break;
    case 9: z[at] = -HUGE_VAL; break;
    case 10: z[at] = -140; break;
    case 11: z[at] = 3000; break;
    case 12: z[at] = z[(at + 512) % TILE] = 40; break;
    case 13: z[at] = 0.0078125; break; /* alone above 0, where the others are below */
    case 14: z[at] = 1e30; break;
    default: break;
    }
    for (int i = 0; i < TILE && what == 15; i++) {
        z[i] = -z[i];
    }
}

/* A NaN below 0, of the least payload: a grid stores but one NaN. */
static void lowest_nan(const grid *g, int64_t at) {
    if (g->view.dtype == NAPIER_F32) {
        ((uint32_t *)g->view.data)[at] = 0xff800001u;
    } else {
        ((uint16_t *)g->view.data)[at] = 0xff81u;
    }
}

/* Asks for lse and log-probability alone, where no other result needs a second look at a tile. */
static void check_few_results(napier_context *context, const grid *g, const int64_t *ids, const scores *all) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    scores s = scores_make(all->rows, 1, 0);
    for (int entropy = 0; entropy < 2; entropy++) {
        r.logprobs = napier_rows_f32(s.logprobs, s.rows, 1);
        r.lse = napier_array_f32(s.lse, s.rows);
        if (entropy) {
            r.entropy = napier_array_f32(s.entropy, s.rows);
        }
        works(napier_token_logprobs, context, grid_input(g), napier_indices_i64(ids, s.rows), NULL, &r);
        for (int64_t i = 0; i < s.rows; i++) {
            expect(f32_bits(s.lse[i]) == f32_bits(all->lse[i]) &&
                       f32_bits(s.logprobs[i]) == f32_bits(all->logprobs[i]) &&
                       (!entropy || f32_bits(s.entropy[i]) == f32_bits(all->entropy[i])),
                   "row %lld: other bits where fewer results are wanted (entropy %d)", (long long)i, entropy);
        }
    }
}

enum { ODD_ROWS = 3 * ODD_ONES };

static grid odd_rows(napier_dtype dtype) {
    double *row = scratch(TILED, sizeof *row);
    grid g = grid_plain(ODD_ROWS, TILED, dtype);
    rng r = rng_make(dtype == NAPIER_BF16);
    for (int i = 0; i < ODD_ROWS; i++) {
        const double offset = i < ODD_ONES ? 0 : i < 2 * ODD_ONES ? -30 : 30; /* both signs, below 0, above 0 */
        for (int j = 0; j < TILED; j++) {
            row[j] = 3 * rng_normal(&r) + offset;
        }
        const int64_t tile = (3 + i % 4) * TILE, at = rng_below(&r, TILE);
        odd_one(row + tile, i % ODD_ONES, at);
        grid_set_row(&g, i, row);
        if (i % ODD_ONES == 7) {
            lowest_nan(&g, i * TILED + tile + at);
        }
    }
    return g;
}

static void test_tiles(void) {
    napier_isa isas[ISA_LIMIT];
    const int isa_count = available_isas(isas);
    const napier_token_options o = plain_options();
    for (int d = 0; d < 2; d++) {
        const grid g = odd_rows(dtypes[d]);
        int64_t *ids = some_ids(ODD_ROWS, 1, TILED, 3);
        for (int i = 0; i < isa_count; i++) {
            napier_context *context = context_for_test(isas[i], 1 + i % 2);
            scores s = scores_make(ODD_ROWS, 1, 5);
            if (scores_fill(context, grid_input(&g), ids, &o, &s)) {
                check_scores(context, &g, ids, &o, &s, napier_isa_name(isas[i]));
                check_few_results(context, &g, ids, &s);
            }
        }
    }
}

static void test_vocabulary(napier_context *context) {
    static const row_kind kinds[] = {ROW_NORMAL, ROW_PEAKED, ROW_MASKED, ROW_TEN_THOUSAND, ROW_TIES};
    const napier_token_options o = plain_options();
    for (int d = 0; d < 2; d++) {
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            grid g = grid_plain(1, VOCABULARY, dtypes[d]);
            grid_fill(&g, kinds[i], 5);
            scores s = scores_make(1, 1, 50);
            int64_t *ids = some_ids(1, 1, VOCABULARY, i);
            if (scores_fill(context, grid_input(&g), ids, &o, &s)) {
                check_scores(context, &g, ids, &o, &s, row_kind_name(kinds[i]));
            }
        }
    }
}

/* A byte a token, of three rows or more: about a third is kept; in row 1 nothing, in row 2 one token. */
static uint8_t *some_keep(int64_t rows, int64_t cols, uint64_t seed) {
    rows = rows < 3 ? 3 : rows;
    uint8_t *keep = scratch(rows * cols, 1);
    rng r = rng_make(seed);
    for (int64_t i = 0; i < rows * cols; i++) {
        keep[i] = (uint8_t)(rng_below(&r, 3) == 0 ? 1 + rng_below(&r, 255) : 0);
        keep[i] = i / cols == 1 || (i / cols == 2 && i % cols != cols / 2) ? 0 : keep[i];
    }
    keep[2 * cols + cols / 2] = 1;
    return keep;
}

/* Temperature and keep are z's; the kept set gives the bits of -inf. */
static void test_temperature_and_keep(napier_context *context) {
    static const int64_t sizes[] = {7, 100, 1025, 5000};
    static const double temperatures[] = {1.0, 0.7, 3.0};
    for (size_t v = 0; v < 4; v++) {
        for (size_t t = 0; t < 3; t++) {
            for (int shared = -1; shared < 2; shared++) {
                grid g = grid_make(v % 2 ? LAYOUT_CONTIGUOUS : LAYOUT_EVERY_OTHER, 6, sizes[v], dtypes[t]);
                grid_fill(&g, ROW_NORMAL, v);
                uint8_t *keep = some_keep(6, sizes[v], v);
                napier_token_options o = plain_options();
                o.temperature = temperatures[t];
                o.keep = shared < 0 ? NULL : keep;
                o.keep_stride = shared > 0 ? 0 : sizes[v];
                scores s = scores_make(6, 2, 5);
                int64_t *ids = some_ids(6, 2, sizes[v], t);
                if (scores_fill(context, grid_input(&g), ids, &o, &s)) {
                    check_scores(context, &g, ids, &o, &s, "temperature and keep");
                }
            }
        }
    }
}

/* One column: lse is z itself, so tanh can be seen. */
static void test_softcap_is_tanh(napier_context *context) {
    enum { N = 200000 };
    float *x = scratch(N, sizeof *x), *z = scratch(N, sizeof *z);
    rng r = rng_make(3);
    for (int i = 0; i < N; i++) {
        const double fraction = 1 + rng_uniform(&r); /* one draw a line: arguments have no order */
        const double size = ldexp(fraction, (int)rng_below(&r, 40) - 33);
        x[i] = (float)(i % 2 ? -size : size);
    }
    x[0] = 0.0f, x[1] = -0.0f, x[2] = INFINITY, x[3] = -INFINITY, x[4] = 0x1p-149f, x[5] = FLT_MAX;
    x[6] = 0.0606100038f; /* the worst there is */
    napier_token_options o = plain_options();
    o.softcap = 1.0;
    napier_token_results s = NAPIER_TOKEN_RESULTS_INIT;
    s.lse = napier_array_f32(z, N);
    works(napier_token_logprobs, context, napier_const_rows_f32(x, N, 1), napier_indices_i64(NULL, 0), &o, &s);
    double worst = 0;
    for (int i = 0; i < N; i++) {
        const long double wanted = tanhl((long double)x[i]);
        const float near = (float)wanted;
        const long double ulp = (long double)(nextafterf(fabsf(near), INFINITY) - fabsf(near));
        const double error = (double)(fabsl((long double)z[i] - wanted) / ulp);
        worst = error > worst ? error : worst;
        expect(error <= 3.5 && fabsf(z[i]) <= 1, "tanh(%.9g) = %.9Lg, not %.9g: %.2f ulp", (double)x[i], wanted,
               (double)z[i], error);
    }
    print_message("tanh: at most %.2f ulp\n", worst);
}

static void test_softcap_rows(napier_context *context) {
    enum { ROWS = 3, N = 2500 };
    grid g = grid_plain(ROWS, N, NAPIER_F32);
    grid_fill(&g, ROW_NORMAL, 1);
    napier_token_options o = plain_options();
    o.softcap = 5.0;
    o.temperature = 0.8;
    int64_t ids[ROWS] = {4, 2000, 77};
    scores s = scores_make(ROWS, 1, 0);
    scores_fill(context, grid_input(&g), ids, &o, &s);
    for (int i = 0; i < ROWS; i++) {
        long double sum = 0;
        for (int j = 0; j < N; j++) {
            sum += expl(5 * tanhl((long double)grid_get(&g, i, j) / 5) / 0.8L);
        }
        const long double wanted = 5 * tanhl((long double)grid_get(&g, i, ids[i]) / 5) / 0.8L - logl(sum);
        expect(fabsl((long double)s.logprobs[i] - wanted) < 4e-6L, "softcap: %.9g is not %.9Lg", (double)s.logprobs[i],
               wanted);
    }
}

/* Loss by its formula, with everything that enters it; ignored ids. */
static void test_loss(napier_context *context) {
    static const int64_t sizes[] = {20, 1500};
    for (int i = 0; i < 16; i++) {
        enum { ROWS = 5 };
        const int64_t n = sizes[i & 1];
        grid g = grid_plain(ROWS, n, NAPIER_F32);
        for (int64_t at = 0; at < ROWS * n; at++) {
            grid_set(&g, at / n, at % n, 3 * sin((double)at * 1.7) + (double)(at % 11));
        }
        uint8_t *keep = some_keep(ROWS, n, 9);
        napier_token_options o = plain_options();
        o.temperature = 1.3;
        o.label_smoothing = i & 2 ? 0.1 : 0;
        o.z_loss = i & 4 ? 1e-3 : 0;
        o.keep = i & 8 ? keep : NULL;
        o.keep_stride = n;
        int64_t ids[ROWS] = {3, 0, n / 2, -100, 9};
        scores s = scores_make(ROWS, 1, 0);
        float *z = scratch(n, sizeof *z);
        scores_fill(context, grid_input(&g), ids, &o, &s);
        for (int64_t row = 0; row < ROWS; row++) {
            z_of(&g, row, &o, z);
            const truth t = truth_of(z, n);
            long double total = 0, kept = 0;
            for (int64_t j = 0; j < n; j++) {
                total += z[j] > -INFINITY ? (long double)z[j] : 0;
                kept += z[j] > -INFINITY;
            }
            if (ids[row] == -100) {
                expect(s.loss[row] == 0 && s.logprobs[row] == 0 && s.rank[row] == -1, "ignored: %g %g",
                       (double)s.loss[row], (double)s.logprobs[row]);
                continue;
            }
            const long double wanted =
                (1 - (long double)o.label_smoothing) * (t.lse - (long double)z[ids[row]]) +
                (o.label_smoothing > 0 ? (long double)o.label_smoothing * (t.lse - total / kept) : 0) +
                (long double)o.z_loss * t.lse * t.lse;
            const bool near = !t.finite       ? isnan(s.loss[row])
                              : isinf(wanted) ? (long double)s.loss[row] == wanted
                                              : fabsl((long double)s.loss[row] - wanted) < 2e-6L * (1 + fabsl(wanted));
            expect(near, "loss %d: %.9g is not %.9Lg", i, (double)s.loss[row], wanted);
        }
    }
}

/* f16 and bf16 results are the f32 results rounded once. */
static void test_result_dtypes(napier_context *context) {
    enum { ROWS = ROW_KINDS, N = 700 };
    grid g = grid_plain(ROWS, N, NAPIER_F32);
    grid_fill(&g, ROW_KINDS, 3);
    int64_t *ids = some_ids(ROWS, 1, N, 1);
    const napier_token_options o = plain_options();
    scores s = scores_make(ROWS, 1, 0);
    scores_fill(context, grid_input(&g), ids, &o, &s);
    for (int d = 1; d < 3; d++) {
        uint16_t out[4][2 * ROWS];
        napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
        r.logprobs = napier_rows(out[0], ROWS, 1, dtypes[d]);
        r.logprobs.row_stride = 2;
        r.lse = (napier_vector){out[1] + 2 * ROWS - 2, ROWS, -2, dtypes[d]};
        r.entropy = napier_array(out[2], ROWS, dtypes[d]);
        r.loss = napier_array(out[3], ROWS, dtypes[d]);
        works(napier_token_logprobs, context, grid_input(&g), napier_indices_i64(ids, ROWS), &o, &r);
        for (int i = 0; i < ROWS; i++) {
            expect(out[0][2 * i] == dtype_bits(dtypes[d], (double)s.logprobs[i]) &&
                       out[1][2 * ROWS - 2 - 2 * i] == dtype_bits(dtypes[d], (double)s.lse[i]) &&
                       out[2][i] == dtype_bits(dtypes[d], (double)s.entropy[i]) &&
                       out[3][i] == dtype_bits(dtypes[d], (double)s.loss[i]),
                   "%s row %d is not the f32 result rounded", napier_dtype_name(dtypes[d]), i);
        }
    }
}

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

/* Some of every option at once. */
static napier_token_options busy_options(int i, const uint8_t *keep, int64_t cols) {
    napier_token_options o = plain_options();
    o.temperature = i & 1 ? 0.7 : 1.0;
    o.softcap = i & 2 ? 30.0 : 0.0;
    o.keep = i & 4 ? keep : NULL;
    o.keep_stride = cols;
    o.label_smoothing = i & 1 ? 0.1 : 0;
    o.z_loss = i & 2 ? 1e-4 : 0;
    return o;
}

/* The bits are the same on every instruction set and thread count, in every layout, alone and in a batch. */
static void check_bits(int64_t rows, int64_t cols, napier_dtype dtype, int option) {
    napier_isa isas[ISA_LIMIT];
    const int isa_count = available_isas(isas);
    static const int threads[] = {1, 2, 7};
    grid g = grid_plain(rows, cols, dtype);
    grid_fill(&g, ROW_KINDS, (uint64_t)option);
    uint8_t *keep = some_keep(rows, cols, 1);
    const napier_token_options o = busy_options(option, keep, cols);
    int64_t *ids = some_ids(rows, 1, cols, 8);
    scores first = scores_make(rows, 1, 5), s = scores_make(rows, 1, 5), one = scores_make(1, 1, 5);
    for (int i = 0; i < isa_count; i++) {
        for (int t = 0; t < 3; t++) {
            napier_context *context = context_for_test(isas[i], threads[t]);
            grid other = grid_make((layout)((i * 3 + t + option) % LAYOUTS), rows, cols, dtype);
            grid_copy(&other, &g);
            scores_fill(context, grid_input(i + t == 0 ? &g : &other), ids, &o, i + t == 0 ? &first : &s);
            expect(i + t == 0 || same_scores(&first, &s), "%lld x %lld, option %d: %s, %d threads, %s: other bits",
                   (long long)rows, (long long)cols, option, napier_isa_name(isas[i]), threads[t],
                   layout_name((layout)((i * 3 + t + option) % LAYOUTS)));
        }
    }
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 7);
    for (int64_t row = 0; row < rows; row++) {
        napier_const_matrix x = grid_input(&g);
        x.data = (const char *)x.data + row * x.row_stride * (int64_t)napier_dtype_size(dtype);
        x.rows = 1;
        napier_token_options alone = o;
        alone.keep = o.keep ? o.keep + row * cols : NULL;
        scores_fill(context, x, ids + row, &alone, &one);
        expect(f32_bits(one.lse[0]) == f32_bits(first.lse[row]) &&
                   f32_bits(one.entropy[0]) == f32_bits(first.entropy[row]) &&
                   f32_bits(one.loss[0]) == f32_bits(first.loss[row]) && one.argmax[0] == first.argmax[row] &&
                   one.rank[0] == first.rank[row] && memcmp(one.top_ids, first.top_ids + 5 * row, 40) == 0,
               "%lld x %lld, option %d: row %lld alone is another", (long long)rows, (long long)cols, option,
               (long long)row);
    }
}

static void test_bits(void) {
    for (int option = 0; option < 8; option++) {
        check_bits(ROW_KINDS + 3, 5 + 37 * option, dtypes[option % 3], option);
        check_bits(ROW_KINDS, 2000 + 1500 * option, dtypes[(option + 1) % 3], option);
    }
    check_bits(3, 20000, NAPIER_F32, 0);
    check_bits(3, 20000, NAPIER_BF16, 0);
}

/* ---- Gradients --------------------------------------------------------------------------------------------------- */

typedef struct pull {
    float *logprobs, *lse, *entropy, *loss;
} pull;

static napier_token_gradients pull_views(const pull *p, int64_t rows, int64_t k) {
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    if (p->logprobs) {
        g.logprobs = napier_const_rows_f32(p->logprobs, rows, k);
    }
    if (p->lse) {
        g.lse = napier_const_array_f32(p->lse, rows);
    }
    if (p->entropy) {
        g.entropy = napier_const_array_f32(p->entropy, rows);
    }
    if (p->loss) {
        g.loss = napier_const_array_f32(p->loss, rows);
    }
    return g;
}

/* What the gradient of a row should be, from z and the derivative of the softcap; *norm gets the size of its parts. */
static void gradient_by_formula(const float *z, const long double *cap, int64_t n, const int64_t *ids, int64_t k_count,
                                const napier_token_options *o, const pull *p, int64_t row, long double *out,
                                long double *size) {
    const truth t = truth_of(z, n);
    long double total = 0, kept = 0;
    for (int64_t j = 0; j < n; j++) {
        kept += z[j] > -INFINITY;
    }
    for (int64_t k = 0; k < k_count; k++) {
        total += p->logprobs && ids[k] != o->ignore_index ? (long double)p->logprobs[row * k_count + k] : 0;
    }
    const long double s = (long double)o->label_smoothing, g_lse = p->lse ? (long double)p->lse[row] : 0;
    const long double g_h = p->entropy ? (long double)p->entropy[row] : 0;
    const long double g_loss = p->loss && ids[0] != o->ignore_index ? (long double)p->loss[row] : 0;
    for (int64_t j = 0; j < n; j++) {
        const long double log_p = (long double)z[j] - t.lse, q = expl(log_p);
        const long double base = g_lse + g_loss * (1 + 2 * (long double)o->z_loss * t.lse) - total;
        long double d = q == 0 ? 0 : q * (base - g_h * (log_p + t.entropy));
        *size = fabsl(q) * (fabsl(base) + (q == 0 ? 0 : fabsl(g_h) * (fabsl(log_p) + t.entropy)));
        for (int64_t k = 0; k < k_count; k++) {
            if (ids[k] == j && ids[k] != o->ignore_index) {
                const long double own =
                    (p->logprobs ? (long double)p->logprobs[row * k_count + k] : 0) - (1 - s) * g_loss;
                d += own;
                *size += fabsl(own);
            }
        }
        d -= g_loss * s / kept;
        *size += fabsl(g_loss * s / kept);
        const long double scale = cap[j] / (long double)o->temperature;
        out[j] = o->keep && !o->keep[row * n + j] ? 0 : d * scale;
        *size++ *= fabsl(scale);
    }
}

static float *random_floats(int64_t n, uint64_t seed) {
    float *x = scratch(n, sizeof *x);
    rng r = rng_make(seed);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)rng_normal(&r);
    }
    return x;
}

/* Gradients of all results together, for some options, against the formula. */
static void check_gradients(napier_context *context, int option, int64_t rows, int64_t n, int64_t k) {
    grid x = grid_make((layout)(option % LAYOUTS), rows, n, dtypes[option % 3]);
    grid y = grid_make((layout)((option + 1) % LAYOUTS), rows, n, NAPIER_F32);
    for (int64_t i = 0; i < rows * n; i++) {
        grid_set(&x, i / n, i % n, 4 * sin((double)i * 2.3) + (i % 50 == 49 ? -HUGE_VAL : 0));
    }
    uint8_t *keep = some_keep(rows, n, 4);
    memset(keep + n, 1, (size_t)n); /* row 1 has something, too */
    napier_token_options o = busy_options(option, keep, n);
    o.softcap = o.softcap != 0 ? 3.0 : 0.0;
    o.label_smoothing = o.label_smoothing > 0 && !(option & 2) ? 0.0 : o.label_smoothing; /* -inf has no mean */
    int64_t *ids = some_ids(rows, k, n, 2);
    ids[0] = o.ignore_index;
    pull p = {random_floats(rows * k, 1), random_floats(rows, 2), random_floats(rows, 3),
              k == 1 ? random_floats(rows, 4) : NULL};
    const napier_token_gradients g = pull_views(&p, rows, k);
    works(napier_token_logprobs_backward, context, grid_input(&x), napier_indices_i64(ids, rows * k), &o, &g, y.view);
    float *z = scratch(n, sizeof *z);
    long double *cap = scratch(n, sizeof *cap), *wanted = scratch(n, sizeof *wanted), *size = scratch(n, sizeof *size),
                error = 0, norm = 0;
    for (int64_t row = 0; row < rows; row++) {
        z_of(&x, row, &o, z);
        for (int64_t j = 0; j < n; j++) {
            const long double tanh = o.softcap > 0 ? tanhl((long double)grid_get(&x, row, j) / 3) : 0;
            cap[j] = 1 - tanh * tanh;
            if (o.softcap > 0 && z[j] > -INFINITY) {
                z[j] = (float)(3 * tanh) / (float)o.temperature;
            } else if (o.softcap > 0 && !(o.keep && !o.keep[row * n + j])) {
                z[j] = -3.0f / (float)o.temperature;
            }
        }
        gradient_by_formula(z, cap, n, ids + row * k, k, &o, &p, row, wanted, size);
        for (int64_t j = 0; j < n; j++) {
            const long double off = fabsl((long double)grid_get(&y, row, j) - wanted[j]);
            error += off * off;
            norm += wanted[j] * wanted[j];
            expect(off <= 2e-6L * size[j] + 1e-30L, "option %d, %lld columns, [%lld, %lld]: gradient %.9g is not %.9Lg",
                   option, (long long)n, (long long)row, (long long)j, grid_get(&y, row, j), wanted[j]);
        }
    }
    expect(sqrtl(error / norm) < 1e-6L, "option %d, %lld columns: gradient off by %.3Lg of its norm", option,
           (long long)n, sqrtl(error / norm));
    expect(grid_damage(&y) == 0, "option %d: written beside the gradient", option);
}

static void test_gradients(napier_context *context) {
    for (int option = 0; option < 8; option++) {
        check_gradients(context, option, 4, 40, 1);
        check_gradients(context, option, 5, 2600, 1);
        check_gradients(context, option, 3, 1100, 3);
    }
    check_gradients(context, 0, 1, 9000, 2);
}

/* A sum of all results, in f64, as its gradients pull on them; for finite differences. */
static double pulled(const double *x, int n, int64_t id, const napier_token_options *o) {
    double z[64], sum = 0, entropy = 0, mean = 0, kept = 0;
    for (int j = 0; j < n; j++) {
        z[j] = (o->softcap > 0 ? o->softcap * tanh(x[j] / o->softcap) : x[j]) / o->temperature;
        sum += o->keep && !o->keep[j] ? 0 : exp(z[j]);
    }
    const double lse = log(sum);
    for (int j = 0; j < n; j++) {
        if (!o->keep || o->keep[j]) {
            entropy -= exp(z[j] - lse) * (z[j] - lse);
            mean += z[j];
            kept++;
        }
    }
    mean /= kept;
    const double loss =
        (1 - o->label_smoothing) * (lse - z[id]) + o->label_smoothing * (lse - mean) + o->z_loss * lse * lse;
    return 0.5 * (z[id] - lse) - 0.25 * lse + 1.5 * entropy + 2.0 * loss;
}

static void test_finite_differences(napier_context *context) {
    enum { N = 40 };
    uint8_t keep[N];
    float x[N], y[N], lp = 0.5f, lse = -0.25f, entropy = 1.5f, loss = 2.0f;
    const int64_t id = 4;
    for (int j = 0; j < N; j++) {
        keep[j] = (uint8_t)(j % 4 != 1);
        x[j] = (float)(3 * sin(j * 1.1));
    }
    for (int option = 0; option < 8; option++) {
        napier_token_options o = busy_options(option, keep, N);
        o.softcap = o.softcap != 0 ? 3.0 : 0.0;
        const pull p = {&lp, &lse, &entropy, &loss};
        const napier_token_gradients g = pull_views(&p, 1, 1);
        works(napier_token_logprobs_backward, context, napier_const_rows_f32(x, 1, N), napier_indices_i64(&id, 1), &o,
              &g, napier_rows_f32(y, 1, N));
        for (int j = 0; j < N; j++) {
            double up[N], down[N];
            for (int i = 0; i < N; i++) {
                up[i] = down[i] = (double)x[i];
            }
            up[j] += 1e-5;
            down[j] -= 1e-5;
            const double wanted = (pulled(up, N, id, &o) - pulled(down, N, id, &o)) / 2e-5;
            expect(fabs((double)y[j] - wanted) < 1e-5, "option %d, %d: gradient %.9g, differences %.9g", option, j,
                   (double)y[j], wanted);
        }
    }
}

/* In place, in every layout, on every instruction set, with any threads: the same bits. Rows without gradients are 0. */
static void test_gradient_bits(void) {
    napier_isa isas[ISA_LIMIT];
    const int isa_count = available_isas(isas);
    static const int threads[] = {1, 2, 7};
    for (int option = 0; option < 8; option++) {
        const int64_t rows = option % 2 ? 5 : ROW_KINDS, n = option % 2 ? 7000 : 900;
        const napier_dtype dtype = dtypes[option % 3];
        grid g = grid_plain(rows, n, dtype), wanted = grid_plain(rows, n, dtype);
        grid_fill(&g, option % 2 ? ROW_NORMAL : ROW_KINDS, 1);
        uint8_t *keep = some_keep(rows, n, 4);
        const napier_token_options o = busy_options(option, keep, n);
        int64_t *ids = some_ids(rows, 1, n, 2);
        pull p = {random_floats(rows, 1), random_floats(rows, 2), random_floats(rows, 3), random_floats(rows, 4)};
        p.logprobs[4] = p.lse[4] = p.entropy[4] = p.loss[4] = 0;
        const napier_token_gradients pulls = pull_views(&p, rows, 1);
        for (int i = 0; i < isa_count * 3; i++) {
            napier_context *context = context_for_test(isas[i / 3], threads[i % 3]);
            grid x = grid_make((layout)(i % LAYOUTS), rows, n, dtype);
            grid_copy(&x, &g);
            napier_matrix out = i == 0 ? wanted.view : x.view; /* in place but for the first */
            works(napier_token_logprobs_backward, context, grid_input(&x), napier_indices_i64(ids, rows), &o, &pulls,
                  out);
            char what[80];
            snprintf(what, sizeof what, "option %d, %s, %d threads", option, napier_isa_name(isas[i / 3]),
                     threads[i % 3]);
            grid_differences(i == 0 ? &wanted : &x, &wanted, what);
        }
        for (int64_t j = 0; j < n; j++) {
            expect(grid_bits(&wanted, 4, j) == 0, "option %d: row 4 has no gradients, but [%lld] is %g", option,
                   (long long)j, grid_get(&wanted, 4, j));
        }
    }
}

/* The gradient of log-probabilities alone keeps the terms of ordinary tiles, and has loops of its own where logits and
 * gradient are contiguous bf16. Every other column has neither. Rows fall by 12 from tile to tile, so that some tiles
 * have terms too small to keep and others probabilities below the normal numbers, or have odd tiles. */
static void test_tiles_of_gradients(void) {
    napier_isa isas[ISA_LIMIT];
    const int isa_count = available_isas(isas);
    static const layout layouts[] = {LAYOUT_EVERY_OTHER, LAYOUT_CONTIGUOUS, LAYOUT_PADDED, LAYOUT_OFFSET};
    for (int d = 0; d < 2; d++) {
        grid g = odd_rows(dtypes[d]);
        for (int64_t i = 0; i < 6 * TILED; i++) {
            grid_set(&g, i % 6, i / 6, grid_get(&g, i % 6, i / 6) - (double)(i / 6 / TILE * 12));
        }
        grid wanted = grid_plain(ODD_ROWS, TILED, dtypes[d]);
        int64_t *ids = some_ids(ODD_ROWS, 1, TILED, 5);
        pull p = {random_floats(ODD_ROWS, 6), NULL, NULL, NULL};
        const napier_token_gradients pulls = pull_views(&p, ODD_ROWS, 1);
        for (int i = 0; i < isa_count * 4; i++) {
            napier_context *context = context_for_test(isas[i / 4], 1 + i % 2);
            grid x = grid_make(layouts[i % 4], ODD_ROWS, TILED, dtypes[d]);
            grid_copy(&x, &g);
            works(napier_token_logprobs_backward, context, grid_input(&x), napier_indices_i64(ids, ODD_ROWS), NULL,
                  &pulls, i == 0 ? wanted.view : x.view);
            char what[80];
            snprintf(what, sizeof what, "%s, %s, layout %d", napier_dtype_name(dtypes[d]), napier_isa_name(isas[i / 4]),
                     i % 4);
            grid_differences(i == 0 ? &wanted : &x, &wanted, what);
        }
    }
}

/* Gradients that leave the caches are written past them; in place they are not. */
static void test_large_gradient(napier_context *context) {
    enum { ROWS = 50, N = 131072 };
    uint16_t *x = scratch(ROWS * N, sizeof *x), *y = scratch(ROWS * N, sizeof *y);
    rng r = rng_make(9);
    for (int64_t i = 0; i < ROWS * N; i++) {
        x[i] = (uint16_t)(0x3f00 + rng_below(&r, 0x180)); /* 0.5 to 15 */
    }
    int64_t *ids = some_ids(ROWS, 1, N, 1);
    pull p = {random_floats(ROWS, 6), NULL, NULL, NULL};
    const napier_token_gradients pulls = pull_views(&p, ROWS, 1);
    const napier_const_matrix logits = napier_const_rows(x, ROWS, N, NAPIER_BF16);
    works(napier_token_logprobs_backward, context, logits, napier_indices_i64(ids, ROWS), NULL, &pulls,
          napier_rows(y, ROWS, N, NAPIER_BF16));
    works(napier_token_logprobs_backward, context, logits, napier_indices_i64(ids, ROWS), NULL, &pulls,
          napier_rows(x, ROWS, N, NAPIER_BF16));
    expect(memcmp(x, y, sizeof *x * ROWS * N) == 0, "a gradient of 13 MB has other bits than one in place");
}

/* ---- Arguments, memory, shapes ----------------------------------------------------------------------------------- */

typedef struct bad {
    napier_const_matrix logits;
    napier_indices ids;
    napier_token_options options;
    napier_token_results results;
} bad;

static void expect_refused(napier_context *context, const bad *b, const char *first, const char *second) {
    invalid(context, napier_token_logprobs(context, b->logits, b->ids, &b->options, &b->results), first, second);
}

static void test_arguments(napier_context *context) {
    enum { ROWS = 3, N = 8 };
    float x[ROWS * N] = {0};
    uint8_t keep[ROWS * N] = {1};
    int64_t ids[ROWS] = {1, 7, 0}, many[2 * ROWS] = {0};
    const int32_t narrow[ROWS] = {1, 2, -7};
    scores s = scores_make(ROWS, 1, 2);
    const bad good = {napier_const_rows_f32(x, ROWS, N), napier_indices_i64(ids, ROWS), plain_options(),
                      scores_views(&s)};
    bad b = good;
    works(napier_token_logprobs, context, b.logits, b.ids, NULL, &b.results);
    memset(s.memory, 0x5a, s.bytes);
    ids[1] = -1, expect_refused(context, &good, "ids[1] is -1", "8");
    ids[1] = 8, expect_refused(context, &good, "ids[1] is 8", "8");
    ids[1] = INT64_MIN, expect_refused(context, &good, "ids[1]", "-9223372036854775808");
    ids[1] = 7;
    b.ids = napier_indices_i32(narrow, ROWS), expect_refused(context, &b, "ids[2] is -7", "8"), b = good;
    b.ids.size = 2, expect_refused(context, &b, "ids", "2"), b = good;
    b.ids.size = -3, expect_refused(context, &b, "ids", "-3"), b = good;
    b.ids.type = (napier_index_type)9, expect_refused(context, &b, "ids", "9"), b = good;
    b.ids = napier_indices_i64(many, 2 * ROWS), b.results.rank = NULL, b.results.logprobs.data = NULL;
    expect_refused(context, &b, "ids", "2 a row"), b = good;
    b.ids.size = 0, expect_refused(context, &b, "ids", "none"), b = good;
    b.options.temperature = 0, expect_refused(context, &b, "temperature", "0"), b = good;
    b.options.temperature = (double)NAN, expect_refused(context, &b, "temperature", "nan"), b = good;
    b.options.temperature = 1e60, expect_refused(context, &b, "temperature", "1e+60"), b = good;
    b.options.softcap = -2, expect_refused(context, &b, "softcap", "-2"), b = good;
    b.options.softcap = HUGE_VAL, expect_refused(context, &b, "softcap", "inf"), b = good;
    b.options.label_smoothing = 1, expect_refused(context, &b, "label_smoothing", "1"), b = good;
    b.options.z_loss = -1, expect_refused(context, &b, "z_loss", "-1"), b = good;
    b.options.keep = keep, b.options.keep_stride = 7, expect_refused(context, &b, "keep_stride", "7"), b = good;
    b.options.struct_size = 3, expect_refused(context, &b, "options", "3"), b = good;
    b.results.struct_size = 4, expect_refused(context, &b, "results", "4"), b = good;
    b.logits.cols = -1, expect_refused(context, &b, "logits", "-1"), b = good;
    b.results.top_k = 9, expect_refused(context, &b, "top_k", "9"), b = good;
    b.results.top_k = -1, expect_refused(context, &b, "top_k", "-1"), b = good;
    b.results.top_k = 0, expect_refused(context, &b, "top_k", "0"), b = good;
    b.results.lse.size = 2, expect_refused(context, &b, "lse", "2"), b = good;
    b.results.entropy.dtype = NAPIER_F64, expect_refused(context, &b, "entropy", "f64"), b = good;
    b.results.entropy.data = s.lse, expect_refused(context, &b, "entropy", "lse"), b = good;
    b.results.loss.data = x + 3, expect_refused(context, &b, "loss", "logits"), b = good;
    b.results.argmax = ids, expect_refused(context, &b, "argmax", "ids"), b = good;
    b.results.rank = s.argmax, expect_refused(context, &b, "rank", "argmax"), b = good;
    b.logits.dtype = NAPIER_F64, expect_refused(context, &b, "logits", "f64"), b = good;
    b.logits.data = NULL, expect_refused(context, &b, "logits", "NULL"), b = good;
    for (size_t i = 0; i < s.bytes; i++) {
        if (!expect(s.memory[i] == 0x5a, "something was written on an error")) {
            break;
        }
    }
    invalid(context, napier_token_logprobs(context, good.logits, good.ids, NULL, NULL), "results");
}

static void test_backward_arguments(napier_context *context) {
    enum { ROWS = 3, N = 8 };
    float x[ROWS * N] = {0}, y[ROWS * N + 1], g[ROWS] = {1, 2, 3};
    int64_t ids[ROWS] = {1, 7, 99};
    const pull p = {g, NULL, NULL, NULL};
    napier_token_gradients pulls = pull_views(&p, ROWS, 1);
    const napier_const_matrix logits = napier_const_rows_f32(x, ROWS, N);
    const napier_matrix out = napier_rows_f32(y, ROWS, N);
    const napier_indices i = napier_indices_i64(ids, ROWS);
    invalid(context, napier_token_logprobs_backward(context, logits, i, NULL, &pulls, out), "ids[2] is 99");
    ids[2] = 0;
    invalid(context, napier_token_logprobs_backward(context, logits, i, NULL, NULL, out), "gradients");
    invalid(context, napier_token_logprobs_backward(context, logits, i, NULL, &pulls, napier_rows_f32(y, N, ROWS)),
            "grad_logits", "8 x 3");
    invalid(context, napier_token_logprobs_backward(context, logits, i, NULL, &pulls, napier_rows_f32(x + 1, ROWS, N)),
            "grad_logits", "logits");
    pulls.logprobs.data = y + 2;
    invalid(context, napier_token_logprobs_backward(context, logits, i, NULL, &pulls, out), "grad_logits", "gradients");
    pulls.logprobs = napier_const_rows_f32(g, 1, 3);
    invalid(context, napier_token_logprobs_backward(context, logits, i, NULL, &pulls, out), "logprobs", "1 x 3");
}

/* No rows, no columns, no results. */
static void test_empty(napier_context *context) {
    scores s = scores_make(2, 1, 0);
    const int64_t ids[2] = {-100, -100};
    const napier_token_options o = plain_options();
    if (scores_fill(context, napier_const_rows_f32(NULL, 2, 0), ids, &o, &s)) {
        expect(s.lse[0] == -INFINITY && isnan(s.entropy[1]) && s.argmax[0] == -1 && s.logprobs[1] == 0,
               "rows without columns: %g %g", (double)s.lse[0], (double)s.entropy[1]);
    }
    napier_token_results none = NAPIER_TOKEN_RESULTS_INIT;
    float x[4] = {0};
    works(napier_token_logprobs, context, napier_const_rows_f32(NULL, 0, 4), napier_indices_i64(NULL, 0), &o, &none);
    works(napier_token_logprobs, context, napier_const_rows_f32(x, 2, 2), napier_indices_i64(NULL, 0), &o, &none);
}

int main(void) {
    return RUN_TESTS("token_logprobs", TEST_2(test_against_oracle), TEST(test_tiles), TEST_2(test_vocabulary),
                     TEST_2(test_temperature_and_keep), TEST_1(test_softcap_is_tanh), TEST_1(test_softcap_rows),
                     TEST_2(test_loss), TEST_1(test_result_dtypes), TEST(test_bits), TEST_2(test_gradients),
                     TEST_1(test_finite_differences), TEST(test_gradient_bits), TEST(test_tiles_of_gradients),
                     TEST_2(test_large_gradient), TEST_1(test_arguments), TEST_1(test_backward_arguments),
                     TEST_2(test_empty));
}
