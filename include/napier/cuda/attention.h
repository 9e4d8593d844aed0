/* napier/cuda/attention.h - attention on a GPU: see napier/attention.h, and for what all calls have in common
 * napier/cuda/device.h. q, k, v, results, offsets, prefixes and mask are in device memory.
 *
 * Offsets, prefixes, or a mask with too few keys, that are at fault make all results NaN; napier_cuda_synchronize names
 * the first sequence.
 *
 * Nothing here has run on a GPU yet: the kernels are compiled for sm_80 and sm_90, and tested on an emulated device. */
#ifndef NAPIER_CUDA_ATTENTION_H
#define NAPIER_CUDA_ATTENTION_H

#include <napier/attention.h>
#include <napier/cuda/linear.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As napier_attention.
 * BITWISE: the CPU's bits, by plain multiply-adds, for any dtype, dim and strides; dim of q and of v together up to
 * about 1000 (as shared memory allows), else UNSUPPORTED.
 * BATCH_INVARIANT: tensor cores where q, k and v are all bf16 or all f16, dim and v.dim at most 128, and elements of
 * a head side by side on boundaries of 16 bytes; else as BITWISE. Keys are taken 64 at a time from the sequence's
 * first, and the weights are rounded to the inputs' dtype: error 2^-8 (bf16) or 2^-10 (f16) of max_j |v_j|, and what
 * the CPU's has.
 * Workspace: 256 bytes with sequences, else none.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_cuda_attention(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, napier_const_heads q,
                                               napier_const_heads k, napier_const_heads v, napier_heads output,
                                               napier_matrix lse, const napier_attention_options *options,
                                               napier_cuda_mode mode);

/* As napier_attention_backward, with the CPU's bits; dim of q and of v together up to about 600.
 * Workspace: 4 bytes for each row (query and head), and 512. */
NAPIER_API napier_status napier_cuda_attention_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                        napier_cuda_workspace *workspace,
                                                        napier_const_heads grad_output, napier_const_heads q,
                                                        napier_const_heads k, napier_const_heads v,
                                                        napier_const_heads output, napier_const_matrix lse,
                                                        napier_heads grad_q, napier_heads grad_k, napier_heads grad_v,
                                                        const napier_attention_options *options);

#ifdef __cplusplus
}
#endif
#endif
