/* ops/softmax/gpu/tile.cuh - a tile in the registers of a warp: load, widen, maximum, terms, fold, store.
 *
 * The 256 lanes in which a tile of 1024 elements is added (sum.h) are assigned to threads so that a thread reads 16
 * bytes at a time. With 16-bit elements thread t has lanes 8t .. 8t+7, with floats lanes 4t .. 4t+3 and 128+4t ..
 * 128+4t+3. It holds an accumulator for each, and goes through the tile in `eights` = 4 steps of 8 elements:
 *
 *     z[8 k + j] = element 256 k + lane(t, j)
 *
 * A row of less than 256 elements needs less than a warp: `group` threads (1, 2, 4, .., 32) have 8 * group lanes, which
 * are folded by halves too. The missing halves would have added +0, which changes nothing. Where comments speak of a
 * warp, they mean a group; several groups of a warp work side by side. Whole warps call every function here.
 *
 * Instructions for an element: widen 1, maximum 1, exp 11, compare with maximum and cutoff 2, add 1, count 1: 17. */
#ifndef NAPIER_OPS_SOFTMAX_GPU_TILE_CUH
#define NAPIER_OPS_SOFTMAX_GPU_TILE_CUH

#include "core/gpu/kernel.h"
#include "core/math/divide.h"
#include "core/math/lanes_math.h"
#include "ops/softmax/gpu/softmax_cuda.h"

/* Code that is rarely needed is called, not inlined. */
#if NAPIER_DEVICE_CODE
#define NAPIER_OUTLINE static __device__ __noinline__
#else
#define NAPIER_OUTLINE static __attribute__((unused))
#endif

/* Launch bounds of a kernel of `threads` threads, so many blocks of which must
 * fit a processor. They limit its registers. */
#if defined(__CUDACC__)
#define NAPIER_CUDA_BOUNDS(threads, blocks) threads, blocks
#else
#define NAPIER_CUDA_BOUNDS(threads, blocks) threads
#endif

/* ---- Lines in global memory -------------------------------------------------------------------------------------- */

/* Element i of a line is at i * stride or, if the line is a whole matrix (cols > 0), in row-major order. */
typedef struct napier_line {
    char *data;
    napier_dtype dtype;
    int64_t size, stride, cols, row_stride;
} napier_line;

NAPIER_INLINE int64_t napier_element_bytes(napier_dtype dtype) { return dtype == NAPIER_F32 ? 4 : 2; }

NAPIER_INLINE napier_line napier_line_of(const void *data, napier_dtype dtype, int64_t rows, int64_t cols,
                                         int64_t row_stride, int64_t col_stride, bool whole, int64_t index) {
    napier_line line = {(char *)data, dtype, cols, col_stride, 0, 0};
    if (whole) {
        line.size = rows * cols;
        line.cols = cols;
        line.row_stride = row_stride;
    } else {
        line.data += index * row_stride * napier_element_bytes(dtype);
    }
    return line;
}
NAPIER_INLINE napier_line napier_line_in(const napier_const_matrix *m, bool whole, int64_t index) {
    return napier_line_of(m->data, m->dtype, m->rows, m->cols, m->row_stride, m->col_stride, whole, index);
}
NAPIER_INLINE napier_line napier_line_out(const napier_matrix *m, bool whole, int64_t index) {
    return napier_line_of(m->data, m->dtype, m->rows, m->cols, m->row_stride, m->col_stride, whole, index);
}

NAPIER_INLINE char *napier_line_at(const napier_line *l, int64_t i) {
    const int64_t at = l->cols == 0 ? i * l->stride : i / l->cols * l->row_stride + i % l->cols * l->stride;
    return l->data + at * napier_element_bytes(l->dtype);
}

/* Can 16 (or 8) bytes of the line be moved at once? */
NAPIER_INLINE bool napier_is_wide(const napier_line *l, int bytes) {
    return l->stride == 1 && l->cols == 0 && ((uintptr_t)l->data & (uintptr_t)(bytes - 1)) == 0;
}

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

