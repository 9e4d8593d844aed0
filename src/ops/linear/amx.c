/* ops/linear/amx.c - see ops/linear/amx.h. Sources: Intel 64 and IA-32 Architectures Software Developer's Manual,
 * TDPBF16PS and XSAVE; Linux, Documentation/arch/x86/xstate.rst. */
#if defined(__linux__) && defined(__x86_64__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* syscall */
#endif
#include "ops/linear/amx.h"

#include <napier/linear.h>
#include <string.h>

#include "core/base/scope.h"
#include "core/base/sizes.h"
#include "ops/isa/ops_kernels.h"
#include "ops/linear/amx_tiles.h"
#include "ops/linear/bf16_pairs.h"

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

static void pack_pair(const napier_const_matrix *m, int64_t lane, int64_t lanes, int64_t k, bool odd, uint32_t *out) {
    const uint16_t *even_k = element(m, lane, k), *odd_k = odd ? element(m, lane, k + 1) : NULL;
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

/* ---- May it be used? --------------------------------------------------------------------------------------------- */

#ifdef NAPIER_AMX_EMULATED
static bool amx_is_here(const napier_context *context) {
    (void)context;
    return true;
}
#else

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* True if the processor has the engine, the system saves its tiles, and this process may use them. */
static bool amx_is_here(const napier_context *context) {
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

/* bf16 numbers: ordinary, of all exponents, tiny, and around the smallest normal products. */
static uint16_t amx_number(uint32_t *state, int kind) {
    *state = *state * 1664525u + 1013904223u;
    const uint32_t random = *state >> 8, sign = (random & 1u) << 15, fraction = random >> 1 & 0x7fu;
    const uint32_t exponents[4] = {120 + random / 256 % 8, 1 + random / 256 % 254, random / 256 % 60,
                                   50 + random / 256 % 16};
    return (uint16_t)(sign | exponents[kind] << 7 | fraction);
}

static float widened(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Enough for whole tiles and for edges: 67 rows and 48 lanes are 2 x 2 and 2 x 1 tiles, 16 lanes 3 x 1. */
enum { CHECK_ROWS = 67, CHECK_LANES = 48, CHECK_PANELS = 2, CHECK_K = 96, CHECK_COLS = 91, CHECK_TURNS = 3 };

typedef struct amx_check {
    uint16_t rows[CHECK_ROWS][CHECK_K], lanes[CHECK_LANES][CHECK_K];
    uint32_t packed[CHECK_LANES / LANES][CHECK_K / 2][LANES];
    float wide_rows[CHECK_ROWS][NAPIER_ROW_STEP], panels[CHECK_PANELS][CHECK_K][NAPIER_LANES];
    float c[2][CHECK_ROWS + NAPIER_TILE_ROWS][CHECK_LANES];
} amx_check;

static void fill_check(amx_check *check, int kind) {
    uint32_t state = 12345u + (uint32_t)kind;
    memset(check, 0, sizeof *check);
    for (int k = 0; k < CHECK_COLS; k++) {
        for (int r = 0; r < CHECK_ROWS; r++) {
            check->rows[r][k] = amx_number(&state, kind);
            check->wide_rows[r][k] = widened(check->rows[r][k]);
        }
        for (int l = 0; l < CHECK_LANES; l++) {
            check->lanes[l][k] = amx_number(&state, kind);
            check->panels[l / NAPIER_LANES][k][l % NAPIER_LANES] = widened(check->lanes[l][k]);
        }
    }
    const napier_const_matrix lanes = napier_const_rows(check->lanes, CHECK_LANES, CHECK_K, NAPIER_BF16);
    for (int g = 0; g < CHECK_LANES / LANES; g++) {
        napier_engine_pack_lanes(&lanes, g * LANES, LANES, 0, CHECK_COLS, CHECK_K, check->packed[g][0]);
    }
}

/* NaN results count as equal, because they all become the canonical NaN later. */
static bool amx_agrees(const napier_product_kernels *kernels, amx_check *check, int64_t lanes) {
    napier_product_block wanted = {.rows = check->wide_rows[0],
                                   .row_count = CHECK_ROWS,
                                   .panels = check->panels[0][0],
                                   .panel_step = CHECK_K * NAPIER_LANES,
                                   .lanes = lanes,
                                   .k = CHECK_K,
                                   .c = check->c[0][0],
                                   .c_step = CHECK_LANES,
                                   .first = true};
    napier_engine_block block = {.rows = check->rows[0],
                                 .row_count = CHECK_ROWS,
                                 .row_step = CHECK_K,
                                 .cols = CHECK_COLS,
                                 .lanes = check->packed[0][0],
                                 .lane_step = CHECK_K / 2 * LANES,
                                 .lane_count = lanes,
                                 .k = CHECK_K,
                                 .c = check->c[1][0],
                                 .c_step = CHECK_LANES,
                                 .first = true};
    for (int turn = 0; turn < CHECK_TURNS; turn++, wanted.first = block.first = false) {
        kernels->pairs(&wanted);
        napier_engine_multiply(&block);
    }
    bool agrees = true;
    for (int i = 0; i < CHECK_ROWS * CHECK_LANES; i++) {
        const float x = check->c[0][i / CHECK_LANES][i % CHECK_LANES],
                    y = check->c[1][i / CHECK_LANES][i % CHECK_LANES];
        agrees = agrees && (i % CHECK_LANES >= lanes || (x != x && y != y) || memcmp(&x, &y, sizeof x) == 0);
    }
    return agrees;
}

static bool amx_is_trusted(const napier_context *context) {
    const napier_product_kernels *kernels = &napier_ops_kernels_of(context->isa)->linear.matmul;
    amx_check *check = amx_is_here(context) ? napier_alloc(&context->allocator, 1, sizeof *check) : NULL;
    bool trusted = check != NULL;
    for (int kind = 0; kind < 4 && trusted; kind++) {
        fill_check(check, kind);
        trusted = amx_agrees(kernels, check, CHECK_LANES) && amx_agrees(kernels, check, LANES);
    }
    napier_free(&context->allocator, check);
    return trusted;
}

void napier_matrix_engine_decide(napier_context *context) {
    if (context->engine == NAPIER_ENGINE_UNDECIDED) {
        NAPIER_DEFAULT_FENV;
        context->engine = amx_is_trusted(context) ? NAPIER_ENGINE_ON : NAPIER_ENGINE_OFF;
    }
    napier_bf16_pairs_decide(context);
}

#else

void napier_matrix_engine_decide(napier_context *context) {
    context->engine = NAPIER_ENGINE_OFF;
    napier_bf16_pairs_decide(context);
}

void napier_engine_multiply(const napier_engine_block *block) { (void)block; } /* never called */

#endif

int napier_matrix_engine(napier_context *context) {
    if (!context) {
        return 0;
    }
    napier_matrix_engine_decide(context);
    return context->engine == NAPIER_ENGINE_ON;
}
