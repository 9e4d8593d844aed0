/* Nearest neighbours against all pairs, measured one by one and sorted: the same indices and the same bits, whatever
 * the data, the threads, the instruction set; the kernels below them against their definitions; NN-descent's recall. */
#include <math.h>
#include <napier/umap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa/ops_kernels.h"
#include "support/memory.h"
#include "umap/knn/neighbors_search.h"
#include "unit/umap/umap_support.h"

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

static void fill_random(float *x, int64_t n, uint64_t seed) {
    rng r = rng_make(seed);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)rng_normal(&r);
    }
}

static bool equal_bits(const float *a, const float *b, int64_t n) { return memcmp(a, b, (size_t)n * sizeof *a) == 0; }

static void check_product(const napier_linear_kernels *kernels, int64_t rows, int64_t k, int64_t pad, const char *isa) {
    const int64_t lda = k + pad, ldc = NAPIER_PANEL + pad;
    float *const a = scratch(rows * lda + 1, sizeof *a), *const b = scratch(k * NAPIER_PANEL + 1, sizeof *b);
    float *const c = scratch(rows * ldc, sizeof *c), *const expected = scratch(rows * ldc, sizeof *c);
    fill_random(a, rows * lda, 1);
    fill_random(b, k * NAPIER_PANEL, 2);
    for (int64_t i = 0; i < rows * ldc; i++) {
        c[i] = expected[i] = 77.0f;
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < NAPIER_PANEL; j++) {
            float sum = 0;
            for (int64_t i = 0; i < k; i++) {
                sum = fmaf(a[r * lda + i], b[i * NAPIER_PANEL + j], sum);
            }
            expected[r * ldc + j] = sum;
        }
    }
    kernels->product(a, lda, rows, b, k, c, ldc);
    expect(equal_bits(c, expected, rows * ldc), "%s: product of %lld rows, k = %lld", isa, (long long)rows,
           (long long)k);
}

static const napier_linear_kernels *kernels_of(napier_context *context) {
    return napier_ops_kernels_of(napier_context_isa(context))->linear;
}

static void test_product(napier_context *context) {
    static const int64_t depths[] = {0, 1, 2, 7, 16, 33, 100};
    for (int64_t rows = 1; rows <= 40; rows++) {
        for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
            check_product(kernels_of(context), rows, depths[d], rows % 3, napier_isa_name(napier_context_isa(context)));
        }
    }
}

/* 64 lanes, each element by fma onto its own, then folds by halves. */
static float pair_sum(bool difference, const float *a, const float *b, int64_t n) {
    float lane[64] = {0};
    for (int64_t i = 0; i < n; i++) {
        const float d = difference ? a[i] - b[i] : a[i];
        lane[i % 64] = fmaf(d, difference ? d : b[i], lane[i % 64]);
    }
    for (int half = 32; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0];
}

static void test_pair_sums(napier_context *context) {
    for (int64_t n = 0; n <= 260; n++) {
        float a[260], b[260];
        fill_random(a, n, 3);
        fill_random(b, n, 4);
        const float got[2] = {kernels_of(context)->dot(a, b, n), kernels_of(context)->squared_distance(a, b, n)};
        const float expected[2] = {pair_sum(false, a, b, n), pair_sum(true, a, b, n)};
        expect(equal_bits(got, expected, 2), "%s: n = %lld: %.9g %.9g", napier_isa_name(napier_context_isa(context)),
               (long long)n, (double)got[0], (double)got[1]);
    }
}

static void check_near_pairs(const napier_linear_kernels *kernels, int64_t k, const char *isa) {
    float *const a = scratch(k * NAPIER_PANEL, sizeof *a), *const b = scratch(k * NAPIER_PANEL, sizeof *b);
    float halves[2][NAPIER_PANEL], limits[2][NAPIER_PANEL];
    fill_random(a, k * NAPIER_PANEL, 5);
    fill_random(b, k * NAPIER_PANEL, 6);
    for (int side = 0; side < 2; side++) {
        fill_random(halves[side], NAPIER_PANEL, 7 + (uint64_t)side);
        fill_random(limits[side], NAPIER_PANEL, 9 + (uint64_t)side);
    }
    halves[0][3] = halves[1][5] = HUGE_VALF; /* no point there */
    limits[0][3] = limits[1][5] = HUGE_VALF;
    limits[0][7] = -HUGE_VALF; /* everything is near */
    uint32_t hits[NAPIER_PANEL], rows = 0;
    const napier_near_side x = {a, halves[0], limits[0]}, y = {b, halves[1], limits[1]};
    const uint32_t got = kernels->near_pairs(x, y, k, hits);
    for (int r = 0; r < NAPIER_PANEL; r++) {
        uint32_t expected = 0;
        for (int j = 0; j < NAPIER_PANEL; j++) {
            float sum = -halves[0][r] - halves[1][j];
            for (int64_t i = 0; i < k; i++) {
                sum = fmaf(a[i * NAPIER_PANEL + r], b[i * NAPIER_PANEL + j], sum);
            }
            const float limit = limits[0][r] < limits[1][j] ? limits[0][r] : limits[1][j];
            expected |= sum > limit ? 1u << j : 0u;
        }
        rows |= expected ? 1u << r : 0u;
        expect(hits[r] == expected, "%s: k = %lld, row %d: %08x, expected %08x", isa, (long long)k, r, hits[r],
               expected);
    }
    expect(got == rows, "%s: rows %08x, expected %08x", isa, got, rows);
}

