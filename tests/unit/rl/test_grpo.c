/* The GRPO losses against formulas written here in long double, their gradients against differences of those formulas
 * (what the formula holds constant is held at its first value), every type, level and option on ragged batches; the same
 * bits from any instruction set, thread count, dtype route and batch; hostile arguments. */
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
    double threshold;  /* of entropy */
    real *losses;      /* of each token; may be NULL */
    real *ratios;      /* likewise */
    const float *pull; /* the factor of each token's loss in the plain sum; NULL: 1 */
} formula;

static real clamp(real x, real low, real high) { return x < low ? low : x > high ? high : x; }

static bool counts(const formula *f, int64_t t) { return (f->without & NO_MASK) || f->b->mask[t]; }
static real old_of(const formula *f, int64_t t) { return f->without & NO_OLD ? f->held[t] : (real)f->b->old[t]; }
static real advantage(const formula *f, int64_t i, int64_t t) {
    return (real)f->b->advantages[f->without & TOKEN_ADVANTAGES ? t : i];
}

/* Computes it as torch.quantile does: linear between the two nearest. */
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
    double *const e = scratch(b->tokens, sizeof *e);
    int64_t n = 0;
    for (int64_t t = 0; t < b->tokens; t++) {
        if ((without & NO_MASK) || b->mask[t]) {
            e[n++] = (double)b->entropies[t];
        }
    }
    qsort(e, (size_t)n, sizeof *e, by_value);
    const double threshold = n > 0 && o->top_entropy_quantile < 1 ? quantile_of(e, n, 1 - o->top_entropy_quantile) : 0;
    return o->top_entropy_quantile < 1 ? (double)(float)threshold : (double)(float)o->entropy_threshold;
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
    if (f->o->level == NAPIER_GRPO_LEVEL_TOKEN && f->o->type != NAPIER_GRPO_GSPO) {
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
        present += size > 0 || o->count_empty_responses;
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
            const real factor = f->pull ? (real)f->pull[t] : 1;
            sum += factor * (own ? p : p + q);
            penalty += own ? factor * q : 0;
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

/* d function / d *x by differences of fifth order. */
typedef real of_formula(const formula *f, const void *argument);
static real slope_at(of_formula *function, const formula *f, const void *argument, real *x) {
    const real h = 1e-4L, at = *x;
    static const real step[] = {-2, -1, 1, 2}, factor[] = {1, -8, 8, -1};
    real sum = 0;
    for (int i = 0; i < 4; i++) {
        *x = at + step[i] * h;
        sum += factor[i] * function(f, argument);
    }
    *x = at;
    return sum / (12 * h);
}
static real loss_of(const formula *f, const void *weighted) { return whole_loss(f, *(const bool *)weighted); }

/* ---- Against the formulas ------------------------------------------------------------------------------------------ */

static bool near(double got, real truth, real size, double tolerance) {
    return fabsl((real)got - truth) <= (real)tolerance * size + 1e-13L; /* the noise of differences */
}

static const char *describe(const napier_grpo_options *o, int without) {
    static char text[260];
    snprintf(text, sizeof text,
             "type %d level %d delta %g beta %g estimator %d bias %d correction %d quantile %g above %g threshold %g "
             "empty %d "
             "without %d",
             (int)o->type, (int)o->level, o->delta, o->beta, (int)o->kl_estimator, o->kl_bias_correction,
             (int)o->correction, o->top_entropy_quantile, o->entropy_threshold, o->off_policy_threshold,
             o->count_empty_responses, without);
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
    return o->level == NAPIER_GRPO_LEVEL_SEQUENCE || o->type == NAPIER_GRPO_GSPO;
}

/* Within 1e-6 of the size of the two parts, the policy's and the penalty's; of the largest in the batch where it flows
 * from all tokens of a sequence. */
static void check_gradient(const float *got, formula *f, real *now, bool weighted, const char *what) {
    const int64_t n = f->b->tokens;
    napier_grpo_options plain = *f->o;
    plain.beta = 0;
    formula part = *f;
    part.o = &plain;
    real most = 0, *const slope = scratch(n, sizeof *slope), *const size = scratch(n, sizeof *size);
    for (int64_t t = 0; t < n; t++) {
        const bool looks = counts(f, t) && !at_a_corner(f->o, f->ratios[t]);
        slope[t] = looks ? slope_at(loss_of, f, &weighted, &now[t]) : counts(f, t) ? (real)got[t] : 0;
        const real policy = looks && f->o->beta != 0 ? slope_at(loss_of, &part, &weighted, &now[t]) : slope[t];
        size[t] = fabsl(policy) + fabsl(slope[t] - policy);
        most = fmaxl(most, size[t]);
    }
    for (int64_t t = 0; t < n; t++) {
        const bool signs = (f->without & TOKEN_ADVANTAGES) || f->pull; /* terms of both signs flow together */
        const bool cancels = is_sequence(f->o) && signs;
        const real scale = is_sequence(f->o) ? most * (cancels ? 4 : 1) : size[t];
        if (!expect(near((double)got[t], slope[t], scale, 1e-6), "%s: gradient %lld is %.9g, not %.9Lg", what,
                    (long long)t, (double)got[t], slope[t])) {
            break;
        }
    }
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

/* From gradients of the tokens' losses; without them the bits are those of napier_grpo_token_loss. */
static void check_backward(napier_context *context, const napier_grpo_batch *view, const float *grad, formula *f,
                           real *now, const char *what) {
    const int64_t n = f->b->tokens;
    float pull[LIMIT], got[LIMIT];
    rng r = rng_make((uint64_t)n);
    for (int64_t t = 0; t < n; t++) {
        pull[t] = (float)rng_normal(&r);
    }
    succeeded(context, napier_grpo_token_loss_backward(context, view, f->o, NO_CONST_VECTOR, napier_array_f32(got, n)),
              what);
    expect(!memcmp(got, grad, (size_t)n * sizeof *got), "%s: the backward call has other bits", what);
    succeeded(
        context,
        napier_grpo_token_loss_backward(context, view, f->o, napier_const_array_f32(pull, n), napier_array_f32(got, n)),
        what);
    f->pull = pull;
    check_gradient(got, f, now, false, what);
    f->pull = NULL;
}

static void check_options(napier_context *context, const batch *b, const napier_grpo_options *o, int without) {
    const char *what = describe(o, without);
    const napier_grpo_batch view = view_of(b, without);
    real now[LIMIT], held[LIMIT], losses[LIMIT] = {0}, ratios[LIMIT] = {0};
    float got[LIMIT], grad[LIMIT], grad_entropies[LIMIT];
    for (int64_t t = 0; t < b->tokens; t++) {
        now[t] = held[t] = (real)b->logprobs[t];
    }
    formula f = {b, o, without, now, held, threshold_of(b, o, without), losses, ratios, NULL};
    const real loss = whole_loss(&f, true);
    succeeded(
        context,
        napier_grpo_token_loss(context, &view, o, napier_array_f32(got, b->tokens), napier_array_f32(grad, b->tokens)),
        what);
    check_losses(got, &f, what);
    f.losses = NULL; /* now differences are taken */
    check_gradient(grad, &f, now, false, what);
    check_backward(context, &view, grad, &f, now, what);
    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
    succeeded(context,
              napier_grpo_loss(context, &view, o, &m, napier_array_f32(grad, b->tokens),
                               napier_array_f32(grad_entropies, b->tokens)),
              what);
    check_gradient(grad, &f, now, true, what);
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
enum { VARIANTS = 18 };
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
                   : i == 16        ? NAPIER_GRPO_TOKEN_MASK
                   : i == 17        ? NAPIER_GRPO_SEQUENCE_MASK
                                    : NAPIER_GRPO_UNCORRECTED;
    o.correction_cap = i == 14 ? 3 : i >= 16 ? HUGE_VAL : 1.1;
    o.correction_floor = i == 8 || i == 12 ? 0.9 : 0;
    o.top_entropy_quantile = i == 10 || i == 12 ? 0.35 : 1;
    o.off_policy_threshold = i == 11 || i == 12 ? 0.02 : HUGE_VAL;
    o.entropy_coefficient = i >= 10 && i < 17 ? 0.05 : 0;
    o.entropy_threshold = i >= 16 ? 1.25 : -HUGE_VAL;
    o.count_empty_responses = i == 4 || i == 6 || i == 16;
    o.max_completion_length = i % 3 ? 40 : 0;
    o.num_items = i % 4 ? 333 : 0;
    o.sapo_tau_negative = i % 2 ? 1.05 : 3;
    return o;
}

static void test_every_type(napier_context *context) {
    batch *const b = scratch(1, sizeof *b);
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
}

/* ---- Metrics, quantiles, corners ----------------------------------------------------------------------------------- */

static void test_metrics(napier_context *context) {
    batch *const b = scratch(1, sizeof *b);
    make_batch(b, 77, 9, 400, 0.3);
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    o.beta = 0.1;
    o.correction = NAPIER_GRPO_TOKEN_TRUNCATE;
    o.correction_cap = 1.1;
    o.off_policy_threshold = 0.01;
    const napier_grpo_batch view = view_of(b, 0);
    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
    works(napier_grpo_loss, context, &view, &o, &m, NO_VECTOR, NO_VECTOR);
    real now[LIMIT], n = 0, low = 0, high = 0, ratio = 0, kl = 0, approx = 0, entropy = 0, corrected = 0, kept = 0;
    real least = 1e9L, most = 0, some = 0;
    for (int64_t t = 0; t < b->tokens; t++) {
        now[t] = (real)b->logprobs[t];
    }
    const formula f = {b, &o, 0, now, now, -HUGE_VAL, NULL, NULL, NULL};
    for (int64_t i = 0; i < b->responses; i++) {
        bool any = false;
        for (int64_t t = b->offsets[i]; t < b->offsets[i + 1]; t++) {
            if (b->mask[t]) {
                const real rho = ratio_of(&f, i, t, now);
                n++;
                low += rho < 0.8L && b->advantages[i] < 0;
                high += rho > 1.2L && b->advantages[i] > 0;
                ratio += rho;
                least = fminl(least, rho);
                most = fmaxl(most, rho);
                kl += estimate(NAPIER_KL_K3, (real)b->ref[t] - now[t]);
                approx += (real)b->old[t] - now[t];
                entropy += (real)b->entropies[t];
                corrected += correction_of(&f, i, t);
                any = true;
            }
        }
        some += any;
        kept += any && off_policy_keeps(&f, i, b->offsets[i]);
    }
    const struct {
        const char *name;
        double got;
        real truth;
    } all[] = {{"tokens", m.tokens, n},
               {"clip_low", m.clip_low, low / n},
               {"clip_high", m.clip_high, high / n},
               {"mean_ratio", m.mean_ratio, ratio / n},
               {"min_ratio", m.min_ratio, least},
               {"max_ratio", m.max_ratio, most},
               {"kl", m.kl, kl / n},
               {"approx_kl", m.approx_kl, approx / n},
               {"entropy", m.entropy, entropy / n},
               {"correction", m.correction, corrected / n},
               {"kept_responses", m.kept_responses, kept / some}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        expect(near(all[i].got, all[i].truth, fabsl(all[i].truth) + 0.01L, 2e-6), "%s is %.9g, not %.9Lg", all[i].name,
               all[i].got, all[i].truth);
    }
    expect(m.clip_low > 0 && m.clip_high > 0 && m.kept_responses < 1 && m.kept_responses > 0, "a poor sample");
}

/* The quantile through the losses: a token is left out if its entropy is below it. */
static void test_quantiles(napier_context *context) {
    rng r = rng_make(9);
    float entropies[200], losses[200], ones[200], zeros[200] = {0};
    double sorted[200];
    for (int i = 0; i < 300; i++) {
        const int64_t n = 1 + rng_below(&r, 200), ends[] = {0, n};
        const int kind = i % 4; /* ordinary, many ties, tiny, of both signs */
        for (int64_t t = 0; t < n; t++) {
            const double u = rng_uniform(&r);
            entropies[t] = (float)(kind == 0 ? 5 * u : kind == 1 ? floor(4 * u) : kind == 2 ? 1e-42 * u : u - 0.5);
            sorted[t] = (double)entropies[t];
            ones[t] = 1;
        }
        qsort(sorted, (size_t)n, sizeof *sorted, by_value);
        napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
        o.top_entropy_quantile = i % 5 == 0 ? 0.2 : 1e-9 + 0.999 * rng_uniform(&r);
        const float threshold = (float)quantile_of(sorted, n, 1 - o.top_entropy_quantile);
        napier_grpo_batch view = NAPIER_GRPO_BATCH_INIT;
        view.logprobs = napier_const_array_f32(zeros, n);
        view.entropies = napier_const_array_f32(entropies, n);
        view.advantages = napier_const_array_f32(ones, n);
        view.offsets = napier_indices_i64(ends, 2);
        works(napier_grpo_token_loss, context, &view, &o, napier_array_f32(losses, n), NO_VECTOR);
        for (int64_t t = 0; t < n; t++) {
            expect((losses[t] == -1.0f) == (entropies[t] >= threshold),
                   "case %d: token %lld of entropy %g, quantile %g", i, (long long)t, (double)entropies[t],
                   (double)threshold);
        }
    }
}

/* One response of three tokens and an empty one, against the same two as a padded batch has them: the second masked. */
static void test_empty_and_masked(napier_context *context) {
    const float logprobs[] = {-1, -2, -0.5f, -1, -1, -1}, old[] = {-1.25f, -1.5f, -0.5f, -1, -1, -1};
    const float advantages[] = {1, 2};
    const uint8_t mask[] = {1, 1, 1, 0, 0, 0};
    const int32_t ragged[] = {0, 3, 3}, padded[] = {0, 3, 6};
    for (int i = 0; i < 2 * (NAPIER_GRPO_TOKEN_MEAN + 1); i++) {
        napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
        o.type = (napier_grpo_type)(i / 2);
        o.beta = i % 2 ? 0.5 : 0;
        double loss[3];
        float grad[3][6];
        for (int way = 0; way < 3; way++) { /* empty and left out, empty and counted, masked */
            const int64_t n = way == 2 ? 6 : 3;
            napier_grpo_batch view = NAPIER_GRPO_BATCH_INIT;
            view.logprobs = napier_const_array_f32(logprobs, n);
            view.old_logprobs = view.ref_logprobs = napier_const_array_f32(old, n);
            view.advantages = napier_const_array_f32(advantages, 2);
            view.mask = way == 2 ? mask : NULL;
            view.offsets = napier_indices_i32(way == 2 ? padded : ragged, 3);
            o.count_empty_responses = way == 1;
            napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
            works(napier_grpo_loss, context, &view, &o, &m, napier_array_f32(grad[way], n), NO_VECTOR);
            loss[way] = m.loss;
        }
        const bool same = o.type == NAPIER_GRPO_BNPO || o.type == NAPIER_GRPO_DAPO || o.type == NAPIER_GRPO_CISPO ||
                          o.type == NAPIER_GRPO_VESPO || (o.type == NAPIER_GRPO_TOKEN_MEAN && o.beta == 0);
        expect(loss[1] == loss[2] && memcmp(grad[1], grad[2], 3 * sizeof(float)) == 0,
               "type %d: %.9g where the empty response counts, %.9g where it is masked", i / 2, loss[1], loss[2]);
        expect((loss[0] == loss[2]) == same, "type %d, beta %g: %.9g without the empty response", i / 2, o.beta,
               loss[0]);
    }
}

/* Log-probabilities that overflow the ratio or are not finite, advantages of 0, a sampler that does not know. */
static void test_special_values(napier_context *context) {
    const float inf = HUGE_VALF, nan = NAN;
    /*                       ratio inf; inf, A 0; inf, A < 0; both -inf; NaN; sampler NaN; ratio 0; NaN, masked */
    const float logprobs[] = {0, 0, 0, -inf, nan, -1, -inf, nan}, old[] = {-200, -200, -200, -inf, -1, -1, -1, -1};
    const float sampler[] = {-200, -200, -200, -1, -1, nan, -1, nan}, advantages[] = {1, 0, -1, 1, 1, 1, 1, 1};
    const float losses[] = {-1.2f, 0, inf, 0, nan, -1, 0, 0}, gradients[] = {0, 0, inf, 0, nan, -1, 0, 0};
    const uint8_t mask[] = {1, 1, 1, 1, 1, 1, 1, 0};
    const int32_t ends[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    float got[8], grad[8];
    napier_grpo_batch view = NAPIER_GRPO_BATCH_INIT;
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    o.correction = NAPIER_GRPO_TOKEN_TRUNCATE;
    view.logprobs = napier_const_array_f32(logprobs, 8);
    view.old_logprobs = napier_const_array_f32(old, 8);
    view.sampler_logprobs = napier_const_array_f32(sampler, 8);
    view.advantages = napier_const_array_f32(advantages, 8);
    view.offsets = napier_indices_i32(ends, 9);
    view.mask = mask;
    works(napier_grpo_token_loss, context, &view, &o, napier_array_f32(got, 8), napier_array_f32(grad, 8));
    for (int t = 0; t < 8; t++) {
        expect(losses[t] != losses[t] ? f32_bits(got[t]) == 0x7fc00000u : got[t] == losses[t], "loss %d is %g, not %g",
               t, (double)got[t], (double)losses[t]);
        expect(gradients[t] != gradients[t] ? f32_bits(grad[t]) == 0x7fc00000u : grad[t] == gradients[t],
               "gradient %d is %g, not %g", t, (double)grad[t], (double)gradients[t]);
    }
}

static void test_nothing(napier_context *context) {
    const int64_t none[] = {0, 0, 0}, some[] = {0, 2, 3};
    const uint8_t mask[] = {0, 0, 0};
    const float x[] = {-1, -2, -3}, a[] = {1, 2};
    float grad[] = {7, 7, 7};
    napier_grpo_batch view = NAPIER_GRPO_BATCH_INIT;
    for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_TOKEN_MEAN; type++) {
        napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
        o.type = (napier_grpo_type)type;
        for (int64_t responses = 0; responses <= 2; responses++) { /* none, one empty, two masked */
            const int64_t tokens = responses == 2 ? 3 : 0;
            const napier_vector out = napier_array_f32(grad, tokens);
            napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
            m.loss = 5;
            view.logprobs = view.old_logprobs = view.entropies = napier_const_array_f32(x, tokens);
            view.advantages = napier_const_array_f32(a, responses);
            view.offsets = napier_indices_i64(responses == 2 ? some : none, responses + 1);
            view.mask = mask;
            o.entropy_coefficient = 1;
            o.top_entropy_quantile = 0.5;
            works(napier_grpo_loss, context, &view, &o, &m, out, NO_VECTOR);
            expect(m.loss == 0 && m.tokens == 0, "type %d, %lld responses: loss %g", type, (long long)responses,
                   m.loss);
            for (int64_t t = 0; t < tokens; t++) {
                expect(grad[t] == 0, "type %d: gradient %lld is %g", type, (long long)t, (double)grad[t]);
            }
        }
    }
}

/* ---- Same bits ----------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    napier_grpo_metrics metrics;
    float losses[LIMIT], token_grad[LIMIT], grad[LIMIT], grad_entropies[LIMIT];
} outcome;

static void run_all(napier_context *c, const napier_grpo_batch *view, const napier_grpo_options *o, int64_t n,
                    outcome *out) {
    memset(out, 0, sizeof *out);
    out->metrics.struct_size = sizeof out->metrics;
    works(napier_grpo_token_loss, c, view, o, napier_array_f32(out->losses, n), napier_array_f32(out->token_grad, n));
    works(napier_grpo_loss, c, view, o, &out->metrics, napier_array_f32(out->grad, n),
          napier_array_f32(out->grad_entropies, n));
}

static void test_same_bits(void) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    batch *const b = scratch(1, sizeof *b);
    outcome *const first = scratch(1, sizeof *first), *const other = scratch(1, sizeof *other);
    make_batch(b, 31, 5, 1500, 0.3);
    napier_context *const context = context_for_test(NAPIER_ISA_SCALAR, 1);
    for (int i = 0; i < 2 * VARIANTS; i++) {
        napier_grpo_options o = variant(i / 2);
        o.type = (napier_grpo_type)(i % (NAPIER_GRPO_TOKEN_MEAN + 1));
        o.level = (napier_grpo_level)(i / 2 % 2);
        const napier_grpo_batch view = view_of(b, i % 3 ? 0 : NO_MASK);
        run_all(context, &view, &o, b->tokens, first);
        for (int k = 0; k < count; k++) {
            napier_context *const c = context_for_test(isas[k], 1 + (k + i) % 3);
            run_all(c, &view, &o, b->tokens, other);
            expect(!memcmp(first, other, sizeof *first), "%s: %s gives other bits", describe(&o, 0),
                   napier_isa_name(isas[k]));
        }
    }
}

/* One giant response among small ones, split over threads. */
static void test_giant_response(void) {
    enum { TOKENS = 70000, RESPONSES = 4 };
    const int64_t ends[RESPONSES + 1] = {0, 700, 700, 66000, TOKENS};
    const float advantages[RESPONSES] = {1, 2, -0.7f, 0.3f};
    float *const x = scratch(5 * TOKENS, sizeof *x), *const grad = x + 3 * TOKENS, *const other = x + 4 * TOKENS;
    uint8_t *const mask = scratch(TOKENS, 1);
    rng r = rng_make(12);
    for (int t = 0; t < TOKENS; t++) {
        x[t] = (float)(-3 * rng_uniform(&r));
        x[TOKENS + t] = x[t] + (float)(0.01 * rng_normal(&r));
        x[2 * TOKENS + t] = x[t] + (float)(0.2 * rng_normal(&r));
        mask[t] = rng_uniform(&r) < 0.9;
    }
    napier_grpo_batch view = NAPIER_GRPO_BATCH_INIT;
    view.logprobs = napier_const_array_f32(x, TOKENS);
    view.old_logprobs = view.sampler_logprobs = napier_const_array_f32(x + TOKENS, TOKENS);
    view.ref_logprobs = napier_const_array_f32(x + 2 * TOKENS, TOKENS);
    view.advantages = napier_const_array_f32(advantages, RESPONSES);
    view.offsets = napier_indices_i64(ends, RESPONSES + 1);
    view.mask = mask;
    static const napier_grpo_type types[] = {NAPIER_GRPO, NAPIER_GRPO_GSPO, NAPIER_GRPO_VESPO};
    for (int i = 0; i < 3; i++) {
        napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
        napier_grpo_metrics first = NAPIER_GRPO_METRICS_INIT, m = NAPIER_GRPO_METRICS_INIT;
        o.type = types[i];
        o.beta = 0.1;
        o.off_policy_threshold = 0.5;
        for (int threads = 1; threads <= 3; threads++) {
            napier_context *const c = context_for_test(NAPIER_ISA_AUTO, threads);
            const bool again = threads > 1;
            works(napier_grpo_loss, c, &view, &o, again ? &m : &first, napier_array_f32(again ? other : grad, TOKENS),
                  NO_VECTOR);
            expect(!again || (!memcmp(&m, &first, sizeof m) && !memcmp(grad, other, TOKENS * sizeof *grad)),
                   "type %d: %d threads give other bits", (int)o.type, threads);
        }
    }
}

/* The token losses of a response do not depend on what else is in the batch. */
static void test_batch_invariance(napier_context *context) {
    batch *const b = scratch(1, sizeof *b);
    make_batch(b, 32, 7, 900, 0.3);
    static float whole[LIMIT], grad[LIMIT], alone[LIMIT], alone_grad[LIMIT];
    for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_LUSPO; type++) {
        napier_grpo_options o = variant(type % 10); /* not those with a quantile */
        o.type = (napier_grpo_type)type;
        napier_grpo_batch view = view_of(b, 0);
        works(napier_grpo_token_loss, context, &view, &o, napier_array_f32(whole, b->tokens),
              napier_array_f32(grad, b->tokens));
        for (int64_t i = 0; i < b->responses; i++) {
            const int64_t at = b->offsets[i], n = b->offsets[i + 1] - at, ends[] = {0, n};
            view.logprobs = napier_const_array_f32(b->logprobs + at, n);
            view.old_logprobs = napier_const_array_f32(b->old + at, n);
            view.ref_logprobs = napier_const_array_f32(b->ref + at, n);
            view.sampler_logprobs = napier_const_array_f32(b->sampler + at, n);
            view.entropies = napier_const_array_f32(b->entropies + at, n);
            view.advantages = napier_const_array_f32(b->advantages + i, 1);
            view.mask = b->mask + at;
            view.offsets = napier_indices_i64(ends, 2);
            works(napier_grpo_token_loss, context, &view, &o, napier_array_f32(alone, n),
                  napier_array_f32(alone_grad, n));
            expect(!memcmp(alone, whole + at, (size_t)n * 4) && !memcmp(alone_grad, grad + at, (size_t)n * 4),
                   "type %d: response %lld alone differs", type, (long long)i);
        }
    }
}

/* f16 and bf16 of any stride: the bits of the widened numbers, rounded. */
static void test_dtypes_and_strides(napier_context *context) {
    batch *const b = scratch(1, sizeof *b);
    outcome *const wide = scratch(1, sizeof *wide);
    static uint16_t in[5][3 * LIMIT], out[2][2 * LIMIT];
    static const napier_dtype dtypes[] = {NAPIER_F16, NAPIER_BF16};
    for (int d = 0; d < 2; d++) {
        make_batch(b, 41, 6, 500, 0.3);
        float *const x[] = {b->logprobs, b->old, b->ref, b->sampler, b->entropies};
        for (int k = 0; k < 5; k++) {
            for (int64_t t = 0; t < b->tokens; t++) {
                element_set(in[k], dtypes[d], (k % 3 + 1) * t, (double)x[k][t]);
                x[k][t] = (float)element_get(in[k], dtypes[d], (k % 3 + 1) * t);
            }
        }
        napier_grpo_options o = variant(12);
        napier_grpo_batch view = view_of(b, 0);
        run_all(context, &view, &o, b->tokens, wide);
        napier_const_vector *const v[] = {&view.logprobs, &view.old_logprobs, &view.ref_logprobs,
                                          &view.sampler_logprobs, &view.entropies};
        for (int k = 0; k < 5; k++) {
            *v[k] = (napier_const_vector){in[k], b->tokens, k % 3 + 1, dtypes[d]};
        }
        const napier_vector losses = {out[0], b->tokens, 2, dtypes[d]}, grad = {out[1], b->tokens, 1, dtypes[d]};
        works(napier_grpo_token_loss, context, &view, &o, losses, grad);
        for (int64_t t = 0; t < b->tokens; t++) {
            expect(element_bits(out[0], dtypes[d], 2 * t) == dtype_bits(dtypes[d], (double)wide->losses[t]) &&
                       element_bits(out[1], dtypes[d], t) == dtype_bits(dtypes[d], (double)wide->token_grad[t]),
                   "%s: token %lld is not the rounded one", napier_dtype_name(dtypes[d]), (long long)t);
        }
    }
}

/* ---- From logits --------------------------------------------------------------------------------------------------- */

enum { VOCABULARY = 1500, MOST_ROWS = 64, FEW = 7 };
static float logits[MOST_ROWS * VOCABULARY], grad_logits[MOST_ROWS * VOCABULARY], expected[MOST_ROWS * VOCABULARY];
static int64_t ids[MOST_ROWS];

static void make_logits(const batch *b, int64_t vocabulary, uint64_t seed) {
    rng r = rng_make(seed);
    for (int64_t i = 0; i < b->tokens * vocabulary; i++) {
        logits[i] = (float)(2 * rng_normal(&r));
    }
    for (int64_t t = 0; t < b->tokens; t++) {
        ids[t] = rng_below(&r, vocabulary);
    }
}

/* The bits of the three calls one after the other. */
static void check_composition(napier_context *c, const batch *b, const napier_grpo_options *o, int without,
                              int64_t vocabulary, const napier_token_options *to, const char *what) {
    const int64_t n = b->tokens;
    float l[MOST_ROWS], e[MOST_ROWS], gl[MOST_ROWS], ge[MOST_ROWS], l2[MOST_ROWS], e2[MOST_ROWS];
    const napier_const_matrix x = napier_const_rows_f32(logits, n, vocabulary);
    const napier_indices id = napier_indices_i64(ids, n);
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT, m2 = NAPIER_GRPO_METRICS_INIT;
    results.logprobs = napier_rows_f32(l, n, 1);
    results.entropy = napier_array_f32(e, n);
    succeeded(c, napier_token_logprobs(c, x, id, to, &results), what);
    napier_grpo_batch view = view_of(b, without);
    view.logprobs = napier_const_array_f32(l, n);
    view.entropies = napier_const_array_f32(e, n);
    succeeded(c, napier_grpo_loss(c, &view, o, &m, napier_array_f32(gl, n), napier_array_f32(ge, n)), what);
    gradients.logprobs = napier_const_rows_f32(gl, n, 1);
    if (o->entropy_coefficient != 0) {
        gradients.entropy = napier_const_array_f32(ge, n);
    }
    succeeded(c, napier_token_logprobs_backward(c, x, id, to, &gradients, napier_rows_f32(expected, n, vocabulary)),
              what);
    view.logprobs = view.entropies = NO_CONST_VECTOR;
    for (int in_place = 0; in_place < 2; in_place++) {
        memcpy(grad_logits, logits, (size_t)(n * vocabulary) * sizeof *logits);
        const napier_const_matrix from = in_place ? napier_const_rows_f32(grad_logits, n, vocabulary) : x;
        succeeded(c,
                  napier_grpo_from_logits(c, from, id, &view, o, to, &m2, napier_rows_f32(grad_logits, n, vocabulary),
                                          napier_array_f32(l2, n), napier_array_f32(e2, n)),
                  what);
        expect(!memcmp(&m, &m2, sizeof m) && !memcmp(l, l2, (size_t)n * 4) && !memcmp(e, e2, (size_t)n * 4),
               "%s: other log-probabilities, entropies or metrics", what);
        expect(!memcmp(grad_logits, expected, (size_t)(n * vocabulary) * 4), "%s: other gradients", what);
    }
}

static void test_from_logits_bits(void) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    batch *const b = scratch(1, sizeof *b);
    for (int i = 0; i < 20; i++) {
        napier_grpo_options o = variant(i % VARIANTS);
        napier_token_options to = NAPIER_TOKEN_OPTIONS_INIT;
        to.temperature = i % 3 ? 0.7 : 1;
        to.softcap = i % 4 == 3 ? 30 : 0;
        o.type = (napier_grpo_type)(i % (NAPIER_GRPO_TOKEN_MEAN + 1));
        const int64_t vocabulary = i % 2 ? 1500 : 37;
        make_batch(b, (uint64_t)i, 4, 8, 0.3);
        make_logits(b, vocabulary, (uint64_t)i);
        ids[b->tokens / 2] = i % 5 ? ids[b->tokens / 2] : to.ignore_index;
        napier_context *const c = context_for_test(isas[i % count], 1 + i % 3);
        check_composition(c, b, &o, i % 5 == 4 ? NO_OLD : 0, vocabulary, &to, describe(&o, 0));
    }
}

