/* ops/layers/layers.inc.h - the steps of a decoder layer between its products, and their gradients. Compiled once per
 * instruction set. */
#ifndef NAPIER_OPS_LAYERS_LAYERS_INC_H
#define NAPIER_OPS_LAYERS_LAYERS_INC_H

#include <math.h>

#include "core/math/elements.h"
#include "core/math/lanes_math.h"
#include "ops/layers/layer_kernels.h"
#include "ops/linear/dot.inc.h"

NAPIER_KERNEL int napier_layer_lanes(int64_t left) { return left < 16 ? (int)left : 16; }

NAPIER_KERNEL vf napier_layer_load(const float *x, int n) {
    return n >= 16 ? vf_load(x) : vf_load_part(x, n, vf_zero());
}

NAPIER_KERNEL void napier_layer_store(void *y, napier_dtype dtype, int64_t at, int n, vf v) {
    void *out = napier_at_out(y, dtype, at);
    const vf x = vf_select(vf_unordered(v, v), vf_canonical_nan(), v);
    if (n >= 16) {
        napier_store16(out, dtype, x);
    } else {
        napier_store_part(out, dtype, n, x);
    }
}

/* ---- Normalisation ----------------------------------------------------------------------------------------------- */

static float napier_norm_factor_wide(const napier_norm *norm, const float *x) {
    double sum = 0.0;
    for (int64_t i = 0; i < norm->n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return (float)(1.0 / sqrt(sum / (double)norm->n + (double)norm->epsilon));
}

static float napier_norm_factor(const napier_norm *norm, const float *x) {
    const float mean = napier_dot_of(x, x, norm->n) / (float)norm->n + norm->epsilon;
    return napier_norm_is_wide(mean) ? napier_norm_factor_wide(norm, x) : 1.0f / sqrtf(mean);
}

NAPIER_KERNEL void napier_add_as(const napier_dtype dtype, const float *x, const float *delta, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i += 16) {
        const int left = napier_layer_lanes(n - i);
        const vf sum = vf_add(napier_layer_load(x + i, left), napier_layer_load(delta + i, left));
        napier_layer_store(out, dtype, i, left, sum);
    }
}

static void napier_add_row(const float *x, const float *delta, int64_t n, void *out, napier_dtype dtype) {
    NAPIER_FOR_DTYPE(dtype, napier_add_as, x, delta, n, out);
}

NAPIER_KERNEL void napier_norm_as(const napier_dtype dtype, const napier_norm *norm, const float *x, void *out) {
    const vf r = vf_set(napier_norm_factor(norm, x));
    for (int64_t i = 0; i < norm->n; i += 16) {
        const int left = napier_layer_lanes(norm->n - i);
        const vf y = vf_mul(vf_mul(napier_layer_load(x + i, left), r), napier_layer_load(norm->weight + i, left));
        napier_layer_store(out, dtype, i, left, y);
    }
}

static void napier_norm_row(const napier_norm *norm, float *x, const float *delta, void *out, napier_dtype dtype) {
    if (delta) {
        napier_add_as(NAPIER_F32, x, delta, norm->n, x);
    }
    NAPIER_FOR_DTYPE(dtype, napier_norm_as, norm, x, out);
}

/* sum of (x_i r) (grad_i weight_i) */
static float napier_norm_pull(const napier_norm *norm, const float *x, const float *grad, vf r) {
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (int64_t i = 0; i < norm->n; i += 64) {
        NAPIER_UNROLL
        for (int v = 0; v < 4; v++) {
            const int64_t at = i + 16 * v;
            const int left = napier_layer_lanes(norm->n - at);
            if (left > 0) {
                const vf u = vf_mul(napier_layer_load(x + at, left), r);
                const vf h = vf_mul(napier_layer_load(grad + at, left), napier_layer_load(norm->weight + at, left));
                sum[v] = vf_fma(u, h, sum[v]);
            }
        }
    }
    return vf_hadd(vf_add(vf_add(sum[0], sum[2]), vf_add(sum[1], sum[3])));
}

static float napier_norm_gradient(const napier_norm *norm, const float *x, const float *grad, float *grad_x) {
    const float factor = napier_norm_factor(norm, x);
    const vf r = vf_set(factor), c = vf_set(napier_norm_pull(norm, x, grad, r) / (float)norm->n);
    for (int64_t i = 0; i < norm->n; i += 16) {
        const int left = napier_layer_lanes(norm->n - i);
        const vf u = vf_mul(napier_layer_load(x + i, left), r);
        const vf h = vf_mul(napier_layer_load(grad + i, left), napier_layer_load(norm->weight + i, left));
        napier_layer_store(grad_x, NAPIER_F32, i, left, vf_mul(r, vf_fnma(u, c, h)));
    }
    return factor;
}

static void napier_add_weight_gradient(const float *x, const float *grad, float r, int64_t n, double *sums) {
    for (int64_t i = 0; i < n; i += 16) {
        const int left = napier_layer_lanes(n - i);
        const vd u = vd_from_vf(vf_mul(napier_layer_load(x + i, left), vf_set(r)));
        const vd g = vd_from_vf(napier_layer_load(grad + i, left));
        vd_store(sums + i, vd_fma(g, u, vd_load(sums + i)));
    }
}