static void test_near_pairs(napier_context *context) {
    const napier_linear_kernels *const kernels = kernels_of(context);
    for (int64_t k = 1; k <= 70; k += 3) {
        check_near_pairs(kernels, k, napier_isa_name(napier_context_isa(context)));
    }
    float low_a[32], high_a[32], low_b[32], high_b[32], sum = 0;
    fill_random(low_a, 32, 11);
    fill_random(low_b, 32, 12);
    for (int j = 0; j < 32; j++) {
        high_a[j] = low_a[j] + 0.25f;
        high_b[j] = low_b[j] + 0.5f;
        const float gap = fmaxf(0.0f, fmaxf(low_b[j] - high_a[j], low_a[j] - high_b[j]));
        sum += gap * gap;
    }
    const float gap = kernels->box_gap(low_a, high_a, low_b, high_b, 32);
    expect(fabsf(gap - sum) <= 1e-5f * sum, "box_gap %g, expected %g", (double)gap, (double)sum);
    expect(kernels->box_gap(low_a, high_a, low_a, high_a, 32) == 0.0f, "a box is not at itself");
}

/* ---- Data -------------------------------------------------------------------------------------------------------- */

typedef enum data_kind {
    DATA_NORMAL,
    DATA_CLUSTERS, /* 20 far apart */
    DATA_LATTICE,  /* small integers: many ties and duplicates */
    DATA_EQUAL,    /* one point */
    DATA_PAIRS,    /* every point twice */
    DATA_CROWDS,   /* every other point is one of three */
    DATA_SHIFTED,  /* small differences far from 0 */
    DATA_HUGE,     /* squares overflow */
    DATA_TINY,     /* squares would underflow */
    DATA_OUTLIERS, /* a few at 1e30 */
    DATA_ONE_FAR,  /* a row out of all measure, which no sample meets */
    DATA_LOW_RANK, /* few directions matter */
    DATA_KINDS
} data_kind;

static const char *data_name(data_kind kind) {
    static const char *const names[DATA_KINDS] = {"normal",  "clusters", "lattice", "equal",    "pairs",   "crowds",
                                                  "shifted", "huge",     "tiny",    "outliers", "one far", "low rank"};
    return names[kind];
}

static float *make_data(data_kind kind, int64_t n, int64_t cols, uint64_t seed) {
    float *const x = scratch(n * cols, sizeof *x);
    float centres[20][8], mix[6][16];
    fill_random(centres[0], 160, seed + 1);
    fill_random(mix[0], 96, seed + 2);
    for (int64_t i = 0; i < n; i++) {
        rng r = rng_make(seed * 1000003 + (uint64_t)(kind == DATA_PAIRS             ? i / 2
                                                     : kind == DATA_CROWDS && i % 2 ? i % 6
                                                                                    : i));
        double hidden[6];
        for (int h = 0; h < 6; h++) {
            hidden[h] = rng_normal(&r);
        }
        for (int64_t j = 0; j < cols; j++) {
            const double z = rng_normal(&r);
            double v = z;
            switch (kind) {
            case DATA_CLUSTERS: v = z + 30 * (double)centres[i % 20][j % 8]; break;
            case DATA_LATTICE: v = (double)rng_below(&r, 3); break;
            case DATA_EQUAL: v = (double)j; break;
            case DATA_SHIFTED: v = 1e4 + 0.01 * z; break;
            case DATA_HUGE: v = 1e25 * z; break;
            case DATA_TINY: v = 1e-25 * z; break;
            case DATA_OUTLIERS: v = i % 97 == 5 ? 1e30 * z : z; break;
            case DATA_ONE_FAR: v = i == 1 ? 1e30 * z : 1e-3 * z; break;
            case DATA_LOW_RANK:
                v = 0.05 * z;
                for (int h = 0; h < 6; h++) {
                    v += hidden[h] * (double)mix[h][(j * 7 + h) % 16];
                }
                break;
            default: break;
            }
            x[i * cols + j] = (float)v;
        }
    }
    return x;
}

static napier_neighbors_options options_for(int64_t n_neighbors, napier_metric metric, napier_neighbors_method method) {
    napier_neighbors_options o = NAPIER_NEIGHBORS_OPTIONS_INIT;
    o.n_neighbors = n_neighbors;
    o.metric = metric;
    o.method = method;
    return o;
}

/* ---- All pairs --------------------------------------------------------------------------------------------------- */

typedef struct candidate {
    float distance;
    int32_t index;
} candidate;

static int compare_candidates(const void *a, const void *b) {
    const candidate *const x = a, *const y = b;
    return x->distance < y->distance   ? -1
           : x->distance > y->distance ? 1
                                       : (x->index > y->index) - (x->index < y->index);
}

/* The neighbours of a query, by definition. `own` >= 0: the query is that sample, and comes first. */
static void neighbours_of(const napier_points *samples, const napier_points *queries, int64_t query, int64_t own,
                          int64_t n_neighbors, int32_t *indices, float *distances) {
    candidate *const all = room_for(samples->n, sizeof *all);
    for (int64_t j = 0; j < samples->n; j++) {
        all[j] = (candidate){napier_points_distance(queries, query, samples, j), (int32_t)j};
        all[j].distance = j == own ? -1.0f : all[j].distance;
    }
    qsort(all, (size_t)samples->n, sizeof *all, compare_candidates);
    for (int64_t k = 0; k < n_neighbors; k++) {
        indices[k] = all[k].index;
        distances[k] = all[k].index == own ? 0.0f : all[k].distance;
    }
    free(all);
}

