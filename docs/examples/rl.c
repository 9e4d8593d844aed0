/* rl - log-probabilities of tokens, KL, rubrics, GRPO losses and advantages: the functions of napier/rl.h. */
#include "example.h"

static const napier_vector no_vector = {NULL, 0, 1, NAPIER_F32};
static const napier_matrix no_matrix = {NULL, 0, 0, 0, 1, NAPIER_F32};

/* Two responses, of two tokens and of one: their log-probabilities under the policy, and under the policy that drew them. */
enum { TOKENS = 3, RESPONSES = 2 };
static const int32_t offsets[RESPONSES + 1] = {0, 2, 3};
static const float logprobs[TOKENS] = {-1, -2, -0.5F}, old_logprobs[TOKENS] = {-1, -2.5F, -0.5F};
static const float advantages[RESPONSES] = {1, -1};

static napier_grpo_batch two_responses(void) {
    napier_grpo_batch batch = NAPIER_GRPO_BATCH_INIT;
    batch.logprobs = napier_const_array_f32(logprobs, TOKENS);
    batch.old_logprobs = napier_const_array_f32(old_logprobs, TOKENS);
    batch.advantages = napier_const_array_f32(advantages, RESPONSES);
    batch.offsets = napier_indices_i32(offsets, RESPONSES + 1);
    return batch;
}

/* The log-probability of each chosen token, by way of all log-probabilities. The gradient lands at the chosen tokens. */
static void gather_log_probabilities(napier_context *context) {
    const float logits[2][3] = {{1, 2, 3}, {0, 0, 0}}, grad_chosen[2] = {1, 2};
    const int32_t ids[2] = {2, 0};
    float all[2][3], chosen[2], grad_all[2][3];
    EXPECT(napier_log_softmax(context, napier_const_rows_f32(logits[0], 2, 3), napier_rows_f32(all[0], 2, 3), NULL) ==
           NAPIER_OK);
    EXPECT(napier_gather_logprobs(context, napier_const_rows_f32(all[0], 2, 3), napier_indices_i32(ids, 2),
                                  napier_array_f32(chosen, 2)) == NAPIER_OK);
    EXPECT(napier_gather_logprobs_backward(context, napier_const_array_f32(grad_chosen, 2), napier_indices_i32(ids, 2),
                                           napier_rows_f32(grad_all[0], 2, 3)) == NAPIER_OK);
    EXPECT(IS_NEAR(chosen[1], -log(3)) && grad_all[0][2] == 1 && grad_all[1][0] == 2 && grad_all[1][1] == 0);
}

/* The same without storing all of them: one read of the logits gives what is wanted. Leave out the rest. */
static void log_probability_entropy_and_rank(napier_context *context) {
    const float logits[2][3] = {{1, 2, 3}, {0, 0, 0}};
    const int32_t ids[2] = {1, 0};
    float chosen[2], entropy[2];
    int64_t rank[2];
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.logprobs = napier_rows_f32(chosen, 2, 1);
    results.entropy = napier_array_f32(entropy, 2);
    results.rank = rank;
    EXPECT(napier_token_logprobs(context, napier_const_rows_f32(logits[0], 2, 3), napier_indices_i32(ids, 2), NULL,
                                 &results) == NAPIER_OK);
    EXPECT(rank[0] == 1 && IS_NEAR(chosen[1], -log(3)) && IS_NEAR(entropy[1], log(3)));
}

/* The gradient of a log-probability: 1 at the token, less the probabilities. grad_logits may be the logits themselves. */
static void gradient_of_a_log_probability(napier_context *context) {
    float logits[2] = {0, 0};
    const float grad_logprob = 1;
    const int32_t id = 1;
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    gradients.logprobs = napier_const_rows_f32(&grad_logprob, 1, 1);
    EXPECT(napier_token_logprobs_backward(context, napier_const_rows_f32(logits, 1, 2), napier_indices_i32(&id, 1),
                                          NULL, &gradients, napier_rows_f32(logits, 1, 2)) == NAPIER_OK);
    EXPECT(logits[0] == -0.5F && logits[1] == 0.5F);
}

/* From hidden states and the head's weights: the logits, too many to store, never exist at once. */
static void log_probabilities_from_hidden_states(napier_context *context) {
    enum { N = 2, H = 2, V = 3 };
    const float hidden[N][H] = {{1, 0}, {0, 1}}, weights[V][H] = {{0, 1}, {1, 0}, {2, 0}}, ones[N] = {1, 1};
    const int32_t ids[N] = {2, 0};
    float chosen[N], grad_hidden[N][H], grad_weights[V][H];
    const napier_const_matrix states = napier_const_rows_f32(hidden[0], N, H),
                              head = napier_const_rows_f32(weights[0], V, H);
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.logprobs = napier_rows_f32(chosen, N, 1);
    EXPECT(napier_linear_token_logprobs(context, states, head, napier_indices_i32(ids, N), NULL, &results) ==
           NAPIER_OK);
    EXPECT(IS_NEAR(chosen[0], -log(exp(-2) + exp(-1) + 1)));

    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    gradients.logprobs = napier_const_rows_f32(ones, N, 1);
    EXPECT(napier_linear_token_logprobs_backward(context, states, head, napier_indices_i32(ids, N), NULL, &gradients,
                                                 napier_rows_f32(grad_hidden[0], N, H),
                                                 napier_rows_f32(grad_weights[0], V, H)) == NAPIER_OK);
    EXPECT(IS_NEAR(grad_weights[2][0], 1 - 1 / (exp(-2) + exp(-1) + 1)));
}

