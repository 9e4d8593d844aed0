/* rl/linear_bitwise_cuda.h - the bitwise mode of napier_cuda_linear_token_logprobs. Host code. */
#ifndef NAPIER_RL_LINEAR_BITWISE_CUDA_H
#define NAPIER_RL_LINEAR_BITWISE_CUDA_H

#include "linear/product_cuda.h"
#include "rl/token_call.h"

/* Arguments have been checked. */
napier_status napier_cuda_linear_bitwise(napier_cuda_context *context, struct CUstream_st *stream,
                                         napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                         napier_const_matrix weights, const napier_token_call *call);

#endif
