/* core/simd/neon.h - the virtual vector on NEON (AArch64): four registers; masks are full-width lanes of ones and
 * zeros. core/simd/lanes.h defines the contract. Comments here only explain why an instruction satisfies it. */
#ifndef NAPIER_CORE_SIMD_NEON_H
#define NAPIER_CORE_SIMD_NEON_H

#include <arm_neon.h>
#include <stdbool.h>

#if !defined(__aarch64__)
#error "core/simd/neon.h needs AArch64: 32-bit NEON has neither fma for doubles nor division, and flushes subnormals"
#endif

typedef struct vf {
    float32x4_t v[4]; /* lanes 0-3, 4-7, 8-11, 12-15 */
} vf;
typedef struct vi {
    int32x4_t v[4];
} vi;
typedef struct vm {
    uint32x4_t v[4];
} vm;
typedef struct vd {
    float64x2_t v[8]; /* lanes 0-1, 2-3, ... */
} vd;

/* Applies f to each register. Written out instead of a loop, so that the compiler keeps the parts in registers. */
#define SIMD_EACH(f, a)                                        \
    {                                                          \
        { f((a).v[0]), f((a).v[1]), f((a).v[2]), f((a).v[3]) } \
    }
#define SIMD_EACH2(f, a, b)                                                                            \
    {                                                                                                  \
        { f((a).v[0], (b).v[0]), f((a).v[1], (b).v[1]), f((a).v[2], (b).v[2]), f((a).v[3], (b).v[3]) } \
    }
#define SIMD_EACH3(f, a, b, c)                                                                                 \
    {                                                                                                          \
        {                                                                                                      \
            f((a).v[0], (b).v[0], (c).v[0]), f((a).v[1], (b).v[1], (c).v[1]), f((a).v[2], (b).v[2], (c).v[2]), \
                f((a).v[3], (b).v[3], (c).v[3])                                                                \
        }                                                                                                      \
    }

enum { SIMD_CHAINS = 4 };

/* ---- floats ---------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vf vf_set(const float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return (vf){{v, v, v, v}};
}
NAPIER_INLINE vf vf_zero(void) { return vf_set(0.0f); }

NAPIER_INLINE vf vf_add(const vf a, const vf b) { return (vf)SIMD_EACH2(vaddq_f32, a, b); }
NAPIER_INLINE vf vf_sub(const vf a, const vf b) { return (vf)SIMD_EACH2(vsubq_f32, a, b); }
NAPIER_INLINE vf vf_mul(const vf a, const vf b) { return (vf)SIMD_EACH2(vmulq_f32, a, b); }
NAPIER_INLINE vf vf_div(const vf a, const vf b) { return (vf)SIMD_EACH2(vdivq_f32, a, b); }
NAPIER_INLINE vf vf_sqrt(const vf a) { return (vf)SIMD_EACH(vsqrtq_f32, a); }
/* vfmaq(c, a, b) = c + a * b, vfmsq(c, a, b) = c - a * b */
NAPIER_INLINE vf vf_fma(const vf a, const vf b, const vf c) { return (vf)SIMD_EACH3(vfmaq_f32, c, a, b); }
NAPIER_INLINE vf vf_fnma(const vf a, const vf b, const vf c) { return (vf)SIMD_EACH3(vfmsq_f32, c, a, b); }

/* Not vmaxq and vminq, which return NaN for any NaN and order the zeros. */
NAPIER_INLINE float32x4_t simd_max(const float32x4_t x, const float32x4_t m) {
    return vbslq_f32(vcgtq_f32(x, m), x, m);
}
NAPIER_INLINE float32x4_t simd_min(const float32x4_t x, const float32x4_t m) {
    return vbslq_f32(vcltq_f32(x, m), x, m);
}
NAPIER_INLINE vf vf_max(const vf x, const vf m) { return (vf)SIMD_EACH2(simd_max, x, m); }
NAPIER_INLINE vf vf_min(const vf x, const vf m) { return (vf)SIMD_EACH2(simd_min, x, m); }

