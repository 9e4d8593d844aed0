/* umap/metric/metric.c - transforms rows for distances (metric.h); distance.c computes the distances.
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
 * values are computed in double and rounded once.
 *
 * CSR data becomes dense rows where that costs little memory (DENSE_COLUMNS, DENSE_BYTES), because products of dense
 * rows are much faster. Otherwise the copy stays CSR, without stored zeros and with values transformed in the same way,
 * and rows are merged (kind GENERAL). */
#include "umap/metric/metric.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/math/f64.h"
#include "umap/metric/samples.h"

/* CSR data of more columns or more bytes stays CSR, */
enum { DENSE_COLUMNS = 4096 };
#define DENSE_BYTES ((int64_t)1 << 30)
/* unless the dense rows take at most so many times the CSR's bytes. */
enum { DENSE_TIMES = 8 };

enum { ROW_CHUNK = 64 };

/* The inverse covariance of so many columns is 4 GB. */
enum { MOST_MAHALANOBIS_COLUMNS = 1 << 15 };

/* A distance below 0 by at most this share of its row's largest is a rounded 0, as 1 - cosine has them. */
#define ROUNDED_ZERO 0x1p-16f

/* Larger values are not plausible angles in radians. */
#define MOST_RADIANS 1e6f

/* ---- Names and requirements of metrics --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    napier_metric metric;
} names[] = {
    {"euclidean", NAPIER_METRIC_EUCLIDEAN},
    {"manhattan", NAPIER_METRIC_MANHATTAN},
    {"chebyshev", NAPIER_METRIC_CHEBYSHEV},
    {"minkowski", NAPIER_METRIC_MINKOWSKI},
    {"cosine", NAPIER_METRIC_COSINE},
    {"correlation", NAPIER_METRIC_CORRELATION},
    {"canberra", NAPIER_METRIC_CANBERRA},
    {"braycurtis", NAPIER_METRIC_BRAYCURTIS},
    {"hellinger", NAPIER_METRIC_HELLINGER},
    {"haversine", NAPIER_METRIC_HAVERSINE},
    {"seuclidean", NAPIER_METRIC_SEUCLIDEAN},
    {"mahalanobis", NAPIER_METRIC_MAHALANOBIS},
    {"hamming", NAPIER_METRIC_HAMMING},
    {"jaccard", NAPIER_METRIC_JACCARD},
    {"dice", NAPIER_METRIC_DICE},
    {"yule", NAPIER_METRIC_YULE},
    {"russellrao", NAPIER_METRIC_RUSSELLRAO},
    {"rogerstanimoto", NAPIER_METRIC_ROGERSTANIMOTO},
    {"sokalmichener", NAPIER_METRIC_SOKALMICHENER},
    {"sokalsneath", NAPIER_METRIC_SOKALSNEATH},
    {"kulsinski", NAPIER_METRIC_KULSINSKI},
    {"matching", NAPIER_METRIC_MATCHING},
    {"precomputed", NAPIER_METRIC_PRECOMPUTED},
    {"wminkowski", NAPIER_METRIC_WMINKOWSKI},
    {"poincare", NAPIER_METRIC_POINCARE},
    {"symmetric_kl", NAPIER_METRIC_SYMMETRIC_KL},
    {"ll_dirichlet", NAPIER_METRIC_LL_DIRICHLET},
    {"softmax_hellinger", NAPIER_METRIC_SOFTMAX_HELLINGER},
    {"string", NAPIER_METRIC_STRING},
    /* aliases: */
    {"l2", NAPIER_METRIC_EUCLIDEAN},
    {"l1", NAPIER_METRIC_MANHATTAN},
    {"taxicab", NAPIER_METRIC_MANHATTAN},
    {"cityblock", NAPIER_METRIC_MANHATTAN},
    {"linfinity", NAPIER_METRIC_CHEBYSHEV},
    {"linfty", NAPIER_METRIC_CHEBYSHEV},
    {"linf", NAPIER_METRIC_CHEBYSHEV},
    {"standardised_euclidean", NAPIER_METRIC_SEUCLIDEAN},
    {"standardized_euclidean", NAPIER_METRIC_SEUCLIDEAN},
    {"weighted_minkowski", NAPIER_METRIC_WMINKOWSKI},
    {"myers", NAPIER_METRIC_STRING},
    {"kulsinksi", NAPIER_METRIC_KULSINSKI}, /* as umap-learn spells it for sparse data */
};
enum { NAMES = sizeof names / sizeof *names };

