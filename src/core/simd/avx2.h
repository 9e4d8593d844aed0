/* core/simd/avx2.h - the virtual vector on AVX2 (with FMA and F16C): two registers; masks are full-width lanes of ones
 * and zeros. core/simd/lanes.h defines the contract. Comments here only explain why an instruction satisfies it. */
#ifndef NAPIER_CORE_SIMD_AVX2_H
#define NAPIER_CORE_SIMD_AVX2_H

#include <immintrin.h>
#include <stdbool.h>

typedef struct vf {
    __m256 lo, hi; /* lanes 0-7, lanes 8-15 */
} vf;
typedef struct vi {
    __m256i lo, hi;
} vi;
typedef struct vm {
    __m256 lo, hi;
} vm;
typedef struct vd {
    __m256d v[4]; /* lanes 0-3, 4-7, 8-11, 12-15 */
} vd;

/* The shifts use operators on these types, because the shift intrinsics need a
 * literal count, and a parameter is none at -O0. */
typedef uint32_t simd_u32x8 __attribute__((vector_size(32)));
typedef int32_t simd_i32x8 __attribute__((vector_size(32)));

/* Applies f to both halves. */
#define SIMD_HALVES(f, a, b) \
    { f((a).lo, (b).lo), f((a).hi, (b).hi) }
#define SIMD_HALVES3(f, a, b, c) \
    { f((a).lo, (b).lo, (c).lo), f((a).hi, (b).hi, (c).hi) }

enum { SIMD_CHAINS = 4 };

/* ---- floats ---------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vf vf_set(const float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
NAPIER_INLINE vf vf_zero(void) { return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()}; }

NAPIER_INLINE vf vf_add(const vf a, const vf b) { return (vf)SIMD_HALVES(_mm256_add_ps, a, b); }
NAPIER_INLINE vf vf_sub(const vf a, const vf b) { return (vf)SIMD_HALVES(_mm256_sub_ps, a, b); }
NAPIER_INLINE vf vf_mul(const vf a, const vf b) { return (vf)SIMD_HALVES(_mm256_mul_ps, a, b); }
NAPIER_INLINE vf vf_div(const vf a, const vf b) { return (vf)SIMD_HALVES(_mm256_div_ps, a, b); }
NAPIER_INLINE vf vf_sqrt(const vf a) { return (vf){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
NAPIER_INLINE vf vf_fma(const vf a, const vf b, const vf c) { return (vf)SIMD_HALVES3(_mm256_fmadd_ps, a, b, c); }
NAPIER_INLINE vf vf_fnma(const vf a, const vf b, const vf c) { return (vf)SIMD_HALVES3(_mm256_fnmadd_ps, a, b, c); }

/* vmaxps and vminps return the second operand for NaN and for two zeros, exactly as the contract's select does. */
NAPIER_INLINE vf vf_max(const vf x, const vf m) { return (vf)SIMD_HALVES(_mm256_max_ps, x, m); }
NAPIER_INLINE vf vf_min(const vf x, const vf m) { return (vf)SIMD_HALVES(_mm256_min_ps, x, m); }

NAPIER_INLINE vf vf_select(const vm m, const vf a, const vf b) { return (vf)SIMD_HALVES3(_mm256_blendv_ps, b, a, m); }
NAPIER_INLINE vf vf_keep(const vm m, const vf a) { return (vf)SIMD_HALVES(_mm256_and_ps, m, a); }
NAPIER_INLINE vf vf_add_where(const vm m, const vf a, const vf b) { return vf_select(m, vf_add(a, b), a); }

NAPIER_INLINE vi vf_bits(const vf v) { return (vi){_mm256_castps_si256(v.lo), _mm256_castps_si256(v.hi)}; }
NAPIER_INLINE vf vf_from_bits(const vi v) { return (vf){_mm256_castsi256_ps(v.lo), _mm256_castsi256_ps(v.hi)}; }
NAPIER_INLINE vf vf_from_int(const vi v) { return (vf){_mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi)}; }
NAPIER_INLINE vi vf_to_int(const vf v) { return (vi){_mm256_cvtps_epi32(v.lo), _mm256_cvtps_epi32(v.hi)}; }

