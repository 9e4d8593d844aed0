/* ops/linear/product_steps.h - the steps of a product (product.h), which product_run.c calls by the table of its routes. */
#ifndef NAPIER_OPS_LINEAR_PRODUCT_STEPS_H
#define NAPIER_OPS_LINEAR_PRODUCT_STEPS_H

#include "ops/linear/product.h"

static inline int64_t napier_panels_of(const napier_product_sides *s, int64_t lanes) {
    return (napier_sums_of(s, lanes) + NAPIER_LANES - 1) / NAPIER_LANES;
}

/* Few lanes are not in panels: their sums are piece 0 of each lane, then piece 1, then piece 2. */
static inline int64_t napier_few_sums(const napier_product_sides *s, int64_t lanes) {
    return s->split ? NAPIER_PIECES * lanes : lanes;
}

/* ---- Packing: product_pack.c ------------------------------------------------------------------------------------- */

/* For panels of bf16: where `group` of 16 lanes begins in a block of k, and there at k. */
uint32_t *napier_group_at(const napier_product_sides *s, int64_t block, int64_t group, int64_t k);

/* Packs `cols` k of a panel, from k on, all in one block of k: as f32 or as bf16. */
typedef void napier_pack_step(const napier_product_sides *s, int64_t panel, int64_t k, int64_t cols);
napier_pack_step napier_pack_floats, napier_pack_narrow;

/* The steps of napier_panel_write_row. */
typedef void napier_write_step(const napier_product_sides *s, int64_t block, int64_t k, const void *values);
napier_write_step napier_write_floats, napier_write_narrow;

/* ---- Few lanes: product_few.c ------------------------------------------------------------------------------------ */

void napier_pack_few_lanes(const napier_product_sides *s);

/* ---- Multiplication: product_multiply.c, product_few.c ----------------------------------------------------------- */

/* Adds to c the products of some rows with a block of lanes, over the block of k that begins at k. first: c starts from 0.
 * room: NAPIER_ROW_GROUP * NAPIER_ROW_STEP floats. Rows are packed as f32, or read in place, or multiplied as bf16. Few lanes
 * are multiplied over all k at once. */
typedef void napier_multiply_step(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, int64_t k,
                                  bool first, float *c, float *room);
napier_multiply_step napier_multiply_packed, napier_multiply_direct, napier_multiply_narrow, napier_multiply_few;

/* Adds up the pieces' sums of `rows` rows, in place. */
void napier_add_pieces(const napier_product_sides *s, int64_t lanes, int64_t rows, float *c);

#endif
