/* core/math/elements.h - loads elements of f32, f16 and bf16 into lanes, widened exactly, and stores lanes as elements,
 * rounded once to nearest even. */
#ifndef NAPIER_CORE_MATH_ELEMENTS_H
#define NAPIER_CORE_MATH_ELEMENTS_H

#include <napier/types.h>

#include "core/math/lanes_math.h"

NAPIER_KERNEL const void *napier_at(const void *data, napier_dtype dtype, int64_t index) {
    return (const char *)data + index * (dtype == NAPIER_F32 ? 4 : 2);
}
NAPIER_KERNEL void *napier_at_out(void *data, napier_dtype dtype, int64_t index) {
    return (char *)data + index * (dtype == NAPIER_F32 ? 4 : 2);
}

/* Calls f with the dtype as a constant first argument, so that the compiler makes a copy of f for each dtype. */
#define NAPIER_FOR_DTYPE(dtype_, f_, ...)                     \
    ((dtype_) == NAPIER_F32    ? f_(NAPIER_F32, __VA_ARGS__)  \
     : (dtype_) == NAPIER_BF16 ? f_(NAPIER_BF16, __VA_ARGS__) \
                               : f_(NAPIER_F16, __VA_ARGS__))

/* 16 contiguous elements, exactly. Where speed matters, dtype is a constant. */
NAPIER_KERNEL vf napier_load16(const void *x, napier_dtype dtype) {
    return dtype == NAPIER_F32    ? vf_load((const float *)x)
           : dtype == NAPIER_BF16 ? vf_from_bf16(vi_load_u16((const uint16_t *)x))
                                  : vf_from_f16(vi_load_u16((const uint16_t *)x));
}
NAPIER_KERNEL vf napier_load_part(const void *x, napier_dtype dtype, int n, vf fill) {
    if (dtype == NAPIER_F32) {
        return vf_load_part((const float *)x, n, fill);
    }
    const vi u = vi_load_u16_part((const uint16_t *)x, n);
    return vf_select(vm_first(n), dtype == NAPIER_BF16 ? vf_from_bf16(u) : vf_from_f16(u), fill);
}

/* Up to 16 elements, 0 beyond. n <= 0: reads nothing. */
NAPIER_KERNEL vf napier_load_some(const void *x, napier_dtype dtype, int n) {
    return n >= 16 ? napier_load16(x, dtype) : n > 0 ? napier_load_part(x, dtype, n, vf_zero()) : vf_zero();
}

/* The even and the odd elements of 32 bf16: a shift and a mask widen them in place. */
NAPIER_KERNEL vf napier_bf16_even(vi pairs) { return vf_from_bits(vi_shl(pairs, 16)); }
NAPIER_KERNEL vf napier_bf16_odd(vi pairs) { return vf_from_bits(vi_and(pairs, vi_set((int32_t)0xffff0000u))); }

/* A float rounded to bf16, in the upper half of its lane; a NaN must be the canonical one. */
NAPIER_KERNEL vi napier_bf16_upper(vf v) {
    const vi u = vf_bits(v), odd = vi_and(vi_shr(u, 16), vi_set(1));
    return vi_add(u, vi_add(odd, vi_set(0x7fff)));
}
/* The inverse of napier_bf16_even and napier_bf16_odd, with that rounding. */
NAPIER_KERNEL vi napier_bf16_pairs(vf even, vf odd) {
    const vi upper = vi_and(napier_bf16_upper(odd), vi_set((int32_t)0xffff0000u));
    return vi_or(vi_shr(napier_bf16_upper(even), 16), upper);
}

NAPIER_KERNEL vi napier_narrow(vf v, napier_dtype dtype) {
    return dtype == NAPIER_BF16 ? vf_to_bf16(v) : vf_to_f16_canonical(v);
}
NAPIER_KERNEL void napier_store16(void *y, napier_dtype dtype, vf v) {
    if (dtype == NAPIER_F32) {
        vf_store((float *)y, v);
    } else {
        vi_store_u16((uint16_t *)y, napier_narrow(v, dtype));
    }
}
NAPIER_KERNEL void napier_store_part(void *y, napier_dtype dtype, int n, vf v) {
    if (dtype == NAPIER_F32) {
        vf_store_part((float *)y, n, v);
    } else {
        vi_store_u16_part((uint16_t *)y, n, napier_narrow(v, dtype));
    }
}

/* Subnormals become 0, with their sign. */
NAPIER_KERNEL vf napier_flush_subnormal(vf x) {
    const vi sign = vi_and(vf_bits(x), vi_set(INT32_MIN));
    const vm tiny = vi_eq(vi_and(vf_bits(x), vi_set(0x7f800000)), vi_set(0));
    return vf_select(tiny, vf_from_bits(sign), x);
}

NAPIER_KERNEL vf napier_upper_half(vf x) { return napier_bf16_odd(vf_bits(x)); }

#endif
