/* umap/metric/read.h - rows of samples as f32, whatever they come as, and the checks of what they hold. */
#ifndef NAPIER_UMAP_METRIC_READ_H
#define NAPIER_UMAP_METRIC_READ_H

#include <napier/umap.h>

#include "core/base/context.h"
#include "umap/isa/umap_kernels.h"

/* The shape and the structure: fewer than 2^31 rows and columns, at least one column; CSR: row_starts from 0 and never
 * falling, columns ascending within a row. Not the values. */
napier_status napier_read_check(napier_context *context, const char *name, napier_umap_samples samples, int64_t *n,
                                int64_t *cols);

/* Row `row` in full, zeros of a sparse one included, at out[0 .. cols). The first column whose value is NaN, inf or beyond
 * f32, or -1. */
int64_t napier_read_row(const napier_umap_kernels *kernels, napier_umap_samples samples, int64_t row, float *out);

/* The first entry of a CSR matrix that is not finite, or -1. */
int64_t napier_read_bad_entry(const napier_csr_matrix *matrix);

/* INVALID_ARGUMENT with the place and the value. */
napier_status napier_read_refuse(napier_context *context, const char *name, napier_umap_samples samples, int64_t row,
                                 int64_t col);

/* First rows that workers found bad: each keeps its own, the least of all is the answer, whoever found it. */
enum { NAPIER_MOST_WORKERS = 1024 };
typedef struct napier_bad_rows {
    int64_t first[NAPIER_MOST_WORKERS];
} napier_bad_rows;

static inline void napier_bad_rows_clear(napier_bad_rows *bad) {
    for (int i = 0; i < NAPIER_MOST_WORKERS; i++) {
        bad->first[i] = INT64_MAX;
    }
}
static inline void napier_bad_rows_add(napier_bad_rows *bad, int worker, int64_t row) {
    if (row < bad->first[worker]) {
        bad->first[worker] = row;
    }
}
static inline int64_t napier_bad_rows_least(const napier_bad_rows *bad) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < NAPIER_MOST_WORKERS; i++) {
        least = bad->first[i] < least ? bad->first[i] : least;
    }
    return least == INT64_MAX ? -1 : least;
}

#endif
