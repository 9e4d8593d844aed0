/* test_project - the decoder's products (lm/decoder/project.h) in every way that they are divided, few rows, panels and strips of
 * a matrix engine: bit for bit what napier_matmul and the gate give one after the other, with biases and without, within the
 * memory that the query says. */
#include "support/check.h"

#include <napier/linear.h>
#include <string.h>

#include "lm/decoder/project.h"
#include "ops/isa/ops_kernels.h"
#include "ops/linear/engine.h"

typedef struct shape {
    int64_t rows, hidden, width;
    bool biased;
} shape;

static uint16_t *numbers(rng *r, int64_t count) {
    uint16_t *const all = scratch(count, sizeof *all);
    for (int64_t i = 0; i < count; i++) {
        const float x = (float)(2.0 * rng_uniform(r) - 1.0);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        all[i] = (uint16_t)(bits >> 16);
    }
    return all;
}

static float *floats(rng *r, int64_t count) {
    float *const all = scratch(count, sizeof *all);
    for (int64_t i = 0; i < count; i++) {
        all[i] = (float)(2.0 * rng_uniform(r) - 1.0);
    }
    return all;
}

/* x weights^T by an instruction set without an engine. */
static float *product(const uint16_t *x, int64_t rows, int64_t k, const uint16_t *weights, int64_t cols) {
    float *const out = scratch(rows * cols, sizeof *out);
    works(napier_matmul, context_for_test(NAPIER_ISA_SCALAR, 2), napier_const_rows(x, rows, k, NAPIER_BF16),
          napier_const_transposed(napier_const_rows(weights, cols, k, NAPIER_BF16)), napier_rows_f32(out, rows, cols));
    return out;
}

static float *gated(const shape *s, const uint16_t *x, const uint16_t *const weights[3], const float *const bias[2]) {
    const napier_layer_kernels *kernels = napier_ops_kernels_of(NAPIER_ISA_SCALAR)->layers;
    float *sums[2];
    uint16_t *const middle = scratch(s->rows * s->width, sizeof *middle);
    for (int i = 0; i < 2; i++) {
        sums[i] = product(x, s->rows, s->hidden, weights[i], s->width);
        for (int64_t at = 0; s->biased && at < s->rows * s->width; at++) {
            sums[i][at] += bias[i][at % s->width];
        }
    }
    kernels->gate(sums[0], sums[1], s->rows * s->width, middle, NAPIER_BF16);
    return product(middle, s->rows, s->width, weights[2], s->hidden);
}

static void same(const float *a, const float *b, int64_t count, const shape *s, const char *what) {
    for (int64_t i = 0; i < count; i++) {
        expect(memcmp(a + i, b + i, sizeof *a) == 0, "%s of %lld x %lld x %lld%s: element %lld is %a, not %a", what,
               (long long)s->rows, (long long)s->hidden, (long long)s->width, s->biased ? " with biases" : "",
               (long long)i, (double)a[i], (double)b[i]);
    }
}

/* Memory for so many floats, on a cache line, and what follows it. */
enum { GUARD = 16 };
static float *memory_for(size_t count) {
    char *const all = scratch((int64_t)count + 2 * GUARD, sizeof(float));
    float *const at = (float *)(void *)(all + (64 - (uintptr_t)all % 64) % 64);
    memset(at + count, 0xa5, GUARD * sizeof *at);
    return at;
}

static void expect_guard(const float *memory, size_t count, const shape *s) {
    const unsigned char *const after = (const unsigned char *)(memory + count);
    for (size_t i = 0; i < GUARD * sizeof *memory; i++) {
        expect(after[i] == 0xa5, "%lld x %lld x %lld: more memory than the query says", (long long)s->rows,
               (long long)s->hidden, (long long)s->width);
    }
}

static void check_shape(napier_context *context, const shape *s) {
    rng r = rng_make(7);
    const uint16_t *const x = numbers(&r, s->rows * s->hidden), *const gate = numbers(&r, s->width * s->hidden);
    const uint16_t *const up = numbers(&r, s->width * s->hidden), *const down = numbers(&r, s->width * s->hidden);
    const uint16_t *const weights[] = {gate, up, down};
    const float *const bias[] = {floats(&r, s->width), floats(&r, s->width)};
    const napier_const_matrix rows = napier_const_rows(x, s->rows, s->hidden, NAPIER_BF16);
    const napier_gated w = {napier_const_rows(gate, s->width, s->hidden, NAPIER_BF16),
                            napier_const_rows(up, s->width, s->hidden, NAPIER_BF16),
                            napier_const_rows(down, s->hidden, s->width, NAPIER_BF16), s->biased ? bias[0] : NULL,
                            s->biased ? bias[1] : NULL};
    float *const out = scratch(s->rows * s->hidden, sizeof *out), *wide[2];
    size_t needed = napier_project_gated_floats(context, rows, &w, false);
    float *memory = memory_for(needed);
    napier_project_gated(context, rows, &w, napier_rows_f32(out, s->rows, s->hidden), false, memory);
    expect_guard(memory, needed, s);
    same(out, gated(s, x, weights, bias), s->rows * s->hidden, s, "the gated product");
    for (int i = 0; i < 2; i++) {
        wide[i] = scratch(s->rows * s->width, sizeof *wide[i]);
    }
    const napier_projection both[] = {{w.gate, napier_rows_f32(wide[0], s->rows, s->width)},
                                      {w.up, napier_rows_f32(wide[1], s->rows, s->width)}};
    needed = napier_project_floats(context, rows, w.gate, false);
    memory = memory_for(needed);
    napier_project(context, rows, both, 2, false, memory);
    expect_guard(memory, needed, s);
    for (int i = 0; i < 2; i++) {
        same(wide[i], product(x, s->rows, s->hidden, weights[i], s->width), s->rows * s->width, s, "a product");
    }
}

static void products_have_the_bits_of_matmul(void) {
    static const shape shapes[] = {{1, 64, 80, false},    {7, 40, 100, true},    {80, 96, 130, false},
                                   {81, 96, 130, false},  {193, 70, 161, true},  {520, 64, 290, false},
                                   {300, 2100, 33, true}, {600, 33, 2100, false}};
    for (int threads = 1; threads <= 3; threads += 2) {
        napier_context *const context = context_for_test(NAPIER_ISA_AUTO, threads);
        napier_matrix_engine_decide(context);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            check_shape(context, &shapes[i]);
        }
    }
}

int main(void) { return RUN_TESTS("project", TEST(products_have_the_bits_of_matmul)); }
