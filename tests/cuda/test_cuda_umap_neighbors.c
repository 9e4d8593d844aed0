/* tests/cuda/test_cuda_umap_neighbors.c - neighbours on a device against the CPU's exact ones, bit for bit: metrics,
 * dtypes, strides, ties, few and many columns and neighbours; and what is bad on the device. */
#include "both.h"

/* Rows [n, cols] at a stride of cols + 3: clusters, rows that occur again, zeros; not negative where asked. */
static float *make_rows(int64_t n, int64_t cols, bool negative) {
    float *const x = array_new((size_t)(n * (cols + 3)) * sizeof *x);
    rng r = rng_make((uint64_t)(n * 1000 + cols));
    for (int64_t i = 0; i < n; i++) {
        const bool again = i > 0 && rng_below(&r, 6) == 0, empty = rng_below(&r, 25) == 0;
        for (int64_t c = 0; c < cols + 3; c++) {
            const float value = (float)rng_uniform(&r) + (float)(i % 3) - (negative ? 1.5f : 0.0f);
            x[i * (cols + 3) + c] = again ? x[(i - 1) * (cols + 3) + c] : empty ? 0.0f : value;
        }
    }
    return x;
}

/* Neighbours of `queries` rows (0: of the samples themselves) among n, on both. turned: columns side by side. */
static void check(const napier_neighbors_options *options, napier_dtype dtype, void *rows, int64_t n, int64_t cols,
                  int64_t queries, bool turned) {
    const int64_t total = n + queries, count = (queries > 0 ? queries : n) * options->n_neighbors;
    const napier_const_matrix all = {rows, total, cols, turned ? 1 : cols + 3, turned ? total : 1, dtype};
    napier_umap_samples a = {all, NULL}, b = a;
    a.dense.rows = n;
    b.dense.rows = queries;
    b.dense.data = (char *)rows + n * all.row_stride * (int64_t)napier_dtype_size(dtype);
    napier_neighbors_options exact = *options;
    exact.method = NAPIER_NEIGHBORS_EXACT;
    const int known = arrays_count();
    int32_t *const indices = array_new((size_t)count * sizeof *indices);
    float *const distances = array_new((size_t)count * sizeof *distances);
    both_case("%d x %d %s, %d queries, metric %d", (int)n, (int)cols, napier_dtype_name(dtype), (int)queries,
              (int)options->metric);
    if (queries > 0) {
        SAME(nearest_neighbors_of, a, b, &exact, indices, distances);
    } else {
        SAME(nearest_neighbors, a, &exact, indices, distances);
    }
    arrays_free_from(known);
}

static void test_shapes(void) {
    static const int64_t shapes[][3] = {{2, 1, 2},     {3, 2, 3},    {63, 3, 5},   {64, 7, 15},  {65, 16, 4},
                                        {130, 17, 33}, {45, 31, 45}, {70, 33, 6},  {66, 50, 40}, {130, 64, 15},
                                        {65, 65, 15},  {65, 127, 9}, {67, 130, 8}, {66, 200, 3}, {260, 2, 15}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        float *const x = make_rows(shapes[s][0], shapes[s][1], true);
        napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
        options.n_neighbors = shapes[s][2];
        device_order(s);
        check(&options, NAPIER_F32, x, shapes[s][0], shapes[s][1], 0, false);
        arrays_free();
    }
}

static void test_metrics(void) {
    static const napier_metric metrics[] = {NAPIER_METRIC_MINKOWSKI, NAPIER_METRIC_COSINE, NAPIER_METRIC_CORRELATION,
                                            NAPIER_METRIC_HELLINGER, NAPIER_METRIC_SEUCLIDEAN};
    for (size_t m = 0; m < sizeof metrics / sizeof *metrics; m++) {
        for (int64_t cols = 5; cols < 100; cols += 64) {
            float *const x = make_rows(cols < 64 ? 200 : 90, cols, metrics[m] != NAPIER_METRIC_HELLINGER);
            napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
            options.n_neighbors = 7;
            options.metric = metrics[m];
            device_order(m);
            /* more tiles than blocks to split them: lists are full when the next tile comes */
            check(&options, NAPIER_F32, x, cols < 64 ? 200 : 70, cols, 0, false);
            check(&options, NAPIER_F32, x, 70, cols, 20, false);
            check(&options, NAPIER_F32, x, 20, cols, 70, false);
            arrays_free();
        }
    }
    float *const x = make_rows(100, 9, true), *const variances = array_new(9 * sizeof *variances);
    for (int c = 0; c < 9; c++) {
        variances[c] = 0.25f * (float)(c + 1);
    }
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    options.metric = NAPIER_METRIC_SEUCLIDEAN;
    options.metric_values = variances;
    check(&options, NAPIER_F32, x, 100, 9, 0, false);
    check(&options, NAPIER_F32, x, 80, 9, 20, false);
}

