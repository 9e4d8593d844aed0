/* napier/shards.h - rows whose columns lie on several workers: the parts of each operation between two exchanges.
 *
 * A row of V logits is cut at any columns, and each worker (rank) has one shard of it. The result of every rank has the
 * bits of the call on the whole row in one process: napier_logsumexp, napier_softmax, napier_log_softmax,
 * napier_token_logprobs, napier_linear_token_logprobs and their gradients. docs/distributed.md shows the exchanges.
 * napier.torch.distributed does them with torch.distributed and napier/mpi.h with MPI.
 *
 *     1. A row consists of tiles of 1024 columns, counted from column 0. A rank that shares a tile with others sends its
 *        logits of that tile to the tile's owner, so that each tile is whole somewhere.
 *     2. napier_shard_tiles       the owner reduces each tile to a few floats
 *        napier_shard_sums        and all of its tiles to one exact sum of 112 bytes a row.
 *     3. All ranks exchange these sums, or the floats of the tiles where the entropy is wanted.
 *     4. napier_shard_finish_sums, or _tiles: each rank computes what all results of a row need,
 *        napier_shard_softmax ... and from that the results and gradients of its own columns.
 *
 * Dtypes. Logits, results and gradients are f32, f16 or bf16 as in napier/rl.h; f64 is INVALID_ARGUMENT.
 * Records. tiles, chosen and dots are f32. sums and finals are arrays of int64_t whose values mean nothing to a caller;
 * they are the same on every machine of one byte order, and any values are safe to read. Their layout belongs to
 * NAPIER_NUMERICS_VERSION.
 * Bits are contractual. Outputs must not overlap inputs, except where a declaration allows it. Thread safety: one context
 * per thread. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
#ifndef NAPIER_SHARDS_H
#define NAPIER_SHARDS_H

#include <napier/rl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The columns of a tile. A shard given to napier_shard_tiles begins at a multiple of it. */
#define NAPIER_SHARD_TILE 1024
/* The int64_t of a sum and of a final. */
#define NAPIER_SHARD_SUM_WORDS 14
#define NAPIER_SHARD_FINAL_WORDS 4

/* The floats that a tile is reduced to. */
typedef enum napier_shard_values {
    NAPIER_SHARD_LSE = 3,     /* enough for log-probabilities and the logsumexp */
    NAPIER_SHARD_ENTROPY = 4, /* also for the entropy */
    NAPIER_SHARD_TOTAL = 5    /* also for a loss with label_smoothing */
} napier_shard_values;

/* Reduces columns first .. first + cols - 1 of rows of `vocabulary` columns. first is a multiple of 1024, and so is cols
 * unless the columns end at `vocabulary`. logits is [N, cols], tiles is [N, ceil(cols / 1024) * values].
 * ids is [N * K], as in napier_token_logprobs, and may be empty. For each id in these columns its z goes to
 * chosen[n * K + k]; the others stay as they are. Set all to +inf before the first call; then the least of all ranks is
 * the z (a NaN is less than any number). chosen may be NULL without ids.
 * Of the options temperature, softcap and ignore_index are used. keep must be NULL, split 0. */
NAPIER_API napier_status napier_shard_tiles(napier_context *context, napier_const_matrix logits, int64_t first,
                                            int64_t vocabulary, napier_indices ids, const napier_token_options *options,
                                            napier_shard_values values, napier_matrix tiles, float *chosen);
/* The same for logits = hidden weights^T, with hidden [N, H] and these columns' weights [cols, H]. The logits are never
 * stored. */
NAPIER_API napier_status napier_shard_linear_tiles(napier_context *context, napier_const_matrix hidden,
                                                   napier_const_matrix weights, int64_t first, int64_t vocabulary,
                                                   napier_indices ids, const napier_token_options *options,
                                                   napier_shard_values values, napier_matrix tiles, float *chosen);

/* Adds the tiles [N, T * values] of each row, any of its tiles in any order, to sums [N][14]. */
NAPIER_API napier_status napier_shard_sums(napier_context *context, napier_const_matrix tiles,
                                           napier_shard_values values, int64_t *sums);

/* Merges sums [parts][rows][14], in any order, to finals [rows][4]. The finals know no entropy and no total. */
NAPIER_API napier_status napier_shard_finish_sums(napier_context *context, const int64_t *sums, int64_t parts,
                                                  int64_t rows, int64_t *finals);
