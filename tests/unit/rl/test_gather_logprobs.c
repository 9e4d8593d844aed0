/* gather_logprobs and its gradient: every layout and dtype, widening, hostile ids. */
#include "support/check.h"

#include <math.h>
#include <napier/rl.h>

#include "support/formats.h"

static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_BF16, NAPIER_F16};

static int32_t *some_ids(int64_t rows, int64_t cols) {
    int32_t *ids = scratch(rows, sizeof *ids);
    rng r = rng_make(7);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)(i % 5 == 0 ? 0 : i % 5 == 1 ? cols - 1 : rng_below(&r, cols));
    }
    return ids;
}

static void test_gather(void) {
    for (layout l = 0; l < LAYOUTS; l++) {
        for (int d = 0; d < 9; d++) {
            const int64_t rows = l == 0 ? 40000 : 300, cols = l == 0 ? 3 : 50;
            napier_context *context = context_for_test(NAPIER_ISA_AUTO, 1 + (int)(l % 3));
            grid g = grid_make(l, rows, cols, dtypes[d % 3]);
            grid out = grid_make(d % 2 ? LAYOUT_EVERY_OTHER : LAYOUT_COLUMNS_REVERSED, 1, rows, dtypes[d / 3]);
            grid_fill(&g, ROW_KINDS, 2);
            int32_t *ids = some_ids(rows, cols);
            const napier_vector y = {out.view.data, rows, out.view.col_stride, out.view.dtype};
            works(napier_gather_logprobs, context, grid_input(&g), napier_indices_i32(ids, rows), y);
            for (int64_t i = 0; i < rows; i++) {
                const double x = grid_get(&g, i, ids[i]);
                const uint64_t bits = isnan(x) ? dtype_canonical_nan(dtypes[d / 3]) : dtype_bits(dtypes[d / 3], x);
                expect(grid_bits(&out, 0, i) == bits, "row %lld: %g is not %g", (long long)i, grid_get(&out, 0, i), x);
            }
            expect(grid_damage(&out) == 0, "written beside the result");
        }
    }
}

static void test_gather_backward(void) {
    for (layout l = 0; l < LAYOUTS; l++) {
        for (int d = 0; d < 3; d++) {
            const int64_t rows = 60, cols = l == 0 ? 2000 : 40;
            napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
            grid g = grid_make(LAYOUT_EVERY_OTHER, 1, rows, dtypes[(d + 1) % 3]);
            grid out = grid_make(l, rows, cols, dtypes[d]);
            grid_fill(&g, ROW_NORMAL, 2);
            int32_t *ids = some_ids(rows, cols);
            const napier_const_vector x = {g.view.data, rows, g.view.col_stride, g.view.dtype};
            works(napier_gather_logprobs_backward, context, x, napier_indices_i32(ids, rows), out.view);
            for (int64_t i = 0; i < rows * cols; i++) {
                const double wanted = i % cols == ids[i / cols] ? grid_get(&g, 0, i / cols) : 0;
                expect(grid_bits(&out, i / cols, i % cols) == dtype_bits(dtypes[d], wanted), "[%lld]: %g is not %g",
                       (long long)i, grid_get(&out, i / cols, i % cols), wanted);
            }
            expect(grid_damage(&out) == 0, "written beside the result");
        }
    }
}

static void test_gather_arguments(napier_context *context) {
    float x[12] = {0}, y[4] = {7, 7, 7, 7};
    int64_t ids[3] = {0, 3, 4};
    const napier_const_matrix logprobs = napier_const_rows_f32(x, 3, 4);
    const napier_vector out = napier_array_f32(y, 3);
    const napier_indices i = napier_indices_i64(ids, 3);
    invalid(context, napier_gather_logprobs(context, logprobs, i, out), "ids[2] is 4");
    ids[2] = -5;
    invalid(context, napier_gather_logprobs(context, logprobs, i, out), "ids[2] is -5");
    invalid(context,
            napier_gather_logprobs_backward(context, napier_const_array_f32(y, 3), i, napier_rows_f32(x, 3, 4)),
            "ids[2] is -5");
    ids[2] = 1;
    expect(y[0] == 7 && y[1] == 7 && y[2] == 7, "written on an error");
    invalid(context, napier_gather_logprobs(context, logprobs, napier_indices_i64(ids, 2), out), "ids", "2");
    invalid(context, napier_gather_logprobs(context, logprobs, i, napier_array_f32(y, 2)), "gathered", "2");
    invalid(context, napier_gather_logprobs(context, logprobs, i, napier_array_f32(x + 1, 3)), "gathered", "logprobs");
    invalid(context, napier_gather_logprobs(context, napier_const_rows(x, 1, 1, NAPIER_F64), i, out), "logprobs",
            "f64");
    invalid(context,
            napier_gather_logprobs_backward(context, napier_const_array_f32(x + 1, 3), i, napier_rows_f32(x, 3, 4)),
            "grad_logprobs");
}

int main(void) {
    return RUN_TESTS("gather_logprobs", TEST(test_gather), TEST(test_gather_backward), TEST_1(test_gather_arguments));
}
