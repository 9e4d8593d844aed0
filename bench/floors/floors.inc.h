/* bench/floors/floors.inc.h - the floor kernels, on the library's vectors. floors_<isa>.c defines NAPIER_LANES_<ISA>
 * and FLOORS_TABLE and includes this. The exponential is the library's own (core/math/exp.h): degree 6, ln 2 in two
 * parts. exp_sum has nothing that a softmax needs besides. row does the rest of what any softmax must do, and nothing of
 * what Napier promises besides: no fixed order, no exclusion of the maximum, no care for NaN, masks and subnormals. */
#include "floors.h"
#include "core/math/elements.h"

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
            for (int k = 0; k < 4; k++) {
                prefetch(s + AHEAD + 64 * k);
            }
        }
        UNROLLED
        for (int k = 0; k < 4; k++) {
            const vf v = vf_load((const float *)(s + 64 * k));
            if (stream) {
                vf_stream(d + 16 * k, v);
            } else {
                vf_store(d + 16 * k, v);
            }
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
    for (int k = 0; k < 8; k++) {
        seen[k] = vi_set(0);
    }
    for (size_t i = 0; i < bytes; i += 512) {
        const char *const s = (const char *)from + i;
        if (ahead) {
            UNROLLED
            for (int k = 0; k < 8; k++) {
                prefetch(s + 2 * AHEAD + 64 * k);
            }
        }
        UNROLLED
        for (int k = 0; k < 8; k++) {
            seen[k] = vi_or(seen[k], vi_load((const int32_t *)(s + 64 * k)));
        }
    }
    int32_t lanes[16], all = 0;
    UNROLLED
    for (int k = 1; k < 8; k++) {
        seen[0] = vi_or(seen[0], seen[k]);
    }
    vi_store(lanes, seen[0]);
    for (int k = 0; k < 16; k++) {
        all |= lanes[k];
    }
    return all;
}

static int read_plain(const void *from, size_t bytes) { return read_bytes(from, bytes, false); }
static int read_ahead(const void *from, size_t bytes) { return read_bytes(from, bytes, true); }

NAPIER_INLINE void fill_bytes(void *const to, const size_t bytes, const bool stream) {
    for (size_t i = 0; i < bytes; i += 256) {
        float *const d = (float *)((char *)to + i);
        UNROLLED
        for (int k = 0; k < 4; k++) {
            if (stream) {
                vf_stream(d + 16 * k, vf_zero());
            } else {
                vf_store(d + 16 * k, vf_zero());
            }
        }
    }
}

static void fill_plain(void *to, size_t bytes) { fill_bytes(to, bytes, false); }
static void fill_stream(void *to, size_t bytes) { fill_bytes(to, bytes, true); }

/* exp(x) = p 2^n. The power of two comes in either as a factor of an fma or product, or as an integer addition to the
 * exponent bits: which is faster depends on how many FMA units there are. */
typedef struct exp_parts {
    vf p;
    vi power;
} exp_parts;

NAPIER_INLINE exp_parts exp_of(const vf x, const bool by_integer) {
    const vf magic = vf_set(by_integer ? NAPIER_ROUND_MAGIC : NAPIER_ROUND_MAGIC + 127.0f);
    const vf t = vf_fma(x, vf_set(NAPIER_LOG2E), magic);
    const vf n = vf_sub(t, magic);
    const vf r = vf_fnma(n, vf_set(NAPIER_LN2_LO), vf_fnma(n, vf_set(NAPIER_LN2_HI), x));
    return (exp_parts){vf_exp_polynomial(r), vi_shl(vf_bits(t), 23)};
}

NAPIER_INLINE vf exp_whole(const exp_parts e, const bool by_integer) {
    return by_integer ? vf_from_bits(vi_add(vf_bits(e.p), e.power)) : vf_mul(e.p, vf_from_bits(e.power));
}

/* exp(x) added to `sum`. */
NAPIER_INLINE vf add_exp(const vf sum, const vf x, const bool by_integer) {
    const exp_parts e = exp_of(x, by_integer);
    return by_integer ? vf_add(sum, exp_whole(e, true)) : vf_fma(e.p, vf_from_bits(e.power), sum);
}

NAPIER_INLINE float unrolled_exp_sum(const float *const x, const int n, const int unroll, const bool by_integer) {
    vf sum[4];
    UNROLLED
    for (int k = 0; k < unroll; k++) {
        sum[k] = vf_zero();
    }
    for (int i = 0; i < n; i += 16 * unroll) {
        UNROLLED
        for (int k = 0; k < unroll; k++) {
            sum[k] = add_exp(sum[k], vf_load(x + i + 16 * k), by_integer);
        }
    }
    UNROLLED
    for (int k = 1; k < unroll; k++) {
        sum[0] = vf_add(sum[0], sum[k]);
    }
    return vf_hadd(sum[0]);
}

static float exp_fma_1(const float *x, int n) { return unrolled_exp_sum(x, n, 1, false); }
static float exp_fma_4(const float *x, int n) { return unrolled_exp_sum(x, n, 4, false); }
static float exp_int_1(const float *x, int n) { return unrolled_exp_sum(x, n, 1, true); }
static float exp_int_4(const float *x, int n) { return unrolled_exp_sum(x, n, 4, true); }

