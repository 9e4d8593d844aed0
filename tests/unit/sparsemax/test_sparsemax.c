/* test_sparsemax - sparsemax against the definition by sorting, in long double, within the bound of the header; special
 * rows; bad arguments; and its gradient. */
#include <float.h>
#include <math.h>
#include <napier/sparsemax.h>
#include <stdlib.h>

#include "support/check.h"
#include "support/formats.h"
#include "support/oracle.h"

/* ---- The oracle --------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    const long double x = *(const long double *)a, y = *(const long double *)b;
    return (x > y) - (x < y);
}

/* How far tau lies below the maximum, which is finite: the distances below 1 in ascending order enter the support while
 * the threshold of those before lies above them. */
static long double oracle_threshold(const double *z, int64_t n, long double max) {
    long double *const d = scratch(n, sizeof *d), sum = 1, lost = 0, threshold = 1;
    int64_t count = 0, k = 0;
    for (int64_t i = 0; i < n; i++) {
        if (max - (long double)z[i] < 1) {
            d[count++] = max - (long double)z[i];
        }
    }
    qsort(d, (size_t)count, sizeof *d, ascending);
    while (k < count && (k == 0 || d[k] < threshold)) {
        const long double next = d[k] - lost, grown = sum + next; /* Kahan */
        lost = (grown - sum) - next;
        sum = grown;
        threshold = (sum - lost) / (long double)++k;
    }
    return threshold;
}

/* The bound of napier/sparsemax.h. */
static long double bound_of(long double truth, napier_dtype compute, napier_dtype out) {
    return 0x1p-51L + (compute == NAPIER_F64 ? 0 : dtype_ulp(NAPIER_F32, truth) / 2) +
           (out == NAPIER_F64 ? 0 : dtype_ulp(out, truth) / 2);
}

/* Row `row` of the result, from the row's z. */
static bool right_row(const double *z, const grid *y, int64_t row, napier_dtype compute, napier_masked_rows masked) {
    const int64_t n = y->view.cols;
    const oracle_row kind = oracle_reduce(z, n);
    const bool finite = kind.outcome == ORACLE_FINITE;
    const long double threshold = finite ? oracle_threshold(z, n, kind.max) : 0;
    for (int64_t i = 0; i < n; i++) {
        const double got = grid_get(y, row, i);
        const long double p = threshold - (kind.max - (long double)z[i]), truth = finite && p > 0 ? p : 0;
        const bool zero = finite || (kind.outcome == ORACLE_ALL_MASKED && masked == NAPIER_MASKED_ZERO);
        const bool good = zero ? oracle_within(got, truth, bound_of(truth, compute, y->view.dtype), y->view.dtype)
                               : grid_bits(y, row, i) == dtype_canonical_nan(y->view.dtype);
        if (!expect(good, "row %lld, element %lld of %lld: %.17g, truth %.17Lg", (long long)row, (long long)i,
                    (long long)n, got, truth)) {
            return false;
        }
    }
    return true;
}

static void check_grid(napier_context *context, grid *x, napier_dtype out, double temperature) {
    const int64_t mark = scratch_mark();
    const int64_t rows = x->view.rows, cols = x->view.cols;
    const napier_dtype compute = compute_dtype(x->view.dtype, out);
    const napier_masked_rows masked = cols % 2 ? NAPIER_MASKED_ZERO : NAPIER_MASKED_NAN;
    const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_AUTO, masked);
    grid y = grid_make(LAYOUT_PADDED, rows, cols, out);
    double *const z = scratch(cols, sizeof *z);
    works(napier_sparsemax, context, grid_input(x), y.view, &options);
    for (int64_t row = 0; row < rows; row++) {
        grid_get_row(x, row, z);
        divide_by_temperature(z, z, cols, temperature, compute);
        if (!right_row(z, &y, row, compute, masked)) {
            problem("%lld columns, %s to %s, T = %g", (long long)cols, napier_dtype_name(x->view.dtype),
                    napier_dtype_name(out), temperature);
        }
    }
    expect(grid_damage(&y) == 0, "wrote between the elements");
    scratch_release(mark);
}

