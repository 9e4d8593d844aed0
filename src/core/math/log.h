/* core/math/log.h - log(1 + y) in double, with a relative error of 2^-44: what the end of a
 * reduction needs before it rounds to float.
 *
 *   u = 1 + y = 2^k m, m in [1, 2);  c = reciprocal[top four bits of m], about 1/m;  f = m c - 1 in [-0.029, 0.0625]
 *   log u = k ln 2 - log c + log(1 + f),   log(1 + f) = f + f^2 q(f), q of degree 6
 *
 * Below u = 1.0625 the table has c = 1 and f is y itself, so no accuracy is lost however small y is. There is no
 * division. Table and polynomial: tools/fit_log.py. The same sequence on 16 lanes: core/math/lanes_math.h. */
#ifndef NAPIER_CORE_MATH_LOG_H
#define NAPIER_CORE_MATH_LOG_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/math/both.h"

#define NAPIER_LOG_Q0 (-0x1.000000000273ep-1)
#define NAPIER_LOG_Q1 0x1.555555520dbf9p-2
#define NAPIER_LOG_Q2 (-0x1.fffffed3bc08bp-3)
#define NAPIER_LOG_Q3 0x1.9999dce4e6325p-3
#define NAPIER_LOG_Q4 (-0x1.555f702cb6a7ep-3)
#define NAPIER_LOG_Q5 0x1.2426a9fa77b0dp-3
#define NAPIER_LOG_Q6 (-0x1.cd4a59676c6d4p-4)
#define NAPIER_LN2_DOUBLE 0x1.62e42fefa39efp-1
#define NAPIER_LOG_FIRST_BUCKET 1.0625 /* below: c = 1 */

NAPIER_BOTH_TABLE double napier_log_reciprocal[16] __attribute__((aligned(64))) = {
    0x1.00p+0, 0x1.d4p-1, 0x1.bap-1, 0x1.a4p-1, 0x1.90p-1, 0x1.7ep-1, 0x1.6cp-1, 0x1.5cp-1,
    0x1.4ep-1, 0x1.42p-1, 0x1.36p-1, 0x1.2ap-1, 0x1.20p-1, 0x1.16p-1, 0x1.0cp-1, 0x1.04p-1};

NAPIER_BOTH_TABLE double napier_log_minus_log[16] __attribute__((aligned(64))) = {0x0.0p+0,
                                                                                  0x1.700d30aeac0e1p-4,
                                                                                  0x1.2d1610c86813ap-3,
                                                                                  0x1.95a5adcf7017fp-3,
                                                                                  0x1.f991c6cb3b379p-3,
                                                                                  0x1.2bef07cdc9354p-2,
                                                                                  0x1.5d5bddf595f30p-2,
                                                                                  0x1.8b639a88b2df5p-2,
                                                                                  0x1.b56fa04462909p-2,
                                                                                  0x1.dae75484c9616p-2,
                                                                                  0x1.00e5ae5b207abp-1,
                                                                                  0x1.151c3f6f29612p-1,
                                                                                  0x1.269621134db92p-1,
                                                                                  0x1.38ae2171976e7p-1,
                                                                                  0x1.4b6fd6f970c1fp-1,
                                                                                  0x1.5af405c3649e0p-1};

/* f + f^2 q(f) */
NAPIER_BOTH double napier_log_polynomial(double f) {
    double q = fma(NAPIER_LOG_Q6, f, NAPIER_LOG_Q5);
    q = fma(q, f, NAPIER_LOG_Q4);
    q = fma(q, f, NAPIER_LOG_Q3);
    q = fma(q, f, NAPIER_LOG_Q2);
    q = fma(q, f, NAPIER_LOG_Q1);
    q = fma(q, f, NAPIER_LOG_Q0);
    return fma(f * f, q, f);
}

/* For finite y >= 0. */
NAPIER_BOTH double napier_log1p(double y) {
    const double u = 1.0 + y;
    uint64_t bits;
    memcpy(&bits, &u, sizeof bits);
    const double k = (double)((int64_t)(bits >> 52) - 1023);
    const unsigned bucket = (unsigned)(bits >> 48) & 15u;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    double f = fma(m, napier_log_reciprocal[bucket], -1.0);
    if (u < NAPIER_LOG_FIRST_BUCKET) {
        f = y;
    }
    const double base = fma(k, NAPIER_LN2_DOUBLE, napier_log_minus_log[bucket]);
    return base + napier_log_polynomial(f);
}

#endif
