/* umap/fit/model.c - fits a map: neighbours, fuzzy set, start, layout. */
#include "umap/fit/model.h"

#include <math.h>
#include <string.h>

#include "core/base/fenv.h"
#include "core/base/scope.h"
#include "core/base/view.h"
#include "umap/layout/densmap.h"
#include "umap/layout/epochs.h"
#include "umap/graph/graph.h"
#include "umap/options/params.h"

/* ---- The model --------------------------------------------------------------------------------------------------- */

static int64_t metric_count_of(const napier_neighbors_options *o, int64_t cols) {
    if (!o->metric_values) {
        return 0;
    }
    return o->metric == NAPIER_METRIC_MAHALANOBIS ? cols * cols : o->metric == NAPIER_METRIC_SEUCLIDEAN ? cols : 0;
}

napier_status napier_umap_model_create(napier_context *context, const napier_umap_options *options, int64_t n,
                                       int64_t metric_count, napier_umap_model **out) {
    *out = NULL;
    const napier_allocator *allocator = &context->allocator;
    const size_t elements = (size_t)(n * options->n_components);
    napier_umap_model *model = napier_alloc(allocator, 1, sizeof *model);
    if (model) {
        *model = (napier_umap_model){.options = *options, .n = n};
        model->options.knn_indices = NULL;
        model->options.knn_distances = NULL;
        model->options.init_embedding = NULL;
        model->options.target_categories = NULL;
        model->options.target_numbers = NULL;
        model->options.progress = NULL;
        model->options.user = NULL;
        model->options.neighbors.progress = NULL;
        model->options.neighbors.user = NULL;
        model->options.neighbors.metric_values = NULL;
        model->metric_count = metric_count;
        model->embedding = napier_alloc(allocator, elements > 0 ? elements : 1, sizeof *model->embedding);
        if (metric_count > 0) {
            model->metric_values = napier_alloc(allocator, (size_t)model->metric_count, sizeof *model->metric_values);
        }
    }
    if (!model || !model->embedding || (metric_count > 0 && !model->metric_values)) {
        napier_umap_model_destroy(context, model);
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "model: no memory for %lld points", (long long)n);
    }
    model->options.neighbors.metric_values = model->metric_values;
    *out = model;
    return NAPIER_OK;
}

void napier_umap_model_destroy(napier_context *context, napier_umap_model *model) {
    if (context && model) {
        napier_samples_release(context, &model->data);
        napier_free(&context->allocator, model->metric_values);
        napier_free(&context->allocator, model->embedding);
        napier_free(&context->allocator, model);
    }
}

napier_const_matrix napier_umap_model_embedding(const napier_umap_model *model) {
    return model ? napier_const_rows_f32(model->embedding, model->n, model->options.n_components)
                 : napier_const_rows_f32(NULL, 0, 0);
}

int64_t napier_umap_disconnected(napier_const_matrix embedding) {
    const napier_fenv caller = napier_fenv_enter();
    int64_t count = 0;
    for (int64_t v = 0; embedding.data && embedding.dtype == NAPIER_F32 && v < embedding.rows; v++) {
        count += napier_umap_has_no_place((const float *)embedding.data + v * embedding.cols, embedding.cols);
    }
    napier_fenv_leave(caller);
    return count;
}

int64_t napier_umap_model_features(const napier_umap_model *model) { return model ? model->data.cols : 0; }

/* ---- Neighbours and the fuzzy set -------------------------------------------------------------------------------- */

typedef struct knn {
    const int32_t *indices; /* [n, n_neighbors] */
    const float *distances;
    int32_t *own_indices; /* allocated here, or NULL */
    float *own_distances;
} knn;

static void knn_release(napier_context *context, knn *k) {
    napier_free(&context->allocator, k->own_indices);
    napier_free(&context->allocator, k->own_distances);
    *k = (knn){0};
}

