/* ops/tokens/token_tile.h - from tiles of z to what is wanted of a row, for logits in memory (token_rows.inc.h) and
 * for logits that never are (linear_token_logprobs). z: what napier_token_options make of the logits.
 *
 *   tile     1 to 1024 contiguous z, starting at a column that is a multiple of 1024, come to five numbers: a pure function
 *            of the tile. They go to the tile's own slot, so tiles of a row may come from any thread, in any order.
 *   seen     what is counted or compared over a row: the largest z, ranks, the top k. Each thread has its own; they merge
 *            in any order without changing a bit, being integers and comparisons.
 *   finish   the slots of a row to its logsumexp, entropy and mean, in the order of the slots.
 *
 * Sums. The terms are the exact sum of ops/softmax/sum.h. Entropy needs one more sum, of terms times a distance:
 *     H = log_sum + sum_j p_j (max - z_j),
 * nothing of which is negative, so nothing cancels, H >= 0, and a tile is moved to the row's maximum by
 *     sum_j t_j (M - z_j) = sum_j t_j (m - z_j) + (M - m) sum_j t_j      (m the tile's maximum, M the row's)
 * in double. In a tile that sum has the 256 lanes of sum.h, a chain of fma in each. */
#ifndef NAPIER_OPS_TOKENS_TOKEN_TILE_H
#define NAPIER_OPS_TOKENS_TOKEN_TILE_H

#include <napier/rl.h>

#include "ops/softmax/sum.h"

/* How logits become z. */
typedef struct napier_token_rules {
    float temperature;   /* 1: none */
    float softcap;       /* 0: none */
    const uint8_t *keep; /* of row 0; NULL: all */
    int64_t keep_stride; /* bytes */
} napier_token_rules;

NAPIER_BOTH const uint8_t *napier_token_keep(const napier_token_rules *rules, int64_t row, int64_t column) {
    return rules->keep ? rules->keep + row * rules->keep_stride + column : NULL;
}

/* What is wanted of each row beside the sum of its terms. */
typedef struct napier_token_wants {
    bool entropy, total, argmax;
    int64_t ranks; /* ids of a row whose ranks are wanted */
    int64_t top_k;
} napier_token_wants;

/* A row's slots, one per tile; each array has room for the number of tiles rounded up to 16. */
typedef struct napier_token_slots {
    float *max;    /* of the tile; NaN if there is one in it, -inf if all is -inf */
    float *count;  /* elements equal to it */
    float *rest;   /* the sum of the terms of all others, as in napier_tile_sum */
    float *spread; /* the sum of the terms times (max - z); for entropy */
    float *total;  /* the sum of z, of which those left out by `keep` are 0; for label smoothing */
} napier_token_slots;

enum { NAPIER_TOKEN_SLOT_ARRAYS = 5 };

NAPIER_BOTH int64_t napier_token_tiles(int64_t cols) { return (cols + NAPIER_TILE - 1) / NAPIER_TILE; }

/* Floats that the slots of a row of `tiles` tiles need, and the slots made of them. */
NAPIER_BOTH int64_t napier_token_slot_floats(int64_t tiles) {
    return NAPIER_TOKEN_SLOT_ARRAYS * ((tiles + 15) / 16 * 16);
}
NAPIER_BOTH napier_token_slots napier_token_slots_of(float *room, int64_t tiles) {
    const int64_t n = (tiles + 15) / 16 * 16;
    return (napier_token_slots){room, room + n, room + 2 * n, room + 3 * n, room + 4 * n};
}

typedef struct napier_token_top {
    float z;
    int64_t id;
} napier_token_top;

/* What is known of a row from the tiles seen so far. before[k] counts the tokens before the id chosen[k], whose z must be
 * known before any tile is seen. top: a heap, the last of the order at its root. */
typedef struct napier_token_seen {
    float max;
    int64_t argmax;        /* -1: nothing above -inf yet */
    int64_t *ids;          /* [wants.ranks] */
    float *chosen;         /* [wants.ranks] their z */
    int64_t *before;       /* [wants.ranks] */
    napier_token_top *top; /* [wants.top_k] */
    int64_t top_count;
} napier_token_seen;

/* Forgets what was seen; ids, chosen, before and top stay where they are. */
NAPIER_BOTH void napier_token_seen_start(napier_token_seen *seen, const napier_token_wants *wants) {
    seen->max = -INFINITY;
    seen->argmax = -1;
    seen->top_count = 0;
    for (int64_t k = 0; k < wants->ranks; k++) {
        seen->before[k] = 0;
    }
}

/* Does a stand before b among the top k? */
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

/* Takes an item into the best `limit`. */
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

/* The heap to a list in order. It is no heap afterwards. */
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

/* All that results and gradients of a row need. */
typedef struct napier_token_final {
    napier_final row; /* kind, max, lse, log_sum, and what softmax needs */
    float entropy;    /* NaN for a row that is not finite; 0 if not wanted */
    double total;     /* the sum of z over kept tokens; 0 if not wanted */
} napier_token_final;

#endif
