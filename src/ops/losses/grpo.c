/* ops/losses/grpo.c - GRPO losses from log-probabilities: the calls. */
#include "core/base/struct_size.h"
#include "ops/losses/grpo_run.h"

napier_status napier_grpo_token_loss(napier_context *context, const napier_grpo_batch *batch,
                                     const napier_grpo_options *options, napier_vector losses,
                                     napier_vector grad_logprobs) {
    const napier_grpo_outputs out = {.losses = losses, .grad_logprobs = grad_logprobs};
    napier_grpo_run run;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_grpo_read(context, NAPIER_ON_HOST, batch, options, &out, &run));
    return napier_grpo_all(context, &run);
}

napier_status napier_grpo_token_loss_backward(napier_context *context, const napier_grpo_batch *batch,
                                              const napier_grpo_options *options, napier_const_vector grad_losses,
                                              napier_vector grad_logprobs) {
    const napier_grpo_outputs out = {.grad_logprobs = grad_logprobs, .grad_losses = grad_losses};
    napier_grpo_run run;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_grpo_read(context, NAPIER_ON_HOST, batch, options, &out, &run));
    return napier_grpo_all(context, &run);
}

napier_status napier_grpo_loss(napier_context *context, const napier_grpo_batch *batch,
                               const napier_grpo_options *options, napier_grpo_metrics *metrics,
                               napier_vector grad_logprobs, napier_vector grad_entropies) {
    const napier_grpo_outputs out = {.grad_logprobs = grad_logprobs, .grad_entropies = grad_entropies};
    napier_grpo_run run;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_check_result_struct(
        context, "metrics", NAPIER_STRUCT(napier_grpo_metrics, NAPIER_GRPO_METRICS_INIT, entropy), metrics));
    NAPIER_TRY(napier_grpo_read(context, NAPIER_ON_HOST, batch, options, &out, &run));
    run.mean = run.totals = true;
    NAPIER_TRY(napier_grpo_all(context, &run));
    napier_write_struct(&run.metrics, metrics);
    return NAPIER_OK;
}
