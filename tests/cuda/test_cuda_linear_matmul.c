/* tests/cuda/test_cuda_linear_matmul.c - napier_cuda_matmul: the CPU's bits by multiply-adds; on tensor cores within
 * the bound of a float64 product, and the same bits for a row wherever it stands. */
#include "both.h"

/* kind 0: ordinary numbers; 1: all exponents, zeros of both signs; 2: products around the smallest normal number;
 * 3: a few specials. */
static double number(int kind, rng *r) {
    const double unit = 2.0 * rng_uniform(r) - 1.0;
    const int e = (int)rng_below(r, 256);
    switch (kind) {
    case 1: return e < 16 ? copysign(0.0, unit) : ldexp(unit, e - 140);
    case 2: return ldexp(unit, -(e % 6) - 61);
    case 3: return e == 0 ? (double)NAN : e == 1 ? (double)INFINITY : e == 2 ? -(double)INFINITY : unit;
    default: return unit;
    }
}

static grid numbers(layout l, int64_t rows, int64_t cols, napier_dtype dtype, int kind, uint64_t seed) {
    grid g = grid_new(l, rows, cols, dtype);
    rng r = rng_make(seed);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            grid_set(&g, i, j, number(kind, &r));
        }
    }
    return g;
}

typedef struct product_case {
    int64_t m, k, n;
    napier_dtype a, b, out;
    layout la, lb, lo;
    int kind;
} product_case;

typedef struct product {
    grid a, b, out;
} product;

static product make_product(const product_case *c, uint64_t seed) {
    both_case("%lld x %lld x %lld %s %s by %s %s to %s %s, numbers %d, mode %d", (long long)c->m, (long long)c->k,
              (long long)c->n, napier_dtype_name(c->a), layout_name(c->la), napier_dtype_name(c->b), layout_name(c->lb),
              napier_dtype_name(c->out), layout_name(c->lo), c->kind, (int)through_mode);
    device_order(seed);
    return (product){numbers(c->la, c->m, c->k, c->a, c->kind, seed),
                     numbers(c->lb, c->k, c->n, c->b, c->kind, seed + 100), grid_new(c->lo, c->m, c->n, c->out)};
}

static void check_bits(const product_case *c, uint64_t seed) {
    const product p = make_product(c, seed);
    SAME(matmul, grid_input(&p.a), grid_input(&p.b), p.out.view);
    arrays_free();
}

static void test_bits(void) {
    static const int64_t shapes[][3] = {{1, 1, 1},     {3, 0, 2},      {1, 70, 129},   {128, 16, 128}, {129, 17, 65},
                                        {64, 64, 200}, {130, 33, 131}, {257, 100, 64}, {5, 320, 3}};
    const napier_dtype types[3] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    through_mode = NAPIER_CUDA_BITWISE;
    for (int i = 0; i < 54; i++) {
        const int64_t *const s = shapes[i % 9];
        const product_case c = {s[0],
                                s[1],
                                s[2],
                                types[i % 3],
                                types[i / 3 % 3],
                                types[i / 7 % 3],
                                (layout)(i % LAYOUTS),
                                (layout)(i / 2 % LAYOUTS),
                                (layout)(i / 3 % LAYOUTS),
                                i % 4};
        check_bits(&c, (uint64_t)i);
    }
}

/* bf16 by bf16, where subnormals count as 0. */
static void test_pairs(void) {
    through_mode = NAPIER_CUDA_BITWISE;
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < 3; i++) {
            const product_case c = {40 + 60 * i,
                                    (int64_t[]){32, 96, 71}[i],
                                    70,
                                    NAPIER_BF16,
                                    NAPIER_BF16,
                                    NAPIER_F32,
                                    i == 1 ? LAYOUT_TRANSPOSED : LAYOUT_CONTIGUOUS,
                                    i == 1 ? LAYOUT_CONTIGUOUS : LAYOUT_TRANSPOSED,
                                    LAYOUT_CONTIGUOUS,
                                    kind};
            check_bits(&c, (uint64_t)(10 * kind + i));
        }
    }
}

/* What tensor cores cannot do has the CPU's bits in either mode. */
static void test_other_types(void) {
    const product_case c = {.m = 20, .k = 40, .n = 30, .a = NAPIER_F32, .b = NAPIER_BF16, .out = NAPIER_F32};
    through_mode = NAPIER_CUDA_BATCH_INVARIANT;
    check_bits(&c, 1);
}

/* ---- Tensor cores ------------------------------------------------------------------------------------------------ */

