/* umap/graph/graph.c - edge lists and graphs: sorting, checking, segments, rows, reversal. */
#include "umap/graph/graph.h"

#include <math.h>
#include <string.h>

#include "core/base/scope.h"
#include "umap/graph/edges.h"
#include "umap/options/params.h"

/* ---- Sorting ----------------------------------------------------------------------------------------------------- */

static int is_sorted(const napier_umap_edge *edges, int64_t count) {
    for (int64_t e = 1; e < count; e++) {
        if (napier_edge_is_after(&edges[e - 1], &edges[e])) {
            return 0;
        }
    }
    return 1;
}

/* Merges [begin, middle) and [middle, end) of `from` into [begin, end) of `to`. */
static void merge_runs(const napier_umap_edge *from, napier_umap_edge *to, int64_t begin, int64_t middle, int64_t end) {
    int64_t left = begin, right = middle;
    for (int64_t i = begin; i < end; i++) {
        const int take_right = left >= middle || (right < end && napier_edge_is_after(&from[left], &from[right]));
        to[i] = take_right ? from[right++] : from[left++];
    }
}

napier_status napier_umap_sort_edges(napier_context *context, napier_umap_edge *edges, int64_t count) {
    NAPIER_DEFAULT_FENV;
    const napier_status status = napier_begin(context);
    if (status) {
        return status;
    }
    NAPIER_REFUSE_IF(context, count < 0 || (count > 0 && !edges), "edges: %s, count %lld", edges ? "given" : "NULL",
                     (long long)count);
    for (int64_t e = 0; e < count; e++) {
        NAPIER_REFUSE_IF(context, isnan(edges[e].weight), "edges: the weight of edge %lld is NaN", (long long)e);
    }
    if (is_sorted(edges, count)) {
        return NAPIER_OK;
    }
    napier_umap_edge *spare = napier_alloc(&context->allocator, (size_t)count, sizeof *spare);
    if (!spare) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "edges: no memory to sort %lld", (long long)count);
    }
    napier_umap_edge *from = edges, *to = spare;
    for (int64_t run = 1; run < count; run *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * run) {
            const int64_t middle = begin + run < count ? begin + run : count;
            const int64_t end = begin + 2 * run < count ? begin + 2 * run : count;
            merge_runs(from, to, begin, middle, end);
        }
        napier_umap_edge *const other = from;
        from = to;
        to = other;
    }
    if (from != edges) {
        memcpy(edges, from, (size_t)count * sizeof *edges);
    }
    napier_free(&context->allocator, spare);
    return NAPIER_OK;
}

/* ---- Checking ---------------------------------------------------------------------------------------------------- */

napier_status napier_umap_check_counts(napier_context *context, const napier_umap_edge *edges, int64_t count,
                                       int64_t n) {
    NAPIER_REFUSE_IF(context, n < 0 || n >= (int64_t)1 << 31, "n: %lld vertices are not 0 to 2^31 - 1", (long long)n);
    NAPIER_REFUSE_IF(context, count < 0 || (count > 0 && !edges), "edges: %s, count %lld", edges ? "given" : "NULL",
                     (long long)count);
    return NAPIER_OK;
}

napier_status napier_umap_check_edges(napier_context *context, const napier_umap_edge *edges, int64_t count,
                                      int64_t n) {
    NAPIER_TRY(napier_umap_check_counts(context, edges, count, n));
    for (int64_t e = 0; e < count; e++) {
        const napier_umap_edge *edge = &edges[e];
        NAPIER_REFUSE_IF(context, edge->source >= n || edge->target >= n,
                         "edges: edge %lld (%lu, %lu) leaves the %lld vertices", (long long)e,
                         (unsigned long)edge->source, (unsigned long)edge->target, (long long)n);
        NAPIER_REFUSE_IF(context, !napier_is_weight(edge->weight), "edges: the weight of edge %lld is %g", (long long)e,
                         (double)edge->weight);
        NAPIER_REFUSE_IF(context, e > 0 && napier_edge_is_after(&edges[e - 1], edge),
                         "edges: edge %lld (%lu, %lu) comes after (%lu, %lu): not sorted (napier_umap_sort_edges)",
                         (long long)e, (unsigned long)edge->source, (unsigned long)edge->target,
                         (unsigned long)edges[e - 1].source, (unsigned long)edges[e - 1].target);
    }
    return NAPIER_OK;
}

napier_status napier_umap_check_graph(napier_context *context, const char *name, const napier_umap_graph *graph) {
    NAPIER_REFUSE_IF(context,
                     !graph || graph->n < 0 || graph->n >= (int64_t)1 << 31 || !graph->starts || graph->starts[0] != 0,
                     "%s: NULL, or without rows", name);
    for (int64_t v = 0; v < graph->n; v++) {
        NAPIER_REFUSE_IF(context, graph->starts[v + 1] < graph->starts[v], "%s: row %lld ends before it begins", name,
                         (long long)v);
        for (int64_t e = graph->starts[v]; e < graph->starts[v + 1]; e++) {
            const int rises = e == graph->starts[v] || graph->targets[e] > graph->targets[e - 1];
            NAPIER_REFUSE_IF(context, !rises || graph->targets[e] >= graph->n,
                             "%s: target %lu of row %lld is out of order", name, (unsigned long)graph->targets[e],
                             (long long)v);
            NAPIER_REFUSE_IF(context, !(graph->weights[e] > 0.0f) || !(graph->weights[e] <= 0x1.fffffep127f),
                             "%s: a weight of row %lld is %g", name, (long long)v, (double)graph->weights[e]);
        }
    }
    return NAPIER_OK;
}

