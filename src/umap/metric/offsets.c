/* umap/metric/offsets.c - the offsets of f64 samples, without which f32 loses the digits in which rows differ, and the
 * refusal of values that f32 does not hold (samples.h). */
#include "umap/metric/samples.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "umap/metric/metric_parts.h"
#include "umap/metric/span.h"

enum { COLUMN_CHUNK = 16, ROW_CHUNK = 256 };

typedef struct offset_task {
    napier_const_matrix samples;
    napier_reach reach;
    bool moves;
    bool compares;           /* hamming: are values equal? */
    double *offsets, *sizes; /* of columns or rows */
} offset_task;

static void measure(const offset_task *t, int64_t line, int64_t first, int64_t stride, int64_t count) {
    napier_span found = napier_span_empty();
    for (int64_t i = 0; i < count; i++) {
        napier_span_add(&found, napier_f64_load(t->samples.data, t->samples.dtype, first + i * stride));
    }
    t->offsets[line] = t->moves ? napier_span_offset(&found) : 0.0;
    const double largest = napier_span_size(&found, 0.0, OF_ALL);
    const bool rounded = t->compares && !found.exact && largest >= 0x1p24 && largest <= (double)FLT_MAX;
    t->sizes[line] = rounded ? (double)INFINITY : napier_span_size(&found, t->offsets[line], t->reach);
}

static void column_offset(void *argument, int64_t c) {
    const offset_task *t = argument;
    measure(t, c, c * t->samples.col_stride, t->samples.row_stride, t->samples.rows);
}

static void row_offset(void *argument, int64_t i) {
    const offset_task *t = argument;
    measure(t, i, i * t->samples.row_stride, t->samples.col_stride, t->samples.cols);
}

static bool has_offset(const double *offsets, int64_t count) {
    int64_t i = 0;
    while (i < count && offsets[i] == 0.0) {
        i++;
    }
    return i < count;
}

/* Refuses values that lose digits in f32, if all that count together are. */
static napier_status check_sizes(napier_context *context, const char *name, const offset_task *t, napier_metric metric,
                                 int64_t count) {
    const double limit = napier_least_held(metric);
    double largest = 0.0;
    for (int64_t i = 0; i < count; i++) {
        largest = t->sizes[i] > largest ? t->sizes[i] : largest;
        NAPIER_REFUSE_IF(context, t->compares && isinf(t->sizes[i]),
                         "%s: row %lld has values beyond 2^24 that float32 may make equal; number them from 0", name,
                         (long long)i);
        NAPIER_REFUSE_IF(
            context, t->reach != OF_ALL && t->sizes[i] > 0.0 && t->sizes[i] < limit,
            "%s: %s %lld %s %g, which float32 does not hold; multiply the data by a power of two, or leave "
            "these values out",
            name, t->reach == OF_COLUMN ? "column" : "row", (long long)i,
            t->reach == OF_VALUE ? "has a value of size" : "has values, or differences, of at most", t->sizes[i]);
    }
    NAPIER_REFUSE_IF(context, t->reach == OF_ALL && largest > 0.0 && largest < limit,
                     "%s: values differ by at most %g, which float32 does not hold; multiply the data by 2^%d", name,
                     largest, -ilogb(largest));
    return NAPIER_OK;
}

bool napier_metric_moves_columns(napier_metric metric) { return napier_metric_grows(metric, true); }

napier_status napier_samples_offsets(napier_memory *memory, const char *name, napier_umap_samples samples,
                                     napier_metric metric, double **offsets) {
    const napier_const_matrix m = samples.dense;
    const napier_reach together = napier_reach_of(metric);
    *offsets = NULL;
    if (samples.sparse || m.dtype != NAPIER_F64 || m.rows == 0 || m.cols == 0 || together == OF_NONE) {
        return NAPIER_OK;
    }
    const bool by_column = napier_metric_moves_columns(metric);
    const int64_t count = by_column ? m.cols : m.rows;
    offset_task task = {.samples = m,
                        .reach = together,
                        .moves = by_column || napier_metric_moves_rows(metric),
                        .compares = metric == NAPIER_METRIC_HAMMING,
                        .offsets = napier_take(memory, count, sizeof *task.offsets),
                        .sizes = napier_take(memory, count, sizeof *task.sizes)};
    NAPIER_TRY(napier_taken(memory, "samples: no memory for %lld offsets", (long long)count));
    napier_parallel_each(memory->context, count, by_column ? COLUMN_CHUNK : ROW_CHUNK,
                         by_column ? column_offset : row_offset, &task);
    NAPIER_TRY(name ? check_sizes(memory->context, name, &task, metric, count) : NAPIER_OK);
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

napier_status napier_samples_moved(napier_memory *memory, const char *name, napier_umap_samples samples,
                                   napier_metric metric, napier_umap_samples *out) {
    double *offsets;
    NAPIER_TRY(napier_samples_offsets(memory, name, samples, metric, &offsets));
    return napier_samples_less(memory, samples, offsets, napier_metric_moves_rows(metric), out);
}

napier_status napier_queries_moved(napier_memory *memory, const char *name, napier_umap_samples queries,
                                   const double *offsets, napier_metric metric, napier_umap_samples *out) {
    return napier_metric_moves_columns(metric) ? napier_samples_less(memory, queries, offsets, false, out)
                                               : napier_samples_moved(memory, name, queries, metric, out);
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
