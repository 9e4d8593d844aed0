/* tests/cuda/test_cuda_umap_neighbors.c - neighbours on a device against the CPU's exact ones, bit for bit: metrics,
 * dtypes, strides, ties, few and many columns and neighbours; and what is bad on the device. */
#include "umap_cuda.h"

static uint64_t state;

static uint32_t next_below(uint32_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) * n >> 32);
}

/* Rows [n, cols] at a stride of cols + 3: clusters, rows that occur again, zeros; not negative where asked. */
static float *make_rows(int64_t n, int64_t cols, bool negative) {
    float *const x = malloc((size_t)(n * (cols + 3) + 1) * sizeof *x);
    assert_non_null(x);
    state = 88172645463325252u + (uint64_t)(n * 1000 + cols);
    for (int64_t i = 0; i < n; i++) {
        const bool again = i > 0 && next_below(6) == 0, empty = next_below(25) == 0;
        for (int64_t c = 0; c < cols + 3; c++) {
            const float value = (float)next_below(1 << 20) * 0x1p-20f + (float)(i % 3) - (negative ? 1.5f : 0.0f);
            x[i * (cols + 3) + c] = again ? x[(i - 1) * (cols + 3) + c] : empty ? 0.0f : value;
        }
    }
    return x;
}

static void compare(const int32_t *indices, const float *distances, const int32_t *expected_indices,
                    const float *expected, int64_t count) {
    int32_t *const got = malloc((size_t)count * sizeof *got + 1);
    assert_non_null(got);
    device_read(got, indices, (size_t)count * sizeof *got);
    for (int64_t i = 0; i < count; i++) {
        if (got[i] != expected_indices[i]) {
            fail_msg("index %lld of %lld is %ld, not %ld", (long long)i, (long long)count, (long)got[i],
                     (long)expected_indices[i]);
        }
    }
    free(got);
    expect_floats("distances", distances, expected, count);
}

/* Neighbours of `queries` rows (0: of the samples themselves) among n, on both. */
static void check(const napier_neighbors_options *options, napier_dtype dtype, const void *rows, size_t element,
                  int64_t n, int64_t cols, int64_t queries, bool turned) {
    const int64_t total = n + queries, looking = queries > 0 ? queries : n, k = options->n_neighbors;
    const int64_t row_stride = turned ? 1 : cols + 3, col_stride = turned ? total : 1;
    const size_t bytes = (size_t)(total * (cols + 3)) * element;
    const int64_t second = n * row_stride * (int64_t)element; /* where the queries begin */
    char *const device = device_copy(rows, bytes);
    int32_t *const expected = malloc((size_t)(looking * k) * sizeof *expected);
    float *const distances = malloc((size_t)(looking * k) * sizeof *distances);
    int32_t *const indices = device_new((size_t)(looking * k) * sizeof *indices);
    float *const found = device_new((size_t)(looking * k) * sizeof *found);
    assert_true(expected && distances);
    napier_neighbors_options own = *options, others = *options;
    own.method = NAPIER_NEIGHBORS_EXACT;
    others.metric_values =
        options->metric_values ? device_copy(options->metric_values, (size_t)cols * sizeof(float)) : NULL;
    const napier_umap_samples a = {{rows, n, cols, row_stride, col_stride, dtype}, NULL};
    const napier_umap_samples b = {{(const char *)rows + second, queries, cols, row_stride, col_stride, dtype}, NULL};
    const napier_umap_samples da = {{device, n, cols, row_stride, col_stride, dtype}, NULL};
    const napier_umap_samples db = {{device + second, queries, cols, row_stride, col_stride, dtype}, NULL};
    napier_status status;
    if (queries > 0) {
        assert_int_equal(napier_nearest_neighbors_of(host, a, b, &own, expected, distances), NAPIER_OK);
        CALL(status, napier_cuda_nearest_neighbors_of(cuda, NULL, &w, da, db, &others, indices, found));
    } else {
        assert_int_equal(napier_nearest_neighbors(host, a, &own, expected, distances), NAPIER_OK);
        CALL(status, napier_cuda_nearest_neighbors(cuda, NULL, &w, da, &others, indices, found));
    }
    expect_ok(status);
    compare(indices, found, expected, distances, looking * k);
    free(expected), free(distances);
    device_free(device), device_free(indices), device_free(found);
    device_free((void *)(uintptr_t)others.metric_values);
}

