/* The matrix product, and the split one: bit for bit against the orders written out on one element, within the promised
 * error of long double, at every kind of size, stride, dtype, instruction set and thread count; subnormals and the edge
 * at which x86 flushes; NaN and infinities; a row alone and in a batch; arguments that cannot
 * be. */
#include "support/check.h"

#include <math.h>
#include <napier/linear.h>
#include <stdio.h>

#include "core/base/context.h"
#include "ops/linear/engine.h"
#include "support/formats.h"

static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};

/* ---- The orders, one element ------------------------------------------------------------------------------------- */

static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

/* fma where subnormal operands are 0 and a result is flushed if, rounded to 24 bits of unbounded exponent, it lies
 * below 2^-126: 2^-126 - 2^-151 is halfway between the two numbers that matter. The exact sum is a double where that
 * is close. */
static float fma_flushed(float a, float b, float c) {
    a = flushed(a), b = flushed(b);
    const float r = fmaf(a, b, c);
    const double exact = (double)a * (double)b + (double)c;
    return fabs(exact) < 0x1p-126 - 0x1p-151 ? copysignf(0.0f, r) : r;
}

static float pairs_in_order(const float *a, const float *b, int64_t k) {
    float total = 0.0f;
    for (int64_t begin = 0; begin < k; begin += 32) {
        float sum[2] = {0.0f, 0.0f};
        for (int64_t i = begin; i < begin + 32; i++) {
            sum[i % 2] = fma_flushed(i < k ? a[i] : 0.0f, i < k ? b[i] : 0.0f, sum[i % 2]);
        }
        total = flushed(total + flushed(sum[0] + sum[1]));
    }
    return total;
}

static float chain_in_order(const float *a, const float *b, int64_t k) {
    float total = 0.0f;
    for (int64_t i = 0; i < k; i++) {
        total = fmaf(a[i], b[i], total);
    }
    return total;
}

/* Piece 0, 1 or 2 of bf16. */
static float piece_of(float x, int piece) {
    const float high = f32_of_bits(f32_bits(x) & 0xffff0000u);
    if (!isfinite(x)) {
        return piece == 0 ? x : 0.0f;
    }
    const float middle = f32_of_bits(f32_bits(x - high) & 0xffff0000u);
    return piece == 0 ? high : piece == 1 ? middle : x - high - middle;
}

static float split_in_order(const float *a, const float *b, int64_t k) {
    float *pieces = scratch(k + 1, sizeof *pieces), sums[3];
    for (int piece = 0; piece < 3; piece++) {
        for (int64_t i = 0; i < k; i++) {
            pieces[i] = piece_of(a[i], piece);
        }
        sums[piece] = pairs_in_order(pieces, b, k);
    }
    return isfinite(sums[0]) ? sums[0] + (sums[1] + sums[2]) : sums[0];
}

/* ---- Operands ---------------------------------------------------------------------------------------------------- */

typedef enum numbers { ORDINARY, WIDE, TINY, EDGE, SPECIAL, NUMBERS } numbers;

static rng numbers_of;
static double random_unit(void) { return 2.0 * rng_uniform(&numbers_of) - 1.0; }

/* EDGE: products of +-2^-126 and of everything down to 2^-156, so that sums end just below 2^-126. */
static double random_number(numbers kind) {
    static const double specials[] = {(double)NAN, HUGE_VAL, -HUGE_VAL, 0.0, -0.0, 1.0, -2.0, 0x1p100};
    switch (kind) {
    case ORDINARY: return random_unit();
    case WIDE: return ldexp(random_unit(), (int)(rng_below(&numbers_of, 120)) - 60);
    case TINY: return ldexp(random_unit(), (int)(rng_below(&numbers_of, 40)) - 140);
    case EDGE:
        return ldexp(rng_below(&numbers_of, 2) ? 1.0 : random_unit(),
                     rng_below(&numbers_of, 2) ? -63 : -75 + (int)(rng_below(&numbers_of, 4)));
    default: return rng_below(&numbers_of, 4) ? random_unit() : specials[rng_below(&numbers_of, 8)];
    }
}

static grid operand(layout l, int64_t rows, int64_t cols, napier_dtype dtype, numbers kind) {
    grid g = grid_make(l, rows, cols, dtype);
    for (int64_t i = 0; i < rows * cols; i++) {
        grid_set(&g, i / cols, i % cols, random_number(kind));
    }
    return g;
}

