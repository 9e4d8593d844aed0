/* umap/fit/model.c - fits a map: neighbours, fuzzy set, start, layout. */
#include "umap/fit/model.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/view.h"
#include "umap/layout/epochs.h"
#include "umap/graph/graph.h"
#include "umap/knn/neighbors_search.h"
#include "umap/start/start.h"

/* ---- The model --------------------------------------------------------------------------------------------------- */

int64_t napier_umap_metric_count(napier_metric metric, int64_t cols) {
    switch (metric) {
    case NAPIER_METRIC_MAHALANOBIS: return cols * cols;
    case NAPIER_METRIC_SEUCLIDEAN:
    case NAPIER_METRIC_WMINKOWSKI: return cols;
    case NAPIER_METRIC_STRING: return 2;
    default: return 0;
    }
}

napier_status napier_umap_model_begin(napier_memory *memory, const napier_umap_options *options, int64_t n,
                                      int64_t metric_count, napier_umap_model **out) {
    napier_umap_model *model = napier_take(memory, 1, sizeof *model);
    float *embedding = napier_take(memory, n * options->n_components, sizeof *embedding);
    float *values = metric_count > 0 ? napier_take(memory, metric_count, sizeof *values) : NULL;
    NAPIER_TRY(napier_taken(memory, "model: no memory for %lld points", (long long)n));
    *model = (napier_umap_model){
        .options = *options, .metric_values = values, .metric_count = metric_count, .n = n, .embedding = embedding};
    napier_umap_options *o = &model->options;
    o->knn_indices = o->target_categories = NULL;
    o->knn_distances = o->init_embedding = o->target_numbers = NULL;
    o->progress = o->neighbors.progress = NULL;
    o->user = o->neighbors.user = NULL;
    o->neighbors.metric_values = values;
    *out = model;
    return NAPIER_OK;
}

napier_umap_model *napier_umap_model_finish(napier_umap_model *model, napier_memory *memory) {
    model->memory = *memory;
    memory->count = 0;
    return model;
}

void napier_umap_model_destroy(napier_context *context, napier_umap_model *model) {
    if (context && model) {
        napier_memory memory = model->memory; /* the model lies in it */
        memory.context = context;
        napier_memory_free(&memory);
    }
}

napier_const_matrix napier_umap_model_embedding(const napier_umap_model *model) {
    return model ? napier_const_rows_f32(model->embedding, model->n, model->options.n_components)
                 : napier_const_rows_f32(NULL, 0, 0);
}

int64_t napier_umap_disconnected(napier_const_matrix embedding) {
    NAPIER_DEFAULT_FENV;
    int64_t count = 0;
    for (int64_t v = 0; embedding.data && embedding.dtype == NAPIER_F32 && v < embedding.rows; v++) {
        count += napier_umap_has_no_place((const float *)embedding.data + v * embedding.cols, embedding.cols);
    }
    return count;
}

int64_t napier_umap_model_indistinct(const napier_umap_model *model) { return model ? model->lost : 0; }

int64_t napier_umap_model_features(const napier_umap_model *model) { return model ? model->data.cols : 0; }

/* ---- Very large and very small values ---------------------------------------------------------------------------- */

void napier_umap_scale_limit(napier_umap_options *o, int exponent) {
    if (napier_metric_grows(o->neighbors.metric, o->neighbors.metric_values != NULL)) {
        o->disconnection_distance = ldexp(o->disconnection_distance, exponent);
    }
}

void napier_umap_scale_distances(const napier_umap_options *o, int exponent, int64_t count, float *distances) {
    const bool large = exponent != 0 && napier_metric_grows(o->neighbors.metric, o->neighbors.metric_values != NULL);
    for (int64_t i = 0; large && i < count; i++) {
        distances[i] *= 0x1p-31f;
    }
}

/* ---- Neighbours and the fuzzy set -------------------------------------------------------------------------------- */

typedef struct knn {
    const int32_t *indices; /* [n, n_neighbors] */
    const float *distances;
} knn;

/* What may be the matter with a table of neighbours, for the message. */
static const char *likely_fault(int64_t n, int32_t index, bool rises, float d) {
    return index == n ? ": indices count from 0, not 1"
           : !rises   ? ": distances ascend; are these similarities?"
           : d < 0.0f ? ": a distance is not negative"
           : isnan(d) ? ": NaN is no distance"
                      : ": indices are below the number of points, or -1";
}

