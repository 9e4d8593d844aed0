/* ops/linear/gpu/elements.cuh - elements of f32, f16 and bf16 for a thread: widened exactly, rounded once to nearest
 * even, 4 at a time if they are contiguous; four floats of shared memory in one access; and the steps of bf16 by bf16. */
#ifndef NAPIER_OPS_LINEAR_GPU_ELEMENTS_CUH
#define NAPIER_OPS_LINEAR_GPU_ELEMENTS_CUH

#include <napier/types.h>

#include "core/math/lanes_math.h"

typedef struct __attribute__((aligned(16))) napier_four {
    float x[4];
} napier_four;
typedef struct __attribute__((aligned(16))) napier_words4 {
    uint32_t w[4];
} napier_words4;
typedef struct __attribute__((aligned(8))) napier_words2 {
    uint32_t w[2];
} napier_words2;

CUDA_INLINE const char *napier_element(const void *data, napier_dtype dtype, int64_t index) {
    return (const char *)data + index * (dtype == NAPIER_F32 ? 4 : 2);
}

CUDA_INLINE float napier_widen(uint32_t bits, napier_dtype dtype) {
    return dtype == NAPIER_F32    ? vf_from_bits((int32_t)bits)
           : dtype == NAPIER_BF16 ? vf_from_bf16((int32_t)bits)
                                  : vf_from_f16((int32_t)bits);
}

CUDA_INLINE uint32_t napier_load_bits(const void *data, napier_dtype dtype, int64_t index) {
    return dtype == NAPIER_F32 ? ((const uint32_t *)data)[index] : ((const uint16_t *)data)[index];
}
CUDA_INLINE float napier_load_float(const void *data, napier_dtype dtype, int64_t index) {
    return napier_widen(napier_load_bits(data, dtype, index), dtype);
}

/* The 16 bits of a result; a NaN becomes the canonical one. */
CUDA_INLINE uint32_t napier_narrow_bits(float x, napier_dtype dtype) {
    return (uint32_t)(dtype == NAPIER_BF16 ? vf_to_bf16(x) : vf_to_f16_canonical(x));
}
CUDA_INLINE float napier_canonical_float(float x) { return x != x ? vf_canonical_nan() : x; }

CUDA_INLINE void napier_store_float(void *data, napier_dtype dtype, int64_t index, float x) {
    if (dtype == NAPIER_F32) {
        ((float *)data)[index] = napier_canonical_float(x);
    } else {
        ((uint16_t *)data)[index] = (uint16_t)napier_narrow_bits(x, dtype);
    }
}

/* ---- bf16 by bf16: subnormals count as 0, see ops/linear/product.inc.h -------------------------------------------- */

CUDA_INLINE float napier_flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

CUDA_INLINE float napier_add_flushed(float a, float b) { return napier_flush(a + b); }

/* A result below 2^-126, rounded to 24 bits of an unbounded exponent, becomes 0. */
CUDA_INLINE float napier_fma_flushed(float a, float b, float c) {
    const float r = fmaf(a, b, c), size = fabsf(r);
    if (!(size <= 0x1p-126f)) {
        return r;
    }
    const double exact = (double)a * (double)b + (double)c;
    return size < 0x1p-126f || fabs(exact) < 0x1p-126 - 0x1p-151 ? copysignf(0.0f, r) : r;
}

#endif
