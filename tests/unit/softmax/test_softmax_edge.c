/* The edges of softmax, log_softmax and logsumexp: the table of special rows, temperature, empty matrices, views of
 * every stride, arguments that cannot be, aliasing, and the caller's floating-point state. */
#include "support/check.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <string.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "support/formats.h"
#include "support/oracle.h"

/* ---- The table of special rows ---------------------------------------------------------------------------------- */

/* What a special row does with an ordinary one: its elements at `first`, in the middle, or at the end. */
typedef struct special {
    const char *name;
    bool everything_masked; /* the rest of the row is -inf, else ordinary */
    bool nan, pinf, minf;   /* what is put in */
} special;

static const special specials[] = {
    {"all -inf", true, false, false, false},          {"a NaN", false, true, false, false},
    {"a NaN among -inf", true, true, false, false},   {"a +inf", false, false, true, false},
    {"a +inf among -inf", true, false, true, false},  {"NaN and +inf", false, true, true, false},
    {"-inf among finite", false, false, false, true}, {"-inf and +inf", false, false, true, true},
    {"everything odd", false, true, true, true},
};

enum { NAN_PATTERNS = 4 };

/* Quiet, signalling, negative, with payload. */
static uint64_t nan_pattern(napier_dtype dtype, int which) {
    const int fraction = dtype_precision(dtype) - 1;
    const uint64_t quiet = dtype_canonical_nan(dtype), infinity = quiet & ~((uint64_t)1 << (fraction - 1));
    const uint64_t sign = (uint64_t)1 << (8 * napier_dtype_size(dtype) - 1);
    const uint64_t patterns[NAN_PATTERNS] = {quiet, infinity | 1, sign | quiet, sign | infinity | 5};
    return patterns[which % NAN_PATTERNS];
}

/* Where special elements go: the position of the k-th of them. */
static int64_t position(int64_t n, int64_t where, int64_t k) {
    return (where == 0 ? k : where == 1 ? n / 2 + k : n - 1 - k) % n;
}

static void put_special(grid *g, int64_t row, const special *s, int64_t where) {
    const int64_t n = g->view.cols, stride = g->view.col_stride;
    unsigned char *const start =
        (unsigned char *)g->view.data + row * g->view.row_stride * (int64_t)napier_dtype_size(g->view.dtype);
    for (int64_t col = 0; col < n; col++) {
        grid_set(g, row, col, s->everything_masked ? -HUGE_VAL : (double)(col % 7) * 0.5 - 1.0);
    }
    int64_t k = 0;
    if (s->minf) {
        grid_set(g, row, position(n, where, k++), -HUGE_VAL);
    }
    if (s->pinf && k < n) {
        grid_set(g, row, position(n, where, k++), HUGE_VAL);
    }
    if (s->nan && k < n) {
        element_set_bits(start, g->view.dtype, position(n, where, k) * stride,
                         nan_pattern(g->view.dtype, (int)(row + n)));
    }
}

static bool bits_are(const grid *out, int64_t row, int64_t col, uint64_t wanted, const char *what, const special *s,
                     int64_t n, napier_dtype in) {
    const uint64_t got = grid_bits(out, row, col);
    return expect(got == wanted, "%s, %lld columns, %s to %s: %s[%lld] is %#llx, not %#llx", s->name, (long long)n,
                  napier_dtype_name(in), napier_dtype_name(out->view.dtype), what, (long long)col,
                  (unsigned long long)got, (unsigned long long)wanted);
}

static void check_special_row(const grid *in, const grid *out, int64_t row, operation op, const special *s,
                              napier_masked_rows masked_rows) {
    const int64_t n = in->view.cols;
    const napier_dtype dtype = out->view.dtype;
    double *const x = scratch(n, sizeof *x);
    grid_get_row(in, row, x);
    const oracle_row truth = oracle_reduce(x, n);
    const uint64_t nan = dtype_canonical_nan(dtype), minf = dtype_bits(dtype, -HUGE_VAL);
    const char *const what = operation_name(op);
    if (op == OP_LOGSUMEXP) {
        if (truth.outcome != ORACLE_FINITE) {
            const uint64_t wanted = truth.outcome == ORACLE_NAN        ? nan
                                    : truth.outcome == ORACLE_PLUS_INF ? dtype_bits(dtype, HUGE_VAL)
                                                                       : minf;
            bits_are(out, row, 0, wanted, what, s, n, in->view.dtype);
        } else {
            expect(isfinite(grid_get(out, row, 0)), "%s: logsumexp is not finite", s->name);
        }
    } else {
        for (int64_t col = 0; col < n; col++) {
            const bool masked = truth.outcome == ORACLE_ALL_MASKED && masked_rows == NAPIER_MASKED_ZERO;
            bool fine = true;
            if (masked || (truth.outcome == ORACLE_FINITE && isinf(x[col]))) {
                fine = bits_are(out, row, col, op == OP_SOFTMAX ? 0 : minf, what, s, n, in->view.dtype);
            } else if (truth.outcome != ORACLE_FINITE) {
                fine = bits_are(out, row, col, nan, what, s, n, in->view.dtype);
            } else {
                fine = expect(isfinite(grid_get(out, row, col)), "%s: %s[%lld] is not finite", s->name, what,
                              (long long)col);
            }
            if (!fine) {
                break;
            }
        }
    }
}