/* Checks neighbours from the caller: indices below n or -1, distances not negative and ascending. */
static napier_status check_given(napier_context *context, const napier_umap_options *o, int64_t n) {
    const int64_t k = o->neighbors.n_neighbors;
    for (int64_t i = 0; i < n * k; i++) {
        const float d = o->knn_distances[i];
        const int rises = i % k == 0 || d >= o->knn_distances[i - 1];
        NAPIER_REFUSE_IF(context, o->knn_indices[i] < -1 || o->knn_indices[i] >= n || !(d >= 0.0f) || !rises,
                         "knn_indices, knn_distances: neighbour %lld of row %lld is %ld at %g%s", (long long)(i % k),
                         (long long)(i / k), (long)o->knn_indices[i], (double)d,
                         likely_fault(n, o->knn_indices[i], rises, d));
    }
    return NAPIER_OK;
}

void napier_umap_disconnect(const napier_umap_options *o, int64_t count, int32_t *indices, float *distances) {
    const float limit = napier_umap_disconnection_of(o);
    for (int64_t i = 0; i < count; i++) { /* the point itself is at 0, so it stays */
        if (distances[i] >= limit) {
            indices[i] = -1;
            distances[i] = INFINITY;
        }
    }
}

/* Finds the neighbours of every point, or takes those of the caller. Those at the disconnection distance or farther
 * become -1 at infinity. */
static napier_status find_neighbors(napier_memory *memory, napier_umap_samples samples, const napier_umap_options *o,
                                    int exponent, int64_t n, knn *out) {
    napier_context *const context = memory->context;
    const int64_t count = n * o->neighbors.n_neighbors;
    *out = (knn){o->knn_indices, o->knn_distances};
    if (o->knn_indices) {
        NAPIER_TRY(check_given(context, o, n));
        if (isinf(napier_umap_disconnection_of(o))) {
            return NAPIER_OK;
        }
    }
    int32_t *indices = napier_take(memory, count, sizeof *indices);
    float *distances = napier_take(memory, count, sizeof *distances);
    NAPIER_TRY(napier_taken(memory, "neighbours: no memory for %lld x %lld", (long long)n,
                            (long long)o->neighbors.n_neighbors));
    if (o->knn_indices) {
        memcpy(indices, o->knn_indices, (size_t)count * sizeof *indices);
        memcpy(distances, o->knn_distances, (size_t)count * sizeof *distances);
    } else {
        napier_neighbors_options neighbors = o->neighbors;
        if (!neighbors.progress) {
            neighbors.progress = o->progress;
            neighbors.user = o->user;
        }
        NAPIER_TRY(napier_find_neighbors(context, samples, NULL, &neighbors, indices, distances));
        NAPIER_TRY(napier_umap_check_found(context, "samples", indices, distances, n, neighbors.n_neighbors));
    }
    napier_umap_disconnect(o, count, indices, distances);
    napier_umap_scale_distances(o, o->knn_indices ? 0 : exponent, count, distances);
    *out = (knn){indices, distances};
    return NAPIER_OK;
}

/* Does distance 0 mean that rows are equal, for any rows? */
static bool tells_rows_apart(const napier_umap_options *o) {
    switch (o->neighbors.metric) {
    case NAPIER_METRIC_CANBERRA:
    case NAPIER_METRIC_HAMMING:
    case NAPIER_METRIC_HAVERSINE: return true;
    case NAPIER_METRIC_WMINKOWSKI: return false;
    default: return napier_metric_grows(o->neighbors.metric, true) && !o->neighbors.metric_values;
    }
}

enum { LOST_CHUNK = 1024 };

typedef struct lost_task {
    napier_umap_samples samples;
    const knn *found;
    int64_t k;
    _Atomic int64_t lost;
} lost_task;

static void look_for_lost(void *argument, int64_t i) {
    lost_task *t = argument;
    int64_t differ = 0;
    for (int64_t s = i * t->k + 1; s < (i + 1) * t->k && t->found->distances[s] == 0.0f; s++) {
        differ += napier_samples_differ(t->samples, i, t->found->indices[s]);
    }
    t->lost += 2 * differ >= t->k - 1 && differ > 0;
}

/* The rows of which half of the neighbours or more are at distance 0, though the rows differ. */
static int64_t count_lost(const napier_context *context, napier_umap_samples samples, const napier_umap_options *o,
                          int64_t n, const knn *found) {
    lost_task task = {samples, found, o->neighbors.n_neighbors, 0};
    if (tells_rows_apart(o) && !o->knn_indices) {
        napier_parallel_each(context, n, LOST_CHUNK, look_for_lost, &task);
    }
    return task.lost;
}

static napier_status say(napier_context *context, const napier_umap_options *o, const char *stage, double done) {
    if (o->progress && o->progress(stage, done, o->user)) {
        return napier_fail(context, NAPIER_CANCELLED, "%s: cancelled", stage);
    }
    return NAPIER_OK;
}

