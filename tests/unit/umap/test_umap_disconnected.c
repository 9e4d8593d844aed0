/* test_umap_disconnected - points without neighbours: they have no place on the map (NaN), in fit, transform and files, and
 * inverse_transform and the quality leave them out; the distance from which on neighbours are none. */
#include "unit/umap/umap_support.h"

#include <stdio.h>

static napier_context *context;

static napier_umap_options options_for(napier_metric metric, double distance) {
    napier_umap_options o = NAPIER_UMAP_OPTIONS_INIT;
    o.n_epochs = 30;
    o.neighbors.metric = metric;
    o.neighbors.n_neighbors = 6;
    o.disconnection_distance = distance;
    return o;
}

/* The points without a place. */
static int64_t count_of(napier_umap_samples samples, const napier_umap_options *options) {
    napier_umap_model *model = umap_fitted(context, samples, options);
    const int64_t count = napier_umap_disconnected(napier_umap_model_embedding(model));
    napier_umap_model_destroy(context, model);
    return count;
}

static bool is_placed(const float *y) {
    assert_int_equal(isnan(y[0]) != 0, isnan(y[1]) != 0);
    assert_false(isinf(y[0]) || isinf(y[1]));
    return !isnan(y[0]);
}

static bool has_place(const napier_umap_model *model, int64_t point) {
    return is_placed((const float *)napier_umap_model_embedding(model).data + 2 * point);
}

enum { N = 60, COLS = 40, ALONE = 7, LONER = 58 };

/* Two groups of rows; ALONE and LONER share no column with anybody. */
static void two_groups(float *x) {
    uint64_t state = 5;
    memset(x, 0, N * COLS * sizeof *x);
    for (int i = 0; i < N; i++) {
        for (int c = 0; c < 15; c++) {
            x[i * COLS + i % 2 * 15 + c] = umap_unit(&state) < 0.6 ? (float)(1.0 + umap_unit(&state)) : 0.0f;
        }
    }
    memset(x + ALONE * COLS, 0, COLS * sizeof *x);
    memset(x + LONER * COLS, 0, COLS * sizeof *x);
    x[ALONE * COLS + 35] = x[LONER * COLS + 36] = 2.0f;
}

static const napier_metric bounded[] = {NAPIER_METRIC_JACCARD, NAPIER_METRIC_DICE, NAPIER_METRIC_HELLINGER};

static void test_fit(void) {
    float x[N * COLS];
    two_groups(x);
    for (size_t m = 0; m < 3; m++) {
        napier_umap_options o = options_for(bounded[m], 0.0);
        for (int init = NAPIER_UMAP_INIT_SPECTRAL; init <= NAPIER_UMAP_INIT_RANDOM; init++) {
            o.init = (napier_umap_init)init;
            napier_umap_model *model = umap_fitted(context, samples_of(x, N, COLS), &o);
            for (int i = 0; i < N; i++) {
                assert_int_equal(has_place(model, i), i != ALONE && i != LONER);
            }
            assert_int_equal(napier_umap_disconnected(napier_umap_model_embedding(model)), 2);
            napier_umap_model_destroy(context, model);
        }
        o.disconnection_distance = (double)INFINITY;
        assert_int_equal(count_of(samples_of(x, N, COLS), &o), 0);
    }
    const napier_umap_options o = options_for(NAPIER_METRIC_JACCARD, 0.0);
    const umap_fit_job job = {samples_of(x, N, COLS), &o};
    same_bits("fit with NaN", umap_fit_work, &job, 2 * N * sizeof(float));
}

/* What is apart is at distance 1 to rounding, however many columns there are. */
static void test_wide_hellinger(void) {
    enum { ROWS = 40, WIDE = 20000 };
    float *x = scratch((int64_t)ROWS * WIDE, sizeof *x);
    uint64_t s = 3;
    memset(x, 0, (size_t)ROWS * WIDE * sizeof *x);
    for (int64_t i = 0; i < ROWS; i++) {
        for (int64_t c = 0; c < WIDE / 2; c++) {
            x[i * WIDE + c * 2 + (i == ALONE)] = (float)umap_unit(&s); /* ALONE has the odd columns */
        }
    }
    const napier_umap_options o = options_for(NAPIER_METRIC_HELLINGER, 0.0);
    napier_umap_model *model = umap_fitted(context, samples_of(x, ROWS, WIDE), &o);
    assert_int_equal(napier_umap_disconnected(napier_umap_model_embedding(model)), 1);
    assert_false(has_place(model, ALONE));
    napier_umap_model_destroy(context, model);
}

