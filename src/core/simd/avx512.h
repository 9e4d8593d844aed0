/* core/simd/avx512.h - the virtual vector on AVX-512 (F, BW, DQ, VL): one register; masks are in mask registers.
 * core/simd/lanes.h defines the contract. Comments here only explain why an instruction satisfies it. */
#ifndef NAPIER_CORE_SIMD_AVX512_H
#define NAPIER_CORE_SIMD_AVX512_H

#include <immintrin.h>

/* At -O0 gcc's intrinsics are macros, and gcc warns about their masks here. */
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;
typedef struct vd {
    __m512d lo, hi; /* lanes 0-7, lanes 8-15 */
} vd;

/* The shifts use operators on these types, because the shift intrinsics need a
 * literal count, and a parameter is none at -O0. */
typedef uint32_t simd_u32x16 __attribute__((vector_size(64)));
typedef int32_t simd_i32x16 __attribute__((vector_size(64)));

enum { SIMD_CHAINS = 8 };

/* ---- floats ---------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vf vf_set(const float x) { return _mm512_set1_ps(x); }
NAPIER_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }

NAPIER_INLINE vf vf_add(const vf a, const vf b) { return _mm512_add_ps(a, b); }
NAPIER_INLINE vf vf_sub(const vf a, const vf b) { return _mm512_sub_ps(a, b); }
NAPIER_INLINE vf vf_mul(const vf a, const vf b) { return _mm512_mul_ps(a, b); }
NAPIER_INLINE vf vf_div(const vf a, const vf b) { return _mm512_div_ps(a, b); }
NAPIER_INLINE vf vf_sqrt(const vf a) { return _mm512_sqrt_ps(a); }
NAPIER_INLINE vf vf_fma(const vf a, const vf b, const vf c) { return _mm512_fmadd_ps(a, b, c); }
NAPIER_INLINE vf vf_fnma(const vf a, const vf b, const vf c) { return _mm512_fnmadd_ps(a, b, c); }

/* vmaxps and vminps return the second operand for NaN and for two zeros, exactly as the contract's select does. */
NAPIER_INLINE vf vf_max(const vf x, const vf m) { return _mm512_max_ps(x, m); }
NAPIER_INLINE vf vf_min(const vf x, const vf m) { return _mm512_min_ps(x, m); }

NAPIER_INLINE vf vf_select(const vm m, const vf a, const vf b) { return _mm512_mask_blend_ps(m, b, a); }
NAPIER_INLINE vf vf_keep(const vm m, const vf a) { return _mm512_maskz_mov_ps(m, a); }
NAPIER_INLINE vf vf_add_where(const vm m, const vf a, const vf b) { return _mm512_mask_add_ps(a, m, a, b); }

NAPIER_INLINE vi vf_bits(const vf v) { return _mm512_castps_si512(v); }
NAPIER_INLINE vf vf_from_bits(const vi v) { return _mm512_castsi512_ps(v); }
NAPIER_INLINE vf vf_from_int(const vi v) { return _mm512_cvtepi32_ps(v); }
NAPIER_INLINE vi vf_to_int(const vf v) { return _mm512_cvtps_epi32(v); }