static void run_table(napier_context *context, layout l, int64_t cols, napier_dtype in_dtype, napier_dtype out_dtype) {
    enum { PLACES = 3, SPECIALS = sizeof specials / sizeof *specials };
    const int64_t mark = scratch_mark();
    grid in = grid_make(l, PLACES * SPECIALS, cols, in_dtype);
    for (int64_t row = 0; row < in.view.rows; row++) {
        put_special(&in, row, &specials[row / PLACES], row % PLACES);
    }
    for (operation op = OP_SOFTMAX; op <= OP_LOGSUMEXP; op++) {
        for (int turn = 0; turn < 6; turn++) { /* every algorithm, two of them with either kind of masked rows */
            const napier_masked_rows mode = turn < 4 ? NAPIER_MASKED_NAN : NAPIER_MASKED_ZERO;
            const napier_algorithm algorithm = (napier_algorithm)(turn < 4 ? turn : 2 * (turn - 4) + (int)(cols % 2));
            const napier_softmax_options options = options_of(1.0, algorithm, mode);
            grid out = grid_make(l, in.view.rows, operation_cols(op, cols), out_dtype);
            if (succeeded(context, operation_run(context, op, grid_input(&in), out.view, &options),
                          operation_name(op))) {
                for (int64_t row = 0; row < in.view.rows; row++) {
                    check_special_row(&in, &out, row, op, &specials[row / PLACES], mode);
                }
            }
        }
    }
    scratch_release(mark);
}

static void test_special_rows(void) {
    static const int64_t sizes[] = {1, 2, 3, 8, 16, 17, 48, 50, 257, 1025, 2100};
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    for (int i = 0; i < count; i++) {
        napier_context *const context = context_for_test(isas[i], 2);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s += NAPIER_SANITIZED ? 3 : 1) {
            for (int d = 0; d < DTYPE_COUNT * DTYPE_COUNT; d++) {
                const napier_dtype in = all_dtypes[d / DTYPE_COUNT], out = all_dtypes[d % DTYPE_COUNT];
                if (i == 0 || (in == out && in != NAPIER_F64)) { /* all pairs once, the f32 kernels on every set */
                    run_table(context, LAYOUT_CONTIGUOUS, sizes[s], in, out);
                    run_table(context, LAYOUT_TRANSPOSED, sizes[s], in, out);
                }
            }
        }
    }
}

/* NaN in the last tile of many, +inf in the first: NaN wins wherever they lie. */
static void test_nan_far_from_infinity(napier_context *context) {
    enum { N = 5000 };
    float *const x = scratch(N, sizeof *x);
    for (int turn = 0; turn < 2; turn++) {
        memset(x, 0, N * sizeof *x);
        x[turn ? 3 : N - 3] = INFINITY;
        x[turn ? N - 1 : 0] = NAN;
        float lse = 0;
        works(napier_logsumexp, context, napier_const_rows_f32(x, 1, N), napier_array_f32(&lse, 1), NULL);
        expect(f32_bits(lse) == 0x7fc00000u, "NaN and +inf 5000 apart: %#x", f32_bits(lse));
    }
}

static void test_one_element(napier_context *context) {
    static const float values[] = {0.0f, -0.0f, 1.5f, -1e30f, FLT_MAX, -FLT_MAX, 0x1p-149f, -0x1p-140f, 88.7f, 2.2e9f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        float lse = NAN, prob = NAN, logprob = NAN;
        const napier_const_matrix one = napier_const_rows_f32(&values[i], 1, 1);
        works(napier_logsumexp, context, one, napier_array_f32(&lse, 1), NULL);
        works(napier_softmax, context, one, napier_rows_f32(&prob, 1, 1), NULL);
        works(napier_log_softmax, context, one, napier_rows_f32(&logprob, 1, 1), NULL);
        expect(lse == values[i], "logsumexp of one %a is %a", (double)values[i], (double)lse);
        expect(prob == 1.0f, "softmax of one %a is %a", (double)values[i], (double)prob);
        expect(f32_bits(logprob) == 0, "log_softmax of one %a is %a", (double)values[i], (double)logprob);
    }
}

