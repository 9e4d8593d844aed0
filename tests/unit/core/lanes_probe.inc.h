/* lanes_probe.inc.h - fills a lanes_probe for the instruction set that core/simd/lanes.h was included for.
 * Included by lanes_{scalar,avx2,avx512,neon}.c, after core/simd/lanes.h. */
#include "lanes_probe.h"

NAPIER_INLINE vi probe_int(const uint32_t *p) { return vi_load((const int32_t *)p); }
NAPIER_INLINE vf probe_float(const uint32_t *p) { return vf_from_bits(probe_int(p)); }
NAPIER_INLINE vm probe_mask(const uint32_t *p) { return vi_eq(vi_and(probe_int(p), vi_set(1)), vi_set(1)); }
NAPIER_INLINE void probe_put_int(uint32_t *out, const vi v) { vi_store((int32_t *)out, v); }
NAPIER_INLINE void probe_put_float(uint32_t *out, const vf v) { probe_put_int(out, vf_bits(v)); }
NAPIER_INLINE void probe_put_mask(uint32_t *out, const vm m) { probe_put_int(out, vi_select(m, vi_set(1), vi_set(0))); }

/* A table to gather from: element n is 3 n + 1. */
NAPIER_INLINE vf probe_gather(const uint32_t *p) {
    float table[64];
    for (int n = 0; n < 64; n++) {
        table[n] = 3.0f * (float)n + 1.0f;
    }
    return vf_gather(table, vi_and(probe_int(p), vi_set(63)));
}
/* 1000 times the first of a pair plus the second. */
NAPIER_INLINE vf probe_load_pairs(const uint32_t *p) {
    float table[64];
    for (int n = 0; n < 64; n++) {
        table[n] = 3.0f * (float)n + 1.0f;
    }
    uint32_t at[16];
    for (int n = 0; n < 16; n++) {
        at[n] = p[n] & 31;
    }
    vf first, second;
    vf_load_pairs(table, at, &first, &second);
    return vf_add(vf_mul(first, vf_set(1000.0f)), second);
}

#define OP(name, put, expression)                                                                    \
    static void run_##name(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *out) { \
        (void)a, (void)b, (void)c;                                                                   \
        put(out, expression);                                                                        \
    }
#define A probe_float(a)
#define B probe_float(b)
#define C probe_float(c)
#define I probe_int(a)
#define J probe_int(b)
#define F probe_put_float
#define N probe_put_int
#define M probe_put_mask

OP(vf_add, F, vf_add(A, B))
OP(vf_sub, F, vf_sub(A, B))
OP(vf_mul, F, vf_mul(A, B))
OP(vf_div, F, vf_div(A, B))
OP(vf_sqrt, F, vf_sqrt(A))
OP(vf_fma, F, vf_fma(A, B, C))
OP(vf_fnma, F, vf_fnma(A, B, C))
OP(vf_mul_add, F, vf_add(vf_mul(A, B), C))
OP(vf_max, F, vf_max(A, B))
OP(vf_min, F, vf_min(A, B))
OP(vf_set, F, vf_add(vf_set(-0.0f), A))
OP(vf_zero, F, vf_zero())
OP(vf_select, F, vf_select(probe_mask(c), A, B))
OP(vf_keep, F, vf_keep(probe_mask(c), A))
OP(vf_add_where, F, vf_add_where(probe_mask(c), A, B))
OP(vf_bits, N, vf_bits(A))
OP(vf_from_int, F, vf_from_int(I))
OP(vf_to_int, N, vf_to_int(A))
OP(vf_from_f16, F, vf_from_f16(vi_and(I, vi_set(0xffff))))
OP(vf_to_f16, N, vf_to_f16(A))
OP(vf_lt, M, vf_lt(A, B))
OP(vf_le, M, vf_le(A, B))
OP(vf_eq, M, vf_eq(A, B))
OP(vf_gt, M, vf_gt(A, B))
OP(vf_ge, M, vf_ge(A, B))
OP(vf_nlt, M, vf_nlt(A, B))
OP(vf_nge, M, vf_nge(A, B))
OP(vf_unordered, M, vf_unordered(A, B))
OP(vm_and, M, vm_and(probe_mask(a), probe_mask(b)))
OP(vm_or, M, vm_or(probe_mask(a), probe_mask(b)))
OP(vm_andnot, M, vm_andnot(probe_mask(a), probe_mask(b)))
OP(vi_set, N, vi_add(I, vi_set(-7)))
OP(vi_add, N, vi_add(I, J))
OP(vi_sub, N, vi_sub(I, J))
OP(vi_mul, N, vi_mul(I, J))
OP(vi_mulhi, N, vi_mulhi(I, J))
OP(vi_xor, N, vi_xor(I, J))
OP(vi_and, N, vi_and(I, J))
OP(vi_or, N, vi_or(I, J))
OP(vi_shl_0, N, vi_shl(I, 0))
OP(vi_shl_13, N, vi_shl(I, 13))
OP(vi_shl_23, N, vi_shl(I, 23))
OP(vi_shl_31, N, vi_shl(I, 31))
OP(vi_shr_1, N, vi_shr(I, 1))
OP(vi_shr_16, N, vi_shr(I, 16))
OP(vi_shr_31, N, vi_shr(I, 31))
OP(vi_sar_1, N, vi_sar(I, 1))
OP(vi_sar_23, N, vi_sar(I, 23))
OP(vi_sar_31, N, vi_sar(I, 31))
OP(vi_max_i16, N, vi_max_i16(I, J))
OP(vi_max_u16, N, vi_max_u16(I, J))
OP(vi_min_u16, N, vi_min_u16(I, J))
OP(vi_eq, M, vi_eq(I, J))
OP(vi_gt, M, vi_gt(I, J))
OP(vi_select, N, vi_select(probe_mask(c), I, J))
OP(vi_add_where, N, vi_add_where(probe_mask(c), I, J))
OP(vf_gather, F, probe_gather(a))
OP(vf_load_pairs, F, probe_load_pairs(a))

