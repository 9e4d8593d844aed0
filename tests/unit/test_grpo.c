/* The GRPO losses against formulas written here in long double, their gradients against differences of those formulas
 * (what the formula holds constant is held at its first value), every type, level and option on ragged batches; the same
 * bits from any instruction set, thread count, dtype route and batch; hostile arguments; memory that runs out. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <napier/rl.h>

#include "support/formats.h"

enum { LIMIT = 4096 };

/* ---- A batch ------------------------------------------------------------------------------------------------------- */

typedef struct batch {
    int64_t responses, tokens;
    int64_t offsets[64];
    float logprobs[LIMIT], old[LIMIT], ref[LIMIT], sampler[LIMIT], entropies[LIMIT], advantages[LIMIT];
    uint8_t mask[LIMIT];
} batch;

/* Responses of 0 to `most` tokens, one of them masked altogether; log-probabilities that differ by `spread`. */
static void make_batch(batch *b, uint64_t seed, int64_t responses, int64_t most, double spread) {
    rng r = rng_make(seed);
    b->responses = responses;
    b->offsets[0] = 0;
    for (int64_t i = 0; i < responses; i++) {
        const int64_t size = i % 5 == 3 ? 0 : 1 + rng_below(&r, most);
        b->offsets[i + 1] = b->offsets[i] + size;
        b->advantages[i] = (float)rng_normal(&r) * (i % 7 == 5 ? 0.0f : 1.0f);
    }
    b->tokens = b->offsets[responses];
    for (int64_t t = 0; t < b->tokens; t++) {
        b->old[t] = (float)(-3.0 * rng_uniform(&r) - 0.01);
        b->logprobs[t] = b->old[t] + (float)(spread * rng_normal(&r));
        b->ref[t] = b->old[t] + (float)(spread * rng_normal(&r));
        b->sampler[t] = b->old[t] + (float)(0.5 * spread * rng_normal(&r));
        b->entropies[t] = (float)(4.0 * rng_uniform(&r));
        b->mask[t] = rng_uniform(&r) < 0.8;
    }
    for (int64_t t = b->offsets[responses / 2]; t < b->offsets[responses / 2 + 1]; t++) {
        b->mask[t] = 0;
    }
}

enum { NO_OLD = 1, NO_MASK = 2, TOKEN_ADVANTAGES = 4 };

static napier_grpo_batch view_of(const batch *b, int without) {
    napier_grpo_batch v = NAPIER_GRPO_BATCH_INIT;
    v.logprobs = napier_const_array_f32(b->logprobs, b->tokens);
    if (!(without & NO_OLD)) {
        v.old_logprobs = napier_const_array_f32(b->old, b->tokens);
    }
    v.ref_logprobs = napier_const_array_f32(b->ref, b->tokens);
    v.sampler_logprobs = napier_const_array_f32(b->sampler, b->tokens);
    v.entropies = napier_const_array_f32(b->entropies, b->tokens);
    v.advantages = napier_const_array_f32(b->advantages, without & TOKEN_ADVANTAGES ? b->tokens : b->responses);
    v.mask = without & NO_MASK ? NULL : b->mask;
    v.offsets = napier_indices_i64(b->offsets, b->responses + 1);
    return v;
}

/* ---- The formulas -------------------------------------------------------------------------------------------------- */

typedef long double real;

/* One evaluation: `now` are the log-probabilities, `held` those that the formula treats as constants. */
typedef struct formula {
    const batch *b;
    const napier_grpo_options *o;
    int without;
    const real *now, *held;
    double threshold; /* of entropy */
    real *losses;     /* of each token; may be NULL */
    real *ratios;     /* likewise */
} formula;

static real clamp(real x, real low, real high) { return x < low ? low : x > high ? high : x; }

static bool counts(const formula *f, int64_t t) { return (f->without & NO_MASK) || f->b->mask[t]; }
static real old_of(const formula *f, int64_t t) { return f->without & NO_OLD ? f->held[t] : (real)f->b->old[t]; }
static real advantage(const formula *f, int64_t i, int64_t t) {
    return (real)f->b->advantages[f->without & TOKEN_ADVANTAGES ? t : i];
}