/* A search; n_neighbors indices for each row, then their distances. */
typedef struct search_job {
    napier_umap_samples samples, queries; /* queries of no rows: the samples themselves */
    napier_neighbors_options o;
    int64_t results; /* rows of the result */
    bool overflows;  /* distances may be inf, which the public calls avoid or refuse */
    void *expected;  /* of a search that memory did not fail */
} search_job;

static search_job job_of(data_kind kind, int64_t n, int64_t queries, int64_t cols, napier_neighbors_options o,
                         uint64_t seed) {
    const float *const x = make_data(kind, n + queries, cols, seed);
    return (search_job){samples_of(x, n, cols),
                        samples_of(x + n * cols, queries, cols),
                        o,
                        queries > 0 ? queries : n,
                        kind == DATA_HUGE || kind == DATA_OUTLIERS || kind == DATA_ONE_FAR,
                        NULL};
}

static napier_status neighbors_work(napier_context *context, const void *argument, void *out) {
    const search_job *const j = argument;
    float *const distances = (float *)out + j->results * j->o.n_neighbors;
    if (j->overflows) {
        return napier_find_neighbors(context, j->samples, j->queries.dense.rows > 0 ? &j->queries : NULL, &j->o, out,
                                     distances);
    }
    return j->queries.dense.rows > 0
               ? napier_nearest_neighbors_of(context, j->samples, j->queries, &j->o, out, distances)
               : napier_nearest_neighbors(context, j->samples, &j->o, out, distances);
}

typedef struct result {
    int64_t rows, n_neighbors;
    int32_t *indices; /* [rows, n_neighbors], and right behind them */
    float *distances;
} result;

static result result_make(int64_t rows, int64_t n_neighbors) {
    int32_t *const indices = scratch(2 * rows * n_neighbors, sizeof *indices);
    memset(indices, 0xa5, (size_t)(2 * rows * n_neighbors) * sizeof *indices);
    return (result){rows, n_neighbors, indices, (float *)(void *)(indices + rows * n_neighbors)};
}

/* The neighbours of points. */
static result find(napier_context *context, const float *x, int64_t n, int64_t cols,
                   const napier_neighbors_options *o) {
    result r = result_make(n, o->n_neighbors);
    must(napier_nearest_neighbors(context, samples_of(x, n, cols), o, r.indices, r.distances));
    return r;
}

/* The neighbours of n rows or, with `queries`, of so many others: every `step`-th against all pairs. */
static void check_search(napier_context *context, data_kind kind, int64_t n, int64_t queries, int64_t cols, int64_t k,
                         napier_metric metric, int64_t step) {
    const search_job job = job_of(kind, n, queries, cols,
                                  options_for(k, metric, queries > 0 ? NAPIER_NEIGHBORS_AUTO : NAPIER_NEIGHBORS_EXACT),
                                  queries > 0 ? 31 : 17);
    const result got = result_make(job.results, k);
    int32_t *const indices = scratch(k, sizeof *indices);
    float *const distances = scratch(k, sizeof *distances);
    napier_points *a = NULL, *b = NULL;
    NAPIER_MEMORY(memory, context);
    const int raised = kind == DATA_TINY ? 100 : 0; /* the library raises such rows too */
    napier_umap_samples samples, others;
    must(neighbors_work(context, &job, got.indices));
    must(napier_samples_scaled(&memory, job.samples, raised, &samples));
    must(make_points(&memory, "samples", samples, &job.o, NULL, &a));
    if (queries > 0) {
        must(napier_samples_scaled(&memory, job.queries, raised, &others));
        must(make_points(&memory, "queries", others, &job.o, a, &b));
    }
    for (int64_t i = 0; i < job.results; i += step) {
        neighbours_of(a, b ? b : a, i, b ? -1 : i, k, indices, distances);
        for (int64_t j = 0; j < k; j++) {
            distances[j] = ldexpf(distances[j], -raised);
            const int32_t index = got.indices[i * k + j];
            const float distance = got.distances[i * k + j];
            if (!expect(index == indices[j] && memcmp(&distance, &distances[j], 4) == 0,
                        "%s, %s, %lld of %lld x %lld, row %lld: place %lld of %lld is %d at %.9g, expected %d at %.9g",
                        data_name(kind), napier_metric_name(metric), (long long)queries, (long long)n, (long long)cols,
                        (long long)i, (long long)j, (long long)k, (int)index, (double)distance, (int)indices[j],
                        (double)distances[j])) {
                break;
            }
        }
    }
}

static void test_exact(napier_context *context) {
    static const int64_t shapes[][3] = {{2, 1, 2},    {5, 3, 5},    {31, 15, 4},    {32, 16, 32},  {33, 17, 33},
                                        {100, 1, 15}, {500, 2, 15}, {700, 100, 15}, {1000, 50, 8}, {300, 65, 300}};
    for (int kind = 0; kind < DATA_KINDS; kind++) {
        for (size_t s = 0; s < (NAPIER_SANITIZED ? 6 : sizeof shapes / sizeof *shapes); s++) {
            check_search(context, (data_kind)kind, shapes[s][0], 0, shapes[s][1], shapes[s][2], NAPIER_METRIC_EUCLIDEAN,
                         1);
        }
    }
}

