/* lm/decoder/project.c - see project.h. Weights are contiguous along k and are read in place; activations are
 * packed. */
#include "lm/decoder/project.h"

#include <string.h>

#include "ops/isa/ops_kernels.h"
#include "ops/linear/product.h"
#include "ops/linear/strips.h"

static napier_product_plan plan_of(const napier_context *context, napier_const_matrix x, napier_const_matrix weights,
                                   napier_matrix out, bool split) {
    return napier_product_plan_of(context, x, weights, napier_transposed(out), split, false);
}

static size_t scratch_floats(const napier_context *context, const napier_product_plan *plan) {
    return (size_t)context->threads * napier_product_scratch(plan->row_block);
}

/* ---- Products that share x --------------------------------------------------------------------------------------- */

/* Each plan's own scratch memory precedes the panels, as in napier_product_run. So panels stay valid for the next
 * product only if it needs no more scratch memory. */
size_t napier_project_floats(const napier_context *context, napier_const_matrix x, napier_const_matrix weights,
                             bool split) {
    const napier_matrix out = napier_rows_f32(NULL, x.rows, weights.rows);
    const napier_strips strips = napier_strips_of(context, x, weights, out);
    if (strips.width > 0) {
        return napier_strips_floats(&strips);
    }
    const napier_product_plan plan = plan_of(context, x, weights, out, split);
    return napier_product_floats(context, &plan);
}

size_t napier_project_most_floats(const napier_context *context, napier_const_matrix x, napier_const_matrix weights,
                                  bool split) {
    size_t most = 0;
    for (; x.rows > 0; x.rows--) {
        const size_t floats = napier_project_floats(context, x, weights, split);
        if (floats == 0) {
            return 0;
        }
        most = floats > most ? floats : most;
    }
    return most;
}

/* How many of the plans, from the first on, may run together: they have few lanes and pack alike. */
static int together(const napier_product_plan *plans, int count) {
    int n = 1;
    while (n < count && napier_is_few(&plans[0].sides) && napier_product_packs_alike(&plans[0], &plans[n]) &&
           plans[n].row_block <= plans[0].row_block) {
        n++;
    }
    return n;
}

/* Few rows of x. The plans' scratch memory comes first, then the panels. */
static void run_few(const napier_context *context, napier_product_plan *plans, int count, float *memory) {
    float *const panels = memory + scratch_floats(context, &plans[0]);
    plans[0].sides.panels = panels;
    napier_pack_lanes(context, &plans[0].sides, 0, plans[0].sides.lanes.rows);
    napier_product_run_few(context, plans, count, panels, memory);
}

void napier_project(const napier_context *context, napier_const_matrix x, const napier_projection *all, int count,
                    bool split, float *memory) {
    napier_product_plan plans[NAPIER_PROJECTIONS], before = {0};
    for (int i = 0; i < count; i++) {
        plans[i] = plan_of(context, x, all[i].weights, all[i].out, split);
    }
    for (int i = 0, next; i < count && x.rows > 0; i = next) {
        napier_product_plan *const plan = &plans[i];
        napier_strips strips = napier_strips_of(context, x, all[i].weights, all[i].out);
        if (strips.width > 0) {
            napier_strips_run(&strips, memory);
            before = (napier_product_plan){0};
            next = i + 1;
            continue;
        }
        next = i + together(plan, count - i);
        const bool fits = scratch_floats(context, plan) <= scratch_floats(context, &before);
        if (next - i > 1) {
            run_few(context, plan, next - i, memory);
        } else if (i > 0 && fits && napier_product_packs_alike(&before, plan)) {
            napier_product_run_packed(context, plan, before.sides.panels, memory);
            continue;
        } else {
            napier_product_run(context, plan, memory);
        }
        before = *plan;
    }
}

/* ---- The gated product ------------------------------------------------------------------------------------------- */