NAPIER_INLINE vf vf_select(const vm m, const vf a, const vf b) { return (vf)SIMD_EACH3(vbslq_f32, m, a, b); }
NAPIER_INLINE float32x4_t simd_keep(const uint32x4_t m, const float32x4_t a) {
    return vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(a)));
}
NAPIER_INLINE vf vf_keep(const vm m, const vf a) { return (vf)SIMD_EACH2(simd_keep, m, a); }
NAPIER_INLINE vf vf_add_where(const vm m, const vf a, const vf b) { return vf_select(m, vf_add(a, b), a); }

NAPIER_INLINE vi vf_bits(const vf v) { return (vi)SIMD_EACH(vreinterpretq_s32_f32, v); }
NAPIER_INLINE vf vf_from_bits(const vi v) { return (vf)SIMD_EACH(vreinterpretq_f32_s32, v); }
NAPIER_INLINE vf vf_from_int(const vi v) { return (vf)SIMD_EACH(vcvtq_f32_s32, v); }
NAPIER_INLINE vi vf_to_int(const vf v) { return (vi)SIMD_EACH(vcvtnq_s32_f32, v); }

/* ---- masks ----------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vm vm_and(const vm a, const vm b) { return (vm)SIMD_EACH2(vandq_u32, a, b); }
NAPIER_INLINE vm vm_or(const vm a, const vm b) { return (vm)SIMD_EACH2(vorrq_u32, a, b); }
NAPIER_INLINE vm vm_andnot(const vm a, const vm b) { return (vm)SIMD_EACH2(vbicq_u32, b, a); } /* b & ~a */
NAPIER_INLINE vm simd_not(const vm m) { return (vm)SIMD_EACH(vmvnq_u32, m); }
NAPIER_INLINE bool vm_any(const vm m) {
    return vmaxvq_u32(vorrq_u32(vorrq_u32(m.v[0], m.v[1]), vorrq_u32(m.v[2], m.v[3]))) != 0;
}
NAPIER_INLINE bool vm_all(const vm m) {
    return vminvq_u32(vandq_u32(vandq_u32(m.v[0], m.v[1]), vandq_u32(m.v[2], m.v[3]))) != 0;
}
/* A true lane is -1. */
NAPIER_INLINE int vm_count(const vm m) {
    const uint32x4_t minus = vaddq_u32(vaddq_u32(m.v[0], m.v[1]), vaddq_u32(m.v[2], m.v[3]));
    return -vaddvq_s32(vreinterpretq_s32_u32(minus));
}
NAPIER_INLINE vm vm_first(const int n) {
    const int32_t first[4] = {0, 1, 2, 3};
    const int32x4_t lane = vld1q_s32(first);
    return (vm){{vcltq_s32(lane, vdupq_n_s32(n)), vcltq_s32(lane, vdupq_n_s32(n - 4)),
                 vcltq_s32(lane, vdupq_n_s32(n - 8)), vcltq_s32(lane, vdupq_n_s32(n - 12))}};
}

NAPIER_INLINE vm vf_lt(const vf a, const vf b) { return (vm)SIMD_EACH2(vcltq_f32, a, b); }
NAPIER_INLINE vm vf_le(const vf a, const vf b) { return (vm)SIMD_EACH2(vcleq_f32, a, b); }
NAPIER_INLINE vm vf_eq(const vf a, const vf b) { return (vm)SIMD_EACH2(vceqq_f32, a, b); }
NAPIER_INLINE vm vf_gt(const vf a, const vf b) { return (vm)SIMD_EACH2(vcgtq_f32, a, b); }
NAPIER_INLINE vm vf_ge(const vf a, const vf b) { return (vm)SIMD_EACH2(vcgeq_f32, a, b); }
NAPIER_INLINE vm vf_nlt(const vf a, const vf b) { return simd_not(vf_lt(a, b)); }
NAPIER_INLINE vm vf_nge(const vf a, const vf b) { return simd_not(vf_ge(a, b)); }
NAPIER_INLINE vm vf_unordered(const vf a, const vf b) { return simd_not(vm_and(vf_eq(a, a), vf_eq(b, b))); }

