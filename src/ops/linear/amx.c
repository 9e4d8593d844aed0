/* ops/linear/amx.c - see ops/linear/amx.h. Sources: Intel 64 and IA-32 Architectures Software Developer's Manual,
 * TDPBF16PS and XSAVE; Linux, Documentation/arch/x86/xstate.rst. */
#if defined(__linux__) && defined(__x86_64__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* syscall */
#endif
#include "ops/linear/amx.h"

#include <string.h>

#include "core/base/sizes.h"
#include "ops/linear/amx_tiles.h"

/* ---- Packing ----------------------------------------------------------------------------------------------------- */

static const uint16_t *element(const napier_const_matrix *m, int64_t row, int64_t col) {
    return (const uint16_t *)m->data + row * m->row_stride + col * m->col_stride;
}

/* Lanes lie along k, so a pair is one number. */
static void pack_along(const napier_const_matrix *m, int64_t lane, int64_t lanes, int64_t k, int64_t pairs,
                       uint32_t *out) {
    for (int64_t l = 0; l < lanes; l++) {
        const uint16_t *from = element(m, lane + l, k);
        for (int64_t p = 0; p < pairs; p++) {
            memcpy(out + p * NAPIER_ENGINE_LANES + l, from + 2 * p, sizeof *out);
        }
    }
}

/* Two k of neighbouring lanes. */
static void weave(const uint16_t *restrict even, const uint16_t *restrict odd, uint32_t *restrict out) {
    for (int l = 0; l < NAPIER_ENGINE_LANES; l++) {
        out[l] = even[l] | (uint32_t)odd[l] << 16;
    }
}

static void pack_pair(const napier_const_matrix *m, int64_t lane, int64_t lanes, int64_t k, bool odd, uint32_t *out) {
    const uint16_t *even_k = element(m, lane, k), *odd_k = odd ? element(m, lane, k + 1) : NULL;
    if (odd_k && m->row_stride == 1 && lanes == NAPIER_ENGINE_LANES) {
        weave(even_k, odd_k, out);
        return;
    }
    for (int64_t l = 0; l < lanes; l++) {
        const uint32_t high = odd_k ? odd_k[l * m->row_stride] : 0;
        out[l] = even_k[l * m->row_stride] | high << 16;
    }
}

void napier_engine_pack_lanes(const napier_const_matrix *m, int64_t lane, int64_t lanes, int64_t k, int64_t cols,
                              int64_t padded, uint32_t *out) {
    if (lanes < NAPIER_ENGINE_LANES || cols < padded) {
        memset(out, 0, (size_t)(padded / 2 * NAPIER_ENGINE_LANES) * sizeof *out);
    }
    if (lanes == 0) {
        return;
    }
    const int64_t whole = m->col_stride == 1 ? cols / 2 : 0;
    pack_along(m, lane, lanes, k, whole, out);
    for (int64_t i = 2 * whole; i < cols; i += 2) {
        pack_pair(m, lane, lanes, k + i, i + 1 < cols, out + i / 2 * NAPIER_ENGINE_LANES);
    }
}

void napier_engine_pack_wide(const float *x, int64_t cols, uint32_t *out) {
    enum { LANES = NAPIER_ENGINE_LANES };
    for (int64_t i = 0; i < cols; i += 2, out += LANES) {
        uint32_t even[LANES], odd[LANES];
        memcpy(even, x + i * LANES, sizeof even);
        memcpy(odd, x + (i + 1) * LANES, sizeof odd);
        for (int l = 0; l < LANES; l++) {
            out[l] = even[l] >> 16 | odd[l];
        }
    }
}

void napier_engine_pack_rows(const napier_const_matrix *m, int64_t row, int64_t rows, int64_t k, int64_t cols,
                             uint16_t *out, int64_t step) {
    for (int64_t i = 0; i < cols; i++) {
        const uint16_t *from = element(m, row, k + i);
        for (int64_t r = 0; r < rows; r++) {
            out[r * step + i] = from[r * m->row_stride];
        }
    }
}

#if NAPIER_HAS_AMX

/* ---- The product -------------------------------------------------------------------------------------------------
 * Tiles hold 2 x 2 groups of sums, or 3 x 1 where there is one group of lanes, so that a weight read from memory
 * is used as often as it can be. A row of a tile is 32 k. */

enum { TILE_K = NAPIER_PAIRS_BLOCK, LANES = NAPIER_ENGINE_LANES, LANES_STEP = LANES * sizeof(uint32_t) };

/* A piece of 16 rows and 32 k, where the matrix may end within it. */
typedef struct piece {
    uint16_t k[NAPIER_TILE_ROWS][TILE_K];
} piece;

typedef struct tile_source {
    const void *data;
    size_t step; /* bytes from row to row */
} tile_source;

static __attribute__((noinline)) void fill_piece(const napier_engine_block *b, int64_t row, int64_t k, piece *out) {
    const int64_t rows = napier_least(b->row_count - row, NAPIER_TILE_ROWS), cols = napier_least(b->cols - k, TILE_K);
    memset(out, 0, sizeof *out);
    for (int64_t r = 0; r < rows && cols > 0; r++) {
        memcpy(out->k[r], b->rows + (row + r) * b->row_step + k, (size_t)cols * sizeof *b->rows);
    }
}

