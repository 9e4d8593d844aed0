/* ops/losses/grpo_sums.h - computes the values that a response's tokens need from sums over the response, and the loss
 * and the metrics from the sums of all responses. Plain C, for the CPU (grpo_run.c) and for the kernels of a GPU
 * (grpo.cu). */
#ifndef NAPIER_OPS_LOSSES_GRPO_SUMS_H
#define NAPIER_OPS_LOSSES_GRPO_SUMS_H

#include "core/math/f64.h"
#include "ops/losses/grpo_kernels.h"
#include "ops/tokens/counts.h"

/* The beta of a token. For TOKEN_MEAN it is scaled so that the mean over tokens is beta times the mean over
 * responses. */
NAPIER_BOTH float napier_grpo_beta(const napier_grpo_options *o, const napier_response_counts *all) {
    const bool tokens = o->type == NAPIER_GRPO_TOKEN_MEAN && all->present > 0;
    return (float)(tokens ? o->beta * ((double)all->counted / (double)all->present) : o->beta);
}

/* The weight of a token's loss in the total loss; 1 if not `mean`. counted: counted tokens of its response. */
NAPIER_BOTH double napier_grpo_weight(const napier_grpo_options *o, const napier_response_counts *all, bool mean,
                                      int64_t counted) {
    const double responses = (double)all->present, tokens = all->counted > 0 ? (double)all->counted : 1.0;
    if (!mean) {
        return 1.0;
    }
    switch (o->type) {
    case NAPIER_GRPO_BNPO:
    case NAPIER_GRPO_TOKEN_MEAN: return 1.0 / tokens;
    case NAPIER_GRPO_DR_GRPO: {
        const int64_t longest = o->max_completion_length > 0 ? o->max_completion_length : all->longest;
        return 1.0 / (responses * (double)longest);
    }
    case NAPIER_GRPO_DAPO:
    case NAPIER_GRPO_CISPO:
    case NAPIER_GRPO_VESPO: {
        const double items = o->num_items > 0 ? o->num_items : tokens;
        return 1.0 / (items < 1.0 ? 1.0 : items);
    }
    case NAPIER_GRPO_LUSPO: return 1.0 / responses;
    default: return 1.0 / (responses * (counted > 0 ? (double)counted : 1.0));
    }
}

/* True if the entropy selects the tokens of the policy's loss. */
NAPIER_BOTH bool napier_grpo_entropy_mask(const napier_grpo_options *o) {
    return o->top_entropy_quantile < 1 || o->entropy_threshold > -HUGE_VAL;
}

NAPIER_BOTH double napier_clamped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

NAPIER_BOTH double napier_sequence_correction(const napier_grpo_options *o, double mismatch) {
    const double r = napier_f64_exp(mismatch);
    if (o->correction == NAPIER_GRPO_SEQUENCE_TRUNCATE) {
        return napier_clamped(r, o->correction_floor, o->correction_cap);
    }
    return r >= o->correction_floor && r <= o->correction_cap ? r : 0.0;
}

/* exp(lambda + k log w - lambda w), where w is the ratio of the whole sequence. 0 if that is not a finite number. */
NAPIER_BOTH float napier_vespo_phi(double log_w, double k, double lambda) {
    const double l = lambda < 1e-4 ? 1e-4 : lambda;
    const double phi = napier_f64_exp(l + k * log_w - l * napier_f64_exp(log_w));
    return phi <= 0x1.fffffep127 ? (float)phi : 0.0f;
}

NAPIER_BOTH void napier_vespo_prepare(const napier_grpo_options *o, const napier_grpo_scan *scan, double correction,
                                      napier_grpo_response *r) {
    const double lowest = -0x1.26bb1bbb55516p+4; /* log 1e-8 */
    double log_w = scan->sum[1] + scan->sum[3];
    if (o->correction >= NAPIER_GRPO_SEQUENCE_TRUNCATE) {
        log_w += napier_clamped(napier_f64_log(correction), lowest, 20.0);
    }
    log_w = napier_clamped(log_w, lowest, 20.0);
    r->phi[0] = napier_vespo_phi(log_w, o->vespo_k_positive, o->vespo_lambda_positive);
    r->phi[1] = napier_vespo_phi(log_w, o->vespo_k_negative, o->vespo_lambda_negative);
}

