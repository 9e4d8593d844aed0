/* test_logcumsumexp - the logsumexp of every prefix and its derivatives against sums in long double, within the bounds of the
 * header; the same bits for all instruction sets, threads, layouts and in place; special rows; bad arguments. */
#include <math.h>
#include <napier/logcumsumexp.h>

#include "support/check.h"
#include "support/formats.h"
#include "support/oracle.h"

typedef enum direction { RESULT, GRADIENT, TANGENT, DIRECTIONS } direction;

static const char *const direction_names[DIRECTIONS] = {"result", "gradient", "tangent"};

static napier_status run(napier_context *context, direction d, const grid *x, const grid *with, napier_matrix out,
                         const napier_softmax_options *options) {
    switch (d) {
    case RESULT: return napier_logcumsumexp(context, grid_input(x), out, options);
    case GRADIENT: return napier_logcumsumexp_backward(context, grid_input(x), grid_input(with), out, options);
    default: return napier_logcumsumexp_tangent(context, grid_input(x), grid_input(with), out, options);
    }
}

/* ---- The oracle ----------------------------------------------------------------------------------------------------- */

typedef struct truth {
    long double value, size; /* size: of the terms */
    oracle_outcome outcome;
} truth;

/* exp(z_j - lse_k), 0 for a logit of -inf. */
static long double share(const oracle_row *prefixes, const double *z, int64_t j, int64_t k) {
    return z[j] == -HUGE_VAL ? 0 : oracle_softmax(&prefixes[k], z[j]);
}

static bool has_derivative(oracle_outcome outcome) { return outcome == ORACLE_FINITE || outcome == ORACLE_ALL_MASKED; }

static truth truth_of(direction d, const oracle_row *prefixes, const double *z, const double *with, int64_t i,
                      int64_t n) {
    if (d == RESULT) {
        return (truth){prefixes[i].lse, 1, prefixes[i].outcome};
    }
    truth t = {0, 0, ORACLE_FINITE};
    const int64_t begin = d == GRADIENT ? i : 0, end = d == GRADIENT ? n : i + 1;
    for (int64_t other = begin; other < end; other++) {
        const int64_t j = d == GRADIENT ? i : other, k = d == GRADIENT ? other : i;
        const bool exists = has_derivative(prefixes[k].outcome);
        t.outcome = exists || (d == GRADIENT && with[other] == 0) ? t.outcome : ORACLE_NAN;
        const long double part =
            prefixes[k].outcome == ORACLE_FINITE ? share(prefixes, z, j, k) * (long double)with[other] : 0;
        t.value += part;
        t.size += fabsl(part);
    }
    t.outcome = d == GRADIENT && isnan(z[i]) ? ORACLE_NAN : t.outcome;
    return t;
}

static bool is_right(const grid *y, int64_t row, int64_t col, truth t, direction d, double temperature,
                     napier_dtype compute) {
    const napier_dtype out = y->view.dtype;
    const double got = grid_get(y, row, col);
    if (t.outcome == ORACLE_NAN) {
        return grid_bits(y, row, col) == dtype_canonical_nan(out);
    }
    if (t.outcome != ORACLE_FINITE) {
        return got == (t.outcome == ORACLE_PLUS_INF ? HUGE_VAL : -HUGE_VAL);
    }
    const long double value = d == RESULT ? t.value : t.value / (long double)temperature;
    const long double bound =
        d == RESULT ? 0x1p-51L + 0x1p-53L * fabsl(value) : 0x1p-50L * t.size / (long double)temperature + 0x1p-1022L;
    return oracle_within(
        got, value, bound + (compute == NAPIER_F64 ? 0 : dtype_ulp(NAPIER_F32, value)) + dtype_ulp(out, value), out);
}

