/* umap/graph/gpu/fuzzy_cuda.h - the fuzzy set on a device: shared by the kernels (fuzzy.cu) and the host code. */
#ifndef NAPIER_UMAP_GRAPH_GPU_FUZZY_CUDA_H
#define NAPIER_UMAP_GRAPH_GPU_FUZZY_CUDA_H

#include "umap/graph/gpu/graph_cuda.h"

enum { NAPIER_FUZZY_THREADS = 128 };

typedef struct napier_fuzzy_job {
    const int32_t *indices; /* NULL: scales only */
    const float *distances; /* [n, k] */
    int64_t n, k;
    double local_connectivity;
    double target; /* log2(k) */
    double mix;
    double *sums; /* sums of blocks of NAPIER_MEAN_BLOCK distances; at the end sums[0] is the mean */
    int64_t *finite;
    float *rhos, *sigmas;
    uint32_t *row_targets; /* [n, k] the members of each row, at its front */
    float *row_weights;
    napier_device_graph directed; /* the same without gaps; starts holds the counts at first */
    uint32_t *sources;
    napier_device_graph reversed;
    napier_device_graph out; /* the union */
    napier_device_state *state;
    napier_cuda_faults *faults;
} napier_fuzzy_job;

#endif
