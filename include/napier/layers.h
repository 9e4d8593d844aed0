/* napier/layers.h - the steps of a decoder layer between its products: RMS normalisation, rotary position embedding and
 * the gated unit SwiGLU, with gradients. Products are in napier/linear.h, attention in napier/attention.h; a residual sum
 * is one f32 addition, which every library rounds alike.
 *
 * Composed, they give the bits of napier_model_forward, layer for layer (docs/layers.md).
 *
 * Dtypes. Each array is f32, f16 or bf16 unless said otherwise. Inputs are widened exactly, arithmetic is f32, and a result
 * is rounded once, to nearest even. A NaN result is the canonical quiet NaN.
 *
 * Bits. A row's results depend only on that row and on what all rows share (weight, options). They do not depend on the
 * number of rows, on threads, strides, instruction set or compiler. The gradient of a weight is a sum over rows in
 * their order, in double. The bits are contractual. The caller's rounding mode and flush-to-zero flags neither change
 * results nor are changed.
 *
 * Arrays may have any strides. An output overlaps nothing else, except where "in place" is said: there it may be exactly that
 * input (data, dtype and strides). Empty arrays are allowed. A context must not be used by two threads at once.
 * Errors: INVALID_ARGUMENT, after which nothing has been written; OUT_OF_MEMORY where memory is mentioned. */
#ifndef NAPIER_LAYERS_H
#define NAPIER_LAYERS_H

#include <napier/attention.h>
#include <napier/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- RMS normalisation --------------------------------------------------------------------------------------------- */

typedef struct napier_rms_norm_options {
    size_t struct_size;
    double epsilon; /* finite, at least 0; rounded to f32. Default 1e-6 */
} napier_rms_norm_options;

#define NAPIER_RMS_NORM_OPTIONS_INIT \
    { sizeof(napier_rms_norm_options), 1e-6 }

/* out[i][j] = x[i][j] r_i weight[j],  r_i = 1 / sqrt(mean_j x[i][j]^2 + epsilon). x and out are [N, H], weight is [H].
 * In place allowed. Takes memory for a row per thread. options NULL: defaults.
 * Error bound of an f32 result: (H / 128 + 8) 2^-24 of its value. Squares that are too large or too small for f32 are added
 * in double, so that bound holds for all finite x unless r overflows: a root mean square below 2^-128 with an epsilon of 0,
 * in a row of subnormal numbers, gives infinities. A row with NaN is NaN. In a row with an infinite element that element's
 * result is NaN and the others are 0. A row of zeros is 0, or NaN if epsilon is 0.
 * Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019. */
NAPIER_API napier_status napier_rms_norm(napier_context *context, napier_const_matrix x, napier_const_vector weight,
                                         napier_matrix out, const napier_rms_norm_options *options);

/* Gradients with respect to x and weight, given the gradient with respect to out. For one that you do not want, pass a
 * view whose data is NULL. With u = x r and h = grad_out weight of a row:
 *     grad_x = r (h - u mean(u h)),   grad_weight = sum over rows of grad_out u
 * grad_weight is rounded to f32, then to its dtype. Takes memory for rows per thread and for N factors. Error bound of an
 * f32 grad_x: (H / 32 + 24) 2^-24 r (|h| + |u| mean |u h|); of grad_weight (H / 128 + 8) 2^-24 times the sum of the terms'
 * absolute values. */
NAPIER_API napier_status napier_rms_norm_backward(napier_context *context, napier_const_matrix grad_out,
                                                  napier_const_matrix x, napier_const_vector weight,
                                                  napier_matrix grad_x, napier_vector grad_weight,
                                                  const napier_rms_norm_options *options);

/* ---- The gated unit ------------------------------------------------------------------------------------------------ */

/* out = gate / (1 + exp(-gate)) * up, element by element; all [N, I]. In place in either input allowed.
 * Error bound of an f32 result: 5 2^-24 of its value, and 2^-120 |up| where gate is below -86. A gate of -inf gives NaN.
 * Source: Shazeer, "GLU Variants Improve Transformer", 2020. */
NAPIER_API napier_status napier_swiglu(napier_context *context, napier_const_matrix gate, napier_const_matrix up,
                                       napier_matrix out);

/* Gradients with respect to gate and up, given the gradient with respect to out. Pass the one that you do not want without
 * data. Error bound of an f32 grad_gate: 8 2^-24 |grad_out up|; of grad_up that of napier_swiglu. */