/* Metrics that are no euclidean distance; rows of small whole numbers make ties, zeros and truths. */
static void test_sums(void) {
    static const double powers[] = {1.0, HUGE_VAL};
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
        check(&options, NAPIER_F32, x, 136, cols, 0, false);
        check(&options, NAPIER_F32, x, 10, cols, 24, false);
        options.p = powers[1 - metric % 2];
        if (metric == NAPIER_METRIC_MINKOWSKI) {
            check(&options, NAPIER_F32, x, 70, cols, 0, false);
        }
        arrays_free();
    }
}

static void test_dtypes(void) {
    enum { N = 70, COLS = 21, ALL = N * (COLS + 3) };
    float *const x = make_rows(N, COLS, true);
    uint16_t *const half = array_new(ALL * sizeof *half);
    double *const wide = array_new(ALL * sizeof *wide);
    rng r = rng_make(3);
    for (int i = 0; i < ALL; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
        wide[i] = (double)x[i] * 1.0000000123;
    }
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    for (int turned = 0; turned < 2; turned++) {
        check(&options, NAPIER_F32, x, N, COLS, 0, turned != 0);
        check(&options, NAPIER_BF16, half, N, COLS, 0, turned != 0);
        check(&options, NAPIER_F64, wide, N, COLS, 0, turned != 0);
        check(&options, NAPIER_F64, wide, N - 20, COLS, 20, turned != 0);
    }
    for (int i = 0; i < ALL; i++) {
        half[i] = (uint16_t)(rng_below(&r, 0x7400) | rng_below(&r, 2) << 15); /* finite */
    }
    check(&options, NAPIER_F16, half, N, COLS, 0, false);
}

/* Distances from small to large; then samples that only the CPU scales, and f64 values of which f32 holds no digits. */
static void test_scales(void) {
    enum { N = 80, COLS = 4, K = 15 };
    static const float scales[] = {0x1p-40f, 0x1p-36f, 0x1p52f, 0x1p56f, 0x1p60f, 0x1p120f, 0x1p-60f, 0x1p-140f};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        float *const x = make_rows(N, COLS, true), *const distances = array_new(N * K * sizeof *distances);
        int32_t *const indices = array_new(N * K * sizeof *indices);
        for (int i = 0; i < N * (COLS + 3); i++) {
            x[i] *= scales[s] * 16.0f;
        }
        napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
        if (s < 4) {
            check(&options, NAPIER_F32, x, N, COLS, 0, false);
            check(&options, NAPIER_F32, x, 50, COLS, 30, false); /* few queries: the CPU measures all */
        } else {
            const napier_umap_samples samples = {{x, N, COLS, COLS + 3, 1, NAPIER_F32}, NULL};
            bad(through_nearest_neighbors(cpu, samples, &options, indices, distances), "values: the element at index ");
        }
        arrays_free();
    }
}

/* f64 rows far from 0: columns of their own middle; for correlation, rows. */
static void test_far(void) {
    enum { N = 90, COLS = 5, ALL = N * (COLS + 3) };
    static const napier_metric metrics[] = {NAPIER_METRIC_EUCLIDEAN,   NAPIER_METRIC_MANHATTAN,
                                            NAPIER_METRIC_CHEBYSHEV,   NAPIER_METRIC_SEUCLIDEAN,
                                            NAPIER_METRIC_CORRELATION, NAPIER_METRIC_COSINE};
    float *const x = make_rows(N, COLS, true);
    double *const far = array_new(ALL * sizeof *far);
    for (size_t m = 0; m < sizeof metrics / sizeof *metrics; m++) {
        for (int i = 0; i < ALL; i++) {
            far[i] = (double)x[i] / 3.0 + (i % (COLS + 3) == 2 ? 0.0 : 1e9);
        }
        napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
        options.metric = metrics[m];
        check(&options, NAPIER_F64, far, N, COLS, 0, false);
        check(&options, NAPIER_F64, far, N, COLS, 0, true);
        check(&options, NAPIER_F64, far, N - 30, COLS, 30, false);
    }
}

