/* ops/losses/kl_row.h - the values of a row for KL over a vocabulary, from its exact sum. Plain C, for the CPU
 * (kl_full.c) and for the kernels of a GPU (kl_full.cu). */
#ifndef NAPIER_OPS_LOSSES_KL_ROW_H
#define NAPIER_OPS_LOSSES_KL_ROW_H

#include "ops/losses/kl_kernels.h"
#include "ops/softmax/sum.h"

/* The log of the sum as two floats. Returns false if the row has no log-probabilities. */
NAPIER_BOTH bool napier_kl_row_from(const napier_sum *sum, napier_kl_row *out) {
    const napier_final final = napier_sum_finish(sum);
    if (final.kind != NAPIER_ROW_FINITE) {
        return false;
    }
    double rest = (double)sum->count - 1.0;
    if (!napier_is_huge(sum->max)) {
        const napier_exp_parts parts = napier_exp_parts_for(sum->max, sum->max);
        rest += napier_sum_rest(sum, parts.n) / (double)parts.p;
    }
    const double log_sum = napier_log1p(rest);
    out->max = sum->max;
    out->log_sum = (float)log_sum;
    out->log_sum_low = (float)(log_sum - (double)out->log_sum);
    return true;
}

/* The divergence from the sums of terms and of q - p. Afterwards the q sum to the same as the p. */
NAPIER_BOTH double napier_kl_settle(double kl, double excess, napier_kl_row *q) {
    q->log_sum_low = (float)((double)q->log_sum_low + excess);
    return kl > excess * excess / 2 ? kl - excess * excess / 2 : 0.0; /* (1 + s) exp(-s) - 1 more */
}

/* p_j (log p_j - log q_j - kl) where p_j > 1/2, whose terms nearly cancel: minus the sum of the others, because all sum to
 * 0. q has been settled. */
NAPIER_BOTH double napier_kl_certain(double kl, const napier_kl_sums *s) {
    return kl * s->prob - (s->rest + s->prob * s->excess);
}

#endif
