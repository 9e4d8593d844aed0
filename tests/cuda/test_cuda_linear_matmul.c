/* tests/cuda/test_cuda_linear_matmul.c - napier_cuda_matmul: the CPU's bits by multiply-adds; on tensor cores within
 * the bound of a float64 product, and the same bits for a row wherever it stands. */
#include <math.h>
#include <napier/linear.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_test.h"
#include "support/check.h"

static napier_cuda_context *context;
static napier_context *cpu;

/* ---- Matrices on the device -------------------------------------------------------------------------------------- */

static void *grid_to_device(const grid *g, napier_matrix *view) {
    char *const device = device_copy(g->memory, g->bytes);
    *view = g->view;
    view->data = device + ((const unsigned char *)g->view.data - g->memory);
    return device;
}

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* kind 0: ordinary numbers; 1: all exponents, zeros of both signs; 2: products around the smallest normal number;
 * 3: a few specials. */
static double number(int kind, uint64_t *state) {
    const double unit = (double)next(state) * 0x1p-30 - 1.0;
    const int e = (int)(next(state) % 256);
    switch (kind) {
    case 1: return e < 16 ? copysign(0.0, unit) : ldexp(unit, e - 140);
    case 2: return ldexp(unit, -(e % 6) - 61);
    case 3: return e == 0 ? (double)NAN : e == 1 ? (double)INFINITY : e == 2 ? -(double)INFINITY : unit;
    default: return unit;
    }
}

static void fill(grid *g, int kind, uint64_t seed) {
    for (int64_t r = 0; r < g->view.rows; r++) {
        for (int64_t c = 0; c < g->view.cols; c++) {
            grid_set(g, r, c, number(kind, &seed));
        }
    }
}

typedef struct product_case {
    int64_t m, k, n;
    napier_dtype a, b, out;
    layout la, lb, lo;
    int kind;
} product_case;

static const char *told(const product_case *c, napier_cuda_mode mode) {
    static char text[256];
    (void)snprintf(text, sizeof text, "%lld x %lld x %lld %s %s by %s %s to %s %s, numbers %d, mode %d",
                   (long long)c->m, (long long)c->k, (long long)c->n, napier_dtype_name(c->a), layout_name(c->la),
                   napier_dtype_name(c->b), layout_name(c->lb), napier_dtype_name(c->out), layout_name(c->lo), c->kind,
                   (int)mode);
    return text;
}

/* The product on the device, into a grid of its own. */
static grid product_of(const grid *a, const grid *b, const product_case *c, napier_cuda_mode mode) {
    grid out = grid_make(c->lo, c->m, c->n, c->out);
    napier_matrix on_a, on_b, on_out;
    void *const memory[3] = {grid_to_device(a, &on_a), grid_to_device(b, &on_b), grid_to_device(&out, &on_out)};
    const napier_status status =
        napier_cuda_matmul(context, NULL, NULL, napier_read_only(on_a), napier_read_only(on_b), on_out, mode);
    expect(status == NAPIER_OK, "%s: %s", told(c, mode), napier_cuda_last_error(context));
    device_read(out.memory, memory[2], out.bytes);
    expect(grid_damage(&out) == 0, "%s: bytes beside the product", told(c, mode));
    for (int i = 0; i < 3; i++) {
        device_free(memory[i]);
    }
    return out;
}

static void check_bits(const product_case *c, uint64_t seed, napier_cuda_mode mode) {
    grid a = grid_make(c->la, c->m, c->k, c->a), b = grid_make(c->lb, c->k, c->n, c->b);
    grid expected = grid_make(c->lo, c->m, c->n, c->out);
    fill(&a, c->kind, seed);
    fill(&b, c->kind, seed + 1);
    succeeded(cpu, napier_matmul(cpu, grid_input(&a), grid_input(&b), expected.view), "the CPU's product");
    device_order(seed);
    grid got = product_of(&a, &b, c, mode);
    grid_differences(&got, &expected, told(c, mode));
    grid_free(&a), grid_free(&b), grid_free(&expected), grid_free(&got);
}