#undef OP
#undef A
#undef B
#undef C
#undef I
#undef J
#undef F
#undef N
#undef M

#define OP(name) \
    { #name, run_##name }
static const lanes_op probe_ops[] = {
    OP(vf_add),       OP(vf_sub),       OP(vf_mul),      OP(vf_div),     OP(vf_fma),        OP(vf_fnma),
    OP(vf_mul_add),   OP(vf_max),       OP(vf_min),      OP(vf_set),     OP(vf_zero),       OP(vf_select),
    OP(vf_keep),      OP(vf_bits),      OP(vf_from_int), OP(vf_to_int),  OP(vf_from_f16),   OP(vf_to_f16),
    OP(vf_lt),        OP(vf_le),        OP(vf_eq),       OP(vf_gt),      OP(vf_ge),         OP(vf_nlt),
    OP(vf_nge),       OP(vf_unordered), OP(vm_and),      OP(vm_or),      OP(vm_andnot),     OP(vi_set),
    OP(vi_add),       OP(vi_sub),       OP(vi_and),      OP(vi_or),      OP(vi_shl_0),      OP(vi_shl_13),
    OP(vi_shl_23),    OP(vi_shl_31),    OP(vi_shr_1),    OP(vi_shr_16),  OP(vi_shr_31),     OP(vi_sar_1),
    OP(vi_sar_23),    OP(vi_sar_31),    OP(vi_eq),       OP(vi_gt),      OP(vi_select),     OP(vf_sqrt),
    OP(vi_mul),       OP(vi_mulhi),     OP(vi_xor),      OP(vf_gather),  OP(vf_load_pairs), OP(vf_add_where),
    OP(vi_add_where), OP(vi_max_i16),   OP(vi_max_u16),  OP(vi_min_u16), {NULL, NULL},
};
#undef OP

#define OP(name, expression)                                                                 \
    static void run_##name(const double *a, const double *b, const double *c, double *out) { \
        (void)a, (void)b, (void)c;                                                           \
        vd_store(out, expression);                                                           \
    }
OP(vd_set, vd_add(vd_set(-0.0), vd_load(a)))
OP(vd_add, vd_add(vd_load(a), vd_load(b)))
OP(vd_sub, vd_sub(vd_load(a), vd_load(b)))
OP(vd_mul, vd_mul(vd_load(a), vd_load(b)))
OP(vd_div, vd_div(vd_load(a), vd_load(b)))
OP(vd_fma, vd_fma(vd_load(a), vd_load(b), vd_load(c)))
OP(vd_mul_add, vd_add(vd_mul(vd_load(a), vd_load(b)), vd_load(c)))
OP(vd_exponent, vd_exponent(vd_load(a)))
OP(vd_mantissa, vd_mantissa(vd_load(a)))
#undef OP

