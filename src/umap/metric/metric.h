/* umap/metric/metric.h - rows of data made ready for distances, and the distance of two rows, for every metric.
 *
 * Most metrics are euclidean distances of changed rows (cosine: of normalised ones). Such rows are changed once, here, and
 * the neighbour search deals with one kind of distance; the final value follows from the squared one. */
#ifndef NAPIER_UMAP_METRIC_METRIC_H
#define NAPIER_UMAP_METRIC_METRIC_H

#include <napier/umap.h>
#include <stdbool.h>

#include "core/base/context.h"
#include "umap/isa/umap_kernels.h"
#include "umap/metric/squared.h"

/* How a squared euclidean distance of the rows becomes the metric's. */
typedef enum napier_points_kind {
    NAPIER_POINTS_GENERAL, /* not at all: only napier_points_distance knows */
    NAPIER_POINTS_EUCLIDEAN = NAPIER_SQUARED_ROOT,
    NAPIER_POINTS_HALF = NAPIER_SQUARED_HALF,
    NAPIER_POINTS_HALF_ROOT = NAPIER_SQUARED_HALF_ROOT
} napier_points_kind;

typedef struct napier_points {
    int64_t n, cols; /* rows and columns as the caller gave them */
    int64_t width;   /* floats from row to row of `rows`: a multiple of 16, the rest is 0 */
    float *rows;     /* dense rows, changed as the metric wants; on a cache line. NULL where sparse */
    napier_points_kind kind;
    napier_metric metric;
    double p;
    float *metric_values;     /* a copy, or what was computed from the data; NULL if the metric has none */
    napier_csr_matrix sparse; /* a copy, where the data is sparse and stays so; row_starts NULL otherwise */
    double *shifts; /* [n] of sparse correlation: what every column's value is less by; inf: all equal. Else NULL */
    const napier_umap_kernels *kernels;
} napier_points;

/* Checks the samples (shape, NaN, inf, CSR structure, what the metric demands) and makes them ready. `like`: points whose
 * metric parameters are taken (queries against a fitted set, or NULL). name: of the argument, for error texts. */
napier_status napier_points_create(napier_context *context, const char *name, napier_umap_samples samples,
                                   const napier_neighbors_options *options, const napier_points *like,
                                   napier_points **out);
void napier_points_destroy(napier_context *context, napier_points *points);

/* The distance of row i of a from row j of b, which are alike. The same bits everywhere; symmetric. */
float napier_points_distance(const napier_points *a, int64_t i, const napier_points *b, int64_t j);

/* The distances of row i of a from rows `which` of b, count <= NAPIER_DISTANCES of them: each with the bits of
 * napier_points_distance, or 0 where that is not above it. Up to 15 places beyond count are written too. */
void napier_points_distances(const napier_points *a, int64_t i, const napier_points *b, const uint32_t *which,
                             int64_t count, float distances[NAPIER_DISTANCES]);

/* Do these go by a kernel, or one by one? */
bool napier_points_have_kernel(const napier_points *points);

/* The metric's distance from the squared euclidean one (kind not GENERAL). */
static inline float napier_points_from_squared(napier_points_kind kind, float squared) {
    return napier_from_squared((int)kind, squared);
}

/* How the distances of dense rows follow from squared ones. */
napier_points_kind napier_points_kind_of(napier_metric metric, double p);

/* The kernels' name of a metric of dense rows; NAPIER_GAPS: they have none. */
napier_gap napier_gap_of_metric(napier_metric metric, double p);

#endif
