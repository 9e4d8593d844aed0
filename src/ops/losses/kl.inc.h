/* ops/losses/kl.inc.h - the kernels of KL per response and over a vocabulary. Compiled once per
 * instruction set. */
#ifndef NAPIER_OPS_LOSSES_KL_INC_H
#define NAPIER_OPS_LOSSES_KL_INC_H

#include "ops/losses/kl_lanes.h"
#include "ops/tokens/responses.inc.h"

/* ---- Per response ------------------------------------------------------------------------------------------------ */

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
        napier_lane_add(&sum, i, value); /* past the end policy and ref are equal: the value is 0 */
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

/* ---- Over the vocabulary ----------------------------------------------------------------------------------------- */

/* A tile of both rows after the temperature, as floats. */
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

/* all: also `rest` and `prob`. */
NAPIER_KERNEL napier_kl_sums napier_kl_full_row_as(const bool all, const napier_kl_full_job *job, int64_t row,
                                                   const napier_kl_row *p, const napier_kl_row *q) {
    napier_kl_sums sums = {0};
    for (int64_t begin = 0; begin < job->policy.cols; begin += NAPIER_TILE) {
        const int n = napier_tile_at(begin, job->policy.cols);
        napier_kl_tiles t;
        napier_kl_look(job, row, begin, n, &t);
        napier_lane_sum sum, over, rest, prob;
        napier_lane_start(&sum, n);
        napier_lane_start(&over, n);
        napier_lane_start(&rest, n);
        napier_lane_start(&prob, n);
        for (int i = 0; i < n; i += 16) {
            const vf x = napier_sixteen_tokens(t.x, i, n, -INFINITY), y = napier_sixteen_tokens(t.y, i, n, -INFINITY);
            const napier_kl_pair r = napier_kl_pair_of(p, q, x, y);
            napier_lane_add(&sum, i, napier_kl_term(&r));
            napier_lane_add(&over, i, napier_kl_excess(&r));
            if (all) {
                napier_lane_add(&rest, i, napier_kl_rest(&r));
                napier_lane_add(&prob, i, napier_kl_prob(&r));
            }
        }
        sums.kl += (double)napier_lane_fold(&sum, n);
        sums.excess += (double)napier_lane_fold(&over, n);
        if (all) {
            sums.rest += (double)napier_lane_fold(&rest, n);
            sums.prob += (double)napier_lane_fold(&prob, n);
        }
    }
    return sums;
}

static napier_kl_sums napier_kl_full_row(const napier_kl_full_job *job, int64_t row, const napier_kl_row *p,
                                         const napier_kl_row *q) {
    const bool certain = job->grad_policy.data && p->log_sum < 0.7f; /* some p_j may be above 1/2 */
    return certain ? napier_kl_full_row_as(true, job, row, p, q) : napier_kl_full_row_as(false, job, row, p, q);
}

/* Where a kernel writes n elements of a gradient from column i on, as napier_tokens_out. */
NAPIER_KERNEL napier_vector napier_kl_row_out(napier_matrix m, int64_t row) {
    napier_vector v = {m.data, m.cols, m.col_stride, m.dtype};
    if (m.data) {
        v.data = napier_at_out(m.data, m.dtype, row * m.row_stride);
    }
    return v;
}

static void napier_kl_full_row_gradient(const napier_kl_full_job *job, int64_t row, const napier_kl_row *p,
                                        const napier_kl_row *q, float kl, float certain, float gradient) {
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
            if (grad_p) {
                napier_sixteen_results(grad_p, i, n,
                                       vf_div(napier_kl_policy_slope(&r, divergence, vf_set(certain), g), temperature));
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

#endif