/* Reduces all tiles of each row, in order, to finals [N][4]. */
NAPIER_API napier_status napier_shard_finish_tiles(napier_context *context, napier_const_matrix tiles,
                                                   napier_shard_values values, int64_t *finals);

/* Writes softmax or log_softmax of any columns of the rows. probs [N, cols] may be logits [N, cols] itself. */
NAPIER_API napier_status napier_shard_softmax(napier_context *context, const int64_t *finals, napier_softmax_kind kind,
                                              napier_const_matrix logits, napier_matrix result,
                                              const napier_softmax_options *options);
/* The gradient of the logsumexp with respect to any columns: grad_lse is [N], grad_logits [N, cols] may be logits. */
NAPIER_API napier_status napier_shard_logsumexp_backward(napier_context *context, const int64_t *finals,
                                                         napier_const_matrix logits, napier_const_vector grad_lse,
                                                         napier_matrix grad_logits,
                                                         const napier_softmax_options *options);

enum { NAPIER_SHARD_DOTS = 3 }; /* floats of a tile */
/* For the gradients of softmax and log_softmax: dots [N, NAPIER_SHARD_DOTS * ceil(cols / 1024)] receives three sums of each
 * tile. For softmax: of gradients times probs above 1/2, of gradients times the other probs, and of these probs. For
 * log_softmax (probs: data NULL): 0, the sum of gradients, 0. The columns begin at a tile. */
NAPIER_API napier_status napier_shard_dots(napier_context *context, napier_const_matrix probs,
                                           napier_const_matrix gradients, napier_matrix dots);
/* The gradient with respect to any columns: result and gradients [N, cols] of softmax or log_softmax, and the dots of all
 * tiles of the rows, in order. grad_logits may be either of them. */
NAPIER_API napier_status napier_shard_softmax_backward(napier_context *context, napier_softmax_kind kind,
                                                       napier_const_matrix result, napier_const_matrix gradients,
                                                       napier_const_matrix dots, napier_matrix grad_logits,
                                                       const napier_softmax_options *options);

/* The results of napier_token_logprobs that finals and chosen give: logprobs, lse, entropy, loss. The others must be
 * absent. chosen is [N * K], complete. */
NAPIER_API napier_status napier_shard_token_results(napier_context *context, int64_t rows, const int64_t *finals,
                                                    const float *chosen, int64_t vocabulary, napier_indices ids,
                                                    const napier_token_options *options,
                                                    const napier_token_results *results);
/* napier_token_logprobs_backward for columns first .. first + cols - 1, any of them. grad_logits may be logits. */
NAPIER_API napier_status napier_shard_token_backward(napier_context *context, const int64_t *finals,
                                                     const float *chosen, napier_const_matrix logits, int64_t first,
                                                     int64_t vocabulary, napier_indices ids,
                                                     const napier_token_options *options,
                                                     const napier_token_gradients *gradients,
                                                     napier_matrix grad_logits);
/* napier_linear_token_logprobs_backward for the head's rows first .. first + cols - 1, any of them. grad_hidden [N, H] is
 * one chain over the whole vocabulary. So it is f32, and with `continues` it holds the sums over the rows before `first`
 * on entry: the ranks compute it one after the other. Round the last rank's to the dtype of hidden. */
NAPIER_API napier_status napier_shard_linear_backward(napier_context *context, const int64_t *finals,
                                                      const float *chosen, napier_const_matrix hidden,
                                                      napier_const_matrix weights, int64_t first, int64_t vocabulary,
                                                      napier_indices ids, const napier_token_options *options,
                                                      const napier_token_gradients *gradients, int continues,
                                                      napier_matrix grad_hidden, napier_matrix grad_weights);
/* What napier_linear_token_logprobs_backward refuses before it writes anything, for this rank's rows of the head: shapes,
 * dtypes, structs, and outputs that overlap inputs or each other. The parts of napier_shard_linear_backward cannot see this,
 * because each has some rows and memory of its own. grad_hidden has the caller's dtype. ids are compared with `vocabulary`;
 * give INT64_MAX where it is not known yet. Computes nothing. */
NAPIER_API napier_status napier_shard_linear_backward_check(napier_context *context, napier_const_matrix hidden,
                                                            napier_const_matrix weights, int64_t vocabulary,
                                                            napier_indices ids, const napier_token_options *options,
                                                            const napier_token_gradients *gradients,
                                                            napier_matrix grad_hidden, napier_matrix grad_weights);

#ifdef __cplusplus
}
#endif
#endif
