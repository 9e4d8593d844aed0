/* test_umap_model - fitted maps: the digits end up in their groups, new ones too; a row of transform is the same alone and
 * in company; bytes of models and optimizers, whole and damaged. */
#include "unit/umap/umap_support.h"

#include <stdio.h>

#include "core/base/bytes.h"

static napier_context *context;

/* Points around four places. */
static float *clusters(int64_t n, int64_t cols) {
    float *x = scratch(n * cols, sizeof *x);
    for (int64_t i = 0; i < n * cols; i++) {
        x[i] = (float)((i / cols % 4 * 5 + i % cols * 3) % 7) + umap_float() + umap_float();
    }
    return x;
}

static napier_umap_options small_options(void) {
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    options.n_epochs = 50;
    return options;
}

static napier_umap_model *fit(const float *x, int64_t n, int64_t cols, const napier_umap_options *options) {
    return umap_fitted(context, samples_of(x, n, cols), options);
}

/* The positions of n points on the map. */
static float *placed(const napier_umap_model *model, const float *x, int64_t n, int64_t cols) {
    float *y = scratch(2 * n, sizeof *y);
    must(napier_umap_transform(context, model, samples_of(x, n, cols), napier_rows_f32(y, n, 2)));
    return y;
}

/* ---- The digits ---------------------------------------------------------------------------------------------------- */

/* The elements of a version 1 .npy file of bytes, as floats. */
static float *read_npy(const char *path, int64_t count) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        return NULL;
    }
    unsigned char head[10], *const bytes = scratch(count, 1);
    assert_int_equal(fread(head, 1, sizeof head, file), sizeof head);
    assert_int_equal(fseek(file, head[8] | head[9] << 8, SEEK_CUR), 0);
    assert_int_equal(fread(bytes, 1, (size_t)count, file), count);
    fclose(file);
    float *x = scratch(count, sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)bytes[i];
    }
    return x;
}

/* Returns the share of `n` points whose label is that of most of the 15 nearest map points. */
static double vote(const float *map, int64_t fitted, const float *points, int64_t n, const int32_t *labels,
                   const int32_t *wanted) {
    napier_neighbors_options o = NAPIER_NEIGHBORS_OPTIONS_INIT;
    o.n_neighbors = 15;
    int32_t *near = scratch(n * o.n_neighbors, sizeof *near);
    float *distances = scratch(n * o.n_neighbors, sizeof *distances);
    must(napier_nearest_neighbors_of(context, samples_of(map, fitted, 2), samples_of(points, n, 2), &o, near,
                                     distances));
    int64_t right = 0;
    for (int64_t i = 0; i < n; i++) {
        int votes[10] = {0}, best = 0;
        for (int64_t s = 0; s < o.n_neighbors; s++) {
            votes[labels[near[i * o.n_neighbors + s]]]++;
        }
        for (int label = 1; label < 10; label++) {
            best = votes[label] > votes[best] ? label : best;
        }
        right += best == wanted[i];
    }
    return (double)right / (double)n;
}

enum { DIGITS = 1797, PIXELS = 64, FOLDS = 5 };

/* The digits but every FOLDS-th, then those, which are held out; returns how many are fitted. */
static int split_digits(const float *images, const float *wanted, int fold, float *x, int32_t *labels) {
    int fitted = 0;
    for (int pass = 0, at = 0; pass < 2; pass++) {
        for (int i = 0; i < DIGITS; i++) {
            if ((i % FOLDS == fold) == (pass == 1)) {
                memcpy(x + at * PIXELS, images + i * PIXELS, PIXELS * sizeof *x);
                labels[at++] = (int32_t)wanted[i];
            }
        }
        fitted = pass == 0 ? at : fitted;
    }
    return fitted;
}

/* Fits all folds but one, and places that one; the share of right votes in *fitted_vote and *new_vote. */
static void fit_fold(const float *x, int fitted, const int32_t *labels, double *fitted_vote, double *new_vote,
                     napier_umap_quality *quality) {
    napier_umap_model *model = fit(x, fitted, PIXELS, NULL);
    const napier_const_matrix map = napier_umap_model_embedding(model);
    const float *new = placed(model, x + fitted * PIXELS, DIGITS - fitted, PIXELS);
    *fitted_vote = vote(map.data, fitted, map.data, fitted, labels, labels);
    *new_vote = vote(map.data, fitted, new, DIGITS - fitted, labels, labels + fitted);
    must(napier_umap_quality_of(context, samples_of(x, fitted, PIXELS), NULL, map, labels, 0, quality));
    napier_umap_model_destroy(context, model);
}

