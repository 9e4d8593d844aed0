/* core/math/exp.h - exp as a significand and a power of two: exp(x) = p * 2^n with p in [0.70, 1.42].
 *
 * softmax, and all that is built on it, computes its f32 exponentials by this sequence of single
 * operations. The sequence is the contract, not the formula: to round x * log2(e) by rint would
 * differ from the fma below for 61 floats.
 *
 *   n = round(x log2 e)           by adding 1.5 * 2^23 in one fma: the integer appears in the low bits
 *   r = x - n ln 2                in two steps, ln 2 = LN2_HI + LN2_LO; |r| <= ln 2 / 2
 *   p = 1 + r + r^2 (c2 + ...)    degree 6, constant and linear term exactly 1; at most 0.89 ulp
 *
 * The reduction is exact for |x| <= 2^20. Beyond that it is done in double (napier_exp_parts_big). This header is plain
 * C that CUDA and OpenCL compile too. core/math/lanes_math.h has the same sequence on 16 lanes, and a test compares the
 * two for all floats. tools/fit_exp.py derives the coefficients; tests/exhaustive measures their error
 * over all floats. */
#ifndef NAPIER_CORE_MATH_EXP_H
#define NAPIER_CORE_MATH_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/math/both.h"

#define NAPIER_LOG2E 0x1.715476p+0f
#define NAPIER_ROUND_MAGIC 12582912.0f /* 1.5 * 2^23 */
#define NAPIER_LN2_HI 0x1.62e430p-1f
#define NAPIER_LN2_LO (-0x1.05c610p-29f)
#define NAPIER_EXP_C2 0x1.fffffcp-2f
#define NAPIER_EXP_C3 0x1.555492p-3f
#define NAPIER_EXP_C4 0x1.5558b0p-5f
#define NAPIER_EXP_C5 0x1.123990p-7f
#define NAPIER_EXP_C6 0x1.6a4d7ep-10f

typedef struct napier_exp_parts {
    float p;
    int64_t n;
} napier_exp_parts;

NAPIER_BOTH uint32_t napier_float_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

NAPIER_BOTH float napier_float_of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The canonical quiet NaN. */
#define NAPIER_NAN_BITS 0x7fc00000u
NAPIER_BOTH float napier_nan(void) { return napier_float_of_bits(NAPIER_NAN_BITS); }

/* 2^k as a float, for -126 <= k <= 127. */
NAPIER_BOTH float napier_power_of_two(int64_t k) { return napier_float_of_bits((uint32_t)(k + 127) << 23); }

NAPIER_BOTH float napier_exp_polynomial(float r) {
    float p = fmaf(NAPIER_EXP_C6, r, NAPIER_EXP_C5);
    p = fmaf(p, r, NAPIER_EXP_C4);
    p = fmaf(p, r, NAPIER_EXP_C3);
    p = fmaf(p, r, NAPIER_EXP_C2);
    p = fmaf(p, r, 1.0f);
    return fmaf(p, r, 1.0f);
}

/* For |x| <= 2^20. */
NAPIER_BOTH napier_exp_parts napier_exp_parts_small(float x) {
    const float n = fmaf(x, NAPIER_LOG2E, NAPIER_ROUND_MAGIC) - NAPIER_ROUND_MAGIC;
    float r = fmaf(-n, NAPIER_LN2_HI, x);
    r = fmaf(-n, NAPIER_LN2_LO, r);
    return (napier_exp_parts){napier_exp_polynomial(r), (int64_t)n};
}

/* For |x| < 2^31: the reduction in double, with ln 2 to 106 bits. Adding 1.5 * 2^52 rounds to an integer, as above. */
NAPIER_BOTH napier_exp_parts napier_exp_parts_big(float x) {
    const double magic = 0x1.8p52;
    const double n = ((double)x * 0x1.71547652b82fep+0 + magic) - magic;
    double r = fma(-n, 0x1.62e42fefa39efp-1, (double)x);
    r = fma(-n, 0x1.abc9e3b39803fp-56, r);
    return (napier_exp_parts){napier_exp_polynomial((float)r), (int64_t)n};
}

#endif
