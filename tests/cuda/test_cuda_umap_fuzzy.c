/* tests/cuda/test_cuda_umap_fuzzy.c - scales and memberships on a device against the CPU's, bit for bit; the whole way
 * from points to a map without leaving the device; and what is bad there. */
#include "umap_cuda.h"

static uint64_t state;

static uint32_t next_below(uint32_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) * n >> 32);
}

typedef struct knn {
    int64_t n, k;
    int32_t *indices;
    float *distances;
} knn;

/* Made up: each row's k neighbours are different points at rising distances; some at 0, some missing at the end. */
static knn make_knn(int64_t n, int64_t k, float scale) {
    knn m = {n, k, malloc((size_t)(n * k) * sizeof *m.indices), malloc((size_t)(n * k) * sizeof *m.distances)};
    assert_true(m.indices && m.distances);
    state = 88172645463325252u + (uint64_t)(n * 1000 + k);
    for (int64_t i = 0; i < n; i++) {
        const int64_t equal = next_below(5) == 0 ? 1 + next_below((uint32_t)k) : 1;
        const int64_t there = next_below(7) == 0 ? 1 + next_below((uint32_t)k) : k;
        float at = 0.0f;
        int64_t step = 1 + next_below((uint32_t)((n - 1) / k > 0 ? (n - 1) / k : 1)), other = i;
        for (int64_t j = 0; j < k; j++) {
            at += j < equal ? 0.0f : scale * (float)next_below(1 << 16) * 0x1p-16f;
            m.indices[i * k + j] = j < there ? (int32_t)other : -1;
            m.distances[i * k + j] = j < there ? at : INFINITY;
            other = (other + step) % n;
        }
    }
    return m;
}

static void free_knn(knn *m) {
    free(m->indices);
    free(m->distances);
}

static void check_scales(const knn *m, double connectivity) {
    const size_t bytes = (size_t)m->n * sizeof(float);
    float *const expected = malloc(2 * bytes), *const rhos = device_new(bytes), *const sigmas = device_new(bytes);
    float *const distances = device_copy(m->distances, (size_t)(m->n * m->k) * sizeof *distances);
    assert_non_null(expected);
    napier_status status;
    assert_int_equal(
        napier_umap_smooth_knn_dist(host, m->distances, m->n, m->k, connectivity, expected, expected + m->n),
        NAPIER_OK);
    CALL(status, napier_cuda_umap_smooth_knn_dist(cuda, NULL, &w, distances, m->n, m->k, connectivity, rhos, sigmas));
    expect_ok(status);
    expect_floats("rhos", rhos, expected, m->n);
    expect_floats("sigmas", sigmas, expected + m->n, m->n);
    free(expected);
    device_free(rhos), device_free(sigmas), device_free(distances);
}

typedef struct set {
    int64_t *starts;
    uint32_t *targets;
    float *weights;
} set;

static set new_set(const knn *m) {
    const size_t room = (size_t)(2 * m->n * m->k);
    return (set){device_new((size_t)(m->n + 1) * sizeof(int64_t)), device_new(room * sizeof(uint32_t)),
                 device_new(room * sizeof(float))};
}
static void free_set(set *s) { device_free(s->starts), device_free(s->targets), device_free(s->weights); }

static void check_set(const knn *m, double connectivity, double mix) {
    int32_t *const indices = device_copy(m->indices, (size_t)(m->n * m->k) * sizeof *indices);
    float *const distances = device_copy(m->distances, (size_t)(m->n * m->k) * sizeof *distances);
    set s = new_set(m);
    napier_umap_graph *graph = NULL;
    napier_status status;
    assert_int_equal(
        napier_umap_fuzzy_simplicial_set(host, m->indices, m->distances, m->n, m->k, connectivity, mix, &graph),
        NAPIER_OK);
    CALL(status, napier_cuda_umap_fuzzy_simplicial_set(cuda, NULL, &w, indices, distances, m->n, m->k, connectivity,
                                                       mix, s.starts, s.targets, s.weights));
    expect_ok(status);
    expect_bytes(s.starts, graph->starts, (size_t)(m->n + 1) * sizeof *s.starts);
    expect_bytes(s.targets, graph->targets, (size_t)graph->starts[m->n] * sizeof *s.targets);
    expect_floats("memberships", s.weights, graph->weights, graph->starts[m->n]);
    napier_umap_graph_destroy(host, graph);
    free_set(&s);
    device_free(indices), device_free(distances);
}

