/* ops/head/gpu/linear_token_cuda.h - declarations shared by the files of log-probabilities from hidden states
 * (linear_token_logprobs.cu, linear_token_gradient.cu, linear_token_cuda.c).
 *
 * A block computes a tile of logits, 128 rows by 128 tokens, on tensor cores. For each row it reduces its logits in the
 * tile to a few numbers, a pure function of these logits, and writes them to the tile's own slot. A second kernel adds
 * up a row's slots in the order of the tiles. So the split depends only on V, and the results of a row only on the
 * row. */
#ifndef NAPIER_OPS_HEAD_GPU_LINEAR_TOKEN_CUDA_H
#define NAPIER_OPS_HEAD_GPU_LINEAR_TOKEN_CUDA_H

#include "core/gpu/fault.h"
#include "ops/linear/gpu/matmul_cuda.h"
#include "ops/tokens/token_tile.h"

enum {
    NAPIER_LINEAR_TILE = NAPIER_MMA_COLUMNS,     /* tokens of a slot */
    NAPIER_LINEAR_STEP = NAPIER_LINEAR_TILE + 1, /* row stride in shared memory, in floats, so that threads can read
                                                    neighbouring rows without bank conflicts */
    NAPIER_LINEAR_SHARED = NAPIER_MMA_SHARED,
    NAPIER_LINEAR_GRADIENT_COLS = 4096, /* number of tokens whose gradients are in memory at a time; fixed, because it
                                           is part of the order */
    NAPIER_LINEAR_FINISH_ROWS = 32,     /* rows per block of the kernel that adds up slots; a lane has one row */
    NAPIER_LINEAR_FINISH_PARTS = 8,     /* warps of such a block; each adds one range of a row's slots */
    NAPIER_LINEAR_FINISH_BYTES = 64     /* shared memory per thread of such a block */
};

/* Arrays [tile][row], with rows `step` apart, so that neighbouring threads access neighbouring rows. */
typedef struct napier_linear_slots {
    float *max;    /* NaN if there is one, -inf if there are only -inf */
    float *count;  /* number of elements equal to max */
    float *rest;   /* as in napier_tile_sum */
    float *spread; /* sum of the terms times (max - z) */
    float *total;  /* sum of z over kept tokens; NULL: not wanted, as for the next */
    float *kept;   /* how many */
    int32_t *best; /* first index of the maximum */
    int64_t step;
    int64_t tiles; /* of a row */
} napier_linear_slots;

/* The values for the gradient of a row, made from its slots: g_j = p (base - entropy log p) + constant, p = exp(z - max
 * - log_sum), already divided by the temperature. */
typedef struct napier_linear_slope {
    float max, log_sum;
    float base, entropy, constant;
    int32_t kind; /* NAPIER_SLOPE_... */
} napier_linear_slope;

enum { NAPIER_SLOPE_ZERO, NAPIER_SLOPE_NAN, NAPIER_SLOPE_FINITE };

/* Rows first .. first + rows - 1 of the call. `hidden` has only these rows. */
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
    float *own;                  /* [N][K]: the own part of each id's gradient */
    int64_t column;              /* index of the first token of `weights` in a gradient's launch */
    uint16_t *g;                 /* [rows][NAPIER_LINEAR_GRADIENT_COLS] bf16 */
} napier_linear_job;

/* Rounds f32 sums to their dtype. */
typedef struct napier_linear_round_job {
    const float *sums; /* [rows][cols] */
    napier_matrix out;
} napier_linear_round_job;

enum { NAPIER_LINEAR_ROUND_THREADS = 256 };

#if !defined(CUDA_KERNEL)
#include "ops/tokens/token_call.h"

/* The arguments must have been checked. */
napier_status napier_cuda_linear_bitwise(napier_cuda_context *context, struct CUstream_st *stream,
                                         napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                         napier_const_matrix weights, const napier_token_call *call);
#endif

#endif