/* Finite masks are ignored by the sum, and keep their rounded value in log_softmax where the dtype can hold it. */
static void test_finite_masks(napier_context *context) {
    static const float masks[] = {-1e9f, -1e30f, -FLT_MAX, -65504.0f};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        const float row[3] = {masks[i], 0.0f, 0.0f};
        float lse, probs[3], logprobs[3];
        uint16_t half[3];
        const napier_const_matrix logits = napier_const_rows_f32(row, 1, 3);
        works(napier_logsumexp, context, logits, napier_array_f32(&lse, 1), NULL);
        works(napier_softmax, context, logits, napier_rows_f32(probs, 1, 3), NULL);
        works(napier_log_softmax, context, logits, napier_rows_f32(logprobs, 1, 3), NULL);
        works(napier_log_softmax, context, logits, napier_rows(half, 1, 3, NAPIER_F16), NULL);
        expect(lse == 0x1.62e43p-1f, "mask %g: logsumexp is %a, not log 2", (double)masks[i], (double)lse);
        expect(f32_bits(probs[0]) == 0 && probs[1] == 0.5f && probs[2] == 0.5f, "mask %g: softmax is %g %g %g",
               (double)masks[i], (double)probs[0], (double)probs[1], (double)probs[2]);
        const float wanted = (float)((long double)masks[i] - 0.693147180559945309417L);
        expect(logprobs[0] == wanted, "mask %g: log_softmax is %.9g, not %.9g", (double)masks[i], (double)logprobs[0],
               (double)wanted);
        const uint64_t narrow = dtype_bits(NAPIER_F16, (double)wanted);
        expect(half[0] == narrow, "mask %g: log_softmax in f16 is %#x, not %#llx", (double)masks[i], half[0],
               (unsigned long long)narrow);
    }
    const float widest[2] = {FLT_MAX, -FLT_MAX}; /* the true value is twice the largest float */
    float logprobs[2];
    works(napier_log_softmax, context, napier_const_rows_f32(widest, 1, 2), napier_rows_f32(logprobs, 1, 2), NULL);
    expect(f32_bits(logprobs[0]) == 0 && f32_bits(logprobs[1]) == 0xff800000u, "log_softmax of +-FLT_MAX is %g %g",
           (double)logprobs[0], (double)logprobs[1]);
}

/* ---- Temperature ------------------------------------------------------------------------------------------------ */

/* Bits equal those of the call on logits that were divided first. */
static void check_temperature(napier_context *context, row_kind kind, uint64_t seed, int64_t n, napier_dtype in,
                              napier_dtype out, double temperature) {
    const napier_dtype compute = compute_dtype(in, out);
    double *const x = scratch(n, sizeof *x);
    row_fill(kind, seed, in, x, n);
    grid given = grid_plain(1, n, in), divided = grid_plain(1, n, compute);
    grid_set_row(&given, 0, x);
    divide_by_temperature(x, x, n, temperature, compute);
    grid_set_row(&divided, 0, x);
    const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    for (operation op = 0; op < OPERATIONS; op++) {
        grid got = grid_plain(1, operation_cols(op, n), out);
        grid expected = grid_plain(1, operation_cols(op, n), out);
        succeeded(context, operation_run(context, op, grid_input(&given), got.view, &options), "temperature");
        succeeded(context, operation_run(context, op, grid_input(&divided), expected.view, NULL), "divided");
        if (grid_differences(&got, &expected, operation_name(op))) {
            problem("    ... where %s, seed %llu, %s to %s, T = %a", row_kind_name(kind), (unsigned long long)seed,
                    napier_dtype_name(in), napier_dtype_name(out), temperature);
        }
    }
}

static void test_temperature_is_division(napier_context *context) {
    static const double temperatures[] = {1.0,   2.0,   0.5,     0.7,     1.0 / 3, 3.0,       0.1,  1e-3,
                                          1e-30, 1e-38, 1.5e-45, 1e30,    3.4e38,  0x1p-126,  10.0, 49.0,
                                          1e-10, 1e20,  0x1p127, 0x1p-64, 1e5,     0.9999999, 1e38, 7e-42};
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
            const napier_dtype in = all_dtypes[(t + (size_t)kind) % 3], out = all_dtypes[(t / 3 + (size_t)kind) % 4];
            check_temperature(context, kind, t, 5 + 61 * (int64_t)t, in, out, temperatures[t]);
            check_temperature(context, kind, t, 40, NAPIER_F32, NAPIER_F32, temperatures[t]);
        }
        rng r = rng_make((uint64_t)kind);
        for (int t = 0; t < 20; t++) {
            check_temperature(context, kind, 9, 77, NAPIER_F32, NAPIER_F32, ldexp(1 + rng_uniform(&r), t - 10));
            check_temperature(context, kind, 9, 31, NAPIER_F64, NAPIER_F64, ldexp(1 + rng_uniform(&r), t - 10));
        }
    }
    check_temperature(context, ROW_NORMAL, 3, 100, NAPIER_F64, NAPIER_F64, 1e-300);
    check_temperature(context, ROW_NORMAL, 3, 100, NAPIER_F64, NAPIER_F32, 1e300);
    check_temperature(context, ROW_NORMAL, 3, 100, NAPIER_F32, NAPIER_F64, 5e-324);
}

