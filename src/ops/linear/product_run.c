/* ops/linear/product.c - a matrix product in blocks. The division of the work never changes a bit, because each element
 * of the product is a chain of its own. */
#include "ops/linear/product.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/stop.h"
#include "ops/linear/amx.h"
#include "ops/linear/bf16_pairs.h"
#include "ops/linear/engine.h"

/* Results of this size and larger ones are stored past the caches, because they would not stay in those of a core. */
enum { NAPIER_PRODUCT_STREAM_BYTES = 4 << 20 };

/* How many lanes are multiplied at a time with rows that are read directly: one whole patch, so that sums go from
 * registers to their final place, and the panels leave space for them in the second-level cache. Rows that are widened
 * or turned serve more lanes, so that this pays. Packed rows serve more lanes, and so do short ones. Up to 256 lanes go
 * together, in shares of almost the same number of vectors, if blocks of 64 would leave few: 131 as 3 times 48, not as 64,
 * 64 and 3. */
enum { DIRECT_LANES = 64, CHANGED_LANES = 128, SHORT_K = 512 };
/* A product of one lane waits for memory, which vectors read faster than tiles do. */
enum { FEW_BESIDE_AMX = 1 };
/* The pieces of so many lanes are six whole panels. */
enum { SPLIT_LANES = 64 };

/* A group of rows of so many bytes is multiplied with one block of lanes after the
 * other, and stays in the last-level cache. */
enum { ROWS_TOGETHER_BYTES = 4 << 20 };

_Static_assert((int)NAPIER_DIRECT_ROOM <= (int)NAPIER_ROW_GROUP * NAPIER_ROW_STEP, "rows are widened in this room");

/* For rows that are not packed as f32: blocks of almost the same size, whose panels, 512 KB, stay in the second-level
 * cache. floats: of the panels, for one k. */
static int64_t large_k_block(int64_t k, int64_t floats) {
    enum { FLOATS = 128 << 10 };
    const int64_t most = FLOATS / floats, blocks = k > most ? (k + most - 1) / most : 1;
    return napier_round_up(k > 0 ? (k + blocks - 1) / blocks : 1, NAPIER_PAIRS_BLOCK);
}

static int64_t panels_of(const napier_product_sides *s, int64_t lanes) {
    return (napier_sums_of(s, lanes) + NAPIER_LANES - 1) / NAPIER_LANES;
}

/* Few lanes are not in panels: their sums are piece 0 of each lane, then piece 1, then piece 2. */
static int64_t few_sums(const napier_product_sides *s, int64_t lanes) {
    return s->split ? NAPIER_PIECES * lanes : lanes;
}

napier_product_sides napier_product_sides_of(const napier_context *context, napier_const_matrix lanes,
                                             napier_const_matrix rows, bool split) {
    const napier_ops_kernels *all = napier_ops_kernels_of(context->isa);
    const napier_product_kernels *kernels = &all->linear->matmul;
    napier_product_sides s = {.context = context, .kernels = kernels, .core = all->core, .lanes = lanes, .rows = rows};
    s.split = split && lanes.dtype != NAPIER_BF16;
    s.pairs = s.split || (lanes.dtype == NAPIER_BF16 && rows.dtype == NAPIER_BF16);
    s.k = s.pairs ? napier_round_up(lanes.cols, NAPIER_PAIRS_BLOCK) : lanes.cols;
    s.multiply = s.pairs ? kernels->pairs : kernels->chain;
    const bool amx = s.pairs && context->engine >= NAPIER_ENGINE_AMX;
    const bool has_pairs = context->engine == NAPIER_ENGINE_PAIRS || context->engine == NAPIER_ENGINE_BOTH;
    const int64_t few = (!amx ? NAPIER_FEW : has_pairs ? FEW_BESIDE_AMX : 0) / (s.split ? NAPIER_PIECES : 1);
    const bool from_memory = rows.col_stride == 1 && (!s.pairs || kernels->direct_pairs);
    s.few = lanes.rows <= few && from_memory;
    s.turned = s.pairs && has_pairs && (s.few || (!amx && lanes.rows > few));
    s.engine = (amx || s.turned) && !s.few;
    s.panel_step = s.engine ? NAPIER_LANES / 2 : NAPIER_LANES;
    s.direct = from_memory && !s.engine;
    const bool full = lanes.rows > NAPIER_LANE_BLOCK || (lanes.rows - 1) % DIRECT_LANES >= DIRECT_LANES / 2;
    s.lane_block = s.split                            ? SPLIT_LANES
                   : !(s.direct || s.turned) || !full ? NAPIER_LANE_BLOCK
                   : rows.dtype == NAPIER_F32         ? (s.k <= SHORT_K ? NAPIER_LANE_BLOCK : DIRECT_LANES)
                                                      : CHANGED_LANES;
    const int64_t together = lanes.rows < 1 ? 1 : napier_least(lanes.rows, s.lane_block);
    const int64_t panels = panels_of(&s, together);
    s.k_block = s.direct || s.engine ? large_k_block(s.k, panels * s.panel_step) : NAPIER_K_BLOCK;
    s.c_step = s.few ? napier_few_width(lanes.rows) : napier_round_up(together, 16);
    if (s.engine && s.c_step == NAPIER_LANE_BLOCK) {
        s.c_step = NAPIER_STRIP_STEP; /* the rows of a tile spread over the sets of a cache */
    }
    s.sum_step = s.few ? napier_few_width(few_sums(&s, lanes.rows)) : napier_sums_of(&s, s.c_step);
    return s;
}

