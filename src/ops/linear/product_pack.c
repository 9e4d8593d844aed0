/* ops/linear/product_pack.c - the lanes of a product as panels, of f32 or of bf16. */
#include <string.h>

#include "ops/linear/amx.h"
#include "ops/linear/bf16_pairs.h"
#include "ops/linear/product_steps.h"

/* ---- Places ------------------------------------------------------------------------------------------------------ */

/* Panels of a block of lanes that share a block of k are adjacent, so that together they fill the second-level cache
 * evenly. Returns where panel `panel` of the block begins at k. */
float *napier_panel_at(const napier_product_sides *s, int64_t block, int64_t panel, int64_t k) {
    const int64_t panels = napier_panels_of(s, napier_block_lanes(s, block));
    const int64_t cols = napier_least(s->k - k, s->k_block);
    return s->panels + (block * napier_panels_of(s, s->lane_block) * s->k + k * panels + cols * panel) * s->panel_step;
}

/* For the matrix engine: where `group` of 16 lanes begins in a block of k, and there at k. */
uint32_t *napier_group_at(const napier_product_sides *s, int64_t block, int64_t group, int64_t k) {
    const int64_t begin = k / s->k_block * s->k_block, cols = napier_least(s->k - begin, s->k_block);
    uint32_t *const panels = (uint32_t *)(void *)napier_panel_at(s, block, 0, begin);
    return panels + (group * cols + k - begin) / 2 * NAPIER_ENGINE_LANES;
}

/* Where 16 sums of a block are at k. */
static float *half_panel_at(const napier_product_sides *s, int64_t block, int64_t half, int64_t k) {
    const int64_t begin = k / s->k_block * s->k_block;
    return napier_panel_at(s, block, half / 2, begin) + (k - begin) * NAPIER_LANES + half % 2 * NAPIER_PIECE_LANES;
}

/* Lane 0 of 16 sums of a split block, which are one piece of 16 lanes or fewer; and the number of these lanes. */
typedef struct piece_lanes {
    int64_t first, count;
} piece_lanes;

static piece_lanes piece_lanes_of(const napier_product_sides *s, int64_t block, int64_t half) {
    const int64_t lane = block * s->lane_block + half / NAPIER_PIECES * NAPIER_PIECE_LANES;
    const int64_t left = s->lane_count - lane;
    return (piece_lanes){s->first_lane + lane, left < 0 ? 0 : napier_least(left, NAPIER_PIECE_LANES)};
}

/* ---- Panels of f32 ----------------------------------------------------------------------------------------------- */

/* Packs `cols` k, from k on, of 16 sums of a split block: one piece of 16 lanes. All sums beyond the last lane are 0. */
static void pack_half(const napier_product_sides *s, int64_t block, int64_t half, int64_t k, int64_t cols) {
    const napier_const_matrix turned = napier_const_transposed(s->lanes);
    const piece_lanes lanes = piece_lanes_of(s, block, half);
    const int64_t rest = s->lanes.cols - k, there = rest < 0 || lanes.count == 0 ? 0 : napier_least(rest, cols);
    float *const out = half_panel_at(s, block, half, k);
    s->core->pack(&turned, k, there, lanes.first, lanes.count, false, out, NAPIER_LANES, NAPIER_PIECE_LANES);
    s->kernels->piece(out, there, NAPIER_LANES, (int)(half % NAPIER_PIECES));
    for (int64_t i = there; i < cols; i++) {
        memset(out + i * NAPIER_LANES, 0, NAPIER_PIECE_LANES * sizeof *out);
    }
}

