/* rl/kl.inc.h - differences of log-probabilities, the estimators of KL, and KL over a vocabulary. Included once per
 * instruction set, after responses.inc.h.
 *
 * A difference d of two floats is kept with what its rounding left out: exp(d) is wrong by the absolute error of d, which
 * for |d| of 10 would be eight roundings' worth.
 *
 * k3 = exp(d) - d - 1 cancels near 0. For |d| <= 1 it is d^2 (1/2! + d/3! + ... + d^9/11!); what is left out of the series
 * is below 2^-27 of it. */
#include "rl/kl_kernels.h"

/* ---- Differences --------------------------------------------------------------------------------------------------- */

typedef struct napier_difference {
    vf d, low; /* d + low is the difference; low is 0 where d is no ordinary number */
} napier_difference;

/* Equal infinities differ by 0. */
NAPIER_KERNEL napier_difference napier_difference_of(vf a, vf b) {
    const vf d = vf_sub(a, b), back = vf_sub(d, a);
    const vf low = vf_sub(vf_sub(a, vf_sub(d, back)), vf_add(b, back));
    return (napier_difference){vf_select(vf_eq(a, b), vf_zero(), d), vf_keep(vf_eq(low, low), low)};
}

NAPIER_KERNEL vf napier_kl_size(vf x) { return vf_from_bits(vi_and(vf_bits(x), vi_set(0x7fffffff))); }

NAPIER_KERNEL vf napier_exp_difference(napier_difference g) {
    const vf e = vf_exp(g.d);
    return vf_select(vf_lt(e, napier_infinity()), vf_fma(e, g.low, e), e);
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

/* exp(d), exp(d) - 1 and exp(d) - d - 1 of a difference, each good to a few ulp. */
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
    r.e2 = vf_select(near, vf_fma(g.low, k1, k), vf_select(vf_eq(r.e, napier_infinity()), r.e, far2));
    return r;
}

/* ---- Estimates ----------------------------------------------------------------------------------------------------- */

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

/* x in [-limit, limit]; *inside: it was. NaN stays. */
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

/* ---- Per response -------------------------------------------------------------------------------------------------- */

NAPIER_KERNEL float napier_kl_tile_as(napier_kl_estimator estimator, const napier_kl_job *job, int64_t first, int n,
                                      int32_t *counted) {
    float rooms[2][NAPIER_TILE];
    const float *policy = napier_tokens(job->policy, first, n, rooms[0]);
    const float *ref = napier_tokens(job->ref, first, n, rooms[1]);
    const uint8_t *mask = job->mask ? job->mask + first : NULL;
    napier_lane_sum sum;
    napier_lane_start(&sum, n);
    *counted = mask ? 0 : n;
    for (int i = 0; i < n; i += 16) {
        const vf a = napier_sixteen_tokens(policy, i, n, 0.0f), b = napier_sixteen_tokens(ref, i, n, 0.0f);
        vf value = napier_clamped_estimate(job, estimator, a, b).value;
        if (mask) {
            const vm on = napier_counted(mask, i, n);
            *counted += vm_count(on);
            value = vf_keep(on, value);
        }
        napier_lane_add(&sum, i, value); /* past the end policy and ref are equal: 0 */
    }
    return napier_lane_fold(&sum, n);
}

static float napier_kl_tile(const napier_kl_job *job, int64_t first, int n, int32_t *counted) {
    switch (job->estimator) {
    case NAPIER_KL_K1: return napier_kl_tile_as(NAPIER_KL_K1, job, first, n, counted);
    case NAPIER_KL_K2: return napier_kl_tile_as(NAPIER_KL_K2, job, first, n, counted);
    default: return napier_kl_tile_as(NAPIER_KL_K3, job, first, n, counted);
    }
}

static void napier_kl_tile_gradient(const napier_kl_job *job, int64_t first, int n, float gradient) {
    float rooms[4][NAPIER_TILE];
    const float *policy = napier_tokens(job->policy, first, n, rooms[0]);
    const float *ref = napier_tokens(job->ref, first, n, rooms[1]);
    const uint8_t *mask = job->mask ? job->mask + first : NULL;
    float *grad_policy = napier_tokens_out(job->grad_policy, first, rooms[2]);
    float *grad_ref = napier_tokens_out(job->grad_ref, first, rooms[3]);
    for (int i = 0; i < n; i += 16) {
        const vf a = napier_sixteen_tokens(policy, i, n, 0.0f), b = napier_sixteen_tokens(ref, i, n, 0.0f);
        const vf slope = napier_clamped_estimate(job, job->estimator, a, b).slope;
        const vf g = vf_keep(napier_counted(mask, i, n), vf_mul(slope, vf_set(gradient)));
        if (grad_policy) {
            napier_sixteen_results(grad_policy, i, n, vf_sub(vf_zero(), g));
        }
        if (grad_ref) {
            napier_sixteen_results(grad_ref, i, n, g);
        }
    }
    napier_tokens_put(job->grad_policy, first, n, grad_policy);
    napier_tokens_put(job->grad_ref, first, n, grad_ref);
}

