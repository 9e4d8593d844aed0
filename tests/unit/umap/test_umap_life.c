/* test_umap_life - the whole life of a map: made, asked for new points and for old data, saved, loaded, destroyed. With
 * memory that runs out at every allocation; on odd data, which must give a finite map; on data and options that cannot be,
 * which must give an error that says what is wrong, and leave the result alone. (Memory
 * runs out in each single call: tests/hostile/allocations.c.) */
#include "unit/umap/umap_support.h"

#include <float.h>
#include <stdio.h>

#include "support/memory.h"

/* ---- Data ---------------------------------------------------------------------------------------------------------- */

enum { N = 60, COLS = 5, NEW = 4, K = 8, MOST = 200 };

static napier_context *context;

/* Three groups, all numbers above 0. */
static void fill(float *x, int64_t n, int64_t cols) {
    uint64_t random = 5;
    for (int64_t i = 0; i < n * cols; i++) {
        x[i] = (float)(3.0 + 4.0 * (double)(i / cols % 3) + umap_unit(&random));
    }
}

static napier_umap_options short_options(void) {
    napier_umap_options o = NAPIER_UMAP_OPTIONS_INIT;
    o.neighbors.n_neighbors = K;
    o.n_epochs = 12;
    return o;
}

/* ---- Memory runs out ----------------------------------------------------------------------------------------------- */

typedef struct life {
    napier_umap_samples samples, more;
    napier_umap_options options;
    const char *path; /* of the model's file; NULL: bytes in memory */
    float *wanted;    /* [NEW, 2] what transform gives; filled by the first life that is lived to the end */
    int lived;
} life;

static napier_status save_and_load(napier_context *c, const life *l, const napier_umap_model *model,
                                   napier_umap_model **out) {
    static uint8_t bytes[1 << 16];
    size_t size;
    if (l->path) {
        const napier_status status = napier_umap_model_save(c, model, l->path);
        return status ? status : napier_umap_model_load(c, l->path, out);
    }
    const napier_status status = napier_umap_model_to_bytes(c, model, bytes, sizeof bytes, &size);
    return status ? status : napier_umap_model_from_bytes(c, bytes, size, out);
}

static void spoil(float *y, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        y[i] = -77.0f;
    }
}

/* A call that fails must not write. */
static napier_status leaves_alone(napier_status status, const char *what, const float *y, int64_t count) {
    for (int64_t i = 0; status && i < count; i++) {
        expect(y[i] == -77.0f, "%s failed and wrote", what);
    }
    return status;
}

static napier_status place(napier_context *c, const life *l, const napier_umap_model *model, float *y) {
    spoil(y, NEW * 2);
    return leaves_alone(napier_umap_transform(c, model, l->more, napier_rows_f32(y, NEW, 2)), "transform", y, NEW * 2);
}

static napier_status bring_back(napier_context *c, const napier_umap_model *model, const float *y) {
    float x[NEW * COLS];
    spoil(x, NEW * COLS);
    return leaves_alone(
        napier_umap_inverse_transform(c, model, napier_const_rows_f32(y, NEW, 2), napier_rows_f32(x, NEW, COLS)),
        "inverse_transform", x, NEW * COLS);
}

static napier_status measure(napier_context *c, const life *l, const napier_umap_model *model) {
    napier_neighbors_options near = NAPIER_NEIGHBORS_OPTIONS_INIT;
    napier_umap_quality quality;
    near.n_neighbors = K;
    return napier_umap_quality_of(c, l->samples, &near, napier_umap_model_embedding(model), NULL, 0, &quality);
}

/* What is done with a map once it is made. */
static napier_status live_with(napier_context *c, life *l, const napier_umap_model *made, napier_umap_model **read) {
    float y[NEW * 2], again[NEW * 2];
    NAPIER_TRY(place(c, l, made, y));
    if (!l->samples.sparse) {
        NAPIER_TRY(bring_back(c, made, y));
    }
    NAPIER_TRY(save_and_load(c, l, made, read));
    NAPIER_TRY(place(c, l, *read, again));
    NAPIER_TRY(measure(c, l, made));
    expect(memcmp(y, again, sizeof y) == 0, "the loaded model places points elsewhere");
    if (l->lived++ == 0) {
        memcpy(l->wanted, y, sizeof y);
    }
    expect(memcmp(y, l->wanted, sizeof y) == 0, "other bits after a failure");
    return NAPIER_OK;
}