/* From hidden states: the bits of the three calls one after the other. */
static void check_from_hidden(napier_context *c, const batch *b, const napier_grpo_options *o, int without,
                              int64_t width, int64_t vocabulary, const napier_token_options *to, const char *what) {
    const int64_t n = b->tokens;
    float l[MOST_ROWS], e[MOST_ROWS], gl[MOST_ROWS], ge[MOST_ROWS], l2[MOST_ROWS], e2[MOST_ROWS];
    static float gh[2][MOST_ROWS * FEW], gw[2][VOCABULARY * FEW];
    const napier_const_matrix h = napier_const_rows_f32(logits, n, width);
    const napier_const_matrix w = napier_const_rows_f32(logits + n * width, vocabulary, width);
    const napier_indices id = napier_indices_i64(ids, n);
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT, m2 = NAPIER_GRPO_METRICS_INIT;
    results.logprobs = napier_rows_f32(l, n, 1);
    results.entropy = napier_array_f32(e, n);
    succeeded(c, napier_linear_token_logprobs(c, h, w, id, to, &results), what);
    napier_grpo_batch view = view_of(b, without);
    view.logprobs = napier_const_array_f32(l, n);
    view.entropies = napier_const_array_f32(e, n);
    succeeded(c, napier_grpo_loss(c, &view, o, &m, napier_array_f32(gl, n), napier_array_f32(ge, n)), what);
    gradients.logprobs = napier_const_rows_f32(gl, n, 1);
    gradients.entropy = o->entropy_coefficient != 0 ? napier_const_array_f32(ge, n) : gradients.entropy;
    succeeded(c,
              napier_linear_token_logprobs_backward(c, h, w, id, to, &gradients, napier_rows_f32(gh[0], n, width),
                                                    napier_rows_f32(gw[0], vocabulary, width)),
              what);
    view.logprobs = view.entropies = NO_CONST_VECTOR;
    succeeded(c,
              napier_grpo_from_hidden(c, h, w, id, &view, o, to, &m2, napier_rows_f32(gh[1], n, width),
                                      napier_rows_f32(gw[1], vocabulary, width), napier_array_f32(l2, n),
                                      napier_array_f32(e2, n)),
              what);
    expect(!memcmp(&m, &m2, sizeof m) && !memcmp(l, l2, (size_t)n * 4) && !memcmp(e, e2, (size_t)n * 4),
           "%s: other log-probabilities, entropies or metrics from hidden states", what);
    expect(!memcmp(gh[0], gh[1], (size_t)(n * width) * 4) && !memcmp(gw[0], gw[1], (size_t)(vocabulary * width) * 4),
           "%s: other gradients from hidden states", what);
    napier_grpo_metrics m3 = NAPIER_GRPO_METRICS_INIT;
    succeeded(c, napier_grpo_from_hidden(c, h, w, id, &view, o, to, &m3, NO_MATRIX, NO_MATRIX, NO_VECTOR, NO_VECTOR),
              what);
    expect(!memcmp(&m, &m3, sizeof m), "%s: other metrics without gradients", what);
}

