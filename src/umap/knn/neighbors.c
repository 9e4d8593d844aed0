/* umap/knn/neighbors.c - nearest neighbours: checks, transforms the points, chooses the algorithm, writes the
 * result. */
#include <math.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "umap/knn/neighbors_search.h"
#include "umap/metric/samples.h"

/* ---- The choice of the algorithm --------------------------------------------------------------------------------- */

/* Where AUTO chooses NN-descent (docs/umap.md). It measures some 4000 pairs a point, and each costs more than a pair of
 * rows that are adjacent in memory. The exact search bounds a pair for less than a hundredth of that cost, and in few
 * columns its boxes exclude nearly all pairs. So it is as fast up to some 400,000 points. Other metrics must measure
 * all pairs. */
enum { EXACT_POINTS = 400000, EXACT_COLUMNS = 12, EXACT_POINTS_GENERAL = 32768, EXACT_POINTS_SLOW = 16384 };

static bool is_large(const napier_points *points) {
    if (points->kind == NAPIER_POINTS_GENERAL) {
        return points->n > (napier_points_have_kernel(points) ? EXACT_POINTS_GENERAL : EXACT_POINTS_SLOW);
    }
    return points->n > EXACT_POINTS && points->cols > EXACT_COLUMNS;
}

/* With so few points, or so large a share of them as neighbours, every method searches exactly. */
enum { LEAST_FOR_DESCENT = 512, LEAST_POINTS_PER_NEIGHBOR = 4 };

static napier_status search_rows(const napier_search *s) {
    const napier_points *points = s->samples;
    const bool descent = s->options->method == NAPIER_NEIGHBORS_NN_DESCENT ||
                         (s->options->method == NAPIER_NEIGHBORS_AUTO && is_large(points));
    if (descent && napier_search_is_self(s) && points->n >= LEAST_FOR_DESCENT && s->wanted <= NAPIER_MOST_FOR_DESCENT &&
        s->wanted < points->n / LEAST_POINTS_PER_NEIGHBOR) {
        return napier_search_descent(s);
    }
    return napier_search_full(s);
}

static napier_status search(const napier_search *s) {
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

static void output_task(void *argument, int worker, int64_t begin, int64_t end) {
    const output *t = argument;
    const int64_t wanted = t->search->wanted,
                  own = t->n_neighbors - wanted; /* own: 1 if a point is its own first neighbour */
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
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
}

/* Checks that indices and distances share no byte with the samples. */
static napier_status check_apart(napier_context *context, const char *name, napier_umap_samples samples, int64_t rows,
                                 const napier_neighbors_options *o, int32_t *indices, float *distances) {
    const napier_matrix first = napier_rows(indices, rows, o->n_neighbors, NAPIER_F32);
    const napier_status status = napier_samples_check_apart(context, "indices", first, name, samples);
    return status ? status
                  : napier_samples_check_apart(context, "distances", napier_rows_f32(distances, rows, o->n_neighbors),
                                               name, samples);
}

/* Searches and writes the result. The points have been checked. */
static napier_status run(napier_context *context, const napier_neighbors_options *options, const napier_points *samples,
                         const napier_points *queries, int32_t *indices, float *distances) {
    NAPIER_REFUSE_IF(context, options->n_neighbors > samples->n,
                     "options: n_neighbors %lld is more than the %lld samples", (long long)options->n_neighbors,
                     (long long)samples->n);
    napier_status status = napier_search_check_outputs(context, indices, distances, queries->n, options->n_neighbors);
    if (status || queries->n == 0) {
        return status;
    }
    napier_search s = {context, options, samples, queries, options->n_neighbors - (queries == samples), NULL, 0.0};
    s.nearest = napier_alloc(&context->allocator, (size_t)queries->n, (size_t)s.wanted * sizeof *s.nearest);
    if (!s.nearest) {
        return napier_search_no_memory(&s, "neighbours");
    }
    status = search(&s);
    if (!status) {
        output t = {&s, options->n_neighbors, indices, distances};
        napier_parallel(context, queries->n, 256, output_task, &t);
    }
    napier_free(&context->allocator, s.nearest);
    return status;
}

napier_status napier_nearest_neighbors(napier_context *context, napier_umap_samples samples,
                                       const napier_neighbors_options *options, int32_t *indices, float *distances) {
    NAPIER_DEFAULT_FENV;
    napier_neighbors_options o;
    napier_points *points = NULL;
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_search_read_options(context, options, 2, &o);
    if (!status)
        status = napier_points_create(context, "samples", samples, &o, NULL, &points);
    if (!status) {
        status = check_apart(context, "samples", samples, points->n, &o, indices, distances);
        status = status ? status : run(context, &o, points, points, indices, distances);
        napier_points_destroy(context, points);
    }
    return status;
}

napier_status napier_nearest_neighbors_of(napier_context *context, napier_umap_samples samples,
                                          napier_umap_samples queries, const napier_neighbors_options *options,
                                          int32_t *indices, float *distances) {
    NAPIER_DEFAULT_FENV;
    napier_neighbors_options o;
    napier_points *points = NULL, *others = NULL;
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_search_read_options(context, options, 1, &o);
    if (!status)
        status = napier_points_create(context, "samples", samples, &o, NULL, &points);
    if (!status) {
        status = napier_points_create(context, "queries", queries, &o, points, &others);
        if (!status) {
            status = check_apart(context, "samples", samples, others->n, &o, indices, distances);
            if (!status)
                status = check_apart(context, "queries", queries, others->n, &o, indices, distances);
            if (!status)
                status = run(context, &o, points, others, indices, distances);
            napier_points_destroy(context, others);
        }
        napier_points_destroy(context, points);
    }
    return status;
}
