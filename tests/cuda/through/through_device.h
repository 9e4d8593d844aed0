/* tests/cuda/through/through_device.h - the CPU's calls, made on the device: included before a program of golden bits
 * (-include), which then knows nothing of it. So one table holds for both. */
#ifndef NAPIER_TESTS_THROUGH_DEVICE_H
#define NAPIER_TESTS_THROUGH_DEVICE_H

#include "through.h"

/* Calls whose arguments on the device are others than the CPU's. What the device does not take (other metrics, NN-descent,
 * sparse rows) goes to the CPU, as do the stages inside of a fit. */
napier_status through_any_neighbors(napier_context *context, napier_umap_samples samples,
                                    const napier_neighbors_options *options, int32_t *indices, float *distances);
napier_status through_fuzzy_graph(napier_context *context, const int32_t *indices, const float *distances, int64_t n,
                                  int64_t n_neighbors, double local_connectivity, double set_op_mix_ratio,
                                  napier_umap_graph **out);
napier_status through_epochs(napier_context *context, const napier_umap_params *params,
                             const napier_umap_epochs *epochs, const napier_umap_edge *edges, int64_t count,
                             const uint32_t *targets, napier_umap_optimizer *optimizer, napier_matrix embedding);
napier_status through_layout(napier_context *context, const napier_umap_graph *graph,
                             const napier_umap_options *options, napier_matrix embedding);

#if !defined(NAPIER_THROUGH_DEVICE_ITSELF)
#define napier_nearest_neighbors through_any_neighbors
#define napier_umap_fuzzy_simplicial_set through_fuzzy_graph
#define napier_umap_optimize_epochs through_epochs
#define napier_umap_optimize_layout through_layout
#define napier_softmax through_softmax
#define napier_log_softmax through_log_softmax
#define napier_sparsemax through_sparsemax
#define napier_sparsemax_backward through_sparsemax_backward
#define napier_logsumexp through_logsumexp
#define napier_logsumexp_all through_logsumexp_all
#define napier_softmax_backward through_softmax_backward
#define napier_log_softmax_backward through_log_softmax_backward
#define napier_logsumexp_backward through_logsumexp_backward
#define napier_logsumexp_all_backward through_logsumexp_all_backward
#define napier_gather_logprobs through_gather_logprobs
#define napier_gather_logprobs_backward through_gather_logprobs_backward
#define napier_token_logprobs through_token_logprobs
#define napier_token_logprobs_backward through_token_logprobs_backward
#define napier_sample through_sample
#define napier_kl_per_response through_kl_per_response
#define napier_kl_per_response_backward through_kl_per_response_backward
#define napier_kl_full through_kl_full
#define napier_kl_full_backward through_kl_full_backward
#define napier_rubric_score through_rubric_score
#define napier_rubric_score_backward through_rubric_score_backward
#define napier_grpo_token_loss through_grpo_token_loss
#define napier_grpo_token_loss_backward through_grpo_token_loss_backward
#define napier_grpo_loss through_grpo_loss
#define napier_grpo_from_logits through_grpo_from_logits
#endif

#endif