/* An element's bits as a float, exactly, and back, rounded once to nearest even; a NaN becomes the canonical one. A
 * device converts in one instruction, subnormals included (two of them at a time when it narrows). */
NAPIER_INLINE float napier_widen(napier_dtype dtype, uint32_t bits) {
    if (dtype == NAPIER_F32) {
        return napier_float_of_bits(bits);
    }
    if (dtype == NAPIER_BF16) {
        return napier_float_of_bits(bits << 16);
    }
#if defined(__CUDACC__)
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
#else
    return vf_from_f16((vi)bits);
#endif
}

/* The bits of two 16-bit elements, the first in the low half. Neither is NaN. */
NAPIER_INLINE uint32_t napier_narrow_numbers(napier_dtype dtype, float first, float second) {
#if defined(__CUDACC__)
    uint32_t both;
    if (dtype == NAPIER_BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    }
    return both;
#else
    const uint32_t low = (uint32_t)(dtype == NAPIER_BF16 ? vf_to_bf16(first) : vf_to_f16_canonical(first));
    const uint32_t high = (uint32_t)(dtype == NAPIER_BF16 ? vf_to_bf16(second) : vf_to_f16_canonical(second));
    return low | high << 16;
#endif
}
/* The same of any floats: a NaN becomes the canonical one. */
NAPIER_INLINE uint32_t napier_narrow_two(napier_dtype dtype, float first, float second) {
    uint32_t both = napier_narrow_numbers(dtype, first, second);
    if (vf_unordered(first, second)) {
        const uint32_t nan = dtype == NAPIER_BF16 ? 0x7fc0u : 0x7e00u;
        both = (first != first ? nan : both & 0xffffu) | (second != second ? nan << 16 : both & 0xffff0000u);
    }
    return both;
}

NAPIER_INLINE uint32_t napier_element_bits(napier_dtype dtype, const char *at) {
    return dtype == NAPIER_F32 ? *(const uint32_t *)at : *(const uint16_t *)at;
}
NAPIER_INLINE float napier_element(const napier_line *l, int64_t i) {
    return napier_widen(l->dtype, napier_element_bits(l->dtype, napier_line_at(l, i)));
}
NAPIER_INLINE void napier_set_element_at(napier_dtype dtype, char *at, float x) {
    if (dtype == NAPIER_F32) {
        *(float *)at = x;
    } else {
        *(uint16_t *)at = (uint16_t)napier_narrow_two(dtype, x, 0.0f);
    }
}
NAPIER_INLINE void napier_set_element(const napier_line *l, int64_t i, float x) {
    napier_set_element_at(l->dtype, napier_line_at(l, i), x);
}

/* ---- Chunks: 16 bytes of elements -------------------------------------------------------------------------------- */

typedef struct napier_words {
    uint32_t w[4];
} __attribute__((aligned(16))) napier_words;

NAPIER_INLINE int napier_chunk_of(napier_dtype dtype) { return dtype == NAPIER_F32 ? 4 : 8; } /* elements */
NAPIER_INLINE int napier_chunks(napier_dtype dtype, int eights) { return dtype == NAPIER_F32 ? 2 * eights : eights; }

/* Where thread t's chunk c begins. */
NAPIER_INLINE int napier_chunk_at(napier_dtype dtype, int group, int t, int c) {
    return (c * group + t) * napier_chunk_of(dtype);
}

NAPIER_INLINE uint32_t napier_minus_infinity_bits(napier_dtype dtype) {
    return dtype == NAPIER_F32 ? 0xff800000u : dtype == NAPIER_BF16 ? 0xff80ff80u : 0xfc00fc00u;
}