/* Rows from `row` on, k from `k` on: in place, or in `room` filled up with +0. */
NAPIER_AMX static inline tile_source rows_at(const napier_engine_block *b, int64_t row, int64_t k, piece *room) {
    if (b->row_count - row >= NAPIER_TILE_ROWS && b->cols - k >= TILE_K) {
        return (tile_source){b->rows + row * b->row_step + k, (size_t)b->row_step * sizeof *b->rows};
    }
    fill_piece(b, row, k, room);
    return (tile_source){room, sizeof room->k[0]};
}

#define LOAD_ROWS(tile, row)                                    \
    do {                                                        \
        const tile_source source = rows_at(b, (row), k, &room); \
        NAPIER_AMX_FENCE();                                     \
        napier_tile_load(tile, source.data, source.step);       \
    } while (0)

#define LOAD_LANES(tile, group) napier_tile_load(tile, b->lanes + ((group)*b->lane_step + k / 2 * LANES), LANES_STEP)

#define START_SUMS(tile, c)                       \
    do {                                          \
        if (b->first) {                           \
            napier_tile_zero(tile);               \
        } else {                                  \
            napier_tile_load(tile, (c), c_bytes); \
        }                                         \
    } while (0)

/* Up to 32 rows and up to 32 lanes. */
NAPIER_AMX static void multiply_square(const napier_engine_block *b, int64_t row, int64_t group) {
    const bool two_rows = row + NAPIER_TILE_ROWS < b->row_count, two_lanes = (group + 1) * LANES < b->lane_count;
    const size_t c_bytes = (size_t)b->c_step * sizeof(float);
    float *const c = b->c + row * b->c_step + group * LANES, *const below = c + NAPIER_TILE_ROWS * b->c_step;
    piece room;
    NAPIER_AMX_FENCE();
    START_SUMS(0, c);
    if (two_lanes) {
        START_SUMS(1, c + LANES);
    }
    if (two_rows) {
        START_SUMS(2, below);
    }
    if (two_rows && two_lanes) {
        START_SUMS(3, below + LANES);
    }
    for (int64_t k = 0; k < b->k; k += TILE_K) {
        LOAD_ROWS(4, row);
        LOAD_LANES(6, group);
        napier_tile_multiply(0, 4, 6);
        if (two_lanes) {
            LOAD_LANES(7, group + 1);
            napier_tile_multiply(1, 4, 7);
        }
        if (two_rows) {
            LOAD_ROWS(5, row + NAPIER_TILE_ROWS);
            napier_tile_multiply(2, 5, 6);
        }
        if (two_rows && two_lanes) {
            napier_tile_multiply(3, 5, 7);
        }
    }
    napier_tile_store(0, c, c_bytes);
    if (two_lanes) {
        napier_tile_store(1, c + LANES, c_bytes);
    }
    if (two_rows) {
        napier_tile_store(2, below, c_bytes);
    }
    if (two_rows && two_lanes) {
        napier_tile_store(3, below + LANES, c_bytes);
    }
    NAPIER_AMX_FENCE();
}

/* 48 rows and the only 16 lanes: as many weights are on their way from memory as tiles allow. */
NAPIER_AMX static void multiply_column(const napier_engine_block *b, int64_t row) {
    const size_t c_bytes = (size_t)b->c_step * sizeof(float);
    const int64_t down = NAPIER_TILE_ROWS * b->c_step;
    float *const c = b->c + row * b->c_step;
    piece room;
    NAPIER_AMX_FENCE();
    START_SUMS(0, c);
    START_SUMS(1, c + down);
    START_SUMS(2, c + 2 * down);
    for (int64_t k = 0; k < b->k; k += TILE_K) {
        LOAD_LANES(7, 0);
        LOAD_ROWS(4, row);
        napier_tile_multiply(0, 4, 7);
        LOAD_ROWS(5, row + NAPIER_TILE_ROWS);
        napier_tile_multiply(1, 5, 7);
        LOAD_ROWS(6, row + 2 * NAPIER_TILE_ROWS);
        napier_tile_multiply(2, 6, 7);
    }
    napier_tile_store(0, c, c_bytes);
    napier_tile_store(1, c + down, c_bytes);
    napier_tile_store(2, c + 2 * down, c_bytes);
    NAPIER_AMX_FENCE();
}

NAPIER_AMX void napier_engine_multiply(const napier_engine_block *b) {
    enum { SQUARE = 2 * NAPIER_TILE_ROWS, COLUMN = 3 * NAPIER_TILE_ROWS };
    int64_t row = 0;
    napier_tile_configure();
    for (; b->lane_count == LANES && row + COLUMN <= b->row_count; row += COLUMN) {
        multiply_column(b, row);
    }
    for (; row < b->row_count; row += SQUARE) {
        for (int64_t group = 0; group * LANES < b->lane_count; group += 2) {
            multiply_square(b, row, group);
        }
    }
    napier_tile_release();
}

/* ---- Is it here? ------------------------------------------------------------------------------------------------- */

#ifdef NAPIER_AMX_EMULATED
bool napier_amx_is_here(const napier_context *context) {
    (void)context;
    return true;
}
#else

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

bool napier_amx_is_here(const napier_context *context) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    unsigned eax, ebx, ecx, edx, low, high;
    if (context->isa != NAPIER_ISA_AVX512 || !__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & 1u << 27) ||
        !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(edx & 1u << 22) || !(edx & 1u << 24)) {
        return false;
    }
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 0x60000u) == 0x60000u && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}
#endif

#else

bool napier_amx_is_here(const napier_context *context) {
    (void)context;
    return false;
}

void napier_engine_multiply(const napier_engine_block *block) { (void)block; } /* never called */

#endif