/* Checks neighbours from the caller: indices below n or -1, distances not negative and ascending. */
static napier_status check_given(napier_context *context, const napier_umap_options *o, int64_t n) {
    const int64_t k = o->neighbors.n_neighbors;
    for (int64_t i = 0; i < n * k; i++) {
        const float d = o->knn_distances[i];
        const int rises = i % k == 0 || d >= o->knn_distances[i - 1];
        NAPIER_REFUSE_IF(context, o->knn_indices[i] < -1 || o->knn_indices[i] >= n || !(d >= 0.0f) || !rises,
                         "knn_indices, knn_distances: neighbour %lld of row %lld is %ld at %g", (long long)(i % k),
                         (long long)(i / k), (long)o->knn_indices[i], (double)d);
    }
    return NAPIER_OK;
}

/* Fills our own arrays with the neighbours: copies given ones, else searches. */
static napier_status fill_own(napier_context *context, napier_umap_samples samples, const napier_umap_options *o,
                              size_t count, knn *out) {
    if (o->knn_indices) {
        memcpy(out->own_indices, o->knn_indices, count * sizeof *out->own_indices);
        memcpy(out->own_distances, o->knn_distances, count * sizeof *out->own_distances);
        return NAPIER_OK;
    }
    napier_neighbors_options neighbors = o->neighbors;
    if (!neighbors.progress) {
        neighbors.progress = o->progress;
        neighbors.user = o->user;
    }
    const napier_status status =
        napier_nearest_neighbors(context, samples, &neighbors, out->own_indices, out->own_distances);
    return status ? status
                  : napier_umap_check_found(context, "samples", out->own_indices, out->own_distances,
                                            napier_samples_rows(samples), neighbors.n_neighbors);
}

/* Finds the neighbours of every point. Those at the disconnection distance or farther become -1 at infinity. */
static napier_status find_neighbors(napier_context *context, napier_umap_samples samples, const napier_umap_options *o,
                                    int64_t n, knn *out) {
    const float limit = napier_umap_disconnection_of(o);
    const size_t count = (size_t)(n * o->neighbors.n_neighbors);
    *out = (knn){.indices = o->knn_indices, .distances = o->knn_distances};
    if (o->knn_indices) {
        const napier_status status = check_given(context, o, n);
        if (status || isinf(limit)) {
            return status;
        }
    }
    out->own_indices = napier_alloc(&context->allocator, count, sizeof *out->own_indices);
    out->own_distances = napier_alloc(&context->allocator, count, sizeof *out->own_distances);
    if (!out->own_indices || !out->own_distances) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "neighbours: no memory for %lld x %lld", (long long)n,
                           (long long)o->neighbors.n_neighbors);
    }
    out->indices = out->own_indices;
    out->distances = out->own_distances;
    const napier_status status = fill_own(context, samples, o, count, out);
    for (size_t i = 0; !status && i < count; i++) { /* the point itself is at 0, so it stays */
        if (out->own_distances[i] >= limit) {
            out->own_indices[i] = -1;
            out->own_distances[i] = INFINITY;
        }
    }
    return status;
}

static napier_status say(napier_context *context, const napier_umap_options *o, const char *stage, double done) {
    if (o->progress && o->progress(stage, done, o->user)) {
        return napier_fail(context, NAPIER_CANCELLED, "%s: cancelled", stage);
    }
    return NAPIER_OK;
}

/* Makes the graph of a fit: the fuzzy set, combined with the targets. */
static napier_status make_graph(napier_context *context, const napier_umap_options *o, int64_t n, const knn *k,
                                napier_umap_graph **out) {
    napier_status status =
        napier_umap_fuzzy_simplicial_set(context, k->indices, k->distances, n, o->neighbors.n_neighbors,
                                         o->local_connectivity, o->set_op_mix_ratio, out);
    if (!status && o->target_categories) {
        status = napier_umap_join_categories(context, out, o->target_categories, o->target_weight);
    } else if (!status && o->target_numbers) {
        const int64_t wanted = o->target_n_neighbors > 0 ? o->target_n_neighbors : o->neighbors.n_neighbors;
        status = napier_umap_join_numbers(context, out, o->target_numbers, wanted < n ? wanted : n, o->target_weight);
    }
    return status ? status : say(context, o, "fuzzy set", 1.0);
}