/* ---- masks ----------------------------------------------------------------------------------------------------- */

#define SIMD_COMPARE(a, b, how) ((vm){_mm256_cmp_ps((a).lo, (b).lo, how), _mm256_cmp_ps((a).hi, (b).hi, how)})

NAPIER_INLINE vm vf_lt(const vf a, const vf b) { return SIMD_COMPARE(a, b, _CMP_LT_OQ); }
NAPIER_INLINE vm vf_le(const vf a, const vf b) { return SIMD_COMPARE(a, b, _CMP_LE_OQ); }
NAPIER_INLINE vm vf_eq(const vf a, const vf b) { return SIMD_COMPARE(a, b, _CMP_EQ_OQ); }
NAPIER_INLINE vm vf_gt(const vf a, const vf b) { return SIMD_COMPARE(a, b, _CMP_GT_OQ); }
NAPIER_INLINE vm vf_ge(const vf a, const vf b) { return SIMD_COMPARE(a, b, _CMP_GE_OQ); }
NAPIER_INLINE vm vf_nlt(const vf a, const vf b) { return SIMD_COMPARE(a, b, _CMP_NLT_UQ); }
NAPIER_INLINE vm vf_nge(const vf a, const vf b) { return SIMD_COMPARE(a, b, _CMP_NGE_UQ); }
NAPIER_INLINE vm vf_unordered(const vf a, const vf b) { return SIMD_COMPARE(a, b, _CMP_UNORD_Q); }

#undef SIMD_COMPARE

NAPIER_INLINE vm vm_and(const vm a, const vm b) { return (vm)SIMD_HALVES(_mm256_and_ps, a, b); }
NAPIER_INLINE vm vm_or(const vm a, const vm b) { return (vm)SIMD_HALVES(_mm256_or_ps, a, b); }
NAPIER_INLINE vm vm_andnot(const vm a, const vm b) { return (vm)SIMD_HALVES(_mm256_andnot_ps, a, b); }
NAPIER_INLINE bool vm_any(const vm m) { return _mm256_movemask_ps(_mm256_or_ps(m.lo, m.hi)) != 0; }
NAPIER_INLINE bool vm_all(const vm m) { return _mm256_movemask_ps(_mm256_and_ps(m.lo, m.hi)) == 0xff; }
NAPIER_INLINE int vm_count(const vm m) {
    return __builtin_popcount((unsigned)_mm256_movemask_ps(m.lo) << 8 | (unsigned)_mm256_movemask_ps(m.hi));
}
NAPIER_INLINE vm vm_first(const int n) {
    const __m256i count = _mm256_set1_epi32(n);
    const __m256i lo = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), hi = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
    return (vm){_mm256_castsi256_ps(_mm256_cmpgt_epi32(count, lo)), _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, hi))};
}

