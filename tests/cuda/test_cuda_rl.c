/* tests/cuda/test_cuda_rl.c - gather, KL and rubric on a device against the CPU, bit for bit: shapes around tiles, dtypes,
 * strides, masks, special values, orders of threads; offsets and ids at fault. */
#include "rl_support.h"

enum { MOST = 6000, RESPONSES = 12, ORDERS = 3 };

static float policy[MOST], ref[MOST];
static int64_t offsets[RESPONSES + 1], ids[MOST];

static const napier_vector no_vector;

/* ---- Gather --------------------------------------------------------------------------------------------------------- */

static void check_gather(int64_t rows, int64_t cols, napier_dtype dtype, int64_t stride) {
    const int64_t row_stride = cols * stride + 3;
    rng r = rng_make((uint64_t)(rows * 131 + cols));
    make_logprobs(&r, policy, MOST, 3.0, true);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = rng_below(&r, cols);
    }
    napier_const_matrix x = as_rows(vector_of(policy, rows * row_stride, dtype, 1), rows, cols, row_stride);
    napier_matrix g = as_rows_out(vector_new(rows * row_stride, dtype, 1), rows, cols, row_stride);
    x.col_stride = g.col_stride = stride;
    const napier_vector y = vector_new(rows, dtypes[(cols + 1) % 3], 2);
    const napier_indices at = indices_of(ids, rows, cols % 2 ? NAPIER_I32 : NAPIER_I64);
    both_case("gather %lld x %lld", (long long)rows, (long long)cols);
    SAME(gather_logprobs, x, at, y);
    SAME(gather_logprobs_backward, vector_read_only(y), at, g);
    arrays_free();
}

static void test_gather(void) {
    for (uint64_t order = 0; order < ORDERS; order++) {
        device_order(order);
        check_gather(1, 1, NAPIER_F32, 1);
        check_gather(300, 7, NAPIER_BF16, 2);
        check_gather(3, 1000, NAPIER_F16, 1);
        check_gather(2, 1500, NAPIER_F32, 1);
    }
    const int64_t wrong[3] = {1, 9, -1};
    const napier_const_vector x = vector_of(policy, 12, NAPIER_F32, 1);
    const napier_vector y = vector_new(3, NAPIER_F32, 1), g = vector_new(12, NAPIER_F32, 1);
    const float *const got = y.data, *const gradient = g.data;
    const napier_indices at = indices_of(wrong, 3, NAPIER_I64);
    const napier_const_matrix rows = as_rows(x, 3, 4, 4);
    both_case("gather of wrong ids");
    bad(through_gather_logprobs(cpu, rows, at, y), "ids: the id at index 1 is no column");
    assert_true(isnan(policy[1]) || got[0] == policy[1]);
    all_nan(got + 1, NAPIER_F32, 2);
    bad(through_gather_logprobs_backward(cpu, vector_read_only(y), at, as_rows_out(g, 3, 4, 4)),
        "ids: the id at index 1 is no column");
    assert_true(gradient[0] == 0.0f);
    all_nan(gradient + 4, NAPIER_F32, 8);
    bad(through_gather_logprobs(cpu, rows, at, g), "gathered: size 12 is not 3");
}

/* ---- KL -------------------------------------------------------------------------------------------------------------- */

static void check_kl(int64_t responses, int64_t most, const napier_kl_options *o, napier_dtype dtype, int64_t stride,
                     bool masked, bool wild) {
    rng r = rng_make((uint64_t)(most * 7 + responses));
    const int64_t n = make_offsets(&r, responses, most, offsets);
    uint8_t *const mask = array_new((size_t)n);
    make_logprobs(&r, policy, n, 1.0, wild);
    make_logprobs(&r, ref, n, 1.0, wild);
    for (int64_t i = 0; i < n; i++) {
        ref[i] = i % 5 == 0 ? policy[i] : i % 2 ? policy[i] + 0.01f * ref[i] : ref[i];
        mask[i] = rng_below(&r, 3) > 0;
    }
    const napier_const_vector p = vector_of(policy, n, dtype, stride), q = vector_of(ref, n, NAPIER_F32, 1);
    const napier_vector kl = vector_new(responses, dtype, stride), grad_policy = vector_new(n, dtype, stride);
    const napier_vector grad_ref = vector_new(n, NAPIER_F32, 1);
    const napier_indices at = indices_of(offsets, responses + 1, most % 2 ? NAPIER_I32 : NAPIER_I64);
    both_case("KL of %lld responses of %lld", (long long)responses, (long long)most);
    SAME(kl_per_response, p, q, at, masked ? mask : NULL, o, kl);
    SAME(kl_per_response_backward, p, q, at, masked ? mask : NULL, o, vector_read_only(kl), grad_policy, grad_ref);
    arrays_free();
}

