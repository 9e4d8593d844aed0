/* umap/graph/graph.c - edge lists and graphs: sorting, checking, segments, rows, reversal. */
#include "umap/graph/graph.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "umap/graph/edges.h"
#include "umap/options/params.h"

enum { ROW_CHUNK = 512 };

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
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_counts(context, edges, count, 0));
    for (int64_t e = 0; e < count; e++) {
        NAPIER_REFUSE_IF(context, isnan(edges[e].weight), "edges: the weight of edge %lld is NaN", (long long)e);
    }
    if (is_sorted(edges, count)) {
        return NAPIER_OK;
    }
    NAPIER_MEMORY(memory, context);
    napier_umap_edge *spare = napier_take(&memory, count, sizeof *spare);
    NAPIER_TRY(napier_taken(&memory, "edges: no memory to sort %lld", (long long)count));
    napier_umap_edge *from = edges, *to = spare;
    for (int64_t run = 1; run < count; run *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * run) {
            merge_runs(from, to, begin, napier_least(begin + run, count), napier_least(begin + 2 * run, count));
        }
        napier_umap_edge *const other = from;
        from = to;
        to = other;
    }
    if (from != edges) {
        memcpy(edges, from, (size_t)count * sizeof *edges);
    }
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
    enum { WORD = sizeof(int64_t), HEAD = (sizeof(napier_umap_graph) + WORD - 1) / WORD };
    napier_umap_graph *graph = napier_alloc(&context->allocator, HEAD + (size_t)n + 1 + (size_t)count, WORD);
    *out = graph;
    if (!graph) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "graph: no memory for %lld vertices and %lld edges",
                           (long long)n, (long long)count);
    }
    int64_t *const starts = (int64_t *)(void *)graph + HEAD;
    uint32_t *const targets = (uint32_t *)(void *)(starts + n + 1);
    *graph = (napier_umap_graph){n, starts, targets, (float *)(void *)(targets + count)};
    return NAPIER_OK;
}

void napier_umap_graph_destroy(napier_context *context, napier_umap_graph *graph) {
    if (context) {
        napier_free(&context->allocator, graph);
    }
}

typedef struct rows_task {
    napier_graph_row *row;
    const void *argument;
    int64_t *starts; /* when counting: the number of edges of row v at v + 1 */
    uint32_t *targets;
    float *weights;
} rows_task;

static void each_row(void *argument, int64_t v) {
    const rows_task *t = argument;
    if (t->targets) {
        t->row(t->argument, v, t->targets + t->starts[v], t->weights + t->starts[v]);
    } else {
        t->starts[v + 1] = t->row(t->argument, v, NULL, NULL);
    }
}

napier_status napier_umap_graph_of_rows(napier_context *context, int64_t n, napier_graph_row *row, const void *argument,
                                        napier_umap_graph **out) {
    *out = NULL;
    NAPIER_MEMORY(memory, context);
    int64_t *starts = napier_take(&memory, n + 1, sizeof *starts);
    NAPIER_TRY(napier_taken(&memory, "graph: no memory for %lld vertices", (long long)n));
    rows_task t = {row, argument, starts, NULL, NULL};
    starts[0] = 0;
    napier_parallel_each(context, n, ROW_CHUNK, each_row, &t);
    for (int64_t v = 0; v < n; v++) {
        starts[v + 1] += starts[v];
    }
    NAPIER_TRY(napier_umap_graph_create(context, n, starts[n], out));
    memcpy((*out)->starts, starts, ((size_t)n + 1) * sizeof *starts);
    t.targets = (*out)->targets;
    t.weights = (*out)->weights;
    napier_parallel_each(context, n, ROW_CHUNK, each_row, &t);
    return NAPIER_OK;
}

napier_status napier_umap_graph_from_edges(napier_context *context, const napier_umap_edge *edges, int64_t count,
                                           int64_t n, napier_umap_graph **out) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_TRY(napier_umap_check_edges(context, edges, count, n));
    NAPIER_TRY(napier_umap_graph_create(context, n, count, out));
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

float napier_umap_highest_weight(const napier_umap_graph *graph) {
    float highest = 0.0f;
    for (int64_t e = 0; e < napier_umap_graph_edges(graph); e++) {
        highest = graph->weights[e] > highest ? graph->weights[e] : highest;
    }
    return highest;
}
