/* ops/attention/attention_engine.c - see attention_engine.h. */
#include "ops/attention/attention_engine.h"

#include <string.h>

#include "ops/linear/bf16_pairs.h"
#include "ops/linear/engine.h"

enum { GROUP = NAPIER_ENGINE_LANES, TILE = NAPIER_LANES / 2 * GROUP /* pairs of 32 places and 16 columns */ };

void napier_attention_engine_decide(napier_context *context, napier_attention_plan *plan) {
    napier_matrix_engine_decide(context);
    plan->route = context->engine >= NAPIER_ENGINE_AMX     ? NAPIER_ATTEND_TILES
                  : context->engine == NAPIER_ENGINE_PAIRS ? NAPIER_ATTEND_DOTS
                                                           : NAPIER_ATTEND_PAIRS;
}

/* ---- Packing ----------------------------------------------------------------------------------------------------- */

static void copy_row(const napier_const_heads *x, int64_t row, int64_t head, uint16_t *out) {
    const uint16_t *const from = (const uint16_t *)x->data + row * x->token_stride + head * x->head_stride;
    if (x->dim_stride == 1) {
        memcpy(out, from, (size_t)x->dim * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < x->dim; i++) {
        out[i] = from[i * x->dim_stride];
    }
}

/* Copies the places' rows, with +0 up to `dim` columns and to NAPIER_LANES rows. */
static const uint16_t *gather(const napier_engine_panel *from, int64_t dim) {
    const napier_const_heads *const x = from->x;
    uint16_t *const out = (uint16_t *)(void *)from->gathered;
    if (dim > x->dim || from->n < NAPIER_LANES) {
        memset(out, 0, (size_t)(NAPIER_LANES * dim) * sizeof *out);
    }
    for (int64_t i = 0; i < from->n; i++) {
        copy_row(x, napier_key_row(from->sequence, from->place + i), from->head, out + i * dim);
    }
    return out;
}

void napier_engine_turn(const napier_attention_plan *plan, uint32_t *lanes, int64_t count) {
    if (plan->route == NAPIER_ATTEND_DOTS) {
        napier_bf16_pairs_turn(lanes, count);
    }
}

/* A pair is one number of 32 bits, and so are the elements of the matrix that is transposed. */
void napier_engine_pack_keys(const napier_attention_plan *plan, const napier_engine_panel *from, float *out) {
    const int64_t dim = napier_plan_dim(plan, from->x->dim), pairs = dim / 2;
    const uint16_t *const rows = gather(from, dim);
    for (int group = 0; group < NAPIER_LANES / GROUP; group++, out += pairs * GROUP) {
        const napier_const_matrix m = {rows + group * GROUP * dim, pairs, GROUP, 1, pairs, NAPIER_F32};
        plan->core->pack(&m, 0, pairs, 0, GROUP, false, out, GROUP, GROUP);
        napier_engine_turn(plan, (uint32_t *)(void *)out, dim);
    }
}

/* Four at a time: the carry out of an exponent of ones. */
bool napier_engine_any_special(const uint16_t *x, int64_t n) {
    uint64_t found = 0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint64_t four;
        memcpy(&four, x + i, sizeof four);
        found |= (four & 0x7f807f807f807f80u) + 0x0080008000800080u;
    }
    for (; i < n; i++) {
        found |= (x[i] & 0x7f80u) + 0x80u;
    }
    return (found & 0x8000800080008000u) != 0;
}

static void pack_group(const uint16_t *rows, int64_t step, uint32_t *out) {
    for (int pair = 0; pair < NAPIER_LANES / 2; pair++, rows += 2 * step, out += GROUP) {
        for (int l = 0; l < GROUP; l++) {
            out[l] = rows[l] | (uint32_t)rows[step + l] << 16;
        }
    }
}

bool napier_engine_pack_values(const napier_attention_plan *plan, const napier_engine_panel *from, bool look,
                               float *out, int64_t group_step) {
    const int64_t dim = napier_round_up(from->x->dim, NAPIER_PAIRS_BLOCK);
    const uint16_t *const rows = gather(from, dim);
    for (int64_t col = 0; col < dim; col += GROUP, out += group_step) {
        uint32_t *const group = (uint32_t *)(void *)out;
        pack_group(rows + col, dim, group);
        napier_engine_turn(plan, group, NAPIER_LANES);
    }
    return look && napier_engine_any_special(rows, NAPIER_LANES * dim);
}

void napier_engine_copy_rows(const napier_row_tile *tile, const napier_const_heads *x, int64_t first, int64_t rows,
                             int64_t filled, uint16_t *out, int64_t step) {
    const int64_t group = tile->plan->group;
    if (x->dim % NAPIER_PAIRS_BLOCK != 0 || filled > rows) {
        memset(out, 0, (size_t)(filled * step) * sizeof *out);
    }
    for (int64_t r = first; r < first + rows; r++, out += step) {
        copy_row(x, tile->sequence.query_begin + tile->query + r / group, tile->head * group + r % group, out);
    }
}

void napier_engine_pack_queries(const napier_row_tile *tile, uint16_t *out) {
    const int64_t rows = napier_tile_rows(tile);
    napier_engine_copy_rows(tile, &tile->plan->q, 0, rows, napier_round_up(rows, GROUP), out,
                            napier_engine_row_step(tile->plan));
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

void napier_engine_open(const napier_attention_plan *plan) {
    if (plan->route == NAPIER_ATTEND_TILES) {
        napier_engine_begin();
    }
}

void napier_engine_close(const napier_attention_plan *plan) {
    if (plan->route == NAPIER_ATTEND_TILES) {
        napier_engine_end();
    }
}

void napier_engine_product(const napier_attention_plan *plan, const napier_engine_block *block) {
    if (plan->route == NAPIER_ATTEND_TILES) {
        napier_engine_multiply_here(block);
    } else {
        napier_bf16_pairs_multiply(block);
    }
}

void napier_engine_scores(const napier_attention_plan *plan, const uint16_t *queries, int64_t rows, const float *panels,
                          int64_t keys, float *scores) {
    const int64_t dim = napier_plan_dim(plan, plan->q.dim);
    const napier_engine_block block = {.rows = queries,
                                       .row_count = rows,
                                       .row_step = napier_engine_row_step(plan),
                                       .cols = dim,
                                       .lanes = (const uint32_t *)(const void *)panels,
                                       .lane_step = dim / 2 * GROUP,
                                       .lane_count = napier_round_up(keys, NAPIER_LANES),
                                       .k = dim,
                                       .c = scores,
                                       .c_step = NAPIER_ROW_STEP,
                                       .first = true};
    napier_engine_product(plan, &block);
}

void napier_engine_outputs(const napier_attention_plan *plan, const uint16_t *weights, int64_t rows,
                           const float *values, int64_t group_step, int64_t places, float *outputs, int64_t step,
                           bool first) {
    const int64_t filled = napier_round_up(places, NAPIER_PAIRS_BLOCK);
    const napier_engine_block block = {.rows = weights,
                                       .row_count = rows,
                                       .row_step = 2 * NAPIER_ROW_STEP,
                                       .cols = filled,
                                       .lanes = (const uint32_t *)(const void *)values,
                                       .lane_step = group_step,
                                       .lane_count = napier_round_up(plan->v.dim, GROUP),
                                       .k = filled,
                                       .c = outputs,
                                       .c_step = step,
                                       .first = first};
    napier_engine_product(plan, &block);
}
