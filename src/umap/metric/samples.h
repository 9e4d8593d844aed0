/* umap/metric/samples.h - samples of any dtype and form: their check, their rows as f32, and the copy that a model
 * keeps. */
#ifndef NAPIER_UMAP_METRIC_SAMPLES_H
#define NAPIER_UMAP_METRIC_SAMPLES_H

#include <napier/umap.h>

#include "core/base/scope.h"
#include "umap/isa/umap_kernels.h"

static inline int64_t napier_samples_rows(napier_umap_samples samples) {
    return samples.sparse ? samples.sparse->rows : samples.dense.rows;
}
static inline int64_t napier_samples_cols(napier_umap_samples samples) {
    return samples.sparse ? samples.sparse->cols : samples.dense.cols;
}

/* Checks shape and structure, not the values: fewer than 2^31 rows and columns; CSR: row_starts begins at 0 and never
 * decreases, columns are ascending within a row. The other functions take checked samples. */
napier_status napier_samples_check(napier_context *context, const char *name, napier_umap_samples samples);
/* The same, with at least one column. */
napier_status napier_read_check(napier_context *context, const char *name, napier_umap_samples samples);

/* Checks that `out` shares no byte with the samples. */
napier_status napier_samples_check_apart(napier_context *context, const char *name, napier_matrix out,
                                         const char *samples_name, napier_umap_samples samples);

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Writes row `row` to out[0 .. cols), with the zeros of a sparse row. Returns the first column whose value is NaN, inf
 * or beyond f32, or -1. */
int64_t napier_read_row(const napier_umap_kernels *kernels, napier_umap_samples samples, int64_t row, float *out);

/* A hash of the contents of a row, the key of its random numbers. */
uint64_t napier_samples_hash(napier_umap_samples samples, int64_t row);

/* The first of n values that is not finite, or -1. */
int64_t napier_first_not_finite(const float *x, int64_t n);

/* Fails with INVALID_ARGUMENT; the message has the row, the column and the value. */
napier_status napier_read_refuse(napier_context *context, const char *name, napier_umap_samples samples, int64_t row,
                                 int64_t col);

/* The row of entry e of a CSR matrix. */
int64_t napier_csr_row_of(const napier_csr_matrix *matrix, int64_t e);

/* ---- Copies ------------------------------------------------------------------------------------------------------ */

/* A CSR matrix that can be written. */
typedef struct napier_csr_arrays {
    int64_t *starts;
    int32_t *columns;
    float *values;
} napier_csr_arrays;

/* Takes arrays for n rows and `count` entries; they are also the arrays of *matrix. NULL if there is no memory. */
napier_csr_arrays napier_csr_take(napier_memory *memory, int64_t n, int64_t cols, int64_t count,
                                  napier_csr_matrix *matrix);

/* f32 rows, or CSR. */
typedef struct napier_samples_copy {
    int64_t rows, cols;
    float *dense; /* [rows, cols], contiguous, or NULL: */
    napier_csr_matrix sparse;
    int64_t bad_row, bad_col; /* the first value that is not a finite f32; -1: there is none */
} napier_samples_copy;

/* offsets (below) are subtracted before the values become f32; with offsets the copy is dense. NULL: none. */
napier_status napier_samples_copy_of(napier_memory *memory, napier_umap_samples samples, const double *offsets,
                                     bool by_row, napier_samples_copy *out);

/* ---- Offsets -----------------------------------------------------------------------------------------------------
 * f32 holds 24 bits. Of f64 values whose middle is 16 times half their range or more, and which are not f32 numbers, the
 * middle is subtracted in f64 (there exactly) before they become f32. Distances do not change with it if the metric allows
 * it: by column, or for correlation by row. */

/* Does the metric allow offsets of columns, or of rows? */
bool napier_metric_moves_columns(napier_metric metric);
static inline bool napier_metric_moves_rows(napier_metric metric) { return metric == NAPIER_METRIC_CORRELATION; }

/* The offsets, [cols] or [rows], in `memory`; NULL if none is needed, as for data other than dense f64. If all f64 values
 * that the metric compares (the table, a column, a row, or one value) are below the normal numbers of f32, it fails with
 * INVALID_ARGUMENT. name NULL: it does not. */
napier_status napier_samples_offsets(napier_memory *memory, const char *name, napier_umap_samples samples,
                                     napier_metric metric, double **offsets);
/* The samples, or if there are offsets an f32 copy of them less these, in `memory`. */
napier_status napier_samples_less(napier_memory *memory, napier_umap_samples samples, const double *offsets,
                                  bool by_row, napier_umap_samples *out);
/* The same with the offsets of the samples themselves. */
napier_status napier_samples_moved(napier_memory *memory, const char *name, napier_umap_samples samples,
                                   napier_metric metric, napier_umap_samples *out);
/* Rows that are compared with samples of these offsets. Those of rows are their own. */
napier_status napier_queries_moved(napier_memory *memory, const char *name, napier_umap_samples queries,
                                   const double *offsets, napier_metric metric, napier_umap_samples *out);
/* Do two dense rows differ, in their own dtype? False for sparse rows. */
bool napier_samples_differ(napier_umap_samples samples, int64_t i, int64_t j);

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

/* The square of a difference of one unit in the last place of a smaller value is not a normal number. */
#define NAPIER_SAMPLES_SMALL 0x1p-39f

/* Are rows of this metric multiplied, if their values are very large or all small? */
bool napier_metric_scales(napier_metric metric);

/* The exponent by which to multiply these rows, so that distances of this metric stay within f32. It is 0 for all but very
 * large values and data of very small values only, where the metric needs no factor or is precomputed, and where distances
 * between small rows would be lost. */
int napier_samples_exponent(const napier_context *context, const napier_samples_copy *copy, napier_metric metric);
/* Are all values so small that squares of their differences need not be normal numbers? Or, if may_be_large, is a value so
 * large that they may overflow? False for a metric that needs no factor. `row`: room for one. */
bool napier_samples_need_scale(napier_umap_samples samples, napier_metric metric, const napier_umap_kernels *kernels,
                               bool may_be_large, float *row);

/* The samples, or if the exponent is not 0 a copy of them times 2^exponent, in `memory`. */
napier_status napier_samples_scaled(napier_memory *memory, napier_umap_samples samples, int exponent,
                                    napier_umap_samples *out);

/* Multiplies the samples, and the queries if they are not NULL, by the power of two that the samples need. */
napier_status napier_samples_rescale(napier_memory *memory, napier_umap_samples *samples, napier_umap_samples *queries,
                                     napier_metric metric, int *exponent);

/* Are distances multiplied too, if rows are? Otherwise they stay as they are. has_values: metric_values are given. */
bool napier_metric_grows(napier_metric metric, bool has_values);

/* The copy as samples; `copy` must live as long as the result. */
napier_umap_samples napier_samples_view(const napier_samples_copy *copy);

#endif