/* What such a call takes in memory is known before it runs. */
static void memory_of_log_probabilities(napier_context *context) {
    const size_t forward = napier_linear_token_logprobs_workspace(context, 100000, 1024, 151936, 0);
    const size_t backward = napier_linear_token_logprobs_workspace(context, 100000, 1024, 151936, 1);
    printf("100,000 tokens of Qwen3-0.6B: %zu and %zu MB\n", forward >> 20, backward >> 20);
    EXPECT(forward > 0 && forward < (size_t)256 << 20 && backward > 0);
}

/* The KL of the policy from a reference, estimated from the tokens of each response, and its gradient. */
static void kl_of_responses(napier_context *context) {
    const float grad_kl[RESPONSES] = {1, 1};
    float kl[RESPONSES], grad_policy[TOKENS];
    const napier_const_vector policy = napier_const_array_f32(logprobs, TOKENS),
                              reference = napier_const_array_f32(old_logprobs, TOKENS);
    napier_kl_options options = NAPIER_KL_OPTIONS_INIT;
    options.estimator = NAPIER_KL_K3;
    EXPECT(napier_kl_per_response(context, policy, reference, napier_indices_i32(offsets, RESPONSES + 1), NULL,
                                  &options, napier_array_f32(kl, RESPONSES)) == NAPIER_OK);
    EXPECT(IS_NEAR(kl[0], exp(-0.5) + 0.5 - 1) && kl[1] == 0);
    EXPECT(napier_kl_per_response_backward(context, policy, reference, napier_indices_i32(offsets, RESPONSES + 1), NULL,
                                           &options, napier_const_array_f32(grad_kl, RESPONSES),
                                           napier_array_f32(grad_policy, TOKENS), no_vector) == NAPIER_OK);
    EXPECT(IS_NEAR(grad_policy[1], 1 - exp(-0.5)));
}

/* The exact KL of two distributions, from both models' logits. Equal rows give exactly 0. */
static void kl_of_distributions(napier_context *context) {
    const float policy[2][2] = {{0, 0}, {1, 5}}, reference[2][2] = {{1, 0}, {1, 5}}, grad_kl[2] = {1, 1};
    float kl[2], grad_reference[2][2];
    const napier_const_matrix p = napier_const_rows_f32(policy[0], 2, 2), q = napier_const_rows_f32(reference[0], 2, 2);
    EXPECT(napier_kl_full(context, p, q, NULL, napier_array_f32(kl, 2)) == NAPIER_OK);
    EXPECT(IS_NEAR(kl[0], log(1 + exp(1)) - 0.5 - log(2)) && kl[1] == 0);
    EXPECT(napier_kl_full_backward(context, p, q, NULL, napier_const_array_f32(grad_kl, 2), no_matrix,
                                   napier_rows_f32(grad_reference[0], 2, 2)) == NAPIER_OK);
    EXPECT(IS_NEAR(grad_reference[0][0], 1 / (1 + exp(-1)) - 0.5)); /* q - p */
}

/* A rubric marks the tokens that a criterion looks for. A response's score is the sum of their log-probabilities. */
static void score_by_a_rubric(napier_context *context) {
    enum { VOCABULARY = 4 };
    const int32_t ids[TOKENS] = {3, 1, 3};
    const float rubric[VOCABULARY] = {0, 0, 0, 1}, weight = 2, grad_rewards[RESPONSES] = {1, 1};
    float rewards[RESPONSES], grad_logprobs[TOKENS];
    const napier_const_matrix marks = napier_const_rows_f32(rubric, 1, VOCABULARY), no_scores = {.dtype = NAPIER_F32};
    EXPECT(napier_rubric_score(context, napier_const_array_f32(logprobs, TOKENS), napier_indices_i32(ids, TOKENS),
                               napier_indices_i32(offsets, RESPONSES + 1), marks, napier_const_array_f32(&weight, 1),
                               no_matrix, napier_array_f32(rewards, RESPONSES)) == NAPIER_OK);
    EXPECT(rewards[0] == -2 && rewards[1] == -1);
    EXPECT(napier_rubric_score_backward(
               context, napier_indices_i32(ids, TOKENS), napier_indices_i32(offsets, RESPONSES + 1), marks,
               napier_const_array_f32(&weight, 1), no_scores, napier_const_array_f32(grad_rewards, RESPONSES),
               napier_array_f32(grad_logprobs, TOKENS)) == NAPIER_OK);
    EXPECT(grad_logprobs[0] == 2 && grad_logprobs[1] == 0 && grad_logprobs[2] == 2);
}