const char *napier_metric_name(napier_metric metric) {
    for (int i = 0; i < NAMES; i++) {
        if (names[i].metric == metric) {
            return names[i].name;
        }
    }
    return NULL;
}

int napier_metric_from_name(const char *name) {
    for (int i = 0; name && i < NAMES; i++) {
        if (strcmp(names[i].name, name) == 0) {
            return (int)names[i].metric;
        }
    }
    return -1;
}

static int is_boolean(napier_metric metric) {
    return metric >= NAPIER_METRIC_JACCARD && metric <= NAPIER_METRIC_MATCHING;
}

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

/* What a finite value violates: the error message, or NULL if it is valid. */
static const char *value_fault(napier_metric metric, float x) {
    switch (metric) {
    case NAPIER_METRIC_HELLINGER: return x < 0.0f ? "hellinger takes no negative values" : NULL;
    case NAPIER_METRIC_SYMMETRIC_KL: return x < 0.0f ? "symmetric_kl takes no negative values" : NULL;
    case NAPIER_METRIC_LL_DIRICHLET:
        return x < 0.0f      ? "ll_dirichlet takes no negative counts"
               : x > 0x1p53f ? "ll_dirichlet takes counts of at most 2^53"
                             : NULL;
    case NAPIER_METRIC_PRECOMPUTED: return x < 0.0f ? "a distance is not negative" : NULL;
    case NAPIER_METRIC_HAVERSINE: return fabsf(x) > MOST_RADIANS ? "haversine takes radians" : NULL;
    default: return NULL;
    }
}

static bool may_refuse_values(napier_metric metric) {
    return metric == NAPIER_METRIC_HELLINGER || metric == NAPIER_METRIC_PRECOMPUTED ||
           metric == NAPIER_METRIC_HAVERSINE || metric == NAPIER_METRIC_SYMMETRIC_KL ||
           metric == NAPIER_METRIC_LL_DIRICHLET;
}

/* The least value that is a rounded 0; 0 for all metrics but precomputed. */
static float least_zero(napier_metric metric, const float *x, int64_t n) {
    float largest = 0.0f;
    for (int64_t i = 0; i < n && metric == NAPIER_METRIC_PRECOMPUTED; i++) {
        largest = x[i] > largest ? x[i] : largest;
    }
    return -ROUNDED_ZERO * largest;
}