/* Enough rows and columns for a subspace. */
static void test_exact_subspace(napier_context *context) {
    for (int kind = 0; kind < DATA_KINDS; kind += NAPIER_SANITIZED ? 3 : 1) {
        check_search(context, (data_kind)kind, 4200, 0, kind == DATA_LOW_RANK ? 300 : 90, 15, NAPIER_METRIC_EUCLIDEAN,
                     53);
    }
}

static void test_metrics(napier_context *context) {
    static const napier_metric metrics[] = {NAPIER_METRIC_COSINE,    NAPIER_METRIC_CORRELATION, NAPIER_METRIC_MANHATTAN,
                                            NAPIER_METRIC_CHEBYSHEV, NAPIER_METRIC_SEUCLIDEAN,  NAPIER_METRIC_HAMMING,
                                            NAPIER_METRIC_JACCARD};
    static const data_kind kinds[] = {DATA_NORMAL, DATA_LATTICE, DATA_CLUSTERS, DATA_PAIRS, DATA_CROWDS};
    for (size_t m = 0; m < sizeof metrics / sizeof *metrics; m++) {
        for (size_t d = 0; d < sizeof kinds / sizeof *kinds; d++) {
            check_search(context, kinds[d], 200, 0, 16, 10, metrics[m], 1);
        }
    }
}

static double true_distance(const float *x, const float *y, int64_t cols) {
    double sum = 0;
    for (int64_t c = 0; c < cols; c++) {
        sum += ((double)x[c] - (double)y[c]) * ((double)x[c] - (double)y[c]);
    }
    return sqrt(sum);
}

/* Distances are what they say: against double. */
static void test_distances(napier_context *context) {
    enum { N = 300, COLS = 40, K = 12 };
    const float *const x = make_data(DATA_CLUSTERS, N, COLS, 3);
    const napier_neighbors_options o = options_for(K, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT);
    const result got = find(context, x, N, COLS, &o);
    for (int64_t i = 0; i < N; i++) {
        double farthest = 0;
        int nearer = 0;
        for (int64_t k = i * K; k < (i + 1) * K; k++) {
            farthest = true_distance(x + i * COLS, x + got.indices[k] * COLS, COLS);
            expect(fabs(farthest - (double)got.distances[k]) <= 1e-6 * farthest,
                   "row %lld, place %lld: %g, expected %g", (long long)i, (long long)(k % K), (double)got.distances[k],
                   farthest);
        }
        for (int64_t j = 0; j < N; j++) {
            nearer += true_distance(x + i * COLS, x + j * COLS, COLS) < farthest * (1 - 1e-6);
        }
        expect(nearer < K, "row %lld: %d are nearer than the last of %d", (long long)i, nearer, K);
    }
}

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

static void check_bits(data_kind kind, int64_t n, int64_t cols, int64_t k, napier_metric metric,
                       napier_neighbors_method method) {
    const search_job job = job_of(kind, n, 0, cols, options_for(k, metric, method), 23);
    char what[64];
    snprintf(what, sizeof what, "%s, %s, method %d", data_name(kind), napier_metric_name(metric), (int)method);
    same_bits(what, neighbors_work, &job, (size_t)(n * k) * 8);
}

static void test_bits(void) {
    check_bits(DATA_NORMAL, 900, 20, 15, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT);
    check_bits(DATA_LATTICE, 600, 3, 10, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT);
    check_bits(DATA_CROWDS, 600, 20, 10, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT);
    check_bits(DATA_CLUSTERS, 500, 33, 10, NAPIER_METRIC_COSINE, NAPIER_NEIGHBORS_EXACT);
    if (!NAPIER_SANITIZED) {
        check_bits(DATA_LOW_RANK, 4100, 64, 15, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT);
    }
    check_bits(DATA_NORMAL, 300, 9, 6, NAPIER_METRIC_MANHATTAN, NAPIER_NEIGHBORS_EXACT);
    check_bits(DATA_CLUSTERS, 900, 20, 15, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_NN_DESCENT);
    check_bits(DATA_NORMAL, 700, 9, 6, NAPIER_METRIC_MANHATTAN, NAPIER_NEIGHBORS_NN_DESCENT);
}

/* ---- The cost of the exact search -------------------------------------------------------------------------------- */

/* Writes the cost, and the heaps of a search that it does not exceed. */
static napier_status cost_work(napier_context *context, const void *argument, void *out) {
    const search_job *const j = argument;
    double *const cost = out;
    uint64_t *const heaps = (uint64_t *)out + 1;
    napier_points *points = NULL;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(make_points(&memory, "samples", j->samples, &j->o, NULL, &points));
    napier_search s = {context, &j->o, points, points, j->o.n_neighbors - 1, heaps, 0.0};
    NAPIER_TRY(napier_search_exact(&s, 1e-3, cost));
    expect(heaps[0] == NAPIER_NEAR_NONE && *cost > 1e-3, "searched at a cost of %g", *cost);
    NAPIER_TRY(napier_search_exact(&s, *cost, cost));
    for (int64_t i = 0; i < j->results; i++) {
        napier_heap_sort(heaps + i * s.wanted, s.wanted);
    }
    return NAPIER_OK;
}

/* The choice of the search depends on the cost, so the cost has the same bits everywhere; counting it does not change
 * the result. */