/* ---- Start and layout -------------------------------------------------------------------------------------------- */

static napier_status make_start(napier_context *context, napier_umap_samples samples, const napier_umap_options *o,
                                const napier_umap_graph *graph, napier_matrix embedding) {
    napier_status status = NAPIER_OK;
    switch (o->init) {
    case NAPIER_UMAP_INIT_PCA: status = napier_umap_pca_layout(context, samples, o->seed, embedding); break;
    case NAPIER_UMAP_INIT_RANDOM: status = napier_umap_random_layout(context, o->seed, embedding); break;
    case NAPIER_UMAP_INIT_GIVEN:
        memcpy(embedding.data, o->init_embedding, (size_t)(embedding.rows * embedding.cols) * sizeof(float));
        status = napier_umap_check_embedding(context, "init_embedding", napier_read_only(embedding));
        break;
    default: status = napier_umap_spectral_layout(context, graph, samples, o->seed, embedding); break;
    }
    return status ? status : say(context, o, "start", 1.0);
}

/* Copies the edges of at least 1 / epochs of the largest weight: those that would act at least once if they were
 * sampled. */
static napier_status pruned(napier_context *context, const napier_umap_graph *graph, int64_t epochs,
                            napier_umap_graph **out) {
    const int64_t count = napier_umap_graph_edges(graph);
    float highest = 0.0f;
    for (int64_t e = 0; e < count; e++) {
        highest = graph->weights[e] > highest ? graph->weights[e] : highest;
    }
    NAPIER_TRY(napier_umap_graph_create(context, graph->n, count, out));
    const float least = highest / (float)epochs;
    int64_t kept = 0;
    for (int64_t v = 0; v < graph->n; v++) {
        (*out)->starts[v] = kept;
        for (int64_t e = graph->starts[v]; e < graph->starts[v + 1]; e++) {
            if (graph->weights[e] >= least) {
                (*out)->targets[kept] = graph->targets[e];
                (*out)->weights[kept++] = graph->weights[e];
            }
        }
    }
    (*out)->starts[graph->n] = kept;
    return NAPIER_OK;
}

/* The default scheme: Adam on all edges, each by its weight. Each listing of an edge moves both its ends. The graph is
 * symmetric, so instead each vertex takes only its own edges, and each force counts twice. */
static napier_status run_layout(napier_context *context, const napier_umap_graph *graph, const napier_umap_options *o,
                                napier_densmap *densmap, napier_matrix embedding) {
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.count = epochs.total = o->n_epochs;
    epochs.seed = o->seed;
    epochs.move_targets = 0;
    epochs.progress = o->progress;
    epochs.user = o->user;
    const napier_umap_params given = napier_umap_params_of(o);
    napier_umap_params params;
    napier_forces forces;
    napier_umap_optimizer *optimizer = NULL;
    napier_status status = napier_umap_check_params(context, &given, &params, &forces);
    if (!status) {
        status = napier_umap_optimizer_create(context, NULL, embedding.rows, embedding.cols, &optimizer);
    }
    if (!status) {
        napier_layout layout = napier_umap_layout_of(context, &forces, 2.0f, &params, &epochs, graph, NULL,
                                                     embedding.rows, embedding.cols, embedding.data);
        layout.rate = o->negative_sample_rate;
        status = napier_layout_prepare(&layout);
        if (!status) {
            const napier_epochs_run run = {
                &params, &epochs, &layout, optimizer, densmap ? napier_densmap_forces : NULL, densmap, embedding.data};
            status = napier_umap_run_epochs(context, &run);
            napier_layout_release(&layout);
        }
    }
    napier_umap_optimizer_destroy(context, optimizer);
    return status;
}

