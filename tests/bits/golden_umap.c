/* golden_umap - the bits of a map, stage by stage, held against a committed table (support/golden_table.h). */
#include <stdio.h>
#include <string.h>

#include <napier/umap.h>

#include "support/golden_table.h"

/* ---- The table ----------------------------------------------------------------------------------------------------- */

/* Numbers of 4 bytes. */
static uint64_t hash_words(uint64_t hash, const void *words, int64_t count) {
    return hash_elements(hash, words, NAPIER_F32, count);
}

static void line(const char *data, const char *stage, uint64_t hash) { golden_line(hash, "%s:%s", data, stage); }

/* ---- Points -------------------------------------------------------------------------------------------------------- */

static uint64_t state;

static float next_float(void) { /* -1 to 1, a multiple of 2^-23 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)((int32_t)(state >> 40) - 8388608) / 8388608.0f;
}

static float *clusters(int64_t n, int64_t cols, int32_t *labels) {
    float *x = golden_room((n * cols), sizeof *x);
    state = 88172645463325252u + (uint64_t)(n * cols);
    for (int64_t i = 0; i < n; i++) {
        labels[i] = (int32_t)(i % 5);
        for (int64_t j = 0; j < cols; j++) {
            const float centre = (float)((labels[i] * 7 + (int32_t)j * 3) % 11) - 5.0f;
            x[i * cols + j] = centre + next_float() + next_float();
        }
    }
    return x;
}

/* ---- Stages -------------------------------------------------------------------------------------------------------- */

static uint64_t hash_graph(const napier_umap_graph *graph) {
    uint64_t hash = GOLDEN_BASIS;
    for (int64_t v = 0; v <= graph->n; v++) {
        const uint32_t start = (uint32_t)graph->starts[v];
        hash = hash_words(hash, &start, 1);
    }
    hash = hash_words(hash, graph->targets, graph->starts[graph->n]);
    return hash_words(hash, graph->weights, graph->starts[graph->n]);
}

static void neighbours(const char *data, napier_umap_samples samples, int64_t n, napier_metric metric,
                       napier_neighbors_method method, const char *stage) {
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    options.n_neighbors = 12;
    options.metric = metric;
    options.method = method;
    int32_t *indices = golden_room(n * 12, sizeof *indices);
    float *distances = golden_room(n * 12, sizeof *distances);
    golden_demand(napier_nearest_neighbors(golden_context, samples, &options, indices, distances));
    line(data, stage, hash_words(hash_words(GOLDEN_BASIS, indices, n * 12), distances, n * 12));
    if (metric == NAPIER_METRIC_EUCLIDEAN && method == NAPIER_NEIGHBORS_EXACT) {
        napier_umap_graph *graph = NULL;
        golden_demand(napier_umap_fuzzy_simplicial_set(golden_context, indices, distances, n, 12, 1.0, 1.0, &graph));
        line(data, "fuzzy_set", hash_graph(graph));
        float *y = golden_room(n * 3, sizeof *y);
        golden_demand(napier_umap_spectral_layout(golden_context, graph, samples, 7, napier_rows_f32(y, n, 3)));
        line(data, "spectral", hash_words(GOLDEN_BASIS, y, n * 3));
        napier_umap_graph_destroy(golden_context, graph);
    }
}

static void fit(const char *data, napier_umap_samples samples, const napier_umap_options *options, int64_t n,
                int64_t new_rows, const char *stage) {
    napier_umap_model *model = NULL;
    char name[32];
    golden_demand(napier_umap_fit(golden_context, samples, options, &model));
    const napier_const_matrix y = napier_umap_model_embedding(model);
    line(data, stage, hash_words(GOLDEN_BASIS, y.data, n * y.cols));
    float *placed = golden_room((new_rows * y.cols), sizeof *placed);
    napier_umap_samples some = samples;
    some.dense.rows = new_rows;
    golden_demand(napier_umap_transform(golden_context, model, some, napier_rows_f32(placed, new_rows, y.cols)));
    snprintf(name, sizeof name, "%s/transform", stage);
    line(data, name, hash_words(GOLDEN_BASIS, placed, new_rows * y.cols));
    napier_umap_model_destroy(golden_context, model);
}

static void sampled_epochs(const char *data, int64_t n) {
    napier_umap_edge *edges = golden_room(n * 4, sizeof *edges);
    float *y = golden_room(n * 2, sizeof *y);
    int64_t count = 0;
    for (int64_t v = 0; v < n; v++) {
        for (int64_t e = 1; e <= 4; e++) {
            const int64_t target = e == 4 ? 0 : (v * 5 + e * e) % n; /* 0 is a hub */
            edges[count++] = (napier_umap_edge){(uint32_t)v, (uint32_t)target, 1.0f / (float)e};
        }
    }
    golden_demand(napier_umap_sort_edges(golden_context, edges, count));
    for (int method = NAPIER_UMAP_SGD; method <= NAPIER_UMAP_ADAM; method++) {
        napier_umap_optimizer_options options = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
        options.method = (napier_umap_method)method;
        napier_umap_optimizer *optimizer = NULL;
        napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
        napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
        params.learning_rate = 0.1f;
        params.max_norm = 3.0f;
        epochs.count = epochs.total = 15;
        epochs.edge_use = NAPIER_UMAP_EDGES_SAMPLED;
        state = 7 + (uint64_t)method;
        for (int64_t i = 0; i < 2 * n; i++) {
            y[i] = 5.0f * next_float();
        }
        golden_demand(napier_umap_optimizer_create(golden_context, &options, n, 2, &optimizer));
        golden_demand(napier_umap_optimize_epochs(golden_context, &params, &epochs, edges, count, NULL, optimizer,
                                                  napier_rows_f32(y, n, 2)));
        char stage[32];
        snprintf(stage, sizeof stage, "epochs/%d", method);
        line(data, stage, hash_words(GOLDEN_BASIS, y, 2 * n));
        napier_umap_optimizer_destroy(golden_context, optimizer);
    }
}

static void all_stages(const char *data, int64_t n, int64_t cols) {
    int32_t *labels = golden_room(n, sizeof *labels);
    float *x = clusters(n, cols, labels);
    const napier_umap_samples samples = {napier_const_rows_f32(x, n, cols), NULL};
    neighbours(data, samples, n, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT, "exact");
    neighbours(data, samples, n, NAPIER_METRIC_COSINE, NAPIER_NEIGHBORS_EXACT, "cosine");
    neighbours(data, samples, n, NAPIER_METRIC_MANHATTAN, NAPIER_NEIGHBORS_EXACT, "manhattan");
    neighbours(data, samples, n, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_NN_DESCENT, "descent");
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    options.n_epochs = 30;
    fit(data, samples, &options, n, 20, "fit");
    options.n_components = 5;
    options.init = NAPIER_UMAP_INIT_PCA;
    fit(data, samples, &options, n, 5, "fit5");
    options.n_components = 2;
    options.densmap = 1;
    options.target_categories = labels;
    fit(data, samples, &options, n, 5, "supervised");
    sampled_epochs(data, n);
}

/* Neighbours by every metric, of rows that hold zeros of both signs. Their hash is that of the same rows without -0. */
static void zeros_of_both_signs(const char *data, float negative_zero) {
    enum { N = 60, COLS = 16 };
    float *x = golden_room(N * N, sizeof *x);
    state = 1234567;
    for (int64_t i = 0; i < N * N; i++) {
        const float draw = next_float();
        x[i] = draw < -0.5f ? negative_zero : draw < 0.0f ? 0.0f : (float)(1 + (int)(3.0f * draw)) / 16.0f;
    }
    for (int i = 0; napier_metric_name((napier_metric)i); i++) {
        const napier_metric metric = (napier_metric)i;
        const int64_t cols = metric == NAPIER_METRIC_HAVERSINE ? 2 : metric == NAPIER_METRIC_PRECOMPUTED ? N : COLS;
        const napier_umap_samples samples = {{x, N, cols, N, 1, NAPIER_F32}, NULL};
        neighbours(data, samples, N, metric, NAPIER_NEIGHBORS_AUTO, napier_metric_name(metric));
    }
}

static void all_cases(int quick) {
    zeros_of_both_signs("zeros", -0.0f);
    zeros_of_both_signs("plus_zeros", 0.0f);
    all_stages("small", 150, 20);
    if (!quick) {
        all_stages("wide", 700, 130);
        all_stages("large", 4000, 12);
    }
}

int main(int count, char **words) { return golden_main("golden_umap", count, words, all_cases); }
