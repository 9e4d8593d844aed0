/* lm/score/score_head.h - rows of states to log-probabilities of tokens, some rows at a time, through
 * ops/head. A row may rate several tokens: the first ones of a prompt's responses. */
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
    int64_t most_rows, per_row; /* at a time; ids of a row */
    napier_const_matrix states; /* row i of the batch that is rated */
    int64_t rows, last;         /* gathered; the row of states that the last of them is */
    int used;                   /* ids of the last of them */
    void *gathered;             /* [most_rows, hidden] */
    int64_t *ids, *targets;     /* [most_rows, per_row] */
    float *logprobs;            /* [most_rows, per_row] */
    float *entropy;             /* [most_rows] */
    int64_t *argmax;            /* [most_rows] */
} napier_score_head;

/* Bytes for so many tokens, the head's own workspace included. */
int64_t napier_score_head_bytes(const napier_context *context, const napier_model *model, int64_t tokens);

/* context, model, options, response_ids and results are set; tokens: how many a batch has at most. */
napier_status napier_score_head_allocate(napier_score_head *head, int64_t tokens);
void napier_score_head_release(napier_score_head *head);

/* Row `row` of states rates the token at `target`; rows ascend. */
napier_status napier_score_head_add(void *head, int64_t row, int64_t target);
/* What has been gathered is rated. */
napier_status napier_score_head_flush(napier_score_head *head);

#endif
