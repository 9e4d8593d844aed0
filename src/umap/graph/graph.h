/* umap/graph/graph.h - weighted graphs in rows, and the checks of edge lists. */
#ifndef NAPIER_UMAP_GRAPH_GRAPH_H
#define NAPIER_UMAP_GRAPH_GRAPH_H

#include <napier/umap.h>

#include "core/base/context.h"

/* A graph with room for `count` edges; its contents are not set. */
napier_status napier_umap_graph_create(napier_context *context, int64_t n, int64_t count, napier_umap_graph **out);

static inline int64_t napier_umap_graph_edges(const napier_umap_graph *graph) { return graph->starts[graph->n]; }

/* Fewer than 2^31 vertices, and edges unless there are none. */
napier_status napier_umap_check_counts(napier_context *context, const napier_umap_edge *edges, int64_t count,
                                       int64_t n);

/* Sorted, vertices below n, weights finite and not negative? */
napier_status napier_umap_check_edges(napier_context *context, const napier_umap_edge *edges, int64_t count, int64_t n);

/* The same graph with every edge turned round; rows are ascending again. */
napier_status napier_umap_graph_reversed(napier_context *context, const napier_umap_graph *graph,
                                         napier_umap_graph **out);

/* Is it a graph that a caller may hand in: rows ascending, targets below n, weights finite and > 0? */
napier_status napier_umap_check_graph(napier_context *context, const char *name, const napier_umap_graph *graph);

#endif