static void check_near(const product *p, const product_case *c) {
    const double unit = c->out == NAPIER_F32 ? 0x1p-24 : c->out == NAPIER_F16 ? 0x1p-11 : 0x1p-8;
    for (int64_t i = 0; i < c->m; i++) {
        for (int64_t j = 0; j < c->n; j++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < c->k; k++) {
                const double x = grid_get(&p->a, i, k) * grid_get(&p->b, k, j);
                sum += x;
                size += fabs(x);
            }
            const double got = grid_get(&p->out, i, j), bound = (double)(c->k + 16) * 0x1p-22 * size;
            expect(fabs(got - sum) <= bound + fabs(sum) * unit, "%lld x %lld x %lld: (%lld, %lld) is %g, not %g",
                   (long long)c->m, (long long)c->k, (long long)c->n, (long long)i, (long long)j, got, sum);
        }
    }
    expect(grid_damage(&p->out) == 0, "bytes beside the product");
}

static void test_tensor_cores(void) {
    static const int64_t shapes[][3] = {{1, 1, 1},    {130, 72, 136}, {128, 200, 128},
                                        {17, 64, 40}, {8, 0, 9},      {9, 129, 1}};
    static const layout layouts[] = {LAYOUT_CONTIGUOUS, LAYOUT_TRANSPOSED, LAYOUT_PADDED, LAYOUT_OFFSET};
    through_mode = NAPIER_CUDA_BATCH_INVARIANT;
    for (int i = 0; i < 24; i++) {
        const int64_t *const s = shapes[i % 6];
        const napier_dtype in = i % 2 ? NAPIER_F16 : NAPIER_BF16,
                           out = (napier_dtype[]){NAPIER_F32, NAPIER_BF16, NAPIER_F16}[i % 3];
        const product_case c = {s[0],           s[1], s[2], in, in, out, layouts[i / 6], layouts[(i + i / 6) % 4],
                                layouts[i % 4], 0};
        const product p = make_product(&c, (uint64_t)i);
        fine(through_matmul(cpu, grid_input(&p.a), grid_input(&p.b), p.out.view));
        check_near(&p, &c);
        arrays_free();
    }
}

/* A row alone, and at each of several places in a batch of strangers. */
static void test_batches(void) {
    enum { M = 150, K = 100, N = 130 };
    const product_case many = {.m = M, .k = K, .n = N, .a = NAPIER_BF16, .b = NAPIER_BF16, .out = NAPIER_F32};
    through_mode = NAPIER_CUDA_BATCH_INVARIANT;
    const product all = make_product(&many, 1);
    const napier_const_matrix b = grid_input(&all.b);
    grid one = grid_new(LAYOUT_OFFSET, 1, K, NAPIER_BF16);
    const grid got = grid_new(LAYOUT_CONTIGUOUS, 1, N, NAPIER_F32);
    fine(through_matmul(cpu, grid_input(&all.a), b, all.out.view));
    for (int64_t row = 0; row < M; row += 37) {
        for (int64_t k = 0; k < K; k++) {
            grid_set(&one, 0, k, grid_get(&all.a, row, k));
        }
        fine(through_matmul(cpu, grid_input(&one), b, got.view));
        for (int64_t j = 0; j < N; j++) {
            expect(grid_bits(&got, 0, j) == grid_bits(&all.out, row, j), "row %lld alone differs at %lld",
                   (long long)row, (long long)j);
        }
    }
}

static void test_errors(void) {
    float *const x = array_new(64);
    const napier_const_matrix a = napier_const_rows_f32(x, 2, 3), b = napier_const_rows_f32(x, 3, 2);
    const napier_matrix out = napier_rows_f32(x + 8, 2, 2);
    napier_cuda_workspace ask = {NULL, 7};
    through_mode = NAPIER_CUDA_BITWISE;
    bad(through_matmul(cpu, a, a, out), "b: rows 2");
    through_mode = (napier_cuda_mode)2;
    bad(through_matmul(cpu, a, b, out), "mode: 2");
    assert_int_equal(napier_cuda_matmul(through_context(), NULL, &ask, a, b, out, NAPIER_CUDA_BITWISE), NAPIER_OK);
    assert_int_equal(ask.size, 0);
}

int main(void) {
    return BOTH_TESTS("cuda_linear_matmul", TEST(test_bits), TEST(test_pairs), TEST(test_other_types),
                      TEST(test_tensor_cores), TEST(test_batches), TEST(test_errors));
}
