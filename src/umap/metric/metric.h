/* umap/metric/metric.h - rows transformed for distances, and the distance of two rows, for every metric.
 *
 * Most metrics are euclidean distances of transformed rows (cosine: of normalised rows). Such rows are transformed
 * once, so the neighbour search needs only squared euclidean distances. The metric's value is computed from them. */
#ifndef NAPIER_UMAP_METRIC_METRIC_H
#define NAPIER_UMAP_METRIC_METRIC_H

#include <napier/umap.h>

#include "core/base/scope.h"
#include "umap/isa/umap_kernels.h"
#include "umap/metric/formulas.h"
#include "umap/metric/special.h"

typedef struct napier_points {
    int64_t n, cols; /* of the caller's samples */
    int64_t width;   /* floats from row to row of `rows`: a multiple of 16, the rest is 0 */
    float *rows;     /* transformed dense rows, aligned to a cache line; NULL if sparse */
    napier_points_kind kind;
    napier_metric metric;
    double p;
    float *metric_values;     /* a copy, or computed from the data; NULL if the metric has none */
    napier_csr_matrix sparse; /* a copy if the data stays sparse; else row_starts is NULL */
    double *shifts;           /* [n] for sparse correlation: subtracted from every column; inf: all equal. Else NULL */
    napier_count_logs *count_logs; /* of ll_dirichlet, else NULL */
    const napier_umap_kernels *kernels;
} napier_points;

/* Checks the values of checked samples (NaN, inf, the metric's requirements) and transforms them. The points live in
 * `memory`. `like`: points whose metric parameters are used, for queries against a fitted set; or NULL. name: of the
 * argument, for error messages. */
napier_status napier_points_create(napier_memory *memory, const char *name, napier_umap_samples samples,
                                   const napier_neighbors_options *options, const napier_points *like,
                                   napier_points **out);

/* The distance of row i of a from row j of b. Both have the same metric and parameters. Same bits everywhere;
 * symmetric. */
float napier_points_distance(const napier_points *a, int64_t i, const napier_points *b, int64_t j);

/* The distances of row i of a from rows `which` of b, count <= NAPIER_DISTANCES: the bits of napier_points_distance, or
 * 0 where that is not above 0. Up to 15 elements beyond count are written. */
void napier_points_distances(const napier_points *a, int64_t i, const napier_points *b, const uint32_t *which,
                             int64_t count, float distances[NAPIER_DISTANCES]);

/* Do these points have a vector kernel for many distances at once? */
bool napier_points_have_kernel(const napier_points *points);

/* The kind of a metric of dense rows. */
napier_points_kind napier_points_kind_of(napier_metric metric, double p);

/* The gap of a metric of dense rows; NAPIER_GAPS if the kernels have none for it. */
napier_gap napier_gap_of_metric(napier_metric metric, double p);

#endif
