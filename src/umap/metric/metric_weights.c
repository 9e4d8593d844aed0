/* umap/metric/metric_weights.c - metrics that weigh columns: seuclidean by their variances, wminkowski by given weights; and
 * the options of string (metric_parts.h). */
#include "umap/metric/metric_parts.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/math/f64.h"

enum { ROW_CHUNK = 64 };

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

void napier_points_means(const napier_points *p, double *means) {
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
    napier_points_means(p, means);
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

napier_status napier_points_scale(napier_memory *memory, napier_points *p, const napier_points *like,
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

napier_status napier_points_weigh(napier_memory *memory, napier_points *p, const napier_points *like,
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

napier_status napier_points_string(napier_memory *memory, napier_points *p, const napier_points *like,
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
