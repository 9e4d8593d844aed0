/* lm/score/score_head.h - computes log-probabilities of tokens from rows of states with ops/head, a block of rows at a
 * time. A row may rate several tokens: the first tokens of a prompt's responses. */
#ifndef NAPIER_LM_SCORE_SCORE_HEAD_H
#define NAPIER_LM_SCORE_SCORE_HEAD_H

#include <napier/model.h>

#include "core/base/context.h"

typedef struct napier_score_head {
    napier_context *context;
    const napier_model *model;
    napier_token_options options;
    napier_indices response_ids;
    napier_score_results results;
    int64_t most_rows, per_row; /* capacity: rows in a block, ids per row */
    napier_const_matrix states; /* row i rates as wanted row i of the batch */
    int64_t rows, last;         /* number of gathered rows; the states row that was gathered last */
    int used;                   /* number of ids in the last gathered row */
    void *gathered;             /* [most_rows, hidden] */
    int64_t *ids, *targets;     /* [most_rows, per_row] */
    float *logprobs;            /* [most_rows, per_row] */
    float *entropy;             /* [most_rows] */
    int64_t *argmax;            /* [most_rows] */
} napier_score_head;

/* The bytes needed for this number of tokens, including the head's own workspace. */
int64_t napier_score_head_bytes(const napier_context *context, const napier_model *model, int64_t tokens);

/* The caller has set context, model, options, response_ids and results. tokens: the maximum of a batch. */
napier_status napier_score_head_allocate(napier_score_head *head, int64_t tokens);
void napier_score_head_release(napier_score_head *head);

/* Adds a rating: row `row` of states rates the token at `target`. Rows must ascend. */
napier_status napier_score_head_add(void *head, int64_t row, int64_t target);
/* Rates the rows that have been gathered. */
napier_status napier_score_head_flush(napier_score_head *head);

#endif
