/* ops/softmax/certain.h - gradients of softmax and log_softmax at an element that is almost certain, in f32 and in double.
 * Shared with CUDA. */
#ifndef NAPIER_OPS_SOFTMAX_CERTAIN_H
#define NAPIER_OPS_SOFTMAX_CERTAIN_H

#include <stdbool.h>

#include "core/math/f64.h"

/* An element is certain if its probability p is above 1/2. What its gradient needs is 1 - p, and p in f32 does not hold it. */
#define NAPIER_CERTAIN 0.5f
#define NAPIER_CERTAIN_LOG (-0.69314718f)

NAPIER_BOTH bool napier_is_certain_log(double l) { return l > (double)NAPIER_CERTAIN_LOG && l <= 0.0; }

/* The sums of a row that gradients need. For log_softmax all are 0 but the first. */
typedef struct napier_certain_sums {
    double certain; /* sum of grad * prob over certain elements; for log_softmax of grad over all elements */
    double rest;    /* the same over the others */
    double prob;    /* sum of prob over the others: 1 - p of the certain element */
} napier_certain_sums;

/* Adds the sums of the next tile. */
NAPIER_BOTH void napier_certain_sums_add(napier_certain_sums *to, const napier_certain_sums *tile) {
    to->certain += tile->certain;
    to->rest += tile->rest;
    to->prob += tile->prob;
}

/* What elements that are not certain need. */
NAPIER_BOTH float napier_certain_sum(const napier_certain_sums *s) { return (float)(s->rest + s->certain); }

/* 1 - exp(l) for -0.7 < l <= 0, by its series, to an ulp or two. */
NAPIER_BOTH double napier_one_minus_exp(double l) {
    double sum = 1.0;
    for (int k = 20; k > 1; k--) {
        sum = fma(sum, l / k, 1.0);
    }
    return -l * sum;
}

/* The gradients of a certain element, before the division by the temperature. Of softmax: p sum_j p_j (g - g_j), over the
 * others; of log_softmax: (1 - p) g - p sum_j g_j. */
NAPIER_BOTH double napier_certain_gradient(double prob, double grad, const napier_certain_sums *s) {
    return prob * fma(s->prob, grad, -s->rest);
}
NAPIER_BOTH double napier_certain_log_gradient(double logprob, double grad, double sum) {
    return napier_one_minus_exp(logprob) * grad - napier_f64_exp(logprob) * (sum - grad);
}

#endif
