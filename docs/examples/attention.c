/* attention - softmax(Q K^T) V without the score matrix: the functions of napier/attention.h. */
#include "example.h"

/* The view of a contiguous array [tokens, heads, dim] of f32. */
static napier_heads heads_of(float *data, int64_t tokens, int64_t heads, int64_t dim) {
    const napier_heads view = {data, tokens, heads, dim, heads * dim, dim, 1, NAPIER_F32};
    return view;
}

static napier_const_heads const_heads_of(const float *data, int64_t tokens, int64_t heads, int64_t dim) {
    const napier_const_heads view = {data, tokens, heads, dim, heads * dim, dim, 1, NAPIER_F32};
    return view;
}

/* Causal attention of three tokens and two query heads that share one head of keys: a token sees itself and those
 * before it. With equal keys all weights are equal, so an output is a mean of values. */
static void causal_attention(napier_context *context) {
    const float q[3][2][2] = {{{0}}}, k[3][2] = {{1, 1}, {1, 1}, {1, 1}}, v[3][2] = {{1, 0}, {3, 0}, {5, 6}};
    float output[3][2][2];
    napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
    options.causal = 1;
    EXPECT(napier_attention(context, const_heads_of(q[0][0], 3, 2, 2), const_heads_of(k[0], 3, 1, 2),
                            const_heads_of(v[0], 3, 1, 2), heads_of(output[0][0], 3, 2, 2), napier_rows_f32(NULL, 0, 0),
                            &options) == NAPIER_OK);
    EXPECT(output[0][0][0] == 1 && IS_NEAR(output[1][1][0], 2) && IS_NEAR(output[2][0][1], 2));
}

/* Two responses to one prompt of two tokens: their keys and values follow the prompt's, which both use as a prefix. */
static void attention_with_a_shared_prompt(napier_context *context) {
    const float q[2] = {0, 0}, k[4] = {1, 1, 1, 1}, v[4] = {1, 2, 3, 6};
    const int64_t query_offsets[] = {0, 1, 2}, key_offsets[] = {2, 3, 4}, begin[] = {0, 0}, end[] = {2, 2};
    float output[2];
    napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
    options.causal = 1;
    options.sequences = 2;
    options.query_offsets = query_offsets;
    options.key_offsets = key_offsets;
    options.prefix_begin = begin;
    options.prefix_end = end;
    EXPECT(napier_attention(context, const_heads_of(q, 2, 1, 1), const_heads_of(k, 4, 1, 1), const_heads_of(v, 4, 1, 1),
                            heads_of(output, 2, 1, 1), napier_rows_f32(NULL, 0, 0), &options) == NAPIER_OK);
    EXPECT(IS_NEAR(output[0], 2) && IS_NEAR(output[1], 3));
}

/* Training keeps the output and the logsumexp of the forward call. Here the loss is the output itself, so the gradient
 * of a value is its weight. */
static void gradients_of_attention(napier_context *context) {
    const float q = 0, k[2] = {1, 1}, v[2] = {1, 3}, grad_output = 1;
    float output, lse, grad_q, grad_k[2], grad_v[2];
    const napier_const_heads query = const_heads_of(&q, 1, 1, 1), keys = const_heads_of(k, 2, 1, 1),
                             values = const_heads_of(v, 2, 1, 1);
    EXPECT(napier_attention(context, query, keys, values, heads_of(&output, 1, 1, 1), napier_rows_f32(&lse, 1, 1),
                            NULL) == NAPIER_OK);
    EXPECT(napier_attention_backward(context, const_heads_of(&grad_output, 1, 1, 1), query, keys, values,
                                     const_heads_of(&output, 1, 1, 1), napier_const_rows_f32(&lse, 1, 1),
                                     heads_of(&grad_q, 1, 1, 1), heads_of(grad_k, 2, 1, 1), heads_of(grad_v, 2, 1, 1),
                                     NULL) == NAPIER_OK);
    EXPECT(IS_NEAR(grad_v[0], 0.5) && IS_NEAR(grad_v[1], 0.5));
}

int main(void) {
    return run_examples(
        (example *const[]){causal_attention, attention_with_a_shared_prompt, gradients_of_attention, NULL});
}
