/* ops/losses/gpu/kl_cuda.c - KL divergence per response on a GPU: checks, workspace, launches. */
#include "ops/losses/gpu/kl_cuda.h"

#include <napier/cuda/rl.h>

#include "ops/losses/calls.h"
#include "ops/tokens/gpu/responses_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_responses_count, napier_kl_tiles, napier_kl_responses, napier_kl_gradients);

napier_status napier_cuda_kl_per_response(napier_cuda_context *context, struct CUstream_st *stream,
                                          napier_cuda_workspace *workspace, napier_const_vector policy_logprobs,
                                          napier_const_vector ref_logprobs, napier_indices offsets, const uint8_t *mask,
                                          const napier_kl_options *options, napier_vector kl) {
    napier_cuda_kl_job job = {.kl = {.policy = policy_logprobs, .ref = ref_logprobs, .mask = mask}, .out = kl};
    napier_kl_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_kl_check(context->host, NAPIER_ON_DEVICE, offsets, options, napier_read_only_vector(kl), false,
                               &job.kl, &o));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job.responses = napier_cuda_responses_of(context, &room, offsets, policy_logprobs.size, mask);
    job.sums = napier_cuda_take(&room, job.responses.slots, sizeof *job.sums);
    job.reduction = o.reduction;
    NAPIER_CUDA_READY(context, room);
    const napier_cuda_call gpu = {context, stream, "kl_per_response"};
    NAPIER_TRY(napier_cuda_responses_look(&gpu, &job.responses));
    NAPIER_TRY(NAPIER_CUDA_WARPS(&gpu, napier_kl_tiles, job.responses.slots, &job));
    return NAPIER_CUDA_WARPS(&gpu, napier_kl_responses, job.responses.count, &job);
}

napier_status napier_cuda_kl_per_response_backward(
    napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_workspace *workspace,
    napier_const_vector policy_logprobs, napier_const_vector ref_logprobs, napier_indices offsets, const uint8_t *mask,
    const napier_kl_options *options, napier_const_vector grad_kl, napier_vector grad_policy, napier_vector grad_ref) {
    napier_cuda_kl_job job = {.kl = {policy_logprobs, ref_logprobs, mask, NAPIER_KL_K1, 0, 0, grad_policy, grad_ref},
                              .grad_kl = grad_kl};
    napier_kl_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_kl_check(context->host, NAPIER_ON_DEVICE, offsets, options, grad_kl, true, &job.kl, &o));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job.responses = napier_cuda_responses_of(context, &room, offsets, policy_logprobs.size, mask);
    const bool count = mask && o.reduction == NAPIER_REDUCE_MEAN;
    napier_cuda_count_job counts = {.counted =
                                        napier_cuda_take(&room, count ? job.responses.slots : 0, sizeof(int32_t))};
    job.reduction = o.reduction;
    job.counted = count ? counts.counted : NULL;
    counts.responses = job.responses;
    NAPIER_CUDA_READY(context, room);
    const napier_cuda_call gpu = {context, stream, "kl_per_response_backward"};
    NAPIER_TRY(napier_cuda_responses_look(&gpu, &job.responses));
    if (count) {
        NAPIER_TRY(NAPIER_CUDA_WARPS(&gpu, napier_responses_count, job.responses.slots, &counts));
    }
    return NAPIER_CUDA_WARPS(&gpu, napier_kl_gradients, job.responses.slots, &job);
}
