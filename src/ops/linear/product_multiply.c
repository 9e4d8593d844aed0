/* ops/linear/product_multiply.c - one block of k of a strip of rows by a block of lanes that are in panels; and single elements
 * of a product. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/linear/amx.h"
#include "ops/linear/bf16_pairs.h"
#include "ops/linear/product_steps.h"

_Static_assert((int)NAPIER_DIRECT_ROOM <= (int)NAPIER_ROW_GROUP * NAPIER_ROW_STEP, "rows are widened in this room");

static void pack_group(const napier_product_sides *s, int64_t row, int64_t rows, int64_t k, float *packed) {
    const int64_t there = napier_least(s->rows.cols - k, NAPIER_K_BLOCK);
    const int64_t cols = napier_least(s->k - k, NAPIER_K_BLOCK);
    if (s->blocks) {
        s->core->widen_rows(s->blocks, row, rows, k, there, packed, NAPIER_ROW_STEP);
        return;
    }
    s->core->pack(&s->rows, row, rows, k, there, napier_is_pairs(s), packed, NAPIER_ROW_STEP,
                  napier_round_up(cols, 16));
}

/* All groups of the strip are multiplied with a block of k, whose panels stay in the second-level cache. */
void napier_multiply_packed(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, int64_t k,
                            bool first, float *c, float *packed) {
    napier_product_block b = {.rows = packed,
                              .panels = napier_panel_at(s, block, 0, k),
                              .panel_step = napier_panel_at(s, block, 1, k) - napier_panel_at(s, block, 0, k),
                              .lanes = napier_round_up(napier_sums_of(s, napier_block_lanes(s, block)), 16),
                              .k = napier_least(s->k - k, NAPIER_K_BLOCK),
                              .c_step = s->sum_step,
                              .first = first};
    for (int64_t r = 0; r < rows; r += NAPIER_ROW_GROUP) {
        b.row_count = napier_least(rows - r, NAPIER_ROW_GROUP);
        b.c = c + r * s->sum_step;
        pack_group(s, row + r, b.row_count, k, packed);
        (napier_is_pairs(s) ? s->kernels->pairs : s->kernels->chain)(&b);
    }
}

/* The same with rows that are read directly from memory. */
void napier_multiply_direct(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, int64_t k,
                            bool first, float *c, float *room) {
    const int64_t size = (int64_t)napier_dtype_size(s->rows.dtype);
    const napier_direct_block b = {.rows = (const char *)s->rows.data + (row * s->rows.row_stride + k) * size,
                                   .dtype = s->rows.dtype,
                                   .row_count = rows,
                                   .row_step = s->rows.row_stride * size,
                                   .cols = s->rows.cols - k,
                                   .room = s->rows.dtype == NAPIER_F32 ? NULL : room,
                                   .panels = napier_panel_at(s, block, 0, k),
                                   .panel_step = napier_panel_at(s, block, 1, k) - napier_panel_at(s, block, 0, k),
                                   .lanes = napier_round_up(napier_sums_of(s, napier_block_lanes(s, block)), 16),
                                   .k = napier_least(s->k - k, s->k_block),
                                   .c = c,
                                   .c_step = s->sum_step,
                                   .first = first};
    (napier_is_pairs(s) ? s->kernels->direct_pairs : s->kernels->direct_chain)(&b);
}

/* The same with panels of bf16. Rows that do not lie along k are packed, a group of them and some k at a time. */
void napier_multiply_narrow(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, int64_t k,
                            bool first, float *c, float *room) {
    enum { GROUP = 2 * 16, SOME_K = 512 };
    const bool in_place = s->rows.col_stride == 1;
    const int64_t end = k + napier_least(s->k - k, s->k_block), some = in_place ? end - k : SOME_K;
    const int64_t group = in_place ? rows : GROUP;
    uint16_t *const packed = (uint16_t *)(void *)room;
    for (int64_t r = 0; r < rows; r += group) {
        for (int64_t i = k; i < end; i += some) {
            napier_engine_block b = {
                .rows = (const uint16_t *)s->rows.data + ((row + r) * s->rows.row_stride + i),
                .row_count = napier_least(rows - r, group),
                .row_step = s->rows.row_stride,
                .cols = s->rows.cols - i,
                .lanes = napier_group_at(s, block, 0, i),
                .lane_step = (end - k) / 2 * NAPIER_ENGINE_LANES,
                .lane_count = napier_round_up(napier_sums_of(s, napier_block_lanes(s, block)), NAPIER_ENGINE_LANES),
                .k = napier_least(end - i, some),
                .c = c + r * s->sum_step,
                .c_step = s->sum_step,
                .first = first && i == k};
            if (!in_place) {
                const int64_t cols = napier_least(b.cols, b.k);
                napier_engine_pack_rows(&s->rows, row + r, b.row_count, i, cols, packed, SOME_K);
                b.rows = packed;
                b.row_step = SOME_K;
            }
            (s->route == NAPIER_ROUTE_DOT ? napier_bf16_pairs_multiply : napier_engine_multiply)(&b);
        }
    }
}