static void check_row(direction d, const grid *x, const grid *with, const grid *y, int64_t row, double temperature,
                      napier_dtype compute) {
    const int64_t n = x->view.cols, mark = scratch_mark();
    double *const z = scratch(n, sizeof *z), *const w = scratch(n, sizeof *w);
    oracle_row *const prefixes = scratch(n, sizeof *prefixes);
    grid_get_row(x, row, z);
    grid_get_row(with, row, w);
    divide_by_temperature(z, z, n, temperature, compute);
    for (int64_t k = 0; k < n; k++) {
        prefixes[k] = oracle_reduce(z, k + 1);
    }
    for (int64_t i = 0; i < n; i++) {
        const truth t = truth_of(d, prefixes, z, w, i, n);
        if (!expect(is_right(y, row, i, t, d, temperature, compute),
                    "%s of row %lld, element %lld of %lld, %s to %s: %.17g, truth %.17Lg", direction_names[d],
                    (long long)row, (long long)i, (long long)n, napier_dtype_name(x->view.dtype),
                    napier_dtype_name(y->view.dtype), grid_get(y, row, i), t.value)) {
            break;
        }
    }
    scratch_release(mark);
}

static void test_oracle(napier_context *context) {
    static const int64_t sizes[] = {1, 2, 17, 130};
    static const double temperatures[] = {1.0, 0.7, 300.0};
    for (int turn = 0; turn < 4 * DTYPE_COUNT * DTYPE_COUNT; turn++) {
        const int64_t mark = scratch_mark(), cols = sizes[turn % 4];
        const napier_dtype in = all_dtypes[turn / 4 % DTYPE_COUNT], out = all_dtypes[turn / 4 / DTYPE_COUNT];
        const double temperature = temperatures[turn % 3];
        const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
        grid x = grid_make(LAYOUT_PADDED, ROW_KINDS, cols, in), with = grid_plain(ROW_KINDS, cols, in);
        grid_fill(&x, ROW_KINDS, 0);
        grid_fill(&with, ROW_NORMAL, (uint64_t)turn);
        for (direction d = RESULT; d < DIRECTIONS; d++) {
            grid y = grid_make(LAYOUT_PADDED, ROW_KINDS, cols, out);
            succeeded(context, run(context, d, &x, &with, y.view, &options), direction_names[d]);
            for (int64_t row = 0; row < ROW_KINDS; row++) {
                check_row(d, &x, &with, &y, row, temperature, compute_dtype(in, out));
            }
            expect(grid_damage(&y) == 0, "%s: wrote between the elements", direction_names[d]);
        }
        scratch_release(mark);
    }
}

/* Rows on which a careless sum fails: element i of n. */
static double rising_slowly(int64_t i) { return 1e-3 * (double)i; }
static double falling(int64_t i) { return -0.9 * (double)i; }
static double far_and_back(int64_t i) { return i % 3 == 0 ? 700.0 : i % 3 == 1 ? -700.0 : 0.0; }
static double beyond_exponents(int64_t i) { return (i % 2 == 0 ? 1.0 : -1.0) * ldexp(1.0, 55 + (int)(i % 20)); }
static double near_zero(int64_t i) { return -log((double)(i + 1)) - 1e-9 * (double)(i % 5); }

static void test_hard_rows(napier_context *context) {
    static double (*const hard[])(int64_t) = {rising_slowly, falling, far_and_back, beyond_exponents, near_zero};
    enum { ROWS = sizeof hard / sizeof *hard, COLS = 300 };
    for (int t = 0; t < 2; t++) {
        const napier_dtype dtype = t == 0 ? NAPIER_F32 : NAPIER_F64;
        grid x = grid_plain(ROWS, COLS, dtype), with = grid_plain(ROWS, COLS, dtype), y = grid_plain(ROWS, COLS, dtype);
        grid_fill(&with, ROW_NORMAL, 3);
        for (int64_t i = 0; i < ROWS * COLS; i++) {
            grid_set(&x, i / COLS, i % COLS, hard[i / COLS](i % COLS));
        }
        for (direction d = RESULT; d < DIRECTIONS; d++) {
            succeeded(context, run(context, d, &x, &with, y.view, NULL), direction_names[d]);
            for (int64_t row = 0; row < ROWS; row++) {
                check_row(d, &x, &with, &y, row, 1.0, dtype);
            }
        }
    }
}

