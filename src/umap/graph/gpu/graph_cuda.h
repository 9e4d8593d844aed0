/* umap/graph/gpu/graph_cuda.h - graphs in device memory: from edges or rows that the caller gives to rows that are
 * checked, and those turned round. What the kernels (graph.cu) and the host half (graph_cuda.c) share. */
#ifndef NAPIER_UMAP_GRAPH_GPU_GRAPH_CUDA_H
#define NAPIER_UMAP_GRAPH_GPU_GRAPH_CUDA_H

#include <napier/umap.h>

#include "core/gpu/fault.h"

/* What a call finds out on the device, before its own kernels run. Cleared memory to begin with. */
typedef struct napier_device_state {
    int32_t bad;     /* an argument cannot be: graphs are empty, and results NaN */
    int32_t highest; /* the bits of the largest weight: as numbers they compare as weights do */
    int32_t heavy_count, piece_count;
} napier_device_state;

/* Rows of a graph: those of v are starts[v] .. starts[v + 1] - 1. starts NULL: no graph. */
typedef struct napier_device_graph {
    int64_t *starts; /* [n + 1] */
    uint32_t *targets;
    float *weights;
} napier_device_graph;

/* What the caller gives: sorted edges, or (edges NULL) rows. */
typedef struct napier_device_source {
    const napier_umap_edge *edges;
    const int64_t *starts;
    const uint32_t *targets;
    const float *weights;
    int64_t n, count;
} napier_device_source;

enum {
    NAPIER_GRAPH_THREADS = 256, /* of all kernels of graph.cu */
    NAPIER_SCAN_ITEMS = 8,      /* of a thread */
    NAPIER_SCAN_TILE = NAPIER_GRAPH_THREADS * NAPIER_SCAN_ITEMS,
    NAPIER_SORT_BITS = 8, /* of a pass of the sort by target */
    NAPIER_SORT_DIGITS = 1 << NAPIER_SORT_BITS,
    NAPIER_SORT_WARPS = 4,   /* of a block */
    NAPIER_SORT_CHUNK = 4096 /* edges of a warp */
};

typedef struct napier_check_job {
    napier_device_source source;
    napier_device_state *state;
    napier_cuda_faults *faults;
} napier_check_job;

/* Rows of the edges that stay: those of weight > 0, and at least the largest over `epochs` where that is not 0. */
typedef struct napier_rows_job {
    napier_device_source source;
    float epochs;
    const napier_device_state *state;
    napier_device_graph rows; /* starts: first the counts of all rows */
    uint32_t *sources;        /* of each edge; may be NULL */
} napier_rows_job;

/* values[0 .. count) become sums of those before; values[count] the sum of all. sums: one for each tile. */
typedef struct napier_scan_job {
    int64_t *values;
    int64_t count;
    int64_t *sums;
} napier_scan_job;

/* One pass of a stable sort of edges by a digit of their key. */
typedef struct napier_sort_job {
    const uint32_t *keys, *sources;
    const float *weights;
    uint32_t *sorted_keys, *sorted_sources;
    float *sorted_weights;
    const int64_t *edges; /* how many there are */
    int64_t chunks;       /* of NAPIER_SORT_CHUNK, for as many as there may be */
    int64_t *counts;      /* [NAPIER_SORT_DIGITS, chunks]: then where they go */
    int shift;            /* of the digit in the key */
} napier_sort_job;

typedef struct napier_starts_job {
    const uint32_t *keys; /* ascending */
    const int64_t *edges;
    int64_t n;
    int64_t *starts;
} napier_starts_job;

#endif
