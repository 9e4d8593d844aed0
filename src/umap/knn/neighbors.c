/* umap/knn/neighbors.c - nearest neighbours: checks, transforms the points, chooses the algorithm, writes the
 * result. */
#include <math.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "umap/knn/neighbors_search.h"
#include "umap/metric/samples.h"
#include "umap/options/params.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

napier_status napier_search_read_options(napier_context *context, const napier_neighbors_options *options,
                                         int64_t least, napier_neighbors_options *o) {
    *o = (napier_neighbors_options)NAPIER_NEIGHBORS_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(
        context, "options", NAPIER_STRUCT(napier_neighbors_options, NAPIER_NEIGHBORS_OPTIONS_INIT, metric_values),
        options, o));
    NAPIER_REFUSE_IF(context, o->n_neighbors < least, "options: n_neighbors %lld is less than %lld",
                     (long long)o->n_neighbors, (long long)least);
    NAPIER_REFUSE_IF(context, !napier_metric_name(o->metric), "options: metric %d is none", (int)o->metric);
    NAPIER_REFUSE_IF(context, (int)o->method < NAPIER_NEIGHBORS_AUTO || (int)o->method > NAPIER_NEIGHBORS_NN_DESCENT,
                     "options: method %d is none", (int)o->method);
    return NAPIER_OK;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < a_bytes : x - y < b_bytes;
}

/* Checks that the outputs are not NULL, are aligned and do not overlap. */
napier_status napier_search_check_outputs(napier_context *context, const int32_t *indices, const float *distances,
                                          int64_t rows, int64_t n_neighbors) {
    if (rows == 0) {
        return NAPIER_OK;
    }
    NAPIER_REFUSE_IF(context, !indices || !distances, "%s: NULL", indices ? "distances" : "indices");
    NAPIER_REFUSE_IF(context,
                     (uintptr_t)indices % sizeof *indices != 0 || (uintptr_t)distances % sizeof *distances != 0,
                     "%s: not aligned to 4 bytes", (uintptr_t)indices % sizeof *indices != 0 ? "indices" : "distances");
    const size_t bytes = (size_t)rows * (size_t)n_neighbors * sizeof *indices;
    NAPIER_REFUSE_IF(context, overlap(indices, bytes, distances, bytes), "distances: overlaps indices");
    return NAPIER_OK;
}

/* ---- The choice of the algorithm --------------------------------------------------------------------------------- */

/* Where AUTO chooses NN-descent (docs/umap.md). Where distances have bounds, the exact search excludes most pairs, and
 * is the faster one up to EXACT_POINTS whatever the data, and in few columns for any number of points. Elsewhere it
 * counts what it would do. Other metrics must measure all pairs. */
enum { EXACT_POINTS = 400000, EXACT_COLUMNS = 12, EXACT_POINTS_GENERAL = 32768, EXACT_POINTS_SLOW = 16384 };

typedef enum choice { EXACT, DESCENT, CHEAPER } choice;

static choice choose(const napier_points *points) {
    if (points->kind == NAPIER_POINTS_GENERAL) {
        return points->n > (napier_points_have_kernel(points) ? EXACT_POINTS_GENERAL : EXACT_POINTS_SLOW) ? DESCENT
                                                                                                          : EXACT;
    }
    return points->n > EXACT_POINTS && points->cols > EXACT_COLUMNS ? CHEAPER : EXACT;
}

/* With so few points, or so large a share of them as neighbours, every method searches exactly. */
enum { LEAST_FOR_DESCENT = 512, LEAST_POINTS_PER_NEIGHBOR = 4 };

static bool can_descend(const napier_search *s) {
    const int64_t n = s->samples->n;
    return napier_search_is_self(s) && n >= LEAST_FOR_DESCENT && s->wanted <= NAPIER_MOST_FOR_DESCENT &&
           s->wanted < n / LEAST_POINTS_PER_NEIGHBOR;
}

/* The exact search or, if that would cost more, a descent. */
static napier_status search_cheaper(const napier_search *s) {
    const double most = napier_search_descent_steps(s);
    double cost = 0.0;
    NAPIER_TRY(napier_search_exact(s, most, &cost));
    return cost > most ? napier_search_descent(s, cost) : NAPIER_OK;
}

