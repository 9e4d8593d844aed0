/* ops/losses/gpu/rubric_cuda.h - declarations shared by rubric_cuda.c and rubric.cu. */
#ifndef NAPIER_OPS_LOSSES_GPU_RUBRIC_CUDA_H
#define NAPIER_OPS_LOSSES_GPU_RUBRIC_CUDA_H

#include "ops/tokens/gpu/responses_cuda.h"
#include "ops/losses/rubric_kernels.h"

typedef struct napier_cuda_rubric_job {
    napier_rubric_job rubric;
    napier_cuda_responses responses;
    napier_const_vector weights;
    float *sums; /* [slots, C] */
    napier_matrix scores;
    napier_vector rewards;
    napier_const_matrix grad_scores;
    napier_const_vector grad_rewards;
} napier_cuda_rubric_job;

#endif
