/* softmax - probabilities, logsumexp, gradients and the mergeable state: the functions of napier/softmax.h. */
#include "example.h"

/* Softmax turns each row of logits into probabilities. Their differences matter, not their size. */
static void probabilities_of_logits(napier_context *context) {
    const float logits[2][3] = {{1, 2, 3}, {1001, 1002, 1003}};
    float probs[2][3];
    EXPECT(napier_softmax(context, napier_const_rows_f32(logits[0], 2, 3), napier_rows_f32(probs[0], 2, 3), NULL) ==
           NAPIER_OK);
    EXPECT(IS_NEAR(probs[0][2], 0.66524096) && IS_NEAR(probs[1][2], 0.66524096));
}

/* Options hold the temperature. An output may be the input itself. */
static void log_probabilities_in_place(napier_context *context) {
    float row[] = {0, 2, 4};
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    options.temperature = 2;
    EXPECT(napier_log_softmax(context, napier_const_rows_f32(row, 1, 3), napier_rows_f32(row, 1, 3), &options) ==
           NAPIER_OK);
    EXPECT(IS_NEAR(row[2], -0.40760596));
}

/* A transposed view reduces along the first axis: one logsumexp for each column of the array. */
static void logsumexp_of_columns(napier_context *context) {
    const float logits[2][3] = {{1000, 0, -INFINITY}, {1000, 0, 5}};
    float lse[3];
    const napier_const_matrix columns = napier_const_transposed(napier_const_rows_f32(logits[0], 2, 3));
    EXPECT(napier_logsumexp(context, columns, napier_array_f32(lse, 3), NULL) == NAPIER_OK);
    EXPECT(IS_NEAR(lse[1], log(2)) && lse[2] == 5);
}

/* One logsumexp over a whole array, and its gradient, which is the softmax over all elements. */
static void logsumexp_of_an_array(napier_context *context) {
    const float logits[2][2] = {{0, 0}, {0, 0}}, grad_lse = 1;
    float lse, grad_logits[2][2];
    const napier_const_matrix view = napier_const_rows_f32(logits[0], 2, 2);
    EXPECT(napier_logsumexp_all(context, view, napier_array_f32(&lse, 1), NULL) == NAPIER_OK);
    EXPECT(napier_logsumexp_all_backward(context, view, napier_const_array_f32(&grad_lse, 1),
                                         napier_rows_f32(grad_logits[0], 2, 2), NULL) == NAPIER_OK);
    EXPECT(IS_NEAR(lse, log(4)) && grad_logits[1][0] == 0.25F);
}

/* Weights may be negative: this is log |exp(3) - 2 exp(1)| and the sign of the sum. */
static void logsumexp_with_weights(napier_context *context) {
    const float logits[] = {3, 1}, weights[] = {1, -2};
    float lse, sign;
    EXPECT(napier_logsumexp_weighted(context, napier_const_rows_f32(logits, 1, 2), napier_const_rows_f32(weights, 1, 2),
                                     napier_array_f32(&lse, 1), napier_array_f32(&sign, 1), NULL) == NAPIER_OK);
    EXPECT(IS_NEAR(lse, log(exp(3) - 2 * exp(1))) && sign == 1);
}

/* The gradient of softmax: if only the first probability is wanted larger, the other logits have to fall. */
static void gradient_of_softmax(napier_context *context) {
    const float logits[] = {0, 0}, grad_probs[] = {1, 0};
    float probs[2], grad_logits[2];
    EXPECT(napier_softmax(context, napier_const_rows_f32(logits, 1, 2), napier_rows_f32(probs, 1, 2), NULL) ==
           NAPIER_OK);
    EXPECT(napier_softmax_backward(context, napier_const_rows_f32(probs, 1, 2), napier_const_rows_f32(grad_probs, 1, 2),
                                   napier_rows_f32(grad_logits, 1, 2), NULL) == NAPIER_OK);
    EXPECT(grad_logits[0] == 0.25F && grad_logits[1] == -0.25F);
}

/* The gradient of the cross-entropy loss -logprobs[2] is the probabilities, less 1 at the target. */
static void gradient_of_cross_entropy(napier_context *context) {
    const float logits[] = {1, 2, 3}, grad_logprobs[] = {0, 0, -1};
    float logprobs[3], grad_logits[3];
    EXPECT(napier_log_softmax(context, napier_const_rows_f32(logits, 1, 3), napier_rows_f32(logprobs, 1, 3), NULL) ==
           NAPIER_OK);
    EXPECT(napier_log_softmax_backward(context, napier_const_rows_f32(logprobs, 1, 3),
                                       napier_const_rows_f32(grad_logprobs, 1, 3), napier_rows_f32(grad_logits, 1, 3),
                                       NULL) == NAPIER_OK);
    EXPECT(IS_NEAR(grad_logits[2], 0.66524096 - 1) && IS_NEAR(grad_logits[0], 0.09003057));
}

