/* umap_stages.c - neighbours, fuzzy sets, starts, layouts, models and their quality. See umap_call.h. */
#include "umap_call.h"

/* ---- Metrics and neighbours -------------------------------------------------------------------------------------- */

RAW(metric_name) {
    START(metric_name, 2)
    int64_t metric;
    PyObject *name = NULL;
    if (work_int64(&w, 0, "metric", &metric)) {
        const char *text = metric >= 0 && metric < 1000 ? napier_metric_name((napier_metric)metric) : NULL;
        name = text ? PyUnicode_FromString(text) : Py_NewRef(Py_None);
    }
    return work_end(&w, name != NULL, name);
}

RAW(metric_from_name) {
    START(metric_from_name, 2)
    const char *name = PyUnicode_AsUTF8AndSize(values[0], NULL);
    return work_end(&w, name != NULL, name ? PyLong_FromLong(napier_metric_from_name(name)) : NULL);
}

RAW(metric_disconnection) {
    START(metric_disconnection, 2)
    int64_t metric;
    const bool good = work_int64(&w, 0, "metric", &metric);
    return work_end(&w, good,
                    good ? PyFloat_FromDouble((double)napier_metric_disconnection((napier_metric)metric)) : NULL);
}

#define NEIGHBOR_FIELDS(struct_, prefix_)                                                                           \
    {"n_neighbors", offsetof(struct_, prefix_ n_neighbors), 'l', NULL},                                             \
        {"metric", offsetof(struct_, prefix_ metric), 'i', NULL}, {"p", offsetof(struct_, prefix_ p), 'd', NULL}, { \
        "method", offsetof(struct_, prefix_ method), 'i', NULL                                                      \
    }

static const field neighbors_fields[] = {NEIGHBOR_FIELDS(napier_neighbors_options, ),
                                         FIELD(napier_neighbors_options, seed, 'u'), FIELDS_END};

/* Takes variances or an inverse covariance, for as many columns as the samples have. */
static bool work_metric_values(umap_work *w, int place, const sample_set *s, napier_neighbors_options *options) {
    array *a;
    if (!work_array(w, place, "metric_values", 'f', 1, OPTIONAL, &a)) {
        return false;
    }
    const bool square = options->metric == NAPIER_METRIC_MAHALANOBIS;
    if (a && square && s->cols > 32768) { /* the library reports it; the product below would overflow */
        return true;
    }
    options->metric_values = elements(a);
    const int64_t pair = 2; /* string's options */
    return shape_is(a, "metric_values",
                    square                                    ? s->cols * s->cols
                    : options->metric == NAPIER_METRIC_STRING ? pair
                                                              : s->cols,
                    -1);
}

static bool work_neighbors_options(umap_work *w, napier_neighbors_options *options) {
    options->progress = work_progress;
    options->user = w;
    return work_fields(w, neighbors_fields, options);
}

/* Both [n, k]. */
static bool work_lists(umap_work *w, int place, int64_t n, int64_t k, int flags, array **indices, array **distances) {
    return work_array(w, place, "indices", 'i', 2, flags, indices) && shape_is(*indices, "indices", n, k) &&
           work_array(w, place + 1, "distances", 'f', 2, flags, distances) &&
           shape_is(*distances, "distances", *indices ? (*indices)->shape[0] : n, *indices ? (*indices)->shape[1] : k);
}

