/* The cases of the blockwise softmax: tails that do not fill a block (masked with -inf, never 0), rows of negative
 * logits where a 0 in the tail would win, and block maxima that fall, where rescaling by the new block's own maximum
 * instead of the running one overflows. */
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

/* By the three passes and by the streaming kernel: the same bits, within the bound, adding up to 1. */
static void check_row(const double *z, int64_t n, const char *what) {
    grid x = grid_make(LAYOUT_PADDED, 1, n, NAPIER_F32);
    grid safe = grid_make(LAYOUT_CONTIGUOUS, 1, n, NAPIER_F32), online = grid_make(LAYOUT_CONTIGUOUS, 1, n, NAPIER_F32);
    grid_set_row(&x, 0, z);
    const napier_softmax_options three_passes = options_of(1.0, NAPIER_ALGORITHM_SAFE, NAPIER_MASKED_NAN);
    const napier_softmax_options streaming = options_of(1.0, NAPIER_ALGORITHM_ONLINE, NAPIER_MASKED_NAN);
    succeeded(context, napier_softmax(context, grid_input(&x), safe.view, &three_passes), what);
    succeeded(context, napier_softmax(context, grid_input(&x), online.view, &streaming), what);
    grid_differences(&online, &safe, what);
    const oracle_row truth = oracle_reduce(z, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const long double p = oracle_softmax(&truth, z[i]);
        sum += grid_get(&safe, 0, i);
        expect(oracle_within(grid_get(&safe, 0, i), p, oracle_softmax_bound(&truth, p, NAPIER_F32, NAPIER_F32),
                             NAPIER_F32),
               "%s, %lld columns: [%lld] is %.9g, not %.9Lg", what, (long long)n, (long long)i, grid_get(&safe, 0, i),
               p);
    }
    expect(fabs(sum - 1) <= 3e-7, "%s, %lld columns: the sum is %.9g", what, (long long)n, sum);
    grid_free(&x);
    grid_free(&safe);
    grid_free(&online);
}

/* Every length around a multiple of 16, of 256 and of 1024; all logits far below 0. */
static void test_tails(void **state) {
    (void)state;
    static const int64_t blocks[] = {16, 32, 256, 512, 1024, 2048, 3072};
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        for (int64_t n = blocks[b] - 2; n <= blocks[b] + 2; n++) {
            double *const z = room_for(n, sizeof *z);
            for (int64_t i = 0; i < n; i++) {
                z[i] = -1000.0 - (double)(i % 11);
            }
            check_row(z, n, "a tail");
            free(z);
        }
    }
    no_problems();
}

/* Blocks of 100 to 1024 columns, each with a maximum 100 below the one before: exp(old - new) would overflow. */
static void test_block_maxima_fall(void **state) {
    (void)state;
    static const int64_t blocks[] = {100, 128, 256, 1000, 1024};
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        const int64_t n = 8 * blocks[b];
        double *const z = room_for(n, sizeof *z);
        for (int64_t i = 0; i < n; i++) {
            z[i] = 500.0 - 100.0 * (double)(i / blocks[b]) - (double)(i % 7);
        }
        check_row(z, n, "falling block maxima");
        for (int64_t i = 0; i < n; i++) {
            z[i] = -z[i];
        }
        check_row(z, n, "rising block maxima");
        free(z);
    }
    no_problems();
}

/* One block of only -inf, the first, one in the middle or the last; then all but the last. */
static void test_masked_blocks(void **state) {
    (void)state;
    enum { N = 5 * 1024 + 10 };
    static double z[N];
    for (int masked = 0; masked < 7; masked++) {
        for (int i = 0; i < N; i++) {
            z[i] = (i / 1024 == masked) != (masked == 6 && i < 5 * 1024) ? -HUGE_VAL : (double)(i % 13);
        }
        check_row(z, N, "a masked block");
    }
    no_problems();
}

/* [M, N] in, [M, N] out, with rows apart from one another in memory. */
static void test_matrix_with_row_stride(void **state) {
    (void)state;
    grid x = grid_make(LAYOUT_PADDED, 33, 781, NAPIER_F32), padded = grid_make(LAYOUT_PADDED, 33, 781, NAPIER_F32);
    grid one = grid_make(LAYOUT_CONTIGUOUS, 1, 781, NAPIER_F32), row = grid_make(LAYOUT_CONTIGUOUS, 1, 781, NAPIER_F32);
    grid_fill(&x, ROW_NORMAL, 0);
    succeeded(context, napier_softmax(context, grid_input(&x), padded.view, NULL), "matrix");
    double z[781];
    for (int64_t i = 0; i < 33; i++) {
        grid_get_row(&x, i, z);
        grid_set_row(&row, 0, z);
        succeeded(context, napier_softmax(context, grid_input(&row), one.view, NULL), "row");
        for (int64_t j = 0; j < 781; j++) {
            expect(grid_bits(&padded, i, j) == grid_bits(&one, 0, j), "[%lld, %lld] differs from the row alone",
                   (long long)i, (long long)j);
        }
    }
    expect(grid_damage(&padded) == 0, "the gap between rows was written");
    grid_free(&x);
    grid_free(&padded);
    grid_free(&one);
    grid_free(&row);
    no_problems();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tails),
        cmocka_unit_test(test_block_maxima_fall),
        cmocka_unit_test(test_masked_blocks),
        cmocka_unit_test(test_matrix_with_row_stride),
    };
    return cmocka_run_group_tests_name("seed_002", tests, set_up, tear_down);
}