/* Computes the layout of a fuzzy set's graph, with densMAP if distances are given. */
static napier_status lay_out(napier_context *context, const napier_umap_graph *graph, const napier_umap_options *o,
                             const knn *k, napier_matrix embedding) {
    napier_umap_graph *edges = NULL;
    napier_densmap *densmap = NULL;
    napier_status status = pruned(context, graph, o->n_epochs, &edges);
    if (!status && o->densmap && k) {
        status = napier_densmap_create(context, graph, o, k->indices, k->distances, &densmap);
    }
    if (!status) {
        status = run_layout(context, edges, o, densmap, embedding);
    }
    napier_densmap_destroy(context, densmap);
    napier_umap_graph_destroy(context, edges);
    return status;
}

napier_status napier_umap_optimize_layout(napier_context *context, const napier_umap_graph *graph,
                                          const napier_umap_options *options, napier_matrix embedding) {
    NAPIER_DEFAULT_FENV;
    napier_umap_options o;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_graph(context, "graph", graph));
    NAPIER_TRY(napier_umap_check_options(context, options, graph->n, &o));
    NAPIER_TRY(napier_check_matrix_out(context, "embedding", embedding));
    NAPIER_TRY(napier_umap_check_result(context, "embedding", embedding, graph->n, embedding.cols));
    NAPIER_TRY(napier_umap_check_embedding(context, "embedding", napier_read_only(embedding)));
    NAPIER_TRY(napier_umap_check_apart_graph(context, "embedding", embedding, graph));
    return lay_out(context, graph, &o, NULL, embedding);
}

/* Sets points without edges to NaN: only samples moved them, so their position has no meaning. */
static void take_away_places(const napier_umap_graph *graph, napier_matrix embedding) {
    float *y = embedding.data;
    for (int64_t v = 0; v < graph->n; v++) {
        for (int64_t c = 0; graph->starts[v] == graph->starts[v + 1] && c < embedding.cols; c++) {
            y[v * embedding.cols + c] = NAN;
        }
    }
}

/* ---- Fit --------------------------------------------------------------------------------------------------------- */

static napier_status fit_points(napier_context *context, napier_umap_samples samples, const napier_umap_options *o,
                                napier_umap_model *model) {
    const napier_matrix embedding = napier_rows_f32(model->embedding, model->n, o->n_components);
    if (model->n == 1) { /* a single point has no neighbours */
        memset(model->embedding, 0, (size_t)o->n_components * sizeof(float));
        return NAPIER_OK;
    }
    knn k;
    napier_umap_graph *graph = NULL;
    napier_status status = find_neighbors(context, samples, o, model->n, &k);
    if (!status)
        status = make_graph(context, o, model->n, &k, &graph);
    if (!status)
        status = make_start(context, samples, o, graph, embedding);
    if (!status)
        status = lay_out(context, graph, o, &k, embedding);
    if (!status)
        take_away_places(graph, embedding);
    napier_umap_graph_destroy(context, graph);
    knn_release(context, &k);
    return status;
}

napier_status napier_umap_fit(napier_context *context, napier_umap_samples samples, const napier_umap_options *options,
                              napier_umap_model **out) {
    NAPIER_DEFAULT_FENV;
    napier_umap_options o;
    napier_umap_model *model = NULL;
    napier_status status = napier_begin(context);
    if (!status && !out)
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "out: NULL");
    if (!status) {
        *out = NULL;
        status = napier_samples_check(context, samples);
    }
    const int64_t n = status ? 0 : napier_samples_rows(samples);
    if (!status && n == 0)
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "samples: no points");
    if (!status)
        status = napier_umap_check_options(context, options, n, &o);
    const int64_t metric_count = status ? 0 : metric_count_of(&o.neighbors, napier_samples_cols(samples));
    if (!status)
        status = napier_umap_model_create(context, &o, n, metric_count, &model);
    if (!status && metric_count > 0)
        memcpy(model->metric_values, o.neighbors.metric_values, (size_t)metric_count * sizeof(float));
    if (!status)
        status = napier_samples_copy_of(context, samples, &model->data);
    if (!status)
        status = fit_points(context, samples, &o, model);
    if (status) {
        napier_umap_model_destroy(context, model);
        return status;
    }
    *out = model;
    return NAPIER_OK;
}