RAW(nearest_neighbors) {
    START(nearest_neighbors, 5)
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    sample_set s;
    array *indices, *distances;
    const bool good =
        work_neighbors_options(&w, &options) && work_samples(&w, 0, "samples", &s) &&
        work_metric_values(&w, 1, &s, &options) &&
        work_lists(&w, 2, s.rows, options.n_neighbors, WRITABLE, &indices, &distances) &&
        WORK(&w, napier_nearest_neighbors(w.context, s.samples, &options, elements(indices), elements(distances)));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(nearest_neighbors_of) {
    START(nearest_neighbors_of, 6)
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    sample_set s, queries;
    array *indices, *distances;
    const bool good = work_neighbors_options(&w, &options) && work_samples(&w, 0, "samples", &s) &&
                      work_samples(&w, 1, "queries", &queries) && work_metric_values(&w, 2, &s, &options) &&
                      work_lists(&w, 3, queries.rows, options.n_neighbors, WRITABLE, &indices, &distances) &&
                      WORK(&w, napier_nearest_neighbors_of(w.context, s.samples, queries.samples, &options,
                                                           elements(indices), elements(distances)));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

/* ---- Fuzzy sets -------------------------------------------------------------------------------------------------- */

RAW(smooth_knn_dist) {
    START(smooth_knn_dist, 5)
    array *distances, *rhos, *sigmas;
    double connectivity;
    const bool good =
        work_array(&w, 0, "distances", 'f', 2, 0, &distances) &&
        work_double(&w, 1, "local_connectivity", &connectivity) && work_array(&w, 2, "rhos", 'f', 1, WRITABLE, &rhos) &&
        shape_is(rhos, "rhos", distances->shape[0], -1) && work_array(&w, 3, "sigmas", 'f', 1, WRITABLE, &sigmas) &&
        shape_is(sigmas, "sigmas", distances->shape[0], -1) &&
        WORK(&w, napier_umap_smooth_knn_dist(w.context, elements(distances), distances->shape[0], distances->shape[1],
                                             connectivity, elements(rhos), elements(sigmas)));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(fuzzy_simplicial_set) {
    START(fuzzy_simplicial_set, 5)
    array *indices, *distances;
    double connectivity, mix;
    napier_umap_graph *graph = NULL;
    const bool good =
        work_lists(&w, 0, -1, -1, 0, &indices, &distances) && work_double(&w, 2, "local_connectivity", &connectivity) &&
        work_double(&w, 3, "set_op_mix_ratio", &mix) &&
        WORK(&w, napier_umap_fuzzy_simplicial_set(w.context, elements(indices), elements(distances), indices->shape[0],
                                                  indices->shape[1], connectivity, mix, &graph));
    return end_with_graph(&w, good, graph);
}

/* Takes a graph of the caller: its sorted edges at `place`, and its number of vertices after it. The library checks
 * them. */
static bool work_vertices(umap_work *w, int place, napier_umap_graph **graph) {
    edge_list e;
    int64_t n;
    *graph = NULL;
    return work_edges(w, place, 0, &e) && work_int64(w, place + 1, "n", &n) &&
           WORK(w, napier_umap_graph_from_edges(w->context, e.edges, e.count, n, graph));
}

RAW(join_categories) {
    START(join_categories, 5)
    array *categories;
    double weight;
    napier_umap_graph *graph = NULL;
    const bool good = work_array(&w, 2, "categories", 'i', 1, 0, &categories) &&
                      work_double(&w, 3, "target_weight", &weight) && work_vertices(&w, 0, &graph) &&
                      shape_is(categories, "categories", graph->n, -1) &&
                      WORK(&w, napier_umap_join_categories(w.context, &graph, elements(categories), weight));
    return end_with_graph(&w, good, graph);
}

RAW(join_numbers) {
    START(join_numbers, 6)
    array *numbers;
    double weight;
    int64_t n_neighbors;
    napier_umap_graph *graph = NULL;
    const bool good = work_array(&w, 2, "numbers", 'f', 1, 0, &numbers) &&
                      work_int64(&w, 3, "n_neighbors", &n_neighbors) && work_double(&w, 4, "target_weight", &weight) &&
                      work_vertices(&w, 0, &graph) && shape_is(numbers, "numbers", graph->n, -1) &&
                      WORK(&w, napier_umap_join_numbers(w.context, &graph, elements(numbers), n_neighbors, weight));
    return end_with_graph(&w, good, graph);
}

RAW(join_distances) {
    START(join_distances, 5)
    array *distances;
    double weight;
    napier_umap_graph *graph = NULL;
    const bool good = work_array(&w, 2, "distances", 'f', 1, 0, &distances) &&
                      work_double(&w, 3, "target_weight", &weight) && work_vertices(&w, 0, &graph) &&
                      shape_is(distances, "distances", graph->starts[graph->n], -1) &&
                      WORK(&w, napier_umap_join_distances(w.context, &graph, elements(distances), weight));
    return end_with_graph(&w, good, graph);
}

RAW(combine) {
    START(combine, 8)
    int64_t operation, n_neighbors;
    double weight;
    napier_umap_graph *left = NULL, *right = NULL, *graph = NULL;
    const bool good = work_int64(&w, 4, "operation", &operation) && work_double(&w, 5, "weight", &weight) &&
                      work_int64(&w, 6, "n_neighbors", &n_neighbors) && work_vertices(&w, 0, &left) &&
                      work_vertices(&w, 2, &right) &&
                      WORK(&w, napier_umap_combine(w.context, (napier_umap_operation)operation, left, right, weight,
                                                   n_neighbors, &graph));
    napier_umap_graph_destroy(w.context, left);
    napier_umap_graph_destroy(w.context, right);
    return end_with_graph(&w, good, graph);
}

/* ---- Starts ------------------------------------------------------------------------------------------------------ */

static const field seed_fields[] = {{"seed", 0, 'u', NULL}, FIELDS_END};

RAW(spectral_layout) {
    START(spectral_layout, 5)
    uint64_t seed = 42;
    sample_set s;
    napier_matrix embedding;
    napier_umap_graph *graph = NULL;
    const bool good = work_fields(&w, seed_fields, &seed) && work_samples(&w, 2, "samples", &s) &&
                      work_result(&w, 3, "embedding", -1, -1, 0, &embedding) && work_vertices(&w, 0, &graph) &&
                      WORK(&w, napier_umap_spectral_layout(w.context, graph, s.samples, seed, embedding));
    napier_umap_graph_destroy(w.context, graph);
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(pca_layout) {
    START(pca_layout, 3)
    uint64_t seed = 42;
    sample_set s;
    napier_matrix embedding;
    const bool good = work_fields(&w, seed_fields, &seed) && work_samples(&w, 0, "samples", &s) &&
                      work_result(&w, 1, "embedding", s.rows, -1, 0, &embedding) &&
                      WORK(&w, napier_umap_pca_layout(w.context, s.samples, seed, embedding));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(random_layout) {
    START(random_layout, 2)
    uint64_t seed = 42;
    napier_matrix embedding;
    const bool good = work_fields(&w, seed_fields, &seed) && work_result(&w, 0, "embedding", -1, -1, 0, &embedding) &&
                      WORK(&w, napier_umap_random_layout(w.context, seed, embedding));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

/* ---- Layouts and models ------------------------------------------------------------------------------------------ */

static const field fit_fields[] = {NEIGHBOR_FIELDS(napier_umap_options, neighbors.),
                                   FIELD(napier_umap_options, n_components, 'l'),
                                   FIELD(napier_umap_options, n_epochs, 'l'),
                                   FIELD(napier_umap_options, min_dist, 'd'),
                                   FIELD(napier_umap_options, spread, 'd'),
                                   FIELD(napier_umap_options, a, 'd'),
                                   FIELD(napier_umap_options, b, 'd'),
                                   FIELD(napier_umap_options, learning_rate, 'd'),
                                   FIELD(napier_umap_options, set_op_mix_ratio, 'd'),
                                   FIELD(napier_umap_options, local_connectivity, 'd'),
                                   FIELD(napier_umap_options, repulsion_strength, 'd'),
                                   FIELD(napier_umap_options, negative_sample_rate, 'd'),
                                   FIELD(napier_umap_options, init, 'i'),
                                   FIELD(napier_umap_options, seed, 'u'),
                                   FIELD(napier_umap_options, transform_seed, 'u'),
                                   FIELD(napier_umap_options, target_n_neighbors, 'l'),
                                   FIELD(napier_umap_options, target_weight, 'd'),
                                   FIELD(napier_umap_options, densmap, 'i'),
                                   FIELD(napier_umap_options, dens_lambda, 'd'),
                                   FIELD(napier_umap_options, dens_frac, 'd'),
                                   FIELD(napier_umap_options, dens_var_shift, 'd'),
                                   FIELD(napier_umap_options, disconnection_distance, 'd'),
                                   FIELDS_END};

/* The search uses the seed of the map. */
static bool work_fit_options(umap_work *w, napier_umap_options *options) {
    options->progress = work_progress;
    options->user = w;
    if (!work_fields(w, fit_fields, options)) {
        return false;
    }
    options->neighbors.seed = options->seed;
    return true;
}

static bool take_lists(const array *indices, const array *distances, napier_umap_options *options) {
    options->knn_indices = elements(indices);
    options->knn_distances = elements(distances);
    return true;
}

/* edges, n, embedding, indices, distances, options */
RAW(optimize_layout) {
    START(optimize_layout, 6)
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    napier_matrix embedding;
    napier_umap_graph *graph = NULL;
    array *indices, *distances;
    const bool good =
        work_fit_options(&w, &options) && work_result(&w, 2, "embedding", -1, -1, 0, &embedding) &&
        work_lists(&w, 3, embedding.rows, options.neighbors.n_neighbors, OPTIONAL, &indices, &distances) &&
        take_lists(indices, distances, &options) && work_vertices(&w, 0, &graph) &&
        WORK(&w, napier_umap_optimize_layout(w.context, graph, &options, embedding));
    napier_umap_graph_destroy(w.context, graph);
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

static const char model_kind[] = "napier.umap.Model";

static void model_destroy(napier_context *context, void *object) { napier_umap_model_destroy(context, object); }
static void model_end(PyObject *capsule) { kept_end(capsule, model_kind, model_destroy); }

static napier_status model_to_bytes(napier_context *context, const void *object, uint8_t *bytes, size_t capacity,
                                    size_t *size) {
    return napier_umap_model_to_bytes(context, object, bytes, capacity, size);
}

/* Takes what is precomputed or known: neighbours (2 values), a start, categories, numbers; each may be None. */
static bool work_known(umap_work *w, int place, int64_t n, napier_umap_options *options) {
    array *indices, *distances, *start, *categories, *numbers;
    if (!work_lists(w, place, n, options->neighbors.n_neighbors, OPTIONAL, &indices, &distances) ||
        !work_array(w, place + 2, "init", 'f', 2, OPTIONAL, &start) ||
        !shape_is(start, "init", n, options->n_components) ||
        !work_array(w, place + 3, "y", 'i', 1, OPTIONAL, &categories) || !shape_is(categories, "y", n, -1) ||
        !work_array(w, place + 4, "y", 'f', 1, OPTIONAL, &numbers) || !shape_is(numbers, "y", n, -1)) {
        return false;
    }
    (void)take_lists(indices, distances, options);
    options->init_embedding = elements(start);
    options->target_categories = elements(categories);
    options->target_numbers = elements(numbers);
    return true;
}

/* samples, metric_values, indices, distances, init, categories, numbers, options */
RAW(fit) {
    START(fit, 8)
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    napier_umap_model *made = NULL;
    sample_set s;
    const bool good = work_fit_options(&w, &options) && work_samples(&w, 0, "samples", &s) &&
                      work_metric_values(&w, 1, &s, &options.neighbors) && work_known(&w, 2, s.rows, &options);
    RETURN_KEPT(good, model_kind, model_end, made, napier_umap_fit(k->context, s.samples, &options, &made));
}

/* samples, metric_values, embedding, options */
RAW(model_of) {
    START(model_of, 4)
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    napier_umap_model *made = NULL;
    sample_set s;
    napier_const_matrix embedding;
    const bool good = work_fit_options(&w, &options) && work_samples(&w, 0, "samples", &s) &&
                      work_metric_values(&w, 1, &s, &options.neighbors) && work_matrix(&w, 2, "embedding", &embedding);
    RETURN_KEPT(good, model_kind, model_end, made,
                napier_umap_model_create(k->context, s.samples, &options, embedding, &made));
}

/* (points, components, features) */
RAW(model_shape) {
    START(model_shape, 2)
    const kept *k = work_kept(&w, 0, model_kind);
    PyObject *shape = NULL;
    if (k) {
        const napier_const_matrix map = napier_umap_model_embedding(k->object);
        shape = Py_BuildValue("LLLL", (long long)map.rows, (long long)map.cols,
                              (long long)napier_umap_model_features(k->object),
                              (long long)napier_umap_model_indistinct(k->object));
    }
    return work_end(&w, shape != NULL, shape);
}

RAW(model_embedding) {
    START(model_embedding, 2)
    const kept *k = work_kept(&w, 0, model_kind);
    PyObject *bytes = NULL;
    if (k) {
        const napier_const_matrix map = napier_umap_model_embedding(k->object);
        bytes = PyByteArray_FromStringAndSize(map.data, (Py_ssize_t)(map.rows * map.cols) * (Py_ssize_t)sizeof(float));
    }
    return work_end(&w, bytes != NULL, bytes);
}

RAW(disconnected) {
    START(disconnected, 2)
    napier_const_matrix embedding;
    const bool good = work_matrix(&w, 0, "embedding", &embedding);
    return work_end(&w, good, good ? PyLong_FromLongLong((long long)napier_umap_disconnected(embedding)) : NULL);
}

RAW(transform) {
    START(transform, 4)
    const kept *k = work_kept(&w, 0, model_kind);
    sample_set s;
    napier_matrix embedding;
    const bool good = k && work_samples(&w, 1, "samples", &s) &&
                      work_result(&w, 2, "embedding", s.rows, -1, 0, &embedding) &&
                      WORK(&w, napier_umap_transform(w.context, k->object, s.samples, embedding));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(inverse_transform) {
    START(inverse_transform, 4)
    const kept *k = work_kept(&w, 0, model_kind);
    napier_const_matrix points;
    napier_matrix samples;
    const bool good = k && work_matrix(&w, 1, "points", &points) &&
                      work_result(&w, 2, "samples", points.rows, -1, 0, &samples) &&
                      WORK(&w, napier_umap_inverse_transform(w.context, k->object, points, samples));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(model_save) {
    START(model_save, 3)
    const kept *k = work_kept(&w, 0, model_kind);
    char *path = NULL;
    Py_ssize_t length = 0;
    PyObject *encoded = NULL;
    const bool good = k && PyUnicode_FSConverter(values[1], &encoded) &&
                      PyBytes_AsStringAndSize(encoded, &path, &length) == 0 &&
                      WORK(&w, napier_umap_model_save(w.context, k->object, path));
    Py_XDECREF(encoded);
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(model_to_bytes) {
    START(model_to_bytes, 2)
    const kept *k = work_kept(&w, 0, model_kind);
    PyObject *bytes = k ? work_bytes(&w, model_to_bytes, k->object) : NULL;
    return work_end(&w, bytes != NULL, bytes);
}

RAW(model_from_bytes) {
    START(model_from_bytes, 2)
    napier_umap_model *made = NULL;
    char *bytes = NULL;
    Py_ssize_t size = 0;
    const bool good = PyBytes_AsStringAndSize(values[0], &bytes, &size) == 0;
    RETURN_KEPT(good, model_kind, model_end, made,
                napier_umap_model_from_bytes(k->context, (const uint8_t *)bytes, (size_t)size, &made));
}

RAW(model_load) {
    START(model_load, 2)
    napier_umap_model *made = NULL;
    PyObject *encoded = NULL;
    char *path = NULL;
    Py_ssize_t length = 0;
    const bool good =
        PyUnicode_FSConverter(values[0], &encoded) && PyBytes_AsStringAndSize(encoded, &path, &length) == 0;
    call_add(&w.arrays, encoded); /* released with them */
    RETURN_KEPT(good, model_kind, model_end, made, napier_umap_model_load(k->context, path, &made));
}

/* samples, metric_values, embedding, labels or None, rows, options */
RAW(quality_of) {
    START(quality_of, 6)
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    napier_umap_quality q;
    sample_set s;
    napier_const_matrix embedding;
    array *labels;
    int64_t rows;
    const bool good =
        work_neighbors_options(&w, &options) && work_samples(&w, 0, "samples", &s) &&
        work_metric_values(&w, 1, &s, &options) && work_matrix(&w, 2, "embedding", &embedding) &&
        work_array(&w, 3, "labels", 'i', 1, OPTIONAL, &labels) && shape_is(labels, "labels", s.rows, -1) &&
        work_int64(&w, 4, "rows", &rows) &&
        WORK(&w, napier_umap_quality_of(w.context, s.samples, &options, embedding, elements(labels), rows, &q));
    return work_end(&w, good,
                    good ? Py_BuildValue("ddd", q.trustworthiness, q.neighbor_preservation, q.knn_accuracy) : NULL);
}

PyMethodDef umap_stage_functions[] = {FUNCTION(metric_name),
                                      FUNCTION(metric_from_name),
                                      FUNCTION(metric_disconnection),
                                      FUNCTION(nearest_neighbors),
                                      FUNCTION(nearest_neighbors_of),
                                      FUNCTION(smooth_knn_dist),
                                      FUNCTION(fuzzy_simplicial_set),
                                      FUNCTION(join_categories),
                                      FUNCTION(join_numbers),
                                      FUNCTION(spectral_layout),
                                      FUNCTION(pca_layout),
                                      FUNCTION(random_layout),
                                      FUNCTION(optimize_layout),
                                      FUNCTION(fit),
                                      FUNCTION(join_distances),
                                      FUNCTION(combine),
                                      FUNCTION(model_of),
                                      FUNCTION(model_shape),
                                      FUNCTION(model_embedding),
                                      FUNCTION(disconnected),
                                      FUNCTION(transform),
                                      FUNCTION(inverse_transform),
                                      FUNCTION(model_save),
                                      FUNCTION(model_load),
                                      FUNCTION(model_to_bytes),
                                      FUNCTION(model_from_bytes),
                                      FUNCTION(quality_of),
                                      {NULL, NULL, 0, NULL}};