/* 16 of the 32 bytes low, high, from byte `offset` on (0 to 15, even). */
NAPIER_INLINE napier_words napier_shift(const napier_words *low, const napier_words *high, int offset) {
    uint32_t w[8] = {low->w[0], low->w[1], low->w[2], low->w[3], high->w[0], high->w[1], high->w[2], high->w[3]};
    NAPIER_UNROLL
    for (int i = 0; i < 6; i++) {
        w[i] = offset & 8 ? w[i + 2] : w[i];
    }
    NAPIER_UNROLL
    for (int i = 0; i < 5; i++) {
        w[i] = offset & 4 ? w[i + 1] : w[i];
    }
    napier_words words;
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        words.w[i] = offset & 2 ? w[i] >> 16 | w[i + 1] << 16 : w[i];
    }
    return words;
}

/* 16 bytes at any address, from the two aligned words of 16 bytes that contain them. */
NAPIER_INLINE napier_words napier_funnel(const char *at) {
    const int offset = (int)((uintptr_t)at & 15);
    napier_words low, high;
    cuda_load_16(at - offset, &low);
    cuda_load_16(at - offset + 16, &high);
    return napier_shift(&low, &high, offset);
}

/* A chunk that is partial, not aligned to 16 bytes, or not contiguous. Elements past the end are
 * -inf, which changes neither sum nor maximum. */
NAPIER_OUTLINE napier_words napier_load_edge(char *data, napier_dtype dtype, int64_t size, int64_t stride, int64_t cols,
                                             int64_t row_stride, int64_t i) {
    const napier_line l = {data, dtype, size, stride, cols, row_stride};
    const int per = napier_chunk_of(dtype), bytes = 16 / per;
    const char *const at = napier_line_at(&l, i);
    const char *const word = at - ((uintptr_t)at & 15);
    if (stride == 1 && cols == 0 && word >= data && word + 32 <= data + size * bytes) {
        return napier_funnel(at);
    }
    napier_words words;
    for (int k = 0; k < 4; k++) {
        words.w[k] = napier_minus_infinity_bits(dtype);
    }
    for (int e = 0; e < per && i + e < size; e++) {
        const uint32_t bits = napier_element_bits(dtype, napier_line_at(&l, i + e));
        if (dtype == NAPIER_F32) {
            words.w[e] = bits;
        } else {
            const int half = 16 * (e & 1);
            words.w[e / 2] = (words.w[e / 2] & ~(0xffffu << half)) | bits << half;
        }
    }
    return words;
}

/* A tile with such chunks. */
NAPIER_OUTLINE void napier_load_edges(const napier_line *l, int64_t first, int group, int t, int chunks,
                                      napier_words *words) {
    const int per = napier_chunk_of(l->dtype);
    for (int c = 0; c < chunks; c++) {
        const int64_t i = first + napier_chunk_at(l->dtype, group, t, c);
        if (napier_is_wide(l, 16) && i + per <= l->size) {
            cuda_load_16(l->data + i * (16 / per), &words[c]);
        } else {
            words[c] = napier_load_edge(l->data, l->dtype, l->size, l->stride, l->cols, l->row_stride, i);
        }
    }
}

/* A tile whose chunks are all aligned to 16 bytes, and each either whole or missing: all
 * loads start before the first value is needed. */
NAPIER_INLINE void napier_load_whole_chunks(const napier_dtype dtype, const int eights, const int group,
                                            const napier_line *l, int64_t first, int t, napier_words *words) {
    const int64_t left = l->size - first;
    const char *const at = l->data + first * napier_element_bytes(dtype) + t * 16;
    NAPIER_UNROLL
    for (int c = 0; c < napier_chunks(dtype, eights); c++) {
        words[c].w[0] = words[c].w[1] = words[c].w[2] = words[c].w[3] = napier_minus_infinity_bits(dtype);
        if (napier_chunk_at(dtype, group, t, c) < left) {
            cuda_load_16(at + c * group * 16, &words[c]);
        }
    }
}

