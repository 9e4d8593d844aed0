/* lm/score/score_chunks.h - turns a part of the ordered responses into a ragged batch, and says which row rates which
 * token.
 *
 * The sequences of the batch are
 *     of a group:            its common beginning, once
 *     of each prompt:        the rest after that
 *     of each response:      all its tokens except the last
 * The last row of a prompt rates the first token of each of its responses. The rows of a response rate its other
 * tokens. */
#ifndef NAPIER_LM_SCORE_SCORE_CHUNKS_H
#define NAPIER_LM_SCORE_SCORE_CHUNKS_H

#include "lm/decoder/ragged.h"
#include "lm/score/score_lists.h"

/* Responses first .. end - 1 of the order. prompt: the prompt of the first. */
typedef struct napier_score_chunk {
    int64_t first, end, prompt;
    napier_ragged_size size;
    int64_t ratings; /* number of tokens in its responses */
} napier_score_chunk;

/* The chunk before the first one. */
static inline napier_score_chunk napier_score_chunk_none(void) { return (napier_score_chunk){0}; }

/* The bytes that a chunk takes. */
typedef int64_t napier_score_cost(const void *model, const napier_score_chunk *chunk);

/* The chunk after `chunk`: as many responses as fit in `memory`, but at least one. The responses of a prompt stay
 * together if a chunk can hold them. */
napier_score_chunk napier_score_chunk_next(const napier_score_lists *lists, const napier_score_chunk *chunk,
                                           int64_t memory, napier_score_cost *cost, const void *model);

/* The prompt whose responses begin where the chunk ends. */
int64_t napier_score_prompt_at(const napier_score_lists *lists, int64_t prompt, int64_t response);

/* Makes the chunk's sequences. */
void napier_score_chunk_batch(const napier_score_lists *lists, const napier_score_chunk *chunk, napier_ragged *batch);

/* Called for each token: wanted row `row` of the batch rates the token at `target` in the batch's response_ids. */
typedef napier_status napier_score_rate(void *argument, int64_t row, int64_t target);
/* Calls `rate` for each token of the chunk's responses, in ascending order of rows. */
napier_status napier_score_chunk_ratings(const napier_score_lists *lists, const napier_score_chunk *chunk,
                                         napier_score_rate *rate, void *argument);

#endif
