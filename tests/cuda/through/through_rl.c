/* tests/cuda/through/through_rl.c - the calls of ops/tokens and ops/losses through the device. */
#include "through.h"

#include <napier/cuda/rl.h>

/* The device's call `name`, with its workspace, and the end of the visit. */
#define THROUGH(name, ...)                                                                                 \
    napier_status status;                                                                                  \
    THROUGH_TWICE(status, workspace, napier_cuda_##name(through_context(), NULL, workspace, __VA_ARGS__)); \
    return through_end(context, status)

napier_status through_gather_logprobs(napier_context *context, napier_const_matrix logprobs, napier_indices ids,
                                      napier_vector gathered) {
    const napier_const_matrix x = through_matrix(logprobs);
    const napier_indices i = through_indices(ids);
    const napier_vector y = through_vector_out(gathered);
    THROUGH(gather_logprobs, x, i, y);
}

napier_status through_gather_logprobs_backward(napier_context *context, napier_const_vector grad_gathered,
                                               napier_indices ids, napier_matrix grad_logprobs) {
    const napier_const_vector g = through_vector(grad_gathered);
    const napier_indices i = through_indices(ids);
    const napier_matrix y = through_matrix_out(grad_logprobs);
    THROUGH(gather_logprobs_backward, g, i, y);
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

static napier_token_options token_options_there(const napier_token_options *options, napier_const_matrix logits) {
    napier_token_options there = *options;
    const int64_t rows = options->keep_stride ? logits.rows : 1;
    const int64_t bytes = (rows - 1) * options->keep_stride + logits.cols;
    there.keep = through_array(options->keep, options->keep && bytes > 0 ? (size_t)bytes : 0);
    return there;
}

static int64_t *integers_out(int64_t *host, int64_t count) {
    return through_array_out(host, (size_t)count * sizeof *host);
}

napier_status through_token_logprobs(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                     const napier_token_options *options, const napier_token_results *results) {
    const napier_token_options o = token_options_there(options, logits);
    const napier_const_matrix x = through_matrix(logits);
    const napier_indices i = through_indices(ids);
    napier_token_results r = *results;
    r.logprobs = through_matrix_out(r.logprobs);
    r.lse = through_vector_out(r.lse);
    r.entropy = through_vector_out(r.entropy);
    r.loss = through_vector_out(r.loss);
    r.top_logprobs = through_matrix_out(r.top_logprobs);
    r.argmax = integers_out(r.argmax, logits.rows);
    r.rank = integers_out(r.rank, ids.size);
    r.top_ids = integers_out(r.top_ids, logits.rows * r.top_k);
    THROUGH(token_logprobs, x, i, &o, &r);
}

napier_status through_token_logprobs_backward(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                              const napier_token_options *options,
                                              const napier_token_gradients *gradients, napier_matrix grad_logits) {
    const napier_token_options o = token_options_there(options, logits);
    const napier_const_matrix x = through_matrix(logits);
    const napier_indices i = through_indices(ids);
    napier_token_gradients g = *gradients;
    g.logprobs = through_matrix(g.logprobs);
    g.lse = through_vector(g.lse);
    g.entropy = through_vector(g.entropy);
    g.loss = through_vector(g.loss);
    const napier_matrix y = through_matrix_out(grad_logits);
    THROUGH(token_logprobs_backward, x, i, &o, &g, y);
}

/* ---- KL and rubric scores ---------------------------------------------------------------------------------------- */

static const uint8_t *mask_there(const uint8_t *mask, int64_t tokens) { return through_array(mask, (size_t)tokens); }

napier_status through_kl_per_response(napier_context *context, napier_const_vector policy_logprobs,
                                      napier_const_vector ref_logprobs, napier_indices offsets, const uint8_t *mask,
                                      const napier_kl_options *options, napier_vector kl) {
    const uint8_t *const m = mask_there(mask, policy_logprobs.size);
    const napier_const_vector p = through_vector(policy_logprobs), q = through_vector(ref_logprobs);
    const napier_indices o = through_indices(offsets);
    const napier_vector y = through_vector_out(kl);
    THROUGH(kl_per_response, p, q, o, m, options, y);
}

napier_status through_kl_per_response_backward(napier_context *context, napier_const_vector policy_logprobs,
                                               napier_const_vector ref_logprobs, napier_indices offsets,
                                               const uint8_t *mask, const napier_kl_options *options,
                                               napier_const_vector grad_kl, napier_vector grad_policy,
                                               napier_vector grad_ref) {
    const uint8_t *const m = mask_there(mask, policy_logprobs.size);
    const napier_const_vector p = through_vector(policy_logprobs), q = through_vector(ref_logprobs);
    const napier_indices o = through_indices(offsets);
    const napier_const_vector g = through_vector(grad_kl);
    const napier_vector y = through_vector_out(grad_policy), z = through_vector_out(grad_ref);
    THROUGH(kl_per_response_backward, p, q, o, m, options, g, y, z);
}

napier_status through_kl_full(napier_context *context, napier_const_matrix policy_logits,
                              napier_const_matrix ref_logits, const napier_softmax_options *options, napier_vector kl) {
    const napier_const_matrix p = through_matrix(policy_logits), q = through_matrix(ref_logits);
    const napier_vector y = through_vector_out(kl);
    THROUGH(kl_full, p, q, options, y);
}

napier_status through_kl_full_backward(napier_context *context, napier_const_matrix policy_logits,
                                       napier_const_matrix ref_logits, const napier_softmax_options *options,
                                       napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                       napier_matrix grad_ref_logits) {
    const napier_const_matrix p = through_matrix(policy_logits), q = through_matrix(ref_logits);
    const napier_const_vector g = through_vector(grad_kl);
    const napier_matrix y = through_matrix_out(grad_policy_logits), z = through_matrix_out(grad_ref_logits);
    THROUGH(kl_full_backward, p, q, options, g, y, z);
}

napier_status through_rubric_score(napier_context *context, napier_const_vector logprobs, napier_indices token_ids,
                                   napier_indices offsets, napier_const_matrix rubric, napier_const_vector weights,
                                   napier_matrix scores, napier_vector rewards) {
    const napier_const_vector p = through_vector(logprobs), w = through_vector(weights);
    const napier_indices i = through_indices(token_ids), o = through_indices(offsets);
    const napier_const_matrix r = through_matrix(rubric);
    const napier_matrix y = through_matrix_out(scores);
    const napier_vector z = through_vector_out(rewards);
    THROUGH(rubric_score, p, i, o, r, w, y, z);
}

napier_status through_rubric_score_backward(napier_context *context, napier_indices token_ids, napier_indices offsets,
                                            napier_const_matrix rubric, napier_const_vector weights,
                                            napier_const_matrix grad_scores, napier_const_vector grad_rewards,
                                            napier_vector grad_logprobs) {
    const napier_const_vector w = through_vector(weights), h = through_vector(grad_rewards);
    const napier_indices i = through_indices(token_ids), o = through_indices(offsets);
    const napier_const_matrix r = through_matrix(rubric), g = through_matrix(grad_scores);
    const napier_vector y = through_vector_out(grad_logprobs);
    THROUGH(rubric_score_backward, i, o, r, w, g, h, y);
}

/* ---- GRPO -------------------------------------------------------------------------------------------------------- */

static napier_grpo_batch batch_there(const napier_grpo_batch *batch) {
    napier_grpo_batch b = *batch;
    const int64_t tokens = b.logprobs.data ? b.logprobs.size : b.old_logprobs.size;
    b.mask = mask_there(b.mask, tokens);
    b.logprobs = through_vector(b.logprobs);
    b.old_logprobs = through_vector(b.old_logprobs);
    b.ref_logprobs = through_vector(b.ref_logprobs);
    b.sampler_logprobs = through_vector(b.sampler_logprobs);
    b.entropies = through_vector(b.entropies);
    b.advantages = through_vector(b.advantages);
    b.offsets = through_indices(b.offsets);
    return b;
}

napier_status through_grpo_token_loss(napier_context *context, const napier_grpo_batch *batch,
                                      const napier_grpo_options *options, napier_vector losses,
                                      napier_vector grad_logprobs) {
    const napier_grpo_batch b = batch_there(batch);
    const napier_vector y = through_vector_out(losses), g = through_vector_out(grad_logprobs);
    THROUGH(grpo_token_loss, &b, options, y, g);
}

napier_status through_grpo_loss(napier_context *context, const napier_grpo_batch *batch,
                                const napier_grpo_options *options, napier_grpo_metrics *metrics,
                                napier_vector grad_logprobs, napier_vector grad_entropies) {
    const napier_grpo_batch b = batch_there(batch);
    napier_grpo_metrics *const m = through_array_out(metrics, sizeof *metrics);
    const napier_vector g = through_vector_out(grad_logprobs), h = through_vector_out(grad_entropies);
    THROUGH(grpo_loss, &b, options, m, g, h);
}

napier_status through_grpo_from_logits(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                       const napier_grpo_batch *batch, const napier_grpo_options *options,
                                       const napier_token_options *token_options, napier_grpo_metrics *metrics,
                                       napier_matrix grad_logits, napier_vector logprobs, napier_vector entropies) {
    const napier_token_options o = token_options_there(token_options, logits);
    const napier_grpo_batch b = batch_there(batch);
    const napier_const_matrix x = through_matrix(logits);
    const napier_indices i = through_indices(ids);
    napier_grpo_metrics *const m = through_array_out(metrics, sizeof *metrics);
    const napier_matrix y = through_matrix_out(grad_logits);
    const napier_vector p = through_vector_out(logprobs), h = through_vector_out(entropies);
    THROUGH(grpo_from_logits, x, i, &b, options, &o, m, y, p, h);
}