static float *values_of(const grid *g, bool turn) {
    const int64_t rows = turn ? g->view.cols : g->view.rows, cols = turn ? g->view.rows : g->view.cols;
    float *values = scratch(rows * cols + 1, sizeof *values);
    for (int64_t i = 0; i < rows * cols; i++) {
        values[i] = (float)(turn ? grid_get(g, i % cols, i / cols) : grid_get(g, i / cols, i % cols));
    }
    return values;
}

typedef struct shape {
    int64_t m, k, n;
    napier_dtype a, b, out;
    layout la, lb, lout;
    numbers kind;
    bool split;
} shape;

/* Contiguous, of ordinary numbers, with an f32 result. */
static shape f32_of(int64_t m, int64_t k, int64_t n, napier_dtype dtype) {
    return (shape){.m = m, .k = k, .n = n, .a = dtype, .b = dtype, .out = NAPIER_F32};
}

static grid expected_of(const shape *s, const grid *a, const grid *b) {
    grid wanted = grid_plain(s->m, s->n, s->out);
    float *x = values_of(a, false), *y = values_of(b, true);
    const bool pairs = s->a == NAPIER_BF16 && s->b == NAPIER_BF16, turned = s->a == NAPIER_BF16;
    for (int64_t i = 0; i < s->m; i++) {
        for (int64_t j = 0; j < s->n; j++) {
            const float *p = x + i * s->k, *q = y + j * s->k;
            const float value = pairs      ? pairs_in_order(p, q, s->k)
                                : s->split ? split_in_order(turned ? q : p, turned ? p : q, s->k)
                                           : chain_in_order(p, q, s->k);
            grid_set(&wanted, i, j, isnan(value) ? (double)NAN : (double)value);
        }
    }
    return wanted;
}

static void check_in(napier_context *context, const shape *s, const grid *a, const grid *b, const grid *wanted) {
    grid out = grid_make(s->lout, s->m, s->n, s->out);
    if (works((s->split ? napier_matmul_split : napier_matmul), context, grid_input(a), grid_input(b), out.view)) {
        char what[160];
        snprintf(what, sizeof what, "%s%lld x %lld x %lld, %s by %s to %s, %s and %s, numbers %d, %s, %d threads",
                 s->split ? "split " : "", (long long)s->m, (long long)s->k, (long long)s->n, napier_dtype_name(s->a),
                 napier_dtype_name(s->b), napier_dtype_name(s->out), layout_name(s->la), layout_name(s->lb),
                 (int)s->kind, napier_isa_name(napier_context_isa(context)), napier_context_threads(context));
        grid_differences(&out, wanted, what);
        expect(grid_damage(&out) == 0, "%s: wrote outside of the result", what);
    }
}

/* All instruction sets with 1 thread, the best with 2 and 7; one row also as on processors of another maker. */
static void check_product(const shape *s) {
    grid a = operand(s->la, s->m, s->k, s->a, s->kind), b = operand(s->lb, s->k, s->n, s->b, s->kind);
    grid wanted = expected_of(s, &a, &b);
    napier_context *context = NULL;
    for (int run = 0; (context = context_of_run(run)) != NULL; run++) {
        check_in(context, s, &a, &b, &wanted);
        if (s->m == 1) {
            context->intel = !context->intel;
            check_in(context, s, &a, &b, &wanted);
        }
    }
}

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

static void sizes_have_the_bits_of_the_order(void) {
    static const int64_t sizes[][3] = {{0, 3, 2},     {2, 3, 0},      {3, 0, 5},     {1, 1, 1},     {1, 31, 17},
                                       {1, 1023, 33}, {2, 65, 49},    {3, 33, 16},   {4, 96, 50},   {5, 32, 31},
                                       {15, 17, 33},  {16, 16, 16},   {17, 64, 1},   {31, 31, 2},   {33, 40, 48},
                                       {33, 1, 13},   {130, 257, 60}, {5, 1025, 97}, {300, 40, 50}, {70, 4200, 20},
                                       {530, 70, 35}, {100, 600, 40}};
    numbers_of = rng_make(1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int d = 0; d < 3; d++) {
            for (int turned = 0; turned < 2; turned++) {
                shape s = f32_of(sizes[i][0], sizes[i][1], sizes[i][2], dtypes[d]);
                s.la = LAYOUT_OFFSET;
                s.lb = turned ? LAYOUT_TRANSPOSED : LAYOUT_CONTIGUOUS;
                s.lout = LAYOUT_PADDED;
                check_product(&s);
            }
        }
    }
}

