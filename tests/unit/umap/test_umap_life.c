/* test_umap_life - the whole life of a map: made, asked for new points and for old data, saved, loaded, destroyed. With
 * memory that runs out at every allocation; on odd data, which must give a finite map; on data and options that cannot be,
 * which must give an error that says what is wrong, and leave the result alone. */
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

static int untouched(const float *y, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (y[i] != -77.0f) {
            return 0;
        }
    }
    return 1;
}

static napier_status place(napier_context *c, const life *l, const napier_umap_model *model, float *y) {
    for (int i = 0; i < NEW * 2; i++) {
        y[i] = -77.0f;
    }
    const napier_status status = napier_umap_transform(c, model, l->more, napier_rows_f32(y, NEW, 2));
    expect(!status || untouched(y, NEW * 2), "transform failed and wrote");
    return status;
}

static napier_status bring_back(napier_context *c, const napier_umap_model *model, const float *y) {
    float x[NEW * COLS];
    for (int i = 0; i < NEW * COLS; i++) {
        x[i] = -77.0f;
    }
    const napier_status status =
        napier_umap_inverse_transform(c, model, napier_const_rows_f32(y, NEW, 2), napier_rows_f32(x, NEW, COLS));
    expect(!status || untouched(x, NEW * COLS), "inverse_transform failed and wrote");
    return status;
}

static napier_status measure(napier_context *c, const life *l, const napier_umap_model *model) {
    napier_neighbors_options near = NAPIER_NEIGHBORS_OPTIONS_INIT;
    napier_umap_quality quality;
    near.n_neighbors = K;
    return napier_umap_quality_of(c, l->samples, &near, napier_umap_model_embedding(model), NULL, 0, &quality);
}

