/* tests/cuda/test_cuda_softmax_state.c - mergeable states on a device: rows cut into parts, summed in any order and
 * grouping, have the bits of the CPU's call on the whole rows. */
#include <napier/cuda/softmax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_test.h"
#include "support/check.h"
#include "support/formats.h"

static napier_cuda_context *device;
static napier_context *host;

static void ok(napier_status status, const char *what) {
    expect(status == NAPIER_OK, "%s: status %d: %s", what, (int)status, napier_cuda_last_error(device));
}

/* Columns [begin, end) of a matrix in device memory. */
static napier_matrix columns_of(napier_matrix m, int64_t begin, int64_t end) {
    m.data = (char *)m.data + begin * m.col_stride * (int64_t)napier_dtype_size(m.dtype);
    m.cols = end - begin;
    return m;
}

/* A workspace for the call that asked for it. */
static void *room_on_device(napier_cuda_workspace *w) { return w->data = device_new(w->size); }

static void update(void *states, napier_dtype compute, int64_t first, napier_matrix part,
                   const napier_softmax_options *o) {
    napier_cuda_workspace w = {NULL, 0};
    ok(napier_cuda_softmax_state_update(device, NULL, &w, states, compute, first, napier_read_only(part), o), "update");
    room_on_device(&w);
    ok(napier_cuda_softmax_state_update(device, NULL, &w, states, compute, first, napier_read_only(part), o), "update");
    device_free(w.data);
}

static void apply(const void *states, napier_dtype compute, napier_softmax_kind kind, napier_matrix in,
                  napier_matrix out, const napier_softmax_options *o) {
    napier_cuda_workspace w = {NULL, 0};
    for (int turn = 0; turn < 2; turn++) {
        ok(napier_cuda_softmax_state_apply(device, NULL, &w, states, compute, kind, napier_read_only(in), out, o),
           "apply");
        if (turn == 0) {
            room_on_device(&w);
        }
    }
    device_free(w.data);
}

static void same_memory(const void *expected, const void *got, size_t size, const char *what) {
    char *bytes = room_for((int64_t)size, 1);
    device_read(bytes, got, size);
    expect(memcmp(bytes, expected, size) == 0, "%s: differs", what);
    free(bytes);
}

/* Four states, the parts of a row among them by turns, two merges and a third. */
static void check_split(int64_t rows, int64_t cols, int64_t tiles_per_part, napier_dtype dtype, napier_dtype compute,
                        napier_softmax_kind kind, uint64_t seed) {
    enum { STATES = 4 };
    char what[120];
    snprintf(what, sizeof what, "%lld x %lld %s, parts of %lld tiles", (long long)rows, (long long)cols,
             napier_dtype_name(dtype), (long long)tiles_per_part);
    napier_softmax_options o = options_of(seed % 2 == 0 ? 1.0 : 0.6, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_ZERO);
    const napier_dtype out = compute == NAPIER_F64 ? NAPIER_F64 : dtype;
    const size_t size = napier_cuda_softmax_state_size(compute) * (size_t)rows;
    grid x = grid_make(LAYOUT_CONTIGUOUS, rows, cols, dtype), y = grid_make(LAYOUT_CONTIGUOUS, rows, cols, out);
    grid lse = grid_make(LAYOUT_CONTIGUOUS, rows, 1, out);
    grid_fill(&x, ROW_KINDS, seed);
    const size_t in_bytes = (size_t)(rows * cols) * napier_dtype_size(dtype);
    const size_t out_bytes = (size_t)(rows * cols) * napier_dtype_size(out);
    const napier_vector host_lse = {lse.view.data, rows, 1, out};
    succeeded(host,
              (kind == NAPIER_KIND_SOFTMAX ? napier_softmax : napier_log_softmax)(host, grid_input(&x), y.view, &o),
              what);
    succeeded(host, napier_logsumexp(host, grid_input(&x), host_lse, &o), what);

    const napier_matrix in = napier_rows(device_copy(x.view.data, in_bytes), rows, cols, dtype);
    const napier_matrix result = napier_rows(device_new(out_bytes), rows, cols, out);
    const napier_vector got_lse = napier_array(device_new((size_t)rows * napier_dtype_size(out)), rows, out);
    void *states[STATES];
    for (int i = 0; i < STATES; i++) {
        states[i] = device_new(size);
        ok(napier_cuda_softmax_state_clear(device, NULL, states[i], rows, compute), "clear");
    }
    const int64_t parts = (cols + 1024 * tiles_per_part - 1) / (1024 * tiles_per_part);
    for (int64_t p = parts - 1; p >= 0; p--) {
        const int64_t begin = p * 1024 * tiles_per_part, end = begin + 1024 * tiles_per_part;
        device_order(seed + (uint64_t)p);
        update(states[(p * 5 + 3) % STATES], compute, begin, columns_of(in, begin, end < cols ? end : cols), &o);
    }
    ok(napier_cuda_softmax_state_merge(device, NULL, states[2], states[0], rows, compute), "merge");
    ok(napier_cuda_softmax_state_merge(device, NULL, states[1], states[3], rows, compute), "merge");
    ok(napier_cuda_softmax_state_merge(device, NULL, states[1], states[2], rows, compute), "merge");
    ok(napier_cuda_softmax_state_finish(device, NULL, states[1], compute, got_lse), "finish");
    same_memory(lse.view.data, got_lse.data, (size_t)rows * napier_dtype_size(out), what);
    for (int64_t begin = 0; begin < cols; begin += 1500) { /* blocks need not be parts */
        const int64_t end = begin + 1500 < cols ? begin + 1500 : cols;
        apply(states[1], compute, kind, columns_of(in, begin, end), columns_of(result, begin, end), &o);
    }
    same_memory(y.view.data, result.data, out_bytes, what);
    for (int i = 0; i < STATES; i++) {
        device_free(states[i]);
    }
    device_free(in.data);
    device_free(result.data);
    device_free(got_lse.data);
    grid_free(&x);
    grid_free(&y);
    grid_free(&lse);
}

