/* ops/tokens/gpu/gather_cuda.c - one log-probability of each row, and its gradient, on a GPU. */
#include "ops/tokens/gpu/gather_cuda.h"

#include <napier/cuda/rl.h>

#include "ops/tokens/gather.h"
#include "ops/tokens/gpu/responses_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_gather_rows, napier_scatter_rows);

napier_status napier_cuda_gather_logprobs(napier_cuda_context *context, struct CUstream_st *stream,
                                          napier_cuda_workspace *workspace, napier_const_matrix logprobs,
                                          napier_indices ids, napier_vector gathered) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(
        napier_gather_check(context->host, NAPIER_ON_DEVICE, logprobs, ids, napier_read_only_vector(gathered), false));
    NAPIER_CUDA_READY_WITHOUT(context, workspace);
    const napier_cuda_gather_job job = {logprobs, ids, gathered, context->faults};
    const napier_cuda_call gpu = {context, stream, "gather_logprobs"};
    return NAPIER_CUDA_PUT(&gpu, napier_gather_rows,
                           napier_cuda_loop(&gpu, logprobs.rows, NAPIER_RESPONSE_THREADS, 8, NAPIER_RESPONSE_THREADS),
                           &job);
}

napier_status napier_cuda_gather_logprobs_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                   napier_cuda_workspace *workspace, napier_const_vector grad_gathered,
                                                   napier_indices ids, napier_matrix grad_logprobs) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_gather_check(context->host, NAPIER_ON_DEVICE, napier_read_only(grad_logprobs), ids, grad_gathered,
                                   true));
    NAPIER_CUDA_READY_WITHOUT(context, workspace);
    const napier_cuda_scatter_job job = {grad_gathered, ids, grad_logprobs, context->faults};
    const int64_t strips = (grad_logprobs.cols + NAPIER_SCATTER_STRIP - 1) / NAPIER_SCATTER_STRIP;
    const napier_cuda_call gpu = {context, stream, "gather_logprobs_backward"};
    return NAPIER_CUDA_WARPS(&gpu, napier_scatter_rows, grad_logprobs.rows * strips, &job);
}
