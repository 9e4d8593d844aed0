/* ops/tokens/token_call.h - the common part of calls on tokens: reading and checking arguments (token_call.c), the z of
 * chosen ids (token_desk.c), and writing results (token_results.c). It serves logits in memory (token_logprobs.c) and logits
 * that are computed tile by tile. */
#ifndef NAPIER_OPS_TOKENS_TOKEN_CALL_H
#define NAPIER_OPS_TOKENS_TOKEN_CALL_H

#include "core/base/scope.h"
#include "core/base/view.h"
#include "ops/tokens/responses.h"
#include "ops/tokens/token_row.h"

/* The matrices of a call on tokens: the logits [N, V], or what they are computed from, first the one with N rows; and in
 * a backward call the outputs. */
typedef struct napier_token_matrices {
    int64_t cols; /* V */
    size_t count;
    napier_argument all[4];
} napier_token_matrices;

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* Checks all arguments of a forward and of a backward call, and reads them into *call. */
napier_status napier_token_call_read(napier_context *context, napier_place place, const napier_token_matrices *matrices,
                                     napier_indices ids, const napier_token_options *options,
                                     const napier_token_results *results, napier_token_call *call);
napier_status napier_token_back_read(napier_context *context, napier_place place, const napier_token_matrices *matrices,
                                     napier_indices ids, const napier_token_options *options,
                                     const napier_token_gradients *gradients, napier_token_call *call);

/* The same for logits in memory, in one call each. */
napier_status napier_token_logprobs_check(napier_context *context, napier_place place, napier_const_matrix logits,
                                          napier_indices ids, const napier_token_options *options,
                                          const napier_token_results *results, napier_token_call *call);
napier_status napier_token_back_check(napier_context *context, napier_place place, napier_const_matrix logits,
                                      napier_indices ids, const napier_token_options *options,
                                      const napier_token_gradients *gradients, napier_matrix grad_logits,
                                      napier_token_call *call);

/* ---- Rows in work ------------------------------------------------------------------------------------------------ */

/* Id k of a row. */
int64_t napier_token_id(const napier_token_call *call, int64_t row, int64_t k);

/* The number of a row's tokens that keep selects: the divisor of label smoothing's mean. */
int64_t napier_token_kept(const napier_token_call *call, int64_t row);

/* Takes memory for `rows` rows at a time of each worker. Returns for each worker its `seen` [rows], with the arrays they
 * point to; NULL if there is no memory. */
napier_token_seen **napier_token_desks(napier_memory *memory, const napier_token_call *call, int workers, int64_t rows);

/* Initialises `seen` for a row: its ids and their z (+inf for ignored ids, which no z exceeds), and no tiles. */
void napier_token_start(const napier_token_call *call, const napier_token_kernels *kernels, napier_const_matrix x,
                        int64_t row, napier_token_seen *seen);
/* The same without the z: the caller must fill in seen->chosen[k] before the first tile. */
void napier_token_start_ids(const napier_token_call *call, int64_t row, napier_token_seen *seen);

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Writes the results of a row. */
void napier_token_write(const napier_token_call *call, int64_t row, const napier_token_final *final,
                        napier_token_seen *seen);

#endif
