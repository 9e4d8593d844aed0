/* ops/losses/grpo_logits.c - GRPO losses directly from logits or hidden states, with their gradients.
 *
 * If a token's gradient depends only on its own log-probability, its row is read, a hook computes its gradient, and the
 * row's gradient is written while the row is in a cache: one read from memory and one write. Otherwise (a ratio of the
 * sequence, a quantile of entropy, a bonus for tokens chosen by entropy) all rows are scored first and read a second
 * time. Logits of hidden states are not stored, so these are always read twice. The bits are those of the three calls one
 * after the other. */
#include "core/base/parallel.h"
#include "core/base/struct_size.h"
#include "core/math/f64.h"
#include "ops/losses/grpo_logits.h"
#include "ops/tokens/token_backward.h"

/* ---- One read ---------------------------------------------------------------------------------------------------- */

/* The hook: computes the loss of a row's token as a tile of one. */
static void loss_of_row(void *argument, int64_t row, float logprob, float entropy, double *grad_logprob,
                        double *grad_entropy) {
    const napier_grpo_logits *g = argument;
    const napier_grpo_run *run = &g->run;
    const int64_t b = napier_response_at(&run->responses, row);
    g->logprob[row] = logprob;
    g->entropy[row] = entropy;
    run->kernels->tile(&run->job, &run->response[b], b, row, 1, NULL);
    *grad_logprob = (double)g->grad_logprob[row];
    *grad_entropy = !run->job.mask || run->job.mask[row] ? (double)run->job.entropy_gradient : 0.0;
}

static napier_status read_once(napier_context *context, napier_grpo_logits *g) {
    const napier_token_hook hook = {loss_of_row, g};
    const napier_vector none = {NULL, 0, 0, NAPIER_F32};
    napier_grpo_run *run = &g->run;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_grpo_take(&memory, run));
    napier_grpo_prepare(context, run);
    run->job.grad_logprobs = napier_array_f32(g->grad_logprob, g->logits.rows);
    NAPIER_TRY(napier_token_backward_hooked(context, g->logits, g->ids, g->options, &hook, g->grad_logits));
    run->job.grad_logprobs = none;
    napier_grpo_tiles(context, run);
    napier_grpo_finish(run);
    return NAPIER_OK;
}

/* ---- Two reads --------------------------------------------------------------------------------------------------- */

static napier_status score(napier_context *context, const napier_grpo_logits *g) {
    const int64_t tokens = g->logits.rows;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.logprobs = napier_rows_f32(g->logprob, tokens, 1);
    results.entropy = napier_array_f32(g->entropy, tokens);
    results.finals = g->finals;
    results.chosen = g->chosen;
    return g->from_hidden ? napier_linear_token_logprobs(context, g->logits, g->weights, g->ids, g->options, &results)
                          : napier_token_logprobs(context, g->logits, g->ids, g->options, &results);
}

static napier_status pull(napier_context *context, const napier_grpo_logits *g,
                          const napier_token_gradients *gradients) {
    return g->from_hidden
               ? napier_linear_token_logprobs_backward(context, g->logits, g->weights, g->ids, g->options, gradients,
                                                       g->grad_logits, g->grad_weights)
               : napier_token_logprobs_backward(context, g->logits, g->ids, g->options, gradients, g->grad_logits);
}

static napier_status read_twice(napier_context *context, napier_grpo_logits *g) {
    const int64_t tokens = g->logits.rows;
    napier_grpo_run *run = &g->run;
    const bool gradient = g->grad_logits.data || g->grad_weights.data;
    NAPIER_TRY(score(context, g));
    if (gradient) {
        run->job.grad_logprobs = napier_array_f32(g->grad_logprob, tokens);
        run->job.grad_entropies = napier_array_f32(g->grad_entropy, tokens);
    }
    NAPIER_TRY(napier_grpo_all(context, run));
    if (!gradient) {
        return NAPIER_OK;
    }
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    gradients.logprobs = napier_const_rows_f32(g->grad_logprob, tokens, 1);
    gradients.finals = g->finals;
    gradients.chosen = g->chosen;
    if (run->options.entropy_coefficient != 0) {
        gradients.entropy = napier_const_array_f32(g->grad_entropy, tokens);
    }
    return pull(context, g, &gradients);
}

