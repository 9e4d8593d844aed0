/* core/math/math.inc.h - elementary functions over arrays; compiled once per instruction set. See
 * core/math/math_kernels.h. */
#ifndef NAPIER_CORE_MATH_MATH_INC_H
#define NAPIER_CORE_MATH_MATH_INC_H

#include "core/math/lanes_math.h"
#include "core/math/math_kernels.h"

#define NAPIER_MAP_F32(name, function)                                                     \
    static void name(const float *x, float *y, int64_t n) {                                \
        int64_t i = 0;                                                                     \
        for (; i + 16 <= n; i += 16) {                                                     \
            vf_store(y + i, function(vf_load(x + i)));                                     \
        }                                                                                  \
        if (i < n) {                                                                       \
            const int rest = (int)(n - i);                                                 \
            vf_store_part(y + i, rest, function(vf_load_part(x + i, rest, vf_set(1.0f)))); \
        }                                                                                  \
    }

#define NAPIER_MAP_WIDEN(name, function)                                         \
    static void name(const uint16_t *x, float *y, int64_t n) {                   \
        int64_t i = 0;                                                           \
        for (; i + 16 <= n; i += 16) {                                           \
            vf_store(y + i, function(vi_load_u16(x + i)));                       \
        }                                                                        \
        if (i < n) {                                                             \
            const int rest = (int)(n - i);                                       \
            vf_store_part(y + i, rest, function(vi_load_u16_part(x + i, rest))); \
        }                                                                        \
    }

#define NAPIER_MAP_NARROW(name, function)                                                   \
    static void name(const float *x, uint16_t *y, int64_t n) {                              \
        int64_t i = 0;                                                                      \
        for (; i + 16 <= n; i += 16) {                                                      \
            vi_store_u16(y + i, function(vf_load(x + i)));                                  \
        }                                                                                   \
        if (i < n) {                                                                        \
            const int rest = (int)(n - i);                                                  \
            vi_store_u16_part(y + i, rest, function(vf_load_part(x + i, rest, vf_zero()))); \
        }                                                                                   \
    }

NAPIER_INLINE vf napier_widen_bf16(vi u) {
    const vf x = vf_from_bf16(u);
    return vf_select(vf_unordered(x, x), vf_canonical_nan(), x);
}

NAPIER_MAP_F32(napier_map_exp, vf_exp)
NAPIER_MAP_F32(napier_map_log, vf_log)
NAPIER_MAP_F32(napier_map_log1p, vf_log1p)
NAPIER_MAP_WIDEN(napier_map_f16_to_f32, vf_from_f16_canonical)
NAPIER_MAP_WIDEN(napier_map_bf16_to_f32, napier_widen_bf16)
NAPIER_MAP_NARROW(napier_map_f32_to_f16, vf_to_f16_canonical)
NAPIER_MAP_NARROW(napier_map_f32_to_bf16, vf_to_bf16)

#define NAPIER_MATH_KERNELS                                                                  \
    {                                                                                        \
        .exp_f32 = napier_map_exp, .log_f32 = napier_map_log, .log1p_f32 = napier_map_log1p, \
        .f16_to_f32 = napier_map_f16_to_f32, .bf16_to_f32 = napier_map_bf16_to_f32,          \
        .f32_to_f16 = napier_map_f32_to_f16, .f32_to_bf16 = napier_map_f32_to_bf16           \
    }

#endif
