/* The cases of the LogSumExpKernel specification (row-wise and full reductions, stability, softmax rows, edge cases,
 * topic distributions), with corrected values: its stability example is 1002.4076, and NaN and infinities follow its
 * own table of edge cases, which its kernels did not. */
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

#include "support/formats.h"
#include "support/oracle.h"

static napier_context *context;

static int set_up(void **state) {
    (void)state;
    context = context_of(NAPIER_ISA_AUTO, 2);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    napier_context_destroy(context);
    return 0;
}

static void expect_lse(const float *row, int64_t n, float wanted, const char *what) {
    float lse = -1;
    succeeded(context, napier_logsumexp(context, napier_const_rows_f32(row, 1, n), napier_array_f32(&lse, 1), NULL),
              what);
    expect(f32_bits(lse) == f32_bits(wanted), "%s: %.9g (%#x), not %.9g", what, (double)lse, f32_bits(lse),
           (double)wanted);
    lse = -1;
    succeeded(context, napier_logsumexp_all(context, napier_const_rows_f32(row, 1, n), napier_array_f32(&lse, 1), NULL),
              what);
    expect(f32_bits(lse) == f32_bits(wanted), "%s, all: %.9g (%#x), not %.9g", what, (double)lse, f32_bits(lse),
           (double)wanted);
}

static void test_rowwise_correctness(void **state) {
    (void)state;
    static const float input[3][3] = {{1, 2, 3}, {4, 5, 6}, {-1, -2, -3}};
    static const float wanted[3] = {3.4076059644443806f, 6.4076059644443806f, -0.59239403555561940f};
    float lse[3];
    succeeded(context,
              napier_logsumexp(context, napier_const_rows_f32(&input[0][0], 3, 3), napier_array_f32(lse, 3), NULL),
              "three rows");
    for (int i = 0; i < 3; i++) {
        expect(fabsf(lse[i] - wanted[i]) <= 0x1p-23f * fabsf(wanted[i]), "row %d: %.9g, not %.9g", i, (double)lse[i],
               (double)wanted[i]);
    }
    no_problems();
}

static void test_numerical_stability(void **state) {
    (void)state;
    static const float large[3] = {1000, 1001, 1002}, small[3] = {-1000, -1001, -1002};
    expect_lse(large, 3, 1002.4076059644443806f, "[1000, 1001, 1002]");
    expect_lse(small, 3, -999.59239403555561940f, "[-1000, -1001, -1002]");
    no_problems();
}

static void test_softmax_sums_to_one(void **state) {
    (void)state;
    static const float input[4] = {1, 2, 3, 4};
    static const double wanted[4] = {0.032058603280084988, 0.087144318742032567, 0.23688281808991013,
                                     0.64391425988797229};
    float probs[4];
    succeeded(context, napier_softmax(context, napier_const_rows_f32(input, 1, 4), napier_rows_f32(probs, 1, 4), NULL),
              "softmax");
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += (double)probs[i];
        expect(fabs((double)probs[i] - wanted[i]) <= 4 * 0x1p-24 * wanted[i] * 2, "[%d]: %.9g, not %.9g", i,
               (double)probs[i], wanted[i]);
    }
    expect(fabs(sum - 1) <= 3e-7, "the sum is %.9g", sum);
    no_problems();
}

