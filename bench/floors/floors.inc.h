/* bench/floors/floors.inc.h - the floor kernels, on the library's vectors. floors_<isa>.c defines NAPIER_LANES_<ISA>
 * and FLOORS_TABLE and includes this. The exponential is the library's own (core/math/exp.h): degree 6, ln 2 in two
 * parts; here without anything a softmax needs besides: no maximum, no exclusion, no exact merge. */
#include "floors.h"
#include "core/math/exp.h"
#include "core/simd/lanes.h"

/* Loops over a few vectors must be unrolled, or their arrays live in memory. */
#define UNROLLED _Pragma("GCC unroll 8")

enum { AHEAD = 2048 }; /* bytes to prefetch ahead: best of 1, 2, 4 KiB where it was tried */

NAPIER_INLINE void prefetch(const char *p) { __builtin_prefetch(p, 0, 3); }

NAPIER_INLINE void copy_bytes(void *const to, const void *const from, const size_t bytes, const bool stream,
                              const bool ahead) {
    for (size_t i = 0; i < bytes; i += 256) {
        const char *const s = (const char *)from + i;
        float *const d = (float *)((char *)to + i);
        if (ahead) {
            UNROLLED
            for (int k = 0; k < 4; k++)
                prefetch(s + AHEAD + 64 * k);
        }
        UNROLLED
        for (int k = 0; k < 4; k++) {
            const vf v = vf_load((const float *)(s + 64 * k));
            if (stream)
                vf_stream(d + 16 * k, v);
            else
                vf_store(d + 16 * k, v);
        }
    }
}

static void copy_libc(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static void copy_plain(void *to, const void *from, size_t bytes) { copy_bytes(to, from, bytes, false, false); }
static void copy_stream(void *to, const void *from, size_t bytes) { copy_bytes(to, from, bytes, true, false); }
static void copy_stream_ahead(void *to, const void *from, size_t bytes) { copy_bytes(to, from, bytes, true, true); }

NAPIER_INLINE int read_bytes(const void *const from, const size_t bytes, const bool ahead) {
    vi seen[8];
    UNROLLED
    for (int k = 0; k < 8; k++)
        seen[k] = vi_set(0);
    for (size_t i = 0; i < bytes; i += 512) {
        const char *const s = (const char *)from + i;
        if (ahead) {
            UNROLLED
            for (int k = 0; k < 8; k++)
                prefetch(s + 2 * AHEAD + 64 * k);
        }
        UNROLLED
        for (int k = 0; k < 8; k++)
            seen[k] = vi_or(seen[k], vi_load((const int32_t *)(s + 64 * k)));
    }
    int32_t lanes[16], all = 0;
    UNROLLED
    for (int k = 1; k < 8; k++)
        seen[0] = vi_or(seen[0], seen[k]);
    vi_store(lanes, seen[0]);
    for (int k = 0; k < 16; k++)
        all |= lanes[k];
    return all;
}

static int read_plain(const void *from, size_t bytes) { return read_bytes(from, bytes, false); }
static int read_ahead(const void *from, size_t bytes) { return read_bytes(from, bytes, true); }

NAPIER_INLINE void fill_bytes(void *const to, const size_t bytes, const bool stream) {
    for (size_t i = 0; i < bytes; i += 256) {
        float *const d = (float *)((char *)to + i);
        UNROLLED
        for (int k = 0; k < 4; k++) {
            if (stream)
                vf_stream(d + 16 * k, vf_zero());
            else
                vf_store(d + 16 * k, vf_zero());
        }
    }
}

static void fill_plain(void *to, size_t bytes) { fill_bytes(to, bytes, false); }
static void fill_stream(void *to, size_t bytes) { fill_bytes(to, bytes, true); }

/* exp(x) added to `sum`. The power of two comes in either as a factor of the fma that adds, or as an integer addition to
 * the exponent bits: which is faster depends on how many FMA units there are. */
NAPIER_INLINE vf add_exp(const vf sum, const vf x, const bool by_integer) {
    const vf magic = vf_set(by_integer ? NAPIER_ROUND_MAGIC : NAPIER_ROUND_MAGIC + 127.0f);
    const vf t = vf_fma(x, vf_set(NAPIER_LOG2E), magic);
    const vf n = vf_sub(t, magic);
    const vf r = vf_fnma(n, vf_set(NAPIER_LN2_LO), vf_fnma(n, vf_set(NAPIER_LN2_HI), x));
    vf p = vf_set(NAPIER_EXP_C6);
    p = vf_fma(p, r, vf_set(NAPIER_EXP_C5));
    p = vf_fma(p, r, vf_set(NAPIER_EXP_C4));
    p = vf_fma(p, r, vf_set(NAPIER_EXP_C3));
    p = vf_fma(p, r, vf_set(NAPIER_EXP_C2));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_fma(p, r, vf_set(1.0f));
    const vi power = vi_shl(vf_bits(t), 23);
    if (by_integer)
        return vf_add(sum, vf_from_bits(vi_add(vf_bits(p), power)));
    return vf_fma(p, vf_from_bits(power), sum);
}

NAPIER_INLINE float unrolled_exp_sum(const float *const x, const int n, const int unroll, const bool by_integer) {
    vf sum[4];
    UNROLLED
    for (int k = 0; k < unroll; k++)
        sum[k] = vf_zero();
    for (int i = 0; i < n; i += 16 * unroll) {
        UNROLLED
        for (int k = 0; k < unroll; k++)
            sum[k] = add_exp(sum[k], vf_load(x + i + 16 * k), by_integer);
    }
    UNROLLED
    for (int k = 1; k < unroll; k++)
        sum[0] = vf_add(sum[0], sum[k]);
    return vf_hadd(sum[0]);
}

static float exp_fma_1(const float *x, int n) { return unrolled_exp_sum(x, n, 1, false); }
static float exp_fma_4(const float *x, int n) { return unrolled_exp_sum(x, n, 4, false); }
static float exp_int_1(const float *x, int n) { return unrolled_exp_sum(x, n, 1, true); }
static float exp_int_4(const float *x, int n) { return unrolled_exp_sum(x, n, 4, true); }

const floor_kernels FLOORS_TABLE = {
    {copy_libc, copy_plain, copy_stream, copy_stream_ahead},
    {read_plain, read_ahead},
    {fill_plain, fill_stream},
    {exp_fma_1, exp_fma_4, exp_int_1, exp_int_4},
};
