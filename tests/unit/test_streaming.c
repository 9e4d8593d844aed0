/* test_streaming - results so large that they are stored past the caches have the bits of the same rows in small calls:
 * aligned and not, in place and not, rows of whole cache lines and not, with masks and infinities among them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <napier/napier.h>

typedef napier_status operation(napier_context *, napier_const_matrix, napier_matrix, const napier_softmax_options *);

enum { SMALL = 1000 }; /* rows in a small call */

static void fill(float *x, int64_t n, int64_t odd) {
    uint64_t s = 88172645463325252u;
    for (int64_t i = 0; i < n; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        x[i] = (float)((int32_t)(s >> 40) - 8388608) * (6.0f / 8388608.0f);
        if (odd > 0 && i % odd == 0) {
            x[i] = i % 3 ? -1e9f : (float)INFINITY;
        }
    }
}

static void in_small_calls(napier_context *context, operation *op, const float *x, float *y, int64_t rows,
                           int64_t cols) {
    for (int64_t r = 0; r < rows; r += SMALL) {
        const int64_t n = rows - r < SMALL ? rows - r : SMALL;
        const int64_t at = r * cols;
        assert_int_equal(op(context, napier_const_rows_f32(x + at, n, cols), napier_rows_f32(y + at, n, cols), NULL),
                         0);
    }
}

static void compare(napier_context *context, operation *op, int64_t rows, int64_t cols, int64_t offset, int64_t odd) {
    const size_t bytes = (size_t)(rows * cols) * sizeof(float);
    float *x_memory = malloc(bytes + 256), *y_memory = malloc(bytes + 256), *expected = malloc(bytes);
    assert_non_null(x_memory);
    assert_non_null(y_memory);
    assert_non_null(expected);
    float *x = x_memory + offset, *y = y_memory + 12 + offset; /* malloc's large blocks lie 16 bytes past a line */
    fill(x, rows * cols, odd);
    in_small_calls(context, op, x, expected, rows, cols);
    assert_int_equal(op(context, napier_const_rows_f32(x, rows, cols), napier_rows_f32(y, rows, cols), NULL), 0);
    assert_memory_equal(y, expected, bytes);
    memcpy(y, x, bytes);
    assert_int_equal(op(context, napier_const_rows_f32(y, rows, cols), napier_rows_f32(y, rows, cols), NULL), 0);
    assert_memory_equal(y, expected, bytes);
    free(expected);
    free(y_memory);
    free(x_memory);
}

static void test_large_results(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{70001, 100}, {1000003, 8}, {700001, 13},
                                        {12000, 700}, {8192, 1024}, {8000, 1025}};
    static const napier_isa isas[] = {NAPIER_ISA_NEON, NAPIER_ISA_AVX2, NAPIER_ISA_AVX512};
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (!napier_isa_available(isas[i])) {
            print_message("skip  %s is not here\n", napier_isa_name(isas[i]));
            continue;
        }
        napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
        options.highest_isa = isas[i];
        napier_context *context = NULL;
        assert_int_equal(napier_context_create(&context, &options), NAPIER_OK);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            compare(context, napier_softmax, shapes[s][0], shapes[s][1], 0, 0);
            compare(context, napier_log_softmax, shapes[s][0], shapes[s][1], 1, 100003);
        }
        napier_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_results)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
