/* softmax, log_softmax and logsumexp against the truth: long double for every kind of row, size and pair of dtypes,
 * MPFR for the rows where digits cancel, with the error bounds of napier/softmax.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/formats.h"
#include "support/truth.h"

/* One row of input, through every operation to one output dtype. */
static void check_row(napier_context *context, const void *x, const subject *s, double temperature) {
    const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    void *const result = scratch(s->n + 1, napier_dtype_size(s->out));
    for (operation op = OP_SOFTMAX; op <= OP_LOGSUMEXP; op++) {
        const napier_matrix out = napier_rows(result, 1, operation_cols(op, s->n), s->out);
        if (succeeded(context, operation_run(context, op, napier_const_rows(x, 1, s->n, s->in), out, &options),
                      operation_name(op))) {
            check_truth(op, s, result);
        }
    }
}

typedef oracle_row reducer(const double *z, int64_t n);

static void check_kind(napier_context *context, row_kind kind, uint64_t seed, int64_t n, napier_dtype in,
                       double temperature, reducer *reduce) {
    const int64_t mark = scratch_mark();
    char name[64];
    snprintf(name, sizeof name, "%s, seed %llu", row_kind_name(kind), (unsigned long long)seed);
    double *const x = scratch(n, sizeof *x), *const z = scratch(n, sizeof *z);
    void *const packed = scratch(n, napier_dtype_size(in));
    row_fill(kind, seed, in, x, n);
    for (int64_t i = 0; i < n; i++) {
        element_set(packed, in, i, x[i]);
    }
    oracle_row truth[2];
    const napier_dtype narrow = compute_dtype(in, NAPIER_F32); /* of every output dtype but f64 */
    divide_by_temperature(x, z, n, temperature, NAPIER_F64);
    truth[1] = reduce(z, n);
    divide_by_temperature(x, z, n, temperature, narrow);
    truth[0] = reduce(z, n);
    for (int d = 0; d < DTYPE_COUNT; d++) {
        const napier_dtype out = all_dtypes[d];
        const int wide = out == NAPIER_F64;
        divide_by_temperature(x, z, n, temperature, wide ? NAPIER_F64 : narrow);
        const subject s = {z, n, in, out, truth[wide], name};
        check_row(context, packed, &s, temperature);
    }
    scratch_release(mark);
}

static void every_kind_and_size(napier_context *context, napier_dtype in) {
    static const int64_t sizes[] = {0,   1,   2,    3,    15,   16,   17,   50,   100,  255,
                                    256, 257, 1000, 1023, 1024, 1025, 4095, 4096, 4097, 10000};
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const uint64_t repeats = sizes[i] < 300 ? 8 : 1;
            for (uint64_t seed = 0; seed < repeats; seed++) {
                check_kind(context, kind, seed + i, sizes[i], in, 1.0, oracle_reduce);
            }
        }
    }
}

static void test_f32_rows(napier_context *context) { every_kind_and_size(context, NAPIER_F32); }
static void test_f16_rows(napier_context *context) { every_kind_and_size(context, NAPIER_F16); }
static void test_bf16_rows(napier_context *context) { every_kind_and_size(context, NAPIER_BF16); }
static void test_f64_rows(napier_context *context) { every_kind_and_size(context, NAPIER_F64); }

/* The width of a vocabulary, which is no multiple of a tile. */
static void test_vocabulary_rows(napier_context *context) {
    static const row_kind kinds[] = {ROW_NORMAL, ROW_PEAKED,  ROW_EQUAL,    ROW_RISING,
                                     ROW_MASKED, ROW_EXTREME, ROW_NEAR_ZERO};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        check_kind(context, kinds[k], 7, 151936, k == 1 ? NAPIER_BF16 : NAPIER_F32, 1.0, oracle_reduce);
    }
}

static void test_temperatures(napier_context *context) {
    static const double temperatures[] = {0.1, 0.7, 1.0 / 3, 1.5, 2.0, 10.0, 1e4, 1e-4};
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
            for (int d = 0; d < DTYPE_COUNT; d++) {
                check_kind(context, kind, 40 + t, 17 + 111 * (int64_t)t, all_dtypes[d], temperatures[t], oracle_reduce);
            }
        }
    }
}

/* MPFR where digits cancel or vanish; it also watches the long double oracle. */
static void test_hard_rows_by_mpfr(napier_context *context) {
    static const row_kind kinds[] = {ROW_NEAR_ZERO, ROW_CANCELLING, ROW_FLUSH_EDGE, ROW_SUBNORMAL,
                                     ROW_NORMAL,    ROW_POWERS,     ROW_PEAKED,     ROW_ANY_FINITE};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            const int64_t n = 2 + (int64_t)(seed * seed);
            check_kind(context, kinds[k], seed, n, NAPIER_F32, 1.0, oracle_reduce_mpfr);
            check_kind(context, kinds[k], seed, n, NAPIER_F64, 1.0, oracle_reduce_mpfr);
        }
    }
}

