/* tests/cuda/test_cuda_softmax.c - softmax, log_softmax, logsumexp and its gradient on a device: every bit of the
 * memory that they write, gaps between elements included, is what the CPU's call leaves there. */
#include <napier/cuda/softmax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_test.h"
#include "support/check.h"
#include "support/formats.h"

static napier_cuda_context *device;
static napier_context *host;

/* ---- A grid on the device: the same bytes, gaps included --------------------------------------------------------- */

typedef struct mirror {
    void *memory;
    napier_matrix view;
} mirror;

static mirror mirror_of(const grid *g) {
    mirror m = {device_copy(g->memory, g->bytes), g->view};
    m.view.data = (char *)m.memory + ((unsigned char *)g->view.data - g->memory);
    return m;
}

static void same_bytes(const grid *expected, const mirror *got, const char *what) {
    unsigned char *bytes = room_for((int64_t)expected->bytes, 1);
    device_read(bytes, got->memory, expected->bytes);
    for (size_t i = 0; i < expected->bytes; i++) {
        if (bytes[i] != expected->memory[i]) {
            problem("%s: byte %zu is %02x, not %02x", what, i, bytes[i], expected->memory[i]);
            break;
        }
    }
    free(bytes);
}

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

static napier_vector column_of(napier_matrix m) {
    const napier_vector v = {m.data, m.rows, m.row_stride, m.dtype};
    return v;
}

static napier_status run_on_device(const call *c, napier_cuda_workspace *w, napier_matrix x, napier_matrix y,
                                   napier_vector g) {
    const napier_const_matrix logits = napier_read_only(x);
    const napier_const_vector grad = {g.data, g.size, g.stride, g.dtype};
    const napier_softmax_options *const o = &c->options;
    switch (c->op) {
    case OP_SOFTMAX: return napier_cuda_softmax(device, NULL, w, logits, y, o);
    case OP_LOG_SOFTMAX: return napier_cuda_log_softmax(device, NULL, w, logits, y, o);
    case OP_LOGSUMEXP:
        return c->gradient ? napier_cuda_logsumexp_backward(device, NULL, w, logits, grad, y, o)
                           : napier_cuda_logsumexp(device, NULL, w, logits, column_of(y), o);
    default:
        return c->gradient ? napier_cuda_logsumexp_all_backward(device, NULL, w, logits, grad, y, o)
                           : napier_cuda_logsumexp_all(device, NULL, w, logits, column_of(y), o);
    }
}

static napier_status run_on_host(const call *c, napier_matrix x, napier_matrix y, napier_vector g) {
    const napier_const_vector grad = {g.data, g.size, g.stride, g.dtype};
    if (!c->gradient) {
        return operation_run(host, c->op, napier_read_only(x), y, &c->options);
    }
    return c->op == OP_LOGSUMEXP ? napier_logsumexp_backward(host, napier_read_only(x), grad, y, &c->options)
                                 : napier_logsumexp_all_backward(host, napier_read_only(x), grad, y, &c->options);
}

static bool device_succeeded(napier_status status, const char *what) {
    return expect(status == NAPIER_OK, "%s: status %d: %s", what, (int)status, napier_cuda_last_error(device));
}