/* The tile that begins at element `first`, a multiple of 1024. */
NAPIER_INLINE void napier_load_tile(const napier_dtype dtype, const int eights, const int group, const napier_line *l,
                                    int64_t first, int t, napier_words *words) {
    const int chunks = napier_chunks(dtype, eights), per = napier_chunk_of(dtype);
    const bool wide = napier_is_wide(l, 16), whole = first + NAPIER_TILE <= l->size;
    if (wide && whole && group == CUDA_WARP && eights == 4) { /* most tiles */
        const char *const at = l->data + (first + t * per) * napier_element_bytes(dtype);
        NAPIER_UNROLL
        for (int c = 0; c < chunks; c++) {
            cuda_load_16(at + c * CUDA_WARP * 16, &words[c]);
        }
        return;
    }
    if (!wide && l->stride == 1 && l->cols == 0 && first > 0 && first + NAPIER_TILE + per <= l->size) {
        const char *const at = l->data + first * napier_element_bytes(dtype) + t * 16;
        NAPIER_UNROLL
        for (int c = 0; c < chunks; c++) {
            words[c] = napier_funnel(at + c * group * 16);
        }
        return;
    }
    if (!wide || (!whole && l->size % per != 0)) {
        const napier_line line = *l;
        napier_words slow[8];
        napier_load_edges(&line, first, group, t, chunks, slow);
        NAPIER_UNROLL
        for (int c = 0; c < chunks; c++) {
            words[c] = slow[c];
        }
        return;
    }
    napier_load_whole_chunks(dtype, eights, group, l, first, t, words);
}

/* Called, because a division is 20 instructions, and few numbers need it. */
NAPIER_OUTLINE float napier_quotient(float x, float temperature) { return x / temperature; }

NAPIER_INLINE void napier_divide(float *z, const int n, float temperature) {
    bool middling = napier_is_middling(temperature);
    NAPIER_UNROLL
    for (int e = 0; e < n; e++) {
        middling = middling && napier_is_middling(z[e]);
    }
    if (middling) {
        const float inverse = napier_quotient(1.0f, temperature);
        NAPIER_UNROLL
        for (int e = 0; e < n; e++) {
            z[e] = napier_divide_by(z[e], temperature, inverse);
        }
    } else {
        NAPIER_UNROLL
        for (int e = 0; e < n; e++) {
            z[e] = napier_quotient(z[e], temperature);
        }
    }
}

/* z = x / temperature of one chunk. */
NAPIER_INLINE void napier_unpack_chunk(const napier_dtype dtype, const napier_words *words, float temperature,
                                       float *z) {
    NAPIER_UNROLL
    for (int e = 0; e < napier_chunk_of(dtype); e++) {
        const uint32_t word = dtype == NAPIER_F32 ? words->w[e] : words->w[e / 2];
        if (dtype == NAPIER_BF16) {
            z[e] = napier_float_of_bits(e & 1 ? word & 0xffff0000u : word << 16);
        } else {
            z[e] = napier_widen(dtype, dtype == NAPIER_F32 ? word : e & 1 ? word >> 16 : word & 0xffffu);
        }
    }
    if (__builtin_expect(temperature != 1.0f, 0)) { /* so that the usual temperature's code stays as it is */
        napier_divide(z, napier_chunk_of(dtype), temperature);
    }
}
NAPIER_INLINE void napier_unpack_tile(const napier_dtype dtype, const int eights, const napier_words *words,
                                      float temperature, float *z) {
    NAPIER_UNROLL
    for (int c = 0; c < napier_chunks(dtype, eights); c++) {
        napier_unpack_chunk(dtype, &words[c], temperature, z + c * napier_chunk_of(dtype));
    }
}

/* Stores results one by one. */
NAPIER_OUTLINE void napier_store_edge(const napier_line *l, int64_t i, int per, const float *v) {
    for (int e = 0; e < per && i + e < l->size; e++) {
        napier_set_element(l, i + e, v[e]);
    }
}

/* Can chunks of `per` results be stored at once? */
NAPIER_INLINE bool napier_is_wide_out(const napier_line *l, const int per) {
    return napier_is_wide(l, per == 4 && l->dtype != NAPIER_F32 ? 8 : 16);
}