/* Every digit is held out once. */
static void test_digits(void) {
    float *images = read_npy("data/digits/images.npy", DIGITS * PIXELS);
    float *wanted = read_npy("data/digits/labels.npy", DIGITS);
    if (!images || !wanted) {
        print_message("skip  data/digits is not here\n");
        skip();
    }
    float *x = scratch(DIGITS * PIXELS, sizeof *x);
    int32_t labels[DIGITS];
    double held_out = 0.0;
    for (int fold = 0; fold < FOLDS; fold++) {
        double fitted_vote, new_vote;
        napier_umap_quality quality;
        const int fitted = split_digits(images, wanted, fold, x, labels);
        fit_fold(x, fitted, labels, &fitted_vote, &new_vote, &quality);
        held_out += new_vote * (double)(DIGITS - fitted) / DIGITS;
        print_message("digits: vote %.4f, held out %.4f, trustworthiness %.4f, preserved %.4f\n", fitted_vote, new_vote,
                      quality.trustworthiness, quality.neighbor_preservation);
        assert_true(fitted_vote >= 0.97);
        assert_true(quality.trustworthiness >= 0.97);
        assert_true(quality.knn_accuracy >= 0.97);
    }
    print_message("digits: held out, all folds %.4f\n", held_out);
    assert_true(held_out >= 0.97);
}

/* The quality does not change with the unit of the data. f64 values whose digits f32 does not hold are refused. */
static void test_units(void) {
    enum { N = 120, COLS = 5 };
    static const int exponents[] = {-70, 62, 90};
    const float *x = clusters(N, COLS);
    const napier_umap_options options = small_options();
    napier_umap_model *model = fit(x, N, COLS, &options), *other = NULL;
    const napier_const_matrix map = napier_umap_model_embedding(model);
    napier_umap_quality expected, got;
    must(napier_umap_quality_of(context, samples_of(x, N, COLS), &options.neighbors, map, NULL, 0, &expected));
    float y[N * COLS], place[2];
    double tiny[N * COLS];
    for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
        for (int i = 0; i < N * COLS; i++) {
            y[i] = ldexpf(x[i], exponents[e]);
            tiny[i] = ldexp((double)x[i], -200);
        }
        must(napier_umap_quality_of(context, samples_of(y, N, COLS), &options.neighbors, map, NULL, 0, &got));
        expect(got.trustworthiness == expected.trustworthiness &&
                   got.neighbor_preservation == expected.neighbor_preservation,
               "2^%d: trustworthiness %g, preserved %g, expected %g, %g", exponents[e], got.trustworthiness,
               got.neighbor_preservation, expected.trustworthiness, expected.neighbor_preservation);
    }
    const napier_umap_samples lost = {napier_const_rows(tiny, N, COLS, NAPIER_F64), NULL};
    invalid(context, napier_umap_fit(context, lost, &options, &other), "samples", "float32", "2^");
    invalid(context, napier_umap_quality_of(context, lost, &options.neighbors, map, NULL, 0, &got), "samples",
            "float32");
    napier_umap_model_destroy(context, model);
    napier_umap_options cosine = options;
    cosine.neighbors.metric = NAPIER_METRIC_COSINE;
    model = fit(x, N, COLS, &cosine);
    const napier_umap_samples row = {napier_const_rows(tiny, 1, COLS, NAPIER_F64), NULL};
    invalid(context, napier_umap_transform(context, model, row, napier_rows_f32(place, 1, 2)), "samples", "row 0",
            "float32");
    napier_umap_model_destroy(context, model);
}

/* ---- transform ----------------------------------------------------------------------------------------------------- */

