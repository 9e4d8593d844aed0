/* ops/linear/bf16_step.h - the instruction vdpbf16ps, for the files that multiply with it (ops/linear/bf16_pairs.h).
 *
 * With NAPIER_BF16_PAIRS_EMULATED two fmas take its place, so that these files are tested on any machine with AVX-512. */
#ifndef NAPIER_OPS_LINEAR_BF16_STEP_H
#define NAPIER_OPS_LINEAR_BF16_STEP_H

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 10)
#define NAPIER_HAS_BF16_PAIRS 1
#else
#define NAPIER_HAS_BF16_PAIRS 0
#endif

#if NAPIER_HAS_BF16_PAIRS
#include <immintrin.h>

#define NAPIER_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt"
#ifdef NAPIER_BF16_PAIRS_EMULATED
#define NAPIER_PAIRS __attribute__((target(NAPIER_AVX512)))
#else
#define NAPIER_PAIRS __attribute__((target(NAPIER_AVX512 ",avx512bf16")))
#endif
#define NAPIER_PAIRS_KERNEL NAPIER_PAIRS __attribute__((always_inline)) static inline
#if !defined(__clang__)
#define UNROLL _Pragma("GCC unroll 16")
#elif __has_feature(address_sanitizer)
#define UNROLL /* with the sanitizer's checks that takes a minute */
#else
#define UNROLL _Pragma("clang loop unroll(full)")
#endif

/* Of each four elements, in memory order, makes the pairs (2, 0) and (3, 1), the low half first. */
NAPIER_PAIRS_KERNEL __m512i turn_pairs(__m512i x) {
    return _mm512_shuffle_epi8(x, _mm512_set4_epi32(0x0b0a0f0e, 0x09080d0c, 0x03020706, 0x01000504));
}

/* sum + the products of the high halves, then of the low halves. */
NAPIER_PAIRS_KERNEL __m512 add_pairs(__m512 sum, __m512i x, __m512i y) {
#ifdef NAPIER_BF16_PAIRS_EMULATED
    const __m512i high = _mm512_set1_epi32(-65536);
    const __m512 x_high = _mm512_castsi512_ps(_mm512_and_si512(x, high));
    const __m512 x_low = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    sum = _mm512_fmadd_ps(x_high, _mm512_castsi512_ps(_mm512_and_si512(y, high)), sum);
    return _mm512_fmadd_ps(x_low, _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), sum);
#else
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
#endif
}
#endif

#endif