/* ---- integers -------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vi vi_set(const int32_t x) { return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
NAPIER_INLINE vi vi_add(const vi a, const vi b) { return (vi)SIMD_HALVES(_mm256_add_epi32, a, b); }
NAPIER_INLINE vi vi_sub(const vi a, const vi b) { return (vi)SIMD_HALVES(_mm256_sub_epi32, a, b); }
NAPIER_INLINE vi vi_mul(const vi a, const vi b) { return (vi)SIMD_HALVES(_mm256_mullo_epi32, a, b); }
NAPIER_INLINE __m256i simd_mulhi(const __m256i a, const __m256i b) {
    const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    return _mm256_blend_epi32(even, odd, 0xaa);
}
NAPIER_INLINE vi vi_mulhi(const vi a, const vi b) { return (vi)SIMD_HALVES(simd_mulhi, a, b); }
NAPIER_INLINE vi vi_xor(const vi a, const vi b) { return (vi)SIMD_HALVES(_mm256_xor_si256, a, b); }
NAPIER_INLINE vi vi_and(const vi a, const vi b) { return (vi)SIMD_HALVES(_mm256_and_si256, a, b); }
NAPIER_INLINE vi vi_or(const vi a, const vi b) { return (vi)SIMD_HALVES(_mm256_or_si256, a, b); }
NAPIER_INLINE vi vi_shl(const vi v, const int n) {
    return (vi){(__m256i)((simd_u32x8)v.lo << (uint32_t)n), (__m256i)((simd_u32x8)v.hi << (uint32_t)n)};
}
NAPIER_INLINE vi vi_shr(const vi v, const int n) {
    return (vi){(__m256i)((simd_u32x8)v.lo >> (uint32_t)n), (__m256i)((simd_u32x8)v.hi >> (uint32_t)n)};
}
NAPIER_INLINE vi vi_sar(const vi v, const int n) {
    return (vi){(__m256i)((simd_i32x8)v.lo >> n), (__m256i)((simd_i32x8)v.hi >> n)};
}
NAPIER_INLINE vm vi_eq(const vi a, const vi b) {
    return (vm){_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.lo, b.lo)),
                _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.hi, b.hi))};
}
NAPIER_INLINE vm vi_gt(const vi a, const vi b) {
    return (vm){_mm256_castsi256_ps(_mm256_cmpgt_epi32(a.lo, b.lo)),
                _mm256_castsi256_ps(_mm256_cmpgt_epi32(a.hi, b.hi))};
}
NAPIER_INLINE vi vi_max_i16(const vi a, const vi b) { return (vi)SIMD_HALVES(_mm256_max_epi16, a, b); }
NAPIER_INLINE vi vi_max_u16(const vi a, const vi b) { return (vi)SIMD_HALVES(_mm256_max_epu16, a, b); }
NAPIER_INLINE vi vi_min_u16(const vi a, const vi b) { return (vi)SIMD_HALVES(_mm256_min_epu16, a, b); }
NAPIER_INLINE bool vi_any_eq16(const vi a, const vi b) {
    const __m256i lo = _mm256_cmpeq_epi16(a.lo, b.lo), hi = _mm256_cmpeq_epi16(a.hi, b.hi);
    return _mm256_movemask_epi8(_mm256_or_si256(lo, hi)) != 0;
}
NAPIER_INLINE vi vi_select(const vm m, const vi a, const vi b) {
    return vf_bits(vf_select(m, vf_from_bits(a), vf_from_bits(b)));
}
NAPIER_INLINE vi vi_less(const vf a, const vf b) {
    const vm less = vf_lt(a, b);
    return (vi){_mm256_castps_si256(less.lo), _mm256_castps_si256(less.hi)};
}
NAPIER_INLINE vi vi_add_where(const vm m, const vi a, const vi b) { return vi_select(m, vi_add(a, b), a); }
NAPIER_INLINE vi vi_load(const int32_t *p) {
    return (vi){_mm256_loadu_si256((const __m256i *)(const void *)p),
                _mm256_loadu_si256((const __m256i *)(const void *)(p + 8))};
}
NAPIER_INLINE void vi_store(int32_t *p, const vi v) {
    _mm256_storeu_si256((__m256i *)(void *)p, v.lo);
    _mm256_storeu_si256((__m256i *)(void *)(p + 8), v.hi);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vf vf_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
NAPIER_INLINE void vf_store(float *p, const vf v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}
NAPIER_INLINE vf vf_load_halves(const float *p, const float *q) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(q)}; }
NAPIER_INLINE void vf_store_halves(float *p, float *q, const vf v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(q, v.hi);
}
NAPIER_INLINE vf vf_gather(const float *p, const vi index) {
    return (vf){_mm256_i32gather_ps(p, index.lo, 4), _mm256_i32gather_ps(p, index.hi, 4)};
}
/* Each pair is loaded as one double. Plain loads take a third of the time of a gather. */
NAPIER_INLINE __m256 simd_pairs4(const float *p, const uint32_t *at) {
    double d[4];
    for (int i = 0; i < 4; i++) {
        memcpy(&d[i], p + 2 * (size_t)at[i], sizeof d[i]);
    }
    return _mm256_castpd_ps(
        _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_set_pd(d[1], d[0])), _mm_set_pd(d[3], d[2]), 1));
}
NAPIER_INLINE void simd_load_pairs(const float *p, const uint32_t *at, __m256 *a, __m256 *b) {
    const __m256 lo = simd_pairs4(p, at), hi = simd_pairs4(p, at + 4);
    const __m256 x = _mm256_permute2f128_ps(lo, hi, 0x20), y = _mm256_permute2f128_ps(lo, hi, 0x31);
    *a = _mm256_shuffle_ps(x, y, 0x88);
    *b = _mm256_shuffle_ps(x, y, 0xdd);
}
NAPIER_INLINE void vf_load_pairs(const float *p, const uint32_t *at, vf *a, vf *b) {
    simd_load_pairs(p, at, &a->lo, &b->lo);
    simd_load_pairs(p, at + 8, &a->hi, &b->hi);
}
NAPIER_INLINE vf vf_hold(vf v) {
    __asm__("" : "+x"(v.lo), "+x"(v.hi));
    return v;
}
NAPIER_INLINE void vf_stream(float *p, const vf v) {
    _mm256_stream_ps(p, v.lo);
    _mm256_stream_ps(p + 8, v.hi);
}
NAPIER_INLINE void vf_stream_fence(void) { _mm_sfence(); }

