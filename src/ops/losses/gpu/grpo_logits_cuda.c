/* ops/losses/gpu/grpo_logits_cuda.c - GRPO losses directly from logits on a GPU, with the gradient of the logits.
 *
 * If a token's gradient depends only on its own log-probability, its row is read once (token_backward.cu). Otherwise
 * all rows are scored first and read a second time. The bits are those of the calls one after the other. */
#include <napier/cuda/rl.h>

#include "core/base/view.h"
#include "ops/losses/gpu/grpo_launch.h"
#include "ops/losses/grpo_logits.h"
#include "ops/tokens/gpu/responses_launch.h"
#include "ops/tokens/token_backward.h"
#include "ops/losses/gpu/token_backward_launch.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_grpo_copy_results);

static const char what[] = "grpo_from_logits";

typedef struct napier_cuda_grpo_logits {
    napier_grpo_logits host; /* the arguments; logprob, entropy and their gradients are in the workspace */
    napier_cuda_grpo_job grpo;
    napier_cuda_token_job token; /* with two reads: the score */
    napier_cuda_back_job back;
    bool once;
} napier_cuda_grpo_logits;

/* ---- Arguments to jobs ------------------------------------------------------------------------------------------- */

/* A call with one id per row that computes its log-probability and entropy, to the workspace or for the loss in
 * between. */
static napier_status napier_cuda_score_call(napier_cuda_context *context, const napier_grpo_logits *g,
                                            napier_token_call *call) {
    const int64_t tokens = g->logits.rows;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    const napier_status status =
        napier_token_logprobs_check(context->host, NAPIER_ON_DEVICE, g->logits, g->ids, g->options, &results, call);
    call->chosen = call->wants.entropy = true;
    call->results.logprobs = napier_rows_f32(g->logprob, tokens, 1);
    call->results.entropy = napier_array_f32(g->entropy, tokens);
    return status;
}

static napier_status napier_cuda_back_call(napier_cuda_context *context, const napier_cuda_grpo_logits *g,
                                           napier_token_call *call) {
    const napier_token_gradients none = NAPIER_TOKEN_GRADIENTS_INIT;
    const int64_t tokens = g->host.logits.rows;
    const napier_status status = napier_token_back_check(context->host, NAPIER_ON_DEVICE, g->host.logits, g->host.ids,
                                                         g->host.options, &none, g->host.grad_logits, call);
    call->chosen = true;
    call->wants.entropy = g->once || g->host.run.options.entropy_coefficient != 0;
    if (!g->once) {
        call->gradients.logprobs = napier_const_rows_f32(g->host.grad_logprob, tokens, 1);
        if (call->wants.entropy) {
            call->gradients.entropy = napier_const_array_f32(g->host.grad_entropy, tokens);
        }
    }
    return status;
}

static void napier_cuda_grpo_logits_room(napier_cuda_room *room, napier_cuda_grpo_logits *g) {
    const int64_t tokens = g->host.logits.rows;
    napier_grpo_run *run = &g->host.run;
    g->host.logprob = napier_cuda_take(room, tokens, sizeof(float));
    g->host.entropy = napier_cuda_take(room, tokens, sizeof(float));
    g->host.grad_logprob = napier_cuda_take(room, tokens, sizeof(float));
    g->host.grad_entropy = napier_cuda_take(room, tokens, sizeof(float));
    run->mean = run->totals = true;
    run->job.logprobs = napier_const_array_f32(g->host.logprob, tokens);
    run->job.entropies = napier_const_array_f32(g->host.entropy, tokens);
    g->once = g->host.grad_logits.data && !napier_grpo_looks_ahead(run);
    if (g->host.grad_logits.data && !g->once) {
        run->job.grad_logprobs = napier_array_f32(g->host.grad_logprob, tokens);
        run->job.grad_entropies = napier_array_f32(g->host.grad_entropy, tokens);
    }
}

