/* core/simd/one_lane.h - bits of numbers, and half precision, for one element: the scalar vector calls it in a loop,
 * and a thread of a GPU for its own lane. */
#ifndef NAPIER_CORE_SIMD_ONE_LANE_H
#define NAPIER_CORE_SIMD_ONE_LANE_H

NAPIER_INLINE int32_t simd_bits(const float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
NAPIER_INLINE float simd_float(const uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
NAPIER_INLINE uint64_t simd_bits64(const double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
NAPIER_INLINE double simd_double(const uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- half precision: 1 sign, 5 exponent (bias 15), 10 mantissa bits -------------------------------------------- */

/* Shifted left by 13, a half has the fields of a float with an exponent 112 too low.
 * A subnormal half is a multiple of 2^-24. */
NAPIER_INLINE float simd_from_f16(const uint32_t half) {
    const uint32_t sign = (half & 0x8000) << 16, magnitude = half & 0x7fff;
    if (magnitude < 0x0400)
        return simd_float(sign | (uint32_t)simd_bits((float)(int32_t)magnitude * 0x1p-24f));
    const uint32_t rebias = magnitude < 0x7c00 ? 112 : 224; /* infinity and NaN keep the highest exponent: 31 -> 255 */
    return simd_float(sign | ((magnitude << 13) + (rebias << 23)));
}
/* Rounds to nearest even. Below the smallest normal half, adding 0.5 aligns the last bit with a half's
 * 2^-24, so that the rounding of the sum does it. Above, the 13 bits that are dropped are rounded in
 * the integer, which may carry to infinity. */
NAPIER_INLINE uint32_t simd_to_f16(const float x) {
    const uint32_t bits = (uint32_t)simd_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return sign | 0x7e00;
    if (magnitude >= 0x47800000)
        return sign | 0x7c00;     /* 65536 and above */
    if (magnitude < 0x38800000) { /* 2^-14 */
        return sign | ((uint32_t)simd_bits(simd_float(magnitude) + 0.5f) - 0x3f000000);
    }
    return sign | ((magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

#endif