/* Masked loads do not fault on the lanes that are left out. Masked stores are slow on many CPUs, so a part is
 * stored in pieces whose sizes are powers of two. (p + 8 may lie beyond the end of the array, so it is
 * computed only if lanes there are needed.) */
NAPIER_INLINE vf vf_load_part(const float *p, const int n, const vf fill) {
    const vm m = vm_first(n);
    const __m256 lo = _mm256_maskload_ps(p, _mm256_castps_si256(m.lo));
    const __m256 hi = n > 8 ? _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.hi)) : fill.hi;
    return vf_select(m, (vf){lo, hi}, fill);
}
NAPIER_INLINE void vf_store_part(float *p, const int n, const vf v) {
    if (n >= 16) {
        vf_store(p, v);
        return;
    }
    __m256 eight = v.lo;
    if (n & 8) {
        _mm256_storeu_ps(p, eight);
        eight = v.hi;
    }
    __m128 four = _mm256_castps256_ps128(eight);
    if (n & 4) {
        _mm_storeu_ps(p + (n & 8), four);
        four = _mm256_extractf128_ps(eight, 1);
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)(void *)(p + (n & 12)), four);
        four = _mm_movehl_ps(four, four);
    }
    if (n & 1)
        _mm_store_ss(p + (n & 14), four);
}

NAPIER_INLINE vi vi_load_u16(const uint16_t *p) {
    return (vi){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)),
                _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))};
}
/* The pairs by a masked load of 32-bit lanes, then an odd last element. */
NAPIER_INLINE vi vi_load_u16_part(const uint16_t *p, const int n) {
    const __m256i pairs = _mm256_cmpgt_epi32(_mm256_set1_epi32(n / 2), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i v = _mm256_maskload_epi32((const int *)(const void *)p, pairs);
    if (n & 1) {
        const __m256i lanes = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m256i last = _mm256_cmpeq_epi16(lanes, _mm256_set1_epi16((int16_t)(n - 1)));
        v = _mm256_blendv_epi8(v, _mm256_set1_epi16((int16_t)p[n - 1]), last);
    }
    return (vi){_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),
                _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1))};
}