/* `per` = 4 or 8 results from element i of a wide line on. */
NAPIER_INLINE void napier_store_whole_chunk(const napier_line *l, int64_t i, const int per, const float *v) {
    char *const at = l->data + i * napier_element_bytes(l->dtype);
    napier_words words;
    if (l->dtype == NAPIER_F32) {
        NAPIER_UNROLL
        for (int c = 0; c < per / 4; c++) {
            NAPIER_UNROLL
            for (int e = 0; e < 4; e++) {
                words.w[e] = napier_float_bits(v[4 * c + e]);
            }
            cuda_store_16(at + 16 * c, &words);
        }
        return;
    }
    NAPIER_UNROLL
    for (int e = 0; e < per; e += 2) {
        words.w[e / 2] = napier_narrow_two(l->dtype, v[e], v[e + 1]);
    }
    if (per == 4) {
        *(uint64_t *)at = words.w[0] | (uint64_t)words.w[1] << 32;
    } else {
        cuda_store_16(at, &words);
    }
}

/* A warp's 32 chunks of 16 bytes, contiguous but not aligned to 16 bytes. Each thread stores the word that its own
 * chunk and the previous one share. The rest at both ends is stored element by element. */
NAPIER_INLINE void napier_store_shifted(const napier_line *l, int64_t i, const int per, const float *v) {
    const int lane = (int)threadIdx.x % CUDA_WARP, bytes = 16 / per;
    char *const at = l->data + i * bytes;
    const int offset = (int)((uintptr_t)at & 15),
              first = (16 - offset) / bytes; /* elements of the chunk in that word */
    napier_words mine, before;
    NAPIER_UNROLL
    for (int e = 0; e < 4; e++) {
        mine.w[e] = per == 4 ? napier_float_bits(v[e]) : napier_narrow_two(l->dtype, v[2 * e], v[2 * e + 1]);
        before.w[e] = (uint32_t)cuda_shuffle_i32((int32_t)mine.w[e], lane == 0 ? 0 : lane - 1);
    }
    if (lane > 0) {
        const napier_words word = napier_shift(&before, &mine, 16 - offset);
        cuda_store_16(at - offset, &word);
    }
    if (lane == 0 || lane == CUDA_WARP - 1) {
        NAPIER_UNROLL
        for (int e = 0; e < per; e++) {
            if (lane == 0 ? e < first : e >= first) {
                napier_set_element_at(l->dtype, at + e * bytes, v[e]);
            }
        }
    }
}

/* The same for any line. */
NAPIER_INLINE void napier_store_chunk(const napier_line *l, int64_t i, const int per, const float *v) {
    if (napier_is_wide_out(l, per) && i + per <= l->size) {
        napier_store_whole_chunk(l, i, per, v);
        return;
    }
    const napier_line line = *l;
    float some[8];
    NAPIER_UNROLL
    for (int e = 0; e < per; e++) {
        some[e] = v[e];
    }
    napier_store_edge(&line, i, per, some);
}

/* ---- Over the threads of a group --------------------------------------------------------------------------------- */

/* x > m ? x : m, but NaN if either is. One instruction. */
NAPIER_INLINE float napier_max_or_nan(float x, float m) {
#if defined(__CUDACC__)
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(m));
    return y;
#else
    return x > m || x != x ? x : m;
#endif
}

