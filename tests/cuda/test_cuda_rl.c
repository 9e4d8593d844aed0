/* tests/cuda/test_cuda_rl.c - gather, KL and rubric on a device against the CPU, bit for bit: shapes around tiles, dtypes,
 * strides, masks, special values, orders of threads; offsets and ids at fault; workspace and texts. */
#include "rl_support.h"

enum { MOST = 6000, RESPONSES = 12, ORDERS = 3 };

static float policy[MOST], ref[MOST];
static uint8_t mask[MOST];
static int64_t offsets[RESPONSES + 1], ids[MOST];

static const napier_dtype dtypes[3] = {NAPIER_F32, NAPIER_BF16, NAPIER_F16};

static void refused(napier_status status, const char *text) {
    assert_int_equal(status, NAPIER_INVALID_ARGUMENT);
    if (!strstr(napier_cuda_last_error(gpu), text)) {
        fprintf(stderr, "said '%s', not '%s'\n", napier_cuda_last_error(gpu), text);
        fail();
    }
}

/* ---- Gather --------------------------------------------------------------------------------------------------------- */

static void check_gather(int64_t rows, int64_t cols, napier_dtype dtype, int64_t stride) {
    const int64_t row_stride = cols * stride + 3;
    rng r = rng_make((uint64_t)(rows * 131 + cols));
    make_logprobs(&r, policy, MOST, 3.0, true);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = rng_below(&r, cols);
    }
    const line x = line_in(policy, rows * row_stride, dtype, 1), y = line_out(rows, dtypes[(cols + 1) % 3], 2);
    const integers at = integers_in(ids, rows, cols % 2 ? NAPIER_I32 : NAPIER_I64);
    napier_const_matrix a = rows_here(x, rows, cols, row_stride), b = rows_there(x, rows, cols, row_stride);
    a.col_stride = b.col_stride = stride;
    cpu_ok("gather", napier_gather_logprobs(cpu, a, indices_here(at), here_out(y)));
    gpu_ok("gather", napier_cuda_gather_logprobs(gpu, NULL, NULL, b, indices_there(at), there_out(y)));
    same("gather", &y.p);

    const line g = line_out(rows * row_stride, dtype, 1);
    napier_matrix c = rows_here_out(g, rows, cols, row_stride), d = rows_there_out(g, rows, cols, row_stride);
    c.col_stride = d.col_stride = stride;
    cpu_ok("scatter", napier_gather_logprobs_backward(cpu, here(y), indices_here(at), c));
    gpu_ok("scatter", napier_cuda_gather_logprobs_backward(gpu, NULL, NULL, there(y), indices_there(at), d));
    same("scatter", &g.p);
    both_forget();
}

static void test_gather(void **state) {
    (void)state;
    for (uint64_t order = 0; order < ORDERS; order++) {
        device_order(order);
        check_gather(1, 1, NAPIER_F32, 1);
        check_gather(300, 7, NAPIER_BF16, 2);
        check_gather(3, 1000, NAPIER_F16, 1);
        check_gather(2, 1500, NAPIER_F32, 1);
    }
    const int64_t bad[3] = {1, 9, -1};
    const line x = line_in(policy, 12, NAPIER_F32, 1), y = line_out(3, NAPIER_F32, 1), g = line_out(12, NAPIER_F32, 1);
    const integers at = integers_in(bad, 3, NAPIER_I64);
    float got[12];
    gpu_ok("bad",
           napier_cuda_gather_logprobs(gpu, NULL, NULL, rows_there(x, 3, 4, 4), indices_there(at), there_out(y)));
    refused(napier_cuda_synchronize(gpu, NULL), "ids: the id at index 1 is no column");
    device_read(got, y.p.there, 12);
    assert_true(got[0] == got[0] ? got[0] == policy[1] : true);
    assert_true(got[1] != got[1] && got[2] != got[2]);
    gpu_ok("bad", napier_cuda_gather_logprobs_backward(gpu, NULL, NULL, there(y), indices_there(at),
                                                       rows_there_out(g, 3, 4, 4)));
    refused(napier_cuda_synchronize(gpu, NULL), "ids: the id at index 1 is no column");
    device_read(got, g.p.there, 48);
    assert_true(got[0] == 0.0f && got[4] != got[4] && got[11] != got[11]);
    refused(napier_cuda_gather_logprobs(gpu, NULL, NULL, rows_there(x, 3, 4, 4), indices_there(at), here_out(x)),
            "gathered: size 12 is not 3");
    both_forget();
}