/* A finite logit whose quotient overflows is an infinity. */
static void test_temperature_overflows(napier_context *context) {
    const napier_softmax_options options = options_of(0.5, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const float x[3][2] = {{3e38f, 1e38f}, {-3e38f, 1e38f}, {-3e38f, -3e38f}};
    const uint32_t nan = 0x7fc00000u, one = f32_bits(1.0f), wanted[3][2] = {{nan, nan}, {0, one}, {nan, nan}};
    float y[3][2], lse[3];
    const napier_const_matrix rows = napier_const_rows_f32(&x[0][0], 3, 2);
    works(napier_softmax, context, rows, napier_rows_f32(&y[0][0], 3, 2), &options);
    works(napier_logsumexp, context, rows, napier_array_f32(lse, 3), &options);
    for (int i = 0; i < 6; i++) {
        expect(f32_bits(y[i / 2][i % 2]) == wanted[i / 2][i % 2], "row %d, column %d: %g", i / 2, i % 2,
               (double)y[i / 2][i % 2]);
    }
    expect(lse[0] == HUGE_VALF && lse[1] == 2e38f && lse[2] == -HUGE_VALF, "logsumexp: %g %g %g", (double)lse[0],
           (double)lse[1], (double)lse[2]);
}

/* ---- Empty ------------------------------------------------------------------------------------------------------ */

static void test_empty(napier_context *context) {
    static const int64_t shapes[][2] = {{0, 0}, {0, 5}, {5, 0}, {0, INT64_MAX}, {3, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int d = 0; d < DTYPE_COUNT; d++) {
            const int64_t rows = shapes[i][0], cols = shapes[i][1];
            const napier_const_matrix none = napier_const_rows(NULL, rows, cols, all_dtypes[d]);
            const napier_matrix out = napier_rows(NULL, rows, cols, all_dtypes[d]);
            uint64_t lse[5] = {1, 1, 1, 1, 1};
            works(napier_softmax, context, none, out, NULL);
            works(napier_log_softmax, context, none, out, NULL);
            works(napier_logsumexp, context, none, napier_array(rows ? lse : NULL, rows, all_dtypes[d]), NULL);
            const uint64_t minf = dtype_bits(all_dtypes[d], -HUGE_VAL);
            for (int64_t row = 0; row < rows; row++) {
                expect(element_bits(lse, all_dtypes[d], row) == minf, "a row without columns does not give -inf");
            }
            works(napier_logsumexp_all, context, none, napier_array(lse, 1, all_dtypes[d]), NULL);
            expect(element_bits(lse, all_dtypes[d], 0) == minf, "logsumexp_all of nothing is not -inf");
        }
    }
}

/* ---- Strides ---------------------------------------------------------------------------------------------------- */

static void check_layouts(napier_context *context, layout in_layout, layout out_layout, operation op, int64_t rows,
                          int64_t cols, napier_dtype in_dtype, napier_dtype out_dtype) {
    const int64_t mark = scratch_mark();
    grid plain = grid_plain(rows, cols, in_dtype), in = grid_make(in_layout, rows, cols, in_dtype);
    const int64_t out_rows = operation_rows(op, rows), out_cols = operation_cols(op, cols);
    grid expected = grid_plain(out_rows, out_cols, out_dtype);
    grid got = grid_make(out_layout, out_rows, out_cols, out_dtype);
    grid_fill(&plain, ROW_KINDS, (uint64_t)(rows * cols));
    grid_copy(&in, &plain);
    succeeded(context, operation_run(context, op, grid_input(&plain), expected.view, NULL), operation_name(op));
    succeeded(context, operation_run(context, op, grid_input(&in), got.view, NULL), operation_name(op));
    const int64_t wrong = grid_differences(&got, &expected, operation_name(op)), damage = grid_damage(&got);
    expect(wrong == 0 && damage == 0 && grid_damage(&in) == 0,
           "%s %lld x %lld, %s %s to %s %s: %lld elements differ, %lld bytes outside were written", operation_name(op),
           (long long)rows, (long long)cols, layout_name(in_layout), napier_dtype_name(in_dtype),
           layout_name(out_layout), napier_dtype_name(out_dtype), (long long)wrong, (long long)damage);
    expect(grid_differences(&in, &plain, "the logits") == 0, "%s changed its input", operation_name(op));
    scratch_release(mark);
}

static void test_layouts_and_gaps(napier_context *context) {
    static const int64_t shapes[][2] = {{1, 1},  {3, 5},    {16, 16},  {17, 31},  {33, 47},  {20, 50}, {7, 255},
                                        {64, 3}, {70, 129}, {5, 1025}, {2, 2100}, {300, 20}, {257, 33}};
    int turn = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s += NAPIER_SANITIZED ? 2 : 1) {
        for (layout in = 0; in < LAYOUTS; in++) {
            for (layout out = 0; out < LAYOUTS; out++, turn++) {
                const operation op = (operation)(turn % OPERATIONS);
                check_layouts(context, in, out, op, shapes[s][0], shapes[s][1], all_dtypes[turn / 4 % 3],
                              all_dtypes[turn / 12 % 4]);
                check_layouts(context, in, out, OP_SOFTMAX, shapes[s][0], shapes[s][1], NAPIER_F32, NAPIER_F32);
            }
        }
    }
}