static void test_shapes(void **unused) {
    static const int64_t shapes[][3] = {{2, 1, 2},     {3, 2, 3},    {63, 3, 5},   {64, 7, 15},  {65, 16, 4},
                                        {130, 17, 33}, {45, 31, 45}, {70, 33, 6},  {66, 50, 40}, {130, 64, 15},
                                        {65, 65, 15},  {65, 127, 9}, {67, 130, 8}, {66, 200, 3}, {260, 2, 15}};
    (void)unused;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        float *const x = make_rows(shapes[s][0], shapes[s][1], true);
        napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
        options.n_neighbors = shapes[s][2];
        device_order(s);
        check(&options, NAPIER_F32, x, sizeof *x, shapes[s][0], shapes[s][1], 0, false);
        free(x);
    }
}

static void test_metrics(void **unused) {
    static const napier_metric metrics[] = {NAPIER_METRIC_MINKOWSKI, NAPIER_METRIC_COSINE, NAPIER_METRIC_CORRELATION,
                                            NAPIER_METRIC_HELLINGER, NAPIER_METRIC_SEUCLIDEAN};
    (void)unused;
    for (size_t m = 0; m < sizeof metrics / sizeof *metrics; m++) {
        for (int64_t cols = 5; cols < 100; cols += 64) {
            float *const x = make_rows(cols < 64 ? 200 : 90, cols, metrics[m] != NAPIER_METRIC_HELLINGER);
            napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
            options.n_neighbors = 7;
            options.metric = metrics[m];
            device_order(m);
            /* more tiles than blocks to split them: lists are full when the next tile comes */
            check(&options, NAPIER_F32, x, sizeof *x, cols < 64 ? 200 : 70, cols, 0, false);
            check(&options, NAPIER_F32, x, sizeof *x, 70, cols, 20, false);
            check(&options, NAPIER_F32, x, sizeof *x, 20, cols, 70, false);
            free(x);
        }
    }
    float *const x = make_rows(100, 9, true), variances[9];
    for (int c = 0; c < 9; c++) {
        variances[c] = 0.25f * (float)(c + 1);
    }
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    options.metric = NAPIER_METRIC_SEUCLIDEAN;
    options.metric_values = variances;
    check(&options, NAPIER_F32, x, sizeof *x, 100, 9, 0, false);
    check(&options, NAPIER_F32, x, sizeof *x, 80, 9, 20, false);
    free(x);
}

/* Metrics that are no euclidean distance; rows of small whole numbers make ties, zeros and truths. */
static void test_sums(void **unused) {
    static const double powers[] = {1.0, HUGE_VAL};
    (void)unused;
    for (int metric = NAPIER_METRIC_MANHATTAN; metric <= NAPIER_METRIC_MATCHING; metric++) {
        const bool squared = metric >= NAPIER_METRIC_COSINE && metric <= NAPIER_METRIC_CORRELATION;
        if (squared || (metric >= NAPIER_METRIC_HELLINGER && metric <= NAPIER_METRIC_MAHALANOBIS)) {
            continue;
        }
        const int64_t cols = metric % 2 ? 21 : 37;
        float *const x = make_rows(136, cols, true);
        for (int64_t i = 0; i < 136 * (cols + 3); i++) {
            x[i] = metric >= NAPIER_METRIC_HAMMING || i % 5 == 0 ? floorf(x[i]) : x[i];
        }
        napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
        options.n_neighbors = 6;
        options.metric = (napier_metric)metric;
        options.p = powers[metric % 2];
        device_order((uint64_t)metric);
        check(&options, NAPIER_F32, x, sizeof *x, 136, cols, 0, false);
        check(&options, NAPIER_F32, x, sizeof *x, 10, cols, 24, false);
        options.p = powers[1 - metric % 2];
        if (metric == NAPIER_METRIC_MINKOWSKI) {
            check(&options, NAPIER_F32, x, sizeof *x, 70, cols, 0, false);
        }
        free(x);
    }
}

static void test_dtypes(void **unused) {
    (void)unused;
    enum { N = 70, COLS = 21, ALL = N * (COLS + 3) };
    float *const x = make_rows(N, COLS, true);
    uint16_t *const half = malloc(ALL * sizeof *half);
    double *const wide = malloc(ALL * sizeof *wide);
    assert_true(half && wide);
    for (int i = 0; i < ALL; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
        wide[i] = (double)x[i] * 1.0000000123;
    }
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    for (int turned = 0; turned < 2; turned++) {
        check(&options, NAPIER_F32, x, 4, N, COLS, 0, turned != 0);
        check(&options, NAPIER_BF16, half, 2, N, COLS, 0, turned != 0);
        check(&options, NAPIER_F64, wide, 8, N, COLS, 0, turned != 0);
        check(&options, NAPIER_F64, wide, 8, N - 20, COLS, 20, turned != 0);
    }
    for (int i = 0; i < ALL; i++) {
        half[i] = (uint16_t)(next_below(0x7400) | next_below(2) << 15); /* finite */
    }
    check(&options, NAPIER_F16, half, 2, N, COLS, 0, false);
    free(x), free(half), free(wide);
}