/* ---- Over the vocabulary -------------------------------------------------------------------------------------------
 * With d_j = log q_j - log p_j, and because both sum to 1,
 *     sum_j p_j (log p_j - log q_j) = sum_j (q_j - p_j - p_j d_j) = sum_j p_j (exp(d_j) - d_j - 1):
 * no term is negative, and none but 0 where p_j = q_j. The logs of both sums of exponentials are off by some 2^-22, which
 * for neighbouring p and q is more than d: what the sum of q_j - p_j leaves says by how much. */

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
    vf k3;               /* of d, where it is near */
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

/* A tile of both rows at the temperature, as floats. */
typedef struct napier_kl_tiles {
    const float *x, *y;
    float rooms[2][NAPIER_TILE + 16];
} napier_kl_tiles;

NAPIER_KERNEL void napier_kl_look(const napier_kl_full_job *job, int64_t row, int64_t i, int n, napier_kl_tiles *t) {
    const napier_const_matrix *a = &job->policy, *b = &job->ref;
    const void *x = napier_at(a->data, a->dtype, row * a->row_stride + i * a->col_stride);
    const void *y = napier_at(b->data, b->dtype, row * b->row_stride + i * b->col_stride);
    t->x = napier_look(x, a->dtype, a->col_stride, job->temperature, n, t->rooms[0]).z;
    t->y = napier_look(y, b->dtype, b->col_stride, job->temperature, n, t->rooms[1]).z;
}

static double napier_kl_full_row(const napier_kl_full_job *job, int64_t row, const napier_kl_row *p,
                                 const napier_kl_row *q, double *excess) {
    double total = 0;
    *excess = 0;
    for (int64_t begin = 0; begin < job->policy.cols; begin += NAPIER_TILE) {
        const int n = napier_tile_at(begin, job->policy.cols);
        napier_kl_tiles t;
        napier_kl_look(job, row, begin, n, &t);
        napier_lane_sum sum, over;
        napier_lane_start(&sum, n);
        napier_lane_start(&over, n);
        for (int i = 0; i < n; i += 16) {
            const vf x = napier_sixteen_tokens(t.x, i, n, -INFINITY), y = napier_sixteen_tokens(t.y, i, n, -INFINITY);
            const napier_kl_pair r = napier_kl_pair_of(p, q, x, y);
            napier_lane_add(&sum, i, napier_kl_term(&r));
            napier_lane_add(&over, i, napier_kl_excess(&r));
        }
        total += (double)napier_lane_fold(&sum, n);
        *excess += (double)napier_lane_fold(&over, n);
    }
    return total;
}

/* Where a gradient's n elements from column i go, as napier_tokens_out. */
NAPIER_KERNEL napier_vector napier_kl_row_out(napier_matrix m, int64_t row) {
    napier_vector v = {m.data, m.cols, m.col_stride, m.dtype};
    if (m.data) {
        v.data = napier_at_out(m.data, m.dtype, row * m.row_stride);
    }
    return v;
}

static void napier_kl_full_row_gradient(const napier_kl_full_job *job, int64_t row, const napier_kl_row *p,
                                        const napier_kl_row *q, float kl, float gradient) {
    const napier_vector out_p = napier_kl_row_out(job->grad_policy, row), out_q = napier_kl_row_out(job->grad_ref, row);
    const vf divergence = vf_set(kl), g = vf_set(gradient), temperature = vf_set(job->temperature);
    for (int64_t begin = 0; begin < job->policy.cols; begin += NAPIER_TILE) {
        const int n = napier_tile_at(begin, job->policy.cols);
        float rooms[2][NAPIER_TILE];
        float *grad_p = napier_tokens_out(out_p, begin, rooms[0]), *grad_q = napier_tokens_out(out_q, begin, rooms[1]);
        napier_kl_tiles t;
        napier_kl_look(job, row, begin, n, &t);
        for (int i = 0; i < n; i += 16) {
            const vf x = napier_sixteen_tokens(t.x, i, n, -INFINITY), y = napier_sixteen_tokens(t.y, i, n, -INFINITY);
            const napier_kl_pair r = napier_kl_pair_of(p, q, x, y);
            if (grad_p) { /* p (log p - log q - KL) */
                const vf below = vf_sub(vf_zero(), vf_add(r.d.d, r.d.low));
                const vf slope = vf_mul(r.p, vf_sub(below, divergence));
                const vf v = vf_select(vf_eq(r.p, vf_zero()), vf_zero(), vf_mul(g, slope));
                napier_sixteen_results(grad_p, i, n, vf_div(v, temperature));
            }
            if (grad_q) {
                const vf slope = napier_kl_excess(&r);
                napier_sixteen_results(grad_q, i, n, vf_div(vf_mul(g, slope), temperature));
            }
        }
        napier_tokens_put(out_p, begin, n, grad_p);
        napier_tokens_put(out_q, begin, n, grad_q);
    }
}

#define NAPIER_KL_KERNELS \
    { napier_kl_tile, napier_kl_tile_gradient, napier_kl_full_row, napier_kl_full_row_gradient }