static void test_oracle(napier_context *context) {
    static const int64_t sizes[] = {1, 2, 5, 16, 17, 100, 1023, 1024, 1025, 4097};
    static const double temperatures[] = {1.0, 0.7, 300.0, 1e-30};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int d = 0; d < DTYPE_COUNT * DTYPE_COUNT; d++) {
            const int64_t mark = scratch_mark();
            grid x = grid_make(LAYOUT_PADDED, 2 * ROW_KINDS, sizes[s], all_dtypes[d / DTYPE_COUNT]);
            grid_fill(&x, ROW_KINDS, s);
            check_grid(context, &x, all_dtypes[d % DTYPE_COUNT], temperatures[((size_t)d + s) % 4]);
            scratch_release(mark);
        }
    }
}

/* Rows that are hard for a threshold: element i of n. */
typedef double hard_row(int64_t i, int64_t n, rng *r);

static double close_together(int64_t i, int64_t n, rng *r) { return (void)i, (void)n, 1e-4 * rng_normal(r); }
static double spread_over_one(int64_t i, int64_t n, rng *r) { return (void)i, (void)n, rng_uniform(r); }
static double at_the_edge(int64_t i, int64_t n, rng *r) {
    return (void)n, i == 7 ? 1.0 : 0x1p-52 * (double)rng_below(r, 3);
}
static double far_apart(int64_t i, int64_t n, rng *r) { return (void)i, (void)n, 1e30 * (double)rng_below(r, 3); }
static double geometric(int64_t i, int64_t n, rng *r) { return (void)n, (void)r, -exp2(-(double)(i % 60)); }
static double tiny_beside(int64_t i, int64_t n, rng *r) {
    return (void)n, (void)r, i == 0 ? 0.5 : ldexp(1.0, -40 - (int)(i % 900));
}
static double squares(int64_t i, int64_t n, rng *r) { return (void)r, -sqrt((double)i / (double)n); }
static double all_equal(int64_t i, int64_t n, rng *r) { return (void)i, (void)n, (void)r, -12345.675; }
static double large_offset(int64_t i, int64_t n, rng *r) {
    return (void)i, (void)n, 0x1p40 + 0x1p-8 * (double)rng_below(r, 300);
}

static hard_row *const hard_rows[] = {close_together, spread_over_one, at_the_edge, far_apart,   geometric,
                                      tiny_beside,    squares,         all_equal,   large_offset};
enum { HARD_ROWS = sizeof hard_rows / sizeof *hard_rows };

static void test_hard_rows(napier_context *context) {
    static const int64_t sizes[] = {9, 300, 2048, 2049, 70000, NAPIER_SANITIZED ? 100000 : 10000000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int d = 0; d < (s < 5 ? 2 : 1); d++) {
            const int64_t mark = scratch_mark();
            const int64_t rows = s < 5 ? HARD_ROWS : 2; /* of 10^7 elements: the first ones */
            grid x = grid_make(LAYOUT_CONTIGUOUS, rows, sizes[s], d == 0 ? NAPIER_F32 : NAPIER_F64);
            for (int64_t row = 0; row < rows; row++) {
                rng r = rng_make(s);
                for (int64_t i = 0; i < sizes[s]; i++) {
                    grid_set(&x, row, i, hard_rows[row](i, sizes[s], &r));
                }
            }
            check_grid(context, &x, x.view.dtype, 1.0);
            scratch_release(mark);
        }
    }
}

/* ---- Special rows, arguments -------------------------------------------------------------------------------------- */