static int64_t lanes_at_a_time(const napier_product_sides *s) {
    const int64_t most = NAPIER_PANEL_BYTES_MOST / (int64_t)sizeof(float) / (s->k > 0 ? napier_lane_floats(s) : 1);
    const int64_t blocks = most / NAPIER_LANE_BLOCK > 0 ? most / NAPIER_LANE_BLOCK : 1;
    const int64_t wanted = napier_round_up(s->lanes.rows, NAPIER_LANE_BLOCK);
    return blocks * NAPIER_LANE_BLOCK < wanted ? blocks * NAPIER_LANE_BLOCK : wanted;
}

size_t napier_panel_floats(const napier_product_sides *s, int64_t lanes) {
    const uint64_t panels = (uint64_t)panels_of(s, lanes);
    if (s->k == 0 || panels > SIZE_MAX / sizeof(float) / (uint64_t)NAPIER_LANES / (uint64_t)s->k) {
        return 0;
    }
    return s->few ? NAPIER_FEW * (size_t)napier_round_up(s->k, 16) + 16
                  : (size_t)(panels * (uint64_t)s->k * (uint64_t)s->panel_step);
}

/* ---- Panels ------------------------------------------------------------------------------------------------------ */

/* Panels of a block of lanes that share a block of k are adjacent, so that together they fill the second-level cache
 * evenly. Returns where panel `panel` of the block begins at k. */
float *napier_panel_at(const napier_product_sides *s, int64_t block, int64_t panel, int64_t k) {
    const int64_t panels = panels_of(s, napier_block_lanes(s, block));
    const int64_t cols = napier_least(s->k - k, s->k_block);
    return s->panels + (block * panels_of(s, s->lane_block) * s->k + k * panels + cols * panel) * s->panel_step;
}

/* For the matrix engine: where `group` of 16 lanes begins in a block of k, and there at k. */
static uint32_t *engine_lanes_at(const napier_product_sides *s, int64_t block, int64_t group, int64_t k) {
    const int64_t begin = k / s->k_block * s->k_block, cols = napier_least(s->k - begin, s->k_block);
    uint32_t *const panels = (uint32_t *)(void *)napier_panel_at(s, block, 0, begin);
    return panels + (group * cols + k - begin) / 2 * NAPIER_ENGINE_LANES;
}

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

static void pack_engine_part(const napier_product_sides *s, int64_t panel, int64_t k, int64_t cols) {
    const int64_t groups = NAPIER_LANES / NAPIER_ENGINE_LANES, each = s->lane_block / NAPIER_LANES;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t lane = panel * NAPIER_LANES + g * NAPIER_ENGINE_LANES, left = s->lane_count - lane;
        const int64_t lanes = left < 0 ? 0 : napier_least(left, NAPIER_ENGINE_LANES);
        uint32_t *const out = engine_lanes_at(s, panel / each, panel % each * groups + g, k);
        napier_product_pack_group(s->core, &s->lanes, s->first_lane + lane, lanes, k, cols, out);
        if (s->turned) {
            napier_bf16_pairs_turn(out, cols);
        }
    }
}

