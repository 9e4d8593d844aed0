/* umap/layout/gpu/layout_cuda.h - the forces on all vertices and the optimizers' steps on a device: shared by the
 * kernels (layout.cu) and the host code (layout_cuda.c). The order of a vertex's sum is that of layout_kernels.h. */
#ifndef NAPIER_UMAP_LAYOUT_GPU_LAYOUT_CUDA_H
#define NAPIER_UMAP_LAYOUT_GPU_LAYOUT_CUDA_H

#include "umap/options/force.h"
#include "umap/graph/gpu/graph_cuda.h"
#include "umap/layout/layout_kernels.h"

enum {
    NAPIER_FORCE_THREADS = 256,
    NAPIER_FORCE_WARPS = NAPIER_FORCE_THREADS / 32,
    NAPIER_LANE_STRIDE = 17,  /* floats between the components of 16 lanes' sums: 16 would cause bank conflicts */
    NAPIER_ACTING_EDGES = 64, /* queue of a warp, which processes 32 at a time */
    NAPIER_STEP_THREADS = 256
};

/* A piece of a row that is longer than NAPIER_PIECE_EDGES; and a vertex with such a row: its pieces, own edges
 * first. */
typedef struct napier_device_piece {
    int64_t begin;
    int32_t count;
    uint32_t v;
    int32_t pull; /* 1: edges of pulls */
} napier_device_piece;

typedef struct napier_device_heavy {
    uint32_t v;
    int32_t first, count; /* pieces */
} napier_device_heavy;

/* The fields mean the same as in napier_layout. */
typedef struct napier_force_job {
    napier_forces forces;
    const float *y;
    float *out;
    int64_t n;
    int32_t components;
    napier_device_graph edges, pulls;
    napier_device_state *state;

    float times;        /* multiplies each force; divided by the largest weight if by_highest */
    int32_t by_highest; /* weights are relative to the largest */
    int32_t sampled;
    uint32_t phase_key;
    int64_t epoch;

    const uint32_t *given; /* [n, samples]; NULL: draw them */
    int64_t samples;       /* per vertex, if the rate does not count per edge */
    double rate;           /* samples per edge that acts (times its share if all act) */
    int32_t rate_per_edge;
    uint32_t draw_key;

    float *wanted; /* [n] samples that the rate asks for, if all edges act and it counts per edge; else NULL */
    napier_device_piece *pieces;
    napier_device_heavy *heavy;
    float *sums;     /* [pieces, components] */
    int32_t *acting; /* [pieces] edges that act */
} napier_force_job;

/* y += the step for forces g, over `count` floats. */
typedef struct napier_step_job {
    float *y;
    const float *g;
    float *first, *second;
    int64_t count;
    napier_umap_optimizer_options options;
    float correction1, correction2, rate;
} napier_step_job;

/* Fills the output with NaN if an argument was bad. */
typedef struct napier_poison_job {
    float *out;
    int64_t count;
    const napier_device_state *state;
} napier_poison_job;

/* Checks that all values are finite and all targets below n. */
typedef struct napier_values_job {
    const float *values;
    const uint32_t *targets;
    int64_t count, n;
    napier_device_state *state;
    napier_cuda_faults *faults;
} napier_values_job;

#endif
