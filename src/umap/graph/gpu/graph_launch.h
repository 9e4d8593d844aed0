/* umap/graph/gpu/graph_launch.h - shared by the host code of this folder: a running call, and the graph that it makes
 * first. */
#ifndef NAPIER_UMAP_GRAPH_GPU_GRAPH_LAUNCH_H
#define NAPIER_UMAP_GRAPH_GPU_GRAPH_LAUNCH_H

#include "core/gpu/launch.h"
#include "umap/graph/gpu/graph_cuda.h"

typedef struct napier_device_call {
    napier_cuda_context *context;
    struct CUstream_st *stream;
    const char *what; /* the call's name, for error messages */
} napier_device_call;

/* Launches a kernel for `count` independent pieces, `per_block` to a block. */
napier_status napier_device_put(const napier_device_call *call, napier_cuda_kernel kernel, int64_t count,
                                int64_t per_block, int threads, int64_t shared_bytes, const void *job, size_t job_size);

/* Checks a device array: aligned, and not NULL unless it is empty. */
napier_status napier_device_check_array(napier_context *context, const char *name, const void *data, int64_t count,
                                        size_t alignment);

/* Sets state->bad if values are not finite or targets are not below n. */
napier_status napier_device_check_values(const napier_device_call *call, const float *values, const uint32_t *targets,
                                         int64_t count, int64_t n, napier_device_state *state);
/* Fills the output with NaN if state->bad is set. */
napier_status napier_device_poison(const napier_device_call *call, float *out, int64_t count,
                                   const napier_device_state *state);

/* A graph to make. The caller sets the first four fields, napier_device_build_take the rest. */
typedef struct napier_device_build {
    napier_device_source source;
    float epochs;  /* edges below highest / epochs are left out; 0: only those of weight 0 */
    bool reversed; /* also make pulls */
    napier_device_state *state;

    napier_device_graph edges, pulls; /* the results */
    int64_t *sums, *counts;
    int64_t chunks;
    uint32_t *keys[2], *sources[2];
    float *weights[2];
} napier_device_build;

/* Takes the memory of the build; pointers are NULL while only the size is computed. */
void napier_device_build_take(napier_cuda_room *room, napier_device_build *build);
/* Makes the graph. state has been cleared; invalid input sets state->bad and gives an empty graph. */
napier_status napier_device_build_run(const napier_device_call *call, napier_device_build *build);
/* Makes pulls from edges, whose sources are at sources[1]. */
napier_status napier_device_build_reverse(const napier_device_call *call, napier_device_build *build);

/* Exclusive prefix sums of values[0 .. count); values[count] is the total. sums: one element for each tile. */
napier_status napier_device_sum_before(const napier_device_call *call, int64_t *values, int64_t count, int64_t *sums);

#endif
