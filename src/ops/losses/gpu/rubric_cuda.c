/* ops/losses/gpu/rubric_cuda.c - rubric scores on a GPU: checks, workspace, launches. */
#include "ops/losses/gpu/rubric_cuda.h"

#include <napier/cuda/rl.h>

#include "ops/losses/calls.h"
#include "ops/tokens/gpu/responses_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_rubric_tiles, napier_rubric_responses, napier_rubric_gradients);

static napier_cuda_rubric_job rubric_of(napier_cuda_context *context, napier_cuda_room *room,
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
    napier_rubric_task t = {.job = {.logprobs = logprobs, .ids = token_ids, .rubric = rubric},
                            .responses = {.offsets = offsets},
                            .weights = weights,
                            .scores = scores,
                            .rewards = rewards};
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_rubric_check(context->host, NAPIER_ON_DEVICE, &t, false));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_cuda_rubric_job job = rubric_of(context, &room, &t);
    const int64_t slots = job.responses.slots, criteria = rubric.rows;
    const bool fits = criteria == 0 || slots <= INT64_MAX / 16 / criteria;
    job.sums = napier_cuda_take(&room, fits ? slots * criteria : -1, sizeof *job.sums);
    NAPIER_CUDA_READY(context, room);
    const napier_cuda_call gpu = {context, stream, "rubric_score"};
    NAPIER_TRY(napier_cuda_responses_look(&gpu, &job.responses));
    NAPIER_TRY(NAPIER_CUDA_WARPS(&gpu, napier_rubric_tiles, slots * criteria, &job));
    return NAPIER_CUDA_WARPS(&gpu, napier_rubric_responses, job.responses.count, &job);
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
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_rubric_check(context->host, NAPIER_ON_DEVICE, &t, true));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    const napier_cuda_rubric_job job = rubric_of(context, &room, &t);
    NAPIER_CUDA_READY(context, room);
    const napier_cuda_call gpu = {context, stream, "rubric_score_backward"};
    NAPIER_TRY(napier_cuda_responses_look(&gpu, &job.responses));
    return NAPIER_CUDA_WARPS(&gpu, napier_rubric_gradients, job.responses.slots, &job);
}