/* The kernels for few rows, on weights as a model stores them. */
static void few_rows_have_the_bits_of_the_order(void) {
    static const int64_t sizes[][2] = {{1, 1}, {31, 100}, {64, 49}, {97, 33}, {130, 16}, {33, 15}};
    numbers_of = rng_make(8);
    for (int64_t m = 1; m <= 9; m++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            for (int d = 0; d < 6; d++) {
                shape s = f32_of(m, sizes[i][0], sizes[i][1], dtypes[d % 3]);
                s.a = d < 3 ? NAPIER_F32 : dtypes[d % 3];
                s.out = dtypes[(d + m) % 3];
                s.la = i % 2 ? LAYOUT_TRANSPOSED : LAYOUT_PADDED;
                s.lb = LAYOUT_TRANSPOSED;
                s.lout = i % 3 ? LAYOUT_OFFSET : LAYOUT_TRANSPOSED;
                check_product(&s);
            }
        }
    }
}

/* The kernels for one row, whose lanes are 16 blocks of k or 16 rows of weights: blocks that are not 16, nor whole, and more k
 * than at a time. */
static void one_row_has_the_bits_of_the_order(void) {
    static const int64_t sizes[][2] = {{1, 16},    {97, 5},    {511, 20},  {512, 1},   {513, 16},
                                       {1000, 17}, {1536, 33}, {4096, 15}, {4097, 16}, {9001, 50}};
    numbers_of = rng_make(18);
    for (int kind = ORDINARY; kind < NUMBERS; kind++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            shape s = f32_of(1, sizes[i][0], sizes[i][1], NAPIER_BF16);
            s.lb = LAYOUT_TRANSPOSED;
            s.kind = (numbers)kind;
            check_product(&s);
        }
    }
}

/* So many lanes that a matrix engine packs strips of rows: whole tiles and rests of lanes, rows and k, and more k than it
 * takes at a time. */
static void many_lanes_have_the_bits_of_the_order(void) {
    static const int64_t sizes[][3] = {{257, 33, 70},  {289, 1, 33},   {272, 545, 130}, {330, 1057, 97},
                                       {800, 64, 65},  {257, 4097, 8}, {514, 2081, 8},  {80, 200, 70},
                                       {81, 200, 140}, {97, 1600, 40}, {540, 1600, 40}, {81, 1024, 300}};
    numbers_of = rng_make(22);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int d = 0; d < 3; d++) {
            shape s = f32_of(sizes[i][0], sizes[i][1], sizes[i][2], NAPIER_BF16);
            s.out = dtypes[d];
            s.la = (layout)((i + (size_t)d) % LAYOUTS);
            s.lb = i % 3 == 2 ? LAYOUT_OFFSET : LAYOUT_TRANSPOSED;
            s.lout = (layout)((i + (size_t)d) / 2 % LAYOUTS);
            s.kind = d == 2 && i % 2 == 0 ? SPECIAL : ORDINARY;
            check_product(&s);
        }
    }
}

/* Whole lines of a, and few columns: a matrix engine reads all rows in place that are whole tiles. */
static void rows_in_place_have_the_bits_of_the_order(void) {
    static const int64_t sizes[][3] = {{96, 32, 40}, {97, 1056, 70}, {160, 544, 33}, {512, 64, 1024}, {333, 3104, 8}};
    numbers_of = rng_make(23);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int d = 0; d < 3; d++) {
            shape s = f32_of(sizes[i][0], sizes[i][1], sizes[i][2], NAPIER_BF16);
            s.out = dtypes[d];
            s.lb = LAYOUT_TRANSPOSED;
            s.kind = d == 1 ? SPECIAL : ORDINARY;
            check_product(&s);
        }
    }
}

static void dtypes_and_strides_have_the_bits_of_the_order(void) {
    numbers_of = rng_make(2);
    for (int d = 0; d < 27; d++) {
        shape s = f32_of(19, 70, 37, dtypes[d % 3]);
        s.b = dtypes[d / 3 % 3];
        s.out = dtypes[d / 9];
        s.la = (layout)(d % LAYOUTS);
        s.lb = (layout)((d / 2 + 3) % LAYOUTS);
        s.lout = (layout)((d / 3 + 5) % LAYOUTS);
        check_product(&s);
    }
}

