/* The cases of the softmax optimisation journey: three algorithms that agree (here bit for bit, where it allowed 1e-2),
 * logits that overflow the naive formula, a leading -inf (which made its online kernel NaN), merging of partial states
 * with empty ones among them, four dtypes, and its wide rows. */
#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/formats.h"
#include "support/oracle.h"

enum { ALGORITHMS = 4 };

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

/* All algorithms give the same bits, and these are within the bound. */
static void check_algorithms(const grid *x, napier_dtype out_dtype, const char *what) {
    const int64_t rows = x->view.rows, cols = x->view.cols;
    grid results[ALGORITHMS];
    for (int a = 0; a < ALGORITHMS; a++) {
        const napier_softmax_options options = options_of(1.0, (napier_algorithm)a, NAPIER_MASKED_NAN);
        results[a] = grid_make(LAYOUT_CONTIGUOUS, rows, cols, out_dtype);
        succeeded(context, napier_softmax(context, grid_input(x), results[a].view, &options), what);
        expect(grid_differences(&results[a], &results[0], what) == 0, "%s: algorithm %d gives other bits", what, a);
    }
    double *const z = room_for(cols, sizeof *z);
    const napier_dtype compute = compute_dtype(x->view.dtype, out_dtype);
    for (int64_t row = 0; row < rows; row++) {
        grid_get_row(x, row, z);
        const oracle_row truth = oracle_reduce(z, cols);
        for (int64_t col = 0; col < cols; col++) {
            const long double p = oracle_softmax(&truth, z[col]);
            if (!expect(oracle_within(grid_get(&results[0], row, col), p,
                                      oracle_softmax_bound(&truth, p, compute, out_dtype), out_dtype),
                        "%s: [%lld, %lld] is %.9g, not %.9Lg", what, (long long)row, (long long)col,
                        grid_get(&results[0], row, col), p)) {
                break;
            }
        }
    }
    free(z);
    for (int a = 0; a < ALGORITHMS; a++) {
        grid_free(&results[a]);
    }
}

static grid row_of(const float *values, int64_t n) {
    grid g = grid_make(LAYOUT_CONTIGUOUS, 1, n, NAPIER_F32);
    for (int64_t i = 0; i < n; i++) {
        grid_set(&g, 0, i, (double)values[i]);
    }
    return g;
}

/* exp(1000) overflows, exp(-1000) underflows to 0 / 0. */
static void test_naive_overflow_and_underflow(void **state) {
    (void)state;
    static const float rows[][3] = {{1000, 1000, 999}, {-1000, -1000, -1001}, {100, 200, 300}, {1000, -1000, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        grid x = row_of(rows[i], 3);
        check_algorithms(&x, NAPIER_F32, "logits that overflow or underflow exp");
        grid_free(&x);
    }
    no_problems();
}

/* Any number of -inf before the first finite logit: the running maximum starts at -inf. */
static void test_leading_minus_infinity(void **state) {
    (void)state;
    static const int64_t leads[] = {1, 2, 15, 16, 17, 255, 256, 1023, 1024, 1025, 2048, 3000};
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        for (int tail = 0; tail < 2; tail++) {
            const int64_t n = leads[i] + (tail ? 100 : 2);
            grid x = grid_make(LAYOUT_CONTIGUOUS, 1, n, NAPIER_F32);
            for (int64_t j = 0; j < n; j++) {
                grid_set(&x, 0, j, j < leads[i] ? -HUGE_VAL : (double)(j % 5));
            }
            check_algorithms(&x, NAPIER_F32, "a leading -inf");
            grid_free(&x);
        }
    }
    no_problems();
}

static void test_every_dtype(void **state) {
    (void)state;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        grid x = grid_make(LAYOUT_CONTIGUOUS, 4, 2048, all_dtypes[d]);
        grid_fill(&x, ROW_NORMAL, 1);
        check_algorithms(&x, all_dtypes[d], napier_dtype_name(all_dtypes[d]));
        grid_free(&x);
    }
    no_problems();
}

/* Its benchmark's rows are 32768 wide; 16 of its 1024 rows. */
static void test_wide_rows(void **state) {
    (void)state;
    grid x = grid_make(LAYOUT_CONTIGUOUS, 16, 32768, NAPIER_F32);
    grid_fill(&x, ROW_NORMAL, 0);
    check_algorithms(&x, NAPIER_F32, "rows of 32768");
    grid_free(&x);
    no_problems();
}

/* Its reduction: a state per thread, strided over the row, merged as a tree, with states that saw nothing or only -inf.
 * Here the parts are runs of the row. */
static void test_tree_of_states(void **state) {
    (void)state;
    enum { STATES = 32, EACH = 100, N = STATES * EACH };
    float x[N], lse = 0;
    for (int i = 0; i < N; i++) {
        x[i] = i / EACH % 3 == 0 ? -INFINITY : (float)(i % 37) - (float)(i / EACH);
    }
    napier_softmax_state *states[STATES];
    for (int i = 0; i < STATES; i++) {
        succeeded(context, napier_softmax_state_create(context, NAPIER_F32, i * EACH, NULL, &states[i]), "create");
        succeeded(context, napier_softmax_state_update(context, states[i], napier_const_array_f32(x + i * EACH, EACH)),
                  "update");
    }
    for (int offset = 1; offset < STATES; offset *= 2) {
        for (int i = 0; i + offset < STATES; i += 2 * offset) {
            succeeded(context, napier_softmax_state_merge(context, states[i], states[i + offset]), "merge");
        }
    }
    double merged = 0;
    succeeded(context, napier_softmax_state_finish(context, states[0], &merged), "finish");
    succeeded(context, napier_logsumexp(context, napier_const_rows_f32(x, 1, N), napier_array_f32(&lse, 1), NULL),
              "one shot");
    expect(merged == (double)lse, "a tree of 32 states gives %.9g, one call %.9g", merged, (double)lse);
    for (int i = 0; i < STATES; i++) {
        napier_softmax_state_destroy(states[i]);
    }
    no_problems();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naive_overflow_and_underflow),
        cmocka_unit_test(test_leading_minus_infinity),
        cmocka_unit_test(test_every_dtype),
        cmocka_unit_test(test_wide_rows),
        cmocka_unit_test(test_tree_of_states),
    };
    return cmocka_run_group_tests_name("seed_001", tests, set_up, tear_down);
}
