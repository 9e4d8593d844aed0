/* umap/layout/gpu/gradient_cuda.h - the primitives on a device: shared by the kernels (gradient.cu) and the host
 * code. */
#ifndef NAPIER_UMAP_LAYOUT_GPU_GRADIENT_CUDA_H
#define NAPIER_UMAP_LAYOUT_GPU_GRADIENT_CUDA_H

#include <napier/umap.h>

#include "core/gpu/fault.h"
#include "umap/options/force.h"
#include "umap/layout/layout_kernels.h"

enum { NAPIER_GRADIENT_THREADS = 256 };

typedef struct napier_edge_forces_job {
    napier_forces forces;
    const float *y;
    int64_t n;
    int32_t components;
    const napier_umap_edge *edges;
    int64_t count;
    float *source, *target; /* either may be NULL */
    napier_cuda_faults *faults;
} napier_edge_forces_job;

typedef struct napier_segments_job {
    const napier_umap_edge *edges;
    int64_t count, n;
    int64_t *starts, *counts;
    napier_cuda_faults *faults;
} napier_segments_job;

typedef struct napier_reduce_job {
    const float *rows;
    int64_t row_count;
    int32_t components;
    const int64_t *starts, *counts;
    int64_t n;
    float *sums;
    napier_cuda_faults *faults;
} napier_reduce_job;

typedef struct napier_apply_job {
    float *y;
    const float *g;
    int64_t count;
    float rate;
    napier_cuda_faults *faults;
} napier_apply_job;

typedef struct napier_draw_job {
    uint32_t key;
    int64_t n, rate;
    uint32_t *targets;
} napier_draw_job;

#endif