static void test_from_hidden_bits(void) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    batch *const b = scratch(1, sizeof *b);
    for (int i = 0; i < 20; i++) {
        napier_grpo_options o = variant(i % VARIANTS);
        napier_token_options to = NAPIER_TOKEN_OPTIONS_INIT;
        to.temperature = i % 3 ? 0.7 : 1;
        to.softcap = i % 4 == 3 ? 30 : 0;
        o.type = (napier_grpo_type)(i % (NAPIER_GRPO_TOKEN_MEAN + 1));
        const int64_t vocabulary = i % 2 ? 1100 : 37;
        make_batch(b, (uint64_t)i, 4, 8, 0.3);
        make_logits(b, VOCABULARY, (uint64_t)i);
        for (int64_t t = 0; t < b->tokens; t++) {
            ids[t] %= vocabulary;
        }
        ids[b->tokens / 2] = i % 5 ? ids[b->tokens / 2] : to.ignore_index;
        napier_context *const c = context_for_test(isas[i % count], 1 + i % 3);
        check_from_hidden(c, b, &o, i % 5 == 4 ? NO_OLD : 0, i % 3 ? FEW : 3, vocabulary, &to, describe(&o, 0));
    }
}

/* The whole chain as one formula of the logits, differentiated by differences. */
typedef struct chain_of {
    const real *z; /* [tokens, FEW] */
    real *now;
} chain_of;

