/* tests/cuda/test_cuda_softmax_state.c - mergeable states on a device: rows cut into parts, summed in any order and
 * grouping, have the bits of the CPU's call on the whole rows. */
#include "both.h"

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

int main(void) { return BOTH_TESTS("cuda_softmax_state", TEST(test_splits), TEST(test_nothing), TEST(test_errors)); }
