/* umap/metric/metric_sparse.c - transforms CSR data for distances (metric_parts.h).
 *
 * CSR data becomes dense rows where that costs little memory (DENSE_COLUMNS, DENSE_BYTES), because products of dense
 * rows are much faster. Otherwise the copy stays CSR, without stored zeros and with values transformed in the same way,
 * and rows are merged (kind GENERAL). */
#include "umap/metric/metric_parts.h"

#include <math.h>

#include "umap/metric/samples.h"

/* CSR data of more columns or more bytes stays CSR, */
enum { DENSE_COLUMNS = 4096 };
#define DENSE_BYTES ((int64_t)1 << 30)
/* unless the dense rows take at most so many times the CSR's bytes. */
enum { DENSE_TIMES = 8 };

bool napier_points_become_dense(const napier_csr_matrix *m, napier_metric metric) {
    if (metric == NAPIER_METRIC_PRECOMPUTED) {
        return false; /* missing entries are far, not 0 */
    }
    if (napier_metric_needs_dense(metric)) {
        return true;
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
    } else if (napier_metric_is_boolean(points->metric)) {
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
    const int64_t e = napier_metric_fault(metric, m->values, count);
    return e < 0 ? NAPIER_OK
                 : napier_metric_refuse(context, name, metric, napier_csr_row_of(m, e), m->columns[e], m->values[e]);
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

napier_status napier_points_fill_sparse(napier_memory *memory, const char *name, napier_points *points,
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

napier_status napier_points_fill_sparse_of_dense(napier_memory *memory, const char *name, napier_points *points,
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
        const int64_t fault = napier_metric_fault(points->metric, row, points->cols);
        if (fault >= 0) {
            return napier_metric_refuse(context, name, points->metric, i, fault, row[fault]);
        }
        add_entries(points, i, NULL, row, points->cols, &out);
    }
    return NAPIER_OK;
}
