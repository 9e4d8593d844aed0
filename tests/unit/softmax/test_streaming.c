/* test_streaming - results so large that they are stored past the caches have the bits of the same rows in small calls:
 * aligned and not, in place and not, rows of whole cache lines and not, with masks and infinities among them. */
#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/context.h"
#include "support/formats.h"

typedef napier_status forward(napier_context *, napier_const_matrix, napier_matrix, const napier_softmax_options *);

enum { SMALL = 1000 }; /* rows in a small call */

/* A shape in one dtype, stored by rows or by columns. */
typedef struct large_case {
    int64_t rows, cols;
    napier_dtype dtype;
    int by_columns;
} large_case;

static void fill(void *x, const large_case *c, int64_t odd) {
    uint64_t s = 88172645463325252u;
    for (int64_t i = 0; i < c->rows * c->cols; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        float v = (float)((int32_t)(s >> 40) - 8388608) * (6.0f / 8388608.0f);
        if (odd > 0 && i % odd == 0) {
            v = i % 3 ? -1e9f : (float)INFINITY;
        }
        element_set(x, c->dtype, i, (double)v);
    }
}

/* Rows [row, row + n). */
static napier_matrix view(const large_case *c, void *data, int64_t row, int64_t n) {
    napier_matrix m = {data, n, c->cols, c->by_columns ? 1 : c->cols, c->by_columns ? c->rows : 1, c->dtype};
    m.data = (char *)data + (size_t)(row * m.row_stride) * napier_dtype_size(c->dtype);
    return m;
}

static void run(napier_context *context, forward *op, const large_case *c, void *x, void *y, int64_t row, int64_t n) {
    const napier_matrix in = view(c, x, row, n);
    const napier_const_matrix logits = {in.data, n, c->cols, in.row_stride, in.col_stride, c->dtype};
    assert_int_equal(op(context, logits, view(c, y, row, n), NULL), NAPIER_OK);
}

/* offset: elements by which the logits lie off a cache line; the result lies `further` elements farther off. */
static void compare(napier_context *context, forward *op, const large_case *c, int64_t offset, int64_t further,
                    int64_t odd) {
    const size_t item = napier_dtype_size(c->dtype), bytes = (size_t)(c->rows * c->cols) * item;
    const size_t before = (size_t)offset * item, ahead = before + (size_t)further * item;
    char *x = aligned_alloc(64, bytes / 64 * 64 + 256), *y = aligned_alloc(64, bytes / 64 * 64 + 256);
    char *expected = malloc(bytes);
    assert_non_null(x);
    assert_non_null(y);
    assert_non_null(expected);
    fill(x + before, c, odd);
    for (int64_t r = 0; r < c->rows; r += SMALL) {
        run(context, op, c, x + before, expected, r, c->rows - r < SMALL ? c->rows - r : SMALL);
    }
    memset(y, 0x55, ahead + bytes + 64);
    run(context, op, c, x + before, y + ahead, 0, c->rows);
    assert_memory_equal(y + ahead, expected, bytes);
    for (size_t i = 0; i < 64; i++) { /* nothing beside the result was written */
        assert_true(i >= ahead || y[i] == 0x55);
        assert_int_equal(y[ahead + bytes + i], 0x55);
    }
    memcpy(y + ahead, x + before, bytes);
    run(context, op, c, y + ahead, y + ahead, 0, c->rows);
    assert_memory_equal(y + ahead, expected, bytes);
    free(expected);
    free(y);
    free(x);
}

static void test_large_results(void) {
    static const large_case cases[] = {
        {70001, 100, NAPIER_F32, 0},   {1000003, 8, NAPIER_F32, 0},   {700001, 13, NAPIER_F32, 0},
        {210001, 33, NAPIER_F32, 0},   {12000, 700, NAPIER_F32, 0},   {8192, 1024, NAPIER_F32, 0},
        {12001, 512, NAPIER_F32, 0},   {8000, 1025, NAPIER_F32, 0},   {3000, 3000, NAPIER_F32, 0},
        {2048, 4096, NAPIER_F32, 0},   {140001, 100, NAPIER_BF16, 0}, {13000, 1000, NAPIER_BF16, 0},
        {4000, 4096, NAPIER_BF16, 0},  {70001, 100, NAPIER_F32, 1},   {70000, 112, NAPIER_F32, 1},
        {8192, 1024, NAPIER_F32, 1},   {5001, 2500, NAPIER_F32, 1},   {1000003, 8, NAPIER_F32, 1},
        {140016, 100, NAPIER_BF16, 1}, {2099969, 3, NAPIER_BF16, 0},  {6300001, 1, NAPIER_BF16, 0},
        {1600033, 2, NAPIER_F32, 0}};
    static const napier_isa isas[] = {NAPIER_ISA_NEON, NAPIER_ISA_AVX2, NAPIER_ISA_AVX512};
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (!napier_isa_available(isas[i])) {
            print_message("skip  %s is not here\n", napier_isa_name(isas[i]));
            continue;
        }
        napier_context *const context = context_for_test(isas[i], 1 + (int)(i % 2));
        context->cache_bytes = 0; /* large caches hold more than these results */
        for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
            const bool lines = cases[s].cols % 512 == 0 && !cases[s].by_columns && cases[s].dtype == NAPIER_F32;
            compare(context, napier_softmax, &cases[s], s % 2 ? 0 : 5, 0, 0);
            compare(context, napier_log_softmax, &cases[s], s % 2 ? 3 : 0, lines ? 1 : 0, 100003);
            if (lines) {
                compare(context, napier_softmax, &cases[s], 0, 12, 100003);
            }
        }
    }
}

int main(void) { return RUN_TESTS("streaming", TEST(test_large_results)); }