/* Where 16 sums of a block are at k. */
static float *half_panel_at(const napier_product_sides *s, int64_t block, int64_t half, int64_t k) {
    const int64_t begin = k / s->k_block * s->k_block;
    return napier_panel_at(s, block, half / 2, begin) + (k - begin) * NAPIER_LANES + half % 2 * NAPIER_PIECE_LANES;
}

/* Packs `cols` k, from k on, of 16 sums of a split block: one piece of 16 lanes. All sums beyond the last lane are 0. */
static void pack_half(const napier_product_sides *s, int64_t block, int64_t half, int64_t k, int64_t cols) {
    const napier_const_matrix turned = napier_const_transposed(s->lanes);
    const int64_t lane = block * s->lane_block + half / NAPIER_PIECES * NAPIER_PIECE_LANES;
    const int64_t left = s->lane_count - lane, lanes = left < 0 ? 0 : napier_least(left, NAPIER_PIECE_LANES);
    const int64_t rest = s->lanes.cols - k, there = rest < 0 || lanes == 0 ? 0 : napier_least(rest, cols);
    float *const out = half_panel_at(s, block, half, k);
    s->core->pack(&turned, k, there, s->first_lane + lane, lanes, false, out, NAPIER_LANES, NAPIER_PIECE_LANES);
    s->kernels->piece(out, there, NAPIER_LANES, (int)(half % NAPIER_PIECES));
    for (int64_t i = there; i < cols; i++) {
        memset(out + i * NAPIER_LANES, 0, NAPIER_PIECE_LANES * sizeof *out);
    }
}

/* The same for the matrix engine, whose groups of lanes are 16 too. */
static void pack_engine_half(const napier_product_sides *s, int64_t block, int64_t half, int64_t k, int64_t cols) {
    enum { SOME_K = 2 * NAPIER_PAIRS_BLOCK };
    const napier_const_matrix turned = napier_const_transposed(s->lanes);
    const int64_t lane = block * s->lane_block + half / NAPIER_PIECES * NAPIER_PIECE_LANES;
    const int64_t left = s->lane_count - lane, lanes = left < 0 ? 0 : napier_least(left, NAPIER_PIECE_LANES);
    float room[SOME_K * NAPIER_PIECE_LANES];
    for (int64_t i = 0; i < cols; i += SOME_K) {
        const int64_t some = napier_least(cols - i, SOME_K), rest = s->lanes.cols - k - i;
        const int64_t there = rest < 0 || lanes == 0 ? 0 : napier_least(rest, some);
        memset(room, 0, sizeof room);
        s->core->pack(&turned, k + i, there, s->first_lane + lane, lanes, false, room, NAPIER_PIECE_LANES,
                      NAPIER_PIECE_LANES);
        s->kernels->piece(room, there, NAPIER_PIECE_LANES, (int)(half % NAPIER_PIECES));
        uint32_t *const out = engine_lanes_at(s, block, half, k + i);
        napier_engine_pack_wide(room, some, out);
        if (s->turned) {
            napier_bf16_pairs_turn(out, some);
        }
    }
}

/* One k of a group of lanes, or sums, of a block: `lanes` of them. */
static void write_engine_group(const napier_product_sides *s, int64_t block, int64_t group, int64_t lanes, int64_t k,
                               const uint16_t *values) {
    const int64_t pair = s->turned ? napier_bf16_pair_of(k) : k / 2;
    const int64_t high = s->turned ? napier_bf16_is_high(k) : k % 2;
    char *at = (char *)engine_lanes_at(s, block, group, 2 * pair) + high * (int64_t)sizeof *values;
    for (int64_t l = 0; l < lanes; l++, at += sizeof(uint32_t)) {
        memcpy(at, values + l, sizeof *values);
    }
}