static real chain(const formula *f, const void *argument) {
    const batch *b = f->b;
    const real *const z = ((const chain_of *)argument)->z, temperature = 0.75L;
    real *const now = ((const chain_of *)argument)->now, bonus = 0, n = 0;
    for (int64_t t = 0; t < b->tokens; t++) {
        real sum = 0, entropy = 0;
        for (int64_t j = 0; j < FEW; j++) {
            sum += expl(z[t * FEW + j] / temperature);
        }
        for (int64_t j = 0; j < FEW; j++) {
            const real l = z[t * FEW + j] / temperature - logl(sum);
            entropy -= expl(l) * l;
            now[t] = j == ids[t] ? l : now[t];
        }
        bonus += counts(f, t) ? entropy : 0;
        n += counts(f, t);
    }
    return whole_loss(f, true) - (real)f->o->entropy_coefficient * bonus / n;
}

static void test_from_logits_gradient(napier_context *context) {
    batch *const b = scratch(1, sizeof *b);
    real z[MOST_ROWS * FEW], now[MOST_ROWS], held[MOST_ROWS];
    for (int i = 0; i < 10; i++) {
        napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
        napier_token_options to = NAPIER_TOKEN_OPTIONS_INIT;
        to.temperature = 0.75;
        o.type = (napier_grpo_type)i;
        o.beta = 0.2;
        o.entropy_coefficient = 0.1;
        o.epsilon = 5; /* no corners */
        make_batch(b, (uint64_t)(60 + i), 3, 6, 0.3);
        make_logits(b, FEW, (uint64_t)i);
        for (int64_t k = 0; k < b->tokens * FEW; k++) {
            z[k] = (real)logits[k];
        }
        formula f = {b, &o, 0, now, held, -HUGE_VAL, NULL, NULL, NULL};
        chain(&f, &(chain_of){z, held});
        napier_grpo_batch view = view_of(b, 0);
        view.logprobs = view.entropies = NO_CONST_VECTOR;
        napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
        works(napier_grpo_from_logits, context, napier_const_rows_f32(logits, b->tokens, FEW),
              napier_indices_i64(ids, b->tokens), &view, &o, &to, &m, napier_rows_f32(grad_logits, b->tokens, FEW),
              NO_VECTOR, NO_VECTOR);
        const chain_of moving = {z, now};
        const real loss = chain(&f, &moving);
        expect(near(m.loss, loss, fabsl(loss) + 0.1L, 2e-6), "type %d: loss %.9g, not %.9Lg", i, m.loss, loss);
        real slope[MOST_ROWS * FEW], most = 0;
        for (int64_t k = 0; k < b->tokens * FEW; k++) {
            slope[k] = slope_at(chain, &f, &moving, &z[k]);
            most = fmaxl(most, fabsl(slope[k]));
        }
        for (int64_t k = 0; k < b->tokens * FEW; k++) {
            expect(near((double)grad_logits[k], slope[k], most, 1e-6), "type %d: gradient %lld is %.9g, not %.9Lg", i,
                   (long long)k, (double)grad_logits[k], slope[k]);
        }
    }
}