static napier_status search_rows(const napier_search *s) {
    const napier_neighbors_method method = s->options->method;
    const choice chosen = method == NAPIER_NEIGHBORS_NN_DESCENT ? DESCENT
                          : method == NAPIER_NEIGHBORS_EXACT    ? EXACT
                                                                : choose(s->samples);
    if (chosen == EXACT || !can_descend(s)) {
        return napier_search_full(s);
    }
    return chosen == CHEAPER ? search_cheaper(s) : napier_search_descent(s, 0.0);
}

static napier_status run_search(const napier_search *s) {
    if (s->samples->metric == NAPIER_METRIC_PRECOMPUTED) {
        return napier_search_stored(s);
    }
    const bool may_be_equal = s->samples->rows && s->queries->n >= NAPIER_FEW_QUERIES;
    return may_be_equal ? napier_search_distinct(s, search_rows) : search_rows(s);
}

/* ---- The result -------------------------------------------------------------------------------------------------- */

typedef struct output {
    const napier_search *search;
    int64_t n_neighbors;
    int32_t *indices;
    float *distances;
} output;

static void output_task(void *argument, int64_t i) {
    const output *t = argument;
    const int64_t wanted = t->search->wanted,
                  own = t->n_neighbors - wanted; /* own: 1 if a point is its own first neighbour */
    uint64_t *nearest = t->search->nearest + i * wanted;
    int32_t *indices = t->indices + i * t->n_neighbors;
    float *distances = t->distances + i * t->n_neighbors;
    napier_heap_sort(nearest, wanted);
    if (own) {
        indices[0] = (int32_t)i;
        distances[0] = 0.0f;
    }
    for (int64_t k = 0; k < wanted; k++) {
        indices[own + k] = nearest[k] == NAPIER_NEAR_NONE ? -1 : (int32_t)napier_near_index(nearest[k]);
        distances[own + k] = napier_near_distance(nearest[k]);
    }
}

/* Checks that indices and distances share no byte with the samples. */
static napier_status check_apart(napier_context *context, const char *name, napier_umap_samples samples, int64_t rows,
                                 int64_t n_neighbors, int32_t *indices, float *distances) {
    NAPIER_TRY(napier_samples_check_apart(context, "indices", napier_rows(indices, rows, n_neighbors, NAPIER_F32), name,
                                          samples));
    return napier_samples_check_apart(context, "distances", napier_rows_f32(distances, rows, n_neighbors), name,
                                      samples);
}

/* The points to search. Of precomputed distances only those of the queries are read, so these are not copied. */
static napier_status create_searched(napier_memory *memory, napier_umap_samples samples, bool has_queries,
                                     const napier_neighbors_options *o, napier_points **out) {
    if (o->metric != NAPIER_METRIC_PRECOMPUTED || !has_queries) {
        return napier_points_create(memory, "samples", samples, o, NULL, out);
    }
    const int64_t n = napier_samples_rows(samples), cols = napier_samples_cols(samples);
    NAPIER_REFUSE_IF(memory->context, n != cols, "samples: distances are %lld x %lld, not square", (long long)n,
                     (long long)cols);
    napier_points *points = napier_take(memory, 1, sizeof *points);
    NAPIER_TRY(napier_taken(memory, "samples: no memory"));
    *points = (napier_points){
        .n = n, .cols = cols, .metric = o->metric, .p = o->p, .kernels = napier_umap_kernels_of(memory->context->isa)};
    *out = points;
    return NAPIER_OK;
}

napier_status napier_find_neighbors(napier_context *context, napier_umap_samples samples,
                                    const napier_umap_samples *queries, const napier_neighbors_options *options,
                                    int32_t *indices, float *distances) {
    napier_neighbors_options o;
    napier_points *points, *others;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_search_read_options(context, options, queries ? 1 : 2, &o));
    NAPIER_TRY(create_searched(&memory, samples, queries != NULL, &o, &points));
    others = points;
    if (queries) {
        NAPIER_TRY(napier_points_create(&memory, "queries", *queries, &o, points, &others));
    }
    if (others->n == 0) {
        return NAPIER_OK;
    }
    napier_search s = {context, &o, points, others, o.n_neighbors - (others == points), NULL, 0.0};
    s.nearest = napier_take(&memory, others->n, (size_t)s.wanted * sizeof *s.nearest);
    NAPIER_TRY(napier_search_memory(&s, memory.missing, "neighbours"));
    NAPIER_TRY(run_search(&s));
    output t = {&s, o.n_neighbors, indices, distances};
    napier_parallel_each(context, others->n, 256, output_task, &t);
    return NAPIER_OK;
}

