/* test_umap_overlap - outputs of UMAP's calls that share memory with what the call reads, or with one another, are refused
 * by name, and nothing is written. */
#include "unit/umap/umap_support.h"

#include <stdio.h>

enum { N = 40, COLS = 3, K = 5, EDGES = 3 * N, RATE = 2, WORDS = 4096 };

static napier_context *context;
static union {
    float f[WORDS];
    int32_t i[WORDS];
    uint32_t u[WORDS];
    int64_t l[WORDS / 2];
    uint8_t b[4 * WORDS];
    napier_umap_edge e[WORDS / 3];
} shared, before;
static float apart[WORDS];
static int64_t starts[N + 1], counts[N + 1];
static napier_umap_edge edges[EDGES];

static napier_const_matrix map_of(const float *y) { return napier_const_rows_f32(y, N, 2); }
static napier_matrix out_of(float *y) { return napier_rows_f32(y, N, 2); }
static napier_umap_samples rows_of(const float *x) {
    return (napier_umap_samples){napier_const_rows_f32(x, N, COLS), NULL};
}

/* Small numbers that are a map, data, distances and a sparse matrix alike. */
static void fill(void) {
    uint64_t state = 3;
    for (int i = 0; i < WORDS; i++) {
        apart[i] = (float)umap_normal(&state);
        shared.f[i] = (float)umap_normal(&state);
    }
    for (uint32_t e = 0; e < EDGES; e++) {
        edges[e] = (napier_umap_edge){e / 3, (e / 3 + e % 3 + 1) % N, 0.5f};
    }
    napier_umap_sort_edges(context, edges, EDGES);
    napier_umap_segments(context, edges, EDGES, N, starts, counts);
    before = shared;
}

/* What a call reads is now in the shared memory. */
static void share(const void *data, size_t bytes) {
    memcpy(&shared, data, bytes);
    before = shared;
}

static void edges_in_shared(void) { share(edges, sizeof edges); }

/* Distances of neighbours, ascending in each row, in both memories. */
static void share_distances(void) {
    for (int i = 0; i < N * K; i++) {
        apart[i] = (float)(i % K);
    }
    share(apart, N * K * sizeof *apart);
}

static void check(napier_status status, const char *out, const char *in) {
    char wanted[80];
    snprintf(wanted, sizeof wanted, "%s:", out);
    invalid(context, status, wanted, in);
    expect(memcmp(&before, &shared, sizeof shared) == 0, "%s, %s: memory was written", out, in);
    fill();
}

static void test_primitives(void) {
    float *const f = shared.f;
    const napier_matrix none = napier_rows_f32(NULL, 0, 2);
    float ab = 0.0f;
    fill();
    check(napier_umap_find_ab_params(context, 0.1, 1.0, &ab, &ab), "b", "a");
    edges_in_shared();
    check(napier_umap_segments(context, shared.e, EDGES, N, shared.l, counts), "starts", "edges");
    edges_in_shared();
    check(napier_umap_segments(context, shared.e, EDGES, N, starts, shared.l + 2), "counts", "edges");
    check(napier_umap_segments(context, edges, EDGES, N, shared.l, shared.l + 1), "counts", "starts");
    edges_in_shared();
    check(napier_umap_edge_gradients(context, NULL, map_of(apart), shared.e, EDGES, napier_rows_f32(f + 4, EDGES, 2),
                                     none),
          "source_gradients", "edges");
    check(napier_umap_edge_gradients(context, NULL, map_of(f), edges, EDGES, none, napier_rows_f32(f + 7, EDGES, 2)),
          "target_gradients", "embedding");
    share(starts, sizeof starts);
    check(napier_umap_reduce_segments(context, napier_const_rows_f32(apart, EDGES, 2), shared.l, counts, out_of(f)),
          "gradients", "starts");
    share(counts, sizeof counts);
    check(napier_umap_reduce_segments(context, napier_const_rows_f32(apart, EDGES, 2), starts, shared.l, out_of(f + 3)),
          "gradients", "counts");
    edges_in_shared();
    check(napier_umap_gradients(context, NULL, map_of(apart), shared.e, EDGES, 1, out_of(f)), "gradients", "edges");
    check(napier_umap_gradients(context, NULL, map_of(f), edges, EDGES, 1, out_of(f + 1)), "gradients", "embedding");
    check(napier_umap_apply(context, 1.0f, map_of(f), out_of(f)), "embedding", "gradients");
    memset(shared.u, 0, sizeof shared.u);
    before = shared;
    check(napier_umap_negative_gradients(context, NULL, map_of(apart), shared.u, RATE, out_of(f)), "gradients",
          "targets");
}

