/* lanes_probe.inc.h - fills a lanes_probe for the instruction set that core/simd/lanes.h was included for.
 * Included by lanes_{scalar,avx2,avx512,neon}.c, after core/simd/lanes.h. */
#include "core/math/lanes_math.h"
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

NAPIER_INLINE vd probe_quotient(const double *a, const double *b) {
    float x[16], y[16];
    for (int n = 0; n < 16; n++) {
        x[n] = float_to_divide(a + n);
        y[n] = float_to_divide(b + n);
    }
    return vd_quotient(vf_load(x), vf_load(y));
}

#define A probe_float(a)
#define B probe_float(b)
#define C probe_float(c)
#define I probe_int(a)
#define J probe_int(b)
#define DA vd_load(a)
#define DB vd_load(b)
#define DC vd_load(c)
#define F probe_put_float
#define N probe_put_int
#define M probe_put_mask

#define LANES_OP(name, kind, reference, put, operation)                                              \
    static void run_##name(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *out) { \
        (void)a, (void)b, (void)c;                                                                   \
        put(out, operation);                                                                         \
    }
#define LANES_DOUBLE_OP(name, reference, operation)                                          \
    static void run_##name(const double *a, const double *b, const double *c, double *out) { \
        (void)a, (void)b, (void)c;                                                           \
        vd_store(out, operation);                                                            \
    }
#include "lanes_ops.inc.h"
#undef LANES_OP
#undef LANES_DOUBLE_OP
#undef A
#undef B
#undef C
#undef I
#undef J
#undef DA
#undef DB
#undef DC
#undef F
#undef N
#undef M

#define LANES_OP(name, kind, reference, put, operation) {#name, run_##name},
#define LANES_DOUBLE_OP(name, reference, operation)
static const lanes_op probe_ops[] = {
#include "lanes_ops.inc.h"
    {NULL, NULL},
};
#undef LANES_OP
#undef LANES_DOUBLE_OP

#define LANES_OP(name, kind, reference, put, operation)
#define LANES_DOUBLE_OP(name, reference, operation) {#name, run_##name},
static const lanes_double_op probe_double_ops[] = {
#include "lanes_ops.inc.h"
    {NULL, NULL},
};
#undef LANES_OP
#undef LANES_DOUBLE_OP

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
static void probe_store_upper(uint16_t *p, const uint32_t *a, const uint32_t *b) {
    vi_store_upper(p, probe_int(a), probe_int(b));
}
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
    for (int i = 0; i < 16; i++) {
        v[i] = vf_load(rows + 16 * i);
    }
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
    for (int i = 0; i < 16; i++) {
        vf_store(out + 16 * i, v[i]);
    }
}
static float probe_lane(const float *v, const int i) { return vf_lane(vf_load(v), i); }

#define PROBE(isa)                                                                                                  \
    {                                                                                                               \
        isa, probe_ops, probe_double_ops, probe_load, probe_store, probe_stream, probe_load_part, probe_store_part, \
            probe_load_u16, probe_load_u16_part, probe_store_u16, probe_store_upper, probe_store_u16_part,          \
            probe_first, probe_any, probe_all, probe_count, probe_any_eq16, probe_table, probe_less,                \
            probe_select_double, probe_widen, probe_narrow, probe_hmax, probe_hadd, probe_hmax16, probe_hadd16,     \
            probe_transpose, probe_lane                                                                             \
    }
