/* umap/metric/covariance.c - mahalanobis: rows times L', where L L' is the inverse covariance (metric_parts.h). */
#include "umap/metric/metric_parts.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"

enum { ROW_CHUNK = 64 };

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
    napier_points_means(p, means);
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

napier_status napier_points_turn(napier_memory *memory, napier_points *p, const napier_points *like,
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
