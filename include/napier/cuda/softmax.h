/* napier/cuda/softmax.h - softmax, log_softmax, logsumexp, their gradients and the mergeable state on a GPU.
 *
 * Each call is its namesake of napier/softmax.h: the same dtypes, special rows, options, aliasing, errors and bits ("bitwise"
 * in napier/cuda/device.h, which tells what all calls have in common). Arrays lie in device memory.
 *
 * Dtypes: f32, f16, bf16 in any mixture; f64 anywhere makes the compute type f64, which is right, not fast.
 * Strides: any. Fast are contiguous rows; most so where they start on 16 bytes.
 * Options: `algorithm` chooses among kernels that give the same bits (docs/cuda-softmax.md): SAFE reads a row of more than
 * 1024 columns three times, ONLINE twice, PARALLEL splits each over many blocks and reads twice; AUTO keeps a row on the chip
 * (registers; shared memory of a block, or of a cluster of blocks) and reads it once, where it fits.
 * Workspace: for rows that are split, 120 bytes for each block that takes part and 40 for each row; gradients of long rows
 * 4 bytes for each 1024 elements. Else none: then `workspace` may be NULL.
 * Errors: those of the namesake, and INVALID_ARGUMENT for a workspace that is too small. */
#ifndef NAPIER_CUDA_SOFTMAX_H
#define NAPIER_CUDA_SOFTMAX_H

#include <napier/cuda/device.h>
#include <napier/softmax.h>

#ifdef __cplusplus
extern "C" {
#endif

NAPIER_API napier_status napier_cuda_softmax(napier_cuda_context *context, struct CUstream_st *stream,
                                             napier_cuda_workspace *workspace, napier_const_matrix logits,
                                             napier_matrix probs, const napier_softmax_options *options);
NAPIER_API napier_status napier_cuda_log_softmax(napier_cuda_context *context, struct CUstream_st *stream,
                                                 napier_cuda_workspace *workspace, napier_const_matrix logits,
                                                 napier_matrix logprobs, const napier_softmax_options *options);
NAPIER_API napier_status napier_cuda_logsumexp(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, napier_const_matrix logits,
                                               napier_vector lse, const napier_softmax_options *options);
/* Over all elements, as one row: the whole device works on it. */
NAPIER_API napier_status napier_cuda_logsumexp_all(napier_cuda_context *context, struct CUstream_st *stream,
                                                   napier_cuda_workspace *workspace, napier_const_matrix logits,
                                                   napier_vector lse, const napier_softmax_options *options);

/* ---- Gradients ---------------------------------------------------------------------------------------------------- */

NAPIER_API napier_status napier_cuda_softmax_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                      napier_cuda_workspace *workspace, napier_const_matrix probs,
                                                      napier_const_matrix grad_probs, napier_matrix grad_logits,
                                                      const napier_softmax_options *options);
NAPIER_API napier_status napier_cuda_log_softmax_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                          napier_cuda_workspace *workspace,
                                                          napier_const_matrix logprobs,
                                                          napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                                          const napier_softmax_options *options);
NAPIER_API napier_status napier_cuda_logsumexp_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                        napier_cuda_workspace *workspace, napier_const_matrix logits,
                                                        napier_const_vector grad_lse, napier_matrix grad_logits,
                                                        const napier_softmax_options *options);
NAPIER_API napier_status napier_cuda_logsumexp_all_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                            napier_cuda_workspace *workspace,
                                                            napier_const_matrix logits, napier_const_vector grad_lse,
                                                            napier_matrix grad_logits,
                                                            const napier_softmax_options *options);

#ifdef __cplusplus
}
#endif
#endif
