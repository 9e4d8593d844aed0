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
    const bool neighbours = m->row_stride == 1 && lanes == NAPIER_ENGINE_LANES;
    for (int64_t i = 2 * whole; i < cols; i += 2) {
        uint32_t *const pairs = out + i / 2 * NAPIER_ENGINE_LANES;
        if (neighbours && i + 1 < cols) {
            napier_plain_line_of_pairs(pairs, element(m, lane, k + i), element(m, lane, k + i + 1));
        } else {
            pack_pair(m, lane, lanes, k + i, i + 1 < cols, pairs);
        }
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
 * Four tiles hold the sums of 32 rows and 32 lanes. A row of a tile is 32 k.
 *
 * Rows that lie 2 KB apart fall on few sets of the first-level cache, so that they would come from the second-level cache
 * for each pair of groups. So for many lanes 32 rows are packed, as many k at a time as that cache holds beside the
 * lanes, which stream through it. Meanwhile the rows that follow are fetched. For few lanes rows are read in place. */

enum {
    TILE_K = NAPIER_PAIRS_BLOCK,
    LANES = NAPIER_ENGINE_LANES,
    LANES_STEP = LANES * sizeof(uint32_t),
    ROWS = NAPIER_TILE_ROWS,
    SQUARE = 2 * ROWS,
    PACKED_K = 512,
    MANY_LANES = 96
};

/* Up to 32 rows and some k. */
typedef struct tile_rows {
    const uint16_t *upper, *lower; /* at the first k; the upper 16 rows, the lower 16 */
    size_t row_bytes;
    int64_t k_step; /* elements from a tile to the next, 32 k further */
    int64_t begin, k;
    uintptr_t next; /* the rows that are multiplied afterwards, at their first k: 32 rows, next_bytes apart; 0: none */
    size_t next_bytes;
    bool third; /* in each step a third of these rows is fetched, in turn */
} tile_rows;

/* Packs as tiles, one k after the other: 32 rows, filled up with +0. */
NAPIER_AMX static void pack_rows(const napier_engine_block *b, int64_t row, int64_t k, int64_t count, uint16_t *out) {
    const int64_t rows = napier_least(b->row_count - row, SQUARE);
    const uint16_t *const from = b->rows + row * b->row_step + k;
    for (int64_t i = 0; i < count; i += TILE_K, out += SQUARE * TILE_K) {
        const int64_t cols = b->cols - k - i;
        if (rows < SQUARE || cols < TILE_K) {
            memset(out, 0, SQUARE * TILE_K * sizeof *out);
        }
        for (int64_t r = 0; r < rows && cols >= TILE_K; r++) {
            napier_line_copy(out + r * TILE_K, from + r * b->row_step + i);
        }
        for (int64_t r = 0; r < rows && cols > 0 && cols < TILE_K; r++) {
            memcpy(out + r * TILE_K, from + r * b->row_step + i, (size_t)cols * sizeof *out);
        }
    }
}

/* Rows from `row` on, as many k from k on as go together: in place, or packed. */
NAPIER_AMX static tile_rows rows_at(const napier_engine_block *b, int64_t row, int64_t k, uint16_t *packed) {
    const int64_t whole = napier_least(b->k, b->cols) / TILE_K * TILE_K - k;
    const uint16_t *const from = b->rows + row * b->row_step + k;
    const bool wide = b->lane_count >= MANY_LANES, in_place = !wide && b->row_count - row >= SQUARE && whole > 0;
    tile_rows t = {.row_bytes = TILE_K * sizeof *from, .k_step = SQUARE * TILE_K, .begin = k};
    t.k = in_place ? whole : napier_least(b->k - k, PACKED_K);
    t.upper = in_place ? from : packed;
    t.lower = t.upper + (in_place ? ROWS * b->row_step : ROWS * TILE_K);
    if (in_place) {
        t.row_bytes = (size_t)b->row_step * sizeof *from;
        t.k_step = TILE_K;
    } else {
        pack_rows(b, row, k, t.k, packed);
    }
    const uintptr_t below = (uintptr_t)SQUARE * (uintptr_t)b->row_step - (uintptr_t)k; /* may be beyond the array */
    t.next = (uintptr_t)from + (k + t.k < b->k ? (uintptr_t)t.k : below) * sizeof *from;
    t.next_bytes = (size_t)b->row_step * sizeof *from;
    t.third = in_place; /* the hardware fetches the lines between, but too late for packing */
    return t;
}

/* After half a microsecond without a store of a tile the next one takes 0.3 us longer. So in every fourth step a tile is
 * stored that nobody reads. */
typedef struct unread_tile {
    _Alignas(64) char bytes[NAPIER_TILE_ROWS * NAPIER_TILE_BYTES];
} unread_tile;

#define STAY_AWAKE(step, tile, unread)                                   \
    do {                                                                 \
        if ((step) % 4 == 3) {                                           \
            napier_tile_store(tile, (unread)->bytes, NAPIER_TILE_BYTES); \
        }                                                                \
    } while (0)

#define LOAD_LANES(tile, group)                                                 \
    do {                                                                        \
        if (again) {                                                            \
            napier_tile_load(tile, lanes + (group)*b->lane_step, LANES_STEP);   \
        } else {                                                                \
            napier_tile_stream(tile, lanes + (group)*b->lane_step, LANES_STEP); \
        }                                                                       \
    } while (0)

#define START_SUMS(tile, c)                       \
    do {                                          \
        if (first) {                              \
            napier_tile_zero(tile);               \
        } else {                                  \
            napier_tile_load(tile, (c), c_bytes); \
        }                                         \
    } while (0)

/* Rows t and one or two groups of lanes. again: the lanes are soon used again. fetch, end: which of the next rows are fetched
 * meanwhile. */
NAPIER_AMX_INLINE void multiply_square(const bool again, const bool two_rows, const bool two_lanes,
                                       const napier_engine_block *b, const tile_rows *t, int64_t group, float *c,
                                       int fetch, int end) {
    const size_t c_bytes = (size_t)b->c_step * sizeof(float), row_bytes = t->row_bytes, next_bytes = t->next_bytes;
    const bool first = b->first && t->begin == 0;
    float *const below = c + ROWS * b->c_step;
    const uint32_t *lanes = b->lanes + group * b->lane_step + t->begin / 2 * LANES;
    const uint16_t *upper = t->upper, *lower = t->lower;
    uintptr_t next = t->next;
    int turn = 0;
    unread_tile unread;
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
    for (int64_t k = 0; k < t->k; k += TILE_K) {
        if (t->k > PACKED_K) { /* sums of fewer k are stored often enough */
            STAY_AWAKE(k / TILE_K, 4, &unread);
        }
        for (int r = fetch; r < end; r += t->third ? 3 : 1) {
            __builtin_prefetch((const void *)(next + (size_t)(r + turn) * next_bytes), 0, 2);
        }
        turn = t->third && turn < 2 ? turn + 1 : 0;
        next += TILE_K * sizeof *upper;
        napier_tile_load(4, upper, row_bytes);
        LOAD_LANES(6, 0);
        napier_tile_multiply(0, 4, 6);
        if (two_lanes) {
            LOAD_LANES(7, 1);
            napier_tile_multiply(1, 4, 7);
        }
        if (two_rows) {
            napier_tile_load(5, lower, row_bytes);
            napier_tile_multiply(2, 5, 6);
        }
        if (two_rows && two_lanes) {
            napier_tile_multiply(3, 5, 7);
        }
        upper += t->k_step;
        lower += t->k_step;
        lanes += TILE_K / 2 * LANES;
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
}

/* Up to 32 rows, some k, all lanes. With two groups of lanes or fewer the hardware fetches the rows that follow. */
NAPIER_AMX_INLINE void multiply_lanes(const bool again, const napier_engine_block *b, int64_t row, const tile_rows *t) {
    const bool two_rows = row + ROWS < b->row_count;
    const int64_t groups = b->lane_count / LANES, pairs = (groups + 1) / 2;
    const int64_t each = t->next && pairs > 1 ? (SQUARE + pairs - 1) / pairs : 0;
    float *c = b->c + row * b->c_step;
    for (int64_t group = 0; group < groups; group += 2, c += 2 * LANES) {
        const int fetch = (int)(group / 2 * each), end = (int)napier_least(fetch + each, t->next ? SQUARE : 0);
        if (two_rows && group + 1 < groups) {
            multiply_square(again, true, true, b, t, group, c, fetch, end);
        } else if (two_rows) {
            multiply_square(again, true, false, b, t, group, c, fetch, end);
        } else if (group + 1 < groups) {
            multiply_square(again, false, true, b, t, group, c, fetch, end);
        } else {
            multiply_square(again, false, false, b, t, group, c, fetch, end);
        }
    }
}

/* 16 rows and the only 16 lanes. Such a product waits for memory, and the hardware prefetcher follows about 16 rows. k is whole
 * tiles. */
NAPIER_AMX static void multiply_column(const napier_engine_block *b, int64_t row) {
    const size_t c_bytes = (size_t)b->c_step * sizeof(float), row_bytes = (size_t)b->row_step * sizeof *b->rows;
    const uint16_t *const from = b->rows + row * b->row_step;
    const bool first = b->first;
    float *const c = b->c + row * b->c_step;
    START_SUMS(0, c);
    for (int64_t k = 0; k < b->k; k += TILE_K) {
        napier_tile_load(7, b->lanes + k / 2 * LANES, LANES_STEP);
        napier_tile_load(4, from + k, row_bytes);
        napier_tile_multiply(0, 4, 7);
    }
    napier_tile_store(0, c, c_bytes);
}

NAPIER_AMX void napier_engine_multiply(const napier_engine_block *b) {
    _Alignas(64) uint16_t packed[SQUARE * PACKED_K + ROWS * TILE_K]; /* pointers step past the last tile */
    int64_t row = 0;
    napier_tile_configure();
    NAPIER_AMX_FENCE();
    for (; b->lane_count == LANES && b->cols >= b->k && row + ROWS <= b->row_count; row += ROWS) {
        multiply_column(b, row);
    }
    for (; row < b->row_count; row += SQUARE) {
        for (int64_t k = 0; k < b->k;) {
            const tile_rows t = rows_at(b, row, k, packed);
            NAPIER_AMX_FENCE();
            multiply_lanes(false, b, row, &t);
            NAPIER_AMX_FENCE();
            k += t.k;
        }
    }
    NAPIER_AMX_FENCE();
    napier_tile_release();
}

/* ---- Strips ------------------------------------------------------------------------------------------------------
 * The lanes of a strip stream from the second-level cache. 32 rows by 512 k stay in the first-level cache, other k of the rows
 * stream too: sums of 1024 k in tiles need half the loads and stores of sums. */

NAPIER_AMX void napier_engine_pack_tiles(const napier_engine_block *b, uint16_t *tiles) {
    for (int64_t row = 0; row < b->row_count; row += SQUARE, tiles += SQUARE * b->k) {
        pack_rows(b, row, 0, b->k, tiles);
    }
}

NAPIER_AMX void napier_engine_pack_neighbours(const uint16_t *from, int64_t k_step, int64_t groups, int64_t pairs,
                                              uint32_t *out, int64_t group_step) {
    const uintptr_t ahead =
        8 * (uintptr_t)k_step * sizeof *from; /* from a k to the next the hardware fetches nothing */
    for (int64_t p = 0; p < pairs; p++, from += 2 * k_step) {
        for (int64_t g = 0; g < groups; g++) {
            const uint16_t *const even = from + g * LANES, *const odd = even + k_step;
            __builtin_prefetch((const void *)((uintptr_t)even + ahead));
            __builtin_prefetch((const void *)((uintptr_t)odd + ahead));
            napier_line_of_pairs(out + g * group_step + p * LANES, even, odd);
        }
    }
}

/* How rows of the square before are written. Whole lines of bf16 need no decisions. */
typedef enum writing { NOTHING, LINES, LINES_STREAM, ANY } writing;

static writing writing_of(const napier_engine_square *square) {
    const napier_engine_out *const out = &square->out;
    const bool whole = square->rows == SQUARE && square->lanes >= SQUARE && !out->wide;
    const bool are_lines = ((uintptr_t)out->data | (uintptr_t)out->step * sizeof(uint16_t)) % NAPIER_TILE_BYTES == 0;
    if (square->rows == 0) {
        return NOTHING;
    }
    return whole && !out->stream ? LINES : whole && are_lines ? LINES_STREAM : ANY;
}

/* Writes a row of the square, if there is such a row to write. */
NAPIER_AMX_INLINE void write_row(const writing how, const napier_engine_square *square, int64_t row) {
    const float *const sums = square->sums + square->turn * SQUARE * SQUARE + row * SQUARE;
    uint16_t *const to = (uint16_t *)square->out.data + row * square->out.step;
    if (how == LINES || how == LINES_STREAM) {
        napier_tile_round(sums, to, SQUARE, how == LINES_STREAM);
    } else if (how == ANY && row < square->rows && square->out.wide) {
        napier_tile_copy(sums, (float *)square->out.data + row * square->out.step, square->lanes, square->out.stream);
    } else if (how == ANY && row < square->rows) {
        napier_tile_round(sums, to, square->lanes, square->out.stream);
    }
}

NAPIER_AMX void napier_engine_write_square(napier_engine_square *square) {
    for (int64_t r = 0; r < square->rows; r++) {
        write_row(ANY, square, r);
    }
    square->rows = 0;
    napier_tile_stream_fence();
}

/* Where a square is: at its next 32 k. */
typedef struct strip_square {
    const uint16_t *rows;
    const uint32_t *lanes, *others; /* two groups */
    const float *from;              /* its sums so far; NULL: 0 */
    float *to;
    int64_t from_step, to_step;
    uintptr_t next;  /* of the rows that are multiplied afterwards */
    int64_t fetched; /* so many lines of those are fetched in each step: 0, 2 or 4 */
} strip_square;

/* Rows of 32 k lie row_bytes apart, and 32 k tile_bytes. */
typedef struct strip_layout {
    size_t row_bytes, tile_bytes;
    bool stays; /* the rows are to stay in the first-level cache */
} strip_layout;

/* 32 rows, 32 lanes, 32 k. The loads come first: then most tiles are there when they are multiplied. */
NAPIER_AMX_INLINE void multiply_step(const strip_layout l, const strip_square *s) {
    const char *const upper = (const char *)s->rows, *const lower = upper + ROWS * l.row_bytes;
    if (l.stays) {
        napier_tile_load(4, upper, l.row_bytes);
    } else {
        napier_tile_stream(4, upper, l.row_bytes);
    }
    napier_tile_stream(6, s->lanes, NAPIER_TILE_BYTES);
    napier_tile_stream(7, s->others, NAPIER_TILE_BYTES);
    if (l.stays) {
        napier_tile_load(5, lower, l.row_bytes);
    } else {
        napier_tile_stream(5, lower, l.row_bytes);
    }
    napier_tile_multiply(0, 4, 6);
    napier_tile_multiply(1, 4, 7);
    napier_tile_multiply(2, 5, 6);
    napier_tile_multiply(3, 5, 7);
}

/* Packed rows are fetched line by line, rows in place side by side. */
NAPIER_AMX_INLINE void fetch_next(const strip_layout l, strip_square *s) {
    for (int i = 0; s->fetched > 0 && i < 2; i++) {
        __builtin_prefetch((const void *)(s->next + (uintptr_t)i * l.row_bytes), 0, 2);
    }
    for (int i = 2; s->fetched > 2 && i < 4; i++) {
        __builtin_prefetch((const void *)(s->next + (uintptr_t)i * l.row_bytes), 0, 2);
    }
    s->next += l.row_bytes == NAPIER_TILE_BYTES ? (uintptr_t)s->fetched * NAPIER_TILE_BYTES : l.tile_bytes;
}

/* A step, and a row of the square before. */
NAPIER_AMX_INLINE void step_and_row(const strip_layout l, const writing how, strip_square *s,
                                    const napier_engine_square *before, int64_t row) {
    fetch_next(l, s);
    multiply_step(l, s);
    write_row(how, before, row);
    s->rows += l.tile_bytes / sizeof *s->rows;
    s->lanes += TILE_K / 2 * LANES;
    s->others += TILE_K / 2 * LANES;
}

/* Steps from `step` on, four at a time. */
NAPIER_AMX_INLINE void multiply_steps(const strip_layout l, const writing how, strip_square *s, int64_t step,
                                      int64_t steps, const napier_engine_square *before, unread_tile *unread) {
    for (; step + 4 <= steps; step += 4) {
        step_and_row(l, how, s, before, step);
        step_and_row(l, how, s, before, step + 1);
        step_and_row(l, how, s, before, step + 2);
        step_and_row(l, how, s, before, step + 3);
        napier_tile_store(7, unread->bytes, NAPIER_TILE_BYTES);
    }
    for (; step < steps; step++) {
        step_and_row(l, how, s, before, step);
    }
}

NAPIER_AMX_INLINE void start_sums(const strip_square *s) {
    if (s->from) {
        const size_t bytes = (size_t)s->from_step * sizeof(float);
        napier_tile_load(0, s->from, bytes);
        napier_tile_load(1, s->from + LANES, bytes);
        napier_tile_load(2, s->from + ROWS * s->from_step, bytes);
        napier_tile_load(3, s->from + ROWS * s->from_step + LANES, bytes);
    } else {
        napier_tile_zero(0);
        napier_tile_zero(1);
        napier_tile_zero(2);
        napier_tile_zero(3);
    }
}

NAPIER_AMX_INLINE void store_sums(const strip_square *s) {
    const size_t bytes = (size_t)s->to_step * sizeof(float);
    napier_tile_store(0, s->to, bytes);
    napier_tile_store(1, s->to + LANES, bytes);
    napier_tile_store(2, s->to + ROWS * s->to_step, bytes);
    napier_tile_store(3, s->to + ROWS * s->to_step + LANES, bytes);
}

/* row_step: of rows in place; 0: they are packed. Streaming loads of rows in place are slower, although these rows share few sets
 * of the first-level cache and do not stay there. */
NAPIER_AMX_INLINE void multiply_strip_square(const writing how, size_t row_step, const strip_square *square,
                                             int64_t steps, const napier_engine_square *last, unread_tile *unread) {
    const int64_t staying = napier_least(steps, PACKED_K / TILE_K);
    const strip_layout in_place = {row_step * sizeof *square->rows, NAPIER_TILE_BYTES, true};
    const strip_layout stay = {NAPIER_TILE_BYTES, SQUARE * NAPIER_TILE_BYTES, true};
    const strip_layout pass = {NAPIER_TILE_BYTES, SQUARE * NAPIER_TILE_BYTES, false};
    const napier_engine_square before = *last; /* copies stay in registers */
    strip_square s = *square;
    start_sums(&s);
    if (row_step) {
        multiply_steps(in_place, how, &s, 0, steps, &before, unread);
    } else {
        multiply_steps(stay, how, &s, 0, staying, &before, unread);
        multiply_steps(pass, how, &s, staying, steps, &before, unread);
    }
    for (int64_t r = steps; how != NOTHING && r < before.rows; r++) {
        write_row(how, &before, r);
    }
    store_sums(&s);
}

/* Each way to write has a loop of its own. */
NAPIER_AMX static void multiply_and_write(size_t row_step, const strip_square *s, int64_t steps,
                                          const napier_engine_square *before, unread_tile *unread) {
    switch (writing_of(before)) {
    case NOTHING: multiply_strip_square(NOTHING, row_step, s, steps, before, unread); break;
    case LINES: multiply_strip_square(LINES, row_step, s, steps, before, unread); break;
    case LINES_STREAM: multiply_strip_square(LINES_STREAM, row_step, s, steps, before, unread); break;
    default: multiply_strip_square(ANY, row_step, s, steps, before, unread); break;
    }
}

/* What a square fetches of the rows that are multiplied afterwards: it is the i-th of `squares`, and begins at k. */
static uintptr_t next_of(const napier_engine_strip *s, int64_t k, int64_t steps, int64_t i, int64_t squares,
                         int64_t fetched) {
    const int64_t in_place = i * fetched % SQUARE * s->row_step + k;
    const int64_t packed = (k / TILE_K * squares + i * steps) * fetched * TILE_K;
    return (uintptr_t)s->next + (uintptr_t)(s->row_step ? in_place : packed) * sizeof *s->next;
}

NAPIER_AMX void napier_engine_multiply_strip(const napier_engine_strip *s) {
    enum { WHOLE_K = 1024, MANY_SQUARES = 16 };
    unread_tile unread;
    napier_engine_square square = *s->last;
    const int64_t squares = (s->lane_count + SQUARE - 1) / SQUARE, lane_step = s->k / 2 * LANES;
    strip_square at = {.fetched = !s->next ? 0 : squares < MANY_SQUARES ? 4 : 2};
    NAPIER_AMX_FENCE();
    for (int64_t k = 0; k < s->k; k += WHOLE_K) {
        const int64_t steps = napier_least(s->k - k, WHOLE_K) / TILE_K;
        const bool to_out = s->out.data && k + WHOLE_K >= s->k;
        at.rows = s->rows + (s->row_step ? k : k * SQUARE);
        for (int64_t i = 0; i < squares; i++) {
            float *const c = s->c + i * SQUARE, *const late = square.sums + (1 - square.turn) * SQUARE * SQUARE;
            at.lanes = s->lanes + 2 * i * lane_step + k / 2 * LANES;
            at.others = at.lanes + lane_step;
            at.from = s->first && k == 0 ? NULL : c;
            at.from_step = s->c_step;
            at.to = to_out ? late : c;
            at.to_step = to_out ? SQUARE : s->c_step;
            at.next = next_of(s, k, steps, i, squares, at.fetched);
            multiply_and_write((size_t)s->row_step, &at, steps, &square, &unread);
            square.rows = 0;
            if (to_out) {
                square.turn = 1 - square.turn;
                square.rows = s->row_count;
                square.lanes = s->lane_count - i * SQUARE;
                square.out = s->out;
                square.out.data =
                    (char *)s->out.data + i * SQUARE * (int64_t)(s->out.wide ? sizeof(float) : sizeof(uint16_t));
            }
        }
    }
    NAPIER_AMX_FENCE();
    *s->last = square;
}

NAPIER_AMX void napier_engine_begin(void) { napier_tile_configure(); }
NAPIER_AMX void napier_engine_end(void) { napier_tile_release(); }

NAPIER_AMX void napier_engine_multiply_here(const napier_engine_block *b) {
    NAPIER_AMX_FENCE();
    for (int64_t row = 0; row < b->row_count; row += SQUARE) {
        const uint16_t *const from = b->rows + row * b->row_step;
        const tile_rows t = {.upper = from,
                             .lower = from + ROWS * b->row_step,
                             .row_bytes = (size_t)b->row_step * sizeof *from,
                             .k_step = TILE_K,
                             .k = b->k};
        multiply_lanes(true, b, row, &t);
    }
    NAPIER_AMX_FENCE();
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
        !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(edx & 1u << 22) || !(edx & 1u << 24) ||
        !__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) || !(eax & 1u << 5)) { /* AMX-BF16, AMX-TILE, AVX512_BF16 */
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

/* Never called. */
void napier_engine_multiply(const napier_engine_block *block) { (void)block; }
void napier_engine_begin(void) {}
void napier_engine_multiply_here(const napier_engine_block *block) { (void)block; }
void napier_engine_end(void) {}
void napier_engine_pack_tiles(const napier_engine_block *block, uint16_t *tiles) { (void)block, (void)tiles; }
void napier_engine_pack_neighbours(const uint16_t *from, int64_t k_step, int64_t groups, int64_t pairs, uint32_t *out,
                                   int64_t group_step) {
    (void)from, (void)k_step, (void)groups, (void)pairs, (void)out, (void)group_step;
}
void napier_engine_multiply_strip(const napier_engine_strip *strip) { (void)strip; }
void napier_engine_write_square(napier_engine_square *square) { (void)square; }

#endif