/* ---- Hostile ------------------------------------------------------------------------------------------------------- */

static void refuse_option(napier_context *c, const napier_grpo_batch *view, const napier_grpo_options *o,
                          const char *word) {
    float out[LIMIT];
    invalid(c, napier_grpo_token_loss(c, view, o, napier_array_f32(out, view->logprobs.size), NO_VECTOR), word);
}

/* The token loss with one thing changed, an option or a field of the batch, must be refused with these words. */
#define REFUSE(change, word)                              \
    do {                                                  \
        napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT; \
        napier_grpo_batch v = view;                       \
        change;                                           \
        refuse_option(c, &v, &o, word);                   \
    } while (0)
#define REFUSE_OPTION(field, value) REFUSE(o.field = value, #field)

static void test_refusals(napier_context *c) {
    batch *const b = scratch(1, sizeof *b);
    make_batch(b, 3, 6, 20, 0.2);
    const napier_grpo_batch view = view_of(b, 0);
    REFUSE_OPTION(struct_size, 9);
    REFUSE_OPTION(type, (napier_grpo_type)10);
    REFUSE_OPTION(type, (napier_grpo_type)-1);
    REFUSE_OPTION(level, (napier_grpo_level)2);
    REFUSE_OPTION(epsilon, -0.1);
    REFUSE_OPTION(epsilon_high, (double)NAN);
    REFUSE_OPTION(delta, -1);
    REFUSE_OPTION(beta, HUGE_VAL);
    REFUSE_OPTION(kl_estimator, (napier_kl_estimator)0);
    REFUSE_OPTION(sapo_tau_positive, 0);
    REFUSE_OPTION(vespo_k_negative, (double)NAN);
    REFUSE_OPTION(max_completion_length, -1);
    REFUSE_OPTION(num_items, -1);
    REFUSE_OPTION(correction, (napier_grpo_correction)5);
    REFUSE_OPTION(correction_cap, 0);
    REFUSE_OPTION(correction_floor, 4);
    REFUSE_OPTION(top_entropy_quantile, 0);
    REFUSE_OPTION(top_entropy_quantile, 1.5);
    REFUSE_OPTION(entropy_coefficient, (double)NAN);
    REFUSE_OPTION(off_policy_threshold, (double)NAN);
    REFUSE_OPTION(entropy_threshold, (double)NAN);
    REFUSE((o.beta = 1, v.ref_logprobs = NO_CONST_VECTOR), "ref_logprobs");
    REFUSE((o.correction = NAPIER_GRPO_TOKEN_MASK, v.sampler_logprobs = NO_CONST_VECTOR), "sampler_logprobs");
    REFUSE((o.top_entropy_quantile = 0.5, v.entropies = NO_CONST_VECTOR), "entropies");
    REFUSE((o.top_entropy_quantile = 0.5, o.entropy_threshold = 1),
           "entropy_threshold 1 and top_entropy_quantile 0.5 exclude each other");
    REFUSE((o.entropy_threshold = 1, v.entropies = NO_CONST_VECTOR),
           "entropies: absent, but top_entropy_quantile, entropy_threshold");
    REFUSE(v.struct_size = 1, "struct_size");
    REFUSE(v.advantages.size = 3, "advantages");
    REFUSE(v.old_logprobs.size--, "old_logprobs");
    b->offsets[2] = b->offsets[1] - 1;
    REFUSE((void)0, "offsets[2]");
    b->offsets[2] = b->offsets[1];
    invalid(c, napier_grpo_token_loss(c, &view, NULL, napier_array_f32(b->old, b->tokens), NO_VECTOR), "losses");
    invalid(c, napier_grpo_loss(c, &view, NULL, NULL, NO_VECTOR, NO_VECTOR), "metrics");
    invalid(c, napier_grpo_token_loss(c, NULL, NULL, NO_VECTOR, NO_VECTOR), "batch");
}