static void test_transform(void) {
    float x[N * COLS], y[2 * N], back[N * COLS];
    two_groups(x);
    const napier_umap_options o = options_for(NAPIER_METRIC_JACCARD, 0.0);
    napier_umap_model *model = umap_fitted(context, samples_of(x, N, COLS), &o);
    float rows[4 * COLS] = {0};
    memcpy(rows, x, COLS * sizeof *rows); /* like row 0 */
    rows[COLS + 39] = 1.0f;               /* like none */
    rows[2 * COLS + 35] = 1.0f;           /* like ALONE only, who has no place */
    memcpy(rows + 3 * COLS, rows, COLS * sizeof *rows);
    rows[3 * COLS + 35] = 1.0f; /* like both */
    must(napier_umap_transform(context, model, samples_of(rows, 4, COLS), napier_rows_f32(y, 4, 2)));
    assert_true(is_placed(y) && !is_placed(y + 2) && !is_placed(y + 4) && is_placed(y + 6));
    assert_int_equal(napier_umap_disconnected(napier_const_rows_f32(y, 4, 2)), 2);
    const float places[4] = {y[0], y[1], y[6], y[7]};
    must(napier_umap_inverse_transform(context, model, napier_const_rows_f32(places, 2, 2),
                                       napier_rows_f32(back, 2, COLS)));
    for (int i = 0; i < 2 * COLS; i++) {
        assert_true(isfinite(back[i]));
        assert_true(i % COLS < 30 || back[i] == 0.0f); /* nothing of those without a place */
    }
    napier_umap_model_destroy(context, model);
}

static void test_quality(void) {
    float x[N * COLS], kept[N * COLS], places[2 * N];
    int32_t labels[N], kept_labels[N];
    two_groups(x);
    const napier_umap_options o = options_for(NAPIER_METRIC_JACCARD, 0.0);
    napier_umap_model *model = umap_fitted(context, samples_of(x, N, COLS), &o);
    const napier_const_matrix map = napier_umap_model_embedding(model);
    int64_t n = 0;
    for (int i = 0; i < N; i++) {
        labels[i] = i % 2;
        if (has_place(model, i)) {
            memcpy(kept + n * COLS, x + i * COLS, COLS * sizeof *kept);
            memcpy(places + 2 * n, (const float *)map.data + 2 * i, 2 * sizeof *places);
            kept_labels[n++] = labels[i];
        }
    }
    napier_umap_quality all = {0}, some = {0};
    must(napier_umap_quality_of(context, samples_of(x, N, COLS), &o.neighbors, map, labels, 0, &all));
    must(napier_umap_quality_of(context, samples_of(kept, n, COLS), &o.neighbors, napier_const_rows_f32(places, n, 2),
                                kept_labels, 0, &some));
    assert_memory_equal(&all, &some, sizeof all);
    napier_umap_model_destroy(context, model);
}

