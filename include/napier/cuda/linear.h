/* napier/cuda/linear.h - matrix products on a GPU: see napier/linear.h and napier/rl.h, and for what all calls
 * have in common napier/cuda/device.h.
 *
 * Nothing here has run on a GPU yet: the kernels are compiled for sm_80 and sm_90, and tested on an emulated device. */
#ifndef NAPIER_CUDA_LINEAR_H
#define NAPIER_CUDA_LINEAR_H

#include <napier/cuda/device.h>
#include <napier/rl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whose bits a product has. */
typedef enum napier_cuda_mode {
    NAPIER_CUDA_BITWISE = 0,        /* the CPU's, by plain multiply-adds */
    NAPIER_CUDA_BATCH_INVARIANT = 1 /* tensor cores where they can be used: a row's bits do not depend on the batch, but
                                       are the device's own */
} napier_cuda_mode;

/* As napier_matmul; needs no workspace.
 * BATCH_INVARIANT uses tensor cores for bf16 by bf16 and f16 by f16, with f32 sums over k, ascending, 16 at a time;
 * other products have the CPU's bits in either mode. Fastest where rows along k, or along the other dimension, are
 * contiguous and begin on a boundary of 16 bytes. Error, tensor cores: (k + 16) 2^-22 sum_k |a b|, and the rounding
 * of the result.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED. */
NAPIER_API napier_status napier_cuda_matmul(napier_cuda_context *context, struct CUstream_st *stream,
                                            napier_cuda_workspace *workspace, napier_const_matrix a,
                                            napier_const_matrix b, napier_matrix product, napier_cuda_mode mode);

/* As napier_linear_token_logprobs: hidden [N, H], weights [V, H].
 * BATCH_INVARIANT: both bf16 or both f16, on tensor cores. The logits are never stored: slots of 20 bytes (28 with
 * label smoothing) for each row and 128 tokens are. A row's results depend on its hidden state, the weights, its ids
 * and the options, not on the batch. Errors of results: those of the logits (napier_cuda_matmul), and as on the CPU;
 * a log-probability is never positive. results->rank and top_k: UNSUPPORTED.
 * BITWISE: the CPU's bits, for any dtypes, by plain multiply-adds: logits of so many rows as 176 MiB hold at a time.
 * Workspace: at most 256 MiB for one id a row (and BITWISE 128 rows of f32 logits, if that is more); more rows than
 * that holds go one lot after the other. An id out of range: NaN in logprobs and loss, and napier_cuda_synchronize
 * tells (BITWISE: its place among the ids of its lot).
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (mode, dtypes, ranks), OUT_OF_MEMORY (sizes that do not fit). */
NAPIER_API napier_status napier_cuda_linear_token_logprobs(napier_cuda_context *context, struct CUstream_st *stream,
                                                           napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                                           napier_const_matrix weights, napier_indices ids,
                                                           const napier_token_options *options,
                                                           const napier_token_results *results, napier_cuda_mode mode);

/* As napier_linear_token_logprobs_backward; BATCH_INVARIANT only. The gradient of the logits is rounded once, to
 * bf16, and multiplied on tensor cores into f32 sums: over the tokens, ascending, for grad_hidden, whose rows do not
 * depend on the batch; over the rows, ascending, for grad_weights. Of f16 operands those products go by plain
 * multiply-adds (bf16 holds what f16 loses). Error beyond the logits': 2^-9 sum |g| |weights| (|hidden|).
 * Workspace: at most 256 MiB for H up to 4096, and 24 bytes and 4 K for each row. */
NAPIER_API napier_status napier_cuda_linear_token_logprobs_backward(
    napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_workspace *workspace,
    napier_const_matrix hidden, napier_const_matrix weights, napier_indices ids, const napier_token_options *options,
    const napier_token_gradients *gradients, napier_matrix grad_hidden, napier_matrix grad_weights,
    napier_cuda_mode mode);

#ifdef __cplusplus
}
#endif
#endif
