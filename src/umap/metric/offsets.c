/* umap/metric/offsets.c - the offsets of f64 samples, without which f32 loses the digits in which rows differ (samples.h). */
#include "umap/metric/samples.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/math/f64.h"

enum { COLUMN_CHUNK = 16, ROW_CHUNK = 256 };

/* Values need an offset if their midpoint is at least so many times half their range. So without one at most four bits
 * are lost. */
#define FAR 16.0

/* The middle of `count` values if they need an offset, else 0. Values that are all f32 numbers need none. NaN is skipped,
 * and with infinite values there is no middle. */
static double offset_of(napier_const_matrix m, int64_t first, int64_t stride, int64_t count) {
    double low = (double)INFINITY, high = -low;
    bool exact = true;
    for (int64_t i = 0; i < count; i++) {
        const double x = napier_f64_load(m.data, m.dtype, first + i * stride);
        low = x < low ? x : low;
        high = x > high ? x : high;
        exact = exact && (double)napier_f64_to_f32(x) == x;
    }
    const double middle = 0.5 * low + 0.5 * high;
    return !exact && fabs(middle) >= FAR * (0.5 * high - 0.5 * low) && isfinite(middle) ? middle : 0.0;
}

typedef struct offset_task {
    napier_const_matrix samples;
    double *offsets;
} offset_task;

static void column_offset(void *argument, int64_t c) {
    const offset_task *t = argument;
    t->offsets[c] = offset_of(t->samples, c * t->samples.col_stride, t->samples.row_stride, t->samples.rows);
}

static void row_offset(void *argument, int64_t i) {
    const offset_task *t = argument;
    t->offsets[i] = offset_of(t->samples, i * t->samples.row_stride, t->samples.col_stride, t->samples.cols);
}

static bool has_offset(const double *offsets, int64_t count) {
    int64_t i = 0;
    while (i < count && offsets[i] == 0.0) {
        i++;
    }
    return i < count;
}

bool napier_metric_moves(napier_metric metric) {
    return napier_metric_grows(metric, true) || napier_metric_moves_rows(metric);
}

napier_status napier_samples_offsets(napier_memory *memory, napier_umap_samples samples, napier_metric metric,
                                     double **offsets) {
    const napier_const_matrix m = samples.dense;
    *offsets = NULL;
    if (samples.sparse || m.dtype != NAPIER_F64 || m.rows == 0 || m.cols == 0 || !napier_metric_moves(metric)) {
        return NAPIER_OK;
    }
    const bool by_row = napier_metric_moves_rows(metric);
    const int64_t count = by_row ? m.rows : m.cols;
    offset_task task = {m, napier_take(memory, count, sizeof *task.offsets)};
    NAPIER_TRY(napier_taken(memory, "samples: no memory for %lld offsets", (long long)count));
    napier_parallel_each(memory->context, count, by_row ? ROW_CHUNK : COLUMN_CHUNK, by_row ? row_offset : column_offset,
                         &task);
    *offsets = has_offset(task.offsets, count) ? task.offsets : NULL;
    return NAPIER_OK;
}

napier_status napier_samples_less(napier_memory *memory, napier_umap_samples samples, const double *offsets,
                                  bool by_row, napier_umap_samples *out) {
    *out = samples;
    if (!offsets) {
        return NAPIER_OK;
    }
    napier_samples_copy *copy = napier_take(memory, 1, sizeof *copy);
    NAPIER_TRY(napier_taken(memory, "samples: no memory"));
    NAPIER_TRY(napier_samples_copy_of(memory, samples, offsets, by_row, copy));
    *out = napier_samples_view(copy);
    return NAPIER_OK;
}

napier_status napier_samples_moved(napier_memory *memory, napier_umap_samples samples, napier_metric metric,
                                   napier_umap_samples *out) {
    double *offsets;
    NAPIER_TRY(napier_samples_offsets(memory, samples, metric, &offsets));
    return napier_samples_less(memory, samples, offsets, napier_metric_moves_rows(metric), out);
}

bool napier_samples_differ(napier_umap_samples samples, int64_t i, int64_t j) {
    const napier_const_matrix m = samples.dense;
    for (int64_t c = 0; !samples.sparse && c < m.cols; c++) {
        if (napier_f64_load(m.data, m.dtype, i * m.row_stride + c * m.col_stride) !=
            napier_f64_load(m.data, m.dtype, j * m.row_stride + c * m.col_stride)) {
            return true;
        }
    }
    return false;
}
