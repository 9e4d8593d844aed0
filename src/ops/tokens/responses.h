/* ops/tokens/responses.h - ragged responses: gives every tile a place for its sums.
 *
 * Response b has the tokens offsets[b] .. offsets[b + 1] - 1. It is cut into tiles of 1024 tokens, counted from its
 * first token. Each tile has its own slot for its sums. The slots of a response are contiguous and are added in double,
 * in that order. So threads can divide the tiles in any way, and one huge response is split over threads like a
 * thousand small ones, with the same bits. */
#ifndef NAPIER_OPS_TOKENS_RESPONSES_H
#define NAPIER_OPS_TOKENS_RESPONSES_H

#include <napier/types.h>
#include <stdbool.h>

#include "core/base/view.h"
#include "ops/softmax/sum.h"

/* The number of tokens in [begin, end) that count. mask NULL: all count. */
int64_t napier_count_mask(const uint8_t *mask, int64_t begin, int64_t end);

typedef struct napier_responses {
    napier_indices offsets;
    int64_t count;  /* B */
    int64_t tokens; /* T */
} napier_responses;

static inline napier_responses napier_responses_of(napier_indices offsets) {
    napier_responses r = {offsets, offsets.size - 1, 0};
    r.tokens = napier_index_at(offsets, r.count);
    return r;
}

static inline int64_t napier_response_begin(const napier_responses *r, int64_t b) {
    return napier_index_at(r->offsets, b);
}
static inline int64_t napier_response_size(const napier_responses *r, int64_t b) {
    return napier_index_at(r->offsets, b + 1) - napier_index_at(r->offsets, b);
}

/* The slot of a response's first tile, and of the tile that starts at its token `first`. The slots of a response are consecutive, and no two
 * tiles share one, because ceil(n / 1024) <= floor((o + n) / 1024) - floor(o / 1024) + 1. */
static inline int64_t napier_first_slot(const napier_responses *r, int64_t b) {
    return napier_response_begin(r, b) / NAPIER_TILE + b;
}
static inline int64_t napier_tile_slot(const napier_responses *r, int64_t b, int64_t first) {
    return napier_first_slot(r, b) + (first - napier_response_begin(r, b)) / NAPIER_TILE;
}
static inline int64_t napier_tile_slots(const napier_responses *r) { return r->tokens / NAPIER_TILE + r->count; }
static inline int64_t napier_response_tiles(const napier_responses *r, int64_t b) {
    return (napier_response_size(r, b) + NAPIER_TILE - 1) / NAPIER_TILE;
}

/* The last response that starts at or before `token`. There must be one. */
int64_t napier_response_at(const napier_responses *r, int64_t token);

/* An iterator over the tiles that start in tokens [begin, end). */
typedef struct napier_tiles {
    const napier_responses *responses;
    int64_t end;      /* of the walk */
    int64_t response; /* this tile: its response, first token, number of tokens, and slot */
    int64_t first;
    int n;
    int64_t slot;
    int64_t next; /* first token of the next tile of this response */
} napier_tiles;

napier_tiles napier_tiles_in(const napier_responses *r, int64_t begin, int64_t end);
/* False at the end. */
bool napier_next_tile(napier_tiles *t);

/* The number of tokens that a worker takes at a time. */
int64_t napier_token_chunk(const napier_context *context, int64_t tokens);

#endif