static void test_sets(void **unused) {
    static const int64_t shapes[][2] = {{1, 1}, {2, 2}, {5, 5}, {70, 15}, {300, 7}, {40, 33}};
    static const double connectivities[] = {1.0, 0.0, 1.5, 3.0}, mixes[] = {1.0, 0.0, 0.4, 1.0};
    (void)unused;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (size_t c = 0; c < 4; c++) {
            knn m = make_knn(shapes[s][0], shapes[s][1], c == 3 ? 0x1p-60f : 3.0f);
            device_order(s + c);
            check_scales(&m, connectivities[c]);
            check_set(&m, connectivities[c], mixes[c]);
            free_knn(&m);
        }
    }
}

/* The mean of more distances than one block of its sum. */
static void test_mean(void **unused) {
    (void)unused;
    knn m = make_knn(2300, 30, 1.0f);
    check_scales(&m, 1.0);
    free_knn(&m);
}

static void test_pipeline(void **unused) {
    (void)unused;
    enum { N = 90, COLS = 6, K = 8 };
    float x[N * COLS], y[N * 2], expected_distances[N * K];
    int32_t expected[N * K];
    state = 88172645463325252u;
    for (int i = 0; i < N * COLS; i++) {
        x[i] = (float)next_below(1 << 20) * 0x1p-20f + (float)(i / COLS % 3);
    }
    for (int i = 0; i < N * 2; i++) {
        y[i] = (float)next_below(1 << 20) * 0x1p-16f - 8.0f;
    }
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    options.n_neighbors = K;
    napier_umap_options how = NAPIER_UMAP_OPTIONS_INIT;
    how.n_epochs = 6;
    napier_umap_graph *graph = NULL;
    knn m = {N, K, device_new(sizeof expected), device_new(sizeof expected_distances)};
    set s = new_set(&m);
    float *const data = device_copy(x, sizeof x), *const map = device_copy(y, sizeof y);
    const napier_umap_samples samples = {napier_const_rows_f32(data, N, COLS), NULL};
    napier_status status;
    CALL(status, napier_cuda_nearest_neighbors(cuda, NULL, &w, samples, &options, m.indices, m.distances));
    expect_ok(status);
    CALL(status, napier_cuda_umap_fuzzy_simplicial_set(cuda, NULL, &w, m.indices, m.distances, N, K, 1.0, 1.0, s.starts,
                                                       s.targets, s.weights));
    expect_ok(status);
    const napier_cuda_umap_graph device = {N, (int64_t)2 * N * K, s.starts, s.targets, s.weights};
    CALL(status, napier_cuda_umap_optimize_layout(cuda, NULL, &w, &device, &how, napier_rows_f32(map, N, 2)));
    expect_ok(status);

    const napier_umap_samples rows = {napier_const_rows_f32(x, N, COLS), NULL};
    assert_int_equal(napier_nearest_neighbors(host, rows, &options, expected, expected_distances), NAPIER_OK);
    assert_int_equal(napier_umap_fuzzy_simplicial_set(host, expected, expected_distances, N, K, 1.0, 1.0, &graph),
                     NAPIER_OK);
    assert_int_equal(napier_umap_optimize_layout(host, graph, &how, napier_rows_f32(y, N, 2)), NAPIER_OK);
    expect_floats("map", map, y, N * 2);
    napier_umap_graph_destroy(host, graph);
    free_set(&s);
    device_free(m.indices), device_free(m.distances), device_free(data), device_free(map);
}

