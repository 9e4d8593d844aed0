/* tests/cuda/test_cuda_softmax.c - softmax, log_softmax, logsumexp and its gradient on a device: every bit of the
 * memory that they write, gaps between elements included, is what the CPU's call leaves there. */
#include "both.h"

/* ---- One call on both -------------------------------------------------------------------------------------------- */

typedef struct call {
    operation op;
    bool gradient; /* of LOGSUMEXP or LOGSUMEXP_ALL: grad_lse is row i of kind EQUAL, i */
    int64_t rows, cols;
    napier_dtype in, out;
    layout in_layout, out_layout;
    napier_softmax_options options;
    row_kind kind;
    uint64_t seed;
} call;

static napier_vector column_of(napier_matrix m) { return (napier_vector){m.data, m.rows, m.row_stride, m.dtype}; }

static void compare(const call *c) {
    const int64_t lines = operation_rows(c->op, c->rows), cols = c->gradient ? c->cols : operation_cols(c->op, c->cols);
    grid in = grid_new(c->in_layout, c->rows, c->cols, c->in), grad = grid_new(LAYOUT_PADDED, lines, 1, c->out);
    grid_fill(&in, c->kind, c->seed);
    for (int64_t i = 0; i < lines; i++) {
        grid_set(&grad, i, 0, i % 5 == 0 ? 1.0 : (double)i - 2.5);
    }
    const napier_const_matrix x = grid_input(&in);
    const napier_matrix y = grid_new(c->out_layout, c->gradient ? c->rows : lines, cols, c->out).view;
    const napier_vector lse = column_of(y);
    const napier_const_vector g = vector_read_only(column_of(grad.view));
    const napier_softmax_options *const o = &c->options;
    both_case("%s%s %lld x %lld %s (%s) to %s (%s), algorithm %d, temperature %g, seed %llu", operation_name(c->op),
              c->gradient ? " backward" : "", (long long)c->rows, (long long)c->cols, napier_dtype_name(c->in),
              layout_name(c->in_layout), napier_dtype_name(c->out), layout_name(c->out_layout), (int)o->algorithm,
              o->temperature, (unsigned long long)c->seed);
    switch (c->op) {
    case OP_SOFTMAX: SAME(softmax, x, y, o); break;
    case OP_LOG_SOFTMAX: SAME(log_softmax, x, y, o); break;
    case OP_LOGSUMEXP:
        if (c->gradient) {
            SAME(logsumexp_backward, x, g, y, o);
        } else {
            SAME(logsumexp, x, lse, o);
        }
        break;
    default:
        if (c->gradient) {
            SAME(logsumexp_all_backward, x, g, y, o);
        } else {
            SAME(logsumexp_all, x, lse, o);
        }
    }
    arrays_free();
}

static call plain(operation op, int64_t rows, int64_t cols, napier_dtype dtype) {
    const call c = {op,
                    false,
                    rows,
                    cols,
                    dtype,
                    dtype,
                    LAYOUT_CONTIGUOUS,
                    LAYOUT_CONTIGUOUS,
                    options_of(1.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN),
                    ROW_KINDS,
                    (uint64_t)(1000 * cols + rows)};
    return c;
}

static const napier_dtype narrow_dtypes[3] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

static void test_short_rows(void) {
    static const int64_t cols[] = {1,  2,   3,   7,   8,   9,   15,  16,  17,  31,  32,  33,   63,   64,
                                   65, 100, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000, 1023, 1024};
    for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++) {
        for (int d = 0; d < 3; d++) {
            for (operation op = OP_SOFTMAX; op <= OP_LOGSUMEXP; op++) {
                device_order(i);
                const call c = plain(op, 2 * ROW_KINDS + 1, cols[i], narrow_dtypes[d]);
                compare(&c);
            }
        }
    }
}

static void test_long_rows(void) {
    static const int64_t cols[] = {1025, 3000, 9000};
    for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++) {
        for (int d = 0; d < 3; d++) {
            for (operation op = OP_SOFTMAX; op <= OP_LOGSUMEXP; op++) {
                call c = plain(op, i == 0 ? ROW_KINDS : 6, cols[i], narrow_dtypes[d]);
                c.kind = i == 0 ? ROW_KINDS : (row_kind)(3 * (i + (size_t)d) % ROW_KINDS);
                for (napier_algorithm a = NAPIER_ALGORITHM_AUTO; a <= NAPIER_ALGORITHM_PARALLEL; a++) {
                    c.options.algorithm = a;
                    device_order(i + (uint64_t)a);
                    compare(&c);
                }
            }
        }
    }
}

