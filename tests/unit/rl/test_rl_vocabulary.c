/* RL at the width of a vocabulary: a fused log_softmax, log-probabilities by two routes, which agree exactly, KL of a
 * policy with itself under every pair of routes, no rounding to 16 bits in between; and a few tokens through the rubric
 * scores, the token loss, the loss as a whole and its gradient. */
#include "support/check.h"

#include <math.h>
#include <string.h>

#include <napier/rl.h>

#include "support/formats.h"
#include "support/oracle.h"

enum { VOCABULARY = 151936, ROWS = 6, RESPONSES = 2 };

static const int64_t offsets[] = {0, 4, ROWS};
static float logits[ROWS * VOCABULARY], logprobs[ROWS * VOCABULARY];
static double wide[VOCABULARY];

static void make_logits(void) {
    rng r = rng_make(4);
    for (int64_t i = 0; i < (int64_t)ROWS * VOCABULARY; i++) {
        logits[i] = (float)(3 * rng_normal(&r));
    }
    for (int i = 0; i < VOCABULARY; i++) { /* rows whose partial maxima keep changing */
        logits[i] = (float)i * 1e-4f;
        logits[VOCABULARY + i] = (float)(VOCABULARY - i) * 1e-4f;
    }
}

static napier_const_matrix rows(void) { return napier_const_rows_f32(logits, ROWS, VOCABULARY); }
static napier_matrix results(void) { return napier_rows_f32(logprobs, ROWS, VOCABULARY); }

