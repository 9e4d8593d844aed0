/* linear/product.c - a matrix product in blocks. */
#include "linear/product.h"

#include <string.h>

static int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

napier_product_sides napier_product_sides_of(napier_isa isa, napier_const_matrix lanes, napier_const_matrix rows) {
    napier_product_sides s = {.kernels = &napier_kernels_of(isa)->linear.matmul, .lanes = lanes, .rows = rows};
    s.pairs = lanes.dtype == NAPIER_BF16 && rows.dtype == NAPIER_BF16;
    s.k = s.pairs ? round_up(lanes.cols, NAPIER_PAIRS_BLOCK) : lanes.cols;
    s.panel_step = s.k * NAPIER_LANES;
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
    return (size_t)(panels * (uint64_t)s->panel_step);
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
    if (s->k > 0) {
        napier_parallel(context, (count + NAPIER_LANES - 1) / NAPIER_LANES, 1, pack_panels, s);
    }
}

/* ---- Groups of rows ------------------------------------------------------------------------------------------------ */

const float *napier_product_group(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows,
                                  float *scratch) {
    float *c = scratch + NAPIER_ROW_GROUP * NAPIER_ROW_STEP;
    napier_product_block step = {.rows = scratch,
                                 .row_count = rows,
                                 .panel_step = s->panel_step,
                                 .lanes = round_up(napier_block_lanes(s, block), 16),
                                 .c = c,
                                 .c_step = NAPIER_LANE_BLOCK,
                                 .first = true};
    if (s->k == 0) {
        memset(c, 0, (size_t)(rows * NAPIER_LANE_BLOCK) * sizeof *c);
    }
    const float *panels = s->k > 0 ? s->panels + block * (NAPIER_LANE_BLOCK / NAPIER_LANES) * s->panel_step : NULL;
    for (int64_t k = 0; k < s->k; k += NAPIER_K_BLOCK) {
        const int64_t there = s->rows.cols - k < NAPIER_K_BLOCK ? s->rows.cols - k : NAPIER_K_BLOCK;
        step.k = s->k - k < NAPIER_K_BLOCK ? s->k - k : NAPIER_K_BLOCK;
        step.panels = panels + k * NAPIER_LANES;
        s->kernels->pack(&s->rows, row, rows, k, there, s->pairs, scratch, NAPIER_ROW_STEP, round_up(step.k, 16));
        (s->pairs ? s->kernels->pairs : s->kernels->chain)(&step);
        step.first = false;
    }
    return c;
}