/* One k of a split block. */
static void write_pieces(const napier_product_sides *s, int64_t block, int64_t k, const float *values) {
    const int64_t lanes = napier_block_lanes(s, block);
    for (int64_t half = 0; half < napier_sums_of(s, lanes) / NAPIER_PIECE_LANES; half++) {
        const int64_t lane = half / NAPIER_PIECES * NAPIER_PIECE_LANES;
        float x[NAPIER_PIECE_LANES] = {0};
        memcpy(x, values + lane, (size_t)napier_least(lanes - lane, NAPIER_PIECE_LANES) * sizeof *x);
        s->kernels->piece(x, 1, NAPIER_PIECE_LANES, (int)(half % NAPIER_PIECES));
        if (!s->engine) {
            memcpy(half_panel_at(s, block, half, k), x, sizeof x);
            continue;
        }
        uint16_t upper[NAPIER_PIECE_LANES];
        for (int l = 0; l < NAPIER_PIECE_LANES; l++) {
            uint32_t bits;
            memcpy(&bits, x + l, sizeof bits);
            upper[l] = (uint16_t)(bits >> 16);
        }
        write_engine_group(s, block, half, NAPIER_PIECE_LANES, k, upper);
    }
}

void napier_panel_write_row(const napier_product_sides *s, int64_t block, int64_t k, const void *values) {
    if (s->split) {
        write_pieces(s, block, k, values);
        return;
    }
    const int64_t lanes = napier_block_lanes(s, block), begin = k / s->k_block * s->k_block;
    const napier_const_matrix row = napier_const_rows(values, 1, lanes, NAPIER_BF16);
    for (int64_t l = 0; l < lanes && !s->engine; l += NAPIER_LANES) {
        float *out = napier_panel_at(s, block, l / NAPIER_LANES, begin) + (k - begin) * NAPIER_LANES;
        s->core->pack(&row, 0, 1, l, napier_least(lanes - l, NAPIER_LANES), s->pairs, out, NAPIER_LANES, NAPIER_LANES);
    }
    for (int64_t l = 0; l < lanes && s->engine; l += NAPIER_ENGINE_LANES) {
        write_engine_group(s, block, l / NAPIER_ENGINE_LANES, napier_least(lanes - l, NAPIER_ENGINE_LANES), k,
                           (const uint16_t *)values + l);
    }
}

/* Packs `cols` k of a panel, from k on, all in one block of k. */
static void pack_part(const napier_product_sides *s, int64_t panel, int64_t k, int64_t cols) {
    const int64_t panels = panels_of(s, s->lane_block);
    for (int64_t half = 2 * (panel % panels), end = half + 2; s->split && half < end; half++) {
        (s->engine ? pack_engine_half : pack_half)(s, panel / panels, half, k, cols);
    }
    if (s->split) {
        return;
    }
    if (s->engine) {
        pack_engine_part(s, panel, k, cols);
        return;
    }
    const napier_const_matrix turned = napier_const_transposed(s->lanes);
    const int64_t lane = panel * NAPIER_LANES, left = s->lane_count - lane, each = s->lane_block / NAPIER_LANES;
    const int64_t lanes = napier_least(left, NAPIER_LANES), begin = k / s->k_block * s->k_block;
    const int64_t rest = s->lanes.cols - k, there = rest < 0 ? 0 : napier_least(rest, cols);
    float *out = napier_panel_at(s, panel / each, panel % each, begin) + (k - begin) * NAPIER_LANES;
    s->core->pack(&turned, k, there, s->first_lane + lane, lanes, s->pairs, out, NAPIER_LANES, NAPIER_LANES);
    memset(out + there * NAPIER_LANES, 0, (size_t)((cols - there) * NAPIER_LANES) * sizeof(float));
}

static void pack_panels(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_product_sides *s = argument;
    (void)worker;
    for (int64_t panel = begin; panel < end; panel++) {
        for (int64_t k = 0; k < s->k; k += s->k_block) {
            pack_part(s, panel, k, napier_least(s->k - k, s->k_block));
        }
    }
}

/* For lanes that are neighbours in memory: packs some k of all panels at a time, because these are
 * adjacent in memory. */
enum { PACK_K = NAPIER_PAIRS_BLOCK };

static void pack_across(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_product_sides *s = argument;
    const int64_t panels = panels_of(s, s->lane_count);
    (void)worker;
    for (int64_t k = begin * PACK_K; k < end * PACK_K && k < s->k; k += PACK_K) {
        for (int64_t panel = 0; panel < panels; panel++) {
            pack_part(s, panel, k, napier_least(s->k - k, PACK_K));
        }
    }
}

