/* umap_edges.c - the curve, edges, forces, and epochs of an optimizer: one function for each in napier/umap.h. */
#include "umap_call.h"

static const field params_fields[] = {FIELD(napier_umap_params, a, 'f'),
                                      FIELD(napier_umap_params, b, 'f'),
                                      FIELD(napier_umap_params, learning_rate, 'f'),
                                      FIELD(napier_umap_params, negative_sample_rate, 'j'),
                                      FIELD(napier_umap_params, repulsion_strength, 'f'),
                                      FIELD(napier_umap_params, epsilon, 'f'),
                                      FIELD(napier_umap_params, clip, 'f'),
                                      FIELD(napier_umap_params, max_norm, 'f'),
                                      FIELDS_END};

static const napier_umap_params default_params = NAPIER_UMAP_PARAMS_INIT;

/* ---- The curve and lists of edges -------------------------------------------------------------------------------- */

RAW(find_ab_params) {
    START(find_ab_params, 3)
    double min_dist, spread;
    float a = 0.0f, b = 0.0f;
    const bool good = work_double(&w, 0, "min_dist", &min_dist) && work_double(&w, 1, "spread", &spread) &&
                      WORK(&w, napier_umap_find_ab_params(w.context, min_dist, spread, &a, &b));
    return work_end(&w, good, good ? Py_BuildValue("dd", (double)a, (double)b) : NULL);
}

