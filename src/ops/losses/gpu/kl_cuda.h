/* ops/losses/gpu/kl_cuda.h - what kl_cuda.c and kl.cu share. */
#ifndef NAPIER_OPS_LOSSES_GPU_KL_CUDA_H
#define NAPIER_OPS_LOSSES_GPU_KL_CUDA_H

#include "ops/losses/kl_kernels.h"
#include "ops/tokens/gpu/responses_cuda.h"

typedef struct napier_cuda_kl_job {
    napier_kl_job kl;
    napier_cuda_responses responses;
    napier_reduction reduction;
    napier_kl_sum *sums;         /* forward: of each slot */
    napier_vector out;           /* forward */
    napier_const_vector grad_kl; /* backward */
    const int32_t *counted;      /* backward: of each slot, or NULL: all */
} napier_cuda_kl_job;

#endif