static napier_status live(napier_context *c, void *argument) {
    life *const l = argument;
    napier_umap_model *made = NULL, *read = NULL;
    napier_status status = napier_umap_fit(c, l->samples, &l->options, &made);
    expect((status == NAPIER_OK) == (made != NULL), "fit: status %d, model %p", (int)status, (void *)made);
    status = status ? status : live_with(c, l, made, &read);
    napier_umap_model_destroy(c, made);
    napier_umap_model_destroy(c, read);
    return status;
}

static void live_and_run_out(const char *name, life l) {
    float wanted[NEW * 2];
    l.wanted = wanted;
    expect(live(context, &l) == NAPIER_OK, "%s, with memory: %s", name, napier_last_error(context));
    check_allocations(name, live, &l);
}

static void test_memory(void) {
    static float x[(N + NEW) * COLS], numbers[N];
    int32_t categories[N];
    fill(x, N + NEW, COLS);
    for (int i = 0; i < N; i++) {
        categories[i] = i % 7 == 0 ? -1 : i % 3;
        numbers[i] = (float)(i % 11);
    }
    life l = {
        .samples = samples_of(x, N, COLS), .more = samples_of(x + N * COLS, NEW, COLS), .options = short_options()};
    l.options.densmap = 1;
    l.options.target_categories = categories;
    live_and_run_out("densMAP, categories", l);
    l.options.neighbors.method = NAPIER_NEIGHBORS_NN_DESCENT;
    l.options.target_categories = NULL;
    l.options.target_numbers = numbers;
    l.path = "test_umap_life.tmp";
    live_and_run_out("densMAP, numbers, NN-descent, a file", l);
    remove("test_umap_life.tmp");
    l.options = short_options();
    l.options.init = NAPIER_UMAP_INIT_PCA;
    l.options.neighbors.metric = NAPIER_METRIC_MAHALANOBIS;
    l.path = NULL;
    live_and_run_out("PCA, mahalanobis", l);
}

static void test_memory_sparse(void) {
    static float x[(N + NEW) * COLS];
    fill(x, N + NEW, COLS);
    life l = {.samples = sparse_of(csr_of(x, N, COLS, false)),
              .more = sparse_of(csr_of(x + N * COLS, NEW, COLS, false)),
              .options = short_options()};
    live_and_run_out("CSR", l);
    l.options.neighbors.method = NAPIER_NEIGHBORS_NN_DESCENT;
    l.options.neighbors.metric = NAPIER_METRIC_COSINE;
    live_and_run_out("CSR, cosine, NN-descent", l);
}

/* ---- Odd data: a finite map ---------------------------------------------------------------------------------------- */

static void check_finite(const char *name, const char *what, const float *x, int64_t count) {
    const int64_t bad = napier_first_not_finite(x, count);
    expect(bad < 0, "%s%s: element %d is %g", name, what, (int)bad, (double)x[bad < 0 ? 0 : bad]);
}

/* Fits, places its own rows again, and takes its map back to data where it can. */
static void check_map(const char *name, napier_umap_samples samples, int64_t n, const napier_umap_options *o) {
    napier_umap_model *model = NULL;
    static float y[MOST * 3], x[MOST * COLS];
    if (!succeeded(context, napier_umap_fit(context, samples, o, &model), name)) {
        return;
    }
    const napier_const_matrix map = napier_umap_model_embedding(model);
    const int64_t elements = n * o->n_components;
    expect(map.rows == n && map.cols == o->n_components, "%s: %d x %d", name, (int)map.rows, (int)map.cols);
    check_finite(name, "", map.data, elements);
    for (int64_t i = 0; i < elements; i++) {
        expect(fabsf(((const float *)map.data)[i]) < 1e4f, "%s: element %d is far out", name, (int)i);
    }
    if (o->neighbors.metric != NAPIER_METRIC_PRECOMPUTED) {
        must(napier_umap_transform(context, model, samples, napier_rows_f32(y, n, o->n_components)));
        check_finite(name, ", transform", y, elements);
    }
    if (!samples.sparse && o->neighbors.metric == NAPIER_METRIC_EUCLIDEAN) {
        must(napier_umap_inverse_transform(context, model, map, napier_rows_f32(x, n, samples.dense.cols)));
        check_finite(name, ", inverse_transform", x, n * samples.dense.cols);
    }
    napier_umap_model_destroy(context, model);
}

