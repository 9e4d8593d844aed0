/* ops/tokens/gpu/gather_cuda.h - declarations shared by gather_cuda.c and gather.cu. */
#ifndef NAPIER_OPS_TOKENS_GPU_GATHER_CUDA_H
#define NAPIER_OPS_TOKENS_GPU_GATHER_CUDA_H

#include "ops/tokens/gpu/responses_cuda.h"

typedef struct napier_cuda_gather_job {
    napier_const_matrix x; /* logprobs */
    napier_indices ids;
    napier_vector y; /* gathered */
    napier_cuda_faults *faults;
} napier_cuda_gather_job;

typedef struct napier_cuda_scatter_job {
    napier_const_vector g; /* grad_gathered */
    napier_indices ids;
    napier_matrix y; /* grad_logprobs */
    napier_cuda_faults *faults;
} napier_cuda_scatter_job;

enum { NAPIER_SCATTER_STRIP = 4096 }; /* columns that a warp writes at a time */

#endif