/* ---- integers -------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vi vi_set(const int32_t x) {
    const int32x4_t v = vdupq_n_s32(x);
    return (vi){{v, v, v, v}};
}
NAPIER_INLINE vi vi_add(const vi a, const vi b) { return (vi)SIMD_EACH2(vaddq_s32, a, b); }
NAPIER_INLINE vi vi_sub(const vi a, const vi b) { return (vi)SIMD_EACH2(vsubq_s32, a, b); }
NAPIER_INLINE vi vi_mul(const vi a, const vi b) { return (vi)SIMD_EACH2(vmulq_s32, a, b); }
NAPIER_INLINE int32x4_t simd_mulhi(const int32x4_t a, const int32x4_t b) {
    const uint32x4_t x = vreinterpretq_u32_s32(a), y = vreinterpretq_u32_s32(b);
    const uint64x2_t lo = vmull_u32(vget_low_u32(x), vget_low_u32(y)), hi = vmull_high_u32(x, y);
    return vreinterpretq_s32_u32(vuzp2q_u32(vreinterpretq_u32_u64(lo), vreinterpretq_u32_u64(hi)));
}
NAPIER_INLINE vi vi_mulhi(const vi a, const vi b) { return (vi)SIMD_EACH2(simd_mulhi, a, b); }
NAPIER_INLINE vi vi_xor(const vi a, const vi b) { return (vi)SIMD_EACH2(veorq_s32, a, b); }
NAPIER_INLINE vi vi_and(const vi a, const vi b) { return (vi)SIMD_EACH2(vandq_s32, a, b); }
NAPIER_INLINE vi vi_or(const vi a, const vi b) { return (vi)SIMD_EACH2(vorrq_s32, a, b); }

/* The shifts use operators, because the shift intrinsics need a literal count, and a parameter is none at -O0. */
NAPIER_INLINE vi vi_shl(const vi v, const int n) { return (vi){{v.v[0] << n, v.v[1] << n, v.v[2] << n, v.v[3] << n}}; }
NAPIER_INLINE vi vi_sar(const vi v, const int n) { return (vi){{v.v[0] >> n, v.v[1] >> n, v.v[2] >> n, v.v[3] >> n}}; }
NAPIER_INLINE int32x4_t simd_shr(const int32x4_t v, const int n) {
    return vreinterpretq_s32_u32(vreinterpretq_u32_s32(v) >> (uint32_t)n);
}
NAPIER_INLINE vi vi_shr(const vi v, const int n) {
    return (vi){{simd_shr(v.v[0], n), simd_shr(v.v[1], n), simd_shr(v.v[2], n), simd_shr(v.v[3], n)}};
}