static void test_few_and_equal_points(void) {
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 30, 40};
    static float x[MOST * COLS], equal[MOST * COLS];
    napier_umap_options o;
    fill(x, MOST, COLS);
    for (int i = 0; i < MOST * COLS; i++) {
        equal[i] = 2.5f;
    }
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int init = NAPIER_UMAP_INIT_SPECTRAL; init <= NAPIER_UMAP_INIT_RANDOM; init++) {
            for (int densmap = 0; densmap <= 1; densmap++) {
                o = short_options();
                char name[80];
                o.init = (napier_umap_init)init;
                o.densmap = densmap;
                o.n_components = 1 + init;
                snprintf(name, sizeof name, "%d points, init %d, densmap %d", (int)sizes[s], init, densmap);
                check_map(name, samples_of(x, sizes[s], COLS), sizes[s], &o);
                snprintf(name, sizeof name, "%d equal points, init %d, densmap %d", (int)sizes[s], init, densmap);
                check_map(name, samples_of(equal, sizes[s], COLS), sizes[s], &o);
            }
        }
    }
    o = short_options();
    check_map("more equal points than queries that are searched one by one", samples_of(equal, MOST, COLS), MOST, &o);
    for (int i = 0; i < MOST / 2 * COLS; i++) {
        equal[i] = -2.0f;
    }
    check_map("two places", samples_of(equal, MOST, COLS), MOST, &o);
    o.n_components = COLS + 2;
    check_map("more components than columns", samples_of(x, 40, COLS), 40, &o);
}

/* Every third row is the same, by every metric, exactly and by NN-descent; some rows hold nothing but zeros. */
static void test_duplicates_by_every_metric(void) {
    enum { ROWS = 45 };
    static float x[ROWS * COLS], two[ROWS * 2];
    fill(x, ROWS, COLS);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLS; j++) {
            x[i * COLS + j] = i % 3 == 0 ? x[j] : i > 40 ? 0.0f : x[i * COLS + j] * (float)((i + j) % 2);
        }
        two[2 * i] = x[i * COLS] / 10;
        two[2 * i + 1] = x[i * COLS + 1] / 10;
    }
    for (int metric = 0; metric < NAPIER_METRIC_PRECOMPUTED; metric++) {
        for (int method = NAPIER_NEIGHBORS_EXACT; method <= NAPIER_NEIGHBORS_NN_DESCENT; method++) {
            napier_umap_options o = short_options();
            o.neighbors.metric = (napier_metric)metric;
            o.neighbors.method = (napier_neighbors_method)method;
            const char *const name = napier_metric_name(o.neighbors.metric);
            const int haversine = metric == NAPIER_METRIC_HAVERSINE;
            check_map(name, haversine ? samples_of(two, ROWS, 2) : samples_of(x, ROWS, COLS), ROWS, &o);
            if (!haversine && metric != NAPIER_METRIC_SEUCLIDEAN && metric != NAPIER_METRIC_MAHALANOBIS) {
                check_map(name, sparse_of(csr_of(x, ROWS, COLS, false)), ROWS, &o);
            }
        }
    }
}

static void test_huge_and_tiny_numbers(void) {
    static const float scales[] = {1e-30f, FLT_MIN, 1e18f};
    static float x[N * COLS], scaled[N * COLS];
    fill(x, N, COLS);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        char name[40];
        const napier_umap_options o = short_options();
        for (int i = 0; i < N * COLS; i++) {
            scaled[i] = x[i] * scales[s];
        }
        snprintf(name, sizeof name, "numbers of about %g", (double)scales[s]);
        check_map(name, samples_of(scaled, N, COLS), N, &o);
    }
}