/* The score and the gradient run one after the other and may use the same memory. Memory that both need precedes it. */
static napier_status napier_cuda_grpo_logits_jobs(napier_cuda_context *context, napier_cuda_room *room,
                                                  napier_cuda_grpo_logits *g, napier_grpo_metrics *metrics) {
    napier_token_call call;
    napier_status status = NAPIER_OK;
    napier_cuda_grpo_logits_room(room, g);
    g->grpo = napier_cuda_grpo_of(context, room, &g->host.run);
    g->grpo.metrics = metrics;
    if (!g->once) {
        status = napier_cuda_score_call(context, &g->host, &call);
        if (!status)
            g->token = napier_cuda_token_of(context, room, &call, g->host.logits);
    }
    if (!status && g->host.grad_logits.data) {
        status = napier_cuda_back_call(context, g, &call);
        if (!status)
            g->back = napier_cuda_back_of(context, room, &call, g->host.logits, g->host.grad_logits);
    }
    g->back.hooked = g->once;
    g->back.grpo = g->grpo;
    g->back.logprob = g->host.logprob;
    g->back.entropy = g->host.entropy;
    return status;
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

static napier_status napier_cuda_grpo_once(napier_cuda_context *context, struct CUstream_st *stream,
                                           const napier_cuda_grpo_logits *g) {
    napier_status status = napier_cuda_grpo_prepare(context, stream, &g->grpo);
    if (!status)
        status = napier_cuda_back_run(context, stream, what, &g->back);
    if (!status)
        status = napier_cuda_grpo_tiles(context, stream, &g->grpo);
    return status ? status : napier_cuda_grpo_finish(context, stream, &g->grpo);
}

static napier_status napier_cuda_grpo_twice(napier_cuda_context *context, struct CUstream_st *stream,
                                            const napier_cuda_grpo_logits *g) {
    napier_status status = napier_cuda_token_run(context, stream, what, &g->token);
    if (!status)
        status = napier_cuda_grpo_all(context, stream, &g->grpo);
    if (!status && g->host.grad_logits.data)
        status = napier_cuda_back_run(context, stream, what, &g->back);
    return status;
}

static napier_status napier_cuda_grpo_copy(napier_cuda_context *context, struct CUstream_st *stream,
                                           const napier_grpo_logits *g) {
    const napier_cuda_copy_job job = {g->logprob, g->entropy, g->logprobs, g->entropies, g->logits.rows};
    const napier_cuda_shape shape = {.blocks = napier_cuda_blocks(context, job.tokens, NAPIER_RESPONSE_THREADS, 8),
                                     .threads = NAPIER_RESPONSE_THREADS};
    return napier_cuda_launch(context, stream, what, NAPIER_CUDA_KERNEL(napier_grpo_copy_results), &shape, &job,
                              sizeof job);
}

napier_status napier_cuda_grpo_from_logits(napier_cuda_context *context, struct CUstream_st *stream,
                                           napier_cuda_workspace *workspace, napier_const_matrix logits,
                                           napier_indices ids, const napier_grpo_batch *batch,
                                           const napier_grpo_options *options,
                                           const napier_token_options *token_options, napier_grpo_metrics *metrics,
                                           napier_matrix grad_logits, napier_vector logprobs, napier_vector entropies) {
    napier_cuda_grpo_logits g = {.host = {.logits = logits,
                                          .ids = ids,
                                          .options = token_options,
                                          .grad_logits = grad_logits,
                                          .logprobs = logprobs,
                                          .entropies = entropies}};
    napier_status status = napier_cuda_begin(context);
    if (!status && !metrics)
        status = napier_fail(context->host, NAPIER_INVALID_ARGUMENT, "metrics: NULL");
    if (!status)
        status = napier_grpo_logits_check(context->host, NAPIER_ON_DEVICE, &g.host, batch, options);
    if (status) {
        return status;
    }
    napier_cuda_room room = napier_cuda_room_of(workspace);
    status = napier_cuda_grpo_logits_jobs(context, &room, &g, metrics);
    if (status || !napier_cuda_room_ready(context, &room, &status)) {
        return status;
    }
    status = g.once ? napier_cuda_grpo_once(context, stream, &g) : napier_cuda_grpo_twice(context, stream, &g);
    if (!status && (logprobs.data || entropies.data))
        status = napier_cuda_grpo_copy(context, stream, &g.host);
    return status;
}