/* The lesser of two numbers, in one instruction. */
NAPIER_INLINE float napier_least_of(float a, float b) {
#if defined(__CUDACC__)
    float y;
    asm("min.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
#else
    return a < b ? a : b;
#endif
}

/* Floats in the order of their keys, NaN above all. */
NAPIER_INLINE uint32_t napier_key_of(float x) {
    const uint32_t bits = napier_float_bits(x);
    return x != x ? UINT32_MAX : bits >> 31 ? ~bits : bits | 0x80000000u;
}
NAPIER_INLINE float napier_float_of_key(uint32_t key) {
    return napier_float_of_bits(key >> 31 ? key & 0x7fffffffu : ~key);
}

/* NaN if one of them is NaN; of two zeros either. */
NAPIER_INLINE float napier_group_max(const int group, float m) {
    if (group == CUDA_WARP) {
        return napier_float_of_key(cuda_max_u32(napier_key_of(m)));
    }
    NAPIER_UNROLL
    for (int lanes = group / 2; lanes > 0; lanes /= 2) {
        m = napier_max_or_nan(cuda_shuffle_xor_f32(m, lanes), m);
    }
    return m;
}
NAPIER_INLINE int32_t napier_group_add(const int group, int32_t n) {
    if (group == CUDA_WARP) {
        return (int32_t)cuda_add_u32((uint32_t)n);
    }
    NAPIER_UNROLL
    for (int lanes = group / 2; lanes > 0; lanes /= 2) {
        n += cuda_shuffle_xor_i32(n, lanes);
    }
    return n;
}

/* Folds the lanes of a tile by halves: first those of other threads, then a thread's own 4, 2, 1. Floats begin with a
 * thread's own, 128 apart. While a thread still holds several lanes, two threads share the work: one takes the lower
 * half of the lanes, the other the upper, and the halves are joined at the end. This takes 12 shuffles instead of 40.
 * Every thread gets the sum. */
NAPIER_INLINE float napier_fold(const napier_dtype dtype, const int group, int t, float *lane) {
    const int steps = group >= 32 ? 5 : group >= 16 ? 4 : group >= 8 ? 3 : group >= 4 ? 2 : group >= 2 ? 1 : 0;
    const int first = dtype == NAPIER_F32 ? 4 : 8,
              most = dtype == NAPIER_F32 ? 2 : 3; /* lanes held, and its logarithm */
    const int shared = steps < most ? steps : most, held = first >> shared;
    /* All bounds of loops are literals, so that the lanes become registers before anything else is decided. */
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        lane[i] = dtype == NAPIER_F32 ? lane[i] + lane[i + 4] : lane[i];
    }
    NAPIER_UNROLL
    for (int step = 0; step < 5; step++) {
        const int apart = group >> (step + 1), half = first >> (step + 1);
        const bool upper = (t & apart) != 0;
        if (step < steps && half == 0) {
            lane[0] += cuda_shuffle_xor_f32(lane[0], apart);
        }
        NAPIER_UNROLL
        for (int i = 0; i < 4; i++) {
            if (step < steps && i < half) {
                const float mine = upper ? lane[i + half] : lane[i], other = upper ? lane[i] : lane[i + half];
                lane[i] = mine + cuda_shuffle_xor_f32(other, apart);
            }
        }
    }
    NAPIER_UNROLL
    for (int s = 0; s < 3; s++) {
        NAPIER_UNROLL
        for (int i = 0; i < 8; i++) {
            lane[i] = s < shared && i < held ? lane[i] + cuda_shuffle_xor_f32(lane[i], group >> (s + 1)) : lane[i];
        }
    }
    NAPIER_UNROLL
    for (int half = 4; half > 0; half /= 2) {
        NAPIER_UNROLL
        for (int i = 0; i < 4; i++) {
            if (i < half && half < held) {
                lane[i] += lane[i + half];
            }
        }
    }
    return lane[0];
}

/* ---- The sum of a tile ------------------------------------------------------------------------------------------- */

/* napier_tile_sum in 12 bytes: max is NaN if the tile contains one. */
typedef struct napier_tile_part {
    float max, rest;
    int32_t count;
} napier_tile_part;

NAPIER_INLINE napier_tile_part napier_no_tile(void) { return (napier_tile_part){-INFINITY, 0.0f, 0}; }

/* The maximum of an ordinary tile or row, and its exponent, as the terms need them. */
typedef struct napier_term_scale {
    float max, cutoff, magic;
} napier_term_scale;

NAPIER_INLINE napier_term_scale napier_term_scale_of(float max) {
    const float exponent = fmaf(max, NAPIER_LOG2E, NAPIER_ROUND_MAGIC) - NAPIER_ROUND_MAGIC;
    return (napier_term_scale){max, max - NAPIER_CUTOFF, NAPIER_ROUND_MAGIC + NAPIER_TERM_SCALE - exponent};
}