/* A stride of 0 reads one row, or one element, again and again; rows may overlap in what is only read. */
static void test_broadcast_input(napier_context *context) {
    enum { ROWS = 6, COLS = 40 };
    float x[ROWS + COLS], out[ROWS * COLS], row[COLS];
    double values[ROWS + COLS];
    row_fill_f32(ROW_NORMAL, 5, x, values, ROWS + COLS);
    const int64_t strides[][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}, {-1, 1}};
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
        const float *const start = strides[s][0] < 0 ? x + ROWS : x;
        const napier_const_matrix in = {start, ROWS, COLS, strides[s][0], strides[s][1], NAPIER_F32};
        works(napier_softmax, context, in, napier_rows_f32(out, ROWS, COLS), NULL);
        for (int64_t i = 0; i < ROWS; i++) {
            float copy[COLS];
            for (int64_t j = 0; j < COLS; j++) {
                copy[j] = start[i * strides[s][0] + j * strides[s][1]];
            }
            works(napier_softmax, context, napier_const_rows_f32(copy, 1, COLS), napier_rows_f32(row, 1, COLS), NULL);
            expect(memcmp(row, out + i * COLS, sizeof row) == 0, "strides %lld, %lld: row %lld differs",
                   (long long)strides[s][0], (long long)strides[s][1], (long long)i);
        }
    }
}

/* Starts at every offset from a cache line. */
static void test_misaligned_starts(napier_context *context) {
    enum { N = 300, OFFSETS = 40 };
    for (int d = 0; d < DTYPE_COUNT; d++) {
        const napier_dtype dtype = all_dtypes[d];
        const int64_t size = (int64_t)napier_dtype_size(dtype);
        grid plain = grid_plain(2, N, dtype), expected = grid_plain(2, N, dtype);
        grid room = grid_plain(1, 2 * (2 * N + OFFSETS), dtype);
        grid_fill(&plain, ROW_NORMAL, 3);
        works(napier_softmax, context, grid_input(&plain), expected.view, NULL);
        for (int64_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *const in = (unsigned char *)room.view.data + offset * size;
            unsigned char *const out =
                (unsigned char *)room.view.data + (2 * N + OFFSETS + offset * 7 % OFFSETS) * size;
            memcpy(in, plain.view.data, (size_t)(2 * N * size));
            works(napier_softmax, context, napier_const_rows(in, 2, N, dtype), napier_rows(out, 2, N, dtype), NULL);
            expect(memcmp(out, expected.view.data, (size_t)(2 * N * size)) == 0, "%s at offset %lld: other bits",
                   napier_dtype_name(dtype), (long long)offset);
        }
    }
}

/* ---- Arguments that cannot be ------------------------------------------------------------------------------------ */

typedef struct good {
    float in[24], out[24], lse[3];
    napier_const_matrix logits;
    napier_matrix probs;
    napier_vector lse_view;
    napier_softmax_options options;
} good;

