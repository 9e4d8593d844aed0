/* umap/metric/metric_parts.h - the parts of napier_points_create (metric.h). `like` and `given` are as there: points whose
 * parameters are used, and the caller's metric_values; either may be NULL. */
#ifndef NAPIER_UMAP_METRIC_METRIC_PARTS_H
#define NAPIER_UMAP_METRIC_METRIC_PARTS_H

#include "umap/metric/metric.h"

/* ---- Values (metric_faults.c) ------------------------------------------------------------------------------------ */

/* The first of n finite values that the metric does not take, or -1. */
int64_t napier_metric_fault(napier_metric metric, const float *x, int64_t n);
/* Fails for such a value. */
napier_status napier_metric_refuse(napier_context *context, const char *name, napier_metric metric, int64_t row,
                                   int64_t col, float value);

/* ---- CSR (metric_sparse.c) --------------------------------------------------------------------------------------- */

/* Does CSR data become dense rows? */
bool napier_points_become_dense(const napier_csr_matrix *m, napier_metric metric);
napier_status napier_points_fill_sparse(napier_memory *memory, const char *name, napier_points *points,
                                        napier_umap_samples samples);
/* Converts dense queries to CSR, for sparse points. */
napier_status napier_points_fill_sparse_of_dense(napier_memory *memory, const char *name, napier_points *points,
                                                 napier_umap_samples samples);

/* ---- Columns (metric_weights.c) ---------------------------------------------------------------------------------- */

/* The mean of each column. */
void napier_points_means(const napier_points *p, double *means);
/* Divides the columns by the roots of their variances. */
napier_status napier_points_scale(napier_memory *memory, napier_points *p, const napier_points *like,
                                  const float *given);
/* Multiplies the columns. metric_values become the factors, which queries use too. */
napier_status napier_points_weigh(napier_memory *memory, napier_points *p, const napier_points *like,
                                  const float *given);
/* Takes the largest distance of string, and what distances are divided by. */
napier_status napier_points_string(napier_memory *memory, napier_points *p, const napier_points *like,
                                   const float *given);

/* ---- Mahalanobis (covariance.c) ---------------------------------------------------------------------------------- */

/* Multiplies the rows by L', where L L' is the inverse covariance. */
napier_status napier_points_turn(napier_memory *memory, napier_points *p, const napier_points *like,
                                 const float *given);

#endif
