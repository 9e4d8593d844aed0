/* ops/linear/product_run.c - a matrix product in blocks. The division of the work never changes a bit, because each element
 * of the product is a chain of its own. */
#include <string.h>

#include "core/base/stop.h"
#include "ops/linear/product_steps.h"

/* A group of rows of so many bytes is multiplied with one block of lanes after the
 * other, and stays in the last-level cache. */
enum { ROWS_TOGETHER_BYTES = 4 << 20 };

/* The steps of each route. Few lanes are packed at once, by napier_pack_few_lanes. */
static const struct {
    napier_pack_step *pack;
    napier_multiply_step *multiply;
    napier_write_step *write;
} routes[] = {[NAPIER_ROUTE_CHAIN] = {napier_pack_floats, napier_multiply_packed, napier_write_floats},
              [NAPIER_ROUTE_CHAIN_DIRECT] = {napier_pack_floats, napier_multiply_direct, napier_write_floats},
              [NAPIER_ROUTE_CHAIN_FEW] = {.multiply = napier_multiply_few},
              [NAPIER_ROUTE_PAIRS] = {napier_pack_floats, napier_multiply_packed, napier_write_floats},
              [NAPIER_ROUTE_PAIRS_DIRECT] = {napier_pack_floats, napier_multiply_direct, napier_write_floats},
              [NAPIER_ROUTE_PAIRS_FEW] = {.multiply = napier_multiply_few},
              [NAPIER_ROUTE_PAIRS_ONE] = {.multiply = napier_multiply_few},
              [NAPIER_ROUTE_DOT] = {napier_pack_narrow, napier_multiply_narrow, napier_write_narrow},
              [NAPIER_ROUTE_DOT_FEW] = {.multiply = napier_multiply_few},
              [NAPIER_ROUTE_DOT_ONE] = {.multiply = napier_multiply_few},
              [NAPIER_ROUTE_TILES] = {napier_pack_narrow, napier_multiply_narrow, napier_write_narrow}};

/* ---- Packing ----------------------------------------------------------------------------------------------------- */

void napier_panel_write_row(const napier_product_sides *s, int64_t block, int64_t k, const void *values) {
    routes[s->route].write(s, block, k, values);
}

static void pack_panels(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_product_sides *s = argument;
    (void)worker;
    for (int64_t panel = begin; panel < end; panel++) {
        for (int64_t k = 0; k < s->k; k += s->k_block) {
            routes[s->route].pack(s, panel, k, napier_least(s->k - k, s->k_block));
        }
    }
}

/* For lanes that are neighbours in memory: packs some k of all panels at a time, because these are
 * adjacent in memory. */
enum { PACK_K = NAPIER_PAIRS_BLOCK };

static void pack_across(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_product_sides *s = argument;
    const int64_t panels = napier_panels_of(s, s->lane_count);
    (void)worker;
    for (int64_t k = begin * PACK_K; k < end * PACK_K && k < s->k; k += PACK_K) {
        for (int64_t panel = 0; panel < panels; panel++) {
            routes[s->route].pack(s, panel, k, napier_least(s->k - k, PACK_K));
        }
    }
}

void napier_pack_lanes(const napier_context *context, napier_product_sides *s, int64_t first, int64_t count) {
    s->first_lane = first;
    s->lane_count = count;
    if (napier_is_few(s) && s->k > 0) {
        napier_pack_few_lanes(s);
    } else if (s->k > 0 && s->lanes.row_stride == 1 && s->lanes.col_stride != 1) {
        napier_parallel(context, (s->k + PACK_K - 1) / PACK_K, 1, pack_across, s);
    } else if (s->k > 0) {
        napier_parallel(context, napier_panels_of(s, count), 1, pack_panels, s);
    }
}

/* ---- Strips of rows ---------------------------------------------------------------------------------------------- */

static const float *multiply_strip(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, bool add,
                                   float *scratch) {
    float *c = scratch + NAPIER_ROW_GROUP * NAPIER_ROW_STEP;
    const int64_t step = napier_is_few(s) ? s->k : s->k_block;
    if (s->k == 0 && !add) {
        memset(c, 0, (size_t)(rows * s->c_step) * sizeof *c);
    }
    for (int64_t k = 0; k < s->k && (k == 0 || napier_goes_on(s->context)); k += step) {
        routes[s->route].multiply(s, block, row, rows, k, k == 0 && !add, c, scratch);
    }
    if (s->split && s->k > 0) {
        napier_add_pieces(s, napier_block_lanes(s, block), rows, c);
    }
    return c;
}

const float *napier_product_strip(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows,
                                  float *scratch) {
    return multiply_strip(s, block, row, rows, false, scratch);
}

/* ---- A whole product --------------------------------------------------------------------------------------------- */

static void multiply_rows(const napier_product_plan *p, int64_t block, int64_t row, int64_t rows, float *scratch) {
    const napier_product_sides *s = &p->sides;
    const int64_t lane = s->first_lane + block * s->lane_block, lanes = napier_block_lanes(s, block);
    if (p->add) {
        const napier_const_matrix so_far = napier_read_only(p->out);
        s->core->pack(&so_far, row, rows, lane, lanes, false, scratch + NAPIER_ROW_GROUP * NAPIER_ROW_STEP, s->c_step,
                      napier_round_up(lanes, 16));
    }
    const float *c = multiply_strip(s, block, row, rows, p->add, scratch);
    if (napier_is_few(s)) {
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

/* ---- Few lanes --------------------------------------------------------------------------------------------------- */

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
        if (napier_is_few(s)) {
            napier_product_run_few(context, p, 1, s->panels, p->scratch);
        } else {
            napier_parallel(context, napier_product_units(p), 1, multiply_units, p);
        }
    }
}

void napier_product_run_packed(const napier_context *context, napier_product_plan *p, float *panels, float *scratch) {
    napier_product_sides *s = &p->sides;
    p->scratch = scratch;
    s->panels = panels;
    s->first_lane = 0;
    s->lane_count = s->lanes.rows;
    if (napier_is_few(s)) {
        napier_product_run_few(context, p, 1, panels, scratch);
    } else {
        napier_parallel(context, napier_product_units(p), 1, multiply_units, p);
    }
}
