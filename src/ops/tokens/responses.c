/* ops/tokens/responses.c - ragged responses: counts their tokens, and walks over their tiles. */
#include "ops/tokens/responses.h"

#include "core/base/sizes.h"

int64_t napier_count_mask(const uint8_t *mask, int64_t begin, int64_t end) {
    enum { BLOCK = 64 };
    int64_t counted = end - begin, i = begin;
    if (!mask) {
        return counted;
    }
    for (; i + BLOCK <= end; i += BLOCK) {
        int out = 0;
        for (int j = 0; j < BLOCK; j++) {
            out += mask[i + j] == 0;
        }
        counted -= out;
    }
    for (; i < end; i++) {
        counted -= mask[i] == 0;
    }
    return counted;
}

/* ---- The iterator over tiles ------------------------------------------------------------------------------------- */

int64_t napier_response_at(const napier_responses *r, int64_t token) {
    int64_t low = 0, high = r->count; /* begin(low) <= token < begin(high), except that high may be count */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (napier_response_begin(r, middle) <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

napier_tiles napier_tiles_in(const napier_responses *r, int64_t begin, int64_t end) {
    napier_tiles t = {.responses = r, .end = end};
    if (r->count == 0) {
        t.end = begin;
        return t;
    }
    t.response = napier_response_at(r, begin);
    const int64_t start = napier_response_begin(r, t.response);
    t.next = start + (begin - start + NAPIER_TILE - 1) / NAPIER_TILE * NAPIER_TILE;
    return t;
}

bool napier_next_tile(napier_tiles *t) {
    const napier_responses *r = t->responses;
    int64_t stop = t->response < r->count ? napier_response_begin(r, t->response + 1) : r->tokens;
    while (t->next >= stop) {
        if (++t->response >= r->count) {
            return false;
        }
        t->next = stop;
        stop = napier_response_begin(r, t->response + 1);
    }
    if (t->next >= t->end) {
        return false;
    }
    t->first = t->next;
    t->n = (int)napier_least(stop - t->first, NAPIER_TILE);
    t->slot = napier_tile_slot(r, t->response, t->first);
    t->next = t->first + t->n;
    return true;
}

int64_t napier_token_chunk(const napier_context *context, int64_t tokens) {
    enum { SMALL = 1 << 14, LARGE = 1 << 17 };
    const int64_t share = tokens / (context->threads * (int64_t)8) / NAPIER_TILE * NAPIER_TILE;
    return share < SMALL ? SMALL : share > LARGE ? LARGE : share;
}
