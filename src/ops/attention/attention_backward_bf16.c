/* ops/attention/attention_backward_bf16.c - see attention_backward_bf16.h. */
#include "ops/attention/attention_backward_bf16.h"

#include <math.h>
#include <string.h>

#include "core/base/stop.h"
#include "ops/attention/attention_engine.h"
#include "ops/linear/bf16_pairs.h"

/* Steps are a line more than what they hold, so that rows do not all map to one cache set. */
enum {
    ROWS = NAPIER_BACK_BF16_ROWS,
    KEYS = NAPIER_BACK_BF16_KEYS,
    STRIP = NAPIER_ENGINE_ROWS,
    GROUP = NAPIER_ENGINE_LANES,
    TURNED_STEP = ROWS + 32,
    SLOPE_STEP = KEYS + 32,
    PAIRS_STEP = ROWS / 2 * GROUP + GROUP,
    SUM_STEP = KEYS + 16,
    WIDE_ROWS = STRIP * NAPIER_ROW_STEP,
    WIDE_FLOATS = WIDE_ROWS + NAPIER_K_BLOCK * NAPIER_LANES
};

static int64_t filled_dim(int64_t dim) { return napier_round_up(dim, NAPIER_PAIRS_BLOCK); }
static int64_t row_step(int64_t dim) { return filled_dim(dim) + NAPIER_PAIRS_BLOCK; }

/* ---- Scratch ----------------------------------------------------------------------------------------------------- */

static void *take(float **at, int64_t bytes, int64_t *total) {
    const int64_t floats = napier_round_up(bytes, 64) / (int64_t)sizeof(float);
    float *const taken = *at;
    *at = taken ? taken + floats : NULL;
    *total += floats;
    return taken;
}

