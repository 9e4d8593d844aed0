/* sparsemax - probabilities of which most are exactly 0: the functions of napier/sparsemax.h. */
#include "example.h"

/* Sparsemax gives exactly 0 to all but the largest logits. */
static void sparse_probabilities(napier_context *context) {
    const float logits[] = {1, 0.5F, -1};
    float probs[3];
    EXPECT(napier_sparsemax(context, napier_const_rows_f32(logits, 1, 3), napier_rows_f32(probs, 1, 3), NULL) ==
           NAPIER_OK);
    EXPECT(probs[0] == 0.75F && probs[1] == 0.25F && probs[2] == 0);
}

/* Only logits in the support, where the probability is above 0, get a gradient. */
static void gradient_of_sparsemax(napier_context *context) {
    const float probs[] = {0.75F, 0.25F, 0}, grad_probs[] = {1, 0, 5};
    float grad_logits[3];
    EXPECT(napier_sparsemax_backward(context, napier_const_rows_f32(probs, 1, 3),
                                     napier_const_rows_f32(grad_probs, 1, 3), napier_rows_f32(grad_logits, 1, 3),
                                     NULL) == NAPIER_OK);
    EXPECT(grad_logits[0] == 0.5F && grad_logits[1] == -0.5F && grad_logits[2] == 0);
}

int main(void) { return run_examples((example *const[]){sparse_probabilities, gradient_of_sparsemax, NULL}); }
