/* ops/linear/strips.h - bf16 by bf16 on the matrix engine (AMX), many rows by many columns.
 *
 * Rows of a are packed once, as tiles. A thread packs a strip of columns, which stays in its second-level cache, and
 * multiplies it with all rows, or with a part of them. */
#ifndef NAPIER_OPS_LINEAR_STRIPS_H
#define NAPIER_OPS_LINEAR_STRIPS_H

#include "core/base/context.h"
#include "core/isa/core_kernels.h"

/* Takes `rows` rows of `columns` sums, from (row, column) on, `step` floats apart: of a * transposed b and, if there are two
 * products, of a * transposed `also`. It may change the sums. */
typedef void napier_strips_taker(void *argument, float *sums, float *also, int64_t step, int64_t row, int64_t rows,
                                 int64_t column, int64_t columns);

/* out = a * transposed b; or the sums of two such products with the same a, and of the same shape, go to a taker. */
typedef struct napier_strips {
    const napier_context *context;
    const napier_core_kernels *core;
    napier_const_matrix a, b;   /* [rows, k], [columns, k] */
    napier_const_matrix also;   /* of the second product */
    napier_matrix out;          /* [rows, columns] */
    napier_strips_taker *taker; /* NULL: sums go to out; any thread may call it */
    void *argument;
    int64_t k;                    /* rounded up to whole tiles */
    int64_t k_block;              /* packed at a time */
    int64_t width;                /* columns of a strip; 0: strips do not suit this product */
    int64_t parts;                /* of the rows, for each strip */
    int products;                 /* 1 or 2 */
    int64_t some_rows;            /* rows at a time */
    int64_t first_row, row_count; /* the rows that are multiplied now */
    int64_t in_place;             /* the first ones of these, which are not packed */
    bool stream;
    uint16_t *tiles;
    float *scratch; /* of each worker */
} napier_strips;

/* The context must have decided how it multiplies bf16 (ops/linear/engine.h). */
napier_strips napier_strips_of(const napier_context *context, napier_const_matrix a, napier_const_matrix b,
                               napier_matrix out);
/* The same for two products. The caller sets taker and argument before the run. Shapes, strides and dtypes decide, so the
 * data of all matrices may be set afterwards too. */
napier_strips napier_strips_of_two(const napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                   napier_const_matrix also);
/* Floats of memory that they need, never 0. */
size_t napier_strips_floats(const napier_strips *strips);
void napier_strips_run(napier_strips *strips, float *memory);

#endif
