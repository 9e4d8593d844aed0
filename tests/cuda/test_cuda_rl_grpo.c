/* tests/cuda/test_cuda_rl_grpo.c - GRPO losses on a device against the CPU, bit for bit: all types, levels, corrections, masks and
 * quantiles; losses, gradients and metrics; offsets at fault. */
#include <math.h>

#include "rl_support.h"

enum { MOST = 4000, RESPONSES = 9, VECTORS = 5 };

static float values[VECTORS + 1][MOST];
static uint8_t mask[MOST];
static int64_t offsets[RESPONSES + 1];

static const napier_dtype dtypes[3] = {NAPIER_F32, NAPIER_BF16, NAPIER_F16};

/* logprobs, old, ref, sampler, entropies, advantages */
typedef struct sides {
    line v[VECTORS + 1];
    pair mask;
    integers offsets;
    int64_t tokens, responses;
} sides;

static sides make_sides(int64_t responses, int64_t most, napier_dtype dtype, bool token_advantages, bool wild) {
    sides s;
    rng r = rng_make((uint64_t)(most + 17 * responses + wild));
    s.responses = responses;
    s.tokens = make_offsets(&r, responses, most, offsets);
    for (int v = 0; v < VECTORS + 1; v++) {
        make_logprobs(&r, values[v], s.tokens, 1.0, wild && v != 4);
    }
    for (int64_t i = 0; i < s.tokens; i++) {
        mask[i] = rng_below(&r, 5) > 0;
        for (int v = 1; v < 4; v++) {
            values[v][i] = i % 3 == 0 ? values[0][i] + 0.05f * values[v][i] : i % 7 == 0 ? values[0][i] : values[v][i];
        }
        values[4][i] = fabsf(values[4][i]);
        values[5][i] = i % 11 == 0 ? 0.0f : (float)rng_normal(&r);
    }
    for (int v = 0; v < VECTORS; v++) {
        s.v[v] = line_in(values[v], s.tokens, v == 1 ? dtype : dtypes[v % 3], 1 + v % 2);
    }
    s.v[5] = line_in(values[5], token_advantages ? s.tokens : responses, NAPIER_F32, 1);
    s.mask = both_of(mask, (size_t)s.tokens);
    s.offsets = integers_in(offsets, responses + 1, most % 2 ? NAPIER_I32 : NAPIER_I64);
    return s;
}

static napier_grpo_batch batch_of(const sides *s, bool device, bool masked, bool old, bool entropies) {
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    napier_const_vector v[VECTORS + 1];
    for (int i = 0; i < VECTORS + 1; i++) {
        v[i] = device ? there(s->v[i]) : here(s->v[i]);
    }
    const napier_const_vector none = {0};
    b.logprobs = v[0];
    b.old_logprobs = old ? v[1] : none;
    b.ref_logprobs = v[2];
    b.sampler_logprobs = v[3];
    b.entropies = entropies ? v[4] : none;
    b.advantages = v[5];
    b.mask = !masked ? NULL : device ? s->mask.there : s->mask.here;
    b.offsets = device ? indices_there(s->offsets) : indices_here(s->offsets);
    return b;
}

static void check(const sides *s, const napier_grpo_options *o, bool masked, bool old, bool entropies) {
    const napier_grpo_batch a = batch_of(s, false, masked, old, entropies),
                            b = batch_of(s, true, masked, old, entropies);
    char what[100];
    snprintf(what, sizeof what, "type %d, level %d, correction %d%s%s", (int)o->type, (int)o->level, (int)o->correction,
             masked ? ", masked" : "", old ? "" : ", on-policy");
    const int first = pairs_used;
    const line losses = line_out(s->tokens, NAPIER_F32, 1), g = line_out(s->tokens, dtypes[o->type % 3], 2);
    cpu_ok(what, napier_grpo_token_loss(cpu, &a, o, here_out(losses), here_out(g)));
    WITH_WORKSPACE(what, napier_cuda_grpo_token_loss(gpu, NULL, w, &b, o, there_out(losses), there_out(g)));
    same(what, &losses.p);
    same(what, &g.p);
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    const line gl = line_out(s->tokens, NAPIER_F32, 1), ge = line_out(s->tokens, NAPIER_F32, 1);
    pair m = both_of(NULL, sizeof metrics);
    cpu_ok(what, napier_grpo_loss(cpu, &a, o, &metrics, here_out(gl), here_out(ge)));
    memcpy(m.here, &metrics, sizeof metrics);
    WITH_WORKSPACE(what, napier_cuda_grpo_loss(gpu, NULL, w, &b, o, m.there, there_out(gl), there_out(ge)));
    same(what, &m);
    same(what, &gl.p);
    same(what, &ge.p);
    for (; pairs_used > first; pairs_used--) {
        free(pairs[pairs_used - 1].here);
        device_free(pairs[pairs_used - 1].there);
    }
}

