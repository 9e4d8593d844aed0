/* umap/knn/gpu/neighbors_cuda.h - exact neighbours on a device: shared by the kernels (neighbors.cu) and the host
 * code. */
#ifndef NAPIER_UMAP_KNN_GPU_NEIGHBORS_CUDA_H
#define NAPIER_UMAP_KNN_GPU_NEIGHBORS_CUDA_H

#include "umap/graph/gpu/graph_cuda.h"
#include "umap/metric/span.h"

enum {
    NAPIER_NEAR_THREADS = 256,
    NAPIER_NEAR_TILE = 64,   /* queries, and samples, in a tile: a block measures all their pairs */
    NAPIER_NEAR_SHARE = 4,   /* queries, and samples, per thread */
    NAPIER_NEAR_CHUNK = 32,  /* columns of a tile in shared memory, double-buffered */
    NAPIER_NEAR_LANES = 64,  /* lanes of squared_distance */
    NAPIER_GAP_LANES = 16,   /* lanes of the other sums */
    NAPIER_NEAR_BOUND = 512, /* threads for which the registers must suffice: two blocks */
    /* Bytes of a block: two chunks of both sides, a queue, two words for each query. */
    NAPIER_NEAR_SHARED = 2 * 2 * NAPIER_NEAR_CHUNK * NAPIER_NEAR_TILE * 4 + NAPIER_NEAR_TILE * NAPIER_NEAR_TILE * 8 +
                         2 * NAPIER_NEAR_TILE * 4
};

/* Transformed rows, stored by columns: column c of row i is columns[c * stride + i]. stride is a multiple of the tile;
 * the padding is 0. */
typedef struct napier_device_points {
    float *columns;
    int64_t n, stride;
    float *counts; /* [stride] for boolean metrics: the number of true columns; else NULL */
} napier_device_points;

typedef struct napier_points_job {
    napier_const_matrix rows; /* of the caller */
    int64_t width;            /* their columns, plus one if rows without direction need their own column */
    napier_metric metric;
    napier_device_points points;
    const float *variances;
    float *measured;    /* variances computed from these points; NULL if they are given */
    double *offsets;    /* f64 rows of a metric that moves: subtracted from columns or rows (samples.h); else NULL */
    bool by_column;     /* they are those of columns; spans are measured by column too */
    double least, most; /* the table's largest size must not be between 0 and least, nor most or more */
    napier_device_state *state;
    napier_cuda_faults *faults;
} napier_points_job;

typedef struct napier_order_job {
    int32_t *order; /* [width] the columns, lane by lane, in the order in which lanes are folded */
    int32_t width;
    int32_t lanes;  /* squared distances: a power of two from 2 to 64 that is not less than width, or 64; others: 16 */
    int32_t folded; /* by halves; else one after the other */
} napier_order_job;

typedef struct napier_near_job {
    napier_device_points queries, samples;
    int32_t self; /* a point is not its own neighbour */
    napier_points_kind kind;
    napier_metric metric;
    int64_t cols;
    const int32_t *order;
    int32_t width, lanes;
    int64_t wanted;
    int32_t splits;    /* parts of the samples; each has its own block for the same queries */
    uint64_t *nearest; /* [splits, queries, wanted], ascending */
    int32_t *indices;
    float *distances; /* [queries, wanted + self] */
    const napier_device_state *state;
    napier_cuda_faults *faults;
} napier_near_job;

#endif