static void test_oracles_agree(void) {
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (uint64_t seed = 0; seed < 6; seed++) {
            double z[64];
            row_fill(kind, seed, NAPIER_F64, z, 64);
            const oracle_row a = oracle_reduce(z, 64), b = oracle_reduce_mpfr(z, 64);
            const char *const name = row_kind_name(kind);
            expect(a.outcome == b.outcome, "%s: the oracles see different outcomes", name);
            if (a.outcome == ORACLE_FINITE && b.outcome == ORACLE_FINITE) {
                const long double near = 0x1p-60L * (1 + fabsl(b.max));
                expect(fabsl(a.lse - b.lse) <= near, "%s, seed %llu: long double %.21Lg, MPFR %.21Lg", name,
                       (unsigned long long)seed, a.lse, b.lse);
                expect(fabsl(a.mass - b.mass) <= 0x1p-58L * b.mass, "%s, seed %llu: mass %.21Lg, MPFR %.21Lg", name,
                       (unsigned long long)seed, a.mass, b.mass);
            }
        }
    }
}

/* ---- The worst rows of the bounds --------------------------------------------------------------------------------------- */

enum { SEARCH_COLS = 33, SEARCH_ROWS = 200 * 1000, SEARCH_CLIMBS = 50 };
typedef struct searched {
    double x[SEARCH_COLS];
    int64_t cols;
    double temperature;
    napier_dtype dtype;
} searched;

