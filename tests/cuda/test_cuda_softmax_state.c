/* tests/cuda/test_cuda_softmax_state.c - mergeable states on a device: rows cut into parts, summed in any order and
 * grouping, have the bits of the CPU's call on the whole rows. */
#include "both.h"
#include "core/math/f64.h"

/* Columns [begin, end) of a matrix. */
static napier_matrix columns_of(napier_matrix m, int64_t begin, int64_t end) {
    m.data = (char *)m.data + begin * m.col_stride * (int64_t)napier_dtype_size(m.dtype);
    m.cols = end - begin;
    return m;
}

static void *new_states(int64_t rows, napier_dtype compute) {
    void *const states = array_new(napier_cuda_softmax_state_size(compute) * (size_t)rows);
    fine(through_softmax_state_clear(cpu, states, rows, compute));
    return states;
}

/* Four states, the parts of a row among them by turns, two merges and a third. */
static void check_split(int64_t rows, int64_t cols, int64_t tiles_per_part, napier_dtype dtype, napier_dtype compute,
                        napier_softmax_kind kind, uint64_t seed) {
    enum { STATES = 4 };
    const napier_softmax_options o = options_of(seed % 2 == 0 ? 1.0 : 0.6, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_ZERO);
    const napier_dtype out = compute == NAPIER_F64 ? NAPIER_F64 : dtype;
    const int64_t part = 1024 * tiles_per_part;
    grid x = grid_new(LAYOUT_CONTIGUOUS, rows, cols, dtype);
    const grid y = grid_new(LAYOUT_CONTIGUOUS, rows, cols, out),
               expected = grid_new(LAYOUT_CONTIGUOUS, rows, cols, out);
    const napier_vector lse = vector_new(rows, out, 1), expected_lse = vector_new(rows, out, 1);
    grid_fill(&x, ROW_KINDS, seed);
    both_case("%lld x %lld %s, parts of %lld tiles", (long long)rows, (long long)cols, napier_dtype_name(dtype),
              (long long)tiles_per_part);
    fine((kind == NAPIER_KIND_SOFTMAX ? napier_softmax : napier_log_softmax)(cpu, grid_input(&x), expected.view, &o));
    fine(napier_logsumexp(cpu, grid_input(&x), expected_lse, &o));

    void *states[STATES];
    for (int i = 0; i < STATES; i++) {
        states[i] = new_states(rows, compute);
    }
    for (int64_t p = (cols + part - 1) / part - 1; p >= 0; p--) {
        const int64_t begin = p * part, end = begin + part < cols ? begin + part : cols;
        device_order(seed + (uint64_t)p);
        fine(through_softmax_state_update(cpu, states[(p * 5 + 3) % STATES], compute, begin,
                                          napier_read_only(columns_of(x.view, begin, end)), &o));
    }
    fine(through_softmax_state_merge(cpu, states[2], states[0], rows, compute));
    fine(through_softmax_state_merge(cpu, states[1], states[3], rows, compute));
    fine(through_softmax_state_merge(cpu, states[1], states[2], rows, compute));
    fine(through_softmax_state_finish(cpu, states[1], compute, lse));
    assert_memory_equal(lse.data, expected_lse.data, (size_t)rows * napier_dtype_size(out));
    for (int64_t begin = 0; begin < cols; begin += 1500) { /* blocks need not be parts */
        const int64_t end = begin + 1500 < cols ? begin + 1500 : cols;
        fine(through_softmax_state_apply(cpu, states[1], compute, kind,
                                         napier_read_only(columns_of(x.view, begin, end)),
                                         columns_of(y.view, begin, end), &o));
    }
    grid_differences(&y, &expected, "the rows");
    arrays_free();
}

