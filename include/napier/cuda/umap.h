/* napier/cuda/umap.h - UMAP on a GPU: neighbours, the fuzzy set's scales, and the layout, with the CPU's bits.
 *
 * Everything here is bitwise (napier/cuda/device.h): each call gives what its namesake in napier/umap.h gives on the
 * CPU, whatever the device, the grid and the order in which threads run. Nothing is summed by atomic operations.
 *
 * Shapes, formulas and checks are those of napier/umap.h; what differs:
 *   - Arrays are the device's: embeddings, edges, graphs, targets, samples, results. `params`, `options`, `epochs` and
 *     the structs of graphs and optimizers are the host's.
 *   - What lies on the device is checked there. Edges that are not sorted, vertices and targets that are not there,
 *     weights and elements that are not finite: napier_cuda_synchronize tells the index; then a call's floats are NaN,
 *     all of them where they hang together (forces, epochs), else those concerned; whole
 *     numbers are said with the call.
 *   - Progress is not told, as no call waits: `progress` must be NULL.
 *
 * What a call needs of the workspace is said with it, for E edges, n vertices, C components; ask for the exact size. */
#ifndef NAPIER_CUDA_UMAP_H
#define NAPIER_CUDA_UMAP_H

#include <napier/cuda/device.h>
#include <napier/umap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Primitives --------------------------------------------------------------------------------------------------*/

/* Workspace: none, for this one and the next four. */
NAPIER_API napier_status napier_cuda_umap_edge_gradients(napier_cuda_context *context, struct CUstream_st *stream,
                                                         napier_cuda_workspace *workspace,
                                                         const napier_umap_params *params,
                                                         napier_const_matrix embedding, const napier_umap_edge *edges,
                                                         int64_t count, napier_matrix source_gradients,
                                                         napier_matrix target_gradients);

/* Sorted edges: where they are not, starts and counts may be those of other rows, but lie within the list. */
NAPIER_API napier_status napier_cuda_umap_segments(napier_cuda_context *context, struct CUstream_st *stream,
                                                   napier_cuda_workspace *workspace, const napier_umap_edge *edges,
                                                   int64_t count, int64_t n, int64_t *starts, int64_t *counts);

/* Rows that are not finite are summed as they are. */
NAPIER_API napier_status napier_cuda_umap_reduce_segments(napier_cuda_context *context, struct CUstream_st *stream,
                                                          napier_cuda_workspace *workspace,
                                                          napier_const_matrix edge_gradients, const int64_t *starts,
                                                          const int64_t *counts, napier_matrix gradients);

NAPIER_API napier_status napier_cuda_umap_apply(napier_cuda_context *context, struct CUstream_st *stream,
                                                napier_cuda_workspace *workspace, float learning_rate,
                                                napier_const_matrix gradients, napier_matrix embedding);

NAPIER_API napier_status napier_cuda_umap_negative_targets(napier_cuda_context *context, struct CUstream_st *stream,
                                                           napier_cuda_workspace *workspace, uint64_t seed,
                                                           int64_t epoch, int64_t n, int64_t rate, uint32_t *targets);

/* Workspace: 256 bytes. */
NAPIER_API napier_status napier_cuda_umap_negative_gradients(napier_cuda_context *context, struct CUstream_st *stream,
                                                             napier_cuda_workspace *workspace,
                                                             const napier_umap_params *params,
                                                             napier_const_matrix embedding, const uint32_t *targets,
                                                             int64_t rate, napier_matrix gradients);

/* Workspace: about 8 E + 8 n bytes, with move_targets another 28 E + 8 n. */
NAPIER_API napier_status napier_cuda_umap_gradients(napier_cuda_context *context, struct CUstream_st *stream,
                                                    napier_cuda_workspace *workspace, const napier_umap_params *params,
                                                    napier_const_matrix embedding, const napier_umap_edge *edges,
                                                    int64_t count, int move_targets, napier_matrix gradients);

/* ---- Optimizers and epochs ---------------------------------------------------------------------------------------*/

/* What an optimizer remembers, in the caller's device memory: [n, n_components] floats each, all 0 to begin with. The
 * struct is the host's. A call counts its epochs in `steps` when it has put them into the stream. */
typedef struct napier_cuda_umap_optimizer {
    size_t struct_size;
    napier_umap_optimizer_options options;
    int64_t steps; /* taken so far */
    float *first;  /* velocity, or Adam's mean; SGD: NULL */
    float *second; /* Adam's mean square; others: NULL */
} napier_cuda_umap_optimizer;