static int64_t first_fault(napier_metric metric, const float *x, int64_t n) {
    const float least = least_zero(metric, x, n);
    for (int64_t i = 0; i < n && may_refuse_values(metric); i++) {
        if (!(x[i] < 0.0f && x[i] >= least) && value_fault(metric, x[i])) {
            return i;
        }
    }
    return -1;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Transforms a dense row, except for what depends on other rows. */
static void change_row(napier_metric metric, float *row, int64_t cols) {
    if (metric == NAPIER_METRIC_PRECOMPUTED) {
        for (int64_t c = 0; c < cols; c++) {
            row[c] = row[c] > 0.0f ? row[c] : 0.0f;
        }
    } else if (is_boolean(metric)) {
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
    const bool bad = read_row(t, i, row) >= 0 || first_fault(p->metric, row, p->cols) >= 0 ||
                     !napier_special_is_point(p->metric, row, p->cols);
    memset(row + p->cols, 0, (size_t)(p->width - p->cols) * sizeof *row);
    change_row(p->metric, row, p->cols);
    return bad;
}

/* Fails for a value that the metric does not take. */
static napier_status refuse_value(napier_context *context, const char *name, napier_metric metric, int64_t row,
                                  int64_t col, float value) {
    return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: row %lld, column %lld is %g: %s", name, (long long)row,
                       (long long)col, (double)value, value_fault(metric, value));
}

/* Fails for a row that was read before and has a bad value. */
static napier_status refuse_row(napier_context *context, const char *name, const fill_task *t, int64_t row) {
    const napier_points *p = t->points;
    const int64_t bad = read_row(t, row, p->rows);
    if (bad >= 0) {
        return napier_read_refuse(context, name, t->samples, row, bad);
    }
    const int64_t c = first_fault(p->metric, p->rows, p->cols);
    NAPIER_REFUSE_IF(context, c < 0, "%s: row %lld is not shorter than 1, as poincare takes points of the unit ball",
                     name, (long long)row);
    return refuse_value(context, name, p->metric, row, c, p->rows[c]);
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

/* ---- CSR --------------------------------------------------------------------------------------------------------- */

static int becomes_dense(const napier_csr_matrix *m, napier_metric metric) {
    if (metric == NAPIER_METRIC_PRECOMPUTED) {
        return 0; /* missing entries are far, not 0 */
    }
    if (napier_metric_needs_dense(metric)) {
        return 1;
    }
    const int64_t bytes = m->rows * (m->cols + 16) * (int64_t)sizeof(float);
    const int64_t own = m->row_starts[m->rows] * (int64_t)(sizeof(float) + sizeof(int32_t));
    return m->cols <= DENSE_COLUMNS && (bytes <= DENSE_BYTES || bytes / DENSE_TIMES <= own);
}

/* Transforms the values of a sparse row. Correlation's shift is the same for all columns, also for those without an
 * entry, so it is stored separately. */
static void change_entries(napier_points *points, int64_t i, float *values, int64_t count) {
    if (points->metric == NAPIER_METRIC_PRECOMPUTED) {
        for (int64_t e = 0; e < count; e++) {
            values[e] = values[e] > 0.0f ? values[e] : 0.0f;
        }
    } else if (is_boolean(points->metric)) {
        for (int64_t e = 0; e < count; e++) {
            values[e] = 1.0f;
        }
    } else if (napier_has_direction(points->metric)) {
        napier_direction d = napier_direction_of(points->metric, values, 1, count, points->cols);
        if (points->shifts) {
            points->shifts[i] = d.none ? (double)INFINITY : d.shift;
            d.shift = 0.0;
        }
        for (int64_t e = 0; e < count; e++) {
            values[e] = d.none ? 0.0f : napier_directed(points->metric, d, values[e]);
        }
    }
}

/* Kept are all entries of a precomputed matrix, else those that are not 0. */
static bool is_kept(napier_metric metric, float value) { return value != 0.0f || metric == NAPIER_METRIC_PRECOMPUTED; }

/* Adds row i: the entries that are kept. columns NULL: a dense row. */
static void add_entries(napier_points *points, int64_t i, const int32_t *columns, const float *values, int64_t count,
                        const napier_csr_arrays *out) {
    const int64_t first = out->starts[i];
    int64_t at = first;
    for (int64_t e = 0; e < count; e++) {
        if (is_kept(points->metric, values[e])) {
            out->columns[at] = columns ? columns[e] : (int32_t)e;
            out->values[at++] = values[e];
        }
    }
    change_entries(points, i, out->values + first, at - first);
    out->starts[i + 1] = at;
}

static napier_status check_entries(napier_context *context, const char *name, napier_metric metric,
                                   napier_umap_samples samples) {
    const napier_csr_matrix *m = samples.sparse;
    const int64_t count = m->row_starts[m->rows], bad = napier_first_not_finite(m->values, count);
    if (bad >= 0) {
        return napier_read_refuse(context, name, samples, napier_csr_row_of(m, bad), m->columns[bad]);
    }
    const int64_t e = first_fault(metric, m->values, count);
    return e < 0 ? NAPIER_OK
                 : refuse_value(context, name, metric, napier_csr_row_of(m, e), m->columns[e], m->values[e]);
}

/* Takes CSR arrays of `count` entries for points. */
static napier_status take_entries(napier_memory *memory, const char *name, napier_points *points, int64_t count,
                                  napier_csr_arrays *out) {
    *out = napier_csr_take(memory, points->n, points->cols, count, &points->sparse);
    if (points->metric == NAPIER_METRIC_CORRELATION) {
        points->shifts = napier_take(memory, points->n, sizeof *points->shifts);
    }
    NAPIER_TRY(napier_taken(memory, "%s: no memory for %lld entries", name, (long long)count));
    out->starts[0] = 0;
    return NAPIER_OK;
}

static napier_status fill_sparse(napier_memory *memory, const char *name, napier_points *points,
                                 napier_umap_samples samples) {
    const napier_csr_matrix *m = samples.sparse;
    napier_csr_arrays out;
    NAPIER_TRY(check_entries(memory->context, name, points->metric, samples));
    NAPIER_TRY(take_entries(memory, name, points, m->row_starts[m->rows], &out));
    for (int64_t i = 0; i < points->n; i++) {
        const int64_t first = m->row_starts[i],
                      count = m->row_starts[i + 1] - first; /* without entries there are no arrays */
        add_entries(points, i, count > 0 ? m->columns + first : NULL, count > 0 ? m->values + first : NULL, count,
                    &out);
    }
    return NAPIER_OK;
}

/* Converts dense queries to CSR, for sparse points. */
static napier_status fill_sparse_of_dense(napier_memory *memory, const char *name, napier_points *points,
                                          napier_umap_samples samples) {
    napier_context *const context = memory->context;
    NAPIER_MEMORY(own, context);
    float *row = napier_take(&own, points->cols, sizeof *row);
    NAPIER_TRY(napier_taken(&own, "%s: no memory for a row of %lld", name, (long long)points->cols));
    int64_t count = 0;
    for (int64_t i = 0; i < points->n; i++) {
        const int64_t bad = napier_read_row(points->kernels, samples, i, row);
        if (bad >= 0) {
            return napier_read_refuse(context, name, samples, i, bad);
        }
        for (int64_t c = 0; c < points->cols; c++) {
            count += is_kept(points->metric, row[c]);
        }
    }
    napier_csr_arrays out;
    NAPIER_TRY(take_entries(memory, name, points, count, &out));
    for (int64_t i = 0; i < points->n; i++) {
        (void)napier_read_row(points->kernels, samples, i, row);
        const int64_t fault = first_fault(points->metric, row, points->cols);
        if (fault >= 0) {
            return refuse_value(context, name, points->metric, i, fault, row[fault]);
        }
        add_entries(points, i, NULL, row, points->cols, &out);
    }
    return NAPIER_OK;
}

/* ---- Variances --------------------------------------------------------------------------------------------------- */

/* Adds row i, before scaling, to the sums of the columns; with means, the squared deviations. */
static void add_row(const napier_points *p, int64_t i, const double *means, double *sums) {
    if (p->rows) {
        const float *row = p->rows + i * p->width;
        for (int64_t c = 0; c < p->cols; c++) {
            const double away = (double)row[c] - (means ? means[c] : 0.0);
            sums[c] += means ? away * away : away;
        }
        return;
    }
    for (int64_t e = p->sparse.row_starts[i]; e < p->sparse.row_starts[i + 1]; e++) {
        const int32_t c = p->sparse.columns[e];
        const double x = (double)p->sparse.values[e], m = means ? means[c] : 0.0;
        /* variances_of adds (0 - mean)^2 of all rows at once */
        sums[c] += means ? (x - m) * (x - m) - m * m : x;
    }
}

/* Adds all rows to the sums of the columns. */
static void add_rows(const napier_points *p, const double *means, double *sums) {
    for (int64_t i = 0; i < p->n; i++) {
        add_row(p, i, means, sums);
    }
}

/* The mean of each column. */
static void means_of(const napier_points *p, double *means) {
    memset(means, 0, (size_t)p->cols * sizeof *means);
    add_rows(p, NULL, means);
    for (int64_t c = 0; c < p->cols; c++) {
        means[c] = p->n > 0 ? means[c] / (double)p->n : 0.0;
    }
}

/* The variance of each column: sum (x - mean)^2 / (n - 1), rows in order. */
static napier_status variances_of(napier_context *context, const napier_points *p) {
    NAPIER_MEMORY(memory, context);
    double *sums = napier_take(&memory, p->cols, 2 * sizeof *sums);
    NAPIER_TRY(napier_taken(&memory, "metric_values: no memory for %lld variances", (long long)p->cols));
    double *means = sums + p->cols;
    means_of(p, means);
    for (int64_t c = 0; c < p->cols; c++) {
        sums[c] = p->rows ? 0.0 : (double)p->n * means[c] * means[c];
    }
    add_rows(p, means, sums);
    for (int64_t c = 0; c < p->cols; c++) {
        const double variance = p->n > 1 ? sums[c] / (double)(p->n - 1) : 0.0;
        p->metric_values[c] = (float)(variance > 0.0 ? variance : 0.0);
    }
    return NAPIER_OK;
}

/* A constant column gets weight 0. */
static double inverse_root(float variance) { return variance > 0.0f ? 1.0 / sqrt((double)variance) : 0.0; }

static bool overflows(void *argument, int64_t i) {
    const napier_points *p = argument;
    const float *x = p->rows ? p->rows + i * p->width : p->sparse.values + p->sparse.row_starts[i];
    const int64_t count = p->rows ? p->cols : p->sparse.row_starts[i + 1] - p->sparse.row_starts[i];
    for (int64_t c = 0; c < count; c++) {
        if (!isfinite(x[c])) {
            return true;
        }
    }
    return false;
}

/* Rows whose columns have been multiplied. A difference of two infinite values would count as no distance. */
static napier_status check_factors(napier_context *context, napier_points *p) {
    const int64_t bad = napier_parallel_find(context, p->n, ROW_CHUNK, overflows, p);
    NAPIER_REFUSE_IF(
        context, bad >= 0,
        "metric_values: row %lld of samples, weighed by them, is more than f32 holds; divide the data by a "
        "power of two",
        (long long)bad);
    return NAPIER_OK;
}

static void divide_rows(void *argument, int64_t i) {
    napier_points *p = argument;
    for (int64_t c = 0; c < p->cols; c++) {
        float *x = &p->rows[i * p->width + c];
        *x = (float)((double)*x * inverse_root(p->metric_values[c]));
    }
}

static napier_status scale_by_variances(napier_memory *memory, napier_points *p, const napier_points *like,
                                        const float *given) {
    napier_context *const context = memory->context;
    p->metric_values = napier_take(memory, p->cols, sizeof *p->metric_values);
    NAPIER_TRY(napier_taken(memory, "metric_values: no memory for %lld", (long long)p->cols));
    const float *known = like ? like->metric_values : given;
    if (known) {
        memcpy(p->metric_values, known, (size_t)p->cols * sizeof *known);
    } else {
        NAPIER_TRY(variances_of(context, p));
    }
    for (int64_t c = 0; c < p->cols; c++) {
        NAPIER_REFUSE_IF(context, !isfinite(p->metric_values[c]) || (given && !(p->metric_values[c] > 0.0f) && !like),
                         "metric_values: variance %lld is %g", (long long)c, (double)p->metric_values[c]);
    }
    if (p->rows) {
        napier_parallel_each(context, p->n, ROW_CHUNK, divide_rows, p);
        return check_factors(context, p);
    }
    float *values = (float *)(uintptr_t)p->sparse.values; /* our own copy */
    for (int64_t e = 0; e < p->sparse.row_starts[p->n]; e++) {
        values[e] = (float)((double)values[e] * inverse_root(p->metric_values[p->sparse.columns[e]]));
    }
    return check_factors(context, p);
}

/* ---- Weights of wminkowski, options of string --------------------------------------------------------------------- */

/* w^(1/p): what a column is multiplied with, so that the distance is minkowski's. */
static float weight_root(float weight, double p) {
    return weight > 0.0f ? isinf(p) ? 1.0f : (float)napier_f64_exp(napier_f64_log((double)weight) / p) : 0.0f;
}

static void weigh_row(void *argument, int64_t i) {
    napier_points *p = argument;
    for (int64_t c = 0; c < p->cols; c++) {
        p->rows[i * p->width + c] *= p->metric_values[c];
    }
}

/* Multiplies the columns. metric_values become the factors, which queries use too. */
static napier_status weigh_columns(napier_memory *memory, napier_points *p, const napier_points *like,
                                   const float *given) {
    napier_context *const context = memory->context;
    const float *known = like ? like->metric_values : given;
    if (!known) {
        return NAPIER_OK;
    }
    p->metric_values = napier_take(memory, p->cols, sizeof *p->metric_values);
    NAPIER_TRY(napier_taken(memory, "metric_values: no memory for %lld", (long long)p->cols));
    for (int64_t c = 0; c < p->cols; c++) {
        NAPIER_REFUSE_IF(context, !isfinite(known[c]) || known[c] < 0.0f, "metric_values: weight %lld is %g",
                         (long long)c, (double)known[c]);
        p->metric_values[c] = like ? known[c] : weight_root(known[c], p->p);
    }
    if (p->rows) {
        napier_parallel_each(context, p->n, ROW_CHUNK, weigh_row, p);
        return check_factors(context, p);
    }
    float *values = (float *)(uintptr_t)p->sparse.values; /* our own copy */
    for (int64_t e = 0; e < p->sparse.row_starts[p->n]; e++) {
        values[e] *= p->metric_values[p->sparse.columns[e]];
    }
    return check_factors(context, p);
}

/* The largest distance, and what distances are divided by. */
static napier_status string_options(napier_memory *memory, napier_points *p, const napier_points *like,
                                    const float *given) {
    napier_context *const context = memory->context;
    const float usual[2] = {NAPIER_STRING_MOST, 1.0f};
    const float *known = like ? like->metric_values : given ? given : usual;
    p->metric_values = napier_take(memory, 2, sizeof *p->metric_values);
    NAPIER_TRY(napier_taken(memory, "metric_values: no memory"));
    NAPIER_REFUSE_IF(context, !(known[0] >= 1.0f && known[0] <= (float)NAPIER_STRING_HIGHEST),
                     "metric_values: the largest distance %g is not 1 to %d", (double)known[0], NAPIER_STRING_HIGHEST);
    NAPIER_REFUSE_IF(context, known[0] != floorf(known[0]), "metric_values: the largest distance %g is not whole",
                     (double)known[0]);
    NAPIER_REFUSE_IF(context, !(known[1] > 0.0f && isfinite(known[1])), "metric_values: the divisor %g is not above 0",
                     (double)known[1]);
    memcpy(p->metric_values, known, sizeof usual);
    return NAPIER_OK;
}

/* ---- Mahalanobis ------------------------------------------------------------------------------------------------- */

/* Computes the lower L of a = L L' in place; reads only the lower half. A pivot that is 0 up to rounding gives a column
 * of 0. Returns 0 if a pivot is below that, because `a` is then not positive semidefinite. */
static int cholesky(double *a, int64_t n) {
    double largest = 0.0;
    for (int64_t j = 0; j < n; j++) {
        largest = a[j * n + j] > largest ? a[j * n + j] : largest;
    }
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            double sum = a[i * n + j];
            for (int64_t k = 0; k < j; k++) {
                sum -= a[i * n + k] * a[j * n + k];
            }
            a[i * n + j] = sum;
        }
        const double pivot = a[j * n + j];
        if (!(pivot >= -1e-6 * largest)) {
            return 0;
        }
        const double root = pivot > 1e-14 * largest ? sqrt(pivot) : 0.0;
        for (int64_t i = j; i < n; i++) {
            a[i * n + j] = root > 0.0 ? (i == j ? root : a[i * n + j] / root) : 0.0;
        }
    }
    return 1;
}