/* ---- KL -------------------------------------------------------------------------------------------------------------- */

static void check_kl(int64_t responses, int64_t most, const napier_kl_options *o, napier_dtype dtype, int64_t stride,
                     bool masked, bool wild) {
    rng r = rng_make((uint64_t)(most * 7 + responses));
    const int64_t n = make_offsets(&r, responses, most, offsets);
    make_logprobs(&r, policy, n, 1.0, wild);
    make_logprobs(&r, ref, n, 1.0, wild);
    for (int64_t i = 0; i < n; i++) {
        ref[i] = i % 5 == 0 ? policy[i] : i % 2 ? policy[i] + 0.01f * ref[i] : ref[i];
        mask[i] = rng_below(&r, 3) > 0;
    }
    const line p = line_in(policy, n, dtype, stride), q = line_in(ref, n, NAPIER_F32, 1);
    const line kl = line_out(responses, dtype, stride), gp = line_out(n, dtype, stride),
               gq = line_out(n, NAPIER_F32, 1);
    const integers at = integers_in(offsets, responses + 1, most % 2 ? NAPIER_I32 : NAPIER_I64);
    const pair m = both_of(mask, (size_t)n);
    const uint8_t *here_mask = masked ? m.here : NULL, *there_mask = masked ? m.there : NULL;
    cpu_ok("kl", napier_kl_per_response(cpu, here(p), here(q), indices_here(at), here_mask, o, here_out(kl)));
    WITH_WORKSPACE("kl", napier_cuda_kl_per_response(gpu, NULL, w, there(p), there(q), indices_there(at), there_mask, o,
                                                     there_out(kl)));
    same("kl", &kl.p);
    cpu_ok("kl backward", napier_kl_per_response_backward(cpu, here(p), here(q), indices_here(at), here_mask, o,
                                                          here(kl), here_out(gp), here_out(gq)));
    WITH_WORKSPACE("kl backward",
                   napier_cuda_kl_per_response_backward(gpu, NULL, w, there(p), there(q), indices_there(at), there_mask,
                                                        o, there(kl), there_out(gp), there_out(gq)));
    same("kl: grad_policy", &gp.p);
    same("kl: grad_ref", &gq.p);
    both_forget();
}