NAPIER_INLINE vm vi_eq(const vi a, const vi b) { return (vm)SIMD_EACH2(vceqq_s32, a, b); }
NAPIER_INLINE vm vi_gt(const vi a, const vi b) { return (vm)SIMD_EACH2(vcgtq_s32, a, b); }
NAPIER_INLINE vi vi_select(const vm m, const vi a, const vi b) { return (vi)SIMD_EACH3(vbslq_s32, m, a, b); }
NAPIER_INLINE vi vi_less(const vf a, const vf b) { return (vi)SIMD_EACH(vreinterpretq_s32_u32, vf_lt(a, b)); }
NAPIER_INLINE vi vi_add_where(const vm m, const vi a, const vi b) { return vi_select(m, vi_add(a, b), a); }
NAPIER_INLINE int32x4_t simd_max_i16(const int32x4_t a, const int32x4_t b) {
    return vreinterpretq_s32_s16(vmaxq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
}
NAPIER_INLINE int32x4_t simd_max_u16(const int32x4_t a, const int32x4_t b) {
    return vreinterpretq_s32_u16(vmaxq_u16(vreinterpretq_u16_s32(a), vreinterpretq_u16_s32(b)));
}
NAPIER_INLINE int32x4_t simd_min_u16(const int32x4_t a, const int32x4_t b) {
    return vreinterpretq_s32_u16(vminq_u16(vreinterpretq_u16_s32(a), vreinterpretq_u16_s32(b)));
}
NAPIER_INLINE int32x4_t simd_eq16(const int32x4_t a, const int32x4_t b) {
    return vreinterpretq_s32_u16(vceqq_u16(vreinterpretq_u16_s32(a), vreinterpretq_u16_s32(b)));
}
NAPIER_INLINE vi vi_max_i16(const vi a, const vi b) { return (vi)SIMD_EACH2(simd_max_i16, a, b); }
NAPIER_INLINE vi vi_max_u16(const vi a, const vi b) { return (vi)SIMD_EACH2(simd_max_u16, a, b); }
NAPIER_INLINE vi vi_min_u16(const vi a, const vi b) { return (vi)SIMD_EACH2(simd_min_u16, a, b); }
NAPIER_INLINE bool vi_any_eq16(const vi a, const vi b) {
    const vi e = (vi)SIMD_EACH2(simd_eq16, a, b);
    const int32x4_t any = vorrq_s32(vorrq_s32(e.v[0], e.v[1]), vorrq_s32(e.v[2], e.v[3]));
    return vmaxvq_u32(vreinterpretq_u32_s32(any)) != 0;
}
NAPIER_INLINE vi vi_load(const int32_t *p) {
    return (vi){{vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}};
}
NAPIER_INLINE void vi_store(int32_t *p, const vi v) {
    vst1q_s32(p, v.v[0]);
    vst1q_s32(p + 4, v.v[1]);
    vst1q_s32(p + 8, v.v[2]);
    vst1q_s32(p + 12, v.v[3]);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vf vf_load(const float *p) {
    return (vf){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
NAPIER_INLINE void vf_store(float *p, const vf v) {
    vst1q_f32(p, v.v[0]);
    vst1q_f32(p + 4, v.v[1]);
    vst1q_f32(p + 8, v.v[2]);
    vst1q_f32(p + 12, v.v[3]);
}
NAPIER_INLINE vf vf_load_halves(const float *p, const float *q) {
    return (vf){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(q), vld1q_f32(q + 4)}};
}
NAPIER_INLINE void vf_store_halves(float *p, float *q, const vf v) {
    vst1q_f32(p, v.v[0]);
    vst1q_f32(p + 4, v.v[1]);
    vst1q_f32(q, v.v[2]);
    vst1q_f32(q + 4, v.v[3]);
}
/* NEON has no gather: element by element. */
NAPIER_INLINE vf vf_gather(const float *p, const vi index) {
    int32_t at[16];
    float lanes[16];
    vi_store(at, index);
    for (int i = 0; i < 16; i++) {
        lanes[i] = p[at[i]];
    }
    return vf_load(lanes);
}
NAPIER_INLINE void vf_load_pairs(const float *p, const uint32_t *at, vf *a, vf *b) {
    float first[16], second[16];
    for (int i = 0; i < 16; i++) {
        first[i] = p[2 * (size_t)at[i]];
        second[i] = p[2 * (size_t)at[i] + 1];
    }
    *a = vf_load(first);
    *b = vf_load(second);
}
/* No intrinsic stores past the caches. */
NAPIER_INLINE vf vf_hold(const vf v) { return v; }
NAPIER_INLINE void vf_stream(float *p, const vf v) { vf_store(p, v); }
NAPIER_INLINE void vf_stream_fence(void) {}

/* n is at most 16. The second condition tells that to the compiler, which would warn otherwise. */
NAPIER_INLINE vf vf_load_part(const float *p, const int n, const vf fill) {
    float lanes[16];
    vf_store(lanes, fill);
    for (int i = 0; i < n && i < 16; i++)
        lanes[i] = p[i];
    return vf_load(lanes);
}
NAPIER_INLINE void vf_store_part(float *p, const int n, const vf v) {
    float lanes[16];
    vf_store(lanes, v);
    for (int i = 0; i < n && i < 16; i++)
        p[i] = lanes[i];
}

NAPIER_INLINE int32x4_t simd_widen_low(const uint16x8_t v) { return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(v))); }
NAPIER_INLINE int32x4_t simd_widen_high(const uint16x8_t v) { return vreinterpretq_s32_u32(vmovl_high_u16(v)); }
NAPIER_INLINE uint16x4_t simd_narrow(const int32x4_t v) { return vmovn_u32(vreinterpretq_u32_s32(v)); }

NAPIER_INLINE vi vi_load_u16(const uint16_t *p) {
    const uint16x8_t lo = vld1q_u16(p), hi = vld1q_u16(p + 8);
    return (vi){{simd_widen_low(lo), simd_widen_high(lo), simd_widen_low(hi), simd_widen_high(hi)}};
}
NAPIER_INLINE void vi_store_u16(uint16_t *p, const vi v) {
    vst1q_u16(p, vcombine_u16(simd_narrow(v.v[0]), simd_narrow(v.v[1])));
    vst1q_u16(p + 8, vcombine_u16(simd_narrow(v.v[2]), simd_narrow(v.v[3])));
}
NAPIER_INLINE void vi_store_upper(uint16_t *p, const vi a, const vi b) {
    vi_store_u16(p, vi_shr(a, 16));
    vi_store_u16(p + 16, vi_shr(b, 16));
}
NAPIER_INLINE vi vi_load_u16_part(const uint16_t *p, const int n) {
    uint16_t lanes[16] = {0};
    for (int i = 0; i < n && i < 16; i++)
        lanes[i] = p[i];
    return vi_load_u16(lanes);
}
NAPIER_INLINE void vi_store_u16_part(uint16_t *p, const int n, const vi v) {
    uint16_t lanes[16];
    vi_store_u16(lanes, v);
    for (int i = 0; i < n && i < 16; i++)
        p[i] = lanes[i];
}

NAPIER_INLINE float32x4_t simd_from_f16(const int32x4_t v) {
    return vcvt_f32_f16(vreinterpret_f16_u16(simd_narrow(v)));
}
NAPIER_INLINE int32x4_t simd_to_f16(const float32x4_t v) {
    return vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_f16(vcvt_f16_f32(v))));
}
NAPIER_INLINE vf vf_from_f16(const vi v) { return (vf)SIMD_EACH(simd_from_f16, v); }
NAPIER_INLINE vi vf_to_f16(const vf v) { return (vi)SIMD_EACH(simd_to_f16, v); }

