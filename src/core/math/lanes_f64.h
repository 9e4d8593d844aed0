/* core/math/lanes_f64.h - exp in double precision on 16 lanes: the sequence of napier_f64_exp_parts, operation for
 * operation. */
#ifndef NAPIER_CORE_MATH_LANES_F64_H
#define NAPIER_CORE_MATH_LANES_F64_H

#include "core/math/exp_f64.h"
#include "core/simd/lanes.h"

/* Up to here one step of the reduction is enough. */
#define NAPIER_F64_EXP_SIMPLE 0x1p28

/* high is the sum rounded, low what that left out (core/math/f64.h). */
typedef struct vd_pair {
    vd high, low;
} vd_pair;

NAPIER_INLINE vd vd_negative(vd a) { return vd_sub(vd_set(-0.0), a); }

NAPIER_INLINE vd_pair vd_two_sum(vd a, vd b) {
    const vd sum = vd_add(a, b), part = vd_sub(sum, a);
    return (vd_pair){sum, vd_add(vd_sub(a, vd_sub(sum, part)), vd_sub(b, part))};
}
NAPIER_INLINE vd_pair vd_fast_two_sum(vd a, vd b) {
    const vd sum = vd_add(a, b);
    return (vd_pair){sum, vd_sub(b, vd_sub(sum, a))};
}
NAPIER_INLINE vd_pair vd_two_product(vd a, vd b) {
    const vd product = vd_mul(a, b);
    return (vd_pair){product, vd_fma(a, b, vd_negative(product))};
}

/* exp(x) = p 2^n, to 0.54 ulp, for |x| <= NAPIER_F64_EXP_SIMPLE. */
typedef struct vd_exp {
    vd p, n;
} vd_exp;

NAPIER_INLINE vd_pair vd_exp_reduce(vd x, vd *n) {
    const vd y = vd_mul(x, vd_set(NAPIER_F64_LOG2E));
    *n = vd_trunc(vd_add(y, vd_select(vd_lt(y, vd_set(0.0)), vd_set(-0.5), vd_set(0.5))));
    const vd_pair a = vd_two_product(*n, vd_set(NAPIER_F64_LN2_1)), b = vd_two_product(*n, vd_set(NAPIER_F64_LN2_2));
    const vd_pair s1 = vd_two_sum(x, vd_negative(a.high));
    const vd_pair s2 = vd_two_sum(s1.high, vd_negative(a.low));
    const vd_pair s3 = vd_two_sum(s2.high, vd_negative(b.high));
    const vd lows = vd_add(s1.low, vd_add(s2.low, s3.low));
    return vd_two_sum(s3.high, vd_sub(lows, vd_fma(*n, vd_set(NAPIER_F64_LN2_3), b.low)));
}

NAPIER_INLINE vd_exp vd_exp_parts(vd x) {
    vd n;
    const vd_pair r = vd_exp_reduce(x, &n), square = vd_two_product(r.high, r.high);
    const vd half = vd_set(0.5);
    vd c = vd_set(napier_f64_exp_c[10]);
    NAPIER_UNROLL
    for (int i = 9; i >= 0; i--) {
        c = vd_fma(c, r.high, vd_set(napier_f64_exp_c[i]));
    }
    const vd cubic = vd_mul(vd_mul(r.high, square.high), c);
    const vd_pair s = vd_fast_two_sum(r.high, vd_mul(half, square.high));
    const vd_pair t = vd_fast_two_sum(vd_set(1.0), s.high);
    const vd low = vd_fma(r.low, t.high, vd_fma(half, square.low, vd_add(s.low, t.low)));
    return (vd_exp){vd_fast_two_sum(t.high, vd_add(cubic, low)).high, n};
}

#endif
