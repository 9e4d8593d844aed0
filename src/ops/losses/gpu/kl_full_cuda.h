/* ops/losses/gpu/kl_full_cuda.h - declarations shared by kl_full_cuda.c and kl_full.cu. */
#ifndef NAPIER_OPS_LOSSES_GPU_KL_FULL_CUDA_H
#define NAPIER_OPS_LOSSES_GPU_KL_FULL_CUDA_H

#include "ops/losses/kl_row.h"
#include "ops/tokens/gpu/token_cuda.h"

/* napier_kl_sums of a tile. */
typedef struct napier_cuda_kl_part {
    float sum, excess, rest, prob;
} napier_cuda_kl_part;

/* A row: both distributions, and finally the divergence, which is NaN if one of them does not exist. */
typedef struct napier_cuda_kl_row {
    napier_kl_row p, q;
    bool good[2];
    double kl, certain;
} napier_cuda_kl_row;

typedef struct napier_cuda_kl_full_job {
    napier_kl_full_job kl;
    int64_t tiles;                          /* of a row */
    const napier_cuda_token_slot *slots[2]; /* [N, tiles]: the policy's and the reference's */
    napier_cuda_kl_part *parts;             /* [N, tiles] */
    napier_cuda_kl_row *rows;               /* [N] */
    napier_vector out;                      /* forward; data NULL: not wanted */
    napier_const_vector grad_kl;            /* backward */
} napier_cuda_kl_full_job;

#endif
