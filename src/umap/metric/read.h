/* umap/metric/read.h - reads rows of samples of any dtype and form as f32, and checks their values. */
#ifndef NAPIER_UMAP_METRIC_READ_H
#define NAPIER_UMAP_METRIC_READ_H

#include <napier/umap.h>

#include "core/base/context.h"
#include "umap/isa/umap_kernels.h"

/* Checks shape and structure, not the values: fewer than 2^31 rows and columns, at least one column; CSR: row_starts
 * begins at 0 and never decreases, columns are ascending within a row. */
napier_status napier_read_check(napier_context *context, const char *name, napier_umap_samples samples, int64_t *n,
                                int64_t *cols);

/* Writes row `row` to out[0 .. cols), with the zeros of a sparse row. Returns the first column whose value is NaN, inf
 * or beyond f32, or -1. */
int64_t napier_read_row(const napier_umap_kernels *kernels, napier_umap_samples samples, int64_t row, float *out);

/* The first entry of a CSR matrix that is not finite, or -1. */
int64_t napier_read_bad_entry(const napier_csr_matrix *matrix);

/* Fails with INVALID_ARGUMENT; the message has the row, the column and the value. */
napier_status napier_read_refuse(napier_context *context, const char *name, napier_umap_samples samples, int64_t row,
                                 int64_t col);

/* The first bad row that each worker found. The least of them is reported, so that the result does not depend on
 * threads. */
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