/* As torch.quantile: linear between the two nearest. */
static double quantile_of(const double *sorted, int64_t n, double q) {
    const double at = q * (double)(n - 1);
    const int64_t i = (int64_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double threshold_of(const batch *b, const napier_grpo_options *o, int without) {
    double *const e = room_for(b->tokens, sizeof *e);
    int64_t n = 0;
    for (int64_t t = 0; t < b->tokens; t++) {
        if ((without & NO_MASK) || b->mask[t]) {
            e[n++] = (double)b->entropies[t];
        }
    }
    qsort(e, (size_t)n, sizeof *e, by_value);
    const double threshold = n > 0 && o->top_entropy_quantile < 1 ? quantile_of(e, n, 1 - o->top_entropy_quantile) : 0;
    free(e);
    return o->top_entropy_quantile < 1 ? (double)(float)threshold : -HUGE_VAL;
}

static real estimate(napier_kl_estimator k, real d) {
    return k == NAPIER_KL_K1 ? -d : k == NAPIER_KL_K2 ? d * d / 2 : expm1l(d) - d;
}

static real correct_one(const napier_grpo_options *o, bool truncate, real log_r) {
    const real r = expl(log_r);
    if (truncate) {
        return clamp(r, (real)(float)o->correction_floor, (real)(float)o->correction_cap);
    }
    return r >= (real)o->correction_floor && r <= (real)o->correction_cap ? r : 0;
}

static real correction_of(const formula *f, int64_t i, int64_t t) {
    const napier_grpo_options *o = f->o;
    real sum = 0;
    switch (o->correction) {
    case NAPIER_GRPO_TOKEN_TRUNCATE:
    case NAPIER_GRPO_TOKEN_MASK:
        return correct_one(o, o->correction == NAPIER_GRPO_TOKEN_TRUNCATE, old_of(f, t) - (real)f->b->sampler[t]);
    case NAPIER_GRPO_SEQUENCE_TRUNCATE:
    case NAPIER_GRPO_SEQUENCE_MASK:
        for (int64_t u = f->b->offsets[i]; u < f->b->offsets[i + 1]; u++) {
            sum += counts(f, u) ? old_of(f, u) - (real)f->b->sampler[u] : 0;
        }
        return correct_one(o, o->correction == NAPIER_GRPO_SEQUENCE_TRUNCATE, sum);
    default: return 1;
    }
}

static real phi_of(const formula *f, int64_t i, real a) {
    const napier_grpo_options *o = f->o;
    const real lowest = logl(1e-8L);
    const bool tokens = o->correction == NAPIER_GRPO_TOKEN_TRUNCATE || o->correction == NAPIER_GRPO_TOKEN_MASK;
    real log_w = 0, correction = 1;
    for (int64_t t = f->b->offsets[i]; t < f->b->offsets[i + 1]; t++) {
        if (counts(f, t)) {
            log_w += clamp(f->held[t] - old_of(f, t), -20, 20);
            correction = correction_of(f, i, t);
            log_w += tokens ? clamp(logl(correction), lowest, 20) : 0;
        }
    }
    log_w += tokens ? 0 : clamp(logl(correction), lowest, 20);
    log_w = clamp(log_w, lowest, 20);
    const real k = (real)(a >= 0 ? o->vespo_k_positive : o->vespo_k_negative);
    const real lambda = (real)(a >= 0 ? o->vespo_lambda_positive : o->vespo_lambda_negative);
    return expl(lambda + k * log_w - lambda * expl(log_w));
}

static real policy_loss(const formula *f, int64_t i, int64_t t, real rho, real rho_held) {
    const napier_grpo_options *o = f->o;
    const real a = advantage(f, i, t), eps = (real)o->epsilon;
    const real high = o->epsilon_high < 0 ? eps : (real)o->epsilon_high;
    const real tau = (real)(a > 0 ? o->sapo_tau_positive : o->sapo_tau_negative);
    switch (o->type) {
    case NAPIER_GRPO_CISPO: return -fminl(rho_held, high) * a * f->now[t];
    case NAPIER_GRPO_SAPO: return -(4 / tau) / (1 + expl(-tau * (rho - 1))) * a;
    case NAPIER_GRPO_VESPO: return -phi_of(f, i, a) * a * f->now[t];
    default: {
        const real free = o->delta > 0 ? fminl(rho, (real)o->delta) : rho;
        return -fminl(free * a, clamp(rho, 1 - eps, 1 + high) * a);
    }
    }
}

static real ratio_of(const formula *f, int64_t i, int64_t t, const real *now) {
    if (f->o->level == NAPIER_GRPO_TOKEN && f->o->type != NAPIER_GRPO_GSPO) {
        return expl(now[t] - old_of(f, t));
    }
    real sum = 0, n = 0;
    for (int64_t u = f->b->offsets[i]; u < f->b->offsets[i + 1]; u++) {
        sum += counts(f, u) ? now[u] - old_of(f, u) : 0;
        n += counts(f, u);
    }
    return expl(sum / (n > 0 ? n : 1));
}

static bool off_policy_keeps(const formula *f, int64_t i, int64_t t) {
    real sum = 0, n = 0;
    if (advantage(f, i, t) >= 0 || !(f->o->off_policy_threshold < HUGE_VAL)) {
        return true;
    }
    for (int64_t u = f->b->offsets[i]; u < f->b->offsets[i + 1]; u++) {
        sum += counts(f, u) ? (real)f->b->sampler[u] - f->held[u] : 0;
        n += counts(f, u);
    }
    return sum / (n > 0 ? n : 1) <= (real)f->o->off_policy_threshold;
}

/* A token's loss but for the KL penalty. */
static real token_policy(const formula *f, int64_t i, int64_t t) {
    const real rho = ratio_of(f, i, t, f->now), held = ratio_of(f, i, t, f->held);
    const bool kept = off_policy_keeps(f, i, t) && (double)f->b->entropies[t] >= f->threshold;
    const real correction = f->o->type == NAPIER_GRPO_VESPO ? 1 : correction_of(f, i, t);
    if (f->ratios) {
        f->ratios[t] = rho;
    }
    return kept ? policy_loss(f, i, t, rho, held) * correction : 0;
}

static real token_penalty(const formula *f, int64_t i, int64_t t) {
    const bool own = f->o->type == NAPIER_GRPO_TOKEN_MEAN;
    const real kl = estimate(own ? NAPIER_KL_K1 : f->o->kl_estimator, (real)f->b->ref[t] - f->now[t]);
    return (real)f->o->beta * kl * (f->o->kl_bias_correction && !own ? ratio_of(f, i, t, f->now) : 1);
}

/* The loss but for the entropy bonus; weighted: as the type says, else the plain sum. */
static real whole_loss(const formula *f, bool weighted) {
    const batch *b = f->b;
    const napier_grpo_options *o = f->o;
    real present = 0, counted = 0, longest = 0, total = 0, penalty = 0;
    for (int64_t i = 0; i < b->responses; i++) {
        const int64_t size = b->offsets[i + 1] - b->offsets[i];
        present += size > 0;
        longest = size > longest ? size : longest;
        for (int64_t t = b->offsets[i]; t < b->offsets[i + 1]; t++) {
            counted += counts(f, t);
        }
    }
    for (int64_t i = 0; i < b->responses; i++) {
        real sum = 0, n = 0;
        for (int64_t t = b->offsets[i]; t < b->offsets[i + 1]; t++) {
            if (!counts(f, t)) {
                continue;
            }
            const real p = token_policy(f, i, t), q = o->beta != 0 ? token_penalty(f, i, t) : 0;
            const bool own = o->type == NAPIER_GRPO_TOKEN_MEAN;
            sum += own ? p : p + q;
            penalty += own ? q : 0;
            n++;
            if (f->losses) {
                f->losses[t] = p + (own ? q * counted / present : q);
            }
        }
        const bool mean = o->type == NAPIER_GRPO || o->type == NAPIER_GRPO_GSPO || o->type == NAPIER_GRPO_SAPO;
        total += weighted && mean ? sum / (n > 0 ? n : 1) : sum;
    }
    if (!weighted) {
        return total + penalty * counted / (present > 0 ? present : 1);
    }
    const real items = o->num_items > 0 ? (real)o->num_items : counted;
    const real most = o->max_completion_length > 0 ? (real)o->max_completion_length : longest;
    switch (o->type) {
    case NAPIER_GRPO_BNPO: return total / counted;
    case NAPIER_GRPO_DR_GRPO: return total / (present * most);
    case NAPIER_GRPO_DAPO:
    case NAPIER_GRPO_CISPO:
    case NAPIER_GRPO_VESPO: return total / items;
    case NAPIER_GRPO_TOKEN_MEAN: return total / counted + penalty / present;
    default: return total / present;
    }
}

/* d loss / d now[t] by differences of fifth order. */
static real slope_at(formula *f, real *now, int64_t t, bool weighted) {
    const real h = 1e-4L, at = now[t];
    static const real step[] = {-2, -1, 1, 2}, factor[] = {1, -8, 8, -1};
    real sum = 0;
    for (int i = 0; i < 4; i++) {
        now[t] = at + step[i] * h;
        sum += factor[i] * whole_loss(f, weighted);
    }
    now[t] = at;
    return sum / (12 * h);
}

/* ---- Against the formulas ------------------------------------------------------------------------------------------ */

static bool near(double got, real truth, real size, double tolerance) {
    return fabsl((real)got - truth) <= (real)tolerance * size + 1e-13L; /* the noise of differences */
}

static const char *describe(const napier_grpo_options *o, int without) {
    static char text[200];
    snprintf(text, sizeof text,
             "type %d level %d delta %g beta %g estimator %d bias %d correction %d quantile %g threshold %g without %d",
             (int)o->type, (int)o->level, o->delta, o->beta, (int)o->kl_estimator, o->kl_bias_correction,
             (int)o->correction, o->top_entropy_quantile, o->off_policy_threshold, without);
    return text;
}

/* Where the formula has a corner a difference says nothing. */
static bool at_a_corner(const napier_grpo_options *o, real rho) {
    const double high = o->epsilon_high < 0 ? o->epsilon : o->epsilon_high;
    const double corners[] = {1 - o->epsilon, 1 + high, o->delta > 0 ? o->delta : 9};
    for (int i = 0; i < 3; i++) {
        if (fabsl(rho - (real)corners[i]) < 1e-3L) {
            return true;
        }
    }
    return false;
}

static bool is_sequence(const napier_grpo_options *o) {
    return o->level == NAPIER_GRPO_SEQUENCE || o->type == NAPIER_GRPO_GSPO;
}

/* Within 1e-6 of the size of the two parts, the policy's and the penalty's; of the largest in the batch where it flows
 * from all tokens of a sequence. */
static void check_gradient(const float *got, formula *f, real *now, bool weighted, const char *what) {
    const int64_t n = f->b->tokens;
    napier_grpo_options plain = *f->o;
    plain.beta = 0;
    formula part = *f;
    part.o = &plain;
    real most = 0, *const slope = room_for(n, sizeof *slope), *const size = room_for(n, sizeof *size);
    for (int64_t t = 0; t < n; t++) {
        const bool looks = counts(f, t) && !at_a_corner(f->o, f->ratios[t]);
        slope[t] = looks ? slope_at(f, now, t, weighted) : counts(f, t) ? (real)got[t] : 0;
        const real policy = looks && f->o->beta != 0 ? slope_at(&part, now, t, weighted) : slope[t];
        size[t] = fabsl(policy) + fabsl(slope[t] - policy);
        most = fmaxl(most, size[t]);
    }
    for (int64_t t = 0; t < n; t++) {
        const bool cancels = is_sequence(f->o) && (f->without & TOKEN_ADVANTAGES); /* advantages of both signs */
        const real scale = is_sequence(f->o) ? most * (cancels ? 4 : 1) : size[t];
        if (!expect(near((double)got[t], slope[t], scale, 1e-6), "%s: gradient %lld is %.9g, not %.9Lg", what,
                    (long long)t, (double)got[t], slope[t])) {
            break;
        }
    }
    free(slope);
    free(size);
}

static void check_losses(const float *losses, const formula *f, const char *what) {
    for (int64_t t = 0; t < f->b->tokens; t++) {
        const real scale = fabsl(f->losses[t]) + 0.1L;
        if (!expect(near((double)losses[t], f->losses[t], scale, 2e-6), "%s: loss %lld is %.9g, not %.9Lg", what,
                    (long long)t, (double)losses[t], f->losses[t])) {
            break;
        }
    }
}

static void check_options(napier_context *context, const batch *b, const napier_grpo_options *o, int without) {
    const char *what = describe(o, without);
    const napier_grpo_batch view = view_of(b, without);
    real now[LIMIT], held[LIMIT], losses[LIMIT] = {0}, ratios[LIMIT] = {0};
    float got[LIMIT], grad[LIMIT], grad_entropies[LIMIT];
    for (int64_t t = 0; t < b->tokens; t++) {
        now[t] = held[t] = (real)b->logprobs[t];
    }
    formula f = {b, o, without, now, held, threshold_of(b, o, without), losses, ratios};
    const real sum = whole_loss(&f, false), loss = whole_loss(&f, true);
    f.losses = NULL;
    succeeded(
        context,
        napier_grpo_token_loss(context, &view, o, napier_array_f32(got, b->tokens), napier_array_f32(grad, b->tokens)),
        what);
    f.losses = losses;
    check_losses(got, &f, what);
    f.losses = NULL;
    formula slopes = f;
    check_gradient(grad, &slopes, now, false, what);
    (void)sum;

    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
    succeeded(context,
              napier_grpo_loss(context, &view, o, &m, napier_array_f32(grad, b->tokens),
                               napier_array_f32(grad_entropies, b->tokens)),
              what);
    check_gradient(grad, &slopes, now, true, what);
    double bonus = 0, left = 0;
    for (int64_t t = 0; t < b->tokens; t++) {
        const bool in = counts(&f, t) && (double)b->entropies[t] >= f.threshold;
        bonus += in ? (double)b->entropies[t] : 0;
        left += in;
    }
    const real truth = loss - (real)(o->entropy_coefficient * bonus / left);
    expect(near(m.loss, truth, fabsl(loss) + 0.1L, 2e-6), "%s: loss is %.9g, not %.9Lg", what, m.loss, truth);
    for (int64_t t = 0; t < b->tokens; t++) {
        const bool in = counts(&f, t) && (double)b->entropies[t] >= f.threshold;
        const double slope = in ? -o->entropy_coefficient / left : 0;
        expect(near((double)grad_entropies[t], (real)slope, (real)fabs(slope), 1e-6),
               "%s: gradient of entropy %lld is %.9g, not %.9g", what, (long long)t, (double)grad_entropies[t], slope);
    }
}

/* Options number `i` of a type: each one alone, and then mixed. */
enum { VARIANTS = 16 };
static napier_grpo_options variant(int i) {
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    o.epsilon_high = i % 2 ? 0.28 : -1;
    o.delta = i == 1 || i == 12 ? 1.5 : i == 13 ? 1.1 : 0;
    o.beta = (i >= 2 && i <= 5) || i == 12 || i == 14 ? 0.3 : 0;
    o.kl_estimator = i == 3 ? NAPIER_KL_K1 : i == 4 ? NAPIER_KL_K2 : NAPIER_KL_K3;
    o.kl_bias_correction = i == 5 || i == 14;
    o.correction = i >= 6 && i <= 9 ? (napier_grpo_correction)(i - 5)
                   : i == 12        ? NAPIER_GRPO_TOKEN_TRUNCATE
                   : i == 14        ? NAPIER_GRPO_SEQUENCE_TRUNCATE
                                    : NAPIER_GRPO_UNCORRECTED;
    o.correction_cap = i == 14 ? 3 : 1.1;
    o.correction_floor = i == 8 || i == 12 ? 0.9 : 0;
    o.top_entropy_quantile = i == 10 || i == 12 ? 0.35 : 1;
    o.off_policy_threshold = i == 11 || i == 12 ? 0.02 : HUGE_VAL;
    o.entropy_coefficient = i >= 10 ? 0.05 : 0;
    o.max_completion_length = i % 3 ? 40 : 0;
    o.num_items = i % 4 ? 333 : 0;
    o.sapo_tau_negative = i % 2 ? 1.05 : 3;
    return o;
}

static void test_every_type(void **state) {
    (void)state;
    napier_context *const context = context_of(NAPIER_ISA_AUTO, 2);
    batch *const b = room_for(1, sizeof *b);
    for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_TOKEN_MEAN; type++) {
        for (int i = 0; i < 2 * VARIANTS; i++) {
            napier_grpo_options o = variant(i / 2);
            o.type = (napier_grpo_type)type;
            o.level = (napier_grpo_level)(i % 2);
            o.epsilon_high = type == NAPIER_GRPO_CISPO ? 1.3 : o.epsilon_high;
            make_batch(b, (uint64_t)(100 * type + i), 6, 9, 0.3);
            const int without = (i % 5 == 4 ? NO_OLD : 0) | (i % 7 == 6 ? NO_MASK : 0);
            check_options(context, b, &o, without | (i % 11 == 10 ? TOKEN_ADVANTAGES : 0));
        }
    }
    free(b);
    napier_context_destroy(context);
    no_problems();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),
    };
    return cmocka_run_group_tests_name("grpo", tests, NULL, NULL);
}
