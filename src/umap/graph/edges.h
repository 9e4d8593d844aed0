/* umap/graph/edges.h - the order of edges and the range of weights. Plain C that CUDA compiles too. */
#ifndef NAPIER_UMAP_GRAPH_EDGES_H
#define NAPIER_UMAP_GRAPH_EDGES_H

#include <napier/umap.h>
#include <stdbool.h>

#include "core/math/both.h"

/* Finite and not negative? */
NAPIER_BOTH bool napier_is_weight(float w) { return w >= 0.0f && w <= 0x1.fffffep127f; }

/* Compares by source, target and weight. Only equal edges tie, so the result of sorting does not depend on the input's
 * order. */
NAPIER_BOTH bool napier_edge_is_after(const napier_umap_edge *a, const napier_umap_edge *b) {
    if (a->source != b->source) {
        return a->source > b->source;
    }
    if (a->target != b->target) {
        return a->target > b->target;
    }
    return a->weight > b->weight;
}

/* Names edge e vertices below n, has it a weight, and does it not come before the previous one? */
NAPIER_BOTH bool napier_edge_is_valid(const napier_umap_edge *edges, int64_t e, int64_t n) {
    const napier_umap_edge *edge = &edges[e];
    return edge->source < n && edge->target < n && napier_is_weight(edge->weight) &&
           !(e > 0 && napier_edge_is_after(edge - 1, edge));
}

/* The first of sorted edges whose source is v or later. */
NAPIER_BOTH int64_t napier_first_edge_of(const napier_umap_edge *edges, int64_t count, int64_t v) {
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        low = edges[middle].source < v ? middle + 1 : low;
        high = edges[middle].source < v ? high : middle;
    }
    return low;
}

#endif