static size_t round_up(size_t floats) { return (floats + 15) / 16 * 16; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

typedef struct gated {
    napier_product_plan gate, up, down;
    napier_strips both, last; /* gate and up; down. Used if both suit */
    napier_matrix middle;     /* between them; data NULL before the run */
    napier_dtype dtype;
    const float *gate_bias, *up_bias;
    const napier_layer_kernels *kernels;
    float *panels; /* of the middle */
    float *scratch;
    size_t scratch_floats; /* per worker: for gate, up and a row of the intermediate result */
} gated;

static gated gated_of(const napier_context *context, napier_const_matrix x, const napier_gated *w, napier_matrix out,
                      bool split) {
    const napier_matrix middle = napier_rows(NULL, x.rows, w->down.cols, x.dtype);
    gated g = {.middle = middle, .dtype = x.dtype, .gate_bias = w->gate_bias, .up_bias = w->up_bias};
    g.kernels = napier_ops_kernels_of(context->isa)->layers;
    g.gate = plan_of(context, x, w->gate, napier_rows_f32(NULL, x.rows, w->gate.rows), split);
    g.up = plan_of(context, x, w->up, napier_rows_f32(NULL, x.rows, w->up.rows), split);
    g.down = plan_of(context, napier_read_only(middle), w->down, out, split);
    g.both = napier_strips_of_two(context, x, w->gate, w->up);
    g.last = napier_strips_of(context, napier_read_only(middle), w->down, out);
    g.scratch_floats = 2 * napier_product_scratch(g.gate.row_block) + (size_t)g.gate.row_block * NAPIER_LANE_BLOCK;
    return g;
}

/* ---- The same in strips ------------------------------------------------------------------------------------------ */

static bool is_in_strips(const gated *g) { return g->both.width > 0 && g->last.width > 0; }

/* Gates a row's sums from `column` on. */
static void gate_row(const gated *g, float *gate, float *up, int64_t column, int64_t columns, void *out) {
    if (g->gate_bias) {
        g->kernels->add(gate, g->gate_bias + column, columns, gate, NAPIER_F32);
        g->kernels->add(up, g->up_bias + column, columns, up, NAPIER_F32);
    }
    g->kernels->gate(gate, up, columns, out, g->dtype);
}

/* Row `row` of the middle, from `column` on. */
static void *middle_at(const gated *g, int64_t row, int64_t column) {
    return (char *)g->middle.data + (row * g->middle.row_stride + column) * (int64_t)napier_dtype_size(g->dtype);
}

/* A napier_strips_taker. */
static void take_gated(void *argument, float *gate, float *up, int64_t step, int64_t row, int64_t rows, int64_t column,
                       int64_t columns) {
    const gated *g = argument;
    for (int64_t r = 0; r < rows; r++) {
        gate_row(g, gate + r * step, up + r * step, column, columns, middle_at(g, row + r, column));
    }
}

/* Of a middle of bf16. */
static size_t middle_floats(const gated *g) { return round_up((size_t)(g->middle.rows * g->middle.cols / 2 + 1)); }

static size_t strips_floats(const gated *g) {
    return middle_floats(g) + larger(napier_strips_floats(&g->both), napier_strips_floats(&g->last));
}

static void run_strips(gated *g, float *memory) {
    float *const rest = memory + middle_floats(g);
    g->middle.data = memory;
    g->last.a = napier_read_only(g->middle);
    g->both.taker = take_gated;
    g->both.argument = g;
    napier_strips_run(&g->both, rest);
    napier_strips_run(&g->last, rest);
}

/* ---- The same with panels ---------------------------------------------------------------------------------------- */

/* True if gate and up can share panels, and the intermediate result can be written as panels. */
static bool is_direct(const gated *g) {
    return !g->gate_bias && napier_product_packs_alike(&g->gate, &g->up) && g->gate.row_block == g->up.row_block &&
           !napier_is_few(&g->gate.sides) && !napier_is_few(&g->down.sides) &&
           g->down.sides.lane_block == g->gate.sides.lane_block && g->down.lanes >= g->down.sides.lanes.rows;
}

/* Writes row k of the intermediate result, for all lanes of a block, into the panels of the last product. */
static void write_row(const gated *g, int64_t block, int64_t k, const float *gate, const float *up, float *room) {
    const napier_product_sides *s = &g->down.sides;
    const int64_t lanes = napier_block_lanes(s, block), begin = k / s->k_block * s->k_block;
    if (g->dtype != NAPIER_F32 || s->split) {
        g->kernels->gate(gate, up, lanes, room, g->dtype);
        napier_panel_write_row(s, block, k, room);
        return;
    }
    for (int64_t l = 0; l < lanes; l += NAPIER_LANES) {
        const int64_t count = lanes - l < NAPIER_LANES ? lanes - l : NAPIER_LANES;
        float *out = napier_panel_at(s, block, l / NAPIER_LANES, begin) + (k - begin) * NAPIER_LANES;
        g->kernels->gate(gate + l, up + l, (count + 15) / 16 * 16, out, NAPIER_F32);
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
    static const float zeros[NAPIER_LANE_BLOCK]; /* of either dtype */
    const napier_product_sides *s = &g->down.sides;
    for (int64_t block = 0; block < napier_lane_blocks(s); block++) {
        for (int64_t k = s->lanes.cols; k < s->k; k++) {
            napier_panel_write_row(s, block, k, zeros);
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

/* ---- The same for few rows of x ---------------------------------------------------------------------------------- */

typedef struct few_gated {
    const napier_context *context;
    const gated *g;
    napier_matrix middle;
} few_gated;

static bool is_few(const gated *g) {
    return !g->gate_bias && napier_is_few(&g->gate.sides) && napier_product_packs_alike(&g->gate, &g->up) &&
           g->gate.row_block == g->up.row_block;
}

static void few_gated_task(void *argument, int worker, int64_t begin, int64_t end) {
    const few_gated *f = argument;
    const gated *g = f->g;
    const napier_product_sides *s = &g->gate.sides;
    float *scratch = g->scratch + (size_t)worker * g->scratch_floats;
    float *other = scratch + napier_product_scratch(g->gate.row_block);
    float *room = other + napier_product_scratch(g->gate.row_block);
    for (int64_t i = begin; i < end; i++) {
        const napier_product_stretch all = napier_product_stretch_of(f->context, &s->rows, s->rows.rows, i);
        for (int64_t row = all.begin; row < all.end; row += g->gate.row_block) {
            const int64_t rows = napier_least(all.end - row, g->gate.row_block);
            const float *gate = napier_product_strip(s, 0, row, rows, scratch);
            const float *up = napier_product_strip(&g->up.sides, 0, row, rows, other);
            g->kernels->gate(gate, up, rows * s->c_step, room, NAPIER_F32);
            napier_product_write(s, room, row, rows, f->middle);
        }
    }
}

static void run_few_gated(const napier_context *context, gated *g, napier_const_matrix x, const napier_gated *w,
                          float *memory) {
    napier_product_sides *const s = &g->gate.sides, *const t = &g->up.sides;
    float *const middle = memory, *const rest = middle + round_up((size_t)x.rows * (size_t)w->gate.rows);
    few_gated f = {context, g, napier_transposed(napier_rows(middle, x.rows, w->gate.rows, x.dtype))};
    g->scratch = rest;
    s->panels = t->panels = rest + (size_t)context->threads * g->scratch_floats;
    napier_pack_lanes(context, s, 0, s->lanes.rows);
    t->first_lane = s->first_lane;
    t->lane_count = s->lane_count;
    napier_parallel(context, napier_product_stretches(context, &s->rows, s->rows.rows), 1, few_gated_task, &f);
    g->down.sides.lanes.data = middle;
    napier_product_run(context, &g->down, rest);
}

/* ---- The same by three products ---------------------------------------------------------------------------------- */

static void run_plain(const napier_context *context, gated *g, napier_const_matrix x, const napier_gated *w,
                      napier_matrix out, float *memory) {
    const size_t all = round_up((size_t)x.rows * (size_t)w->gate.rows);
    float *const gate = memory, *const up = gate + all, *const middle = up + all, *const rest = middle + all;
    const napier_projection first[] = {{w->gate, napier_rows_f32(gate, x.rows, w->gate.rows)},
                                       {w->up, napier_rows_f32(up, x.rows, w->up.rows)}};
    const napier_projection last = {w->down, out};
    const bool split = g->gate.sides.split;
    napier_project(context, x, first, 2, split, rest);
    g->middle.data = middle;
    for (int64_t i = 0, width = g->middle.cols; i < x.rows; i++) {
        gate_row(g, gate + i * width, up + i * width, 0, width, middle_at(g, i, 0));
    }
    napier_project(context, napier_read_only(g->middle), &last, 1, split, rest);
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

/* Without biases it is monotone in the number of rows: the variant without panels is for few rows, for which a panel's
 * memory is at its maximum. */
size_t napier_project_gated_floats(const napier_context *context, napier_const_matrix x, const napier_gated *w,
                                   bool split) {
    const gated g = gated_of(context, x, w, napier_rows_f32(NULL, x.rows, w->down.rows), split);
    if (is_in_strips(&g)) {
        return strips_floats(&g);
    }
    const size_t first = napier_product_floats(context, &g.gate), second = napier_product_floats(context, &g.up);
    const size_t last = napier_product_floats(context, &g.down);
    if (first == 0 || second == 0 || last == 0) {
        return 0;
    }
    const size_t middle = round_up((size_t)x.rows * (size_t)w->gate.rows);
    if (is_few(&g)) {
        const size_t panels = napier_panel_floats(&g.gate.sides, g.gate.lanes);
        return middle + larger((size_t)context->threads * g.scratch_floats + panels, last);
    }
    if (!is_direct(&g)) {
        return 3 * middle + larger(larger(first, second), last);
    }
    const size_t scratch = (size_t)context->threads * g.scratch_floats;
    return napier_panel_floats(&g.gate.sides, g.gate.lanes) + napier_panel_floats(&g.down.sides, g.down.lanes) +
           larger(scratch, scratch_floats(context, &g.down));
}

void napier_project_gated(const napier_context *context, napier_const_matrix x, const napier_gated *w,
                          napier_matrix out, bool split, float *memory) {
    gated g = gated_of(context, x, w, out, split);
    if (x.rows == 0) {
        return;
    }
    if (is_in_strips(&g)) {
        run_strips(&g, memory);
    } else if (is_few(&g)) {
        run_few_gated(context, &g, x, w, memory);
    } else if (is_direct(&g)) {
        run_direct(context, &g, memory);
    } else {
        run_plain(context, &g, x, w, out, memory);
    }
}