static void test_log_softmax(napier_context *context) {
    static const double temperatures[] = {1.0, 0.7};
    for (int k = 0; k < 2; k++) {
        const napier_softmax_options o = options_of(temperatures[k], NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
        works(napier_log_softmax, context, rows(), results(), &o);
        for (int64_t row = 0; row < ROWS; row++) {
            for (int64_t j = 0; j < VOCABULARY; j++) {
                wide[j] = (double)logits[row * VOCABULARY + j];
            }
            divide_by_temperature(wide, wide, VOCABULARY, temperatures[k], NAPIER_F32);
            const oracle_row truth = oracle_reduce(wide, VOCABULARY);
            for (int64_t j = 0; j < VOCABULARY; j += 101) {
                const long double t = oracle_log_softmax(&truth, wide[j]);
                expect(oracle_within((double)logprobs[row * VOCABULARY + j], t,
                                     oracle_log_softmax_bound(&truth, t, NAPIER_F32, NAPIER_F32), NAPIER_F32),
                       "T %g, [%lld, %lld]: %.9g, not %.9Lg", temperatures[k], (long long)row, (long long)j,
                       (double)logprobs[row * VOCABULARY + j], t);
            }
        }
    }
}

/* The log-probabilities of ids by two routes: the whole matrix and gather, or one read of each row. */
static void by_route(napier_context *context, int route, const int32_t *ids, float *chosen) {
    const napier_indices id = napier_indices_i32(ids, ROWS);
    if (route == 0) {
        works(napier_log_softmax, context, rows(), results(), NULL);
        works(napier_gather_logprobs, context, napier_read_only(results()), id, napier_array_f32(chosen, ROWS));
        return;
    }
    napier_token_results wanted = NAPIER_TOKEN_RESULTS_INIT;
    wanted.logprobs = napier_rows_f32(chosen, ROWS, 1);
    works(napier_token_logprobs, context, rows(), id, NULL, &wanted);
}

static void kl_of(napier_context *context, const float *policy, const float *ref, napier_kl_estimator estimator,
                  float kl[RESPONSES]) {
    napier_kl_options o = NAPIER_KL_OPTIONS_INIT;
    o.estimator = estimator;
    works(napier_kl_per_response, context, napier_const_array_f32(policy, ROWS), napier_const_array_f32(ref, ROWS),
          napier_indices_i64(offsets, RESPONSES + 1), NULL, &o, napier_array_f32(kl, RESPONSES));
}

/* KL(pi, pi) is 0 whichever way either side was computed, for every estimator. */
static void test_routes_agree(napier_context *context) {
    const int32_t ids[ROWS] = {VOCABULARY - 1, 0, 77, 1023, 1024, 90000};
    float chosen[2][ROWS], kl[RESPONSES];
    by_route(context, 0, ids, chosen[0]);
    by_route(context, 1, ids, chosen[1]);
    expect(!memcmp(chosen[0], chosen[1], sizeof chosen[0]), "the routes differ");
    for (int i = 0; i < 4; i++) {
        for (int k = NAPIER_KL_K1; k <= NAPIER_KL_K3; k++) {
            kl_of(context, chosen[i / 2], chosen[i % 2], (napier_kl_estimator)k, kl);
            expect(kl[0] == 0 && kl[1] == 0, "routes %d and %d, k%d: %g, %g", i / 2, i % 2, k, (double)kl[0],
                   (double)kl[1]);
        }
    }
}

/* bf16 logits: f32 inside, so that the result is not a multiple of 2^-5 as a difference of 16-bit numbers is. */
static void test_no_16_bit_difference(napier_context *context) {
    uint16_t *const narrow = scratch(VOCABULARY, sizeof *narrow);
    for (int64_t j = 0; j < VOCABULARY; j++) {
        narrow[j] = bf16_nearest((double)logits[2 * VOCABULARY + j]);
        wide[j] = bf16_value(narrow[j]);
    }
    works(napier_log_softmax, context, napier_const_rows(narrow, 1, VOCABULARY, NAPIER_BF16),
          napier_rows_f32(logprobs, 1, VOCABULARY), NULL);
    const oracle_row truth = oracle_reduce(wide, VOCABULARY);
    double worst = 0, in_16_bits = 0;
    for (int64_t j = 0; j < VOCABULARY; j++) {
        const long double t = oracle_log_softmax(&truth, wide[j]);
        const double lse = bf16_value(bf16_nearest((double)truth.lse));
        worst = fmax(worst, fabs((double)((long double)logprobs[j] - t)));
        in_16_bits = fmax(in_16_bits, fabs((double)((long double)bf16_value(bf16_nearest(wide[j] - lse)) - t)));
    }
    expect(worst < 4e-6 && in_16_bits > 0.02, "off by %g; a 16-bit difference is by %g", worst, in_16_bits);
}

/* [B, C] scores, whose weighted sum is the reward. */
static void test_rubric(napier_context *context) {
    enum { CRITERIA = 3, WORDS = 5 };
    const float lp[ROWS] = {-1, -2, -0.5f, -0.25f, -4, -8};
    const int32_t ids[ROWS] = {0, 1, 1, 4, 2, 3};
    const float marks[CRITERIA * WORDS] = {1, 0, 0, 0, 2, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1}, weights[] = {1, 2, -1};
    const float wanted[RESPONSES * CRITERIA] = {-1.5f, -5, 3.75f, 0, -8, 12};
    float scores[RESPONSES * CRITERIA], rewards[RESPONSES];
    works(napier_rubric_score, context, napier_const_array_f32(lp, ROWS), napier_indices_i32(ids, ROWS),
          napier_indices_i64(offsets, RESPONSES + 1), napier_const_rows_f32(marks, CRITERIA, WORDS),
          napier_const_array_f32(weights, CRITERIA), napier_rows_f32(scores, RESPONSES, CRITERIA),
          napier_array_f32(rewards, RESPONSES));
    for (int i = 0; i < RESPONSES * CRITERIA; i++) {
        expect(scores[i] == wanted[i], "score %d is %g, not %g", i, (double)scores[i], (double)wanted[i]);
    }
    expect(rewards[0] == -2.75f && rewards[1] == 4, "rewards %g, %g", (double)rewards[0], (double)rewards[1]);
}

/* Policy loss + beta * mean KL: mean over tokens of the clipped losses, and over responses of the summed differences. */
static double whole(const double *policy, const float *old, const float *ref, const float *advantages, double beta) {
    double loss = 0, kl = 0;
    for (int b = 0; b < RESPONSES; b++) {
        for (int64_t t = offsets[b]; t < offsets[b + 1]; t++) {
            const double ratio = exp(policy[t] - (double)old[t]), a = (double)advantages[b];
            loss -= fmin(ratio * a, fmin(fmax(ratio, 0.8), 1.2) * a) / ROWS;
            kl += (policy[t] - (double)ref[t]) / RESPONSES;
        }
    }
    return loss + beta * kl;
}

static void test_grpo_loss(napier_context *context) {
    const float policy[ROWS] = {-1.0f, -2.0f, -0.4f, -3.0f, -1.5f, -0.9f};
    const float old[ROWS] = {-1.1f, -1.7f, -0.5f, -3.3f, -1.5f, -0.6f};
    const float ref[ROWS] = {-1.2f, -2.2f, -0.3f, -3.1f, -1.4f, -0.8f}, advantages[RESPONSES] = {1.5f, -0.75f};
    const double beta = 0.04;
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    napier_grpo_batch batch = NAPIER_GRPO_BATCH_INIT;
    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
    float losses[ROWS], grad[ROWS];
    double now[ROWS], mean = 0;
    o.type = NAPIER_GRPO_TOKEN_MEAN;
    batch.logprobs = napier_const_array_f32(policy, ROWS);
    batch.old_logprobs = napier_const_array_f32(old, ROWS);
    batch.ref_logprobs = napier_const_array_f32(ref, ROWS);
    batch.advantages = napier_const_array_f32(advantages, RESPONSES);
    batch.offsets = napier_indices_i64(offsets, RESPONSES + 1);
    for (int t = 0; t < ROWS; t++) {
        now[t] = (double)policy[t];
    }
    works(napier_grpo_token_loss, context, &batch, &o, napier_array_f32(losses, ROWS), NO_VECTOR);
    for (int t = 0; t < ROWS; t++) {
        const double a = (double)advantages[t >= offsets[1]], ratio = exp(now[t] - (double)old[t]);
        const double truth = -fmin(ratio * a, fmin(fmax(ratio, 0.8), 1.2) * a);
        mean += truth / ROWS;
        expect(fabs((double)losses[t] - truth) < 4e-7, "token %d: %.9g, not %.9g", t, (double)losses[t], truth);
    }
    works(napier_grpo_loss, context, &batch, &o, &m, NO_VECTOR, NO_VECTOR);
    expect(fabs(m.loss - mean) < 4e-7, "the policy's loss is %.9g, not %.9g", m.loss, mean);
    o.beta = beta;
    works(napier_grpo_loss, context, &batch, &o, &m, napier_array_f32(grad, ROWS), NO_VECTOR);
    const double truth = whole(now, old, ref, advantages, beta);
    expect(fabs(m.loss - truth) < 4e-7, "the loss is %.9g, not %.9g", m.loss, truth);
    for (int t = 0; t < ROWS; t++) {
        const double at = now[t], h = 1e-6;
        now[t] = at + h;
        const double above = whole(now, old, ref, advantages, beta);
        now[t] = at - h;
        const double slope = (above - whole(now, old, ref, advantages, beta)) / (2 * h);
        now[t] = at;
        expect(fabs((double)grad[t] - slope) < 1e-6 * fabs(slope), "gradient %d is %.9g, not %.9g", t, (double)grad[t],
               slope);
    }
}

int main(void) {
    make_logits();
    return RUN_TESTS("rl_vocabulary", TEST_2(test_log_softmax), TEST_2(test_routes_agree),
                     TEST_2(test_no_16_bit_difference), TEST_2(test_rubric), TEST_2(test_grpo_loss));
}