static void test_epochs(void) {
    napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    napier_umap_optimizer *optimizer = NULL;
    params.negative_sample_rate = RATE;
    epochs.rate_per = NAPIER_UMAP_RATE_PER_VERTEX;
    fill();
    must(napier_umap_optimizer_create(context, NULL, N, 2, &optimizer));
    memset(shared.u, 0, sizeof shared.u);
    before = shared;
    check(napier_umap_optimize_epochs(context, &params, &epochs, edges, EDGES, shared.u, optimizer, out_of(shared.f)),
          "embedding", "targets");
    edges_in_shared();
    check(napier_umap_optimize_epochs(context, NULL, NULL, shared.e, EDGES, NULL, optimizer, out_of(shared.f)),
          "embedding", "edges");
    napier_umap_optimizer_destroy(context, optimizer);
}

static void test_neighbors(void) {
    napier_neighbors_options o = NAPIER_NEIGHBORS_OPTIONS_INIT;
    int32_t indices[N * K];
    float distances[N * K];
    o.n_neighbors = K;
    fill();
    check(napier_nearest_neighbors(context, rows_of(shared.f), &o, shared.i, distances), "indices", "samples");
    check(napier_nearest_neighbors(context, rows_of(shared.f), &o, indices, shared.f + N * COLS - 1), "distances",
          "samples");
    check(napier_nearest_neighbors_of(context, rows_of(apart), rows_of(shared.f), &o, shared.i + 5, distances),
          "indices", "queries");
    check(napier_nearest_neighbors_of(context, rows_of(shared.f), rows_of(apart), &o, indices, shared.f + 5),
          "distances", "samples");
    int64_t row_starts[N + 1];
    for (int i = 0; i <= N; i++) {
        row_starts[i] = i;
    }
    memset(shared.i, 0, sizeof shared.i);
    before = shared;
    const napier_csr_matrix by_columns = {N, COLS, row_starts, shared.i, apart};
    const napier_umap_samples sparse = {{0}, &by_columns};
    check(napier_nearest_neighbors(context, sparse, &o, shared.i, distances), "indices", "samples");
    o.metric = NAPIER_METRIC_PRECOMPUTED;
    for (int i = 0; i < N * N; i++) {
        shared.f[i] = fabsf((float)(i / N - i % N));
    }
    before = shared;
    const napier_umap_samples square = {napier_const_rows_f32(shared.f, N, N), NULL};
    check(napier_nearest_neighbors(context, square, &o, shared.i, distances), "indices", "samples");
}

static void test_stages(void) {
    float rhos[N];
    napier_umap_graph *graph = NULL;
    fill();
    share_distances();
    check(napier_umap_smooth_knn_dist(context, shared.f, N, K, 1.0, shared.f + 3, rhos), "rhos", "distances");
    share_distances();
    check(napier_umap_smooth_knn_dist(context, shared.f, N, K, 1.0, rhos, shared.f), "sigmas", "distances");
    share_distances();
    check(napier_umap_smooth_knn_dist(context, apart, N, K, 1.0, shared.f, shared.f + N - 1), "sigmas", "rhos");
    must(napier_umap_graph_from_edges(context, edges, EDGES, N, &graph));
    check(napier_umap_spectral_layout(context, graph, rows_of(shared.f), 1, out_of(shared.f)), "embedding", "samples");
    check(napier_umap_spectral_layout(context, graph, rows_of(apart), 1, out_of(graph->weights)), "embedding", "graph");
    check(napier_umap_pca_layout(context, rows_of(shared.f), 1, out_of(shared.f)), "embedding", "samples");
    check(napier_umap_optimize_layout(context, graph, NULL, out_of(graph->weights)), "embedding", "graph");
    napier_umap_graph_destroy(context, graph);
}

static void test_models(void) {
    napier_umap_options o = NAPIER_UMAP_OPTIONS_INIT;
    napier_umap_model *model = NULL;
    size_t size = 0;
    fill();
    o.n_epochs = 5;
    must(napier_umap_fit(context, rows_of(apart), &o, &model));
    assert_non_null(model);
    const napier_const_matrix map = napier_umap_model_embedding(model);
    float kept[2 * N], *own = (float *)(uintptr_t)map.data;
    memcpy(kept, map.data, sizeof kept);
    check(napier_umap_transform(context, model, rows_of(shared.f), out_of(shared.f)), "embedding", "samples");
    check(napier_umap_transform(context, model, rows_of(shared.f), out_of(own)), "embedding", "model");
    check(napier_umap_inverse_transform(context, model, map_of(shared.f), napier_rows_f32(shared.f, N, COLS)),
          "samples", "points");
    check(napier_umap_inverse_transform(context, model, map_of(shared.f), napier_rows_f32(own, N, COLS)), "samples",
          "model");
    check(napier_umap_model_to_bytes(context, model, (uint8_t *)own, 1 << 20, &size), "bytes", "model");
    assert_memory_equal(kept, map.data, sizeof kept);
    napier_umap_model_destroy(context, model);
}

int main(void) {
    return RUN_UMAP_TESTS("umap overlap", TEST(test_primitives), TEST(test_epochs), TEST(test_neighbors),
                          TEST(test_stages), TEST(test_models));
}
