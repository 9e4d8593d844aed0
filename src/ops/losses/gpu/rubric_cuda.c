/* ops/losses/gpu/rubric_cuda.c - rubric scores on a GPU: checks, workspace, launches. */
#include "ops/losses/gpu/rubric_cuda.h"

#include <napier/cuda/rl.h>

#include "ops/losses/calls.h"
#include "ops/tokens/gpu/responses_launch.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_rubric_tiles);
NAPIER_CUDA_KERNEL_DECLARE(napier_rubric_responses);
NAPIER_CUDA_KERNEL_DECLARE(napier_rubric_gradients);

static napier_cuda_rubric_job napier_cuda_rubric_of(napier_cuda_context *context, napier_cuda_room *room,
                                                    const napier_rubric_task *t) {
    return (napier_cuda_rubric_job){
        .rubric = t->job,
        .responses = napier_cuda_responses_of(context, room, t->responses.offsets, t->responses.tokens, NULL),
        .weights = t->weights,
        .scores = t->scores,
        .rewards = t->rewards,
        .grad_scores = t->grad_scores,
        .grad_rewards = t->grad_rewards};
}

napier_status napier_cuda_rubric_score(napier_cuda_context *context, struct CUstream_st *stream,
                                       napier_cuda_workspace *workspace, napier_const_vector logprobs,
                                       napier_indices token_ids, napier_indices offsets, napier_const_matrix rubric,
                                       napier_const_vector weights, napier_matrix scores, napier_vector rewards) {
    static const char what[] = "rubric_score";
    napier_rubric_task t = {.job = {.logprobs = logprobs, .ids = token_ids, .rubric = rubric},
                            .responses = {.offsets = offsets},
                            .weights = weights,
                            .scores = scores,
                            .rewards = rewards};
    napier_status status = napier_cuda_begin(context);
    if (!status)
        status = napier_rubric_check(context->host, NAPIER_ON_DEVICE, &t);
    if (status) {
        return status;
    }
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_cuda_rubric_job job = napier_cuda_rubric_of(context, &room, &t);
    const int64_t slots = job.responses.slots, criteria = rubric.rows;
    const bool fits = criteria == 0 || slots <= INT64_MAX / 16 / criteria;
    job.sums = napier_cuda_take(&room, fits ? slots * criteria : -1, sizeof *job.sums);
    if (!napier_cuda_room_ready(context, &room, &status)) {
        return status;
    }
    status = napier_cuda_responses_look(context, stream, &job.responses);
    if (!status) {
        status = napier_cuda_warps(context, stream, what, NAPIER_CUDA_KERNEL(napier_rubric_tiles), slots * criteria,
                                   &job, sizeof job);
    }
    if (!status) {
        status = napier_cuda_warps(context, stream, what, NAPIER_CUDA_KERNEL(napier_rubric_responses),
                                   job.responses.count, &job, sizeof job);
    }
    return status;
}

napier_status napier_cuda_rubric_score_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                napier_cuda_workspace *workspace, napier_indices token_ids,
                                                napier_indices offsets, napier_const_matrix rubric,
                                                napier_const_vector weights, napier_const_matrix grad_scores,
                                                napier_const_vector grad_rewards, napier_vector grad_logprobs) {
    napier_rubric_task t = {.job = {.ids = token_ids, .rubric = rubric, .grad_logprobs = grad_logprobs},
                            .responses = {.offsets = offsets},
                            .weights = weights,
                            .grad_scores = grad_scores,
                            .grad_rewards = grad_rewards};
    napier_status status = napier_cuda_begin(context);
    if (!status)
        status = napier_rubric_backward_check(context->host, NAPIER_ON_DEVICE, &t);
    if (status) {
        return status;
    }
    napier_cuda_room room = napier_cuda_room_of(workspace);
    const napier_cuda_rubric_job job = napier_cuda_rubric_of(context, &room, &t);
    if (!napier_cuda_room_ready(context, &room, &status)) {
        return status;
    }
    status = napier_cuda_responses_look(context, stream, &job.responses);
    if (!status) {
        status = napier_cuda_warps(context, stream, "rubric_score_backward",
                                   NAPIER_CUDA_KERNEL(napier_rubric_gradients), job.responses.slots, &job, sizeof job);
    }
    return status;
}