/* The low 16 bits of each lane, as 16 numbers in order. */
NAPIER_INLINE __m256i simd_narrow(const vi v) {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i packed =
        _mm256_packus_epi32(_mm256_blend_epi16(v.lo, zero, 0xaa), _mm256_blend_epi16(v.hi, zero, 0xaa));
    return _mm256_permute4x64_epi64(packed, 0xd8); /* the pack works within 128 bits; permute 0 2 1 3 -> 0 1 2 3 */
}
NAPIER_INLINE void vi_store_u16(uint16_t *p, const vi v) { _mm256_storeu_si256((__m256i *)(void *)p, simd_narrow(v)); }
NAPIER_INLINE void vi_store_upper(uint16_t *p, const vi a, const vi b) {
    vi_store_u16(p, vi_shr(a, 16));
    vi_store_u16(p + 16, vi_shr(b, 16));
}
NAPIER_INLINE void vi_store_u16_part(uint16_t *p, const int n, const vi v) {
    const __m256i all = simd_narrow(v);
    if (n >= 16) {
        _mm256_storeu_si256((__m256i *)(void *)p, all);
        return;
    }
    __m128i rest = _mm256_castsi256_si128(all);
    if (n & 8) {
        _mm_storeu_si128((__m128i *)(void *)p, rest);
        rest = _mm256_extracti128_si256(all, 1);
    }
    if (n & 4) {
        _mm_storel_epi64((__m128i *)(void *)(p + (n & 8)), rest);
        rest = _mm_unpackhi_epi64(rest, rest);
    }
    if (n & 2) {
        const int32_t two = _mm_cvtsi128_si32(rest);
        memcpy(p + (n & 12), &two, sizeof two);
        rest = _mm_srli_epi64(rest, 32);
    }
    if (n & 1)
        p[n & 14] = (uint16_t)_mm_cvtsi128_si32(rest);
}