typedef struct covariance_task {
    const napier_points *points;
    const double *means;
    double *out;
} covariance_task;

/* Rows [begin, end) of the lower half of the covariance, each over all points in order. */
static void covariance_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const covariance_task *t = argument;
    const napier_points *p = t->points;
    (void)worker;
    memset(t->out + begin * p->cols, 0, (size_t)((end - begin) * p->cols) * sizeof *t->out);
    for (int64_t i = 0; i < p->n; i++) {
        const float *row = p->rows + i * p->width;
        for (int64_t j = begin; j < end; j++) {
            const double away = (double)row[j] - t->means[j];
            double *out = t->out + j * p->cols;
            for (int64_t c = 0; c <= j; c++) {
                out[c] += away * ((double)row[c] - t->means[c]);
            }
        }
    }
    for (int64_t j = begin; j < end; j++) {
        for (int64_t c = 0; c <= j; c++) {
            t->out[j * p->cols + c] /= (double)(p->n - 1);
        }
    }
}

/* inverse = (m m')^-1 for a lower triangular m, column by column: m z = e, then m' x = z. */
static void invert(const double *m, int64_t n, double *column, float *inverse) {
    for (int64_t c = 0; c < n; c++) {
        for (int64_t i = 0; i < n; i++) {
            double sum = i == c ? 1.0 : 0.0;
            for (int64_t k = c; k < i; k++) {
                sum -= m[i * n + k] * column[k];
            }
            column[i] = i < c ? 0.0 : sum / m[i * n + i];
        }
        for (int64_t i = n - 1; i >= 0; i--) {
            double sum = column[i];
            for (int64_t k = i + 1; k < n; k++) {
                sum -= m[k * n + i] * column[k];
            }
            column[i] = sum / m[i * n + i];
            inverse[i * n + c] = (float)column[i];
        }
    }
}

static napier_status inverse_covariance(napier_context *context, napier_points *p, double *work, double *means) {
    static const char advice[] = "metric_values: the covariance of the data is singular; give its inverse";
    means_of(p, means);
    NAPIER_REFUSE_IF(context, p->n < 2, "%s", advice);
    covariance_task task = {p, means, work};
    napier_parallel(context, p->cols, 16, covariance_rows, &task);
    double largest = 0.0;
    for (int64_t j = 0; j < p->cols; j++) {
        largest = work[j * p->cols + j] > largest ? work[j * p->cols + j] : largest;
    }
    int regular = cholesky(work, p->cols);
    for (int64_t j = 0; j < p->cols && regular; j++) {
        const double pivot = work[j * p->cols + j];
        regular = pivot * pivot > 1e-10 * largest;
    }
    NAPIER_REFUSE_IF(context, !regular, "%s", advice);
    invert(work, p->cols, means, p->metric_values);
    return NAPIER_OK;
}

typedef struct triangle_task {
    napier_points *points;
    const double *lower;
} triangle_task;

/* L' x in place: element j needs only elements from j on. */
static void triangle_rows(void *argument, int64_t i) {
    const triangle_task *t = argument;
    napier_points *p = t->points;
    float *row = p->rows + i * p->width;
    for (int64_t j = 0; j < p->cols; j++) {
        double sum = 0.0;
        for (int64_t c = j; c < p->cols; c++) {
            sum += t->lower[c * p->cols + j] * (double)row[c];
        }
        row[j] = (float)sum;
    }
}