static napier_status live(napier_context *c, void *argument) {
    life *const l = argument;
    napier_umap_model *made = NULL, *read = NULL;
    float y[NEW * 2], again[NEW * 2];
    napier_status status = napier_umap_fit(c, l->samples, &l->options, &made);
    expect((status == NAPIER_OK) == (made != NULL), "fit: status %d, model %p", (int)status, (void *)made);
    if (!status)
        status = place(c, l, made, y);
    if (!status && !l->samples.sparse)
        status = bring_back(c, made, y);
    if (!status)
        status = save_and_load(c, l, made, &read);
    if (!status)
        status = place(c, l, read, again);
    if (!status)
        status = measure(c, l, made);
    if (!status) {
        expect(memcmp(y, again, sizeof y) == 0, "the loaded model places points elsewhere");
        if (l->lived++ == 0) {
            memcpy(l->wanted, y, sizeof y);
        }
        expect(memcmp(y, l->wanted, sizeof y) == 0, "other bits after a failure");
    }
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

/* Rows of x as CSR without its zeros. */
typedef struct csr_rows {
    int64_t starts[MOST + 1];
    int32_t columns[MOST * COLS];
    float values[MOST * COLS];
    napier_csr_matrix matrix;
} csr_rows;

static napier_umap_samples csr_of(csr_rows *m, const float *x, int64_t rows) {
    int64_t count = 0;
    for (int64_t i = 0; i < rows; i++) {
        m->starts[i] = count;
        for (int32_t j = 0; j < COLS; j++) {
            if (x[i * COLS + j] != 0.0f) {
                m->columns[count] = j;
                m->values[count++] = x[i * COLS + j];
            }
        }
    }
    m->starts[rows] = count;
    m->matrix = (napier_csr_matrix){rows, COLS, m->starts, m->columns, m->values};
    return (napier_umap_samples){{0}, &m->matrix};
}

static void test_memory_sparse(void) {
    static float x[(N + NEW) * COLS];
    static csr_rows fitted, more;
    fill(x, N + NEW, COLS);
    life l = {.samples = csr_of(&fitted, x, N), .more = csr_of(&more, x + N * COLS, NEW), .options = short_options()};
    live_and_run_out("CSR", l);
    l.options.neighbors.method = NAPIER_NEIGHBORS_NN_DESCENT;
    l.options.neighbors.metric = NAPIER_METRIC_COSINE;
    live_and_run_out("CSR, cosine, NN-descent", l);
}

typedef struct epochs_case {
    const napier_umap_edge *edges;
    int64_t count, n;
    napier_umap_method method;
} epochs_case;

/* The primitives, as a caller strings them together. */
static napier_status run_primitives(napier_context *c, void *argument) {
    const epochs_case *const e = argument;
    napier_umap_optimizer_options how = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    napier_umap_optimizer *optimizer = NULL, *read = NULL;
    napier_umap_graph *graph = NULL;
    static uint8_t bytes[1 << 14];
    size_t size;
    float y[N * 2] = {0.0f}, forces[N * 2];
    double loss;
    how.method = e->method;
    epochs.count = epochs.total = 3;
    napier_status status = napier_umap_optimizer_create(c, &how, e->n, 2, &optimizer);
    if (!status)
        status = napier_umap_random_layout(c, 1, napier_rows_f32(y, e->n, 2));
    if (!status)
        status = napier_umap_optimize_epochs(c, NULL, &epochs, e->edges, e->count, NULL, optimizer,
                                             napier_rows_f32(y, e->n, 2));
    const napier_const_matrix map = napier_const_rows_f32(y, e->n, 2);
    if (!status)
        status = napier_umap_gradients(c, NULL, map, e->edges, e->count, 1, napier_rows_f32(forces, e->n, 2));
    if (!status)
        status = napier_umap_loss(c, NULL, map, e->edges, e->count, NULL, 0, &loss);
    if (!status)
        status = napier_umap_optimizer_to_bytes(c, optimizer, bytes, sizeof bytes, &size);
    if (!status)
        status = napier_umap_optimizer_from_bytes(c, bytes, size, &read);
    if (!status)
        status = napier_umap_graph_from_edges(c, e->edges, e->count, e->n, &graph);
    if (!status)
        status = napier_umap_optimize_layout(c, graph, NULL, napier_rows_f32(y, e->n, 2));
    napier_umap_graph_destroy(c, graph);
    napier_umap_optimizer_destroy(c, optimizer);
    napier_umap_optimizer_destroy(c, read);
    return status;
}

static void test_memory_of_primitives(void) {
    napier_umap_edge edges[N];
    for (uint32_t i = 0; i < N; i++) {
        edges[i] = (napier_umap_edge){i, (i * 7 + 3) % N, 0.5f};
    }
    for (int method = NAPIER_UMAP_SGD; method <= NAPIER_UMAP_ADAM; method++) {
        epochs_case e = {edges, N, N, (napier_umap_method)method};
        check_allocations("primitives", run_primitives, &e);
    }
}

/* ---- Odd data: a finite map ---------------------------------------------------------------------------------------- */

/* Fits, places its own rows again, and takes its map back to data where it can. */
static void check_map(const char *name, napier_umap_samples samples, int64_t n, const napier_umap_options *o) {
    napier_umap_model *model = NULL;
    static float y[MOST * 3], x[MOST * COLS];
    const napier_status status = napier_umap_fit(context, samples, o, &model);
    if (!expect(status == NAPIER_OK, "%s: %s", name, napier_last_error(context))) {
        return;
    }
    const napier_const_matrix map = napier_umap_model_embedding(model);
    expect(map.rows == n && map.cols == o->n_components, "%s: %d x %d", name, (int)map.rows, (int)map.cols);
    for (int64_t i = 0; i < map.rows * map.cols; i++) {
        expect(isfinite(((const float *)map.data)[i]) && fabsf(((const float *)map.data)[i]) < 1e4f,
               "%s: element %d is %g", name, (int)i, (double)((const float *)map.data)[i]);
    }
    if (o->neighbors.metric != NAPIER_METRIC_PRECOMPUTED) {
        const napier_status placed =
            napier_umap_transform(context, model, samples, napier_rows_f32(y, n, o->n_components));
        expect(placed == NAPIER_OK, "%s, transform: %s", name, napier_last_error(context));
        for (int64_t i = 0; i < n * o->n_components && !placed; i++) {
            expect(isfinite(y[i]), "%s, transform: element %d is %g", name, (int)i, (double)y[i]);
        }
    }
    if (!samples.sparse && o->neighbors.metric == NAPIER_METRIC_EUCLIDEAN) {
        const napier_status back =
            napier_umap_inverse_transform(context, model, map, napier_rows_f32(x, n, samples.dense.cols));
        expect(back == NAPIER_OK, "%s, inverse_transform: %s", name, napier_last_error(context));
        for (int64_t i = 0; i < n * samples.dense.cols && !back; i++) {
            expect(isfinite(x[i]), "%s, inverse_transform: element %d is %g", name, (int)i, (double)x[i]);
        }
    }
    napier_umap_model_destroy(context, model);
}

static void test_few_and_equal_points(void) {
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 9, 30};
    static float x[MOST * COLS], equal[MOST * COLS];
    fill(x, MOST, COLS);
    for (int i = 0; i < MOST * COLS; i++) {
        equal[i] = 2.5f;
    }
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int init = NAPIER_UMAP_INIT_SPECTRAL; init <= NAPIER_UMAP_INIT_RANDOM; init++) {
            for (int densmap = 0; densmap <= 1; densmap++) {
                napier_umap_options o = short_options();
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
}

/* Every third row is the same, by every metric, exactly and by NN-descent; some rows hold nothing but zeros. */
static void test_duplicates_by_every_metric(void) {
    enum { ROWS = 45 };
    static float x[ROWS * COLS], two[ROWS * 2];
    static csr_rows sparse;
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
                check_map(name, csr_of(&sparse, x, ROWS), ROWS, &o);
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

/* Distances that are no f32 are refused by their place, with the way out; metrics without squares have none. */
static void test_numbers_that_overflow(void) {
    static float x[N * COLS];
    napier_umap_options o = short_options();
    napier_umap_model *model = NULL;
    fill(x, N, COLS);
    x[3 * COLS + 1] = 1e30f;
    invalid(context, napier_umap_fit(context, samples_of(x, N, COLS), &o, &model),
            "samples: the distance of row 3 from row ", "divide the data by a power of two");
    x[3 * COLS + 1] = 1.0f;
    must(napier_umap_fit(context, samples_of(x, N, COLS), &o, &model));
    float far[COLS] = {1e30f}, y[2];
    invalid(context, napier_umap_transform(context, model, samples_of(far, 1, COLS), napier_rows_f32(y, 1, 2)),
            "samples: the distance of row 0", "divide the data by a power of two");
    napier_umap_model_destroy(context, model);
    for (int i = 0; i < N * COLS; i++) {
        x[i] = 1e30f * (1.0f + (float)(i % 17));
    }
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
    napier_umap_model *model = NULL;
    expect(napier_umap_fit(context, (napier_umap_samples){{0}, &m}, &o, &model) == NAPIER_OK, "%s",
           napier_last_error(context));
    const float *places = napier_umap_model_embedding(model).data;
    for (int i = 0; model && i < 2 * ROWS; i++) {
        expect(isfinite(places[i]) == (i < 2 * 25), "precomputed, CSR: element %d is %g", i, (double)places[i]);
    }
    napier_umap_model_destroy(context, model);
    static float square[ROWS * ROWS];
    for (int i = 0; i < ROWS * ROWS; i++) {
        square[i] = fabsf((float)(i / ROWS - i % ROWS));
    }
    model = NULL;
    float y[2] = {0.0f}, x[ROWS];
    expect(napier_umap_fit(context, samples_of(square, ROWS, ROWS), &o, &model) == NAPIER_OK, "%s",
           napier_last_error(context));
    expect(napier_umap_transform(context, model, samples_of(square, 1, ROWS), napier_rows_f32(y, 1, 2)) ==
               NAPIER_UNSUPPORTED,
           "distances were placed");
    expect(napier_umap_inverse_transform(context, model, napier_const_rows_f32(y, 1, 2), napier_rows_f32(x, 1, ROWS)) ==
               NAPIER_UNSUPPORTED,
           "distances are no data");
    napier_umap_model_destroy(context, model);
}

/* ---- What cannot be: an error that says so ------------------------------------------------------------------------- */

static void refuse(const char *wanted, napier_umap_samples samples, const napier_umap_options *o) {
    napier_umap_model *model = (napier_umap_model *)(uintptr_t)8;
    const napier_status status = napier_umap_fit(context, samples, o, &model);
    if (!expect(status == NAPIER_INVALID_ARGUMENT && model == NULL, "%s: status %d", wanted, (int)status)) {
        return;
    }
    expect(strstr(napier_last_error(context), wanted) != NULL, "'%s' does not say '%s'", napier_last_error(context),
           wanted);
}

static void test_refused_data(void) {
    static float x[N * COLS];
    static csr_rows m;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    napier_umap_options o = short_options();
    fill(x, N, COLS);
    for (int b = 0; b < 3; b++) {
        x[7 * COLS + 2] = bad[b];
        refuse("row 7, column 2", samples_of(x, N, COLS), &o);
        refuse("row 7, column 2", csr_of(&m, x, N), &o);
        x[7 * COLS + 2] = 1.0f;
    }
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

static void test_refused_csr(void) {
    static float x[N * COLS];
    static csr_rows m;
    const napier_umap_options o = short_options();
    fill(x, N, COLS);
    const napier_umap_samples s = csr_of(&m, x, N);
    m.columns[12] = COLS;
    refuse("column", s, &o);
    m.columns[12] = -1;
    refuse("column", s, &o);
    m.columns[12] = 1; /* twice in its row */
    refuse("column", s, &o);
    m.columns[12] = 2;
    m.starts[4] = m.starts[3] - 1;
    refuse("row_starts", s, &o);
    m.starts[4] = m.starts[3] + COLS;
    m.starts[0] = 1;
    refuse("row_starts", s, &o);
    m.starts[0] = 0;
    m.matrix.columns = NULL;
    refuse("NULL", s, &o);
    m.matrix.columns = m.columns;
    m.matrix.rows = -1;
    refuse("-1 x 5", s, &o);
}

static void test_refused_options(void) {
    static float x[N * COLS], given[N * 2], numbers[N], distances[N * K];
    int32_t indices[N * K];
    fill(x, N, COLS);
    const napier_umap_samples s = samples_of(x, N, COLS);
    napier_umap_options o = short_options();
    given[9] = NAN;
    o.init = NAPIER_UMAP_INIT_GIVEN;
    o.init_embedding = given;
    refuse("init_embedding", s, &o);
    o = short_options();
    numbers[5] = INFINITY;
    o.target_numbers = numbers;
    refuse("element 5", s, &o);
    o = short_options();
    o.neighbors.n_neighbors = 1;
    refuse("n_neighbors 1", s, &o);
    o = short_options();
    o.a = (double)NAN;
    refuse("a nan", s, &o);
    o = short_options();
    for (int i = 0; i < N * K; i++) {
        indices[i] = i % K == 0 ? i / K : (i / K + i % K) % N;
        distances[i] = (float)(i % K);
    }
    o.knn_indices = indices;
    o.knn_distances = distances;
    indices[3 * K + 2] = N;
    refuse("row 3", s, &o);
    indices[3 * K + 2] = 5;
    distances[3 * K + 2] = NAN;
    refuse("row 3", s, &o);
    distances[3 * K + 2] = 2.0f;
    o.neighbors.n_neighbors = N + 1; /* rows that long are not there */
    refuse("n_neighbors", s, &o);
}

int main(void) {
    context = context_of(NAPIER_ISA_AUTO, 0);
    const int failed = RUN_TESTS("life of a map", TEST(test_memory), TEST(test_memory_sparse),
                                 TEST(test_memory_of_primitives), TEST(test_few_and_equal_points),
                                 TEST(test_duplicates_by_every_metric), TEST(test_huge_and_tiny_numbers),
                                 TEST(test_numbers_that_overflow), TEST(test_precomputed_without_neighbors),
                                 TEST(test_refused_data), TEST(test_refused_csr), TEST(test_refused_options));
    napier_context_destroy(context);
    return failed;
}
