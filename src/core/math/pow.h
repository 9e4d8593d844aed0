/* core/math/pow.h - log2, exp2 and x^b for positive numbers in f32: short sequences of
 * single operations, like core/math/exp.h.
 *
 *   log2(x)   x = 2^e m, m in [sqrt(1/2), sqrt(2)); log2(m) = f (c0 + c1 f + ... + c8 f^8), f = m - 1
 *   exp2(t)   t = n + f, |f| <= 1/2; 2^f = 1 + c1 f + ... + c6 f^6; n goes into the bits of the exponent
 *   x^b       exp2(b log2(x)), with a relative error of about (1 + |b log2 x|) 2^-23
 *
 * They serve curves, gradients and attention weights; softmax's probabilities use core/math/exp.h. Coefficients:
 * tools/fit_pow.py. Plain C that CUDA compiles too; core/math/lanes_math.h has the same sequences on 16 lanes. */
#ifndef NAPIER_CORE_MATH_POW_H
#define NAPIER_CORE_MATH_POW_H

#include "core/math/exp.h"

#define NAPIER_LOG2_C0 0x1.715476p+0f
#define NAPIER_LOG2_C1 -0x1.715476p-1f
#define NAPIER_LOG2_C2 0x1.ec7378p-2f
#define NAPIER_LOG2_C3 -0x1.71588cp-2f
#define NAPIER_LOG2_C4 0x1.26d83ep-2f
#define NAPIER_LOG2_C5 -0x1.ea0368p-3f
#define NAPIER_LOG2_C6 0x1.ba3b3cp-3f
#define NAPIER_LOG2_C7 -0x1.a4466ap-3f
#define NAPIER_LOG2_C8 0x1.f657b8p-4f
#define NAPIER_EXP2_C1 0x1.62e430p-1f
#define NAPIER_EXP2_C2 0x1.ebfbd8p-3f
#define NAPIER_EXP2_C3 0x1.c6af78p-5f
#define NAPIER_EXP2_C4 0x1.3b30b0p-7f
#define NAPIER_EXP2_C5 0x1.5f0a66p-10f
#define NAPIER_EXP2_C6 0x1.3f906cp-13f

#define NAPIER_HALF_ROOT_BITS 0x3f3504f3 /* sqrt(1/2) */
#define NAPIER_EXP2_LOWEST (-125.0f)     /* smaller t are raised to this */
#define NAPIER_EXP2_HIGHEST 127.0f

/* log2(x) for normal x > 0. */
NAPIER_BOTH float napier_log2f(float x) {
    const int32_t bits = (int32_t)napier_float_bits(x);
    const int32_t e = (bits - NAPIER_HALF_ROOT_BITS) >> 23;
    const float f = napier_float_of_bits((uint32_t)bits - ((uint32_t)e << 23)) - 1.0f;
    float p = fmaf(NAPIER_LOG2_C8, f, NAPIER_LOG2_C7);
    p = fmaf(p, f, NAPIER_LOG2_C6);
    p = fmaf(p, f, NAPIER_LOG2_C5);
    p = fmaf(p, f, NAPIER_LOG2_C4);
    p = fmaf(p, f, NAPIER_LOG2_C3);
    p = fmaf(p, f, NAPIER_LOG2_C2);
    p = fmaf(p, f, NAPIER_LOG2_C1);
    p = fmaf(p, f, NAPIER_LOG2_C0);
    return fmaf(p, f, (float)e);
}

/* 2^t. t is first limited to [NAPIER_EXP2_LOWEST, NAPIER_EXP2_HIGHEST]. */
NAPIER_BOTH float napier_exp2f(float t) {
    t = t < NAPIER_EXP2_HIGHEST ? t : NAPIER_EXP2_HIGHEST;
    t = t > NAPIER_EXP2_LOWEST ? t : NAPIER_EXP2_LOWEST;
    const float shifted = t + NAPIER_ROUND_MAGIC;
    const float f = t - (shifted - NAPIER_ROUND_MAGIC);
    float p = fmaf(NAPIER_EXP2_C6, f, NAPIER_EXP2_C5);
    p = fmaf(p, f, NAPIER_EXP2_C4);
    p = fmaf(p, f, NAPIER_EXP2_C3);
    p = fmaf(p, f, NAPIER_EXP2_C2);
    p = fmaf(p, f, NAPIER_EXP2_C1);
    p = fmaf(p, f, 1.0f);
    return napier_float_of_bits(napier_float_bits(p) + (napier_float_bits(shifted) << 23));
}

NAPIER_BOTH float napier_powf(float x, float b) { return napier_exp2f(b * napier_log2f(x)); }

#endif