static void test_edge_cases(void **state) {
    (void)state;
    const float masked[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, infinite[3] = {1, INFINITY, -INFINITY};
    const float nan[3] = {1, NAN, INFINITY}, single[1] = {-7.25f}, some[3] = {-INFINITY, 2, -INFINITY};
    expect_lse(masked, 4, -INFINITY, "all -inf");
    expect_lse(infinite, 3, INFINITY, "a +inf");
    expect_lse(nan, 3, f32_of_bits(0x7fc00000u), "a NaN");
    expect_lse(single, 1, -7.25f, "one element");
    expect_lse(some, 3, 2.0f, "one element among -inf");
    no_problems();
}

/* The specification has a kernel of its own for widths divisible by 4; here width changes no bit of what a row gives.
 * */
static void test_every_width(void **state) {
    (void)state;
    double wide[130];
    float x[130];
    row_fill_f32(ROW_NORMAL, 2, x, wide, 130);
    for (int64_t n = 1; n <= 130; n++) {
        const oracle_row truth = oracle_reduce(wide, n);
        float lse = 0;
        succeeded(context, napier_logsumexp(context, napier_const_rows_f32(x, 1, n), napier_array_f32(&lse, 1), NULL),
                  "width");
        const long double bound = oracle_log_bound(&truth, truth.lse, NAPIER_F32, NAPIER_F32);
        expect(oracle_within((double)lse, truth.lse, bound, NAPIER_F32), "%lld columns: %.9g, not %.9Lg", (long long)n,
               (double)lse, truth.lse);
    }
    no_problems();
}

/* Its shapes: rows 1000 x 50 and 10000 x 100, and the whole of 1e6 elements at once. */
static void test_its_shapes(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1000, 50}, {10000, 100}};
    for (size_t s = 0; s < 2; s++) {
        const int64_t rows = shapes[s][0], cols = shapes[s][1];
        grid x = grid_make(LAYOUT_CONTIGUOUS, rows, cols, NAPIER_F32),
             lse = grid_make(LAYOUT_CONTIGUOUS, rows, 1, NAPIER_F32);
        double *const wide = room_for(rows * cols, sizeof *wide);
        grid_fill(&x, ROW_NORMAL, 0);
        succeeded(context, operation_run(context, OP_LOGSUMEXP, grid_input(&x), lse.view, NULL), "rows");
        for (int64_t row = 0; row < rows; row++) {
            grid_get_row(&x, row, wide + row * cols);
            const oracle_row truth = oracle_reduce(wide + row * cols, cols);
            const long double bound = oracle_log_bound(&truth, truth.lse, NAPIER_F32, NAPIER_F32);
            expect(oracle_within(grid_get(&lse, row, 0), truth.lse, bound, NAPIER_F32),
                   "%lld x %lld, row %lld: %.9g, not %.9Lg", (long long)rows, (long long)cols, (long long)row,
                   grid_get(&lse, row, 0), truth.lse);
        }
        float all = 0;
        succeeded(context, napier_logsumexp_all(context, grid_input(&x), napier_array_f32(&all, 1), NULL), "all");
        const oracle_row truth = oracle_reduce(wide, rows * cols);
        const long double bound = oracle_log_bound(&truth, truth.lse, NAPIER_F32, NAPIER_F32);
        expect(oracle_within((double)all, truth.lse, bound, NAPIER_F32), "all of %lld: %.9g, not %.9Lg",
               (long long)(rows * cols), (double)all, truth.lse);
        free(wide);
        grid_free(&x);
        grid_free(&lse);
    }
    no_problems();
}

/* Its use: log-probabilities normalised by their logsumexp add up to 1; log_softmax does it in one call. */
static void test_log_probability_normalisation(void **state) {
    (void)state;
    static const float scores[6] = {-3.5f, -0.25f, -12.0f, -1.0f, -2.0f, -80.0f};
    float normaliser = 0, logprobs[6];
    succeeded(
        context,
        napier_logsumexp_all(context, napier_const_rows_f32(scores, 1, 6), napier_array_f32(&normaliser, 1), NULL),
        "logsumexp_all");
    succeeded(context,
              napier_log_softmax(context, napier_const_rows_f32(scores, 1, 6), napier_rows_f32(logprobs, 1, 6), NULL),
              "log_softmax");
    double sum = 0;
    for (int i = 0; i < 6; i++) {
        sum += exp((double)logprobs[i]);
        expect(fabsf(logprobs[i] - (scores[i] - normaliser)) <= 0x1p-22f * (1 + fabsf(scores[i])),
               "[%d]: %.9g and %.9g", i, (double)logprobs[i], (double)(scores[i] - normaliser));
    }
    expect(fabs(sum - 1) < 3e-7, "the probabilities add up to %.9g", sum);
    no_problems();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rowwise_correctness),
        cmocka_unit_test(test_numerical_stability),
        cmocka_unit_test(test_softmax_sums_to_one),
        cmocka_unit_test(test_edge_cases),
        cmocka_unit_test(test_every_width),
        cmocka_unit_test(test_its_shapes),
        cmocka_unit_test(test_log_probability_normalisation),
    };
    return cmocka_run_group_tests_name("seed_000", tests, set_up, tear_down);
}