static void test_transform_of_one_row(void) {
    enum { N = 300, COLS = 20, NEW = 40 };
    const float *x = clusters(N + NEW, COLS), *new = x + N *COLS;
    const napier_umap_options options = small_options();
    napier_umap_model *model = fit(x, N, COLS, &options);
    float turned[NEW * COLS], back[NEW * COLS];
    for (int i = 0; i < NEW; i++) {
        memcpy(turned + i * COLS, new + (NEW - 1 - i) * COLS, COLS * sizeof *x);
    }
    const float *together = placed(model, new, NEW, COLS), *backwards = placed(model, turned, NEW, COLS);
    for (int i = 0; i < NEW; i++) {
        const float *alone = placed(model, new + i *COLS, 1, COLS);
        assert_memory_equal(alone, together + 2 * i, 2 * sizeof *alone);
        assert_memory_equal(alone, backwards + 2 * (NEW - 1 - i), 2 * sizeof *alone);
    }
    must(napier_umap_inverse_transform(context, model, napier_const_rows_f32(together, NEW, 2),
                                       napier_rows_f32(back, NEW, COLS)));
    double error = 0.0, size = 0.0;
    for (int i = 0; i < NEW * COLS; i++) {
        error += ((double)back[i] - (double)new[i]) * ((double)back[i] - (double)new[i]);
        size += ((double)new[i] - 3.0) * ((double)new[i] - 3.0);
    }
    assert_true(error < 0.35 * size); /* the cluster's middle, roughly */
    napier_umap_model_destroy(context, model);
}

/* ---- Cancelled ----------------------------------------------------------------------------------------------------- */

static int say_no(const char *stage, double done, void *user) {
    (void)stage;
    (void)done;
    return --*(int *)user < 0;
}

static void test_cancel(void) {
    enum { N = 300, COLS = 10 };
    const float *x = clusters(N, COLS);
    for (int after = 0; after < 40; after++) {
        int left = after;
        napier_umap_options options = small_options();
        napier_umap_model *model = NULL;
        options.progress = say_no;
        options.user = &left;
        assert_int_equal(napier_umap_fit(context, samples_of(x, N, COLS), &options, &model), NAPIER_CANCELLED);
        assert_null(model);
    }
}

/* ---- Bytes --------------------------------------------------------------------------------------------------------- */

/* Damage: every byte of the head changed, cut off anywhere, with a checksum that fits all the same. */
static void sign(uint8_t *bytes, size_t size) { napier_put_u64(bytes + size - 8, napier_checksum(bytes, size - 8)); }

/* A small model as bytes; x: its points. */
static uint8_t *model_bytes(const float *x, int64_t n, int64_t cols, int64_t n_neighbors, size_t *size) {
    napier_umap_options options = small_options();
    size_t again = 0;
    options.neighbors.n_neighbors = n_neighbors;
    napier_umap_model *model = fit(x, n, cols, &options);
    must(napier_umap_model_to_bytes(context, model, NULL, 0, size));
    uint8_t *bytes = scratch((int64_t)*size, 1);
    must(napier_umap_model_to_bytes(context, model, bytes, *size, &again));
    assert_int_equal(*size, again);
    napier_umap_model_destroy(context, model);
    return bytes;
}

static void test_damaged_files(void) {
    enum { N = 30, COLS = 3 };
    const float *x = clusters(N, COLS);
    napier_umap_model *read = NULL;
    size_t size;
    uint8_t *bytes = model_bytes(x, N, COLS, 5, &size), *damaged = scratch((int64_t)size, 1);
    must(napier_umap_model_from_bytes(context, bytes, size, &read));
    napier_umap_model_destroy(context, read);
    for (size_t at = 0; at < size; at++) { /* unsigned damage never passes */
        memcpy(damaged, bytes, size);
        damaged[at] ^= 0x10;
        assert_int_equal(napier_umap_model_from_bytes(context, damaged, size, &read), NAPIER_CORRUPT_DATA);
        assert_null(read);
    }
    for (size_t cut = 0; cut < size; cut++) {
        assert_int_equal(napier_umap_model_from_bytes(context, bytes, cut, &read), NAPIER_CORRUPT_DATA);
    }
    for (size_t at = 0; at < size - 8; at++) { /* signed damage may be a model; it must not crash, and must transform */
        for (int bit = 0; bit < 8; bit++) {
            memcpy(damaged, bytes, size);
            damaged[at] ^= (uint8_t)(1 << bit);
            sign(damaged, size);
            if (napier_umap_model_from_bytes(context, damaged, size, &read) == NAPIER_OK) {
                if (at % 7 == 0) {
                    float y[2];
                    (void)napier_umap_transform(context, read, samples_of(x, 1, COLS), napier_rows_f32(y, 1, 2));
                }
                napier_umap_model_destroy(context, read);
            }
        }
    }
}