/* ---- masks ----------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vm vf_lt(const vf a, const vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
NAPIER_INLINE vm vf_le(const vf a, const vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
NAPIER_INLINE vm vf_eq(const vf a, const vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
NAPIER_INLINE vm vf_gt(const vf a, const vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
NAPIER_INLINE vm vf_ge(const vf a, const vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
NAPIER_INLINE vm vf_nlt(const vf a, const vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
NAPIER_INLINE vm vf_nge(const vf a, const vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_NGE_UQ); }
NAPIER_INLINE vm vf_unordered(const vf a, const vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }

NAPIER_INLINE vm vm_and(const vm a, const vm b) { return _kand_mask16(a, b); }
NAPIER_INLINE vm vm_or(const vm a, const vm b) { return _kor_mask16(a, b); }
NAPIER_INLINE vm vm_andnot(const vm a, const vm b) { return _kandn_mask16(a, b); }
NAPIER_INLINE bool vm_any(const vm m) { return !_kortestz_mask16_u8(m, m); }
NAPIER_INLINE bool vm_all(const vm m) { return _kortestc_mask16_u8(m, m); }
NAPIER_INLINE int vm_count(const vm m) { return __builtin_popcount(m); }
NAPIER_INLINE vm vm_first(const int n) { return (vm)_bzhi_u32(0xffff, (unsigned)n); }

/* ---- integers -------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vi vi_set(const int32_t x) { return _mm512_set1_epi32(x); }
NAPIER_INLINE vi vi_add(const vi a, const vi b) { return _mm512_add_epi32(a, b); }
NAPIER_INLINE vi vi_sub(const vi a, const vi b) { return _mm512_sub_epi32(a, b); }
NAPIER_INLINE vi vi_mul(const vi a, const vi b) { return _mm512_mullo_epi32(a, b); }
NAPIER_INLINE vi vi_mulhi(const vi a, const vi b) {
    const vi even = _mm512_srli_epi64(_mm512_mul_epu32(a, b), 32);
    const vi odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
    return _mm512_mask_blend_epi32(0xaaaa, even, odd);
}
NAPIER_INLINE vi vi_xor(const vi a, const vi b) { return _mm512_xor_si512(a, b); }
NAPIER_INLINE vi vi_and(const vi a, const vi b) { return _mm512_and_si512(a, b); }
NAPIER_INLINE vi vi_or(const vi a, const vi b) { return _mm512_or_si512(a, b); }
NAPIER_INLINE vi vi_shl(const vi v, const int n) { return (vi)((simd_u32x16)v << (uint32_t)n); }
NAPIER_INLINE vi vi_shr(const vi v, const int n) { return (vi)((simd_u32x16)v >> (uint32_t)n); }
NAPIER_INLINE vi vi_sar(const vi v, const int n) { return (vi)((simd_i32x16)v >> n); }
NAPIER_INLINE vm vi_eq(const vi a, const vi b) { return _mm512_cmpeq_epi32_mask(a, b); }
NAPIER_INLINE vm vi_gt(const vi a, const vi b) { return _mm512_cmpgt_epi32_mask(a, b); }
NAPIER_INLINE vi vi_select(const vm m, const vi a, const vi b) { return _mm512_mask_blend_epi32(m, b, a); }
/* The sign of a - b: a compare into a mask would block the FMA pipes of AMD's cores. */
NAPIER_INLINE vi vi_less(const vf a, const vf b) { return vi_sar(vf_bits(vf_sub(a, b)), 31); }
NAPIER_INLINE vi vi_add_where(const vm m, const vi a, const vi b) { return _mm512_mask_add_epi32(a, m, a, b); }
NAPIER_INLINE vi vi_max_i16(const vi a, const vi b) { return _mm512_max_epi16(a, b); }
NAPIER_INLINE vi vi_max_u16(const vi a, const vi b) { return _mm512_max_epu16(a, b); }
NAPIER_INLINE vi vi_min_u16(const vi a, const vi b) { return _mm512_min_epu16(a, b); }
NAPIER_INLINE bool vi_any_eq16(const vi a, const vi b) {
    const __mmask32 equal = _mm512_cmpeq_epi16_mask(a, b);
    return !_kortestz_mask32_u8(equal, equal);
}
NAPIER_INLINE vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
NAPIER_INLINE void vi_store(int32_t *p, const vi v) { _mm512_storeu_si512(p, v); }

