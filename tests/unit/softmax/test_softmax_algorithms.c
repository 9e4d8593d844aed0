/* All algorithms give the same bits of softmax, and these are within the bound: logits that overflow the naive formula,
 * -inf first, tails of blocks, block maxima that fall or rise, masked blocks, wide rows, every dtype; and states merged
 * as a tree. */
#include <math.h>

#include "support/formats.h"
#include "support/truth.h"

enum { ALGORITHMS = 4 };

static void check_algorithms(napier_context *context, const grid *x, const char *what) {
    const int64_t rows = x->view.rows, cols = x->view.cols, mark = scratch_mark();
    const napier_dtype dtype = x->view.dtype;
    grid results[ALGORITHMS];
    for (int a = 0; a < ALGORITHMS; a++) {
        const napier_softmax_options options = options_of(1.0, (napier_algorithm)a, NAPIER_MASKED_NAN);
        results[a] = grid_plain(rows, cols, dtype);
        succeeded(context, napier_softmax(context, grid_input(x), results[a].view, &options), what);
        expect(grid_differences(&results[a], &results[0], what) == 0, "%s: algorithm %d gives other bits", what, a);
    }
    double *const z = scratch(cols, sizeof *z);
    for (int64_t row = 0; row < rows; row++) {
        grid_get_row(x, row, z);
        const subject s = {z, cols, dtype, dtype, oracle_reduce(z, cols), what};
        check_truth(OP_SOFTMAX, &s,
                    (const char *)results[0].view.data + (size_t)(row * cols) * napier_dtype_size(dtype));
    }
    scratch_release(mark);
}

static void check_row(napier_context *context, const double *z, int64_t n, const char *what) {
    grid x = grid_make(LAYOUT_PADDED, 1, n, NAPIER_F32);
    grid_set_row(&x, 0, z);
    check_algorithms(context, &x, what);
}

/* exp(1000) overflows, exp(-1000) underflows to 0 / 0. */
static void test_naive_overflow_and_underflow(napier_context *context) {
    static const double rows[][3] = {{1000, 1000, 999}, {-1000, -1000, -1001}, {100, 200, 300}, {1000, -1000, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_row(context, rows[i], 3, "logits that overflow or underflow exp");
    }
}

/* Any number of -inf before the first finite logit: the running maximum starts at -inf. */
static void test_leading_minus_infinity(napier_context *context) {
    static const int64_t leads[] = {1, 2, 15, 16, 17, 255, 256, 1023, 1024, 1025, 2048, 3000};
    double z[3100];
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        for (int64_t j = 0; j < 3100; j++) {
            z[j] = j < leads[i] ? -HUGE_VAL : (double)(j % 5);
        }
        check_row(context, z, leads[i] + 2, "a leading -inf");
        check_row(context, z, leads[i] + 100, "a leading -inf");
    }
}

static void test_every_dtype(napier_context *context) {
    for (int d = 0; d < DTYPE_COUNT; d++) {
        grid x = grid_plain(4, 2048, all_dtypes[d]);
        grid_fill(&x, ROW_NORMAL, 1);
        check_algorithms(context, &x, "a dtype");
    }
}

static void test_wide_rows(napier_context *context) {
    grid x = grid_plain(16, 32768, NAPIER_F32);
    grid_fill(&x, ROW_NORMAL, 0);
    check_algorithms(context, &x, "rows of 32768");
}

/* Every length around a multiple of 16, of 256 and of 1024. All logits are far below 0, where a 0 in the tail would
 * win. */
static void test_tails(napier_context *context) {
    static const int64_t blocks[] = {16, 32, 256, 512, 1024, 2048, 3072};
    double z[3074];
    for (int i = 0; i < 3074; i++) {
        z[i] = -1000.0 - (double)(i % 11);
    }
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        for (int64_t n = blocks[b] - 2; n <= blocks[b] + 2; n++) {
            check_row(context, z, n, "a tail");
        }
    }
}