/* ---- Bits ----------------------------------------------------------------------------------------------------------- */

static void check_everywhere(direction d, const grid *x, const grid *with, const grid *expected) {
    const napier_softmax_options options = options_of(0.9, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    for (int turn = 0;; turn++) {
        napier_context *const context = context_of_run(turn);
        if (!context) {
            return;
        }
        for (int l = 0; l < LAYOUTS; l++) {
            const int64_t mark = scratch_mark();
            grid a = grid_make((layout)l, x->view.rows, x->view.cols, x->view.dtype);
            grid b = grid_make((layout)l, x->view.rows, x->view.cols, with->view.dtype);
            grid_copy(&a, x);
            grid_copy(&b, with);
            succeeded(context, run(context, d, &a, &b, turn % 2 ? a.view : b.view, &options), "in place");
            expect(grid_differences(turn % 2 ? &a : &b, expected, direction_names[d]) == 0, "%s, %s, %d threads",
                   layout_name((layout)l), napier_isa_name(napier_context_isa(context)),
                   napier_context_threads(context));
            scratch_release(mark);
        }
    }
}

static void test_bits(napier_context *context) {
    const napier_softmax_options options = options_of(0.9, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    for (int t = 0; t < DTYPE_COUNT; t++) {
        const int64_t mark = scratch_mark();
        grid x = grid_plain(2 * ROW_KINDS, 130, all_dtypes[t]), with = grid_plain(2 * ROW_KINDS, 130, all_dtypes[t]);
        grid y = grid_plain(2 * ROW_KINDS, 130, all_dtypes[t]);
        grid_fill(&x, ROW_KINDS, 1);
        grid_fill(&with, ROW_NORMAL, 2);
        for (direction d = RESULT; d < DIRECTIONS; d++) {
            succeeded(context, run(context, d, &x, &with, y.view, &options), direction_names[d]);
            check_everywhere(d, &x, &with, &y);
        }
        scratch_release(mark);
    }
}

/* ---- Arguments ------------------------------------------------------------------------------------------------------ */

static void test_arguments(napier_context *c) {
    float x[6] = {0}, y[6], w[6] = {0};
    const napier_const_matrix in = napier_const_rows_f32(x, 2, 3), with = napier_const_rows_f32(w, 2, 3);
    const napier_matrix out = napier_rows_f32(y, 2, 3), narrow = napier_rows_f32(y, 2, 2);
    invalid(c, napier_logcumsumexp(c, in, narrow, NULL), "lse");
    invalid(c, napier_logcumsumexp(c, in, napier_rows_f32(x + 1, 1, 3), NULL), "lse");
    invalid(c, napier_logcumsumexp_backward(c, in, napier_const_rows_f32(w, 2, 2), out, NULL), "grad_lse");
    invalid(c, napier_logcumsumexp_backward(c, in, with, narrow, NULL), "grad_logits");
    invalid(c, napier_logcumsumexp_tangent(c, in, napier_const_rows_f32(w, 3, 2), out, NULL), "tangent");
    invalid(c, napier_logcumsumexp_tangent(c, in, with, narrow, NULL), "tangent_lse");
    const napier_softmax_options cold = options_of(0.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    invalid(c, napier_logcumsumexp(c, in, out, &cold), "temperature 0");
    works(napier_logcumsumexp, c, napier_const_rows_f32(NULL, 0, 3), napier_rows_f32(NULL, 0, 3), NULL);
    works(napier_logcumsumexp_backward, c, napier_const_rows_f32(NULL, 3, 0), napier_const_rows_f32(NULL, 3, 0),
          napier_rows_f32(NULL, 3, 0), NULL);
    expect(napier_logcumsumexp(NULL, in, out, NULL) == NAPIER_INVALID_ARGUMENT, "no context");
}

int main(void) {
    return RUN_TESTS("logcumsumexp", TEST_2(test_oracle), TEST_1(test_hard_rows), TEST_1(test_bits),
                     TEST_1(test_arguments));
}