/* ---- memory ---------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
NAPIER_INLINE void vf_store(float *p, const vf v) { _mm512_storeu_ps(p, v); }
NAPIER_INLINE vf vf_load_halves(const float *p, const float *q) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(q), 1);
}
NAPIER_INLINE void vf_store_halves(float *p, float *q, const vf v) {
    _mm256_storeu_ps(p, _mm512_castps512_ps256(v));
    _mm256_storeu_ps(q, _mm512_extractf32x8_ps(v, 1));
}
NAPIER_INLINE vf vf_gather(const float *p, const vi index) { return _mm512_i32gather_ps(index, p, 4); }
/* Each pair is loaded as one double. Plain loads take a third of the time of a gather. */
NAPIER_INLINE __m256d simd_pairs4(const float *p, const uint32_t *at) {
    double d[4];
    for (int i = 0; i < 4; i++) {
        memcpy(&d[i], p + 2 * (size_t)at[i], sizeof d[i]);
    }
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_set_pd(d[1], d[0])), _mm_set_pd(d[3], d[2]), 1);
}
NAPIER_INLINE __m512 simd_pairs8(const float *p, const uint32_t *at) {
    const __m512d lo = _mm512_castpd256_pd512(simd_pairs4(p, at));
    return _mm512_castpd_ps(_mm512_insertf64x4(lo, simd_pairs4(p, at + 4), 1));
}
NAPIER_INLINE void vf_load_pairs(const float *p, const uint32_t *at, vf *a, vf *b) {
    const __m512 lo = simd_pairs8(p, at), hi = simd_pairs8(p, at + 8);
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *a = _mm512_permutex2var_ps(lo, even, hi);
    *b = _mm512_permutex2var_ps(lo, _mm512_or_si512(even, _mm512_set1_epi32(1)), hi);
}
NAPIER_INLINE vf vf_hold(vf v) {
    __asm__("" : "+v"(v));
    return v;
}
NAPIER_INLINE void vf_stream(float *p, const vf v) { _mm512_stream_ps(p, v); }
NAPIER_INLINE void vf_stream_fence(void) { _mm_sfence(); }

/* Masked accesses do not touch the lanes that are left out, and do not fault on them. */
NAPIER_INLINE vf vf_load_part(const float *p, const int n, const vf fill) {
    return _mm512_mask_loadu_ps(fill, vm_first(n), p);
}
NAPIER_INLINE void vf_store_part(float *p, const int n, const vf v) { _mm512_mask_storeu_ps(p, vm_first(n), v); }

NAPIER_INLINE vi vi_load_u16(const uint16_t *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
NAPIER_INLINE vi vi_load_u16_part(const uint16_t *p, const int n) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vm_first(n), p));
}
NAPIER_INLINE void vi_store_u16(uint16_t *p, const vi v) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(v));
}
NAPIER_INLINE void vi_store_upper(uint16_t *p, const vi a, const vi b) {
    static const uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                     33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    _mm512_storeu_si512(p, _mm512_permutex2var_epi16(a, _mm512_loadu_si512(odd), b));
}
NAPIER_INLINE void vi_store_u16_part(uint16_t *p, const int n, const vi v) {
    _mm256_mask_storeu_epi16(p, vm_first(n), _mm512_cvtepi32_epi16(v));
}

NAPIER_INLINE vf vf_from_f16(const vi v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
NAPIER_INLINE vi vf_to_f16(const vf v) {
    return _mm512_cvtepu16_epi32(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* ---- doubles --------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vd vd_set(const double x) { return (vd){_mm512_set1_pd(x), _mm512_set1_pd(x)}; }
NAPIER_INLINE vd vd_add(const vd a, const vd b) { return (vd){_mm512_add_pd(a.lo, b.lo), _mm512_add_pd(a.hi, b.hi)}; }
NAPIER_INLINE vd vd_sub(const vd a, const vd b) { return (vd){_mm512_sub_pd(a.lo, b.lo), _mm512_sub_pd(a.hi, b.hi)}; }
NAPIER_INLINE vd vd_mul(const vd a, const vd b) { return (vd){_mm512_mul_pd(a.lo, b.lo), _mm512_mul_pd(a.hi, b.hi)}; }
NAPIER_INLINE vd vd_div(const vd a, const vd b) { return (vd){_mm512_div_pd(a.lo, b.lo), _mm512_div_pd(a.hi, b.hi)}; }
NAPIER_INLINE vd vd_fma(const vd a, const vd b, const vd c) {
    return (vd){_mm512_fmadd_pd(a.lo, b.lo, c.lo), _mm512_fmadd_pd(a.hi, b.hi, c.hi)};
}

NAPIER_INLINE vd vd_from_vf(const vf v) {
    return (vd){_mm512_cvtps_pd(_mm512_castps512_ps256(v)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1))};
}
NAPIER_INLINE vf vd_to_vf(const vd v) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(v.lo)), _mm512_cvtpd_ps(v.hi), 1);
}
NAPIER_INLINE vd vd_load(const double *p) { return (vd){_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)}; }
NAPIER_INLINE void vd_store(double *p, const vd v) {
    _mm512_storeu_pd(p, v.lo);
    _mm512_storeu_pd(p + 8, v.hi);
}