/* The largest error of one operation on a row, as a share of its bound. */
static long double share_of_bound(napier_context *context, const searched *row, operation op) {
    double packed[SEARCH_COLS], result[SEARCH_COLS], z[SEARCH_COLS];
    const napier_softmax_options options = options_of(row->temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    for (int64_t i = 0; i < row->cols; i++) {
        element_set(packed, row->dtype, i, row->x[i]);
    }
    divide_by_temperature(row->x, z, row->cols, row->temperature, row->dtype);
    const oracle_row truth = oracle_reduce(z, row->cols);
    const int64_t results = operation_cols(op, row->cols);
    if (!succeeded(context,
                   operation_run(context, op, napier_const_rows(packed, 1, row->cols, row->dtype),
                                 napier_rows(result, 1, results, row->dtype), &options),
                   operation_name(op))) {
        return HUGE_VALL;
    }
    long double worst = 0;
    for (int64_t i = 0; i < results; i++) {
        const long double t = op == OP_LOGSUMEXP     ? truth.lse
                              : op == OP_LOG_SOFTMAX ? oracle_log_softmax(&truth, z[i])
                                                     : oracle_softmax(&truth, z[i]);
        const long double bound = (op == OP_LOGSUMEXP     ? oracle_log_bound
                                   : op == OP_LOG_SOFTMAX ? oracle_log_softmax_bound
                                                          : oracle_softmax_bound)(&truth, t, row->dtype, row->dtype);
        worst = fmaxl(worst, fabsl((long double)element_get(result, row->dtype, i) - t) / bound);
    }
    return worst;
}

static uint64_t next_random(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 16;
}

/* Numbers of one size, of which half repeat the first; any width and temperature; a row in eight is f64. */
static searched random_row(uint64_t *seed) {
    static const double temperatures[] = {1, 1, 1, 0.7, 1.0 / 3, 3};
    searched row = {.cols = 2 + (int64_t)(next_random(seed) % (SEARCH_COLS - 1))};
    row.temperature = temperatures[next_random(seed) % 6];
    row.dtype = next_random(seed) % 8 == 0 ? NAPIER_F64 : NAPIER_F32;
    for (int64_t i = 0; i < row.cols; i++) {
        const double drawn = (double)(next_random(seed) & 0xffffff) * 0x1p-20 - 8;
        row.x[i] = i > 0 && i < row.cols - 1 && (next_random(seed) & 1) ? row.x[0] : drawn;
    }
    return row;
}

/* Moves one element to a neighbour of its dtype. */
static void move_a_little(searched *row, uint64_t *seed) {
    double *const x = &row->x[next_random(seed) % (uint64_t)row->cols];
    const double toward = next_random(seed) & 1 ? 100 : -100;
    *x = row->dtype == NAPIER_F64 ? nextafter(*x, toward) : (double)nextafterf((float)*x, (float)toward);
}

/* Random rows, each changed a little as long as its error grows. NAPIER_SEARCH rows by hand; a few in the tests. */
static void test_bounds_hold_where_a_search_leads(napier_context *context) {
    static const float known[] = {-3.5418670F, -3.5418670F, -3.5418670F, -3.5418670F, -3.5418670F,
                                  -3.5418670F, -3.5418670F, -3.5418670F, -8.9955931F};
    searched bad = {.cols = 9, .temperature = 1, .dtype = NAPIER_F32}; /* 1.25 of a bound of one ulp */
    const char *const wanted = getenv("NAPIER_SEARCH");
    const int64_t rows = wanted ? atoll(wanted) : SEARCH_ROWS;
    for (int i = 0; i < 9; i++) {
        bad.x[i] = (double)known[i];
    }
    long double worst[OP_LOGSUMEXP + 1] = {[OP_LOG_SOFTMAX] = share_of_bound(context, &bad, OP_LOG_SOFTMAX)};
    uint64_t seed = 1;
    for (int64_t tried = 0; tried < rows;) {
        searched best = random_row(&seed);
        const operation op = (operation)(next_random(&seed) % (OP_LOGSUMEXP + 1));
        long double most = 0;
        for (int climb = 0; climb < SEARCH_CLIMBS; climb++, tried++) {
            searched row = best;
            move_a_little(&row, &seed);
            const long double found = share_of_bound(context, &row, op);
            if (found > most) {
                most = found;
                best = row;
            }
        }
        worst[op] = fmaxl(worst[op], most);
    }
    printf("%lld rows, worst share of the bound:", (long long)rows);
    for (operation op = OP_SOFTMAX; op <= OP_LOGSUMEXP; op++) {
        printf(" %s %.3Lf", operation_name(op), worst[op]);
        expect(worst[op] <= 1, "%s: %.4Lf of the bound", operation_name(op), worst[op]);
    }
    printf("\n");
}

/* logsumexp near 0, where the naive formula gives 0: the correctly rounded truth. */
static void test_results_near_zero(napier_context *context) {
    static const float far[] = {-40.0f, -100.0f, -17.0f, -30.5f, -60.25f, -88.0f, -103.0f};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        const float row[2] = {0.0f, far[i]};
        const double wide[2] = {0.0, (double)far[i]};
        const float truth = (float)oracle_reduce_mpfr(wide, 2).lse;
        const uint32_t truth_bits = f32_bits(truth);
        float lse = NAN, logprobs[2] = {NAN, NAN};
        double lse64 = (double)NAN;
        works(napier_logsumexp, context, napier_const_rows_f32(row, 1, 2), napier_array_f32(&lse, 1), NULL);
        works(napier_log_softmax, context, napier_const_rows_f32(row, 1, 2), napier_rows_f32(logprobs, 1, 2), NULL);
        works(napier_logsumexp, context, napier_const_rows_f32(row, 1, 2), napier_array(&lse64, 1, NAPIER_F64), NULL);
        const long double bound = dtype_ulp(NAPIER_F32, (long double)truth) + 15.6L * 0x1p-24L * (long double)truth;
        expect(fabsl((long double)lse - (long double)truth) <= bound,
               "logsumexp [0, %g] is %.9g (%#x), truth %.9g (%#x)", (double)far[i], (double)lse, f32_bits(lse),
               (double)truth, truth_bits);
        expect(logprobs[0] == -lse, "log_softmax [0, %g][0] is %.9g, logsumexp %.9g", (double)far[i],
               (double)logprobs[0], (double)lse);
        const double truth64 = (double)oracle_reduce_mpfr(wide, 2).lse;
        expect(fabs(lse64 - truth64) <= 18 * 0x1p-53 * truth64, "logsumexp [0, %g] in f64 is %.17g, truth %.17g",
               (double)far[i], lse64, truth64);
        if (i < 2) {
            expect(lse == truth, "logsumexp [0, %g] is %a, not the rounded truth %a", (double)far[i], (double)lse,
                   (double)truth);
        }
    }
    expect((float)4.2483542552915889e-18 == (float)oracle_reduce_mpfr((const double[]){0, -40}, 2).lse,
           "the oracle does not know exp(-40)");
}

int main(void) {
    return RUN_TESTS("softmax_oracle", TEST(test_oracles_agree), TEST_1(test_results_near_zero),
                     TEST_1(test_bounds_hold_where_a_search_leads), TEST_1(test_f32_rows), TEST_1(test_f16_rows),
                     TEST_1(test_bf16_rows), TEST_1(test_f64_rows), TEST_2(test_vocabulary_rows),
                     TEST_1(test_temperatures), TEST_1(test_hard_rows_by_mpfr));
}
