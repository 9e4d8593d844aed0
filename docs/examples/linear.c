/* linear - the matrix product in a fixed order: the functions of napier/linear.h. */
#include "example.h"

/* A layer's weights are stored as [out, in], as PyTorch does. Their transposed view multiplies without a copy. */
static void multiply_by_weights(napier_context *context) {
    const float x[2][3] = {{1, 2, 3}, {4, 5, 6}}, weights[2][3] = {{1, 0, 0}, {1, 1, 1}};
    float y[2][2];
    EXPECT(napier_matmul(context, napier_const_rows_f32(x[0], 2, 3),
                         napier_const_transposed(napier_const_rows_f32(weights[0], 2, 3)),
                         napier_rows_f32(y[0], 2, 2)) == NAPIER_OK);
    EXPECT(y[0][0] == 1 && y[0][1] == 6 && y[1][0] == 4 && y[1][1] == 15);
}

/* Weights of bf16 and activations of f32: the split product has the accuracy of f32, and runs on the processor's matrix
 * engine where there is one. */
static void multiply_by_weights_of_bf16(napier_context *context) {
    const float x[2] = {1.0000001F, 3};
    const uint16_t weights[2] = {0x3f80, 0x4000}; /* 1 and 2 */
    float y;
    EXPECT(napier_matmul_split(context, napier_const_rows_f32(x, 1, 2), napier_const_rows(weights, 2, 1, NAPIER_BF16),
                               napier_rows_f32(&y, 1, 1)) == NAPIER_OK);
    printf("%s the matrix engine: %.7g\n", napier_matrix_engine(context) ? "with" : "without", (double)y);
    EXPECT(IS_NEAR(y, 7));
}

int main(void) { return run_examples((example *const[]){multiply_by_weights, multiply_by_weights_of_bf16, NULL}); }