/* A power of two changes no bit of a map, also where distances would overflow, dense and CSR. */
static void test_scaled_numbers(void) {
    static float x[N * COLS], scaled[N * COLS];
    static const napier_metric metrics[] = {NAPIER_METRIC_EUCLIDEAN, NAPIER_METRIC_COSINE, NAPIER_METRIC_SEUCLIDEAN,
                                            NAPIER_METRIC_BRAYCURTIS};
    fill(x, N, COLS);
    for (int i = 0; i < N * COLS; i++) {
        x[i] = fabsf(x[i]) + 0.5f;
        scaled[i] = ldexpf(x[i], 124);
    }
    for (int k = 0; k < 8; k++) {
        napier_umap_options o = short_options();
        napier_umap_model *model = NULL, *large = NULL;
        float y[NEW * 2], z[NEW * 2];
        o.neighbors.metric = metrics[k / 2];
        o.disconnection_distance = metrics[k / 2] == NAPIER_METRIC_EUCLIDEAN ? 2.0 : 0.0;
        const umap_csr *s = csr_of(x, N, COLS, true);
        must(napier_umap_fit(context, k % 2 ? sparse_of(s) : samples_of(x, N, COLS), &o, &model));
        o.disconnection_distance = ldexp(o.disconnection_distance, 124);
        s = csr_of(scaled, N, COLS, true);
        must(napier_umap_fit(context, k % 2 ? sparse_of(s) : samples_of(scaled, N, COLS), &o, &large));
        expect(memcmp(napier_umap_model_embedding(model).data, napier_umap_model_embedding(large).data,
                      N * 2 * sizeof(float)) == 0,
               "case %d: another map", k);
        for (int i = 0; i < NEW * COLS; i++) {
            x[i] += 0.25f;
            scaled[i] = ldexpf(x[i], 124);
        }
        must(napier_umap_transform(context, model, samples_of(x, NEW, COLS), napier_rows_f32(y, NEW, 2)));
        must(napier_umap_transform(context, large, samples_of(scaled, NEW, COLS), napier_rows_f32(z, NEW, 2)));
        for (int i = 0; i < NEW * 2; i++) { /* not the same places: samples are drawn by the row's own bits */
            expect(isfinite(y[i]) == isfinite(z[i]), "case %d: %g, %g", k, (double)y[i], (double)z[i]);
        }
        napier_umap_model_destroy(context, model);
        napier_umap_model_destroy(context, large);
    }
}

/* Metrics that divide by a row's size need no factor: rows of any sizes give the map of rows of one size. */
static void test_rows_of_many_sizes(void) {
    static float x[N * COLS], sized[N * COLS];
    static const napier_metric metrics[] = {NAPIER_METRIC_COSINE, NAPIER_METRIC_CORRELATION, NAPIER_METRIC_HELLINGER};
    fill(x, N, COLS);
    for (int i = 0; i < N * COLS; i++) {
        x[i] = fabsf(x[i]);
        sized[i] = ldexpf(x[i], i < COLS ? 110 : i / COLS % 2 ? -100 : 0);
    }
    for (size_t k = 0; k < sizeof metrics / sizeof *metrics; k++) {
        napier_umap_options o = short_options();
        napier_umap_model *model = NULL, *other = NULL;
        o.neighbors.metric = metrics[k];
        o.init = NAPIER_UMAP_INIT_RANDOM;
        must(napier_umap_fit(context, samples_of(x, N, COLS), &o, &model));
        must(napier_umap_fit(context, samples_of(sized, N, COLS), &o, &other));
        expect(memcmp(napier_umap_model_embedding(model).data, napier_umap_model_embedding(other).data,
                      sizeof(float) * N * 2) == 0,
               "metric %d: rows of other sizes have another map", (int)metrics[k]);
        napier_umap_model_destroy(context, model);
        napier_umap_model_destroy(context, other);
    }
}

/* A row that is far beyond the fitted ones is refused, with the way out. */
static void test_numbers_that_overflow(void) {
    static float x[N * COLS];
    napier_umap_options o = short_options();
    napier_umap_model *model = NULL;
    fill(x, N, COLS);
    x[3 * COLS + 1] = 1e20f;
    check_map("one of 1e20", samples_of(x, N, COLS), N, &o);
    x[3 * COLS + 1] = 1e30f; /* a factor would make all other points equal */
    invalid(context, napier_umap_fit(context, samples_of(x, N, COLS), &o, &model), "divide the data by a power of two");
    x[3 * COLS + 1] = 1.0f;
    must(napier_umap_fit(context, samples_of(x, N, COLS), &o, &model));
    float far[COLS] = {1e30f}, y[2];
    invalid(context, napier_umap_transform(context, model, samples_of(far, 1, COLS), napier_rows_f32(y, 1, 2)),
            "samples: the distance of row 0", "divide the data by a power of two");
    napier_umap_model_destroy(context, model);
    for (int i = 0; i < N * COLS; i++) {
        x[i] = 1e30f * (1.0f + (float)(i % 17));
    }
    check_map("1e30", samples_of(x, N, COLS), N, &o);
    o.neighbors.metric = NAPIER_METRIC_MANHATTAN;
    check_map("1e30 by manhattan", samples_of(x, N, COLS), N, &o);
}

