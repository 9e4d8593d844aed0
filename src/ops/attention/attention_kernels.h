/* ops/attention/attention_kernels.h - turns scores into weights; attention.inc.h implements it for all instruction
 * sets. The products before and after it are those of ops/linear/product_kernels.h.
 *
 * A row is a query with one of its heads. Its keys are counted from the first of its sequence ("places") and processed
 * in blocks of NAPIER_KEY_BLOCK. docs/attention.md defines the order. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_KERNELS_H
#define NAPIER_OPS_ATTENTION_ATTENTION_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/linear/product_kernels.h"

enum {
    NAPIER_KEY_BLOCK = NAPIER_K_BLOCK, /* keys between two updates of a row's maximum: part of the order */
    NAPIER_TURNED_MORE = 3,
    NAPIER_SCORE_ROWS = 24 /* rows whose scores are in the first-level cache at a time */
};

/* How weights take the place of scores. Those that are rounded to bf16 are floats, or bf16 in the first half of a row. */
typedef enum napier_weights { NAPIER_WEIGHTS_F32, NAPIER_WEIGHTS_ROUNDED, NAPIER_WEIGHTS_BF16 } napier_weights;

/* The scores of some rows with a block of keys. */
typedef struct napier_score_block {
    float *scores; /* [rows][NAPIER_ROW_STEP]: q . k on entry */
    napier_weights weights;
    int64_t rows;
    int64_t keys; /* at least the most that any of the rows attends to; if weights are rounded, a multiple of 32 */
    const int64_t *seen; /* [rows]: each row attends to the first seen[r] keys, 0 .. keys */
    float factor;        /* scale * log2(e) */

    const void *const *mask; /* [rows]: the row's mask, at the first of these keys; NULL: none */
    bool mask_is_bytes;
    int64_t mask_step; /* elements from key to key */
} napier_score_block;

/* Running state of rows after some blocks: exponent E, sums l and outputs o, where
 *
 *     sum_j exp(score_j) = 2^E sum_i l[i],     sum_j exp(score_j) v_j = 2^E o. */
typedef struct napier_attention_rows {
    float *exponents; /* [rows]: integers; -inf before the first score */
    float *sums;      /* [rows][16]: by place modulo 16 */
    float *outputs;   /* [rows][step] */
    int64_t step, cols;
} napier_attention_rows;

/* Where the probabilities p and the slopes s of some rows go, rounded to bf16. Pairs are two rows, the even one in the low
 * half: group g of 16 keys at + g * group_step, [rows / 2][16]. */
typedef struct napier_slope_pairs {
    uint16_t *rows; /* s: [rows][row_step] */
    int64_t row_step;
    uint32_t *probs, *slopes; /* p and s as pairs */
    int64_t group_step;
} napier_slope_pairs;

/* For each key the weighted sum of rows. Both sides have rows NAPIER_ROW_STEP apart. */
typedef struct napier_turned_product {
    const float *weights; /* [row_count][NAPIER_ROW_STEP] */
    const float *rows;    /* [row_count][NAPIER_ROW_STEP] */
    int64_t row_count;
    int64_t keys, cols;           /* cols: a multiple of 16 */
    int64_t first_row, row_slope; /* rows before first_row + key * row_slope have weight 0 for the key */
    float *c;                     /* [keys + NAPIER_TURNED_MORE][c_step]: rows after the last may be overwritten */
    int64_t c_step;
} napier_turned_product;

/* Weighted sums of values that are read in place. */
typedef struct napier_few_values {
    const void *rows; /* [keys, cols] of `dtype`, row_step bytes apart */
    napier_dtype dtype;
    int64_t row_step, keys, cols;
    const float *weights; /* [lanes][NAPIER_ROW_STEP] */
    int64_t lanes;
    float *c; /* [lanes][c_step] */
    int64_t c_step;
    bool first; /* c starts from 0 here */
} napier_few_values;

typedef struct napier_attention_kernels {
    /* Replaces scores by weights 2^(score log2(e) - E), rescales l and o to the new E, and adds the weights to l. If weights
     * are rounded, subnormal outputs become 0. */
    void (*weigh)(const napier_score_block *block, const napier_attention_rows *rows);
    /* Writes the outputs of `count` rows to results[r], [cols] of `dtype`, or leaves them in place (results NULL), and
     * the logsumexp to lse[r] (NULL: not wanted). The outputs of a row without weight are multiplied by `masked`. */
    void (*finish)(const napier_attention_rows *rows, int64_t count, float masked, void *const *results,
                   napier_dtype dtype, int64_t cols, float *lse);
    /* c[lane] += sum_key weights[lane][key] * rows[key], by one chain of fma over the keys, ascending. c is filled up to a
     * multiple of 16 columns. */
    void (*few_values)(const napier_few_values *p);
    /* The same in the order of bf16_weights, where the first key is the first of a block. NULL if software must flush
     * subnormals. */
    void (*few_value_pairs)(const napier_few_values *p);
    /* For the backward. Replaces scores by probabilities p = exp(score - lse). slopes, with the same step, holds the
     * gradients of the probabilities, and becomes p (slope - mean). levels: lse * log2(e). */
    void (*slope)(const napier_score_block *block, const float *levels, const float *means, float *slopes);
    /* The same for bf16_gradient, for an even number of rows and a multiple of 32 keys. A row whose level is -inf attends to
     * nothing, which `seen` must say. */
    void (*slope_pairs)(const napier_score_block *block, const float *levels, const float *means, const float *slopes,
                        const napier_slope_pairs *out);
    /* c[key][col] += sum_row weights[row][key] * rows[row][col], by one chain of fma over the rows, ascending. */
    void (*turned)(const napier_turned_product *p);
    /* Multiplies the rows of c, of `cols` columns, by `factor`; an output of 0 is +0. */
    void (*scale)(float *c, int64_t step, int64_t rows, int64_t cols, float factor);
    /* Is there an inf or NaN among n floats, n a multiple of 16? */
    bool (*any_special)(const float *x, int64_t n);
} napier_attention_kernels;

/* Each exists only in builds for its processor. */
extern const napier_attention_kernels napier_attention_kernels_scalar, napier_attention_kernels_avx2,
    napier_attention_kernels_avx512, napier_attention_kernels_neon;

#endif
