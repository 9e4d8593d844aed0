/* test_sparsemax_bits - the kernels of all instruction sets, for every layout and number of threads and in place, against
 * the definition in ops/sparsemax/threshold.h, element by element. */
#include <math.h>
#include <napier/sparsemax.h>

#include "ops/sparsemax/threshold.h"
#include "support/check.h"
#include "support/formats.h"

static double element(const grid *g, int64_t row, int64_t col, double temperature, bool wide) {
    const napier_matrix m = g->view;
    return sparsemax_load(m.data, m.dtype, row * m.row_stride + col * m.col_stride, temperature, wide);
}

static void set_element(grid *g, int64_t row, int64_t col, double value, bool wide) {
    const napier_matrix m = g->view;
    sparsemax_store(m.data, m.dtype, row * m.row_stride + col * m.col_stride, value, wide);
}

/* ---- The definition, for one row ---------------------------------------------------------------------------------- */

static napier_sparsemax_threshold threshold_of(const grid *x, int64_t row, double max, double temperature, bool wide) {
    napier_sparsemax_threshold t = {1.0, 1.0, 0.0};
    for (uint64_t before = 0;;) {
        napier_sparsemax_sum sum = {0, 0, 0};
        for (int64_t i = 0; i < x->view.cols; i++) {
            const double d = sparsemax_distance(max, element(x, row, i, temperature, wide));
            if (d < t.limit) {
                sparsemax_add(&sum, (napier_sparsemax_sum){1, 0, sparsemax_units(d)});
            }
        }
        if (sum.count == before) {
            return t;
        }
        before = sum.count;
        t = sparsemax_threshold_of(sum);
    }
}

static void define_row(const grid *x, grid *y, int64_t row, double temperature, bool wide) {
    double max = -HUGE_VAL;
    bool special = false;
    for (int64_t i = 0; i < x->view.cols; i++) {
        const double z = element(x, row, i, temperature, wide);
        special = special || !(z < HUGE_VAL);
        max = z > max ? z : max;
    }
    special = special || max == -HUGE_VAL;
    const napier_sparsemax_threshold t =
        special ? (napier_sparsemax_threshold){0, 0, 0} : threshold_of(x, row, max, temperature, wide);
    for (int64_t i = 0; i < x->view.cols; i++) {
        const double d = sparsemax_distance(max, element(x, row, i, temperature, wide));
        set_element(y, row, i, special ? napier_f64_nan() : sparsemax_prob(t, d), wide);
    }
}

