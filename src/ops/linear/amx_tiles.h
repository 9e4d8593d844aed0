/* ops/linear/amx_tiles.h - the instructions of x86's matrix engine that amx.c uses.
 *
 * A tile has 16 rows of 64 bytes. tests/unit/linear/amx_emulated.c computes the same in C, so that amx.c can be tested on a
 * machine without the engine: it is compiled once more with NAPIER_AMX_EMULATED. Numbers of tiles must be constants. */
#ifndef NAPIER_OPS_LINEAR_AMX_TILES_H
#define NAPIER_OPS_LINEAR_AMX_TILES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { NAPIER_TILE_ROWS = 16, NAPIER_TILE_BYTES = 64 };

#ifdef NAPIER_AMX_EMULATED

#define NAPIER_HAS_AMX 1
#define NAPIER_AMX
#define NAPIER_AMX_INLINE static inline
#define NAPIER_AMX_FENCE()
#define napier_line_copy(to, from) memcpy(to, from, NAPIER_TILE_BYTES)

void napier_tile_configure(void);
void napier_tile_release(void);
void napier_tile_zero(int tile);
void napier_tile_load(int tile, const void *from, size_t step);
#define napier_tile_stream napier_tile_load
void napier_tile_store(int tile, void *to, size_t step);
void napier_tile_multiply(int sums, int rows, int lanes);

#elif defined(__linux__) && defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)

#define NAPIER_HAS_AMX 1
#define NAPIER_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl")))
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
#define napier_tile_release() _tile_release()
#define napier_tile_zero(tile) _tile_zero(tile)
#define napier_tile_load(tile, from, step) _tile_loadd(tile, from, step) /* row r from `from` + r * step bytes */
#define napier_tile_stream(tile, from, step) _tile_stream_loadd(tile, from, step) /* the caches keep other data first */
#define napier_tile_store(tile, to, step) _tile_stored(tile, to, step)
/* sums[r][l] += rows[r] . lanes[.][l], over 32 k: rows of 32 bf16; lanes in 16 rows, of a pair of k each. */
#define napier_tile_multiply(sums, rows, lanes) _tile_dpbf16ps(sums, rows, lanes)

#else
#define NAPIER_HAS_AMX 0
#endif

#endif
