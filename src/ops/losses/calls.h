/* ops/losses/calls.h - checks the arguments of calls that exist for the CPU and for a GPU. Values that are only on the
 * device (offsets, ids) are checked by its kernels. */
#ifndef NAPIER_OPS_LOSSES_CALLS_H
#define NAPIER_OPS_LOSSES_CALLS_H

#include "ops/losses/kl_kernels.h"
#include "ops/losses/rubric_kernels.h"
#include "ops/tokens/responses.h"

/* *job holds the log-probabilities, the mask and, in the backward call, the gradients; it receives the limits. *o receives
 * the options, or the defaults. kl: forward the result, backward its gradient. */
napier_status napier_kl_check(napier_context *context, napier_place place, napier_indices offsets,
                              const napier_kl_options *options, napier_const_vector kl, bool backward,
                              napier_kl_job *job, napier_kl_options *o);

napier_status napier_kl_full_check(napier_context *context, const napier_kl_full_job *job,
                                   const napier_softmax_options *options, napier_const_vector kl, bool backward,
                                   napier_softmax_options *o);

typedef struct napier_rubric_task {
    const napier_rubric_kernels *kernels;
    napier_rubric_job job;
    napier_responses responses;
    napier_const_vector weights;
    float *sums; /* forward: C sums for each tile, by slot. backward: C factors per worker */
    napier_matrix scores;
    napier_vector rewards;
    napier_const_matrix grad_scores;
    napier_const_vector grad_rewards;
} napier_rubric_task;

/* t->responses.offsets must hold the offsets. The call fills in the rest of t->responses. */
napier_status napier_rubric_check(napier_context *context, napier_place place, napier_rubric_task *t, bool backward);

#endif
