/* rl/token_backward.h - the gradient of logits where what is asked of a row follows from the row itself: one read, the
 * question, and the write, while the row is in a cache. */
#ifndef NAPIER_RL_TOKEN_BACKWARD_H
#define NAPIER_RL_TOKEN_BACKWARD_H

#include <napier/rl.h>

typedef struct napier_token_hook {
    /* From the log-probability of a row's id and the row's entropy to the gradients with respect to both. Called once for
     * each row, by any worker. */
    void (*row)(void *argument, int64_t row, float logprob, float entropy, double *grad_logprob, double *grad_entropy);
    void *argument;
} napier_token_hook;

/* As napier_token_logprobs_backward, with one id a row, and the gradients from the hook. */
napier_status napier_token_backward_hooked(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                           const napier_token_options *options, const napier_token_hook *hook,
                                           napier_matrix grad_logits);

#endif