/* Blocks of 100 to 1024 columns, each with a maximum 100 below the one before: exp(old - new) would overflow. */
static void test_block_maxima(napier_context *context) {
    static const int64_t blocks[] = {100, 128, 256, 1000, 1024};
    double falling[8 * 1024], rising[8 * 1024];
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        const int64_t n = 8 * blocks[b];
        for (int64_t i = 0; i < n; i++) {
            falling[i] = 500.0 - 100.0 * (double)(i / blocks[b]) - (double)(i % 7);
            rising[i] = -falling[i];
        }
        check_row(context, falling, n, "falling block maxima");
        check_row(context, rising, n, "rising block maxima");
    }
}

/* One block of only -inf, the first, one in the middle or the last; then all but the last. */
static void test_masked_blocks(napier_context *context) {
    enum { N = 5 * 1024 + 10 };
    double z[N];
    for (int masked = 0; masked < 7; masked++) {
        for (int i = 0; i < N; i++) {
            z[i] = (i / 1024 == masked) != (masked == 6 && i < 5 * 1024) ? -HUGE_VAL : (double)(i % 13);
        }
        check_row(context, z, N, "a masked block");
    }
}

static void test_matrix_with_row_stride(napier_context *context) {
    grid x = grid_make(LAYOUT_PADDED, 33, 781, NAPIER_F32), padded = grid_make(LAYOUT_PADDED, 33, 781, NAPIER_F32);
    grid one = grid_plain(1, 781, NAPIER_F32), row = grid_plain(1, 781, NAPIER_F32);
    grid_fill(&x, ROW_NORMAL, 0);
    works(napier_softmax, context, grid_input(&x), padded.view, NULL);
    double z[781];
    for (int64_t i = 0; i < 33; i++) {
        grid_get_row(&x, i, z);
        grid_set_row(&row, 0, z);
        works(napier_softmax, context, grid_input(&row), one.view, NULL);
        for (int64_t j = 0; j < 781; j++) {
            expect(grid_bits(&padded, i, j) == grid_bits(&one, 0, j), "[%lld, %lld] differs from the row alone",
                   (long long)i, (long long)j);
        }
    }
    expect(grid_damage(&padded) == 0, "the gap between rows was written");
}

/* A state for each run of the row, merged as a tree, with states that saw only -inf. */
static void test_tree_of_states(napier_context *context) {
    enum { STATES = 32, EACH = 100, N = STATES * EACH };
    float x[N], lse = 0;
    for (int i = 0; i < N; i++) {
        x[i] = i / EACH % 3 == 0 ? -INFINITY : (float)(i % 37) - (float)(i / EACH);
    }
    napier_softmax_state *states[STATES];
    for (int i = 0; i < STATES; i++) {
        works(napier_softmax_state_create, context, NAPIER_F32, i * EACH, NULL, &states[i]);
        works(napier_softmax_state_update, context, states[i], napier_const_array_f32(x + i * EACH, EACH));
    }
    for (int offset = 1; offset < STATES; offset *= 2) {
        for (int i = 0; i + offset < STATES; i += 2 * offset) {
            works(napier_softmax_state_merge, context, states[i], states[i + offset]);
        }
    }
    double merged = 0;
    works(napier_softmax_state_finish, context, states[0], &merged);
    works(napier_logsumexp, context, napier_const_rows_f32(x, 1, N), napier_array_f32(&lse, 1), NULL);
    expect(merged == (double)lse, "a tree of 32 states gives %.9g, one call %.9g", merged, (double)lse);
    for (int i = 0; i < STATES; i++) {
        napier_softmax_state_destroy(states[i]);
    }
}

int main(void) {
    return RUN_TESTS("softmax_algorithms", TEST_2(test_naive_overflow_and_underflow),
                     TEST_2(test_leading_minus_infinity), TEST_2(test_every_dtype), TEST_2(test_wide_rows),
                     TEST_2(test_tails), TEST_2(test_block_maxima), TEST_2(test_masked_blocks),
                     TEST_2(test_matrix_with_row_stride), TEST_2(test_tree_of_states));
}
