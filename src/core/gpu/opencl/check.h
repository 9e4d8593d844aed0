/* core/gpu/opencl/check.h - operations that a device must round as IEEE 754 says, on numbers made from an index. The device
 * (check.cu) and the host compute them by this same code, and the host compares (opencl_check.c). OpenCL promises neither
 * exact division nor subnormal numbers. */
#ifndef NAPIER_CORE_GPU_OPENCL_CHECK_H
#define NAPIER_CORE_GPU_OPENCL_CHECK_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/math/random.h"

enum { NAPIER_CHECK_OPERATIONS = 8, NAPIER_CHECK_THREADS = 256, NAPIER_CHECK_TYPES = 2 };

typedef struct napier_check_job {
    uint64_t *results; /* [count][NAPIER_CHECK_TYPES][NAPIER_CHECK_OPERATIONS] */
    int64_t first, count;
} napier_check_job;

/* Every fourth triple is of subnormal numbers and such whose products and quotients are subnormal, every fourth of numbers of
 * about one size, where sums cancel and a product that is not fused shows; the others are any bits. */
NAPIER_BOTH int napier_check_is_small(int64_t index) { return index % 4 == 0; }

NAPIER_BOTH uint64_t napier_check_bits(int64_t index, int which) {
    uint32_t words[2];
    napier_philox((uint32_t)which, (uint32_t)(index >> 32), (uint32_t)index, words);
    return (uint64_t)words[0] << 32 | words[1];
}

NAPIER_BOTH float napier_check_f32(int64_t index, int which) {
    uint32_t bits = (uint32_t)(napier_check_bits(index, which) >> 32);
    if (index % 4 == 0) {
        bits &= which == 1 ? 0xbfffffffu : 0x80ffffffu; /* 2^-127 and less, times up to 2 */
    } else if (index % 4 == 1) {
        bits = (bits & 0x80ffffffu) | 0x3f000000u;
    }
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
NAPIER_BOTH double napier_check_f64(int64_t index, int which) {
    uint64_t bits = napier_check_bits(index, which);
    if (index % 4 == 0) {
        bits &= which == 1 ? UINT64_C(0xbfffffffffffffff) : UINT64_C(0x801fffffffffffff);
    } else if (index % 4 == 1) {
        bits = (bits & UINT64_C(0x801fffffffffffff)) | UINT64_C(0x3fe0000000000000);
    }
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

NAPIER_BOTH uint64_t napier_check_of_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? 0x7fc00000u : bits;
}
NAPIER_BOTH uint64_t napier_check_of_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? UINT64_C(0x7ff8000000000000) : bits;
}

/* The bits of every operation on triple `index`; a NaN is one NaN. */
NAPIER_BOTH void napier_check_results(int64_t index, uint64_t *out) {
    const float a = napier_check_f32(index, 0), b = napier_check_f32(index, 1), c = napier_check_f32(index, 2);
    const double d = napier_check_f64(index, 0), e = napier_check_f64(index, 1), f = napier_check_f64(index, 2);
    out[0] = napier_check_of_f32(a + b);
    out[1] = napier_check_of_f32(a * b);
    out[2] = napier_check_of_f32(fmaf(a, b, index % 2 == 0 ? c : -(a * b)));
    out[3] = napier_check_of_f32(a / b);
    out[4] = napier_check_of_f32(sqrtf(a));
    out[5] = napier_check_of_f32(rintf(a));
    out[6] = napier_check_of_f32((float)d);
    out[7] = napier_check_of_f32((float)(int32_t)napier_check_bits(index, 0));
    out[8] = napier_check_of_f64(d + e);
    out[9] = napier_check_of_f64(d * e);
    out[10] = napier_check_of_f64(fma(d, e, index % 2 == 0 ? f : -(d * e)));
    out[11] = napier_check_of_f64(d / e);
    out[12] = napier_check_of_f64(sqrt(d));
    out[13] = napier_check_of_f64(rint(d));
    out[14] = napier_check_of_f64((double)a);
    out[15] = napier_check_of_f64((double)(int64_t)napier_check_bits(index, 0));
}

#endif
