/* The bits are the same, whatever the instruction set, threads, place in the batch, strides, start, algorithm, axis, in place or
 * not. Each is compared with one row at a time, scalar, one thread, three passes. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>

#include "ops/softmax/sum.h"
#include "support/formats.h"

static const int64_t sizes[] = {1,    2,    3,    5,    7,    8,    15,   16,   17,   24,  31,  32,
                                33,   47,   48,   49,   50,   63,   64,   65,   100,  127, 128, 129,
                                200,  255,  256,  257,  300,  511,  512,  513,  767,  768, 769, 1000,
                                1023, 1024, 1025, 1500, 2047, 2048, 2049, 4095, 4096, 4097};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* A context in the form a message needs. */
typedef struct machine {
    napier_context *context;
    char name[40];
} machine;

enum { MACHINE_LIMIT = 3 * ISA_LIMIT };

static machine machines[MACHINE_LIMIT]; /* of the test that runs */
static int count;
static napier_context *scalar;

static void make_machines(void) {
    static const int threads[] = {1, 2, 7};
    napier_isa isas[ISA_LIMIT];
    const int isa_count = available_isas(isas);
    count = 0;
    for (int i = 0; i < isa_count; i++) {
        for (int t = 0; t < 3; t++, count++) {
            machines[count].context = context_for_test(isas[i], threads[t]);
            snprintf(machines[count].name, sizeof machines[count].name, "%s, %d threads", napier_isa_name(isas[i]),
                     threads[t]);
        }
    }
    scalar = context_for_test(NAPIER_ISA_SCALAR, 1);
}

/* Row by row, from a copy of its own. */
static void run_reference(operation op, const grid *in, grid *out, double temperature) {
    const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_SAFE, NAPIER_MASKED_NAN);
    const int64_t cols = in->view.cols;
    const bool whole = op == OP_LOGSUMEXP_ALL;
    grid row = grid_plain(1, whole ? in->view.rows * cols : cols, in->view.dtype);
    grid result = grid_plain(1, out->view.cols, out->view.dtype);
    for (int64_t i = 0; i < (whole ? 1 : in->view.rows); i++) {
        for (int64_t j = 0; j < row.view.cols; j++) {
            const int64_t at = whole ? j / cols : i, col = whole ? j % cols : j;
            element_set_bits(row.view.data, row.view.dtype, j, grid_bits(in, at, col));
        }
        const operation one = whole ? OP_LOGSUMEXP : op;
        succeeded(scalar, operation_run(scalar, one, grid_input(&row), result.view, &options), operation_name(one));
        for (int64_t j = 0; j < out->view.cols; j++) {
            element_set_bits(out->view.data, out->view.dtype, i * out->view.cols + j, grid_bits(&result, 0, j));
        }
    }
}

static void compare(const machine *m, operation op, const grid *in, layout out_layout, const grid *expected,
                    const napier_softmax_options *options, const char *how) {
    grid got = grid_make(out_layout, expected->view.rows, expected->view.cols, expected->view.dtype);
    succeeded(m->context, operation_run(m->context, op, grid_input(in), got.view, options), m->name);
    if (grid_differences(&got, expected, operation_name(op))) {
        problem("    ... where %s; %s; %s to %s, algorithm %d, T = %g", m->name, how, napier_dtype_name(in->view.dtype),
                napier_dtype_name(expected->view.dtype), (int)options->algorithm, options->temperature);
    }
}

/* All operations of one matrix: every machine, every algorithm, the layouts in turn, in place. */
static void check_matrix(int64_t rows, int64_t cols, napier_dtype in_dtype, napier_dtype out_dtype, double temperature,
                         uint64_t seed) {
    grid plain = grid_plain(rows, cols, in_dtype);
    grid_fill(&plain, ROW_KINDS, seed);
    grid first_axis = grid_make(LAYOUT_TRANSPOSED, rows, cols, in_dtype);
    grid_copy(&first_axis, &plain);
    for (operation op = 0; op < OPERATIONS; op++) {
        grid expected = grid_plain(operation_rows(op, rows), operation_cols(op, cols), out_dtype);
        run_reference(op, &plain, &expected, temperature);
        for (int i = 0; i < count; i++) {
            const layout l = (layout)((seed + (uint64_t)i + (uint64_t)op) % LAYOUTS);
            const napier_algorithm algorithm = (napier_algorithm)((i + (int)op) % 4);
            const napier_softmax_options options = options_of(temperature, algorithm, NAPIER_MASKED_NAN);
            compare(&machines[i], op, &plain, LAYOUT_CONTIGUOUS, &expected, &options, "contiguous");
            compare(&machines[i], op, &first_axis, LAYOUT_TRANSPOSED, &expected, &options, "first axis");
            grid odd = grid_make(l, rows, cols, in_dtype);
            grid_copy(&odd, &plain);
            compare(&machines[i], op, &odd, (layout)((l + 1) % LAYOUTS), &expected, &options, layout_name(l));
            if (in_dtype == out_dtype && op <= OP_LOG_SOFTMAX) {
                succeeded(machines[i].context,
                          operation_run(machines[i].context, op, grid_input(&odd), odd.view, &options), "in place");
                if (grid_differences(&odd, &expected, operation_name(op))) {
                    problem("    ... where %s, in place, %s", machines[i].name, layout_name(l));
                }
            }
        }
    }
}

