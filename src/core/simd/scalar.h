/* core/simd/scalar.h - the virtual vector in plain C. Every other instruction set must equal it,
 * bit for bit. It is written for clarity. Where the machine has no fma, libm's is called, which is
 * slow. core/simd/lanes.h defines the contract. */
#ifndef NAPIER_CORE_SIMD_SCALAR_H
#define NAPIER_CORE_SIMD_SCALAR_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/simd/one_lane.h"

typedef struct vf {
    float v[16];
} vf;
typedef struct vi {
    int32_t v[16];
} vi;
typedef struct vm {
    bool v[16];
} vm;
typedef struct vd {
    double v[16];
} vd;

/* for each lane i, ascending */
#define SIMD_LANES(i) for (int i = 0; i < 16; i++)

/* Defines a function whose result has `lane_` in lane i. */
#define SIMD_EACH(result_, name_, parameters_, lane_) \
    NAPIER_INLINE result_ name_ parameters_ {         \
        result_ r;                                    \
        SIMD_LANES(i) r.v[i] = lane_;                 \
        return r;                                     \
    }

enum { SIMD_CHAINS = 4 };

/* ---- floats ---------------------------------------------------------------------------------------------------- */

SIMD_EACH(vf, vf_set, (const float x), x)
NAPIER_INLINE vf vf_zero(void) { return vf_set(0.0f); }

SIMD_EACH(vf, vf_add, (const vf a, const vf b), a.v[i] + b.v[i])
SIMD_EACH(vf, vf_sub, (const vf a, const vf b), a.v[i] - b.v[i])
SIMD_EACH(vf, vf_mul, (const vf a, const vf b), a.v[i] * b.v[i])
SIMD_EACH(vf, vf_div, (const vf a, const vf b), a.v[i] / b.v[i])
SIMD_EACH(vf, vf_sqrt, (const vf a), sqrtf(a.v[i]))
SIMD_EACH(vf, vf_fma, (const vf a, const vf b, const vf c), fmaf(a.v[i], b.v[i], c.v[i]))
SIMD_EACH(vf, vf_fnma, (const vf a, const vf b, const vf c), fmaf(-a.v[i], b.v[i], c.v[i]))
SIMD_EACH(vf, vf_max, (const vf x, const vf m), x.v[i] > m.v[i] ? x.v[i] : m.v[i])
SIMD_EACH(vf, vf_min, (const vf x, const vf m), x.v[i] < m.v[i] ? x.v[i] : m.v[i])

SIMD_EACH(vf, vf_select, (const vm m, const vf a, const vf b), m.v[i] ? a.v[i] : b.v[i])
NAPIER_INLINE vf vf_keep(const vm m, const vf a) { return vf_select(m, a, vf_zero()); }
NAPIER_INLINE vf vf_add_where(const vm m, const vf a, const vf b) { return vf_select(m, vf_add(a, b), a); }

NAPIER_INLINE vi vf_bits(const vf v) {
    vi r;
    memcpy(&r, &v, sizeof r);
    return r;
}
NAPIER_INLINE vf vf_from_bits(const vi v) {
    vf r;
    memcpy(&r, &v, sizeof r);
    return r;
}
SIMD_EACH(vf, vf_from_int, (const vi v), (float)v.v[i])
SIMD_EACH(vi, vf_to_int, (const vf v), fabsf(v.v[i]) < 0x1p31f ? (int32_t)rintf(v.v[i]) : INT32_MIN)

/* ---- masks ----------------------------------------------------------------------------------------------------- */

SIMD_EACH(vm, vf_lt, (const vf a, const vf b), a.v[i] < b.v[i])
SIMD_EACH(vm, vf_le, (const vf a, const vf b), a.v[i] <= b.v[i])
SIMD_EACH(vm, vf_eq, (const vf a, const vf b), a.v[i] == b.v[i])
NAPIER_INLINE vm vf_gt(const vf a, const vf b) { return vf_lt(b, a); }
NAPIER_INLINE vm vf_ge(const vf a, const vf b) { return vf_le(b, a); }
SIMD_EACH(vm, vf_nlt, (const vf a, const vf b), !(a.v[i] < b.v[i]))
SIMD_EACH(vm, vf_nge, (const vf a, const vf b), !(a.v[i] >= b.v[i]))
SIMD_EACH(vm, vf_unordered, (const vf a, const vf b), a.v[i] != a.v[i] || b.v[i] != b.v[i])

SIMD_EACH(vm, vm_and, (const vm a, const vm b), a.v[i] && b.v[i])
SIMD_EACH(vm, vm_or, (const vm a, const vm b), a.v[i] || b.v[i])
SIMD_EACH(vm, vm_andnot, (const vm a, const vm b), !a.v[i] && b.v[i])
NAPIER_INLINE int vm_count(const vm m) {
    int count = 0;
    SIMD_LANES(i) count += m.v[i];
    return count;
}
NAPIER_INLINE bool vm_any(const vm m) { return vm_count(m) > 0; }
NAPIER_INLINE bool vm_all(const vm m) { return vm_count(m) == 16; }
SIMD_EACH(vm, vm_first, (const int n), i < n)