static void test_bits(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},     {3, 0, 2},      {1, 70, 129},   {128, 16, 128}, {129, 17, 65},
                                        {64, 64, 200}, {130, 33, 131}, {257, 100, 64}, {5, 320, 3}};
    const napier_dtype types[3] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    for (int i = 0; i < 54; i++) {
        const int64_t *const s = shapes[i % 9];
        const product_case c = {.m = s[0],
                                .k = s[1],
                                .n = s[2],
                                .a = types[i % 3],
                                .b = types[i / 3 % 3],
                                .out = types[i / 7 % 3],
                                .la = (layout)(i % LAYOUTS),
                                .lb = (layout)((i / 2) % LAYOUTS),
                                .lo = (layout)((i / 3) % LAYOUTS),
                                .kind = i % 4};
        check_bits(&c, (uint64_t)i, NAPIER_CUDA_BITWISE);
    }
    no_problems();
}

/* bf16 by bf16, where subnormals count as 0. */
static void test_pairs(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < 3; i++) {
            const product_case c = {.m = 40 + 60 * i,
                                    .k = (int64_t[]){32, 96, 71}[i],
                                    .n = 70,
                                    .a = NAPIER_BF16,
                                    .b = NAPIER_BF16,
                                    .out = NAPIER_F32,
                                    .la = i == 1 ? LAYOUT_TRANSPOSED : LAYOUT_CONTIGUOUS,
                                    .lb = i == 1 ? LAYOUT_CONTIGUOUS : LAYOUT_TRANSPOSED,
                                    .kind = kind};
            check_bits(&c, (uint64_t)(10 * kind + i), NAPIER_CUDA_BITWISE);
        }
    }
    no_problems();
}

/* What tensor cores cannot do has the CPU's bits in either mode. */
static void test_other_types(void **state) {
    (void)state;
    const product_case c = {.m = 20, .k = 40, .n = 30, .a = NAPIER_F32, .b = NAPIER_BF16, .out = NAPIER_F32};
    check_bits(&c, 1, NAPIER_CUDA_BATCH_INVARIANT);
    no_problems();
}

/* ---- Tensor cores ------------------------------------------------------------------------------------------------ */

static void check_near(const grid *a, const grid *b, const grid *got, const product_case *c) {
    const double unit = c->out == NAPIER_F32 ? 0x1p-24 : c->out == NAPIER_F16 ? 0x1p-11 : 0x1p-8;
    for (int64_t i = 0; i < c->m; i++) {
        for (int64_t j = 0; j < c->n; j++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < c->k; k++) {
                const double x = grid_get(a, i, k) * grid_get(b, k, j);
                sum += x;
                size += fabs(x);
            }
            const double error = fabs(grid_get(got, i, j) - sum), bound = (double)(c->k + 16) * 0x1p-22 * size;
            if (!expect(error <= bound + fabs(sum) * unit, "%s: (%lld, %lld) is %g, not %g",
                        told(c, NAPIER_CUDA_BATCH_INVARIANT), (long long)i, (long long)j, grid_get(got, i, j), sum)) {
                return;
            }
        }
    }
}

