/* core/math/lanes_math.h - exp and log on 16 lanes: the sequences of core/math/exp.h and core/math/log.h, operation
 * for operation. */
#ifndef NAPIER_CORE_MATH_LANES_MATH_H
#define NAPIER_CORE_MATH_LANES_MATH_H

#include "core/math/exp.h"
#include "core/math/log.h"
#include "core/math/pow.h"
#include "core/math/random.h"
#include "core/simd/lanes.h"

/* (exp(r) - 1) / r */
NAPIER_INLINE vf vf_exp_quotient(vf r) {
    vf p = vf_fma(vf_set(NAPIER_EXP_C6), r, vf_set(NAPIER_EXP_C5));
    p = vf_fma(p, r, vf_set(NAPIER_EXP_C4));
    p = vf_fma(p, r, vf_set(NAPIER_EXP_C3));
    p = vf_fma(p, r, vf_set(NAPIER_EXP_C2));
    return vf_fma(p, r, vf_set(1.0f));
}
NAPIER_INLINE vf vf_exp_polynomial(vf r) { return vf_fma(vf_exp_quotient(r), r, vf_set(1.0f)); }

/* The integer n and the remainder r of x = n ln 2 + r, for |x| <= 2^20. `magic` is 1.5 * 2^23 plus any integer below
 * 2^21. *shifted becomes magic + n, whose low bits hold that integer plus n. */
NAPIER_INLINE vf vf_exp_reduce(vf x, vf magic, vf *shifted, vf *n) {
    *shifted = vf_fma(x, vf_set(NAPIER_LOG2E), magic);
    *n = vf_sub(*shifted, magic);
    const vf r = vf_fnma(*n, vf_set(NAPIER_LN2_HI), x);
    return vf_fnma(*n, vf_set(NAPIER_LN2_LO), r);
}

/* exp(x) * 2^k from r and *shifted for magic = 1.5 * 2^23 + k, if the result is a normal number: k is added to the bits of
 * the exponent. */
NAPIER_INLINE vf vf_exp_reduced(vf r, vf shifted) {
    return vf_from_bits(vi_add(vf_bits(vf_exp_polynomial(r)), vi_shl(vf_bits(shifted), 23)));
}
NAPIER_INLINE vf vf_exp_scaled(vf x, vf magic) {
    vf shifted, n;
    const vf r = vf_exp_reduce(x, magic, &shifted, &n);
    return vf_exp_reduced(r, shifted);
}

/* The same for `count` <= 8 vectors, step by step. A single one is a chain of 12 operations, each of which waits for
 * the one before, and a core does not look far enough ahead to start on the next vector meanwhile. SIMD_CHAINS vectors
 * at a time fill the registers. */
NAPIER_INLINE void vf_exp_scaled_side_by_side(const int count, const vf *x, vf magic, vf *y) {
    static const float c[6] = {NAPIER_EXP_C5, NAPIER_EXP_C4, NAPIER_EXP_C3, NAPIER_EXP_C2, 1.0f, 1.0f};
    vf shifted[8], n[8], r[8];
    NAPIER_UNROLL
    for (int i = 0; i < count; i++) {
        shifted[i] = vf_fma(x[i], vf_set(NAPIER_LOG2E), magic);
    }
    NAPIER_UNROLL
    for (int i = 0; i < count; i++) {
        n[i] = vf_sub(shifted[i], magic);
    }
    NAPIER_UNROLL
    for (int i = 0; i < count; i++) {
        r[i] = vf_fnma(n[i], vf_set(NAPIER_LN2_HI), x[i]);
    }
    NAPIER_UNROLL
    for (int i = 0; i < count; i++) {
        r[i] = vf_fnma(n[i], vf_set(NAPIER_LN2_LO), r[i]);
        y[i] = vf_set(NAPIER_EXP_C6);
    }
    NAPIER_UNROLL
    for (int power = 0; power < 6; power++) {
        NAPIER_UNROLL
        for (int i = 0; i < count; i++) {
            y[i] = vf_fma(y[i], r[i], vf_set(c[power]));
        }
    }
    NAPIER_UNROLL
    for (int i = 0; i < count; i++) {
        y[i] = vf_from_bits(vi_add(vf_bits(y[i]), vi_shl(vf_bits(shifted[i]), 23)));
    }
}

NAPIER_INLINE vf vf_canonical_nan(void) { return vf_from_bits(vi_set((int32_t)NAPIER_NAN_BITS)); }

/* exp over the full range. 2^n is applied in two factors, so that overflow and subnormal results are rounded only once,
 * by the last multiplication. */
