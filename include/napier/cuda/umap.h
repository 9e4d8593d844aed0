/* napier/cuda/umap.h - UMAP on a GPU: the neighbours, the scales of the fuzzy set, and the layout, with the CPU's bits.
 *
 * All calls are bitwise (napier/cuda/device.h): each gives what the call of the same name in napier/umap.h gives on the
 * CPU, for any device, grid and order of threads. No sum uses atomic operations.
 *
 * Shapes, formulas and checks are those of napier/umap.h, with these differences:
 *   - Arrays are in device memory: embeddings, edges, graphs, targets, samples, results. `params`, `options`, `epochs`
 *     and the structs of graphs and optimizers are in host memory.
 *   - The kernels check what is in device memory: that edges are sorted, that vertices and targets exist, and that
 *     weights and elements are finite. napier_cuda_synchronize reports the index of a value at fault. The float results
 *     of that call are then NaN: all of them where they depend on each other (forces, epochs), otherwise only those
 *     concerned. Each call states what its integer results are then.
 *   - napier_cuda_nearest_neighbors reports samples that the CPU multiplies by a power of two (docs/umap.md).
 *   - Forces and layouts have at most 50 components; more is UNSUPPORTED.
 *   - There are no reports of progress, because no call waits: `progress` must be NULL.
 *
 * The comment of each call states its workspace, for E edges, n vertices and C components. Ask the call for the exact
 * size. */
#ifndef NAPIER_CUDA_UMAP_H
#define NAPIER_CUDA_UMAP_H

#include <napier/cuda/device.h>
#include <napier/umap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Primitives --------------------------------------------------------------------------------------------------*/

/* Workspace: none for this call and the next four. */
NAPIER_API napier_status napier_cuda_umap_edge_gradients(napier_cuda_context *context, struct CUstream_st *stream,
                                                         napier_cuda_workspace *workspace,
                                                         const napier_umap_params *params,
                                                         napier_const_matrix embedding, const napier_umap_edge *edges,
                                                         int64_t count, napier_matrix source_gradients,
                                                         napier_matrix target_gradients);

/* The edges must be sorted. If they are not, starts and counts may be those of other rows, but stay within the list. */
NAPIER_API napier_status napier_cuda_umap_segments(napier_cuda_context *context, struct CUstream_st *stream,
                                                   napier_cuda_workspace *workspace, const napier_umap_edge *edges,
                                                   int64_t count, int64_t n, int64_t *starts, int64_t *counts);

/* Rows that are not finite are added like all others. */
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

/* The state of an optimizer, in the caller's device memory: [n, n_components] floats per array, all 0 at the start. The
 * struct is in host memory. A call adds its epochs to `steps` when it has put them into the stream. */
typedef struct napier_cuda_umap_optimizer {
    size_t struct_size;
    napier_umap_optimizer_options options;
    int64_t steps; /* done so far */
    float *first;  /* velocity, or Adam's mean; NULL for SGD */
    float *second; /* Adam's mean square; else NULL */
} napier_cuda_umap_optimizer;

#define NAPIER_CUDA_UMAP_OPTIMIZER_INIT \
    { sizeof(napier_cuda_umap_optimizer), NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT, 0, NULL, NULL }

/* Puts all epochs into the stream at once: about 15 kernels that build the graph, then three per epoch. The values that
 * change from epoch to epoch are arguments of the launches. So a CUDA graph that captured the call repeats the same
 * epochs with the same steps.
 * Workspace: that of napier_cuda_umap_gradients, and 4 n C + 4 n bytes. */
NAPIER_API napier_status napier_cuda_umap_optimize_epochs(
    napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_workspace *workspace,
    const napier_umap_params *params, const napier_umap_epochs *epochs, const napier_umap_edge *edges, int64_t count,
    const uint32_t *targets, napier_cuda_umap_optimizer *optimizer, napier_matrix embedding);

/* A graph in rows, like napier_umap_graph, in device memory. The arrays may be longer than starts[n] edges. */
typedef struct napier_cuda_umap_graph {
    int64_t n, count;      /* vertices; the edges for which targets and weights have space */
    const int64_t *starts; /* [n + 1] */
    const uint32_t *targets;
    const float *weights;
} napier_cuda_umap_graph;

/* The whole layout: n_epochs epochs of Adam. An invalid row of the graph is reported by its vertex. options->progress
 * must be NULL.
 * Workspace: 8 E + 12 n + 12 n C bytes. */
NAPIER_API napier_status napier_cuda_umap_optimize_layout(napier_cuda_context *context, struct CUstream_st *stream,
                                                          napier_cuda_workspace *workspace,
                                                          const napier_cuda_umap_graph *graph,
                                                          const napier_umap_options *options, napier_matrix embedding);

/* ---- Neighbours --------------------------------------------------------------------------------------------------*/

/* Measures all pairs, and finds what napier_nearest_neighbors finds with NAPIER_NEIGHBORS_EXACT. Samples are dense, of
 * any dtype and stride, with at most 2^24 columns. metric_values (of seuclidean) are in device memory. UNSUPPORTED:
 * mahalanobis, haversine, minkowski except for p 1, 2 and inf, precomputed distances; sparse samples;
 * NAPIER_NEIGHBORS_NN_DESCENT. A value that is not finite is reported by its index in row-major order; indices are then
 * -1 and distances NaN. f64 samples far from 0 are moved as on the CPU. What the CPU multiplies by a power of two first is
 * reported as values that are wrong: samples of which all are below 2^-39, and distances that overflow. Workspace: about
 * 4 n (cols + 1) + 8 n n_neighbors bytes, 8 for each offset, and more lists if n is small. */
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

/* An invalid distance or neighbour is reported by its index in [n, n_neighbors]; then all scales are NaN.
 * Workspace: some hundred bytes, and n n_neighbors / 4096. */
NAPIER_API napier_status napier_cuda_umap_smooth_knn_dist(napier_cuda_context *context, struct CUstream_st *stream,
                                                          napier_cuda_workspace *workspace, const float *distances,
                                                          int64_t n, int64_t n_neighbors, double local_connectivity,
                                                          float *rhos, float *sigmas);

/* Writes the graph as three arrays in the order of napier_umap_graph: starts [n + 1], and targets and weights with
 * space for 2 n n_neighbors edges. napier_cuda_umap_optimize_layout takes the graph in this form. After an invalid
 * input it is empty. Workspace: about 36 n n_neighbors + 30 n bytes. */
NAPIER_API napier_status napier_cuda_umap_fuzzy_simplicial_set(napier_cuda_context *context, struct CUstream_st *stream,
                                                               napier_cuda_workspace *workspace, const int32_t *indices,
                                                               const float *distances, int64_t n, int64_t n_neighbors,
                                                               double local_connectivity, double set_op_mix_ratio,
                                                               int64_t *starts, uint32_t *targets, float *weights);

#ifdef __cplusplus
}
#endif
#endif
