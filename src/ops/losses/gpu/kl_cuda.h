/* ops/losses/gpu/kl_cuda.h - declarations shared by kl_cuda.c and kl.cu. */
#ifndef NAPIER_OPS_LOSSES_GPU_KL_CUDA_H
#define NAPIER_OPS_LOSSES_GPU_KL_CUDA_H

#include "ops/losses/kl_kernels.h"
#include "ops/tokens/gpu/responses_cuda.h"

typedef struct napier_cuda_kl_job {
    napier_kl_job kl;
    napier_cuda_responses responses;
    napier_reduction reduction;
    napier_kl_sum *sums;         /* forward: for each slot */
    napier_vector out;           /* forward */
    napier_const_vector grad_kl; /* backward */
    const int32_t *counted;      /* backward: for each slot, or NULL: all count */
} napier_cuda_kl_job;

#endif