NAPIER_INLINE vf vf_exp(vf x) {
    vf shifted, n;
    const vf inside = vf_max(vf_min(x, vf_set(89.5f)), vf_set(-105.0f)); /* beyond these limits exp is inf or 0 */
    const vf r = vf_exp_reduce(inside, vf_set(NAPIER_ROUND_MAGIC), &shifted, &n);
    const vi whole = vf_to_int(n);
    const vi half = vi_sar(whole, 1);
    const vi bias = vi_set(127);
    const vf first = vf_from_bits(vi_shl(vi_add(half, bias), 23));
    const vf second = vf_from_bits(vi_shl(vi_add(vi_sub(whole, half), bias), 23));
    const vf y = vf_mul(vf_mul(vf_exp_polynomial(r), first), second);
    return vf_select(vf_unordered(x, x), vf_canonical_nan(), y);
}

/* a / b, rounded as a division of doubles, which takes longer; for finite a and normal b whose inverse is normal. No quotient of
 * two floats is nearer than 2^-78 of itself to the middle between two doubles, and before its rounding the last fma errs by less
 * than 2^-95. In plain C an fma is a call. */
NAPIER_INLINE vd vd_quotient(vf a, vf b) {
#if defined(NAPIER_LANES_SCALAR)
    return vd_div(vd_from_vf(a), vd_from_vf(b));
#else
    const vd x = vd_from_vf(a), minus = vd_from_vf(vf_sub(vf_zero(), b));
    const vd near = vd_from_vf(vf_div(vf_set(1.0f), b)); /* 2^-24 */
    const vd inverse = vd_fma(near, vd_fma(minus, near, vd_set(1.0)), near);
    const vd quotient = vd_mul(x, inverse);
    return vd_fma(vd_fma(minus, quotient, x), inverse, quotient);
#endif
}

NAPIER_INLINE vd vd_log_polynomial(vd f) {
    vd q = vd_fma(vd_set(NAPIER_LOG_Q6), f, vd_set(NAPIER_LOG_Q5));
    q = vd_fma(q, f, vd_set(NAPIER_LOG_Q4));
    q = vd_fma(q, f, vd_set(NAPIER_LOG_Q3));
    q = vd_fma(q, f, vd_set(NAPIER_LOG_Q2));
    q = vd_fma(q, f, vd_set(NAPIER_LOG_Q1));
    q = vd_fma(q, f, vd_set(NAPIER_LOG_Q0));
    return vd_fma(vd_mul(f, f), q, f);
}

/* k ln 2 - log c for u = 2^k m, and f = m c - 1, if u is not near 1. */
NAPIER_INLINE vd vd_log_split(vd u, vd *f) {
    const vd m = vd_mantissa(u);
    *f = vd_fma(m, vd_table16(napier_log_reciprocal, m), vd_set(-1.0));
    return vd_fma(vd_exponent(u), vd_set(NAPIER_LN2_DOUBLE), vd_table16(napier_log_minus_log, m));
}

/* For finite y >= 0. */
NAPIER_INLINE vd vd_log1p(vd y) {
    const vd u = vd_add(vd_set(1.0), y);
    vd f;
    const vd base = vd_log_split(u, &f);
    f = vd_select(vd_lt(u, vd_set(NAPIER_LOG_FIRST_BUCKET)), y, f);
    return vd_add(base, vd_log_polynomial(f));
}

/* For normal u > 0. Near 1, on either side, f is u - 1, so that nothing cancels. */
NAPIER_INLINE vd vd_log(vd u) {
    vd f;
    vd base = vd_log_split(u, &f);
    const vd away = vd_sub(u, vd_set(1.0));
    const vm below = vd_lt(u, vd_set(NAPIER_LOG_FIRST_BUCKET));
    const vm near = vm_andnot(vd_lt(u, vd_set(0.96875)), below);
    f = vd_select(near, away, f);
    base = vd_select(near, vd_set(0.0), base);
    return vd_add(base, vd_log_polynomial(f));
}

NAPIER_INLINE vf vf_log(vf x) {
    const vf inf = vf_from_bits(vi_set(0x7f800000));
    const vm inside = vm_and(vf_gt(x, vf_zero()), vf_lt(x, inf));
    const vf y = vd_to_vf(vd_log(vd_from_vf(vf_select(inside, x, vf_set(1.0f)))));
    vf special = vf_select(vf_eq(x, inf), inf, vf_canonical_nan());
    special = vf_select(vf_eq(x, vf_zero()), vf_sub(vf_zero(), inf), special);
    return vf_select(inside, y, special);
}

