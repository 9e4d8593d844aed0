/* ops/attention/attention_rows.c - packs and unpacks rows, multiplies them with
 * keys, and finds which keys they attend to. */
#include "ops/attention/attention_rows.h"

#include <math.h>
#include <string.h>

void napier_pack_rows(const napier_row_tile *tile, const napier_const_heads *x, float *out) {
    const napier_attention_plan *const plan = tile->plan;
    const int64_t group = plan->group, rows = napier_tile_rows(tile), filled = napier_rows_filled(rows);
    for (int64_t col = 0; col < x->dim; col += NAPIER_K_BLOCK, out += filled * NAPIER_ROW_STEP) {
        const int64_t cols = napier_least(x->dim - col, NAPIER_K_BLOCK);
        const int64_t padded = napier_round_up(cols, napier_plan_narrow(plan) ? NAPIER_PAIRS_BLOCK : 16);
        for (int64_t h = 0; h < group; h++) {
            const napier_const_matrix m = napier_head(x, tile->head * group + h);
            plan->core->pack(&m, tile->sequence.query_begin + tile->query, tile->queries, col, cols,
                             napier_plan_narrow(plan), out + h * NAPIER_ROW_STEP, group * NAPIER_ROW_STEP, padded);
        }
        memset(out + rows * NAPIER_ROW_STEP, 0, (size_t)((filled - rows) * NAPIER_ROW_STEP) * sizeof *out);
    }
}

void napier_unpack_rows(const napier_row_tile *tile, const float *c, int64_t step, const napier_heads *x) {
    const napier_attention_plan *const plan = tile->plan;
    for (int64_t h = 0; h < plan->group; h++) {
        plan->core->unpack(c + h * step, plan->group * step, tile->queries, x->dim,
                           napier_head_out(x, tile->head * plan->group + h), tile->sequence.query_begin + tile->query,
                           0, false);
    }
}

void napier_row_products(const napier_attention_plan *plan, const float *packed, int64_t packed_rows, int64_t dim,
                         int64_t first, int64_t rows, const float *panels, int64_t keys, float *scores) {
    const int64_t all = napier_plan_dim(plan, dim);
    for (int64_t k = 0; k < all; k += NAPIER_K_BLOCK) {
        const napier_product_block block = {
            .rows = packed + (k / NAPIER_K_BLOCK * napier_rows_filled(packed_rows) + first) * NAPIER_ROW_STEP,
            .row_count = napier_rows_filled(rows),
            .panels = panels + k * NAPIER_LANES,
            .panel_step = all * NAPIER_LANES,
            .lanes = napier_round_up(keys, napier_plan_narrow(plan) ? NAPIER_LANES : 16),
            .k = napier_least(all - k, NAPIER_K_BLOCK),
            .c = scores,
            .c_step = NAPIER_ROW_STEP,
            .first = k == 0,
        };
        (napier_plan_narrow(plan) ? plan->products->pairs : plan->products->chain)(&block);
    }
}

int64_t napier_rows_seen(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place, int64_t most,
                         int64_t *seen) {
    int64_t greatest = 0;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t query = tile->query + (first + r) / tile->plan->group;
        const int64_t n = napier_keys_seen(tile->plan, &tile->sequence, query) - place;
        seen[r] = n < 0 ? 0 : napier_least(n, most);
        greatest = seen[r] > greatest ? seen[r] : greatest;
    }
    return greatest;
}

static void find_masks(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place, const void **mask) {
    const int64_t group = tile->plan->group;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t token = tile->sequence.query_begin + tile->query + (first + r) / group;
        mask[r] = napier_mask_at(tile->plan, token, tile->head * group + (first + r) % group, place);
    }
}

napier_score_block napier_scores_of(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place,
                                    int64_t keys, float *scores, const int64_t *seen, const void **mask) {
    const napier_attention_options *const o = &tile->plan->options;
    if (o->mask) {
        find_masks(tile, first, rows, place, mask);
    }
    const napier_attention_plan *const plan = tile->plan;
    return (napier_score_block){.scores = scores,
                                .weights = napier_plan_engine(plan)   ? NAPIER_WEIGHTS_BF16
                                           : napier_plan_narrow(plan) ? NAPIER_WEIGHTS_ROUNDED
                                                                      : NAPIER_WEIGHTS_F32,
                                .rows = rows,
                                .keys = napier_plan_narrow(plan) ? napier_round_up(keys, NAPIER_LANES) : keys,
                                .seen = seen,
                                .factor = tile->plan->factor,
                                .mask = o->mask ? mask : NULL,
                                .mask_is_bytes = o->mask_is_bytes != 0,
                                .mask_step = o->mask_key_stride};
}

bool napier_row_sees(const napier_row_tile *tile, int64_t row, int64_t place) {
    const int64_t group = tile->plan->group, query = tile->query + row / group;
    if (place >= napier_keys_seen(tile->plan, &tile->sequence, query)) {
        return false;
    }
    const int64_t token = tile->sequence.query_begin + query, head = tile->head * group + row % group;
    return !tile->plan->options.mask || !napier_mask_hides(tile->plan, token, head, place);
}

void napier_add_panels_seen(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place, int64_t keys,
                            const float *weights, const float *panels, int64_t panel_step, int64_t dim, float *sums,
                            int64_t step) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t key = 0; key < keys; key++) {
            const float weight = weights[r * NAPIER_ROW_STEP + key];
            for (int64_t i = 0; i < dim && napier_row_sees(tile, first + r, place + key); i++) {
                const float *const panel = panels + i / NAPIER_LANES * panel_step + i % NAPIER_LANES;
                sums[r * step + i] = fmaf(weight, panel[key * NAPIER_LANES], sums[r * step + i]);
            }
        }
    }
}
