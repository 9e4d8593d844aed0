/* tests/cuda/test_cuda_umap_fuzzy.c - scales and memberships on a device against the CPU's, bit for bit; the whole way
 * from points to a map without the CPU; and what is bad there. */
#include "both.h"

#include <stdio.h>

typedef struct knn {
    int64_t n, k;
    int32_t *indices;
    float *distances;
    int64_t *starts; /* the set: arrays as long as it may become */
    uint32_t *targets;
    float *weights;
} knn;

static knn new_knn(int64_t n, int64_t k) {
    const size_t most = (size_t)(2 * n * k);
    return (knn){n,
                 k,
                 array_new((size_t)(n * k) * sizeof(int32_t)),
                 array_new((size_t)(n * k) * sizeof(float)),
                 array_new((size_t)(n + 1) * sizeof(int64_t)),
                 array_new(most * sizeof(uint32_t)),
                 array_new(most * sizeof(float))};
}

/* Made up: each row's k neighbours are different points at rising distances; some at 0, some missing at the end. */
static knn make_knn(int64_t n, int64_t k, float scale) {
    const knn m = new_knn(n, k);
    rng r = rng_make((uint64_t)(n * 1000 + k));
    for (int64_t i = 0; i < n; i++) {
        const int64_t equal = rng_below(&r, 5) == 0 ? 1 + rng_below(&r, k) : 1;
        const int64_t there = rng_below(&r, 7) == 0 ? 1 + rng_below(&r, k) : k;
        const int64_t step = 1 + rng_below(&r, (n - 1) / k > 0 ? (n - 1) / k : 1);
        float at = 0.0f;
        for (int64_t j = 0; j < k; j++) {
            at += j < equal ? 0.0f : scale * (float)rng_below(&r, 1 << 16) * 0x1p-16f;
            m.indices[i * k + j] = j < there ? (int32_t)((i + j * step) % n) : -1;
            m.distances[i * k + j] = j < there ? at : INFINITY;
        }
    }
    both_case("%d x %d neighbours", (int)n, (int)k);
    return m;
}

static napier_status set_of(const knn *m, double connectivity, double mix) {
    return through_umap_fuzzy_simplicial_set(cpu, m->indices, m->distances, m->n, m->k, connectivity, mix, m->starts,
                                             m->targets, m->weights);
}

static void check_scales(const knn *m, double connectivity) {
    float *const rhos = array_new((size_t)m->n * sizeof *rhos), *const sigmas = array_new((size_t)m->n * sizeof *rhos);
    SAME(umap_smooth_knn_dist, m->distances, m->n, m->k, connectivity, rhos, sigmas);
}

static void check_set(const knn *m, double connectivity, double mix) {
    napier_umap_graph *graph = NULL;
    fine(napier_umap_fuzzy_simplicial_set(cpu, m->indices, m->distances, m->n, m->k, connectivity, mix, &graph));
    fine(set_of(m, connectivity, mix));
    const size_t count = (size_t)graph->starts[m->n];
    assert_memory_equal(m->starts, graph->starts, (size_t)(m->n + 1) * sizeof *m->starts);
    assert_memory_equal(m->targets, graph->targets, count * sizeof *m->targets);
    assert_memory_equal(m->weights, graph->weights, count * sizeof *m->weights);
    napier_umap_graph_destroy(cpu, graph);
}

static void test_sets(void) {
    static const int64_t shapes[][2] = {{1, 1}, {2, 2}, {5, 5}, {70, 15}, {300, 7}, {40, 33}};
    static const double connectivities[] = {1.0, 0.0, 1.5, 3.0}, mixes[] = {1.0, 0.0, 0.4, 1.0};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (size_t c = 0; c < 4; c++) {
            const knn m = make_knn(shapes[s][0], shapes[s][1], c == 3 ? 0x1p-60f : 3.0f);
            device_order(s + c);
            check_scales(&m, connectivities[c]);
            check_set(&m, connectivities[c], mixes[c]);
            arrays_free();
        }
    }
    const knn m = make_knn(2300, 30, 1.0f); /* the mean of more distances than one block of its sum */
    check_scales(&m, 1.0);
}

/* Neighbours, their set and a map of it. */
static napier_status map_on_cpu(napier_umap_samples samples, const napier_neighbors_options *options, const knn *m,
                                const napier_umap_options *how, napier_matrix y) {
    napier_umap_graph *graph = NULL;
    fine(napier_nearest_neighbors(cpu, samples, options, m->indices, m->distances));
    fine(napier_umap_fuzzy_simplicial_set(cpu, m->indices, m->distances, m->n, m->k, 1.0, 1.0, &graph));
    memcpy(m->starts, graph->starts, (size_t)(m->n + 1) * sizeof *m->starts);
    memcpy(m->targets, graph->targets, (size_t)graph->starts[m->n] * sizeof *m->targets);
    memcpy(m->weights, graph->weights, (size_t)graph->starts[m->n] * sizeof *m->weights);
    const napier_status status = napier_umap_optimize_layout(cpu, graph, how, y);
    napier_umap_graph_destroy(cpu, graph);
    return status;
}