static void define_gradient_row(const grid *p, const grid *g, grid *y, int64_t row, double temperature, bool wide) {
    double lane[256] = {0}, count = 0;
    for (int64_t i = 0; i < p->view.cols; i++) {
        if (element(p, row, i, 1, true) != 0) {
            lane[i % 256] += element(g, row, i, 1, true);
            count++;
        }
    }
    for (int half = 128; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    for (int64_t i = 0; i < p->view.cols; i++) {
        const double pull = (element(g, row, i, 1, true) - lane[0] / count) / temperature;
        const double prob = element(p, row, i, 1, true);
        set_element(y, row, i, prob == 0 ? 0 : prob == prob ? pull : prob, wide);
    }
}

/* ---- Kernels against it ------------------------------------------------------------------------------------------- */

typedef struct call {
    grid x, grad, expected; /* grad: its memory is NULL for the forward direction */
    napier_softmax_options options;
} call;

static napier_status run(napier_context *context, const call *c, const grid *x, const grid *grad, napier_matrix out) {
    return c->grad.memory ? napier_sparsemax_backward(context, grid_input(x), grid_input(grad), out, &c->options)
                          : napier_sparsemax(context, grid_input(x), out, &c->options);
}

static void check_turn(const call *c, napier_context *context, layout l) {
    const int64_t rows = c->x.view.rows, cols = c->x.view.cols;
    const bool in_place = c->x.view.dtype == c->expected.view.dtype;
    grid x = grid_make(l, rows, cols, c->x.view.dtype), y = grid_make(l, rows, cols, c->expected.view.dtype);
    grid grad = grid_make(LAYOUT_EVERY_OTHER, rows, cols, c->x.view.dtype);
    grid_copy(&x, &c->x);
    if (c->grad.memory) {
        grid_copy(&grad, &c->grad);
    }
    succeeded(context, run(context, c, &x, &grad, y.view), "sparsemax");
    bool same = grid_differences(&y, &c->expected, "sparsemax") == 0 && grid_damage(&y) == 0;
    if (in_place) {
        succeeded(context, run(context, c, &x, &grad, x.view), "in place");
        same = grid_differences(&x, &c->expected, "in place") == 0 && same;
    }
    expect(same, "%lld x %lld, %s to %s%s: %s, %d threads, %s", (long long)rows, (long long)cols,
           napier_dtype_name(x.view.dtype), napier_dtype_name(y.view.dtype), c->grad.memory ? ", gradient" : "",
           napier_isa_name(napier_context_isa(context)), napier_context_threads(context), layout_name(l));
}

static void check_everywhere(const call *c, uint64_t seed) {
    static const int threads[] = {1, 3};
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    for (int turn = 0; turn < 2 * count; turn++) {
        napier_context *const context = context_of(isas[turn / 2], threads[turn % 2]);
        check_turn(c, context, LAYOUT_CONTIGUOUS);
        check_turn(c, context, (layout)((seed + (uint64_t)turn) % LAYOUTS));
        napier_context_destroy(context);
    }
}

static void check_bits(int64_t rows, int64_t cols, napier_dtype in, napier_dtype out, uint64_t seed) {
    const bool wide = compute_dtype(in, out) == NAPIER_F64;
    const double rounded = wide ? 0.9 : (double)0.9f;
    const int64_t mark = scratch_mark();
    call c = {.x = grid_plain(rows, cols, in),
              .expected = grid_plain(rows, cols, out),
              .options = options_of(0.9, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN)};
    grid_fill(&c.x, seed % 2 ? ROW_KINDS : ROW_NORMAL, seed);
    for (int64_t row = 0; row < rows; row++) {
        define_row(&c.x, &c.expected, row, rounded, wide);
    }
    check_everywhere(&c, seed);
    c.grad = grid_plain(rows, cols, in);
    grid_fill(&c.grad, ROW_NORMAL, seed + 1);
    for (int64_t row = 0; row < rows; row++) {
        define_row(&c.x, &c.x, row, rounded, wide);
    }
    for (int64_t row = 0; row < rows; row++) {
        define_gradient_row(&c.x, &c.grad, &c.expected, row, rounded, wide);
    }
    check_everywhere(&c, seed);
    scratch_release(mark);
}

static void test_bits(void) {
    static const int64_t sizes[] = {1, 15, 16, 17, 48, 255, 257, 1023, 1024, 1025, 2049, 4095, 4096, 4097};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        check_bits(ROW_KINDS + 1, sizes[s], NAPIER_F32, NAPIER_F32, s);
        check_bits(ROW_KINDS + 1, sizes[s], NAPIER_F32, NAPIER_F32, s + 1);
        for (int d = 0; d < DTYPE_COUNT * DTYPE_COUNT; d++) {
            check_bits(3, sizes[s], all_dtypes[d / DTYPE_COUNT], all_dtypes[d % DTYPE_COUNT], s + (uint64_t)d);
        }
    }
}

/* 128 bits, which only rows of billions of elements need. */
static void test_division(void) {
    uint64_t rest;
    assert_true(sparsemax_divide(0, 10, 3, &rest) == 3 && rest == 1);
    assert_true(sparsemax_divide(1, 0, 3, &rest) == UINT64_C(0x5555555555555555) && rest == 1);
    assert_true(sparsemax_divide((UINT64_C(1) << 40) - 1, UINT64_MAX, UINT64_C(1) << 40, &rest) == UINT64_MAX);
    assert_true(rest == (UINT64_C(1) << 40) - 1);
    napier_sparsemax_sum sum = {1, 0, UINT64_MAX};
    sparsemax_add(&sum, (napier_sparsemax_sum){2, 5, 2});
    assert_true(sum.count == 3 && sum.high == 6 && sum.low == 1);
}

int main(void) { return RUN_TESTS("sparsemax bits", TEST(test_bits), TEST(test_division)); }