NAPIER_INLINE bool napier_is_ordinary(float max) { return fabsf(max) <= NAPIER_BIG; }

/* The sum of a tile whose maximum is infinite, NaN or beyond 2^20, by the definition, from memory. If several groups of
 * a warp have a tile each, those whose tile is not odd only keep the warp together. */
NAPIER_OUTLINE napier_tile_part napier_sum_odd_tile(const napier_line *l, int64_t first, int group, int t, int eights,
                                                    float temperature, float max, bool odd) {
    const bool finite = fabsf(max) < NAPIER_HUGE;
    const int64_t exponent = finite ? napier_exp_parts_for(max, max).n : 0;
    napier_tile_part part = {max, 0.0f, 0};
    float lane[8];
    for (int j = 0; j < 8; j++) {
        int64_t i = first + (l->dtype == NAPIER_F32 ? j / 4 * 4 * group + 4 * t + j % 4 : 8 * t + j);
        lane[j] = 0.0f;
        for (int k = 0; k < eights && i < l->size && odd; k++, i += 8 * group) {
            const float x = napier_element(l, i), z = temperature != 1.0f ? x / temperature : x;
            part.count += z == max ? 1 : 0;
            if (finite && z < max && napier_within_cutoff(z, max)) {
                lane[j] += napier_term(z, max, exponent);
            }
        }
    }
    part.count = napier_group_add(group, part.count);
    part.rest = napier_fold(l->dtype, group, t, lane);
    return part;
}

/* The largest of a thread's elements. */
NAPIER_INLINE float napier_largest(const int eights, const float *z) {
    float max = -INFINITY;
    NAPIER_UNROLL
    for (int e = 0; e < 8 * eights; e++) {
        max = napier_max_or_nan(z[e], max);
    }
    return max;
}

/* The same for 32 elements of bf16 as stored, two at a time. */
NAPIER_INLINE float napier_largest_bf16(const napier_words *words, const float *z) {
#if defined(__CUDACC__)
    uint32_t max = words[0].w[0];
    (void)z;
    NAPIER_UNROLL
    for (int i = 1; i < 16; i++) {
        asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(max) : "r"(words[i / 4].w[i % 4]));
    }
    return napier_max_or_nan(napier_float_of_bits(max << 16), napier_float_of_bits(max & 0xffff0000u));
#else
    (void)words;
    return napier_largest(4, z);
#endif
}

/* The maximum of a tile, as its sum and its results use it: both zeros become +0. */
NAPIER_INLINE float napier_tile_max(const int eights, const int group, const float *z) {
    return napier_group_max(group, napier_largest(eights, z)) + 0.0f;
}

/* The term, or 0 beyond the cutoff. The compiler would make a choice between exp and 0 a branch, which some threads take. */
NAPIER_INLINE float napier_near_term(const napier_term_scale *s, float z, float term) {
#if defined(__CUDACC__)
    float near;
    asm("{ .reg .pred p; setp.ge.f32 p, %1, %2; selp.f32 %0, %3, 0f00000000, p; }"
        : "=f"(near)
        : "f"(z), "f"(s->cutoff), "f"(term));
    return near;
#else
    return z >= s->cutoff ? term : 0.0f;
#endif
}

/* Adds an element's term to its lane, if it is below the maximum and not beyond the cutoff; counts it if it is not below.
 * Predicates, because a branch here would be taken by some threads only. */
NAPIER_INLINE void napier_sum_step(const napier_term_scale *s, float z, float term, float *lane, int32_t *count) {
#if defined(__CUDACC__)
    asm("{ .reg .pred p, q; setp.lt.f32 p, %2, %3; setp.ge.and.f32 q, %2, %4, p; @q add.rn.f32 %0, %0, %5;"
        " @!p add.s32 %1, %1, 1; }"
        : "+f"(*lane), "+r"(*count)
        : "f"(z), "f"(s->max), "f"(s->cutoff), "f"(term));
#else
    const bool below = z < s->max;
    *lane = below && z >= s->cutoff ? *lane + term : *lane;
    *count += below ? 0 : 1;
#endif
}