NAPIER_INLINE vf vf_log1p(vf x) {
    const vf inf = vf_from_bits(vi_set(0x7f800000));
    const vm inside = vm_and(vf_ge(x, vf_zero()), vf_lt(x, inf));
    const vf y = vd_to_vf(vd_log1p(vd_from_vf(vf_select(inside, x, vf_zero()))));
    return vf_select(inside, y, vf_select(vf_eq(x, inf), inf, vf_canonical_nan()));
}

/* bfloat16 is the upper half of a float. */
NAPIER_INLINE vf vf_from_bf16(vi u) { return vf_from_bits(vi_shl(u, 16)); }

/* Round to nearest even on the integer: exact for subnormals too. NaN becomes the canonical one. */
NAPIER_INLINE vi vf_to_bf16(vf x) {
    const vi u = vf_bits(x);
    const vi odd = vi_and(vi_shr(u, 16), vi_set(1));
    const vi rounded = vi_shr(vi_add(vi_add(u, vi_set(0x7fff)), odd), 16);
    return vi_select(vf_unordered(x, x), vi_set(0x7fc0), rounded);
}

NAPIER_INLINE vi vf_to_f16_canonical(vf x) { return vi_select(vf_unordered(x, x), vi_set(0x7e00), vf_to_f16(x)); }

NAPIER_INLINE vf vf_from_f16_canonical(vi u) {
    const vf x = vf_from_f16(u);
    return vf_select(vf_unordered(x, x), vf_canonical_nan(), x);
}

/* core/math/pow.h on 16 lanes. */
NAPIER_INLINE vf vf_log2(vf x) {
    const vi bits = vf_bits(x);
    const vi e = vi_sar(vi_sub(bits, vi_set(NAPIER_HALF_ROOT_BITS)), 23);
    const vf f = vf_sub(vf_from_bits(vi_sub(bits, vi_shl(e, 23))), vf_set(1.0f));
    vf p = vf_fma(vf_set(NAPIER_LOG2_C8), f, vf_set(NAPIER_LOG2_C7));
    p = vf_fma(p, f, vf_set(NAPIER_LOG2_C6));
    p = vf_fma(p, f, vf_set(NAPIER_LOG2_C5));
    p = vf_fma(p, f, vf_set(NAPIER_LOG2_C4));
    p = vf_fma(p, f, vf_set(NAPIER_LOG2_C3));
    p = vf_fma(p, f, vf_set(NAPIER_LOG2_C2));
    p = vf_fma(p, f, vf_set(NAPIER_LOG2_C1));
    p = vf_fma(p, f, vf_set(NAPIER_LOG2_C0));
    return vf_fma(p, f, vf_from_int(e));
}

/* 2^f for t = n + f. *shifted becomes magic + n, as in vf_exp_reduce. */
NAPIER_INLINE vf vf_exp2_fraction(vf t, vf magic, vf *shifted) {
    *shifted = vf_add(t, magic);
    const vf f = vf_sub(t, vf_sub(*shifted, magic));
    vf p = vf_fma(vf_set(NAPIER_EXP2_C6), f, vf_set(NAPIER_EXP2_C5));
    p = vf_fma(p, f, vf_set(NAPIER_EXP2_C4));
    p = vf_fma(p, f, vf_set(NAPIER_EXP2_C3));
    p = vf_fma(p, f, vf_set(NAPIER_EXP2_C2));
    p = vf_fma(p, f, vf_set(NAPIER_EXP2_C1));
    return vf_fma(p, f, vf_set(1.0f));
}

NAPIER_INLINE vf vf_exp2(vf t) {
    vf shifted;
    t = vf_max(vf_min(t, vf_set(NAPIER_EXP2_HIGHEST)), vf_set(NAPIER_EXP2_LOWEST));
    const vf p = vf_exp2_fraction(t, vf_set(NAPIER_ROUND_MAGIC), &shifted);
    return vf_from_bits(vi_add(vf_bits(p), vi_shl(vf_bits(shifted), 23)));
}

NAPIER_INLINE vf vf_pow(vf x, vf b) { return vf_exp2(vf_mul(b, vf_log2(x))); }

/* core/math/random.h on 16 lanes: one key, 16 counters. */
NAPIER_INLINE void vi_philox(uint32_t key, vi hi, vi lo, vi out[2]) {
    const vi multiplier = vi_set((int32_t)NAPIER_PHILOX_MULTIPLIER);
    for (int round = 0; round < NAPIER_PHILOX_ROUNDS; round++) {
        const vi high = vi_mulhi(multiplier, lo), low = vi_mul(multiplier, lo);
        lo = vi_xor(vi_xor(high, vi_set((int32_t)key)), hi);
        hi = low;
        key += NAPIER_PHILOX_WEYL;
    }
    out[0] = lo;
    out[1] = hi;
}

#endif
