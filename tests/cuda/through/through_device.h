/* tests/cuda/through/through_device.h - the CPU's calls, made on the device: included before a program of golden bits
 * (-include), which then knows nothing of it. Each call copies its arrays to the device, makes the call's namesake
 * there and copies the results back; the program's own context only carries the text of an error. So one table holds
 * for both. */
#ifndef NAPIER_TESTS_THROUGH_DEVICE_H
#define NAPIER_TESTS_THROUGH_DEVICE_H

#include <napier/napier.h>

#define THROUGH_CALLS_ON_ROWS(CALL)  \
    CALL(softmax, napier_matrix)     \
    CALL(log_softmax, napier_matrix) \
    CALL(sparsemax, napier_matrix) CALL(logsumexp, napier_vector) CALL(logsumexp_all, napier_vector)
#define THROUGH_DECLARE(name, result)                                                             \
    napier_status through_##name(napier_context *context, napier_const_matrix logits, result out, \
                                 const napier_softmax_options *options);
THROUGH_CALLS_ON_ROWS(THROUGH_DECLARE)

napier_status through_softmax_backward(napier_context *context, napier_const_matrix probs,
                                       napier_const_matrix grad_probs, napier_matrix grad_logits,
                                       const napier_softmax_options *options);
napier_status through_log_softmax_backward(napier_context *context, napier_const_matrix logprobs,
                                           napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                           const napier_softmax_options *options);
napier_status through_sparsemax_backward(napier_context *context, napier_const_matrix probs,
                                         napier_const_matrix grad_probs, napier_matrix grad_logits,
                                         const napier_softmax_options *options);
napier_status through_logsumexp_backward(napier_context *context, napier_const_matrix logits,
                                         napier_const_vector grad_lse, napier_matrix grad_logits,
                                         const napier_softmax_options *options);
napier_status through_logsumexp_all_backward(napier_context *context, napier_const_matrix logits,
                                             napier_const_vector grad_lse, napier_matrix grad_logits,
                                             const napier_softmax_options *options);

napier_status through_gather_logprobs(napier_context *context, napier_const_matrix logprobs, napier_indices ids,
                                      napier_vector gathered);
napier_status through_gather_logprobs_backward(napier_context *context, napier_const_vector grad_gathered,
                                               napier_indices ids, napier_matrix grad_logprobs);
napier_status through_token_logprobs(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                     const napier_token_options *options, const napier_token_results *results);
napier_status through_token_logprobs_backward(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                              const napier_token_options *options,
                                              const napier_token_gradients *gradients, napier_matrix grad_logits);
napier_status through_kl_per_response(napier_context *context, napier_const_vector policy_logprobs,
                                      napier_const_vector ref_logprobs, napier_indices offsets, const uint8_t *mask,
                                      const napier_kl_options *options, napier_vector kl);
napier_status through_kl_per_response_backward(napier_context *context, napier_const_vector policy_logprobs,
                                               napier_const_vector ref_logprobs, napier_indices offsets,
                                               const uint8_t *mask, const napier_kl_options *options,
                                               napier_const_vector grad_kl, napier_vector grad_policy,
                                               napier_vector grad_ref);
napier_status through_kl_full(napier_context *context, napier_const_matrix policy_logits,
                              napier_const_matrix ref_logits, const napier_softmax_options *options, napier_vector kl);
napier_status through_kl_full_backward(napier_context *context, napier_const_matrix policy_logits,
                                       napier_const_matrix ref_logits, const napier_softmax_options *options,
                                       napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                       napier_matrix grad_ref_logits);
napier_status through_rubric_score(napier_context *context, napier_const_vector logprobs, napier_indices token_ids,
                                   napier_indices offsets, napier_const_matrix rubric, napier_const_vector weights,
                                   napier_matrix scores, napier_vector rewards);
napier_status through_rubric_score_backward(napier_context *context, napier_indices token_ids, napier_indices offsets,
                                            napier_const_matrix rubric, napier_const_vector weights,
                                            napier_const_matrix grad_scores, napier_const_vector grad_rewards,
                                            napier_vector grad_logprobs);
napier_status through_grpo_token_loss(napier_context *context, const napier_grpo_batch *batch,
                                      const napier_grpo_options *options, napier_vector losses,
                                      napier_vector grad_logprobs);
napier_status through_grpo_loss(napier_context *context, const napier_grpo_batch *batch,
                                const napier_grpo_options *options, napier_grpo_metrics *metrics,
                                napier_vector grad_logprobs, napier_vector grad_entropies);
napier_status through_grpo_from_logits(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                       const napier_grpo_batch *batch, const napier_grpo_options *options,
                                       const napier_token_options *token_options, napier_grpo_metrics *metrics,
                                       napier_matrix grad_logits, napier_vector logprobs, napier_vector entropies);

napier_status through_nearest_neighbors(napier_context *context, napier_umap_samples samples,
                                        const napier_neighbors_options *options, int32_t *indices, float *distances);
napier_status through_umap_fuzzy_simplicial_set(napier_context *context, const int32_t *indices, const float *distances,
                                                int64_t n, int64_t n_neighbors, double local_connectivity,
                                                double set_op_mix_ratio, napier_umap_graph **out);
napier_status through_umap_optimize_epochs(napier_context *context, const napier_umap_params *params,
                                           const napier_umap_epochs *epochs, const napier_umap_edge *edges,
                                           int64_t count, const uint32_t *targets, napier_umap_optimizer *optimizer,
                                           napier_matrix embedding);
napier_status through_umap_optimize_layout(napier_context *context, const napier_umap_graph *graph,
                                           const napier_umap_options *options, napier_matrix embedding);

napier_status through_nearest_neighbors(napier_context *context, napier_umap_samples samples,
                                        const napier_neighbors_options *options, int32_t *indices, float *distances);
napier_status through_umap_fuzzy_simplicial_set(napier_context *context, const int32_t *indices, const float *distances,
                                                int64_t n, int64_t n_neighbors, double local_connectivity,
                                                double set_op_mix_ratio, napier_umap_graph **out);
napier_status through_umap_optimize_epochs(napier_context *context, const napier_umap_params *params,
                                           const napier_umap_epochs *epochs, const napier_umap_edge *edges,
                                           int64_t count, const uint32_t *targets, napier_umap_optimizer *optimizer,
                                           napier_matrix embedding);
napier_status through_umap_optimize_layout(napier_context *context, const napier_umap_graph *graph,
                                           const napier_umap_options *options, napier_matrix embedding);

#if !defined(NAPIER_THROUGH_DEVICE_ITSELF)
#define napier_nearest_neighbors through_nearest_neighbors
#define napier_umap_fuzzy_simplicial_set through_umap_fuzzy_simplicial_set
#define napier_umap_optimize_epochs through_umap_optimize_epochs
#define napier_umap_optimize_layout through_umap_optimize_layout
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
#define napier_kl_per_response through_kl_per_response
#define napier_kl_per_response_backward through_kl_per_response_backward
#define napier_kl_full through_kl_full
#define napier_kl_full_backward through_kl_full_backward
#define napier_rubric_score through_rubric_score
#define napier_rubric_score_backward through_rubric_score_backward
#define napier_grpo_token_loss through_grpo_token_loss
#define napier_grpo_loss through_grpo_loss
#define napier_grpo_from_logits through_grpo_from_logits
#define napier_nearest_neighbors through_nearest_neighbors
#define napier_umap_fuzzy_simplicial_set through_umap_fuzzy_simplicial_set
#define napier_umap_optimize_epochs through_umap_optimize_epochs
#define napier_umap_optimize_layout through_umap_optimize_layout
#endif

#endif