/* Distances of an [n, n] matrix that falls into points that are too far from all others. */
static void test_precomputed_without_neighbors(void) {
    enum { ROWS = 30 };
    static int64_t starts[ROWS + 1];
    static int32_t columns[2 * ROWS];
    static float values[2 * ROWS];
    int64_t count = 0;
    for (int i = 0; i < ROWS; i++) { /* a chain, and five points with no neighbour */
        starts[i] = count;
        if (i > 0 && i < 25) {
            columns[count] = i - 1;
            values[count++] = 1.0f;
        }
        if (i < 24) {
            columns[count] = i + 1;
            values[count++] = 1.0f;
        }
    }
    starts[ROWS] = count;
    const napier_csr_matrix m = {ROWS, ROWS, starts, columns, values};
    napier_umap_options o = short_options();
    o.neighbors.metric = NAPIER_METRIC_PRECOMPUTED;
    napier_umap_model *model = umap_fitted(context, (napier_umap_samples){{0}, &m}, &o);
    const float *places = napier_umap_model_embedding(model).data;
    for (int i = 0; i < 2 * ROWS; i++) {
        expect(isfinite(places[i]) == (i < 2 * 25), "precomputed, CSR: element %d is %g", i, (double)places[i]);
    }
    napier_umap_model_destroy(context, model);
    static float square[ROWS * ROWS];
    for (int i = 0; i < ROWS * ROWS; i++) {
        square[i] = fabsf((float)(i / ROWS - i % ROWS));
    }
    float y[2] = {0.0f}, x[ROWS];
    model = umap_fitted(context, samples_of(square, ROWS, ROWS), &o);
    must(napier_umap_transform(context, model, samples_of(square + 5 * ROWS, 1, ROWS), napier_rows_f32(y, 1, 2)));
    const float *near = (const float *)napier_umap_model_embedding(model).data + 2 * 5;
    expect(hypotf(y[0] - near[0], y[1] - near[1]) < 2.0f, "a row of fitted distances is at %g, %g, its point at %g, %g",
           (double)y[0], (double)y[1], (double)near[0], (double)near[1]);
    const int64_t row_starts[2] = {0, 3};
    const int32_t near_columns[3] = {4, 5, 6};
    const float near_values[3] = {1.0f, 0.0f, 1.0f};
    const napier_csr_matrix few = {1, ROWS, row_starts, near_columns, near_values};
    float place[2];
    must(napier_umap_transform(context, model, (napier_umap_samples){{0}, &few}, napier_rows_f32(place, 1, 2)));
    expect(hypotf(place[0] - near[0], place[1] - near[1]) < 2.0f, "a sparse row is at %g, %g", (double)place[0],
           (double)place[1]);
    napier_umap_model *other = NULL;
    must(napier_umap_model_create(context, samples_of(square, ROWS, ROWS), &o, napier_umap_model_embedding(model),
                                  &other));
    float again[2];
    must(napier_umap_transform(context, other, samples_of(square + 5 * ROWS, 1, ROWS), napier_rows_f32(again, 1, 2)));
    expect(memcmp(again, y, sizeof y) == 0, "a model of the same map places a row elsewhere");
    napier_umap_model_destroy(context, other);
    invalid(
        context,
        napier_umap_model_create(context, samples_of(square, ROWS, ROWS), &o, napier_const_rows_f32(y, 1, 2), &other),
        "embedding: 1 x 2, not 30 x 2");
    refused(context,
            napier_umap_inverse_transform(context, model, napier_const_rows_f32(y, 1, 2), napier_rows_f32(x, 1, ROWS)),
            NAPIER_UNSUPPORTED, "precomputed", NULL);
    napier_umap_model_destroy(context, model);
}

/* ---- What cannot be: an error that says so ------------------------------------------------------------------------- */

static void refuse(const char *wanted, napier_umap_samples samples, const napier_umap_options *o) {
    napier_umap_model *model = (napier_umap_model *)(uintptr_t)8;
    invalid(context, napier_umap_fit(context, samples, o, &model), wanted);
    expect(model == NULL, "%s: a model", wanted);
}

