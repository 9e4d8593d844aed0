/* core/math/divide.h - many quotients by one divisor, with the bits of IEEE's division: five operations each. */
#ifndef NAPIER_CORE_MATH_DIVIDE_H
#define NAPIER_CORE_MATH_DIVIDE_H

#include "core/math/exp.h"

/* 2^-60 <= |x| < 2^60: no step of a quotient of two such numbers leaves the normal numbers. */
NAPIER_BOTH bool napier_is_middling(float x) { return (napier_float_bits(x) & 0x7fffffffu) - (67u << 23) < 120u << 23; }

/* x / divisor of middling numbers; inverse is 1 / divisor. The first correction leaves less than an ulp. From there, with an
 * inverse that is rounded to nearest, one correction gives the quotient rounded to nearest (Markstein, IBM Journal of
 * Research and Development 34, 1990). */
NAPIER_BOTH float napier_divide_by(float x, float divisor, float inverse) {
    const float about = x * inverse;
    const float near = fmaf(fmaf(-about, divisor, x), inverse, about);
    return fmaf(fmaf(-near, divisor, x), inverse, near);
}

#endif
