/* napier/cuda/attention.h - napier/attention.h on a GPU. napier/cuda/device.h has the rules that all calls share. q, k,
 * v, results, offsets, prefixes and mask are in device memory.
 *
 * Invalid offsets or prefixes, or a mask with too few keys, make all results NaN. napier_cuda_synchronize names the
 * first sequence at fault.
 *
 * This has not yet run on a GPU: the kernels are compiled for sm_80 and sm_90, and tested on an emulated device. */
#ifndef NAPIER_CUDA_ATTENTION_H
#define NAPIER_CUDA_ATTENTION_H

#include <napier/attention.h>
#include <napier/cuda/linear.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Like napier_attention.
 * BITWISE: the CPU's bits, by plain multiply-adds, for any dtype, dim and strides. The dims of q and v may add up to
 * about 1000 (shared memory is the limit); more is UNSUPPORTED.
 * BATCH_INVARIANT: uses tensor cores if q, k and v are all bf16 or all f16, dim and v.dim are at most 128, and the
 * elements of each head are contiguous and aligned to 16 bytes. Otherwise it does the same as BITWISE. It takes 64 keys
 * at a time from the first key of the sequence, and rounds the weights to the dtype of the inputs. This adds an error
 * of 2^-8 (bf16) or 2^-10 (f16) of max_j |v_j| to that of the CPU.
 * Workspace: 256 bytes with sequences, else none.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_cuda_attention(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, napier_const_heads q,
                                               napier_const_heads k, napier_const_heads v, napier_heads output,
                                               napier_matrix lse, const napier_attention_options *options,
                                               napier_cuda_mode mode);

/* Like napier_attention_backward, with the CPU's bits. The dims of q and v may add up to about 600. The option
 * bf16_gradient is UNSUPPORTED.
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
