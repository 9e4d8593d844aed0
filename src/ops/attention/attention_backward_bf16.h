/* ops/attention/attention_backward_bf16.h - the products of the backward with bf16_gradient: of bf16 by bf16, in the order
 * of napier/linear.h, on an engine (ops/attention/attention_engine.h) or with the kernels of an instruction set.
 *
 * A tile of rows meets a block of keys. Of the weights p and the gradients s of the scores the rows lie along the keys, for
 * grad_q, and pairs of rows are lanes, for grad_v and grad_k, which are computed turned: [dim][keys]. So the queries and
 * grad_output are needed turned too, and are packed both ways once for a sequence. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_BACKWARD_BF16_H
#define NAPIER_OPS_ATTENTION_ATTENTION_BACKWARD_BF16_H

#include "ops/attention/attention_rows.h"

/* Of a tile and a block: p and s are in the second-level cache, beside their operands. */
enum { NAPIER_BACK_BF16_ROWS = 256, NAPIER_BACK_BF16_KEYS = NAPIER_K_BLOCK };

/* A worker's scratch, for a sequence and a head of k. Tiles follow one another; their rows are filled up with 0 to whole
 * tiles. */
typedef struct napier_back_bf16 {
    uint16_t *queries, *grads;               /* rows of q and grad_output: [rows][step of q], [rows][step of v] */
    uint16_t *queries_turned, *grads_turned; /* [tiles][dim][TURNED_STEP], [tiles][v.dim][TURNED_STEP] */
    unsigned char *special;                  /* [tiles]: an inf or NaN in these rows */
    float *keys, *values;                    /* pairs of dims: [KEYS / 16][dim / 2][16], [KEYS / 16][v.dim / 2][16] */
    float *places;                           /* of keys, pairs of places: [dim / 16][KEYS / 2][16] */
    bool special_keys;                       /* an inf or NaN in the block's keys */
    float *gathered;                         /* NAPIER_LANES rows of k or v */
    float *scores, *slopes;                  /* [NAPIER_ENGINE_ROWS][NAPIER_ROW_STEP] */
    uint16_t *slope_rows;                    /* s: [ROWS][SLOPE_STEP] */
    uint32_t *prob_pairs, *slope_pairs;      /* p and s, pairs of rows: [KEYS / 16][PAIRS_STEP] */
    float *sum_k, *sum_v;                    /* of the block, turned: [dim][SUM_STEP], [v.dim][SUM_STEP] */
    float *wide;                             /* operands as f32, where there is no engine */
} napier_back_bf16;

/* The rows of a sequence and a head. */
typedef struct napier_back_rows {
    napier_row_tile all; /* all of them as one tile */
    const napier_const_heads *grad_output;
    const float *levels, *means; /* of each row, and room up to a multiple of NAPIER_ENGINE_ROWS */
    float *sum_q;                /* [rows, filled up likewise][q_step] */
    float *sum_k, *sum_v;        /* of the block's keys: [NAPIER_BACK_BF16_KEYS][q_step], [.][v_step] */
    int64_t q_step, v_step;
} napier_back_rows;

/* Sets the pointers to memory from `base` on (NULL: to nothing), for up to so many rows of a sequence; returns how many
 * floats they take. */
int64_t napier_back_bf16_lay_out(const napier_attention_plan *plan, int64_t rows, float *base, napier_back_bf16 *s);
/* Packs the rows. */
void napier_back_bf16_begin(const napier_back_rows *from, napier_back_bf16 *s);
/* The keys place .. place + count - 1: adds to sum_q, and sets sum_k and sum_v. */
void napier_back_bf16_block(const napier_back_rows *from, int64_t place, int64_t count, napier_back_bf16 *s);

#endif
