/* ops/losses/gpu/kl_cuda.c - KL divergence per response on a GPU: checks, workspace, launches. */
#include "ops/losses/gpu/kl_cuda.h"

#include <napier/cuda/rl.h>

#include "ops/losses/calls.h"
#include "ops/tokens/gpu/responses_launch.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_responses_count);
NAPIER_CUDA_KERNEL_DECLARE(napier_kl_tiles);
NAPIER_CUDA_KERNEL_DECLARE(napier_kl_responses);
NAPIER_CUDA_KERNEL_DECLARE(napier_kl_gradients);

napier_status napier_cuda_kl_per_response(napier_cuda_context *context, struct CUstream_st *stream,
                                          napier_cuda_workspace *workspace, napier_const_vector policy_logprobs,
                                          napier_const_vector ref_logprobs, napier_indices offsets, const uint8_t *mask,
                                          const napier_kl_options *options, napier_vector kl) {
    static const char what[] = "kl_per_response";
    napier_cuda_kl_job job = {.kl = {.policy = policy_logprobs, .ref = ref_logprobs, .mask = mask}, .out = kl};
    napier_kl_options o;
    napier_status status = napier_cuda_begin(context);
    if (!status) {
        status =
            napier_kl_check(context->host, NAPIER_ON_DEVICE, policy_logprobs, ref_logprobs, offsets, options, kl, &o);
    }
    if (status) {
        return status;
    }
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job.responses = napier_cuda_responses_of(context, &room, offsets, policy_logprobs.size, mask);
    job.sums = napier_cuda_take(&room, job.responses.slots, sizeof *job.sums);
    job.reduction = o.reduction;
    napier_kl_limits(&job.kl, &o);
    if (!napier_cuda_room_ready(context, &room, &status)) {
        return status;
    }
    status = napier_cuda_responses_look(context, stream, &job.responses);
    if (!status) {
        status = napier_cuda_warps(context, stream, what, NAPIER_CUDA_KERNEL(napier_kl_tiles), job.responses.slots,
                                   &job, sizeof job);
    }
    if (!status) {
        status = napier_cuda_warps(context, stream, what, NAPIER_CUDA_KERNEL(napier_kl_responses), job.responses.count,
                                   &job, sizeof job);
    }
    return status;
}

napier_status napier_cuda_kl_per_response_backward(
    napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_workspace *workspace,
    napier_const_vector policy_logprobs, napier_const_vector ref_logprobs, napier_indices offsets, const uint8_t *mask,
    const napier_kl_options *options, napier_const_vector grad_kl, napier_vector grad_policy, napier_vector grad_ref) {
    static const char what[] = "kl_per_response_backward";
    napier_cuda_kl_job job = {.kl = {policy_logprobs, ref_logprobs, mask, NAPIER_KL_K1, 0, 0, grad_policy, grad_ref},
                              .grad_kl = grad_kl};
    napier_kl_options o;
    napier_status status = napier_cuda_begin(context);
    if (!status) {
        status = napier_kl_backward_check(context->host, NAPIER_ON_DEVICE, policy_logprobs, ref_logprobs, offsets,
                                          options, grad_kl, grad_policy, grad_ref, &o);
    }
    if (status) {
        return status;
    }
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job.responses = napier_cuda_responses_of(context, &room, offsets, policy_logprobs.size, mask);
    const bool count = mask && o.reduction == NAPIER_REDUCE_MEAN;
    napier_cuda_count_job counts = {.counted =
                                        napier_cuda_take(&room, count ? job.responses.slots : 0, sizeof(int32_t))};
    job.reduction = o.reduction;
    job.counted = count ? counts.counted : NULL;
    counts.responses = job.responses;
    napier_kl_limits(&job.kl, &o);
    if (!napier_cuda_room_ready(context, &room, &status)) {
        return status;
    }
    status = napier_cuda_responses_look(context, stream, &job.responses);
    if (!status && count) {
        status = napier_cuda_warps(context, stream, what, NAPIER_CUDA_KERNEL(napier_responses_count),
                                   job.responses.slots, &counts, sizeof counts);
    }
    if (!status) {
        status = napier_cuda_warps(context, stream, what, NAPIER_CUDA_KERNEL(napier_kl_gradients), job.responses.slots,
                                   &job, sizeof job);
    }
    return status;
}
