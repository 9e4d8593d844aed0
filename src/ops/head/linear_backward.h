/* ops/head/linear_backward.h - gradients of hidden states and weights, if the finals of all rows are known. */
#ifndef NAPIER_OPS_HEAD_LINEAR_BACKWARD_H
#define NAPIER_OPS_HEAD_LINEAR_BACKWARD_H

#include "ops/tokens/token_backward.h"

/* Fills in the final of a row and, in desk->slope, its slope; `desk` has space for call->per_row ids if call->chosen. */
typedef void napier_linear_slope(void *argument, int64_t row, napier_final *final, napier_token_slope_desk *desk);

/* The gradients for weights [call->cols, H], which may be some of a vocabulary's. continues: grad_hidden, which is then
 * f32, holds the sums over earlier tokens. Either gradient may be absent. All arguments have been checked. */
napier_status napier_linear_backward_of(napier_context *context, const napier_token_call *call,
                                        napier_const_matrix hidden, napier_const_matrix weights,
                                        napier_linear_slope *slope, void *argument, bool continues,
                                        napier_matrix grad_hidden, napier_matrix grad_weights);

#endif
