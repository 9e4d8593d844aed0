/* lm/score/score_lists.h - finds equal prompts, and prompts with a common beginning.
 *
 * It orders the responses that are not empty, so that responses with equal prompts are neighbours, and so are prompts
 * with a common beginning (a group). */
#ifndef NAPIER_LM_SCORE_SCORE_LISTS_H
#define NAPIER_LM_SCORE_SCORE_LISTS_H

#include <napier/model.h>
#include <stdbool.h>

#include "core/base/context.h"

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
    int64_t group;  /* index of the group's first prompt */
    int64_t common; /* length of the beginning that all prompts of the group share; 0: not in a group */
} napier_prompt;

/* Do not move it: lists may point into it. */
typedef struct napier_score_lists {
    napier_score_batch batch;
    bool unshared;
    int64_t prefix_token; /* replaces an empty prompt; negative: none */
    int64_t responses;    /* number of responses that are not empty */
    int64_t *order;       /* [responses] their indices in the batch */
    int64_t count;
    napier_prompt *prompts; /* [count] */
} napier_score_lists;

/* Response b of the batch. */
napier_token_list napier_score_response(const napier_score_lists *lists, int64_t b);

/* Checks the batch (ids must be less than `vocabulary`) and makes the lists. The batch must outlive them. */
napier_status napier_score_lists_make(napier_context *context, int64_t vocabulary, const napier_score_batch *batch,
                                      const napier_score_options *options, napier_score_lists *lists);
void napier_score_lists_free(napier_context *context, napier_score_lists *lists);

#endif