RAW(sort_edges) {
    START(sort_edges, 2)
    edge_list e;
    const bool good = work_edges(&w, 0, WRITABLE, &e) && WORK(&w, napier_umap_sort_edges(w.context, e.edges, e.count));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(segments) {
    START(segments, 4)
    edge_list e;
    array *starts, *counts;
    const bool good =
        work_edges(&w, 0, 0, &e) && work_array(&w, 1, "starts", 'l', 1, WRITABLE, &starts) &&
        work_array(&w, 2, "counts", 'l', 1, WRITABLE, &counts) && shape_is(counts, "counts", starts->size, -1) &&
        WORK(&w, napier_umap_segments(w.context, e.edges, e.count, starts->size, elements(starts), elements(counts)));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(graph_from_edges) {
    START(graph_from_edges, 3)
    edge_list e;
    int64_t n;
    napier_umap_graph *graph = NULL;
    const bool good = work_edges(&w, 0, 0, &e) && work_int64(&w, 1, "n", &n) &&
                      WORK(&w, napier_umap_graph_from_edges(w.context, e.edges, e.count, n, &graph));
    return end_with_graph(&w, good, graph);
}

/* ---- Primitives: params are the dict ----------------------------------------------------------------------------- */

RAW(edge_gradients) {
    START(edge_gradients, 5)
    napier_umap_params p = default_params;
    napier_const_matrix embedding;
    edge_list e;
    napier_matrix source, target;
    const bool good = work_fields(&w, params_fields, &p) && work_matrix(&w, 0, "embedding", &embedding) &&
                      work_edges(&w, 1, 0, &e) &&
                      work_result(&w, 2, "source_gradients", e.count, embedding.cols, OPTIONAL, &source) &&
                      work_result(&w, 3, "target_gradients", e.count, embedding.cols, OPTIONAL, &target) &&
                      WORK(&w, napier_umap_edge_gradients(w.context, &p, embedding, e.edges, e.count, source, target));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(reduce_segments) {
    START(reduce_segments, 5)
    napier_const_matrix each;
    array *starts, *counts;
    napier_matrix sums;
    const bool good = work_matrix(&w, 0, "edge_gradients", &each) && work_array(&w, 1, "starts", 'l', 1, 0, &starts) &&
                      work_array(&w, 2, "counts", 'l', 1, 0, &counts) && shape_is(counts, "counts", starts->size, -1) &&
                      work_result(&w, 3, "gradients", starts->size, each.cols, 0, &sums) &&
                      WORK(&w, napier_umap_reduce_segments(w.context, each, elements(starts), elements(counts), sums));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(gradients) {
    START(gradients, 5)
    napier_umap_params p = default_params;
    napier_const_matrix embedding;
    edge_list e;
    int64_t move_targets;
    napier_matrix sums;
    const bool good =
        work_fields(&w, params_fields, &p) && work_matrix(&w, 0, "embedding", &embedding) && work_edges(&w, 1, 0, &e) &&
        work_int64(&w, 2, "move_targets", &move_targets) &&
        work_result(&w, 3, "gradients", embedding.rows, embedding.cols, 0, &sums) &&
        WORK(&w, napier_umap_gradients(w.context, &p, embedding, e.edges, e.count, move_targets != 0, sums));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(apply) {
    START(apply, 4)
    double rate;
    napier_const_matrix gradients;
    napier_matrix embedding;
    const bool good = work_double(&w, 0, "learning_rate", &rate) && work_matrix(&w, 1, "gradients", &gradients) &&
                      work_result(&w, 2, "embedding", gradients.rows, gradients.cols, 0, &embedding) &&
                      WORK(&w, napier_umap_apply(w.context, (float)rate, gradients, embedding));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

static const field draw_fields[] = {{"seed", 0, 'u', NULL}, FIELDS_END};

RAW(negative_targets) {
    START(negative_targets, 3)
    uint64_t seed = 42;
    int64_t epoch;
    array *targets;
    const bool good = work_fields(&w, draw_fields, &seed) && work_int64(&w, 0, "epoch", &epoch) &&
                      work_array(&w, 1, "targets", 'i', 2, WRITABLE, &targets) &&
                      WORK(&w, napier_umap_negative_targets(w.context, seed, epoch, targets->shape[0],
                                                            targets->shape[1], elements(targets)));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

/* The draws of each vertex, or none. */
static bool work_targets(umap_work *w, int place, int64_t n, array **targets, int64_t *rate) {
    if (!work_array(w, place, "targets", 'i', 2, OPTIONAL, targets) || !shape_is(*targets, "targets", n, -1)) {
        return false;
    }
    *rate = *targets ? (*targets)->shape[1] : 0;
    return true;
}

RAW(negative_gradients) {
    START(negative_gradients, 4)
    napier_umap_params p = default_params;
    napier_const_matrix embedding;
    array *targets;
    int64_t rate;
    napier_matrix sums;
    const bool good = work_fields(&w, params_fields, &p) && work_matrix(&w, 0, "embedding", &embedding) &&
                      work_targets(&w, 1, embedding.rows, &targets, &rate) &&
                      work_result(&w, 2, "gradients", embedding.rows, embedding.cols, 0, &sums) &&
                      WORK(&w, napier_umap_negative_gradients(w.context, &p, embedding, elements(targets), rate, sums));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

RAW(loss) {
    START(loss, 4)
    napier_umap_params p = default_params;
    napier_const_matrix embedding;
    edge_list e;
    array *targets;
    int64_t rate;
    double loss = 0.0;
    const bool good =
        work_fields(&w, params_fields, &p) && work_matrix(&w, 0, "embedding", &embedding) && work_edges(&w, 1, 0, &e) &&
        work_targets(&w, 2, embedding.rows, &targets, &rate) &&
        WORK(&w, napier_umap_loss(w.context, &p, embedding, e.edges, e.count, elements(targets), rate, &loss));
    return work_end(&w, good, good ? PyFloat_FromDouble(loss) : NULL);
}

/* ---- Optimizers -------------------------------------------------------------------------------------------------- */

static const char optimizer_kind[] = "napier.umap.Optimizer";

static void optimizer_destroy(napier_context *context, void *object) { napier_umap_optimizer_destroy(context, object); }
static void optimizer_end(PyObject *capsule) { kept_end(capsule, optimizer_kind, optimizer_destroy); }

static napier_status optimizer_to_bytes(napier_context *context, const void *object, uint8_t *bytes, size_t capacity,
                                        size_t *size) {
    return napier_umap_optimizer_to_bytes(context, object, bytes, capacity, size);
}

static const field optimizer_fields[] = {
    FIELD(napier_umap_optimizer_options, method, 'i'), FIELD(napier_umap_optimizer_options, beta, 'f'),
    FIELD(napier_umap_optimizer_options, beta1, 'f'),  FIELD(napier_umap_optimizer_options, beta2, 'f'),
    FIELD(napier_umap_optimizer_options, eps, 'f'),    FIELDS_END};

RAW(optimizer_create) {
    START(optimizer_create, 3)
    napier_umap_optimizer_options options = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
    napier_umap_optimizer *made = NULL;
    int64_t n, components;
    const bool good = work_fields(&w, optimizer_fields, &options) && work_int64(&w, 0, "n", &n) &&
                      work_int64(&w, 1, "n_components", &components);
    RETURN_KEPT(good, optimizer_kind, optimizer_end, made,
                napier_umap_optimizer_create(k->context, &options, n, components, &made));
}

RAW(optimizer_from_bytes) {
    START(optimizer_from_bytes, 2)
    napier_umap_optimizer *made = NULL;
    char *bytes = NULL;
    Py_ssize_t size = 0;
    const bool good = PyBytes_AsStringAndSize(values[0], &bytes, &size) == 0;
    RETURN_KEPT(good, optimizer_kind, optimizer_end, made,
                napier_umap_optimizer_from_bytes(k->context, (const uint8_t *)bytes, (size_t)size, &made));
}

/* Takes an optimizer that no other call is using. */
static kept *work_optimizer(umap_work *w, int place) {
    kept *k = work_kept(w, place, optimizer_kind);
    if (k && k->busy) {
        PyErr_Format(PyExc_RuntimeError, "%s: another thread is using this optimizer", w->function);
        return NULL;
    }
    return k;
}

RAW(optimizer_to_bytes) {
    START(optimizer_to_bytes, 2)
    kept *k = work_optimizer(&w, 0);
    PyObject *bytes = NULL;
    if (k) {
        k->busy = true;
        bytes = work_bytes(&w, optimizer_to_bytes, k->object);
        k->busy = false;
    }
    return work_end(&w, bytes != NULL, bytes);
}

/* ---- Epochs ------------------------------------------------------------------------------------------------------ */

static const field epochs_fields[] = {
    FIELD(napier_umap_epochs, first, 'l'),        FIELD(napier_umap_epochs, count, 'l'),
    FIELD(napier_umap_epochs, total, 'l'),        FIELD(napier_umap_epochs, seed, 'u'),
    FIELD(napier_umap_epochs, edge_use, 'i'),     FIELD(napier_umap_epochs, rate_per, 'i'),
    FIELD(napier_umap_epochs, move_targets, 'i'), FIELDS_END};

static bool work_params_dict(umap_work *w, int place, napier_umap_params *p) {
    if (!PyDict_Check(w->values[place])) {
        PyErr_SetString(PyExc_TypeError, "params: expected a dict");
        return false;
    }
    return work_fields_of(w->values[place], params_fields, p);
}

/* edges, targets or None, optimizer or None, embedding, params, epochs */
RAW(optimize_epochs) {
    START(optimize_epochs, 6)
    napier_umap_params p = default_params;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    edge_list e;
    array *targets;
    napier_matrix embedding;
    kept *k = NULL;
    int64_t rate;
    epochs.progress = work_progress;
    epochs.user = &w;
    bool good = work_fields_of(values[5], epochs_fields, &epochs) && work_edges(&w, 0, 0, &e) &&
                work_result(&w, 3, "embedding", -1, -1, 0, &embedding) &&
                work_targets(&w, 1, embedding.rows, &targets, &rate) && work_params_dict(&w, 4, &p) &&
                (values[2] == Py_None || (k = work_optimizer(&w, 2)) != NULL);
    if (good && targets && rate != p.negative_sample_rate) {
        PyErr_Format(PyExc_ValueError, "targets: %lld to a vertex, but negative_sample_rate is %d", (long long)rate,
                     (int)p.negative_sample_rate);
        good = false;
    }
    if (good) {
        if (k) {
            k->busy = true;
        }
        good = WORK(&w, napier_umap_optimize_epochs(w.context, &p, &epochs, e.edges, e.count, elements(targets),
                                                    k ? k->object : NULL, embedding));
        if (k) {
            k->busy = false;
        }
    }
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

PyMethodDef umap_edge_functions[] = {FUNCTION(find_ab_params),
                                     FUNCTION(sort_edges),
                                     FUNCTION(segments),
                                     FUNCTION(graph_from_edges),
                                     FUNCTION(edge_gradients),
                                     FUNCTION(reduce_segments),
                                     FUNCTION(gradients),
                                     FUNCTION(apply),
                                     FUNCTION(negative_targets),
                                     FUNCTION(negative_gradients),
                                     FUNCTION(loss),
                                     FUNCTION(optimizer_create),
                                     FUNCTION(optimizer_from_bytes),
                                     FUNCTION(optimizer_to_bytes),
                                     FUNCTION(optimize_epochs),
                                     {NULL, NULL, 0, NULL}};