NAPIER_INLINE vf vf_from_f16(const vi v) {
    const __m256i halves = simd_narrow(v);
    return (vf){_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
NAPIER_INLINE vi vf_to_f16(const vf v) {
    return (vi){_mm256_cvtepu16_epi32(_mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)),
                _mm256_cvtepu16_epi32(_mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}

#undef SIMD_HALVES
#undef SIMD_HALVES3

/* ---- doubles --------------------------------------------------------------------------------------------------- */

/* Applies f to each quarter. Written out instead of a loop, so that the compiler keeps the quarters in registers. */
#define SIMD_EACH(f, a) ((vd){{f((a).v[0]), f((a).v[1]), f((a).v[2]), f((a).v[3])}})
#define SIMD_EACH2(f, a, b) \
    ((vd){{f((a).v[0], (b).v[0]), f((a).v[1], (b).v[1]), f((a).v[2], (b).v[2]), f((a).v[3], (b).v[3])}})

NAPIER_INLINE vd vd_set(const double x) {
    const __m256d v = _mm256_set1_pd(x);
    return (vd){{v, v, v, v}};
}
NAPIER_INLINE vd vd_add(const vd a, const vd b) { return SIMD_EACH2(_mm256_add_pd, a, b); }
NAPIER_INLINE vd vd_sub(const vd a, const vd b) { return SIMD_EACH2(_mm256_sub_pd, a, b); }
NAPIER_INLINE vd vd_mul(const vd a, const vd b) { return SIMD_EACH2(_mm256_mul_pd, a, b); }
NAPIER_INLINE vd vd_div(const vd a, const vd b) { return SIMD_EACH2(_mm256_div_pd, a, b); }
NAPIER_INLINE vd vd_fma(const vd a, const vd b, const vd c) {
    return (vd){{_mm256_fmadd_pd(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_pd(a.v[1], b.v[1], c.v[1]),
                 _mm256_fmadd_pd(a.v[2], b.v[2], c.v[2]), _mm256_fmadd_pd(a.v[3], b.v[3], c.v[3])}};
}

NAPIER_INLINE vd vd_from_vf(const vf v) {
    return (vd){{_mm256_cvtps_pd(_mm256_castps256_ps128(v.lo)), _mm256_cvtps_pd(_mm256_extractf128_ps(v.lo, 1)),
                 _mm256_cvtps_pd(_mm256_castps256_ps128(v.hi)), _mm256_cvtps_pd(_mm256_extractf128_ps(v.hi, 1))}};
}
NAPIER_INLINE vf vd_to_vf(const vd v) {
    return (vf){_mm256_set_m128(_mm256_cvtpd_ps(v.v[1]), _mm256_cvtpd_ps(v.v[0])),
                _mm256_set_m128(_mm256_cvtpd_ps(v.v[3]), _mm256_cvtpd_ps(v.v[2]))};
}
NAPIER_INLINE vd vd_load(const double *p) {
    return (vd){{_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4), _mm256_loadu_pd(p + 8), _mm256_loadu_pd(p + 12)}};
}
NAPIER_INLINE void vd_store(double *p, const vd v) {
    _mm256_storeu_pd(p, v.v[0]);
    _mm256_storeu_pd(p + 4, v.v[1]);
    _mm256_storeu_pd(p + 8, v.v[2]);
    _mm256_storeu_pd(p + 12, v.v[3]);
}

/* Masks of doubles, 64 bits a lane, from and to masks of floats. */
NAPIER_INLINE __m256 simd_mask_narrow(const __m256d a, const __m256d b) {
    const __m256 evens =
        _mm256_shuffle_ps(_mm256_castpd_ps(a), _mm256_castpd_ps(b), 0x88); /* a0 a1 b0 b1 a2 a3 b2 b3 */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(evens), 0xd8));
}
NAPIER_INLINE __m256d simd_mask_widen(const __m128 m) {
    return _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm_castps_si128(m)));
}
NAPIER_INLINE __m256d simd_less(const __m256d a, const __m256d b) { return _mm256_cmp_pd(a, b, _CMP_LT_OQ); }

NAPIER_INLINE vm vd_lt(const vd a, const vd b) {
    const vd m = SIMD_EACH2(simd_less, a, b);
    return (vm){simd_mask_narrow(m.v[0], m.v[1]), simd_mask_narrow(m.v[2], m.v[3])};
}
NAPIER_INLINE vd vd_select(const vm m, const vd a, const vd b) {
    const __m256d m0 = simd_mask_widen(_mm256_castps256_ps128(m.lo));
    const __m256d m1 = simd_mask_widen(_mm256_extractf128_ps(m.lo, 1));
    const __m256d m2 = simd_mask_widen(_mm256_castps256_ps128(m.hi));
    const __m256d m3 = simd_mask_widen(_mm256_extractf128_ps(m.hi, 1));
    return (vd){{_mm256_blendv_pd(b.v[0], a.v[0], m0), _mm256_blendv_pd(b.v[1], a.v[1], m1),
                 _mm256_blendv_pd(b.v[2], a.v[2], m2), _mm256_blendv_pd(b.v[3], a.v[3], m3)}};
}

/* The exponent field e of a positive number, as the low bits of the double 2^52 + e. To subtract 2^52
 * + 1023 is exact. */