static void make_good(good *g) {
    memset(g->in, 0, sizeof g->in);
    for (int i = 0; i < 24; i++) {
        g->out[i] = -7.0f;
    }
    g->lse[0] = g->lse[1] = g->lse[2] = -7.0f;
    g->logits = napier_const_rows_f32(g->in, 3, 8);
    g->probs = napier_rows_f32(g->out, 3, 8);
    g->lse_view = napier_array_f32(g->lse, 3);
    g->options = options_of(1.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
}

static void check_untouched(const good *g) {
    for (int i = 0; i < 24; i++) {
        expect(g->out[i] == -7.0f, "element %d was written although the arguments were refused", i);
    }
    expect(g->lse[0] == -7.0f, "lse was written although the arguments were refused");
}

/* Both matrix operations refuse it, and the text has both words. Then all is good again. */
static void refused_by_softmax(napier_context *context, good *g, const char *name, const char *value) {
    invalid(context, napier_softmax(context, g->logits, g->probs, &g->options), name, value);
    check_untouched(g);
    invalid(context, napier_log_softmax(context, g->logits, g->probs, &g->options),
            strcmp(name, "probs") == 0 ? "logprobs" : name, value);
    check_untouched(g);
    make_good(g);
}

static void refused_by_logsumexp(napier_context *context, good *g, const char *name, const char *value) {
    invalid(context, napier_logsumexp(context, g->logits, g->lse_view, &g->options), name, value);
    check_untouched(g);
    make_good(g);
}

#define REFUSED(call_, change_, ...) ((change_), refused_by_##call_(context, &g, __VA_ARGS__))

static void test_bad_views(napier_context *context) {
    good g;
    make_good(&g);
    REFUSED(softmax, g.logits.rows = -2, "logits", "-2");
    REFUSED(softmax, g.logits.cols = -9, "logits", "-9");
    REFUSED(softmax, g.logits.data = NULL, "logits", "NULL");
    REFUSED(softmax, g.logits.dtype = (napier_dtype)77, "logits", "77");
    REFUSED(softmax, g.logits.dtype = (napier_dtype)0, "logits", "dtype 0");
    REFUSED(softmax, g.logits.data = (const char *)g.in + 1, "logits", "aligned");
    REFUSED(softmax, g.logits.row_stride = INT64_MAX / 2, "logits", "4611686018427387903");
    REFUSED(softmax, g.logits.rows = INT64_MAX, "logits", "9223372036854775807");
    REFUSED(softmax, g.logits.col_stride = INT64_MIN, "logits", "-9223372036854775808");
    REFUSED(softmax, g.probs.rows = -2, "probs", "-2");
    REFUSED(softmax, g.probs.data = NULL, "probs", "NULL");
    REFUSED(softmax, g.probs.dtype = (napier_dtype)5, "probs", "5");
    REFUSED(softmax, g.probs.row_stride = 3, "probs", "row_stride 3 is less than cols 8");
    REFUSED(softmax, g.probs.row_stride = 0, "probs", "row_stride 0");
    REFUSED(softmax, g.probs.col_stride = 0, "probs", "col_stride 0");
    REFUSED(softmax, g.probs = napier_rows_f32(g.out, 2, 8), "probs", "2");
    REFUSED(softmax, g.probs = napier_rows_f32(g.out, 3, 7), "probs", "7");
    REFUSED(logsumexp, g.lse_view.size = 2, "lse", "2");
    REFUSED(logsumexp, g.lse_view.size = -1, "lse", "-1");
    REFUSED(logsumexp, g.lse_view.stride = 0, "lse", "stride 0");
    REFUSED(logsumexp, g.lse_view.data = NULL, "lse", "NULL");
    REFUSED(logsumexp, g.lse_view.dtype = (napier_dtype)-1, "lse", "-1");
    invalid(context, napier_logsumexp_all(context, g.logits, g.lse_view, NULL), "lse", "3");
    check_untouched(&g);
}

static void test_bad_options(napier_context *context) {
    static const struct {
        double temperature;
        const char *value;
    } bad[] = {{0.0, "0"}, {-1.0, "-1"}, {HUGE_VAL, "inf"}, {1e-60, "1e-60"}, {1e60, "1e+60"}, {-0.0, "0"}};
    good g;
    make_good(&g);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        REFUSED(softmax, g.options.temperature = bad[i].temperature, "temperature", bad[i].value);
        REFUSED(logsumexp, g.options.temperature = bad[i].temperature, "temperature", bad[i].value);
        g.options.temperature = bad[i].temperature;
        invalid(context, napier_logsumexp_all(context, g.logits, napier_array_f32(g.lse, 1), &g.options), "temperature",
                bad[i].value);
        make_good(&g);
    }
    REFUSED(softmax, g.options.temperature = (double)NAN, "temperature", "nan");
    REFUSED(softmax, g.options.algorithm = (napier_algorithm)4, "algorithm", "4");
    REFUSED(logsumexp, g.options.algorithm = (napier_algorithm)-1, "algorithm", "-1");
    REFUSED(softmax, g.options.masked_rows = (napier_masked_rows)2, "masked_rows", "2");
    REFUSED(softmax, g.options.struct_size = 3, "struct_size", "3");
    REFUSED(logsumexp, g.options.struct_size = 0, "struct_size", "0");

    /* In f64 the same temperatures are fine. */
    double wide[24];
    for (size_t i = 3; i < 5; i++) {
        g.options.temperature = bad[i].temperature;
        works(napier_softmax, context, g.logits, napier_rows(wide, 3, 8, NAPIER_F64), &g.options);
    }
}

