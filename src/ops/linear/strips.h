/* ops/linear/strips.h - bf16 by bf16 on the matrix engine (AMX), many rows by many columns.
 *
 * Rows of a are packed once, as tiles. A thread packs a strip of columns, which stays in its second-level cache, and
 * multiplies it with all rows, or with a part of them. */
#ifndef NAPIER_OPS_LINEAR_STRIPS_H
#define NAPIER_OPS_LINEAR_STRIPS_H

#include "core/base/context.h"
#include "ops/linear/product_kernels.h"

/* out = a * transposed b */
typedef struct napier_strips {
    const napier_context *context;
    const napier_product_kernels *kernels;
    napier_const_matrix a, b;     /* [rows, k], [columns, k] */
    napier_matrix out;            /* [rows, columns] */
    int64_t k;                    /* rounded up to whole tiles */
    int64_t k_block;              /* packed at a time */
    int64_t width;                /* columns of a strip; 0: strips do not suit this product */
    int64_t parts;                /* of the rows, for each strip */
    int64_t some_rows;            /* packed at a time */
    int64_t first_row, row_count; /* those that are packed */
    bool stream;
    uint16_t *tiles;
    float *scratch; /* of each worker */
} napier_strips;

/* The context must have decided how it multiplies bf16 (ops/linear/engine.h). */
napier_strips napier_strips_of(const napier_context *context, napier_const_matrix a, napier_const_matrix b,
                               napier_matrix out);
/* Floats of memory that they need; 0 if the size overflows. */
size_t napier_strips_floats(const napier_strips *strips);
void napier_strips_run(napier_strips *strips, float *memory);

#endif
