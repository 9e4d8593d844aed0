/* test_signed_zeros - -0 and +0 are one value: every public call (support/calls.h) gives the same bits when half of the
 * zeros of its input are -0, in all instruction sets. Only the sign of a zero may differ in the results, because a result
 * may be an element. softmax and its relatives also for rows of few columns, alone and in a batch, in all layouts and
 * dtypes. */
#include <stdio.h>
#include <string.h>

#include "support/calls.h"
#include "support/check.h"
#include "support/formats.h"

/* Do the words differ in more than the signs of zeros? A word is a float, half of a double, or two numbers of 16 bits. */
static bool word_differs(uint32_t a, uint32_t b) {
    const uint32_t change = a ^ b, high = a >> 16 & 0x7fff, low = a & 0x7fff;
    const bool is_zero = change == 0x80000000u && high == 0;
    return change != 0 && !is_zero &&
           ((change >> 16 && (change >> 16 != 0x8000 || high)) ||
            ((change & 0xffff) && ((change & 0xffff) != 0x8000 || low)));
}

static int64_t first_difference(const unsigned char *a, const unsigned char *b) {
    for (int64_t i = 0; i < CALL_RESULT_BYTES; i += 4) {
        uint32_t u, v;
        memcpy(&u, a + i, sizeof u);
        memcpy(&v, b + i, sizeof v);
        if (word_differs(u, v)) {
            return i / 4;
        }
    }
    return -1;
}

static void test_every_call(void) {
    static unsigned char wanted[CALL_RESULT_BYTES];
    calls_open("test_signed_zeros.tmp");
    for (int i = 0; i < calls_count(); i++) {
        napier_context *context;
        const char *const name = call_at(i).name;
        if (strncmp(name, "state_use", 9) == 0 || strcmp(name, "fit_and_use") == 0) {
            continue; /* they also save elements of their input, and a checksum */
        }
        for (int run = 0; (context = context_of_run(run)) != NULL; run++) {
            for (int signs = 0; signs < 2; signs++) {
                calls_set_zeros(signs);
                const public_call call = call_at(i);
                const napier_status status = call_run(&call, context);
                if (signs == 0 && (run == 0 || call.flags & CALL_BY_THREADS)) {
                    memcpy(wanted, call_result, sizeof wanted);
                }
                const int64_t at = first_difference(wanted, call_result);
                expect(status == NAPIER_OK && at < 0, "%s: run %d, signs %d, status %d, word %lld", call.name, run,
                       signs, (int)status, (long long)at);
            }
        }
    }
    calls_close();
}

/* ---- Softmax in every layout ---------------------------------------------------------------------------------------- */

/* Rows whose maximum is a zero in half of them; one in nine has a NaN. other: zeros and NaNs have other bits. */
static void fill(grid *g, uint64_t seed, bool other) {
    static const uint64_t nans[2][4] = {{0x7fc00000, 0x7e00, 0x7fc0, 0x7ff8000000000000}, /* f32, f16, bf16, f64 */
                                        {0xffc12345, 0xfe41, 0xff81, 0xfff0000000000007}};
    const napier_dtype dtype = g->view.dtype;
    const int of = dtype == NAPIER_F32 ? 0 : dtype == NAPIER_F16 ? 1 : dtype == NAPIER_BF16 ? 2 : 3;
    rng r = rng_make(seed);
    for (int64_t i = 0; i < g->view.rows; i++) {
        for (int64_t j = 0; j < g->view.cols; j++) {
            const uint64_t bits = rng_bits(&r);
            const double rest = (i % 2 ? -1.0 : 1.0) * (double)(bits >> 8 & 255) / 64.0;
            grid_set(g, i, j, bits % 3 == 0 ? (other && bits & 16 ? -0.0 : 0.0) : rest);
        }
        if (i % 9 == 4) {
            const int64_t at = i * g->view.row_stride + rng_below(&r, g->view.cols) * g->view.col_stride;
            element_set_bits(g->view.data, dtype, at, nans[other][of]);
        }
    }
}

static void check_grid(napier_context *plain, napier_context *context, operation op, layout how, int64_t rows,
                       int64_t cols, napier_dtype dtype) {
    const napier_softmax_options options = options_of(rows % 2 ? 1.0 : 0.7, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const int64_t out_rows = operation_rows(op, rows), out_cols = operation_cols(op, cols);
    grid in = grid_plain(rows, cols, dtype), changed = grid_make(how, rows, cols, dtype);
    grid wanted = grid_plain(out_rows, out_cols, dtype), got = grid_make(how, out_rows, out_cols, dtype);
    fill(&in, (uint64_t)cols, false);
    fill(&changed, (uint64_t)cols, true);
    succeeded(plain, operation_run(plain, op, grid_input(&in), wanted.view, &options), "plain");
    succeeded(context, operation_run(context, op, grid_input(&changed), got.view, &options), "changed");
    char what[96];
    snprintf(what, sizeof what, "%s, %s, %s, %d x %d", operation_name(op), layout_name(how), napier_dtype_name(dtype),
             (int)rows, (int)cols);
    grid_differences(&got, &wanted, what);
    for (int64_t i = 0; i < rows && op != OP_LOGSUMEXP_ALL; i += 7) { /* alone */
        grid one = grid_plain(1, cols, dtype), result = grid_plain(1, out_cols, dtype);
        for (int64_t j = 0; j < cols; j++) {
            element_set_bits(one.view.data, dtype, j, grid_bits(&changed, i, j));
        }
        succeeded(context, operation_run(context, op, grid_input(&one), result.view, &options), "alone");
        for (int64_t j = 0; j < out_cols; j++) {
            expect(grid_bits(&result, 0, j) == grid_bits(&wanted, i, j), "%s: row %d alone, element %d", what, (int)i,
                   (int)j);
        }
        grid_free(&one);
        grid_free(&result);
    }
    grid_free(&in);
    grid_free(&changed);
    grid_free(&wanted);
    grid_free(&got);
}

static void test_softmax_in_every_layout(void) {
    static const int64_t sizes[] = {2, 3, 4, 7, 8, 13, 16, 17, 33, 100, 256, 300, 1024, 1500, 3000};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};
    napier_context *const plain = context_of_run(0), *context;
    for (int run = 0; (context = context_of_run(run)) != NULL; run++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (int l = 0; l < LAYOUTS; l++) {
                const int64_t rows = sizes[s] > 500 ? 18 : 75;
                const napier_dtype dtype = dtypes[(s + (size_t)l) % 4];
                for (int op = 0; op < OPERATIONS; op++) {
                    check_grid(plain, context, (operation)op, (layout)l, rows + l % 2, sizes[s], NAPIER_F32);
                    check_grid(plain, context, (operation)op, (layout)l, rows + l % 2, sizes[s], dtype);
                }
            }
        }
    }
}

int main(void) { return RUN_TESTS("signed_zeros", TEST(test_every_call), TEST(test_softmax_in_every_layout)); }
