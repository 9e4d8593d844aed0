/* ops/losses/grpo.c - GRPO losses from log-probabilities: the calls. */
#include "core/base/struct_size.h"
#include "ops/losses/grpo_run.h"

napier_status napier_grpo_token_loss(napier_context *context, const napier_grpo_batch *batch,
                                     const napier_grpo_options *options, napier_vector losses,
                                     napier_vector grad_logprobs) {
    napier_grpo_run run;
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_grpo_read(context, batch, options, false, 0, &run);
    if (!status)
        status = napier_grpo_check_out(context, "losses", losses, &run);
    if (!status)
        status = napier_grpo_check_out(context, "grad_logprobs", grad_logprobs, &run);
    if (!status) {
        status = napier_check_apart(context, "grad_logprobs", grad_logprobs, "losses", napier_read_only_vector(losses));
    }
    if (status) {
        return status;
    }
    run.job.losses = losses;
    run.job.grad_logprobs = grad_logprobs;
    status = napier_grpo_all(context, &run);
    napier_grpo_free(context, &run);
    return status;
}

napier_status napier_grpo_loss(napier_context *context, const napier_grpo_batch *batch,
                               const napier_grpo_options *options, napier_grpo_metrics *metrics,
                               napier_vector grad_logprobs, napier_vector grad_entropies) {
    napier_grpo_run run;
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_result_struct(context, "metrics", "NAPIER_GRPO_METRICS_INIT", metrics);
    if (!status)
        status = napier_grpo_read(context, batch, options, false, 0, &run);
    if (!status)
        status = napier_grpo_check_out(context, "grad_logprobs", grad_logprobs, &run);
    if (!status)
        status = napier_grpo_check_out(context, "grad_entropies", grad_entropies, &run);
    if (!status) {
        status = napier_check_apart(context, "grad_entropies", grad_entropies, "grad_logprobs",
                                    napier_read_only_vector(grad_logprobs));
    }
    if (status) {
        return status;
    }
    run.mean = run.totals = true;
    run.job.grad_logprobs = grad_logprobs;
    run.job.grad_entropies = grad_entropies;
    status = napier_grpo_all(context, &run);
    if (!status) {
        napier_write_struct(&run.metrics, metrics);
    }
    napier_grpo_free(context, &run);
    return status;
}
