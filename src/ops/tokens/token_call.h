/* ops/tokens/token_call.h - the common part of calls on tokens: reading and checking arguments, the z of chosen ids,
 * and writing results. It serves logits in memory (token_logprobs.c) and logits that are computed tile by tile. */
#ifndef NAPIER_OPS_TOKENS_TOKEN_CALL_H
#define NAPIER_OPS_TOKENS_TOKEN_CALL_H

#include "core/base/context.h"
#include "ops/tokens/responses.h"
#include "ops/tokens/token_row.h"

/* Reads and checks all arguments except the logits, or the matrices they are computed from. results or gradients is
 * NULL. */
napier_status napier_token_call_read(napier_context *context, int64_t rows, int64_t cols, napier_indices ids,
                                     const napier_token_options *options, const napier_token_results *results,
                                     const napier_token_gradients *gradients, napier_token_call *call);
/* The same if ids and all other arrays are in a GPU's memory. Its kernels check the ids. */
napier_status napier_token_call_read_on_device(napier_context *context, int64_t rows, int64_t cols, napier_indices ids,
                                               const napier_token_options *options, const napier_token_results *results,
                                               const napier_token_gradients *gradients, napier_token_call *call);
/* Checks that no result overlaps an input or another result. */
napier_status napier_token_call_apart(napier_context *context, const napier_token_call *call, const char *name,
                                      napier_const_matrix input);
/* Checks that a result of a backward call does not overlap the gradients or the ids. */
napier_status napier_token_gradients_apart(napier_context *context, const napier_token_call *call, const char *name,
                                           napier_matrix out);

/* Id k of a row. */
int64_t napier_token_id(const napier_token_call *call, int64_t row, int64_t k);

/* The number of a row's tokens that keep selects: the divisor of label smoothing's mean. */
int64_t napier_token_kept(const napier_token_call *call, int64_t row);

/* A worker's memory for `rows` rows at a time: `seen` for each, with the arrays it points to. */
typedef struct napier_token_desk {
    napier_token_seen *seen; /* [rows] */
    int64_t *integers;
    float *floats;
    napier_token_top *top;
} napier_token_desk;

/* Returns desks [workers], or NULL if there is no memory. */
napier_token_desk *napier_token_desks(napier_context *context, const napier_token_call *call, int workers, int rows);
void napier_token_desks_free(napier_context *context, napier_token_desk *desks, int workers);

/* Initialises `seen` for a row: its ids and their z (+inf for ignored ids, which no z exceeds), and no tiles. */
void napier_token_start(const napier_token_call *call, const napier_token_kernels *kernels, napier_const_matrix x,
                        int64_t row, napier_token_seen *seen);
/* The same without the z: the caller must fill in seen->chosen[k] before the first tile. */
void napier_token_start_ids(const napier_token_call *call, int64_t row, napier_token_seen *seen);

/* Writes the results of a row. */
void napier_token_write(const napier_token_call *call, int64_t row, const napier_token_final *final,
                        napier_token_seen *seen);

#endif