static void check_bad(const knn *m, int64_t at, int32_t index, float distance, int64_t told) {
    int32_t *const indices = device_copy(m->indices, (size_t)(m->n * m->k) * sizeof *indices);
    float *const distances = device_copy(m->distances, (size_t)(m->n * m->k) * sizeof *distances);
    device_write(indices + at, &index, sizeof index);
    device_write(distances + at, &distance, sizeof distance);
    set s = new_set(m);
    char text[64];
    snprintf(text, sizeof text, "values: the element at index %lld ", (long long)told);
    napier_status status;
    CALL(status, napier_cuda_umap_fuzzy_simplicial_set(cuda, NULL, &w, indices, distances, m->n, m->k, 1.0, 1.0,
                                                       s.starts, s.targets, s.weights));
    expect_bad(status, text);
    int64_t *const empty = calloc((size_t)m->n + 1, sizeof *empty);
    assert_non_null(empty);
    expect_bytes(s.starts, empty, (size_t)(m->n + 1) * sizeof *empty);
    free(empty);
    free_set(&s);
    device_free(indices), device_free(distances);
}

static void test_bad(void **unused) {
    (void)unused;
    knn m = make_knn(50, 6, 1.0f);
    int64_t row = 3;
    while (m.indices[row * 6 + 5] < 0) {
        row++; /* a row with all its neighbours */
    }
    const int64_t at = row * 6 + 5;
    check_bad(&m, at, 50, m.distances[at], at);
    check_bad(&m, at, INT32_MIN, m.distances[at], at);
    check_bad(&m, at, m.indices[at], NAN, at);
    check_bad(&m, at, m.indices[at], -1.0f, at);
    check_bad(&m, at, m.indices[at], INFINITY, at);
    float *const distances = device_copy(m.distances, 300 * sizeof *distances);
    float *const rhos = device_new(50 * sizeof *rhos), *const sigmas = device_new(50 * sizeof *sigmas);
    const float falls = -0.5f;
    device_write(distances + at, &falls, sizeof falls);
    napier_status status;
    CALL(status, napier_cuda_umap_smooth_knn_dist(cuda, NULL, &w, distances, 50, 6, 1.0, rhos, sigmas));
    expect_bad(status, "values: ");
    expect_nans(rhos, 50);
    expect_nans(sigmas, 50);
    napier_cuda_workspace w = {NULL, 0};
    expect_bad(napier_cuda_umap_smooth_knn_dist(cuda, NULL, &w, distances, 50, 6, -1.0, rhos, sigmas),
               "local_connectivity: -1");
    expect_bad(napier_cuda_umap_smooth_knn_dist(cuda, NULL, &w, NULL, 50, 6, 1.0, rhos, sigmas), "distances: NULL");
    expect_bad(napier_cuda_umap_smooth_knn_dist(cuda, NULL, &w, distances, 50, 0, 1.0, rhos, sigmas), "n_neighbors: 0");
    device_free(distances), device_free(rhos), device_free(sigmas);
    free_knn(&m);
}

/* A row that names a neighbour twice. */
static void test_twice(void **unused) {
    (void)unused;
    knn m = make_knn(30, 4, 1.0f);
    int64_t row = 0;
    while (m.indices[row * 4 + 3] < 0) {
        row++;
    }
    int32_t *const indices = device_copy(m.indices, 120 * sizeof *indices);
    float *const distances = device_copy(m.distances, 120 * sizeof *distances);
    device_write(indices + row * 4 + 3, &m.indices[row * 4 + 2], sizeof *indices);
    set s = new_set(&m);
    napier_status status;
    CALL(status, napier_cuda_umap_fuzzy_simplicial_set(cuda, NULL, &w, indices, distances, 30, 4, 1.0, 1.0, s.starts,
                                                       s.targets, s.weights));
    expect_bad(status, "values: ");
    const int64_t empty[31] = {0};
    expect_bytes(s.starts, empty, sizeof empty);
    free_set(&s);
    device_free(indices), device_free(distances);
    free_knn(&m);
}

int main(void) {
    device_wanted();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sets), cmocka_unit_test(test_mean),
                                       cmocka_unit_test(test_pipeline), cmocka_unit_test(test_bad),
                                       cmocka_unit_test(test_twice)};
    if (napier_context_create(&host, NULL) || napier_cuda_context_create(&cuda, 0)) {
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    napier_cuda_context_destroy(cuda);
    napier_context_destroy(host);
    return failed;
}