/* A distance of the caller's is kept with the model. */
static void test_given_distance(void) {
    enum { DIM = 3 };
    float x[N * DIM], y[4], far[2 * DIM] = {0.1f, 0.2f, 0.3f, 60.0f, 0.0f, 0.0f};
    uint64_t s = 9;
    for (int i = 0; i < N * DIM; i++) {
        x[i] = (float)umap_normal(&s) + (i / DIM == ALONE ? 100.0f : 0.0f);
    }
    napier_umap_options o = options_for(NAPIER_METRIC_EUCLIDEAN, 0.0);
    assert_int_equal(count_of(samples_of(x, N, DIM), &o), 0);
    o.disconnection_distance = 20.0;
    napier_umap_model *model = umap_fitted(context, samples_of(x, N, DIM), &o), *read = NULL;
    assert_int_equal(napier_umap_disconnected(napier_umap_model_embedding(model)), 1);
    assert_false(has_place(model, ALONE));
    uint8_t bytes[8192];
    size_t size = 0;
    must(napier_umap_model_to_bytes(context, model, bytes, sizeof bytes, &size));
    assert_true(size <= sizeof bytes);
    must(napier_umap_model_from_bytes(context, bytes, size, &read));
    assert_non_null(read);
    assert_memory_equal(napier_umap_model_embedding(read).data, napier_umap_model_embedding(model).data,
                        2 * N * sizeof(float));
    must(napier_umap_transform(context, read, samples_of(far, 2, DIM), napier_rows_f32(y, 2, 2)));
    assert_true(is_placed(y) && !is_placed(y + 2));
    napier_umap_model_destroy(context, read);
    napier_umap_model_destroy(context, model);
    o.disconnection_distance = 1e-30; /* nobody has a neighbour */
    model = umap_fitted(context, samples_of(x, N, DIM), &o);
    assert_int_equal(napier_umap_disconnected(napier_umap_model_embedding(model)), N);
    invalid(context,
            napier_umap_inverse_transform(context, model, napier_const_rows_f32(x, 1, 2), napier_rows_f32(y, 1, DIM)),
            "model: none of its 60 points");
    napier_umap_model_destroy(context, model);
    for (int bad = 0; bad < 2; bad++) {
        o.disconnection_distance = bad ? (double)NAN : -1.0;
        invalid(context, napier_umap_fit(context, samples_of(x, N, DIM), &o, &model), "disconnection_distance",
                bad ? "nan" : "-1");
    }
}

/* Neighbours that the caller found: -1 is none, and far ones are none. */
static void test_given_neighbors(void) {
    enum { K = 4, DIM = 2 };
    float x[N * DIM], distances[N * K];
    int32_t indices[N * K];
    for (int i = 0; i < N; i++) {
        x[2 * i] = x[2 * i + 1] = (float)i;
        bool ends = false; /* nobody names ALONE or LONER, nor do they; nor anybody after those */
        for (int k = 0; k < K; k++) {
            const int j = (i + k) % N;
            ends = ends || (k > 0 && (i == ALONE || i == LONER || j == ALONE || j == LONER));
            indices[i * K + k] = ends ? -1 : j;
            distances[i * K + k] = ends ? INFINITY : (float)k;
        }
    }
    indices[LONER * K + 1] = 0; /* but that is too far */
    distances[LONER * K + 1] = 50.0f;
    napier_umap_options o = options_for(NAPIER_METRIC_EUCLIDEAN, 50.0);
    o.neighbors.n_neighbors = K;
    o.knn_indices = indices;
    o.knn_distances = distances;
    o.init = NAPIER_UMAP_INIT_RANDOM;
    napier_umap_model *model = umap_fitted(context, samples_of(x, N, DIM), &o);
    assert_false(has_place(model, ALONE));
    assert_false(has_place(model, LONER));
    assert_int_equal(indices[LONER * K + 1], 0); /* theirs are as they were */
    napier_umap_model_destroy(context, model);
    o.disconnection_distance = 0.0;
    model = umap_fitted(context, samples_of(x, N, DIM), &o);
    assert_false(has_place(model, ALONE));
    assert_true(has_place(model, LONER));
    napier_umap_model_destroy(context, model);
}

static void test_distances_of_metrics(void) {
    for (int m = 0; m <= NAPIER_METRIC_PRECOMPUTED; m++) {
        const float d = napier_metric_disconnection((napier_metric)m);
        const bool angular = m == NAPIER_METRIC_COSINE || m == NAPIER_METRIC_CORRELATION;
        const bool shares = m == NAPIER_METRIC_JACCARD || m == NAPIER_METRIC_DICE || m == NAPIER_METRIC_HELLINGER;
        assert_true(angular ? d > 1.9999f && d < 2.0f : shares ? d > 0.99999f && d <= 1.0f : isinf(d));
    }
    const float y[4] = {(float)NAN, 1.0f, (float)NAN, (float)NAN};
    assert_int_equal(napier_umap_disconnected(napier_const_rows_f32(y, 2, 2)), 1);
    assert_int_equal(napier_umap_disconnected(napier_const_rows_f32(NULL, 0, 2)), 0);
}

int main(void) {
    return RUN_UMAP_TESTS("umap disconnected", TEST(test_fit), TEST(test_wide_hellinger), TEST(test_transform),
                          TEST(test_quality), TEST(test_given_distance), TEST(test_given_neighbors),
                          TEST(test_distances_of_metrics));
}
