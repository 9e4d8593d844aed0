/* layers - RMS normalisation, the gated unit and rotary positions, with gradients: the functions of napier/layers.h. */
#include "example.h"

/* RMS normalisation divides a row by its root mean square; each column has a weight. */
static void normalise_rows(napier_context *context) {
    const float x[] = {3, -3, 3, -3}, weight[] = {1, 1, 1, 10};
    float out[4];
    napier_rms_norm_options options = NAPIER_RMS_NORM_OPTIONS_INIT;
    options.epsilon = 0;
    EXPECT(napier_rms_norm(context, napier_const_rows_f32(x, 1, 4), napier_const_array_f32(weight, 4),
                           napier_rows_f32(out, 1, 4), &options) == NAPIER_OK);
    EXPECT(IS_NEAR(out[0], 1) && IS_NEAR(out[3], -10));
}

/* The gradients of the same. A row's length does not change its normalised form, so grad_x has no part along x. */
static void gradients_of_rms_norm(napier_context *context) {
    const float x[] = {3, -3}, weight[] = {1, 1}, grad_out[] = {1, 0};
    float grad_x[2], grad_weight[2];
    EXPECT(napier_rms_norm_backward(context, napier_const_rows_f32(grad_out, 1, 2), napier_const_rows_f32(x, 1, 2),
                                    napier_const_array_f32(weight, 2), napier_rows_f32(grad_x, 1, 2),
                                    napier_array_f32(grad_weight, 2), NULL) == NAPIER_OK);
    EXPECT(IS_NEAR(grad_x[0] - grad_x[1], 0) && IS_NEAR(grad_weight[0], 1) && grad_weight[1] == 0);
}

/* SwiGLU, the unit between the two products of a feed-forward layer: silu(gate) times up. */
static void gated_unit(napier_context *context) {
    const float gate[] = {0, 1}, up[] = {5, 2};
    float out[2];
    EXPECT(napier_swiglu(context, napier_const_rows_f32(gate, 1, 2), napier_const_rows_f32(up, 1, 2),
                         napier_rows_f32(out, 1, 2)) == NAPIER_OK);
    EXPECT(out[0] == 0 && IS_NEAR(out[1], 2 / (1 + exp(-1))));
}

/* Its gradients. A gradient that is not wanted is a view without data. */
static void gradients_of_the_gated_unit(napier_context *context) {
    const float gate[] = {0, 1}, up[] = {5, 2}, grad_out[] = {1, 1};
    float grad_gate[2];
    EXPECT(napier_swiglu_backward(context, napier_const_rows_f32(grad_out, 1, 2), napier_const_rows_f32(gate, 1, 2),
                                  napier_const_rows_f32(up, 1, 2), napier_rows_f32(grad_gate, 1, 2),
                                  napier_rows_f32(NULL, 0, 0)) == NAPIER_OK);
    EXPECT(IS_NEAR(grad_gate[0], 2.5)); /* up / 2 at a gate of 0 */
}

/* Positions become rotations: frequencies of a head, the angles of each token, and the rotation of its queries or keys.
 * The gradient is rotated back. */
static void rotary_positions(napier_context *context) {
    enum { TOKENS = 2, DIM = 4 };
    const int32_t positions[TOKENS] = {0, 7};
    const float x[TOKENS][DIM] = {{1, 2, 3, 4}, {1, 2, 3, 4}};
    float inverse[DIM / 2], cosines[TOKENS][DIM / 2], sines[TOKENS][DIM / 2], turned[TOKENS][DIM], back[TOKENS][DIM];
    double scale;
    EXPECT(napier_rotary_frequencies(context, NULL, napier_array_f32(inverse, DIM / 2), &scale) == NAPIER_OK);
    EXPECT(napier_rotary_angles(context, napier_const_array_f32(inverse, DIM / 2), scale,
                                napier_indices_i32(positions, TOKENS), napier_rows_f32(cosines[0], TOKENS, DIM / 2),
                                napier_rows_f32(sines[0], TOKENS, DIM / 2)) == NAPIER_OK);
    const napier_const_matrix cos_view = napier_const_rows_f32(cosines[0], TOKENS, DIM / 2),
                              sin_view = napier_const_rows_f32(sines[0], TOKENS, DIM / 2);
    const napier_const_heads from = {x, TOKENS, 1, DIM, DIM, DIM, 1, NAPIER_F32},
                             gradient = {turned, TOKENS, 1, DIM, DIM, DIM, 1, NAPIER_F32};
    const napier_heads to = {turned, TOKENS, 1, DIM, DIM, DIM, 1, NAPIER_F32},
                       grad_x = {back, TOKENS, 1, DIM, DIM, DIM, 1, NAPIER_F32};
    EXPECT(napier_rotary(context, from, cos_view, sin_view, to) == NAPIER_OK);
    EXPECT(napier_rotary_backward(context, gradient, cos_view, sin_view, grad_x) == NAPIER_OK);
    EXPECT(turned[0][0] == 1 && IS_NEAR(turned[1][0], cos(7) - 3 * sin(7)) && IS_NEAR(back[1][0], 1));
}

int main(void) {
    return run_examples((example *const[]){normalise_rows, gradients_of_rms_norm, gated_unit,
                                           gradients_of_the_gated_unit, rotary_positions, NULL});
}