static void test_refusals_of_logits(napier_context *c) {
    batch *const b = scratch(1, sizeof *b);
    make_batch(b, 3, 3, 9, 0.2);
    make_logits(b, 20, 1);
    napier_grpo_batch view = view_of(b, 0);
    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
    m.loss = 7;
    const napier_const_matrix x = napier_const_rows_f32(logits, b->tokens, 20);
    const napier_matrix g = napier_rows_f32(grad_logits, b->tokens, 20);
    const napier_indices id = napier_indices_i64(ids, b->tokens);
    memset(grad_logits, 0x11, sizeof grad_logits);
    invalid(c, napier_grpo_from_logits(c, x, id, &view, NULL, NULL, &m, g, NO_VECTOR, NO_VECTOR), "logprobs");
    view.logprobs = view.entropies = NO_CONST_VECTOR;
    for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_GSPO; type += NAPIER_GRPO_GSPO) { /* one read, and two */
        napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
        napier_token_options to = NAPIER_TOKEN_OPTIONS_INIT;
        o.type = (napier_grpo_type)type;
        ids[2] = 20;
        invalid(c, napier_grpo_from_logits(c, x, id, &view, &o, NULL, &m, g, NO_VECTOR, NO_VECTOR), "ids[2]", "20");
        ids[2] = 1;
        to.temperature = 0;
        invalid(c, napier_grpo_from_logits(c, x, id, &view, &o, &to, &m, g, NO_VECTOR, NO_VECTOR), "temperature");
        const napier_vector over = napier_array_f32(grad_logits, b->tokens);
        invalid(c, napier_grpo_from_logits(c, x, id, &view, &o, NULL, &m, g, over, NO_VECTOR), "grad_logits");
        const napier_indices fewer = napier_indices_i64(ids, b->tokens - 1);
        invalid(c, napier_grpo_from_logits(c, x, fewer, &view, &o, NULL, &m, g, NO_VECTOR, NO_VECTOR), "ids");
    }
    expect(m.loss == 7 && f32_bits(grad_logits[0]) == 0x11111111u, "a refused call wrote");
}

