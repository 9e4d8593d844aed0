/* core/isa/blocks.inc.h - blocks of small integers as rows of f32 (core/math/blocks.h). Compiled once per instruction set. */
#ifndef NAPIER_CORE_ISA_BLOCKS_INC_H
#define NAPIER_CORE_ISA_BLOCKS_INC_H

#include "core/isa/core_kernels.h"
#include "core/math/elements.h"

/* Into the second-level cache. Rows follow one another, so that these are blocks of the next rows; or they lie beyond the array. */
NAPIER_KERNEL void napier_fetch_block(const uint8_t *block) {
    enum { AHEAD = 4096 };
    __builtin_prefetch((const void *)((uintptr_t)block + AHEAD), 0, 2);
}

/* The f16 at an address, in all lanes. */
NAPIER_KERNEL vf napier_half_at(const uint8_t *at) {
    const int32_t half = at[0] | at[1] << 8;
#if defined(NAPIER_LANES_AVX512) || defined(NAPIER_LANES_AVX2)
    return vf_set(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half))));
#else
    return vf_from_f16(vi_set(half));
#endif
}

/* out[i] = table[half i of the bytes]: the lower halves of 16 bytes, then the upper ones. */
NAPIER_KERNEL void napier_look_up(const uint8_t *halves, const vf table, float *out) {
#if defined(NAPIER_LANES_AVX512)
    /* A permutation of 16 lanes looks at the lowest four bits of each index. */
    const __m512i q = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)halves));
    vf_store(out, _mm512_permutexvar_ps(q, table));
    vf_store(out + 16, _mm512_permutexvar_ps(_mm512_srli_epi32(q, 4), table));
#elif defined(NAPIER_LANES_AVX2)
    const __m128i q = _mm_loadu_si128((const __m128i *)(const void *)halves), four = _mm_set1_epi8(15);
    const __m128i index[2] = {_mm_and_si128(q, four), _mm_and_si128(_mm_srli_epi16(q, 4), four)};
    NAPIER_UNROLL_ALL
    for (int i = 0; i < 4; i++) { /* the fourth bit of an index, as the sign, selects the upper half of the table */
        const __m256i k = _mm256_cvtepu8_epi32(i % 2 ? _mm_srli_si128(index[i / 2], 8) : index[i / 2]);
        const __m256 low = _mm256_permutevar8x32_ps(table.lo, k), high = _mm256_permutevar8x32_ps(table.hi, k);
        _mm256_storeu_ps(out + 8 * i, _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(k, 28))));
    }
#else
    float values[16];
    vf_store(values, table);
    for (int i = 0; i < 16; i++) {
        out[i] = values[halves[i] & 15];
        out[i + 16] = values[halves[i] >> 4];
    }
#endif
}

/* A block of four-bit numbers has only 16 different values. An f16 times four bits is exact, so that an fma rounds once, as the
 * sum does. */
NAPIER_KERNEL void napier_widen_fours(const bool minimum, const uint8_t *from, int64_t count, float *out) {
    enum { ELEMENTS = 32, HALVES = 16 };
    static const float plus[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const float around[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    const vf numbers = vf_load(minimum ? plus : around);
    const int bytes = HALVES + (minimum ? 4 : 2);
    for (int64_t i = 0; i < count; i++, from += bytes) {
        const vf scale = napier_half_at(from), least = napier_half_at(from + 2);
        napier_fetch_block(from);
        napier_look_up(from + bytes - HALVES, minimum ? vf_fma(scale, numbers, least) : vf_mul(scale, numbers),
                       out + ELEMENTS * i);
    }
}

/* 16 numbers of eight bits. */
NAPIER_KERNEL vf napier_eights(const uint8_t *numbers) {
#if defined(NAPIER_LANES_AVX512)
    return vf_from_int(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)numbers)));
#elif defined(NAPIER_LANES_AVX2)
    const __m128i all = _mm_loadu_si128((const __m128i *)(const void *)numbers);
    return vf_from_int((vi){_mm256_cvtepi8_epi32(all), _mm256_cvtepi8_epi32(_mm_srli_si128(all, 8))});
#else
    float all[16];
    for (int i = 0; i < 16; i++) {
        all[i] = (float)(int8_t)numbers[i];
    }
    return vf_load(all);
#endif
}

NAPIER_KERNEL void napier_widen_eights(const uint8_t *from, int64_t count, float *out) {
    enum { ELEMENTS = 32, BYTES = 2 + ELEMENTS };
    for (int64_t i = 0; i < count; i++, from += BYTES) {
        const vf scale = napier_half_at(from);
        napier_fetch_block(from);
        vf_store(out + ELEMENTS * i, vf_mul(scale, napier_eights(from + 2)));
        vf_store(out + ELEMENTS * i + 16, vf_mul(scale, napier_eights(from + 18)));
    }
}

static void napier_widen_rows(const napier_blocks *b, int64_t row, int64_t rows, int64_t k, int64_t cols, float *out,
                              int64_t step) {
    const uint8_t *from = b->data + row * b->row_bytes + k / b->elements * b->bytes;
    const int64_t count = cols / b->elements;
    for (int64_t r = 0; r < rows; r++, from += b->row_bytes, out += step) {
        switch (b->kind) {
        case NAPIER_BLOCK_Q4_0: napier_widen_fours(false, from, count, out); break;
        case NAPIER_BLOCK_Q4_1: napier_widen_fours(true, from, count, out); break;
        case NAPIER_BLOCK_Q8_0: napier_widen_eights(from, count, out); break;
        default:
            for (int64_t i = 0; i < count; i++) {
                b->widen(from + i * b->bytes, out + i * b->elements);
            }
        }
    }
}

#endif
