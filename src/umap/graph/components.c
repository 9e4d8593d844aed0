/* umap/graph/components.c - the connected components of a graph (components.h). */
#include "umap/graph/components.h"

#include <string.h>

#include "umap/graph/graph.h"

static uint32_t root_of(uint32_t *parents, uint32_t v) {
    while (parents[v] != v) {
        parents[v] = parents[parents[v]];
        v = parents[v];
    }
    return v;
}

/* The root of a component is its least vertex. */
static void find_components(const napier_umap_graph *g, uint32_t *parents, napier_graph_components *c) {
    for (int64_t v = 0; v < g->n; v++) {
        parents[v] = (uint32_t)v;
    }
    for (int64_t v = 0; v < g->n; v++) {
        uint32_t root = root_of(parents, (uint32_t)v);
        for (int64_t e = g->starts[v]; e < g->starts[v + 1]; e++) {
            const uint32_t other = root_of(parents, g->targets[e]);
            if (other < root) {
                parents[root] = other;
                root = other;
            } else {
                parents[other] = root;
            }
        }
    }
    c->count = 0;
    for (int64_t v = 0; v < g->n; v++) { /* a root precedes its other vertices */
        const uint32_t root = root_of(parents, (uint32_t)v);
        c->labels[v] = root == v ? (uint32_t)c->count++ : c->labels[root];
    }
}

/* Sorts vertices by component (counting sort). `places` receives the index of each in its component. */
static void order_vertices(int64_t n, uint32_t *places, napier_graph_components *c) {
    memset(c->begins, 0, ((size_t)c->count + 1) * sizeof *c->begins);
    for (int64_t v = 0; v < n; v++) {
        places[v] = (uint32_t)c->begins[c->labels[v] + 1]++;
    }
    for (int64_t i = 0; i < c->count; i++) {
        c->begins[i + 1] += c->begins[i];
    }
    for (int64_t v = 0; v < n; v++) {
        c->order[c->begins[c->labels[v]] + places[v]] = (uint32_t)v;
    }
}

napier_status napier_umap_graph_components(napier_memory *memory, const napier_umap_graph *graph,
                                           napier_graph_components *out) {
    const int64_t n = graph->n, edges = napier_umap_graph_edges(graph);
    NAPIER_MEMORY(own, memory->context);
    uint32_t *scratch = napier_take(&own, n, sizeof *scratch);
    NAPIER_TRY(napier_taken(&own, "graph: no memory for %lld vertices", (long long)n));
    out->labels = napier_take(memory, n, sizeof *out->labels);
    out->order = napier_take(memory, n, sizeof *out->order);
    NAPIER_TRY(napier_taken(memory, "graph: no memory for %lld vertices", (long long)n));
    find_components(graph, scratch, out);
    out->begins = napier_take(memory, out->count + 1, sizeof *out->begins);
    out->local = out->count > 1 ? napier_take(memory, edges, sizeof *out->local) : NULL;
    NAPIER_TRY(napier_taken(memory, "graph: no memory for %lld components", (long long)out->count));
    order_vertices(n, scratch, out);
    for (int64_t e = 0; e < edges && out->local; e++) {
        out->local[e] = scratch[graph->targets[e]];
    }
    return NAPIER_OK;
}
