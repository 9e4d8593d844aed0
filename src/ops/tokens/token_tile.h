/* ops/tokens/token_tile.h - from tiles of z to the results of a row, for logits in memory (token_rows.inc.h) and for
 * logits that are never stored (linear_token_logprobs). z is a logit after napier_token_options.
 *
 *   tile     1 to 1024 contiguous z, starting at a column that is a multiple of 1024, are reduced to five numbers:
 *            a pure function of the tile. They go to the tile's own slot, so threads may reduce tiles in any order.
 *   seen     values that are counted or compared over a row: the largest z, ranks, the top k. Each thread has its own.
 *            They merge in any order with the same bits, because they are integers and comparisons.
 *   finish   reduces the slots of a row to its logsumexp, entropy and mean, in the order of the slots.
 *
 * Sums. The terms are the exact sum of ops/softmax/sum.h. Entropy needs one more sum, of terms times a distance:
 *     H = log_sum + sum_j p_j (max - z_j).
 * Nothing in it is negative, so nothing cancels and H >= 0. A tile's sum is moved to the row's maximum in double by
 *     sum_j t_j (M - z_j) = sum_j t_j (m - z_j) + (M - m) sum_j t_j      (m the tile's maximum, M the row's)
 * Within a tile that sum has the 256 lanes of sum.h, with a chain of fma in each. */
#ifndef NAPIER_OPS_TOKENS_TOKEN_TILE_H
#define NAPIER_OPS_TOKENS_TOKEN_TILE_H

#include <napier/rl.h>

#include "ops/softmax/sum.h"

/* How logits become z. */
typedef struct napier_token_rules {
    float temperature;   /* 1: none */
    float softcap;       /* 0: none */
    const uint8_t *keep; /* of row 0; NULL: keep all */
    int64_t keep_stride; /* bytes */
} napier_token_rules;

NAPIER_BOTH const uint8_t *napier_token_keep(const napier_token_rules *rules, int64_t row, int64_t column) {
    return rules->keep ? rules->keep + row * rules->keep_stride + column : NULL;
}

/* The wanted results of each row, besides the sum of its terms. */
typedef struct napier_token_wants {
    bool entropy, total, argmax;
    int64_t ranks; /* number of ids per row whose ranks are wanted */
    int64_t top_k;
} napier_token_wants;

/* The slots of a row, one per tile. Each array has space for the number of tiles rounded up to 16. */
typedef struct napier_token_slots {
    float *max;    /* of the tile; NaN if it has a NaN, -inf if it has only -inf */
    float *count;  /* number of elements equal to max */
    float *rest;   /* sum of the terms of all other elements, as in napier_tile_sum */
    float *spread; /* sum of the terms times (max - z); for entropy */
    float *total;  /* sum of z over the elements that `keep` selects; for label smoothing */
    /* NULL, or [tiles][1024] for the terms of ordinary tiles, which a gradient then need not compute again. Those of bf16
     * are in the order of napier_bf16_even and napier_bf16_odd, 32 at a time. */
    float *terms;
    float *least; /* with terms: of a tile whose terms are there no more than its smallest z; else NaN */
} napier_token_slots;

enum { NAPIER_TOKEN_SLOT_ARRAYS = 5 };

NAPIER_BOTH int64_t napier_token_tiles(int64_t cols) { return (cols + NAPIER_TILE - 1) / NAPIER_TILE; }

/* The number of floats for the slots of a row of `tiles` tiles, and the slots made from such memory. */
NAPIER_BOTH int64_t napier_token_slot_floats(int64_t tiles) {
    return NAPIER_TOKEN_SLOT_ARRAYS * ((tiles + 15) / 16 * 16);
}
NAPIER_BOTH napier_token_slots napier_token_slots_of(float *room, int64_t tiles) {
    const int64_t n = (tiles + 15) / 16 * 16;
    return (napier_token_slots){room, room + n, room + 2 * n, room + 3 * n, room + 4 * n, NULL, NULL};
}

typedef struct napier_token_top {
    float z;
    int64_t id;
} napier_token_top;

/* The state of a row over the tiles processed so far. before[k] counts the tokens that precede the id chosen[k], whose
 * z must be known before the first tile. top is a heap with the last of the order at its root. */
typedef struct napier_token_seen {
    float max;
    int64_t argmax;        /* -1: no element above -inf yet */
    int64_t *ids;          /* [wants.ranks] */
    float *chosen;         /* [wants.ranks] their z */
    int64_t *before;       /* [wants.ranks] */
    napier_token_top *top; /* [wants.top_k] */
    int64_t top_count;
} napier_token_seen;

/* Resets the state for a new row. ids, chosen, before and top keep their memory and values. */
NAPIER_BOTH void napier_token_seen_start(napier_token_seen *seen, const napier_token_wants *wants) {
    seen->max = -INFINITY;
    seen->argmax = -1;
    seen->top_count = 0;
    for (int64_t k = 0; k < wants->ranks; k++) {
        seen->before[k] = 0;
    }
}

/* True if a precedes b in the order of the top k. */
NAPIER_BOTH bool napier_token_before(napier_token_top a, napier_token_top b) {
    return a.z > b.z || (a.z == b.z && a.id < b.id);
}

NAPIER_BOTH void napier_token_top_sink(napier_token_top *heap, int64_t count, napier_token_top item) {
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && napier_token_before(heap[child], heap[child + 1]) ? 1 : 0;
        if (!napier_token_before(item, heap[child])) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = item;
}

/* Adds an item, and keeps only the best `limit`. */
NAPIER_BOTH void napier_token_top_add(napier_token_seen *seen, int64_t limit, napier_token_top item) {
    if (seen->top_count == limit) {
        if (napier_token_before(item, seen->top[0])) {
            napier_token_top_sink(seen->top, limit, item);
        }
        return;
    }
    int64_t at = seen->top_count++;
    for (int64_t parent; at > 0 && napier_token_before(seen->top[parent = (at - 1) / 2], item); at = parent) {
        seen->top[at] = seen->top[parent];
    }
    seen->top[at] = item;
}

/* Sorts the heap into a list. It is no longer a heap afterwards. */
NAPIER_BOTH void napier_token_top_sort(napier_token_seen *seen) {
    for (int64_t n = seen->top_count - 1; n > 0; n--) {
        const napier_token_top last = seen->top[0], item = seen->top[n];
        napier_token_top_sink(seen->top, n, item);
        seen->top[n] = last;
    }
}

NAPIER_BOTH void napier_token_seen_merge(napier_token_seen *into, const napier_token_seen *from,
                                         const napier_token_wants *wants) {
    if (from->argmax >= 0 && (into->argmax < 0 || napier_token_before((napier_token_top){from->max, from->argmax},
                                                                      (napier_token_top){into->max, into->argmax}))) {
        into->max = from->max;
        into->argmax = from->argmax;
    }
    for (int64_t k = 0; k < wants->ranks; k++) {
        into->before[k] += from->before[k];
    }
    for (int64_t i = 0; i < from->top_count; i++) {
        napier_token_top_add(into, wants->top_k, from->top[i]);
    }
}

/* The values of a row from which its results and gradients are computed. */
typedef struct napier_token_final {
    napier_final row; /* kind, max, lse, log_sum, and the values softmax needs */
    float entropy;    /* NaN if the row is not finite; 0 if not wanted */
    double total;     /* sum of z over kept tokens; 0 if not wanted */
} napier_token_final;

#endif
