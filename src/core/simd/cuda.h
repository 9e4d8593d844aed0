/* core/simd/cuda.h - one lane of the virtual vector: a thread of a GPU holds one
 * element where a vector of the CPU holds 16.
 *
 * Code on lanes that treats each element by itself compiles for a thread unchanged, with the same
 * bits. Operations across lanes (folds, transposes, counts) are not here: kernels do them over a warp.
 * Plain C: the emulated device compiles it too. */
#ifndef NAPIER_CORE_SIMD_CUDA_H
#define NAPIER_CORE_SIMD_CUDA_H

#include <stdbool.h>

#include "core/simd/one_lane.h"

typedef float vf;
typedef int32_t vi;
typedef bool vm;
typedef double vd;

/* ---- floats ---------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vf vf_set(const float x) { return x; }
NAPIER_INLINE vf vf_zero(void) { return 0.0f; }
NAPIER_INLINE vf vf_add(const vf a, const vf b) { return a + b; }
NAPIER_INLINE vf vf_sub(const vf a, const vf b) { return a - b; }
NAPIER_INLINE vf vf_mul(const vf a, const vf b) { return a * b; }
NAPIER_INLINE vf vf_div(const vf a, const vf b) { return a / b; }
NAPIER_INLINE vf vf_sqrt(const vf a) { return sqrtf(a); }
NAPIER_INLINE vf vf_fma(const vf a, const vf b, const vf c) { return fmaf(a, b, c); }
NAPIER_INLINE vf vf_fnma(const vf a, const vf b, const vf c) { return fmaf(-a, b, c); }
NAPIER_INLINE vf vf_max(const vf x, const vf m) { return x > m ? x : m; }
NAPIER_INLINE vf vf_min(const vf x, const vf m) { return x < m ? x : m; }
NAPIER_INLINE vf vf_select(const vm m, const vf a, const vf b) { return m ? a : b; }
NAPIER_INLINE vf vf_keep(const vm m, const vf a) { return m ? a : 0.0f; }
NAPIER_INLINE vf vf_add_where(const vm m, const vf a, const vf b) { return m ? a + b : a; }
NAPIER_INLINE vi vf_bits(const vf v) { return simd_bits(v); }
NAPIER_INLINE vf vf_from_bits(const vi v) { return simd_float((uint32_t)v); }
NAPIER_INLINE vf vf_from_int(const vi v) { return (float)v; }
NAPIER_INLINE vi vf_to_int(const vf v) { return fabsf(v) < 0x1p31f ? (int32_t)rintf(v) : INT32_MIN; }

/* ---- masks ----------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vm vf_lt(const vf a, const vf b) { return a < b; }
NAPIER_INLINE vm vf_le(const vf a, const vf b) { return a <= b; }
NAPIER_INLINE vm vf_eq(const vf a, const vf b) { return a == b; }
NAPIER_INLINE vm vf_gt(const vf a, const vf b) { return a > b; }
NAPIER_INLINE vm vf_ge(const vf a, const vf b) { return a >= b; }
NAPIER_INLINE vm vf_nlt(const vf a, const vf b) { return !(a < b); }
NAPIER_INLINE vm vf_nge(const vf a, const vf b) { return !(a >= b); }
NAPIER_INLINE vm vf_unordered(const vf a, const vf b) { return a != a || b != b; }
NAPIER_INLINE vm vm_and(const vm a, const vm b) { return a && b; }
NAPIER_INLINE vm vm_or(const vm a, const vm b) { return a || b; }
NAPIER_INLINE vm vm_andnot(const vm a, const vm b) { return !a && b; }
NAPIER_INLINE vm vm_first(const int n) { return n > 0; }
NAPIER_INLINE bool vm_any(const vm m) { return m; }
NAPIER_INLINE bool vm_all(const vm m) { return m; }

/* ---- integers: sums and shifts wrap, so they are done on unsigned numbers -------------------------------------- */

NAPIER_INLINE vi vi_set(const int32_t x) { return x; }
NAPIER_INLINE vi vi_add(const vi a, const vi b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
NAPIER_INLINE vi vi_sub(const vi a, const vi b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
NAPIER_INLINE vi vi_mul(const vi a, const vi b) { return (int32_t)((uint32_t)a * (uint32_t)b); }
NAPIER_INLINE vi vi_mulhi(const vi a, const vi b) { return (int32_t)((uint64_t)(uint32_t)a * (uint32_t)b >> 32); }
NAPIER_INLINE vi vi_xor(const vi a, const vi b) { return a ^ b; }
NAPIER_INLINE vi vi_and(const vi a, const vi b) { return a & b; }
NAPIER_INLINE vi vi_or(const vi a, const vi b) { return a | b; }
NAPIER_INLINE vi vi_shl(const vi v, const int n) { return (int32_t)((uint32_t)v << n); }
NAPIER_INLINE vi vi_shr(const vi v, const int n) { return (int32_t)((uint32_t)v >> n); }
NAPIER_INLINE vi vi_sar(const vi v, const int n) { return v >> n; }
NAPIER_INLINE vm vi_eq(const vi a, const vi b) { return a == b; }
NAPIER_INLINE vm vi_gt(const vi a, const vi b) { return a > b; }
NAPIER_INLINE vi vi_select(const vm m, const vi a, const vi b) { return m ? a : b; }
NAPIER_INLINE vi vi_add_where(const vm m, const vi a, const vi b) { return m ? vi_add(a, b) : a; }

/* ---- half precision ----------------------------------------------------------------------------------------------- */

NAPIER_INLINE vf vf_from_f16(const vi v) { return simd_from_f16((uint32_t)v); }
NAPIER_INLINE vi vf_to_f16(const vf x) { return (int32_t)simd_to_f16(x); }

/* ---- doubles --------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vd vd_set(const double x) { return x; }
NAPIER_INLINE vd vd_add(const vd a, const vd b) { return a + b; }
NAPIER_INLINE vd vd_sub(const vd a, const vd b) { return a - b; }
NAPIER_INLINE vd vd_mul(const vd a, const vd b) { return a * b; }
NAPIER_INLINE vd vd_div(const vd a, const vd b) { return a / b; }
NAPIER_INLINE vd vd_fma(const vd a, const vd b, const vd c) { return fma(a, b, c); }
NAPIER_INLINE vd vd_from_vf(const vf v) { return (double)v; }
NAPIER_INLINE vf vd_to_vf(const vd v) { return (float)v; }
NAPIER_INLINE vm vd_lt(const vd a, const vd b) { return a < b; }
NAPIER_INLINE vd vd_select(const vm m, const vd a, const vd b) { return m ? a : b; }
NAPIER_INLINE vd vd_exponent(const vd v) { return (double)((int)(simd_bits64(v) >> 52) - 1023); }
NAPIER_INLINE vd vd_mantissa(const vd v) {
    return simd_double((simd_bits64(v) & 0xfffffffffffff) | 0x3ff0000000000000);
}
NAPIER_INLINE vd vd_table16(const double *t, const vd v) { return t[simd_bits64(v) >> 48 & 15]; }

#endif
