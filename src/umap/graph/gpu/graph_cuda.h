/* umap/graph/gpu/graph_cuda.h - graphs in device memory: makes checked rows from the caller's edges or rows, and the
 * reversed graph. Shared by the kernels (graph.cu) and the host code (graph_cuda.c). */
#ifndef NAPIER_UMAP_GRAPH_GPU_GRAPH_CUDA_H
#define NAPIER_UMAP_GRAPH_GPU_GRAPH_CUDA_H

#include <napier/umap.h>
#include <stdbool.h>

#include "core/gpu/fault.h"

/* The result of the checks that run on the device before a call's own kernels. Zero at first. */
typedef struct napier_device_state {
    int32_t bad;     /* an argument is invalid: graphs are empty and results NaN */
    int32_t highest; /* the bits of the largest weight; they compare like the weights */
    int32_t heavy_count, piece_count;
    int64_t largest; /* the bits of the largest size of a sample, f64, less its offset */
} napier_device_state;

/* A graph in CSR form: the edges of v are starts[v] .. starts[v + 1] - 1. starts NULL: no graph. */
typedef struct napier_device_graph {
    int64_t *starts; /* [n + 1] */
    uint32_t *targets;
    float *weights;
} napier_device_graph;

/* The caller's graph: sorted edges, or rows if edges is NULL. */
typedef struct napier_device_source {
    const napier_umap_edge *edges;
    const int64_t *starts;
    const uint32_t *targets;
    const float *weights;
    int64_t n, count;
} napier_device_source;

enum {
    NAPIER_GRAPH_THREADS = 256, /* per block, in all kernels of graph.cu */
    NAPIER_SCAN_ITEMS = 8,      /* per thread */
    NAPIER_SCAN_TILE = NAPIER_GRAPH_THREADS * NAPIER_SCAN_ITEMS,
    NAPIER_SORT_BITS = 8, /* per pass of the sort by target */
    NAPIER_SORT_DIGITS = 1 << NAPIER_SORT_BITS,
    NAPIER_SORT_WARPS = 4,   /* per block */
    NAPIER_SORT_CHUNK = 4096 /* edges per warp */
};

/* A graph to make, of the edges of weight > 0: the job of the kernels that check the source and make the rows. The caller
 * sets the first four fields, napier_device_build_take what takes memory, and napier_device_build_run the rest. */
typedef struct napier_device_build {
    napier_device_source source;
    float epochs;  /* edges below highest / epochs are left out too; 0: none */
    bool reversed; /* also make pulls */
    napier_device_state *state;

    napier_device_graph edges, pulls; /* the results; starts holds the counts of the rows at first */
    int64_t *sums, *counts;
    int64_t chunks;
    uint32_t *keys[2], *sources[2]; /* sources[1]: of each edge, if reversed */
    float *weights[2];
    napier_cuda_faults *faults;
} napier_device_build;

/* Exclusive prefix sums of values[0 .. count); values[count] is the total. sums: one for each tile. */
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
    const int64_t *edges; /* their number */
    int64_t chunks;       /* chunks of NAPIER_SORT_CHUNK for the largest possible number of edges */
    int64_t *counts;      /* [NAPIER_SORT_DIGITS, chunks] counts, then positions */
    int shift;            /* position of the digit in the key */
} napier_sort_job;

typedef struct napier_starts_job {
    const uint32_t *keys; /* ascending */
    const int64_t *edges;
    int64_t n;
    int64_t *starts;
} napier_starts_job;

#if !defined(CUDA_KERNEL)
#include "core/gpu/launch.h"

/* Launches a kernel for `count` independent pieces, `per_block` to a block. NAPIER_DEVICE_PUT names the kernel and passes
 * a pointer to the job, which gives its size. */
napier_status napier_device_put(const napier_cuda_call *call, napier_cuda_kernel kernel, int64_t count,
                                int64_t per_block, int threads, int64_t shared_bytes, const void *job, size_t job_size);
#define NAPIER_DEVICE_PUT(call, kernel, count, per_block, threads, shared_bytes, job) \
    napier_device_put(call, NAPIER_CUDA_KERNEL(kernel), count, per_block, threads, shared_bytes, job, sizeof *(job))
/* The same for a thread per piece, without shared memory. */
#define NAPIER_DEVICE_EACH(call, kernel, count, threads, job) \
    NAPIER_DEVICE_PUT(call, kernel, count, threads, threads, 0, job)

/* Checks a device array: aligned, and not NULL unless it is empty. */
napier_status napier_device_check_array(napier_context *context, const char *name, const void *data, int64_t count,
                                        size_t alignment);

/* Takes the memory of the build; pointers are NULL while only the size is computed. */
void napier_device_build_take(napier_cuda_room *room, napier_device_build *build);
/* Makes the graph. state has been cleared; invalid input sets state->bad and gives an empty graph. */
napier_status napier_device_build_run(const napier_cuda_call *call, napier_device_build *build);
/* Makes pulls from edges, whose sources are at sources[1]. */
napier_status napier_device_build_reverse(const napier_cuda_call *call, napier_device_build *build);

/* Exclusive prefix sums of values[0 .. count); values[count] is the total. sums: one element for each tile. */
napier_status napier_device_sum_before(const napier_cuda_call *call, int64_t *values, int64_t count, int64_t *sums);
#endif

#endif