/* ---- doubles --------------------------------------------------------------------------------------------------- */

#define SIMD_EACH_D(f, a)                                                                                          \
    {                                                                                                              \
        { f((a).v[0]), f((a).v[1]), f((a).v[2]), f((a).v[3]), f((a).v[4]), f((a).v[5]), f((a).v[6]), f((a).v[7]) } \
    }
#define SIMD_EACH2_D(f, a, b)                                                                              \
    {                                                                                                      \
        {                                                                                                  \
            f((a).v[0], (b).v[0]), f((a).v[1], (b).v[1]), f((a).v[2], (b).v[2]), f((a).v[3], (b).v[3]),    \
                f((a).v[4], (b).v[4]), f((a).v[5], (b).v[5]), f((a).v[6], (b).v[6]), f((a).v[7], (b).v[7]) \
        }                                                                                                  \
    }

NAPIER_INLINE vd vd_set(const double x) {
    const float64x2_t v = vdupq_n_f64(x);
    return (vd){{v, v, v, v, v, v, v, v}};
}
NAPIER_INLINE vd vd_add(const vd a, const vd b) { return (vd)SIMD_EACH2_D(vaddq_f64, a, b); }
NAPIER_INLINE vd vd_sub(const vd a, const vd b) { return (vd)SIMD_EACH2_D(vsubq_f64, a, b); }
NAPIER_INLINE vd vd_mul(const vd a, const vd b) { return (vd)SIMD_EACH2_D(vmulq_f64, a, b); }
NAPIER_INLINE vd vd_div(const vd a, const vd b) { return (vd)SIMD_EACH2_D(vdivq_f64, a, b); }
NAPIER_INLINE vd vd_fma(const vd a, const vd b, const vd c) {
    return (vd){{vfmaq_f64(c.v[0], a.v[0], b.v[0]), vfmaq_f64(c.v[1], a.v[1], b.v[1]),
                 vfmaq_f64(c.v[2], a.v[2], b.v[2]), vfmaq_f64(c.v[3], a.v[3], b.v[3]),
                 vfmaq_f64(c.v[4], a.v[4], b.v[4]), vfmaq_f64(c.v[5], a.v[5], b.v[5]),
                 vfmaq_f64(c.v[6], a.v[6], b.v[6]), vfmaq_f64(c.v[7], a.v[7], b.v[7])}};
}

