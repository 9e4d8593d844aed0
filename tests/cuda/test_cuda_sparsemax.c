/* tests/cuda/test_cuda_sparsemax.c - sparsemax and its gradient on a device: the bytes that the CPU's calls leave, those
 * between the elements included. */
#include <napier/cuda/sparsemax.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_test.h"
#include "support/check.h"
#include "support/formats.h"

static napier_cuda_context *device;
static napier_context *host;

static napier_matrix mirror_of(const grid *g, void **memory) {
    napier_matrix m = g->view;
    *memory = device_copy(g->memory, g->bytes);
    m.data = (char *)*memory + ((unsigned char *)g->view.data - g->memory);
    return m;
}

static void same_bytes(const grid *expected, const void *got, const char *what) {
    unsigned char *const bytes = room_for((int64_t)expected->bytes, 1);
    size_t i = 0;
    device_read(bytes, got, expected->bytes);
    while (i < expected->bytes && bytes[i] == expected->memory[i]) {
        i++;
    }
    expect(i == expected->bytes, "%s %lld x %lld %s: byte %zu", what, (long long)expected->view.rows,
           (long long)expected->view.cols, napier_dtype_name(expected->view.dtype), i);
    free(bytes);
}

/* The result, then the gradient with respect to a matrix of ordinary numbers. */
static void compare(int64_t rows, int64_t cols, napier_dtype in, napier_dtype out, layout l, uint64_t seed) {
    const napier_softmax_options o =
        options_of(seed % 2 ? 1.0 : 0.3, NAPIER_ALGORITHM_AUTO, (napier_masked_rows)(seed / 2 % 2));
    grid x = grid_make(l, rows, cols, in), y = grid_make(LAYOUT_PADDED, rows, cols, out);
    grid g = grid_make(LAYOUT_TRANSPOSED, rows, cols, in);
    grid_fill(&x, rows < ROW_KINDS ? ROW_NORMAL : ROW_KINDS, seed);
    grid_fill(&g, ROW_NORMAL, seed);
    void *dx, *dy, *dg;
    const napier_matrix mx = mirror_of(&x, &dx), my = mirror_of(&y, &dy), mg = mirror_of(&g, &dg);
    napier_cuda_workspace w = {NULL, 1};
    device_order(seed);
    succeeded(host, napier_sparsemax(host, grid_input(&x), y.view, &o), "sparsemax");
    expect(!napier_cuda_sparsemax(device, NULL, &w, napier_read_only(mx), my, &o) && w.size == 0, "asks for %zu",
           w.size);
    expect(!napier_cuda_sparsemax(device, NULL, NULL, napier_read_only(mx), my, &o), "%s",
           napier_cuda_last_error(device));
    same_bytes(&y, dy, "sparsemax");
    if (in == out) {
        succeeded(host, napier_sparsemax_backward(host, grid_input(&y), grid_input(&g), y.view, &o), "backward");
        expect(!napier_cuda_sparsemax_backward(device, NULL, NULL, napier_read_only(my), napier_read_only(mg), my, &o),
               "%s", napier_cuda_last_error(device));
        same_bytes(&y, dy, "backward, in place");
    }
    expect(!napier_cuda_synchronize(device, NULL), "%s", napier_cuda_last_error(device));
    same_bytes(&x, dx, "the logits");
    device_free(dx);
    device_free(dy);
    device_free(dg);
    grid_free(&x);
    grid_free(&y);
    grid_free(&g);
}

static void test_shapes(void **state) {
    (void)state;
    static const int64_t cols[] = {1, 2, 17, 255, 256, 257, 1025, 3000};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        for (int d = 0; d < DTYPE_COUNT * DTYPE_COUNT; d++) {
            const uint64_t seed = i + (uint64_t)d;
            compare(d % 5 == 0 ? 2 * ROW_KINDS : 2, cols[i], all_dtypes[d / DTYPE_COUNT], all_dtypes[d % DTYPE_COUNT],
                    (layout)(seed % LAYOUTS), seed);
        }
    }
    compare(1, 50257, NAPIER_F32, NAPIER_F32, LAYOUT_CONTIGUOUS, 1);
    no_problems();
}

static void refused_with(napier_status status, const char *text) {
    expect(status == NAPIER_INVALID_ARGUMENT && strstr(napier_cuda_last_error(device), text), "status %d: %s, not %s",
           (int)status, napier_cuda_last_error(device), text);
}

static void test_arguments(void **state) {
    (void)state;
    float *const x = device_new(64), *const y = device_new(64);
    const napier_const_matrix in = napier_const_rows_f32(x, 2, 8), none = napier_const_rows_f32(NULL, 0, 8);
    const napier_matrix out = napier_rows_f32(y, 2, 8);
    napier_softmax_options o = options_of(-1.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    assert_int_equal(napier_cuda_sparsemax(NULL, NULL, NULL, in, out, NULL), NAPIER_INVALID_ARGUMENT);
    refused_with(napier_cuda_sparsemax(device, NULL, NULL, in, out, &o), "temperature -1");
    refused_with(napier_cuda_sparsemax(device, NULL, NULL, in, napier_rows_f32(y, 1, 8), NULL), "probs: shape 1 x 8");
    refused_with(napier_cuda_sparsemax_backward(device, NULL, NULL, in, none, out, NULL), "grad_probs: shape 0 x 8");
    assert_int_equal(napier_cuda_sparsemax(device, NULL, NULL, none, napier_rows_f32(NULL, 0, 8), NULL), NAPIER_OK);
    device_free(x);
    device_free(y);
    no_problems();
}

static int make_contexts(void **state) {
    (void)state;
    host = context_of(NAPIER_ISA_AUTO, 1);
    return napier_cuda_context_create(&device, -1) != NAPIER_OK;
}

static int drop_contexts(void **state) {
    (void)state;
    napier_context_destroy(host);
    napier_cuda_context_destroy(device);
    return 0;
}

int main(void) {
    device_wanted();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_arguments)};
    return cmocka_run_group_tests(tests, make_contexts, drop_contexts);
}
