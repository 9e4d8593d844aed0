/* ops/tokens/token_backward.h - the gradient of logits, if a row's gradient depends only on the row: one read, a call
 * of the hook, and one write while the row is in a cache. */
#ifndef NAPIER_OPS_TOKENS_TOKEN_BACKWARD_H
#define NAPIER_OPS_TOKENS_TOKEN_BACKWARD_H

#include <napier/rl.h>

#include "ops/tokens/token_call.h"

typedef struct napier_token_hook {
    /* Computes the gradients with respect to the log-probability of the row's id and the row's entropy from their
     * values. Called once for each row, by any worker. */
    void (*row)(void *argument, int64_t row, float logprob, float entropy, double *grad_logprob, double *grad_entropy);
    void *argument;
} napier_token_hook;

/* As napier_token_logprobs_backward, with one id per row and gradients from the hook. */
napier_status napier_token_backward_hooked(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                           const napier_token_options *options, const napier_token_hook *hook,
                                           napier_matrix grad_logits);

/* ---- From gradients to the slope of a row: for logits in memory, and for those that never are -------------------- */

/* A worker's memory, besides what napier_token_desks gives it. */
typedef struct napier_token_slope_desk {
    napier_token_slope slope;
    double *doubles; /* [K] each: start, own and sum */
    int64_t *ids;    /* [K] */
} napier_token_slope_desk;

static inline napier_token_slope_desk napier_token_slope_desk_of(double *doubles, int64_t *ids, int64_t k) {
    return (napier_token_slope_desk){
        {.ids = ids, .start = doubles, .own = doubles + k, .sum = doubles + 2 * k}, doubles, ids};
}

napier_token_pull napier_token_pull_of(const napier_token_call *call, int64_t row, napier_token_slope_desk *d);

/* From the gradients and the final of a row to its slope, in double. The slope of the row is
 *     d z_j = p_j (g_lse + g_loss (1 + 2 z_loss lse) - sum_k g_k - g_entropy (log p_j + H)) - g_loss s / kept
 * and in addition at id_k g_k, or -(1 - s) g_loss. */
void napier_token_slope_of(const napier_token_call *call, int64_t row, const napier_token_pull *pull,
                           const napier_token_final *final, const napier_token_seen *seen, napier_token_slope_desk *d);

/* The same of a row whose final the gradients have: the final, and in d->slope its slope. */
void napier_token_slope_known(const napier_token_call *call, int64_t row, napier_final *final,
                              napier_token_slope_desk *d);

#endif
