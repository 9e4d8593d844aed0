/* lm/decoder/experts.h - a mixture of experts in place of a layer's MLP: a router gives each row to a few of many MLPs. */
#ifndef NAPIER_LM_DECODER_EXPERTS_H
#define NAPIER_LM_DECODER_EXPERTS_H

#include "core/base/scope.h"
#include "lm/decoder/weights.h"

/* The bytes of `room` and of the router's softmax, for up to `rows` rows; 0 for a model without experts. */
int64_t napier_experts_bytes(const napier_context *context, const napier_model *model, int64_t rows);

/* For each row of x [rows, hidden]:
 *
 *     p = softmax(x router^T), over all experts
 *     its experts are the num_experts_per_tok with the largest p; of equal ones those with the lower index
 *     share_e = p_e, or with norm_topk_prob p_e / sum, where the sum goes from the largest p to the smallest
 *     out = the sum of share_e * expert_e(x), from the lowest index to the highest
 *
 * Each step is rounded to f32. A row of NaN goes to the first experts. Rows of one expert are multiplied together. The
 * result of a row does not depend on the others. `memory` is that of napier_project and napier_project_gated, for any
 * number of rows up to x.rows. Errors: OUT_OF_MEMORY. */
napier_status napier_experts_run(napier_context *context, const napier_model *model, const napier_layer *layer,
                                 napier_const_matrix x, napier_matrix out, void *room, float *memory);

#endif