static void test_refusals_of_hidden(napier_context *c) {
    batch *const b = scratch(1, sizeof *b);
    make_batch(b, 3, 3, 9, 0.2);
    make_logits(b, 20, 1);
    const int64_t n = b->tokens;
    napier_grpo_batch view = view_of(b, 0);
    view.logprobs = view.entropies = NO_CONST_VECTOR;
    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
    m.loss = 7;
    const napier_const_matrix h = napier_const_rows_f32(logits, n, 4), w = napier_const_rows_f32(expected, 20, 4);
    const napier_const_matrix narrow = napier_const_rows_f32(expected, 20, 3),
                              none = napier_const_rows_f32(NULL, 20, 4);
    const napier_matrix gh = napier_rows_f32(grad_logits, n, 4), gw = napier_rows_f32(grad_logits + 4 * n, 20, 4);
    const napier_matrix over = napier_rows_f32(grad_logits + 4 * n - 1, 20, 4), in = napier_rows_f32(logits, n, 4);
    const napier_indices id = napier_indices_i64(ids, n);
    const napier_vector inside = napier_array_f32(grad_logits, n);
    const struct {
        napier_const_matrix hidden, weights;
        napier_indices ids;
        napier_matrix grad_hidden, grad_weights;
        napier_vector logprobs;
        const char *words;
    } all[] = {{h, narrow, id, gh, gw, NO_VECTOR, "weights"},
               {h, none, id, gh, gw, NO_VECTOR, "weights"},
               {h, w, napier_indices_i64(ids, n - 1), gh, gw, NO_VECTOR, "ids"},
               {h, w, id, gh, over, NO_VECTOR, "grad_weights"},
               {h, w, id, in, gw, NO_VECTOR, "grad_hidden"},
               {h, w, id, gh, gw, inside, "grad_hidden"}};
    memset(grad_logits, 0x11, sizeof grad_logits);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        invalid(c,
                napier_grpo_from_hidden(c, all[i].hidden, all[i].weights, all[i].ids, &view, NULL, NULL, &m,
                                        all[i].grad_hidden, all[i].grad_weights, all[i].logprobs, NO_VECTOR),
                all[i].words);
    }
    ids[2] = 20;
    invalid(c, napier_grpo_from_hidden(c, h, w, id, &view, NULL, NULL, &m, gh, gw, NO_VECTOR, NO_VECTOR), "ids[2]",
            "20");
    expect(m.loss == 7 && f32_bits(grad_logits[0]) == 0x11111111u, "a refused call wrote");
    const napier_grpo_batch whole = view_of(b, 0);
    const napier_const_vector fewer = napier_const_array_f32(b->ref, n - 1);
    invalid(c, napier_grpo_token_loss_backward(c, &whole, NULL, fewer, inside), "grad_losses");
}

int main(void) {
    return RUN_TESTS("grpo", TEST_2(test_every_type), TEST_2(test_metrics), TEST_1(test_quantiles),
                     TEST_1(test_empty_and_masked), TEST_1(test_special_values), TEST_2(test_nothing),
                     TEST(test_same_bits), TEST(test_giant_response), TEST_2(test_batch_invariance),
                     TEST_2(test_dtypes_and_strides), TEST(test_from_logits_bits), TEST_2(test_from_logits_gradient),
                     TEST(test_from_hidden_bits), TEST_1(test_refusals), TEST_1(test_refusals_of_logits),
                     TEST_1(test_refusals_of_hidden));
}