static void test_refused_data(void) {
    static float x[N * COLS];
    const float bad[] = {NAN, INFINITY, -INFINITY};
    const char *const words[] = {"row 7, column 2 is nan", "row 7, column 2 is inf", "row 7, column 2 is -inf"};
    napier_umap_options o = short_options();
    fill(x, N, COLS);
    for (int b = 0; b < 3; b++) {
        x[7 * COLS + 2] = bad[b];
        refuse(words[b], samples_of(x, N, COLS), &o);
        refuse(words[b], sparse_of(csr_of(x, N, COLS, false)), &o);
        x[7 * COLS + 2] = 1.0f;
    }
    static double wide[N * COLS];
    for (int64_t i = 0; i < N * COLS; i++) {
        wide[i] = i == 7 * COLS + 2 ? 1e300 : (double)x[i];
    }
    const napier_umap_samples beyond = {napier_const_rows(wide, N, COLS, NAPIER_F64), NULL};
    refuse("row 7, column 2 is 1e+300", beyond, &o); /* the value as it was given */
    umap_csr *const m = csr_of(x, N, COLS, false);
    m->columns[12] = COLS;
    refuse("column 5 of 5", sparse_of(m), &o); /* what else may be wrong with a CSR matrix: test_umap_metric */
    refuse("no points", samples_of(x, 0, COLS), &o);
    refuse("columns", samples_of(x, N, 0), &o);
    o.neighbors.metric = NAPIER_METRIC_HAVERSINE;
    refuse("haversine", samples_of(x, N, COLS), &o);
    o.neighbors.metric = NAPIER_METRIC_PRECOMPUTED;
    refuse("5", samples_of(x, N, COLS), &o);
    o.neighbors.metric = NAPIER_METRIC_HELLINGER;
    x[3] = -1.0f;
    refuse("-1", samples_of(x, N, COLS), &o);
}

static void test_refused_options(void) {
    static float x[N * COLS], given[N * 2], numbers[N], distances[N * K];
    int32_t indices[N * K];
    fill(x, N, COLS);
    const napier_umap_samples s = samples_of(x, N, COLS);
    enum { CASES = 9 };
    const char *const words[CASES] = {"init_embedding", "element 5",        "n_neighbors 1", "a nan",      "row 3",
                                      "min_dist 2",     "n_components 257", "metric 99",     "struct_size"};
    napier_umap_options o[CASES];
    for (int i = 0; i < CASES; i++) {
        o[i] = short_options();
    }
    given[9] = NAN;
    o[0].init = NAPIER_UMAP_INIT_GIVEN;
    o[0].init_embedding = given;
    numbers[5] = INFINITY;
    o[1].target_numbers = numbers;
    o[2].neighbors.n_neighbors = 1;
    o[3].a = (double)NAN;
    for (int i = 0; i < N * K; i++) {
        indices[i] = i % K == 0 ? i / K : (i / K + i % K) % N;
        distances[i] = (float)(i % K);
    }
    indices[3 * K + 2] = N;
    o[4].knn_indices = indices;
    o[4].knn_distances = distances;
    o[5].min_dist = 2.0;
    o[6].n_components = 257;
    o[7].neighbors.metric = (napier_metric)99;
    o[8].struct_size = 3;
    for (int i = 0; i < CASES; i++) {
        refuse(words[i], s, &o[i]);
    }
    indices[3 * K + 2] = 5;
    distances[3 * K + 2] = NAN;
    refuse("row 3", s, &o[4]);
    distances[3 * K + 2] = 2.0f;
    o[4].neighbors.n_neighbors = N + 1; /* rows that long are not there */
    refuse("n_neighbors", s, &o[4]);
}

int main(void) {
    return RUN_UMAP_TESTS("life of a map", TEST(test_memory), TEST(test_memory_sparse), TEST(test_few_and_equal_points),
                          TEST(test_duplicates_by_every_metric), TEST(test_huge_and_tiny_numbers),
                          TEST(test_scaled_numbers), TEST(test_rows_of_many_sizes), TEST(test_numbers_that_overflow),
                          TEST(test_precomputed_without_neighbors), TEST(test_refused_data),
                          TEST(test_refused_options));
}