/* f64 values of which f32 holds no digits: all of them, a row, a value. */
static void test_lost(void) {
    enum { N = 70, COLS = 4, K = 15 };
    static const struct {
        napier_metric metric;
        int parts; /* how many of all, a row and a value are refused */
    } cases[] = {{NAPIER_METRIC_EUCLIDEAN, 1},  {NAPIER_METRIC_MANHATTAN, 1}, {NAPIER_METRIC_COSINE, 2},
                 {NAPIER_METRIC_BRAYCURTIS, 2}, {NAPIER_METRIC_CANBERRA, 3},  {NAPIER_METRIC_JACCARD, 3}};
    float *const x = make_rows(N, COLS, false), *const distances = array_new(N * K * sizeof *distances);
    double *const y = array_new(N * (COLS + 3) * sizeof *y);
    int32_t *const indices = array_new(N * K * sizeof *indices);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        napier_neighbors_options o = NAPIER_NEIGHBORS_OPTIONS_INIT;
        o.metric = cases[c].metric;
        for (int part = 0; part < 3; part++) {
            for (int i = 0; i < N * (COLS + 3); i++) {
                const bool lost = part == 0 || (i / (COLS + 3) == 7 && (part == 1 || i % (COLS + 3) == 1));
                y[i] = ((double)x[i] + 1.0) * (lost ? 1e-60 : 1.0);
            }
            const napier_umap_samples samples = {{y, N, COLS, COLS + 3, 1, NAPIER_F64}, NULL};
            const napier_status status = through_nearest_neighbors(cpu, samples, &o, indices, distances);
            if (part < cases[c].parts) {
                bad(status, part == 0 ? "values: the element at index 0 " : "values: the element at index 28 ");
            } else {
                assert_int_equal(status, NAPIER_OK);
            }
        }
    }
}

static void test_bad(void) {
    enum { N = 70, COLS = 4, K = 5 };
    float *const x = make_rows(N, COLS, false), *const distances = array_new(N * K * sizeof *distances);
    int32_t *const indices = array_new(N * K * sizeof *indices);
    const napier_csr_matrix sparse = {0};
    const napier_umap_samples samples = {{x, N, COLS, COLS + 3, 1, NAPIER_F32}, NULL}, rows = {samples.dense, &sparse};
    const float wrong[] = {NAN, INFINITY, -1.0f};
    napier_neighbors_options o = NAPIER_NEIGHBORS_OPTIONS_INIT;
    o.n_neighbors = K;
    for (int i = 0; i < 3; i++) {
        o.metric = i == 2 ? NAPIER_METRIC_HELLINGER : NAPIER_METRIC_EUCLIDEAN;
        x[33 * (COLS + 3) + 2] = wrong[i];
        bad(through_nearest_neighbors(cpu, samples, &o, indices, distances), "values: the element at index 134 ");
        for (int j = 0; j < N * K; j++) {
            assert_int_equal(indices[j], -1);
        }
        all_nan(distances, NAPIER_F32, N * K);
    }
    o.metric = NAPIER_METRIC_MAHALANOBIS;
    unsupported(through_nearest_neighbors(cpu, samples, &o, indices, distances), "metric mahalanobis");
    o.metric = NAPIER_METRIC_MINKOWSKI;
    o.p = 3.0;
    unsupported(through_nearest_neighbors(cpu, samples, &o, indices, distances), "metric minkowski (p 3)");
    o.metric = NAPIER_METRIC_COSINE;
    unsupported(through_nearest_neighbors(cpu, rows, &o, indices, distances), "sparse");
    o.n_neighbors = N + 1;
    bad(through_nearest_neighbors(cpu, samples, &o, indices, distances), "n_neighbors 71");
    o.n_neighbors = 1;
    bad(through_nearest_neighbors(cpu, samples, &o, indices, distances), "n_neighbors 1");
    o.n_neighbors = K;
    bad(through_nearest_neighbors(cpu, samples, &o, NULL, distances), "indices: NULL");
}

int main(void) {
    return BOTH_TESTS("cuda_umap_neighbors", TEST(test_shapes), TEST(test_metrics), TEST(test_sums), TEST(test_dtypes),
                      TEST(test_scales), TEST(test_far), TEST(test_lost), TEST(test_bad));
}
