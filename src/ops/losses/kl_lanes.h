/* ops/losses/kl_lanes.h - differences of log-probabilities, the estimators of KL, and the terms of KL over a
 * vocabulary. Everything here stays within its lane, and serves the kernels of the CPU (kl.inc.h) and of a GPU (kl.cu).
 *
 * A difference d of two floats includes its rounding error, because the relative error of exp(d) is the absolute error
 * of d. For |d| near 10 that would be eight roundings.
 *
 * k3 = exp(d) - d - 1 cancels near 0. For |d| <= 1 it is computed as d^2 (1/2! + d/3! + ... + d^9/11!). The omitted
 * terms are below 2^-27 of it. */
#ifndef NAPIER_OPS_LOSSES_KL_LANES_H
#define NAPIER_OPS_LOSSES_KL_LANES_H

#include "core/math/lanes_math.h"
#include "ops/losses/kl_kernels.h"

/* ---- Differences ------------------------------------------------------------------------------------------------- */

typedef struct napier_difference {
    vf d, low; /* d + low is the difference; low is 0 if d is infinite or NaN */
} napier_difference;

/* The difference; 0 for equal infinities. */
NAPIER_KERNEL napier_difference napier_difference_of(vf a, vf b) {
    const vf d = vf_sub(a, b), back = vf_sub(d, a);
    const vf low = vf_sub(vf_sub(a, vf_sub(d, back)), vf_add(b, back));
    return (napier_difference){vf_select(vf_eq(a, b), vf_zero(), d), vf_keep(vf_eq(low, low), low)};
}

NAPIER_KERNEL vf napier_kl_size(vf x) { return vf_from_bits(vi_and(vf_bits(x), vi_set(0x7fffffff))); }

NAPIER_KERNEL vf napier_exp_difference(napier_difference g) {
    const vf e = vf_exp(g.d);
    return vf_select(vf_lt(e, vf_set(INFINITY)), vf_fma(e, g.low, e), e);
}

/* exp(d) - d - 1 for |d| <= 1. */
NAPIER_KERNEL vf napier_k3_near(vf d) {
    static const float factor[] = {0x1.ae6456p-26f, 0x1.27e4fcp-22f, 0x1.71de3ap-19f, 0x1.a01a02p-16f, 0x1.a01a02p-13f,
                                   0x1.6c16c2p-10f, 0x1.111112p-7f,  0x1.555556p-5f,  0x1.555556p-3f,  0.5f};
    vf q = vf_set(factor[0]);
    for (int i = 1; i < 10; i++) {
        q = vf_fma(q, d, vf_set(factor[i]));
    }
    return vf_mul(vf_mul(d, d), q);
}

/* exp(d), exp(d) - 1 and exp(d) - d - 1 of a difference, each accurate to a few ulp. */
typedef struct napier_exps {
    vf e, e1, e2;
} napier_exps;

NAPIER_KERNEL napier_exps napier_exps_of(napier_difference g) {
    napier_exps r;
    r.e = napier_exp_difference(g);
    const vm near = vf_le(napier_kl_size(g.d), vf_set(1.0f));
    const vf k = napier_k3_near(g.d), k1 = vf_add(g.d, k);
    const vf far1 = vf_sub(r.e, vf_set(1.0f)), far2 = vf_sub(vf_sub(far1, g.d), g.low);
    r.e1 = vf_select(near, vf_fma(g.low, r.e, k1), far1);
    r.e2 = vf_select(near, vf_fma(g.low, k1, k), vf_select(vf_eq(r.e, vf_set(INFINITY)), r.e, far2));
    return r;
}

/* ---- Estimates --------------------------------------------------------------------------------------------------- */

/* A token's estimate, and its derivative with respect to d = ref - policy. */
typedef struct napier_estimate {
    vf value, slope;
} napier_estimate;

NAPIER_KERNEL napier_estimate napier_estimate_of(napier_kl_estimator estimator, napier_difference g) {
    if (estimator == NAPIER_KL_K1) {
        return (napier_estimate){vf_sub(vf_zero(), g.d), vf_set(-1.0f)};
    }
    if (estimator == NAPIER_KL_K2) {
        const vf square = vf_mul(vf_mul(g.d, vf_set(0.5f)), g.d);
        return (napier_estimate){vf_select(vf_eq(g.low, vf_zero()), square, vf_fma(g.d, g.low, square)), g.d};
    }
    const napier_exps e = napier_exps_of(g);
    return (napier_estimate){e.e2, e.e1};
}

/* x clamped to [-limit, limit]; *inside: x was inside. NaN stays NaN. */
NAPIER_KERNEL vf napier_clamp(vf x, vf limit, vm *inside) {
    const vf low = vf_sub(vf_zero(), limit);
    const vm above = vf_gt(x, limit), below = vf_lt(x, low);
    *inside = vm_andnot(vm_or(above, below), vm_first(16));
    return vf_select(above, limit, vf_select(below, low, x));
}