void napier_pack_floats(const napier_product_sides *s, int64_t panel, int64_t k, int64_t cols) {
    const int64_t panels = napier_panels_of(s, s->lane_block);
    if (s->split) {
        pack_half(s, panel / panels, 2 * (panel % panels), k, cols);
        pack_half(s, panel / panels, 2 * (panel % panels) + 1, k, cols);
        return;
    }
    const napier_const_matrix turned = napier_const_transposed(s->lanes);
    const int64_t lane = panel * NAPIER_LANES, left = s->lane_count - lane;
    const int64_t lanes = napier_least(left, NAPIER_LANES), begin = k / s->k_block * s->k_block;
    const int64_t rest = s->lanes.cols - k, there = rest < 0 ? 0 : napier_least(rest, cols);
    float *out = napier_panel_at(s, panel / panels, panel % panels, begin) + (k - begin) * NAPIER_LANES;
    s->core->pack(&turned, k, there, s->first_lane + lane, lanes, napier_is_pairs(s), out, NAPIER_LANES, NAPIER_LANES);
    memset(out + there * NAPIER_LANES, 0, (size_t)((cols - there) * NAPIER_LANES) * sizeof(float));
}

/* Piece of 16 lanes of a split block, from a row of values of all lanes. */
static void piece_of_row(const napier_product_sides *s, int64_t lanes, int64_t half, const float *values,
                         float x[NAPIER_PIECE_LANES]) {
    const int64_t lane = half / NAPIER_PIECES * NAPIER_PIECE_LANES;
    memset(x, 0, NAPIER_PIECE_LANES * sizeof *x);
    memcpy(x, values + lane, (size_t)napier_least(lanes - lane, NAPIER_PIECE_LANES) * sizeof *x);
    s->kernels->piece(x, 1, NAPIER_PIECE_LANES, (int)(half % NAPIER_PIECES));
}

void napier_write_floats(const napier_product_sides *s, int64_t block, int64_t k, const void *values) {
    const int64_t lanes = napier_block_lanes(s, block), begin = k / s->k_block * s->k_block;
    for (int64_t half = 0; s->split && half < napier_sums_of(s, lanes) / NAPIER_PIECE_LANES; half++) {
        piece_of_row(s, lanes, half, values, half_panel_at(s, block, half, k));
    }
    const napier_const_matrix row = napier_const_rows(values, 1, lanes, NAPIER_BF16);
    for (int64_t l = 0; l < lanes && !s->split; l += NAPIER_LANES) {
        float *out = napier_panel_at(s, block, l / NAPIER_LANES, begin) + (k - begin) * NAPIER_LANES;
        s->core->pack(&row, 0, 1, l, napier_least(lanes - l, NAPIER_LANES), napier_is_pairs(s), out, NAPIER_LANES,
                      NAPIER_LANES);
    }
}

/* ---- Panels of bf16 ---------------------------------------------------------------------------------------------- */

static bool is_turned(const napier_product_sides *s) { return s->route == NAPIER_ROUTE_DOT; }

/* True if pairs of k lie as numbers of 32 bits do. */
static bool are_pairs(const napier_const_matrix *m) {
    return m->col_stride == 1 && m->row_stride % 2 == 0 && (uintptr_t)m->data % sizeof(float) == 0;
}

/* Such a matrix as one of floats, transposed: [k / 2, lanes]. */
static napier_const_matrix pairs_of(const napier_const_matrix *m) {
    return napier_const_transposed(
        (napier_const_matrix){m->data, m->rows, m->cols / 2, m->row_stride / 2, 1, NAPIER_F32});
}

void napier_product_pack_group(const napier_core_kernels *core, const napier_const_matrix *m, int64_t lane,
                               int64_t lanes, int64_t k, int64_t cols, uint32_t *out) {
    const int64_t rest = m->cols - k, there = rest < 0 ? 0 : napier_least(rest, cols);
    const int64_t whole =
        lanes == NAPIER_ENGINE_LANES && are_pairs(m) ? there / NAPIER_PAIRS_BLOCK * NAPIER_PAIRS_BLOCK : 0;
    if (whole > 0) {
        const napier_const_matrix pairs = pairs_of(m);
        core->pack(&pairs, k / 2, whole / 2, lane, lanes, false, (float *)(void *)out, NAPIER_ENGINE_LANES,
                   NAPIER_ENGINE_LANES);
    }
    if (whole < cols) {
        napier_engine_pack_lanes(m, lane, lanes, k + whole, there - whole, cols - whole,
                                 out + whole / 2 * NAPIER_ENGINE_LANES);
    }
}

