/* ops/losses/gpu/token_backward_launch.h - the host part of token_backward_cuda.h. */
#ifndef NAPIER_OPS_LOSSES_GPU_TOKEN_BACKWARD_LAUNCH_H
#define NAPIER_OPS_LOSSES_GPU_TOKEN_BACKWARD_LAUNCH_H

#include "core/gpu/launch.h"
#include "ops/losses/gpu/token_backward_cuda.h"
#include "ops/tokens/gpu/token_launch.h"

napier_cuda_back_job napier_cuda_back_of(napier_cuda_context *context, napier_cuda_room *room,
                                         const napier_token_call *call, napier_const_matrix logits,
                                         napier_matrix grad_logits);
napier_status napier_cuda_back_run(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                   const napier_cuda_back_job *job);

#endif
