/* ops/attention/attention_engine.h - attention with bf16 weights on what multiplies bf16 by bf16 (ops/linear/amx.h): how
 * keys, values and queries are packed for it, for the backward with bf16_gradient too. Memory is counted in floats, of
 * which each holds two bf16. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_ENGINE_H
#define NAPIER_OPS_ATTENTION_ATTENTION_ENGINE_H

#include "ops/attention/attention_rows.h"
#include "ops/linear/amx.h"

/* Rows whose scores are in the first-level cache at a time: two tiles. */
enum { NAPIER_ENGINE_ROWS = 32 };

/* Sets the route of a plan with bf16_weights or bf16_gradient. */
void napier_attention_engine_decide(napier_context *context, napier_attention_plan *plan);

/* n <= NAPIER_LANES places of a sequence, from `place` on, for a head of k. */
typedef struct napier_engine_panel {
    const napier_const_heads *x; /* k or v */
    const napier_sequence *sequence;
    int64_t head, place, n;
    float *gathered; /* room for NAPIER_LANES rows of k or v, filled up */
} napier_engine_panel;

/* Packs places as groups of 16 lanes: [2][dim / 2][16] pairs of dims. */
void napier_engine_pack_keys(const napier_attention_plan *plan, const napier_engine_panel *from, float *out);
/* Packs columns as lanes, group_step floats from 16 columns to the next 16: [NAPIER_LANES / 2][16] pairs of places. Returns
 * whether they have an inf or a NaN, if `look`. */
bool napier_engine_pack_values(const napier_attention_plan *plan, const napier_engine_panel *from, bool look,
                               float *out, int64_t group_step);

/* bf16 from one packed row of q to the next: a line more than its dims, so that rows do not all map to one cache set. */
static inline int64_t napier_engine_row_step(const napier_attention_plan *plan) {
    return napier_plan_dim(plan, plan->q.dim) + NAPIER_PAIRS_BLOCK;
}
/* Packs the queries of a tile, and rows of 0 up to a multiple of 16. */
void napier_engine_pack_queries(const napier_row_tile *tile, uint16_t *out);
/* Copies the tile's rows first .. first + rows - 1 of x ([tokens, heads of q, dim]), `step` bf16 apart, and 0 up to a multiple
 * of 32 columns and to `filled` rows. */
void napier_engine_copy_rows(const napier_row_tile *tile, const napier_const_heads *x, int64_t first, int64_t rows,
                             int64_t filled, uint16_t *out, int64_t step);
/* Is there an inf or a NaN among n bf16? */
bool napier_engine_any_special(const uint16_t *x, int64_t n);
/* For lanes that were packed elsewhere: `count` k of one group become as the context's engine wants them. */
void napier_engine_turn(const napier_attention_plan *plan, uint32_t *lanes, int64_t count);

/* Begins and ends a worker's use of the engine; in between it multiplies. */
void napier_engine_open(const napier_attention_plan *plan);
void napier_engine_close(const napier_attention_plan *plan);
/* c += rows * lanes, where there is an engine. Rows are read in place, row_count is rounded up to 16, and cols are k. */
void napier_engine_product(const napier_attention_plan *plan, const napier_engine_block *block);

/* scores[row][key] = query . key for up to NAPIER_ENGINE_ROWS packed rows and the keys of some panels. */
void napier_engine_scores(const napier_attention_plan *plan, const uint16_t *queries, int64_t rows, const float *panels,
                          int64_t keys, float *scores);
/* outputs[row] += weights[row] . values: `weights` are the bf16 of NAPIER_WEIGHTS_BF16, from the first of the places on.
 * first: outputs start from 0. */
void napier_engine_outputs(const napier_attention_plan *plan, const uint16_t *weights, int64_t rows,
                           const float *values, int64_t group_step, int64_t places, float *outputs, int64_t step,
                           bool first);

#endif