/* Rows that a cluster of blocks keeps, of a vocabulary's size, one of which does not start on 16 bytes; and rows that
 * no cluster can keep. */
static void test_wide_rows(void) {
    const int64_t cols[] = {50257, 151936};
    for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++) {
        for (operation op = OP_SOFTMAX; op <= OP_LOGSUMEXP; op++) {
            call c = plain(op, op == OP_SOFTMAX ? 2 : 1, cols[i], i == 1 ? NAPIER_BF16 : NAPIER_F32);
            c.kind = op == OP_LOG_SOFTMAX ? ROW_RISING : op == OP_SOFTMAX ? ROW_NORMAL : ROW_ANY_FINITE;
            compare(&c);
        }
    }
    call c = plain(OP_SOFTMAX, 1, 600000, NAPIER_F32);
    compare(&c);
}

/* ---- Views, dtypes, options -------------------------------------------------------------------------------------- */

static void test_layouts(void) {
    static const int64_t cols[] = {5, 40, 300, 2500};
    for (layout l = LAYOUT_CONTIGUOUS; l < LAYOUTS; l++) {
        for (int i = 0; i < 4; i++) {
            for (operation op = OP_SOFTMAX; op <= OP_LOGSUMEXP_ALL; op++) {
                call c = plain(op, i < 3 ? ROW_KINDS + 1 : 4, cols[i], narrow_dtypes[(i + (int)l) % 3]);
                c.in_layout = l;
                c.out_layout = (layout)(((int)l + i) % LAYOUTS);
                c.kind = op == OP_LOGSUMEXP_ALL || i == 3 ? ROW_NORMAL : ROW_KINDS;
                compare(&c);
            }
        }
    }
}

static void test_dtypes_and_options(void) {
    static const int64_t cols[] = {6, 200, 1024, 1500};
    for (int i = 0; i < 4; i++) {
        for (int d = 0; d < 9; d++) {
            call c = plain((operation)(d % 2), ROW_KINDS, cols[i], narrow_dtypes[d / 3]);
            c.out = narrow_dtypes[d % 3];
            c.options.temperature = d % 2 == 0 ? 0.7 : 1.0;
            c.options.masked_rows = d % 4 < 2 ? NAPIER_MASKED_ZERO : NAPIER_MASKED_NAN;
            compare(&c);
            c.op = OP_LOGSUMEXP;
            c.options.temperature = 1e-3;
            compare(&c);
        }
    }
}

/* Rows that begin at every place within 16 bytes, from and to which whole words are put together; in place too. */
static void test_offsets(void) {
    for (int d = 0; d < 3; d++) {
        const int64_t size = (int64_t)napier_dtype_size(narrow_dtypes[d]), cols = 3 * 1024 + 7;
        for (int64_t offset = 0; offset < 16 / size; offset++) {
            const napier_algorithm a = offset % 2 == 0 ? NAPIER_ALGORITHM_AUTO : NAPIER_ALGORITHM_PARALLEL;
            const napier_softmax_options o = options_of(1.0, a, NAPIER_MASKED_NAN);
            grid g = grid_new(LAYOUT_CONTIGUOUS, 1, cols + 32, narrow_dtypes[d]);
            grid_fill(&g, ROW_NORMAL, (uint64_t)offset);
            napier_matrix x = g.view;
            const int64_t before = (unsigned char *)x.data - g.memory; /* on the device the memory is on 256 bytes */
            x.data = (char *)x.data + offset * size + (-before & 15);
            x.cols = cols;
            both_case("offset %d", (int)offset);
            SAME(softmax, napier_read_only(x), x, &o);
            arrays_free();
        }
    }
}

static void test_in_place(void) {
    static const int64_t cols[] = {10, 1000, 4000, 60000};
    for (int i = 0; i < 4; i++) {
        for (napier_algorithm a = NAPIER_ALGORITHM_AUTO; a <= NAPIER_ALGORITHM_PARALLEL; a++) {
            const napier_softmax_options o = options_of(1.0, a, NAPIER_MASKED_ZERO);
            grid x = grid_new(LAYOUT_PADDED, i == 3 ? 1 : ROW_KINDS, cols[i], narrow_dtypes[i % 3]);
            grid_fill(&x, i == 3 ? ROW_NORMAL : ROW_KINDS, 7);
            both_case("in place, %d columns", (int)cols[i]);
            SAME(softmax, grid_input(&x), x.view, &o);
            arrays_free();
        }
    }
}