static void test_kl(void) {
    napier_kl_options o = NAPIER_KL_OPTIONS_INIT;
    for (int i = 0; i < 6; i++) {
        device_order((uint64_t)i);
        o.estimator = (napier_kl_estimator)(NAPIER_KL_K1 + i % 3);
        o.reduction = i / 3 ? NAPIER_REDUCE_MEAN : NAPIER_REDUCE_SUM;
        o.clamp_ratio = i == 4 ? 0.5 : 0.0;
        o.clamp_kl = i == 5 ? 0.25 : 0.0;
        check_kl(5, 1030, &o, dtypes[i % 3], 1 + i % 2, i % 2 == 0, i > 2);
        check_kl(1, 2500, &o, NAPIER_F32, 1, i % 2 == 1, false);
        check_kl(12, 33, &o, NAPIER_BF16, 1, true, true);
        check_kl(4, 1, &o, NAPIER_F32, 1, false, false);
    }
    check_kl(3, 0, &o, NAPIER_F32, 1, false, false);
}

/* Offsets that fall, begin late or end early: all NaN, nothing out of bounds, and the message names the index. */
static void test_bad_offsets(void) {
    static const struct {
        int64_t offsets[4];
        const char *text;
    } cases[] = {{{0, 30, 20, 40}, "index 2"},
                 {{1, 10, 20, 40}, "index 0"},
                 {{0, 10, 20, 39}, "index 3"},
                 {{0, 10, INT64_MAX, 40}, "index 2"},
                 {{0, INT64_MIN, 20, 40}, "index 1"}};
    for (int i = 0; i < 5; i++) {
        const napier_const_vector p = vector_of(policy, 40, NAPIER_F32, 1), q = vector_of(ref, 40, NAPIER_F32, 1);
        const napier_vector kl = vector_new(3, NAPIER_F32, 1), g = vector_new(40, NAPIER_F32, 1);
        const napier_indices at = indices_of(cases[i].offsets, 4, NAPIER_I64);
        both_case("wrong offsets %d", i);
        bad(through_kl_per_response(cpu, p, q, at, NULL, NULL, kl), cases[i].text);
        all_nan(kl.data, NAPIER_F32, 3);
        bad(through_kl_per_response_backward(cpu, p, q, at, NULL, NULL, vector_read_only(kl), g, no_vector),
            cases[i].text);
        all_nan(g.data, NAPIER_F32, 40);
        arrays_free();
    }
}

/* ---- Rubric ---------------------------------------------------------------------------------------------------------- */

static void check_rubric(int64_t responses, int64_t most, int64_t criteria, int64_t cols, napier_dtype dtype,
                         bool wild) {
    static float marks[20000];
    rng r = rng_make((uint64_t)(most * 7 + criteria));
    const int64_t n = make_offsets(&r, responses, most, offsets);
    make_logprobs(&r, policy, n, 1.0, wild);
    for (int64_t i = 0; i < n; i++) {
        ids[i] = rng_below(&r, cols);
    }
    for (int64_t i = 0; i < criteria * cols; i++) {
        marks[i] = rng_below(&r, 2) ? 0.0f : (float)rng_normal(&r);
    }
    const napier_const_matrix rubric = as_rows(vector_of(marks, criteria * cols, dtype, 1), criteria, cols, cols);
    const napier_const_vector weights = vector_of(marks + 1, criteria, NAPIER_F32, 1);
    const napier_const_vector logprobs = vector_of(policy, n, dtype, 1);
    const napier_matrix scores = as_rows_out(vector_new(responses * criteria, dtype, 1), responses, criteria, criteria);
    const napier_vector rewards = vector_new(responses, NAPIER_F32, 2), gradient = vector_new(n, dtype, 2);
    const napier_indices at = indices_of(offsets, responses + 1, NAPIER_I64);
    const napier_indices token = indices_of(ids, n, most % 2 ? NAPIER_I32 : NAPIER_I64);
    both_case("rubric of %lld responses of %lld, %lld x %lld", (long long)responses, (long long)most,
              (long long)criteria, (long long)cols);
    SAME(rubric_score, logprobs, token, at, rubric, weights, scores, rewards);
    SAME(rubric_score_backward, token, at, rubric, weights, napier_read_only(scores), vector_read_only(rewards),
         gradient);
    arrays_free();
}

static void test_rubric(void) {
    for (uint64_t order = 0; order < ORDERS; order++) {
        device_order(order);
        check_rubric(5, 1100, 3, 50, dtypes[order], order > 0);
        check_rubric(12, 20, 40, 300, NAPIER_F32, false);
        check_rubric(2, 1, 1, 1, NAPIER_BF16, false);
    }
    const int64_t token[2] = {0, 5}, at[2] = {0, 2};
    const napier_vector rewards = vector_new(1, NAPIER_F32, 1);
    both_case("rubric of a wrong id");
    bad(through_rubric_score(cpu, vector_of(policy, 2, NAPIER_F32, 1), indices_of(token, 2, NAPIER_I64),
                             indices_of(at, 2, NAPIER_I64), as_rows(vector_of(ref, 5, NAPIER_F32, 1), 1, 5, 5),
                             vector_of(ref, 1, NAPIER_F32, 1), (napier_matrix){0}, rewards),
        "ids: the id at index 1 is no column");
    all_nan(rewards.data, NAPIER_F32, 1);
}

int main(void) {
    return BOTH_TESTS("cuda_rl", TEST(test_gather), TEST(test_kl), TEST(test_bad_offsets), TEST(test_rubric));
}