/* ---- integers: sums and shifts wrap, so they are done on unsigned numbers -------------------------------------- */

SIMD_EACH(vi, vi_set, (const int32_t x), x)
SIMD_EACH(vi, vi_add, (const vi a, const vi b), (int32_t)((uint32_t)a.v[i] + (uint32_t)b.v[i]))
SIMD_EACH(vi, vi_sub, (const vi a, const vi b), (int32_t)((uint32_t)a.v[i] - (uint32_t)b.v[i]))
SIMD_EACH(vi, vi_mul, (const vi a, const vi b), (int32_t)((uint32_t)a.v[i] * (uint32_t)b.v[i]))
SIMD_EACH(vi, vi_mulhi, (const vi a, const vi b), (int32_t)((uint64_t)(uint32_t)a.v[i] * (uint32_t)b.v[i] >> 32))
SIMD_EACH(vi, vi_xor, (const vi a, const vi b), a.v[i] ^ b.v[i])
SIMD_EACH(vi, vi_and, (const vi a, const vi b), a.v[i] & b.v[i])
SIMD_EACH(vi, vi_or, (const vi a, const vi b), a.v[i] | b.v[i])
SIMD_EACH(vi, vi_shl, (const vi v, const int n), (int32_t)((uint32_t)v.v[i] << n))
SIMD_EACH(vi, vi_shr, (const vi v, const int n), (int32_t)((uint32_t)v.v[i] >> n))
SIMD_EACH(vi, vi_sar, (const vi v, const int n), v.v[i] >> n)
SIMD_EACH(vm, vi_eq, (const vi a, const vi b), a.v[i] == b.v[i])
SIMD_EACH(vm, vi_gt, (const vi a, const vi b), a.v[i] > b.v[i])
/* For each pair of halves. The sign of a half is its top bit: flipping it turns the signed order into
 * the unsigned one. */
NAPIER_INLINE uint32_t simd_max_halves(const uint32_t a, const uint32_t b) {
    const uint32_t high = a >> 16 > b >> 16 ? a : b, low = (a & 0xffff) > (b & 0xffff) ? a : b;
    return (high & 0xffff0000) | (low & 0xffff);
}
NAPIER_INLINE vi vi_max_i16(const vi a, const vi b) {
    const uint32_t signs = 0x80008000;
    vi r;
    SIMD_LANES(i) r.v[i] = (int32_t)(simd_max_halves((uint32_t)a.v[i] ^ signs, (uint32_t)b.v[i] ^ signs) ^ signs);
    return r;
}
SIMD_EACH(vi, vi_max_u16, (const vi a, const vi b), (int32_t)simd_max_halves((uint32_t)a.v[i], (uint32_t)b.v[i]))
SIMD_EACH(vi, vi_min_u16, (const vi a, const vi b), (int32_t)~simd_max_halves(~(uint32_t)a.v[i], ~(uint32_t)b.v[i]))
NAPIER_INLINE bool vi_any_eq16(const vi a, const vi b) {
    bool any = false;
    SIMD_LANES(i) {
        const uint32_t differ = (uint32_t)a.v[i] ^ (uint32_t)b.v[i];
        any = any || (differ & 0xffff) == 0 || differ >> 16 == 0;
    }
    return any;
}
SIMD_EACH(vi, vi_select, (const vm m, const vi a, const vi b), m.v[i] ? a.v[i] : b.v[i])
SIMD_EACH(vi, vi_less, (const vf a, const vf b), a.v[i] < b.v[i] ? -1 : 0)
NAPIER_INLINE vi vi_add_where(const vm m, const vi a, const vi b) { return vi_select(m, vi_add(a, b), a); }
NAPIER_INLINE vi vi_load(const int32_t *p) {
    vi r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}
NAPIER_INLINE void vi_store(int32_t *p, const vi v) { memcpy(p, v.v, sizeof v.v); }

/* ---- memory ---------------------------------------------------------------------------------------------------- */

NAPIER_INLINE vf vf_load(const float *p) {
    vf r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}
NAPIER_INLINE void vf_store(float *p, const vf v) { memcpy(p, v.v, sizeof v.v); }
NAPIER_INLINE vf vf_load_halves(const float *p, const float *q) {
    vf v;
    memcpy(v.v, p, 8 * sizeof *p);
    memcpy(v.v + 8, q, 8 * sizeof *q);
    return v;
}
NAPIER_INLINE void vf_store_halves(float *p, float *q, const vf v) {
    memcpy(p, v.v, 8 * sizeof *p);
    memcpy(q, v.v + 8, 8 * sizeof *q);
}
SIMD_EACH(vf, vf_gather, (const float *p, const vi index), p[index.v[i]])
NAPIER_INLINE void vf_load_pairs(const float *p, const uint32_t *at, vf *a, vf *b) {
    SIMD_LANES(i) a->v[i] = p[2 * (size_t)at[i]];
    SIMD_LANES(i) b->v[i] = p[2 * (size_t)at[i] + 1];
}
NAPIER_INLINE vf vf_hold(const vf v) { return v; }
NAPIER_INLINE void vf_stream(float *p, const vf v) { vf_store(p, v); }
NAPIER_INLINE void vf_stream_fence(void) {}

