/* napier/mpi.h - Napier over the ranks of an MPI communicator. Link with napier_mpi and napier (pkg-config napier_mpi).
 *
 * Two ways to divide the work over ranks, each with the bits of one call in one process, for any number of ranks:
 *     one long row      each rank reduces its part to a napier_softmax_state; napier_mpi_softmax_state_merge merges them
 *     rows of logits    each rank has some columns of every row; the calls below have the names of those on whole rows
 *
 * The columns of the ranks follow one another in the order of ranks, in any sizes, also 0. Every rank of the communicator
 * must make the same calls in the same order, with the same rows, options, ids and dtypes; its matrices have the columns
 * that it has. Results without columns (lse, logprobs, ...) are the same on every rank. Shapes, dtypes, special rows and
 * options are those of napier/softmax.h and napier/rl.h, except: f64 is INVALID_ARGUMENT, keep, argmax, rank and top_k are
 * not supported.
 * Errors. If one rank refuses its arguments or has no memory for its work, every rank returns an error, and the communicator
 * can be used again; results may have been written. STATE_MISMATCH: the ranks do not agree; the text names rank and value.
 * IO_ERROR: another rank failed, or MPI did (where the communicator's error handler returns; by default MPI ends all ranks,
 * also if one of them is killed). A rank that has no memory for a message itself calls MPI_Abort, since the others wait for
 * that message: this ends the job.
 * Messages: docs/distributed.md. Threads: MPI must allow calls from the calling thread. The library calls no MPI_Init. */
#ifndef NAPIER_MPI_H
#define NAPIER_MPI_H

#include <mpi.h>
#include <napier/shards.h>

/* The functions of napier_mpi. */
#define NAPIER_MPI_API NAPIER_API

#ifdef __cplusplus
extern "C" {
#endif

/* ---- One long row --------------------------------------------------------------------------------------------------*/

/* Creates the merged state of all ranks on every rank: one MPI_Allreduce of 36 KB. It is not finished. Each rank's
 * part must begin where that of the rank before ends, or be empty, or all must consist of whole tiles of 1024. All states
 * have one compute dtype and the same options, and all or none of them are weighted. */
NAPIER_MPI_API napier_status napier_mpi_softmax_state_merge(napier_context *context, MPI_Comm comm,
                                                            const napier_softmax_state *state,
                                                            napier_softmax_state **out);

/* For reductions of your own (MPI_Reduce, MPI_Scan, MPI_Iallreduce): an MPI_Op on states in their byte form, which merges
 * neighbours. It is not commutative, so MPI reduces in the order of ranks. Its type is NAPIER_MPI_STATE_BYTES bytes, made
 * by napier_mpi_softmax_state_pack. Free both with MPI_Type_free and MPI_Op_free. Two states that do not merge make a
 * record that unpack refuses with the status of what failed, such as STATE_MISMATCH. */
#define NAPIER_MPI_STATE_BYTES (8 + (36 << 10))
NAPIER_MPI_API napier_status napier_mpi_softmax_state_op(napier_context *context, MPI_Datatype *type, MPI_Op *op);
NAPIER_MPI_API napier_status napier_mpi_softmax_state_pack(napier_context *context, const napier_softmax_state *state,
                                                           void *record);
/* Creates a state from a record. Bytes that pack or the MPI_Op cannot have made are CORRUPT_DATA. */
NAPIER_MPI_API napier_status napier_mpi_softmax_state_unpack(napier_context *context, const void *record,
                                                             napier_softmax_state **out);

/* ---- Rows of which each rank has some columns ----------------------------------------------------------------------*/

NAPIER_MPI_API napier_status napier_mpi_logsumexp(napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                                                  napier_vector lse, const napier_softmax_options *options);
/* As napier_logsumexp_weighted; a sign without data is not wanted. The ranks exchange a state of each row: 0.4 KB, and 8
 * bytes for each column of a tile that lies in other shards too. */
NAPIER_MPI_API napier_status napier_mpi_logsumexp_weighted(napier_context *context, MPI_Comm comm,
                                                           napier_const_matrix logits, napier_const_matrix weights,
                                                           napier_vector lse, napier_vector sign,
                                                           const napier_softmax_options *options);
NAPIER_MPI_API napier_status napier_mpi_softmax(napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                                                napier_matrix probs, const napier_softmax_options *options);
NAPIER_MPI_API napier_status napier_mpi_log_softmax(napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                                                    napier_matrix logprobs, const napier_softmax_options *options);
NAPIER_MPI_API napier_status napier_mpi_logsumexp_backward(napier_context *context, MPI_Comm comm,
                                                           napier_const_matrix logits, napier_const_vector grad_lse,
                                                           napier_matrix grad_logits,
                                                           const napier_softmax_options *options);
NAPIER_MPI_API napier_status napier_mpi_softmax_backward(napier_context *context, MPI_Comm comm,
                                                         napier_const_matrix probs, napier_const_matrix grad_probs,
                                                         napier_matrix grad_logits,
                                                         const napier_softmax_options *options);
NAPIER_MPI_API napier_status napier_mpi_log_softmax_backward(napier_context *context, MPI_Comm comm,
                                                             napier_const_matrix logprobs,
                                                             napier_const_matrix grad_logprobs,
                                                             napier_matrix grad_logits,
                                                             const napier_softmax_options *options);

/* ids are those of the whole vocabulary. */
NAPIER_MPI_API napier_status napier_mpi_token_logprobs(napier_context *context, MPI_Comm comm,
                                                       napier_const_matrix logits, napier_indices ids,
                                                       const napier_token_options *options,
                                                       const napier_token_results *results);
NAPIER_MPI_API napier_status napier_mpi_token_logprobs_backward(napier_context *context, MPI_Comm comm,
                                                                napier_const_matrix logits, napier_indices ids,
                                                                const napier_token_options *options,
                                                                const napier_token_gradients *gradients,
                                                                napier_matrix grad_logits);

/* hidden [N, H] is the same on every rank; each rank has some rows of the head's weights [V, H]. In the backward call every
 * rank gets the whole grad_hidden, and grad_weights of its own rows. Either may be absent; grad_hidden on all ranks or on
 * none. */
NAPIER_MPI_API napier_status napier_mpi_linear_token_logprobs(napier_context *context, MPI_Comm comm,
                                                              napier_const_matrix hidden, napier_const_matrix weights,
                                                              napier_indices ids, const napier_token_options *options,
                                                              const napier_token_results *results);
NAPIER_MPI_API napier_status napier_mpi_linear_token_logprobs_backward(
    napier_context *context, MPI_Comm comm, napier_const_matrix hidden, napier_const_matrix weights, napier_indices ids,
    const napier_token_options *options, const napier_token_gradients *gradients, napier_matrix grad_hidden,
    napier_matrix grad_weights);

#ifdef __cplusplus
}
#endif
#endif