static void test_cost(void) {
    static const int64_t shapes[][3] = {{600, 20, 15}, {40, 3, 4}, {4100, 8, 15}, {300, 300, 2}};
    for (size_t i = 0; i < (NAPIER_SANITIZED ? 2 : sizeof shapes / sizeof *shapes); i++) {
        const int64_t n = shapes[i][0], k = shapes[i][2];
        const search_job job =
            job_of(DATA_LOW_RANK, n, 0, shapes[i][1],
                   options_for(k, i == 0 ? NAPIER_METRIC_COSINE : NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT), 29);
        same_bits("cost", cost_work, &job, sizeof(double) + (size_t)(n * (k - 1)) * 8);
        napier_context *const context = context_of(NAPIER_ISA_AUTO, 2);
        const result exact = result_make(n, k);
        uint64_t *const heaps = scratch(n * (k - 1) + 1, sizeof *heaps);
        must(neighbors_work(context, &job, exact.indices));
        must(cost_work(context, &job, heaps));
        for (int64_t e = 0; e < n * (k - 1); e++) {
            const int32_t index = exact.indices[e / (k - 1) * k + 1 + e % (k - 1)];
            if (!expect((int32_t)napier_near_index(heaps[1 + e]) == index, "row %lld: %d, expected %d",
                        (long long)(e / (k - 1)), (int)napier_near_index(heaps[1 + e]), (int)index)) {
                break;
            }
        }
        napier_context_destroy(context);
    }
}

/* ---- Queries ----------------------------------------------------------------------------------------------------- */

static void test_queries(napier_context *context) {
    for (int kind = 0; kind < DATA_KINDS; kind++) {
        check_search(context, (data_kind)kind, 333, 1, 19, 7, NAPIER_METRIC_EUCLIDEAN, 1);
        check_search(context, (data_kind)kind, 333, 500, 19, 7, NAPIER_METRIC_EUCLIDEAN, 1);
    }
    check_search(context, DATA_LOW_RANK, 4200, 700, 80, 7, NAPIER_METRIC_EUCLIDEAN, 23);
    check_search(context, DATA_NORMAL, 100, 100, 19, 100, NAPIER_METRIC_COSINE, 1);
    check_search(context, DATA_NORMAL, 100, 100, 19, 1, NAPIER_METRIC_MANHATTAN, 1);
}

/* ---- Precomputed ------------------------------------------------------------------------------------------------- */

static void test_precomputed(napier_context *context) {
    enum { N = 5, K = 4 };
    static const float matrix[N * N] = {0, 3, 1, 1, 9, 3, 0, 2, 8, 7, 1, 2, 0, 5, 5, 1, 8, 5, 0, 4, 9, 7, 5, 4, 0};
    static const int32_t expected[N * K] = {0, 2, 3, 1, 1, 2, 0, 4, 2, 0, 1, 3, 3, 0, 4, 2, 4, 3, 2, 1};
    const napier_neighbors_options o = options_for(K, NAPIER_METRIC_PRECOMPUTED, NAPIER_NEIGHBORS_AUTO);
    result got = result_make(N, K);
    must(napier_nearest_neighbors(context, samples_of(matrix, N, N), &o, got.indices, got.distances));
    for (int i = 0; i < N * K; i++) {
        expect(got.indices[i] == expected[i] &&
                   got.distances[i] == (i % K == 0 ? 0.0f : matrix[i / K * N + expected[i]]),
               "place %d: %d at %g", i, (int)got.indices[i], (double)got.distances[i]);
    }
    /* row 0: 1 and 3; row 1: itself only; row 2: all others; row 3: none; row 4: 0 */
    static const int64_t starts[N + 1] = {0, 2, 3, 7, 7, 8};
    static const int32_t columns[] = {1, 3, 1, 0, 1, 3, 4, 0};
    static const float values[] = {4, 2, 0, 1, 1, 3, 0.5f, 6};
    static const int32_t sparse_expected[N * K] = {0, 3, 1, -1, 1, -1, -1, -1, 2, 4, 0, 1, 3, -1, -1, -1, 4, 0, -1, -1};
    const napier_csr_matrix m = {N, N, starts, columns, values};
    const napier_umap_samples samples = {{0}, &m};
    must(napier_nearest_neighbors(context, samples, &o, got.indices, got.distances));
    for (int i = 0; i < N * K; i++) {
        expect(got.indices[i] == sparse_expected[i] && (got.indices[i] >= 0) == (got.distances[i] < HUGE_VALF),
               "sparse, place %d: %d at %g", i, (int)got.indices[i], (double)got.distances[i]);
    }
}

/* ---- NN-descent -------------------------------------------------------------------------------------------------- */

static double recall(const result *exact, const result *found) {
    int64_t met = 0, all = 0;
    for (int64_t i = 0; i < exact->rows; i++) {
        for (int64_t k = 1; k < exact->n_neighbors; k++, all++) {
            for (int64_t j = 1; j < found->n_neighbors; j++) {
                if (found->indices[i * found->n_neighbors + j] == exact->indices[i * exact->n_neighbors + k]) {
                    met++;
                    break;
                }
            }
        }
    }
    return (double)met / (double)all;
}

