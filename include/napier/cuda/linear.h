/* napier/cuda/linear.h - the matrix products of napier/linear.h and napier/rl.h on a GPU. napier/cuda/device.h has the
 * rules that all calls share.
 *
 * This has not yet run on a GPU: the kernels are compiled for sm_80 and sm_90, and tested on an emulated device. */
#ifndef NAPIER_CUDA_LINEAR_H
#define NAPIER_CUDA_LINEAR_H

#include <napier/cuda/device.h>
#include <napier/rl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which bits a product has. */
typedef enum napier_cuda_mode {
    NAPIER_CUDA_BITWISE = 0,        /* the CPU's, by plain multiply-adds */
    NAPIER_CUDA_BATCH_INVARIANT = 1 /* tensor cores where possible: a row's bits do not depend on the batch,
                                       but they are not the CPU's */
} napier_cuda_mode;

/* Like napier_matmul. Needs no workspace.
 * BATCH_INVARIANT uses tensor cores for bf16 by bf16 and f16 by f16, with f32 sums over ascending k, 16 at a time.
 * Other products have the CPU's bits in either mode. It is fastest if each operand is contiguous along k or along its
 * other dimension, with rows aligned to 16 bytes. Error bound on tensor cores: (k + 16) 2^-22 sum_k |a b|, plus the
 * rounding of the result.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED. */
NAPIER_API napier_status napier_cuda_matmul(napier_cuda_context *context, struct CUstream_st *stream,
                                            napier_cuda_workspace *workspace, napier_const_matrix a,
                                            napier_const_matrix b, napier_matrix product, napier_cuda_mode mode);

/* Like napier_linear_token_logprobs: hidden [N, H], weights [V, H].
 * BATCH_INVARIANT: both operands bf16 or both f16, on tensor cores. The logits are never stored. The workspace holds
 * only a partial result of 20 bytes (28 with label smoothing) for each row and 128 tokens. A row's results depend on
 * its hidden state, the weights, its ids and the options, not on the batch. The error is that of the logits (see
 * napier_cuda_matmul) plus that of the CPU call. A log-probability is never positive. results->rank and top_k are
 * UNSUPPORTED.
 * BITWISE: the CPU's bits, for any dtypes, by plain multiply-adds. It stores the logits of as many rows at a time as
 * fit in 176 MiB.
 * Workspace: at most 256 MiB for one id per row (for BITWISE, or 128 rows of f32 logits if that is more). Rows that do
 * not fit are processed in consecutive chunks. An id out of range gives NaN in logprobs and loss, and
 * napier_cuda_synchronize reports it (BITWISE: by its index within the chunk).
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (mode, dtypes, ranks), OUT_OF_MEMORY (sizes that overflow). */
NAPIER_API napier_status napier_cuda_linear_token_logprobs(napier_cuda_context *context, struct CUstream_st *stream,
                                                           napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                                           napier_const_matrix weights, napier_indices ids,
                                                           const napier_token_options *options,
                                                           const napier_token_results *results, napier_cuda_mode mode);

/* Like napier_linear_token_logprobs_backward; BATCH_INVARIANT only. The gradient of the logits is rounded once, to
 * bf16, and multiplied on tensor cores with f32 sums. The sums of grad_hidden run over ascending tokens, so its rows do
 * not depend on the batch. The sums of grad_weights run over ascending rows. If the operands are f16, these products
 * use plain multiply-adds: the gradient stays bf16, which keeps values that f16 would lose. Error beyond that of the
 * logits: 2^-9 sum |g| |weights| (|hidden|).
 * Workspace: at most 256 MiB for H up to 4096, and 24 + 4 K bytes for each row of K ids. */
NAPIER_API napier_status napier_cuda_linear_token_logprobs_backward(
    napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_workspace *workspace,
    napier_const_matrix hidden, napier_const_matrix weights, napier_indices ids, const napier_token_options *options,
    const napier_token_gradients *gradients, napier_matrix grad_hidden, napier_matrix grad_weights,
    napier_cuda_mode mode);

#ifdef __cplusplus
}
#endif
#endif