NAPIER_INLINE vm vd_lt(const vd a, const vd b) {
    return _mm512_kunpackb(_mm512_cmp_pd_mask(a.hi, b.hi, _CMP_LT_OQ), _mm512_cmp_pd_mask(a.lo, b.lo, _CMP_LT_OQ));
}
NAPIER_INLINE vd vd_select(const vm m, const vd a, const vd b) {
    return (vd){_mm512_mask_blend_pd((__mmask8)m, b.lo, a.lo), _mm512_mask_blend_pd((__mmask8)(m >> 8), b.hi, a.hi)};
}

NAPIER_INLINE vd vd_trunc(const vd v) {
    return (vd){_mm512_roundscale_pd(v.lo, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC),
                _mm512_roundscale_pd(v.hi, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
}
/* The low bits of 2^52 + 1023 + n are the exponent field. */
NAPIER_INLINE __m512d simd_power_of_two(const __m512d n) {
    const __m512i biased = _mm512_castpd_si512(_mm512_add_pd(n, _mm512_set1_pd(0x1p52 + 1023)));
    return _mm512_castsi512_pd(_mm512_slli_epi64(biased, 52));
}
NAPIER_INLINE vd vd_power_of_two(const vd n) { return (vd){simd_power_of_two(n.lo), simd_power_of_two(n.hi)}; }

NAPIER_INLINE vd vd_exponent(const vd v) { return (vd){_mm512_getexp_pd(v.lo), _mm512_getexp_pd(v.hi)}; }
NAPIER_INLINE vd vd_mantissa(const vd v) {
    return (vd){_mm512_getmant_pd(v.lo, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src),
                _mm512_getmant_pd(v.hi, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src)};
}

/* The permute reads only the four lowest bits of an index, so no mask is needed. */
NAPIER_INLINE vd vd_table16(const double *t, const vd v) {
    const __m512d low = _mm512_load_pd(t), high = _mm512_load_pd(t + 8);
    const __m512i i = _mm512_srli_epi64(_mm512_castpd_si512(v.lo), 48);
    const __m512i j = _mm512_srli_epi64(_mm512_castpd_si512(v.hi), 48);
    return (vd){_mm512_permutex2var_pd(low, i, high), _mm512_permutex2var_pd(low, j, high)};
}

/* ---- across lanes ---------------------------------------------------------------------------------------------- */

NAPIER_INLINE float vf_lane(const vf v, const int i) {
    float lanes[16];
    vf_store(lanes, v);
    return lanes[i];
}

NAPIER_INLINE float vf_hmax(const vf v) {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
NAPIER_INLINE float vf_hadd(const vf v) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* Sixteen folds at once. Each step folds two registers into one: it puts the lower halves of the vectors into one
 * register and the upper halves into another, and adds them (or takes the maximum). That makes fifteen steps of two
 * shuffles. The pairs of vectors are chosen so that the result of vector i ends in lane i. */
NAPIER_INLINE vf simd_fold(const bool add, const vf lower, const vf upper) {
    return add ? vf_add(lower, upper) : vf_max(lower, upper);
}
NAPIER_INLINE vf simd_fold8(const bool add, const vf a, const vf b) { /* -> 8 of a, 8 of b */
    return simd_fold(add, _mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
NAPIER_INLINE vf simd_fold4(const bool add, const vf a, const vf b) { /* -> 4 of each of four vectors */
    return simd_fold(add, _mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
NAPIER_INLINE vf simd_fold2(const bool add, const vf a, const vf b) { /* -> in each 128 bits, 2 of a and 2 of b */
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return simd_fold(add, _mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
NAPIER_INLINE vf simd_fold1(const bool add, const vf a, const vf b) {
    return simd_fold(add, _mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}
NAPIER_INLINE vf simd_fold_column(const bool add, const vf *v) { /* v[0], v[4], v[8], v[12] -> 4 lanes of each */
    return simd_fold4(add, simd_fold8(add, v[0], v[4]), simd_fold8(add, v[8], v[12]));
}
NAPIER_INLINE vf simd_fold_all(const bool add, const vf *v) {
    const vf a = simd_fold2(add, simd_fold_column(add, v), simd_fold_column(add, v + 1));
    const vf b = simd_fold2(add, simd_fold_column(add, v + 2), simd_fold_column(add, v + 3));
    return simd_fold1(add, a, b);
}
NAPIER_INLINE vf vf_hmax16(const vf v[16]) { return simd_fold_all(false, v); }
NAPIER_INLINE vf vf_hadd16(const vf v[16]) { return simd_fold_all(true, v); }

/* The transpose in two rounds of 32 shuffles: first the 4 x 4 blocks of floats inside the 128-bit lanes of four
 * neighbouring rows, then the 128-bit lanes themselves of rows four apart. */
NAPIER_INLINE void simd_transpose_floats(vf *a, vf *b, vf *c, vf *d) {
    const __m512d ab_lo = _mm512_castps_pd(_mm512_unpacklo_ps(*a, *b)); /* a0 b0 a1 b1 */
    const __m512d ab_hi = _mm512_castps_pd(_mm512_unpackhi_ps(*a, *b)); /* a2 b2 a3 b3 */
    const __m512d cd_lo = _mm512_castps_pd(_mm512_unpacklo_ps(*c, *d));
    const __m512d cd_hi = _mm512_castps_pd(_mm512_unpackhi_ps(*c, *d));
    *a = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_lo, cd_lo)); /* a0 b0 c0 d0 */
    *b = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_lo, cd_lo));
    *c = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_hi, cd_hi));
    *d = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_hi, cd_hi));
}
NAPIER_INLINE void simd_transpose_quads(vf *a, vf *b, vf *c, vf *d) {
    const vf ab_lo = _mm512_shuffle_f32x4(*a, *b, 0x44); /* a0 a1 b0 b1 */
    const vf ab_hi = _mm512_shuffle_f32x4(*a, *b, 0xee); /* a2 a3 b2 b3 */
    const vf cd_lo = _mm512_shuffle_f32x4(*c, *d, 0x44);
    const vf cd_hi = _mm512_shuffle_f32x4(*c, *d, 0xee);
    *a = _mm512_shuffle_f32x4(ab_lo, cd_lo, 0x88); /* a0 b0 c0 d0 */
    *b = _mm512_shuffle_f32x4(ab_lo, cd_lo, 0xdd);
    *c = _mm512_shuffle_f32x4(ab_hi, cd_hi, 0x88);
    *d = _mm512_shuffle_f32x4(ab_hi, cd_hi, 0xdd);
}
NAPIER_INLINE void vf_transpose(vf v[16]) {
    simd_transpose_floats(&v[0], &v[1], &v[2], &v[3]);
    simd_transpose_floats(&v[4], &v[5], &v[6], &v[7]);
    simd_transpose_floats(&v[8], &v[9], &v[10], &v[11]);
    simd_transpose_floats(&v[12], &v[13], &v[14], &v[15]);
    simd_transpose_quads(&v[0], &v[4], &v[8], &v[12]);
    simd_transpose_quads(&v[1], &v[5], &v[9], &v[13]);
    simd_transpose_quads(&v[2], &v[6], &v[10], &v[14]);
    simd_transpose_quads(&v[3], &v[7], &v[11], &v[15]);
}

#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif
