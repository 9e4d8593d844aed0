/* umap/metric/points.c - transforms rows for distances (metric.h); distance.c computes the distances.
 *
 *   euclidean, minkowski p = 2      unchanged rows
 *   cosine, correlation             rows of length 1 (correlation: after subtracting their mean)
 *   hellinger                       sqrt(x / sum x), also of length 1
 *   seuclidean                      x / sqrt(variance)
 *   wminkowski                      x * w^(1/p)
 *   mahalanobis                     L' x, where L L' is the inverse covariance (Cholesky)
 *   boolean metrics                 0 and 1
 *   others                          umap/metric/special.h
 * A row without a direction (all zero; correlation: all equal) has length 1 in an additional column. So it is at
 * distance 0 from other such rows and 1 from every other row, as umap-learn defines it. Parameters and transformed
 * values are computed in double and rounded once. */
#include "umap/metric/metric.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "umap/metric/metric_parts.h"
#include "umap/metric/samples.h"

enum { ROW_CHUNK = 64 };

/* The inverse covariance of so many columns is 4 GB. */
enum { MOST_MAHALANOBIS_COLUMNS = 1 << 15 };

napier_points_kind napier_points_kind_of(napier_metric metric, double p) {
    switch (metric) {
    case NAPIER_METRIC_EUCLIDEAN:
    case NAPIER_METRIC_SEUCLIDEAN:
    case NAPIER_METRIC_MAHALANOBIS: return NAPIER_POINTS_EUCLIDEAN;
    case NAPIER_METRIC_MINKOWSKI:
    case NAPIER_METRIC_WMINKOWSKI: return p == 2.0 ? NAPIER_POINTS_EUCLIDEAN : NAPIER_POINTS_GENERAL;
    case NAPIER_METRIC_COSINE:
    case NAPIER_METRIC_CORRELATION: return NAPIER_POINTS_HALF;
    case NAPIER_METRIC_HELLINGER:
    case NAPIER_METRIC_SOFTMAX_HELLINGER: return NAPIER_POINTS_HALF_ROOT;
    default: return NAPIER_POINTS_GENERAL;
    }
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Transforms a dense row, except for what depends on other rows. */
static void change_row(napier_metric metric, float *row, int64_t cols) {
    if (metric == NAPIER_METRIC_PRECOMPUTED) {
        for (int64_t c = 0; c < cols; c++) {
            row[c] = row[c] > 0.0f ? row[c] : 0.0f;
        }
    } else if (napier_metric_is_boolean(metric)) {
        for (int64_t c = 0; c < cols; c++) {
            row[c] = row[c] != 0.0f ? 1.0f : 0.0f;
        }
    } else if (napier_has_direction(metric)) {
        napier_direct_row(metric, row, 1, cols);
    } else {
        napier_special_row(metric, row, cols);
    }
}

typedef struct fill_task {
    napier_points *points;
    napier_umap_samples samples;
    bool is_self; /* are precomputed distances those of the points to one another? */
} fill_task;

/* Reads row i. Returns the first column whose value is not finite, or -1. The distance of a point from itself does not
 * count. */
static int64_t read_row(const fill_task *t, int64_t i, float *row) {
    const int64_t bad = napier_read_row(t->points->kernels, t->samples, i, row);
    if (t->is_self && t->points->metric == NAPIER_METRIC_PRECOMPUTED) {
        row[i] = 0.0f;
        return bad == i ? napier_first_not_finite(row, t->points->cols) : bad;
    }
    return bad;
}

/* Transforms row i. Has it a bad value? */
static bool fill_row(void *argument, int64_t i) {
    const fill_task *t = argument;
    const napier_points *p = t->points;
    float *row = p->rows + i * p->width;
    const bool bad = read_row(t, i, row) >= 0 || napier_metric_fault(p->metric, row, p->cols) >= 0 ||
                     !napier_special_is_point(p->metric, row, p->cols);
    memset(row + p->cols, 0, (size_t)(p->width - p->cols) * sizeof *row);
    change_row(p->metric, row, p->cols);
    return bad;
}

/* Fails for a row that was read before and has a bad value. */
static napier_status refuse_row(napier_context *context, const char *name, const fill_task *t, int64_t row) {
    const napier_points *p = t->points;
    const int64_t bad = read_row(t, row, p->rows);
    if (bad >= 0) {
        return napier_read_refuse(context, name, t->samples, row, bad);
    }
    const int64_t c = napier_metric_fault(p->metric, p->rows, p->cols);
    NAPIER_REFUSE_IF(context, c < 0, "%s: row %lld is not shorter than 1, as poincare takes points of the unit ball",
                     name, (long long)row);
    return napier_metric_refuse(context, name, p->metric, row, c, p->rows[c]);
}

static napier_status fill_dense(napier_memory *memory, const char *name, napier_points *points,
                                napier_umap_samples samples, bool is_self) {
    const int64_t columns =
        napier_special_width(points->metric, points->cols) + (napier_has_direction(points->metric) ? 1 : 0);
    points->width = napier_round_up(columns, 16);
    points->rows = napier_take(memory, points->n, (size_t)points->width * sizeof *points->rows);
    NAPIER_TRY(napier_taken(memory, "%s: no memory for %lld rows of %lld", name, (long long)points->n,
                            (long long)points->width));
    fill_task task = {points, samples, is_self};
    const int64_t bad = napier_parallel_find(memory->context, points->n, ROW_CHUNK, fill_row, &task);
    return bad < 0 ? NAPIER_OK : refuse_row(memory->context, name, &task, bad);
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static napier_status check_metric(napier_context *context, const char *name, const napier_neighbors_options *options,
                                  const napier_points *like, int64_t n, int64_t cols) {
    NAPIER_REFUSE_IF(context, !napier_metric_name(options->metric), "metric: %d is no metric", (int)options->metric);
    NAPIER_REFUSE_IF(context, napier_metric_has_power(options->metric) && !(options->p >= 1.0),
                     "p: %g is not a number of at least 1", options->p);
    NAPIER_REFUSE_IF(context, options->metric == NAPIER_METRIC_HAVERSINE && cols != 2,
                     "%s: haversine takes 2 columns (latitude, longitude), not %lld", name, (long long)cols);
    NAPIER_REFUSE_IF(context, options->metric == NAPIER_METRIC_MAHALANOBIS && cols > MOST_MAHALANOBIS_COLUMNS,
                     "%s: %lld columns are more than mahalanobis' %d", name, (long long)cols, MOST_MAHALANOBIS_COLUMNS);
    NAPIER_REFUSE_IF(context, options->metric == NAPIER_METRIC_PRECOMPUTED && !like && n != cols,
                     "%s: distances are %lld x %lld, not square", name, (long long)n, (long long)cols);
    NAPIER_REFUSE_IF(context, like && (like->metric != options->metric || like->cols != cols),
                     "%s: %lld columns are not %lld", name, (long long)cols, (long long)like->cols);
    return NAPIER_OK;
}

static napier_status fill(napier_memory *memory, const char *name, napier_points *points, napier_umap_samples samples,
                          const napier_points *like) {
    const bool stored = points->metric == NAPIER_METRIC_PRECOMPUTED; /* nothing is measured with `like` */
    const bool dense = like && !stored ? like->rows != NULL
                                       : !samples.sparse || napier_points_become_dense(samples.sparse, points->metric);
    return dense            ? fill_dense(memory, name, points, samples, like == NULL)
           : samples.sparse ? napier_points_fill_sparse(memory, name, points, samples)
                            : napier_points_fill_sparse_of_dense(memory, name, points, samples);
}

/* Applies the metric's parameters: given, those of `like`, or from the data. */
static napier_status apply_parameters(napier_memory *memory, const char *name, napier_points *points,
                                      const napier_neighbors_options *options, const napier_points *like) {
    const float *given = options->metric_values;
    switch (points->metric) {
    case NAPIER_METRIC_SEUCLIDEAN: return napier_points_scale(memory, points, like, given);
    case NAPIER_METRIC_MAHALANOBIS: return napier_points_turn(memory, points, like, given);
    case NAPIER_METRIC_WMINKOWSKI: return napier_points_weigh(memory, points, like, given);
    case NAPIER_METRIC_STRING: return napier_points_string(memory, points, like, given);
    case NAPIER_METRIC_LL_DIRICHLET:
        points->count_logs = napier_take(memory, 1, sizeof *points->count_logs);
        NAPIER_TRY(napier_taken(memory, "%s: no memory for logarithms", name));
        napier_count_logs_fill(points->count_logs);
        return NAPIER_OK;
    default: return NAPIER_OK;
    }
}

napier_status napier_points_create(napier_memory *memory, const char *name, napier_umap_samples samples,
                                   const napier_neighbors_options *options, const napier_points *like,
                                   napier_points **out) {
    napier_context *const context = memory->context;
    const int64_t n = napier_samples_rows(samples), cols = napier_samples_cols(samples);
    *out = NULL;
    NAPIER_REFUSE_IF(context, cols < 1, "%s: no columns", name);
    NAPIER_TRY(check_metric(context, name, options, like, n, cols));
    napier_points *points = napier_take(memory, 1, sizeof *points);
    NAPIER_TRY(napier_taken(memory, "%s: no memory", name));
    *points = (napier_points){.n = n,
                              .cols = cols,
                              .metric = options->metric,
                              .p = like ? like->p : options->p,
                              .kernels = napier_umap_kernels_of(context->isa)};
    NAPIER_TRY(fill(memory, name, points, samples, like));
    NAPIER_TRY(apply_parameters(memory, name, points, options, like));
    points->kind = points->rows ? napier_points_kind_of(points->metric, points->p) : NAPIER_POINTS_GENERAL;
    *out = points;
    return NAPIER_OK;
}