static void test_splits(void **state) {
    (void)state;
    check_split(ROW_KINDS, 5000, 1, NAPIER_F32, NAPIER_F32, NAPIER_KIND_SOFTMAX, 1);
    check_split(ROW_KINDS, 5000, 2, NAPIER_BF16, NAPIER_F32, NAPIER_KIND_LOG_SOFTMAX, 2);
    check_split(ROW_KINDS, 7168, 3, NAPIER_F16, NAPIER_F32, NAPIER_KIND_SOFTMAX, 3);
    check_split(ROW_KINDS, 900, 1, NAPIER_F32, NAPIER_F32, NAPIER_KIND_LOG_SOFTMAX, 4);
    check_split(2, 40000, 9, NAPIER_F32, NAPIER_F32, NAPIER_KIND_SOFTMAX, 5);
    no_problems();
}

static void test_splits_f64(void **state) {
    (void)state;
    check_split(ROW_KINDS, 3000, 1, NAPIER_F64, NAPIER_F64, NAPIER_KIND_SOFTMAX, 6);
    check_split(ROW_KINDS, 2100, 1, NAPIER_F32, NAPIER_F64, NAPIER_KIND_LOG_SOFTMAX, 7);
    no_problems();
}

/* States that have seen nothing. */
static void test_nothing(void **state) {
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        const napier_dtype compute = wide ? NAPIER_F64 : NAPIER_F32;
        void *states = device_new(3 * napier_cuda_softmax_state_size(compute));
        float lse[3], *const on_device = device_new(sizeof lse);
        ok(napier_cuda_softmax_state_clear(device, NULL, states, 3, compute), "clear");
        update(states, compute, 2048, napier_rows(NULL, 3, 0, NAPIER_F32), NULL);
        update(states, compute, 0, napier_rows(NULL, 0, 7, NAPIER_F32), NULL);
        ok(napier_cuda_softmax_state_finish(device, NULL, states, compute, napier_array_f32(on_device, 3)), "finish");
        device_read(lse, on_device, sizeof lse);
        for (int i = 0; i < 3; i++) {
            expect(f32_bits(lse[i]) == 0xff800000u, "state %d: %g, not -inf", i, (double)lse[i]);
        }
        device_free(states);
        device_free(on_device);
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
    char *const s = device_new(2048);
    float *const x = device_new(4 * 2048);
    const napier_const_matrix in = napier_const_rows_f32(x, 1, 1024);
    assert_int_equal(napier_cuda_softmax_state_size(NAPIER_F16), 0);
    refused_with(napier_cuda_softmax_state_clear(device, NULL, s, 1, NAPIER_BF16), "compute: dtype 3 (bf16)");
    refused_with(napier_cuda_softmax_state_clear(device, NULL, s, -1, NAPIER_F32), "states: -1 rows");
    refused_with(napier_cuda_softmax_state_clear(device, NULL, NULL, 1, NAPIER_F32), "states: ");
    refused_with(napier_cuda_softmax_state_merge(device, NULL, s, s + 4, 1, NAPIER_F32), "boundary of 8");
    refused_with(napier_cuda_softmax_state_merge(device, NULL, s, s + 64, 1, NAPIER_F32), "from: overlaps into");
    refused_with(napier_cuda_softmax_state_update(device, NULL, NULL, s, NAPIER_F32, 1000, in, NULL),
                 "first_index: 1000 is not a multiple of 1024");
    refused_with(napier_cuda_softmax_state_update(device, NULL, NULL, s, NAPIER_F32, 0,
                                                  napier_const_rows(x, 1, 1, NAPIER_F64), NULL),
                 "logits: dtype f64");
    refused_with(napier_cuda_softmax_state_update(device, NULL, NULL, s, NAPIER_F32, 0, in, NULL), "workspace: size 0");
    refused_with(napier_cuda_softmax_state_apply(device, NULL, NULL, s, NAPIER_F32, (napier_softmax_kind)7, in,
                                                 napier_rows_f32(x, 1, 1024), NULL),
                 "kind: 7");
    assert_int_equal(napier_cuda_softmax_state_clear(NULL, NULL, s, 1, NAPIER_F32), NAPIER_INVALID_ARGUMENT);
    device_free(s);
    device_free(x);
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
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_splits_f64),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, make_contexts, drop_contexts);
}