static void check_sizes(napier_dtype in, napier_dtype out, double temperature, int step) {
    make_machines();
    for (int i = step - 1; i < SIZES; i += step) {
        const int64_t rows = sizes[i] < 600 ? ROW_KINDS + 3 : ROW_KINDS;
        check_matrix(rows, sizes[i], in, out, temperature, (uint64_t)i);
    }
}

static void test_f32(void) { check_sizes(NAPIER_F32, NAPIER_F32, 1.0, 1); }

static void test_f32_temperature(void) { check_sizes(NAPIER_F32, NAPIER_F32, 0.7, 3); }

static void test_narrow_dtypes(void) {
    check_sizes(NAPIER_BF16, NAPIER_BF16, 1.0, 2);
    check_sizes(NAPIER_F16, NAPIER_F16, 1.0, 3);
}

static void test_mixed_dtypes(void) {
    for (int in = 0; in < DTYPE_COUNT; in++) {
        for (int out = 0; out < DTYPE_COUNT; out++) {
            if (in != out || in == NAPIER_F64) {
                check_sizes(all_dtypes[in], all_dtypes[out], out % 2 ? 1.0 : 1.7, 14);
            }
        }
    }
}

/* Many rows of each kind: what one row of a kind does not show. */
static void test_many_rows_of_each_kind(void) {
    static const int64_t cols[] = {6, 40, 90, 1030};
    make_machines();
    const napier_softmax_options options = options_of(1.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
            grid in = grid_plain(67, cols[c], NAPIER_F32);
            grid_fill(&in, kind, 1000 * c);
            for (operation op = 0; op < OP_LOGSUMEXP_ALL; op++) {
                grid expected = grid_plain(67, operation_cols(op, cols[c]), NAPIER_F32);
                run_reference(op, &in, &expected, 1.0);
                for (int i = 0; i < count; i += 2) {
                    compare(&machines[i], op, &in, LAYOUT_CONTIGUOUS, &expected, &options, row_kind_name(kind));
                }
            }
        }
    }
}

/* A row's bits do not depend on which rows lie around it, nor how many. */
static void test_place_in_the_batch(void) {
    static const int64_t cols[] = {2, 3, 8, 12, 20, 48, 60, 300};
    make_machines();
    const napier_softmax_options options = options_of(1.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
        grid all = grid_plain(70, cols[c], NAPIER_F32);
        grid expected = grid_plain(70, cols[c], NAPIER_F32);
        grid_fill(&all, ROW_KINDS, 5);
        run_reference(OP_SOFTMAX, &all, &expected, 1.0);
        for (int i = 0; i < count; i++) {
            for (int64_t first = 0; first < 70; first += 13) {
                for (int64_t rows = 1; first + rows <= 70; rows += rows < 18 ? 1 : 17) {
                    grid part = all, part_expected = expected;
                    const size_t skip = (size_t)(first * cols[c]) * sizeof(float);
                    part.view.rows = part_expected.view.rows = rows;
                    part.view.data = (unsigned char *)all.view.data + skip;
                    part_expected.view.data = (unsigned char *)expected.view.data + skip;
                    compare(&machines[i], OP_SOFTMAX, &part, LAYOUT_CONTIGUOUS, &part_expected, &options,
                            "part of a batch");
                }
            }
        }
    }
}