/* The same as bf16, whose groups of lanes are 16 too. */
static void pack_narrow_half(const napier_product_sides *s, int64_t block, int64_t half, int64_t k, int64_t cols) {
    enum { SOME_K = 2 * NAPIER_PAIRS_BLOCK };
    const napier_const_matrix turned = napier_const_transposed(s->lanes);
    const piece_lanes lanes = piece_lanes_of(s, block, half);
    float room[SOME_K * NAPIER_PIECE_LANES];
    for (int64_t i = 0; i < cols; i += SOME_K) {
        const int64_t some = napier_least(cols - i, SOME_K), rest = s->lanes.cols - k - i;
        const int64_t there = rest < 0 || lanes.count == 0 ? 0 : napier_least(rest, some);
        memset(room, 0, sizeof room);
        s->core->pack(&turned, k + i, there, lanes.first, lanes.count, false, room, NAPIER_PIECE_LANES,
                      NAPIER_PIECE_LANES);
        s->kernels->piece(room, there, NAPIER_PIECE_LANES, (int)(half % NAPIER_PIECES));
        uint32_t *const out = napier_group_at(s, block, half, k + i);
        napier_engine_pack_wide(room, some, out);
        if (is_turned(s)) {
            napier_bf16_pairs_turn(out, some);
        }
    }
}

void napier_pack_narrow(const napier_product_sides *s, int64_t panel, int64_t k, int64_t cols) {
    const int64_t panels = napier_panels_of(s, s->lane_block), block = panel / panels, first = 2 * (panel % panels);
    for (int64_t group = first; group < first + 2; group++) {
        if (s->split) {
            pack_narrow_half(s, block, group, k, cols);
            continue;
        }
        const int64_t lane = block * s->lane_block + group * NAPIER_ENGINE_LANES, left = s->lane_count - lane;
        const int64_t lanes = left < 0 ? 0 : napier_least(left, NAPIER_ENGINE_LANES);
        uint32_t *const out = napier_group_at(s, block, group, k);
        napier_product_pack_group(s->core, &s->lanes, s->first_lane + lane, lanes, k, cols, out);
        if (is_turned(s)) {
            napier_bf16_pairs_turn(out, cols);
        }
    }
}

/* One k of a group of lanes, or sums, of a block: `lanes` of them. */
static void write_group(const napier_product_sides *s, int64_t block, int64_t group, int64_t lanes, int64_t k,
                        const uint16_t *values) {
    const int64_t pair = is_turned(s) ? napier_bf16_pair_of(k) : k / 2;
    const int64_t high = is_turned(s) ? napier_bf16_is_high(k) : k % 2;
    char *at = (char *)napier_group_at(s, block, group, 2 * pair) + high * (int64_t)sizeof *values;
    for (int64_t l = 0; l < lanes; l++, at += sizeof(uint32_t)) {
        memcpy(at, values + l, sizeof *values);
    }
}

void napier_write_narrow(const napier_product_sides *s, int64_t block, int64_t k, const void *values) {
    const int64_t lanes = napier_block_lanes(s, block);
    for (int64_t half = 0; s->split && half < napier_sums_of(s, lanes) / NAPIER_PIECE_LANES; half++) {
        float x[NAPIER_PIECE_LANES];
        uint16_t upper[NAPIER_PIECE_LANES];
        piece_of_row(s, lanes, half, values, x);
        for (int l = 0; l < NAPIER_PIECE_LANES; l++) {
            uint32_t bits;
            memcpy(&bits, x + l, sizeof bits);
            upper[l] = (uint16_t)(bits >> 16);
        }
        write_group(s, block, half, NAPIER_PIECE_LANES, k, upper);
    }
    for (int64_t l = 0; l < lanes && !s->split; l += NAPIER_ENGINE_LANES) {
        write_group(s, block, l / NAPIER_ENGINE_LANES, napier_least(lanes - l, NAPIER_ENGINE_LANES), k,
                    (const uint16_t *)values + l);
    }
}