/* The sum of an ordinary tile. keep: its terms replace z, relative to the tile's own exponent. */
NAPIER_INLINE napier_tile_part napier_sum_tile(const napier_dtype dtype, const int eights, const int group, int t,
                                               float max, bool keep, float *z) {
    const napier_term_scale s = napier_term_scale_of(max);
    napier_tile_part part = {max, 0.0f, 0};
    float lane[8] = {0.0f};
    NAPIER_UNROLL
    for (int e = 0; e < 8 * eights; e++) {
        const float term = vf_exp_scaled(z[e], s.magic);
        napier_sum_step(&s, z[e], term, &lane[e % 8], &part.count);
        z[e] = keep ? napier_near_term(&s, z[e], term) : z[e];
    }
    part.count = napier_group_add(group, part.count);
    part.rest = napier_fold(dtype, group, t, lane);
    return part;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* A row's final, prepared for its elements. */
typedef struct napier_writing {
    napier_softmax_op op;
    bool constant, big; /* constant: all results are `value`; big: each element is computed by the definition */
    napier_final final;
    napier_term_scale s;
    float value;
} napier_writing;

NAPIER_INLINE napier_writing napier_writing_of(napier_softmax_op op, napier_masked_rows masked,
                                               const napier_final *final) {
    napier_writing w;
    w.op = op;
    w.final = *final;
    w.constant = final->kind != NAPIER_ROW_FINITE;
    w.big = op == NAPIER_OP_SOFTMAX && napier_is_big(final->max);
    w.s = napier_term_scale_of(w.constant || w.big ? 0.0f : final->max);
    w.value = napier_nan();
    if (final->kind == NAPIER_ROW_MASKED && masked == NAPIER_MASKED_ZERO) {
        w.value = op == NAPIER_OP_SOFTMAX ? 0.0f : -INFINITY;
    }
    return w;
}

/* Odd rows, each element of which is computed by the definition. They are rare. */
NAPIER_INLINE bool napier_is_odd_row(const napier_writing *w) {
    return w->constant || w->big || w->final.factor != 1.0f;
}

NAPIER_INLINE float napier_odd_result(const napier_writing *w, float z) {
    const napier_final *const f = &w->final;
    float result = w->value;
    if (!w->constant) {
        result = w->op == NAPIER_OP_SOFTMAX ? napier_softmax_of(f, z) : napier_log_softmax_of(f, z);
    }
    if (f->factor != 1.0f) {
        result = result * f->factor;
        result = result != result ? napier_nan() : result;
    }
    return result;
}

/* The chunks that thread t of a group has among elements [first, first + 1024) of an odd row, from memory. Each thread
 * reads before it writes, and only its own elements, so the result may be in place. */
NAPIER_OUTLINE void napier_write_odd(const napier_line *x, const napier_line *y, const napier_writing *w,
                                     float temperature, int64_t first, int group, int t) {
    const int per = napier_chunk_of(x->dtype);
    for (int c = 0; napier_chunk_at(x->dtype, group, t, c) < NAPIER_TILE; c++) {
        const int64_t begin = first + napier_chunk_at(x->dtype, group, t, c);
        for (int64_t i = begin; i < begin + per && i < x->size; i++) {
            const float z = napier_element(x, i);
            napier_set_element(y, i, napier_odd_result(w, temperature != 1.0f ? z / temperature : z));
        }
    }
}

/* softmax of a term; 0 is that of an element beyond the cutoff. Subnormal products are not slow on a device. */
NAPIER_INLINE float napier_prob_of_term(const napier_final *f, float term) {
    return napier_least_of(term * f->scale, f->max_prob);
}

/* For a row that is not odd, so it is not NaN. */
NAPIER_INLINE float napier_result_of(const bool log, const napier_writing *w, float z) {
    if (log) {
        return (z - w->final.max) - w->final.log_sum;
    }
    return napier_prob_of_term(&w->final, napier_near_term(&w->s, z, vf_exp_scaled(z, w->s.magic)));
}

#endif
