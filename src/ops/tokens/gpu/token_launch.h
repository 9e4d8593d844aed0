/* ops/tokens/gpu/token_launch.h - the host part of token_cuda.h. */
#ifndef NAPIER_OPS_TOKENS_GPU_TOKEN_LAUNCH_H
#define NAPIER_OPS_TOKENS_GPU_TOKEN_LAUNCH_H

#include "core/gpu/launch.h"
#include "ops/tokens/token_call.h"
#include "ops/tokens/gpu/token_cuda.h"

/* Makes a job from a call that has been read, with memory from the workspace. */
napier_cuda_token_job napier_cuda_token_of(napier_cuda_context *context, napier_cuda_room *room,
                                           const napier_token_call *call, napier_const_matrix logits);

/* Computes the slots of all rows. */
napier_status napier_cuda_token_sums(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                     const napier_cuda_token_job *job);
/* Computes the slots, and then all results except the top k. */
napier_status napier_cuda_token_run(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                    const napier_cuda_token_job *job);

#endif
