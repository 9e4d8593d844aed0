/* lm/score/score_lists.h - prompts and responses, sorted out: which prompts are equal, and which begin alike.
 *
 * Responses that are not empty get an order in which those of equal prompts follow one another, and prompts that begin
 * alike (a group) too. */
#ifndef NAPIER_LM_SCORE_SCORE_LISTS_H
#define NAPIER_LM_SCORE_SCORE_LISTS_H

#include <napier/model.h>
#include <stdbool.h>

#include "core/base/context.h"

enum { NAPIER_COMMON_LEAST = 16 }; /* tokens of a common beginning that are worth the trouble */

/* Tokens begin .. end - 1 of ids: those of a prompt or a response. */
typedef struct napier_token_list {
    napier_indices ids;
    int64_t begin, end;
} napier_token_list;

static inline int64_t napier_token_list_size(const napier_token_list *list) { return list->end - list->begin; }

/* A distinct prompt, whose responses are first .. first + count - 1 of the order. */
typedef struct napier_prompt {
    napier_token_list list;
    int64_t first, count;
    int64_t group;  /* the group's first prompt */
    int64_t common; /* tokens that all prompts of the group begin with; 0: it stands alone */
} napier_prompt;

/* Stays where it is made: lists may point into it. */
typedef struct napier_score_lists {
    napier_score_batch batch;
    bool unshared;
    int64_t prefix_token; /* instead of an empty prompt; negative: none */
    int64_t responses;    /* that are not empty */
    int64_t *order;       /* [responses] their numbers in the batch */
    int64_t count;
    napier_prompt *prompts; /* [count] */
} napier_score_lists;

/* Response number b of the batch. */
napier_token_list napier_score_response(const napier_score_lists *lists, int64_t b);

/* The batch and its numbers are checked: ids below `vocabulary`. It must outlive the lists. */
napier_status napier_score_lists_make(napier_context *context, int64_t vocabulary, const napier_score_batch *batch,
                                      const napier_score_options *options, napier_score_lists *lists);
void napier_score_lists_free(napier_context *context, napier_score_lists *lists);

#endif
