/* lm/decoder/model_kernels.h - the kernels of a transformer between its products (model.inc.h). Each works on one row
 * of activations. Results are f32 or bf16; bf16 is rounded once, to nearest even. */
#ifndef NAPIER_LM_DECODER_MODEL_KERNELS_H
#define NAPIER_LM_DECODER_MODEL_KERNELS_H

#include <napier/types.h>

/* Root mean square normalisation (Zhang and Sennrich, 2019), each step rounded to f32:
 *     r = 1 / sqrt(sum_i x_i^2 / n + epsilon),  y_i = (x_i * r) * weight_i,
 * the sum in the order of `dot` in ops/linear/linear_kernels.h. */
typedef struct napier_rms_norm {
    const float *weight; /* [n] */
    int64_t n;
    float epsilon;
} napier_rms_norm;

typedef struct napier_model_kernels {
    /* x_i += delta_i (unless delta is NULL), then out = norm(x). A NaN becomes the canonical NaN. */
    void (*norm)(const napier_rms_norm *norm, float *x, const float *delta, void *out, napier_dtype dtype);
    /* For each head of n = 2 m elements: h = norm(x), or x if norm->weight is NULL, and then each pair (h_i, h_i+m), i < m, is rotated by the angle
     * of i (Su et al., "RoFormer", 2021, with the pairs of Llama):
     *     out_i = fma(-h_i+m, sin_i, h_i * cos_i),  out_i+m = fma(h_i, sin_i, h_i+m * cos_i).
     * n is even. out may be x if dtype is f32. */
    void (*rotate)(const napier_rms_norm *norm, const float *x, int64_t heads, const float *cosines, const float *sines,
                   void *out, napier_dtype dtype);
    /* out_i = gate_i / (1 + exp(-gate_i)) * up_i */
    void (*gate)(const float *gate, const float *up, int64_t n, void *out, napier_dtype dtype);
    /* out_i = x_i + delta_i. out may be x if dtype is f32. */
    void (*add)(const float *x, const float *delta, int64_t n, void *out, napier_dtype dtype);
} napier_model_kernels;

#endif
