/* umap/graph/components.h - the connected components of a graph. */
#ifndef NAPIER_UMAP_GRAPH_COMPONENTS_H
#define NAPIER_UMAP_GRAPH_COMPONENTS_H

#include <napier/umap.h>

#include "core/base/scope.h"

typedef struct napier_graph_components {
    int64_t count;
    uint32_t *labels; /* [n] component of each vertex; components are in the order of their first vertices */
    uint32_t *order;  /* [n] vertices by component, ascending within each */
    int64_t *begins;  /* [count + 1] of each component in `order` */
    uint32_t *local;  /* [edges] index of the target in its component; NULL: one component */
} napier_graph_components;

/* Finds the components of a symmetric graph; they live in `memory`. */
napier_status napier_umap_graph_components(napier_memory *memory, const napier_umap_graph *graph,
                                           napier_graph_components *out);

#endif
