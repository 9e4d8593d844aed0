/* ops/losses/grpo_logits.h - the arguments of GRPO losses from logits or hidden states, for the CPU (grpo_logits.c) and
 * a GPU (grpo_logits_cuda.c). */
#ifndef NAPIER_OPS_LOSSES_GRPO_LOGITS_H
#define NAPIER_OPS_LOSSES_GRPO_LOGITS_H

#include "ops/losses/grpo_run.h"

typedef struct napier_grpo_logits {
    bool from_hidden;            /* the logits are the product of hidden states and weights */
    napier_const_matrix logits;  /* [T, V]; the hidden states [T, H] */
    napier_const_matrix weights; /* [V, H], for hidden states */
    napier_indices ids;
    const napier_token_options *options;
    napier_matrix grad_logits, grad_weights;                /* of logits or hidden states, and of weights */
    napier_vector logprobs, entropies;                      /* the caller's; may be absent */
    float *logprob, *entropy, *grad_logprob, *grad_entropy; /* [T] each */
    int64_t *finals;                                        /* [T][NAPIER_TOKEN_FINAL_WORDS], and */
    float *chosen;                                          /* [T], from hidden states; else NULL */
    napier_grpo_run run;
} napier_grpo_logits;

/* Reads batch and options into g->run, and checks everything except the metrics (grpo_options.c). */
napier_status napier_grpo_logits_check(napier_context *context, napier_place place, napier_grpo_logits *g,
                                       const napier_grpo_batch *batch, const napier_grpo_options *options);

#endif
