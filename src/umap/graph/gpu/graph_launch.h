/* umap/graph/gpu/graph_launch.h - what the host halves of this room share: a call under way, and the graph that it
 * makes first. */
#ifndef NAPIER_UMAP_GRAPH_GPU_GRAPH_LAUNCH_H
#define NAPIER_UMAP_GRAPH_GPU_GRAPH_LAUNCH_H

#include "core/gpu/launch.h"
#include "umap/graph/gpu/graph_cuda.h"

typedef struct napier_device_call {
    napier_cuda_context *context;
    struct CUstream_st *stream;
    const char *what; /* the call's name, for the texts of errors */
} napier_device_call;

/* Launches a kernel for `count` independent pieces, `per_block` to a block. */
napier_status napier_device_put(const napier_device_call *call, napier_cuda_kernel kernel, int64_t count,
                                int64_t per_block, int threads, int64_t shared_bytes, const void *job, size_t job_size);

/* Device memory that a kernel reads or writes element by element: not NULL unless it is empty, and aligned. */
napier_status napier_device_check_array(napier_context *context, const char *name, const void *data, int64_t count,
                                        size_t alignment);

/* Notes elements that are not finite (values), or targets that are not below n. */
napier_status napier_device_check_values(const napier_device_call *call, const float *values, const uint32_t *targets,
                                         int64_t count, int64_t n, napier_device_state *state);
/* Writes NaN everywhere, if something was noted. */
napier_status napier_device_poison(const napier_device_call *call, float *out, int64_t count,
                                   const napier_device_state *state);

/* A graph that is to be made. The first four are set by the caller, the rest by take. */
typedef struct napier_device_build {
    napier_device_source source;
    float epochs;  /* edges below the largest weight over this are left out; 0: none but those of weight 0 */
    bool reversed; /* pulls are made too */
    napier_device_state *state;

    napier_device_graph edges, pulls; /* what is made */
    int64_t *sums, *counts;
    int64_t chunks;
    uint32_t *keys[2], *sources[2];
    float *weights[2];
} napier_device_build;

/* NULLs while only the size is asked. */
void napier_device_build_take(napier_cuda_room *room, napier_device_build *build);
/* state has been cleared; what is bad is noted there, and gives an empty graph. */
napier_status napier_device_build_run(const napier_device_call *call, napier_device_build *build);
/* The second half: pulls from edges, whose sources are at sources[1]. */
napier_status napier_device_build_reverse(const napier_device_call *call, napier_device_build *build);

/* values[0 .. count) become sums of those before; values[count] the sum of all. sums: room for one of each tile. */
napier_status napier_device_sum_before(const napier_device_call *call, int64_t *values, int64_t count, int64_t *sums);

#endif