/* ---- Rotation ---------------------------------------------------------------------------------------------------- */

NAPIER_KERNEL void napier_rotate_lanes(const napier_dtype dtype, vf a, vf b, vf c, vf s, int n, void *out_a,
                                       void *out_b, int64_t at) {
    napier_layer_store(out_a, dtype, at, n, vf_fnma(b, s, vf_mul(a, c)));
    napier_layer_store(out_b, dtype, at, n, vf_fma(a, s, vf_mul(b, c)));
}

/* r: of the norm, if there is one. */
NAPIER_KERNEL vf napier_head_load(const napier_norm *norm, const float *x, int64_t i, int n, vf r) {
    const vf v = napier_layer_load(x + i, n);
    return norm->weight ? vf_mul(vf_mul(v, r), napier_layer_load(norm->weight + i, n)) : v;
}

NAPIER_KERNEL void napier_rotate_head(const napier_dtype dtype, const napier_norm *norm, const float *x,
                                      const float *cosines, const float *sines, void *out) {
    const vf r = norm->weight ? vf_set(napier_norm_factor(norm, x)) : vf_set(1.0f);
    const int64_t m = norm->n / 2;
    for (int64_t i = 0; i < m; i += 16) {
        const int left = napier_layer_lanes(m - i);
        const vf a = napier_head_load(norm, x, i, left, r), b = napier_head_load(norm, x, m + i, left, r);
        const vf c = napier_layer_load(cosines + i, left), s = napier_layer_load(sines + i, left);
        napier_rotate_lanes(dtype, a, b, c, s, left, out, napier_at_out(out, dtype, m), i);
    }
}

static void napier_rotate_row(const napier_norm *norm, const float *x, int64_t heads, const float *cosines,
                              const float *sines, void *out, napier_dtype dtype) {
    for (int64_t h = 0; h < heads; h++) {
        const float *head = x + h * norm->n;
        void *to = napier_at_out(out, dtype, h * norm->n);
        NAPIER_FOR_DTYPE(dtype, napier_rotate_head, norm, head, cosines, sines, to);
    }
}

NAPIER_KERNEL void napier_rotate_pairs_as(const napier_dtype dtype, const napier_rotary_pairs *p, int64_t n) {
    const vf sign = vf_set(p->sign);
    for (int64_t i = 0; i < n; i += 16) {
        const int left = napier_layer_lanes(n - i);
        const vf a = napier_layer_load(p->a + i, left), b = napier_layer_load(p->b + i, left);
        const vf c = napier_layer_load(p->cosines + i, left), s = vf_mul(sign, napier_layer_load(p->sines + i, left));
        napier_rotate_lanes(dtype, a, b, c, s, left, p->out_a, p->out_b, i);
    }
}

static void napier_rotate_pairs(const napier_rotary_pairs *pairs, int64_t n, napier_dtype dtype) {
    NAPIER_FOR_DTYPE(dtype, napier_rotate_pairs_as, pairs, n);
}

/* ---- The gate ---------------------------------------------------------------------------------------------------- */

/* 1 + exp(-gate) */
NAPIER_KERNEL vf napier_gate_divisor(vf e) { return vf_add(vf_set(1.0f), e); }

NAPIER_KERNEL void napier_gate_as(const napier_dtype dtype, const float *gate, const float *up, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i += 16) {
        const int left = napier_layer_lanes(n - i);
        const vf g = napier_layer_load(gate + i, left);
        const vf silu = vf_div(g, napier_gate_divisor(vf_exp(vf_sub(vf_zero(), g))));
        napier_layer_store(out, dtype, i, left, vf_mul(silu, napier_layer_load(up + i, left)));
    }
}

static void napier_gate_row(const float *gate, const float *up, int64_t n, void *out, napier_dtype dtype) {
    NAPIER_FOR_DTYPE(dtype, napier_gate_as, gate, up, n, out);
}

/* Beyond 128 the derivative of silu is 1. The limit keeps +inf from meeting a 0. */
static void napier_gate_gradient(const float *gate, const float *up, const float *grad, int64_t n, float *grad_gate,
                                 float *grad_up) {
    const vf one = vf_set(1.0f);
    for (int64_t i = 0; i < n; i += 16) {
        const int left = napier_layer_lanes(n - i);
        const vf g = napier_layer_load(gate + i, left), pull = napier_layer_load(grad + i, left);
        const vf e = vf_exp(vf_sub(vf_zero(), g)), divisor = napier_gate_divisor(e), s = vf_div(one, divisor);
        const vf rest = vf_select(vf_gt(g, vf_zero()), vf_mul(e, s), vf_sub(one, s));
        const vf slope = vf_fma(s, vf_mul(vf_min(g, vf_set(128.0f)), rest), s);
        const vf to_gate = vf_mul(vf_mul(pull, napier_layer_load(up + i, left)), slope);
        napier_layer_store(grad_gate, NAPIER_F32, i, left, to_gate);
        napier_layer_store(grad_up, NAPIER_F32, i, left, vf_mul(pull, vf_div(g, divisor)));
    }
}

#endif
