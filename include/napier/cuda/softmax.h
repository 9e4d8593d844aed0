/* napier/cuda/softmax.h - softmax, log_softmax, logsumexp, their gradients and the mergeable state on a GPU.
 *
 * Each call does what the call of the same name in napier/softmax.h does, with the same dtypes, special rows, options,
 * aliasing, errors and bits. All are "bitwise"; napier/cuda/device.h explains the word and has the rules that all calls
 * share. Arrays are in device memory.
 *
 * Dtypes: f32, f16 and bf16 in any mixture. With f64 anywhere the compute type is f64, which is correct but slow.
 * Strides: any. Contiguous rows are fast, and fastest if they are aligned to 16 bytes.
 * Options: `algorithm` chooses among kernels that give the same bits (docs/cuda-softmax.md). For rows of more than 1024
 * columns, SAFE reads a row three times; ONLINE twice; PARALLEL divides each row among many blocks and reads it twice;
 * AUTO reads a row once if it fits on the chip (in registers, or in the shared memory of a block or of a cluster of
 * blocks). Workspace: 120 bytes for each block and 40 for each row if rows are divided among blocks; 4 bytes for each
 * 1024 elements for the gradients of long rows. Otherwise none, and `workspace` may be NULL.
 * Errors: those of the CPU call, and INVALID_ARGUMENT for a workspace that is too small. */
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
/* All elements are one row, and the whole device works on it. */
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

NAPIER_API napier_status napier_cuda_dot_rows(napier_cuda_context *context, struct CUstream_st *stream,
                                              napier_cuda_workspace *workspace, napier_const_matrix a,
                                              napier_const_matrix b, napier_vector dots);

/* ---- The mergeable state -------------------------------------------------------------------------------------------
 * As in napier/softmax.h, a state is the exact sum of a part of a row. The parts may be summed on different machines,
 * and their states merged in any grouping and order; the result has the bits of one call on the whole row. On a device,
 * states come in batches: `states` is an array of `rows` states in device memory, one for each row of a batch. It has
 * rows * napier_cuda_softmax_state_size(compute) bytes and is aligned to 8. The caller may copy, send and gather states
 * as bytes between machines of the same numerics version. Their format is private. napier_cuda_softmax_part_save below
 * writes the portable byte form.
 *
 *     device k of 4:  clear(states); update(states, k * 37888, shard k of [rows, 151936])     37888 = 37 * 1024
 *     anywhere:       merge(states of 0, states of 1), ...
 *     device k:       apply(states, shard k)
 *
 * A part begins at a multiple of 1024 elements of its row, and ends at such a multiple or at the end of the row,
 * because these states hold no incomplete tiles (unlike those of napier/softmax.h, and the parts below). `compute` is F32
 * or F64. A part that is added twice counts twice. Rows have fewer than 2^40 elements. All calls are bitwise. They do not
 * check the contents of device memory. */

/* The bytes of one state; 0 if compute is neither F32 nor F64. */
NAPIER_API size_t napier_cuda_softmax_state_size(napier_dtype compute);

/* Sets each state to that of a part without elements. Errors: INVALID_ARGUMENT (also for the calls below). */
NAPIER_API napier_status napier_cuda_softmax_state_clear(napier_cuda_context *context, struct CUstream_st *stream,
                                                         void *states, int64_t rows, napier_dtype compute);

/* Adds the columns of `logits` [rows, cols] to the states of their rows. The columns begin at element first_index of
 * each row. An F32 state takes f32, f16 and bf16; an F64 state also takes f64. Only the option temperature is used; it
 * must be the same in all calls for a state. */
NAPIER_API napier_status napier_cuda_softmax_state_update(napier_cuda_context *context, struct CUstream_st *stream,
                                                          napier_cuda_workspace *workspace, void *states,
                                                          napier_dtype compute, int64_t first_index,
                                                          napier_const_matrix logits,
                                                          const napier_softmax_options *options);

/* into[i] = the sum of both parts. The arrays must not overlap. */
NAPIER_API napier_status napier_cuda_softmax_state_merge(napier_cuda_context *context, struct CUstream_st *stream,
                                                         void *into, const void *from, int64_t rows,
                                                         napier_dtype compute);

/* lse[i] = the logsumexp of all elements added to state i. The states may be updated further. */
NAPIER_API napier_status napier_cuda_softmax_state_finish(napier_cuda_context *context, struct CUstream_st *stream,
                                                          const void *states, napier_dtype compute, napier_vector lse);

/* Computes softmax or log_softmax of any columns, from states to which all elements of these rows have been added. The
 * result may be in place. An f64 result needs F64 states. Only the options temperature and masked_rows are used. */
NAPIER_API napier_status napier_cuda_softmax_state_apply(napier_cuda_context *context, struct CUstream_st *stream,
                                                         napier_cuda_workspace *workspace, const void *states,
                                                         napier_dtype compute, napier_softmax_kind kind,
                                                         napier_const_matrix logits, napier_matrix result,
                                                         const napier_softmax_options *options);

/* ---- Parts that begin and end anywhere -----------------------------------------------------------------------------
 * The same bytes as napier_softmax_state_to_bytes on the CPU, in device memory: one part of each row of a batch, for shards
 * of any size. A part holds the elements of the tiles at its two ends, at most 2046 of them. Parts that follow one
 * another in their rows are added to states (above); any engine may send them, and the CPU loads them too.
 *
 *     rank k:    part_save(my columns, part)          all ranks: gather the parts
 *     rank k:    clear(states); part_update(states, the parts of all ranks); apply(states, my columns)
 */

/* The bytes of one part of each row. The columns begin at element first_index of their row. */
typedef struct napier_cuda_softmax_part {
    void *data;     /* of row 0, on a boundary of 8 bytes */
    int64_t stride; /* bytes from a row to the next, a multiple of 8 and at least the part's size */
    int64_t first_index, cols;
} napier_cuda_softmax_part;

/* The bytes of one row's part: napier_softmax_state_size of such a state. 0 if no state is like that. */
NAPIER_API size_t napier_cuda_softmax_part_size(napier_dtype compute, int64_t first_index, int64_t cols);

/* Writes the parts of logits [rows, part.cols]: the bytes that napier_softmax_state_to_bytes writes for a state that was created at
 * part.first_index with these options and updated with the row. A row with a NaN has other bytes, which mean the same.
 * Bytes of a row behind the part's size stay as they are. `part` does not overlap `logits`. */
NAPIER_API napier_status napier_cuda_softmax_part_save(napier_cuda_context *context, struct CUstream_st *stream,
                                                       napier_cuda_workspace *workspace, napier_dtype compute,
                                                       napier_const_matrix logits,
                                                       const napier_softmax_options *options,
                                                       napier_cuda_softmax_part part);

/* Adds `count` parts of each of `rows` rows to the states of these rows. Each part begins where the one before it ends.
 * The first begins at a multiple of 1024, and the last ends at one or at the end of the row. options: those of the parts.
 * A kernel compares what each part says about itself (columns, dtype, options, numerics version) with the arguments. A
 * row with another part becomes NaN, and napier_cuda_synchronize reports it. Checksums are not compared: check bytes from
 * elsewhere with napier_softmax_state_from_bytes. */
NAPIER_API napier_status napier_cuda_softmax_part_update(napier_cuda_context *context, struct CUstream_st *stream,
                                                         napier_cuda_workspace *workspace, void *states, int64_t rows,
                                                         napier_dtype compute, const napier_cuda_softmax_part *parts,
                                                         int64_t count, const napier_softmax_options *options);

#ifdef __cplusplus
}
#endif
#endif
