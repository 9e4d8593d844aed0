/* lm/decoder/project.c - see project.h. Weights are contiguous along k and are read in place; activations are
 * packed. */
#include "lm/decoder/project.h"

#include <string.h>

#include "ops/isa/ops_kernels.h"
#include "ops/linear/product.h"

static napier_product_plan plan_of(const napier_context *context, napier_const_matrix x, napier_const_matrix weights,
                                   napier_matrix out) {
    return napier_product_plan_of(context, x, weights, napier_transposed(out), false);
}

static size_t scratch_floats(const napier_context *context, const napier_product_plan *plan) {
    return (size_t)context->threads * napier_product_scratch(plan->row_block);
}

/* ---- Products that share x --------------------------------------------------------------------------------------- */

/* Each plan's own scratch memory precedes the panels, as in napier_product_run. So panels stay valid for the next
 * product only if it needs no more scratch memory. */
size_t napier_project_floats(const napier_context *context, napier_const_matrix x, napier_const_matrix weights) {
    const napier_product_plan plan = plan_of(context, x, weights, napier_rows_f32(NULL, x.rows, weights.rows));
    return napier_product_floats(context, &plan);
}

size_t napier_project_most_floats(const napier_context *context, napier_const_matrix x, napier_const_matrix weights) {
    size_t most = 0;
    for (; x.rows > 0; x.rows--) {
        const size_t floats = napier_project_floats(context, x, weights);
        if (floats == 0) {
            return 0;
        }
        most = floats > most ? floats : most;
    }
    return most;
}

void napier_project(const napier_context *context, napier_const_matrix x, const napier_projection *all, int count,
                    float *memory) {
    napier_product_plan before = {0};
    for (int i = 0; i < count && x.rows > 0; i++) {
        napier_product_plan plan = plan_of(context, x, all[i].weights, all[i].out);
        const bool packed = i > 0 && napier_product_packs_alike(&before, &plan) &&
                            scratch_floats(context, &plan) <= scratch_floats(context, &before);
        if (packed) {
            napier_product_run_packed(context, &plan, before.sides.panels, memory);
        } else {
            napier_product_run(context, &plan, memory);
            before = plan;
        }
    }
}

/* ---- The gated product ------------------------------------------------------------------------------------------- */

typedef struct gated {
    napier_product_plan gate, up, down;
    napier_dtype dtype;
    const float *gate_bias, *up_bias;
    const napier_layer_kernels *kernels;
    float *panels; /* of the middle */
    float *scratch;
    size_t scratch_floats; /* per worker: for gate, up and a row of the intermediate result */
} gated;

static gated gated_of(const napier_context *context, napier_const_matrix x, const napier_gated *w, napier_matrix out) {
    const napier_const_matrix middle = napier_const_rows(NULL, x.rows, w->down.cols, x.dtype);
    gated g = {.dtype = x.dtype, .gate_bias = w->gate_bias, .up_bias = w->up_bias};
    g.kernels = &napier_ops_kernels_of(context->isa)->layers;
    g.gate = plan_of(context, x, w->gate, napier_rows_f32(NULL, x.rows, w->gate.rows));
    g.up = plan_of(context, x, w->up, napier_rows_f32(NULL, x.rows, w->up.rows));
    g.down = plan_of(context, middle, w->down, out);
    g.scratch_floats = 2 * napier_product_scratch(g.gate.row_block) + NAPIER_LANE_BLOCK;
    return g;
}

/* True if gate and up can share panels, and the intermediate result can be written as panels. */
static bool is_direct(const gated *g) {
    return !g->gate_bias && napier_product_packs_alike(&g->gate, &g->up) && g->gate.row_block == g->up.row_block &&
           !g->gate.sides.few && !g->down.sides.few && g->down.sides.lane_block == g->gate.sides.lane_block &&
           g->down.lanes >= g->down.sides.lanes.rows;
}

/* Writes row k of the intermediate result, for all lanes of a block, into the panels of the last product. */
static void write_row(const gated *g, int64_t block, int64_t k, const float *gate, const float *up, float *room) {
    const napier_product_sides *s = &g->down.sides;
    const int64_t lanes = napier_block_lanes(s, block), begin = k / s->k_block * s->k_block;
    const napier_const_matrix row = napier_const_rows(room, 1, lanes, g->dtype);
    if (g->dtype != NAPIER_F32) {
        g->kernels->gate(gate, up, lanes, room, g->dtype);
    }
    for (int64_t l = 0; l < lanes; l += NAPIER_LANES) {
        const int64_t count = lanes - l < NAPIER_LANES ? lanes - l : NAPIER_LANES;
        float *out = napier_panel_at(s, block, l / NAPIER_LANES, begin) + (k - begin) * NAPIER_LANES;
        if (g->dtype == NAPIER_F32) {
            g->kernels->gate(gate + l, up + l, (count + 15) / 16 * 16, out, NAPIER_F32);
        } else {
            s->kernels->pack(&row, 0, 1, l, count, s->pairs, out, NAPIER_LANES, NAPIER_LANES);
        }
    }
}