/* One element -0 far above the rest: its log-probability is +0 in rows of every length. */
static void test_zeros(void) {
    static const int64_t cols[] = {1, 2, 20, 1000, 1025, 5000};
    for (int i = 0; i < 6; i++) {
        for (int sign = 0; sign < 2; sign++) {
            grid x = grid_new(LAYOUT_CONTIGUOUS, 1, cols[i], NAPIER_F32);
            const grid y = grid_new(LAYOUT_CONTIGUOUS, 1, cols[i], NAPIER_F32);
            for (int64_t j = 0; j < cols[i]; j++) {
                grid_set(&x, 0, j, j == cols[i] / 2 ? (sign ? -0.0 : 0.0) : -1e30);
            }
            both_case("zeros, %d columns", (int)cols[i]);
            SAME(log_softmax, grid_input(&x), y.view, NULL);
            assert_int_equal(grid_bits(&y, 0, cols[i] / 2), 0);
            arrays_free();
        }
    }
}

/* ---- The whole array, and gradients ------------------------------------------------------------------------------ */

static void test_whole_array(void) {
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {40, 30}, {7, 3000}, {1, 50000}};
    for (int i = 0; i < 5; i++) {
        for (int d = i == 4 ? 2 : 0; d < 3; d++) {
            call c = plain(OP_LOGSUMEXP_ALL, sizes[i][0], sizes[i][1], narrow_dtypes[d]);
            c.in_layout = d == 1 ? LAYOUT_PADDED : LAYOUT_CONTIGUOUS;
            c.kind = i % 2 == 0 ? ROW_NORMAL : ROW_FLUSH_EDGE;
            for (napier_algorithm a = NAPIER_ALGORITHM_AUTO; a <= NAPIER_ALGORITHM_PARALLEL; a++) {
                c.options.algorithm = a;
                compare(&c);
            }
            c.options = options_of(0.3, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
            c.gradient = true;
            compare(&c);
        }
    }
}

static void test_logsumexp_backward(void) {
    static const int64_t cols[] = {1, 9, 300, 1024, 1025, 4000};
    for (int i = 0; i < 6; i++) {
        for (int d = 0; d < 9; d++) {
            call c = plain(OP_LOGSUMEXP, ROW_KINDS, cols[i], narrow_dtypes[d % 3]);
            c.out = narrow_dtypes[d / 3];
            c.gradient = true;
            c.out_layout = d % 2 == 0 ? LAYOUT_CONTIGUOUS : LAYOUT_PADDED;
            c.options.temperature = d % 2 == 0 ? 1.0 : 2.5;
            compare(&c);
        }
    }
}