NAPIER_INLINE float64x2_t simd_double_low(const float32x4_t v) { return vcvt_f64_f32(vget_low_f32(v)); }
NAPIER_INLINE float32x4_t simd_floats(const float64x2_t lo, const float64x2_t hi) {
    return vcvt_high_f32_f64(vcvt_f32_f64(lo), hi);
}
NAPIER_INLINE vd vd_from_vf(const vf v) {
    return (vd){{simd_double_low(v.v[0]), vcvt_high_f64_f32(v.v[0]), simd_double_low(v.v[1]), vcvt_high_f64_f32(v.v[1]),
                 simd_double_low(v.v[2]), vcvt_high_f64_f32(v.v[2]), simd_double_low(v.v[3]),
                 vcvt_high_f64_f32(v.v[3])}};
}
NAPIER_INLINE vf vd_to_vf(const vd v) {
    return (vf){{simd_floats(v.v[0], v.v[1]), simd_floats(v.v[2], v.v[3]), simd_floats(v.v[4], v.v[5]),
                 simd_floats(v.v[6], v.v[7])}};
}
NAPIER_INLINE vd vd_load(const double *p) {
    return (vd){{vld1q_f64(p), vld1q_f64(p + 2), vld1q_f64(p + 4), vld1q_f64(p + 6), vld1q_f64(p + 8),
                 vld1q_f64(p + 10), vld1q_f64(p + 12), vld1q_f64(p + 14)}};
}
NAPIER_INLINE void vd_store(double *p, const vd v) {
    vst1q_f64(p, v.v[0]);
    vst1q_f64(p + 2, v.v[1]);
    vst1q_f64(p + 4, v.v[2]);
    vst1q_f64(p + 6, v.v[3]);
    vst1q_f64(p + 8, v.v[4]);
    vst1q_f64(p + 10, v.v[5]);
    vst1q_f64(p + 12, v.v[6]);
    vst1q_f64(p + 14, v.v[7]);
}

/* Masks of doubles, 64 bits a lane, from and to masks of floats. */
NAPIER_INLINE uint32x4_t simd_mask_narrow(const uint64x2_t lo, const uint64x2_t hi) {
    return vmovn_high_u64(vmovn_u64(lo), hi);
}
NAPIER_INLINE uint64x2_t simd_mask_low(const uint32x4_t m) {
    return vreinterpretq_u64_s64(vmovl_s32(vget_low_s32(vreinterpretq_s32_u32(m))));
}
NAPIER_INLINE uint64x2_t simd_mask_high(const uint32x4_t m) {
    return vreinterpretq_u64_s64(vmovl_high_s32(vreinterpretq_s32_u32(m)));
}
NAPIER_INLINE vm vd_lt(const vd a, const vd b) {
    return (vm){{simd_mask_narrow(vcltq_f64(a.v[0], b.v[0]), vcltq_f64(a.v[1], b.v[1])),
                 simd_mask_narrow(vcltq_f64(a.v[2], b.v[2]), vcltq_f64(a.v[3], b.v[3])),
                 simd_mask_narrow(vcltq_f64(a.v[4], b.v[4]), vcltq_f64(a.v[5], b.v[5])),
                 simd_mask_narrow(vcltq_f64(a.v[6], b.v[6]), vcltq_f64(a.v[7], b.v[7]))}};
}
NAPIER_INLINE vd vd_select(const vm m, const vd a, const vd b) {
    return (vd){{vbslq_f64(simd_mask_low(m.v[0]), a.v[0], b.v[0]), vbslq_f64(simd_mask_high(m.v[0]), a.v[1], b.v[1]),
                 vbslq_f64(simd_mask_low(m.v[1]), a.v[2], b.v[2]), vbslq_f64(simd_mask_high(m.v[1]), a.v[3], b.v[3]),
                 vbslq_f64(simd_mask_low(m.v[2]), a.v[4], b.v[4]), vbslq_f64(simd_mask_high(m.v[2]), a.v[5], b.v[5]),
                 vbslq_f64(simd_mask_low(m.v[3]), a.v[6], b.v[6]), vbslq_f64(simd_mask_high(m.v[3]), a.v[7], b.v[7])}};
}

