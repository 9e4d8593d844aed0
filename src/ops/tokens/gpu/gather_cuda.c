/* ops/tokens/gpu/gather_cuda.c - one log-probability of each row, and its gradient, on a GPU. */
#include "ops/tokens/gpu/gather_cuda.h"

#include <napier/cuda/rl.h>

#include "ops/tokens/gather.h"
#include "ops/tokens/gpu/responses_launch.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_gather_rows);
NAPIER_CUDA_KERNEL_DECLARE(napier_scatter_rows);

napier_status napier_cuda_gather_logprobs(napier_cuda_context *context, struct CUstream_st *stream,
                                          napier_cuda_workspace *workspace, napier_const_matrix logprobs,
                                          napier_indices ids, napier_vector gathered) {
    napier_status status = napier_cuda_begin(context);
    if (!status)
        status = napier_gather_check(context->host, NAPIER_ON_DEVICE, logprobs, ids, gathered);
    const napier_cuda_room room = napier_cuda_room_of(workspace);
    if (status || !napier_cuda_room_ready(context, &room, &status)) {
        return status;
    }
    const napier_cuda_gather_job job = {logprobs, ids, gathered, context->faults};
    const napier_cuda_shape shape = {.blocks = napier_cuda_blocks(context, logprobs.rows, NAPIER_RESPONSE_THREADS, 8),
                                     .threads = NAPIER_RESPONSE_THREADS};
    return napier_cuda_launch(context, stream, "gather_logprobs", NAPIER_CUDA_KERNEL(napier_gather_rows), &shape, &job,
                              sizeof job);
}

napier_status napier_cuda_gather_logprobs_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                   napier_cuda_workspace *workspace, napier_const_vector grad_gathered,
                                                   napier_indices ids, napier_matrix grad_logprobs) {
    napier_status status = napier_cuda_begin(context);
    if (!status)
        status = napier_gather_backward_check(context->host, NAPIER_ON_DEVICE, grad_gathered, ids, grad_logprobs);
    const napier_cuda_room room = napier_cuda_room_of(workspace);
    if (status || !napier_cuda_room_ready(context, &room, &status)) {
        return status;
    }
    const napier_cuda_scatter_job job = {grad_gathered, ids, grad_logprobs, context->faults};
    const int64_t strips = (grad_logprobs.cols + NAPIER_SCATTER_STRIP - 1) / NAPIER_SCATTER_STRIP;
    return napier_cuda_warps(context, stream, "gather_logprobs_backward", NAPIER_CUDA_KERNEL(napier_scatter_rows),
                             grad_logprobs.rows * strips, &job, sizeof job);
}
