/* core/math/math.inc.h - elementary functions over arrays; compiled once per instruction set. See
 * core/math/math_kernels.h. */
#ifndef NAPIER_CORE_MATH_MATH_INC_H
#define NAPIER_CORE_MATH_MATH_INC_H

#include "core/math/lanes_math.h"
#include "core/math/math_kernels.h"

/* Defines a kernel: y = function(x), element by element. */
#define NAPIER_MAP(name_, from_, load_, function_, to_, store_)               \
    static void name_(const from_ *x, to_ *y, int64_t n) {                    \
        int64_t i = 0;                                                        \
        for (; i + 16 <= n; i += 16) {                                        \
            store_(y + i, function_(load_(x + i)));                           \
        }                                                                     \
        if (i < n) {                                                          \
            const int rest = (int)(n - i);                                    \
            store_##_part(y + i, rest, function_(load_##_some(x + i, rest))); \
        }                                                                     \
    }

NAPIER_INLINE vf vf_load_some(const float *x, int n) { return vf_load_part(x, n, vf_set(1.0f)); }
NAPIER_INLINE vi vi_load_u16_some(const uint16_t *x, int n) { return vi_load_u16_part(x, n); }

NAPIER_INLINE vf widen_bf16(vi u) {
    const vf x = vf_from_bf16(u);
    return vf_select(vf_unordered(x, x), vf_canonical_nan(), x);
}

NAPIER_MAP(napier_map_exp, float, vf_load, vf_exp, float, vf_store)
NAPIER_MAP(napier_map_log, float, vf_load, vf_log, float, vf_store)
NAPIER_MAP(napier_map_log1p, float, vf_load, vf_log1p, float, vf_store)
NAPIER_MAP(napier_map_f16_to_f32, uint16_t, vi_load_u16, vf_from_f16_canonical, float, vf_store)
NAPIER_MAP(napier_map_bf16_to_f32, uint16_t, vi_load_u16, widen_bf16, float, vf_store)
NAPIER_MAP(napier_map_f32_to_f16, float, vf_load, vf_to_f16_canonical, uint16_t, vi_store_u16)
NAPIER_MAP(napier_map_f32_to_bf16, float, vf_load, vf_to_bf16, uint16_t, vi_store_u16)

#define NAPIER_MATH_KERNELS                                                                  \
    {                                                                                        \
        .exp_f32 = napier_map_exp, .log_f32 = napier_map_log, .log1p_f32 = napier_map_log1p, \
        .f16_to_f32 = napier_map_f16_to_f32, .bf16_to_f32 = napier_map_bf16_to_f32,          \
        .f32_to_f16 = napier_map_f32_to_f16, .f32_to_bf16 = napier_map_f32_to_bf16           \
    }

#endif