/* softmax_backward and log_softmax_backward, of whatever bits: they must agree for those that no softmax gives too. */
static void compare_backward(bool log, int64_t rows, int64_t cols, int d, bool in_place) {
    const napier_softmax_options o = options_of(d % 2 == 0 ? 1.0 : 0.4, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const bool wide = d >= 27; /* one, two or three of them f64 */
    grid values = grid_new((layout)(d % LAYOUTS), rows, cols, wide && d % 2 == 0 ? NAPIER_F64 : narrow_dtypes[d % 3]);
    grid gradients =
        grid_new((layout)(d / 2 % LAYOUTS), rows, cols, wide && d % 4 < 2 ? NAPIER_F64 : narrow_dtypes[d / 3 % 3]);
    const grid out = grid_new((layout)(d / 4 % LAYOUTS), rows, cols, wide ? NAPIER_F64 : narrow_dtypes[d / 9 % 3]);
    grid_fill(&values, ROW_KINDS, (uint64_t)d);
    grid_fill(&gradients, ROW_KINDS, (uint64_t)(5 * d + cols));
    const napier_const_matrix y = grid_input(&values), g = grid_input(&gradients);
    const napier_matrix to = in_place ? gradients.view : out.view;
    const napier_vector dots = vector_new(rows, out.view.dtype, 1 + d % 2);
    both_case("backward %d %lld x %lld, dtypes %d", log, (long long)rows, (long long)cols, d);
    fine((log ? napier_log_softmax : napier_softmax)(cpu, y, values.view, NULL));
    if (log) {
        SAME(log_softmax_backward, y, g, to, &o);
    } else {
        SAME(softmax_backward, y, g, to, &o);
        SAME(dot_rows, y, g, dots);
    }
    arrays_free();
}

static void test_backward(void) {
    static const int64_t cols[] = {1, 100, 1024, 1025, 4500};
    for (int i = 0; i < 5; i++) {
        for (int d = i % 2; d < 27; d += i < 3 ? 1 : 2) {
            device_order((uint64_t)d);
            compare_backward(d % 2 == 1, cols[i] > 2000 ? 6 : ROW_KINDS, cols[i], d, false);
        }
        compare_backward(i % 2 == 1, ROW_KINDS, cols[i], 0, true);
    }
    compare_backward(false, 2, 60000, 0, false); /* split over blocks */
    compare_backward(true, 1, 50257, 4, false);
    compare_backward(true, 2, 70001, 1, true);
}

/* The compute type is f64 as soon as one of them is. */
static void test_f64(void) {
    static const int64_t cols[] = {1, 30, 2100};
    for (int i = 0; i < 3; i++) {
        for (int d = i % 2; d < 7; d += i == 2 ? 3 : 1) {
            call c = plain(OP_SOFTMAX, i == 2 ? 5 : ROW_KINDS, cols[i], d < 4 ? NAPIER_F64 : narrow_dtypes[d - 4]);
            c.out = d < 4 ? all_dtypes[d] : NAPIER_F64;
            c.in_layout = (layout)(d % LAYOUTS);
            c.options.temperature = d % 2 == 0 ? 1.0 : 0.9;
            c.options.masked_rows = d % 3 == 0 ? NAPIER_MASKED_ZERO : NAPIER_MASKED_NAN;
            for (c.op = OP_SOFTMAX; c.op < OPERATIONS; c.op++) {
                c.kind = (row_kind)((3 * (int)c.op + d) % ROW_KINDS);
                c.kind = i == 2 ? c.kind : ROW_KINDS;
                compare(&c);
            }
            c.gradient = true;
            c.op = d % 2 == 0 ? OP_LOGSUMEXP : OP_LOGSUMEXP_ALL;
            compare(&c);
            compare_backward(d % 2 == 0, 6, cols[i], 27 + d, false);
        }
    }
}

/* ---- Nothing to do, and errors ----------------------------------------------------------------------------------- */

static void test_empty(void) {
    for (operation op = OP_SOFTMAX; op <= OP_LOGSUMEXP_ALL; op++) {
        call c = plain(op, 0, 5, NAPIER_F32);
        compare(&c);
        c = plain(op, 5, 0, NAPIER_BF16);
        compare(&c);
        c = plain(op, 0, 0, NAPIER_F16);
        compare(&c);
    }
}

static void test_errors(void) {
    float *const x = array_new(4 * 5000), *const y = array_new(4 * 5000);
    const napier_const_matrix in = napier_const_rows_f32(x, 1, 5000);
    const napier_softmax_options cold = options_of(-1.0, NAPIER_ALGORITHM_PARALLEL, NAPIER_MASKED_NAN);
    bad(through_softmax(cpu, in, napier_rows_f32(y, 1, 5000), &cold), "options: temperature -1");
    bad(through_softmax(cpu, in, napier_rows_f32(y, 1, 4999), NULL), "probs: shape 1 x 4999");
    bad(through_log_softmax(cpu, in, napier_rows_f32(x + 1, 1, 4999), NULL), "logprobs");
    bad(through_logsumexp(cpu, in, napier_array_f32(y, 2), NULL), "lse: size 2 is not 1");
}

int main(void) {
    return BOTH_TESTS("cuda_softmax", TEST(test_short_rows), TEST(test_long_rows), TEST(test_wide_rows),
                      TEST(test_layouts), TEST(test_dtypes_and_options), TEST(test_offsets), TEST(test_in_place),
                      TEST(test_zeros), TEST(test_whole_array), TEST(test_logsumexp_backward), TEST(test_backward),
                      TEST(test_f64), TEST(test_empty), TEST(test_errors));
}
