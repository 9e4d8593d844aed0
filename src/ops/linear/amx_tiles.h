/* ops/linear/amx_tiles.h - the instructions of x86's matrix engine that amx.c uses.
 *
 * A tile has 16 rows of 64 bytes. tests/unit/linear/amx_emulated.c computes the same in C, so that amx.c can be tested on a
 * machine without the engine: it is compiled once more with NAPIER_AMX_EMULATED. Numbers of tiles must be constants. */
#ifndef NAPIER_OPS_LINEAR_AMX_TILES_H
#define NAPIER_OPS_LINEAR_AMX_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { NAPIER_TILE_ROWS = 16, NAPIER_TILE_BYTES = 64 };

/* Makes 16 pairs of an even and an odd k, on any processor. */
static inline void napier_plain_line_of_pairs(uint32_t *to, const uint16_t *even, const uint16_t *odd) {
    uint16_t low[NAPIER_TILE_ROWS], high[NAPIER_TILE_ROWS];
    memcpy(low, even, sizeof low);
    memcpy(high, odd, sizeof high);
    for (int l = 0; l < NAPIER_TILE_ROWS; l++) {
        to[l] = low[l] | (uint32_t)high[l] << 16;
    }
}

#ifdef NAPIER_AMX_EMULATED

#define NAPIER_HAS_AMX 1
#define NAPIER_AMX
#define NAPIER_AMX_INLINE static inline
#define NAPIER_AMX_FENCE()
#define napier_line_copy(to, from) memcpy(to, from, NAPIER_TILE_BYTES)
#define napier_line_of_pairs napier_plain_line_of_pairs

void napier_tile_configure(void);
void napier_tile_release(void);
void napier_tile_zero(int tile);
void napier_tile_load(int tile, const void *from, size_t step);
#define napier_tile_stream napier_tile_load
void napier_tile_store(int tile, void *to, size_t step);
void napier_tile_multiply(int sums, int rows, int lanes);
void napier_tile_round(const float *from, uint16_t *to, int64_t count, bool stream);
void napier_tile_copy(const float *from, float *to, int64_t count, bool stream);
#define napier_tile_stream_fence()

#elif defined(__linux__) && defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)

#define NAPIER_HAS_AMX 1
#define NAPIER_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define NAPIER_AMX_INLINE NAPIER_AMX __attribute__((always_inline)) static inline
/* The compiler does not know what tile instructions read and write. */
#define NAPIER_AMX_FENCE() __asm__ volatile("" : : : "memory")

#include <immintrin.h>

typedef struct napier_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} napier_tile_config;

/* All tiles have their full size. */
NAPIER_AMX static inline void napier_tile_configure(void) {
    napier_tile_config config = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        config.row_bytes[tile] = NAPIER_TILE_BYTES;
        config.rows[tile] = NAPIER_TILE_ROWS;
    }
    NAPIER_AMX_FENCE();
    _tile_loadconfig(&config);
}

/* Copies the row of a tile. */
#define napier_line_copy(to, from) _mm512_storeu_si512(to, _mm512_loadu_si512(from))
/* As napier_plain_line_of_pairs. */
NAPIER_AMX_INLINE void napier_line_of_pairs(uint32_t *to, const uint16_t *even, const uint16_t *odd) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)even));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)odd));
    _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}
#define napier_tile_release() _tile_release()
#define napier_tile_zero(tile) _tile_zero(tile)
#define napier_tile_load(tile, from, step) _tile_loadd(tile, from, step) /* row r from `from` + r * step bytes */
#define napier_tile_stream(tile, from, step) _tile_stream_loadd(tile, from, step) /* the caches keep other data first */
#define napier_tile_store(tile, to, step) _tile_stored(tile, to, step)
/* sums[r][l] += rows[r] . lanes[.][l], over 32 k: rows of 32 bf16; lanes in 16 rows, of a pair of k each. */
#define napier_tile_multiply(sums, rows, lanes) _tile_dpbf16ps(sums, rows, lanes)

#define napier_tile_stream_fence() _mm_sfence() /* other threads see what went past the caches */

/* NaN as the canonical one. */
#define NAPIER_TILE_CANONICAL(low, high)                                                    \
    if (__builtin_expect(_mm512_cmp_ps_mask(low, high, _CMP_UNORD_Q) != 0, 0)) {            \
        const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));              \
        low = _mm512_mask_mov_ps(low, _mm512_cmp_ps_mask(low, low, _CMP_UNORD_Q), nan);     \
        high = _mm512_mask_mov_ps(high, _mm512_cmp_ps_mask(high, high, _CMP_UNORD_Q), nan); \
    }

/* Rounds up to 32 sums to bf16. Sums are never subnormal, which the instruction takes for 0. stream: past the caches, if they
 * are a whole line. */
NAPIER_AMX_INLINE void napier_tile_round(const float *from, uint16_t *to, int64_t count, bool stream) {
    __m512 low = _mm512_loadu_ps(from), high = _mm512_loadu_ps(from + 16);
    NAPIER_TILE_CANONICAL(low, high)
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    if (stream && count >= 32 && ((uintptr_t)to & 63) == 0) {
        _mm512_stream_si512((void *)to, both);
    } else {
        _mm512_mask_storeu_epi16(to, count >= 32 ? 0xffffffffu : (1u << count) - 1u, both);
    }
}

/* Copies them. */
NAPIER_AMX_INLINE void napier_tile_copy(const float *from, float *to, int64_t count, bool stream) {
    __m512 low = _mm512_loadu_ps(from), high = _mm512_loadu_ps(from + 16);
    NAPIER_TILE_CANONICAL(low, high)
    if (stream && count >= 32 && ((uintptr_t)to & 63) == 0) {
        _mm512_stream_ps(to, low);
        _mm512_stream_ps(to + 16, high);
    } else {
        const uint32_t lanes = count >= 32 ? 0xffffffffu : (1u << count) - 1u;
        _mm512_mask_storeu_ps(to, (__mmask16)lanes, low);
        _mm512_mask_storeu_ps(to + 16, (__mmask16)(lanes >> 16), high);
    }
}

#else
#define NAPIER_HAS_AMX 0
#endif

#endif
