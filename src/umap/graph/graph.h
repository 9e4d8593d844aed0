/* umap/graph/graph.h - weighted graphs in CSR form, checks of edge lists, and the parts of the fuzzy set. */
#ifndef NAPIER_UMAP_GRAPH_GRAPH_H
#define NAPIER_UMAP_GRAPH_GRAPH_H

#include <napier/umap.h>

#include "core/base/scope.h"

/* Allocates a graph of `count` edges, in one block; its contents are not set. */
napier_status napier_umap_graph_create(napier_context *context, int64_t n, int64_t count, napier_umap_graph **out);

/* Writes the edges of row v, ascending, and returns their number; targets NULL: only counts them. */
typedef int64_t napier_graph_row(const void *argument, int64_t v, uint32_t *targets, float *weights);

/* Makes a graph row by row, over threads: first counts the edges, then writes them. */
napier_status napier_umap_graph_of_rows(napier_context *context, int64_t n, napier_graph_row *row, const void *argument,
                                        napier_umap_graph **out);

static inline int64_t napier_umap_graph_edges(const napier_umap_graph *graph) { return graph->starts[graph->n]; }

/* Checks that n is below 2^31, and that edges is not NULL unless count is 0. */
napier_status napier_umap_check_counts(napier_context *context, const napier_umap_edge *edges, int64_t count,
                                       int64_t n);

/* Checks that edges are sorted, vertices below n, and weights finite and not negative. */
napier_status napier_umap_check_edges(napier_context *context, const napier_umap_edge *edges, int64_t count, int64_t n);

/* The same graph with every edge reversed; rows are ascending. */
napier_status napier_umap_graph_reversed(napier_context *context, const napier_umap_graph *graph,
                                         napier_umap_graph **out);

/* The largest weight; 0 without edges. */
float napier_umap_highest_weight(const napier_umap_graph *graph);

/* Checks a graph from a caller: rows ascending, targets below n, weights finite and > 0. */
napier_status napier_umap_check_graph(napier_context *context, const char *name, const napier_umap_graph *graph);

/* ---- The fuzzy set (fuzzy.c) ------------------------------------------------------------------------------------- */

/* The memberships before symmetrisation: row i holds the weights of its neighbours, ascending by index, without itself.
 * Arguments have been checked. Weights that underflow are kept as 0. */
napier_status napier_umap_directed_set(napier_context *context, const int32_t *indices, const float *distances,
                                       int64_t n, int64_t k, double local_connectivity, napier_umap_graph **out);

/* mix (A + A' - A.A') + (1 - mix) A.A', without zeros and without edges from a vertex to itself. */
napier_status napier_umap_graph_union(napier_context *context, const napier_umap_graph *graph, double mix,
                                      napier_umap_graph **out);

/* ---- Two fuzzy sets (combine.c) ---------------------------------------------------------------------------------- */

/* The intersection of two graphs of as many points; weight 0.5 is the product. */
napier_status napier_umap_graph_meet(napier_context *context, const napier_umap_graph *left,
                                     const napier_umap_graph *right, double weight, napier_umap_graph **out);

/* Divides the rows of `joint` by their largest weight, with n_neighbors > 0 raises each to the power at which it sums to
 * log2(n_neighbors), replaces *graph by the union with the transpose, and destroys joint. *graph may be NULL. */
napier_status napier_umap_reset_local_connectivity(napier_context *context, napier_umap_graph *joint,
                                                   int64_t n_neighbors, napier_umap_graph **graph);

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* Checks that distances [n, n_neighbors] exist and that n_neighbors is valid, not the values. */
napier_status napier_umap_check_knn(napier_context *context, const void *distances, int64_t n, int64_t n_neighbors);
napier_status napier_umap_check_connectivity(napier_context *context, double local_connectivity);

#endif
