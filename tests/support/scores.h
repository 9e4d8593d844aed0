/* support/scores.h - all results of token_logprobs in one block of memory, so that they can be compared as one. */
#ifndef NAPIER_TESTS_SCORES_H
#define NAPIER_TESTS_SCORES_H

#include <napier/rl.h>
#include <string.h>

#include "support/check.h"

typedef struct scores {
    size_t bytes;
    char *memory;
    int64_t rows, k, top_k;
    int64_t *argmax, *rank, *top_ids;
    float *logprobs, *lse, *entropy, *loss, *top_logprobs;
} scores;

static inline scores scores_make(int64_t rows, int64_t k, int64_t top_k) {
    scores s = {.rows = rows, .k = k, .top_k = top_k};
    const size_t n = (size_t)rows, chosen = (size_t)(rows * k), top = (size_t)(rows * top_k);
    s.bytes = (n + chosen + top) * 8 + (3 * n + chosen + top) * 4;
    s.memory = scratch((int64_t)s.bytes, 1);
    memset(s.memory, 0x5a, s.bytes);
    s.argmax = (int64_t *)(void *)s.memory;
    s.rank = s.argmax + n;
    s.top_ids = s.rank + chosen;
    s.lse = (float *)(void *)(s.top_ids + top);
    s.entropy = s.lse + n;
    s.loss = s.entropy + n;
    s.logprobs = s.loss + n;
    s.top_logprobs = s.logprobs + chosen;
    return s;
}

static inline napier_token_results scores_views(const scores *s) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.lse = napier_array_f32(s->lse, s->rows);
    r.entropy = napier_array_f32(s->entropy, s->rows);
    r.argmax = s->argmax;
    if (s->k > 0) {
        r.logprobs = napier_rows_f32(s->logprobs, s->rows, s->k);
        r.rank = s->rank;
    }
    if (s->k == 1) {
        r.loss = napier_array_f32(s->loss, s->rows);
    }
    if (s->top_k > 0) {
        r.top_ids = s->top_ids;
        r.top_logprobs = napier_rows_f32(s->top_logprobs, s->rows, s->top_k);
        r.top_k = s->top_k;
    }
    return r;
}

static inline bool scores_fill(napier_context *context, napier_const_matrix logits, const int64_t *ids,
                               const napier_token_options *options, scores *s) {
    const napier_token_results r = scores_views(s);
    return works(napier_token_logprobs, context, logits, napier_indices_i64(ids, s->rows * s->k), options, &r);
}

static inline bool same_scores(const scores *a, const scores *b) { return memcmp(a->memory, b->memory, a->bytes) == 0; }

#endif
