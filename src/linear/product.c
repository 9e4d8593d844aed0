/* linear/product.c - a matrix product in blocks. */
#include "linear/product.h"

#include <string.h>

static int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

napier_product_sides napier_product_sides_of(napier_isa isa, napier_const_matrix lanes, napier_const_matrix rows) {
    napier_product_sides s = {.kernels = &napier_kernels_of(isa)->linear.matmul, .lanes = lanes, .rows = rows};
    s.pairs = lanes.dtype == NAPIER_BF16 && rows.dtype == NAPIER_BF16;
    s.k = s.pairs ? round_up(lanes.cols, NAPIER_PAIRS_BLOCK) : lanes.cols;
    s.panel_step = s.k * NAPIER_LANES;
    s.few = lanes.rows <= NAPIER_FEW && rows.col_stride == 1 && (!s.pairs || s.kernels->few_pairs);
    return s;
}

int64_t napier_lanes_at_a_time(const napier_product_sides *s) {
    const int64_t most = NAPIER_PANEL_BYTES_MOST / (int64_t)sizeof(float) / (s->k > 0 ? s->k : 1);
    const int64_t blocks = most / NAPIER_LANE_BLOCK > 0 ? most / NAPIER_LANE_BLOCK : 1;
    const int64_t wanted = round_up(s->lanes.rows, NAPIER_LANE_BLOCK);
    return blocks * NAPIER_LANE_BLOCK < wanted ? blocks * NAPIER_LANE_BLOCK : wanted;
}

size_t napier_panel_floats(const napier_product_sides *s, int64_t lanes) {
    const uint64_t panels = (uint64_t)(lanes + NAPIER_LANES - 1) / NAPIER_LANES;
    if (s->k == 0 || panels > SIZE_MAX / sizeof(float) / (uint64_t)NAPIER_LANES / (uint64_t)s->k) {
        return 0;
    }
    return s->few ? NAPIER_FEW * (size_t)round_up(s->k, 16) : (size_t)(panels * (uint64_t)s->panel_step);
}

/* ---- Panels -------------------------------------------------------------------------------------------------------- */

static void pack_panels(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_product_sides *s = argument;
    const napier_const_matrix turned = napier_const_transposed(s->lanes);
    (void)worker;
    for (int64_t panel = begin; panel < end; panel++) {
        const int64_t lane = panel * NAPIER_LANES, left = s->lane_count - lane;
        const int64_t lanes = left < NAPIER_LANES ? left : NAPIER_LANES;
        float *out = s->panels + panel * s->panel_step;
        s->kernels->pack(&turned, 0, s->lanes.cols, s->first_lane + lane, lanes, s->pairs, out, NAPIER_LANES,
                         NAPIER_LANES);
        memset(out + s->lanes.cols * NAPIER_LANES, 0, (size_t)((s->k - s->lanes.cols) * NAPIER_LANES) * sizeof(float));
    }
}

void napier_pack_lanes(const napier_context *context, napier_product_sides *s, int64_t first, int64_t count) {
    s->first_lane = first;
    s->lane_count = count;
    if (s->few) {
        s->kernels->pack(&s->lanes, first, count, 0, s->lanes.cols, s->pairs, s->panels, round_up(s->k, 16),
                         round_up(s->k, 16));
    } else if (s->k > 0) {
        napier_parallel(context, (count + NAPIER_LANES - 1) / NAPIER_LANES, 1, pack_panels, s);
    }
}

/* ---- Strips of rows ------------------------------------------------------------------------------------------------ */

static void multiply_few(const napier_product_sides *s, int64_t row, int64_t rows, float *c) {
    const int64_t size = (int64_t)napier_dtype_size(s->rows.dtype);
    const napier_few_block few = {.rows = (const char *)s->rows.data + row * s->rows.row_stride * size,
                                  .dtype = s->rows.dtype,
                                  .row_count = rows,
                                  .row_step = s->rows.row_stride * size,
                                  .lane_data = s->panels,
                                  .lanes = s->lane_count,
                                  .lane_step = round_up(s->k, 16),
                                  .k = s->rows.cols,
                                  .c = c,
                                  .c_step = NAPIER_LANE_BLOCK};
    (s->pairs ? s->kernels->few_pairs : s->kernels->few_chain)(&few);
}

/* What will be packed next, if rows lie along k: it is fetched while this group is multiplied. */
static void look_ahead(const napier_product_sides *s, int64_t row, int64_t rows, int64_t k, napier_product_block *b) {
    const int64_t size = (int64_t)napier_dtype_size(s->rows.dtype), left = s->rows.cols - k;
    b->ahead_rows = 0;
    if (s->rows.col_stride == 1 && left > 0 && rows > 0) {
        b->ahead = (const char *)s->rows.data + (row * s->rows.row_stride + k) * size;
        b->ahead_rows = rows < NAPIER_ROW_GROUP ? rows : NAPIER_ROW_GROUP;
        b->ahead_step = s->rows.row_stride * size;
        b->ahead_bytes = (left < NAPIER_K_BLOCK ? left : NAPIER_K_BLOCK) * size;
    }
}

/* All groups of the strip go by a block of k, whose panels stay in the second cache. */
static void multiply_k_block(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, int64_t k,
                             float *c, float *packed) {
    const int64_t there = s->rows.cols - k < NAPIER_K_BLOCK ? s->rows.cols - k : NAPIER_K_BLOCK;
    napier_product_block b = {.rows = packed,
                              .panels = s->panels + block * (NAPIER_LANE_BLOCK / NAPIER_LANES) * s->panel_step +
                                        k * NAPIER_LANES,
                              .panel_step = s->panel_step,
                              .lanes = round_up(napier_block_lanes(s, block), 16),
                              .k = s->k - k < NAPIER_K_BLOCK ? s->k - k : NAPIER_K_BLOCK,
                              .c_step = NAPIER_LANE_BLOCK,
                              .first = k == 0};
    for (int64_t r = 0; r < rows; r += NAPIER_ROW_GROUP) {
        const int64_t next = r + NAPIER_ROW_GROUP;
        b.row_count = rows < next ? rows - r : NAPIER_ROW_GROUP;
        b.c = c + r * NAPIER_LANE_BLOCK;
        s->kernels->pack(&s->rows, row + r, b.row_count, k, there, s->pairs, packed, NAPIER_ROW_STEP,
                         round_up(b.k, 16));
        if (next < rows) {
            look_ahead(s, row + next, rows - next, k, &b);
        } else {
            look_ahead(s, row, rows, k + NAPIER_K_BLOCK, &b);
        }
        (s->pairs ? s->kernels->pairs : s->kernels->chain)(&b);
    }
}

const float *napier_product_strip(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows,
                                  float *scratch) {
    float *c = scratch + NAPIER_ROW_GROUP * NAPIER_ROW_STEP;
    if (s->k == 0) {
        memset(c, 0, (size_t)(rows * NAPIER_LANE_BLOCK) * sizeof *c);
    } else if (s->few) {
        multiply_few(s, row, rows, c);
    }
    for (int64_t k = 0; k < s->k && !s->few; k += NAPIER_K_BLOCK) {
        multiply_k_block(s, block, row, rows, k, c, scratch);
    }
    return c;
}