/* Makes the graph of a fit: the fuzzy set, combined with the targets. */
static napier_status make_graph(napier_memory *memory, const napier_umap_options *o, int64_t n, const knn *k,
                                napier_umap_graph **out) {
    napier_context *const context = memory->context;
    NAPIER_TRY(napier_umap_fuzzy_simplicial_set(context, k->indices, k->distances, n, o->neighbors.n_neighbors,
                                                o->local_connectivity, o->set_op_mix_ratio, out));
    napier_status status = NAPIER_OK;
    if (o->target_categories) {
        status = napier_umap_join_categories(context, out, o->target_categories, o->target_weight);
    } else if (o->target_numbers) {
        const int64_t wanted = o->target_n_neighbors > 0 ? o->target_n_neighbors : o->neighbors.n_neighbors;
        status = napier_umap_join_numbers(context, out, o->target_numbers, wanted < n ? wanted : n, o->target_weight);
    }
    napier_keep(memory, *out); /* joining replaces the graph */
    return status ? status : say(context, o, "fuzzy set", 1.0);
}

/* ---- Start and layout -------------------------------------------------------------------------------------------- */

static napier_status make_start(napier_context *context, napier_umap_samples samples, const napier_umap_options *o,
                                const napier_umap_graph *graph, napier_matrix embedding) {
    switch (o->init) {
    case NAPIER_UMAP_INIT_PCA: NAPIER_TRY(napier_start_pca(context, samples, o->seed, embedding)); break;
    case NAPIER_UMAP_INIT_RANDOM: NAPIER_TRY(napier_umap_random_layout(context, o->seed, embedding)); break;
    case NAPIER_UMAP_INIT_GIVEN:
        memcpy(embedding.data, o->init_embedding, (size_t)(embedding.rows * embedding.cols) * sizeof(float));
        NAPIER_TRY(napier_umap_check_embedding(context, "init_embedding", napier_read_only(embedding)));
        break;
    default: NAPIER_TRY(napier_start_spectral(context, graph, samples, o->seed, embedding)); break;
    }
    return say(context, o, "start", 1.0);
}

/* The edges of at least `least`: 1 / epochs of the largest weight. Those would act at least once if they were
 * sampled. */
typedef struct pruning {
    const napier_umap_graph *graph;
    float least;
} pruning;

static int64_t pruned_row(const void *argument, int64_t v, uint32_t *targets, float *weights) {
    const pruning *t = argument;
    int64_t kept = 0;
    for (int64_t e = t->graph->starts[v]; e < t->graph->starts[v + 1]; e++) {
        if (t->graph->weights[e] >= t->least) {
            if (targets) {
                targets[kept] = t->graph->targets[e];
                weights[kept] = t->graph->weights[e];
            }
            kept++;
        }
    }
    return kept;
}

/* Computes the layout of a fuzzy set's graph, with densMAP if neighbours are given. The default scheme: Adam on all
 * edges, each by its weight. Each listing of an edge moves both its ends. The graph is symmetric, so instead each
 * vertex takes only its own edges, and each force counts twice. */
static napier_status lay_out(napier_context *context, const napier_umap_graph *graph, const napier_umap_options *o,
                             const knn *k, napier_matrix embedding) {
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.count = epochs.total = o->n_epochs;
    epochs.seed = o->seed;
    epochs.move_targets = 0;
    epochs.progress = o->progress;
    epochs.user = o->user;
    const pruning prune = {graph, napier_umap_highest_weight(graph) / (float)o->n_epochs};
    napier_umap_params params;
    napier_forces forces;
    napier_umap_graph *edges = NULL;
    napier_densmap *densmap = NULL;
    napier_umap_optimizer *optimizer = NULL;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_umap_graph_of_rows(context, graph->n, pruned_row, &prune, &edges));
    napier_keep(&memory, edges);
    if (o->densmap && k) {
        NAPIER_TRY(napier_densmap_create(&memory, graph, o, k->indices, k->distances, &densmap));
    }
    NAPIER_TRY(napier_umap_params_of(context, o, &params, &forces));
    NAPIER_TRY(napier_umap_optimizer_create(context, NULL, embedding.rows, embedding.cols, &optimizer));
    napier_keep(&memory, optimizer);
    napier_layout layout = napier_umap_layout_of(context, &forces, 2.0f, &params, &epochs, edges, NULL, embedding.rows,
                                                 embedding.cols, embedding.data);
    layout.rate = o->negative_sample_rate;
    const napier_epochs_run run = {&params, &epochs, &layout, optimizer, densmap, embedding.data};
    return napier_umap_run_epochs(context, &run);
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
    const knn given = {o.knn_indices, o.knn_distances};
    if (o.densmap && given.indices) {
        NAPIER_TRY(check_given(context, &o, graph->n));
    }
    return lay_out(context, graph, &o, given.indices ? &given : NULL, embedding);
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