static void test_splits(void) {
    check_split(ROW_KINDS, 5000, 1, NAPIER_F32, NAPIER_F32, NAPIER_KIND_SOFTMAX, 1);
    check_split(ROW_KINDS, 5000, 2, NAPIER_BF16, NAPIER_F32, NAPIER_KIND_LOG_SOFTMAX, 2);
    check_split(ROW_KINDS, 7168, 3, NAPIER_F16, NAPIER_F32, NAPIER_KIND_SOFTMAX, 3);
    check_split(ROW_KINDS, 900, 1, NAPIER_F32, NAPIER_F32, NAPIER_KIND_LOG_SOFTMAX, 4);
    check_split(2, 40000, 9, NAPIER_F32, NAPIER_F32, NAPIER_KIND_SOFTMAX, 5);
    check_split(ROW_KINDS, 3000, 1, NAPIER_F64, NAPIER_F64, NAPIER_KIND_SOFTMAX, 6);
    check_split(ROW_KINDS, 2100, 1, NAPIER_F32, NAPIER_F64, NAPIER_KIND_LOG_SOFTMAX, 7);
}

/* ---- Parts that begin and end anywhere ------------------------------------------------------------------------------- */

enum { MOST_PARTS = 8 };

/* One state of the CPU for columns [begin, end) of a row, as bytes. */
static size_t cpu_bytes(napier_const_matrix x, int64_t row, int64_t begin, int64_t end, napier_dtype compute,
                        const napier_softmax_options *o, unsigned char *bytes) {
    const int64_t element = (int64_t)napier_dtype_size(x.dtype);
    const char *const at = (const char *)x.data + (row * x.row_stride + begin * x.col_stride) * element;
    napier_softmax_state *s = NULL;
    fine(napier_softmax_state_create(cpu, compute, begin, o, &s));
    fine(napier_softmax_state_update(cpu, s, (napier_const_vector){at, end - begin, x.col_stride, x.dtype}));
    const size_t size = napier_softmax_state_size(s);
    fine(napier_softmax_state_to_bytes(cpu, s, bytes, size));
    napier_softmax_state_destroy(s);
    return size;
}

static bool has_nan(napier_const_matrix x, int64_t row, int64_t begin, int64_t end) {
    bool any = false;
    for (int64_t i = begin; i < end; i++) {
        const double z = napier_f64_load(x.data, x.dtype, row * x.row_stride + i * x.col_stride);
        any |= z != z;
    }
    return any;
}

/* A part of the device is the CPU's, byte for byte; its rows have 16 bytes between them. */
static napier_cuda_softmax_part part_of(const grid *x, int64_t begin, int64_t end, napier_dtype compute,
                                        const napier_softmax_options *o) {
    static unsigned char bytes[1 << 15];
    const size_t size = napier_cuda_softmax_part_size(compute, begin, end - begin);
    const int64_t stride = (int64_t)(size + 7) / 8 * 8 + 16;
    const napier_cuda_softmax_part part = {array_new((size_t)(stride * x->view.rows)), stride, begin, end - begin};
    fine(through_softmax_part_save(cpu, compute, napier_read_only(columns_of(x->view, begin, end)), o, part));
    for (int64_t row = 0; row < x->view.rows; row++) {
        const void *const ours = (const char *)part.data + row * stride;
        assert_int_equal(cpu_bytes(grid_input(x), row, begin, end, compute, o, bytes), size);
        if (!has_nan(grid_input(x), row, begin, end)) {
            assert_memory_equal(ours, bytes, size);
        }
        napier_softmax_state *s = NULL;
        fine(napier_softmax_state_from_bytes(cpu, ours, size, &s)); /* also those with a NaN */
        napier_softmax_state_destroy(s);
    }
    return part;
}