static napier_status map_on_device(napier_umap_samples samples, const napier_neighbors_options *options, const knn *m,
                                   const napier_umap_options *how, napier_matrix y) {
    fine(through_nearest_neighbors(cpu, samples, options, m->indices, m->distances));
    fine(set_of(m, 1.0, 1.0));
    const napier_cuda_umap_graph graph = {m->n, 2 * m->n * m->k, m->starts, m->targets, m->weights};
    return through_umap_optimize_layout(cpu, &graph, how, y);
}

static void test_pipeline(void) {
    enum { N = 90, COLS = 6, K = 8 };
    float *const x = array_new(N * COLS * sizeof *x), *const y = array_new(N * 2 * sizeof *y);
    rng r = rng_make(5);
    for (int i = 0; i < N * COLS; i++) {
        x[i] = (float)rng_uniform(&r) + (float)(i / COLS % 3);
    }
    for (int i = 0; i < N * 2; i++) {
        y[i] = 16.0f * (float)rng_uniform(&r) - 8.0f;
    }
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    options.n_neighbors = K;
    napier_umap_options how = NAPIER_UMAP_OPTIONS_INIT;
    how.n_epochs = 6;
    const knn m = new_knn(N, K);
    const napier_umap_samples samples = {napier_const_rows_f32(x, N, COLS), NULL};
    const napier_matrix map = napier_rows_f32(y, N, 2);
    memset(m.targets, 0, 2 * N * K * sizeof *m.targets); /* beyond the last edge neither writes */
    BOTH(map_on_cpu(samples, &options, &m, &how, map), map_on_device(samples, &options, &m, &how, map));
}

/* ---- What is bad ------------------------------------------------------------------------------------------------- */

/* A row with all its neighbours. */
static int64_t full_row(const knn *m) {
    int64_t row = 0;
    while (m->indices[row * m->k + m->k - 1] < 0) {
        row++;
    }
    return row;
}

static void check_bad_set(const knn *m, const char *text) {
    bad(set_of(m, 1.0, 1.0), text);
    for (int64_t i = 0; i <= m->n; i++) {
        assert_int_equal(m->starts[i], 0);
    }
}

static void test_bad(void) {
    static const struct {
        int32_t index; /* 0: as it is */
        float distance;
    } cases[] = {{50, 1.0f}, {INT32_MIN, 1.0f}, {0, NAN}, {0, -1.0f}, {0, INFINITY}};
    for (int i = 0; i < 5; i++) {
        const knn m = make_knn(50, 6, 1.0f);
        const int64_t at = full_row(&m) * 6 + 5;
        char text[64];
        (void)snprintf(text, sizeof text, "values: the element at index %lld ", (long long)at);
        m.indices[at] = cases[i].index ? cases[i].index : m.indices[at];
        m.distances[at] = cases[i].index ? m.distances[at] : cases[i].distance;
        check_bad_set(&m, text);
        arrays_free();
    }
    const knn m = make_knn(50, 6, 1.0f), twice = make_knn(30, 4, 1.0f);
    float *const rhos = array_new(50 * sizeof *rhos), *const sigmas = array_new(50 * sizeof *sigmas);
    const int64_t row = full_row(&twice);
    twice.indices[row * 4 + 3] = twice.indices[row * 4 + 2]; /* a neighbour that a row names twice */
    check_bad_set(&twice, "values: ");
    m.distances[full_row(&m) * 6 + 5] = -0.5f;
    bad(through_umap_smooth_knn_dist(cpu, m.distances, 50, 6, 1.0, rhos, sigmas), "values: ");
    all_nan(rhos, NAPIER_F32, 50);
    all_nan(sigmas, NAPIER_F32, 50);
    bad(through_umap_smooth_knn_dist(cpu, m.distances, 50, 6, -1.0, rhos, sigmas), "local_connectivity: -1");
    bad(through_umap_smooth_knn_dist(cpu, NULL, 50, 6, 1.0, rhos, sigmas), "distances: NULL");
    bad(through_umap_smooth_knn_dist(cpu, m.distances, 50, 0, 1.0, rhos, sigmas), "n_neighbors: 0");
}

int main(void) { return BOTH_TESTS("cuda_umap_fuzzy", TEST(test_sets), TEST(test_pipeline), TEST(test_bad)); }
