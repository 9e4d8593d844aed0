/* napier/cuda/rl.h - napier/rl.h on a GPU: log-probabilities of tokens, KL, rubric scores, GRPO losses.
 *
 * Each call takes a context, a stream and a workspace (napier/cuda/device.h), followed by the arguments of the call of
 * the same name in napier/rl.h, which defines the shapes, dtypes, options and optional arguments. All arrays, offsets,
 * ids and masks are in device memory. Options and views are read before the call returns. All calls are bitwise: they
 * give the CPU's bits.
 *
 * An id out of range gives NaN where it is used. Offsets that decrease, do not begin with 0 or do not end with T make
 * all results NaN. napier_cuda_synchronize names the first invalid id or offset.
 *
 * Workspace: some bytes for each 1024 tokens and each response, as stated for each call. Errors: INVALID_ARGUMENT
 * (arguments, a workspace that is too small), OUT_OF_MEMORY (a workspace whose size overflows), and those of the CUDA
 * runtime: UNSUPPORTED or DEVICE_ERROR. */
#ifndef NAPIER_CUDA_RL_H
#define NAPIER_CUDA_RL_H

#include <napier/cuda/device.h>
#include <napier/rl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Workspace: none; it may be NULL. The backward call fills the row of an invalid id with NaN. */
NAPIER_API napier_status napier_cuda_gather_logprobs(napier_cuda_context *context, struct CUstream_st *stream,
                                                     napier_cuda_workspace *workspace, napier_const_matrix logprobs,
                                                     napier_indices ids, napier_vector gathered);
NAPIER_API napier_status napier_cuda_gather_logprobs_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                              napier_cuda_workspace *workspace,
                                                              napier_const_vector grad_gathered, napier_indices ids,
                                                              napier_matrix grad_logprobs);

/* Reads the logits once, and the tile of each row's argmax once more. top_k reads up to seven times more, and needs
 * fewer than 2^31 columns. An invalid id gives NaN as its logprob and loss, and -1 as its rank.
 * Workspace: 16 bytes for each 1024 columns of each row, 20 with label smoothing. */
NAPIER_API napier_status napier_cuda_token_logprobs(napier_cuda_context *context, struct CUstream_st *stream,
                                                    napier_cuda_workspace *workspace, napier_const_matrix logits,
                                                    napier_indices ids, const napier_token_options *options,
                                                    const napier_token_results *results);

/* Reads the logits once and writes once if a row fits into the shared memory of one block, or of eight blocks (sm_90:
 * 900,000 columns of 16 bits); otherwise it reads twice. A row with an invalid id gets NaN.
 * Workspace: 16 bytes for each 1024 columns of each row, and 160 for each id. */
NAPIER_API napier_status napier_cuda_token_logprobs_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                             napier_cuda_workspace *workspace,
                                                             napier_const_matrix logits, napier_indices ids,
                                                             const napier_token_options *options,
                                                             const napier_token_gradients *gradients,
                                                             napier_matrix grad_logits);

/* Workspace: 8 bytes for each 1024 tokens and each response, and 512. */
NAPIER_API napier_status napier_cuda_kl_per_response(napier_cuda_context *context, struct CUstream_st *stream,
                                                     napier_cuda_workspace *workspace,
                                                     napier_const_vector policy_logprobs,
                                                     napier_const_vector ref_logprobs, napier_indices offsets,
                                                     const uint8_t *mask, const napier_kl_options *options,
                                                     napier_vector kl);
NAPIER_API napier_status napier_cuda_kl_per_response_backward(
    napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_workspace *workspace,
    napier_const_vector policy_logprobs, napier_const_vector ref_logprobs, napier_indices offsets, const uint8_t *mask,
    const napier_kl_options *options, napier_const_vector grad_kl, napier_vector grad_policy, napier_vector grad_ref);

/* Reads both logits twice, the backward call three times.
 * Workspace: 40 bytes for each 1024 columns of each row, and 40 for each row. */
NAPIER_API napier_status napier_cuda_kl_full(napier_cuda_context *context, struct CUstream_st *stream,
                                             napier_cuda_workspace *workspace, napier_const_matrix policy_logits,
                                             napier_const_matrix ref_logits, const napier_softmax_options *options,
                                             napier_vector kl);
NAPIER_API napier_status napier_cuda_kl_full_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                      napier_cuda_workspace *workspace,
                                                      napier_const_matrix policy_logits, napier_const_matrix ref_logits,
                                                      const napier_softmax_options *options,
                                                      napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                                      napier_matrix grad_ref_logits);

/* Workspace: 4 C bytes for each 1024 tokens and each response, and 512. */
NAPIER_API napier_status napier_cuda_rubric_score(napier_cuda_context *context, struct CUstream_st *stream,
                                                  napier_cuda_workspace *workspace, napier_const_vector logprobs,
                                                  napier_indices token_ids, napier_indices offsets,
                                                  napier_const_matrix rubric, napier_const_vector weights,
                                                  napier_matrix scores, napier_vector rewards);
NAPIER_API napier_status napier_cuda_rubric_score_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                           napier_cuda_workspace *workspace, napier_indices token_ids,
                                                           napier_indices offsets, napier_const_matrix rubric,
                                                           napier_const_vector weights, napier_const_matrix grad_scores,
                                                           napier_const_vector grad_rewards,
                                                           napier_vector grad_logprobs);

/* Workspace: about 200 bytes for each 1024 tokens and 250 for each response, and 16 KB with top_entropy_quantile. */
NAPIER_API napier_status napier_cuda_grpo_token_loss(napier_cuda_context *context, struct CUstream_st *stream,
                                                     napier_cuda_workspace *workspace, const napier_grpo_batch *batch,
                                                     const napier_grpo_options *options, napier_vector losses,
                                                     napier_vector grad_logprobs);
NAPIER_API napier_status napier_cuda_grpo_token_loss_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                              napier_cuda_workspace *workspace,
                                                              const napier_grpo_batch *batch,
                                                              const napier_grpo_options *options,
                                                              napier_const_vector grad_losses,
                                                              napier_vector grad_logprobs);
/* The structs *batch and *options are in host memory. *metrics is in device memory, aligned to 8 bytes; all of it is
 * written. */
NAPIER_API napier_status napier_cuda_grpo_loss(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, const napier_grpo_batch *batch,
                                               const napier_grpo_options *options, napier_grpo_metrics *metrics,
                                               napier_vector grad_logprobs, napier_vector grad_entropies);

/* A token-level loss without an entropy quantile reads and writes a row once if the row fits, as above. Other losses
 * score all rows in a first pass. *metrics is in device memory.
 * Workspace: that of the calls it combines, and 16 bytes for each token. */
NAPIER_API napier_status napier_cuda_grpo_from_logits(napier_cuda_context *context, struct CUstream_st *stream,
                                                      napier_cuda_workspace *workspace, napier_const_matrix logits,
                                                      napier_indices ids, const napier_grpo_batch *batch,
                                                      const napier_grpo_options *options,
                                                      const napier_token_options *token_options,
                                                      napier_grpo_metrics *metrics, napier_matrix grad_logits,
                                                      napier_vector logprobs, napier_vector entropies);

#ifdef __cplusplus
}
#endif
#endif