/* 244 bytes that claim 2 points of 2^31 - 1 columns and an inverse covariance: 4 (2 cols + cols^2 + 2) is 2^64 + 4. */
static void test_sizes_that_wrap(void) {
    enum { N = 30, COLS = 3, WHOLE = 16 + 21 * 8 + 6 * 8 + 4 + 8, OPTIONS = 16, SIZES = 16 + 21 * 8 };
    napier_umap_model *read = NULL;
    size_t size;
    uint8_t *bytes = model_bytes(clusters(N, COLS), N, COLS, 15, &size);
    const uint64_t cols = (UINT64_C(1) << 31) - 1, counts[6] = {2, cols, 2 * cols, 0, cols * cols, 2};
    napier_put_u64(bytes + OPTIONS, 2);                             /* n_neighbors */
    napier_put_u64(bytes + OPTIONS + 8, NAPIER_METRIC_MAHALANOBIS); /* metric */
    napier_put_u64(bytes + OPTIONS + 40, 1);                        /* n_components */
    for (size_t i = 0; i < 6; i++) {
        napier_put_u64(bytes + SIZES + 8 * i, counts[i]);
    }
    sign(bytes, WHOLE);
    assert_int_equal(napier_umap_model_from_bytes(context, bytes, WHOLE, &read), NAPIER_CORRUPT_DATA);
}

static void test_optimizer_bytes(void) {
    enum { N = 20 };
    napier_umap_edge edges[N];
    for (uint32_t v = 0; v < N; v++) {
        edges[v] = (napier_umap_edge){v, (v + 1) % N, 1.0f};
    }
    napier_umap_optimizer *whole = NULL, *first = NULL, *second = NULL;
    float a[N * 2], b[N * 2];
    for (int i = 0; i < N * 2; i++) {
        a[i] = b[i] = umap_float();
    }
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.count = epochs.total = 10;
    must(napier_umap_optimizer_create(context, NULL, N, 2, &whole));
    must(napier_umap_optimizer_create(context, NULL, N, 2, &first));
    must(napier_umap_optimize_epochs(context, NULL, &epochs, edges, N, NULL, whole, napier_rows_f32(a, N, 2)));
    epochs.count = 4;
    must(napier_umap_optimize_epochs(context, NULL, &epochs, edges, N, NULL, first, napier_rows_f32(b, N, 2)));
    uint8_t bytes[1024];
    size_t size = 0;
    must(napier_umap_optimizer_to_bytes(context, first, bytes, sizeof bytes, &size));
    assert_true(size <= sizeof bytes);
    must(napier_umap_optimizer_from_bytes(context, bytes, size, &second));
    epochs.first = 4;
    epochs.count = 6;
    must(napier_umap_optimize_epochs(context, NULL, &epochs, edges, N, NULL, second, napier_rows_f32(b, N, 2)));
    assert_memory_equal(a, b, sizeof a); /* kept, saved, loaded: as in one go */
    napier_umap_optimizer *read = NULL;
    for (size_t at = 0; at < size; at++) {
        bytes[at] ^= 1;
        assert_int_equal(napier_umap_optimizer_from_bytes(context, bytes, size, &read), NAPIER_CORRUPT_DATA);
        bytes[at] ^= 1;
    }
    napier_umap_optimizer_destroy(context, whole);
    napier_umap_optimizer_destroy(context, first);
    napier_umap_optimizer_destroy(context, second);
}

int main(void) {
    return RUN_UMAP_TESTS("umap model", TEST(test_digits), TEST(test_units), TEST(test_transform_of_one_row),
                          TEST(test_cancel), TEST(test_damaged_files), TEST(test_sizes_that_wrap),
                          TEST(test_optimizer_bytes));
}
