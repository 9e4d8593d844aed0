/* napier/cuda/softmax.h - softmax, log_softmax, logsumexp, their gradients and the mergeable state on a GPU.
 *
 * Each call is its namesake of napier/softmax.h: the same dtypes, special rows, options, aliasing, errors and bits
 * ("bitwise" in napier/cuda/device.h, which tells what all calls have in common). Arrays lie in device memory.
 *
 * Dtypes: f32, f16, bf16 in any mixture; f64 anywhere makes the compute type f64, which is right, not fast.
 * Strides: any. Fast are contiguous rows; most so where they start on 16 bytes.
 * Options: `algorithm` chooses among kernels that give the same bits (docs/cuda-softmax.md): SAFE reads a row of more
 * than 1024 columns three times, ONLINE twice, PARALLEL splits each over many blocks and reads twice; AUTO keeps a row
 * on the chip (registers; shared memory of a block, or of a cluster of blocks) and reads it once, where it fits.
 * Workspace: for rows that are split, 120 bytes for each block that takes part and 40 for each row; gradients of long
 * rows 4 bytes for each 1024 elements. Else none: then `workspace` may be NULL.
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

/* ---- Gradients --------------------------------------------------------------------------------------------------- */

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

/* ---- The mergeable state -------------------------------------------------------------------------------------------
 * As in napier/softmax.h, a state is the exact sum of a part of a row: parts are summed wherever they lie, states
 * merged in any grouping and order, and the result has the bits of the one-shot call on the whole row. On a device
 * states come many at a time, one for each row of a batch: `states` is an array in device memory of `rows` times
 * napier_cuda_softmax_state_size(compute) bytes, on a boundary of 8, that the caller may copy, send and gather as bytes
 * between machines of one numerics version. What is in it is known to these calls only.
 *
 *     device k of 4:  clear(states); update(states, k * 37888, shard k of [rows, 151936])     37888 = 37 * 1024
 *     anywhere:       merge(states of 0, states of 1), ...
 *     device k:       apply(states, shard k)
 *
 * A part begins at a multiple of 1024 elements of its row, and ends at one or at the end of its row: states hold no
 * open tiles (those of napier/softmax.h do). `compute` is F32 or F64. A part that is added twice counts twice; rows
 * have less than 2^40 elements. All calls are bitwise; of what is in device memory nothing is checked. */

/* Bytes of one state; 0 where compute is neither F32 nor F64. */
NAPIER_API size_t napier_cuda_softmax_state_size(napier_dtype compute);

/* Makes them states of parts without elements. Errors: INVALID_ARGUMENT (here and below). */
NAPIER_API napier_status napier_cuda_softmax_state_clear(napier_cuda_context *context, struct CUstream_st *stream,
                                                         void *states, int64_t rows, napier_dtype compute);

/* Adds the columns of `logits` [rows, cols], which begin at element first_index of their rows, to the states of its
 * rows. An F32 state takes f32, f16 and bf16, an F64 state also f64. Of the options temperature is used: the same each
 * time. */
NAPIER_API napier_status napier_cuda_softmax_state_update(napier_cuda_context *context, struct CUstream_st *stream,
                                                          napier_cuda_workspace *workspace, void *states,
                                                          napier_dtype compute, int64_t first_index,
                                                          napier_const_matrix logits,
                                                          const napier_softmax_options *options);

/* into[i] := the sum of both parts. Must not overlap. */
NAPIER_API napier_status napier_cuda_softmax_state_merge(napier_cuda_context *context, struct CUstream_st *stream,
                                                         void *into, const void *from, int64_t rows,
                                                         napier_dtype compute);

/* lse[i] = the logsumexp of what state i has seen. The states may go on. */
NAPIER_API napier_status napier_cuda_softmax_state_finish(napier_cuda_context *context, struct CUstream_st *stream,
                                                          const void *states, napier_dtype compute, napier_vector lse);

/* softmax or log_softmax of any columns of the rows, from states that have seen all of their rows. In place allowed;
 * an f64 result needs F64 states. Of the options temperature and masked_rows are used. */
NAPIER_API napier_status napier_cuda_softmax_state_apply(napier_cuda_context *context, struct CUstream_st *stream,
                                                         napier_cuda_workspace *workspace, const void *states,
                                                         napier_dtype compute, napier_softmax_kind kind,
                                                         napier_const_matrix logits, napier_matrix result,
                                                         const napier_softmax_options *options);

#ifdef __cplusplus
}
#endif
#endif