static void test_no_context(void) {
    good g;
    make_good(&g);
    const napier_const_matrix in = g.logits;
    const napier_const_vector lse = {g.lse, 3, 1, NAPIER_F32};
    expect(napier_softmax(NULL, in, g.probs, NULL) == NAPIER_INVALID_ARGUMENT, "softmax without a context");
    expect(napier_log_softmax(NULL, in, g.probs, NULL) == NAPIER_INVALID_ARGUMENT, "log_softmax without a context");
    expect(napier_logsumexp(NULL, in, g.lse_view, NULL) == NAPIER_INVALID_ARGUMENT, "logsumexp without a context");
    expect(napier_logsumexp_all(NULL, in, g.lse_view, NULL) == NAPIER_INVALID_ARGUMENT,
           "logsumexp_all without a context");
    expect(napier_softmax_backward(NULL, in, in, g.probs, NULL) == NAPIER_INVALID_ARGUMENT, "no context");
    expect(napier_log_softmax_backward(NULL, in, in, g.probs, NULL) == NAPIER_INVALID_ARGUMENT, "no context");
    expect(napier_logsumexp_backward(NULL, in, lse, g.probs, NULL) == NAPIER_INVALID_ARGUMENT, "no context");
    expect(napier_logsumexp_all_backward(NULL, in, lse, g.probs, NULL) == NAPIER_INVALID_ARGUMENT, "no context");
    check_untouched(&g);
}

/* A call that succeeds clears the text of the last error. */
static void test_error_text_is_cleared(napier_context *context) {
    good g;
    make_good(&g);
    g.logits.rows = -5;
    invalid(context, napier_softmax(context, g.logits, g.probs, NULL), "logits", "-5");
    make_good(&g);
    works(napier_softmax, context, g.logits, g.probs, NULL);
    expect(napier_last_error(context)[0] == '\0', "the text \"%s\" stays after a success", napier_last_error(context));
}

/* ---- Aliasing ---------------------------------------------------------------------------------------------------- */

static void test_in_place(napier_context *context) {
    static const int64_t shapes[][2] = {{5, 3}, {40, 17}, {3, 1000}, {2, 5000}, {9, 64}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int d = 0; d < DTYPE_COUNT; d++) {
            for (layout l = 0; l < LAYOUTS; l++) {
                for (operation op = OP_SOFTMAX; op <= OP_LOG_SOFTMAX; op++) {
                    grid in = grid_make(l, shapes[s][0], shapes[s][1], all_dtypes[d]);
                    grid out = grid_plain(shapes[s][0], shapes[s][1], all_dtypes[d]);
                    grid_fill(&in, ROW_KINDS, s);
                    succeeded(context, operation_run(context, op, grid_input(&in), out.view, NULL), "apart");
                    succeeded(context, operation_run(context, op, grid_input(&in), in.view, NULL), "in place");
                    expect(grid_differences(&in, &out, "in place") == 0 && grid_damage(&in) == 0, "%s %s in place, %s",
                           napier_dtype_name(all_dtypes[d]), operation_name(op), layout_name(l));
                }
            }
        }
    }
}

static void test_overlap_is_refused(napier_context *context) {
    _Alignas(double) float x[64];
    memset(x, 0, sizeof x);
    const napier_const_matrix in = napier_const_rows_f32(x, 3, 8);
    const napier_matrix bad[] = {
        napier_rows_f32(x + 1, 3, 8),      /* shifted by one */
        {x + 7, 3, 8, 8, -1, NAPIER_F32},  /* each row backwards */
        {x + 16, 3, 8, -8, 1, NAPIER_F32}, /* rows backwards */
        {x, 3, 8, 1, 3, NAPIER_F32},       /* transposed */
        napier_rows(x, 3, 8, NAPIER_F64),  /* other dtype, same place */
        napier_rows(x, 3, 8, NAPIER_BF16), /* narrower dtype, same place */
        napier_rows_f32(x + 23, 3, 8),     /* one element shared */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        invalid(context, napier_softmax(context, in, bad[i], NULL), "probs", "logits");
    }
    invalid(context, napier_logsumexp(context, in, napier_array_f32(x + 4, 3), NULL), "lse", "logits");
    /* Next to one another, interleaved: no byte is shared. */
    const napier_const_matrix left = {x, 4, 8, 16, 1, NAPIER_F32}, even = {x, 4, 8, 16, 2, NAPIER_F32};
    const napier_matrix right = {x + 8, 4, 8, 16, 1, NAPIER_F32}, odd = {x + 1, 4, 8, 16, 2, NAPIER_F32};
    works(napier_softmax, context, left, right, NULL);
    works(napier_softmax, context, even, odd, NULL);
}

