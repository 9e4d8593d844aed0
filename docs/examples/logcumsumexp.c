/* logcumsumexp - the logsumexp of every prefix of a row: the functions of napier/logcumsumexp.h. */
#include "example.h"

/* The logsumexp of each prefix of a row, such as the log of a cumulative probability. */
static void logsumexp_of_prefixes(napier_context *context) {
    const float logprobs[] = {-1.3862944F, -1.3862944F, -0.6931472F}; /* of 1/4, 1/4 and 1/2 */
    float lse[3];
    EXPECT(napier_logcumsumexp(context, napier_const_rows_f32(logprobs, 1, 3), napier_rows_f32(lse, 1, 3), NULL) ==
           NAPIER_OK);
    EXPECT(IS_NEAR(lse[1], log(0.5)) && IS_NEAR(lse[2], 0));
}

/* Its derivatives: backward, the gradient with respect to the logits; forward, how all results change with the logits. */
static void derivatives_of_prefixes(napier_context *context) {
    const float logits[] = {0, 0}, grad_lse[] = {0, 1}, tangent[] = {1, 0};
    float grad_logits[2], tangent_lse[2];
    const napier_const_matrix row = napier_const_rows_f32(logits, 1, 2);
    EXPECT(napier_logcumsumexp_backward(context, row, napier_const_rows_f32(grad_lse, 1, 2),
                                        napier_rows_f32(grad_logits, 1, 2), NULL) == NAPIER_OK);
    EXPECT(napier_logcumsumexp_tangent(context, row, napier_const_rows_f32(tangent, 1, 2),
                                       napier_rows_f32(tangent_lse, 1, 2), NULL) == NAPIER_OK);
    EXPECT(grad_logits[0] == 0.5F && grad_logits[1] == 0.5F && tangent_lse[0] == 1 && tangent_lse[1] == 0.5F);
}

int main(void) { return run_examples((example *const[]){logsumexp_of_prefixes, derivatives_of_prefixes, NULL}); }
