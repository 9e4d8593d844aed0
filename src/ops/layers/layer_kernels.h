/* ops/layers/layer_kernels.h - the kernels of a decoder layer between its products (layers.inc.h). Each works on one
 * row. Inputs are contiguous f32. Results are contiguous f32, bf16 or f16, rounded once, to nearest even; a NaN becomes
 * the canonical NaN. */
#ifndef NAPIER_OPS_LAYERS_LAYER_KERNELS_H
#define NAPIER_OPS_LAYERS_LAYER_KERNELS_H

#include <math.h>
#include <napier/types.h>
#include <stdbool.h>

#include "core/math/both.h"

/* Root mean square normalisation (Zhang and Sennrich, 2019), each step rounded to f32:
 *     r = 1 / sqrt(sum_i x_i^2 / n + epsilon),  y_i = (x_i * r) * weight_i,
 * the sum in the order of `dot` in ops/linear/linear_kernels.h. Squares that are too large
 * or too small for f32 are added again in double, by one chain. */
typedef struct napier_norm {
    const float *weight; /* [n] */
    int64_t n;
    float epsilon;
} napier_norm;

/* Is this mean of squares, epsilon included, one that f32 may not hold? Then its sum is computed again. */
NAPIER_BOTH bool napier_norm_is_wide(float mean) { return mean == HUGE_VALF || mean < 0x1p-100f; }

/* Pairs (a_i, b_i) to rotate by angles; sign -1 rotates back. */
typedef struct napier_rotary_pairs {
    const float *a, *b, *cosines, *sines;
    float sign;
    void *out_a, *out_b;
} napier_rotary_pairs;

typedef struct napier_layer_kernels {
    /* out_i = x_i + delta_i: a bias. out may be x if dtype is f32. */
    void (*add)(const float *x, const float *delta, int64_t n, void *out, napier_dtype dtype);
    /* x_i += delta_i (unless delta is NULL), then out = norm(x). out may be x if dtype is f32. */
    void (*norm)(const napier_norm *norm, float *x, const float *delta, void *out, napier_dtype dtype);
    /* r of a row. */
    float (*norm_factor)(const napier_norm *norm, const float *x);
    /* With u_i = x_i * r and h_i = grad_i * weight_i:  grad_x_i = r * fma(-u_i, c, h_i),  c = (sum_i u_i h_i) / n, the
     * sum in the order of `dot`. Returns r. */
    float (*norm_gradient)(const napier_norm *norm, const float *x, const float *grad, float *grad_x);
    /* sums_i = fma(grad_i, x_i * r, sums_i), in double. */
    void (*add_weight_gradient)(const float *x, const float *grad, float r, int64_t n, double *sums);
    /* For each head of n = 2 m elements: h = norm(x), or x if norm->weight is NULL, and then each pair (h_i, h_i+m),
     * i < m, is rotated by the angle of i (Su et al., "RoFormer", 2021, with the pairs of Llama):
     *     out_i = fma(-h_i+m, sin_i, h_i * cos_i),  out_i+m = fma(h_i, sin_i, h_i+m * cos_i).
     * n is even. out may be x if dtype is f32. */
    void (*rotate)(const napier_norm *norm, const float *x, int64_t heads, const float *cosines, const float *sines,
                   void *out, napier_dtype dtype);
    /* The same rotation, of n pairs whose halves may lie anywhere. */
    void (*rotate_pairs)(const napier_rotary_pairs *pairs, int64_t n, napier_dtype dtype);
    /* out_i = gate_i / (1 + exp(-gate_i)) * up_i */
    void (*gate)(const float *gate, const float *up, int64_t n, void *out, napier_dtype dtype);
    /* With e = exp(-gate), s = 1 / (1 + e) and t = gate * (gate > 0 ? e * s : 1 - s), where gate counts as at most 128:
     *     grad_gate = (grad * up) * fma(s, t, s),  grad_up = grad * (gate / (1 + e)). */
    void (*gate_gradient)(const float *gate, const float *up, const float *grad, int64_t n, float *grad_gate,
                          float *grad_up);
} napier_layer_kernels;

/* Each exists only in builds for its processor. */
extern const napier_layer_kernels napier_layer_kernels_scalar, napier_layer_kernels_avx2, napier_layer_kernels_avx512,
    napier_layer_kernels_neon;

#endif