/* Jobs too large for the second-level cache: their batches have fewer rows. */
static void test_large_jobs_of_short_rows(void) {
    static const int64_t rows[] = {1319, 517, 263}, cols[] = {100, 256, 512};
    make_machines();
    const napier_softmax_options options = options_of(1.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    for (int s = 0; s < 3; s++) {
        for (int mixed = 0; mixed < 2; mixed++) {
            grid in = grid_plain(rows[s], cols[s], NAPIER_F32), expected = grid_plain(rows[s], cols[s], NAPIER_F32);
            grid_fill(&in, mixed ? ROW_KINDS : ROW_NORMAL, (uint64_t)s);
            run_reference(OP_SOFTMAX, &in, &expected, 1.0);
            for (int i = 0; i < count; i++) {
                compare(&machines[i], OP_SOFTMAX, &in, LAYOUT_CONTIGUOUS, &expected, &options, "large job");
            }
        }
    }
}

/* Fewer rows than a vector has lanes, along the first axis too. */
static void test_few_long_rows(void) {
    make_machines();
    check_matrix(8, 2081, NAPIER_F32, NAPIER_F32, 1.0, 1);
    check_matrix(8, 1500, NAPIER_F32, NAPIER_BF16, 0.7, 2);
    check_matrix(2, 1300, NAPIER_BF16, NAPIER_BF16, 1.0, 3);
    check_matrix(5, 3100, NAPIER_F16, NAPIER_F32, 1.7, 4);
    check_matrix(15, 1040, NAPIER_F32, NAPIER_F32, 1.0, 5);
}

/* Whole strips of 64 neighbouring rows of several tiles, which are read and written where they lie; 512 rows of f32 share
 * the sets of a cache. One row has a subnormal result, one elements beyond the cutoff, one a NaN. */
static void test_long_columns(void) {
    static const int64_t rows[] = {64, 150, 512}, cols[] = {3077, 2049, 1030};
    make_machines();
    const napier_softmax_options options = options_of(1.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    for (int s = 0; s < 9; s++) {
        const int odd = s % 3;
        const napier_dtype dtype = s % 2 ? NAPIER_BF16 : NAPIER_F32;
        grid in = grid_plain(rows[s / 3], cols[s / 3], dtype),
             columns = grid_make(LAYOUT_TRANSPOSED, rows[s / 3], cols[s / 3], dtype);
        grid_fill(&in, ROW_NORMAL, (uint64_t)s);
        if (odd > 0) {
            grid_set(&in, 37, 1029, -95.0);
            grid_set(&in, 40, 500, -300.0);
            grid_set(&in, in.view.rows - 64, 7, odd == 1 ? -1e30 : (double)NAN);
        }
        for (operation op = 0; op < OP_LOGSUMEXP_ALL; op++) {
            grid expected = grid_plain(rows[s / 3], operation_cols(op, cols[s / 3]), dtype);
            run_reference(op, &in, &expected, 1.0);
            for (int i = 0; i < count; i++) {
                grid_copy(&columns, &in);
                compare(&machines[i], op, &columns, LAYOUT_TRANSPOSED, &expected, &options, "long columns");
                if (op <= OP_LOG_SOFTMAX) {
                    succeeded(machines[i].context,
                              operation_run(machines[i].context, op, grid_input(&columns), columns.view, &options),
                              "in place");
                    if (grid_differences(&columns, &expected, operation_name(op))) {
                        problem("    ... where %s, in place, long columns", machines[i].name);
                    }
                }
            }
        }
    }
}

/* The length of a vocabulary and a row that threads share. */
static void test_long_rows(void) {
    static const row_kind kinds[] = {ROW_NORMAL, ROW_RISING, ROW_FALLING, ROW_MASKED, ROW_FLUSH_EDGE, ROW_ANY_FINITE};
    make_machines();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        grid in = grid_plain(2, k == 0 ? 151936 : 60001, k % 2 ? NAPIER_BF16 : NAPIER_F32);
        grid_fill(&in, kinds[k], k);
        for (operation op = 0; op < OPERATIONS; op++) {
            grid expected = grid_plain(operation_rows(op, 2), operation_cols(op, in.view.cols), in.view.dtype);
            run_reference(op, &in, &expected, 1.0);
            for (int i = 0; i < count; i++) {
                const napier_softmax_options options = options_of(1.0, (napier_algorithm)(i % 4), NAPIER_MASKED_NAN);
                compare(&machines[i], op, &in, LAYOUT_CONTIGUOUS, &expected, &options, row_kind_name(kinds[k]));
            }
        }
    }
}

/* Probabilities next to the middle of two floats, and others: each has the bits of the definition, whose sums are doubles.
 * With 0 and about log 2^-25 the larger probability is about 1 - 2^-25. */
static void test_rows_against_the_definition(napier_context *context) {
    enum { ROWS = 1 << 15, COLS = 9 };
    static const int64_t cols[] = {2, 3, COLS};
    for (int c = 0; c < 3; c++) {
        const int64_t n = cols[c];
        grid in = grid_plain(ROWS, n, NAPIER_F32), out = grid_plain(ROWS, n, NAPIER_F32);
        float *x = (float *)in.view.data;
        const float *y = (const float *)out.view.data;
        grid_fill(&in, ROW_NORMAL, (uint64_t)c);
        for (int64_t r = 0; r < ROWS / 2; r++) {
            x[r * n] = 0.0f;
            x[r * n + 1] = -17.328680f + ((float)r - 0.25f * ROWS) * 0x1p-19f;
            for (int64_t i = 2; i < n; i++) {
                x[r * n + i] = -100.0f;
            }
        }
        succeeded(context, napier_softmax(context, grid_input(&in), out.view, NULL), "softmax");
        for (int64_t r = 0; r < ROWS; r++) {
            napier_tile_sum tile;
            napier_sum sum;
            napier_tile_by_definition(x + r * n, (int)n, &tile);
            napier_sum_init(&sum);
            napier_sum_add_tile(&sum, &tile);
            const napier_final final = napier_sum_finish(&sum);
            for (int64_t i = r * n; i < (r + 1) * n; i++) {
                const float expected = napier_softmax_of(&final, x[i]);
                if (napier_float_bits(y[i]) != napier_float_bits(expected)) {
                    problem("row %d of %d columns: %a, not %a", (int)r, (int)n, (double)y[i], (double)expected);
                    return;
                }
            }
        }
    }
}

/* The result in 16 bits is the rounded result in f32. */
static void test_narrow_results_are_rounded(napier_context *context) {
    static const napier_dtype narrow[] = {NAPIER_F16, NAPIER_BF16};
    for (int s = 0; s < SIZES; s += 2) {
        for (int d = 0; d < 3; d++) {
            grid in = grid_plain(ROW_KINDS, sizes[s], all_dtypes[d]);
            grid_fill(&in, ROW_KINDS, (uint64_t)s);
            for (operation op = 0; op < OPERATIONS; op++) {
                const int64_t rows = operation_rows(op, ROW_KINDS);
                const int64_t cols = operation_cols(op, sizes[s]);
                grid wide = grid_plain(rows, cols, NAPIER_F32);
                succeeded(context, operation_run(context, op, grid_input(&in), wide.view, NULL), "to f32");
                for (int n = 0; n < 2; n++) {
                    grid expected = grid_plain(rows, cols, narrow[n]);
                    grid got = grid_plain(rows, cols, narrow[n]);
                    for (int64_t row = 0; row < rows; row++) {
                        for (int64_t col = 0; col < cols; col++) {
                            grid_set(&expected, row, col, grid_get(&wide, row, col));
                        }
                    }
                    succeeded(context, operation_run(context, op, grid_input(&in), got.view, NULL), "narrow");
                    if (grid_differences(&got, &expected, operation_name(op))) {
                        problem("    ... where %s, %s to %s is not the rounded f32",
                                napier_isa_name(napier_context_isa(context)), napier_dtype_name(all_dtypes[d]),
                                napier_dtype_name(narrow[n]));
                    }
                }
            }
        }
    }
}

/* 16-bit logits give the bits of the same values in f32. */
static void test_narrow_logits_are_widened(napier_context *context) {
    for (int s = 0; s < SIZES; s += 3) {
        for (int d = 1; d < 3; d++) {
            grid in = grid_plain(ROW_KINDS, sizes[s], all_dtypes[d]);
            grid widened = grid_plain(ROW_KINDS, sizes[s], NAPIER_F32);
            grid_fill(&in, ROW_KINDS, (uint64_t)s);
            for (int64_t row = 0; row < ROW_KINDS; row++) {
                for (int64_t col = 0; col < sizes[s]; col++) {
                    grid_set(&widened, row, col, grid_get(&in, row, col));
                }
            }
            for (operation op = 0; op < OPERATIONS; op++) {
                const int64_t rows = operation_rows(op, ROW_KINDS);
                const int64_t cols = operation_cols(op, sizes[s]);
                grid got = grid_plain(rows, cols, NAPIER_F32);
                grid expected = grid_plain(rows, cols, NAPIER_F32);
                succeeded(context, operation_run(context, op, grid_input(&in), got.view, NULL), "narrow");
                succeeded(context, operation_run(context, op, grid_input(&widened), expected.view, NULL), "widened");
                if (grid_differences(&got, &expected, operation_name(op))) {
                    problem("    ... where %s logits on %s", napier_dtype_name(all_dtypes[d]),
                            napier_isa_name(napier_context_isa(context)));
                }
            }
        }
    }
}

int main(void) {
    return RUN_TESTS("softmax_bits", TEST(test_f32), TEST(test_f32_temperature), TEST(test_narrow_dtypes),
                     TEST(test_mixed_dtypes), TEST(test_many_rows_of_each_kind), TEST(test_place_in_the_batch),
                     TEST(test_large_jobs_of_short_rows), TEST(test_few_long_rows), TEST(test_long_columns),
                     TEST(test_long_rows), TEST_EACH_ISA(1, test_rows_against_the_definition),
                     TEST_EACH_ISA(2, test_narrow_results_are_rounded),
                     TEST_EACH_ISA(1, test_narrow_logits_are_widened));
}