/* The gradient of logsumexp is softmax, times the gradient that arrives for the row. */
static void gradient_of_logsumexp(napier_context *context) {
    const float logits[] = {0, 0, 0, 0}, grad_lse = 2;
    float grad_logits[4];
    EXPECT(napier_logsumexp_backward(context, napier_const_rows_f32(logits, 1, 4), napier_const_array_f32(&grad_lse, 1),
                                     napier_rows_f32(grad_logits, 1, 4), NULL) == NAPIER_OK);
    EXPECT(grad_logits[3] == 0.5F);
}

/* Sums, exp and log with the same bits everywhere: the perplexity of a distribution, exp(-sum p log p). */
static void perplexity(napier_context *context) {
    const float probs[] = {0.5F, 0.25F, 0.25F};
    float logprobs[3], value;
    EXPECT(napier_log(context, napier_const_array_f32(probs, 3), napier_array_f32(logprobs, 3)) == NAPIER_OK);
    EXPECT(napier_dot_rows(context, napier_const_rows_f32(probs, 1, 3), napier_const_rows_f32(logprobs, 1, 3),
                           napier_array_f32(&value, 1)) == NAPIER_OK);
    value = -value;
    EXPECT(napier_exp(context, napier_const_array_f32(&value, 1), napier_array_f32(&value, 1)) == NAPIER_OK);
    EXPECT(IS_NEAR(value, 2.8284271));
}

/* Two workers hold a part of a row each. One sends its state as bytes, the other merges it and finishes: the result has
 * the bits of one call on the whole row. */
static void softmax_of_a_row_in_two_parts(napier_context *context) {
    float row[5] = {0.5F, 3, -1, 2, 4}, probs[5];
    napier_softmax_state *left = NULL, *right = NULL, *received = NULL;
    EXPECT(napier_softmax_state_create(context, NAPIER_F32, 0, NULL, &left) == NAPIER_OK);
    EXPECT(napier_softmax_state_create(context, NAPIER_F32, 3, NULL, &right) == NAPIER_OK);
    EXPECT(napier_softmax_state_update(context, left, napier_const_array_f32(row, 3)) == NAPIER_OK);
    EXPECT(napier_softmax_state_update(context, right, napier_const_array_f32(row + 3, 2)) == NAPIER_OK);

    const size_t size = napier_softmax_state_size(right);
    void *const bytes = malloc(size);
    EXPECT(bytes && napier_softmax_state_to_bytes(context, right, bytes, size) == NAPIER_OK);
    EXPECT(napier_softmax_state_from_bytes(context, bytes, size, &received) == NAPIER_OK);
    EXPECT(napier_softmax_state_first_index(received) == 3 && napier_softmax_state_count(received) == 2);

    double lse;
    EXPECT(napier_softmax_state_merge(context, left, received) == NAPIER_OK);
    EXPECT(napier_softmax_state_finish(context, left, &lse) == NAPIER_OK);
    EXPECT(napier_softmax_state_apply(context, left, NAPIER_KIND_SOFTMAX, napier_const_array_f32(row, 5),
                                      napier_array_f32(row, 5)) == NAPIER_OK);
    const float whole[5] = {0.5F, 3, -1, 2, 4};
    EXPECT(napier_softmax(context, napier_const_rows_f32(whole, 1, 5), napier_rows_f32(probs, 1, 5), NULL) ==
           NAPIER_OK);
    EXPECT(memcmp(row, probs, sizeof probs) == 0);
    free(bytes);
    napier_softmax_state_destroy(received);
    napier_softmax_state_destroy(right);
    napier_softmax_state_destroy(left);
}

/* A stream of logits and weights whose length is not known in advance. */
static void weighted_logsumexp_of_a_stream(napier_context *context) {
    const float logits[] = {3, 1}, weights[] = {1, -2};
    napier_softmax_state *state = NULL;
    double lse, sign;
    EXPECT(napier_softmax_state_create_weighted(context, NAPIER_F32, 0, NULL, &state) == NAPIER_OK);
    for (int i = 0; i < 2; i++) {
        EXPECT(napier_softmax_state_update_weighted(context, state, napier_const_array_f32(&logits[i], 1),
                                                    napier_const_array_f32(&weights[i], 1)) == NAPIER_OK);
    }
    EXPECT(napier_softmax_state_finish_weighted(context, state, &lse, &sign) == NAPIER_OK);
    EXPECT(IS_NEAR(lse, log(exp(3) - 2 * exp(1))) && sign == 1);
    napier_softmax_state_destroy(state);
}

int main(void) {
    return run_examples((example *const[]){probabilities_of_logits, log_probabilities_in_place, logsumexp_of_columns,
                                           logsumexp_of_an_array, logsumexp_with_weights, gradient_of_softmax,
                                           gradient_of_cross_entropy, gradient_of_logsumexp, perplexity,
                                           softmax_of_a_row_in_two_parts, weighted_logsumexp_of_a_stream, NULL});
}
