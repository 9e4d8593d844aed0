/* core/simd/lanes.h - the virtual vector: 16 lanes, the same operations with the same bits on every instruction set.
 *
 * Kernels are written once, against the names below. A file in the folder isa of a part defines one of
 * NAPIER_LANES_{SCALAR,AVX2,AVX512,NEON}, and this header then includes the implementation of these names for that
 * instruction set. Every implementation provides:
 *
 *   types   vf  16 floats          vi  16 int32 (wrapping)          vm  16 booleans           vd  16 doubles
 *
 *   SIMD_CHAINS: how many chains of operations, of three vectors each, the registers hold; 4 or 8
 *
 *   Every arithmetic operation is the single IEEE operation of its name, rounded to nearest even, in each lane. The
 *   bits of a NaN result differ between machines. Loads, stores, selects and transposes keep the bits of a NaN.
 *   "For ..." names the inputs that an operation accepts: others give a value that differs between machines.
 *   vf   vf_set(float) vf_zero() vf_add vf_sub vf_mul vf_div vf_sqrt vf_fma(a,b,c)=a*b+c  vf_fnma(a,b,c)=c-a*b
 *        vf_max(x, m) = x > m ? x : m      (a NaN in x is ignored, in m it stays; of two zeros m)
 *        vf_min(x, m) = x < m ? x : m      (likewise)
 *        vf_load(p) vf_store(p, v)                        16 floats, any alignment
 *        vf_load_part(p, n, fill) vf_store_part(p, n, v)  the first n (0..16) lanes; no other byte is touched; the
 *                                                         other lanes of a load come from the vector `fill`
 *        vf_load_halves(p, q) vf_store_halves(p, q, v)    8 floats at p and 8 at q
 *        vf_gather(p, i)                                  p[i] per lane, i >= 0
 *        vf_load_pairs(p, at, &a, &b)                     a = p[2 * at[i]], b = p[2 * at[i] + 1] per lane i
 *        vf_hold(v)                                       v, kept in a register if there are enough: a compiler may
 *                                                         otherwise load it from memory for each use
 *        vf_stream(p, v)                                  store past the caches; p on a 64-byte boundary
 *        vf_stream_fence()                                after the last vf_stream, before another thread may read
 *        vf_select(m, a, b) = m ? a : b                   vf_keep(m, a) = m ? a : +0
 *        vf_add_where(m, a, b) = m ? a + b : a
 *        vf_bits(vf)->vi  vf_from_bits(vi)->vf            vf_from_int(vi)->vf (RNE)  vf_to_int(vf)->vi (RNE)
 *                                                         vf_to_int: for |x| < 2^31
 *   vm   vf_lt vf_le vf_eq vf_gt vf_ge      ordered: false for NaN
 *        vf_nlt(a,b) = !(a<b)  vf_nge(a,b) = !(a>=b)      true for NaN;    vf_unordered(a,b)
 *        vm_and vm_or vm_andnot(a,b)=!a&b  vm_any vm_all  vm_count (0..16)  vm_first(n): the first n lanes
 *   vi   vi_set vi_add vi_sub vi_mul (wrapping) vi_mulhi(a, b): the high half of the unsigned product
 *        vi_and vi_or vi_xor vi_shl(v, const) vi_shr(v, const) (logical) vi_sar(v, const) (arithmetic)
 *        vi_eq vi_gt (signed) -> vm   vi_select(m,a,b)   vi_load vi_store
 *        vi_less(a, b): -1 where float a < b, else 0      a not NaN; b finite, and -0 if it is 0
 *        vi_add_where(m, a, b) = m ? a + b : a
 *        vi_max_i16 vi_max_u16 vi_min_u16                 of the 32 halves, each by itself
 *        vi_any_eq16(a, b): does any of the 32 halves of a equal that of b?
 *   16 bits  vi_load_u16(p) vi_load_u16_part(p, n): zero-extended, missing lanes 0
 *        vi_store_u16(p, v) vi_store_u16_part(p, n, v): the low 16 bits of each lane
 *        vi_store_upper(p, a, b): the high 16 bits of each lane of a, then of b
 *        vf_from_f16(vi) exact, for lanes 0..65535; vf_to_f16(vf)->vi (0..65535) RNE, subnormals kept; NaN to some NaN
 *   vd   vd_set vd_add vd_sub vd_mul vd_div vd_fma vd_from_vf (exact) vd_to_vf (RNE)  vd_load vd_store
 *        vd_lt(a,b)->vm  vd_select(m,a,b)  vd_trunc(v): towards 0
 *        vd_power_of_two(n) = 2^n, for whole n from -1022 to 1023
 *        vd_exponent(v): floor(log2 v) as a double, for normal v > 0;   vd_mantissa(v): v * 2^-exponent, in [1, 2)
 *        vd_table16(t, v): t[top four mantissa bits of v] per lane; t has 16 doubles, aligned to 64 bytes
 *   across lanes
 *        vf_hadd(v): fold by halves: v[i] += v[i+8], then +4, +2, +1
 *        vf_hmax(v): the same fold with v[i] = vf_max(v[i], v[i+8]); for v without NaN
 *        vf_hmax16(v[16]) / vf_hadd16(v[16]): lane i of the result = vf_hmax / vf_hadd of v[i]
 *        vf_transpose(v[16]): in place, 16 x 16
 *        vf_lane(v, i): one lane (slow) */