/* ---- The caller's floating-point state --------------------------------------------------------------------------- */

enum { STATE_ROWS = 40, STATE_COLS = 700 };
#if defined(__SSE2__)
static const unsigned exception_flags = 0x3f; /* record what happened; they steer nothing */
#endif

/* Rows whose results are subnormal, or sensitive to rounding, on 1 and on 2 threads. */
static void check_under_state(napier_context *context, layout l, double temperature, void (*enter)(void),
                              const char *name) {
    for (int d = 0; d < DTYPE_COUNT; d++) {
        grid in = grid_make(l, STATE_ROWS, STATE_COLS, all_dtypes[d]);
        grid_fill(&in, ROW_KINDS, 0);
        for (operation op = 0; op < OPERATIONS; op++) {
            const int64_t rows = operation_rows(op, STATE_ROWS), cols = operation_cols(op, STATE_COLS);
            grid expected = grid_plain(rows, cols, all_dtypes[d]);
            grid got = grid_plain(rows, cols, all_dtypes[d]);
            const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
            succeeded(context, operation_run(context, op, grid_input(&in), expected.view, &options), name);
            fenv_t saved;
            fegetenv(&saved);
            enter();
            const int rounding = fegetround();
#if defined(__SSE2__)
            const unsigned before = _mm_getcsr() & ~exception_flags;
#endif
            const napier_status status = operation_run(context, op, grid_input(&in), got.view, &options);
#if defined(__SSE2__)
            const unsigned after = _mm_getcsr() & ~exception_flags;
#else
            const unsigned before = 0, after = 0;
#endif
            const int rounding_after = fegetround();
            fesetenv(&saved);
            succeeded(context, status, name);
            expect(before == after && rounding == rounding_after, "%s: control word %#x became %#x", name, before,
                   after);
            expect(grid_differences(&got, &expected, name) == 0, "%s changed bits of %s in %s, %s, T = %g", name,
                   operation_name(op), napier_dtype_name(all_dtypes[d]), layout_name(l), temperature);
        }
    }
}

static void round_upward(void) { fesetround(FE_UPWARD); }
static void round_downward(void) { fesetround(FE_DOWNWARD); }
static void round_to_zero(void) { fesetround(FE_TOWARDZERO); }
#if defined(__SSE2__)
static void flush_to_zero(void) { _mm_setcsr(_mm_getcsr() | 0x8040u); }
static void everything_at_once(void) { _mm_setcsr((_mm_getcsr() | 0x8040u | 0x6000u) & ~0x3fu); }
#endif

static void test_callers_state_does_not_matter(void) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    for (int i = 0; i < count; i++) {
        for (int threads = 1; threads <= 2; threads++) {
            napier_context *const context = context_for_test(isas[i], threads);
            check_under_state(context, LAYOUT_CONTIGUOUS, 1.0, round_upward, "rounding upward");
            check_under_state(context, LAYOUT_PADDED, 0.7, round_upward, "rounding upward");
            check_under_state(context, LAYOUT_TRANSPOSED, 0.7, round_downward, "rounding downward");
            check_under_state(context, LAYOUT_EVERY_OTHER, 1.3, round_to_zero, "rounding to zero");
#if defined(__SSE2__)
            check_under_state(context, LAYOUT_CONTIGUOUS, 1.0, flush_to_zero, "flush to zero");
            check_under_state(context, LAYOUT_CONTIGUOUS, 1e-40, everything_at_once, "flush to zero, rounding to zero");
            check_under_state(context, LAYOUT_TRANSPOSED, 0.7, everything_at_once, "flush to zero, rounding to zero");
#endif
        }
    }
}

int main(void) {
    return RUN_TESTS("softmax_edge", TEST(test_special_rows), TEST_2(test_nan_far_from_infinity),
                     TEST_1(test_one_element), TEST_1(test_finite_masks),
                     TEST_EACH_ISA(1, test_temperature_is_division), TEST_2(test_empty),
                     TEST_EACH_ISA(2, test_layouts_and_gaps), TEST_2(test_broadcast_input),
                     TEST_1(test_misaligned_starts), TEST_2(test_temperature_overflows), TEST_1(test_bad_views),
                     TEST_1(test_bad_options), TEST(test_no_context), TEST_1(test_error_text_is_cleared),
                     TEST_2(test_in_place), TEST_1(test_overlap_is_refused), TEST(test_callers_state_does_not_matter));
}
