/* umap/layout/gradient.c - the primitives: forces of edges, their sums, samples, and the step that applies them. */
#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/view.h"
#include "umap/isa/umap_kernels.h"
#include "core/math/random.h"
#include "umap/layout/layout.h"

enum { NAPIER_GRADIENT_CHUNK = 4096 };

/* ---- Edge by edge ------------------------------------------------------------------------------------------------ */

typedef struct edge_task {
    napier_forces forces;
    const float *y;
    int64_t components;
    const napier_umap_edge *edges;
    float *source, *target;
} edge_task;

static void edges_task(void *argument, int worker, int64_t begin, int64_t end) {
    const edge_task *t = argument;
    (void)worker;
    for (int64_t e = begin; e < end; e++) {
        const float *i = t->y + (int64_t)t->edges[e].source * t->components;
        const float *j = t->y + (int64_t)t->edges[e].target * t->components;
        float force[NAPIER_UMAP_MOST_COMPONENTS];
        const float factor = napier_attraction(&t->forces, napier_squared_gap(i, j, t->components));
        napier_force(&t->forces, factor, t->edges[e].weight, i, j, t->components, force);
        for (int64_t d = 0; d < t->components; d++) {
            if (t->source) {
                t->source[e * t->components + d] = force[d] + 0.0f;
            }
            if (t->target) {
                t->target[e * t->components + d] = 0.0f - force[d];
            }
        }
    }
}

/* Checks an optional result. */
static napier_status check_optional(napier_context *context, const char *name, napier_matrix result,
                                    const napier_umap_edge *edges, int64_t count, napier_const_matrix embedding) {
    if (!result.data) {
        return NAPIER_OK;
    }
    NAPIER_TRY(napier_umap_check_result(context, name, result, count, embedding.cols));
    NAPIER_TRY(napier_umap_check_apart(context, name, result, "embedding", embedding));
    return napier_umap_check_apart(context, name, result, "edges", napier_umap_edge_words(edges, count));
}

napier_status napier_umap_edge_gradients(napier_context *context, const napier_umap_params *params,
                                         napier_const_matrix embedding, const napier_umap_edge *edges, int64_t count,
                                         napier_matrix source_gradients, napier_matrix target_gradients) {
    NAPIER_DEFAULT_FENV;
    napier_umap_params p;
    edge_task task;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_params(context, params, &p, &task.forces));
    NAPIER_TRY(napier_umap_check_embedding(context, "embedding", embedding));
    NAPIER_TRY(napier_umap_check_edges(context, edges, count, embedding.rows));
    NAPIER_TRY(check_optional(context, "source_gradients", source_gradients, edges, count, embedding));
    NAPIER_TRY(check_optional(context, "target_gradients", target_gradients, edges, count, embedding));
    if (source_gradients.data && target_gradients.data) {
        NAPIER_TRY(napier_umap_check_apart(context, "target_gradients", target_gradients, "source_gradients",
                                           napier_read_only(source_gradients)));
    }
    task.y = embedding.data;
    task.components = embedding.cols;
    task.edges = edges;
    task.source = source_gradients.data;
    task.target = target_gradients.data;
    napier_parallel(context, count, NAPIER_GRADIENT_CHUNK, edges_task, &task);
    return NAPIER_OK;
}

/* ---- Sums over segments ------------------------------------------------------------------------------------------ */

typedef struct segment_task {
    const napier_umap_kernels *kernels;
    const float *rows;
    int64_t components;
    const int64_t *starts, *counts;
    float *sums;
} segment_task;

static void segments_task(void *argument, int64_t v) {
    const segment_task *t = argument;
    float *sum = t->sums + v * t->components;
    for (int64_t d = 0; d < t->components; d++) {
        sum[d] = 0.0f;
    }
    for (int64_t e = 0; e < t->counts[v]; e += NAPIER_PIECE_EDGES) {
        t->kernels->layout.add_rows(t->rows + (t->starts[v] + e) * t->components,
                                    napier_least(t->counts[v] - e, NAPIER_PIECE_EDGES), t->components, sum);
    }
}

napier_status napier_umap_reduce_segments(napier_context *context, napier_const_matrix edge_gradients,
                                          const int64_t *starts, const int64_t *counts, napier_matrix gradients) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_embedding(context, "edge_gradients", edge_gradients));
    NAPIER_TRY(napier_umap_check_result(context, "gradients", gradients, gradients.rows, edge_gradients.cols));
    NAPIER_TRY(napier_umap_check_apart(context, "gradients", gradients, "edge_gradients", edge_gradients));
    NAPIER_REFUSE_IF(context, gradients.rows > 0 && (!starts || !counts), "%s: NULL", starts ? "counts" : "starts");
    for (int64_t v = 0; v < gradients.rows; v++) {
        NAPIER_REFUSE_IF(context, starts[v] < 0 || counts[v] < 0 || starts[v] > edge_gradients.rows - counts[v],
                         "starts: segment %lld (%lld, %lld edges) leaves the %lld rows", (long long)v,
                         (long long)starts[v], (long long)counts[v], (long long)edge_gradients.rows);
    }
    const napier_const_matrix read[2] = {napier_umap_array(starts, gradients.rows, NAPIER_F64),
                                         napier_umap_array(counts, gradients.rows, NAPIER_F64)};
    NAPIER_TRY(napier_umap_check_apart(context, "gradients", gradients, "starts", read[0]));
    NAPIER_TRY(napier_umap_check_apart(context, "gradients", gradients, "counts", read[1]));
    segment_task task = {
        napier_umap_kernels_of(context->isa), edge_gradients.data, edge_gradients.cols, starts, counts, gradients.data};
    napier_parallel_each(context, gradients.rows, NAPIER_GRADIENT_CHUNK, segments_task, &task);
    return NAPIER_OK;
}

