/* tests/cuda/test_cuda_sparsemax.c - sparsemax and its gradient on a device: every byte is what the CPU's calls leave. */
#include "both.h"

/* The result, then the gradient with respect to a matrix of ordinary numbers, in place of the result. */
static void compare(int64_t rows, int64_t cols, napier_dtype in, napier_dtype out, layout l, uint64_t seed) {
    const napier_softmax_options o =
        options_of(seed % 2 ? 1.0 : 0.3, NAPIER_ALGORITHM_AUTO, (napier_masked_rows)(seed / 2 % 2));
    grid x = grid_new(l, rows, cols, in), g = grid_new(LAYOUT_TRANSPOSED, rows, cols, in);
    grid_fill(&x, rows < ROW_KINDS ? ROW_NORMAL : ROW_KINDS, seed);
    grid_fill(&g, ROW_NORMAL, seed);
    const napier_const_matrix logits = grid_input(&x), grad = grid_input(&g);
    const napier_matrix y = grid_new(LAYOUT_PADDED, rows, cols, out).view;
    both_case("sparsemax %lld x %lld %s (%s) to %s", (long long)rows, (long long)cols, napier_dtype_name(in),
              layout_name(l), napier_dtype_name(out));
    SAME(sparsemax, logits, y, &o);
    if (in == out) {
        SAME(sparsemax_backward, napier_read_only(y), grad, y, &o);
    }
    arrays_free();
}

static void test_shapes(void) {
    static const int64_t cols[] = {1, 2, 17, 255, 256, 257, 1025, 3000};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        for (int d = 0; d < DTYPE_COUNT * DTYPE_COUNT; d++) {
            const uint64_t seed = i + (uint64_t)d;
            compare(d % 5 == 0 ? 2 * ROW_KINDS : 2, cols[i], all_dtypes[d / DTYPE_COUNT], all_dtypes[d % DTYPE_COUNT],
                    (layout)(seed % LAYOUTS), seed);
        }
    }
    compare(1, 50257, NAPIER_F32, NAPIER_F32, LAYOUT_CONTIGUOUS, 1);
}

static void test_arguments(void) {
    float *const x = array_new(64), *const y = array_new(64);
    const napier_const_matrix in = napier_const_rows_f32(x, 2, 8), none = napier_const_rows_f32(NULL, 0, 8);
    const napier_matrix out = napier_rows_f32(y, 2, 8);
    const napier_softmax_options o = options_of(-1.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    bad(through_sparsemax(cpu, in, out, &o), "temperature -1");
    bad(through_sparsemax(cpu, in, napier_rows_f32(y, 1, 8), NULL), "probs: shape 1 x 8");
    bad(through_sparsemax_backward(cpu, in, none, out, NULL), "grad_probs: shape 0 x 8");
    fine(through_sparsemax(cpu, none, napier_rows_f32(NULL, 0, 8), NULL));
}

int main(void) { return BOTH_TESTS("cuda_sparsemax", TEST(test_shapes), TEST(test_arguments)); }