static void test_kl(void **state) {
    (void)state;
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

/* Offsets that fall, begin late or end early: all NaN, nothing out of bounds, and the index is told. */
static void test_bad_offsets(void **state) {
    (void)state;
    static const int64_t bad[5][4] = {
        {0, 30, 20, 40}, {1, 10, 20, 40}, {0, 10, 20, 39}, {0, 10, INT64_MAX, 40}, {0, INT64_MIN, 20, 40}};
    static const char *const text[5] = {"index 2", "index 0", "index 3", "index 2", "index 1"};
    for (int i = 0; i < 5; i++) {
        const line p = line_in(policy, 40, NAPIER_F32, 1), kl = line_out(3, NAPIER_F32, 1);
        const line g = line_out(40, NAPIER_F32, 1);
        const integers at = integers_in(bad[i], 4, NAPIER_I64);
        float got[40];
        napier_cuda_workspace w = {both_of(NULL, 65536).there, 65536};
        const line q = line_in(ref, 40, NAPIER_F32, 1);
        gpu_ok("bad", napier_cuda_kl_per_response(gpu, NULL, &w, there(p), there(q), indices_there(at), NULL, NULL,
                                                  there_out(kl)));
        refused(napier_cuda_synchronize(gpu, NULL), text[i]);
        device_read(got, kl.p.there, 12);
        assert_true(got[0] != got[0] && got[1] != got[1] && got[2] != got[2]);
        gpu_ok("bad", napier_cuda_kl_per_response_backward(gpu, NULL, &w, there(p), there(q), indices_there(at), NULL,
                                                           NULL, there(kl), there_out(g), (napier_vector){0}));
        refused(napier_cuda_synchronize(gpu, NULL), text[i]);
        device_read(got, g.p.there, 160);
        assert_true(got[0] != got[0] && got[39] != got[39]);
        w.size = 8;
        refused(napier_cuda_kl_per_response(gpu, NULL, &w, there(p), there(q), indices_there(at), NULL, NULL,
                                            there_out(kl)),
                "workspace: size 8 is less than");
        both_forget();
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
    const line p = line_in(policy, n, dtype, 1), m = line_in(marks, criteria * cols, dtype, 1);
    const line weights = line_in(marks + 1, criteria, NAPIER_F32, 1), scores = line_out(responses * criteria, dtype, 1);
    const line rewards = line_out(responses, NAPIER_F32, 2), g = line_out(n, dtype, 2);
    const integers at = integers_in(offsets, responses + 1, NAPIER_I64);
    const integers token = integers_in(ids, n, most % 2 ? NAPIER_I32 : NAPIER_I64);
    cpu_ok("rubric",
           napier_rubric_score(cpu, here(p), indices_here(token), indices_here(at), rows_here(m, criteria, cols, cols),
                               here(weights), rows_here_out(scores, responses, criteria, criteria), here_out(rewards)));
    WITH_WORKSPACE("rubric",
                   napier_cuda_rubric_score(gpu, NULL, w, there(p), indices_there(token), indices_there(at),
                                            rows_there(m, criteria, cols, cols), there(weights),
                                            rows_there_out(scores, responses, criteria, criteria), there_out(rewards)));
    same("rubric: scores", &scores.p);
    same("rubric: rewards", &rewards.p);
    cpu_ok("rubric backward",
           napier_rubric_score_backward(cpu, indices_here(token), indices_here(at), rows_here(m, criteria, cols, cols),
                                        here(weights), rows_here(scores, responses, criteria, criteria), here(rewards),
                                        here_out(g)));
    WITH_WORKSPACE("rubric backward",
                   napier_cuda_rubric_score_backward(gpu, NULL, w, indices_there(token), indices_there(at),
                                                     rows_there(m, criteria, cols, cols), there(weights),
                                                     rows_there(scores, responses, criteria, criteria), there(rewards),
                                                     there_out(g)));
    same("rubric: gradient", &g.p);
    both_forget();
}

static void test_rubric(void **state) {
    (void)state;
    for (uint64_t order = 0; order < ORDERS; order++) {
        device_order(order);
        check_rubric(5, 1100, 3, 50, dtypes[order], order > 0);
        check_rubric(12, 20, 40, 300, NAPIER_F32, false);
        check_rubric(2, 1, 1, 1, NAPIER_BF16, false);
    }
    const int64_t token[2] = {0, 5}, at[2] = {0, 2};
    const line p = line_in(policy, 2, NAPIER_F32, 1), m = line_in(ref, 5, NAPIER_F32, 1);
    const line weights = line_in(ref, 1, NAPIER_F32, 1), rewards = line_out(1, NAPIER_F32, 1);
    const integers t = integers_in(token, 2, NAPIER_I64), o = integers_in(at, 2, NAPIER_I64);
    napier_cuda_workspace w = {both_of(NULL, 65536).there, 65536};
    float got;
    gpu_ok("bad",
           napier_cuda_rubric_score(gpu, NULL, &w, there(p), indices_there(t), indices_there(o), rows_there(m, 1, 5, 5),
                                    there(weights), (napier_matrix){0}, there_out(rewards)));
    refused(napier_cuda_synchronize(gpu, NULL), "ids: the id at index 1 is no column");
    device_read(&got, rewards.p.there, 4);
    assert_true(got != got);
    both_forget();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_kl),
        cmocka_unit_test(test_bad_offsets),
        cmocka_unit_test(test_rubric),
    };
    both_set_up();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    both_tear_down();
    return failed;
}