/* Rows cut at `cuts`, which ends with the width: the parts of all rows give the bits of the whole rows. */
static void check_parts(layout l, napier_dtype dtype, napier_dtype compute, const int64_t *cuts, double temperature) {
    const napier_softmax_options o = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_ZERO);
    const napier_dtype out = compute == NAPIER_F64 ? NAPIER_F64 : dtype;
    napier_cuda_softmax_part parts[MOST_PARTS];
    int64_t count = 0, cols = 0;
    for (; cuts[count] >= 0; count++) {
        cols = cuts[count];
    }
    grid x = grid_new(l, ROW_KINDS, cols, dtype);
    const grid y = grid_new(LAYOUT_CONTIGUOUS, ROW_KINDS, cols, out);
    const grid expected = grid_new(LAYOUT_CONTIGUOUS, ROW_KINDS, cols, out);
    grid_fill(&x, ROW_KINDS, (uint64_t)(cols + count));
    both_case("%lld columns of %s in %lld parts, the first %lld", (long long)cols, napier_dtype_name(dtype),
              (long long)count, (long long)cuts[0]);
    fine(napier_softmax(cpu, grid_input(&x), expected.view, &o));
    void *const states = new_states(ROW_KINDS, compute);
    for (int64_t i = 0; i < count; i++) {
        device_order((uint64_t)(cols + i));
        parts[i] = part_of(&x, i > 0 ? cuts[i - 1] : 0, cuts[i], compute, &o);
    }
    fine(through_softmax_part_update(cpu, states, ROW_KINDS, compute, parts, count, &o));
    fine(through_softmax_state_apply(cpu, states, compute, NAPIER_KIND_SOFTMAX, grid_input(&x), y.view, &o));
    grid_differences(&y, &expected, "the rows");
    arrays_free();
}