/* Option set number i of a type: each switch is on in some. */
enum { OPTION_SETS = 8 };
static napier_grpo_options options_of(int type, int i) {
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    o.type = (napier_grpo_type)type;
    o.level = i % 3 == 2 ? NAPIER_GRPO_SEQUENCE : NAPIER_GRPO_TOKEN;
    o.epsilon_high = type == NAPIER_GRPO_CISPO ? 2.0 : i % 2 ? 0.28 : -1.0;
    o.delta = i % 4 == 3 ? 1.5 : 0.0;
    o.beta = i % 2 ? 0.04 : 0.0;
    o.kl_estimator = (napier_kl_estimator)(NAPIER_KL_K1 + (i + type) % 3);
    o.kl_bias_correction = i == 3 || i == 5;
    o.correction = (napier_grpo_correction)((i + type) % 5);
    o.correction_floor = i == 4 ? 0.5 : 0.0;
    o.top_entropy_quantile = i == 1 || i == 2 ? 0.35 : i == 5 ? 0.5 : 1.0;
    o.entropy_coefficient = i == 0 || i == 2 || i == 7 ? 0.01 : 0.0;
    o.off_policy_threshold = i == 4 || i == 5 ? 0.1 : HUGE_VAL;
    o.entropy_threshold = i >= 6 ? 0.75 : -HUGE_VAL;
    o.count_empty_responses = i == 3 || i == 6;
    o.num_items = i == 2 ? 1000.0 : 0.0;
    o.max_completion_length = i == 1 ? 77 : 0;
    return o;
}

static void test_types(void **state) {
    (void)state;
    for (int round = 0; round < 3; round++) {
        const sides s = make_sides(round == 2 ? 1 : 6, round == 1 ? 40 : 1100, dtypes[round], round == 1, round == 1);
        for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_TOKEN_MEAN; type++) {
            for (int i = 0; i < OPTION_SETS; i++) {
                if (round != 1 && (i + type) % 3 != round) {
                    continue; /* the long ones take turns */
                }
                const napier_grpo_options o = options_of(type, i);
                device_order((uint64_t)(i + type));
                check(&s, &o, i % 2 == 0, i != 4, true);
            }
        }
        both_forget();
    }
}

/* From logits: V columns, ids and all outputs; `in_place` of the logits. */
static void check_logits(const sides *s, int64_t cols, napier_dtype dtype, const napier_grpo_options *o, bool masked,
                         bool old, bool in_place) {
    static float x[400000];
    static int64_t ids[MOST];
    char what[100];
    snprintf(what, sizeof what, "logits %d x %d, dtype %d, type %d, level %d%s", (int)s->tokens, (int)cols, (int)dtype,
             (int)o->type, (int)o->level, in_place ? ", in place" : "");
    assert_true(s->tokens * cols <= 400000);
    rng r = rng_make((uint64_t)cols + (uint64_t)o->type);
    for (int64_t i = 0; i < s->tokens * cols; i++) {
        x[i] = (float)(2.0 * rng_normal(&r));
    }
    for (int64_t i = 0; i < s->tokens; i++) {
        ids[i] = i % 13 == 5 ? -100 : rng_below(&r, cols);
    }
    const int first = pairs_used;
    const line logits = line_in(x, s->tokens * cols, dtype, 1);
    const line grad = in_place ? logits : line_out(s->tokens * cols, dtypes[(o->type + 1) % 3], 1);
    const line logprobs = line_out(s->tokens, NAPIER_F32, 1), entropies = line_out(s->tokens, NAPIER_BF16, 1);
    const integers id = integers_in(ids, s->tokens, NAPIER_I64);
    napier_token_options t = NAPIER_TOKEN_OPTIONS_INIT;
    t.temperature = o->type % 2 ? 0.8 : 1.0;
    napier_grpo_batch a = batch_of(s, false, masked, old, false), b = batch_of(s, true, masked, old, false);
    a.logprobs.data = b.logprobs.data = NULL;
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    pair m = both_of(NULL, sizeof metrics);
    const int64_t n = s->tokens;
    cpu_ok(what, napier_grpo_from_logits(cpu, rows_here(logits, n, cols, cols), indices_here(id), &a, o, &t, &metrics,
                                         rows_here_out(grad, n, cols, cols), here_out(logprobs), here_out(entropies)));
    memcpy(m.here, &metrics, sizeof metrics);
    WITH_WORKSPACE(what, napier_cuda_grpo_from_logits(
                             gpu, NULL, w, rows_there(logits, n, cols, cols), indices_there(id), &b, o, &t, m.there,
                             rows_there_out(grad, n, cols, cols), there_out(logprobs), there_out(entropies)));
    same(what, &logprobs.p);
    same(what, &entropies.p);
    same(what, &m);
    same(what, &grad.p);
    if (!in_place) { /* and without a gradient */
        WITH_WORKSPACE(what, napier_cuda_grpo_from_logits(gpu, NULL, w, rows_there(logits, n, cols, cols),
                                                          indices_there(id), &b, o, &t, m.there, (napier_matrix){0},
                                                          (napier_vector){0}, (napier_vector){0}));
        same(what, &m);
    }
    for (; pairs_used > first; pairs_used--) {
        free(pairs[pairs_used - 1].here);
        device_free(pairs[pairs_used - 1].there);
    }
}

