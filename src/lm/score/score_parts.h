/* lm/score/score_parts.h - what score.c uses: the lists of a batch (score_lists.c), chunks of them (score_chunks.c), and
 * the log-probabilities of a chunk's tokens (score_head.c). */
#ifndef NAPIER_LM_SCORE_SCORE_PARTS_H
#define NAPIER_LM_SCORE_SCORE_PARTS_H

#include <napier/model.h>
#include <stdbool.h>

#include "core/base/scope.h"
#include "lm/decoder/kv.h"

/* ---- Lists: equal prompts, and prompts with a common beginning ---------------------------------------------------
 *
 * Orders the responses that are not empty, so that responses with equal prompts are neighbours, and so are prompts with
 * a common beginning (a group). */

enum { NAPIER_COMMON_LEAST = 16 }; /* tokens; sharing a shorter beginning does not pay */

/* The tokens begin .. end - 1 of ids: a prompt or a response. */
typedef struct napier_token_list {
    napier_indices ids;
    int64_t begin, end;
} napier_token_list;

static inline int64_t napier_token_list_size(const napier_token_list *list) { return list->end - list->begin; }

/* A distinct prompt. Its responses are first .. first + count - 1 of the order. */
typedef struct napier_prompt {
    napier_token_list list;
    int64_t first, count;
    int64_t group;       /* index of the group's first prompt */
    int64_t common;      /* length of the beginning that all prompts of the group share; 0: not in a group */
    const napier_kv *kv; /* holds its first `kept` tokens, but not all of the beginning; NULL: none */
    int64_t kept;
} napier_prompt;

/* Do not move it: lists may point into it. */
typedef struct napier_score_lists {
    napier_score_batch batch;
    bool unshared;
    bool rewards;         /* the model has a head of labels: the last row of each pair is wanted, no token is rated */
    int64_t prefix_token; /* replaces an empty prompt; negative: none */
    int64_t responses;    /* number of responses that are not empty; for rewards, of all */
    int64_t *order;       /* [responses] their indices in the batch */
    int64_t count;
    napier_prompt *prompts; /* [count] */
} napier_score_lists;

/* Response b of the batch. */
napier_token_list napier_score_response(const napier_score_lists *lists, int64_t b);

/* Checks the batch and makes the lists for the model's head. The batch must outlive them. */
napier_status napier_score_lists_make(napier_context *context, const napier_model *model,
                                      const napier_score_batch *batch, const napier_score_options *options,
                                      napier_score_lists *lists);
void napier_score_lists_free(napier_context *context, napier_score_lists *lists);

/* ---- The head ----------------------------------------------------------------------------------------------------
 *
 * Computes log-probabilities of tokens from rows of states with ops/head, a block of rows at a time. A row may rate
 * several tokens: the first tokens of a prompt's responses. */

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

/* The caller has set context, model, options, response_ids and results. tokens: the maximum of a batch. The
 * caller frees `memory` after the last use of the head. */
napier_status napier_score_head_allocate(napier_memory *memory, napier_score_head *head, int64_t tokens);

/* Adds a rating: row `row` of states rates the token at `target`. Rows must ascend. */
napier_status napier_score_head_add(napier_score_head *head, int64_t row, int64_t target);
/* Rates the rows that have been gathered. */
napier_status napier_score_head_flush(napier_score_head *head);

/* ---- The head of a reward model (rewards.c) ----------------------------------------------------------------------- */

typedef struct napier_reward_head {
    float *sums;   /* [rows, labels] of a chunk */
    float *memory; /* of a product */
} napier_reward_head;

/* The bytes for this number of responses. */
int64_t napier_reward_head_bytes(const napier_context *context, const napier_model *model, int64_t responses);
napier_status napier_reward_head_allocate(napier_memory *memory, const napier_model *model, int64_t responses,
                                          napier_reward_head *head);

/* ---- Chunks: a part of the ordered responses as a ragged batch ----------------------------------------------------
 *
 * The sequences of the batch are
 *     of a group:            its common beginning, once
 *     of each prompt:        the rest after that
 *     of each response:      all its tokens except the last; for rewards, all
 * The last row of a prompt rates the first token of each of its responses. The rows of a response rate its other
 * tokens. For rewards the last row of a response is wanted, or that of its prompt if it is empty. */

/* Responses first .. end - 1 of the order. prompt: the prompt of the first. */
typedef struct napier_score_chunk {
    int64_t first, end, prompt;
    napier_ragged_size size;
    napier_layers_plan layers; /* for that size */
    int64_t ratings;           /* number of tokens in its responses; for rewards, of responses */
    int64_t bytes;             /* of its layers and its head */
} napier_score_chunk;

/* The chunk after `chunk` ({0}: the first chunk): as many responses as fit in the model's memory, but at least one. The
 * responses of a prompt stay together if a chunk can hold them. */
napier_score_chunk napier_score_chunk_next(const napier_context *context, const napier_model *model,
                                           const napier_score_lists *lists, napier_score_chunk chunk);

/* Makes the chunk's sequences in an empty batch. */
void napier_score_chunk_batch(const napier_score_lists *lists, const napier_score_chunk *chunk, napier_ragged *batch);

/* Adds the rating of each token of the chunk's responses to the head, and rates what is left at the end. */
napier_status napier_score_chunk_rate(const napier_score_lists *lists, const napier_score_chunk *chunk,
                                      napier_score_head *head);

/* Multiplies the wanted rows by a reward model's head, and writes the row of `out` of each response of the chunk. */
void napier_score_chunk_rewards(napier_context *context, const napier_model *model, const napier_score_lists *lists,
                                const napier_score_chunk *chunk, napier_const_matrix states,
                                const napier_reward_head *head, napier_matrix out);

#endif