/* ---- The calls ---------------------------------------------------------------------------------------------------- */

static void copy_results(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_grpo_logits *g = argument;
    const napier_vector *l = &g->logprobs, *e = &g->entropies;
    (void)worker;
    for (int64_t t = begin; t < end; t++) {
        if (l->data) {
            napier_f64_store(l->data, l->dtype, t * l->stride, (double)g->logprob[t]);
        }
        if (e->data) {
            napier_f64_store(e->data, e->dtype, t * e->stride, (double)g->entropy[t]);
        }
    }
}

static napier_status run(napier_context *context, const napier_grpo_batch *batch, const napier_grpo_options *options,
                         napier_grpo_metrics *metrics, napier_grpo_logits *g) {
    const int64_t tokens = g->logits.rows;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_check_result_struct(
        context, "metrics", NAPIER_STRUCT(napier_grpo_metrics, NAPIER_GRPO_METRICS_INIT, entropy), metrics));
    NAPIER_TRY(napier_grpo_logits_check(context, NAPIER_ON_HOST, g, batch, options));
    NAPIER_MEMORY(memory, context);
    g->logprob = napier_take(&memory, tokens, 4 * sizeof(float));
    if (g->from_hidden) {
        g->finals = napier_take(&memory, tokens, NAPIER_TOKEN_FINAL_WORDS * sizeof(int64_t));
        g->chosen = napier_take(&memory, tokens, sizeof(float));
    }
    NAPIER_TRY(napier_taken(&memory, "logprobs: no memory for %lld tokens", (long long)tokens));
    g->entropy = g->logprob + tokens;
    g->grad_logprob = g->entropy + tokens;
    g->grad_entropy = g->grad_logprob + tokens;
    g->run.mean = g->run.totals = true;
    g->run.job.logprobs = napier_const_array_f32(g->logprob, tokens);
    g->run.job.entropies = napier_const_array_f32(g->entropy, tokens);
    const bool once = !g->from_hidden && g->grad_logits.data && !napier_grpo_looks_ahead(&g->run);
    NAPIER_TRY(once ? read_once(context, g) : read_twice(context, g));
    napier_parallel(context, tokens, 1 << 14, copy_results, g);
    napier_write_struct(&g->run.metrics, metrics);
    return NAPIER_OK;
}

napier_status napier_grpo_from_logits(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                      const napier_grpo_batch *batch, const napier_grpo_options *options,
                                      const napier_token_options *token_options, napier_grpo_metrics *metrics,
                                      napier_matrix grad_logits, napier_vector logprobs, napier_vector entropies) {
    napier_grpo_logits g = {.logits = logits,
                            .ids = ids,
                            .options = token_options,
                            .grad_logits = grad_logits,
                            .logprobs = logprobs,
                            .entropies = entropies};
    return run(context, batch, options, metrics, &g);
}

napier_status napier_grpo_from_hidden(napier_context *context, napier_const_matrix hidden, napier_const_matrix weights,
                                      napier_indices ids, const napier_grpo_batch *batch,
                                      const napier_grpo_options *options, const napier_token_options *token_options,
                                      napier_grpo_metrics *metrics, napier_matrix grad_hidden,
                                      napier_matrix grad_weights, napier_vector logprobs, napier_vector entropies) {
    napier_grpo_logits g = {.from_hidden = true,
                            .logits = hidden,
                            .weights = weights,
                            .ids = ids,
                            .options = token_options,
                            .grad_logits = grad_hidden,
                            .grad_weights = grad_weights,
                            .logprobs = logprobs,
                            .entropies = entropies};
    return run(context, batch, options, metrics, &g);
}
