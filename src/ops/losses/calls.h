/* ops/losses/calls.h - checks the arguments of calls that exist for the CPU and for a GPU. Values that are only on the
 * device (offsets, ids) are checked by its kernels. */
#ifndef NAPIER_OPS_LOSSES_CALLS_H
#define NAPIER_OPS_LOSSES_CALLS_H

#include "ops/losses/kl_kernels.h"
#include "ops/losses/rubric_kernels.h"
#include "ops/tokens/responses.h"

/* *o receives the options, or the defaults. */
napier_status napier_kl_check(napier_context *context, napier_place place, napier_const_vector policy_logprobs,
                              napier_const_vector ref_logprobs, napier_indices offsets,
                              const napier_kl_options *options, napier_vector kl, napier_kl_options *o);
napier_status napier_kl_backward_check(napier_context *context, napier_place place, napier_const_vector policy_logprobs,
                                       napier_const_vector ref_logprobs, napier_indices offsets,
                                       const napier_kl_options *options, napier_const_vector grad_kl,
                                       napier_vector grad_policy, napier_vector grad_ref, napier_kl_options *o);
void napier_kl_limits(napier_kl_job *job, const napier_kl_options *o);

napier_status napier_kl_full_check(napier_context *context, napier_const_matrix policy_logits,
                                   napier_const_matrix ref_logits, const napier_softmax_options *options,
                                   napier_vector kl, napier_softmax_options *o);
napier_status napier_kl_full_backward_check(napier_context *context, napier_const_matrix policy_logits,
                                            napier_const_matrix ref_logits, const napier_softmax_options *options,
                                            napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                            napier_matrix grad_ref_logits, napier_softmax_options *o);

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
napier_status napier_rubric_check(napier_context *context, napier_place place, napier_rubric_task *t);
napier_status napier_rubric_backward_check(napier_context *context, napier_place place, napier_rubric_task *t);

#endif