/* ---- Segments and graphs ----------------------------------------------------------------------------------------- */

napier_status napier_umap_segments(napier_context *context, const napier_umap_edge *edges, int64_t count, int64_t n,
                                   int64_t *starts, int64_t *counts) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_edges(context, edges, count, n));
    NAPIER_REFUSE_IF(context, n > 0 && (!starts || !counts), "%s: NULL", starts ? "counts" : "starts");
    const napier_const_matrix read = napier_umap_edge_words(edges, count);
    NAPIER_TRY(napier_umap_check_apart(context, "starts", napier_rows(starts, 1, n, NAPIER_F64), "edges", read));
    NAPIER_TRY(napier_umap_check_apart(context, "counts", napier_rows(counts, 1, n, NAPIER_F64), "edges", read));
    NAPIER_TRY(napier_umap_check_apart(context, "counts", napier_rows(counts, 1, n, NAPIER_F64), "starts",
                                       napier_umap_array(starts, n, NAPIER_F64)));
    int64_t e = 0;
    for (int64_t v = 0; v < n; v++) {
        starts[v] = e;
        while (e < count && edges[e].source == v) {
            e++;
        }
        counts[v] = e - starts[v];
    }
    return NAPIER_OK;
}

napier_status napier_umap_graph_create(napier_context *context, int64_t n, int64_t count, napier_umap_graph **out) {
    const size_t room = count > 0 ? (size_t)count : 1;
    napier_umap_graph *graph = napier_alloc(&context->allocator, 1, sizeof *graph);
    if (graph) {
        graph->n = n;
        graph->starts = napier_alloc(&context->allocator, (size_t)n + 1, sizeof *graph->starts);
        graph->targets = napier_alloc(&context->allocator, room, sizeof *graph->targets);
        graph->weights = napier_alloc(&context->allocator, room, sizeof *graph->weights);
    }
    if (!graph || !graph->starts || !graph->targets || !graph->weights) {
        napier_umap_graph_destroy(context, graph);
        *out = NULL;
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "graph: no memory for %lld vertices and %lld edges",
                           (long long)n, (long long)count);
    }
    *out = graph;
    return NAPIER_OK;
}

void napier_umap_graph_destroy(napier_context *context, napier_umap_graph *graph) {
    if (context && graph) {
        napier_free(&context->allocator, graph->starts);
        napier_free(&context->allocator, graph->targets);
        napier_free(&context->allocator, graph->weights);
        napier_free(&context->allocator, graph);
    }
}

napier_status napier_umap_graph_from_edges(napier_context *context, const napier_umap_edge *edges, int64_t count,
                                           int64_t n, napier_umap_graph **out) {
    NAPIER_DEFAULT_FENV;
    napier_status status = napier_begin(context);
    if (!status && !out) {
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "out: NULL");
    }
    if (!status) {
        *out = NULL;
        status = napier_umap_check_edges(context, edges, count, n);
    }
    if (!status) {
        status = napier_umap_graph_create(context, n, count, out);
    }
    if (status) {
        return status;
    }
    napier_umap_graph *graph = *out;
    int64_t e = 0, kept = 0;
    for (int64_t v = 0; v < n; v++) {
        graph->starts[v] = kept;
        for (; e < count && edges[e].source == v; e++) {
            if (edges[e].weight > 0.0f) {
                graph->targets[kept] = edges[e].target;
                graph->weights[kept++] = edges[e].weight;
            }
        }
    }
    graph->starts[n] = kept;
    return NAPIER_OK;
}

napier_status napier_umap_graph_reversed(napier_context *context, const napier_umap_graph *graph,
                                         napier_umap_graph **out) {
    const int64_t n = graph->n, count = napier_umap_graph_edges(graph);
    NAPIER_TRY(napier_umap_graph_create(context, n, count, out));
    napier_umap_graph *reversed = *out;
    memset(reversed->starts, 0, ((size_t)n + 1) * sizeof *reversed->starts);
    for (int64_t e = 0; e < count; e++) {
        reversed->starts[graph->targets[e] + 1]++;
    }
    for (int64_t v = 0; v < n; v++) {
        reversed->starts[v + 1] += reversed->starts[v];
    }
    for (int64_t v = 0; v < n; v++) { /* sources ascend, so each row is ascending */
        for (int64_t e = graph->starts[v]; e < graph->starts[v + 1]; e++) {
            const int64_t at = reversed->starts[graph->targets[e]]++;
            reversed->targets[at] = (uint32_t)v;
            reversed->weights[at] = graph->weights[e];
        }
    }
    for (int64_t v = n; v > 0; v--) { /* each start has advanced to the next row's */
        reversed->starts[v] = reversed->starts[v - 1];
    }
    reversed->starts[0] = 0;
    return NAPIER_OK;
}
