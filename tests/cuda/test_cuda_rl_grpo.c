/* tests/cuda/test_cuda_rl_grpo.c - GRPO losses on a device against the CPU, bit for bit: all types, levels, corrections, masks and
 * quantiles; losses, gradients and metrics; offsets at fault. */
#include "rl_support.h"

enum { MOST = 4000, RESPONSES = 9, VECTORS = 5 };

/* logprobs, old, ref, sampler, entropies, advantages */
typedef struct sides {
    napier_const_vector v[VECTORS + 1];
    uint8_t *mask;
    napier_indices offsets;
    int64_t tokens, responses;
} sides;

static sides make_sides(int64_t responses, int64_t most, napier_dtype dtype, bool token_advantages, bool wild) {
    static float values[VECTORS + 1][MOST];
    static int64_t offsets[RESPONSES + 1];
    sides s = {.responses = responses};
    rng r = rng_make((uint64_t)(most + 17 * responses + wild));
    s.tokens = make_offsets(&r, responses, most, offsets);
    s.mask = array_new((size_t)s.tokens);
    for (int v = 0; v < VECTORS + 1; v++) {
        make_logprobs(&r, values[v], s.tokens, 1.0, wild && v != 4);
    }
    for (int64_t i = 0; i < s.tokens; i++) {
        s.mask[i] = rng_below(&r, 5) > 0;
        for (int v = 1; v < 4; v++) {
            values[v][i] = i % 3 == 0 ? values[0][i] + 0.05f * values[v][i] : i % 7 == 0 ? values[0][i] : values[v][i];
        }
        values[4][i] = fabsf(values[4][i]);
        values[5][i] = i % 11 == 0 ? 0.0f : (float)rng_normal(&r);
    }
    for (int v = 0; v < VECTORS; v++) {
        s.v[v] = vector_of(values[v], s.tokens, v == 1 ? dtype : dtypes[v % 3], 1 + v % 2);
    }
    s.v[5] = vector_of(values[5], token_advantages ? s.tokens : responses, NAPIER_F32, 1);
    s.offsets = indices_of(offsets, responses + 1, most % 2 ? NAPIER_I32 : NAPIER_I64);
    return s;
}

static napier_grpo_batch batch_of(const sides *s, bool masked, bool old, bool entropies) {
    const napier_const_vector none = {0};
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    b.logprobs = s->v[0];
    b.old_logprobs = old ? s->v[1] : none;
    b.ref_logprobs = s->v[2];
    b.sampler_logprobs = s->v[3];
    b.entropies = entropies ? s->v[4] : none;
    b.advantages = s->v[5];
    b.mask = masked ? s->mask : NULL;
    b.offsets = s->offsets;
    return b;
}

static napier_grpo_metrics *new_metrics(void) {
    const napier_grpo_metrics empty = NAPIER_GRPO_METRICS_INIT;
    return array_of(&empty, sizeof empty);
}

/* The device writes all of them, also the size. */
static napier_grpo_metrics *poisoned(napier_grpo_metrics *metrics) { return memset(metrics, 0xa5, sizeof *metrics); }

/* Results for a case: losses and gradients of the tokens, gradients of the batch's loss. */
typedef struct outcome {
    napier_vector losses, gradient, of_logprobs, of_entropies;
    napier_grpo_metrics *metrics;
} outcome;

static outcome make_outcome(const sides *s, int type) {
    return (outcome){vector_new(s->tokens, NAPIER_F32, 1), vector_new(s->tokens, dtypes[type % 3], 2),
                     vector_new(s->tokens, NAPIER_F32, 1), vector_new(s->tokens, NAPIER_F32, 1), new_metrics()};
}

static void check(const sides *s, const napier_grpo_options *o, bool masked, bool old, bool entropies) {
    const napier_grpo_batch batch = batch_of(s, masked, old, entropies), *const b = &batch;
    const int known = arrays_count();
    const outcome r = make_outcome(s, (int)o->type);
    both_case("type %d, level %d, correction %d%s%s", (int)o->type, (int)o->level, (int)o->correction,
              masked ? ", masked" : "", old ? "" : ", on-policy");
    SAME(grpo_token_loss, b, o, r.losses, r.gradient);
    SAME(grpo_token_loss_backward, b, o, s->v[4], r.gradient);
    BOTH(napier_grpo_loss(cpu, b, o, r.metrics, r.of_logprobs, r.of_entropies),
         through_grpo_loss(cpu, b, o, poisoned(r.metrics), r.of_logprobs, r.of_entropies));
    arrays_free_from(known);
}

/* Option set number i of a type: each switch is on in some. */
enum { OPTION_SETS = 8 };
static napier_grpo_options grpo_options(int type, int i) {
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    o.type = (napier_grpo_type)type;
    o.level = i % 3 == 2 ? NAPIER_GRPO_LEVEL_SEQUENCE : NAPIER_GRPO_LEVEL_TOKEN;
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

static void test_types(void) {
    for (int round = 0; round < 3; round++) {
        const sides s = make_sides(round == 2 ? 1 : 6, round == 1 ? 40 : 1100, dtypes[round], round == 1, round == 1);
        for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_TOKEN_MEAN; type++) {
            for (int i = 0; i < OPTION_SETS; i++) {
                if (round != 1 && (i + type) % 3 != round) {
                    continue; /* the long ones take turns */
                }
                const napier_grpo_options o = grpo_options(type, i);
                device_order((uint64_t)(i + type));
                check(&s, &o, i % 2 == 0, i != 4, true);
            }
        }
        arrays_free();
    }
}

