/* umap/graph/fuzzy.h - the parts of the fuzzy set that supervision also uses. */
#ifndef NAPIER_UMAP_GRAPH_FUZZY_H
#define NAPIER_UMAP_GRAPH_FUZZY_H

#include <napier/umap.h>

#include "core/base/context.h"

/* The memberships before symmetrisation: row i holds the weights of its neighbours, ascending by index, without itself.
 * Arguments have been checked. Weights that underflow are kept as 0. */
napier_status napier_umap_directed_set(napier_context *context, const int32_t *indices, const float *distances,
                                       int64_t n, int64_t k, double local_connectivity, napier_umap_graph **out);

/* mix (A + A' - A.A') + (1 - mix) A.A', without zeros and without edges from a vertex to itself. */
napier_status napier_umap_graph_union(napier_context *context, const napier_umap_graph *graph, double mix,
                                      napier_umap_graph **out);

/* Checks that distances [n, n_neighbors] exist and that n_neighbors is valid, not the values. */
napier_status napier_umap_check_knn(napier_context *context, const void *distances, int64_t n, int64_t n_neighbors);
napier_status napier_umap_check_connectivity(napier_context *context, double local_connectivity);

#endif