NAPIER_KERNEL napier_estimate napier_clamped_estimate(const napier_kl_job *job, napier_kl_estimator estimator,
                                                      vf policy, vf ref) {
    napier_difference g = napier_difference_of(ref, policy);
    vm free, within;
    g.d = napier_clamp(g.d, vf_set(job->clamp_ratio), &free);
    g.low = vf_keep(free, g.low);
    napier_estimate e = napier_estimate_of(estimator, g);
    e.value = napier_clamp(e.value, vf_set(job->clamp_kl), &within);
    e.slope = vf_keep(vm_and(free, within), e.slope);
    return e;
}

/* ---- Over the vocabulary -------------------------------------------------------------------------------------------
 * With d_j = log q_j - log p_j, and because p and q both sum to 1,
 *     sum_j p_j (log p_j - log q_j) = sum_j (q_j - p_j - p_j d_j) = sum_j p_j (exp(d_j) - d_j - 1).
 * No term is negative, and a term is 0 only where p_j = q_j. The logs of both sums of exponentials have errors of about
 * 2^-22, which is more than d if p and q are close. The sum of q_j - p_j measures this error. */

/* log_softmax of 16 elements. */
NAPIER_KERNEL napier_difference napier_kl_logprob(const napier_kl_row *row, vf z) {
    const napier_difference above = napier_difference_of(z, vf_set(row->max));
    napier_difference l = napier_difference_of(above.d, vf_set(row->log_sum));
    l.low = vf_add(l.low, vf_sub(above.low, vf_set(row->log_sum_low)));
    return l;
}

typedef struct napier_kl_pair {
    vf p, q;
    napier_difference d; /* log q - log p */
    vm near;             /* |d| <= 1 */
    vf k3;               /* of d, if it is near 0 */
} napier_kl_pair;

NAPIER_KERNEL napier_kl_pair napier_kl_pair_of(const napier_kl_row *p, const napier_kl_row *q, vf x, vf y) {
    const napier_difference log_p = napier_kl_logprob(p, x), log_q = napier_kl_logprob(q, y);
    napier_kl_pair r = {.p = napier_exp_difference(log_p),
                        .q = napier_exp_difference(log_q),
                        .d = napier_difference_of(log_q.d, log_p.d)};
    r.d.low = vf_add(r.d.low, vf_sub(log_q.low, log_p.low));
    r.near = vf_le(napier_kl_size(r.d.d), vf_set(1.0f));
    const vf k3 = napier_k3_near(r.d.d);
    r.k3 = vf_fma(r.d.low, vf_add(r.d.d, k3), k3);
    return r;
}

/* q - p = p (exp(d) - 1) */
NAPIER_KERNEL vf napier_kl_excess(const napier_kl_pair *r) {
    const vf near = vf_mul(r->p, vf_add(vf_add(r->d.d, r->k3), r->d.low));
    return vf_select(r->near, near, vf_sub(r->q, r->p));
}

NAPIER_KERNEL vf napier_kl_term(const napier_kl_pair *r) {
    const vf far = vf_fnma(r->p, r->d.d, vf_sub(r->q, r->p));
    const vf term = vf_select(r->near, vf_mul(r->p, r->k3), far);
    return vf_select(vf_eq(r->p, vf_zero()), r->q, vf_max(term, vf_zero()));
}

/* log p - log q */
NAPIER_KERNEL vf napier_kl_below(const napier_kl_pair *r) { return vf_sub(vf_zero(), vf_add(r->d.d, r->d.low)); }

/* p, and 0 where it is above 1/2; and this times log p - log q. */
NAPIER_KERNEL vf napier_kl_prob(const napier_kl_pair *r) { return vf_keep(vf_le(r->p, vf_set(0.5f)), r->p); }
NAPIER_KERNEL vf napier_kl_rest(const napier_kl_pair *r) {
    const vf p = napier_kl_prob(r);
    return vf_keep(vf_gt(p, vf_zero()), vf_mul(p, napier_kl_below(r)));
}

/* g p (log p - log q - KL); where p > 1/2, g * certain, unless the divergence is infinite. */
NAPIER_KERNEL vf napier_kl_policy_slope(const napier_kl_pair *r, vf divergence, vf certain, vf g) {
    const vm sure = vm_and(vf_gt(r->p, vf_set(0.5f)), vf_lt(divergence, vf_set(INFINITY)));
    const vf slope = vf_select(sure, certain, vf_mul(r->p, vf_sub(napier_kl_below(r), divergence)));
    return vf_select(vf_eq(r->p, vf_zero()), vf_zero(), vf_mul(g, slope));
}

#endif
