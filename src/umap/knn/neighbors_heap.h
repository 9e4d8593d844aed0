/* umap/knn/neighbors_heap.h - the nearest points so far, in a heap with the farthest on top.
 *
 * A neighbour is one 64-bit number: the bits of its distance, which is not negative, above those of its index. The
 * numbers compare like (distance, index), so the final contents of a heap do not depend on the order of offers. */
#ifndef NAPIER_UMAP_KNN_NEIGHBORS_HEAP_H
#define NAPIER_UMAP_KNN_NEIGHBORS_HEAP_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/math/both.h"

#define NAPIER_NEAR_NONE UINT64_MAX /* no neighbour: compares as farther than all */

/* distance >= 0, or inf. */
NAPIER_BOTH uint64_t napier_near_of(float distance, uint32_t index) {
    uint32_t bits;
    memcpy(&bits, &distance, sizeof bits);
    return (uint64_t)bits << 32 | index;
}

NAPIER_BOTH uint32_t napier_near_index(uint64_t near) { return (uint32_t)near; }

NAPIER_BOTH float napier_near_distance(uint64_t near) {
    const uint32_t bits = (uint32_t)(near >> 32);
    float distance;
    memcpy(&distance, &bits, sizeof distance);
    return near == NAPIER_NEAR_NONE ? INFINITY : distance;
}

static inline void napier_heap_clear(uint64_t *heap, int64_t size) {
    for (int64_t i = 0; i < size; i++) {
        heap[i] = NAPIER_NEAR_NONE;
    }
}

/* Moves larger children up from `at`, and puts `near` where that ends. */
static inline void napier_heap_sink(uint64_t *heap, int64_t size, int64_t at, uint64_t near) {
    for (int64_t child = 2 * at + 1; child < size; child = 2 * at + 1) {
        child += child + 1 < size && heap[child + 1] > heap[child];
        if (heap[child] <= near) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = near;
}

/* Replaces the farthest by `near` if that is nearer. `near` must not be in the heap; size >= 1. */
static inline bool napier_heap_offer(uint64_t *heap, int64_t size, uint64_t near) {
    if (near >= heap[0]) {
        return false;
    }
    napier_heap_sink(heap, size, 0, near);
    return true;
}

/* Sorts ascending, nearest first. */
static inline void napier_heap_sort(uint64_t *heap, int64_t size) {
    for (int64_t end = size - 1; end > 0; end--) {
        const uint64_t last = heap[end];
        heap[end] = heap[0];
        napier_heap_sink(heap, end, 0, last);
    }
}

#endif
