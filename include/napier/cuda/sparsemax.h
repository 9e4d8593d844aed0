/* napier/cuda/sparsemax.h - sparsemax and its gradient on a GPU.
 *
 * Each call does what the call of the same name in napier/sparsemax.h does, with the same dtypes, special rows, options,
 * aliasing, errors and bits. Both are "bitwise"; napier/cuda/device.h explains the word and has the rules that all calls share.
 * Arrays are in device memory. A block works on a row, which it reads once for each round (docs/sparsemax.md). No call needs
 * a workspace, so `workspace` may be NULL. */
#ifndef NAPIER_CUDA_SPARSEMAX_H
#define NAPIER_CUDA_SPARSEMAX_H

#include <napier/cuda/device.h>
#include <napier/sparsemax.h>

#ifdef __cplusplus
extern "C" {
#endif

NAPIER_API napier_status napier_cuda_sparsemax(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, napier_const_matrix logits,
                                               napier_matrix probs, const napier_softmax_options *options);
NAPIER_API napier_status napier_cuda_sparsemax_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                        napier_cuda_workspace *workspace, napier_const_matrix probs,
                                                        napier_const_matrix grad_probs, napier_matrix grad_logits,
                                                        const napier_softmax_options *options);

#ifdef __cplusplus
}
#endif
#endif