/* rows: the samples as f32 or CSR, less their offsets and times 2^exponent. given: the samples as they were given. */
static napier_status fit_points(napier_context *context, napier_umap_samples rows, napier_umap_samples given,
                                const napier_umap_options *o, int exponent, napier_matrix embedding, int64_t *lost) {
    if (embedding.rows == 1) { /* a single point has no neighbours */
        memset(embedding.data, 0, (size_t)o->n_components * sizeof(float));
        return NAPIER_OK;
    }
    knn k;
    napier_umap_graph *graph = NULL;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(find_neighbors(&memory, rows, o, exponent, embedding.rows, &k));
    *lost = count_lost(context, given, o, embedding.rows, &k);
    NAPIER_TRY(make_graph(&memory, o, embedding.rows, &k, &graph));
    NAPIER_TRY(make_start(context, rows, o, graph, embedding));
    NAPIER_TRY(lay_out(context, graph, o, &k, embedding));
    take_away_places(graph, embedding);
    return NAPIER_OK;
}

/* Checks the arguments and makes a model in `memory`, all but its embedding. */
static napier_status start_model(napier_memory *memory, napier_umap_samples samples, const napier_umap_options *options,
                                 napier_umap_options *o, napier_umap_model **model) {
    napier_context *const context = memory->context;
    napier_samples_copy data;
    double *offsets;
    NAPIER_TRY(napier_samples_check(context, "samples", samples));
    NAPIER_REFUSE_IF(context, napier_samples_rows(samples) == 0, "samples: no points");
    NAPIER_TRY(napier_umap_check_options(context, options, napier_samples_rows(samples), o));
    const napier_metric metric = o->neighbors.metric;
    const char *checked = o->knn_indices ? NULL : "samples"; /* the rows are measured */
    NAPIER_TRY(napier_samples_offsets(memory, checked, samples, metric, &offsets));
    NAPIER_TRY(napier_samples_copy_of(memory, samples, offsets, napier_metric_moves_rows(metric), &data));
    const float *values = o->neighbors.metric_values;
    const int64_t metric_count = values ? napier_umap_metric_count(metric, data.cols) : 0;
    NAPIER_TRY(napier_umap_model_begin(memory, o, data.rows, metric_count, model));
    if (metric_count > 0) {
        memcpy((*model)->metric_values, values, (size_t)metric_count * sizeof *values);
    }
    (*model)->data = data;
    (*model)->offsets = offsets;
    (*model)->offset_count = offsets ? napier_umap_offset_count(metric, data.rows, data.cols) : 0;
    return NAPIER_OK;
}

napier_status napier_umap_fit(napier_context *context, napier_umap_samples samples, const napier_umap_options *options,
                              napier_umap_model **out) {
    NAPIER_DEFAULT_FENV;
    napier_umap_options o;
    napier_umap_model *model;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_MEMORY(memory, context);
    NAPIER_MEMORY(own, context);
    NAPIER_TRY(start_model(&memory, samples, options, &o, &model));
    if (model->data.bad_row >= 0 && !o.knn_indices && o.neighbors.metric != NAPIER_METRIC_PRECOMPUTED) {
        return napier_read_refuse(context, "samples", samples, model->data.bad_row, model->data.bad_col);
    }
    napier_umap_samples rows = napier_samples_view(&model->data);
    const int exponent = napier_samples_exponent(context, &model->data, o.neighbors.metric);
    NAPIER_TRY(napier_samples_scaled(&own, rows, exponent, &rows));
    if (!o.knn_indices) {
        napier_umap_scale_limit(&o, exponent);
    }
    NAPIER_TRY(fit_points(context, rows, samples, &o, exponent,
                          napier_rows_f32(model->embedding, model->n, o.n_components), &model->lost));
    *out = napier_umap_model_finish(model, &memory);
    return NAPIER_OK;
}

napier_status napier_umap_model_create(napier_context *context, napier_umap_samples samples,
                                       const napier_umap_options *options, napier_const_matrix embedding,
                                       napier_umap_model **out) {
    NAPIER_DEFAULT_FENV;
    napier_umap_options o;
    napier_umap_model *model;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(start_model(&memory, samples, options, &o, &model));
    NAPIER_TRY(napier_umap_check_places(context, "embedding", embedding));
    NAPIER_REFUSE_IF(context, embedding.rows != model->n || embedding.cols != o.n_components,
                     "embedding: %lld x %lld, not %lld x %lld", (long long)embedding.rows, (long long)embedding.cols,
                     (long long)model->n, (long long)o.n_components);
    memcpy(model->embedding, embedding.data, (size_t)(model->n * o.n_components) * sizeof *model->embedding);
    *out = napier_umap_model_finish(model, &memory);
    return NAPIER_OK;
}