/* From logits: V columns, ids and all outputs; `in_place` of the logits. */
static void check_logits(const sides *s, int64_t cols, napier_dtype dtype, const napier_grpo_options *o, bool masked,
                         bool old, bool in_place) {
    static float values[400000];
    static int64_t tokens[MOST];
    const int64_t n = s->tokens;
    const int known = arrays_count();
    assert_true(n * cols <= 400000);
    rng r = rng_make((uint64_t)cols + (uint64_t)o->type);
    for (int64_t i = 0; i < n * cols; i++) {
        values[i] = (float)(2.0 * rng_normal(&r));
    }
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = i % 13 == 5 ? -100 : rng_below(&r, cols);
    }
    const napier_const_matrix x = as_rows(vector_of(values, n * cols, dtype, 1), n, cols, cols);
    const napier_matrix same_place = {(void *)(uintptr_t)x.data, n, cols, cols, 1, dtype};
    const napier_matrix grad =
        in_place ? same_place : as_rows_out(vector_new(n * cols, dtypes[(o->type + 1) % 3], 1), n, cols, cols);
    const napier_vector logprobs = vector_new(n, NAPIER_F32, 1), entropies = vector_new(n, NAPIER_BF16, 1), none = {0};
    const napier_indices ids = indices_of(tokens, n, NAPIER_I64);
    napier_token_options t = NAPIER_TOKEN_OPTIONS_INIT;
    t.temperature = o->type % 2 ? 0.8 : 1.0;
    napier_grpo_batch b = batch_of(s, masked, old, false);
    b.logprobs.data = NULL;
    napier_grpo_metrics *const metrics = new_metrics();
    both_case("logits %d x %d, dtype %d, type %d, level %d%s", (int)n, (int)cols, (int)dtype, (int)o->type,
              (int)o->level, in_place ? ", in place" : "");
    BOTH(napier_grpo_from_logits(cpu, x, ids, &b, o, &t, metrics, grad, logprobs, entropies),
         through_grpo_from_logits(cpu, x, ids, &b, o, &t, poisoned(metrics), grad, logprobs, entropies));
    if (!in_place) {
        SAME(grpo_from_logits, x, ids, &b, o, &t, metrics, (napier_matrix){0}, none, none);
    }
    arrays_free_from(known);
}

static void test_logits(void) {
    for (int round = 0; round < 2; round++) {
        const sides s = make_sides(5, round ? 4 : 12, NAPIER_F32, round == 1, false);
        for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_TOKEN_MEAN; type++) {
            for (int i = 0; i < OPTION_SETS; i++) {
                if ((i + type) % 2 == round && round) {
                    continue;
                }
                const napier_grpo_options o = grpo_options(type, i);
                device_order((uint64_t)(i + type));
                check_logits(&s, round ? 1500 : 33, dtypes[(type + i) % 3], &o, i % 2 == 0, i != 4, i % 3 == 1);
            }
        }
        arrays_free();
    }
    const sides s = make_sides(0, 0, NAPIER_F32, false, false);
    const napier_grpo_options o = grpo_options(0, 0);
    check_logits(&s, 7, NAPIER_F32, &o, false, true, false);
}

/* No tokens, none that counts, none of a response; ties and NaN under a quantile. */
static void test_edges(void) {
    static const int64_t shapes[][3] = {{3, 0, true}, {0, 0, false}, {4, 3, true}}; /* responses, most, masked */
    napier_grpo_options o = grpo_options(NAPIER_GRPO, 2);
    for (int i = 0; i < 3; i++) {
        const sides s = make_sides(shapes[i][0], shapes[i][1], NAPIER_F32, false, false);
        memset(s.mask, 0, (size_t)s.tokens);
        check(&s, &o, shapes[i][2] != 0, true, true);
        arrays_free();
    }
    for (int nan = 0; nan < 2; nan++) {
        const sides s = make_sides(4, 30, NAPIER_F32, false, false);
        const napier_const_vector e = s.v[4];
        for (int64_t i = 0; i < s.tokens; i++) {
            element_set((void *)(uintptr_t)e.data, e.dtype, i * e.stride,
                        nan && i == 7 ? (double)NAN : (double)(i % 3));
        }
        for (double q = 0.05; q < 1; q += 0.15) {
            o.top_entropy_quantile = q;
            check(&s, &o, false, true, true);
        }
        arrays_free();
    }
    const napier_grpo_options plain = NAPIER_GRPO_OPTIONS_INIT;
    const sides s = make_sides(4, 30, NAPIER_F32, false, false);
    check(&s, &plain, true, true, false);
}

static void test_errors(void) {
    const sides s = make_sides(3, 10, NAPIER_F32, false, false);
    const napier_grpo_options o = grpo_options(NAPIER_GRPO, 2), with_beta = grpo_options(NAPIER_GRPO, 1);
    const int64_t wrong[4] = {0, 5, 4, s.tokens};
    const outcome r = make_outcome(&s, 0);
    const napier_vector none = {0};
    napier_grpo_batch b = batch_of(&s, false, true, true);
    b.offsets = indices_of(wrong, 4, NAPIER_I64);
    both_case("wrong offsets");
    bad(through_grpo_loss(cpu, &b, &o, poisoned(r.metrics), r.losses, none), "index 2");
    assert_true(isnan(r.metrics->loss) && r.metrics->struct_size == sizeof *r.metrics);
    all_nan(r.losses.data, NAPIER_F32, s.tokens);
    bad(through_grpo_loss(cpu, &b, &o, NULL, r.losses, none), "metrics: NULL");
    b.ref_logprobs.data = NULL;
    bad(through_grpo_token_loss(cpu, &b, &with_beta, r.losses, none), "ref_logprobs: absent, but beta needs it");
}

int main(void) {
    return BOTH_TESTS("cuda_rl_grpo", TEST(test_types), TEST(test_logits), TEST(test_edges), TEST(test_errors));
}
