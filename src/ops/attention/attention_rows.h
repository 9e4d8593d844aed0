/* ops/attention/attention_rows.h - the rows of a tile: pairs of a query and a head of one group, heads
 * within queries. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_ROWS_H
#define NAPIER_OPS_ATTENTION_ATTENTION_ROWS_H

#include "ops/attention/attention_plan.h"

/* Queries query .. query + queries - 1 of a sequence, with the heads that share head `head` of k. */
typedef struct napier_row_tile {
    const napier_attention_plan *plan;
    napier_sequence sequence;
    int64_t query, queries;
    int64_t head;
} napier_row_tile;

static inline int64_t napier_tile_rows(const napier_row_tile *t) { return t->queries * t->plan->group; }

/* The products are fastest for multiples of so many rows; packed rows are filled up with 0. */
enum { NAPIER_ROWS_TOGETHER = 4 };

static inline int64_t napier_rows_filled(int64_t rows) { return napier_round_up(rows, NAPIER_ROWS_TOGETHER); }

/* Floats of packed rows: [dim / NAPIER_K_BLOCK][rows, filled up][NAPIER_ROW_STEP]. */
static inline int64_t napier_packed_rows_floats(int64_t rows, int64_t dim) {
    return napier_round_up(dim, NAPIER_K_BLOCK) / NAPIER_K_BLOCK * napier_rows_filled(rows) * NAPIER_ROW_STEP;
}

/* Packs the tile's rows of x ([tokens, heads of q, dim]). */
void napier_pack_rows(const napier_row_tile *tile, const napier_const_heads *x, float *out);

/* Writes rows of c, `step` floats apart, which begin with the tile's, to the tile's rows of x. */
void napier_unpack_rows(const napier_row_tile *tile, const float *c, int64_t step, const napier_heads *x);

/* scores[row][key] = packed row first + row . key for `keys` keys in panels [key / NAPIER_LANES][dim][NAPIER_LANES]. */
void napier_row_products(const napier_attention_plan *plan, const float *packed, int64_t packed_rows, int64_t dim,
                         int64_t first, int64_t rows, const float *panels, int64_t keys, float *scores);

/* seen[row]: to how many of the keys from `place` on, at most `most`, each row attends. Returns the maximum. */
int64_t napier_rows_seen(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place, int64_t most,
                         int64_t *seen);

/* The scores of some rows with `keys` keys from `place` on, for the kernels. mask: space for a pointer per row. */
napier_score_block napier_scores_of(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place,
                                    int64_t keys, float *scores, const int64_t *seen, const void **mask);

/* sums[row] += sum_key weights[row][key] panels[key], key by key, without hidden keys: if one of them has an inf or a
 * NaN, 0 times it would be NaN. panels: [dim / NAPIER_LANES][panel_step]. */
void napier_add_panels_seen(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place, int64_t keys,
                            const float *weights, const float *panels, int64_t panel_step, int64_t dim, float *sums,
                            int64_t step);

/* Whether a row attends to a key, mask included. */
bool napier_row_sees(const napier_row_tile *tile, int64_t row, int64_t place);

#endif