NAPIER_INLINE float64x2_t simd_exponent(const float64x2_t v) {
    const int64x2_t field = vreinterpretq_s64_u64(vshrq_n_u64(vreinterpretq_u64_f64(v), 52));
    return vcvtq_f64_s64(vsubq_s64(field, vdupq_n_s64(1023)));
}
NAPIER_INLINE float64x2_t simd_mantissa(const float64x2_t v) {
    return vbslq_f64(vdupq_n_u64(0x000fffffffffffff), v, vdupq_n_f64(1.0));
}
/* The low bits of 2^52 + 1023 + n are the exponent field. */
NAPIER_INLINE float64x2_t simd_power_of_two(const float64x2_t n) {
    const uint64x2_t biased = vreinterpretq_u64_f64(vaddq_f64(n, vdupq_n_f64(0x1p52 + 1023)));
    return vreinterpretq_f64_u64(vshlq_n_u64(biased, 52));
}
NAPIER_INLINE vd vd_trunc(const vd v) { return (vd)SIMD_EACH_D(vrndq_f64, v); }
NAPIER_INLINE vd vd_power_of_two(const vd n) { return (vd)SIMD_EACH_D(simd_power_of_two, n); }
NAPIER_INLINE vd vd_exponent(const vd v) { return (vd)SIMD_EACH_D(simd_exponent, v); }
NAPIER_INLINE vd vd_mantissa(const vd v) { return (vd)SIMD_EACH_D(simd_mantissa, v); }

NAPIER_INLINE float64x2_t simd_table16(const double *t, const float64x2_t v) {
    const uint64x2_t index = vandq_u64(vshrq_n_u64(vreinterpretq_u64_f64(v), 48), vdupq_n_u64(15));
    const float64x2_t first = vld1q_dup_f64(t + vgetq_lane_u64(index, 0));
    return vld1q_lane_f64(t + vgetq_lane_u64(index, 1), first, 1);
}
NAPIER_INLINE vd vd_table16(const double *t, const vd v) {
    return (vd){{simd_table16(t, v.v[0]), simd_table16(t, v.v[1]), simd_table16(t, v.v[2]), simd_table16(t, v.v[3]),
                 simd_table16(t, v.v[4]), simd_table16(t, v.v[5]), simd_table16(t, v.v[6]), simd_table16(t, v.v[7])}};
}

#undef SIMD_EACH
#undef SIMD_EACH2
#undef SIMD_EACH3
#undef SIMD_EACH_D
#undef SIMD_EACH2_D

/* ---- across lanes ---------------------------------------------------------------------------------------------- */

NAPIER_INLINE float vf_lane(const vf v, const int i) {
    float lanes[16];
    vf_store(lanes, v);
    return lanes[i];
}

/* Folds of 16 lanes to 4 add whole registers. Each later step folds two registers into one: it puts the lower
 * halves of the vectors into one register and the upper halves into another, and adds them (or takes the
 * maximum). The result of vector i ends in lane i. */
NAPIER_INLINE float32x4_t simd_fold(const bool add, const float32x4_t lower, const float32x4_t upper) {
    return add ? vaddq_f32(lower, upper) : simd_max(lower, upper);
}
NAPIER_INLINE float32x4_t simd_fold16(const bool add, const vf v) {
    return simd_fold(add, simd_fold(add, v.v[0], v.v[2]), simd_fold(add, v.v[1], v.v[3]));
}
NAPIER_INLINE float32x4_t simd_fold2(const bool add, const float32x4_t a, const float32x4_t b) { /* -> 2 of a, 2 of b */
    const float64x2_t x = vreinterpretq_f64_f32(a), y = vreinterpretq_f64_f32(b);
    return simd_fold(add, vreinterpretq_f32_f64(vzip1q_f64(x, y)), vreinterpretq_f32_f64(vzip2q_f64(x, y)));
}
NAPIER_INLINE float32x4_t simd_fold1(const bool add, const float32x4_t a, const float32x4_t b) {
    return simd_fold(add, vuzp1q_f32(a, b), vuzp2q_f32(a, b));
}
NAPIER_INLINE float32x4_t simd_fold_four(const bool add, const vf *v) {
    return simd_fold1(add, simd_fold2(add, simd_fold16(add, v[0]), simd_fold16(add, v[1])),
                      simd_fold2(add, simd_fold16(add, v[2]), simd_fold16(add, v[3])));
}
NAPIER_INLINE vf simd_fold_all(const bool add, const vf *v) {
    return (vf){
        {simd_fold_four(add, v), simd_fold_four(add, v + 4), simd_fold_four(add, v + 8), simd_fold_four(add, v + 12)}};
}
NAPIER_INLINE float simd_fold_one(const bool add, const vf v) {
    const float32x4_t four = simd_fold16(add, v);
    const float32x4_t two = simd_fold2(add, four, four);
    return vgetq_lane_f32(simd_fold1(add, two, two), 0);
}
NAPIER_INLINE float vf_hmax(const vf v) { return simd_fold_one(false, v); }
NAPIER_INLINE float vf_hadd(const vf v) { return simd_fold_one(true, v); }
NAPIER_INLINE vf vf_hmax16(const vf v[16]) { return simd_fold_all(false, v); }
NAPIER_INLINE vf vf_hadd16(const vf v[16]) { return simd_fold_all(true, v); }

