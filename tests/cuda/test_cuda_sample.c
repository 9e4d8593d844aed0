/* tests/cuda/test_cuda_sample.c - draws of ids on a device: every byte is what the CPU's call leaves; rows and histories that
 * are refused. */
#include "both.h"
#include "support/sample_setting.h"

static const sample_setting settings[] = {
    {1, 0, 1, 0, 1, 0, 0, false},       {0, 0, 1, 0, 1.5, 0, 1, true},          {0.7, 3, 1, 0, 1, 0, 0, false},
    {1, 0, 0.9, 0, 1, 0, 0, false},     {1, 0, 1, 0.1, 1, 0, 0, false},         {0.8, 40, 0.9, 0.02, 1, 0, 0, false},
    {1, 0, 1, 0, 1.3, 0.5, 0.25, true}, {1.5, 30, 0.95, 0, 1.2, -0.5, 0, true}, {1, 0, 1, 1, 1, 0, 0, false},
};

enum { HISTORY = 12 };

static napier_indices history(int64_t rows, int64_t cols, uint64_t seed, napier_indices *offsets) {
    int64_t *const ids = array_new((size_t)(rows * HISTORY) * sizeof *ids);
    int64_t *const starts = array_new((size_t)(rows + 1) * sizeof *starts);
    rng r = rng_make(seed);
    for (int64_t i = 0; i < rows * HISTORY; i++) {
        ids[i] = rng_below(&r, cols);
        ids[i] = i % 4 == 3 ? ids[i - 1] : ids[i];
    }
    for (int64_t i = 0; i <= rows; i++) {
        starts[i] = i * HISTORY;
    }
    *offsets = napier_indices_i64(starts, rows + 1);
    return napier_indices_i64(ids, rows * HISTORY);
}

static napier_sample_options options_for(const sample_setting *s, int64_t rows, int64_t cols, uint64_t seed) {
    uint8_t *const keep = array_new((size_t)cols);
    rng r = rng_make(seed);
    for (int64_t i = 0; i < cols; i++) {
        keep[i] = i == 0 || rng_below(&r, 4) > 0 ? 1 : 0;
    }
    napier_sample_options o = sample_setting_options(s, keep);
    o.seed = (int64_t)rng_bits(&r);
    o.prompt_ids = history(rows, cols, seed + 1, &o.prompt_offsets);
    o.output_ids = history(rows, cols, seed + 2, &o.output_offsets);
    if (seed % 2) {
        o.samples = history(rows, cols, seed + 3, &o.positions);
        o.samples.size = o.positions.size = rows;
    }
    return o;
}

static void compare(row_kind kind, int64_t rows, int64_t cols, napier_dtype dtype, uint64_t seed) {
    grid x = grid_new((layout)(seed % LAYOUTS), rows, cols, dtype);
    grid_fill(&x, kind, seed);
    const napier_const_matrix logits = grid_input(&x);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const int before = arrays_count();
        const napier_sample_options o = options_for(&settings[i], rows, cols, seed + 10 * i);
        napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
        r.ids = array_new((size_t)rows * sizeof *r.ids);
        r.logprobs = vector_new(rows, NAPIER_F32, 2);
        r.plain_logprobs = vector_new(rows, dtype, 1);
        both_case("sample, %s, %lld x %lld %s, setting %zu", row_kind_name(kind), (long long)rows, (long long)cols,
                  napier_dtype_name(dtype), i);
        SAME(sample, logits, &o, &r);
        arrays_free_from(before);
    }
    arrays_free();
}

static void test_rows(void) {
    static const int64_t cols[] = {1, 17, 255, 1025, 2500};
    static const row_kind kinds[] = {ROW_NORMAL, ROW_TIES, ROW_PEAKED, ROW_POWERS, ROW_EQUAL};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_BF16, NAPIER_F16};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            compare(kinds[k], 3, cols[i], kinds[k] == ROW_POWERS ? NAPIER_F32 : dtypes[(i + k) % 3], 7 * i + k);
        }
    }
}

static void test_refusals(void) {
    enum { ROWS = 3, N = 5 };
    const float values[ROWS * N] = {1, 2, 3, 4, 5, 1, NAN, 3, 4, 5, 5, 4, 3, 2, 1};
    float *const x = array_of(values, sizeof values), *const logprobs = array_new(ROWS * sizeof *logprobs);
    int64_t *const ids = array_new(ROWS * sizeof *ids);
    const int64_t outputs[2] = {1, 9}, good[2] = {1, 2}, starts[ROWS + 1] = {0, 0, 0, 2},
                  falling[ROWS + 1] = {0, 2, 1, 2};
    const napier_const_matrix logits = napier_const_rows_f32(x, ROWS, N);
    napier_sample_options o = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
    r.ids = ids;
    r.logprobs = napier_array_f32(logprobs, ROWS);
    bad(through_sample(cpu, logits, &o, &r), "logits: row 1 has a NaN");
    assert_true(ids[0] >= 0 && ids[1] == -1 && ids[2] >= 0);
    all_nan(logprobs + 1, NAPIER_F32, 1);
    x[6] = 1;
    fine(through_sample(cpu, logits, &o, &r));
    o.presence_penalty = 1;
    o.output_ids = indices_of(outputs, 2, NAPIER_I32);
    o.output_offsets = indices_of(starts, ROWS + 1, NAPIER_I64);
    bad(through_sample(cpu, logits, &o, &r), "ids: the id at index 1");
    assert_true(ids[1] >= 0 && ids[2] == -1);
    o.output_ids = indices_of(good, 2, NAPIER_I32);
    o.output_offsets = indices_of(falling, ROWS + 1, NAPIER_I64);
    bad(through_sample(cpu, logits, &o, &r), "offsets: the offset at index 2");
    o.top_p = 2;
    bad(through_sample(cpu, logits, &o, &r), "top_p 2");
}

int main(void) { return BOTH_TESTS("cuda_sample", TEST(test_rows), TEST(test_refusals)); }