static void odd_numbers_have_the_bits_of_the_order(void) {
    static const int64_t rows[] = {1, 3, 8, 20};
    numbers_of = rng_make(3);
    for (int kind = WIDE; kind < NUMBERS; kind++) {
        for (int d = 0; d < 3; d++) {
            for (int r = 0; r < 4; r++) {
                for (int64_t k = 30; k <= 300; k += 135) {
                    shape s = f32_of(rows[r], k, 40, dtypes[d]);
                    s.lb = LAYOUT_TRANSPOSED;
                    s.kind = (numbers)kind;
                    check_product(&s);
                }
            }
        }
    }
}

/* Results of every size around 2^-126 that one step can end at. */
static void the_edge_of_the_normal_numbers(napier_context *context) {
    enum { K = 32, N = 512 };
    const shape s = f32_of(5, K, N, NAPIER_BF16);
    grid a = grid_plain(s.m, K, NAPIER_BF16), b = grid_make(LAYOUT_TRANSPOSED, K, N, NAPIER_BF16);
    for (int64_t i = 0; i < s.m; i++) {
        for (int64_t k = 0; k < K; k++) {
            grid_set(&a, i, k, k == 0 ? 0x1p-63 : k == 2 ? 0x1p-75 : 0.0);
        }
    }
    for (int64_t j = 0; j < N; j++) {
        for (int64_t k = 0; k < K; k++) {
            const double small = ldexp(1.0 + (double)(j % 128) / 128.0, -77 + (int)(j / 128));
            grid_set(&b, k, j, k == 0 ? 0x1p-63 : k == 2 ? -small : 0.0);
        }
    }
    grid wanted = expected_of(&s, &a, &b);
    int zeros = 0, others = 0;
    for (int64_t j = 0; j < N; j++) {
        zeros += grid_get(&wanted, 0, j) == 0.0;
        others += grid_get(&wanted, 0, j) != 0.0;
    }
    expect(zeros > 100 && others > 100, "the edge is not among the numbers: %d flushed, %d not", zeros, others);
    grid out = grid_plain(s.m, N, NAPIER_F32);
    works(napier_matmul, context, grid_input(&a), grid_input(&b), out.view);
    grid_differences(&out, &wanted, napier_isa_name(napier_context_isa(context)));
}

/* ---- Split products ---------------------------------------------------------------------------------------------- */

/* Weights of bf16, as b or as a, stored along k or across it; few lanes, many, and several blocks of them. */
static void split_products_have_the_bits_of_the_order(void) {
    static const int64_t sizes[][3] = {{0, 3, 2},   {3, 0, 5},      {1, 1, 1},   {1, 31, 17},   {1, 1023, 33},
                                       {2, 65, 49}, {3, 33, 16},    {4, 96, 50}, {9, 32, 31},   {16, 33, 20},
                                       {17, 64, 1}, {33, 40, 48},   {48, 70, 5}, {63, 5, 35},   {64, 129, 16},
                                       {65, 64, 9}, {130, 257, 30}, {1, 2, 300}, {70, 4200, 3}, {2, 700, 130}};
    numbers_of = rng_make(9);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int turned = 0; turned < 4; turned++) {
            const bool weights_first = turned / 2 != 0;
            const int64_t m = weights_first ? sizes[i][2] : sizes[i][0], n = weights_first ? sizes[i][0] : sizes[i][2];
            shape s = f32_of(m, sizes[i][1], n, NAPIER_F32);
            *(weights_first ? &s.a : &s.b) = NAPIER_BF16;
            s.split = true;
            s.la = turned % 2 && weights_first ? LAYOUT_TRANSPOSED : LAYOUT_OFFSET;
            s.lb = turned % 2 == weights_first ? LAYOUT_TRANSPOSED : LAYOUT_CONTIGUOUS;
            s.lout = LAYOUT_PADDED;
            check_product(&s);
        }
    }
}

static void split_products_of_all_dtypes_and_strides(void) {
    numbers_of = rng_make(10);
    for (int i = 0; i < 2 * LAYOUTS; i++) {
        shape s = f32_of(i % 3 == 0 ? 2 : 19, 70, i % 4 == 0 ? 7 : 37, dtypes[i % 3]);
        s.b = NAPIER_BF16;
        s.out = dtypes[i / 2 % 3];
        s.la = (layout)(i % LAYOUTS);
        s.lb = (layout)((i / 2 + 3) % LAYOUTS);
        s.lout = (layout)((i / 3 + 5) % LAYOUTS);
        s.split = true;
        check_product(&s);
    }
}

