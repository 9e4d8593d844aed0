/* test_project - the decoder's products (lm/decoder/project.h) in every way that they are divided, few rows, panels and strips of
 * a matrix engine: bit for bit what napier_matmul and the gate give one after the other, with biases and without, within the
 * memory that the query says. */
#include "support/check.h"

#include <napier/linear.h>
#include <string.h>

#include "lm/decoder/project.h"
#include "lm/gguf/gguf.h"
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

/* ---- Weights that are stored as blocks --------------------------------------------------------------------------- */

/* A type of GGUF, and where its blocks have an f16. */
static const struct {
    uint32_t number;
    int halves[2]; /* -1: none */
} stored[] = {{2, {0, -1}}, {3, {0, 2}}, {8, {0, -1}}, {6, {0, -1}}, {12, {0, 2}}, {14, {208, -1}}};

/* Random blocks; odd: some scales are infinite or NaN. */
static napier_blocks random_blocks(rng *r, size_t kind, int64_t rows, int64_t cols, bool odd) {
    const napier_gguf_type *const t = napier_gguf_type_of(stored[kind].number);
    const int64_t count = rows * cols / t->block;
    uint8_t *const data = scratch(count, (size_t)t->bytes);
    for (int64_t i = 0; i < count * t->bytes; i++) {
        data[i] = (uint8_t)rng_below(r, 256);
    }
    for (int64_t i = 0; i < count; i++) {
        for (int h = 0; h < 2 && stored[kind].halves[h] >= 0; h++) {
            uint8_t *const upper = data + i * t->bytes + stored[kind].halves[h] + 1;
            *upper = odd && i % 97 == 5 ? 0x7c : *upper & 0xbf; /* less than 2 */
        }
    }
    return (napier_blocks){data, cols / t->block * t->bytes, t->block, t->bytes, t->kind, t->widen};
}

static float *widened(const napier_blocks *b, int64_t rows, int64_t cols) {
    float *const out = scratch(rows * cols, sizeof *out);
    for (int64_t i = 0; i < rows * cols / b->elements; i++) {
        b->widen(b->data + i * b->bytes, out + i * b->elements);
    }
    return out;
}

static void check_stored(napier_context *context, size_t kind, const shape *s, bool odd) {
    rng r = rng_make(8);
    const napier_blocks blocks = random_blocks(&r, kind, s->width, s->hidden, odd);
    const napier_const_matrix x = napier_const_rows(floats(&r, s->rows * s->hidden), s->rows, s->hidden, NAPIER_F32);
    const napier_const_matrix wide =
        napier_const_rows(widened(&blocks, s->width, s->hidden), s->width, s->hidden, NAPIER_F32);
    float *const out = scratch(s->rows * s->width, sizeof *out), *const wanted =
                                                                     scratch(s->rows * s->width, sizeof *out);
    const napier_projection product = {napier_const_rows(&blocks, s->width, s->hidden, NAPIER_BLOCKS),
                                       napier_rows_f32(out, s->rows, s->width)};
    const size_t needed = napier_project_floats(context, x, product.weights, false);
    float *const memory = memory_for(needed);
    napier_project(context, x, &product, 1, false, memory);
    expect_guard(memory, needed, s);
    works(napier_matmul, context, x, napier_const_transposed(wide), napier_rows_f32(wanted, s->rows, s->width));
    same(out, wanted, s->rows * s->width, s, napier_gguf_type_of(stored[kind].number)->name);
}

/* k of one block, of some, and of more than are widened at a time; few rows and many. */
static void stored_weights_have_the_bits_of_widened_ones(void) {
    static const int64_t rows[] = {1, 2, 3, 8, 9, 70}, ks[] = {32, 96, 576, 1312, 256, 1024};
    napier_context *context;
    for (int run = 0; (context = context_of_run(run)) != NULL; run++) {
        for (size_t i = 0; i < sizeof stored / sizeof *stored * (sizeof ks / sizeof *ks); i++) {
            const size_t kind = i / (sizeof ks / sizeof *ks);
            const int64_t k = ks[i % (sizeof ks / sizeof *ks)];
            for (size_t m = 0;
                 m < sizeof rows / sizeof *rows && k % napier_gguf_type_of(stored[kind].number)->block == 0; m++) {
                const int64_t mark = scratch_mark();
                const shape s = {.rows = rows[m], .hidden = k, .width = 53};
                check_stored(context, kind, &s, m % 2 == 1);
                scratch_release(mark);
            }
        }
    }
}

int main(void) {
    return RUN_TESTS("project", TEST(products_have_the_bits_of_matmul),
                     TEST(stored_weights_have_the_bits_of_widened_ones));
}