/* The values of a response with `counted` tokens from their scan, except the flow. */
NAPIER_BOTH napier_grpo_response napier_grpo_prepared(const napier_grpo_options *o, const napier_response_counts *all,
                                                      bool mean, bool sequence, const napier_grpo_scan *scan,
                                                      int64_t counted) {
    napier_grpo_response r = {.counted = counted, .ratio = 1.0f};
    const double n = counted > 0 ? (double)counted : 1.0;
    double correction = 1.0;
    if (o->correction >= NAPIER_GRPO_SEQUENCE_TRUNCATE) {
        correction = napier_sequence_correction(o, scan->sum[2]);
    }
    r.weight = (float)napier_grpo_weight(o, all, mean, counted);
    if (sequence) {
        r.ratio = (float)napier_f64_exp(scan->sum[0] / n);
    }
    r.correction = (float)correction;
    r.keep = !(o->off_policy_threshold < HUGE_VAL) || scan->sum[4] / n <= o->off_policy_threshold;
    if (o->type == NAPIER_GRPO_VESPO) {
        napier_vespo_prepare(o, scan, correction, &r);
    }
    return r;
}

/* `flow`: the sum over the response's tiles. */
NAPIER_BOTH float napier_grpo_flow_of(const napier_grpo_options *o, const napier_response_counts *all, bool mean,
                                      int64_t counted, double flow) {
    return counted > 0 ? (float)(flow * napier_grpo_weight(o, all, mean, counted) / (double)counted) : 0.0f;
}

/* ---- Over all responses ------------------------------------------------------------------------------------------ */

typedef struct napier_grpo_totals {
    double sum[NAPIER_TERMS], low, high, kept, bonus;
    int64_t some; /* responses with a counted token */
    float min_ratio, max_ratio;
} napier_grpo_totals;

/* Makes NaNs canonical, because the bits of a sum of NaNs depend on the machine. */
NAPIER_BOTH double napier_one_nan(double x) { return x == x ? x : napier_f64_nan(); }

/* The factor of each bonus token's entropy: the coefficient divided by the number of such tokens. */
NAPIER_BOTH double napier_grpo_entropy_share(const napier_grpo_options *o, double bonus) {
    return o->entropy_coefficient / (bonus > 0 ? bonus : 1.0);
}

/* counted: counted tokens. t->some must be > 0. */
NAPIER_BOTH napier_grpo_metrics napier_grpo_metrics_from(const napier_grpo_options *o, int64_t counted,
                                                         const napier_grpo_totals *t) {
    const double n = (double)counted, *sum = t->sum, coefficient = napier_grpo_entropy_share(o, t->bonus);
    const double bonus = napier_grpo_entropy_mask(o) ? sum[NAPIER_TERM_BONUS] : sum[NAPIER_TERM_ENTROPY];
    napier_grpo_metrics m = {.struct_size = sizeof m};
    m.loss = napier_one_nan(sum[NAPIER_TERM_LOSS] - (coefficient != 0 ? coefficient * bonus : 0.0));
    m.tokens = n;
    m.clip_low = t->low / n;
    m.clip_high = t->high / n;
    m.mean_ratio = napier_one_nan(sum[NAPIER_TERM_RATIO] / n);
    m.min_ratio = (double)t->min_ratio;
    m.max_ratio = (double)t->max_ratio;
    m.kl = napier_one_nan(sum[NAPIER_TERM_KL] / n);
    m.approx_kl = napier_one_nan(sum[NAPIER_TERM_APPROX_KL] / n);
    m.entropy = napier_one_nan(sum[NAPIER_TERM_ENTROPY] / n);
    m.correction = o->correction == NAPIER_GRPO_UNCORRECTED ? 1.0 : napier_one_nan(sum[NAPIER_TERM_CORRECTION] / n);
    m.kept_responses = t->kept / (double)t->some;
    return m;
}

#endif