static void split_products_of_odd_numbers(void) {
    static const int64_t rows[] = {1, 2, 20};
    numbers_of = rng_make(11);
    for (int kind = WIDE; kind < NUMBERS; kind++) {
        for (int r = 0; r < 3; r++) {
            for (int64_t k = 30; k <= 300; k += 135) {
                shape s = f32_of(rows[r], k, 40, NAPIER_F32);
                s.b = NAPIER_BF16;
                s.lb = LAYOUT_TRANSPOSED;
                s.kind = (numbers)kind;
                s.split = true;
                check_product(&s);
            }
        }
    }
}

typedef napier_status multiply(napier_context *, napier_const_matrix, napier_const_matrix, napier_matrix);

/* One element: x w, beside zeros. */
static uint32_t one_product(napier_context *context, multiply *function, uint32_t x, uint16_t w) {
    const float a[3] = {0.0f, f32_of_bits(x), 0.0f};
    const uint16_t b[3] = {0, w, 0};
    float product = 0.0f;
    works(function, context, napier_const_rows_f32(a, 1, 3), napier_const_rows(b, 3, 1, NAPIER_BF16),
          napier_rows_f32(&product, 1, 1));
    return f32_bits(product);
}

/* Normal numbers from 2^-103 up to FLT_MAX and 1 give the number itself: no piece is lost, and none overflows. */
static void pieces_sum_to_the_number(napier_context *context) {
    enum { N = 20000 };
    static uint32_t x[N];
    float *const a = scratch(N, sizeof *a), *const product = scratch(N, sizeof *product);
    const uint16_t one = 0x3f80;
    numbers_of = rng_make(12);
    for (int i = 0; i < N; i++) {
        const uint32_t exponent = i % 7 == 0 ? 254 : 24 + (uint32_t)rng_below(&numbers_of, 231);
        const uint32_t any = (uint32_t)rng_below(&numbers_of, 1 << 23), sign = (uint32_t)(i % 2) << 31;
        x[i] = sign | exponent << 23 | (i < 20 ? 0x7fffffu : i < 40 ? 0u : i < 999 ? 1u << i % 23 : any);
        a[i] = f32_of_bits(x[i]);
    }
    works(napier_matmul_split, context, napier_const_rows_f32(a, N, 1), napier_const_rows(&one, 1, 1, NAPIER_BF16),
          napier_rows_f32(product, N, 1));
    for (int i = 0; i < N; i++) {
        expect(f32_bits(product[i]) == x[i], "%a times 1 is %a", (double)a[i], (double)product[i]);
    }
}

/* Computes as napier_matmul does, but subnormal numbers count as 0. */
static void special_numbers_as_in_f32(napier_context *context) {
    static const uint32_t numbers32[] = {0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000, 0xffc12345,
                                         0x7f7fffff, 0xff7fffff, 0,          0x80000000, 0x3f800000,
                                         0x40490fdb, 0x00800000, 0x0c800001};
    static const uint16_t weights[] = {0x7f80, 0xff80, 0x7fc0, 0x7f81, 0, 0x8000, 0x3f80, 0xbf80, 0x7f7f, 0x4000};
    for (size_t i = 0; i < sizeof numbers32 / sizeof *numbers32; i++) {
        for (size_t w = 0; w < sizeof weights / sizeof *weights; w++) {
            const uint32_t want = one_product(context, napier_matmul, numbers32[i], weights[w]);
            const uint32_t got = one_product(context, napier_matmul_split, numbers32[i], weights[w]);
            expect(got == want, "%08x times %04x: %08x, where f32 has %08x", numbers32[i], (unsigned)weights[w], got,
                   want);
        }
    }
    const uint32_t subnormal = 0x007fffff;
    expect(one_product(context, napier_matmul_split, subnormal, 0x7f80) == dtype_canonical_nan(NAPIER_F32),
           "a subnormal times inf is no NaN");
    expect(one_product(context, napier_matmul_split, subnormal, 0x3f80) == 0, "a subnormal does not count as 0");
}