#define NAPIER_CUDA_UMAP_OPTIMIZER_INIT \
    { sizeof(napier_cuda_umap_optimizer), NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT, 0, NULL, NULL }

/* All epochs of a call go into the stream at once: three kernels each, after some 15 that make the graph; what changes
 * from epoch to epoch is told with each launch. In a CUDA graph they are what they were when it was captured: the same
 * epochs again, with the same steps.
 * Workspace: as napier_cuda_umap_gradients, and 4 n C + 4 n bytes. */
NAPIER_API napier_status napier_cuda_umap_optimize_epochs(
    napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_workspace *workspace,
    const napier_umap_params *params, const napier_umap_epochs *epochs, const napier_umap_edge *edges, int64_t count,
    const uint32_t *targets, napier_cuda_umap_optimizer *optimizer, napier_matrix embedding);

/* A graph in rows, as napier_umap_graph, in device memory. There may be room for more edges than starts[n]. */
typedef struct napier_cuda_umap_graph {
    int64_t n, count;      /* vertices; edges that targets and weights have room for */
    const int64_t *starts; /* [n + 1] */
    const uint32_t *targets;
    const float *weights;
} napier_cuda_umap_graph;

/* The whole layout: n_epochs epochs of Adam. A row that cannot be is told by its vertex. options->progress must be
 * NULL.
 * Workspace: 8 E + 12 n + 12 n C bytes. */
NAPIER_API napier_status napier_cuda_umap_optimize_layout(napier_cuda_context *context, struct CUstream_st *stream,
                                                          napier_cuda_workspace *workspace,
                                                          const napier_cuda_umap_graph *graph,
                                                          const napier_umap_options *options, napier_matrix embedding);

/* ---- Neighbours --------------------------------------------------------------------------------------------------*/

/* All pairs are measured: what napier_nearest_neighbors finds with NAPIER_NEIGHBORS_EXACT. Dense samples of any dtype
 * and stride, at most 2^24 columns. metric_values (of seuclidean) are in device memory. UNSUPPORTED: mahalanobis,
 * haversine, minkowski but for p 1, 2 and inf, precomputed; sparse samples; NAPIER_NEIGHBORS_NN_DESCENT. Where a value
 * is not finite: its index counts row by row, indices are -1 and distances NaN.
 * Workspace: about 4 n (cols + 1) + 8 n n_neighbors bytes, more lists where n is small. */
NAPIER_API napier_status napier_cuda_nearest_neighbors(napier_cuda_context *context, struct CUstream_st *stream,
                                                       napier_cuda_workspace *workspace, napier_umap_samples samples,
                                                       const napier_neighbors_options *options, int32_t *indices,
                                                       float *distances);
NAPIER_API napier_status napier_cuda_nearest_neighbors_of(napier_cuda_context *context, struct CUstream_st *stream,
                                                          napier_cuda_workspace *workspace, napier_umap_samples samples,
                                                          napier_umap_samples queries,
                                                          const napier_neighbors_options *options, int32_t *indices,
                                                          float *distances);

/* ---- The fuzzy set -----------------------------------------------------------------------------------------------*/

/* A distance or neighbour that cannot be is told by its index in [n, n_neighbors]; then all scales are NaN.
 * Workspace: some hundred bytes, and n n_neighbors / 4096. */
NAPIER_API napier_status napier_cuda_umap_smooth_knn_dist(napier_cuda_context *context, struct CUstream_st *stream,
                                                          napier_cuda_workspace *workspace, const float *distances,
                                                          int64_t n, int64_t n_neighbors, double local_connectivity,
                                                          float *rhos, float *sigmas);

/* The graph as three arrays, in the order of napier_umap_graph: starts [n + 1]; targets and weights have room for
 * 2 n n_neighbors edges. It goes into napier_cuda_umap_optimize_layout as it is. After a fault it is empty.
 * Workspace: about 36 n n_neighbors + 30 n bytes. */
NAPIER_API napier_status napier_cuda_umap_fuzzy_simplicial_set(napier_cuda_context *context, struct CUstream_st *stream,
                                                               napier_cuda_workspace *workspace, const int32_t *indices,
                                                               const float *distances, int64_t n, int64_t n_neighbors,
                                                               double local_connectivity, double set_op_mix_ratio,
                                                               int64_t *starts, uint32_t *targets, float *weights);

#ifdef __cplusplus
}
#endif
#endif