#define OP(name) \
    { #name, run_##name }
static const lanes_double_op probe_double_ops[] = {
    OP(vd_set), OP(vd_add),     OP(vd_sub),      OP(vd_mul),      OP(vd_div),
    OP(vd_fma), OP(vd_mul_add), OP(vd_exponent), OP(vd_mantissa), {NULL, NULL},
};
#undef OP

static void probe_load(const float *p, float *out) { vf_store(out, vf_load(p)); }
static void probe_store(float *p, const float *lanes) { vf_store(p, vf_load(lanes)); }
static void probe_stream(float *p, const float *lanes) {
    vf_stream(p, vf_load(lanes));
    vf_stream_fence();
}
static void probe_load_part(const float *p, const int n, const float *fill, float *out) {
    vf_store(out, vf_load_part(p, n, vf_load(fill)));
}
static void probe_store_part(float *p, const int n, const float *lanes) { vf_store_part(p, n, vf_load(lanes)); }
static void probe_load_u16(const uint16_t *p, uint32_t *out) { probe_put_int(out, vi_load_u16(p)); }
static void probe_load_u16_part(const uint16_t *p, const int n, uint32_t *out) {
    probe_put_int(out, vi_load_u16_part(p, n));
}
static void probe_store_u16(uint16_t *p, const uint32_t *lanes) { vi_store_u16(p, probe_int(lanes)); }
static void probe_store_u16_part(uint16_t *p, const int n, const uint32_t *lanes) {
    vi_store_u16_part(p, n, probe_int(lanes));
}

static void probe_first(const int n, uint32_t *out) { probe_put_mask(out, vm_first(n)); }
static int probe_any(const uint32_t *mask) { return vm_any(probe_mask(mask)); }
static int probe_all(const uint32_t *mask) { return vm_all(probe_mask(mask)); }
static int probe_count(const uint32_t *mask) { return vm_count(probe_mask(mask)); }

static int probe_any_eq16(const uint32_t *a, const uint32_t *b) { return vi_any_eq16(probe_int(a), probe_int(b)); }

static void probe_table(const double *table, const double *v, double *out) {
    vd_store(out, vd_table16(table, vd_load(v)));
}
static void probe_less(const double *a, const double *b, uint32_t *out) {
    probe_put_mask(out, vd_lt(vd_load(a), vd_load(b)));
}
static void probe_select_double(const uint32_t *mask, const double *a, const double *b, double *out) {
    vd_store(out, vd_select(probe_mask(mask), vd_load(a), vd_load(b)));
}
static void probe_widen(const float *v, double *out) { vd_store(out, vd_from_vf(vf_load(v))); }
static void probe_narrow(const double *v, float *out) { vf_store(out, vd_to_vf(vd_load(v))); }

static void probe_load_rows(const float *rows, vf v[16]) {
    for (int i = 0; i < 16; i++)
        v[i] = vf_load(rows + 16 * i);
}
static float probe_hmax(const float *v) { return vf_hmax(vf_load(v)); }
static float probe_hadd(const float *v) { return vf_hadd(vf_load(v)); }
static void probe_hmax16(const float *rows, float *out) {
    vf v[16];
    probe_load_rows(rows, v);
    vf_store(out, vf_hmax16(v));
}
static void probe_hadd16(const float *rows, float *out) {
    vf v[16];
    probe_load_rows(rows, v);
    vf_store(out, vf_hadd16(v));
}
static void probe_transpose(const float *rows, float *out) {
    vf v[16];
    probe_load_rows(rows, v);
    vf_transpose(v);
    for (int i = 0; i < 16; i++)
        vf_store(out + 16 * i, v[i]);
}
static float probe_lane(const float *v, const int i) { return vf_lane(vf_load(v), i); }

#define PROBE(isa)                                                                                                  \
    {                                                                                                               \
        isa, probe_ops, probe_double_ops, probe_load, probe_store, probe_stream, probe_load_part, probe_store_part, \
            probe_load_u16, probe_load_u16_part, probe_store_u16, probe_store_u16_part, probe_first, probe_any,     \
            probe_all, probe_count, probe_any_eq16, probe_table, probe_less, probe_select_double, probe_widen,      \
            probe_narrow, probe_hmax, probe_hadd, probe_hmax16, probe_hadd16, probe_transpose, probe_lane           \
    }