void napier_pack_few(const napier_core_kernels *core, const napier_const_matrix *lanes, int64_t first, int64_t count,
                     bool flush, int64_t k, float *out) {
    const int64_t width = napier_few_width(count), there = lanes->cols;
    const napier_const_matrix turned = napier_const_transposed(*lanes);
    if (width == 1) {
        core->pack(lanes, first, 1, 0, there, flush, out, there, napier_round_up(k, 16));
        return;
    }
    core->pack(&turned, 0, there, first, count, flush, out, width, 16);
    memset(out + there * width, 0, (size_t)((k - there) * width) * sizeof(float));
}

/* The same for few split lanes. */
static void pack_few_pieces(const napier_product_sides *s, float *out) {
    enum { SOME_K = 256 };
    const int64_t lanes = s->lane_count, width = s->sum_step;
    memset(out, 0, (size_t)(s->k * width) * sizeof *out);
    for (int64_t k = 0; k < s->lanes.cols; k += SOME_K) {
        const int64_t cols = napier_least(s->lanes.cols - k, SOME_K);
        for (int64_t sum = 0; sum < NAPIER_PIECES * lanes; sum++) {
            float x[SOME_K];
            s->core->pack(&s->lanes, s->first_lane + sum % lanes, 1, k, cols, false, x, SOME_K,
                          napier_round_up(cols, 16));
            s->kernels->piece(x, napier_round_up(cols, 16) / 16, 16, (int)(sum / lanes));
            for (int64_t i = 0; i < cols; i++) {
                out[(k + i) * width + sum] = x[i];
            }
        }
    }
}

/* One lane reads rows of a long k one after the other: on a Zen 5 that is as fast as a plain read. A Granite Rapids reads 16 rows
 * at a time faster. */
static bool is_in_order(const napier_product_sides *s) {
    enum { LONG_K = 512 };
    return s->pairs && s->few && s->sum_step == 1 && s->k >= LONG_K && !s->context->intel;
}

static void pack_few_lanes(const napier_product_sides *s) {
    if (s->split) {
        pack_few_pieces(s, s->panels);
    } else {
        napier_pack_few(s->core, &s->lanes, s->first_lane, s->lane_count, s->pairs, s->k, s->panels);
    }
    if (s->turned && is_in_order(s)) {
        napier_bf16_one_pack(s->panels, s->k);
    } else if (s->turned) {
        napier_bf16_few_pack(s->panels, s->k, s->sum_step);
    }
}

void napier_pack_lanes(const napier_context *context, napier_product_sides *s, int64_t first, int64_t count) {
    s->first_lane = first;
    s->lane_count = count;
    if (s->few && s->k > 0) {
        pack_few_lanes(s);
    } else if (s->k > 0 && s->lanes.row_stride == 1 && s->lanes.col_stride != 1) {
        napier_parallel(context, (s->k + PACK_K - 1) / PACK_K, 1, pack_across, s);
    } else if (s->k > 0) {
        napier_parallel(context, panels_of(s, count), 1, pack_panels, s);
    }
}

/* ---- Strips of rows ---------------------------------------------------------------------------------------------- */

static void multiply_few(const napier_product_sides *s, int64_t row, int64_t rows, float *c) {
    const int64_t size = (int64_t)napier_dtype_size(s->rows.dtype);
    const napier_few_block few = {.rows = (const char *)s->rows.data + row * s->rows.row_stride * size,
                                  .dtype = s->rows.dtype,
                                  .row_count = rows,
                                  .row_step = s->rows.row_stride * size,
                                  .lane_data = s->panels,
                                  .lanes = few_sums(s, s->lane_count),
                                  .width = s->sum_step,
                                  .k = s->rows.cols,
                                  .c = c,
                                  .c_step = s->sum_step};
    if (is_in_order(s)) {
        (s->turned ? napier_bf16_one_multiply : s->kernels->one_pairs)(&few);
    } else {
        (s->turned ? napier_bf16_few_multiply : s->pairs ? s->kernels->few_pairs : s->kernels->few_chain)(&few);
    }
}

static void pack_group(const napier_product_sides *s, int64_t row, int64_t rows, int64_t k, float *packed) {
    const int64_t there = napier_least(s->rows.cols - k, NAPIER_K_BLOCK);
    const int64_t cols = napier_least(s->k - k, NAPIER_K_BLOCK);
    s->core->pack(&s->rows, row, rows, k, there, s->pairs, packed, NAPIER_ROW_STEP, napier_round_up(cols, 16));
}