NAPIER_API napier_status napier_swiglu_backward(napier_context *context, napier_const_matrix grad_out,
                                                napier_const_matrix gate, napier_const_matrix up,
                                                napier_matrix grad_gate, napier_matrix grad_up);

/* ---- Rotary position embedding ------------------------------------------------------------------------------------- */

/* Rotates each pair (x[t][h][i], x[t][h][i + dim / 2]), i < dim / 2, by the angle whose cosine and sine are cosines[t][i] and
 * sines[t][i]: f32, [tokens, dim / 2]. dim is even.
 *     out[i] = x[i] cos - x[i + dim / 2] sin,   out[i + dim / 2] = x[i + dim / 2] cos + x[i] sin
 * each by one multiplication and one fma. In place allowed. Error bound of an f32 result: 2^-23 (|a cos| + |b sin|).
 * Source: Su et al., "RoFormer", 2021, with the pairs of Llama. */
NAPIER_API napier_status napier_rotary(napier_context *context, napier_const_heads x, napier_const_matrix cosines,
                                       napier_const_matrix sines, napier_heads out);

/* The gradient with respect to x: grad_out rotated back. In place allowed. The cosines and sines have none. */
NAPIER_API napier_status napier_rotary_backward(napier_context *context, napier_const_heads grad_out,
                                                napier_const_matrix cosines, napier_const_matrix sines,
                                                napier_heads grad_x);

/* How a model stretches its positions beyond those of its training; the names are rope_type's in config.json. */
typedef enum napier_rotary_scaling {
    NAPIER_ROTARY_DEFAULT = 0,
    NAPIER_ROTARY_LINEAR = 1, /* all frequencies divided by factor */
    NAPIER_ROTARY_LLAMA3 = 2, /* low frequencies divided by factor, high ones kept, those between interpolated */
    NAPIER_ROTARY_YARN = 3    /* Peng et al., "YaRN", 2023 */
} napier_rotary_scaling;

/* The fields of config.json's rope_parameters (rope_scaling), by their names. */
typedef struct napier_rotary_options {
    size_t struct_size;
    double theta;                             /* rope_theta, at least 0.25 (YaRN: above 1). Default 10000 */
    int64_t scaling;                          /* a napier_rotary_scaling. The rest is read only by those named */
    double factor;                            /* linear, llama3, YaRN: at least 1. Default 1 */
    int64_t original_max_position_embeddings; /* llama3, YaRN: above 0; no default */
    double low_freq_factor, high_freq_factor; /* llama3: 0 < low < high. Defaults 1, 4 */
    double beta_fast, beta_slow;              /* YaRN: above 0. Defaults 32, 1 */
    double mscale, mscale_all_dim;            /* YaRN: read if neither is 0. Defaults 0 */
    double attention_factor;                  /* YaRN: 0 (default) computes it from factor and the two above */
    int64_t truncate; /* YaRN: whether the range of dimensions is rounded to integers. Default 1 */
} napier_rotary_options;

#define NAPIER_ROTARY_OPTIONS_INIT \
    { sizeof(napier_rotary_options), 10000.0, NAPIER_ROTARY_DEFAULT, 1.0, 0, 1.0, 4.0, 32.0, 1.0, 0.0, 0.0, 0.0, 1 }

/* The frequencies of a head of dim = 2 inverse.size elements, f32: theta^(-2 i / dim), scaled. *scale receives the factor of
 * cosines and sines (YaRN's attention factor, else 1). Each step is rounded as in transformers' modeling_rope_utils, because
 * models are trained that way; only the powers are computed in double. inverse has at most 2^24 elements. options NULL:
 * defaults. */
NAPIER_API napier_status napier_rotary_frequencies(napier_context *context, const napier_rotary_options *options,
                                                   napier_vector inverse, double *scale);

/* cosines[t][i] and sines[t][i] of the angle positions[t] inverse[i], which is rounded to f32, times scale. Both are f32,
 * [positions.size, inverse.size]. Positions are 0 .. 2^24 - 1; the elements of inverse (f32, at most 2^24) are in
 * -4 .. 4; scale is finite in f32.
 * Without scale, an error is below 2^-24: cos and sin of the rounded angle are computed in double and rounded once. */
NAPIER_API napier_status napier_rotary_angles(napier_context *context, napier_const_vector inverse, double scale,
                                              napier_indices positions, napier_matrix cosines, napier_matrix sines);

#ifdef __cplusplus
}
#endif
#endif
