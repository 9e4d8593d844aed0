/* core/simd/device_code.h - NAPIER_DEVICE_CODE: 1 where a GPU's code is compiled, by nvcc or by clang's HIP (-x hip), else 0.
 *
 * What nvcc declares by itself is said to HIP here: qualifiers, and those functions of the C library that device code calls.
 * They are builtins of clang, single instructions or sequences that round correctly, so neither ROCm's headers nor its
 * device library are needed. */
#ifndef NAPIER_CORE_SIMD_DEVICE_CODE_H
#define NAPIER_CORE_SIMD_DEVICE_CODE_H

/* These declare functions of the host, and so come before the names below. */
#include <assert.h>
#include <math.h>
#include <string.h>

#if defined(__CUDACC__) || defined(__HIP__) || defined(__OPENCL_C_VERSION__)
#define NAPIER_DEVICE_CODE 1
#else
#define NAPIER_DEVICE_CODE 0
#endif

#if defined(__HIP__)
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

#define memcpy __builtin_memcpy
#define memset __builtin_memset
#define copysignf __builtin_copysignf
#define fabs __builtin_fabs
#define fabsf __builtin_fabsf
#define fma __builtin_fma
#define fmaf __builtin_fmaf
#define ldexp __builtin_ldexp
#define rint __builtin_rint
#define rintf __builtin_rintf
#define sqrt __builtin_sqrt
#define sqrtf __builtin_sqrtf
#endif

#endif