int64_t napier_back_bf16_lay_out(const napier_attention_plan *plan, int64_t rows, float *base, napier_back_bf16 *s) {
    const int64_t filled = napier_round_up(rows, ROWS), tiles = filled / ROWS;
    const int64_t dim = filled_dim(plan->k.dim), v_dim = filled_dim(plan->v.dim), wide = dim > v_dim ? dim : v_dim;
    int64_t total = 0;
    float *at = base;
    s->queries = take(&at, filled * row_step(dim) * 2, &total);
    s->grads = take(&at, filled * row_step(v_dim) * 2, &total);
    s->queries_turned = take(&at, tiles * dim * TURNED_STEP * 2, &total);
    s->grads_turned = take(&at, tiles * v_dim * TURNED_STEP * 2, &total);
    s->special = take(&at, tiles, &total);
    s->keys = take(&at, KEYS * dim * 2, &total);
    s->values = take(&at, KEYS * v_dim * 2, &total);
    s->places = take(&at, KEYS * dim * 2, &total);
    s->gathered = take(&at, NAPIER_LANES * wide * 2, &total);
    s->scores = take(&at, STRIP * NAPIER_ROW_STEP * 4, &total);
    s->slopes = take(&at, STRIP * NAPIER_ROW_STEP * 4, &total);
    s->slope_rows = take(&at, ROWS * SLOPE_STEP * 2, &total);
    s->prob_pairs = take(&at, KEYS / GROUP * PAIRS_STEP * 4, &total);
    s->slope_pairs = take(&at, KEYS / GROUP * PAIRS_STEP * 4, &total);
    s->sum_k = take(&at, dim * SUM_STEP * 4, &total);
    s->sum_v = take(&at, v_dim * SUM_STEP * 4, &total);
    s->wide = take(&at, WIDE_FLOATS * 4, &total);
    return total;
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* The halves of 16 pairs as f32: the upper ones, or, with a shift of 16, the lower ones. A subnormal counts as 0. */
static void widen(const uint32_t *pairs, int shift, float *out) {
    uint32_t upper[GROUP];
    for (int l = 0; l < GROUP; l++) {
        const uint32_t x = pairs[l] << shift & 0xffff0000u;
        upper[l] = (x & 0x7f800000u) == 0 ? x & 0x80000000u : x;
    }
    memcpy(out, upper, sizeof upper);
}

/* Of n lanes from `lane` on and some k: [k][NAPIER_LANES], filled up with 0. turned: see ops/linear/bf16_pairs.h. */
static void widen_lanes(const napier_engine_block *b, bool turned, int64_t lane, int64_t n, int64_t k, int64_t count,
                        float *out) {
    if (n < NAPIER_LANES) {
        memset(out, 0, (size_t)(count * NAPIER_LANES) * sizeof *out);
    }
    for (int64_t group = 0; group < n; group += GROUP) {
        const uint32_t *const from = b->lanes + (lane + group) / GROUP * b->lane_step;
        for (int64_t i = 0; i < count; i++) {
            const uint32_t *const pairs = from + (turned ? napier_bf16_pair_of(k + i) : (k + i) / 2) * GROUP;
            const bool high = turned ? napier_bf16_is_high(k + i) : (k + i) % 2 != 0;
            widen(pairs, high ? 0 : 16, out + i * NAPIER_LANES + group);
        }
    }
}

static void widen_rows(const napier_attention_plan *plan, const napier_engine_block *b, int64_t row, int64_t rows,
                       int64_t k, int64_t count, float *out) {
    const napier_const_matrix m = {b->rows, b->row_count, b->cols, b->row_step, 1, NAPIER_BF16};
    plan->core->pack(&m, row, rows, k, count, true, out, NAPIER_ROW_STEP, count);
}

/* With the kernels of the instruction set. Rows that are one strip are widened once. */
static void multiply_wide(const napier_attention_plan *plan, const napier_engine_block *b, float *wide) {
    for (int64_t k = 0; k < b->k; k += NAPIER_K_BLOCK) {
        const int64_t count = napier_least(b->k - k, NAPIER_K_BLOCK);
        for (int64_t lane = 0; lane < b->lane_count; lane += NAPIER_LANES) {
            const int64_t lanes = napier_least(b->lane_count - lane, NAPIER_LANES);
            widen_lanes(b, false, lane, lanes, k, count, wide + WIDE_ROWS);
            for (int64_t row = 0; row < b->row_count; row += STRIP) {
                const int64_t rows = napier_least(b->row_count - row, STRIP);
                if (lane == 0 || b->row_count > STRIP) {
                    widen_rows(plan, b, row, rows, k, count, wide);
                }
                const napier_product_block block = {.rows = wide,
                                                    .row_count = rows,
                                                    .panels = wide + WIDE_ROWS,
                                                    .lanes = lanes,
                                                    .k = count,
                                                    .c = b->c + row * b->c_step + lane,
                                                    .c_step = b->c_step,
                                                    .first = b->first && k == 0};
                plan->products->pairs(&block);
            }
        }
    }
}

static void multiply(const napier_attention_plan *plan, const napier_engine_block *b, float *wide) {
    if (plan->route == NAPIER_ATTEND_PAIRS) {
        multiply_wide(plan, b, wide);
    } else {
        napier_engine_product(plan, b);
    }
}

/* The row's elements by a panel of 32 k and 32 lanes, without those whose weight is 0. */
static void add_square_weighed(const napier_attention_plan *plan, const float *row, const float *panel,
                               bool lanes_weigh, float *sums) {
    float a[NAPIER_LANES * NAPIER_PAIRS_BLOCK], b[NAPIER_LANES * NAPIER_PAIRS_BLOCK];
    for (int64_t i = 0; i < NAPIER_LANES * NAPIER_PAIRS_BLOCK; i++) {
        const float x = row[i / NAPIER_LANES], weight = lanes_weigh ? panel[i] : x;
        a[i] = weight == 0.0f ? 0.0f : x;
        b[i] = weight == 0.0f ? 0.0f : panel[i];
    }
    plan->products->pairs_lanes(a, b, NAPIER_PAIRS_BLOCK, sums);
}

/* The same product where an operand has an inf or a NaN: a weight of 0 adds nothing. Either the rows or the lanes are
 * weights. */
static void multiply_weighed(const napier_attention_plan *plan, const napier_engine_block *b, bool lanes_weigh,
                             float *wide) {
    const bool turned = plan->route == NAPIER_ATTEND_DOTS;
    for (int64_t k = 0; k < b->k; k += NAPIER_PAIRS_BLOCK) {
        for (int64_t lane = 0; lane < b->lane_count; lane += NAPIER_LANES) {
            const int64_t lanes = napier_least(b->lane_count - lane, NAPIER_LANES);
            widen_lanes(b, turned, lane, lanes, k, NAPIER_PAIRS_BLOCK, wide + WIDE_ROWS);
            for (int64_t r = 0; r < b->row_count; r++) {
                float sums[NAPIER_LANES] = {0}, *const c = b->c + r * b->c_step + lane;
                memcpy(sums, c, (size_t)lanes * sizeof *sums);
                widen_rows(plan, b, r, 1, k, NAPIER_PAIRS_BLOCK, wide);
                add_square_weighed(plan, wide, wide + WIDE_ROWS, lanes_weigh, sums);
                memcpy(c, sums, (size_t)lanes * sizeof *sums);
            }
        }
    }
}

/* ---- Packing ----------------------------------------------------------------------------------------------------- */

/* out[dim][TURNED_STEP] from packed rows, of which pairs of dims are turned 16 rows at a time. */
static void turn_rows(const napier_attention_plan *plan, const uint16_t *rows, int64_t count, int64_t dim, float *pairs,
                      uint16_t *out) {
    const int64_t step = row_step(dim), half = filled_dim(dim) / 2;
    for (int64_t r = 0; r < count; r += GROUP) {
        const napier_const_matrix m = {rows + r * step, half, GROUP, 1, step / 2, NAPIER_F32};
        plan->core->pack(&m, 0, half, 0, GROUP, false, pairs, GROUP, GROUP);
        for (int64_t i = 0; i < half; i++) {
            uint32_t both[GROUP];
            uint16_t *const even = out + 2 * i * TURNED_STEP + r, *const odd = even + TURNED_STEP;
            memcpy(both, pairs + i * GROUP, sizeof both);
            for (int l = 0; l < GROUP; l++) {
                even[l] = (uint16_t)(both[l] & 0xffffu);
                odd[l] = (uint16_t)(both[l] >> 16);
            }
        }
    }
}

static bool special_rows(const uint16_t *rows, int64_t count, int64_t dim) {
    for (int64_t r = 0; r < count; r++) {
        if (napier_engine_any_special(rows + r * row_step(dim), dim)) {
            return true;
        }
    }
    return false;
}

void napier_back_bf16_begin(const napier_back_rows *from, napier_back_bf16 *s) {
    const napier_attention_plan *const plan = from->all.plan;
    const int64_t all = napier_tile_rows(&from->all), dim = plan->k.dim, v_dim = plan->v.dim;
    for (int64_t first = 0; first < all; first += ROWS) {
        const int64_t rows = napier_least(all - first, ROWS), filled = napier_round_up(rows, STRIP), t = first / ROWS;
        uint16_t *const q = s->queries + first * row_step(dim), *const g = s->grads + first * row_step(v_dim);
        napier_engine_copy_rows(&from->all, &plan->q, first, rows, filled, q, row_step(dim));
        napier_engine_copy_rows(&from->all, from->grad_output, first, rows, filled, g, row_step(v_dim));
        turn_rows(plan, q, filled, dim, s->gathered, s->queries_turned + t * filled_dim(dim) * TURNED_STEP);
        turn_rows(plan, g, filled, v_dim, s->gathered, s->grads_turned + t * filled_dim(v_dim) * TURNED_STEP);
        s->special[t] = special_rows(q, rows, dim) || special_rows(g, rows, v_dim);
    }
}

static void pack_block(const napier_back_rows *from, int64_t place, int64_t count, napier_back_bf16 *s) {
    const napier_row_tile *const all = &from->all;
    const napier_attention_plan *const plan = all->plan;
    s->special_keys = false;
    for (int64_t at = 0; at < count; at += NAPIER_LANES) {
        const int64_t n = napier_least(count - at, NAPIER_LANES);
        const napier_engine_panel keys = {&plan->k, &all->sequence, all->head, place + at, n, s->gathered};
        const napier_engine_panel values = {&plan->v, &all->sequence, all->head, place + at, n, s->gathered};
        napier_engine_pack_keys(plan, &keys, s->keys + at * filled_dim(plan->k.dim) / 2);
        napier_engine_pack_keys(plan, &values, s->values + at * filled_dim(plan->v.dim) / 2);
        const bool special = napier_engine_pack_values(plan, &keys, true, s->places + at / 2 * GROUP, KEYS / 2 * GROUP);
        s->special_keys = s->special_keys || special;
    }
}

/* ---- A tile of rows with a block of keys ------------------------------------------------------------------------- */

static const uint32_t *lanes_of(const float *packed) { return (const uint32_t *)(const void *)packed; }

/* products[row][key] of a strip of packed rows with the first `keys` of the block. */
static void strip_products(const napier_attention_plan *plan, const uint16_t *rows, int64_t dim, const float *packed,
                           int64_t keys, float *products, float *wide) {
    const int64_t filled = filled_dim(dim);
    const napier_engine_block block = {.rows = rows,
                                       .row_count = STRIP,
                                       .row_step = row_step(dim),
                                       .cols = filled,
                                       .lanes = lanes_of(packed),
                                       .lane_step = filled / 2 * GROUP,
                                       .lane_count = napier_round_up(keys, NAPIER_LANES),
                                       .k = filled,
                                       .c = products,
                                       .c_step = NAPIER_ROW_STEP,
                                       .first = true};
    multiply(plan, &block, wide);
}

/* p and s of a strip of rows, `first` counted in the sequence and `row` in the tile, with the keys of a block. Returns to how
 * many of these, the first ones, any row attends. */
static int64_t weigh_strip(const napier_back_rows *from, int64_t first, int64_t row, int64_t place, int64_t count,
                           const napier_back_bf16 *s) {
    const napier_attention_plan *const plan = from->all.plan;
    int64_t seen[STRIP] = {0};
    const void *mask[STRIP] = {NULL};
    const int64_t rows = napier_least(napier_tile_rows(&from->all) - first, STRIP);
    const int64_t keys = napier_rows_seen(&from->all, first, rows, place, count, seen);
    const int64_t dim = plan->k.dim, v_dim = plan->v.dim;
    for (int64_t r = 0; r < rows; r++) { /* nothing flows to a row that only has scores of -inf */
        seen[r] = from->levels[first + r] == -INFINITY ? 0 : seen[r];
    }
    strip_products(plan, s->queries + first * row_step(dim), dim, s->keys, keys, s->scores, s->wide);
    strip_products(plan, s->grads + first * row_step(v_dim), v_dim, s->values, keys, s->slopes, s->wide);
    napier_score_block block = napier_scores_of(&from->all, first, rows, place, keys, s->scores, seen, mask);
    block.rows = STRIP; /* those that fill it up attend to nothing */
    const napier_slope_pairs out = {.rows = s->slope_rows + row * SLOPE_STEP,
                                    .row_step = SLOPE_STEP,
                                    .probs = s->prob_pairs + row / 2 * GROUP,
                                    .slopes = s->slope_pairs + row / 2 * GROUP,
                                    .group_step = PAIRS_STEP};
    plan->kernels->slope_pairs(&block, from->levels + first, from->means + first, s->slopes, &out);
    for (int64_t group = 0; group < block.keys / GROUP; group++) {
        napier_engine_turn(plan, out.probs + group * PAIRS_STEP, STRIP);
        napier_engine_turn(plan, out.slopes + group * PAIRS_STEP, STRIP);
    }
    return keys;
}

/* sum_q += s keys, for a strip of rows and the first `keys` of the block. */
static void add_to_queries(const napier_back_rows *from, int64_t first, int64_t row, int64_t keys,
                           const napier_back_bf16 *s) {
    const napier_attention_plan *const plan = from->all.plan;
    const int64_t filled = napier_round_up(keys, NAPIER_PAIRS_BLOCK);
    const napier_engine_block block = {.rows = s->slope_rows + row * SLOPE_STEP,
                                       .row_count = STRIP,
                                       .row_step = SLOPE_STEP,
                                       .cols = filled,
                                       .lanes = lanes_of(s->places),
                                       .lane_step = KEYS / 2 * GROUP,
                                       .lane_count = napier_round_up(plan->k.dim, GROUP),
                                       .k = filled,
                                       .c = from->sum_q + first * from->q_step,
                                       .c_step = from->q_step};
    if (s->special_keys) {
        multiply_weighed(plan, &block, false, s->wide);
    } else {
        multiply(plan, &block, s->wide);
    }
}

/* sums[dim][key] += the tile's turned rows, from `start` on, by pairs of p or s, for 32 keys from `key` on. */
static void add_to_keys(const napier_attention_plan *plan, const uint16_t *turned, int64_t dim, const uint32_t *pairs,
                        int64_t key, int64_t start, int64_t rows, bool special, float *sums, float *wide) {
    const napier_engine_block block = {.rows = turned + start,
                                       .row_count = napier_round_up(dim, GROUP),
                                       .row_step = TURNED_STEP,
                                       .cols = rows - start,
                                       .lanes = pairs + key / GROUP * PAIRS_STEP + start / 2 * GROUP,
                                       .lane_step = PAIRS_STEP,
                                       .lane_count = NAPIER_LANES,
                                       .k = rows - start,
                                       .c = sums + key,
                                       .c_step = SUM_STEP};
    if (special) {
        multiply_weighed(plan, &block, true, wide);
    } else {
        multiply(plan, &block, wide);
    }
}

/* The first row of the sequence that attends to a place, if there is no mask. */
static int64_t first_row_of(const napier_row_tile *all, int64_t place) {
    const int64_t hidden = all->plan->options.causal ? place + all->sequence.queries - all->sequence.keys : 0;
    return hidden > 0 ? hidden * all->plan->group : 0;
}

static void back_tile(const napier_back_rows *from, int64_t first, int64_t place, int64_t count,
                      const napier_back_bf16 *s) {
    const napier_attention_plan *const plan = from->all.plan;
    const int64_t dim = plan->k.dim, v_dim = plan->v.dim, t = first / ROWS;
    const int64_t rows = napier_round_up(napier_least(napier_tile_rows(&from->all) - first, ROWS), STRIP);
    const int64_t begin = (first_row_of(&from->all, place) - first) / STRIP * STRIP;
    for (int64_t row = begin > 0 ? begin : 0; row < rows; row += STRIP) {
        add_to_queries(from, first + row, row, weigh_strip(from, first + row, row, place, count, s), s);
    }
    const uint16_t *const queries = s->queries_turned + t * filled_dim(dim) * TURNED_STEP;
    const uint16_t *const grads = s->grads_turned + t * filled_dim(v_dim) * TURNED_STEP;
    for (int64_t key = 0; key < count; key += NAPIER_LANES) {
        const int64_t seen = (first_row_of(&from->all, place + key) - first) / STRIP * STRIP;
        const int64_t start = seen > 0 ? seen : 0;
        if (start < rows) {
            add_to_keys(plan, grads, v_dim, s->prob_pairs, key, start, rows, s->special[t], s->sum_v, s->wide);
            add_to_keys(plan, queries, dim, s->slope_pairs, key, start, rows, s->special[t], s->sum_k, s->wide);
        }
    }
}

/* ---- A block of keys with all rows ------------------------------------------------------------------------------- */

static void turn_sums(const napier_attention_plan *plan, const float *sums, int64_t keys, int64_t dim, float *out,
                      int64_t step) {
    const napier_const_matrix m = {sums, keys, dim, 1, SUM_STEP, NAPIER_F32};
    plan->core->pack(&m, 0, keys, 0, dim, false, out, step, napier_round_up(dim, 16));
}

void napier_back_bf16_block(const napier_back_rows *from, int64_t place, int64_t count, napier_back_bf16 *s) {
    const napier_attention_plan *const plan = from->all.plan;
    const int64_t rows = napier_tile_rows(&from->all), dim = plan->k.dim, v_dim = plan->v.dim;
    memset(s->sum_k, 0, (size_t)(filled_dim(dim) * SUM_STEP) * sizeof *s->sum_k);
    memset(s->sum_v, 0, (size_t)(filled_dim(v_dim) * SUM_STEP) * sizeof *s->sum_v);
    pack_block(from, place, count, s);
    napier_engine_open(plan);
    for (int64_t first = first_row_of(&from->all, place) / ROWS * ROWS; first < rows && napier_goes_on(plan->context);
         first += ROWS) {
        back_tile(from, first, place, count, s);
    }
    napier_engine_close(plan);
    turn_sums(plan, s->sum_k, count, dim, from->sum_k, from->q_step);
    turn_sums(plan, s->sum_v, count, v_dim, from->sum_v, from->v_step);
}
