/* ops/tokens/token_call.h - what the calls on tokens share: arguments read and checked, the z of chosen ids, results
 * written. Whether the logits lie in memory (token_logprobs.c) or are computed on the way makes no difference here. */
#ifndef NAPIER_OPS_TOKENS_TOKEN_CALL_H
#define NAPIER_OPS_TOKENS_TOKEN_CALL_H

#include "core/base/context.h"
#include "ops/tokens/responses.h"
#include "ops/tokens/token_row.h"

/* Reads and checks everything but the logits (or what they are made of). results or gradients is NULL. */
napier_status napier_token_call_read(napier_context *context, int64_t rows, int64_t cols, napier_indices ids,
                                     const napier_token_options *options, const napier_token_results *results,
                                     const napier_token_gradients *gradients, napier_token_call *call);
/* The same where ids (and all other arrays) are in a GPU's memory: what they are is for its kernels to check. */
napier_status napier_token_call_read_on_device(napier_context *context, int64_t rows, int64_t cols, napier_indices ids,
                                               const napier_token_options *options, const napier_token_results *results,
                                               const napier_token_gradients *gradients, napier_token_call *call);
/* No result shares memory with an input, nor with another result. */
napier_status napier_token_call_apart(napier_context *context, const napier_token_call *call, const char *name,
                                      napier_const_matrix input);
/* A result of a backward call lies apart from all its gradients and ids. */
napier_status napier_token_gradients_apart(napier_context *context, const napier_token_call *call, const char *name,
                                           napier_matrix out);

/* Id k of a row. */
int64_t napier_token_id(const napier_token_call *call, int64_t row, int64_t k);

/* Tokens of a row that keep leaves: what the mean of label smoothing divides by. */
int64_t napier_token_kept(const napier_token_call *call, int64_t row);

/* What a worker needs for `rows` rows in work at a time: `seen` of each, with the memory it points to. */
typedef struct napier_token_desk {
    napier_token_seen *seen; /* [rows] */
    int64_t *integers;
    float *floats;
    napier_token_top *top;
} napier_token_desk;

/* desks: [workers]. NULL if there is no memory. */
napier_token_desk *napier_token_desks(napier_context *context, const napier_token_call *call, int workers, int rows);
void napier_token_desks_free(napier_context *context, napier_token_desk *desks, int workers);

/* Starts `seen` on a row: ids, their z (+inf for those ignored, which nothing exceeds), nothing seen. */
void napier_token_start(const napier_token_call *call, const napier_token_kernels *kernels, napier_const_matrix x,
                        int64_t row, napier_token_seen *seen);
/* The same without the z: seen->chosen[k] is for the caller to fill in before any tile is seen. */
void napier_token_start_ids(const napier_token_call *call, int64_t row, napier_token_seen *seen);

/* Writes the results of a row. */
void napier_token_write(const napier_token_call *call, int64_t row, const napier_token_final *final,
                        napier_token_seen *seen);

#endif