static napier_status known_inverse(napier_context *context, napier_points *p, const float *known) {
    for (int64_t i = 0; i < p->cols; i++) {
        for (int64_t j = 0; j < p->cols; j++) {
            const float x = known[i * p->cols + j], mirror = known[j * p->cols + i];
            const float size = fabsf(x) + fabsf(mirror);
            NAPIER_REFUSE_IF(context, !isfinite(x) || fabsf(x - mirror) > 1e-3f * size + 1e-30f,
                             "metric_values: element (%lld, %lld) is %g, its mirror %g: not a symmetric matrix",
                             (long long)i, (long long)j, (double)x, (double)mirror);
            p->metric_values[i * p->cols + j] = x;
        }
    }
    return NAPIER_OK;
}

static napier_status turn_by_covariance(napier_memory *memory, napier_points *p, const napier_points *like,
                                        const float *given) {
    napier_context *const context = memory->context;
    const int64_t n = p->cols;
    NAPIER_MEMORY(own, context);
    p->metric_values = napier_take(memory, n * n, sizeof *p->metric_values);
    double *work = napier_take(&own, n * n, sizeof *work), *means = napier_take(&own, n, sizeof *means);
    own.missing = own.missing || memory->missing;
    NAPIER_TRY(napier_taken(&own, "metric_values: no memory for %lld x %lld", (long long)n, (long long)n));
    const float *known = like ? like->metric_values : given;
    NAPIER_TRY(known ? known_inverse(context, p, known) : inverse_covariance(context, p, work, means));
    for (int64_t i = 0; i < n; i++) { /* from the rounded inverse, because queries use that too */
        for (int64_t j = 0; j < n; j++) {
            work[i * n + j] = 0.5 * ((double)p->metric_values[i * n + j] + (double)p->metric_values[j * n + i]);
        }
    }
    NAPIER_REFUSE_IF(context, !cholesky(work, n), "metric_values: not positive semidefinite");
    triangle_task task = {p, work};
    napier_parallel_each(context, p->n, ROW_CHUNK, triangle_rows, &task);
    return NAPIER_OK;
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
    const bool dense =
        like && !stored ? like->rows != NULL : !samples.sparse || becomes_dense(samples.sparse, points->metric);
    return dense            ? fill_dense(memory, name, points, samples, like == NULL)
           : samples.sparse ? fill_sparse(memory, name, points, samples)
                            : fill_sparse_of_dense(memory, name, points, samples);
}

/* Applies the metric's parameters: given, those of `like`, or from the data. */
static napier_status apply_parameters(napier_memory *memory, const char *name, napier_points *points,
                                      const napier_neighbors_options *options, const napier_points *like) {
    const float *given = options->metric_values;
    switch (points->metric) {
    case NAPIER_METRIC_SEUCLIDEAN: return scale_by_variances(memory, points, like, given);
    case NAPIER_METRIC_MAHALANOBIS: return turn_by_covariance(memory, points, like, given);
    case NAPIER_METRIC_WMINKOWSKI: return weigh_columns(memory, points, like, given);
    case NAPIER_METRIC_STRING: return string_options(memory, points, like, given);
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
