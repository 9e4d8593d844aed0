/* core/math/math_kernels.h - elementary functions over arrays, as each instruction set compiles them. */
#ifndef NAPIER_CORE_MATH_MATH_KERNELS_H
#define NAPIER_CORE_MATH_MATH_KERNELS_H

#include <stdint.h>

/* y[i] = f(x[i]) for n contiguous elements; y may be x. Full range, subnormals included:
 *   exp    <= 1 ulp; NaN -> canonical NaN, -inf -> 0, overflow -> +inf
 *   log    <= 1 ulp; 0 -> -inf, negative and NaN -> canonical NaN, +inf -> +inf
 *   log1p  <= 1 ulp for x >= 0 (the only use: x < 0, NaN -> canonical NaN); +inf -> +inf
 * Conversions from 16 bits are exact, to 16 bits round to nearest even; NaN -> canonical NaN of the result's type. */
typedef struct napier_math_kernels {
    void (*exp_f32)(const float *x, float *y, int64_t n);
    void (*log_f32)(const float *x, float *y, int64_t n);
    void (*log1p_f32)(const float *x, float *y, int64_t n);
    void (*f16_to_f32)(const uint16_t *x, float *y, int64_t n);
    void (*bf16_to_f32)(const uint16_t *x, float *y, int64_t n);
    void (*f32_to_f16)(const float *x, uint16_t *y, int64_t n);
    void (*f32_to_bf16)(const float *x, uint16_t *y, int64_t n);
} napier_math_kernels;

#endif