/* kind 0: of one size; 1: of many sizes; 2: terms that cancel to 2^-20 of themselves. */
static void split_errors_are_within_the_bound(void) {
    const int64_t m = 9, n = 13;
    numbers_of = rng_make(13);
    for (int i = 0; i < 9; i++) {
        const int64_t k = i / 3 == 0 ? 33 : i / 3 == 1 ? 1024 : 3072;
        grid a = operand(LAYOUT_CONTIGUOUS, m, k, NAPIER_F32, i % 3 == 1 ? WIDE : ORDINARY);
        grid b = operand(LAYOUT_TRANSPOSED, k, n, NAPIER_BF16, ORDINARY), out = grid_plain(m, n, NAPIER_F32);
        for (int64_t p = 1; p < k && i % 3 == 2; p += 2) {
            for (int64_t j = 0; j < m || j < n; j++) {
                if (j < m) {
                    grid_set(&a, j, p, grid_get(&a, j, p - 1) * (1.0 + 0x1p-20 * random_unit()));
                }
                if (j < n) {
                    grid_set(&b, p, j, -grid_get(&b, p - 1, j));
                }
            }
        }
        works(napier_matmul_split, context_for_test(NAPIER_ISA_AUTO, 2), grid_input(&a), grid_input(&b), out.view);
        for (int64_t e = 0; e < m * n; e++) {
            long double sum = 0.0L, size = 0.0L, largest = 1.0L;
            for (int64_t p = 0; p < k; p++) {
                const long double w = (long double)grid_get(&b, p, e % n);
                const long double term = (long double)grid_get(&a, e / n, p) * w;
                sum += term;
                size += fabsl(term);
                largest = fmaxl(largest, fabsl(w));
            }
            const long double error = fabsl((long double)grid_get(&out, e / n, e % n) - sum);
            const long double bound =
                ((long double)k / 31 + 20) * 0x1p-24L * size + (long double)(k + 1) * 0x1p-124L * largest;
            expect(error <= bound, "kind %d, k %lld: error %Lg, bound %Lg", i % 3, (long long)k, error, bound);
        }
    }
}

static void a_split_row_does_not_know_its_batch(void) {
    const int64_t m = 200, k = 300, n = 75;
    numbers_of = rng_make(14);
    grid a = operand(LAYOUT_CONTIGUOUS, m, k, NAPIER_F32, ORDINARY),
         b = operand(LAYOUT_TRANSPOSED, k, n, NAPIER_BF16, ORDINARY);
    grid all = grid_plain(m, n, NAPIER_F32), some = grid_plain(m, n, NAPIER_F32);
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
    works(napier_matmul_split, context, grid_input(&a), grid_input(&b), all.view);
    for (int64_t row = 0, step = 1; row < m; row += step, step = step % 37 + 1) {
        const int64_t rows = row + step < m ? step : m - row;
        works(napier_matmul_split, context, napier_const_rows_f32((const float *)a.view.data + row * k, rows, k),
              grid_input(&b), napier_rows_f32((float *)some.view.data + row * n, rows, n));
    }
    grid_differences(&some, &all, "rows by themselves");
}

/* Activations in more than one lot. */
static void large_split_products_are_no_different(napier_context *context) {
    const int64_t m = 2700, k = 1000, n = 9;
    numbers_of = rng_make(15);
    grid a = operand(LAYOUT_CONTIGUOUS, m, k, NAPIER_F32, ORDINARY),
         b = operand(LAYOUT_TRANSPOSED, k, n, NAPIER_BF16, ORDINARY);
    grid out = grid_make(LAYOUT_OFFSET, m, n, NAPIER_F32);
    float *x = values_of(&a, false), *y = values_of(&b, true);
    works(napier_matmul_split, context, grid_input(&a), grid_input(&b), out.view);
    for (int64_t i = 0; i < m * n; i += 41) {
        const float wanted = split_in_order(x + i / n * k, y + i % n * k, k);
        expect(grid_bits(&out, i / n, i % n) == f32_bits(wanted), "element %lld differs", (long long)i);
    }
}

/* ---- Truth ------------------------------------------------------------------------------------------------------- */

static void errors_are_within_the_bound(void) {
    numbers_of = rng_make(4);
    for (int d = 0; d < 9; d++) {
        const int64_t m = 9, k = 700, n = 21;
        grid a = operand(LAYOUT_CONTIGUOUS, m, k, dtypes[d % 3], ORDINARY);
        grid b = operand(LAYOUT_CONTIGUOUS, k, n, dtypes[d / 3], ORDINARY);
        grid out = grid_plain(m, n, NAPIER_F32);
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
        works(napier_matmul, context, grid_input(&a), grid_input(&b), out.view);
        for (int64_t i = 0; i < m * n; i++) {
            double sum = 0.0, size = 0.0;
            for (int64_t p = 0; p < k; p++) {
                const double term = grid_get(&a, i / n, p) * grid_get(&b, p, i % n);
                sum += term;
                size += fabs(term);
            }
            const double error = fabs(grid_get(&out, i / n, i % n) - sum), bound = (double)(k + 1) * 0x1p-24 * size;
            expect(error <= bound, "%s by %s: error %g, bound %g", napier_dtype_name(dtypes[d % 3]),
                   napier_dtype_name(dtypes[d / 3]), error, bound);
        }
    }
}

