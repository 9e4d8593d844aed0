/* lm/score/score_chunks.h - a piece of the order of responses as a ragged batch, and which of its rows rates which
 * token.
 *
 *     of a group:            its common beginning, once
 *     of each prompt:        what comes after that
 *     of each response:      all its tokens but the last
 * are the sequences. A prompt's last row rates the first token of each of its responses, a response's rows the
 * others. */
#ifndef NAPIER_LM_SCORE_SCORE_CHUNKS_H
#define NAPIER_LM_SCORE_SCORE_CHUNKS_H

#include "lm/decoder/ragged.h"
#include "lm/score/score_lists.h"

/* Responses first .. end - 1 of the order; prompt: that of the first. */
typedef struct napier_score_chunk {
    int64_t first, end, prompt;
    napier_ragged_size size;
    int64_t ratings; /* tokens of its responses */
} napier_score_chunk;

/* No chunk yet: the next one begins with the first response. */
static inline napier_score_chunk napier_score_chunk_none(void) { return (napier_score_chunk){0}; }

/* Bytes for a chunk. */
typedef int64_t napier_score_cost(const void *model, const napier_score_chunk *chunk);

/* The chunk after `chunk`: as many responses as cost at most `memory`, one at least; those of a prompt are not torn
 * apart if a chunk can hold them. */
napier_score_chunk napier_score_chunk_next(const napier_score_lists *lists, const napier_score_chunk *chunk,
                                           int64_t memory, napier_score_cost *cost, const void *model);

/* The prompt whose responses begin where the chunk ends. */
int64_t napier_score_prompt_at(const napier_score_lists *lists, int64_t prompt, int64_t response);

/* The chunk's sequences. */
void napier_score_chunk_batch(const napier_score_lists *lists, const napier_score_chunk *chunk, napier_ragged *batch);

/* Wanted row `row` of the batch rates the token at `target` of the batch's response_ids. */
typedef napier_status napier_score_rate(void *argument, int64_t row, int64_t target);
/* Calls it for each token of the chunk's responses, rows ascending. */
napier_status napier_score_chunk_ratings(const napier_score_lists *lists, const napier_score_chunk *chunk,
                                         napier_score_rate *rate, void *argument);

#endif