NAPIER_INLINE __m256d simd_exponent(const __m256d v) {
    const __m256i field = _mm256_srli_epi64(_mm256_castpd_si256(v), 52);
    const __m256d biased = _mm256_or_pd(_mm256_castsi256_pd(field), _mm256_set1_pd(0x1p52));
    return _mm256_sub_pd(biased, _mm256_set1_pd(0x1p52 + 1023));
}
NAPIER_INLINE __m256d simd_mantissa(const __m256d v) {
    const __m256d exponent = _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff0000000000000));
    return _mm256_or_pd(_mm256_andnot_pd(exponent, v), _mm256_set1_pd(1.0));
}
NAPIER_INLINE __m256d simd_trunc(const __m256d v) { return _mm256_round_pd(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
/* The low bits of 2^52 + 1023 + n are the exponent field. */
NAPIER_INLINE __m256d simd_power_of_two(const __m256d n) {
    const __m256i biased = _mm256_castpd_si256(_mm256_add_pd(n, _mm256_set1_pd(0x1p52 + 1023)));
    return _mm256_castsi256_pd(_mm256_slli_epi64(biased, 52));
}
NAPIER_INLINE vd vd_trunc(const vd v) { return SIMD_EACH(simd_trunc, v); }
NAPIER_INLINE vd vd_power_of_two(const vd n) { return SIMD_EACH(simd_power_of_two, n); }
NAPIER_INLINE vd vd_exponent(const vd v) { return SIMD_EACH(simd_exponent, v); }
NAPIER_INLINE vd vd_mantissa(const vd v) { return SIMD_EACH(simd_mantissa, v); }

NAPIER_INLINE __m256d simd_table16(const double *t, const __m256d v) {
    const __m256i index = _mm256_and_si256(_mm256_srli_epi64(_mm256_castpd_si256(v), 48), _mm256_set1_epi64x(15));
    return _mm256_i64gather_pd(t, index, 8);
}
NAPIER_INLINE vd vd_table16(const double *t, const vd v) {
    return (vd){{simd_table16(t, v.v[0]), simd_table16(t, v.v[1]), simd_table16(t, v.v[2]), simd_table16(t, v.v[3])}};
}

#undef SIMD_EACH
#undef SIMD_EACH2

/* ---- across lanes ---------------------------------------------------------------------------------------------- */

NAPIER_INLINE float vf_lane(const vf v, const int i) {
    float lanes[16];
    vf_store(lanes, v);
    return lanes[i];
}

NAPIER_INLINE float vf_hmax(const vf v) {
    const __m256 a = _mm256_max_ps(v.lo, v.hi);
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
NAPIER_INLINE float vf_hadd(const vf v) {
    const __m256 a = _mm256_add_ps(v.lo, v.hi);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* Sixteen folds at once. The first halving needs no shuffle: it combines lo with hi. Each later step folds two
 * registers into one: it puts the lower halves of the vectors into one register and the upper halves into another, and
 * adds them (or takes the maximum). The pairs of vectors are chosen so that the result of vector i ends in lane i. */
NAPIER_INLINE __m256 simd_fold(const bool add, const __m256 lower, const __m256 upper) {
    return add ? _mm256_add_ps(lower, upper) : _mm256_max_ps(lower, upper);
}
NAPIER_INLINE __m256 simd_fold4(const bool add, const __m256 a, const __m256 b) { /* -> 4 of a, 4 of b */
    return simd_fold(add, _mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
NAPIER_INLINE __m256 simd_fold2(const bool add, const __m256 a, const __m256 b) { /* -> in each 128 bits, 2 and 2 */
    const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
    return simd_fold(add, _mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
NAPIER_INLINE __m256 simd_fold1(const bool add, const __m256 a, const __m256 b) {
    return simd_fold(add, _mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}
NAPIER_INLINE __m256 simd_fold_column(const bool add, const vf *v) { /* v[0], v[4] -> 4 lanes of each */
    return simd_fold4(add, simd_fold(add, v[0].lo, v[0].hi), simd_fold(add, v[4].lo, v[4].hi));
}
NAPIER_INLINE __m256 simd_fold_eight(const bool add, const vf *v) {
    const __m256 a = simd_fold2(add, simd_fold_column(add, v), simd_fold_column(add, v + 1));
    const __m256 b = simd_fold2(add, simd_fold_column(add, v + 2), simd_fold_column(add, v + 3));
    return simd_fold1(add, a, b);
}
NAPIER_INLINE vf vf_hmax16(const vf v[16]) { return (vf){simd_fold_eight(false, v), simd_fold_eight(false, v + 8)}; }
NAPIER_INLINE vf vf_hadd16(const vf v[16]) { return (vf){simd_fold_eight(true, v), simd_fold_eight(true, v + 8)}; }

/* The transpose: four blocks of 8 x 8, of which the two off the diagonal change places. Within a block,
 * first the 4 x 4 blocks inside the 128-bit lanes of four neighbouring rows are transposed, then the
 * 128-bit lanes of rows four apart are exchanged. */
NAPIER_INLINE void simd_transpose_floats(__m256 *a, __m256 *b, __m256 *c, __m256 *d) {
    const __m256d ab_lo = _mm256_castps_pd(_mm256_unpacklo_ps(*a, *b)); /* a0 b0 a1 b1 */
    const __m256d ab_hi = _mm256_castps_pd(_mm256_unpackhi_ps(*a, *b)); /* a2 b2 a3 b3 */
    const __m256d cd_lo = _mm256_castps_pd(_mm256_unpacklo_ps(*c, *d));
    const __m256d cd_hi = _mm256_castps_pd(_mm256_unpackhi_ps(*c, *d));
    *a = _mm256_castpd_ps(_mm256_unpacklo_pd(ab_lo, cd_lo)); /* a0 b0 c0 d0 */
    *b = _mm256_castpd_ps(_mm256_unpackhi_pd(ab_lo, cd_lo));
    *c = _mm256_castpd_ps(_mm256_unpacklo_pd(ab_hi, cd_hi));
    *d = _mm256_castpd_ps(_mm256_unpackhi_pd(ab_hi, cd_hi));
}
NAPIER_INLINE void simd_transpose_pair(__m256 *a, __m256 *b) {
    const __m256 low = _mm256_permute2f128_ps(*a, *b, 0x20);
    *b = _mm256_permute2f128_ps(*a, *b, 0x31);
    *a = low;
}
NAPIER_INLINE void simd_transpose_block(__m256 *a, __m256 *b, __m256 *c, __m256 *d, __m256 *e, __m256 *f, __m256 *g,
                                        __m256 *h) {
    simd_transpose_floats(a, b, c, d);
    simd_transpose_floats(e, f, g, h);
    simd_transpose_pair(a, e);
    simd_transpose_pair(b, f);
    simd_transpose_pair(c, g);
    simd_transpose_pair(d, h);
}
NAPIER_INLINE void simd_swap(__m256 *a, __m256 *b) {
    const __m256 old = *a;
    *a = *b;
    *b = old;
}
NAPIER_INLINE void vf_transpose(vf v[16]) {
    simd_transpose_block(&v[0].lo, &v[1].lo, &v[2].lo, &v[3].lo, &v[4].lo, &v[5].lo, &v[6].lo, &v[7].lo);
    simd_transpose_block(&v[0].hi, &v[1].hi, &v[2].hi, &v[3].hi, &v[4].hi, &v[5].hi, &v[6].hi, &v[7].hi);
    simd_transpose_block(&v[8].lo, &v[9].lo, &v[10].lo, &v[11].lo, &v[12].lo, &v[13].lo, &v[14].lo, &v[15].lo);
    simd_transpose_block(&v[8].hi, &v[9].hi, &v[10].hi, &v[11].hi, &v[12].hi, &v[13].hi, &v[14].hi, &v[15].hi);
    simd_swap(&v[0].hi, &v[8].lo);
    simd_swap(&v[1].hi, &v[9].lo);
    simd_swap(&v[2].hi, &v[10].lo);
    simd_swap(&v[3].hi, &v[11].lo);
    simd_swap(&v[4].hi, &v[12].lo);
    simd_swap(&v[5].hi, &v[13].lo);
    simd_swap(&v[6].hi, &v[14].lo);
    simd_swap(&v[7].hi, &v[15].lo);
}

#endif