static void check_recall(napier_context *context, data_kind kind, int64_t n, int64_t cols, int64_t k,
                         napier_metric metric, double least) {
    float *const x = make_data(kind, n, cols, 41);
    napier_neighbors_options o = options_for(k, metric, NAPIER_NEIGHBORS_EXACT);
    const result exact = find(context, x, n, cols, &o);
    o.method = NAPIER_NEIGHBORS_NN_DESCENT;
    const result found = find(context, x, n, cols, &o);
    const double share = recall(&exact, &found);
    expect(share >= least, "%s %lld x %lld, %s: recall %g", data_name(kind), (long long)n, (long long)cols,
           napier_metric_name(metric), share);
    for (int64_t i = 0; i < n; i++) {
        expect(found.indices[i * k] == i && found.distances[i * k] == 0.0f, "row %lld is not its own first",
               (long long)i);
        for (int64_t j = 2; j < k; j++) {
            const candidate before = {found.distances[i * k + j - 1], found.indices[i * k + j - 1]};
            const candidate here = {found.distances[i * k + j], found.indices[i * k + j]};
            expect(compare_candidates(&before, &here) < 0 && here.index >= 0 && here.index < n && here.index != i,
                   "row %lld, place %lld: %d at %g", (long long)i, (long long)j, (int)here.index,
                   (double)here.distance);
        }
    }
}