/* ---- Forces on all vertices -------------------------------------------------------------------------------------- */

static napier_status run_layout(napier_layout *layout, napier_matrix gradients) {
    NAPIER_MEMORY(memory, layout->context);
    NAPIER_TRY(napier_layout_prepare(&memory, layout));
    napier_layout_forces(layout, gradients.data);
    return NAPIER_OK;
}

/* Checks parameters, embedding and gradients [the embedding's shape]; `layout` gets the layout of the embedding. */
static napier_status check_gradients(napier_context *context, const napier_umap_params *params,
                                     napier_const_matrix embedding, napier_matrix gradients, napier_layout *layout) {
    napier_umap_params p;
    napier_forces forces;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_params(context, params, &p, &forces));
    NAPIER_TRY(napier_umap_check_embedding(context, "embedding", embedding));
    NAPIER_TRY(napier_umap_check_result(context, "gradients", gradients, embedding.rows, embedding.cols));
    NAPIER_TRY(napier_umap_check_apart(context, "gradients", gradients, "embedding", embedding));
    *layout = (napier_layout){.context = context,
                              .kernels = napier_umap_kernels_of(context->isa),
                              .forces = forces,
                              .y = embedding.data,
                              .n = embedding.rows,
                              .components = embedding.cols,
                              .scale = 1.0f};
    return NAPIER_OK;
}

napier_status napier_umap_gradients(napier_context *context, const napier_umap_params *params,
                                    napier_const_matrix embedding, const napier_umap_edge *edges, int64_t count,
                                    int move_targets, napier_matrix gradients) {
    NAPIER_DEFAULT_FENV;
    napier_layout layout;
    napier_umap_graph *graph = NULL, *pulls = NULL;
    NAPIER_TRY(check_gradients(context, params, embedding, gradients, &layout));
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_umap_graph_from_edges(context, edges, count, embedding.rows, &graph));
    layout.edges = napier_keep(&memory, graph);
    NAPIER_TRY(napier_umap_check_apart(context, "gradients", gradients, "edges", napier_umap_edge_words(edges, count)));
    if (move_targets) {
        NAPIER_TRY(napier_umap_graph_reversed(context, graph, &pulls));
        layout.pulls = napier_keep(&memory, pulls);
    }
    return run_layout(&layout, gradients);
}

napier_status napier_umap_apply(napier_context *context, float learning_rate, napier_const_matrix gradients,
                                napier_matrix embedding) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_embedding(context, "gradients", gradients));
    NAPIER_TRY(napier_umap_check_result(context, "embedding", embedding, gradients.rows, gradients.cols));
    NAPIER_TRY(napier_umap_check_apart(context, "embedding", embedding, "gradients", gradients));
    napier_umap_kernels_of(context->isa)
        ->layout.sgd(embedding.data, gradients.data, learning_rate, gradients.rows * gradients.cols);
    return NAPIER_OK;
}

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

napier_status napier_umap_negative_targets(napier_context *context, uint64_t seed, int64_t epoch, int64_t n,
                                           int64_t rate, uint32_t *targets) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_draws(context, epoch, n, rate, targets));
    const napier_umap_kernels *kernels = napier_umap_kernels_of(context->isa);
    const uint32_t key = napier_random_key(seed, (uint32_t)epoch);
    uint32_t drawn[1024];
    for (int64_t v = 0; v < n; v++) {
        kernels->layout.draw(key, (uint32_t)v, (uint32_t)n, 0, rate, drawn);
        for (int64_t s = 0; s < rate; s++) {
            targets[v * rate + s] = drawn[s];
        }
    }
    return NAPIER_OK;
}

napier_status napier_umap_negative_gradients(napier_context *context, const napier_umap_params *params,
                                             napier_const_matrix embedding, const uint32_t *targets, int64_t rate,
                                             napier_matrix gradients) {
    NAPIER_DEFAULT_FENV;
    napier_layout layout;
    NAPIER_TRY(check_gradients(context, params, embedding, gradients, &layout));
    NAPIER_TRY(napier_umap_check_targets(context, targets, rate, embedding.rows));
    NAPIER_TRY(napier_umap_check_apart(context, "gradients", gradients, "targets",
                                       napier_umap_array(targets, embedding.rows * rate, NAPIER_F32)));
    layout.given = targets;
    layout.rate = (double)rate;
    return run_layout(&layout, gradients);
}
