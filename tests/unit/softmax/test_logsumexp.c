/* logsumexp by rows and of all: known values, large and small logits, special rows, every width, whole matrices; and
 * what softmax and log_softmax make of the same rows. */
#include <math.h>

#include "support/formats.h"
#include "support/truth.h"

static void expect_lse(napier_context *context, const float *row, int64_t n, float wanted, const char *what) {
    for (operation op = OP_LOGSUMEXP; op <= OP_LOGSUMEXP_ALL; op++) {
        float lse = -1;
        succeeded(context,
                  operation_run(context, op, napier_const_rows_f32(row, 1, n), napier_rows_f32(&lse, 1, 1), NULL),
                  what);
        expect(f32_bits(lse) == f32_bits(wanted), "%s, %s: %.9g (%#x), not %.9g", operation_name(op), what, (double)lse,
               f32_bits(lse), (double)wanted);
    }
}

static void test_known_rows(napier_context *context) {
    static const float input[3][3] = {{1, 2, 3}, {4, 5, 6}, {-1, -2, -3}};
    static const float wanted[3] = {3.4076059644443806f, 6.4076059644443806f, -0.59239403555561940f};
    float lse[3];
    works(napier_logsumexp, context, napier_const_rows_f32(&input[0][0], 3, 3), napier_array_f32(lse, 3), NULL);
    for (int i = 0; i < 3; i++) {
        expect(fabsf(lse[i] - wanted[i]) <= 0x1p-23f * fabsf(wanted[i]), "row %d: %.9g, not %.9g", i, (double)lse[i],
               (double)wanted[i]);
    }
}

static void test_large_and_small_logits(napier_context *context) {
    static const float large[3] = {1000, 1001, 1002}, small[3] = {-1000, -1001, -1002};
    expect_lse(context, large, 3, 1002.4076059644443806f, "[1000, 1001, 1002]");
    expect_lse(context, small, 3, -999.59239403555561940f, "[-1000, -1001, -1002]");
}

static void test_special_rows(napier_context *context) {
    const float masked[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, infinite[3] = {1, INFINITY, -INFINITY};
    const float nan[3] = {1, NAN, INFINITY}, single[1] = {-7.25f}, some[3] = {-INFINITY, 2, -INFINITY};
    expect_lse(context, masked, 4, -INFINITY, "all -inf");
    expect_lse(context, infinite, 3, INFINITY, "a +inf");
    expect_lse(context, nan, 3, f32_of_bits(0x7fc00000u), "a NaN");
    expect_lse(context, single, 1, -7.25f, "one element");
    expect_lse(context, some, 3, 2.0f, "one element among -inf");
}

static void test_known_probabilities(napier_context *context) {
    static const float input[4] = {1, 2, 3, 4};
    static const double wanted[4] = {0.032058603280084988, 0.087144318742032567, 0.23688281808991013,
                                     0.64391425988797229};
    float probs[4];
    works(napier_softmax, context, napier_const_rows_f32(input, 1, 4), napier_rows_f32(probs, 1, 4), NULL);
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += (double)probs[i];
        expect(fabs((double)probs[i] - wanted[i]) <= 4 * 0x1p-24 * wanted[i] * 2, "[%d]: %.9g, not %.9g", i,
               (double)probs[i], wanted[i]);
    }
    expect(fabs(sum - 1) <= 3e-7, "the sum is %.9g", sum);
}

static void check_lse(const double *wide, int64_t n, float lse, const char *name) {
    const subject s = {wide, n, NAPIER_F32, NAPIER_F32, oracle_reduce(wide, n), name};
    check_truth(OP_LOGSUMEXP, &s, &lse);
}

static void test_every_width(napier_context *context) {
    double wide[130];
    float x[130];
    row_fill_f32(ROW_NORMAL, 2, x, wide, 130);
    for (int64_t n = 1; n <= 130; n++) {
        float lse = 0;
        works(napier_logsumexp, context, napier_const_rows_f32(x, 1, n), napier_array_f32(&lse, 1), NULL);
        check_lse(wide, n, lse, "a width");
    }
}

/* Each row of a matrix, and the whole of it at once. */
static void test_matrices(napier_context *context) {
    static const int64_t shapes[][2] = {{1000, 50}, {10000, 100}};
    for (size_t s = 0; s < 2; s++) {
        const int64_t rows = shapes[s][0], cols = shapes[s][1];
        grid x = grid_plain(rows, cols, NAPIER_F32);
        grid lse = grid_plain(rows, 1, NAPIER_F32);
        double *const wide = scratch(rows * cols, sizeof *wide);
        grid_fill(&x, ROW_NORMAL, 0);
        succeeded(context, operation_run(context, OP_LOGSUMEXP, grid_input(&x), lse.view, NULL), "rows");
        for (int64_t row = 0; row < rows; row++) {
            grid_get_row(&x, row, wide + row * cols);
            check_lse(wide + row * cols, cols, (float)grid_get(&lse, row, 0), "a row");
        }
        float all = 0;
        works(napier_logsumexp_all, context, grid_input(&x), napier_array_f32(&all, 1), NULL);
        check_lse(wide, rows * cols, all, "all rows");
    }
}

/* Log-probabilities normalised by their logsumexp add up to 1; log_softmax does it in one call. */
static void test_log_probability_normalisation(napier_context *context) {
    static const float scores[6] = {-3.5f, -0.25f, -12.0f, -1.0f, -2.0f, -80.0f};
    float normaliser = 0, logprobs[6];
    const napier_const_matrix row = napier_const_rows_f32(scores, 1, 6);
    works(napier_logsumexp_all, context, row, napier_array_f32(&normaliser, 1), NULL);
    works(napier_log_softmax, context, row, napier_rows_f32(logprobs, 1, 6), NULL);
    double sum = 0;
    for (int i = 0; i < 6; i++) {
        sum += exp((double)logprobs[i]);
        expect(fabsf(logprobs[i] - (scores[i] - normaliser)) <= 0x1p-22f * (1 + fabsf(scores[i])),
               "[%d]: %.9g and %.9g", i, (double)logprobs[i], (double)(scores[i] - normaliser));
    }
    expect(fabs(sum - 1) < 3e-7, "the probabilities add up to %.9g", sum);
}

int main(void) {
    return RUN_TESTS("logsumexp", TEST_2(test_known_rows), TEST_2(test_large_and_small_logits),
                     TEST_2(test_special_rows), TEST_2(test_known_probabilities), TEST_2(test_every_width),
                     TEST_2(test_matrices), TEST_2(test_log_probability_normalisation));
}