/* The sum of the pieces' sums. If that of the first is infinite or NaN, it is the result: an infinite weight times the
 * other pieces, which may be 0, would be NaN. */
static float sum_of_pieces(float high, float middle, float low) {
    const float sum = high + (middle + low);
    return fabsf(high) <= FLT_MAX ? sum : high;
}

/* Adds up the pieces' sums of `rows` rows, in place. */
void napier_add_pieces(const napier_product_sides *s, int64_t lanes, int64_t rows, float *c) {
    const int64_t n = napier_is_few(s) ? lanes : NAPIER_PIECE_LANES; /* lanes whose pieces follow one another */
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t l = 0; l < lanes; l += n) {
            const float *const high = c + r * s->sum_step + l * NAPIER_PIECES;
            float sums[NAPIER_PIECE_LANES];
            for (int64_t i = 0; i < n; i++) {
                sums[i] = sum_of_pieces(high[i], high[n + i], high[2 * n + i]);
            }
            memcpy(c + r * s->c_step + l, sums, (size_t)n * sizeof *sums);
        }
    }
}

/* ---- Single products --------------------------------------------------------------------------------------------- */

/* Packs row index[i] of m, k .. k + cols - 1, as lane i of a panel. piece: of them; -1: all. rows: space for 32 packed
 * rows. */
static void gather_panel(const napier_product_sides *s, const napier_const_matrix *m, const int64_t *index, int count,
                         int64_t k, int64_t cols, int piece, float *rows, float *panel) {
    const int64_t there = napier_least(m->cols - k, cols);
    for (int i = 0; i < count; i++) {
        if (s->blocks && m == &s->rows) {
            pack_group(s, index[i], 1, k, rows + i * NAPIER_ROW_STEP);
            continue;
        }
        s->core->pack(m, index[i], 1, k, there, napier_is_pairs(s), rows + i * NAPIER_ROW_STEP, NAPIER_ROW_STEP,
                      napier_round_up(cols, 16));
        if (piece >= 0) {
            s->kernels->piece(rows + i * NAPIER_ROW_STEP, napier_round_up(cols, 16) / 16, 16, piece);
        }
    }
    const napier_const_matrix turned = {rows, cols, count, 1, NAPIER_ROW_STEP, NAPIER_F32};
    s->core->pack(&turned, 0, cols, 0, count, false, panel, NAPIER_LANES, NAPIER_LANES);
}

/* Adds to sums; piece: of the lanes; -1: all. */
static void multiply_ones(const napier_product_sides *s, const int64_t *lane, const int64_t *row, int count, int piece,
                          float *scratch, float sums[NAPIER_LANES]) {
    float *a = scratch + NAPIER_LANES * NAPIER_ROW_STEP, *b = a + NAPIER_LANES * NAPIER_K_BLOCK;
    for (int64_t k = 0; k < s->k; k += NAPIER_K_BLOCK) {
        const int64_t cols = napier_least(s->k - k, NAPIER_K_BLOCK);
        gather_panel(s, &s->lanes, lane, count, k, cols, piece, scratch, a);
        gather_panel(s, &s->rows, row, count, k, cols, -1, scratch, b);
        (napier_is_pairs(s) ? s->kernels->pairs_lanes : s->kernels->chain_lanes)(a, b, cols, sums);
    }
}

void napier_product_ones(const napier_product_sides *s, const int64_t *lane, const int64_t *row, int count,
                         float *scratch, float products[NAPIER_LANES]) {
    float sums[NAPIER_PIECES][NAPIER_LANES] = {{0}};
    for (int piece = 0; piece < (s->split ? NAPIER_PIECES : 1); piece++) {
        multiply_ones(s, lane, row, count, s->split ? piece : -1, scratch, sums[piece]);
    }
    for (int i = 0; i < NAPIER_LANES; i++) {
        products[i] = s->split ? sum_of_pieces(sums[0][i], sums[1][i], sums[2][i]) : sums[0][i];
    }
    s->core->unpack(products, NAPIER_LANES, 1, NAPIER_LANES, napier_rows_f32(products, 1, NAPIER_LANES), 0, 0, false);
}