/* The transpose: sixteen blocks of 4 x 4, of which those off the diagonal change places in pairs. */
NAPIER_INLINE void simd_transpose_block(float32x4_t *a, float32x4_t *b, float32x4_t *c, float32x4_t *d) {
    const float64x2_t ab_even = vreinterpretq_f64_f32(vtrn1q_f32(*a, *b)); /* a0 b0 a2 b2 */
    const float64x2_t ab_odd = vreinterpretq_f64_f32(vtrn2q_f32(*a, *b));  /* a1 b1 a3 b3 */
    const float64x2_t cd_even = vreinterpretq_f64_f32(vtrn1q_f32(*c, *d));
    const float64x2_t cd_odd = vreinterpretq_f64_f32(vtrn2q_f32(*c, *d));
    *a = vreinterpretq_f32_f64(vzip1q_f64(ab_even, cd_even)); /* a0 b0 c0 d0 */
    *b = vreinterpretq_f32_f64(vzip1q_f64(ab_odd, cd_odd));
    *c = vreinterpretq_f32_f64(vzip2q_f64(ab_even, cd_even));
    *d = vreinterpretq_f32_f64(vzip2q_f64(ab_odd, cd_odd));
}
NAPIER_INLINE void simd_swap(float32x4_t *a, float32x4_t *b) {
    const float32x4_t old = *a;
    *a = *b;
    *b = old;
}
NAPIER_INLINE void simd_transpose_rows(vf *a, vf *b, vf *c, vf *d) {
    simd_transpose_block(&a->v[0], &b->v[0], &c->v[0], &d->v[0]);
    simd_transpose_block(&a->v[1], &b->v[1], &c->v[1], &d->v[1]);
    simd_transpose_block(&a->v[2], &b->v[2], &c->v[2], &d->v[2]);
    simd_transpose_block(&a->v[3], &b->v[3], &c->v[3], &d->v[3]);
}
/* Exchanges column block j of rows 4i.. with column block i of rows 4j.. */
NAPIER_INLINE void simd_swap_blocks(vf *v, const int i, const int j) {
    simd_swap(&v[4 * i].v[j], &v[4 * j].v[i]);
    simd_swap(&v[4 * i + 1].v[j], &v[4 * j + 1].v[i]);
    simd_swap(&v[4 * i + 2].v[j], &v[4 * j + 2].v[i]);
    simd_swap(&v[4 * i + 3].v[j], &v[4 * j + 3].v[i]);
}
NAPIER_INLINE void vf_transpose(vf v[16]) {
    simd_transpose_rows(&v[0], &v[1], &v[2], &v[3]);
    simd_transpose_rows(&v[4], &v[5], &v[6], &v[7]);
    simd_transpose_rows(&v[8], &v[9], &v[10], &v[11]);
    simd_transpose_rows(&v[12], &v[13], &v[14], &v[15]);
    simd_swap_blocks(v, 0, 1);
    simd_swap_blocks(v, 0, 2);
    simd_swap_blocks(v, 0, 3);
    simd_swap_blocks(v, 1, 2);
    simd_swap_blocks(v, 1, 3);
    simd_swap_blocks(v, 2, 3);
}

#endif