/* The rows as they are measured: less their offsets, and small or large ones multiplied. */
static napier_status prepare(napier_memory *memory, napier_umap_samples *samples, napier_umap_samples *queries,
                             const napier_neighbors_options *o, int *exponent) {
    const napier_metric metric = o->metric;
    double *offsets;
    *exponent = 0;
    if (napier_samples_cols(*samples) < 1 ||
        (queries && napier_samples_cols(*queries) != napier_samples_cols(*samples))) {
        return NAPIER_OK; /* the search refuses these */
    }
    NAPIER_TRY(napier_samples_offsets(memory, "samples", *samples, metric, &offsets));
    NAPIER_TRY(napier_samples_less(memory, *samples, offsets, napier_metric_moves_rows(metric), samples));
    if (queries) {
        NAPIER_TRY(napier_queries_moved(memory, "queries", *queries, offsets, metric, queries));
    }
    float *row = napier_take(memory, napier_samples_cols(*samples), sizeof *row);
    NAPIER_TRY(napier_taken(memory, "samples: no memory for a row"));
    const bool grows = napier_metric_grows(metric, o->metric_values != NULL); /* then inf tells what overflows */
    const bool scales =
        napier_samples_need_scale(*samples, metric, napier_umap_kernels_of(memory->context->isa), !grows, row);
    return scales ? napier_samples_rescale(memory, samples, queries, metric, exponent) : NAPIER_OK;
}

static bool overflowed(const int32_t *indices, const float *distances, int64_t count) {
    int64_t i = 0;
    while (i < count && !(indices[i] >= 0 && isinf(distances[i]))) {
        i++;
    }
    return i < count;
}

/* A search of rows as they are given: distances are those of the rows, whatever is measured. */
static napier_status find_given(napier_context *context, napier_umap_samples samples, napier_umap_samples *queries,
                                const napier_neighbors_options *options, int32_t *indices, float *distances) {
    napier_neighbors_options o;
    int exponent;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_search_read_options(context, options, queries ? 1 : 2, &o));
    const int64_t rows = napier_samples_rows(queries ? *queries : samples);
    NAPIER_REFUSE_IF(context, o.n_neighbors > napier_samples_rows(samples),
                     "options: n_neighbors %lld is more than the %lld samples", (long long)o.n_neighbors,
                     (long long)napier_samples_rows(samples));
    NAPIER_TRY(napier_search_check_outputs(context, indices, distances, rows, o.n_neighbors));
    NAPIER_TRY(check_apart(context, "samples", samples, rows, o.n_neighbors, indices, distances));
    if (queries) {
        NAPIER_TRY(check_apart(context, "queries", *queries, rows, o.n_neighbors, indices, distances));
    }
    NAPIER_TRY(prepare(&memory, &samples, queries, &o, &exponent));
    NAPIER_TRY(napier_find_neighbors(context, samples, queries, options, indices, distances));
    if (exponent == 0 && overflowed(indices, distances, rows * o.n_neighbors)) { /* large values are rare */
        NAPIER_TRY(napier_samples_rescale(&memory, &samples, queries, o.metric, &exponent));
        NAPIER_TRY(exponent == 0 ? NAPIER_OK
                                 : napier_find_neighbors(context, samples, queries, options, indices, distances));
    }
    const bool grew = exponent != 0 && napier_metric_grows(o.metric, o.metric_values != NULL);
    for (int64_t i = 0; i < rows * o.n_neighbors && grew; i++) {
        distances[i] = ldexpf(distances[i], -exponent);
    }
    return napier_umap_check_found(context, queries ? "queries" : "samples", indices, distances, rows, o.n_neighbors);
}

napier_status napier_nearest_neighbors(napier_context *context, napier_umap_samples samples,
                                       const napier_neighbors_options *options, int32_t *indices, float *distances) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_samples_check(context, "samples", samples));
    return find_given(context, samples, NULL, options, indices, distances);
}

napier_status napier_nearest_neighbors_of(napier_context *context, napier_umap_samples samples,
                                          napier_umap_samples queries, const napier_neighbors_options *options,
                                          int32_t *indices, float *distances) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_samples_check(context, "samples", samples));
    NAPIER_TRY(napier_samples_check(context, "queries", queries));
    return find_given(context, samples, &queries, options, indices, distances);
}