static void nan_results_are_canonical(void) {
    for (int d = 0; d < 3; d++) {
        grid a = grid_plain(2, 2, NAPIER_F32), b = grid_plain(2, 20, NAPIER_F32);
        grid out = grid_plain(2, 20, dtypes[d]);
        for (int64_t i = 0; i < 40; i++) {
            grid_set(&b, i / 20, i % 20, i < 20 ? HUGE_VAL : -HUGE_VAL);
            grid_set(&a, i / 2 % 2, i % 2, 1.0);
        }
        element_set_bits(a.view.data, NAPIER_F32, 0, 0xffc12345u);
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 1);
        works(napier_matmul, context, grid_input(&a), grid_input(&b), out.view);
        for (int64_t i = 0; i < 40; i++) {
            expect(grid_bits(&out, i / 20, i % 20) == dtype_canonical_nan(dtypes[d]), "%s: NaN with other bits",
                   napier_dtype_name(dtypes[d]));
        }
    }
}

/* ---- A row in its batch ------------------------------------------------------------------------------------------ */

static void a_row_does_not_know_its_batch(void) {
    const int64_t m = 300, k = 600, n = 150;
    numbers_of = rng_make(5);
    for (int d = 0; d < 9; d += 4) { /* each dtype by itself */
        grid a = operand(LAYOUT_CONTIGUOUS, m, k, dtypes[d % 3], ORDINARY);
        grid b = operand(LAYOUT_TRANSPOSED, k, n, dtypes[d / 3], ORDINARY);
        grid all = grid_plain(m, n, NAPIER_F32), some = grid_plain(m, n, NAPIER_F32);
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
        works(napier_matmul, context, grid_input(&a), grid_input(&b), all.view);
        for (int64_t row = 0, step = 1; row < m; row += step, step = step % 37 + 1) {
            napier_const_matrix part = grid_input(&a);
            napier_matrix out = some.view;
            part.rows = out.rows = row + step < m ? step : m - row;
            part.data = (const char *)part.data + row * k * (int64_t)napier_dtype_size(part.dtype);
            out.data = (char *)out.data + row * n * (int64_t)sizeof(float);
            works(napier_matmul, context, part, grid_input(&b), out);
        }
        grid_differences(&some, &all, "rows by themselves");
    }
}

/* Results past the caches, and lanes in more than one lot. */
static void large_results_are_no_different(napier_context *context) {
    const int64_t m = 70, k = 40, n = 20000;
    numbers_of = rng_make(6);
    grid a = operand(LAYOUT_CONTIGUOUS, m, k, NAPIER_F32, ORDINARY),
         b = operand(LAYOUT_TRANSPOSED, k, n, NAPIER_F32, ORDINARY);
    grid out = grid_make(LAYOUT_OFFSET, m, n, NAPIER_F32);
    float *x = values_of(&a, false), *y = values_of(&b, true);
    works(napier_matmul, context, grid_input(&a), grid_input(&b), out.view);
    for (int64_t i = 0; i < m * n; i += 101) {
        const float wanted = chain_in_order(x + i / n * k, y + i % n * k, k);
        expect(grid_bits(&out, i / n, i % n) == f32_bits(wanted), "element %lld differs", (long long)i);
    }
}

/* ---- What cannot be ---------------------------------------------------------------------------------------------- */