static void test_parts(void) {
    static const int64_t cuts[][MOST_PARTS] = {{1, 1500, -1},
                                               {1023, 1024, 1025, 2500, -1},
                                               {300, 300, 700, 1100, 5000, -1},
                                               {2048, 3072, 4000, -1},
                                               {512, -1},
                                               {0, 3000, -1},
                                               {1100, 2047, 2049, 5119, 5120, -1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        check_parts(i % 3 == 0 ? LAYOUT_TRANSPOSED : LAYOUT_CONTIGUOUS, i % 2 ? NAPIER_BF16 : NAPIER_F32, NAPIER_F32,
                    cuts[i], i % 2 ? 1.0 : 0.7);
    }
    check_parts(LAYOUT_CONTIGUOUS, NAPIER_F16, NAPIER_F32, cuts[2], 1.3);
    check_parts(LAYOUT_CONTIGUOUS, NAPIER_F64, NAPIER_F64, cuts[2], 0.7);
    check_parts(LAYOUT_CONTIGUOUS, NAPIER_F32, NAPIER_F64, cuts[6], 1.0);
}

/* Two parts with a boundary at every place of a tile that may be special, and a sample of the others. */
static void test_every_boundary(void) {
    for (int64_t at = 1; at <= 1025; at += at < 9 || (at > 1015) ? 1 : 63) {
        const int64_t cuts[] = {at, 2100, -1};
        check_parts(LAYOUT_CONTIGUOUS, NAPIER_BF16, NAPIER_F32, cuts, 1.0);
    }
}

/* Wrong parts make a row NaN and are reported; arguments are refused. */
static void test_part_errors(void) {
    enum { COLS = 1500 };
    const napier_softmax_options warm = options_of(2.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    grid x = grid_new(LAYOUT_CONTIGUOUS, 3, COLS, NAPIER_F32);
    memset(x.view.data, 0, 3 * COLS * sizeof(float));
    void *const states = new_states(3, NAPIER_F32);
    napier_cuda_softmax_part part = part_of(&x, 0, COLS, NAPIER_F32, NULL);
    bad(through_softmax_part_update(cpu, states, 3, NAPIER_F32, &part, 1, &warm), "parts: row 0 ");
    fine(through_softmax_state_clear(cpu, states, 3, NAPIER_F32));
    ((char *)part.data)[2 * part.stride + 60] ^= 1; /* the end of row 2 */
    bad(through_softmax_part_update(cpu, states, 3, NAPIER_F32, &part, 1, NULL), "parts: row 2 ");
    const napier_vector lse = vector_new(3, NAPIER_F32, 1);
    fine(through_softmax_state_finish(cpu, states, NAPIER_F32, lse));
    assert_true(((float *)lse.data)[1] > 7.0f && ((float *)lse.data)[1] < 8.0f);
    assert_true(((float *)lse.data)[2] != ((float *)lse.data)[2]);

    napier_cuda_softmax_part two[] = {part, part};
    two[0].stride = 8192;
    bad(through_softmax_part_update(cpu, states, 3, NAPIER_F32, two, 2, NULL), "parts: 1 begins at 0, not where");
    two[0].first_index = 5;
    bad(through_softmax_part_update(cpu, states, 3, NAPIER_F32, two, 1, NULL), "the first begins at 5, which is not");
    bad(through_softmax_part_update(cpu, states, 3, NAPIER_F32, NULL, 1, NULL), "parts: 1 at ");
    bad(through_softmax_part_update(cpu, states, 3, NAPIER_F16, &part, 1, NULL), "compute: dtype 2 (f16)");
    part.cols = 7;
    bad(through_softmax_part_save(cpu, NAPIER_F32, grid_input(&x), NULL, part),
        "part: cols 7 is not that of logits, 1500");
    part.cols = COLS;
    part.stride -= 4;
    bad(through_softmax_part_save(cpu, NAPIER_F32, grid_input(&x), NULL, part), "part: stride ");
    part.stride = 8;
    bad(through_softmax_part_save(cpu, NAPIER_F32, grid_input(&x), NULL, part),
        "part: stride 8 is not a multiple of 8 from");
    part.first_index = -1;
    bad(through_softmax_part_save(cpu, NAPIER_F32, grid_input(&x), NULL, part), "part: first_index -1");
    assert_int_equal(napier_cuda_softmax_part_size(NAPIER_BF16, 0, 4), 0);
    assert_int_equal(napier_cuda_softmax_part_size(NAPIER_F32, 0, INT64_MAX), 0);
}

/* States that have seen nothing. */
static void test_nothing(void) {
    for (int wide = 0; wide < 2; wide++) {
        const napier_dtype compute = wide ? NAPIER_F64 : NAPIER_F32;
        void *const states = new_states(3, compute);
        const napier_vector lse = vector_new(3, NAPIER_F32, 1);
        fine(through_softmax_state_update(cpu, states, compute, 2048, napier_const_rows(NULL, 3, 0, NAPIER_F32), NULL));
        fine(through_softmax_state_update(cpu, states, compute, 0, napier_const_rows(NULL, 0, 7, NAPIER_F32), NULL));
        fine(through_softmax_state_finish(cpu, states, compute, lse));
        for (int i = 0; i < 3; i++) {
            assert_int_equal(element_bits(lse.data, NAPIER_F32, i), 0xff800000u);
        }
        arrays_free();
    }
}

static void test_errors(void) {
    char *const s = array_new(2048);
    float *const x = array_new(4 * 2048);
    const napier_const_matrix in = napier_const_rows_f32(x, 1, 1024);
    const napier_dtype f32 = NAPIER_F32;
    assert_int_equal(napier_cuda_softmax_state_size(NAPIER_F16), 0);
    assert_int_equal(napier_cuda_softmax_state_clear(NULL, NULL, s, 1, f32), NAPIER_INVALID_ARGUMENT);
    bad(through_softmax_state_clear(cpu, s, 1, NAPIER_BF16), "compute: dtype 3 (bf16)");
    bad(through_softmax_state_clear(cpu, s, -1, f32), "states: -1 rows");
    bad(through_softmax_state_clear(cpu, NULL, 1, f32), "states: ");
    bad(through_softmax_state_merge(cpu, s, s + 4, 1, f32), "boundary of 8");
    bad(through_softmax_state_merge(cpu, s, s + 64, 1, f32), "from: overlaps into");
    bad(through_softmax_state_update(cpu, s, f32, 1000, in, NULL), "first_index: 1000 is not a multiple of 1024");
    bad(through_softmax_state_update(cpu, s, f32, 0, napier_const_rows(x, 1, 1, NAPIER_F64), NULL),
        "logits: dtype f64");
    bad(through_softmax_state_apply(cpu, s, f32, (napier_softmax_kind)7, in, napier_rows_f32(x, 1, 1024), NULL),
        "kind: 7");
}

int main(void) {
    return BOTH_TESTS("cuda_softmax_state", TEST(test_splits), TEST(test_nothing), TEST(test_errors), TEST(test_parts),
                      TEST(test_every_boundary), TEST(test_part_errors));
}
