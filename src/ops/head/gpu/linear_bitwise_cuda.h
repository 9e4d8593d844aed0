/* ops/head/gpu/linear_bitwise_cuda.h - the bitwise mode of napier_cuda_linear_token_logprobs. Host code. */
#ifndef NAPIER_OPS_HEAD_GPU_LINEAR_BITWISE_CUDA_H
#define NAPIER_OPS_HEAD_GPU_LINEAR_BITWISE_CUDA_H

#include "ops/linear/gpu/matmul_launch.h"
#include "ops/tokens/token_call.h"

/* The arguments must have been checked. */
napier_status napier_cuda_linear_bitwise(napier_cuda_context *context, struct CUstream_st *stream,
                                         napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                         napier_const_matrix weights, const napier_token_call *call);

#endif