/* All groups of the strip are multiplied with a block of k, whose panels stay in the second-level cache. */
static void multiply_k_block(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, int64_t k,
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
        s->multiply(&b);
    }
}

/* The same with rows that are read directly from memory. */
static void multiply_direct(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, int64_t k,
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
    (s->pairs ? s->kernels->direct_pairs : s->kernels->direct_chain)(&b);
}

/* The same on the matrix engine. Rows that do not lie along k are packed, a group of them and some k at a time. */
static void multiply_engine(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, int64_t k,
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
                .lanes = engine_lanes_at(s, block, 0, i),
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
            (s->turned ? napier_bf16_pairs_multiply : napier_engine_multiply)(&b);
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
static void add_pieces(const napier_product_sides *s, int64_t lanes, int64_t rows, float *c) {
    const int64_t n = s->few ? lanes : NAPIER_PIECE_LANES; /* lanes whose pieces follow one another */
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

static const float *multiply_strip(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, bool add,
                                   float *scratch) {
    float *c = scratch + NAPIER_ROW_GROUP * NAPIER_ROW_STEP;
    if (s->k == 0 && !add) {
        memset(c, 0, (size_t)(rows * s->c_step) * sizeof *c);
    } else if (s->few) {
        multiply_few(s, row, rows, c);
    }
    for (int64_t k = 0; k < s->k && !s->few && (k == 0 || napier_goes_on(s->context)); k += s->k_block) {
        (s->engine   ? multiply_engine
         : s->direct ? multiply_direct
                     : multiply_k_block)(s, block, row, rows, k, k == 0 && !add, c, scratch);
    }
    if (s->split && s->k > 0) {
        add_pieces(s, napier_block_lanes(s, block), rows, c);
    }
    return c;
}

const float *napier_product_strip(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows,
                                  float *scratch) {
    return multiply_strip(s, block, row, rows, false, scratch);
}

void napier_product_write(const napier_product_sides *s, const float *result, int64_t row, int64_t rows,
                          napier_matrix out) {
    if (s->c_step == 1) { /* one lane: its elements lie side by side */
        s->core->unpack(result, rows, 1, rows, napier_transposed(out), 0, row, false);
    } else {
        s->core->unpack(result, s->c_step, rows, s->lane_count, out, row, 0, false);
    }
}

/* ---- Single products --------------------------------------------------------------------------------------------- */

/* Packs row index[i] of m, k .. k + cols - 1, as lane i of a panel. piece: of them; -1: all. rows: space for 32 packed
 * rows. */
static void gather_panel(const napier_product_sides *s, const napier_const_matrix *m, const int64_t *index, int count,
                         int64_t k, int64_t cols, int piece, float *rows, float *panel) {
    const int64_t there = napier_least(m->cols - k, cols);
    for (int i = 0; i < count; i++) {
        s->core->pack(m, index[i], 1, k, there, s->pairs, rows + i * NAPIER_ROW_STEP, NAPIER_ROW_STEP,
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
        (s->pairs ? s->kernels->pairs_lanes : s->kernels->chain_lanes)(a, b, cols, sums);
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

/* ---- A whole product --------------------------------------------------------------------------------------------- */

/* Chooses enough units for every thread to have a fair share. If the panels must be read
 * again for each unit, a unit has many rows. */
static int64_t row_block_of(const napier_context *context, const napier_product_sides *s, int64_t lanes) {
    enum { UNITS = 8 };
    const int64_t most = s->k_block < s->k ? 8 : 4;
    const int64_t blocks = (lanes + s->lane_block - 1) / s->lane_block;
    const int64_t group =
        s->engine ? 2 * NAPIER_ROW_GROUP : NAPIER_ROW_GROUP; /* whole tiles, and whole lines of bf16 */
    const int64_t groups = (s->rows.rows + group - 1) / group;
    const int64_t fair = groups / (UNITS * context->threads / blocks + 1) + 1;
    return napier_least(fair, most * NAPIER_ROW_GROUP / group) * group;
}

napier_product_plan napier_product_plan_of(const napier_context *context, napier_const_matrix lanes,
                                           napier_const_matrix rows, napier_matrix out, bool split, bool add) {
    napier_product_plan p = {.sides = napier_product_sides_of(context, lanes, rows, split), .out = out, .add = add};
    if (add && p.sides.few) {
        p.sides.few = p.sides.turned = false;
        p.sides.sum_step = p.sides.c_step = napier_round_up(lanes.rows, 16);
    }
    p.lanes = lanes_at_a_time(&p.sides);
    p.row_block = row_block_of(context, &p.sides, p.lanes);
    p.stream = !add && out.rows * out.cols >= NAPIER_PRODUCT_STREAM_BYTES / (int64_t)napier_dtype_size(out.dtype);
    return p;
}

size_t napier_product_floats(const napier_context *context, const napier_product_plan *p) {
    const size_t panels = napier_panel_floats(&p->sides, p->lanes);
    return panels > 0 || p->sides.k == 0 ? panels + (size_t)context->threads * napier_product_scratch(p->row_block) : 0;
}

static void multiply_rows(const napier_product_plan *p, int64_t block, int64_t row, int64_t rows, float *scratch) {
    const napier_product_sides *s = &p->sides;
    const int64_t lane = s->first_lane + block * s->lane_block, lanes = napier_block_lanes(s, block);
    if (p->add) {
        const napier_const_matrix so_far = napier_read_only(p->out);
        s->core->pack(&so_far, row, rows, lane, lanes, false, scratch + NAPIER_ROW_GROUP * NAPIER_ROW_STEP, s->c_step,
                      napier_round_up(lanes, 16));
    }
    const float *c = multiply_strip(s, block, row, rows, p->add, scratch);
    if (s->few) {
        napier_product_write(s, c, row, rows, p->out);
    } else {
        s->core->unpack(c, s->c_step, rows, lanes, p->out, row, lane, p->stream);
    }
}

int64_t napier_product_units(const napier_product_plan *p) {
    const int64_t strips = (p->sides.rows.rows + p->row_block - 1) / p->row_block;
    return strips * napier_lane_blocks(&p->sides);
}

/* The order of the units. Strips follow one another with the same panels, which are still in a
 * core's second-level cache. Their number is limited, so that the strips are still in the last-level
 * cache when the next block of lanes uses them. */
napier_product_unit napier_product_unit_of(const napier_product_plan *p, int64_t unit) {
    const napier_const_matrix *rows = &p->sides.rows;
    const int64_t strips = (rows->rows + p->row_block - 1) / p->row_block, blocks = napier_lane_blocks(&p->sides);
    const int64_t bytes = p->row_block * (p->sides.k + 1) * (int64_t)napier_dtype_size(rows->dtype);
    const int64_t most = bytes < ROWS_TOGETHER_BYTES ? ROWS_TOGETHER_BYTES / bytes : 1;
    const int64_t first = unit / (most * blocks) * most, left = strips - first;
    const int64_t together = napier_least(left, most), rest = unit - first * blocks;
    return (napier_product_unit){rest / together, (first + rest % together) * p->row_block};
}

static void multiply_units(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_product_plan *p = argument;
    for (int64_t i = begin; i < end; i++) {
        const napier_product_unit unit = napier_product_unit_of(p, i);
        multiply_rows(p, unit.block, unit.row, napier_least(p->sides.rows.rows - unit.row, p->row_block),
                      p->scratch + (size_t)worker * napier_product_scratch(p->row_block));
    }
}

/* ---- Few lanes ---------------------------------------------------------------------------------------------------
 * Such products wait for memory. So a thread reads long stretches of rows, which get shorter towards the end, where they
 * even out the threads' speeds. Products of the same lanes are one piece of work: threads wait for each other once. */

/* A thread reads so many bytes in a few microseconds, which is how long another one waits for it. */
enum { SHORTEST_BYTES = 96 << 10, SHORTEST = 16 };

static napier_product_stretch next_stretch(const napier_context *context, const napier_const_matrix *rows,
                                           int64_t count, int64_t begin) {
    const int64_t row_bytes = (rows->cols + 1) * (int64_t)napier_dtype_size(rows->dtype), left = count - begin;
    const int64_t few = napier_round_up(SHORTEST_BYTES / row_bytes + 1, SHORTEST);
    const int64_t share = napier_round_up(left / (4 * (int64_t)context->threads) * 3, NAPIER_ROW_GROUP);
    return (napier_product_stretch){begin, begin + napier_least(left, share > few ? share : few)};
}

int64_t napier_product_stretches(const napier_context *context, const napier_const_matrix *rows, int64_t count) {
    int64_t stretches = 0;
    for (int64_t row = 0; row < count; stretches++) {
        row = next_stretch(context, rows, count, row).end;
    }
    return stretches;
}

napier_product_stretch napier_product_stretch_of(const napier_context *context, const napier_const_matrix *rows,
                                                 int64_t count, int64_t index) {
    napier_product_stretch s = {0, 0};
    for (int64_t i = 0; i <= index; i++) {
        s = next_stretch(context, rows, count, s.end);
    }
    return s;
}

typedef struct few_job {
    const napier_context *context;
    const napier_product_plan *plans;
    int count;
    int64_t rows; /* of all plans */
    float *scratch;
    size_t scratch_floats;
} few_job;

static void few_task(void *argument, int worker, int64_t begin, int64_t end) {
    const few_job *job = argument;
    float *scratch = job->scratch + (size_t)worker * job->scratch_floats;
    for (int64_t i = begin; i < end; i++) {
        const napier_product_stretch all =
            napier_product_stretch_of(job->context, &job->plans[0].sides.rows, job->rows, i);
        int64_t first = 0; /* row of this plan, counted over all plans */
        for (int p = 0; p < job->count; first += job->plans[p++].sides.rows.rows) {
            const napier_product_plan *plan = &job->plans[p];
            const int64_t last = napier_least(all.end - first, plan->sides.rows.rows);
            for (int64_t row = all.begin > first ? all.begin - first : 0; row < last; row += plan->row_block) {
                multiply_rows(plan, 0, row, napier_least(last - row, plan->row_block), scratch);
            }
        }
    }
}

void napier_product_run_few(const napier_context *context, napier_product_plan *plans, int count, float *panels,
                            float *scratch) {
    few_job job = {.context = context, .plans = plans, .count = count, .scratch = scratch};
    for (int p = 0; p < count; p++) {
        const size_t floats = napier_product_scratch(plans[p].row_block);
        job.scratch_floats = floats > job.scratch_floats ? floats : job.scratch_floats;
        job.rows += plans[p].sides.rows.rows;
        plans[p].sides.panels = panels;
        plans[p].sides.first_lane = 0;
        plans[p].sides.lane_count = plans[p].sides.lanes.rows;
    }
    const int64_t stretches = napier_product_stretches(context, &plans[0].sides.rows, job.rows);
    napier_parallel(context, stretches, 1, few_task, &job);
}

/* ---- Whole products ---------------------------------------------------------------------------------------------- */

void napier_product_run(const napier_context *context, napier_product_plan *p, float *memory) {
    napier_product_sides *s = &p->sides;
    p->scratch = memory;
    s->panels = memory + (size_t)context->threads * napier_product_scratch(p->row_block);
    for (int64_t lane = 0; lane < s->lanes.rows; lane += p->lanes) {
        napier_pack_lanes(context, s, lane, napier_least(s->lanes.rows - lane, p->lanes));
        if (s->few) {
            napier_product_run_few(context, p, 1, s->panels, p->scratch);
        } else {
            napier_parallel(context, napier_product_units(p), 1, multiply_units, p);
        }
    }
}

bool napier_product_packs_alike(const napier_product_plan *a, const napier_product_plan *b) {
    const napier_product_sides *s = &a->sides, *t = &b->sides;
    return s->k == t->k && s->pairs == t->pairs && s->split == t->split && s->engine == t->engine &&
           s->turned == t->turned && s->few == t->few && s->k_block == t->k_block && s->lane_block == t->lane_block &&
           s->lanes.rows == t->lanes.rows && a->lanes >= s->lanes.rows && b->lanes >= s->lanes.rows;
}

void napier_product_run_packed(const napier_context *context, napier_product_plan *p, float *panels, float *scratch) {
    napier_product_sides *s = &p->sides;
    p->scratch = scratch;
    s->panels = panels;
    s->first_lane = 0;
    s->lane_count = s->lanes.rows;
    if (s->few) {
        napier_product_run_few(context, p, 1, panels, scratch);
    } else {
        napier_parallel(context, napier_product_units(p), 1, multiply_units, p);
    }
}