static void test_special_rows(napier_context *context) {
    static const float x[6][3] = {{-INFINITY, -INFINITY, -INFINITY}, {3, NAN, 1},       {INFINITY, 0, 0},
                                  {INFINITY, NAN, -INFINITY},        {5, -INFINITY, 5}, {-FLT_MAX, FLT_MAX, 0}};
    const double N = (double)NAN;
    const double wanted[6][3] = {{N, N, N}, {N, N, N}, {N, N, N}, {N, N, N}, {0.5, 0, 0.5}, {0, 1, 0}};
    float y[6][3];
    napier_softmax_options options = options_of(1.0, NAPIER_ALGORITHM_PARALLEL, NAPIER_MASKED_NAN);
    for (int masked = 0; masked < 2; masked++) {
        options.masked_rows = (napier_masked_rows)masked;
        works(napier_sparsemax, context, napier_const_rows_f32(x[0], 6, 3), napier_rows_f32(y[0], 6, 3), &options);
        for (int i = 0; i < 18; i++) {
            const double want = i < 3 && masked ? 0.0 : wanted[i / 3][i % 3];
            expect(f32_bits(y[i / 3][i % 3]) == dtype_bits(NAPIER_F32, want), "[%d, %d] is %g", i / 3, i % 3,
                   (double)y[i / 3][i % 3]);
        }
    }
    const napier_const_matrix none = napier_const_rows_f32(NULL, 0, 4), flat = napier_const_rows_f32(NULL, 2, 0);
    works(napier_sparsemax, context, none, napier_rows_f32(NULL, 0, 4), NULL);
    works(napier_sparsemax, context, flat, napier_rows_f32(NULL, 2, 0), NULL);
    works(napier_sparsemax_backward, context, flat, flat, napier_rows_f32(NULL, 2, 0), NULL);
}

static void test_bad_arguments(napier_context *context) {
    float a[24] = {0}, b[24] = {0}, c[24] = {0};
    const napier_const_matrix in = napier_const_rows_f32(a, 3, 8), grad = napier_const_rows_f32(b, 3, 8);
    const napier_matrix out = napier_rows_f32(c, 3, 8), over = napier_rows_f32(a + 1, 2, 8);
    const napier_matrix narrow = napier_rows_f32(c, 3, 5), lost = napier_rows_f32(NULL, 3, 8);
    napier_softmax_options options = options_of(0.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    assert_int_equal(napier_sparsemax(NULL, in, out, NULL), NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_sparsemax_backward(NULL, in, grad, out, NULL), NAPIER_INVALID_ARGUMENT);
    invalid(context, napier_sparsemax(context, in, out, &options), "temperature", "0");
    invalid(context, napier_sparsemax_backward(context, in, grad, out, &options), "temperature", "0");
    options = options_of(1.0, NAPIER_ALGORITHM_AUTO, (napier_masked_rows)9);
    invalid(context, napier_sparsemax(context, in, out, &options), "masked_rows", "9");
    invalid(context, napier_sparsemax(context, in, narrow, NULL), "probs", "5");
    invalid(context, napier_sparsemax(context, in, lost, NULL), "probs", "NULL");
    invalid(context, napier_sparsemax(context, napier_const_rows_f32(a, 2, 8), over, NULL), "probs", "logits");
    invalid(context, napier_sparsemax_backward(context, in, napier_const_rows_f32(b, 2, 8), out, NULL), "grad_probs",
            "2");
    invalid(context, napier_sparsemax_backward(context, in, grad, narrow, NULL), "grad_logits", "5");
    invalid(
        context,
        napier_sparsemax_backward(context, napier_const_rows_f32(a, 2, 8), napier_const_rows_f32(b, 2, 8), over, NULL),
        "grad_logits", "probs");
}

/* ---- The gradient ------------------------------------------------------------------------------------------------- */

/* Against the formula in long double: the roundings of a sum in double and of the result. */
static void check_gradient(napier_context *context, int64_t cols, napier_dtype in, napier_dtype out,
                           double temperature) {
    enum { ROWS = 7 };
    const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const napier_dtype compute = compute_dtype(in, out);
    const long double t = compute == NAPIER_F64 ? (long double)temperature : (long double)(float)temperature;
    grid p = grid_make(LAYOUT_PADDED, ROWS, cols, in), g = grid_make(LAYOUT_TRANSPOSED, ROWS, cols, in);
    grid y = grid_make(LAYOUT_CONTIGUOUS, ROWS, cols, out);
    grid_fill(&g, ROW_NORMAL, (uint64_t)cols);
    rng r = rng_make((uint64_t)cols);
    for (int64_t i = 0; i < ROWS * cols; i++) {
        grid_set(&p, i / cols, i % cols, rng_uniform(&r));
    }
    works(napier_sparsemax, context, grid_input(&p), p.view, &options);
    works(napier_sparsemax_backward, context, grid_input(&p), grid_input(&g), y.view, &options);
    for (int64_t row = 0; row < ROWS; row++) {
        long double sum = 0, size = 0, count = 0;
        for (int64_t i = 0; i < cols; i++) {
            const bool inside = grid_get(&p, row, i) > 0;
            sum += inside ? (long double)grid_get(&g, row, i) : 0;
            size = fmaxl(size, inside ? fabsl((long double)grid_get(&g, row, i)) : 0);
            count += inside;
        }
        for (int64_t i = 0; i < cols; i++) {
            const long double here = (long double)grid_get(&g, row, i) - sum / count;
            const long double truth = grid_get(&p, row, i) > 0 ? here / t : 0;
            const long double bound =
                16 * 0x1p-53L * size / t + dtype_ulp(compute, truth) / 2 + dtype_ulp(out, truth) / 2;
            expect(oracle_within(grid_get(&y, row, i), truth, bound, out),
                   "gradient [%lld, %lld] of %lld: %.17g, %.17Lg", (long long)row, (long long)i, (long long)cols,
                   grid_get(&y, row, i), truth);
        }
    }
}

static void test_gradient(napier_context *context) {
    static const int64_t sizes[] = {1, 2, 17, 255, 257, 1025, 5000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int d = 0; d < DTYPE_COUNT * DTYPE_COUNT; d++) {
            check_gradient(context, sizes[s], all_dtypes[d / DTYPE_COUNT], all_dtypes[d % DTYPE_COUNT],
                           d % 2 ? 1 : 0.7);
        }
    }
}