static void test_descent(napier_context *context) {
    if (!NAPIER_SANITIZED) {
        check_recall(context, DATA_CLUSTERS, 4000, 20, 15, NAPIER_METRIC_EUCLIDEAN, 0.99);
        check_recall(context, DATA_LOW_RANK, 4000, 60, 15, NAPIER_METRIC_COSINE, 0.99);
    }
    check_recall(context, DATA_CLUSTERS, 2000, 10, 10, NAPIER_METRIC_MANHATTAN, 0.99);
    /* no way leads to the nearest where many directions matter alike: longer lists, or all pairs */
    check_recall(context, DATA_NORMAL, 3000, 20, 15, NAPIER_METRIC_EUCLIDEAN, 0.99);
    check_recall(context, DATA_NORMAL, 2000, 50, 15, NAPIER_METRIC_CANBERRA, 0.99);
    check_recall(context, DATA_EQUAL, 1000, 5, 10, NAPIER_METRIC_EUCLIDEAN, 0.0);
    check_recall(context, DATA_PAIRS, 1000, 5, 10, NAPIER_METRIC_EUCLIDEAN, 0.99);
    check_recall(context, DATA_CROWDS, 3000, 5, 10, NAPIER_METRIC_EUCLIDEAN, 0.99);
    check_recall(context, DATA_NORMAL, 600, 5, 130, NAPIER_METRIC_EUCLIDEAN, 0.99);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static napier_status search_again(napier_context *context, void *argument) {
    search_job *const j = argument;
    const int64_t bytes = 8 * j->results * j->o.n_neighbors;
    uint32_t *const out = scratch(bytes, 1);
    memset(out, 0xa5, (size_t)bytes);
    const napier_status status = neighbors_work(context, j, out);
    if (status == NAPIER_OUT_OF_MEMORY) {
        expect(*out == 0xa5a5a5a5u, "the output was touched");
    } else if (j->expected) {
        expect(memcmp(out, j->expected, (size_t)bytes) == 0, "other bits after an allocation failed");
    } else {
        j->expected = out;
    }
    return status;
}

static void test_memory(napier_context *context) {
    static const struct {
        data_kind kind;
        int64_t n, cols, queries;
        napier_metric metric;
        napier_neighbors_method method;
    } cases[] = {{DATA_LOW_RANK, 100, 5, 0, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT},
                 {DATA_LOW_RANK, 100, 5, 0, NAPIER_METRIC_MANHATTAN, NAPIER_NEIGHBORS_EXACT},
                 {DATA_LOW_RANK, 100, 5, 70, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT},
                 {DATA_LOW_RANK, 4100, 64, 0, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT},
                 {DATA_CROWDS, 200, 5, 0, NAPIER_METRIC_CANBERRA, NAPIER_NEIGHBORS_EXACT},
                 {DATA_LOW_RANK, 600, 5, 0, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_NN_DESCENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        search_job job = job_of(cases[i].kind, cases[i].n, cases[i].queries, cases[i].cols,
                                options_for(5, cases[i].metric, cases[i].method), 53);
        must(search_again(context, &job));
        check_allocations(data_name(cases[i].kind), search_again, &job);
    }
}

/* ---- Arguments and progress -------------------------------------------------------------------------------------- */

static void test_arguments(napier_context *context) {
    enum { N = 10, COLS = 3 };
    float x[N * COLS], distances[N * N];
    int32_t indices[N * N];
    fill_random(x, N * COLS, 61);
    const napier_umap_samples samples = samples_of(x, N, COLS);
    const napier_neighbors_options good = options_for(5, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_AUTO);
    const struct {
        int64_t n_neighbors;
        int metric, method;
        size_t struct_size;
        int32_t *indices;
        void *distances;
        const char *word, *other;
    } cases[] = {{11, 0, 0, sizeof good, indices, distances, "n_neighbors 11", "10"},
                 {1, 0, 0, sizeof good, indices, distances, "n_neighbors", "1"},
                 {INT64_MAX, 0, 0, sizeof good, indices, distances, "n_neighbors", ""},
                 {5, 99, 0, sizeof good, indices, distances, "metric", "99"},
                 {5, 0, 9, sizeof good, indices, distances, "method", "9"},
                 {5, 0, 0, 3, indices, distances, "struct_size", "3"},
                 {5, 0, 0, sizeof good, NULL, distances, "indices", "NULL"},
                 {5, 0, 0, sizeof good, indices, NULL, "distances", "NULL"},
                 {5, 0, 0, sizeof good, indices, indices + 4, "distances", "overlaps"},
                 {5, 0, 0, sizeof good, indices, (char *)distances + 1, "distances", "aligned"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        napier_neighbors_options o =
            options_for(cases[i].n_neighbors, (napier_metric)cases[i].metric, (napier_neighbors_method)cases[i].method);
        o.struct_size = cases[i].struct_size;
        invalid(context, napier_nearest_neighbors(context, samples, &o, cases[i].indices, cases[i].distances),
                cases[i].word, cases[i].other);
    }
    expect(napier_nearest_neighbors(NULL, samples, &good, indices, distances) == NAPIER_INVALID_ARGUMENT, "no context");
    invalid(context, napier_nearest_neighbors(context, samples_of(x, 0, COLS), &good, indices, distances), "samples");
    invalid(context, napier_nearest_neighbors_of(context, samples, samples_of(x, 4, 2), &good, indices, distances),
            "queries");
    must(napier_nearest_neighbors_of(context, samples, samples_of(x, 0, COLS), &good, NULL, NULL));
    x[7] = NAN;
    invalid(context, napier_nearest_neighbors(context, samples, &good, indices, distances), "samples", "2", "nan");
}

/* ---- Values beyond f32, and at its ends --------------------------------------------------------------------------- */

enum { END_ROWS = 90, END_COLS = 4, END_K = 6 };

static napier_umap_samples doubles_of(const double *x) {
    return (napier_umap_samples){napier_const_rows(x, END_ROWS, END_COLS, NAPIER_F64), NULL};
}

/* Normal numbers times `factor`, as f64. */
static double *doubles(double factor, uint64_t seed) {
    float *const x = scratch(END_ROWS * END_COLS, sizeof *x);
    double *const y = scratch(END_ROWS * END_COLS, sizeof *y);
    fill_random(x, END_ROWS * END_COLS, seed);
    for (int64_t i = 0; i < END_ROWS * END_COLS; i++) {
        y[i] = fabs((double)x[i]) * factor;
    }
    return y;
}

static void check_refused(napier_context *context, const double *x, napier_metric metric, const char *word) {
    const napier_neighbors_options o = options_for(END_K, metric, NAPIER_NEIGHBORS_AUTO);
    result got = result_make(END_ROWS, END_K);
    invalid(context, napier_nearest_neighbors(context, doubles_of(x), &o, got.indices, got.distances), "samples", word,
            "float32");
}

/* f64 values whose digits f32 does not hold, alone and beside others, are refused where the metric needs them. */
static void test_lost_digits(napier_context *context) {
    static const struct {
        napier_metric metric;
        bool by_row, by_column, by_value; /* is one row, column, or value enough? */
    } cases[] = {{NAPIER_METRIC_EUCLIDEAN, false, false, false},  {NAPIER_METRIC_MANHATTAN, false, false, false},
                 {NAPIER_METRIC_CHEBYSHEV, false, false, false},  {NAPIER_METRIC_MINKOWSKI, false, false, false},
                 {NAPIER_METRIC_WMINKOWSKI, false, false, false}, {NAPIER_METRIC_SEUCLIDEAN, false, true, false},
                 {NAPIER_METRIC_MAHALANOBIS, false, true, false}, {NAPIER_METRIC_COSINE, true, false, false},
                 {NAPIER_METRIC_CORRELATION, true, false, false}, {NAPIER_METRIC_HELLINGER, true, false, false},
                 {NAPIER_METRIC_BRAYCURTIS, true, false, false},  {NAPIER_METRIC_CANBERRA, true, true, true},
                 {NAPIER_METRIC_JACCARD, true, true, true},       {NAPIER_METRIC_HAMMING, true, true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const napier_metric metric = cases[i].metric;
        const napier_neighbors_options o = options_for(END_K, metric, NAPIER_NEIGHBORS_AUTO);
        check_refused(context, doubles(1e-60, 81), metric, "");
        check_refused(context, doubles(1e60, 81), metric, "row 0, column 0");
        for (int part = 0; part < 3; part++) { /* a row, a column, a value */
            double *const x = doubles(1.0, 82);
            for (int64_t e = 0; e < (part == 0 ? END_COLS : part == 1 ? END_ROWS : 1); e++) {
                x[part == 0 ? 3 * END_COLS + e : part == 1 ? e * END_COLS + 2 : 3 * END_COLS] *= 1e-60;
            }
            if (part == 0 ? cases[i].by_row : part == 1 ? cases[i].by_column : cases[i].by_value) {
                check_refused(context, x, metric, part == 1 && !cases[i].by_value ? "column 2" : "row");
            } else {
                result got = result_make(END_ROWS, END_K);
                must(napier_nearest_neighbors(context, doubles_of(x), &o, got.indices, got.distances));
            }
        }
    }
    double *const ids = doubles(100.0, 85); /* numbers of categories, beyond what f32 tells apart */
    for (int64_t i = 0; i < END_ROWS * END_COLS; i++) {
        ids[i] = floor(ids[i]) + (i < 7 ? 0.0 : 0x1p25);
    }
    check_refused(context, ids, NAPIER_METRIC_HAMMING, "2^24");
    float large[END_ROWS * END_COLS];
    for (int64_t i = 0; i < END_ROWS * END_COLS; i++) {
        large[i] = 2e38f + 1e37f * (float)(i % 11);
    }
    const napier_neighbors_options canberra = options_for(END_K, NAPIER_METRIC_CANBERRA, NAPIER_NEIGHBORS_AUTO);
    result none = result_make(END_ROWS, END_K);
    invalid(context,
            napier_nearest_neighbors(context, samples_of(large, END_ROWS, END_COLS), &canberra, none.indices,
                                     none.distances),
            "samples", "overflows");
    double *const x = doubles(0.0, 83); /* all equal: nothing is lost */
    const napier_neighbors_options o = options_for(END_K, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_AUTO);
    result got = result_make(END_ROWS, END_K);
    for (int64_t i = 0; i < END_ROWS * END_COLS; i++) {
        x[i] = 1e-60;
    }
    must(napier_nearest_neighbors(context, doubles_of(x), &o, got.indices, got.distances));
}

/* Times a power of two, rows have the same neighbours, and distances times it; also where squares overflow, or are not
 * normal numbers. */
static void test_ends(napier_context *context) {
    static const napier_metric metrics[] = {NAPIER_METRIC_EUCLIDEAN, NAPIER_METRIC_MANHATTAN, NAPIER_METRIC_MINKOWSKI,
                                            NAPIER_METRIC_COSINE, NAPIER_METRIC_BRAYCURTIS};
    static const int exponents[] = {-70, -40, 60, 63, 90, 120};
    float *const x = make_data(DATA_NORMAL, END_ROWS, END_COLS, 84), *const y = scratch(END_ROWS * END_COLS, sizeof *y);
    for (size_t m = 0; m < sizeof metrics / sizeof *metrics; m++) {
        const napier_neighbors_options o = options_for(END_K, metrics[m], NAPIER_NEIGHBORS_AUTO);
        result expected = result_make(END_ROWS, END_K), got = result_make(END_ROWS, END_K);
        must(napier_nearest_neighbors(context, samples_of(x, END_ROWS, END_COLS), &o, expected.indices,
                                      expected.distances));
        for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
            for (int64_t i = 0; i < END_ROWS * END_COLS; i++) {
                y[i] = ldexpf(x[i], exponents[e]);
            }
            must(napier_nearest_neighbors(context, samples_of(y, END_ROWS, END_COLS), &o, got.indices, got.distances));
            for (int64_t i = 0; i < END_ROWS * END_K; i++) {
                const float distance = metrics[m] < NAPIER_METRIC_COSINE ? ldexpf(expected.distances[i], exponents[e])
                                                                         : expected.distances[i];
                if (!expect(got.indices[i] == expected.indices[i] && got.distances[i] == distance,
                            "%s, 2^%d: neighbour %lld is %ld at %a, expected %ld at %a", napier_metric_name(metrics[m]),
                            exponents[e], (long long)i, (long)got.indices[i], (double)got.distances[i],
                            (long)expected.indices[i], (double)distance)) {
                    break;
                }
            }
        }
    }
    float far[] = {-3e38f, 3e38f, 2.9e38f};
    const napier_neighbors_options o = options_for(3, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_AUTO);
    result got = result_make(3, 3);
    invalid(context, napier_nearest_neighbors(context, samples_of(far, 3, 1), &o, got.indices, got.distances),
            "samples", "divide");
}

typedef struct told {
    int calls, stop_at;
    double last;
} told;

static int tell(const char *stage, double done, void *user) {
    told *const t = user;
    expect(strcmp(stage, "neighbours") == 0, "stage %s", stage);
    expect(done >= t->last && done <= 1.0, "%g after %g", done, t->last);
    t->last = done;
    return ++t->calls == t->stop_at;
}

static void test_progress(napier_context *context) {
    enum { N = 600, COLS = 6, K = 5 };
    static const napier_metric metrics[] = {NAPIER_METRIC_EUCLIDEAN, NAPIER_METRIC_MANHATTAN, NAPIER_METRIC_EUCLIDEAN};
    float *const x = make_data(DATA_NORMAL, N, COLS, 71);
    for (int way = 0; way < 3; way++) {
        napier_neighbors_options o =
            options_for(K, metrics[way], way == 2 ? NAPIER_NEIGHBORS_NN_DESCENT : NAPIER_NEIGHBORS_EXACT);
        told t = {0, 0, 0};
        o.progress = tell;
        o.user = &t;
        result got = result_make(N, K);
        must(napier_nearest_neighbors(context, samples_of(x, N, COLS), &o, got.indices, got.distances));
        expect(t.calls > 1 && t.last == 1.0, "way %d: told %d times, the last time %g", way, t.calls, t.last);
        got = result_make(N, K);
        t = (told){0, 2, 0};
        refused(context, napier_nearest_neighbors(context, samples_of(x, N, COLS), &o, got.indices, got.distances),
                NAPIER_CANCELLED, "cancelled", NULL);
        expect(t.calls == 2 && (uint32_t)got.indices[0] == 0xa5a5a5a5u, "way %d: went on", way);
    }
}

int main(void) {
    return RUN_TESTS("umap_neighbors", TEST_EACH_ISA(1, test_product), TEST_EACH_ISA(1, test_pair_sums),
                     TEST_EACH_ISA(1, test_near_pairs), TEST_1(test_distances), TEST_2(test_exact),
                     TEST_2(test_exact_subspace), TEST_2(test_metrics), TEST(test_bits), TEST(test_cost),
                     TEST_2(test_queries), TEST_2(test_precomputed), TEST_2(test_descent), TEST_2(test_memory),
                     TEST_1(test_arguments), TEST_1(test_lost_digits), TEST_1(test_ends), TEST_2(test_progress));
}