/* The GRPO loss of a batch: one number, its gradient, and values for the log. The ratio of the second token is beyond
 * the clip, so that token has no gradient. */
static void grpo_loss(napier_context *context) {
    const napier_grpo_batch batch = two_responses();
    float grad_logprobs[TOKENS];
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    EXPECT(napier_grpo_loss(context, &batch, NULL, &metrics, napier_array_f32(grad_logprobs, TOKENS), no_vector) ==
           NAPIER_OK);
    EXPECT(fabs(metrics.loss - (-(1 + 1.2) / 2 + 1) / 2) < 1e-6);
    EXPECT(grad_logprobs[0] == -0.25F && grad_logprobs[1] == 0 && grad_logprobs[2] == 0.5F);
    printf("%.0f tokens, %.0f%% clipped\n", metrics.tokens, 100 * metrics.clip_high);
}

/* The loss of each token, for a trainer that reduces and differentiates in its own way. */
static void grpo_loss_of_each_token(napier_context *context) {
    const napier_grpo_batch batch = two_responses();
    const float grad_losses[TOKENS] = {0.5F, 0.5F, 1};
    float losses[TOKENS], slopes[TOKENS], grad_logprobs[TOKENS];
    EXPECT(napier_grpo_token_loss(context, &batch, NULL, napier_array_f32(losses, TOKENS),
                                  napier_array_f32(slopes, TOKENS)) == NAPIER_OK);
    EXPECT(losses[0] == -1 && IS_NEAR(losses[1], -1.2) && losses[2] == 1 && slopes[0] == -1);
    EXPECT(napier_grpo_token_loss_backward(context, &batch, NULL, napier_const_array_f32(grad_losses, TOKENS),
                                           napier_array_f32(grad_logprobs, TOKENS)) == NAPIER_OK);
    EXPECT(grad_logprobs[0] == -0.5F && grad_logprobs[1] == 0 && grad_logprobs[2] == 1);
}

/* Loss and gradient in one call, from the logits (in place), or from hidden states and the head. With the unit matrix as
 * the head both have the same logits, and so the same loss, bit for bit. */
static void grpo_step(napier_context *context) {
    enum { V = 2 };
    float logits[TOKENS][V] = {{1, 0}, {0, 1}, {2, 0}}, grad_hidden[TOKENS][V], grad_weights[V][V];
    const float hidden[TOKENS][V] = {{1, 0}, {0, 1}, {2, 0}}, weights[V][V] = {{1, 0}, {0, 1}};
    const int32_t ids[TOKENS] = {0, 1, 1};
    napier_grpo_batch batch = two_responses();
    batch.logprobs = (napier_const_vector){.dtype = NAPIER_F32}; /* the calls compute them */
    napier_grpo_metrics a = NAPIER_GRPO_METRICS_INIT, b = NAPIER_GRPO_METRICS_INIT;
    EXPECT(napier_grpo_from_logits(context, napier_const_rows_f32(logits[0], TOKENS, V),
                                   napier_indices_i32(ids, TOKENS), &batch, NULL, NULL, &a,
                                   napier_rows_f32(logits[0], TOKENS, V), no_vector, no_vector) == NAPIER_OK);
    EXPECT(napier_grpo_from_hidden(context, napier_const_rows_f32(hidden[0], TOKENS, V),
                                   napier_const_rows_f32(weights[0], V, V), napier_indices_i32(ids, TOKENS), &batch,
                                   NULL, NULL, &b, napier_rows_f32(grad_hidden[0], TOKENS, V),
                                   napier_rows_f32(grad_weights[0], V, V), no_vector, no_vector) == NAPIER_OK);
    EXPECT(a.loss == b.loss && memcmp(logits, grad_hidden, sizeof logits) == 0);
}

/* Advantages: each reward compared with the other answers to its prompt. Equal rewards teach nothing. */
static void advantages_of_groups(napier_context *context) {
    const float rewards[6] = {1, 0, 0.5F, 1, 1, 1};
    float scaled[6];
    napier_advantage_options options = NAPIER_ADVANTAGE_OPTIONS_INIT;
    options.group_size = 3;
    EXPECT(napier_group_advantages(context, napier_const_array_f32(rewards, 6), napier_indices_i32(NULL, 0), &options,
                                   napier_array_f32(scaled, 6)) == NAPIER_OK);
    EXPECT(IS_NEAR(scaled[0], 0.5 / (0.5 + 1e-4)) && scaled[2] == 0 && scaled[4] == 0);
}

int main(void) {
    return run_examples((example *const[]){
        gather_log_probabilities, log_probability_entropy_and_rank, gradient_of_a_log_probability,
        log_probabilities_from_hidden_states, memory_of_log_probabilities, kl_of_responses, kl_of_distributions,
        score_by_a_rubric, grpo_loss, grpo_loss_of_each_token, grpo_step, advantages_of_groups, NULL});
}