/* 32 elements from i on, in any order. */
NAPIER_INLINE void load_32(const void *const x, const bool bf16, const int i, vf *const v) {
    if (bf16) {
        const vi pairs = vi_load((const int32_t *)(const void *)((const char *)x + 2 * i));
        v[0] = napier_bf16_even(pairs);
        v[1] = napier_bf16_odd(pairs);
    } else {
        v[0] = vf_load((const float *)x + i);
        v[1] = vf_load((const float *)x + i + 16);
    }
}

NAPIER_INLINE void store_32(void *const y, const bool bf16, const int i, const vf *const v) {
    if (bf16) {
        vi_store((int32_t *)(void *)((char *)y + 2 * i), napier_bf16_pairs(v[0], v[1]));
    } else {
        vf_store((float *)y + i, v[0]);
        vf_store((float *)y + i + 16, v[1]);
    }
}

NAPIER_INLINE float row_max(const bool bf16, const void *const x) {
    vf max[4], v[4];
    load_32(x, bf16, 0, max);
    load_32(x, bf16, 32, max + 2);
    for (int i = 64; i < FLOOR_ROW; i += 64) {
        load_32(x, bf16, i, v);
        load_32(x, bf16, i + 32, v + 2);
        UNROLLED
        for (int k = 0; k < 4; k++) {
            max[k] = vf_max(v[k], max[k]);
        }
    }
    return vf_hmax(vf_max(vf_max(max[0], max[1]), vf_max(max[2], max[3])));
}

/* terms: NULL, or where they are kept. unroll: 2 or 4 vectors. */
NAPIER_INLINE float row_sum(const bool bf16, const void *const x, const float max, float *const terms, const int unroll,
                            const bool by_integer) {
    vf sum[4], v[4];
    UNROLLED
    for (int k = 0; k < unroll; k++) {
        sum[k] = vf_zero();
    }
    for (int i = 0; i < FLOOR_ROW; i += 16 * unroll) {
        UNROLLED
        for (int k = 0; k < unroll; k += 2) {
            load_32(x, bf16, i + 16 * k, v + k);
        }
        UNROLLED
        for (int k = 0; k < unroll; k++) {
            const vf down = vf_sub(v[k], vf_set(max));
            if (terms) {
                const vf term = exp_whole(exp_of(down, by_integer), by_integer);
                vf_store(terms + i + 16 * k, term);
                sum[k] = vf_add(sum[k], term);
            } else {
                sum[k] = add_exp(sum[k], down, by_integer);
            }
        }
    }
    UNROLLED
    for (int k = 1; k < unroll; k++) {
        sum[0] = vf_add(sum[0], sum[k]);
    }
    return vf_hadd(sum[0]);
}

/* One logarithm a row, which several rows could share, is left out. */
NAPIER_INLINE float whole_row(const floor_op op, const bool bf16, const void *const x, void *const y, const int unroll,
                              const bool by_integer) {
    _Alignas(64) float terms[FLOOR_ROW];
    const bool softmax = op == FLOOR_SOFTMAX;
    float *const kept = !softmax ? NULL : bf16 ? terms : y;
    const float max = row_max(bf16, x), sum = row_sum(bf16, x, max, kept, unroll, by_integer);
    if (op == FLOOR_LOGSUMEXP) {
        return max + sum;
    }
    const vf by = vf_set(softmax ? 1.0f / sum : max + sum);
    for (int i = 0; i < FLOOR_ROW; i += 32) {
        vf v[2];
        load_32(softmax ? kept : x, softmax ? false : bf16, i, v);
        UNROLLED
        for (int k = 0; k < 2; k++) {
            v[k] = softmax ? vf_mul(v[k], by) : vf_sub(v[k], by);
        }
        store_32(y, bf16, i, v);
    }
    return sum;
}

#define ROW_CASE(op_, unroll_, by_integer_) \
    (bf16 ? whole_row(op_, true, x, y, unroll_, by_integer_) : whole_row(op_, false, x, y, unroll_, by_integer_))
#define ROW(name_, unroll_, by_integer_)                                                     \
    static float name_(const floor_op op, const bool bf16, const void *x, void *y) {         \
        return op == FLOOR_SOFTMAX       ? ROW_CASE(FLOOR_SOFTMAX, unroll_, by_integer_)     \
               : op == FLOOR_LOG_SOFTMAX ? ROW_CASE(FLOOR_LOG_SOFTMAX, unroll_, by_integer_) \
                                         : ROW_CASE(FLOOR_LOGSUMEXP, unroll_, by_integer_);  \
    }
ROW(row_fma_2, 2, false)
ROW(row_fma_4, 4, false)
ROW(row_int_2, 2, true)
ROW(row_int_4, 4, true)

const floor_kernels FLOORS_TABLE = {
    {copy_libc, copy_plain, copy_stream, copy_stream_ahead},
    {read_plain, read_ahead},
    {fill_plain, fill_stream},
    {exp_fma_1, exp_fma_4, exp_int_1, exp_int_4},
    {row_fma_2, row_fma_4, row_int_2, row_int_4},
};
