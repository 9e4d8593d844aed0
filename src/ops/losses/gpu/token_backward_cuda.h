/* ops/losses/gpu/token_backward_cuda.h - declarations shared by token_backward_cuda.c, grpo_logits_cuda.c and
 * token_backward.cu. */
#ifndef NAPIER_OPS_LOSSES_GPU_TOKEN_BACKWARD_CUDA_H
#define NAPIER_OPS_LOSSES_GPU_TOKEN_BACKWARD_CUDA_H

#include "ops/losses/gpu/grpo_cuda.h"
#include "ops/tokens/gpu/token_cuda.h"

typedef struct napier_cuda_back_job {
    napier_cuda_token_job token;
    napier_matrix y; /* grad_logits */
    int64_t share;   /* number of a row's tiles that one block takes */
    bool keep;       /* the block keeps its tiles in shared memory, after its napier_cuda_back_room, and so reads them
                        once */
    double *doubles; /* [N, blocks of a row, 2 K]: start and own of the ids */
    float *chosen;   /* [N, blocks of a row, K]: their z */
    bool hooked;     /* the gradients are those of a GRPO loss with per-token ratios: */
    napier_cuda_grpo_job grpo;
    float *logprob, *entropy; /* [N], written during the call */
} napier_cuda_back_job;

enum { NAPIER_BACK_THREADS = 256, NAPIER_BACK_CLUSTER = 8 };

/* Shared memory of a block, before the tiles that it keeps. */
typedef struct napier_cuda_back_room {
    napier_cuda_token_room row;
    napier_token_pull pull;
    napier_token_slope slope;
    bool bad; /* an id is invalid: the row is NaN */
} napier_cuda_back_room;

enum { NAPIER_BACK_ROOM = (sizeof(napier_cuda_back_room) + 127) / 128 * 128 };

#if !defined(CUDA_KERNEL)
#include "core/gpu/launch.h"

napier_cuda_back_job napier_cuda_back_of(napier_cuda_context *context, napier_cuda_room *room,
                                         const napier_token_call *call, napier_const_matrix logits,
                                         napier_matrix grad_logits);
napier_status napier_cuda_back_run(const napier_cuda_call *gpu, const napier_cuda_back_job *job);
#endif

#endif