#ifndef NAPIER_CORE_SIMD_LANES_H
#define NAPIER_CORE_SIMD_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/simd/device_code.h"

/* The compiler must not turn a * b + c into an fma, whatever its command line
 * says (gcc: -std=c11 or -ffp-contract=off). */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#if NAPIER_DEVICE_CODE
#define NAPIER_INLINE static __device__ __forceinline__
#else
#define NAPIER_INLINE static inline __attribute__((always_inline, unused))
#endif

/* Kernels are specialised by inlining them with constant arguments. That costs minutes and gigabytes of compiling, so
 * it is left out where speed does not matter: in the scalar build (the oracle), unoptimised builds and sanitizers. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define NAPIER_PLAIN_KERNELS
#endif
#endif
#if defined(NAPIER_LANES_SCALAR) || (!defined(__OPTIMIZE__) && !NAPIER_DEVICE_CODE) || \
    defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#undef NAPIER_PLAIN_KERNELS
#define NAPIER_PLAIN_KERNELS
#endif
#if defined(NAPIER_PLAIN_KERNELS)
#define NAPIER_KERNEL static __attribute__((unused))
#define NAPIER_UNROLL
#define NAPIER_UNROLL_ALL
#elif NAPIER_DEVICE_CODE
#define NAPIER_KERNEL NAPIER_INLINE
#define NAPIER_UNROLL _Pragma("unroll")
#define NAPIER_UNROLL_ALL NAPIER_UNROLL
#else
#define NAPIER_KERNEL NAPIER_INLINE
#if defined(__clang__)
#define NAPIER_UNROLL                                        /* clang unrolls by itself, ... */
#define NAPIER_UNROLL_ALL _Pragma("clang loop unroll(full)") /* ... but keeps a tile of 24 registers in memory */
#else
#define NAPIER_UNROLL _Pragma("GCC unroll 16")
#define NAPIER_UNROLL_ALL NAPIER_UNROLL
#endif
#endif

/* A kernel that a table points to. Files that include it for the functions that it shares leave it unused. */
#define NAPIER_SLOT static __attribute__((unused))

#if defined(NAPIER_LANES_AVX512)
#include "core/simd/avx512.h"
#elif defined(NAPIER_LANES_AVX2)
#include "core/simd/avx2.h"
#elif defined(NAPIER_LANES_NEON)
#include "core/simd/neon.h"
#elif defined(NAPIER_LANES_SCALAR)
#include "core/simd/scalar.h"
#elif defined(NAPIER_LANES_CUDA)
#include "core/simd/cuda.h" /* one lane, for a thread of a GPU: only operations within a lane */
#else
#error "define one of NAPIER_LANES_SCALAR, NAPIER_LANES_AVX2, NAPIER_LANES_AVX512, NAPIER_LANES_NEON, NAPIER_LANES_CUDA"
#endif

#endif
