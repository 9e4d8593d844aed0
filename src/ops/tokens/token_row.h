/* ops/tokens/token_row.h - computes a row's results, and the slope of its gradient, from its final. Plain C, for the
 * CPU (token_call.c, token_backward.c) and for the kernels of a GPU (token_cuda.h). */
#ifndef NAPIER_OPS_TOKENS_TOKEN_ROW_H
#define NAPIER_OPS_TOKENS_TOKEN_ROW_H

#include "core/math/f64.h"
#include "ops/softmax/certain.h"
#include "ops/tokens/token_kernels.h"

typedef struct napier_token_call {
    int64_t rows, cols;
    int64_t per_row; /* K, ids per row */
    napier_indices ids;
    napier_token_options options;
    napier_token_rules rules;
    napier_token_results results;     /* all absent in a backward call */
    napier_token_gradients gradients; /* all absent in a forward call */
    napier_token_wants wants;
    bool chosen; /* the z of the chosen ids are needed */
} napier_token_call;

/* A tile whose maximum is further than this below the row's maximum adds nothing: it lies below the window of the exact
 * sum. */
#define NAPIER_TOKEN_FAR 250.0f

/* log_sum + sum of p (max - z), for a finite row. */
NAPIER_BOTH float napier_token_entropy(const napier_sum *sum, double spread) {
    if (napier_is_huge(sum->max)) {
        return (float)napier_log1p((double)sum->count - 1.0);
    }
    const napier_exp_parts parts = napier_exp_parts_for(sum->max, sum->max);
    const double p = (double)parts.p, count = (double)sum->count, rest = napier_sum_rest(sum, parts.n);
    const double log_sum = napier_log1p((count - 1.0) + rest / p);
    return (float)(log_sum + spread * (1.0 / (count * p + rest)));
}

NAPIER_BOTH bool napier_token_ignored(const napier_token_call *call, int64_t id) {
    return id == call->options.ignore_index;
}

/* (z - max) - log_sum of a chosen id. NaN if the row is not finite. */
NAPIER_BOTH float napier_token_logprob(const napier_token_final *final, float z) {
    return final->row.kind == NAPIER_ROW_FINITE ? napier_log_softmax_of(&final->row, z) : napier_nan();
}

/* (1 - s) (-logprob) + s (lse - mean z) + z_loss lse^2 in double, for a row whose id is not ignored. kept: number of
 * the row's tokens that keep selects; used only if s is not 0. */
NAPIER_BOTH double napier_token_loss(const napier_token_options *o, const napier_token_final *final, int64_t kept,
                                     float logprob) {
    const double s = o->label_smoothing, lse = (double) final->row.lse;
    double loss = (1.0 - s) * -(double)logprob;
    if (s > 0.0) {
        loss += s * (lse - final->total / (double)kept);
    }
    if (o->z_loss > 0.0) {
        loss += o->z_loss * (lse * lse);
    }
    return loss;
}

/* The gradients of a row. Ignored ids are left out, so they have no effect. */
typedef struct napier_token_pull {
    double lse, entropy, loss;
    bool zero;
} napier_token_pull;

/* Above this log-probability, 1 - p needs more digits than p in double has. */
#define NAPIER_TOKEN_CERTAIN (-0x1p-20)

/* The gradients of ids that name an almost certain token, of which a row has at most one. What such ids add to it,
 *     own + p (rest - own - entropy log p) = own (1 - p) + p (rest - entropy log p),
 * goes to each start, and their own parts become 0. Nothing here is divided by the temperature yet. */
NAPIER_BOTH void napier_token_slope_certain(double rest, double entropy, double constant,
                                            const napier_token_final *final, int64_t count, const float *chosen,
                                            double *start, double *own) {
    double sum = 0.0, log_p = 0.0;
    for (int64_t k = 0; k < count; k++) {
        const double l = (double)napier_token_logprob(final, chosen[k]);
        sum += l > NAPIER_TOKEN_CERTAIN ? own[k] : 0.0;
        rest -= l > NAPIER_TOKEN_CERTAIN ? 0.0 : own[k];
        log_p = l > NAPIER_TOKEN_CERTAIN ? l : log_p;
    }
    const double other = napier_one_minus_exp(log_p);
    for (int64_t k = 0; k < count; k++) {
        if ((double)napier_token_logprob(final, chosen[k]) > NAPIER_TOKEN_CERTAIN) {
            start[k] = sum * other + (1.0 - other) * (rest - entropy * log_p) + constant;
            own[k] = 0.0;
        }
    }
}

/* Makes the slope of a row with gradients that are not all zero. own: [count] the gradients of the ids on entry, the
 * ids' own parts on return; chosen: their z; kept: as above. */
NAPIER_BOTH void napier_token_slope_make(const napier_token_options *o, float temperature, int64_t kept,
                                         const napier_token_pull *pull, const napier_token_final *final, int64_t count,
                                         const float *chosen, double *start, double *own, napier_token_slope *slope) {
    const double s = o->label_smoothing, t = (double)temperature;
    double base = pull->lse + pull->loss * (1.0 + 2.0 * o->z_loss * (double) final->row.lse);
    for (int64_t k = 0; k < count; k++) {
        base -= own[k];
    }
    base -= pull->entropy * (double) final->entropy;
    const double constant = pull->loss != 0.0 && s > 0.0 ? -pull->loss * s / (double)kept : 0.0;
    bool certain = false;
    for (int64_t k = 0; k < count; k++) {
        const double log_p = (double)napier_token_logprob(final, chosen[k]), p = napier_f64_exp(log_p);
        start[k] = (p == 0.0 ? 0.0 : p * (base - pull->entropy * log_p)) + constant;
        own[k] = own[k] - (1.0 - s) * pull->loss;
        certain = certain || log_p > NAPIER_TOKEN_CERTAIN;
    }
    if (certain) { /* a loss has one id: with its own part, of the loss only what follows is left */
        const double loss = pull->loss * (count == 1 ? s + 2.0 * o->z_loss * (double) final->row.lse : 0.0);
        napier_token_slope_certain(pull->lse + loss - pull->entropy * (double) final->entropy, pull->entropy, constant,
                                   final, count, chosen, start, own);
    }
    for (int64_t k = 0; k < count; k++) {
        start[k] /= t;
        own[k] /= t;
    }
    slope->zero = false;
    slope->base = (float)(base / t);
    slope->entropy = (float)(pull->entropy / t);
    slope->constant = (float)(constant / t);
    slope->nan =
        !(fabsf(slope->base) < INFINITY && fabsf(slope->entropy) < INFINITY && fabsf(slope->constant) < INFINITY);
    for (int64_t k = 0; k < count; k++) {
        slope->nan = slope->nan || own[k] != own[k];
    }
    slope->count = count;
}

#endif