static void gated_task(void *argument, int worker, int64_t begin, int64_t end) {
    const gated *g = argument;
    const int64_t step = g->gate.sides.c_step;
    float *scratch = g->scratch + (size_t)worker * g->scratch_floats;
    float *other = scratch + napier_product_scratch(g->gate.row_block);
    float *room = other + napier_product_scratch(g->gate.row_block);
    for (int64_t i = begin; i < end; i++) {
        const napier_product_unit unit = napier_product_unit_of(&g->gate, i);
        const int64_t block = unit.block, row = unit.row;
        const int64_t left = g->gate.sides.rows.rows - row;
        const int64_t rows = left < g->gate.row_block ? left : g->gate.row_block;
        const float *gate = napier_product_strip(&g->gate.sides, block, row, rows, scratch);
        const float *up = napier_product_strip(&g->up.sides, block, row, rows, other);
        for (int64_t r = 0; r < rows; r++) {
            write_row(g, block, row + r, gate + r * step, up + r * step, room);
        }
    }
}

/* Writes the padding of k in the last block of pairs. */
static void fill_up(const gated *g) {
    const napier_product_sides *s = &g->down.sides;
    for (int64_t block = 0; block < napier_lane_blocks(s); block++) {
        for (int64_t k = s->lanes.cols; k < s->k; k++) {
            const int64_t begin = k / s->k_block * s->k_block;
            for (int64_t l = 0; l < napier_block_lanes(s, block); l += NAPIER_LANES) {
                memset(napier_panel_at(s, block, l / NAPIER_LANES, begin) + (k - begin) * NAPIER_LANES, 0,
                       NAPIER_LANES * sizeof(float));
            }
        }
    }
}

static void run_direct(const napier_context *context, gated *g, float *memory) {
    napier_product_sides *const s = &g->gate.sides, *const t = &g->up.sides, *const d = &g->down.sides;
    float *const panels = memory;
    g->panels = panels + napier_panel_floats(s, g->gate.lanes);
    g->scratch = g->panels + napier_panel_floats(d, g->down.lanes);
    s->panels = t->panels = panels;
    napier_pack_lanes(context, s, 0, s->lanes.rows);
    t->first_lane = d->first_lane = 0;
    t->lane_count = d->lane_count = s->lane_count;
    d->panels = g->panels;
    napier_parallel(context, napier_product_units(&g->gate), 1, gated_task, g);
    fill_up(g);
    napier_product_run_packed(context, &g->down, g->panels, g->scratch);
}

/* ---- The same by three products ---------------------------------------------------------------------------------- */

static size_t round_up(size_t floats) { return (floats + 15) / 16 * 16; }

static void gate_rows(const gated *g, int64_t rows, int64_t width, float *gate, float *up, void *middle) {
    for (int64_t i = 0; i < rows; i++) {
        if (g->gate_bias) {
            g->kernels->add(gate + i * width, g->gate_bias, width, gate + i * width, NAPIER_F32);
            g->kernels->add(up + i * width, g->up_bias, width, up + i * width, NAPIER_F32);
        }
        g->kernels->gate(gate + i * width, up + i * width, width,
                         (char *)middle + i * width * (int64_t)napier_dtype_size(g->dtype), g->dtype);
    }
}

static void run_plain(const napier_context *context, const gated *g, napier_const_matrix x, const napier_gated *w,
                      napier_matrix out, float *memory) {
    const size_t all = round_up((size_t)x.rows * (size_t)w->gate.rows);
    float *const gate = memory, *const up = gate + all, *const middle = up + all, *const rest = middle + all;
    const napier_projection first[] = {{w->gate, napier_rows_f32(gate, x.rows, w->gate.rows)},
                                       {w->up, napier_rows_f32(up, x.rows, w->up.rows)}};
    const napier_projection last = {w->down, out};
    napier_project(context, x, first, 2, rest);
    gate_rows(g, x.rows, w->gate.rows, gate, up, middle);
    napier_project(context, napier_const_rows(middle, x.rows, w->gate.rows, x.dtype), &last, 1, rest);
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Without biases it is monotone in the number of rows: the variant without panels is for few rows, for which a panel's
 * memory is at its maximum. */
size_t napier_project_gated_floats(const napier_context *context, napier_const_matrix x, const napier_gated *w) {
    const gated g = gated_of(context, x, w, napier_rows_f32(NULL, x.rows, w->down.rows));
    const size_t first = napier_product_floats(context, &g.gate), second = napier_product_floats(context, &g.up);
    const size_t last = napier_product_floats(context, &g.down);
    if (first == 0 || second == 0 || last == 0) {
        return 0;
    }
    if (!is_direct(&g)) {
        return 3 * round_up((size_t)x.rows * (size_t)w->gate.rows) + larger(larger(first, second), last);
    }
    const size_t scratch = (size_t)context->threads * g.scratch_floats;
    return napier_panel_floats(&g.gate.sides, g.gate.lanes) + napier_panel_floats(&g.down.sides, g.down.lanes) +
           larger(scratch, scratch_floats(context, &g.down));
}

void napier_project_gated(const napier_context *context, napier_const_matrix x, const napier_gated *w,
                          napier_matrix out, float *memory) {
    gated g = gated_of(context, x, w, out);
    if (x.rows == 0) {
        return;
    }
    if (is_direct(&g)) {
        run_direct(context, &g, memory);
    } else {
        run_plain(context, &g, x, w, out, memory);
    }
}
