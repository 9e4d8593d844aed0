/* lm/decoder/model.inc.h - the steps of a transformer between its products, compiled once per instruction set. */
#include <math.h>
#include <stdbool.h>

#include "core/math/elements.h"
#include "core/math/lanes_math.h"
#include "lm/decoder/model_kernels.h"
#include "ops/linear/dot.inc.h"

NAPIER_KERNEL vf napier_model_load(const float *x, int n) {
    return n >= 16 ? vf_load(x) : vf_load_part(x, n, vf_zero());
}

NAPIER_KERNEL void napier_model_store(void *y, napier_dtype dtype, int64_t at, int n, vf v) {
    void *out = napier_at_out(y, dtype, at);
    const vf x = vf_select(vf_unordered(v, v), vf_canonical_nan(), v);
    if (n >= 16) {
        napier_store16(out, dtype, x);
    } else {
        napier_store_part(out, dtype, n, x);
    }
}

/* ---- Normalisation ----------------------------------------------------------------------------------------------- */

static float napier_rms_factor(const napier_rms_norm *norm, const float *x) {
    return 1.0f / sqrtf(napier_dot_of(x, x, norm->n) / (float)norm->n + norm->epsilon);
}

NAPIER_KERNEL void napier_add_as(const napier_dtype dtype, const float *x, const float *delta, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i += 16) {
        const int left = n - i < 16 ? (int)(n - i) : 16;
        const vf sum = vf_add(napier_model_load(x + i, left), napier_model_load(delta + i, left));
        napier_model_store(out, dtype, i, left, sum);
    }
}

static void napier_add_row(const float *x, const float *delta, int64_t n, void *out, napier_dtype dtype) {
    if (dtype == NAPIER_F32) {
        napier_add_as(NAPIER_F32, x, delta, n, out);
    } else {
        napier_add_as(NAPIER_BF16, x, delta, n, out);
    }
}

NAPIER_KERNEL void napier_norm_as(const napier_dtype dtype, const napier_rms_norm *norm, const float *x, void *out) {
    const vf r = vf_set(napier_rms_factor(norm, x));
    for (int64_t i = 0; i < norm->n; i += 16) {
        const int left = norm->n - i < 16 ? (int)(norm->n - i) : 16;
        const vf y = vf_mul(vf_mul(napier_model_load(x + i, left), r), napier_model_load(norm->weight + i, left));
        napier_model_store(out, dtype, i, left, y);
    }
}

static void napier_norm_row(const napier_rms_norm *norm, float *x, const float *delta, void *out, napier_dtype dtype) {
    if (delta) {
        napier_add_row(x, delta, norm->n, x, NAPIER_F32);
    }
    if (dtype == NAPIER_F32) {
        napier_norm_as(NAPIER_F32, norm, x, out);
    } else {
        napier_norm_as(NAPIER_BF16, norm, x, out);
    }
}

/* ---- Rotation ---------------------------------------------------------------------------------------------------- */

NAPIER_KERNEL vf napier_head_part(const bool normed, const napier_rms_norm *norm, const float *x, vf r, int64_t i,
                                  int left) {
    const vf part = napier_model_load(x + i, left);
    return normed ? vf_mul(vf_mul(part, r), napier_model_load(norm->weight + i, left)) : part;
}

NAPIER_KERNEL void napier_rotate_head(const bool normed, const napier_dtype dtype, const napier_rms_norm *norm,
                                      const float *x, const float *cosines, const float *sines, void *out) {
    const vf r = normed ? vf_set(napier_rms_factor(norm, x)) : vf_zero();
    const int64_t m = norm->n / 2;
    for (int64_t i = 0; i < m; i += 16) {
        const int left = m - i < 16 ? (int)(m - i) : 16;
        const vf a = napier_head_part(normed, norm, x, r, i, left),
                 b = napier_head_part(normed, norm, x, r, m + i, left);
        const vf c = napier_model_load(cosines + i, left), s = napier_model_load(sines + i, left);
        napier_model_store(out, dtype, i, left, vf_fnma(b, s, vf_mul(a, c)));
        napier_model_store(out, dtype, m + i, left, vf_fma(a, s, vf_mul(b, c)));
    }
}

NAPIER_KERNEL void napier_rotate_as(const bool normed, const napier_dtype dtype, const napier_rms_norm *norm,
                                    const float *x, int64_t heads, const float *cosines, const float *sines,
                                    void *out) {
    for (int64_t h = 0; h < heads; h++) {
        napier_rotate_head(normed, dtype, norm, x + h * norm->n, cosines, sines,
                           napier_at_out(out, dtype, h * norm->n));
    }
}

static void napier_rotate_row(const napier_rms_norm *norm, const float *x, int64_t heads, const float *cosines,
                              const float *sines, void *out, napier_dtype dtype) {
    if (dtype == NAPIER_F32 && norm->weight) {
        napier_rotate_as(true, NAPIER_F32, norm, x, heads, cosines, sines, out);
    } else if (dtype == NAPIER_F32) {
        napier_rotate_as(false, NAPIER_F32, norm, x, heads, cosines, sines, out);
    } else if (norm->weight) {
        napier_rotate_as(true, NAPIER_BF16, norm, x, heads, cosines, sines, out);
    } else {
        napier_rotate_as(false, NAPIER_BF16, norm, x, heads, cosines, sines, out);
    }
}

/* ---- The gate ---------------------------------------------------------------------------------------------------- */

NAPIER_KERNEL void napier_gate_as(const napier_dtype dtype, const float *gate, const float *up, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i += 16) {
        const int left = n - i < 16 ? (int)(n - i) : 16;
        const vf g = napier_model_load(gate + i, left);
        const vf silu = vf_div(g, vf_add(vf_set(1.0f), vf_exp(vf_sub(vf_zero(), g))));
        napier_model_store(out, dtype, i, left, vf_mul(silu, napier_model_load(up + i, left)));
    }
}

static void napier_gate_row(const float *gate, const float *up, int64_t n, void *out, napier_dtype dtype) {
    if (dtype == NAPIER_F32) {
        napier_gate_as(NAPIER_F32, gate, up, n, out);
    } else {
        napier_gate_as(NAPIER_BF16, gate, up, n, out);
    }
}

#define NAPIER_MODEL_KERNELS \
    { .norm = napier_norm_row, .rotate = napier_rotate_row, .gate = napier_gate_row, .add = napier_add_row }
