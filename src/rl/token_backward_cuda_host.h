/* rl/token_backward_cuda_host.h - the host half of token_backward_cuda.h. */
#ifndef NAPIER_RL_TOKEN_BACKWARD_CUDA_HOST_H
#define NAPIER_RL_TOKEN_BACKWARD_CUDA_HOST_H

#include "cuda/launch.h"
#include "rl/token_backward_cuda.h"
#include "rl/token_cuda_host.h"

napier_cuda_back_job napier_cuda_back_of(napier_cuda_context *context, napier_cuda_room *room,
                                         const napier_token_call *call, napier_const_matrix logits,
                                         napier_matrix grad_logits);
napier_status napier_cuda_back_run(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                   const napier_cuda_back_job *job);

#endif