static void wrong_arguments_are_named(napier_context *context) {
    static float a[12], b[12], c[16];
    const napier_const_matrix good_a = napier_const_rows_f32(a, 3, 4), good_b = napier_const_rows_f32(b, 4, 3);
    const napier_matrix good = napier_rows_f32(c, 3, 3);
    invalid(context, napier_matmul(context, good_a, napier_const_rows_f32(b, 3, 4), good), "b", "rows 3", "cols 4");
    invalid(context, napier_matmul(context, good_a, good_b, napier_rows_f32(c, 3, 4)), "product", "3 x 4", "3 x 3");
    invalid(context, napier_matmul(context, good_a, good_b, napier_rows_f32(a, 3, 3)), "product", "a");
    invalid(context, napier_matmul(context, good_a, good_b, napier_rows_f32(b + 3, 3, 3)), "product", "overlaps b");
    invalid(context, napier_matmul(context, napier_const_rows(a, 1, 4, NAPIER_F64), good_b, good), "a", "f64");
    invalid(context, napier_matmul(context, good_a, good_b, napier_rows(c, 3, 3, (napier_dtype)9)), "product",
            "dtype 9");
    invalid(context, napier_matmul(context, napier_const_rows_f32(NULL, 3, 4), good_b, good), "a", "NULL");
    const napier_const_matrix endless_a = {a, 1, INT64_MAX, 0, 0, NAPIER_BF16};
    const napier_const_matrix endless_b = {b, INT64_MAX, 1, 0, 0, NAPIER_BF16};
    refused(context, napier_matmul(context, endless_a, endless_b, napier_rows_f32(c, 1, 1)), NAPIER_OUT_OF_MEMORY, "a",
            "too many", NULL);
    expect(napier_matmul(NULL, good_a, good_b, good) == NAPIER_INVALID_ARGUMENT, "no context is no error");
    const napier_const_matrix narrow = napier_const_rows(b, 4, 3, NAPIER_F16);
    invalid(context, napier_matmul_split(context, good_a, good_b, good), "b", "dtype f32", "bf16");
    invalid(context, napier_matmul_split(context, good_a, narrow, good), "b", "dtype f16", "bf16");
    invalid(context, napier_matmul_split(context, good_a, napier_const_rows(b, 3, 4, NAPIER_BF16), good), "b",
            "rows 3");
    const napier_const_matrix endless = {a, 1, INT64_MAX, 0, 0, NAPIER_F32};
    refused(context, napier_matmul_split(context, endless, endless_b, napier_rows_f32(c, 1, 1)), NAPIER_OUT_OF_MEMORY,
            "a", "too many", NULL);
    expect(napier_matmul_split(NULL, good_a, good_b, good) == NAPIER_INVALID_ARGUMENT, "no context is no error");
}

/* What is decided about the matrix engine stays decided; whoever names an instruction set goes without it. */
static void the_matrix_engine_is_for_auto(void) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    assert_int_equal(napier_matrix_engine(NULL), 0);
    for (int i = 0; i < count; i++) {
        napier_context *context = context_for_test(isas[i], 1);
        assert_int_equal(napier_matrix_engine(context), 0);
    }
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 1);
    const int on = napier_matrix_engine(context);
#ifdef TEST_ENGINE /* amx_emulated.c */
    assert_int_equal(on, 1);
#else
    assert_true(on == 0 || (on == 1 && napier_context_isa(context) == NAPIER_ISA_AVX512));
#endif
    assert_int_equal(napier_matrix_engine(context), on);
#ifdef TEST_PAIRS /* what is not trusted is not tested either */
    assert_true(on == 1 || context->engine == NAPIER_ENGINE_PAIRS || napier_context_isa(context) != NAPIER_ISA_AVX512);
#endif
}

int main(void) {
    return RUN_TESTS(
        "matmul", TEST(sizes_have_the_bits_of_the_order), TEST(few_rows_have_the_bits_of_the_order),
        TEST(one_row_has_the_bits_of_the_order), TEST(many_lanes_have_the_bits_of_the_order),
        TEST(rows_in_place_have_the_bits_of_the_order), TEST(dtypes_and_strides_have_the_bits_of_the_order),
        TEST(odd_numbers_have_the_bits_of_the_order), TEST(split_products_have_the_bits_of_the_order),
        TEST(split_products_of_all_dtypes_and_strides), TEST(split_products_of_odd_numbers),
        TEST_EACH_ISA(1, pieces_sum_to_the_number), TEST_EACH_ISA(1, special_numbers_as_in_f32),
        TEST(split_errors_are_within_the_bound), TEST(a_split_row_does_not_know_its_batch),
        TEST_2(large_split_products_are_no_different), TEST_EACH_ISA(1, the_edge_of_the_normal_numbers),
        TEST(errors_are_within_the_bound), TEST(nan_results_are_canonical), TEST(a_row_does_not_know_its_batch),
        TEST_2(large_results_are_no_different), TEST_1(wrong_arguments_are_named), TEST(the_matrix_engine_is_for_auto));
}