/* sparsemax is linear where the support does not change. */
static void test_finite_differences(napier_context *context) {
    enum { N = 23 };
    const napier_softmax_options options = options_of(2.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    double x[N], p[N], weights[N], got[N], moved[N];
    rng r = rng_make(5);
    for (int i = 0; i < N; i++) {
        x[i] = rng_normal(&r);
        weights[i] = rng_normal(&r);
    }
    const napier_const_matrix in = napier_const_rows(x, 1, N, NAPIER_F64);
    works(napier_sparsemax, context, in, napier_rows(p, 1, N, NAPIER_F64), &options);
    works(napier_sparsemax_backward, context, napier_const_rows(p, 1, N, NAPIER_F64),
          napier_const_rows(weights, 1, N, NAPIER_F64), napier_rows(got, 1, N, NAPIER_F64), &options);
    for (int i = 0; i < N; i++) {
        const double kept = x[i], h = 1e-6;
        double slope = 0;
        x[i] = kept + h;
        works(napier_sparsemax, context, in, napier_rows(moved, 1, N, NAPIER_F64), &options);
        x[i] = kept;
        for (int j = 0; j < N; j++) {
            slope += weights[j] * (moved[j] - p[j]) / h;
        }
        expect(fabs(slope - got[i]) < 1e-8, "element %d: %.12g, finite difference %.12g", i, got[i], slope);
    }
}

/* Outside the support the gradient is 0, whatever the gradient of the result is there; a NaN row stays one. */
static void test_gradient_edges(napier_context *context) {
    static const float p[3][4] = {{0.5f, 0, 0.5f, 0}, {0, 0, 0, 0}, {NAN, NAN, NAN, NAN}};
    static const float g[3][4] = {{3, NAN, 1, INFINITY}, {1, NAN, INFINITY, 2}, {1, 2, 3, 4}};
    const double N = (double)NAN;
    const double wanted[3][4] = {{1, 0, -1, 0}, {0, 0, 0, 0}, {N, N, N, N}};
    float y[3][4];
    works(napier_sparsemax_backward, context, napier_const_rows_f32(p[0], 3, 4), napier_const_rows_f32(g[0], 3, 4),
          napier_rows_f32(y[0], 3, 4), NULL);
    for (int i = 0; i < 12; i++) {
        expect(f32_bits(y[i / 4][i % 4]) == dtype_bits(NAPIER_F32, wanted[i / 4][i % 4]), "[%d, %d] is %g", i / 4,
               i % 4, (double)y[i / 4][i % 4]);
    }
}

int main(void) {
    return RUN_TESTS("sparsemax", TEST_2(test_oracle), TEST_2(test_hard_rows), TEST_1(test_special_rows),
                     TEST_1(test_bad_arguments), TEST_2(test_gradient), TEST_1(test_finite_differences),
                     TEST_1(test_gradient_edges));
}