/* Distances from subnormal to overflowing. */
static void test_scales(void **unused) {
    static const float scales[] = {0x1p-149f, 0x1p-80f, 0x1p-70f, 0x1p60f, 0x1p63f, 0x1p120f};
    (void)unused;
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        float *const x = make_rows(80, 4, true);
        for (int i = 0; i < 80 * 7; i++) {
            x[i] *= scales[s] * 16.0f;
        }
        napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
        check(&options, NAPIER_F32, x, sizeof *x, 80, 4, 0, false);
        check(&options, NAPIER_F32, x, sizeof *x, 50, 4, 30, false); /* few queries: the CPU measures all */
        free(x);
    }
}

static void expect_unsupported(napier_status status, const char *text) {
    assert_int_equal(status, NAPIER_UNSUPPORTED);
    assert_non_null(strstr(napier_cuda_last_error(cuda), text));
}

static void test_bad(void **unused) {
    (void)unused;
    enum { N = 70, COLS = 4, K = 5 };
    float *const x = make_rows(N, COLS, false);
    float *const device = device_copy(x, N * (COLS + 3) * sizeof *x), *const found = device_new(N * K * sizeof(float));
    int32_t *const indices = device_new(N * K * sizeof *indices), nowhere[N * K];
    memset(nowhere, 0xff, sizeof nowhere);
    const napier_umap_samples samples = {{device, N, COLS, COLS + 3, 1, NAPIER_F32}, NULL};
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    options.n_neighbors = K;
    napier_status status;
    const float bad[] = {NAN, INFINITY, -1.0f};
    for (int i = 0; i < 3; i++) {
        options.metric = i == 2 ? NAPIER_METRIC_HELLINGER : NAPIER_METRIC_EUCLIDEAN;
        device_write(device + 33 * (COLS + 3) + 2, &bad[i], sizeof *bad);
        CALL(status, napier_cuda_nearest_neighbors(cuda, NULL, &w, samples, &options, indices, found));
        expect_bad(status, "values: the element at index 134 ");
        expect_bytes(indices, nowhere, sizeof nowhere);
        expect_nans(found, N * K);
    }
    napier_cuda_workspace w = {NULL, 0};
    const napier_csr_matrix sparse = {0};
    const napier_umap_samples rows = {samples.dense, &sparse};
    options.metric = NAPIER_METRIC_MAHALANOBIS;
    expect_unsupported(napier_cuda_nearest_neighbors(cuda, NULL, &w, samples, &options, indices, found),
                       "metric mahalanobis");
    options.metric = NAPIER_METRIC_MINKOWSKI;
    options.p = 3.0;
    expect_unsupported(napier_cuda_nearest_neighbors(cuda, NULL, &w, samples, &options, indices, found),
                       "metric minkowski (p 3)");
    options.metric = NAPIER_METRIC_COSINE;
    expect_unsupported(napier_cuda_nearest_neighbors(cuda, NULL, &w, rows, &options, indices, found), "sparse");
    options.n_neighbors = N + 1;
    expect_bad(napier_cuda_nearest_neighbors(cuda, NULL, &w, samples, &options, indices, found), "n_neighbors 71");
    options.n_neighbors = 1;
    expect_bad(napier_cuda_nearest_neighbors(cuda, NULL, &w, samples, &options, indices, found), "n_neighbors 1");
    options.n_neighbors = K;
    expect_bad(napier_cuda_nearest_neighbors(cuda, NULL, &w, samples, &options, NULL, found), "indices: NULL");
    assert_int_equal(napier_cuda_nearest_neighbors(cuda, NULL, &w, samples, &options, indices, found), NAPIER_OK);
    w.data = device_new(w.size);
    w.size -= 256;
    expect_bad(napier_cuda_nearest_neighbors(cuda, NULL, &w, samples, &options, indices, found), "workspace: size");
    device_free(w.data), device_free(device), device_free(found), device_free(indices);
    free(x);
}

int main(void) {
    device_wanted();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_metrics),
                                       cmocka_unit_test(test_sums),   cmocka_unit_test(test_dtypes),
                                       cmocka_unit_test(test_scales), cmocka_unit_test(test_bad)};
    if (napier_context_create(&host, NULL) || napier_cuda_context_create(&cuda, 0)) {
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    napier_cuda_context_destroy(cuda);
    napier_context_destroy(host);
    return failed;
}