static void test_tensor_cores(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},    {130, 72, 136}, {128, 200, 128},
                                        {17, 64, 40}, {8, 0, 9},      {9, 129, 1}};
    static const layout layouts[] = {LAYOUT_CONTIGUOUS, LAYOUT_TRANSPOSED, LAYOUT_PADDED, LAYOUT_OFFSET};
    for (int i = 0; i < 24; i++) {
        const int64_t *const s = shapes[i % 6];
        const product_case c = {.m = s[0],
                                .k = s[1],
                                .n = s[2],
                                .a = i % 2 ? NAPIER_F16 : NAPIER_BF16,
                                .b = i % 2 ? NAPIER_F16 : NAPIER_BF16,
                                .out = (napier_dtype[]){NAPIER_F32, NAPIER_BF16, NAPIER_F16}[i % 3],
                                .la = layouts[i / 6],
                                .lb = layouts[(i + i / 6) % 4],
                                .lo = layouts[i % 4]};
        grid a = grid_make(c.la, c.m, c.k, c.a), b = grid_make(c.lb, c.k, c.n, c.b);
        fill(&a, 0, (uint64_t)i);
        fill(&b, 0, (uint64_t)i + 100);
        device_order((uint64_t)i);
        grid got = product_of(&a, &b, &c, NAPIER_CUDA_BATCH_INVARIANT);
        check_near(&a, &b, &got, &c);
        grid_free(&a), grid_free(&b), grid_free(&got);
    }
    no_problems();
}

/* A row alone, and at each of several places in a batch of strangers. */
static void test_batches(void **state) {
    (void)state;
    enum { M = 150, K = 100, N = 130 };
    const product_case many = {.m = M, .k = K, .n = N, .a = NAPIER_BF16, .b = NAPIER_BF16, .out = NAPIER_F32};
    product_case alone = many;
    grid a = grid_make(LAYOUT_CONTIGUOUS, M, K, NAPIER_BF16), b = grid_make(LAYOUT_CONTIGUOUS, K, N, NAPIER_BF16);
    fill(&a, 0, 1);
    fill(&b, 0, 2);
    grid all = product_of(&a, &b, &many, NAPIER_CUDA_BATCH_INVARIANT);
    alone.m = 1;
    for (int64_t row = 0; row < M; row += 37) {
        grid one = grid_make(LAYOUT_OFFSET, 1, K, NAPIER_BF16);
        for (int64_t k = 0; k < K; k++) {
            grid_set(&one, 0, k, grid_get(&a, row, k));
        }
        grid got = product_of(&one, &b, &alone, NAPIER_CUDA_BATCH_INVARIANT);
        for (int64_t j = 0; j < N; j++) {
            expect(grid_bits(&got, 0, j) == grid_bits(&all, row, j), "row %lld alone differs at %lld", (long long)row,
                   (long long)j);
        }
        grid_free(&one), grid_free(&got);
    }
    grid_free(&a), grid_free(&b), grid_free(&all);
    no_problems();
}

static void test_errors(void **state) {
    (void)state;
    float *const x = device_new(64);
    const napier_const_matrix a = napier_const_rows_f32(x, 2, 3), b = napier_const_rows_f32(x, 3, 2);
    const napier_matrix out = napier_rows_f32(x + 8, 2, 2);
    napier_cuda_workspace ask = {NULL, 7};
    assert_int_equal(napier_cuda_matmul(NULL, NULL, NULL, a, b, out, NAPIER_CUDA_BITWISE), NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_cuda_matmul(context, NULL, NULL, a, a, out, NAPIER_CUDA_BITWISE), NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(napier_cuda_last_error(context), "b: rows 2"));
    assert_int_equal(napier_cuda_matmul(context, NULL, NULL, a, b, out, (napier_cuda_mode)2), NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(napier_cuda_last_error(context), "mode: 2"));
    assert_int_equal(napier_cuda_matmul(context, NULL, &ask, a, b, out, NAPIER_CUDA_BITWISE), NAPIER_OK);
    assert_int_equal(ask.size, 0);
    device_free(x);
}

int main(void) {
    device_wanted();
    if (napier_cuda_context_create(&context, 0) || napier_context_create(&cpu, NULL)) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),         cmocka_unit_test(test_pairs),   cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_tensor_cores), cmocka_unit_test(test_batches), cmocka_unit_test(test_errors),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    napier_cuda_context_destroy(context);
    napier_context_destroy(cpu);
    return failed;
}