static void compare(const call *c) {
    char what[200];
    snprintf(what, sizeof what, "%s%s %lld x %lld %s (%s) to %s (%s), algorithm %d, temperature %g, seed %llu",
             operation_name(c->op), c->gradient ? " backward" : "", (long long)c->rows, (long long)c->cols,
             napier_dtype_name(c->in), layout_name(c->in_layout), napier_dtype_name(c->out), layout_name(c->out_layout),
             (int)c->options.algorithm, c->options.temperature, (unsigned long long)c->seed);
    const int64_t lines = operation_rows(c->op, c->rows);
    grid x = grid_make(c->in_layout, c->rows, c->cols, c->in);
    grid y = c->gradient ? grid_make(c->out_layout, c->rows, c->cols, c->out)
                         : grid_make(c->out_layout, lines, operation_cols(c->op, c->cols), c->out);
    grid g = grid_make(LAYOUT_PADDED, lines, 1, c->out);
    grid_fill(&x, c->kind, c->seed);
    for (int64_t i = 0; i < lines; i++) {
        grid_set(&g, i, 0, i % 5 == 0 ? 1.0 : (double)i - 2.5);
    }
    const mirror dx = mirror_of(&x), dy = mirror_of(&y), dg = mirror_of(&g);
    succeeded(host, run_on_host(c, x.view, y.view, column_of(g.view)), what);
    napier_cuda_workspace w = {NULL, 0};
    if (device_succeeded(run_on_device(c, &w, dx.view, dy.view, column_of(dg.view)), what)) {
        w.data = device_new(w.size);
        device_succeeded(run_on_device(c, &w, dx.view, dy.view, column_of(dg.view)), what);
        device_succeeded(napier_cuda_synchronize(device, NULL), what);
        same_bytes(&y, &dy, what);
        same_bytes(&x, &dx, "the logits");
        device_free(w.data);
    }
    device_free(dx.memory);
    device_free(dy.memory);
    device_free(dg.memory);
    grid_free(&x);
    grid_free(&y);
    grid_free(&g);
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

static void test_short_rows(void **state) {
    (void)state;
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
    no_problems();
}

static void test_long_rows(void **state) {
    (void)state;
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
    no_problems();
}

/* Rows that a cluster of blocks keeps, of a vocabulary's size, one of which does not start on 16 bytes; and rows that
 * no cluster can keep. */
static void test_wide_rows(void **state) {
    (void)state;
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
    no_problems();
}

/* ---- Views, dtypes, options -------------------------------------------------------------------------------------- */

static void test_layouts(void **state) {
    (void)state;
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
    no_problems();
}

static void test_dtypes_and_options(void **state) {
    (void)state;
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
    no_problems();
}

/* Rows that begin at every place within 16 bytes, from and to which whole words are put together; in place too. */
static void test_offsets(void **state) {
    (void)state;
    for (int d = 0; d < 3; d++) {
        const int64_t size = (int64_t)napier_dtype_size(narrow_dtypes[d]), cols = 3 * 1024 + 7;
        for (int64_t offset = 0; offset < 16 / size; offset++) {
            const napier_algorithm a = offset % 2 == 0 ? NAPIER_ALGORITHM_AUTO : NAPIER_ALGORITHM_PARALLEL;
            const napier_softmax_options o = options_of(1.0, a, NAPIER_MASKED_NAN);
            grid x = grid_make(LAYOUT_CONTIGUOUS, 1, cols + 32, narrow_dtypes[d]);
            grid_fill(&x, ROW_NORMAL, (uint64_t)offset);
            const mirror m = mirror_of(&x);
            const int64_t shift = offset * size + (-(intptr_t)m.view.data & 15); /* device memory is on 256 bytes */
            napier_matrix in = x.view, out = m.view;
            in.data = (char *)in.data + shift;
            out.data = (char *)out.data + shift;
            in.cols = out.cols = cols;
            succeeded(host, napier_softmax(host, napier_read_only(in), in, &o), "offsets");
            napier_cuda_workspace w = {NULL, 0};
            device_succeeded(napier_cuda_softmax(device, NULL, &w, napier_read_only(out), out, &o), "offsets");
            w.data = device_new(w.size);
            device_succeeded(napier_cuda_softmax(device, NULL, &w, napier_read_only(out), out, &o), "offsets");
            same_bytes(&x, &m, "offsets");
            device_free(w.data);
            device_free(m.memory);
            grid_free(&x);
        }
    }
    no_problems();
}

static void test_in_place(void **state) {
    (void)state;
    static const int64_t cols[] = {10, 1000, 4000, 60000};
    for (int i = 0; i < 4; i++) {
        for (napier_algorithm a = NAPIER_ALGORITHM_AUTO; a <= NAPIER_ALGORITHM_PARALLEL; a++) {
            const int64_t rows = i == 3 ? 1 : ROW_KINDS;
            grid x = grid_make(LAYOUT_PADDED, rows, cols[i], narrow_dtypes[i % 3]);
            const napier_softmax_options o = options_of(1.0, a, NAPIER_MASKED_ZERO);
            grid_fill(&x, i == 3 ? ROW_NORMAL : ROW_KINDS, 7);
            const mirror m = mirror_of(&x);
            succeeded(host, napier_softmax(host, grid_input(&x), x.view, &o), "in place");
            napier_cuda_workspace w = {NULL, 0};
            device_succeeded(napier_cuda_softmax(device, NULL, &w, napier_read_only(m.view), m.view, &o), "in place");
            w.data = device_new(w.size);
            device_succeeded(napier_cuda_softmax(device, NULL, &w, napier_read_only(m.view), m.view, &o), "in place");
            same_bytes(&x, &m, "in place");
            device_free(w.data);
            device_free(m.memory);
            grid_free(&x);
        }
    }
    no_problems();
}

/* One element -0 far above the rest: its log-probability is +0 in rows of every length. */
static void test_zeros(void **state) {
    (void)state;
    static const int64_t cols[] = {1, 2, 20, 1000, 1025, 5000};
    for (int i = 0; i < 6; i++) {
        for (int sign = 0; sign < 2; sign++) {
            grid x = grid_make(LAYOUT_CONTIGUOUS, 1, cols[i], NAPIER_F32), y = x;
            y = grid_make(LAYOUT_CONTIGUOUS, 1, cols[i], NAPIER_F32);
            for (int64_t j = 0; j < cols[i]; j++) {
                grid_set(&x, 0, j, j == cols[i] / 2 ? (sign ? -0.0 : 0.0) : -1e30);
            }
            const mirror dx = mirror_of(&x), dy = mirror_of(&y);
            succeeded(host, napier_log_softmax(host, grid_input(&x), y.view, NULL), "zeros");
            expect(grid_bits(&y, 0, cols[i] / 2) == 0, "%lld columns: -0", (long long)cols[i]);
            device_succeeded(napier_cuda_log_softmax(device, NULL, NULL, napier_read_only(dx.view), dy.view, NULL),
                             "zeros");
            same_bytes(&y, &dy, "zeros");
            device_free(dx.memory);
            device_free(dy.memory);
            grid_free(&x);
            grid_free(&y);
        }
    }
    no_problems();
}

/* ---- The whole array, and gradients ------------------------------------------------------------------------------ */

static void test_whole_array(void **state) {
    (void)state;
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
    no_problems();
}

static void test_logsumexp_backward(void **state) {
    (void)state;
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
    no_problems();
}

/* softmax_backward and log_softmax_backward, of whatever bits: they must agree for those that no softmax gives too. */
static void compare_backward(bool log, int64_t rows, int64_t cols, int d, bool in_place) {
    char what[100];
    snprintf(what, sizeof what, "backward %d %lld x %lld, dtypes %d", log, (long long)rows, (long long)cols, d);
    const napier_softmax_options o = options_of(d % 2 == 0 ? 1.0 : 0.4, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const bool wide = d >= 27; /* one, two or three of them f64 */
    grid values = grid_make((layout)(d % LAYOUTS), rows, cols, wide && d % 2 == 0 ? NAPIER_F64 : narrow_dtypes[d % 3]);
    grid gradients =
        grid_make((layout)(d / 2 % LAYOUTS), rows, cols, wide && d % 4 < 2 ? NAPIER_F64 : narrow_dtypes[d / 3 % 3]);
    grid out = grid_make((layout)(d / 4 % LAYOUTS), rows, cols, wide ? NAPIER_F64 : narrow_dtypes[d / 9 % 3]);
    grid_fill(&values, ROW_KINDS, (uint64_t)d);
    grid_fill(&gradients, ROW_KINDS, (uint64_t)(5 * d + cols));
    succeeded(host, (log ? napier_log_softmax : napier_softmax)(host, grid_input(&values), values.view, NULL), what);
    const mirror v = mirror_of(&values), g = mirror_of(&gradients), y = mirror_of(&out);
    const napier_matrix to = in_place ? gradients.view : out.view, device_to = in_place ? g.view : y.view;
    succeeded(host,
              (log ? napier_log_softmax_backward : napier_softmax_backward)(host, grid_input(&values),
                                                                            grid_input(&gradients), to, &o),
              what);
    napier_cuda_workspace w = {NULL, 0};
    for (int turn = 0; turn < 2; turn++) {
        device_succeeded((log ? napier_cuda_log_softmax_backward : napier_cuda_softmax_backward)(
                             device, NULL, &w, napier_read_only(v.view), napier_read_only(g.view), device_to, &o),
                         what);
        w.data = turn == 0 ? device_new(w.size) : w.data;
    }
    same_bytes(in_place ? &gradients : &out, in_place ? &g : &y, what);
    device_free(w.data);
    device_free(v.memory);
    device_free(g.memory);
    device_free(y.memory);
    grid_free(&values);
    grid_free(&gradients);
    grid_free(&out);
}

static void test_backward(void **state) {
    (void)state;
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
    no_problems();
}

/* The compute type is f64 as soon as one of them is. */
static void test_f64(void **state) {
    (void)state;
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
    no_problems();
}

/* ---- Nothing to do, and errors ----------------------------------------------------------------------------------- */

static void test_empty(void **state) {
    (void)state;
    for (operation op = OP_SOFTMAX; op <= OP_LOGSUMEXP_ALL; op++) {
        call c = plain(op, 0, 5, NAPIER_F32);
        compare(&c);
        c = plain(op, 5, 0, NAPIER_BF16);
        compare(&c);
        c = plain(op, 0, 0, NAPIER_F16);
        compare(&c);
    }
    no_problems();
}

static void refused_with(napier_status status, const char *text) {
    expect(status == NAPIER_INVALID_ARGUMENT, "status %d, not INVALID_ARGUMENT: %s", (int)status, text);
    expect(strstr(napier_cuda_last_error(device), text) != NULL, "'%s' does not say '%s'",
           napier_cuda_last_error(device), text);
}

static void test_errors(void **state) {
    (void)state;
    float *const x = device_new(4 * 5000), *const y = device_new(4 * 5000);
    const napier_const_matrix in = napier_const_rows_f32(x, 1, 5000);
    const napier_matrix out = napier_rows_f32(y, 1, 5000);
    napier_softmax_options o = options_of(-1.0, NAPIER_ALGORITHM_PARALLEL, NAPIER_MASKED_NAN);
    assert_int_equal(napier_cuda_softmax(NULL, NULL, NULL, in, out, NULL), NAPIER_INVALID_ARGUMENT);
    refused_with(napier_cuda_softmax(device, NULL, NULL, in, out, &o), "options: temperature -1");
    refused_with(napier_cuda_softmax(device, NULL, NULL, in, napier_rows_f32(y, 1, 4999), NULL),
                 "probs: shape 1 x 4999");
    refused_with(napier_cuda_log_softmax(device, NULL, NULL, in, napier_rows_f32(x + 1, 1, 4999), NULL), "logprobs");
    refused_with(napier_cuda_logsumexp(device, NULL, NULL, in, napier_array_f32(y, 2), NULL), "lse: size 2 is not 1");
    o.temperature = 1.0;
    refused_with(napier_cuda_softmax(device, NULL, NULL, in, out, &o), "workspace: size 0 is less than");
    napier_cuda_workspace w = {NULL, 0};
    assert_int_equal(napier_cuda_softmax(device, NULL, &w, in, out, &o), NAPIER_OK);
    assert_true(w.size > 0);
    w.data = device_new(w.size--);
    refused_with(napier_cuda_softmax(device, NULL, &w, in, out, &o), "workspace: size");
    device_free(w.data);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_rows),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_wide_rows),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_dtypes_and_options),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_whole_array),
        cmocka_unit_test(test_logsumexp_backward),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_f64),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, make_contexts, drop_contexts);
}
