/* ops/head/gpu/linear_token_cuda.h - what the two halves of log-probabilities from hidden states share
 * (linear_token_logprobs.cu, linear_token_gradient.cu, linear_token_cuda.c).
 *
 * The logits of 128 rows by 128 tokens at a time are a block's tile on tensor cores. What a tile comes to for a row - a
 * pure function of the row's logits there - goes to the tile's own slot; a second kernel adds up a row's slots in the
 * order of the tiles. So the split depends on V only, and a row's results on nothing but the row. */
#ifndef NAPIER_OPS_HEAD_GPU_LINEAR_TOKEN_CUDA_H
#define NAPIER_OPS_HEAD_GPU_LINEAR_TOKEN_CUDA_H

#include "core/gpu/fault.h"
#include "ops/linear/gpu/matmul_cuda.h"
#include "ops/tokens/token_tile.h"

enum {
    NAPIER_LINEAR_TILE = NAPIER_MMA_COLUMNS,     /* tokens of a slot */
    NAPIER_LINEAR_STEP = NAPIER_LINEAR_TILE + 1, /* floats of a row in shared memory: threads read rows side by side */
    NAPIER_LINEAR_SHARED = NAPIER_MMA_SHARED,
    NAPIER_LINEAR_GRADIENT_COLS = 4096, /* tokens whose gradients are there at a time: fixed, part of the order */
    NAPIER_LINEAR_FINISH_ROWS = 32,     /* of a block that adds up slots, a row for each lane */
    NAPIER_LINEAR_FINISH_PARTS = 8,     /* warps of such a block: the slots of a row in so many ranges */
    NAPIER_LINEAR_FINISH_BYTES = 64     /* of shared memory, for each of its threads */
};

/* [tile][row] arrays, rows `step` apart: neighbouring threads have neighbouring rows. */
typedef struct napier_linear_slots {
    float *max;    /* NaN if there is one, -inf if all is -inf */
    float *count;  /* elements equal to it */
    float *rest;   /* as in napier_tile_sum */
    float *spread; /* the sum of the terms times (max - z) */
    float *total;  /* the sum of z over kept tokens; NULL: not wanted, as the next */
    float *kept;   /* how many */
    int32_t *best; /* the first place of the maximum */
    int64_t step;
    int64_t tiles; /* of a row */
} napier_linear_slots;

/* What the gradient of a row needs, made from its slots: g_j = p (base - entropy log p) + constant, p = exp(z - max -
 * log_sum), already divided by the temperature. */
typedef struct napier_linear_slope {
    float max, log_sum;
    float base, entropy, constant;
    int32_t kind; /* NAPIER_SLOPE_... */
} napier_linear_slope;

enum { NAPIER_SLOPE_ZERO, NAPIER_SLOPE_NAN, NAPIER_SLOPE_FINITE };

/* Rows first .. first + rows - 1 of the call, of which `hidden` has those only. */
typedef struct napier_linear_job {
    napier_side hidden, weights;
    int64_t k, first, rows, cols;
    int64_t row_tiles, column_tiles;
    napier_token_rules rules;
    napier_indices ids;
    int64_t per_row; /* K, if the ids are needed; else 0 */
    int64_t ignore;
    double label_smoothing, z_loss;
    napier_linear_slots slots;
    float *chosen; /* [rows of the slots][K]: z */
    napier_cuda_faults *faults;

    napier_matrix logprobs; /* results; data NULL: not wanted */
    napier_vector lse, entropy, loss;
    int64_t *argmax;

    napier_const_matrix grad_logprobs; /* gradients; data NULL: 0 */
    napier_const_vector grad_lse, grad_entropy, grad_loss;
    napier_linear_slope *slopes; /* [N]; NULL in a forward call */
    float *own;                  /* [N][K]: what an id's gradient has of its own */
    int64_t column;              /* of the first token of `weights`, in a gradient's launch */
    uint16_t *g;                 /* [rows][NAPIER_LINEAR_GRADIENT_COLS] bf16 */
} napier_linear_job;

/* f32 sums to their dtype. */
typedef struct napier_linear_round_job {
    const float *sums; /* [rows][cols] */
    napier_matrix out;
} napier_linear_round_job;

enum { NAPIER_LINEAR_ROUND_THREADS = 256 };

#endif