static void test_logits(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        const sides s = make_sides(5, round ? 4 : 12, NAPIER_F32, round == 1, false);
        for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_TOKEN_MEAN; type++) {
            for (int i = 0; i < OPTION_SETS; i++) {
                if ((i + type) % 2 == round && round) {
                    continue;
                }
                const napier_grpo_options o = options_of(type, i);
                device_order((uint64_t)(i + type));
                check_logits(&s, round ? 1500 : 33, dtypes[(type + i) % 3], &o, i % 2 == 0, i != 4, i % 3 == 1);
            }
        }
        both_forget();
    }
    const sides s = make_sides(0, 0, NAPIER_F32, false, false);
    const napier_grpo_options o = options_of(0, 0);
    check_logits(&s, 7, NAPIER_F32, &o, false, true, false);
    both_forget();
}

/* No tokens, none that counts, none of a response; ties and NaN under a quantile. */
static void test_edges(void **state) {
    (void)state;
    napier_grpo_options o = options_of(NAPIER_GRPO, 2);
    sides s = make_sides(3, 0, NAPIER_F32, false, false);
    check(&s, &o, true, true, true);
    both_forget();
    s = make_sides(0, 0, NAPIER_F32, false, false);
    check(&s, &o, false, true, true);
    both_forget();
    s = make_sides(4, 3, NAPIER_F32, false, false);
    memset(s.mask.here, 0, s.mask.size);
    device_write(s.mask.there, s.mask.here, s.mask.size);
    check(&s, &o, true, true, true);
    both_forget();
    for (int nan = 0; nan < 2; nan++) {
        s = make_sides(4, 30, NAPIER_F32, false, false);
        for (int64_t i = 0; i < s.tokens; i++) {
            put_element(s.v[4].p.here, s.v[4].dtype, i * s.v[4].stride, nan && i == 7 ? NAN : (float)(i % 3));
        }
        device_write(s.v[4].p.there, s.v[4].p.here, s.v[4].p.size);
        for (double q = 0.05; q < 1; q += 0.15) {
            o.top_entropy_quantile = q;
            check(&s, &o, false, true, true);
        }
        both_forget();
    }
    napier_grpo_options plain = NAPIER_GRPO_OPTIONS_INIT;
    s = make_sides(4, 30, NAPIER_F32, false, false);
    check(&s, &plain, true, true, false);
    both_forget();
}

static void test_errors(void **state) {
    (void)state;
    sides s = make_sides(3, 10, NAPIER_F32, false, false);
    const napier_grpo_options o = options_of(NAPIER_GRPO, 2);
    napier_grpo_batch b = batch_of(&s, true, false, true, true);
    const line losses = line_out(s.tokens, NAPIER_F32, 1);
    napier_grpo_metrics metrics;
    pair m = both_of(NULL, sizeof metrics);
    napier_cuda_workspace w = {both_of(NULL, 1 << 18).there, 1 << 18};
    const int64_t bad[4] = {0, 5, 4, s.tokens};
    const integers at = integers_in(bad, 4, NAPIER_I64);
    b.offsets = indices_there(at);
    gpu_ok("bad", napier_cuda_grpo_loss(gpu, NULL, &w, &b, &o, m.there, there_out(losses), (napier_vector){0}));
    assert_int_equal(napier_cuda_synchronize(gpu, NULL), NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(napier_cuda_last_error(gpu), "index 2"));
    device_read(&metrics, m.there, sizeof metrics);
    assert_true(metrics.loss != metrics.loss && metrics.struct_size == sizeof metrics);
    float g;
    device_read(&g, losses.p.there, sizeof g);
    assert_true(g != g);
    assert_int_equal(napier_cuda_grpo_loss(gpu, NULL, &w, &b, &o, NULL, there_out(losses), (napier_vector){0}),
                     NAPIER_INVALID_ARGUMENT);
    assert_string_equal(napier_cuda_last_error(gpu), "metrics: NULL");
    b.ref_logprobs.data = NULL;
    napier_grpo_options with = options_of(NAPIER_GRPO, 1);
    assert_int_equal(napier_cuda_grpo_token_loss(gpu, NULL, &w, &b, &with, there_out(losses), (napier_vector){0}),
                     NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(napier_cuda_last_error(gpu), "ref_logprobs: absent, but beta needs it"));
    both_forget();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_errors),
    };
    both_set_up();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    both_tear_down();
    return failed;
}