NAPIER_INLINE vf vf_load_part(const float *p, const int n, const vf fill) {
    vf r = fill;
    for (int i = 0; i < n; i++)
        r.v[i] = p[i];
    return r;
}
NAPIER_INLINE void vf_store_part(float *p, const int n, const vf v) {
    for (int i = 0; i < n; i++)
        p[i] = v.v[i];
}

NAPIER_INLINE vi vi_load_u16_part(const uint16_t *p, const int n) {
    vi r = vi_set(0);
    for (int i = 0; i < n; i++)
        r.v[i] = p[i];
    return r;
}
NAPIER_INLINE void vi_store_u16_part(uint16_t *p, const int n, const vi v) {
    for (int i = 0; i < n; i++)
        p[i] = (uint16_t)v.v[i];
}
NAPIER_INLINE vi vi_load_u16(const uint16_t *p) { return vi_load_u16_part(p, 16); }
NAPIER_INLINE void vi_store_u16(uint16_t *p, const vi v) { vi_store_u16_part(p, 16, v); }
NAPIER_INLINE void vi_store_upper(uint16_t *p, const vi a, const vi b) {
    vi_store_u16(p, vi_shr(a, 16));
    vi_store_u16(p + 16, vi_shr(b, 16));
}

/* ---- half precision ----------------------------------------------------------------------------------------------- */

SIMD_EACH(vf, vf_from_f16, (const vi v), simd_from_f16((uint32_t)v.v[i]))
SIMD_EACH(vi, vf_to_f16, (const vf v), (int32_t)simd_to_f16(v.v[i]))

/* ---- doubles --------------------------------------------------------------------------------------------------- */

SIMD_EACH(vd, vd_set, (const double x), x)
SIMD_EACH(vd, vd_add, (const vd a, const vd b), a.v[i] + b.v[i])
SIMD_EACH(vd, vd_sub, (const vd a, const vd b), a.v[i] - b.v[i])
SIMD_EACH(vd, vd_mul, (const vd a, const vd b), a.v[i] * b.v[i])
SIMD_EACH(vd, vd_div, (const vd a, const vd b), a.v[i] / b.v[i])
SIMD_EACH(vd, vd_fma, (const vd a, const vd b, const vd c), fma(a.v[i], b.v[i], c.v[i]))

SIMD_EACH(vd, vd_from_vf, (const vf v), (double)v.v[i])
SIMD_EACH(vf, vd_to_vf, (const vd v), (float)v.v[i])
NAPIER_INLINE vd vd_load(const double *p) {
    vd r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}
NAPIER_INLINE void vd_store(double *p, const vd v) { memcpy(p, v.v, sizeof v.v); }

SIMD_EACH(vm, vd_lt, (const vd a, const vd b), a.v[i] < b.v[i])
SIMD_EACH(vd, vd_select, (const vm m, const vd a, const vd b), m.v[i] ? a.v[i] : b.v[i])

SIMD_EACH(vd, vd_trunc, (const vd v), trunc(v.v[i]))
SIMD_EACH(vd, vd_power_of_two, (const vd n), simd_double((uint64_t)((int)n.v[i] + 1023) << 52))
SIMD_EACH(vd, vd_exponent, (const vd v), (double)((int)(simd_bits64(v.v[i]) >> 52) - 1023))
SIMD_EACH(vd, vd_mantissa, (const vd v), simd_double((simd_bits64(v.v[i]) & 0xfffffffffffff) | 0x3ff0000000000000))
SIMD_EACH(vd, vd_table16, (const double *t, const vd v), t[simd_bits64(v.v[i]) >> 48 & 15])

/* ---- across lanes ---------------------------------------------------------------------------------------------- */

NAPIER_INLINE float vf_lane(const vf v, const int i) { return v.v[i]; }

NAPIER_INLINE float vf_hmax(const vf v) {
    vf r = v;
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++)
            r.v[i] = r.v[i] > r.v[i + half] ? r.v[i] : r.v[i + half];
    }
    return r.v[0];
}
NAPIER_INLINE float vf_hadd(const vf v) {
    vf r = v;
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++)
            r.v[i] += r.v[i + half];
    }
    return r.v[0];
}
SIMD_EACH(vf, vf_hmax16, (const vf v[16]), vf_hmax(v[i]))
SIMD_EACH(vf, vf_hadd16, (const vf v[16]), vf_hadd(v[i]))
NAPIER_INLINE void vf_transpose(vf v[16]) {
    SIMD_LANES(i) for (int j = 0; j < i; j++) {
        const float lower = v[i].v[j];
        v[i].v[j] = v[j].v[i];
        v[j].v[i] = lower;
    }
}

#undef SIMD_EACH
#undef SIMD_LANES

#endif
